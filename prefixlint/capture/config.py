"""What the recorder is told to do, as plain values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prefixlint.capture.fingerprint import Fingerprinter

BODY_LIMIT = 64 << 20
PENDING_LIMIT = 256 << 20


@dataclass(frozen=True, slots=True)
class Event:
    """Something that the person who runs a recorder should hear; `kind` is for programs, `message` for people."""

    kind: str
    message: str


OnEvent = Callable[[Event], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordConfig:
    """How lines are made.

    `rotate_bytes` starts a new file when the present one would grow beyond it, `keep` rotated files are kept (None:
    all). `sample` is the share (0 to 1) of conversations that are written, chosen by `seed`. `fields` are the dotted
    paths of the request body that are kept (empty: all). `log_headers` are request headers to write, lower case.
    `salt` keys all masks and fingerprints of this run and is never written. `body_limit` bounds what is kept of one
    body, `pending_limit` of all that wait to be written, in bytes.
    """

    output: str
    salt: bytes
    run: str
    with_output: bool = False
    rotate_bytes: int | None = None
    keep: int | None = None
    sample: float = 1.0
    seed: int = 0
    redact: bool = False
    fields: tuple[str, ...] = ()
    log_headers: tuple[str, ...] = ()
    fingerprinter: Fingerprinter | None = None
    body_limit: int = BODY_LIMIT
    pending_limit: int = PENDING_LIMIT
    pending_lines: int = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeConfig:
    """Where the proxy listens and what it stands in front of.

    `upstream` is an http(s) URL; its path, if any, is put before the path of each request. `connect_timeout` is in
    seconds; a response may take any time. `drain` is how long running requests may go on after a stop was asked for.
    """

    upstream: str
    record: RecordConfig
    host: str = "127.0.0.1"
    port: int = 8080
    connect_timeout: float = 30.0
    drain: float = 10.0
    verify_tls: bool = True
