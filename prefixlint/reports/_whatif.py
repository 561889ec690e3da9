"""What fixes give, as text and JSON: the gain of each, and the way from the reported rate to the ceiling."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from prefixlint.reports import Look
from prefixlint.reports._terminal import Style, banded, short_count, table, visible, wrap
from prefixlint.results import Analysis, Step, Waterfall
from prefixlint.wording import many, percent

_FAMILIES = 8
_STEPS = {"gap": "    ", "fix": "  fix "}
_ORDER = ("reported", "gap", "logged", "fix", "ceiling")
_UNKNOWN = "    unexplained"  # stands before what is known of a gap


def gains(result: Analysis, style: Style, look: Look) -> list[str]:
    """Give the way from the reported rate over each fix to the ceiling: for the whole log, and in short by family."""
    refused = list(_refused(result, look.width))
    whole = [one for one in result.waterfalls if one.family is None]
    if not whole or not any(step.kind in ("fix", "reported") for step in whole[0].steps):
        return [style.bold("What fixing gives"), *refused] if refused else []
    fixed = any(step.kind == "fix" for step in whole[0].steps)
    if not fixed:
        title = "From what was served to the ceiling"
    else:
        title = "What fixing gives" + (", from what was served" if result.reported is not None else "")
    alone = fixed and look.verbose
    heads = [cell for one in whole for cell in (*(["alone"] if alone else []), "adds", one.engine)]
    rows = [(title, *heads), *_steps(result, whole, alone=alone)]
    bands = banded(rows, align="<" + ">" * len(heads), width=look.width, fixed=1, step=3 if alone else 2, sparse=True)
    lines = [line for band in bands for line in (style.bold(band[0]), *band[1:])]
    limited = any(e.capacity_tokens is not None or e.replicas > 1 or e.ttl_s is not None for e in result.engines)
    said = _explained(whole[0], alone=alone, limited=limited)
    notes = [style.dim(line) for line in wrap(said, look.width)] if fixed else []
    return [*lines, *refused, *notes, *(_families(result, style, look) if look.verbose else [])]


def _refused(result: Analysis, width: int) -> Iterator[str]:
    """Say which fixes were not tried, those with one reason together."""
    alike: dict[str, list[str]] = {}
    for one in result.not_tried:
        alike.setdefault(one.reason, []).extend(rule for rule in one.rules if rule not in alike.get(one.reason, ()))
    for reason, rules in alike.items():
        yield from wrap(f"{', '.join(rules)} not simulated: {reason}", width, indent="    ", first="  ")


def _steps(result: Analysis, whole: Sequence[Waterfall], *, alone: bool) -> Iterator[tuple[str, ...]]:
    """Give a row a step: on each engine the points that it adds, and the rate that it leads to.

    With `alone` the points that a fix gives by itself stand before them.
    """
    logged = {e.engine: e.hit_rate for e in result.engines}
    own = {(row.engine, tuple(row.rules)): row for row in result.what_if if row.family is None and not row.cumulative}
    steps = [{_label(step): step for step in one.steps} for one in whole]
    added = [_added(one.steps) for one in whole]
    kinds = {name: step.kind for of_engine in steps for name, step in of_engine.items()}
    order = sorted(kinds, key=lambda name: (_ORDER.index(kinds[name]), kinds[name] == "gap" and name != _UNKNOWN))
    for name in order:
        cells = []
        for one, of_engine, points in zip(whole, steps, added, strict=True):
            step = of_engine.get(name)
            if alone:
                row = own.get((one.engine, tuple(step.rules))) if step is not None and step.kind == "fix" else None
                cells.append(_points(row.hit_rate, logged[one.engine]) if row is not None else "")
            cells.append(points.get(name, ""))
            cells.append(percent(step.hit_rate) if step is not None and step.tokens is None else "")
        yield name, *cells


def _added(steps: Sequence[Step]) -> dict[str, str]:
    """Give the points that gaps and fixes add, by their labels."""
    added: dict[str, str] = {}
    before: float | None = None
    for step in steps:
        if step.tokens is not None:
            added[_label(step)] = _signed(step.tokens / step.prompt_tokens) if step.prompt_tokens else ""
            continue
        if step.kind == "fix":
            added[_label(step)] = _points(step.hit_rate, before)
        before = step.hit_rate
    return added


def _explained(one: Waterfall, *, alone: bool, limited: bool) -> str:
    text = "adds: points beside the row above"
    if alone:
        within = ", within the limits" if limited else ""
        text = f"alone: points that a fix gives by itself{within}; {text}; fixes move values, none is taken away"
    lost = "1 token" if one.lost_tokens == 1 else f"{short_count(one.lost_tokens)} tokens"
    return f"{text}. Still lost: {lost}." if one.lost_tokens else f"{text}."


def _points(after: float | None, before: float | None) -> str:
    return "unknown" if after is None or before is None else _signed(after - before)


def _signed(share: float) -> str:
    """Show points with their sign; what rounds to nothing has none."""
    points = round(100 * share, 1)
    return f"{points:+.1f}" if points else "0.0"


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
