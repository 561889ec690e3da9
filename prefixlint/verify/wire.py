"""HTTP to one inference server: whole answers, and streams of which the moment of every event is known.

Blocking calls from any number of threads; each thread keeps one connection and uses it again. An answer's head and body
are parsed by `http.client`; requests are written in one piece. What the client itself took is known for each request,
as time of the processor: on a machine that others use too, the clock on the wall would count them as well.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

import orjson

from prefixlint import __version__
from prefixlint.errors import UsageError
from prefixlint.verify import faults
from prefixlint.verify.faults import Failure
from prefixlint.verify.sse import Events

_PIECE = 1 << 16  # bytes asked for at once
_LARGEST = 1 << 28  # bytes of one answer or one event; the ids of a million tokens are 8 MB
_LINGER = 1.0  # seconds that a server is given to end a stream of which the last event came
_DONE = b"[DONE]"
_WHAT_TO_NAME = "name the address of an inference server's HTTP API"
_ROUTES = ("/chat/completions", "/completions", "/v1")  # what people paste behind the base of a URL


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer, whatever its status; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Give the body as JSON; None where it is none."""
        try:
            return orjson.loads(self.body)
        except orjson.JSONDecodeError:
            return None

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Streamed:
    """A stream as it came; times are of `time.perf_counter`, in seconds.

    `sent` is the moment before the request's first byte was written, on an open connection. `events` are the data of
    each event with the moment at which its last byte was read, without the closing `[DONE]`; what came before a failure
    is kept. `done` is when the last byte of the answer was read. `overhead` is the time of the processor that the
    client took between the call and its return, the system calls included. `status` is 0 where no answer began; `body`
    is the answer where it is no stream.
    """

    status: int
    sent: float
    events: list[tuple[float, bytes]]
    done: float
    overhead: float
    failure: Failure | None = None
    body: bytes = b""


class _TimedReader(io.RawIOBase):
    """A socket's bytes; keeps the moment at which the last ones came."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self._deadline = deadline
        self.last = 0.0
        self.heard = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if time.perf_counter() > self._deadline:
            raise TimeoutError
        try:
            count = self._sock.recv_into(buffer)
        finally:
            self.last = time.perf_counter()
        self.heard = self.heard or count > 0
        return count


class _Source:
    """What `HTTPResponse` takes for a socket."""

    def __init__(self, raw: _TimedReader) -> None:
        self._raw = raw

    def makefile(self, *_: Any, **__: Any) -> io.BufferedReader:
        return io.BufferedReader(self._raw, _PIECE)


class _Response(http.client.HTTPResponse):
    """An answer that may be collected in any order with what it reads from, which later Pythons complain of."""

    def flush(self) -> None:
        """Do nothing: what only reads holds nothing back."""


class _Exchange:
    """One request on a connection, and its answer."""

    def __init__(self, sock: socket.socket, request: bytes, method: str, deadline: float) -> None:
        self.sent = time.perf_counter()
        sock.sendall(request)
        self.raw = _TimedReader(sock, deadline)
        self.response = _Response(_Source(self.raw), method=method)  # type: ignore[arg-type]

    def head(self) -> dict[str, str]:
        """Read the head of the answer."""
        self.response.begin()
        return {name.lower(): value for name, value in self.response.getheaders()}

    def whole(self) -> bytes:
        """Read the body to its end."""
        length = self.response.length
        body = (
            self.response.read(_LARGEST + 1) if length is None else b"" if length > _LARGEST else self.response.read()
        )
        if max(len(body), length or 0) > _LARGEST:
            raise http.client.HTTPException
        return body

    @property
    def reusable(self) -> bool:
        """Whether the connection may carry another request: the answer ended, and the server keeps it open."""
        return self.response.isclosed() and not self.response.will_close


class Server:
    """One server, by the URL of its HTTP API, with or without `/v1`. Its token is never shown.

    `timeout` is the silence in seconds after which a server counts as hung, `longest` the limit of a whole answer.
    Raises UsageError for what is no such URL, or no such token.
    """

    def __init__(self, url: str, *, token: str | None = None, timeout: float = 120.0, longest: float = 3600.0) -> None:
        self.url, self._tls, self._host, self._port, self._root = _parsed(url)
        self._head = _constant_head(self._host, self._port, tls=self._tls, token=token)
        self._secret = token.strip() if token else ""
        self.timeout = timeout
        self.longest = longest
        self._context: ssl.SSLContext | None = None
        self._local = threading.local()
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._closed = False
        self._answered = False  # whether any request has been answered in HTTP

    def __repr__(self) -> str:
        return f"Server({self.url!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get(self, path: str, *, timeout: float | None = None) -> Reply:
        """Ask for a path; gives any status. Raises ServerError where no whole answer came."""
        return self._ask("GET", path, None, timeout or self.timeout)

    def post(self, path: str, body: bytes | None = None, *, timeout: float | None = None) -> Reply:
        """Send JSON, or nothing, to a path; gives any status. Raises ServerError where no whole answer came."""
        return self._ask("POST", path, body, timeout or self.timeout)

    def stream(self, path: str, body: bytes, begun: threading.Event | None = None) -> Streamed:
        """Send JSON to a path and take the events of the answer. What goes wrong is in the result, never raised.

        `begun` is set when the first event is there.
        """
        taken = _Taken()
        request = self._request("POST", path, body)
        exchange: _Exchange | None = None
        try:
            exchange, headers = self._begin("POST", request, self.timeout, taken)
            self._take(exchange, headers, taken, begun)
        except (OSError, http.client.HTTPException, ValueError) as error:
            exchange = taken.exchange
            taken.failure = self._failed(error, self.timeout, exchange)
        if taken.failure or exchange is None or not exchange.reusable:
            self._drop()
        return taken.result(exchange)

    def close(self) -> None:
        """Close all connections: calls that wait in other threads end as if the server had gone, later ones fail."""
        with self._lock:
            self._closed = True
            sockets, self._open = self._open, set()
        for sock in sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def hidden(self, text: str) -> str:
        """Give a text in which the token does not stand, should a server have sent it back."""
        return text.replace(self._secret, "***") if self._secret else text

    def _ask(self, method: str, path: str, body: bytes | None, timeout: float) -> Reply:
        taken = _Taken()
        try:
            exchange, headers = self._begin(method, self._request(method, path, body), timeout, taken)
            reply = Reply(exchange.response.status, headers, exchange.whole())
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._drop()
            raise self._failed(error, timeout, taken.exchange).error() from None
        except BaseException:
            self._drop()  # an answer that was not read must not be the next request's
            raise
        if not exchange.reusable:
            self._drop()
        return reply

    def _begin(self, method: str, request: bytes, timeout: float, taken: _Taken) -> tuple[_Exchange, dict[str, str]]:
        """Send a request and read the answer's head; once more where a kept connection turns out to be closed."""
        kept = getattr(self._local, "sock", None) is not None
        while True:
            taken.exchange = None
            sock = self._connection(timeout)
            try:
                exchange = taken.exchange = _Exchange(sock, request, method, time.perf_counter() + self.longest)
                headers = exchange.head()
            except (ConnectionError, ssl.SSLEOFError):
                if not kept or (taken.exchange and taken.exchange.raw.heard):
                    raise
                kept = False
                self._drop()
            else:
                self._answered = True
                return exchange, headers

    def _take(self, exchange: _Exchange, headers: dict[str, str], taken: _Taken, begun: threading.Event | None) -> None:
        """Read the events of an answer into `taken`, or what it is instead."""
        response, raw = exchange.response, exchange.raw
        taken.status = response.status
        kind = headers.get("content-type", "")
        if response.status != 200 or not kind.startswith("text/event-stream"):
            taken.body = exchange.whole()
            taken.failure = self._refused(response.status, headers, taken.body, kind)
            return
        parser, ended = Events(), False
        while piece := response.read1(_PIECE):
            for event in parser.feed(piece):
                if event == _DONE:
                    ended = True
                else:
                    taken.events.append((raw.last, event))
            if begun is not None and taken.events:
                begun.set()
                begun = None
            if parser.held > _LARGEST:
                raise http.client.HTTPException
            if ended and not response.isclosed():
                self._linger(exchange)
                break
        if not ended and (parser.pending or (response.will_close and not response.chunked)):
            raise http.client.IncompleteRead(b"")
        if taken.events:
            taken.failure = self._shown(faults.of_event(taken.events[-1][1], self.url))

    def _linger(self, exchange: _Exchange) -> None:
        """Read what follows the last event, so that the connection can be used again; not getting it is no failure."""
        last = exchange.raw.last
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
            self._local.sock.settimeout(min(_LINGER, self.timeout))
            while exchange.response.read1(_PIECE):
                pass
            self._local.sock.settimeout(self.timeout)
        exchange.raw.last = last

    def _refused(self, status: int, headers: Mapping[str, str], body: bytes, kind: str) -> Failure | None:
        if status != 200:
            return self._shown(faults.of_status(status, headers, body, self.url))
        said = faults.quoted(self.hidden(faults.message_of(body)))
        message = f"{self.url} did not answer with a stream but with {kind or 'something unnamed'}: {said}"
        return Failure("not-an-inference-server", message, hint=_WHAT_TO_NAME, status=status)

    def _shown(self, failure: Failure | None) -> Failure | None:
        if failure is None or not self._secret:
            return failure
        message, hint = self.hidden(failure.message), failure.hint and self.hidden(failure.hint)
        return Failure(failure.slug, message, hint, failure.status, failure.retry_after)

    def _failed(self, error: Exception, timeout: float, exchange: _Exchange | None) -> Failure:
        heard = exchange is not None and exchange.raw.heard
        failure = faults.of_exception(error, self.url, heard=heard, timeout=timeout)
        silent = failure.slug == "server-gone" and not heard and not self._answered
        if silent and not self._tls and not self._closed and self._speaks_tls():
            failure = faults.wants_tls(self.url)
        return self._shown(failure) or failure

    def _speaks_tls(self) -> bool:
        """Whether the port answers a TLS greeting. Nothing is sent over that connection, so nobody is trusted."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        try:
            with (
                socket.create_connection((self._host, self._port), timeout=_LINGER) as plain,
                context.wrap_socket(plain, server_hostname=self._host),
            ):
                return True
        except OSError:
            return False

    def _connection(self, timeout: float) -> socket.socket:
        if self._closed:
            raise ConnectionAbortedError
        kept: socket.socket | None = getattr(self._local, "sock", None)
        if kept is not None:
            kept.settimeout(timeout)
            return kept
        sock = socket.create_connection((self._host, self._port), timeout=timeout)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls:
                if self._context is None:
                    self._context = ssl.create_default_context()
                sock = self._shaken_hands(sock, self._context)
        except BaseException:
            sock.close()
            raise
        with self._lock:
            self._open.add(sock)
        self._local.sock = sock
        return sock

    def _shaken_hands(self, sock: socket.socket, context: ssl.SSLContext) -> socket.socket:
        try:
            return context.wrap_socket(sock, server_hostname=self._host)
        except (TimeoutError, ConnectionError):  # what plain servers do with it: wait for more, or close
            raise ssl.SSLError(1, "no answer to the TLS greeting") from None

    def _drop(self) -> None:
        sock: socket.socket | None = getattr(self._local, "sock", None)
        if sock is not None:
            with self._lock:
                self._open.discard(sock)
            sock.close()
            self._local.sock = None

    def _request(self, method: str, path: str, body: bytes | None) -> bytes:
        line = f"{method} {self._root}{path} HTTP/1.1\r\n".encode("ascii")
        if method == "GET":
            return line + self._head + b"\r\n"
        kind = b"Content-Type: application/json\r\n" if body else b""
        return b"%b%b%bContent-Length: %d\r\n\r\n%b" % (line, self._head, kind, len(body or b""), body or b"")


class _Taken:
    """What has come so far of a stream."""

    def __init__(self) -> None:
        self._called = time.perf_counter()
        self._own = time.thread_time()
        self.exchange: _Exchange | None = None
        self.status = 0
        self.events: list[tuple[float, bytes]] = []
        self.body = b""
        self.failure: Failure | None = None

    def result(self, exchange: _Exchange | None) -> Streamed:
        sent = exchange.sent if exchange else self._called
        done = (exchange.raw.last if exchange else 0.0) or time.perf_counter()
        overhead = time.thread_time() - self._own
        return Streamed(self.status, sent, self.events, done, overhead, self.failure, self.body)


def checked(url: str) -> None:
    """Raise UsageError where a URL is none, or holds a user or password, which must not be shown."""
    _parsed(url)


def _parsed(url: str) -> tuple[str, bool, str, int, str]:
    """Take a URL apart: how it is shown, whether TLS, host, port, and the path before the routes."""
    hint = "like http://127.0.0.1:8000"
    try:
        parts = urlsplit(url.strip())
        port = parts.port
        host = (
            (parts.hostname or "").encode("idna").decode() if not (parts.hostname or "").isascii() else parts.hostname
        )
    except ValueError:
        raise UsageError("the URL of the server is not valid", slug="bad-url", hint=hint) from None
    if parts.username is not None or parts.password is not None:
        hint = "leave what stands before the @ away, and put a token into the environment"
        raise UsageError("the URL of the server holds a user or password", slug="bad-url", hint=hint)
    if (
        parts.scheme not in ("http", "https")
        or not host
        or any(c.isspace() or not c.isprintable() for c in url.strip())
    ):
        raise UsageError(f"not an HTTP address: {faults.quoted(url)}", slug="bad-url", hint=hint)
    if parts.query or parts.fragment or not parts.path.isascii():
        raise UsageError(f"the URL of a server ends with its path: {faults.quoted(url)}", slug="bad-url", hint=hint)
    root = parts.path.rstrip("/")
    for route in _ROUTES:
        root = root.removesuffix(route).rstrip("/")
    tls = parts.scheme == "https"
    shown_host = f"[{host}]" if ":" in host else host
    shown = f"{parts.scheme}://{shown_host}{f':{port}' if port is not None else ''}{root}"
    return shown, tls, host, port if port is not None else (443 if tls else 80), root


def _constant_head(host: str, port: int, *, tls: bool, token: str | None) -> bytes:
    """Write the header lines that all requests have."""
    name = f"[{host}]" if ":" in host else host
    lines = [f"Host: {name}" if port == (443 if tls else 80) else f"Host: {name}:{port}"]
    lines += [f"User-Agent: prefixlint/{__version__}", "Accept: */*", "Accept-Encoding: identity"]
    if token and (secret := token.strip()):
        if not (secret.isascii() and secret.isprintable()):
            raise UsageError(
                "the token of the server holds characters that no HTTP header may hold",
                slug="bad-token",
                hint="look at the environment variable that it comes from",
            )
        lines.append(f"Authorization: Bearer {secret}")
    return "".join(f"{line}\r\n" for line in lines).encode("ascii")
