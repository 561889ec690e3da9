"""What is kept of one HTTP exchange while it passes: bounded copies of both bodies, and times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Outcome = Literal["ok", "client-gone", "upstream-failed", "upstream-broke-off", "stopped"]

# A body's end is kept as well as its start: usage stands at the end of a stream.
TAIL_BYTES = 1 << 16
# Arrival times kept per response. Generated text begins within the first few pieces of a stream.
_ARRIVALS = 16


class Body:
    """The start of a body up to `limit` bytes, its last bytes beyond that, and its size."""

    __slots__ = ("_chunks", "_kept", "_tail", "limit", "size")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.size = 0
        self._chunks: list[bytes] = []
        self._kept = 0
        self._tail = b""

    def feed(self, chunk: bytes) -> None:
        """Take the next piece of the body."""
        self.size += len(chunk)
        room = self.limit - self._kept
        if room >= len(chunk):
            self._chunks.append(chunk)
            self._kept += len(chunk)
            return
        if room > 0:
            self._chunks.append(chunk[:room])
            self._kept += room
            chunk = chunk[room:]
        self._tail = chunk[-TAIL_BYTES:] if len(chunk) >= TAIL_BYTES else (self._tail + chunk)[-TAIL_BYTES:]

    @property
    def whole(self) -> bool:
        """Whether every byte was kept."""
        return self._kept == self.size

    @property
    def held(self) -> int:
        """Bytes of memory that the copy takes."""
        return self._kept + len(self._tail)

    def start(self) -> bytes:
        """Give the kept start of the body."""
        return self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)

    def tail(self) -> bytes:
        """Give the last bytes of a body that was too long to keep; empty where it was kept whole."""
        return self._tail


@dataclass(slots=True)
class Exchange:
    """One request and its response, filled in while they pass.

    `time` is seconds since the epoch; `total` and the arrivals are seconds since the request came in. `arrivals` are
    (seconds, bytes of the response so far) of the first pieces. Headers have lower-case names. `ttft` is set where the
    time to the first token is known otherwise than from the arrivals.
    """

    time: float
    method: str
    target: str
    request: Body
    response: Body
    request_headers: Mapping[str, str] = field(default_factory=dict)
    response_headers: Mapping[str, str] = field(default_factory=dict)
    status: int | None = None
    total: float | None = None
    outcome: Outcome = "ok"
    error: str | None = None
    ttft: float | None = None
    arrivals: list[tuple[float, int]] = field(default_factory=list)

    def arrived(self, seconds: float, chunk: bytes) -> None:
        """Take the next piece of the response."""
        self.response.feed(chunk)
        if len(self.arrivals) < _ARRIVALS:
            self.arrivals.append((seconds, self.response.size))

    @property
    def held(self) -> int:
        """Bytes of memory that the bodies take."""
        return self.request.held + self.response.held
