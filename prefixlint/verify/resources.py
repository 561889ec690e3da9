"""What a run squeezed: the server's pool, queue and batch, and the GPUs, read once a second while it went on.

Most slow-downs are a resource that ran out, which no percentile of a time names.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, Self
from urllib.parse import urlsplit

from prefixlint.verify import metrics
from prefixlint.verify.gpus import GpuReading, open_gpus

if TYPE_CHECKING:
    from prefixlint.verify.launch import Running
    from prefixlint.verify.targets import About, Target

EVERY = 1.0
"""Seconds between two readings."""
_ANSWER_SECONDS = 5.0  # within which a server tells its metrics, or the reading is left out


class Gauges(Protocol):
    """What a server's metrics say of now; None is unknown. `kv_usage` is a share of the pool, from 0 to 1."""

    @property
    def kv_usage(self) -> float | None: ...  # noqa: D102 - the class tells
    @property
    def queue_length(self) -> float | None: ...  # noqa: D102
    @property
    def running(self) -> float | None: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Level:
    """One quantity over a run: the mean of its readings, and the highest."""

    mean: float
    highest: float


@dataclass(frozen=True, slots=True)
class GpuLevels:
    """One GPU over a run: `busy` in shares, `used` in bytes of `total`."""

    name: str
    busy: Level
    used: Level
    total: int


@dataclass(frozen=True, slots=True)
class Resources:
    """What was read over a run, in `readings` readings of the server; None where it was never told."""

    readings: int = 0
    kv_usage: Level | None = None
    queue_length: Level | None = None
    batch: Level | None = None
    gpus: Sequence[GpuLevels] = ()


@dataclass(slots=True)
class _Read:
    gauges: list[Gauges] = field(default_factory=list)
    gpus: list[list[GpuReading]] = field(default_factory=list)


class Watcher:
    """Reads in a thread of its own between `with` and its end; `result` says what was read.

    `gauges` asks the server and gives None where it does not answer; `gpus` asks the driver. Neither may raise. The
    first reading comes after half a period, so that runs of a second have one, in the midst of their work.
    """

    def __init__(
        self,
        gauges: Callable[[], Gauges | None] | None,
        gpus: Callable[[], list[GpuReading]] | None = None,
        *,
        every: float = EVERY,
    ) -> None:
        self._gauges = gauges
        self._gpus = gpus
        self._every = every
        self._read = _Read()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="resources", daemon=True)

    def __enter__(self) -> Self:
        if self._gauges is not None or self._gpus is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        due = time.monotonic() + self._every / 2
        while not self._end.wait(max(0.0, due - time.monotonic())):
            if self._gauges is not None and (gauges := self._gauges()) is not None:
                self._read.gauges.append(gauges)
            if self._gpus is not None:
                self._read.gpus.append(self._gpus())
            due = max(due + self._every, time.monotonic())  # a server that answers late is not asked twice for it

    def result(self) -> Resources:
        """Sum up what was read so far."""
        gauges = list(self._read.gauges)
        return Resources(
            len(gauges),
            _level([one.kv_usage for one in gauges]),
            _level([one.queue_length for one in gauges]),
            _level([one.running for one in gauges]),
            _gpu_levels(list(self._read.gpus)),
        )


def _level(values: Sequence[float | None]) -> Level | None:
    known = [value for value in values if value is not None]
    return Level(sum(known) / len(known), max(known)) if known else None


def _gpu_levels(readings: Sequence[Sequence[GpuReading]]) -> tuple[GpuLevels, ...]:
    """Give the levels of each GPU, told apart by its place among them."""
    found = []
    for number in range(max((len(reading) for reading in readings), default=0)):
        own = [reading[number] for reading in readings if len(reading) > number]
        busy, used = _level([one.busy for one in own]), _level([float(one.used) for one in own])
        assert busy is not None
        assert used is not None
        found.append(GpuLevels(own[0].name, busy, used, own[0].total))
    return tuple(found)


def sampler(target: Target, about: About) -> Callable[[Running], AbstractContextManager[Mapping[str, Any]]]:
    """Give what watches a server of this kind during a run: a context whose mapping is filled when it is left.

    The GPUs are this machine's: they are read where the server runs here.
    """

    @contextlib.contextmanager
    def watched(running: Running) -> Iterator[Mapping[str, Any]]:
        def gauges() -> Gauges | None:
            found = metrics.scraped(running.server, timeout=_ANSWER_SECONDS)
            return None if found is None else target.counters(found)

        seen: dict[str, Any] = {}
        gpus, _ = open_gpus() if _is_here(running.server.url) else (None, None)
        watcher = Watcher(None if about.metrics is False else gauges, gpus.read if gpus is not None else None)
        try:
            with watcher:
                yield seen
        finally:
            found = watcher.result()
            if found.readings or found.gpus:
                seen.update(asdict(found))
            if gpus is not None:
                gpus.close()

    return watched


def _is_here(url: str) -> bool:
    return urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1")
