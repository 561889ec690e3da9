"""What fixes give, as text and JSON: the gain of each, and the way from the reported rate to the ceiling."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from prefixlint.reports import Look
from prefixlint.reports._terminal import Style, banded, percent, short_count, table, visible, wrap
from prefixlint.results import Analysis, Step, Waterfall
from prefixlint.wording import many

_FAMILIES = 8
_STEPS = {"gap": "    ", "fix": "  fix "}
_ORDER = ("reported", "gap", "logged", "fix", "ceiling")
_LATE = {"    unexplained": 1, "    hits on text that is not in the log": 2}


def gains(result: Analysis, style: Style, look: Look) -> list[str]:
    """Give the way from the reported rate over each fix to the ceiling: for the whole log, and in short by family."""
    refused = [
        line
        for one in result.not_tried
        for line in wrap(f"{', '.join(one.rules)} not simulated: {one.reason}", look.width, indent="    ", first="  ")
    ]
    whole = [one for one in result.waterfalls if one.family is None]
    if not whole or not any(step.kind in ("fix", "reported") for step in whole[0].steps):
        return [style.bold("What fixing gives"), *refused] if refused else []
    fixed = any(step.kind == "fix" for step in whole[0].steps)
    title = "What fixing gives, from what was served" if fixed else "From what was served to the ceiling"
    heads = [cell for one in whole for cell in (("alone", one.engine) if fixed else (one.engine,))]
    rows = [(title, *heads), *_steps(result, whole, alone=fixed)]
    bands = banded(rows, align="<" + ">" * len(heads), width=look.width, fixed=1, step=2 if fixed else 1)
    lines = [line for band in bands for line in (style.bold(band[0]), *band[1:])]
    notes = [style.dim(line) for line in wrap(_explained(whole[0]), look.width)] if fixed else []
    return [*lines, *refused, *notes, *(_families(result, style, look) if look.verbose else [])]


def _steps(result: Analysis, whole: Sequence[Waterfall], *, alone: bool) -> Iterator[tuple[str, ...]]:
    """Give a row a step, with the rate on each engine; before it, if wanted, the points that a fix gives by itself."""
    before = {e.engine: e.hit_rate for e in result.engines}
    own = {(row.engine, tuple(row.rules)): row for row in result.what_if if row.family is None and not row.cumulative}
    steps = [{_label(step): step for step in one.steps} for one in whole]
    kinds = {name: step.kind for of_engine in steps for name, step in of_engine.items()}
    order = sorted(kinds, key=lambda name: (_ORDER.index(kinds[name]), kinds[name] == "gap" and _LATE.get(name, 0)))
    for name in order:
        cells = []
        for one, of_engine in zip(whole, steps, strict=True):
            step = of_engine.get(name)
            if alone:
                row = own.get((one.engine, tuple(step.rules))) if step is not None and step.kind == "fix" else None
                cells.append(_points(row.hit_rate, before[one.engine]) if row is not None else "")
            cells.append(_cell(step) if step is not None else "")
        yield name, *cells


def _explained(one: Waterfall) -> str:
    text = "alone: points that a fix gives by itself; every value stays"
    return f"{text}. Still lost: {short_count(one.lost_tokens)} tokens." if one.lost_tokens else f"{text}."


def _points(after: float | None, before: float | None) -> str:
    return "unknown" if after is None or before is None else f"{100 * (after - before):+.1f}"


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
