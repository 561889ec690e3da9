"""The upstream's end of the proxy: where requests go, and the connections there, used again and again."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import urlsplit

import httptools

from prefixlint.capture import wire
from prefixlint.capture.exchange import Exchange

# Below the 5 s after which uvicorn and Node close an idle connection, so that a request rarely meets a closed one.
_IDLE_SECONDS = 4.0
_NO_BODY = frozenset({204, 304})


class Exchanging(Protocol):
    """One request on its way, as the upstream's connection sees it: it takes the response."""

    complete: bool

    def response_head(self, status: int, reason: bytes, headers: wire.Headers, *, bodiless: bool) -> None: ...  # noqa: D102
    def response_body(self, pieces: list[bytes]) -> None: ...  # noqa: D102
    def response_complete(self) -> None: ...  # noqa: D102
    def upstream_lost(self, error: str, *, reused: bool) -> None: ...  # noqa: D102
    def pause_request(self, *, paused: bool) -> None: ...  # noqa: D102
    def stopped(self) -> None: ...  # noqa: D102


class Client(Protocol):
    """A client's connection, which can be broken off."""

    def abort(self) -> None: ...  # noqa: D102


@dataclass(slots=True)
class Upstream:
    """Where requests go; keeps idle connections for the next one, the latest used first."""

    url: str
    body_limit: int
    submit: Callable[[Exchange], None]
    connect_timeout: float = 30.0
    tls: ssl.SSLContext | None = None
    idle: list[UpstreamConnection] = field(default_factory=list)
    active: set[Exchanging] = field(default_factory=set)
    clients: set[Client] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Take the URL apart once."""
        parts = urlsplit(self.url)
        self._name = parts.hostname or ""
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self.host = parts.netloc.rpartition("@")[2].encode()
        self.base = parts.path.rstrip("/").encode()

    _name: str = field(init=False)
    _port: int = field(init=False)
    host: bytes = field(init=False)
    base: bytes = field(init=False)

    def pick(self) -> UpstreamConnection | None:
        """Give an idle connection that is likely to be open still."""
        fresh = time.monotonic() - _IDLE_SECONDS
        while self.idle:
            connection = self.idle.pop()
            if connection.usable and connection.idle_since > fresh:
                return connection
            connection.close()
        return None

    async def connect(self) -> UpstreamConnection:
        """Open a connection. Raises OSError (TimeoutError is one)."""
        loop = asyncio.get_running_loop()
        opening = loop.create_connection(
            lambda: UpstreamConnection(self),
            self._name,
            self._port,
            ssl=self.tls,
            server_hostname=self._name if self.tls else None,
        )
        return (await asyncio.wait_for(opening, self.connect_timeout))[1]

    def close(self) -> None:
        """Break off everything."""
        for turn in list(self.active):
            turn.stopped()
        for client in list(self.clients):
            client.abort()
        for connection in self.idle:
            connection.close()


class UpstreamConnection(asyncio.Protocol):
    """One connection to the upstream, used for one exchange after the other."""

    transport: asyncio.Transport

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self.turn: Exchanging | None = None
        self.idle_since = 0.0
        self.usable = True
        self._parser: Any = None
        self._served = 0
        self._reason = b""
        self._headers: wire.Headers = []
        self._pieces: list[bytes] = []
        self._head_only = False
        self._heard = self._head_done = self._to_the_end = self._finished = self._keep = False

    def begin(self, turn: Exchanging, *, head_only: bool) -> None:
        """Take up an exchange."""
        self.turn = turn
        self._parser = httptools.HttpResponseParser(self)
        self._head_only = head_only
        self._served += 1
        self._heard = self._head_done = self._to_the_end = self._finished = self._keep = False

    def close(self) -> None:
        """Close at once: nothing that is still to be sent matters."""
        self.usable = False
        self.transport.abort()

    def pause(self, *, paused: bool) -> None:
        """Stop or go on reading."""
        if self.usable:
            (self.transport.pause_reading if paused else self.transport.resume_reading)()

    # Called by asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = transport  # type: ignore[assignment]  # uvloop's are no subclass

    def data_received(self, data: bytes) -> None:
        """Parse; relay what the callbacks below collected."""
        if self.turn is None:
            self._retire()
            return
        self._heard = True
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._flush()
            if not self._finished:
                self._lose(f"it sent what is no HTTP response: {error}")
                return
            self.usable = False
        self._flush()
        if self._finished:
            self._finish()

    def connection_lost(self, exc: Exception | None) -> None:
        """End a response without a length; any other breaks off here."""
        self.usable = False
        if self in self._upstream.idle:
            self._upstream.idle.remove(self)
        if self.turn is None:
            return
        if self._to_the_end and exc is None:
            self._finish()
        elif self._head_done:
            self._lose("it closed the connection before the response was whole")
        else:
            self._lose(f"it closed the connection without an answer{f' ({exc})' if exc else ''}")

    def pause_writing(self) -> None:
        """Slow the client down."""
        if self.turn is not None:
            self.turn.pause_request(paused=True)

    def resume_writing(self) -> None:
        """Let the client go on."""
        if self.turn is not None:
            self.turn.pause_request(paused=False)

    # Called by the parser.

    def on_message_begin(self) -> None:
        """Start a response; a second one to the same request is nonsense, and noticed at its head."""
        self._reason, self._headers = b"", []

    def on_status(self, status: bytes) -> None:
        """Take a piece of the reason phrase."""
        self._reason += status

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; trailers end here."""
        if not self._head_done:
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Relay the head; interim responses (100, 103) are not passed on."""
        status = self._parser.get_status_code()
        if self._finished or self.turn is None:
            raise ValueError("more than the response")
        if status < 200:
            return
        bodiless = self._head_only or status in _NO_BODY
        self._head_done = True
        sized = wire.is_chunked(self._headers) or wire.value_of(self._headers, b"content-length") is not None
        self._to_the_end = not bodiless and not sized
        self.turn.response_head(status, self._reason, self._headers, bodiless=bodiless)
        if self._head_only:
            self._finished = True
            self.usable = False

    def on_body(self, data: bytes) -> None:
        """Collect a piece of the body."""
        if not self._finished:
            self._pieces.append(data)

    def on_message_complete(self) -> None:
        """Note that the response is whole, unless it was an interim one."""
        if self._head_done:
            self._finished = True
            self._keep = self._parser.should_keep_alive()

    def _flush(self) -> None:
        if self._pieces and self.turn is not None:
            self.turn.response_body(self._pieces)
        self._pieces = []

    def _finish(self) -> None:
        turn, self.turn = self.turn, None
        assert turn is not None
        reusable = self.usable and self._keep
        if self.usable:
            self.transport.resume_reading()
        if reusable and turn.complete:
            self.idle_since = time.monotonic()
            self._upstream.idle.append(self)
        else:
            self._retire()
        turn.response_complete()

    def _lose(self, error: str) -> None:
        turn, self.turn = self.turn, None
        self._flush()
        reused = self._served > 1 and not self._heard
        self._retire()
        if turn is not None:
            turn.upstream_lost(error, reused=reused)

    def _retire(self) -> None:
        self.usable = False
        if self in self._upstream.idle:
            self._upstream.idle.remove(self)
        self.transport.abort()
