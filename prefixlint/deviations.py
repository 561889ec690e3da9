"""How far the curve of block-LRU is from an engine that evicts otherwise: that engine, simulated at some pools."""

from __future__ import annotations

from dataclasses import replace

from prefixlint.advice import Case
from prefixlint.results import Analysis, PoolSize

_SHARES = (0.9, 0.99)  # of the ceiling, besides the knee: where the pool is simulated
_TOKENS = 3_000_000
"""Prompt tokens of a log for which this takes no time worth a word; of longer ones, --capacity shows single pools."""


def add(case: Case) -> Analysis:
    """Give the analysis with the deviations of its curves; only where caches have no other limits."""
    analysis, limits = case.analysis, case.limits
    alone = limits.replicas == 1 and limits.route is None and limits.host_capacity is None and limits.ttl is None
    if not alone or limits.eviction not in (None, "lru") or analysis.prompt_tokens > _TOKENS:
        return analysis
    sizes = [_measured(case, size) for size in analysis.curves.sizes]
    return replace(analysis, curves=replace(analysis.curves, sizes=sizes))


def _measured(case: Case, size: PoolSize) -> PoolSize:
    if case.engine(size.engine).eviction != "lru_leaf" or size.knee is None:
        return size
    pools = sorted({size.knee, *(size.reach[share] for share in _SHARES if share in size.reach)})
    page = case.served[size.engine].engine.granularity
    asked = [replace(case.limits, capacity=pool) for pool in pools if pool >= page]
    outcomes = case.serve([(size.engine, case.own(size.engine, limits)) for limits in asked], case.limits)
    found = []
    for limits, outcome in zip(asked, outcomes, strict=True):
        pool, rate = limits.capacity or 0, case.rate(outcome.served)
        curve = case.tap.rate(size.engine, pool)
        if rate is not None and curve is not None:
            found.append((pool, rate, curve))
    return replace(size, direct=found)
