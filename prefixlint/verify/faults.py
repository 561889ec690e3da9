"""What went wrong between this client and a server, in words for people: exceptions and statuses as a `Failure`."""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from prefixlint.errors import ServerError

_SHOWN = 300  # characters of what a server said that are quoted
_TLS_ALERT = "\x15\x03"  # RFC 8446, 5.1: record type alert, then the version
_HTTPS_ONLY = ("http request to an https server", "plain http request was sent to https port")


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an exchange gave no whole answer.

    `slug` is one of `server-refused`, `server-hung`, `server-gone`, `server-garbled`, `tls-mismatch`,
    `not-an-inference-server`, and for answers with a status other than 200 `server-busy` (429 and 503),
    `server-denied` (401 and 403), `request-refused` (other 4xx) and `server-failed` (5xx, and errors inside a stream).
    `retry_after` is in seconds, None where the server did not say.
    """

    slug: str
    message: str
    hint: str | None = None
    status: int | None = None
    retry_after: float | None = None

    @property
    def passing(self) -> bool:
        """Whether the same request may work a little later."""
        return self.slug == "server-busy"

    def error(self) -> ServerError:
        """Give the same as an exception."""
        return ServerError(self.message, slug=self.slug, hint=self.hint)


def of_exception(error: Exception, url: str, *, heard: bool, timeout: float) -> Failure:
    """Say what an exception of a socket or of the HTTP parser means. `heard`: the answer had begun."""
    if isinstance(error, ssl.SSLError):
        return _of_tls(error, url)
    if isinstance(error, TimeoutError):
        what = "stopped in the middle of its answer" if heard else "accepts the request and does not answer"
        return Failure(
            "server-hung",
            f"{url} {what}: nothing for {timeout:g} s",
            hint="look at its log; it may be loading, out of memory, or busy with other requests",
        )
    if isinstance(error, socket.gaierror):
        return Failure(
            "server-refused", f"no address is known for the host of {url}", hint="check the spelling of the URL"
        )
    if isinstance(error, http.client.BadStatusLine) and not isinstance(error, http.client.RemoteDisconnected):
        return _no_http(str(error.args[0]) if error.args else "", url)
    if isinstance(error, http.client.IncompleteRead | http.client.RemoteDisconnected | ConnectionError) and (
        heard or not isinstance(error, ConnectionRefusedError)
    ):
        what = "before its answer was whole" if heard else "without an answer"
        return Failure(
            "server-gone", f"{url} closed the connection {what}", hint="look at its log: it may have crashed"
        )
    if isinstance(error, OSError):
        reason = error.strerror or str(error) or type(error).__name__
        return Failure(
            "server-refused",
            f"{url} cannot be reached: {reason}",
            hint="is the server up, and are host and port right?",
        )
    return Failure(
        "server-garbled", f"{url} sent what is no valid HTTP answer", hint="is something between it and you?"
    )


def _of_tls(error: ssl.SSLError, url: str) -> Failure:
    if isinstance(error, ssl.SSLCertVerificationError):
        return Failure(
            "tls-mismatch",
            f"the certificate of {url} is not trusted: {error.verify_message}",
            hint="put the certificate of its authority into a file and name that in SSL_CERT_FILE",
        )
    said = getattr(error, "reason", None)  # OpenSSL's word; only errors of its own have one
    if said in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "UNKNOWN_PROTOCOL"):
        plain = url.replace("https://", "http://", 1)
        return Failure("tls-mismatch", f"{url} does not speak TLS", hint=f"use {plain}")
    reason = said.replace("_", " ").lower() if said else error.strerror or "closed"
    return Failure(
        "tls-mismatch",
        f"the TLS connection to {url} failed: {quoted(reason)}",
        hint=f"use {url.replace('https://', 'http://', 1)} if it does not speak TLS",
    )


def _no_http(line: str, url: str) -> Failure:
    if line.startswith(_TLS_ALERT):
        return wants_tls(url)
    said = f": {quoted(line)}" if line.strip() else ""
    return Failure(
        "not-an-inference-server",
        f"{url} answers, but not in HTTP{said}",
        hint="name the address of an inference server's HTTP API, like http://127.0.0.1:8000",
    )


def wants_tls(url: str) -> Failure:
    """Say that a server which was asked in plain HTTP speaks TLS."""
    return Failure("tls-mismatch", f"{url} speaks TLS", hint=f"use {url.replace('http://', 'https://', 1)}")


def of_status(status: int, headers: Mapping[str, str], body: bytes, url: str) -> Failure:
    """Say what an answer with a status other than 200 means. `headers` have lower-case names."""
    said = message_of(body)
    if status == 400 and any(text in said.lower() for text in _HTTPS_ONLY):
        return wants_tls(url)
    what = f"{url} answered {status}" + (f": {quoted(said)}" if said.strip() else "")
    retry_after = _seconds(headers.get("retry-after"))
    if 300 <= status < 400:
        hint = f"use the address that it names: {quoted(headers['location'])}" if "location" in headers else None
        return Failure("not-an-inference-server", what, hint=hint, status=status)
    if status in (429, 503):
        return Failure(
            "server-busy", what, hint="ask for less at once, or later", status=status, retry_after=retry_after
        )
    if status in (401, 403):
        return Failure("server-denied", what, hint="put the server's token into the environment", status=status)
    if status < 500:
        return Failure("request-refused", what, status=status)
    return Failure("server-failed", what, hint="look at the server's log", status=status, retry_after=retry_after)


def of_event(event: bytes, url: str) -> Failure | None:
    """Say what an event of a stream means that carries an error instead of output; None where it carries output."""
    if b'"error"' not in event[:64]:
        return None
    try:
        body = orjson.loads(event)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(body, dict) or not (body.get("error") or body.get("object") == "error"):
        return None
    code = body["error"].get("code") if isinstance(body.get("error"), dict) else body.get("code")
    slug = "request-refused" if isinstance(code, int) and 400 <= code < 500 else "server-failed"
    said = quoted(message_of(event))
    status = code if type(code) is int else None
    return Failure(slug, f"{url} broke off with an error: {said}", hint="look at the server's log", status=status)


def message_of(body: bytes) -> str:
    """Give the text of a server's error answer: its message where it is JSON as OpenAI's, else what it holds."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return body[: 4 * _SHOWN].decode("utf-8", "replace")
    for key in ("error", "message", "detail"):
        if isinstance(value, dict) and value.get(key):
            value = value[key]
    if isinstance(value, dict):
        value = value.get("message", value)
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def quoted(text: str) -> str:
    """Give a server's words on one line, printable and not too long."""
    line = "".join(c if c.isprintable() else " " for c in text[: 4 * _SHOWN])
    line = " ".join(line.split())
    return line if len(line) <= _SHOWN else line[: _SHOWN - 1] + "…"


def _seconds(value: str | None) -> float | None:
    try:
        seconds = float(value or "")
    except ValueError:
        return None  # a date: rare, and no more than a hint
    return seconds if 0 <= seconds < float("inf") else None
