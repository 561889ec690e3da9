"""What each cause costs: the loss of a cause, its definition and its measure.

**The loss of a cause** are the tokens that a request holds and that an engine computes again because of it: they would
have come from the cache if the request went on like the one that it should have matched. Tokens that are new in any
case (the newest message, the changed value itself) are no loss, and neither is text that a request no longer holds.

A request is compared with its own partner (the previous turn of its conversation, else the latest request of its
template), not with the one that happens to share most. What the cache served anyway, from whichever request, is not
lost. Where several causes lie in one request, the first one in the order in which the model reads takes the whole loss,
since it alone ends the prefix; the others stand behind it and take what they cost where they come first. So losses of
causes never overlap: with what is left unexplained they add up to the tokens that diverged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prefixlint import attribute
from prefixlint.logfindings import LogFinding, Sighting, with_losses
from prefixlint.model import MissCause
from prefixlint.recomputed import Comparer, Difference
from prefixlint.table import Table

Counts = NDArray[np.int64]

_SAME = frozenset(
    "json order shape space ids cleared edited stamped calls role reasoning attachment".split()  # noqa: SIM905  # short
)
"""Kinds whose advice is to send what was sent before: nothing in it is new."""
_NEW = frozenset("text retrieval environment value appended inserted schema tools".split())  # noqa: SIM905  # short
"""Kinds whose texts are long and other ones on each request, so that they count as new whatever stands behind them."""
_REPLACED = frozenset({("PFX303", "json"), ("PFX405", "ids")})
"""Rules and kinds of what is written anew in its place, so that nothing is gone."""
_GONE = frozenset({"window", "removed"})
"""Kinds with which whole messages go, and the thoughts in them."""
_MOVED = frozenset({"PFX203"})
"""Rules of content that stays the same and stands elsewhere on the next turn."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A request and the one that it should have matched, as the finding saw them."""

    partner: int
    difference: Difference
    finding: int
    turn: bool


def pairs(findings: Sequence[LogFinding]) -> dict[int, Pair]:
    """Give the pair of each request whose shared prefix ends at one of the findings, by its row.

    `Pair.finding` is the number of the finding. Each request has at most one.
    """
    found: dict[int, tuple[Sighting, int]] = {}
    behind: dict[int, set[int]] = {}
    for number, finding in enumerate(findings):
        for sighting in finding.sightings:
            if sighting.partner is None:
                continue
            if sighting.first:
                found[sighting.row] = sighting, number
            else:
                behind.setdefault(sighting.row, set()).add(number)
    return {
        row: Pair(
            first.partner,
            _difference(findings[number], first, [findings[n] for n in behind.get(row, ())]),
            number,
            turn=first.turn,
        )
        for row, (first, number) in found.items()
        if first.partner is not None
    }


def _difference(finding: LogFinding, sighting: Sighting, behind: Sequence[LogFinding]) -> Difference:
    """Say what parts a request from its partner: at the first difference, and by the causes that stand behind it."""
    sibling = not sighting.turn
    every = [finding, *behind]
    return Difference(
        rewritten=any(one.kind in _SAME for one in every) and not any(one.kind in _NEW for one in every),
        moved=any(one.rule.code in _MOVED for one in every),
        opening=sighting.opening if sibling and sighting.tail is None else sighting.opening or None,
        tail=sighting.tail if sibling else None,
        turn=sighting.turn,
        thoughts=any(one.rule.code == "PFX403" or one.kind in _GONE for one in every),
        replaced=all((one.rule.code, one.kind) in _REPLACED for one in every),
    )


def parting(table: Table, comparer: Comparer, row: int, pair: Pair, shared: int) -> attribute.Parting | None:
    """Compare a request with its partner: where they part, and the tokens that are lost. `shared` were served.

    None where they part for another reason than the finding's.
    """
    later, earlier = table.prompt_segments(row), table.prompt_segments(pair.partner)
    output = table.output_segments(pair.partner) if pair.turn else None
    lost = comparer.recomputed(earlier, later, shared, pair.difference, output=output)
    if lost is None:
        if table.namespace[row] == table.namespace[pair.partner]:
            return None
        lost = 0
    place = attribute.place(comparer.segments, earlier, later) or (0, "", 0)
    return attribute.Parting(row, pair.partner, *place, lost)


@dataclass(frozen=True, slots=True)
class Measure:
    """The losses of a replay. `rows` are the replayed requests in order; arrays go by that order.

    `misses` are the tokens of each engine by cause, what diverged being what `parting` found.
    """

    table: Table
    rows: NDArray[np.intp]
    misses: Mapping[str, Mapping[MissCause, Counts]]

    def ranked(
        self, findings: Sequence[LogFinding], found: Mapping[int, Pair], where: slice = slice(None)
    ) -> list[LogFinding]:
        """Give the findings with their losses in the requests that `where` selects, the most costly first."""
        totals = [dict.fromkeys(self.misses, 0) for _ in findings]
        for position in range(*where.indices(self.rows.size)):
            row = int(self.rows[position])
            pair = found.get(row)
            if pair is not None:
                for name in self.misses:
                    totals[pair.finding][name] += self._of_request(name, position, row, pair)
        measured = [with_losses(finding, lost) for finding, lost in zip(findings, totals, strict=True)]
        return sorted(measured, key=_cost)

    def _of_request(self, engine: str, position: int, row: int, pair: Pair) -> int:
        """Give the loss of one request; of one whose partner has another namespace, what that namespace held."""
        causes = [MissCause.DIVERGED]
        if self.table.namespace[row] != self.table.namespace[pair.partner]:
            causes.append(MissCause.NAMESPACE)
        misses = self.misses[engine]
        return sum(int(misses[cause][position]) for cause in causes if cause in misses)


def _cost(finding: LogFinding) -> tuple[int, int, str]:
    return -max((finding.tokens_lost or {"": 0}).values()), -finding.severity, finding.rule.code
