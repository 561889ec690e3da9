"""What each cause costs: the loss of a cause, its definition and its measure.

**The loss of a cause** are the tokens that a request holds and that an engine computes again because of it: they would
have come from the cache if the request went on like the one that it should have matched. Tokens that are new in any
case (the newest message, the changed value itself) are no loss, and neither is text that a request no longer holds.

A request is compared with its own partner (the previous turn of its conversation, else the latest request of its
template), not with the one that happens to share most. What the cache served anyway, from whichever request, is not
lost. Where several causes lie in one request, the one at which its served prefix ends takes the whole loss: the first
in the order in which the model reads, or a later one where the cache got past that with what it had of another request.
Those behind it take what they cost where they end the prefix. So losses of causes never overlap: with what is left
unexplained they add up to the tokens that diverged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from prefixlint import attribute
from prefixlint.logfindings import LogFinding, Sighting, with_losses
from prefixlint.model import MissCause
from prefixlint.recomputed import Comparer, Difference
from prefixlint.table import Table

Counts = NDArray[np.int64]

_SAME = frozenset(
    "json order shape space ids cleared edited stamped calls role reasoning thought attachment".split()  # noqa: SIM905  # short
)
"""Kinds whose advice is to send what was sent before: nothing in it is new."""
_NEW = frozenset("text retrieval environment value appended inserted schema tools".split())  # noqa: SIM905  # short
"""Kinds whose texts are long and other ones on each request, so that they count as new whatever stands behind them."""
_REPLACED = frozenset({("PFX303", "json"), ("PFX405", "ids")})
"""Rules and kinds of what is written anew in its place, so that nothing is gone."""
_GONE = frozenset({"window", "removed"})
"""Kinds with which whole messages go, and the thoughts in them."""
_APART = frozenset({"PFX503", "PFX504"})
"""Rules of what keeps caches apart: mending another cause does not join them."""
_READ = 96  # tokens before the end of the served prefix in which the text before a cause's place is looked for
_JOINT = 6  # tokens on both sides of a place that show whether two prompts are the same there
_RIGHT_BEHIND = 48  # characters: what a template writes between two messages, and a token
_TELLING = 4  # characters, at least, of a text that is found there
_FLEETING = frozenset({"PFX404"})
"""Rules of blocks that only the newest message has."""
_MOVED = frozenset({"PFX203"})
"""Rules of content that stays the same and stands elsewhere on the next turn."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A request and the one that it should have matched, as the finding saw them.

    `leads` are the texts before the places of all causes that the request shows, by the numbers of their findings, in
    the order in which the model reads them; none where there is but one. `apart` says that one of them keeps caches
    apart, and `moves` is the number of the one of content that moves, if there is.
    """

    partner: int
    difference: Difference
    finding: int
    turn: bool
    leads: Mapping[int, str]
    apart: bool
    moves: int | None = None


def pairs(findings: Sequence[LogFinding], *, forgets: bool = False) -> dict[int, Pair]:
    """Give the pair of each request whose shared prefix ends at one of the findings, by its row.

    `Pair.finding` is the number of the finding. Each request has at most one. `forgets` says that the chat template
    leaves out thoughts from the next user message on: then no cause has to do with it.
    """
    found: dict[int, tuple[Sighting, int]] = {}
    behind: dict[int, dict[int, str]] = {}
    anew: set[int] = set()  # requests with messages that are written anew
    for number, finding in enumerate(findings):
        for sighting in finding.sightings:
            if sighting.partner is None:
                continue
            if finding.kind in _SAME and not sighting.head:
                anew.add(sighting.row)
            if sighting.first:
                found[sighting.row] = sighting, number
            else:
                behind.setdefault(sighting.row, {})[number] = sighting.lead
    return {
        row: _pair(findings, first, number, behind.get(row, {}), kept=not (forgets and first.asked), anew=row in anew)
        for row, (first, number) in found.items()
        if first.partner is not None
    }


def has_thoughts(findings: Iterable[LogFinding]) -> bool:
    """Tell whether thoughts may go with what findings are about, which a chat template may leave out as well."""
    return any(finding.rule.code == "PFX403" or finding.kind in _GONE for finding in findings)


def _pair(
    findings: Sequence[LogFinding], first: Sighting, number: int, behind: Mapping[int, str], *, kept: bool, anew: bool
) -> Pair:
    """Make a pair. `kept`: thoughts of the turn before would be in the later prompt, were they sent again.

    `anew`: it is not only ahead of the messages that something is written anew.
    """
    assert first.partner is not None
    others = [findings[n] for n in behind]
    return Pair(
        first.partner,
        _difference(findings[number], first, others, kept=kept, anew=anew),
        number,
        turn=first.turn,
        leads={number: first.lead, **behind} if behind else {},
        apart=any(finding.rule.code in _APART for finding in (findings[number], *others)),
        moves=next((n for n in (number, *behind) if findings[n].rule.code in _MOVED), None),
    )


def _difference(
    finding: LogFinding, sighting: Sighting, behind: Sequence[LogFinding], *, kept: bool, anew: bool
) -> Difference:
    """Say what parts a request from its partner: at the first difference, and by the causes that stand behind it."""
    sibling = not sighting.turn
    every = [finding, *behind]
    return Difference(
        rewritten=any(one.kind in _SAME for one in every) and not any(one.kind in _NEW for one in every),
        moved=any(one.rule.code in _MOVED for one in every),
        opening=sighting.opening if sibling and sighting.tail is None else sighting.opening or None,
        tail=sighting.tail if sibling else None,
        begins="" if sibling or anew else sighting.begins,
        turn=sighting.turn,
        thoughts=kept and has_thoughts(every),
        fleeting=any(one.rule.code in _FLEETING for one in every),
        replaced=all((one.rule.code, one.kind) in _REPLACED for one in every),
    )


def parting(
    table: Table, comparer: Comparer, row: int, pair: Pair, shared: int, *, elsewhere: bool = False
) -> tuple[attribute.Parting, Pair] | None:
    """Compare a request with its partner: where they part, the tokens that are lost, and to which finding they go.

    `shared` were served, or would have been but for a namespace (`elsewhere`). None where the two part for another
    reason than a finding's.
    """
    later, earlier = table.prompt_segments(row), table.prompt_segments(pair.partner)
    output = table.output_segments(pair.partner) if pair.turn else None
    lost = comparer.recomputed(earlier, later, shared, pair.difference, output=output)
    same = table.namespace[row] == table.namespace[pair.partner]
    if lost is None and same:
        return None
    segment, context, token = attribute.place(comparer.segments, earlier, later) or (0, "", 0)
    if not (same or pair.apart):
        lost = 0
    elif lost is None:  # what the template leaves out stands behind what another cache has
        lost = max(0, token - shared)
    if lost and pair.leads and not elsewhere:
        ends = ([shared, token] if shared > token else [token]) if same else [shared]
        told = (_ending(comparer.segments, earlier, later, end, pair) for end in ends)
        ending = next((number for number in told if number is not None), pair.finding)
        if pair.moves is not None and ending != pair.moves:
            stays = replace(pair.difference, moved=False)
            if not comparer.recomputed(earlier, later, shared, stays, output=output):
                ending = pair.moves  # only what moves could have been served
        pair = replace(pair, finding=ending)
    return attribute.Parting(row, pair.partner, segment, context, token, lost), pair


def _ending(
    segments: attribute.Segments, earlier: attribute.Ids, later: attribute.Ids, end: int, pair: Pair
) -> int | None:
    """Give the finding before whose place a prefix ends; None where what ends it holds what is before none of them.

    What a cache had of another conversation may end right where nothing differs: that is no finding's doing.
    """
    text = attribute.read_before(segments, later, end, _READ)
    ends = {
        finding: text.rfind(lead) + len(lead)
        for finding, lead in pair.leads.items()
        if len(lead.strip()) >= _TELLING and lead in text
    }
    for found in sorted(ends, key=lambda finding: ends[finding], reverse=True):
        far = len(text) - ends[found]
        if found == pair.finding or (far > _RIGHT_BEHIND and not _is_held(segments, earlier, later, end, far)):
            return found
        if far <= _RIGHT_BEHIND:
            return pair.finding if _runs_on(segments, earlier, later, end) else found
    return None


def _is_held(segments: attribute.Segments, earlier: attribute.Ids, later: attribute.Ids, end: int, far: int) -> bool:
    """Tell whether the earlier prompt has the last `far` characters before a token too, so that no place is in them."""
    held = attribute.read(segments, later, end + 1 - min(_READ, end + 1), end + 1)
    ids = next((ids for n in range(held.size - 1, -1, -1) if len(segments.decode(ids := held[n:])) >= far), held)
    return _holds(attribute.read(segments, earlier), ids[1:-1])


def _runs_on(segments: attribute.Segments, earlier: attribute.Ids, later: attribute.Ids, token: int) -> bool:
    """Tell whether what stands around a token stands so in the earlier prompt as well."""
    around = attribute.read(segments, later, token - _JOINT, token + _JOINT)
    if around.size < 2 * _JOINT:
        return False
    return _holds(attribute.read(segments, earlier), around)


def _holds(prompt: attribute.Ids, ids: attribute.Ids) -> bool:
    run, whole = ids.tobytes(), prompt.tobytes()
    at = whole.find(run)
    while at >= 0 and at % ids.itemsize:
        at = whole.find(run, at + 1)
    return at >= 0


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
        if pair.apart and self.table.namespace[row] != self.table.namespace[pair.partner]:
            causes.append(MissCause.NAMESPACE)
        misses = self.misses[engine]
        return sum(int(misses[cause][position]) for cause in causes if cause in misses)


def _cost(finding: LogFinding) -> tuple[int, int, str]:
    return -max((finding.tokens_lost or {"": 0}).values()), -finding.severity, finding.rule.code
