"""How hit rates move, as text and as JSON: over the log, and against an earlier result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from prefixlint.reports import Look
from prefixlint.reports._terminal import Style, moment, shorten, table, visible, wrap
from prefixlint.reports._times import iso
from prefixlint.results import Analysis
from prefixlint.trends import Bucket, CauseMoved, Change, Explained, FamilyMoved, Moved, Spot, Timeline, Versus
from prefixlint.wording import percent

_BARS = "▁▂▃▄▅▆▇█"
_LEAST = 20  # requests from which on a rate over time is shown
_RELATIVE = 1e8  # seconds; times before it (1973) are a clock that began with the trace, not dates
_ROWS = 8
_SERIES = 2  # that are drawn unless more is asked for: an engine's, and what was reported
_CHANGES = 3  # that are named unless more is asked for
_STEADY = 0.001  # a rate that moved by less is shown as it is
_TELLING = 0.005  # of the prompt tokens


def over_time(result: Analysis, style: Style, look: Look) -> list[str]:
    """Draw the hit rate over the log, and name the requests at which it changed; nothing for a short log."""
    found, width = result.timeline, look.width
    if found is None or len(found.buckets) < 2 or sum(b.requests for b in found.buckets) < _LEAST:
        return []
    lines = [style.bold("Hit rate over the log")]
    series = _series(found)
    names = series if look.verbose or len(series) <= _SERIES else [series[0], series[-1]]
    rows = [(name, _sparkline(found.buckets, name), _range(found.buckets, name)) for name in names]
    lines += table(rows, align="<<<", width=width)
    first, last = found.buckets[0].first, found.buckets[-1]
    if look.verbose and first.time is not None and first.time > _RELATIVE:
        lines.append(style.dim(f"  {moment(first.time)} to {moment(last.end)} UTC"))
    changes = found.changes if look.verbose else found.changes[:_CHANGES]
    if len(found.changes) > len(changes):
        lines.append(style.dim(f"  {len(changes)} of {len(found.changes)} changes; -v shows all"))
    for change in changes:
        lines += _change(change, style, width)
    return lines


def _series(found: Timeline) -> list[str]:
    names = list(found.buckets[0].engines)
    return [*names, "reported"] if any(bucket.reported for bucket in found.buckets) else names


def _rate(bucket: Bucket, name: str) -> float | None:
    pair = bucket.reported if name == "reported" else bucket.engines.get(name)
    return None if pair is None or not pair[0] else pair[1] / pair[0]


def _sparkline(buckets: Sequence[Bucket], name: str) -> str:
    rates = [_rate(bucket, name) for bucket in buckets]
    return "".join(" " if rate is None else _BARS[min(7, int(rate * 8))] for rate in rates)


def _range(buckets: Sequence[Bucket], name: str) -> str:
    rates = [rate for bucket in buckets if (rate := _rate(bucket, name)) is not None]
    return f"{percent(min(rates))} to {percent(max(rates))}" if rates else ""


def _spot(spot: Spot) -> str:
    when = f", {moment(spot.time)} UTC" if spot.time is not None and spot.time > _RELATIVE else ""
    return f"line {spot.line}{when}"


def _change(change: Change, style: Style, width: int) -> list[str]:
    fell = change.after < change.before
    verb = "fell" if fell else "rose"
    text = f"{change.series} {verb} from {percent(change.before)} to {percent(change.after)} at {_spot(change.at)}"
    paint = style.red if fell else style.green
    lines = [paint(line) for line in wrap(text, width)]
    for reason in change.reasons[:3]:
        lines += wrap(_reason(reason), width, first="    ", indent="      ")
    return lines


def _reason(reason: Explained) -> str:
    points = f"{100 * reason.points:+.1f} points: " if reason.points else ""
    rule = f"{reason.rule} " if reason.rule else ""
    ends = (("first", reason.first), ("last", reason.last))
    shown = next((f" ({name}: {_spot(spot)})" for name, spot in ends if spot is not None), "")
    return f"{points}{rule}{visible(reason.message)}{shown}"


def against(result: Analysis, style: Style, width: int) -> list[str]:
    """Show what got better and worse since an earlier result; nothing where none was named."""
    found = result.versus
    if found is None:
        return []
    head = f"Against {shorten(visible(found.name), max(8, width - 10), keep='end')}"
    rows = [(head, "before", "now", "change")]
    rows += [(name, percent(m.before), percent(m.after), _points(m)) for name, m in found.rates.items()]
    lines = table(rows, align="<>>>", width=width, indent=0)
    lines[0] = style.bold(lines[0])
    for name, reasons in found.reasons.items():
        for reason in reasons[:3]:
            lines += wrap(f"{name}: {_reason(reason)}", width, indent="    ", first="  ")
    for part in (_causes(found, style, width), _families(found, style, width)):
        lines += ["", *part] if part else []
    return lines


def _points(moved: Moved) -> str:
    change = moved.change
    return "unknown" if change is None else "same" if abs(change) < _STEADY else f"{100 * change:+.1f} points"


def _causes(found: Versus, style: Style, width: int) -> list[str]:
    shown = [cause for cause in found.causes if cause.state != "same"][:_ROWS]
    if not shown:
        return []
    engine = next((name for cause in shown for name in cause.lost), "")
    rows = [(f"Causes, of the prompt tokens on {engine}", "before", "now", "")]
    for cause in shown:
        lost = cause.lost.get(engine, Moved(None, None))
        rows.append(
            (
                f"{cause.rule} {cause.name}, {visible(cause.path)}",
                percent(lost.before),
                percent(lost.after),
                cause.state,
            )
        )
    lines = table(rows, align="<>><", width=width, indent=0)
    return [style.bold(lines[0]), *(_paint(line, style) for line in lines[1:])]


def _paint(line: str, style: Style) -> str:
    return style.red(line) if line.endswith(("new", "worse")) else style.green(line)


def _families(found: Versus, style: Style, width: int) -> list[str]:
    engine = next(iter(found.rates), "")
    moved = [f for f in found.families if abs(_moved(f, engine)) >= _TELLING][:_ROWS]
    if not moved:
        return []
    rows = [(f"Families, hit rate on {engine}", "before", "now", "change", "share of tokens")]
    for family in moved:
        rate = family.rates.get(engine, Moved(None, None))
        share = f"{percent(family.share.before)} -> {percent(family.share.after)}"
        rows.append((visible(family.name), percent(rate.before), percent(rate.after), _points(rate), share))
    lines = table(rows, align="<>>>>", width=width, indent=0)
    return [style.bold(lines[0]), *lines[1:]]


def _moved(family: FamilyMoved, engine: str) -> float:
    """Give what a family's change weighs: in its rate, or in its share where it is new or gone."""
    rate, share = family.rates.get(engine, Moved(None, None)).change, family.share.change
    return rate if rate is not None else share or 0.0


def timeline_json(found: Timeline | None) -> list[dict[str, Any]]:
    """Give the stretches of the log as plain JSON values."""
    return [] if found is None else [_bucket(bucket) for bucket in found.buckets]


def changes_json(found: Timeline | None) -> list[dict[str, Any]]:
    """Give the changes of the hit rate as plain JSON values."""
    return [] if found is None else [_change_json(change) for change in found.changes]


def _bucket(bucket: Bucket) -> dict[str, Any]:
    return {
        "from": iso(bucket.first.time),
        "to": iso(bucket.end),
        "first": {"path": bucket.first.path, "line": bucket.first.line},
        "requests": bucket.requests,
        "engines": {name: _tokens(pair) for name, pair in bucket.engines.items()},
        "reported": None if bucket.reported is None else _tokens(bucket.reported),
    }


def _tokens(pair: tuple[int, int]) -> dict[str, Any]:
    prompt, cached = pair
    return {"prompt_tokens": prompt, "cached_tokens": cached, "hit_rate": cached / prompt if prompt else None}


def _spot_json(spot: Spot | None) -> dict[str, Any] | None:
    return None if spot is None else {"path": spot.path, "line": spot.line, "time": iso(spot.time)}


def _change_json(change: Change) -> dict[str, Any]:
    return {
        "series": change.series,
        "at": _spot_json(change.at),
        "before": change.before,
        "after": change.after,
        "requests_before": change.requests[0],
        "requests_after": change.requests[1],
        "reasons": [_reason_json(reason) for reason in change.reasons],
    }


def _reason_json(reason: Explained) -> dict[str, Any]:
    return {
        "kind": reason.reason,
        "message": reason.message,
        "points": reason.points,
        "family": reason.family,
        "rule": reason.rule,
        "first": _spot_json(reason.first),
        "last": _spot_json(reason.last),
    }


def versus_json(found: Versus | None) -> dict[str, Any] | None:
    """Give the comparison with an earlier result as plain JSON values."""
    if found is None:
        return None
    return {
        "with": found.name,
        "engines": {name: _moved_json(moved) for name, moved in found.rates.items()},
        "reasons": {name: [_reason_json(r) for r in reasons] for name, reasons in found.reasons.items()},
        "causes": [_cause_json(cause) for cause in found.causes],
        "families": [
            {
                "name": family.name,
                "model": family.model,
                "share": _moved_json(family.share),
                "engines": {name: _moved_json(moved) for name, moved in family.rates.items()},
            }
            for family in found.families
        ],
    }


def _cause_json(cause: CauseMoved) -> dict[str, Any]:
    lost: Mapping[str, Moved] = cause.lost
    return {
        "rule": cause.rule,
        "name": cause.name,
        "path": cause.path,
        "state": cause.state,
        "lost": {name: _moved_json(moved) for name, moved in lost.items()},
    }


def _moved_json(moved: Moved) -> dict[str, float | None]:
    return {"before": moved.before, "after": moved.after, "change": moved.change}
