"""Where cache marks should stand: Anthropic, Bedrock, OpenAI from gpt-5.6 on, and others that go by them."""

from __future__ import annotations

from dataclasses import replace

from prefixlint import prices
from prefixlint.advice._case import LEAST, Case
from prefixlint.advice._costs import Costs, costs, ratios
from prefixlint.advice._marking import Marking, Plan, best
from prefixlint.engines import Engine
from prefixlint.results import Advice, MarkAdvice
from prefixlint.spots import NONE, Spot, lifetime

_CHOSEN_BY = 2_000
"""Requests by which places are chosen; what they give is then simulated over all of them."""


_HOPE = 0.5  # of what has to be gained, that the first requests must show


def advise(case: Case) -> list[Advice]:
    """Give the marks that save most of what prompts cost, for each provider whose cache goes by marks."""
    if not case.log.table.marks or case.log.of_blocks:
        return []
    return [found for name in case.served if (found := _for(case, name)) is not None]


def _for(case: Case, name: str) -> Advice | None:
    engine = case.engine(name)
    marked = engine.goes_by_marks(case.log.table.models.values) and not _hidden(case, name)
    priced = costs(case, engine) if marked else None
    marking = None if priced is None else Marking.of(case.head(_CHOSEN_BY), name)
    if priced is None or marking is None or not marking.prompts:
        return None
    plan = best(marking, _long(marking.variant))
    if marking.tally(plan).saved - marking.logged().saved < _HOPE * LEAST * marking.tokens:
        return None  # a replay of the whole log takes longest, and would not find enough
    return _judged(case, name, plan, priced, marking)


def _hidden(case: Case, name: str) -> bool:
    """Tell whether the provider served from its cache what no mark of the log explains: its marks are not logged."""
    reported = case.analysis.reported
    return reported is not None and reported.cached_tokens > 0 and not case.served[name].cached.any()


def _judged(case: Case, name: str, plan: Plan, priced: Costs, marking: Marking) -> Advice | None:
    """Simulate the whole log with the marks of a plan, and give it where it costs less."""
    text = ",".join(map(str, plan)) or NONE
    limits = replace(case.limits, marks=plan)
    (outcome,) = case.serve([(name, case.own(name, limits))], limits)
    now, then = case.served[name], outcome.served
    cost, new_cost = priced.share(case, now), priced.share(case, then)
    if cost - new_cost < LEAST:
        return None
    paid, new_paid = priced.paid(case, now), priced.paid(case, then)
    return Advice(
        kind="marks",
        engine=name,
        text=_text(marking.variant, plan),
        command=case.command(name, marks=text),
        hit_rate=case.rate(now),
        new_hit_rate=case.rate(then),
        cost=cost,
        new_cost=new_cost,
        money=None if paid is None or new_paid is None else paid - new_paid,
        currency=priced.currency,
        marks=[_mark(marking, plan, spot) for spot in plan],
    )


def _text(engine: Engine, plan: Plan) -> str:
    if not plan:
        return "mark nothing: what is written is not read often enough to pay for it"
    text = f"mark {', '.join(_named(spot) for spot in plan)}"
    if engine.implicit and Spot("messages") not in [replace(spot, ttl=None) for spot in plan]:
        text += ', and nothing else (prompt_cache_options: {"mode": "explicit"}): the end of a prompt is not read again'
    return text


def _named(spot: Spot) -> str:
    place = str(replace(spot, ttl=None))
    return place if spot.ttl is None else f"{place} for {lifetime(spot.ttl)}"


def _mark(marking: Marking, plan: Plan, spot: Spot) -> MarkAdvice:
    """Say what one mark does, by what there would be without it."""
    whole, without = marking.tally(plan), marking.tally(tuple(s for s in plan if s != spot))
    written = whole.written - without.written
    rates = ratios(marking.engine, marking.prompts[0].model)
    return MarkAdvice(
        place=str(replace(spot, ttl=None)),
        ttl=spot.ttl,
        read_tokens=round(whole.read - without.read),
        written_tokens=round(written),
        gain=(whole.saved - without.saved) / marking.tokens if marking.tokens else 0.0,
        reads=(whole.read - without.read) / written if written > 0 else None,
        break_even=None if rates is None else prices.break_even(rates, hour=spot.ttl is not None),
    )


def _long(engine: Engine) -> float | None:
    """Give the longer lifetime that a mark may ask for, where the provider has one."""
    known = (("write_ratio_1h", 3600.0), ("write_ratio_12h", 43_200.0))
    return next((ttl for key, ttl in known if key in engine.facts), None)
