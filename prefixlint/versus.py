"""This result against an earlier one: which rates moved, by family and by cause, and what moved them.

The earlier result is the JSON that `analyze` wrote. Families are the same where name and model are, causes where rule,
kind of place and family of text are: values, lines and files of logs differ between two logs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from prefixlint import redact, saved
from prefixlint.errors import UsageError
from prefixlint.model import MissCause
from prefixlint.reports.json import as_json
from prefixlint.results import Analysis
from prefixlint.timeline import MISSES
from prefixlint.trends import CauseMoved, Explained, FamilyMoved, Moved, Versus
from prefixlint.wording import percent

SCHEMA = "prefixlint.analyze/1"
_NUMBER = re.compile(r"\d+")
_LABEL = re.compile(r"<([a-z]+):[0-9a-f]+>")  # a mask of `redact`; what follows the kind is another one in each run
_SAME = 0.002  # of the prompt tokens; a cause that moved by less is the same
_WORTH = 0.1  # of a rate's move: what moved it by less is not named
_MOSTLY = 0.5  # of a move, from which on it is the families' mix and not what happens within them
_LEAST = 0.005  # a rate that moved by less needs no reasons

Json = Mapping[str, Any]
Key = tuple[str, str | None]


def load(path: str) -> Json:
    """Read a saved result; NoInputError where there is none, UsageError where the file is something else."""
    found = saved.load(path)
    if found.get("schema") != SCHEMA or not _well_formed(found):
        hint = "write one with prefixlint analyze LOG --format json -o OLD.json"
        raise UsageError(f"{path} is no result of prefixlint analyze", slug="bad-result", hint=hint)
    return found


def _well_formed(found: Json) -> bool:
    lists = (found.get(name) for name in ("engines", "families", "findings"))
    return all(isinstance(items, list) and all(isinstance(item, dict) for item in items) for items in lists)


def compare(old: Json, new: Analysis, name: str) -> Versus:
    """Compare a saved result (`name` is what to call it) with this one."""
    now: Json = as_json(new)
    engines = [engine.engine for engine in new.engines]
    rates = {engine: Moved(_rate(old, engine), _rate(now, engine)) for engine in engines}
    if old.get("reported") or now["reported"]:
        rates["reported"] = Moved(_number(old.get("reported"), "hit_rate"), _number(now["reported"], "hit_rate"))
    if _is_masked(old) or _is_masked(now):
        old, now = _masked(old), _masked(now)
    families = _families(old, now, engines)
    causes = sorted(_causes(old, now, engines), key=lambda cause: -_weight(cause))
    reasons = {
        engine: _reasons(old, now, engine, rates[engine], families=families, causes=causes) for engine in engines
    }
    return Versus(name, rates, families, causes, reasons)


def _number(holder: Any, key: str) -> float | None:
    value = holder.get(key) if isinstance(holder, Mapping) else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _engine(result: Json, name: str) -> Json:
    return next((engine for engine in result["engines"] if engine.get("engine") == name), {})


def _rate(result: Json, engine: str) -> float | None:
    return _number(_engine(result, engine), "hit_rate")


def _total(result: Json) -> float:
    return _number(result.get("tokens"), "prompt") or 0.0


def _names(result: Json) -> Iterator[str]:
    """Give what of a result says what is the same in another: names of families, paths of causes."""
    yield from (str(family.get("name")) for family in result["families"])
    yield from (_path(finding) for finding in result["findings"])


def _is_masked(result: Json) -> bool:
    return any(_LABEL.search(name) for name in _names(result))


def _masked(result: Json) -> Json:
    """Give a result in which personal values are masked by their kinds alone, so that two runs agree on them."""
    redactor = redact.shown(personal=True, salt=b"")

    def plain(text: str) -> str:
        return _LABEL.sub(r"<\1>", redactor.text(text))

    return {
        **result,
        "families": [{**family, "name": plain(str(family.get("name")))} for family in result["families"]],
        "findings": [{**finding, "at": {"path": plain(_path(finding))}} for finding in result["findings"]],
    }


def _path(finding: Json) -> str:
    at = finding.get("at")
    return str(at.get("path", "")) if isinstance(at, Mapping) else ""


def _by_family(result: Json) -> dict[Key, Json]:
    """Give the families by name and model; of several with one name, the largest."""
    found: dict[Key, Json] = {}
    for family in sorted(result["families"], key=lambda f: _number(f, "prompt_tokens") or 0.0):
        found[str(family.get("name")), family.get("model")] = family
    return found


def _families(old: Json, now: Json, engines: Sequence[str]) -> list[FamilyMoved]:
    sides = [_by_family(result) for result in (old, now)]
    totals = [_total(result) for result in (old, now)]
    found = []
    for name, model in dict.fromkeys([*sides[1], *sides[0]]):
        members = [side.get((name, model)) for side in sides]
        shares = [
            (_number(member, "prompt_tokens") or 0.0) / total if total else None
            for member, total in zip(members, totals, strict=True)
        ]
        rates = {engine: Moved(*(_family_rate(member, engine) for member in members)) for engine in engines}
        found.append(FamilyMoved(name, model, Moved(*shares), rates))
    return sorted(found, key=lambda f: -max(f.share.before or 0.0, f.share.after or 0.0))


def _family_rate(family: Json | None, engine: str) -> float | None:
    engines = family.get("engines") if family is not None else None
    return _number(engines.get(engine), "hit_rate") if isinstance(engines, Mapping) else None


def _cause(finding: Json) -> tuple[str, str]:
    """Give what stays of a cause from one log to another: its rule, and its place without the numbers of messages."""
    return str(finding.get("rule")), _NUMBER.sub("*", _path(finding))


def _causes(old: Json, now: Json, engines: Sequence[str]) -> Iterator[CauseMoved]:
    sides = [_lost(result) for result in (old, now)]
    names = {_cause(finding): str(finding.get("name")) for result in (old, now) for finding in result["findings"]}
    for key, name in names.items():
        lost = {engine: Moved(*(side[key].get(engine) if key in side else 0.0 for side in sides)) for engine in engines}
        yield CauseMoved(key[0], name, key[1], _state(key, sides, lost), lost)


def _lost(result: Json) -> dict[tuple[str, str], dict[str, float]]:
    """Give the share of the prompt tokens that each cause costs on each engine."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for finding in result["findings"]:
        shares = found.setdefault(_cause(finding), {})
        lost = finding.get("tokens_lost")
        for engine in lost if isinstance(lost, Mapping) else ():
            total = _number(_engine(result, engine), "prompt_tokens")
            if total:
                shares[engine] = shares.get(engine, 0.0) + (_number(lost, engine) or 0.0) / total
    return found


def _state(key: tuple[str, str], sides: Sequence[Mapping[tuple[str, str], Any]], lost: Mapping[str, Moved]) -> str:
    if key not in sides[0]:
        return "new"
    if key not in sides[1]:
        return "gone"
    change = max((moved.change or 0.0 for moved in lost.values()), key=abs, default=0.0)
    return "same" if abs(change) < _SAME else "worse" if change > 0 else "better"


def _weight(cause: CauseMoved) -> float:
    return max((abs(moved.change or 0.0) for moved in cause.lost.values()), default=0.0)


def _reasons(
    old: Json, now: Json, engine: str, moved: Moved, *, families: Sequence[FamilyMoved], causes: Sequence[CauseMoved]
) -> list[Explained]:
    """Say what moved an engine's rate: other shares of families, or else each kind of miss; the weightiest first."""
    change = moved.change
    if change is None or abs(change) < _LEAST:
        return []
    mixed = list(_mix(families, engine, moved))
    if sum(reason.points for reason in mixed) / change >= _MOSTLY:
        return mixed  # other families miss for other reasons, which are no news
    found = [*mixed, *_misses(old, now, engine, causes)]
    worth = [reason for reason in found if reason.points * change > 0 and abs(reason.points) >= _WORTH * abs(change)]
    return sorted(worth, key=lambda reason: -abs(reason.points))


def _mix(families: Sequence[FamilyMoved], engine: str, moved: Moved) -> Iterator[Explained]:
    """Say how far the rate moved because families make up other shares of the tokens."""
    mean = ((moved.before or 0.0) + (moved.after or 0.0)) / 2
    points: dict[str, float] = {}
    for family in families:
        rate = family.rates.get(engine, Moved(None, None))
        known = [value for value in (rate.before, rate.after) if value is not None]
        if known and family.share.change is not None:
            points[family.name] = family.share.change * (sum(known) / len(known) - mean)
    total = sum(points.values())
    if points:
        most = max(points, key=lambda name: points[name] * (1 if total > 0 else -1))
        share = next(family.share for family in families if family.name == most)
        went = f"from {percent(share.before or 0, 0)} to {percent(share.after or 0, 0)} of the tokens"
        yield Explained("families", f"the mix of families: {most!r} went {went}", total)


def _misses(old: Json, now: Json, engine: str, causes: Sequence[CauseMoved]) -> Iterator[Explained]:
    shares = []
    for result in (old, now):
        held = _engine(result, engine)
        total = _number(held, "prompt_tokens") or 0.0
        misses = held.get("misses")
        known = misses if isinstance(misses, Mapping) else {}
        shares.append({cause: (_number(known, cause.value) or 0.0) / total if total else 0.0 for cause in MissCause})
    for cause in MissCause:
        points = shares[0][cause] - shares[1][cause]
        if points:
            reason, words = MISSES[cause]
            message, rule = f"{'more' if points < 0 else 'fewer'} {words}", None
            if cause is MissCause.DIVERGED:
                behind = _behind(causes, engine, worse=points < 0)
                rule = None if behind is None else behind.rule
                message += "" if behind is None else f": {behind.name} at {behind.path} is {behind.state}"
            yield Explained(reason, message, points, rule=rule)


def _behind(causes: Sequence[CauseMoved], engine: str, *, worse: bool) -> CauseMoved | None:
    """Give the cause that costs most more (or less) than before."""
    states = ("new", "worse") if worse else ("gone", "better")
    moved = [cause for cause in causes if cause.state in states and engine in cause.lost]
    return max(moved, key=lambda cause: abs(cause.lost[engine].change or 0.0), default=None)
