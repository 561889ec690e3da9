"""What readers of engine text logs share: the time at the head of a line, and holding requests back for later lines.

A line of an engine may carry the prefix of whatever collected it (`docker logs -t`, compose, Kubernetes, journald) and
colours. Markers of an engine are therefore searched in the first characters of a line, never matched at its start, and
the time is the one nearest to the marker that has what is needed.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

HEAD = 400
"""Characters at the start of a line in which a marker must stand; what follows may be a prompt that quotes a log."""

ANY_ENGINE = re.compile(
    r"Receive(?: OpenAI)?: obj=|Finish: (?:obj=|input_ids_len=)|\"event\": ?\"request\.(?:received|finished)"
    r"|Received request \S|Request \S+ (?:details: |JSON body: )|Generated response \S"
    r"|log_server_r: |slot +\w+: id |msg=\"(?:chat|generate|completion) (?:request|handler)\"|text_generation_router"
)
"""A line that one of the engines wrote about a request; a reader leaves those of the others to their readers."""

_ISO = re.compile(
    r"(\d{4})[-/](\d\d)[-/](\d\d)(?:[T ]| - )(\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?\s?(Z|[+-]\d\d:?\d\d)?"
)
_NO_YEAR = re.compile(r"(?<!\d)(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:[.,](\d{1,6}))?")
_COLOUR = re.compile(r"\x1b\[[\d;]*[A-Za-z]")
_LEAP_YEAR = 2024

T = TypeVar("T")


def last_text(body: Any) -> str | None:
    """Give the last text of a request body: of its last message, or its prompt."""
    if not isinstance(body, dict):
        return None
    messages = body.get("messages")
    if isinstance(messages, list) and messages and isinstance(messages[-1], dict):
        return content_text(messages[-1].get("content"))
    for key in ("prompt", "input", "inputs"):
        if isinstance(body.get(key), str):
            return str(body[key])
    return None


def content_text(content: Any) -> str | None:
    """Give a message's content, or the last text part of it."""
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, dict)]
        content = texts[-1] if texts else None
    return content if isinstance(content, str) else None


def plain(line: Any) -> str | None:
    r"""Give a line without colours; None when it is no text. A prompt's own escape characters are logged as `\\x1b`."""
    if not isinstance(line, str):
        return None
    return _COLOUR.sub("", line) if "\x1b" in line else line


def iso_time(text: str, start: int = 0, end: int = HEAD) -> float | None:
    """Give the last full date and time before `end`, in seconds since the epoch; without an offset it is UTC."""
    found = None
    for found in _ISO.finditer(text, start, end):  # noqa: B007  # the last match is wanted
        pass
    if found is None:
        return None
    year, month, day, hour, minute, second = map(int, found.group(1, 2, 3, 4, 5, 6))
    try:
        moment = datetime(year, month, day, hour, minute, min(second, 59), tzinfo=UTC).timestamp()
    except (ValueError, OverflowError):
        return None
    moment += float(f"0.{found[7]}") if found[7] else 0.0
    return moment - _offset(found[8])


def _offset(zone: str | None) -> float:
    if not zone or zone == "Z":
        return 0.0
    digits = zone[1:].replace(":", "")
    seconds = int(digits[:2]) * 3600 + int(digits[2:]) * 60
    return float(-seconds if zone[0] == "-" else seconds)


class YearlessClock:
    """Times of a log whose lines say month and day but no year (vLLM).

    The year comes from a prefix with a full date where one stands before it, else it is the latest one in which the
    first line is not younger than the file, else (standard input) a fixed leap year, so that only differences count.
    When the month goes back by more than half a year, a new year has begun. The zone is not logged and taken as UTC.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._year: int | None = None
        self._month = 0

    def read(self, line: str, end: int) -> float | None:
        """Give the time in the head of a line, before character `end`."""
        found = _NO_YEAR.search(line, 0, end)
        full = iso_time(line, 0, found.start() if found else end)
        if full is not None or found is None:
            return full
        month, day, hour, minute, second = map(int, found.group(1, 2, 3, 4, 5))
        if self._year is None:
            self._year = _year_of_file(self._path, month, day)
        elif self._month - month > 6:
            self._year += 1
        self._month = month
        try:
            moment = datetime(self._year, month, day, hour, minute, min(second, 59), tzinfo=UTC).timestamp()
        except ValueError:
            return None
        return moment + (float(f"0.{found[6]}") if found[6] else 0.0)


def _year_of_file(path: str, month: int, day: int) -> int:
    try:
        file = Path(path)
        written = datetime.fromtimestamp(file.stat().st_mtime, UTC) if file.is_file() else None
    except (OSError, ValueError, OverflowError):
        written = None
    if written is None:
        return _LEAP_YEAR
    # a day of slack: the log's zone is not known
    return written.year - ((month, day) > (written.month, written.day + 1))


@dataclass(slots=True)
class _Slot(Generic[T]):
    draft: T
    done: bool = False


@dataclass(slots=True)
class Held(Generic[T]):
    """Requests that wait for later lines about them, given back in the order they came.

    One that never completes holds the others back only until `limit` requests wait.
    """

    limit: int
    _queue: deque[_Slot[T]] = field(default_factory=deque)
    _by_key: dict[str, _Slot[T]] = field(default_factory=dict)

    def get(self, key: str) -> T | None:
        """Give the waiting request with this key."""
        slot = self._by_key.get(key)
        return slot.draft if slot else None

    def waiting(self) -> list[T]:
        """Give the requests that are not complete, oldest first."""
        return [slot.draft for slot in self._queue if not slot.done]

    def add(self, key: str, draft: T) -> T:
        """Let a request wait; an older one with the same key waits for nothing any more."""
        self.close(key)
        slot = _Slot(draft)
        self._by_key[key] = slot
        self._queue.append(slot)
        return draft

    def close(self, key: str) -> None:
        """Mark a request as complete."""
        if slot := self._by_key.pop(key, None):
            slot.done = True

    def ready(self) -> Iterator[T]:
        """Take out what is complete at the front, and what is over the limit."""
        while self._queue and (self._queue[0].done or len(self._queue) > self.limit):
            yield self._queue.popleft().draft
        if len(self._by_key) > 2 * self.limit:
            alive = {id(slot) for slot in self._queue}
            self._by_key = {key: slot for key, slot in self._by_key.items() if id(slot) in alive}

    def drain(self) -> Iterator[T]:
        """Take out everything."""
        while self._queue:
            yield self._queue.popleft().draft
        self._by_key.clear()
