"""Servers for the tests, started by `serve.sh`: the next ones while the one before is measured, and none left behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
HOME = Path(os.environ.get("PREFIXLINT_ORACLE_HOME", HERE.parents[1] / "build" / "engines"))
_READY_SECONDS = 300  # a loaded machine takes minutes to import an engine


@dataclass(frozen=True)
class Case:
    """One server: its engine, its model, and the flags that it gets besides those of `serve.sh`."""

    engine: str
    flags: tuple[str, ...] = ()
    model: str = "tiny-llama"

    @property
    def folder(self) -> str:
        """The model as `--model` takes it: llama.cpp tokenizes by its own file."""
        return str(HOME / "models" / (f"{self.model}.gguf" if self.engine == "xllamacpp" else self.model))

    def __str__(self) -> str:
        return " ".join((self.engine, *self.flags))


@dataclass
class _Started:
    process: subprocess.Popen
    port: int
    log: Path


@dataclass
class Servers:
    """The servers of these cases, in the order in which they will be asked for; `ahead` start before they are."""

    cases: Sequence[Case]
    ahead: int = 1
    _running: dict[Case, _Started] = field(default_factory=dict)
    _folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="servers-")))

    @contextlib.contextmanager
    def running(self, case: Case) -> Iterator[str]:
        """Give the URL of a server once it is healthy, and stop it afterwards."""
        place = self.cases.index(case)
        for one in self.cases[place : place + 1 + self.ahead]:
            self._start(one)
        try:
            yield self._healthy(case)
        finally:
            self._stop(case)

    def close(self) -> None:
        """Stop what still runs."""
        for case in list(self._running):
            self._stop(case)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self, case: Case) -> None:
        if case in self._running:
            return
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        log = self._folder / f"{port}.log"
        command = [str(HERE / "serve.sh"), case.engine, case.model, str(port), *case.flags]
        with log.open("wb") as file:
            process = subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True)
        self._running[case] = _Started(process, port, log)

    def _healthy(self, case: Case) -> str:
        started = self._running[case]
        url = f"http://127.0.0.1:{started.port}"
        end = time.monotonic() + _READY_SECONDS
        while time.monotonic() < end:
            if started.process.poll() is not None:
                break
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/health", timeout=5):
                return url  # any other status than 200 raises
            time.sleep(0.3)
        tail = "\n".join(started.log.read_text(errors="replace").splitlines()[-30:])
        raise AssertionError(f"{case} did not become healthy:\n{tail}")

    def _stop(self, case: Case) -> None:
        started = self._running.pop(case)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(started.process.pid, signal.SIGKILL)
        started.process.wait()
