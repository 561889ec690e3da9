"""A server over time: samples at intervals, limits that they are held against, and a file that remembers a scrape."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from prefixlint.errors import ServerError
from prefixlint.verify import faults, triage
from prefixlint.verify import metrics as prometheus
from prefixlint.verify.metrics import Metrics
from prefixlint.verify.triage import Sample
from prefixlint.verify.wire import Server
from prefixlint.wording import percent

_PATIENCE = 3  # scrapes that may fail in a row
_STAMP = "# prefixlint scrape at "


@dataclass(frozen=True, slots=True)
class Scrape:
    """The metrics of a server at a moment: seconds since the epoch, None for a file that does not say."""

    metrics: Metrics
    at: float | None
    text: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Limits:
    """What is asked of a server: the least hit rate (0 to 1), the P95 of ttft in seconds, the pool in use (0 to 1)."""

    hit_rate: float | None = None
    ttft: float | None = None
    kv: float | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """What a sample says of one limit: `holds` is None where it is not known, `why` says why, in words.

    `reported` is False where the server does not report what the limit is about, so that no sample ever tells.
    """

    name: str
    holds: bool | None
    why: str
    reported: bool = True


def scrape(server: Server, now: Callable[[], float]) -> Scrape:
    """Ask a server for its metrics. Raises ServerError where it has none, with what would give it some."""
    reply = server.get("/metrics")
    if reply.status == 200 and not reply.text.lstrip().startswith("<"):
        return Scrape(prometheus.parse(reply.text), now(), reply.text)
    if reply.status in (401, 403):
        raise faults.of_status(reply.status, reply.headers, reply.body, server.url).error()
    raise ServerError(
        f"{server.url} has no /metrics ({reply.status})",
        slug="no-metrics",
        hint="start SGLang with --enable-metrics, llama.cpp with --metrics; vLLM always has them",
    )


def read(text: str) -> Scrape:
    """Take a saved scrape: what `/metrics` gave, or what `kept` wrote."""
    first, _, _ = text.partition("\n")
    stamp = first.removeprefix(_STAMP) if first.startswith(_STAMP) else ""
    try:
        at = float(stamp)
    except ValueError:
        at = None
    return Scrape(prometheus.parse(text), at, text)


def kept(taken: Scrape) -> str:
    """Give a scrape as text that `read` takes, with its moment."""
    return f"{_STAMP}{taken.at:.3f}\n{taken.text}" if taken.at is not None else taken.text


def sample(before: Scrape | None, after: Scrape, name: str) -> Sample:
    """Give what happened between two scrapes. Raises ServerError where they are of no known kind of server."""
    seconds = None
    if before is not None and before.at is not None and after.at is not None:
        seconds = after.at - before.at
    found = triage.between(before.metrics if before else None, after.metrics, seconds)
    if found is None:
        raise ServerError(
            f"{name} holds no metrics of SGLang, vLLM or llama.cpp",
            slug="unknown-metrics",
            hint="name the address of the engine itself, not that of a router or of Prometheus",
        )
    return found


def watch(server: Server, interval: float, count: int | None, first: Scrape) -> Iterator[tuple[Scrape, Sample]]:
    """Give a sample for each interval, in seconds, `count` of them or until the caller stops, with its scrape.

    A server that does not answer once is asked again at the next interval; the sample then covers both. Raises
    ServerError where it does not answer three times in a row.
    """
    sample(None, first, server.url)  # of a kind that is known at all: better said now than after the first interval
    last, due, given, missed = first, time.monotonic() + interval, 0, 0
    while count is None or given < count:
        time.sleep(max(0.0, due - time.monotonic()))
        due += interval
        try:
            taken = scrape(server, time.time)
        except ServerError:
            missed += 1
            if missed == _PATIENCE:
                raise
            continue
        missed = 0
        yield taken, sample(last, taken, server.url)
        last, given = taken, given + 1


def judge(found: Sample, limits: Limits) -> list[Judged]:
    """Hold a sample against limits. What the server does not report holds for no limit and breaks none."""
    judged = []
    if limits.hit_rate is not None:
        judged.append(_hit_rate(found, limits.hit_rate))
    if limits.ttft is not None:
        judged.append(_ttft(found, limits.ttft))
    if limits.kv is not None:
        usage = found.counters.kv_usage
        if usage is None:
            judged.append(_unreported("max-kv"))
        else:
            judged.append(Judged("max-kv", usage <= limits.kv, f"{percent(usage)} of the KV pool is in use"))
    return judged


def _unreported(name: str) -> Judged:
    return Judged(name, None, "the server does not report it", reported=False)


def _hit_rate(found: Sample, least: float) -> Judged:
    rate = found.counters.hit_rate
    if rate is not None:
        return Judged("fail-under", rate >= least, f"the hit rate is {percent(rate)}")
    if found.counters.queries is None or found.counters.hits is None:
        return _unreported("fail-under")
    return Judged("fail-under", None, "no request in this time")


def _ttft(found: Sample, most: float) -> Judged:
    timing = found.timing("ttft")
    if timing is None:
        if "ttft" not in found.counters.parts:
            return _unreported("max-ttft")
        return Judged("max-ttft", None, "no request in this time")
    if timing.p95 is not None:
        return Judged("max-ttft", timing.p95 <= most, f"the P95 of the time to first token is {timing.p95:.3g} s")
    if timing.p95_in is None:
        return _unreported("max-ttft")
    low, high = timing.p95_in
    why = f"the P95 of the time to first token lies between {low:g} and {high:g} s"
    return Judged("max-ttft", True if high <= most else False if low >= most else None, why)
