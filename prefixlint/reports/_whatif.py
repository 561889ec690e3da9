"""What fixes give, as text and JSON: the gain of each, and the way from the reported rate to the ceiling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prefixlint.reports import Look
from prefixlint.reports._terminal import Style, percent, short_count, table, visible, wrap
from prefixlint.results import Analysis, Step, Waterfall, WhatIf
from prefixlint.wording import many

_FAMILIES = 8
_STEPS = {"gap": "    ", "fix": "  fix "}
_ORDER = ("reported", "gap", "logged", "fix", "ceiling")
_LATE = {"    unexplained": 1, "    hits on text that is not in the log": 2}


def gains(result: Analysis, style: Style, width: int) -> list[str]:
    """Give the table of fixes: each alone, and after those above it."""
    rows = [row for row in result.what_if if row.family is None]
    refused = [
        line
        for one in result.not_tried
        for line in wrap(f"{', '.join(one.rules)} not simulated: {one.reason}", width, indent="    ", first="  ")
    ]
    if not rows:
        return [style.bold("What fixing gives"), *refused] if refused else []
    engines = [e.engine for e in result.engines]
    before = {e.engine: e.hit_rate for e in result.engines}
    alone = {(row.engine, tuple(row.rules)): row for row in rows if not row.cumulative}
    steps = [row for row in rows if row.cumulative and row.engine == engines[0]]
    laid = [("What fixing gives, step by step", *(cell for name in engines for cell in ("alone", name)))]
    laid.append(("as logged", *(cell for name in engines for cell in ("", percent(before[name])))))
    for row in steps:
        cells = [", ".join([*row.rules, _name(result, row)])]
        for name in engines:
            own = alone[name, tuple(row.rules)]
            both = next(r for r in rows if r.cumulative and r.engine == name and tuple(r.rules) == tuple(row.rules))
            cells += [_points(own.hit_rate, before[name]), percent(both.hit_rate)]
        laid.append(tuple(cells))
    lines = table(laid, align="<" + ">" * (2 * len(engines)), width=width, indent=0)
    text = "alone: points of hit rate that a fix gives by itself; prompts keep every value, told in the newest message."
    lost = next((w.lost_tokens for w in result.waterfalls if w.family is None), 0)
    if lost:
        text += f" Still lost after all of them: {short_count(lost)} tokens."
    return [style.bold(lines[0]), *lines[1:], *refused, *(style.dim(line) for line in wrap(text, width))]


def _name(result: Analysis, row: WhatIf) -> str:
    return next((f.rule.name for f in result.findings if f.rule.code in row.rules), "")


def _points(after: float | None, before: float | None) -> str:
    return "unknown" if after is None or before is None else f"{100 * (after - before):+.1f}"


def waterfall(result: Analysis, style: Style, look: Look) -> list[str]:
    """Give the way from the reported rate to the ceiling, for the whole log, and in short for each family."""
    whole = [one for one in result.waterfalls if one.family is None]
    if not whole or not any(step.kind in ("fix", "reported") for step in whole[0].steps):
        return []
    names = [_label(step) for step in whole[0].steps]
    cells = [{_label(step): _cell(step) for step in one.steps} for one in whole]
    for one in whole[1:]:
        names += [_label(step) for step in one.steps if _label(step) not in names]
    kinds = {_label(step): step.kind for one in whole for step in one.steps}
    names.sort(key=lambda name: (_ORDER.index(kinds[name]), kinds[name] == "gap" and _LATE.get(name, 0)))
    rows = [("From what was served to the ceiling", *(one.engine for one in whole))]
    rows += [(name, *(cell.get(name, "") for cell in cells)) for name in names]
    lines = table(rows, align="<" + ">" * len(whole), width=look.width, indent=0)
    return [style.bold(lines[0]), *lines[1:], *_families(result, style, look)]


def _cell(step: Step) -> str:
    """Give the rate; of a gap, the points that it takes."""
    if step.tokens is None:
        return percent(step.hit_rate)
    return f"{100 * step.tokens / step.prompt_tokens:+.1f}" if step.prompt_tokens else ""


def _label(step: Step) -> str:
    name = f"{', '.join(step.rules)} {step.name}" if step.rules else step.name
    return _STEPS.get(step.kind, "") + visible(name)


def _families(result: Analysis, style: Style, look: Look) -> list[str]:
    """Give a line a family, of the first engine: those with a fix, or with tokens that stay lost."""
    if not result.waterfalls:
        return []
    engine = result.waterfalls[0].engine
    named = {family.id: family.name for family in result.families}
    mine = [w for w in result.waterfalls if w.engine == engine and w.family is not None]
    shown = [w for w in mine if _gains(w)]
    if not shown:
        return []
    rows: list[tuple[str, ...]] = [(f"Families, {engine}", "reported", "logged", "fixed", "ceiling", "still lost")]
    most = len(shown) if look.verbose else _FAMILIES
    rows += [_family(w, named.get(w.family or "", "")) for w in shown[:most]]
    lines = table(rows, align="<>>>>>", width=look.width, indent=0)
    more = [style.dim(f"and {many(len(shown) - most, 'more family', 'more families')}")] if len(shown) > most else []
    return ["", style.bold(lines[0]), *lines[1:], *more]


def _gains(one: Waterfall) -> bool:
    """Tell whether fixes change what a family gets."""
    served = {step.cached_tokens for step in one.steps if step.kind in ("logged", "fix")}
    return len(served) > 1


def _family(one: Waterfall, name: str) -> tuple[str, ...]:
    rates = {kind: _last(one.steps, kind) for kind in ("reported", "logged", "fix", "ceiling")}
    return visible(name), *(rates[kind] for kind in rates), short_count(one.lost_tokens)


def _last(steps: Sequence[Step], kind: str) -> str:
    found = [percent(step.hit_rate) for step in steps if step.kind == kind]
    return found[-1] if found else ""


def as_json(result: Analysis) -> dict[str, Any]:
    """Give the fields of the JSON report."""
    return {
        "what_if": [
            {
                "fix": row.fix,
                "rules": list(row.rules),
                "family": row.family,
                "engine": row.engine,
                "prompt_tokens": row.prompt_tokens,
                "cached_tokens": row.cached_tokens,
                "hit_rate": row.hit_rate,
                "cumulative": row.cumulative,
            }
            for row in result.what_if
        ],
        "not_simulated": [{"rules": list(one.rules), "reason": one.reason} for one in result.not_tried],
        "waterfall": [
            {
                "family": one.family,
                "engine": one.engine,
                "lost_tokens": one.lost_tokens,
                "steps": [_step(step) for step in one.steps],
            }
            for one in result.waterfalls
        ],
    }


def _step(step: Step) -> dict[str, Any]:
    return {
        "kind": step.kind,
        "name": step.name,
        "rules": list(step.rules),
        "tokens": step.tokens,
        "prompt_tokens": step.prompt_tokens,
        "cached_tokens": step.cached_tokens,
        "hit_rate": step.hit_rate,
    }
