"""How hit rates moved, from a saved result: the inverse of what `_trends` writes as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from prefixlint.reports._times import seconds
from prefixlint.trends import Bucket, CauseMoved, Change, Explained, FamilyMoved, Moved, Spot, Timeline, Versus

Json = Mapping[str, Any]


def timeline(buckets: Sequence[Json], changes: Sequence[Json]) -> Timeline | None:
    """Give the hit rate over the log; None where the result has no stretches."""
    if not buckets:
        return None
    return Timeline([_bucket(one) for one in buckets], [_change(one) for one in changes])


def _bucket(saved: Json) -> Bucket:
    first = Spot(saved["first"]["path"], saved["first"]["line"], seconds(saved["from"]))
    reported = saved["reported"]
    return Bucket(
        first=first,
        end=seconds(saved["to"]),
        requests=saved["requests"],
        engines={name: _tokens(one) for name, one in saved["engines"].items()},
        reported=None if reported is None else _tokens(reported),
    )


def _tokens(saved: Json) -> tuple[int, int]:
    return saved["prompt_tokens"], saved["cached_tokens"]


def _spot(saved: Json) -> Spot:
    return Spot(saved["path"], saved["line"], seconds(saved["time"]))


def _change(saved: Json) -> Change:
    return Change(
        series=saved["series"],
        at=_spot(saved["at"]),
        before=saved["before"],
        after=saved["after"],
        requests=(saved["requests_before"], saved["requests_after"]),
        reasons=[_reason(one) for one in saved["reasons"]],
    )


def _reason(saved: Json) -> Explained:
    first, last = saved["first"], saved.get("last")
    return Explained(
        saved["kind"],
        saved["message"],
        saved["points"],
        saved["family"],
        saved["rule"],
        None if first is None else _spot(first),
        None if last is None else _spot(last),
    )


def versus(saved: Json | None) -> Versus | None:
    """Give the comparison with an earlier result."""
    if saved is None:
        return None
    return Versus(
        name=saved["with"],
        rates=_rates(saved["engines"]),
        families=[
            FamilyMoved(one["name"], one["model"], _moved(one["share"]), _rates(one["engines"]))
            for one in saved["families"]
        ],
        causes=[
            CauseMoved(one["rule"], one["name"], one["path"], one["state"], _rates(one["lost"]))
            for one in saved["causes"]
        ],
        reasons={name: [_reason(one) for one in found] for name, found in saved["reasons"].items()},
    )


def _rates(saved: Json) -> dict[str, Moved]:
    return {name: _moved(one) for name, one in saved.items()}


def _moved(saved: Json) -> Moved:
    return Moved(saved["before"], saved["after"])
