"""From what became of each request to the numbers of a run: times, hit rates, errors, and differences with reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from prefixlint.runs import Prediction, Residual, Run, ServerSide, Spread, spread
from prefixlint.verify.predict import Cache, Circumstances, Predicted, Sent, reason

if TYPE_CHECKING:
    from prefixlint.verify.metrics import Histogram
    from prefixlint.verify.replay import Exchange, Replayed
    from prefixlint.verify.targets import Counters

_MS = 1000


@dataclass(frozen=True, slots=True)
class Name:
    """Which run it is; `isolation` says how it was kept from what was cached before."""

    label: str
    cache: str
    isolation: str
    round: int


@dataclass(frozen=True, slots=True)
class Sides:
    """What was sent and what was predicted of it, by the position of its exchange; what could not be is missing."""

    sent: Mapping[int, Sent]
    predicted: Mapping[int, Predicted]
    around: Circumstances
    tolerance: int = 0


def residuals(exchanges: Sequence[Exchange], sides: Sides, name: Name) -> list[Residual]:
    """Put prediction and measurement of each request side by side, in the order sent, with why they differ."""
    rows = []
    around = sides.around
    for position, exchange in enumerate(exchanges):
        one, expected = sides.sent.get(position), sides.predicted.get(position)
        measured = exchange.measured
        why, explained = None, True
        if exchange.failure is not None:
            why, around = exchange.failure.message, replace(around, after_failure=True)
        elif one is not None and expected is not None:
            why, explained = reason(one, expected, around)
            if one.retried:
                around = replace(around, after_failure=True)
            near = one.cached is None or abs(one.cached - expected.cached) <= sides.tolerance
            explained = explained or (near and one.prompt in (None, one.ids.size))
        request = exchange.call.request
        rows.append(
            Residual(
                line=request.line,
                predicted=None if expected is None or exchange.failure is not None else expected.cached,
                measured=measured.cached_tokens if measured is not None else None,
                reason=why,
                path=request.path,
                part=request.part,
                run=name.label,
                cache=name.cache,
                round=name.round,
                counted_tokens=None if one is None else int(one.ids.size),
                prompt_tokens=measured.prompt_tokens if measured is not None else None,
                explained=explained,
                ttft_ms=_ms(measured.ttft_s if measured is not None else None),
                queue_ms=_ms(measured.queue_s if measured is not None else None),
                prefill_ms=_ms(measured.prefill_s if measured is not None else None),
                error=None if exchange.failure is None else exchange.failure.slug,
            )
        )
    return rows


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else _MS * seconds


def run_of(exchanges: Sequence[Exchange], rows: Sequence[Residual], name: Name, out: Replayed, *, timed: bool) -> Run:
    """Sum a run up. `timed`: requests had moments at which they were due, so that being late means something."""
    answers = [e.measured for e in exchanges if e.measured is not None]
    told = [r for r in rows if r.measured is not None and r.prompt_tokens is not None]
    prompt, cached = sum(r.prompt_tokens or 0 for r in told), sum(r.measured or 0 for r in told)
    both = [r for r in told if r.predicted is not None]
    expected, counted = sum(r.predicted or 0 for r in both), sum(r.counted_tokens or 0 for r in both)
    known = [m.prompt_tokens for m in answers if m.prompt_tokens is not None]
    outputs = [m.output_tokens for m in answers if m.output_tokens is not None]
    return Run(
        label=name.label,
        cache=name.cache,
        isolation=name.isolation,
        prompt_tokens=sum(known) if known else None,
        cached_tokens=cached if told else None,
        hit_rate=cached / prompt if prompt else None,
        ttft_ms=spread([m.ttft_s for m in answers if m.ttft_s is not None]),
        queue_ms=spread([m.queue_s for m in answers if m.queue_s is not None]),
        prefill_ms=spread([m.prefill_s for m in answers if m.prefill_s is not None]),
        other_ms=spread([m.other_s for m in answers if m.other_s is not None]),
        server=None,
        errors=dict(sorted(Counter(e.failure.slug for e in exchanges if e.failure is not None).items())),
        round=name.round,
        requests=len(exchanges),
        answered=len(answers),
        retries=sum(e.retries for e in exchanges),
        output_tokens=sum(outputs) if outputs else None,
        duration_s=out.lasted,
        overhead_ms=spread([e.overhead for e in exchanges]),
        late_ms=spread([max(0.0, e.sent - e.due) for e in exchanges]) if timed else None,
        predicted_cached_tokens=expected if both else None,
        predicted_hit_rate=expected / counted if counted else None,
    )


def server_side(counters: Counters | None, seen: Mapping[str, Any]) -> ServerSide | None:
    """Give what the server's counters say; gauges are the largest of those at the end and those `seen` meanwhile."""
    if counters is None:
        return None

    def most(name: str, last: float | None) -> float | None:
        level = seen.get(name)
        known = [value for value in (last, level["highest"] if level else None) if value is not None]
        return max(known, default=None)

    return ServerSide(
        hit_rate=counters.hit_rate,
        queries=counters.queries,
        hits=counters.hits,
        preemptions=counters.preemptions,
        retractions=counters.retractions,
        evicted_tokens=counters.evicted,
        kv_usage_max=most("kv_usage", counters.kv_usage),
        queue_length_max=most("queue_length", counters.queue_length),
        running_max=most("batch", counters.running),
    )


def with_parts(run: Run, counters: Counters) -> Run:
    """Fill in the parts of TTFT that answers do not tell with those of the server's histograms."""
    queue = run.queue_ms or _from_histogram(counters.parts.get("queue"))
    prefill = run.prefill_ms or _from_histogram(counters.parts.get("prefill"))
    other = run.other_ms
    if other is None and run.ttft_ms is not None and run.ttft_ms.mean is not None and prefill is not None:
        rest = run.ttft_ms.mean - (prefill.mean or 0.0) - ((queue.mean if queue is not None else 0.0) or 0.0)
        # of single requests it is not known, and percentiles of parts do not subtract
        other = Spread(None, None, None, max(0.0, rest), count=prefill.count, source="metrics")
    return replace(run, queue_ms=queue, prefill_ms=prefill, other_ms=other)


def _from_histogram(histogram: Histogram | None) -> Spread | None:
    if histogram is None or not histogram.count:
        return None
    mean = histogram.mean
    p50, p95, p99 = (_ms(histogram.quantile(share)) for share in (0.50, 0.95, 0.99))
    return Spread(p50, p95, p99, _ms(mean), count=int(histogram.count), source="metrics")


def prediction(rows: Sequence[Residual], cache: Cache, tokens_from: str, tolerance: int) -> Prediction:
    """Compare prediction and measurement over all runs."""
    both = [r for r in rows if r.predicted is not None and r.measured is not None]
    counted = [r for r in rows if r.counted_tokens is not None and r.prompt_tokens is not None]
    asked = [r for r in rows if r.predicted is not None and r.counted_tokens is not None]
    cached, prompt = sum(r.predicted or 0 for r in asked), sum(r.counted_tokens or 0 for r in asked)
    apart = [r for r in both if r.predicted != r.measured]
    return Prediction(
        cached_tokens=cached,
        hit_rate=cached / prompt if prompt else None,
        token_counts_equal=sum(r.counted_tokens == r.prompt_tokens for r in counted),
        cached_equal=len(both) - len(apart),
        of=len(both),
        max_error_tokens=max((abs((r.predicted or 0) - (r.measured or 0)) for r in apart), default=0),
        counted=len(counted),
        explained=sum(r.explained for r in apart),
        unexplained=sum(not r.explained for r in both),
        tolerance=tolerance,
        profile=cache.name,
        block_size=cache.engine.granularity,
        capacity_tokens=cache.capacity,
        tokens_from=tokens_from,
    )
