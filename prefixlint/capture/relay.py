"""The clients' end of the proxy: their connections, and the exchanges that pass.

Bytes of bodies go from one socket to the other in the callback in which they arrive: no task, no queue and no copy
between them but the one that is kept for the log. Heads and framing are parsed by `httptools` (Node's llhttp).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Any

import httptools

from prefixlint.capture import wire
from prefixlint.capture.exchange import Body, Exchange
from prefixlint.capture.upstream import Upstream, UpstreamConnection

# A head beyond this is an attack or a mistake; nginx allows 32 KiB.
HEAD_BYTES = 1 << 20


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

    def abort(self) -> None:
        """Close at once."""
        self.transport.abort()

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
        if self._head_bytes > HEAD_BYTES:
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
            if self.begun and self.exchange.request.size > HEAD_BYTES:
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


def _describe(error: BaseException) -> str:
    if isinstance(error, TimeoutError) and not error.args:
        return "it did not accept a connection in time"
    return str(error) or type(error).__name__
