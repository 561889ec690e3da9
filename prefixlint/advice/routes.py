"""How to route requests to replicas: each rule simulated beside the one in use."""

from __future__ import annotations

from dataclasses import replace

from prefixlint.advice._case import LEAST, Case
from prefixlint.caches.choose import has_capacity
from prefixlint.losses import Outcome
from prefixlint.results import Advice
from prefixlint.wording import percent

_TEXTS = {
    "session": "send each session to one replica",
    "prefix": "route by prefix (as sglang-router's cache_aware does)",
    "round-robin": "send requests to replicas in turn",
}
_UNEVEN = 1.2  # the busiest replica's tokens over an even share, from which it is told


def advise(case: Case) -> list[Advice]:
    """Give the route with the most hits, for each engine that runs on several replicas."""
    found = []
    for name in case.served:
        replicas = _replicas(case, name)
        if replicas > 1 and has_capacity(case.engine(name)):
            advice = _for(case, name, replicas)
            if advice is not None:
                found.append(advice)
    return found


def _replicas(case: Case, name: str) -> int:
    known = next((e.replicas for e in case.analysis.engines if e.engine == name), 1)
    return known if case.limits.route is not None or case.limits.replicas > 1 else 1


def _for(case: Case, name: str, replicas: int) -> Advice | None:
    now = case.limits.route or "round-robin"
    routes = [route for route in _TEXTS if route != now and (route != "session" or _has_sessions(case))]
    asked = [replace(case.limits, replicas=replicas, route=route) for route in routes]
    outcomes = case.serve([(name, case.own(name, limits)) for limits in asked], case.limits)
    rates = [case.rate(outcome.served) or 0.0 for outcome in outcomes]
    best = max(range(len(routes)), key=rates.__getitem__)
    advice = Advice(
        kind="route",
        engine=name,
        text=f"{_TEXTS[routes[best]]}{_load(outcomes[best])}",
        command=case.command(name, replicas=str(replicas), route=routes[best]),
        hit_rate=case.rate(case.served[name]),
        new_hit_rate=rates[best],
    )
    return advice if advice.gain >= LEAST else None


def _has_sessions(case: Case) -> bool:
    table = case.log.table
    return len({table.conversation[row] for row in case.log.rows.tolist()}) < case.log.rows.size


def _load(outcome: Outcome) -> str:
    """Say how unevenly replicas would be loaded, where they would."""
    total, busiest = sum(outcome.load), max(outcome.load)
    if not total or busiest * len(outcome.load) <= _UNEVEN * total:
        return ""
    return f"; the busiest of {len(outcome.load)} would get {percent(busiest / total, 0)} of the prompt tokens"
