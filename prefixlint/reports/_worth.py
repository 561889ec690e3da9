"""How curves and savings look, in JSON and in text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from prefixlint.reports import Look
from prefixlint.reports._terminal import Style, short_count, table, wrap
from prefixlint.results import Analysis, CapacityPoint, Curves, PoolSize, QueueEffect, Saving
from prefixlint.wording import percent

_BARS = "▁▂▃▄▅▆▇█"
_COLUMNS = 16  # of a sparkline
_ENDLESS = 60.0  # seconds of waiting in the median, from which on a queue only grows
_LIFETIMES = {60: "1 min", 300: "5 min", 3_600: "1 h"}  # of those in the result, what people set


def curves(found: Curves) -> dict[str, Any]:
    """Give the curves as JSON values."""
    return {
        "capacity": [
            {"engine": p.engine, "tokens": p.tokens, "gib": p.gib, "hit_rate": p.hit_rate, "error": p.error}
            for p in found.capacity
        ],
        "ttl": [
            {"engine": p.engine, "seconds": p.seconds, "since": p.since, "hit_rate": p.hit_rate} for p in found.ttl
        ],
        "replicas": [
            {"engine": p.engine, "replicas": p.replicas, "route": p.route, "hit_rate": p.hit_rate}
            for p in found.replicas
        ],
        "pools": [_pool(size) for size in found.sizes],
        "host": [
            {
                "engine": p.engine,
                "pool_tokens": p.pool_tokens,
                "host_tokens": p.host_tokens,
                "gib": p.gib,
                "hit_rate": p.hit_rate,
                "pool_hit_rate": p.pool_hit_rate,
            }
            for p in found.host
        ],
    }


def _pool(size: PoolSize) -> dict[str, Any]:
    return {
        "engine": size.engine,
        "method": size.method,
        "ceiling": size.ceiling,
        "knee_tokens": size.knee,
        "knee_hit_rate": size.knee_hit_rate,
        "reach": {f"{share:g}": tokens for share, tokens in size.reach.items()},
        "pool_tokens": size.have,
        "running_tokens": size.running,
        "pool_hit_rate": size.hit_rate,
        "basis": size.basis,
        "simulated": None if size.simulated is None else _simulated(size.simulated),
        "deviations": [_simulated(direct) for direct in size.direct],
    }


def _simulated(direct: tuple[int, float, float]) -> dict[str, Any]:
    return {"tokens": direct[0], "hit_rate": direct[1], "curve_hit_rate": direct[2]}


def saving(one: Saving) -> dict[str, Any]:
    """Give a saving as JSON values."""
    return {
        "engine": one.engine,
        "prefill_flops": one.prefill_flops,
        "flops_share": one.flops_share,
        "prefill_seconds": one.prefill_seconds,
        "seconds_share": one.seconds_share,
        "calibrated": one.calibrated,
        "band": one.band,
        "money": one.money,
        "currency": one.currency,
        "write_premium": one.premium,
        "break_even_reads": one.break_even,
        "queue": None if one.queue is None else _queue(one.queue),
        "basis": one.basis,
    }


def _queue(effect: QueueEffect) -> dict[str, Any]:
    def pair(seconds: tuple[float, float]) -> dict[str, float]:
        return {"p50": seconds[0], "p95": seconds[1]}

    return {
        "load_without": effect.load[0],
        "load_with": effect.load[1],
        "ttft_s": [
            {"rate": factor, "without": pair(without), "with": pair(cached)}
            for factor, (without, cached) in effect.ttft.items()
        ],
    }


def memory(result: Analysis, style: Style, look: Look) -> list[str]:
    """Show the capacity curves with their knees, and what lifetimes and replicas do."""
    width = look.width
    sizes = [size for size in result.curves.sizes if size.knee is not None]
    if not sizes:
        return []
    # the curve, the pool beyond which more memory gives little, and the pools that reach shares of the best rate
    rows: list[tuple[str, ...]] = [("Pool, tokens", "rate as it grows", "knee", "for 90 %", "95 %", "99 %", "of")]
    rows += [row for size in sizes for row in _sizes(size, _of(result, size))]
    lines = table(rows, align="<<>>>>>", width=width, grow=(0, 1), indent=0)
    lines[0] = style.bold(lines[0])
    sampled = {p.engine: p.error for p in result.curves.capacity if p.error is not None}
    for size in sizes:
        if size.have is not None and size.hit_rate is not None:
            lines += wrap(f"{size.engine}: {_have(size)}", width)
        if size.simulated is not None:
            tokens, rate, curve = size.simulated
            text = f"{size.engine} with {short_count(tokens)} tokens"
            lines += wrap(f"{text}: {percent(rate)} simulated, {percent(curve)} by the curve", width)
        if size.direct and look.verbose:
            pairs = (f"{short_count(n)} {percent(rate)} (curve {percent(curve)})" for n, rate, curve in size.direct)
            lines += wrap(f"{size.engine} itself, simulated: {', '.join(pairs)}", width)
        if host := [p for p in result.curves.host if p.engine == size.engine]:
            tiers = ", ".join(f"{short_count(p.host_tokens)} {percent(p.hit_rate)}" for p in host)
            lines += wrap(f"{size.engine} with a tier on the host of so many tokens: {tiers}", width)
    if look.verbose:
        for text in (_lifetimes(result, sizes[0].engine), _replicas(result, sizes[0].engine)):
            lines += wrap(text, width) if text else []
    if not (look.verbose or sampled):
        return lines
    methods = "; ".join(dict.fromkeys(f"{size.engine}: {size.method}" for size in sizes))
    if sampled:
        methods += f"; standard error up to {percent(max(sampled.values()))}"
    return lines + [style.dim(line) for line in wrap(f"{methods}.", width)]


def _of(result: Analysis, size: PoolSize) -> list[CapacityPoint]:
    return [p for p in result.curves.capacity if p.engine == size.engine]


def _sizes(size: PoolSize, points: Sequence[CapacityPoint]) -> list[tuple[str, ...]]:
    """Give the rows of an engine: its curve with pools in tokens, and the same in GiB where that is known."""
    assert size.knee is not None
    pools = [size.knee, *(size.reach.get(share) for share in (0.9, 0.95, 0.99))]
    tokens = [short_count(n) if n is not None else "" for n in pools]
    rows = [(f"  {size.engine}", sparkline(points), *tokens, percent(size.ceiling))]
    gib = {p.tokens: p.gib for p in points}
    known = [gib.get(n) if n is not None else None for n in pools]
    if any(one is not None for one in known):
        rows.append(("", "GiB", *("" if one is None else _three(one) for one in known), ""))
    return rows


def _three(number: float) -> str:
    """Show a number with three digits that count, and never an exponent."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def sparkline(points: Sequence[CapacityPoint]) -> str:
    """Draw hit rates over the logarithm of the pool size."""
    low, high = math.log(max(1, points[0].tokens)), math.log(max(1, points[-1].tokens))
    top = max(p.hit_rate for p in points) or 1.0
    drawn = []
    for column in range(_COLUMNS):
        edge = low + (high - low) * (column + 1) / _COLUMNS
        # A hair of room: the last column must reach the last point.
        inside = [p.hit_rate for p in points if math.log(max(1, p.tokens)) <= edge + 1e-9]
        drawn.append(_BARS[round((inside[-1] if inside else 0.0) / top * (len(_BARS) - 1))])
    return "".join(drawn)


def _have(size: PoolSize) -> str:
    running = f", and {short_count(size.running)} of running requests" if size.running else ""
    unknown = "" if size.running is not None else ", nothing taken off for running requests"
    return f"{short_count(size.have or 0)} tokens ({size.basis}{running}{unknown}) give {percent(size.hit_rate)}"


def _lifetimes(result: Analysis, engine: str) -> str:
    points = [p for p in result.curves.ttl if p.engine == engine and p.seconds in _LIFETIMES]
    use = [f"{_LIFETIMES[int(p.seconds)]} {percent(p.hit_rate)}" for p in points if p.since == "use"]
    return f"entries that live after their last use ({engine}): {', '.join(use)}" if use else ""


def _replicas(result: Analysis, engine: str) -> str:
    points = [p for p in result.curves.replicas if p.engine == engine and p.replicas in (2, 4, 8)]
    routes: dict[str, list[str]] = {}
    for point in points:
        routes.setdefault(point.route, []).append(percent(point.hit_rate))
    parts = [f"{route} {', '.join(rates)}" for route, rates in routes.items()]
    return f"over 2, 4, 8 replicas ({engine}): {'; '.join(parts)}" if parts else ""


def worth(result: Analysis, style: Style, width: int) -> list[str]:
    """Show what the hits are worth, each number with its unit, and on what it rests."""
    if not result.savings:
        return []
    rows = [("What hits are worth", "prefill FLOPs", "prefill time", "money")]
    rows += [(one.engine, _flops(one), _seconds(one), _money(one)) for one in result.savings]
    lines = table(rows, align="<>>>", width=width, indent=0)
    lines[0] = style.bold(lines[0])
    for one in result.savings:
        lines += [style.dim(line) for line in wrap(f"{one.engine}: {one.basis}.", width)]
        if one.break_even and one.premium:
            reads = f"{one.break_even} reads pay" if one.break_even > 1 else "1 read pays"
            lines += wrap(
                f"{one.engine}: writing cost {_amount(one.premium, one.currency)}; {reads} for a write", width
            )
        if one.queue is not None:
            lines += wrap(f"{one.engine}: {_waiting(one.queue)}", width)
    return lines


def _flops(one: Saving) -> str:
    if one.prefill_flops is None:
        return ""
    return f"{one.prefill_flops:.3g} ({percent(one.flops_share)})"


def _seconds(one: Saving) -> str:
    if one.prefill_seconds is None:
        return ""
    share = percent(one.seconds_share)
    return f"{_three(one.prefill_seconds)} s ±{percent(one.band or 0, 0)} ({share})"


def _money(one: Saving) -> str:
    return "" if one.money is None else _amount(one.money, one.currency)


def _amount(money: float | None, currency: str | None) -> str:
    if money is None:
        return "unknown"
    return f"{money:,.2f} {currency}" if abs(money) >= 1 or not money else f"{money:.3g} {currency}"


def _waiting(effect: QueueEffect) -> str:
    """Say what the cache does to the time to the first token, with the load and 20 % around it."""
    without, cached = effect.load
    load = f"prefill load {without:.2f} without the cache, {cached:.2f} with it"
    if effect.ttft[1.0][1][0] > _ENDLESS:
        return f"one replica cannot serve this log in its time ({load}): requests wait without end, with the cache too"
    parts = [f"{_change(factor)} {_ms(none)} without, {_ms(hits)} with" for factor, (none, hits) in effect.ttft.items()]
    return f"time to the first token P50/P95, simulated, no promise: {'; '.join(parts)}; {load}"


def _change(factor: float) -> str:
    return "at the log's rate" if factor == 1 else f"at {100 * (factor - 1):+.0f} %"


def _ms(pair: tuple[float, float]) -> str:
    return "/".join(f"{1000 * x:,.0f}" for x in pair) + " ms"
