"""Servers that a run starts itself: their commands, the wait until they are healthy, and an end that leaves nothing.

A server runs under `supervisor.py`, which ends it and all its children when this process closes a pipe, or dies. What
it prints goes to a file without a name, of which the last lines explain what went wrong.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from prefixlint.errors import ServerError, UsageError
from prefixlint.verify.wire import Server

LAST_LINES = 12
"""Lines of a server's log that explain an end that nobody asked for."""

_READY_SECONDS = 600.0  # large models load for minutes
_GRACE_SECONDS = 3.0  # between asking a server to end and killing it
_LOOK_SECONDS = 0.2  # between two questions of whether a server is healthy
_ASK_SECONDS = 5.0  # for one such question
_TAIL_BYTES = 1 << 16
_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_PORT_TAKEN = re.compile(
    r"address already in use|errno 98\b|EADDRINUSE|couldn't bind|port \d+ is (already )?(in use|occupied)",
    re.IGNORECASE,
)
_NO_MEMORY = re.compile(
    r"out of memory|outofmemory|cannot allocate memory|bad_alloc|not enough memory|MemoryError|"
    r"failed to allocate|no available memory for the cache|insufficient memory",
    re.IGNORECASE,
)
_PORT_OPTION = re.compile(r"--port(?:=|\s+)(\d+)")
_PUBLISHED = re.compile(r"(?:-p|--publish)(?:=|\s+)(?:[\d.]+:)?(\d+):\d+")
_URL_PORT = "{port}"


@dataclass(frozen=True, slots=True)
class Launch:
    """How a server is started: its command, the URL that it will answer on, and what is added to its environment.

    `ready` is the seconds that it may take to become healthy. `title` names it in messages; `embedded` is the engine
    that prefixlint brings. With `keep` it is left running where all went well.
    """

    command: Sequence[str]
    url: str
    title: str
    environment: Mapping[str, str] = field(default_factory=dict)
    ready: float = _READY_SECONDS
    embedded: bool = False
    device: str | None = None
    keep: bool = False
    token: str | None = None
    timeout: float = 120.0

    def shown(self) -> str:
        """Give the command as it can be typed into a shell."""
        assigned = [f"{name}={shlex.quote(value)}" for name, value in sorted(self.environment.items())]
        return " ".join([*assigned, shlex.join(self.command)])


@dataclass(slots=True)
class Running:
    """A server that answers. `command` is None where this run did not start it."""

    server: Server
    command: Sequence[str] | None = None
    launched: bool = False
    embedded: bool = False
    device: str | None = None
    title: str = "the server"
    _process: subprocess.Popen[bytes] | None = None
    _log: IO[bytes] | None = None
    _last: list[str] = field(default_factory=list)

    def log_tail(self, lines: int = LAST_LINES) -> list[str]:
        """Give the last lines that the server printed; none where it was not started here."""
        if self._log is not None and not self._log.closed:
            self._last = _tail(self._log, lines)
        return self._last[-lines:]

    def died(self, wait: float = 0.0) -> ServerError | None:
        """Say how the server came to its end; None while it runs. A crash may show some `wait` seconds late."""
        if self._process is None:
            return None
        with contextlib.suppress(subprocess.TimeoutExpired):
            return _ended(self.title, self._process.wait(wait), self.log_tail(), "while requests ran")
        return None


def attached(url: str, *, token: str | None = None, timeout: float = 120.0) -> Running:
    """Give a server that somebody else started."""
    return Running(Server(url, token=token, timeout=timeout))


@contextlib.contextmanager
def start(launch: Launch, *, on_wait: Callable[[float, str], None] | None = None) -> Iterator[Running]:
    """Start a server, wait until it is healthy, and end it with all its children however the block is left.

    `on_wait` is told the seconds waited and the server's newest line. Raises ServerError with the server's last lines
    where it ends, finds no memory or port, or is not healthy in time; UsageError where it cannot be started.
    """
    _check_command(launch)
    _check_port(launch)
    log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the server
    process: subprocess.Popen[bytes] | None = None
    server = Server(launch.url, token=launch.token, timeout=launch.timeout)
    running = Running(server, list(launch.command), True, launch.embedded, launch.device, launch.title, _log=log)
    kept = False
    try:
        process = running._process = _spawn(launch, log)  # noqa: SLF001 - of this module
        _wait(running, launch, on_wait)
        yield running
        kept = launch.keep
    finally:
        server.close()
        if process is not None:
            stop(process, keep=kept)
        running.log_tail()
        log.close()


def stop(process: subprocess.Popen[bytes], *, keep: bool = False) -> None:
    """End a supervised server: its supervisor sees the closed pipe, ends it, and ends. With `keep`, only the latter."""
    assert process.stdin is not None
    with contextlib.suppress(OSError):
        if keep:
            process.stdin.write(b"k")
        process.stdin.close()
    try:
        process.wait(_GRACE_SECONDS + 10)
    except subprocess.TimeoutExpired:  # a process that even SIGKILL does not end, as within a driver
        process.kill()


def _spawn(launch: Launch, log: IO[bytes]) -> subprocess.Popen[bytes]:
    supervisor = str(Path(__file__).with_name("supervisor.py"))
    return subprocess.Popen(  # noqa: S603 - the command is the user's own
        [sys.executable, "-I", "-S", supervisor, str(_GRACE_SECONDS), *launch.command],
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env={**os.environ, **launch.environment} if launch.environment else None,
    )


def _check_command(launch: Launch) -> None:
    if not launch.command:
        raise UsageError("--launch is empty", slug="bad-launch", hint='like --launch "vllm serve MODEL --port 8000"')
    if shutil.which(launch.command[0]) is None:
        raise UsageError(
            f"there is no program {launch.command[0]!r} to start",
            slug="bad-launch",
            hint="give its path, or install it",
        )


def _check_port(launch: Launch) -> None:
    """Refuse a port on which something answers already: it would be measured instead."""
    parts = urlsplit(launch.url)
    with contextlib.suppress(OSError), socket.create_connection((parts.hostname or "", parts.port or 80), 2):
        raise ServerError(
            f"port {parts.port} is taken: something answers on {launch.url} already",
            slug="port-taken",
            hint=f"choose another --port, end what runs there, or measure it with --url {launch.url}",
        )


def _wait(running: Running, launch: Launch, on_wait: Callable[[float, str], None] | None) -> None:
    began = time.monotonic()
    assert running._process is not None  # noqa: SLF001 - of this module
    while not _healthy(running.server):
        waited = time.monotonic() - began
        code = running._process.poll()  # noqa: SLF001
        tail = running.log_tail()
        if code is not None:
            raise _ended(launch.title, code, tail, "before it was healthy")
        if waited > launch.ready:
            raise ServerError(
                _with_tail(f"{launch.title} was not healthy after {launch.ready:g} s", tail),
                slug="server-not-healthy",
                hint="--start-timeout SECONDS waits longer; /health or /v1/models must answer with 200",
            )
        if on_wait is not None:
            on_wait(waited, tail[-1] if tail else "")
        time.sleep(_LOOK_SECONDS)
    code = running._process.poll()  # noqa: SLF001
    if code is not None:  # then something else answers
        raise _ended(launch.title, code, running.log_tail(), "before it was healthy")


def _healthy(server: Server) -> bool:
    """Tell whether a server says that it is: by its `/health`, or, where it has none, by its list of models."""
    for path in ("/health", "/v1/models"):
        try:
            status = server.get(path, timeout=_ASK_SECONDS).status
        except ServerError:
            return False
        if status != 404:
            return status in (200, 401, 403)  # who wants a token is up; that it is missing is told later
    return False


def _ended(title: str, code: int, tail: Sequence[str], when: str) -> ServerError:
    text = "\n".join(tail)
    slug, why = "server-died", f"with code {code}"
    hint = "its last lines say why" if tail else "it printed nothing: run its command alone to see more"
    if code > 128:
        name = _signal_name(code - 128)
        why = f"by {name}"
        if name == "SIGKILL":
            slug, why = "server-no-memory", "by SIGKILL, as the system does when memory runs out"
            hint = "take a smaller model or cache, or free some memory"
    if _NO_MEMORY.search(text):
        slug, why = "server-no-memory", "for lack of memory"
        hint = "give it a smaller model, cache (--mem-fraction-static, --gpu-memory-utilization) or context"
    elif _PORT_TAKEN.search(text):
        slug, why, hint = "port-taken", "since its port is taken", "choose another --port"
    return ServerError(_with_tail(f"{title} ended {when}, {why}", tail), slug=slug, hint=hint)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _with_tail(message: str, tail: Sequence[str]) -> str:
    return "\n".join([message, *(f"  | {line}" for line in tail)]) if tail else f"{message}; it printed nothing"


def _tail(log: IO[bytes], lines: int) -> list[str]:
    size = os.fstat(log.fileno()).st_size
    data = os.pread(log.fileno(), _TAIL_BYTES, max(0, size - _TAIL_BYTES))
    text = _ESCAPES.sub("", data.decode("utf-8", "replace"))
    return [line.rstrip()[:300] for line in text.splitlines() if line.strip()][-lines:]


def free_port() -> int:
    """Give a port that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def local_url(port: int) -> str:
    """Give the address of a server on this machine."""
    return f"http://127.0.0.1:{port}"


def own_command(text: str, url: str | None, port: int | None) -> tuple[list[str], str]:
    """Read a user's command and find the URL that it will answer on: named, by its port option, or a port given to it.

    `{port}` in the command is replaced by a free port, or by `port`. Raises UsageError.
    """
    if _URL_PORT in text:
        chosen = port or free_port()
        text, url = text.replace(_URL_PORT, str(chosen)), url or local_url(chosen)
    try:
        command = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"--launch cannot be read: {error}", slug="bad-launch", hint="quote it like a shell") from None
    found = _PORT_OPTION.search(text) or _PUBLISHED.search(text)
    if url is None and found is None:
        raise UsageError(
            "where will the server of --launch answer?",
            slug="bad-launch",
            hint="write {port} where its port belongs, or name its address with --url",
        )
    return command, url or local_url(int(found[1] if found else 0))


def sglang_command(
    model: str, port: int, extra: Sequence[str] = (), *, python: str = sys.executable, chat_template: str | None = None
) -> list[str]:
    """Give the command that starts SGLang on a GPU so that it can be measured."""
    template = ["--chat-template", chat_template] if chat_template else []
    measured = ["--enable-metrics", "--enable-cache-report"]
    where = ["--host", "127.0.0.1", "--port", str(port)]
    return [python, "-m", "sglang.launch_server", "--model-path", model, *where, *measured, *template, *extra]


SGLANG_CPU = (
    *("--device", "cpu", "--attention-backend", "torch_native", "--disable-overlap-schedule", "--sleep-on-idle"),
    *("--mem-fraction-static", "0.3"),
)
"""What SGLang needs besides, to run without a GPU (see docs/verify.md).

Of its own accord it fills most of the memory (17 of 24 GiB were seen), which without a GPU is that of everything else.
"""

SGLANG_CPU_ENVIRONMENT = {"SGLANG_USE_CPU_ENGINE": "1", "OMP_NUM_THREADS": "1"}
