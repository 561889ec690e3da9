"""What to send as prompt_cache_key, where a provider routes by it and takes only so many requests a minute for one."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from prefixlint.advice._case import LEAST, Case
from prefixlint.advice._costs import costs
from prefixlint.bounded import keys
from prefixlint.results import Advice
from prefixlint.simulate import Served

_CHOSEN_BY = 1_000
"""Requests by which a rule is chosen; what it gives is then simulated over all of them."""
_TEXTS = {
    "none": "send no prompt_cache_key",
    "family": "send one prompt_cache_key for each family of prompts",
    "session": "send one prompt_cache_key for each conversation",
}


def advise(case: Case) -> list[Advice]:
    """Give the rule of keys with the most hits, for each provider that routes by them."""
    found = []
    for name in case.served:
        engine = case.engine(name)
        if engine.rate is not None and case.own(name, case.limits).spill:
            advice = _for(case, name, engine.rate)
            if advice is not None:
                found.append(advice)
    return found


def _for(case: Case, name: str, rate: int) -> Advice | None:
    """Choose by the first requests, and judge by all."""
    head = case.head(_CHOSEN_BY)
    rules = [rule for rule in (*_TEXTS, _spread(case, rate)) if rule is not None and rule != case.limits.keys]
    tried = {rule: _served(head, name, rule) for rule in rules}
    best = max(rules, key=lambda rule: float(tried[rule].cached.sum() / max(1, tried[rule].prompt.sum())))
    then = tried[best] if head is case else _served(case, name, best)
    priced = costs(case, case.engine(name))
    now = case.served[name]
    paid, new_paid = (None, None) if priced is None else (priced.paid(case, now), priced.paid(case, then))
    advice = Advice(
        kind="cache_key",
        engine=name,
        text=f"{_text(best)}; {_peak(case, best, rate)}",
        command=case.command(name, cache_key=best),
        hit_rate=case.rate(now),
        new_hit_rate=case.rate(then),
        cost=None if priced is None else priced.share(case, now),
        new_cost=None if priced is None else priced.share(case, then),
        money=None if paid is None or new_paid is None else paid - new_paid,
        currency=None if priced is None else priced.currency,
    )
    return advice if advice.gain >= LEAST else None


def _served(case: Case, name: str, rule: str) -> Served:
    limits = replace(case.limits, keys=rule)
    (outcome,) = case.serve([(name, case.own(name, limits))], limits)
    return outcome.served


def _spread(case: Case, rate: int) -> str | None:
    """Give the rule that spreads each family over as many keys as its busiest minute needs; None where one will do."""
    parts = math.ceil(_busiest(case, "family") / rate)
    return f"family:{min(parts, 999)}" if parts > 1 else None


def _text(rule: str) -> str:
    if rule.startswith("family:"):
        parts = rule.partition(":")[2]
        return f"spread each family of prompts over {parts} prompt_cache_keys, the conversations of one in one of them"
    return _TEXTS[rule]


def _peak(case: Case, rule: str, rate: int) -> str:
    return f"the busiest key then gets {_busiest(case, rule)} requests in a minute, and a machine takes about {rate}"


def _busiest(case: Case, rule: str) -> int:
    """Count the requests of one key in its busiest minute."""
    times = np.frombuffer(case.log.table.time, np.float64)[case.log.rows]
    numbers = keys(case.log, rule)
    most = 0
    for number in np.unique(numbers):
        mine = np.sort(times[numbers == number])
        most = max(most, int((np.arange(mine.size) - np.searchsorted(mine, mine - 60, side="right")).max()) + 1)
    return most
