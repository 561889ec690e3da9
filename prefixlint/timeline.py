"""Hit rate over the log: its stretches, the requests at which it changed, and what changed there.

A change is taken apart: how far the mix of families moved the rate, and within families how far each kind of miss did.
Text that was there but behind a difference is followed to the place at which prompts part, and to the first request
that parts there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from prefixlint import accounts, changepoints, simulate
from prefixlint.accounts import Account, Material
from prefixlint.logfindings import LogFinding
from prefixlint.model import MissCause
from prefixlint.table import UNKNOWN
from prefixlint.trends import Bucket, Change, Explained, Reason, Spot, Timeline
from prefixlint.wording import percent

Counts = NDArray[np.int64]
Mask = NDArray[np.bool_]
Rows = NDArray[np.intp]

_BUCKETS = 48
_REPORTING = 0.8  # of the requests must report cached tokens for what was reported to be a series
_WORTH = 0.2  # of a change: what moved the rate by less is not named
_NEAR = 0.05  # of the requests; changes of two series that lie so close are one
_AS_OFTEN = 0.8  # of the requests that show a cause on one side of a change, for it to be as frequent on the other
_WARM = 0.25  # of the requests: a rise within them as caches fill is no news
MISSES: dict[MissCause, tuple[Reason, str]] = {
    MissCause.DIVERGED: ("cause", "tokens behind a difference"),
    MissCause.COLD: ("new_text", "text that no earlier request had"),
    MissCause.EVICTED: ("eviction", "tokens that the cache had evicted"),
    MissCause.EXPIRED: ("expiry", "tokens whose entries had expired"),
    MissCause.REPLICA: ("routing", "tokens that another replica holds"),
    MissCause.NAMESPACE: ("namespace", "tokens under another namespace (salt, LoRA, organisation)"),
    MissCause.IN_FLIGHT: ("engine", "tokens that were still being computed"),
    MissCause.NOT_WRITTEN: ("engine", "tokens that were never written"),
    MissCause.TOO_SHORT: ("engine", "prefixes below the engine's minimum"),
    MissCause.UNALIGNED: ("engine", "block rounding and last tokens"),
}
"""What each kind of miss says of a rate that moved: the kind of reason, and words (behind `more`, `fewer`, `less`)."""
_UNCOUNTED = frozenset({MissCause.COLD, MissCause.UNALIGNED})  # of these there is less, not fewer


def build(material: Material, account: Account, findings: Sequence[LogFinding]) -> Timeline:
    """Give the timeline of a replay; of a log without prompts, that of what its server reported."""
    if account.prompt.size:
        return Timeline(_buckets(material, account, material.rows), _Changes(material, account, findings).found())
    if material.order.size and _reported(material, material.order)[2].any():
        return Timeline(_buckets(material, account, material.order), _without_prompts(material))
    return Timeline()


def _without_prompts(material: Material) -> list[Change]:
    prompt, cached, known = _reported(material, material.order)
    rows = material.order[known]
    return _told_by_server(
        material, rows, cached[known], prompt[known], changepoints.changes(cached[known], prompt[known])
    )


def _spot(material: Material, row: int) -> Spot:
    path, line, _ = material.table.where(row)
    time = material.table.time[row]
    return Spot(path, line, None if np.isnan(time) else time)


def _reported(material: Material, rows: Rows) -> tuple[Counts, Counts, Mask]:
    prompt, cached = (np.frombuffer(c, np.int64)[rows] for c in (material.table.prompt, material.table.cached))
    known = (prompt != UNKNOWN) & (cached != UNKNOWN)
    return np.where(known, prompt, 0), np.where(known, cached, 0), known


def _buckets(material: Material, account: Account, rows: Rows) -> list[Bucket]:
    """Cut the log into stretches: of equal times where requests have them, else of equal numbers of requests."""
    n = int(rows.size)
    times = np.frombuffer(material.table.time, np.float64)[rows]
    if material.order_name == "time" and not np.isnan(times).any() and times[-1] > times[0]:
        borders = np.linspace(times[0], times[-1], min(_BUCKETS, n) + 1)[1:-1]
        edges = np.unique(np.concatenate(([0], np.searchsorted(times, borders), [n])))
    else:
        edges = np.unique(np.linspace(0, n, min(_BUCKETS, n) + 1).astype(np.int64))
    prompt, cached, known = _reported(material, rows)
    found = []
    for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        part = slice(low, high)
        tokens = {name: (int(s.prompt[part].sum()), int(s.cached[part].sum())) for name, s in account.served.items()}
        said = (int(prompt[part].sum()), int(cached[part].sum())) if known[part].any() else None
        first, last = (_spot(material, int(rows[position])) for position in (low, high - 1))
        found.append(Bucket(first, last.time, high - low, tokens, said))
    return found


class _Changes:
    """Finds the changes of each series and takes them apart."""

    def __init__(self, material: Material, account: Account, findings: Sequence[LogFinding]) -> None:
        self._material, self._account = material, account
        self._families = np.frombuffer(material.table.family, np.int32)[material.rows]
        self._finding = {
            sighting.row: finding for finding in reversed(findings) for sighting in finding.sightings if sighting.first
        }
        self._engine = next(iter(account.served))

    def found(self) -> list[Change]:
        served = self._account.served[self._engine]
        where = simulate.after_warmup(self._material.rows.size, self._material.warmup)
        shift = where.start or 0
        own = [shift + at for at in changepoints.changes(served.cached[where], served.prompt[where])]
        changes = self._series(served.cached, served.prompt, own, shift)
        prompt, cached, known = _reported(self._material, self._material.rows)
        if known[where].sum() < _REPORTING * known[where].size:
            return changes
        said = [shift + at for at in changepoints.changes(cached[where], prompt[where])]
        reach = _NEAR * self._material.rows.size
        alone = [at for at in said if not any(abs(at - other) <= reach for other in own)]
        return changes + _told_by_server(self._material, self._material.rows, cached, prompt, alone)

    def _series(self, cached: Counts, prompt: Counts, places: Sequence[int], start: int) -> list[Change]:
        edges = [start, *places, int(prompt.size)]
        found = []
        for low, at, high in zip(edges[:-2], edges[1:-1], edges[2:], strict=True):
            before, after = slice(low, at), slice(at, high)
            rates = _rate(cached[before], prompt[before]), _rate(cached[after], prompt[after])
            reasons = self._taken_apart(before, after)
            if _fills(reasons, rates, at - low, int(prompt.size), first=low == start):
                continue
            spot = _spot(self._material, int(self._material.rows[at]))
            found.append(Change(self._engine, spot, *rates, (at - low, high - at), reasons))
        return found

    def _taken_apart(self, before: slice, after: slice) -> list[Explained]:
        """Say what moved the rate of the engine between two stretches, the weightiest first."""
        served = self._account.served[self._engine]
        sides = [_Side(self._families[part], served.prompt[part], served.cached[part]) for part in (before, after)]
        moved = sides[1].rate - sides[0].rate
        reasons = [*_mix(self._material, *sides), *self._misses(before, after, *sides)]
        worth = [r for r in reasons if r.points * moved > 0 and abs(r.points) >= _WORTH * abs(moved)]
        return sorted(worth, key=lambda r: -abs(r.points))

    def _misses(self, before: slice, after: slice, old: _Side, new: _Side) -> list[Explained]:
        """Say how far each kind of miss moved the rate, the families' shares held at their mean."""
        found = []
        for cause, tokens in self._account.misses[self._engine].items():
            points = -_within(old, new, tokens[before], tokens[after])
            if cause is MissCause.DIVERGED:
                found.append(self._diverged(before, after, points))
            else:
                reason, words = MISSES[cause]
                more = "more" if points < 0 else "less" if cause in _UNCOUNTED else "fewer"
                found.append(Explained(reason, f"{more} {words}", points))
        return found

    def _diverged(self, before: slice, after: slice, points: float) -> Explained:
        """Follow text behind differences to the place at which it was lost most more (or less) than before."""
        spots: dict[tuple[int, int, str], list[int]] = {}
        for position in range(before.start, after.stop):
            parting = self._account.partings[position]
            if parting is not None and parting.lost:
                key = (int(self._families[position]), parting.segment, parting.context)
                spots.setdefault(key, []).append(position)
        lost, prompt = self._account.lost, self._account.prompt
        sizes = [max(1, int(prompt[part].sum())) for part in (before, after)]

        def moved(members: list[int]) -> float:
            where = np.asarray(members)
            late = where >= after.start
            return float(lost[where[late]].sum() / sizes[1] - lost[where[~late]].sum() / sizes[0])

        ranked = sorted(spots.values(), key=moved, reverse=points < 0)
        verb = "began" if points < 0 else "ended"
        if not ranked:
            return Explained("cause", f"text behind differences: losing it {verb}", points)
        return self._told(ranked[0], (before.start, after.start, after.stop), points, verb)

    def _told(self, members: list[int], stretch: tuple[int, int, int], points: float, verb: str) -> Explained:
        material, at, began = self._material, stretch[1], verb == "began"
        side = [position for position in members if (position >= at) == began] or members
        rows = (int(material.rows[position]) for position in side)
        finding = next((self._finding[r] for r in rows if r in self._finding), None)
        if finding is not None:  # what is said holds of the cause, wherever in the prompts it shows
            members = [p for p in range(stretch[0], stretch[2]) if self._finding.get(int(material.rows[p])) is finding]
            side = [position for position in members if (position >= at) == began]
        first = side[0] if began else side[-1]
        spot = _spot(material, int(material.rows[first]))
        family = int(self._families[first])
        name = accounts.family_name(material, family)
        if finding is None:
            parting = self._account.partings[first]
            place = "" if parting is None else f" at token {parting.token:,}"
            what = f"prompts of {name!r} part{place}"
        else:
            what = finding.message.rsplit(", in ", 1)[0]
        if any((position < at) == began for position in members):
            verb = self._how(members, stretch, verb)
        return Explained(
            "cause",
            f"{what}: it {verb}",
            points,
            family=accounts.family_id(material, family),
            rule=None if finding is None else finding.rule.code,
            first=spot if began else None,
            last=None if began or verb.startswith("cost") else spot,
        )

    def _how(self, members: Sequence[int], stretch: tuple[int, int, int], verb: str) -> str:
        """Tell whether a cause on both sides of a change is in more (fewer) requests behind it or costs more (less)."""
        low, at, high = stretch
        before = sum(position < at for position in members)
        shares = [before / (at - low), (len(members) - before) / (high - at)]
        few, many = shares if verb == "began" else shares[::-1]
        if few < _AS_OFTEN * many:
            return "became more frequent" if verb == "began" else "became rarer"
        return "cost more than before" if verb == "began" else "cost less than before"


class _Side:
    """One stretch: prompt and cached tokens of each family in it."""

    def __init__(self, families: NDArray[np.int32], prompt: Counts, cached: Counts) -> None:
        self.families, self.prompt = families, prompt
        self.tokens = _by_family(families, prompt)
        self.cached = _by_family(families, cached)
        self.total = max(1, sum(self.tokens.values()))
        self.rate = sum(self.cached.values()) / self.total

    def share(self, family: int) -> float:
        return self.tokens.get(family, 0) / self.total

    def rate_of(self, family: int) -> float | None:
        tokens = self.tokens.get(family, 0)
        return self.cached[family] / tokens if tokens else None


def _by_family(families: NDArray[np.int32], tokens: Counts) -> dict[int, int]:
    numbers, places = np.unique(families, return_inverse=True)
    return dict(zip(numbers.tolist(), np.bincount(places, weights=tokens).astype(np.int64).tolist(), strict=True))


def _mix(material: Material, old: _Side, new: _Side) -> list[Explained]:
    """Say how far the rate moved because families make up other shares; the family that did most of it is named."""
    mean = (old.rate + new.rate) / 2
    moved: dict[int, float] = {}
    for family in {*old.tokens, *new.tokens}:
        rates = [r for r in (old.rate_of(family), new.rate_of(family)) if r is not None]
        moved[family] = (new.share(family) - old.share(family)) * (sum(rates) / len(rates) - mean)
    points = sum(moved.values())
    most = max(moved, key=lambda family: abs(moved[family]) if moved[family] * points > 0 else 0.0)
    shares = f"from {percent(old.share(most), 0)} to {percent(new.share(most), 0)} of the tokens"
    name = accounts.family_name(material, most)
    message = f"the mix of families: {name!r} went {shares}"
    first = None
    if not old.tokens.get(most) and new.tokens.get(most):
        rows = np.frombuffer(material.table.family, np.int32)[material.rows]
        first = _spot(material, int(material.rows[np.flatnonzero(rows == most)[0]]))
    return [Explained("families", message, points, family=accounts.family_id(material, most), first=first)]


def _within(old: _Side, new: _Side, before: Counts, after: Counts) -> float:
    """Give how far a kind of miss moved, as a share of the prompt tokens, with the families' shares at their mean."""
    misses = [_by_family(side.families, tokens) for side, tokens in ((old, before), (new, after))]
    total = 0.0
    for family in {*old.tokens, *new.tokens}:
        rates = [
            missed.get(family, 0) / side.tokens[family] if side.tokens.get(family) else None
            for side, missed in zip((old, new), misses, strict=True)
        ]
        if rates[0] is not None and rates[1] is not None:
            total += (old.share(family) + new.share(family)) / 2 * (rates[1] - rates[0])
    return total


def _told_by_server(
    material: Material, rows: Rows, cached: Counts, prompt: Counts, places: Sequence[int]
) -> list[Change]:
    """Give changes of what the server reported that nothing in the prompts explains."""
    edges = [0, *places, int(prompt.size)]
    text = "the prompts do not show it: the server evicted, expired or routed differently, or was restarted"
    if not material.rows.size:
        text = "the log holds no prompts that would show why"
    found = []
    for low, at, high in zip(edges[:-2], edges[1:-1], edges[2:], strict=True):
        rates = _rate(cached[low:at], prompt[low:at]), _rate(cached[at:high], prompt[at:high])
        reasons = [Explained("server", text, rates[1] - rates[0])]
        found.append(Change("reported", _spot(material, int(rows[at])), *rates, (at - low, high - at), reasons))
    return found


def _fills(reasons: Sequence[Explained], rates: Sequence[float], before: int, total: int, *, first: bool) -> bool:
    """Tell whether a rise is only a cache that fills in the beginning."""
    early = first and before <= _WARM * total and rates[1] > rates[0]
    return early and (not reasons or reasons[0].reason in ("new_text", "families"))


def _rate(cached: Counts, prompt: Counts) -> float:
    return float(cached.sum() / max(1, int(prompt.sum())))
