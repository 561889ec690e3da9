"""Where the time to first token goes now, how the cache does, and whether work on prefixes can help at all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from prefixlint.verify import metrics as prometheus
from prefixlint.verify import targets
from prefixlint.verify.metrics import Metrics
from prefixlint.verify.targets import Counters
from prefixlint.wording import percent

PARTS = ("queue", "prefill", "other")

_HIGH = 0.9  # a hit rate, and a share of the pool, from which on there is little left
_MOST = 0.5  # of the time to first token: the part that it is made of
_LITTLE = 0.1  # of the time to first token: what is not worth the work
_FEW_TOKENS = 64  # computed tokens a request, mean: a prefill so short is a step like any other,
_STEP = 0.1  # seconds, where it takes no longer than a step of a large model
_TOLERANCE = 0.05  # of the mean by which the parts, counted at other moments, may exceed the whole

Help = Literal["yes", "limited", "no", "unknown"]


@dataclass(frozen=True, slots=True)
class Timing:
    """A part of the time to first token, in seconds; the mean is exact, quantiles are interpolated in buckets.

    A quantile is None where its bucket has no lower or upper bound; `p50_in` and `p95_in` then still bound it.
    """

    mean: float | None
    p50: float | None = None
    p95: float | None = None
    p50_in: tuple[float, float] | None = None
    p95_in: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """What a server did between two scrapes, or since it started (`seconds` None), and its state at the second.

    `kind` is the kind of server, `requests` those that got their first token. `restarted`: counters went backwards, so
    that this is what was done since the server's start. Unknown is None.
    """

    kind: str
    counters: Counters
    seconds: float | None = None
    restarted: bool = False

    @property
    def requests(self) -> float | None:
        """How many requests got their first token; None where the server has no such histogram."""
        found = self.counters.parts.get("ttft")
        return None if found is None else found.count

    @property
    def idle(self) -> bool:
        """Whether nothing was asked for in this time, as far as is known."""
        asked = self.requests if self.requests is not None else self.counters.prompt_tokens
        return asked is not None and asked <= 0

    def timing(self, part: str) -> Timing | None:
        """Give ttft, queue, prefill, e2e, or other: what of ttft is neither queue nor prefill, as a mean only."""
        if part == "other":
            return self._other()
        found = self.counters.parts.get(part)
        if found is None or found.mean is None:
            return None
        return Timing(found.mean, found.quantile(0.5), found.quantile(0.95), found.bounds(0.5), found.bounds(0.95))

    def _other(self) -> Timing | None:
        ttft, queue, prefill = (self.counters.parts.get(name) for name in ("ttft", "queue", "prefill"))
        if ttft is None or ttft.mean is None or queue is None or prefill is None:
            return None
        if queue.mean is None or prefill.mean is None:
            return None
        rest = ttft.mean - queue.mean - prefill.mean
        return Timing(max(0.0, rest)) if rest >= -_TOLERANCE * ttft.mean else None

    def share(self, part: str) -> float | None:
        """Give a part's share of the mean time to first token, 0 to 1."""
        whole, own = self.timing("ttft"), self.timing(part)
        if whole is None or own is None or own.mean is None or not whole.mean:
            return None
        return min(1.0, own.mean / whole.mean)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether prefix work can shorten the time to first token of this server now, and why.

    `limit` is the share of the mean time to first token that would go if every prompt came from the cache whole: its
    prefill. What queues go with it depends on the load, and is not in it. None where it is not known.
    """

    helps: Help
    limit: float | None
    reasons: tuple[str, ...]


def between(before: Metrics | None, after: Metrics, seconds: float | None = None) -> Sample | None:
    """Give what was done between two scrapes, or since the start where there is no first one.

    None where the second scrape is of no server that is known here.
    """
    moved = prometheus.delta(before, after) if before is not None else after
    found = targets.of_metrics(moved if moved is not None else after)
    if found is None:
        return None
    restarted = before is not None and moved is None
    return Sample(*found, seconds=None if restarted or before is None else seconds, restarted=restarted)


def judge(sample: Sample, *, caches: bool | None = None) -> Verdict:
    """Say whether prefix work can help a server. `caches` is False where its prefix cache is known to be off."""
    if sample.idle:
        return Verdict("unknown", None, ("no request came in this time",))
    limit = sample.share("prefill")
    if caches is False:
        return Verdict("yes", limit, ("the prefix cache is off: switch it on before anything else",))
    stops = list(_stops(sample))
    if stops:
        return Verdict("no", limit, tuple(stops))
    limits = list(_limits(sample))
    gains = list(_gains(sample))
    if not gains:
        helps: Help = "limited" if limits else "unknown"
        return Verdict(helps, limit, tuple(limits) or _unknown(sample))
    return Verdict("limited" if limits else "yes", limit, (*gains, *limits))


def _unknown(sample: Sample) -> tuple[str, ...]:
    missing = [name for name in ("ttft", *PARTS) if sample.timing(name) is None]
    if sample.counters.hit_rate is None:
        missing.append("hit rate")
    return (f"the server does not report: {', '.join(missing)}",) if missing else ("nothing stands out",)


def _stops(sample: Sample) -> Iterator[str]:
    """Give the reasons for which no work on prefixes would be felt."""
    rate, prefill, other = sample.counters.hit_rate, sample.share("prefill"), sample.share("other")
    if rate is not None and rate >= _HIGH and (prefill is None or prefill < _MOST):
        yield f"{percent(rate, 0)} of the prompt tokens come from the cache already"
    if other is not None and other >= _MOST:
        yield (
            f"{percent(other, 0)} of the time to first token is neither queue nor prefill (HTTP, tokenization, "
            "processes that talk to each other): no cache touches it"
        )
    computed = _computed_each(sample)
    prefilled = sample.timing("prefill")
    short = prefilled is None or (prefilled.mean or 0) <= _STEP
    if computed is not None and computed < _FEW_TOKENS and short and not (sample.share("queue") or 0) >= _MOST:
        yield f"a request has only {computed:.0f} tokens to compute (mean): its prefill is a step like any other"


def _gains(sample: Sample) -> Iterator[str]:
    """Give the reasons for which work on prefixes would be felt."""
    rate, prefill, queue = sample.counters.hit_rate, sample.share("prefill"), sample.share("queue")
    room = "" if rate is None else f", and {percent(1 - rate, 0)} of the prompt tokens are computed"
    if prefill is not None and prefill >= _LITTLE:
        yield f"prefill is {percent(prefill, 0)} of the time to first token{room}"
    if queue is not None and queue >= _LITTLE and not _memory_bound(sample) and (prefill or 0) >= _LITTLE:
        why = "it falls faster than prefill does, where prefill is what requests wait for"
        yield f"the queue is {percent(queue, 0)}: {why}"
    if prefill is None and rate is not None and rate < _HIGH:
        yield f"{percent(1 - rate, 0)} of the prompt tokens are computed (what that takes is not reported)"


def _limits(sample: Sample) -> Iterator[str]:
    """Give the reasons for which work on prefixes would give less than it seems."""
    counters, queue = sample.counters, sample.share("queue")
    prefill = sample.share("prefill")
    if _memory_bound(sample):
        yield (
            "the KV pool is full of running requests: they wait for memory, of which prefixes that they share save a "
            "part only"
        )
    elif queue is not None and prefill is not None and queue >= _MOST and prefill < _LITTLE:
        yield (
            f"the queue is {percent(queue, 0)} and prefill {percent(prefill, 0)}: requests wait for others to "
            "generate, and no cache shortens that"
        )
    if counters.evicted and counters.prompt_tokens and counters.evicted > _LITTLE * counters.prompt_tokens:
        yield "the cache evicts much of what it stores: more room for it may give more than other prompts"
    if counters.hit_rate is not None and counters.hit_rate >= _HIGH:
        yield f"{percent(counters.hit_rate, 0)} of the prompt tokens come from the cache already"


def _memory_bound(sample: Sample) -> bool:
    counters = sample.counters
    if counters.preemptions or counters.retractions:
        return True
    return bool(counters.kv_usage is not None and counters.kv_usage >= _HIGH and counters.queue_length)


def _computed_each(sample: Sample) -> float | None:
    counters, requests = sample.counters, sample.requests
    if counters.queries is None or counters.hits is None or not requests:
        return None
    return (counters.queries - counters.hits) / requests
