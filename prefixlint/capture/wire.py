"""HTTP/1.1 heads as bytes: which headers are passed on, and how a message is framed."""

from __future__ import annotations

import json
from collections.abc import Iterable

Headers = list[tuple[bytes, bytes]]

# RFC 9110, 7.6.1: these concern one connection and are not forwarded. `Expect` is answered by the proxy itself.
_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
CHUNKED_END = b"0\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


def value_of(headers: Headers, name: bytes) -> bytes | None:
    """Give the value of a header (lower-case name), the first where it stands twice."""
    return next((value for key, value in headers if key.lower() == name), None)


def is_chunked(headers: Headers) -> bool:
    """Whether the body is framed in chunks."""
    return b"chunked" in (value_of(headers, b"transfer-encoding") or b"").lower()


def chunk(data: bytes) -> bytes:
    """Frame one piece of a body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def request_head(method: bytes, target: bytes, host: bytes, headers: Headers) -> bytes:
    """Write the head of a request to the upstream: the client's headers but for those of one hop, and a new `Host`."""
    lines = [b"%b %b HTTP/1.1" % (method, target), b"Host: " + host]
    lines += _forwarded(headers, also=(b"host", b"expect"))
    if is_chunked(headers):
        lines.append(b"Transfer-Encoding: chunked")
    return b"\r\n".join(lines) + b"\r\n\r\n"


def response_head(status: int, reason: bytes, headers: Headers, *, chunked: bool, connection: bytes | None) -> bytes:
    """Write the head of a response to the client."""
    lines = [b"HTTP/1.1 %d %b" % (status, reason), *_forwarded(headers, also=())]
    if chunked:
        lines.append(b"Transfer-Encoding: chunked")
    if connection is not None:
        lines.append(b"Connection: " + connection)
    return b"\r\n".join(lines) + b"\r\n\r\n"


def error_response(status: int, kind: str, message: str, *, close: bool) -> bytes:
    """Write a whole response of our own, in a form that the clients of OpenAI and Anthropic both show to people."""
    error = {"type": kind, "code": kind, "message": message, "param": None}
    body = json.dumps({"type": "error", "error": error}).encode() + b"\n"
    headers = [
        (b"Content-Type", b"application/json"),
        (b"Content-Length", b"%d" % len(body)),
        (b"X-Prefixlint-Record", kind.encode()),
    ]
    reason = {400: b"Bad Request", 501: b"Not Implemented", 502: b"Bad Gateway"}.get(status, b"Error")
    return response_head(status, reason, headers, chunked=False, connection=b"close" if close else None) + body


def origin_form(target: bytes) -> bytes:
    """Undo the absolute form that clients use towards a forward proxy (`GET http://host/path`)."""
    if target.startswith((b"http://", b"https://")):
        _, _, rest = target.partition(b"://")
        slash = rest.find(b"/")
        return rest[slash:] if slash >= 0 else b"/"
    return target


def _forwarded(headers: Headers, also: Iterable[bytes]) -> list[bytes]:
    dropped = _HOP_BY_HOP.union(also)
    for name, value in headers:
        if name.lower() == b"connection":
            dropped |= {part.strip().lower() for part in value.split(b",")}
    return [b"%b: %b" % (name, value) for name, value in headers if name.lower() not in dropped]
