"""How samples of a server look: a verdict in sentences, a row for each interval, and JSON `prefixlint.watch/1`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Self

import orjson

from prefixlint.reports import Look
from prefixlint.reports._terminal import Style, duration, short_count, visible, wrap
from prefixlint.saved import build
from prefixlint.verify.metrics import Histogram
from prefixlint.verify.targets import Counters
from prefixlint.verify.triage import PARTS, Sample, Timing, Verdict
from prefixlint.verify.watch import Judged
from prefixlint.wording import percent

SCHEMA = "prefixlint.watch/1"
_UNKNOWN = "unknown"
_WORDS = {
    "yes": "Prefix work can help",
    "limited": "Prefix work can help, but not with all of it",
    "no": "Prefix work cannot help here",
    "unknown": "Whether prefix work can help is not known",
}
# column heads and widths of a row: time, requests, hit rate, the mean of ttft and its parts, pool, queue
_COLUMNS = (
    ("time", 8), ("requests", 8), ("hit rate", 8), ("TTFT", 8), ("queue", 8), ("prefill", 8), ("other", 8),
    ("KV", 6), ("waiting", 7),
)  # fmt: skip


def triage(name: str, sample: Sample, verdict: Verdict, judged: Sequence[Judged], look: Look) -> str:
    """Show one sample: where the time goes, the hits, the pool, and whether prefix work can help."""
    style = Style(look.color)
    parts = [_head(name, sample, style, look.width), _rate(sample, style, look.width), _times(sample, style)]
    parts += [_pool(sample, style, look.width), _verdict(verdict, style, look.width)]
    parts += [limits(judged, look)] if judged else []
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _head(name: str, sample: Sample, style: Style, width: int) -> list[str]:
    over = f"over {_span(sample.seconds)}" if sample.seconds is not None else "since its start"
    asked = [f"{sample.requests:,.0f} requests"] if sample.requests is not None else []
    if sample.counters.prompt_tokens is not None:
        asked.append(f"{short_count(round(sample.counters.prompt_tokens))} prompt tokens")
    text = f"{visible(name)} ({sample.kind}), {over}: {', '.join(asked) or 'no counters'}"
    lines = [style.bold(line) for line in wrap(text, width, first="")]
    if sample.restarted:
        lines += [
            style.yellow(line) for line in wrap("It was started again in between; what went before is lost.", width)
        ]
    return lines


def _span(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 10 else duration(seconds)


def _rate(sample: Sample, style: Style, width: int) -> list[str]:
    counters = sample.counters
    if counters.queries is None or counters.hits is None:
        return wrap("Hit rate: unknown, the server does not report it", width, first="")
    counts = f"{counters.hits:,.0f} of {counters.queries:,.0f} prompt tokens, by the server's counters"
    return [f"{style.bold('Hit rate')}  {percent(counters.hit_rate)} ({counts})"]


def _times(sample: Sample, style: Style) -> list[str]:
    whole = sample.timing("ttft")
    if whole is None:
        known = "ttft" in sample.counters.parts
        return [
            f"Time to first token: {'no request in this time' if known else 'unknown, the server does not report it'}"
        ]
    rows = [style.bold(f"{'Time to first token':<30}{'mean':>10}{'share':>9}{'P50':>14}{'P95':>14}")]
    for label, part in (("whole", "ttft"), *((name, name) for name in PARTS)):
        timing = sample.timing(part)
        share = "" if part == "ttft" or sample.share(part) is None else percent(sample.share(part), 0)
        rows.append(f"  {label:<28}{_mean(timing):>10}{share:>9}{_quantile(timing, 50):>14}{_quantile(timing, 95):>14}")
    return rows


def _mean(timing: Timing | None) -> str:
    return _UNKNOWN if timing is None or timing.mean is None else milliseconds(timing.mean)


def _quantile(timing: Timing | None, which: int) -> str:
    """Show a quantile, or between which bounds it lies."""
    if timing is None:
        return ""
    value, bounds = (timing.p50, timing.p50_in) if which == 50 else (timing.p95, timing.p95_in)
    if value is not None:
        return milliseconds(value)
    if bounds is None:
        return ""
    low, high = bounds
    return f"> {milliseconds(low)}" if math.isinf(high) else f"< {milliseconds(high)}"


def milliseconds(seconds: float) -> str:
    """Show a duration: `0.42 ms`, `82 ms`, `1.77 s`."""
    if seconds >= 1:
        return f"{seconds:.3g} s" if seconds < 100 else f"{seconds:,.0f} s"
    value = seconds * 1000
    return f"{value:.0f} ms" if value >= 10 or value == 0 else f"{value:.2g} ms"


def _pool(sample: Sample, style: Style, width: int) -> list[str]:
    counters = sample.counters
    said = [
        f"{percent(counters.kv_usage)} held by running requests" if counters.kv_usage is not None else "use unknown"
    ]
    if counters.kv_filled is not None:
        said.append(f"{percent(counters.kv_filled)} filled, cached prefixes included")
    for count, noun in (
        (counters.preemptions, "preemptions"),
        (counters.retractions, "retractions"),
        (counters.evicted, "tokens evicted"),
    ):
        said += [f"{count:,.0f} {noun}"] if count is not None else []
    if counters.evicted is None:
        said.append("evictions unknown")
    if counters.queue_length is not None and counters.running is not None:
        said.append(f"{counters.running:,.0f} running, {counters.queue_length:,.0f} waiting now")
    lines = wrap("; ".join(said), width, indent=" " * 10, first=" " * 10)
    return [style.bold("KV pool".ljust(10)) + lines[0][10:], *lines[1:]]


def _verdict(verdict: Verdict, style: Style, width: int) -> list[str]:
    tint = {"yes": style.green, "limited": style.yellow, "no": style.red}.get(verdict.helps, style.bold)
    most = ""
    if verdict.helps in ("yes", "limited") and verdict.limit is not None:
        most = f": up to {percent(verdict.limit, 0)} of the time to first token is prefill"
    lines = [tint(line) for line in wrap(f"{_WORDS[verdict.helps]}{most}.", width, first="")]
    for reason in verdict.reasons:
        lines += wrap(reason, width, indent="    ", first="  - ")
    return lines


def sentence(sample: Sample, verdict: Verdict) -> str:
    """Say the same in a few words: hits, where the time goes, the pool, and whether prefix work can help."""
    over = f"over the last {_span(sample.seconds)}" if sample.seconds is not None else "since the server's start"
    said = [f"hit rate {percent(sample.counters.hit_rate)}"]
    whole = sample.timing("ttft")
    if whole is not None:
        shares = [(part, sample.share(part)) for part in PARTS]
        split = ", ".join(f"{part} {percent(share, 0)}" for part, share in shares)
        said.append(f"time to first token {_mean(whole)} (mean): {split}")
    if sample.counters.kv_usage is not None:
        said.append(f"{percent(sample.counters.kv_usage)} of the KV pool in use")
    reason = f": {verdict.reasons[0]}" if verdict.reasons else ""
    return f"{over}: {'; '.join(said)}. {_WORDS[verdict.helps]}{reason}"


def limits(judged: Sequence[Judged], look: Look) -> list[str]:
    """Show what came of limits."""
    style = Style(look.color)
    words = {True: style.green("kept"), False: style.red("broken"), None: style.yellow("not known")}
    return [f"--{one.name}: {words[one.holds]}, {one.why}" for one in judged]


def heads() -> str:
    """Give the line above the rows."""
    return " ".join(f"{name:>{size}}" for name, size in _COLUMNS)


def row(sample: Sample, clock: str, judged: Sequence[Judged], look: Look) -> str:
    """Show one interval in a line; `-` is what the server does not report, or what no request showed."""
    style = Style(look.color)
    rate, counters = sample.counters.hit_rate, sample.counters
    requests = "-" if sample.requests is None else f"{sample.requests:,.0f}"
    cells = [clock, requests, "-" if rate is None else percent(rate)]
    for part in ("ttft", *PARTS):
        timing = sample.timing(part)
        cells.append("-" if timing is None or timing.mean is None else milliseconds(timing.mean))
    cells.append("-" if counters.kv_usage is None else percent(counters.kv_usage, 0))
    cells.append("-" if counters.queue_length is None else f"{counters.queue_length:,.0f}")
    padded = [f"{cell:>{size}}" for cell, (_, size) in zip(cells, _COLUMNS, strict=True)]
    broken = {one.name for one in judged if one.holds is False}
    for name, index in (("fail-under", 2), ("max-ttft", 3), ("max-kv", 7)):
        if name in broken:
            padded[index] = style.red(padded[index])
    remarks = [f"--{one.name}: {one.why}" for one in judged if one.holds is False]
    remarks += ["the server was started again"] if sample.restarted else []
    return "\n".join(
        [" ".join(padded), *(style.yellow(line) for r in remarks for line in wrap(r, look.width, indent=" " * 9))]
    )


def as_json(sample: Sample, judged: Sequence[Judged]) -> dict[str, Any]:
    """Give a sample as JSON: times in milliseconds, rates from 0 to 1; unknown is null."""
    counters = sample.counters
    return {
        "seconds": sample.seconds,
        "restarted": sample.restarted,
        "requests": sample.requests,
        "prompt_tokens": counters.prompt_tokens,
        "cached_tokens": counters.cached_tokens,
        "output_tokens": counters.output_tokens,
        "query_tokens": counters.queries,
        "hit_tokens": counters.hits,
        "hit_rate": counters.hit_rate,
        "ttft_ms": _timing(sample.timing("ttft")),
        **{f"{part}_ms": _timing(sample.timing(part)) for part in PARTS},
        "shares": {part: sample.share(part) for part in PARTS},
        "kv_usage": counters.kv_usage,
        "kv_filled": counters.kv_filled,
        "evicted_tokens": counters.evicted,
        "preemptions": counters.preemptions,
        "retractions": counters.retractions,
        "running": counters.running,
        "waiting": counters.queue_length,
        "limits": [{"name": one.name, "holds": one.holds, "why": one.why} for one in judged],
    }


def line(name: str, sample: Sample, judged: Sequence[Judged]) -> str:
    """Give one interval as a line of JSON."""
    value = {"schema": SCHEMA, "server": name, "kind": sample.kind, **as_json(sample, judged)}
    return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE).decode()


def document(name: str, rows: Sequence[tuple[Sample, Sequence[Judged]]], whole: Sample, verdict: Verdict) -> str:
    """Give a whole watch as JSON: each interval, all of them together, and whether prefix work can help."""
    value = {
        "schema": SCHEMA,
        "server": name,
        "kind": whole.kind,
        "samples": [as_json(sample, judged) for sample, judged in rows],
        "whole": as_json(whole, []),
        "prefix_work": {"helps": verdict.helps, "limit": verdict.limit, "reasons": list(verdict.reasons)},
    }
    return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_INDENT_2).decode()


def _timing(timing: Timing | None) -> dict[str, Any] | None:
    if timing is None:
        return None

    def ms(value: float | None) -> float | None:
        return None if value is None or math.isinf(value) else value * 1000

    def between(bounds: tuple[float, float] | None) -> list[float | None] | None:
        return None if bounds is None else [ms(bounds[0]), ms(bounds[1])]

    return {
        "mean": ms(timing.mean), "p50": ms(timing.p50), "p95": ms(timing.p95),
        "p50_between": between(timing.p50_in), "p95_between": between(timing.p95_in),
    }  # fmt: skip


def saved_text(saved: Mapping[str, Any], look: Look) -> str:
    """Show a watch that was written as JSON: a row for each interval where there are several, then all of them."""
    work = saved["prefix_work"]
    verdict = Verdict(work["helps"], work["limit"], tuple(work["reasons"]))
    rows = [(_Saved.of(row, saved["kind"]), _judged(row)) for row in saved["samples"]]
    shown = triage(
        saved["server"], _Saved.of(saved["whole"], saved["kind"]), verdict, rows[0][1] if len(rows) == 1 else [], look
    )
    if len(rows) < 2:
        return shown
    ends = accumulate(sample.seconds or 0.0 for sample, _ in rows)
    lines = (row(sample, f"+{_span(end)}", judged, look) for end, (sample, judged) in zip(ends, rows, strict=True))
    return "\n".join([heads(), *lines]) + f"\n\n{shown}"


def _judged(saved: Mapping[str, Any]) -> list[Judged]:
    return [build(Judged, limit) for limit in saved["limits"]]


@dataclass(frozen=True, slots=True)
class _Saved(Sample):
    """A sample of which only the numbers are known that its JSON holds, and not the histograms."""

    asked: float | None = None
    timings: Mapping[str, Timing] = field(default_factory=dict)

    @property
    def requests(self) -> float | None:
        return self.asked

    def timing(self, part: str) -> Timing | None:
        return self.timings.get(part)

    @classmethod
    def of(cls, saved: Mapping[str, Any], kind: str) -> Self:
        counters = Counters(
            prompt_tokens=saved["prompt_tokens"],
            cached_tokens=saved["cached_tokens"],
            output_tokens=saved["output_tokens"],
            queries=saved["query_tokens"],
            hits=saved["hit_tokens"],
            preemptions=saved["preemptions"],
            retractions=saved["retractions"],
            evicted=saved["evicted_tokens"],
            kv_usage=saved["kv_usage"],
            kv_filled=saved["kv_filled"],
            queue_length=saved["waiting"],
            running=saved["running"],
            parts={} if saved["requests"] is None else {"ttft": Histogram(saved["requests"], 0.0, ())},
        )
        timings = {part: timing for part in ("ttft", *PARTS) if (timing := _timing_of(saved[f"{part}_ms"])) is not None}
        return cls(kind, counters, saved["seconds"], saved["restarted"], saved["requests"], timings)


def _timing_of(saved: Mapping[str, Any] | None) -> Timing | None:
    if saved is None:
        return None

    def seconds(value: float | None) -> float | None:
        return None if value is None else value / 1000

    def between(bounds: Sequence[float | None] | None) -> tuple[float, float] | None:
        low, high = bounds or (None, None)
        return None if bounds is None else (seconds(low) or 0.0, math.inf if high is None else high / 1000)

    mean, p50, p95 = (seconds(saved[name]) for name in ("mean", "p50", "p95"))
    return Timing(mean, p50, p95, between(saved["p50_between"]), between(saved["p95_between"]))
