"""From what was tried to what is shown: the gain of each fix, and the way from the reported rate to the ceiling."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from prefixlint import gaps, simulate
from prefixlint.accounts import Account, Material, at_best, family_id, held
from prefixlint.gains import Gains
from prefixlint.model import MissCause
from prefixlint.results import Analysis, NotTried, Step, Waterfall, WhatIf
from prefixlint.simulate import Served
from prefixlint.table import by_value

Counts = NDArray[np.int64]
Rows = NDArray[np.intp]

_SHOWN = 0.0005  # of the prompt tokens: what rounds to a tenth of a point
_OTHERS = "requests that are not compared"
_COUNTS = "the server counts tokens otherwise"


@dataclass(frozen=True, slots=True)
class _Engine:
    """What one engine serves: of the log as it is, of what is best with all fixes, and what the log reports."""

    name: str
    free: Served
    best: Served
    told: gaps.Told | None


def add(result: Analysis, material: Material, account: Account, tried: Gains, *, timed: bool) -> Analysis:
    """Give the result with what fixes give, for the whole log and for each family that it shows."""
    tried, not_tried = _told(tried)
    numbers = np.frombuffer(material.table.family, np.int32)[material.rows]
    counted = np.zeros(numbers.size, bool)
    counted[simulate.after_warmup(numbers.size, material.warmup)] = True
    ids = {family_id(material, number): number for number in np.unique(numbers).tolist()}
    members = {number: mine[counted[mine]] for number, mine in by_value(numbers).items()}
    scopes: dict[str | None, tuple[int | None, Rows]] = {None: (None, np.flatnonzero(counted))}
    scopes |= {f.id: (ids[f.id], members[ids[f.id]]) for f in result.families}
    of_blocks = material.replay.distinct_blocks is not None
    waterfalls = []
    for name, free in tried.base.free.items():
        best = at_best(tried.final.free[name], tried.lost, of_blocks=of_blocks)
        losses = _losses(material, account, name)
        told = gaps.told(material.table, material.rows, free, losses, timed=timed, held=held(material, free))
        engine = _Engine(name, free, best, told)
        for scope, (family, where) in scopes.items():
            lost = int(tried.lost[where].sum())
            waterfalls.append(Waterfall(scope, name, tuple(_steps(engine, tried, family, where)), lost))
    return replace(
        result,
        what_if=tuple(_rows(tried, {number: key for key, number in ids.items()})),
        not_tried=not_tried,
        waterfalls=tuple(waterfalls),
    )


def _told(tried: Gains) -> tuple[Gains, tuple[NotTried, ...]]:
    """Leave out fixes that changed no request, with the reason: their numbers would say that they gain nothing."""
    order = [n for n in tried.order if tried.changed.get(n)]
    idle = [tried.fixes[n] for n in tried.order if n not in order]
    why = "none of its requests could be rewritten from what was logged"
    refused = [NotTried(tuple(sorted(fix.codes)), why) for fix in idle]
    return replace(tried, order=order), (*tried.not_tried, *refused)


def _losses(material: Material, account: Account, name: str) -> Mapping[MissCause, Counts] | None:
    return account.misses[name] if name in material.bounded.served else None


def _rows(tried: Gains, ids: Mapping[int, str]) -> Iterator[WhatIf]:
    """Give each fix alone, then one after the other, for the whole log; then one after the other for each family."""
    for engine in tried.base.limited:
        for number in tried.order:
            yield _row(tried, engine, None, frozenset((number,)), number, cumulative=False)
        done: frozenset[int] = frozenset()
        for number in tried.order:
            done |= {number}
            yield _row(tried, engine, None, done, number, cumulative=True)
    for family, own in tried.limited.families.items():
        for engine in tried.base.limited:
            done = frozenset()
            for number in (n for n in tried.order if n in own):
                done |= {number}
                yield _row(tried, engine, family, done, number, cumulative=True, key=ids[family])


def _row(
    tried: Gains,
    engine: str,
    family: int | None,
    choice: frozenset[int],
    number: int,
    *,
    cumulative: bool,
    key: str | None = None,
) -> WhatIf:
    fix = tried.fixes[number]
    tokens = tried.limited.all(engine, choice) if family is None else tried.limited.of(engine, family, choice)
    if family is None and len(choice) == len(tried.order):
        tokens = tried.exact(tried.final.limited[engine])
    return WhatIf(fix.advice, tuple(sorted(fix.codes)), key, engine, tokens.prompt, tokens.cached, cumulative)


def _steps(engine: _Engine, tried: Gains, family: int | None, where: Rows) -> Iterator[Step]:
    prompt, served = int(engine.free.prompt[where].sum()), int(engine.free.cached[where].sum())
    told = engine.told
    if told is not None and told.known[where].any():
        yield from _gap(told, where, served / prompt if prompt else 0.0)
    yield Step("logged", "as logged, unlimited cache", prompt, served)
    done: frozenset[int] = frozenset()
    own = frozenset(tried.order) if family is None else tried.free.families.get(family, frozenset())
    for number in (n for n in tried.order if n in own):
        done |= {number}
        fix = tried.fixes[number]
        tokens = tried.free.all(engine.name, done) if family is None else tried.free.of(engine.name, family, done)
        if family is None and len(done) == len(tried.order):
            tokens = tried.exact(tried.final.free[engine.name])
        yield Step("fix", fix.name, tokens.prompt, tokens.cached, rules=tuple(sorted(fix.codes)))
    prompt, served = int(engine.best.prompt[where].sum()), int(engine.best.cached[where].sum())
    yield Step("ceiling", "only what is truly new is computed", prompt, served)


def _gap(told: gaps.Told, where: Rows, logged: float) -> Iterator[Step]:
    """Give what was reported and the steps from there to the rate of the log as it is, which they add up to.

    Steps are in tokens as the server counted them. Where it counted otherwise, or not all requests, shares of its
    tokens are not those of the log's, and the difference is a step of its own.
    """
    prompt, cached = int(told.prompt[where].sum()), int(told.cached[where].sum())
    yield Step("reported", _reported(told, where), prompt, cached)
    parts = [(gap.name, int(gap.tokens[where].sum())) for gap in told.gaps]
    rest = round(logged * prompt) - cached - sum(tokens for _, tokens in parts)
    if abs(rest) >= _SHOWN * prompt:
        parts.append((_OTHERS if not told.known[where].all() else _COUNTS, rest))
    for name, tokens in parts:
        if tokens:
            cached += tokens
            yield Step("gap", name, prompt, cached, tokens)


def _reported(told: gaps.Told, where: Rows) -> str:
    known = int(told.known[where].sum())
    return "reported" if known == where.size else f"reported by {known:,} of {where.size:,} requests"
