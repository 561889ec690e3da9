"""Servers that do exactly what a test says, byte by byte: a thread with a socket, and what it was sent."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Self

TLS = Path(__file__).parent.parent / "fixtures" / "tls"
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"


class Hang:
    """Instead of an answer: keep the connection open and say nothing until the test ends."""


class Close:
    """Instead of an answer: close the connection."""


HANG, CLOSE = Hang(), Close()
Part = bytes | Hang | Close | Callable[[], None]
Answer = Part | Sequence[Part]


def chunk(data: bytes) -> bytes:
    """Frame a piece of a body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def events(*payloads: object, done: bool = True) -> bytes:
    """Write server-sent events of JSON, or of bytes as they are."""
    data = [p if isinstance(p, bytes) else json.dumps(p).encode() for p in payloads]
    return b"".join(b"data: %b\n\n" % d for d in [*data, *([b"[DONE]"] if done else [])])


def stream(*payloads: object, done: bool = True) -> bytes:
    """Write a whole streamed answer."""
    return STREAM + chunk(events(*payloads, done=done)) + b"0\r\n\r\n"


def reply(status: int, body: object = b"", *headers: str, kind: str = "application/json") -> bytes:
    """Write a whole answer with a length."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} Whatever", f"Content-Type: {kind}", f"Content-Length: {len(data)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


class FakeServer:
    """Answers each request with what `answer(method, path, body)` gives, on connections that it keeps open.

    An answer is bytes, or parts of which each is sent on its own; CLOSE ends the connection and HANG keeps it without
    another byte; a function is called between two parts. `requests` are (method, path, headers as text, body).
    """

    def __init__(self, answer: Callable[[str, str, bytes], Answer], *, tls: bool = False) -> None:
        self._answer = answer
        self._context = None
        if tls:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(TLS / "localhost.crt", TLS / "localhost.key")
        self.requests: list[tuple[str, str, str, bytes]] = []
        self.connections = 0
        self.broken: list[BaseException] = []
        self._stopped = threading.Event()
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for sock in self._sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        for sock in self._sockets:
            sock.close()
        assert not self.broken, self.broken

    def _start(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._stopped.is_set():
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(sock)
            self.connections += 1
            self._start(self._serve, sock)

    def _serve(self, sock: socket.socket) -> None:
        try:
            if self._context is not None:
                sock = self._context.wrap_socket(sock, server_side=True)
                self._sockets.append(sock)
            with sock.makefile("rb") as file:
                while (request := _read(file)) is not None:
                    self.requests.append(request)
                    answer = self._answer(request[0], request[1], request[3])
                    parts: Iterable[Part] = answer if isinstance(answer, list | tuple) else [answer]
                    if not self._send(sock, parts):
                        return
        except OSError:
            return  # the client has gone
        except BaseException as error:
            self.broken.append(error)
            raise

    def _send(self, sock: socket.socket, parts: Iterable[Part]) -> bool:
        for part in parts:
            if isinstance(part, Hang):
                self._stopped.wait(30)
                return False
            if isinstance(part, Close):
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
                sock.close()
                return False
            if callable(part):
                part()
            else:
                sock.sendall(part)
        return True


def _read(file: object) -> tuple[str, str, str, bytes] | None:
    line = file.readline().decode("latin-1")
    if not line.endswith(" HTTP/1.1\r\n"):
        return None
    method, path, _ = line.split(" ")
    headers, length = "", 0
    while (header := file.readline().decode("latin-1")) not in ("\r\n", ""):
        headers += header
        if header.lower().startswith("content-length:"):
            length = int(header.partition(":")[2])
    return method, path, headers, file.read(length)


def refused_port() -> int:
    """Give a port on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]
