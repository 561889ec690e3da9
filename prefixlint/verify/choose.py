"""Which server is measured: the one named, else SGLang on a GPU where there is one, else the embedded engine."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from prefixlint.errors import UsageError
from prefixlint.verify import devices, embedded, launch, wire
from prefixlint.verify.launch import Launch, Running

_ALTERNATIVES = "--cpu (no GPU needed), --url URL of a running server, or --launch COMMAND"
_READY = 600.0
_NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the user said of the server. At most one of gpu, cpu, url with nothing else, and command.

    `command` is that of --launch, `extra` are further arguments for a server that is started here. `sglang` is the
    Python that has SGLang for the CPU, None where the user named none. `cache` is the folder of fetched models.
    """

    cache: Path
    gpu: bool = False
    cpu: bool = False
    url: str | None = None
    command: str | None = None
    engine: str | None = None
    model: str | None = None
    chat_template: str | None = None
    port: int | None = None
    extra: Sequence[str] = ()
    token: str | None = None
    timeout: float = 120.0
    ready: float = _READY
    keep: bool = False
    sglang: str | None = None


@dataclass(frozen=True, slots=True)
class Chosen:
    """The server to measure: one to start, or the URL of one that runs. `said` tells the user which, and why."""

    said: str
    wanted: Wanted
    launch: Launch | None = None

    @contextlib.contextmanager
    def opened(self, *, on_wait: Callable[[float, str], None] | None = None) -> Iterator[Running]:
        """Start the server, or attach to it; what was started is ended however the block is left."""
        if self.launch is not None:
            with launch.start(self.launch, on_wait=on_wait) as running:
                yield running
            return
        assert self.wanted.url is not None
        running = launch.attached(self.wanted.url, token=self.wanted.token, timeout=self.wanted.timeout)
        try:
            yield running
        finally:
            running.server.close()


def choose(wanted: Wanted, *, on_fetch: Callable[[str], None] | None = None) -> Chosen:
    """Choose the server. Raises UsageError with the alternatives where it cannot be had here, ModelError."""
    _check(wanted)
    if wanted.command is not None:
        command, url = launch.own_command(wanted.command, wanted.url, wanted.port)
        started = _launch(wanted, [*command, *wanted.extra], url, Path(command[0]).name if command else "the server")
        return Chosen(f"starts {started.shown()}", wanted, started)
    if wanted.url is not None:
        return Chosen(f"measures {wanted.url}", wanted)
    if wanted.gpu:
        return _gpu(wanted)
    if wanted.cpu:
        return _cpu(wanted, on_fetch, "")
    return _automatic(wanted, on_fetch)


def _check(wanted: Wanted) -> None:
    named = [
        name for name, value in (("--gpu", wanted.gpu), ("--cpu", wanted.cpu), ("--launch", wanted.command)) if value
    ]
    if wanted.url is not None:
        wire.checked(wanted.url)
    if wanted.url is not None and wanted.command is None:
        named.append("--url")
    if len(named) > 1:
        raise UsageError(f"{' and '.join(named)} name several servers", slug="two-targets", hint="name one")
    if wanted.url is not None and wanted.command is None and wanted.extra:
        raise UsageError("--engine-arg is for a server that is started", slug="bad-engine-arg", hint="leave --url out")


def _automatic(wanted: Wanted, on_fetch: Callable[[str], None] | None) -> Chosen:
    found = devices.cuda()
    if not found.names:
        return _cpu(wanted, on_fetch, f"no GPU ({found.why}): ")
    if importlib.util.find_spec("sglang") is None:
        return _cpu(wanted, on_fetch, f"{found.names[0]} is unused, since SGLang is not installed (prefixlint[gpu]): ")
    if wanted.model is None or wanted.model.endswith(".gguf"):
        return _cpu(wanted, on_fetch, f"{found.names[0]} is unused, since no --model says what to run on it: ")
    return _gpu(wanted)


def _gpu(wanted: Wanted) -> Chosen:
    found = devices.cuda()
    if not found.names:
        raise UsageError(f"--gpu finds no CUDA device: {found.why}", slug="no-gpu", hint=f"instead: {_ALTERNATIVES}")
    if importlib.util.find_spec("sglang") is None:
        raise UsageError(
            "--gpu runs SGLang, which is not installed here",
            slug="no-engine",
            hint=f"pip install 'prefixlint[gpu]'; or {_ALTERNATIVES}",
        )
    if wanted.model is None:
        raise UsageError(
            "--gpu needs a model", slug="no-model", hint="--model NAME or --model DIR, the one that the log is for"
        )
    port = wanted.port or launch.free_port()
    command = launch.sglang_command(wanted.model, port, wanted.extra, chat_template=wanted.chat_template)
    started = _launch(wanted, command, launch.local_url(port), "SGLang", device="cuda")
    return Chosen(f"starts SGLang on {found.names[0]}: {started.shown()}", wanted, started)


def _cpu(wanted: Wanted, on_fetch: Callable[[str], None] | None, why: str) -> Chosen:
    """Take SGLang on the CPU where it is asked for and installed, else the embedded engine."""
    asked = wanted.engine is not None and wanted.engine.lower() == "sglang"
    python = wanted.sglang or (sys.executable if importlib.util.find_spec("engine_stubs") is not None else None)
    gguf = wanted.model is None or wanted.model.lower().endswith(".gguf")
    if asked and python is None:
        raise UsageError(
            "SGLang for the CPU is not installed here",
            slug="no-engine",
            hint="docs/verify.md says how it is set up; PREFIXLINT_SGLANG_PYTHON names the Python that has it",
        )
    if python is not None and (asked or not gguf):
        if wanted.model is None:
            raise UsageError("SGLang needs a model", slug="no-model", hint="--model DIR")
        port = wanted.port or launch.free_port()
        extra = [*launch.SGLANG_CPU, *wanted.extra]
        command = launch.sglang_command(wanted.model, port, extra, python=python, chat_template=wanted.chat_template)
        added = launch.SGLANG_CPU_ENVIRONMENT
        started = _launch(wanted, command, launch.local_url(port), "SGLang", device="cpu", environment=added)
        return Chosen(f"{why}starts SGLang on the CPU: {started.shown()}", wanted, started)
    embedded.check()
    model = embedded.model_file(wanted.model, wanted.cache, on_fetch=on_fetch)
    port = wanted.port or launch.free_port()
    template = ["--chat-template", wanted.chat_template] if wanted.chat_template else []
    command = embedded.command(model, port, [*template, *wanted.extra])
    started = _launch(wanted, command, launch.local_url(port), "the embedded llama.cpp", device="cpu", own=True)
    return Chosen(f"{why}starts the embedded engine (llama.cpp) with {model.stem}", wanted, started)


def _launch(
    wanted: Wanted,
    command: Sequence[str],
    url: str,
    title: str,
    *,
    device: str | None = None,
    own: bool = False,
    environment: Mapping[str, str] = _NOTHING,
) -> Launch:
    return Launch(
        command=command,
        url=url,
        title=title,
        environment=environment,
        ready=wanted.ready,
        embedded=own,
        device=device,
        keep=wanted.keep,
        token=wanted.token,
        timeout=wanted.timeout,
    )
