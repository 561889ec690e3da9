"""The two ends of the proxy: connections from clients, connections to the upstream, and what passes between them.

Bytes of bodies go from one socket to the other in the callback in which they arrive: no task, no queue and no copy
between them but the one that is kept for the log. Heads and framing are parsed by `httptools` (Node's llhttp).
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httptools

from prefixlint.capture import wire
from prefixlint.capture.exchange import Body, Exchange

# Below the 5 s after which uvicorn and Node close an idle connection, so that a request rarely meets a closed one.
_IDLE_SECONDS = 4.0
# A head beyond this is an attack or a mistake; nginx allows 32 KiB.
_HEAD_BYTES = 1 << 20
_NO_BODY = frozenset({204, 304})


@dataclass(slots=True)
class Upstream:
    """Where requests go; keeps idle connections for the next one, the latest used first."""

    url: str
    body_limit: int
    submit: Callable[[Exchange], None]
    connect_timeout: float = 30.0
    tls: ssl.SSLContext | None = None
    idle: list[UpstreamConnection] = field(default_factory=list)
    active: set[Turn] = field(default_factory=set)
    clients: set[ClientConnection] = field(default_factory=set)

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
            client.transport.abort()
        for connection in self.idle:
            connection.close()


class ClientConnection(asyncio.Protocol):
    """One connection from a client. Its requests (pipelined ones too) are answered one after the other, in order."""

    transport: asyncio.Transport

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._parser = httptools.HttpRequestParser(self)
        self._turns: deque[Turn] = deque()
        self._target = b""
        self._headers: wire.Headers = []
        self._head_bytes = 0
        self._closing = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self.transport = transport  # type: ignore[assignment]  # uvloop's are no subclass
        self._upstream.clients.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  (asyncio's signature)
        """End the running exchange: nobody waits for its answer."""
        self._closing = True
        self._upstream.clients.discard(self)
        for turn in tuple(self._turns):
            turn.client_gone()
        self._turns.clear()

    def data_received(self, data: bytes) -> None:
        """Parse; the callbacks below do the rest."""
        if self._closing:
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refuse(501, "upgrade_not_supported", "the proxy relays plain HTTP only, no upgraded connections")
        except httptools.HttpParserError as error:
            self._refuse(400, "bad_request", f"this is no HTTP request: {error}")
        if len(self._turns) > 1:
            self.transport.pause_reading()

    def pause_writing(self) -> None:
        """Slow the upstream down to what the client takes."""
        if self._turns:
            self._turns[0].pause_response(paused=True)

    def resume_writing(self) -> None:
        """Go on."""
        if self._turns:
            self._turns[0].pause_response(paused=False)

    # Called by the parser.

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._target, self._headers, self._head_bytes = b"", [], 0

    def on_url(self, url: bytes) -> None:
        """Take a piece of the request target."""
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, or a trailer, which is dropped with the list."""
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > _HEAD_BYTES:
            raise ValueError("the head of the request is too large")
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Begin the exchange, or let it wait for those before it."""
        turn = Turn(self, self._upstream, self._parser, wire.origin_form(self._target), self._headers)
        self._headers = []
        self._turns.append(turn)
        if len(self._turns) == 1:
            turn.start()

    def on_body(self, data: bytes) -> None:
        """Take a piece of the request's body."""
        self._turns[-1].request_body(data)

    def on_message_complete(self) -> None:
        """Note that the request is whole."""
        if self._turns:
            self._turns[-1].request_complete()

    def answered(self, *, keep: bool) -> None:
        """Go on with the next request of the connection, after a response has ended."""
        self._turns.popleft()
        if not keep:
            self._closing = True
            self.transport.close()
            return
        if len(self._turns) <= 1 and not self._closing:
            self.transport.resume_reading()
        if self._turns:
            self._turns[0].start()

    def _refuse(self, status: int, kind: str, message: str) -> None:
        """Answer what cannot be relayed, after which the connection is of no use."""
        self._closing = True
        if self._turns and self._turns[-1].begun:
            self._turns[-1].request_broken(message)
        else:
            self.transport.write(wire.error_response(status, kind, f"prefixlint record: {message}", close=True))
            self.transport.close()


class Turn:
    """One request and its response, between a client's connection and one to the upstream."""

    def __init__(
        self,
        client: ClientConnection,
        upstream: Upstream,
        parser: Any,
        target: bytes,
        headers: wire.Headers,
    ) -> None:
        self._client = client
        self._upstream = upstream
        self._method: bytes = parser.get_method()
        self._target = target
        self._headers = headers
        self._modern = parser.get_http_version() != "1.0"
        self._keep: bool = parser.should_keep_alive()
        self._chunked = wire.is_chunked(headers)
        self._connection: UpstreamConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._waiting: list[bytes] = []
        self.complete = False
        self._over = False
        self._answering = False
        self._response_chunked = False
        self.begun = False
        self._started = time.perf_counter()
        self.exchange = Exchange(
            time=time.time(),
            method=self._method.decode("latin-1"),
            target=target.decode("latin-1"),
            request=Body(upstream.body_limit),
            response=Body(upstream.body_limit),
            request_headers={name.decode("latin-1").lower(): value.decode("latin-1") for name, value in headers},
        )

    # The request's way.

    def start(self) -> None:
        """Send the request on, as far as it has arrived."""
        self.begun = True
        self._upstream.active.add(self)
        if (wire.value_of(self._headers, b"expect") or b"").lower() == b"100-continue" and not self.complete:
            self._client.transport.write(wire.CONTINUE)
        connection = self._upstream.pick()
        if connection is not None:
            self._send_on(connection)
        else:
            self._connecting = asyncio.get_running_loop().create_task(self._connect())

    def request_body(self, data: bytes) -> None:
        """Relay a piece of the request's body."""
        self.exchange.request.feed(data)
        self._put(wire.chunk(data) if self._chunked else data)

    def request_complete(self) -> None:
        """Relay the end of the request."""
        self.complete = True
        if self._chunked:
            self._put(wire.CHUNKED_END)

    def request_broken(self, message: str) -> None:
        """End an exchange whose request cannot be read on."""
        self.exchange.error = message
        self._drop_connection()
        self._answer(400, "bad_request", message)

    def _put(self, data: bytes) -> None:
        if self._over:
            return
        if self._connection is not None:
            self._connection.transport.write(data)
        else:
            self._waiting.append(data)
            if self.begun and self.exchange.request.size > _HEAD_BYTES:
                self._client.transport.pause_reading()

    async def _connect(self) -> None:
        try:
            connection = await self._upstream.connect()
        except (OSError, ValueError) as error:
            if not self._over:
                self._failed(_describe(error))
            return
        if self._over:
            connection.close()
        else:
            self._client.transport.resume_reading()
            self._send_on(connection)

    def _send_on(self, connection: UpstreamConnection) -> None:
        self._connection = connection
        head = wire.request_head(self._method, self._upstream.base + self._target, self._upstream.host, self._headers)
        connection.begin(self, head_only=self._method == b"HEAD")
        connection.transport.write(b"".join((head, *self._waiting)))
        self._waiting.clear()

    def pause_request(self, *, paused: bool) -> None:
        """Slow the client down to what the upstream takes."""
        if not self._over:
            (self._client.transport.pause_reading if paused else self._client.transport.resume_reading)()

    # The response's way.

    def response_head(self, status: int, reason: bytes, headers: wire.Headers, *, bodiless: bool) -> None:
        """Relay the head of the response."""
        self._answering = True
        self.exchange.status = status
        self.exchange.response_headers = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in headers
        }
        sized = bodiless or wire.value_of(headers, b"content-length") is not None
        self._response_chunked = self._modern and not sized
        self._keep = self._keep and (sized or self._modern)
        connection = b"close" if not self._keep else None if self._modern else b"keep-alive"
        self._client.transport.write(
            wire.response_head(status, reason, headers, chunked=self._response_chunked, connection=connection)
        )

    def response_body(self, pieces: list[bytes]) -> None:
        """Relay pieces of the response that arrived together."""
        seconds = time.perf_counter() - self._started
        for piece in pieces:
            self.exchange.arrived(seconds, piece)
        framed = [wire.chunk(piece) for piece in pieces] if self._response_chunked else pieces
        self._client.transport.write(framed[0] if len(framed) == 1 else b"".join(framed))

    def response_complete(self) -> None:
        """Relay the end of the response."""
        if self._response_chunked:
            self._client.transport.write(wire.CHUNKED_END)
        self._connection = None
        self._end()
        self._client.answered(keep=self._keep and self.complete)

    def pause_response(self, *, paused: bool) -> None:
        """Slow the upstream down, or let it go on."""
        if self._connection is not None:
            self._connection.pause(paused=paused)

    # How it may end before its time.

    def upstream_lost(self, error: str, *, reused: bool) -> None:
        """End, or begin anew, after the upstream's connection was lost in the middle of this exchange."""
        self._connection = None
        if self._answering:
            self.exchange.outcome, self.exchange.error = "upstream-broke-off", error
            self._end()
            self._client.answered(keep=False)
        elif reused and self.complete and self.exchange.request.whole:
            # An idle connection that the upstream closed while we picked it: it has not read this request.
            data = self.exchange.request.start()
            self._waiting = [wire.chunk(data) if self._chunked and data else data]
            if self._chunked:
                self._waiting.append(wire.CHUNKED_END)
            self._connecting = asyncio.get_running_loop().create_task(self._connect())
        else:
            self._failed(error)

    def client_gone(self) -> None:
        """Break off: the client has closed its connection."""
        if self._over:
            return
        self.exchange.outcome = "client-gone"
        self._drop_connection()
        self._end()

    def stopped(self) -> None:
        """Break off: the proxy stops."""
        self.exchange.outcome = "stopped"
        self._drop_connection()
        self._end()

    def _failed(self, error: str) -> None:
        self.exchange.outcome, self.exchange.error = "upstream-failed", error
        self._answer(502, "upstream_failed", f"no response from the upstream {self._upstream.url}: {error}")

    def _answer(self, status: int, kind: str, message: str) -> None:
        if self._answering:
            keep = False
        else:
            keep = self._keep and self.complete
            self.exchange.status = status
            message = f"prefixlint record: {message}"
            self._client.transport.write(wire.error_response(status, kind, message, close=not keep))
        self._end()
        self._client.answered(keep=keep)

    def _drop_connection(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
        if self._connection is not None:
            self._connection.turn = None
            self._connection.close()
            self._connection = None

    def _end(self) -> None:
        self._over = True
        self.exchange.total = time.perf_counter() - self._started
        self._upstream.active.discard(self)
        self._upstream.submit(self.exchange)


class UpstreamConnection(asyncio.Protocol):
    """One connection to the upstream, used for one exchange after the other."""

    transport: asyncio.Transport

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self.turn: Turn | None = None
        self.idle_since = 0.0
        self.usable = True
        self._parser: Any = None
        self._served = 0
        self._reason = b""
        self._headers: wire.Headers = []
        self._pieces: list[bytes] = []
        self._head_only = False
        self._heard = self._head_done = self._to_the_end = self._finished = self._keep = False

    def begin(self, turn: Turn, *, head_only: bool) -> None:
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


def _describe(error: BaseException) -> str:
    if isinstance(error, TimeoutError) and not error.args:
        return "it did not accept a connection in time"
    return str(error) or type(error).__name__
