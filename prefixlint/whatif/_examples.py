"""Pairs of requests that show a cause: what a rewrite learns from where values stand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from prefixlint import logrules
from prefixlint.logfindings import LogFinding, Sighting
from prefixlint.logrules._hits import MESSAGES
from prefixlint.logrules._view import View, view
from prefixlint.model import Request

MOST = 48  # pairs of requests that a rewrite learns from; values repeat long before


@dataclass(frozen=True, slots=True)
class Example:
    """Two requests that are compared, and what the rules in question say about them."""

    earlier: View
    later: View
    hits: Sequence[logrules.Hit]
    families: tuple[int, int]


def examples(
    findings: Iterable[LogFinding],
    codes: frozenset[str],
    read: Callable[[Iterable[int]], dict[int, Request]],
    family: Callable[[int], int],
) -> Iterator[Example]:
    """Give pairs that show these rules' causes, spread over the log. `read` gives requests by their rows."""
    chosen: dict[tuple[int, int], Sighting] = {}
    for finding in findings:
        pairs = [sighting for sighting in finding.sightings if sighting.partner is not None]
        for sighting in pairs[:: max(1, len(pairs) // MOST)][:MOST]:
            assert sighting.partner is not None
            chosen.setdefault((sighting.partner, sighting.row), sighting)
    requests = read({row for pair in chosen for row in pair}) if chosen else {}
    for (partner, row), sighting in chosen.items():
        earlier, later = requests.get(partner), requests.get(row)
        if earlier is None or later is None:
            continue
        one, two = view(earlier, partner), view(later, row)
        if one is None or two is None:
            continue
        found = logrules.compare(earlier, later, turn=sighting.turn)
        hits = [hit for hit in found if hit.code in codes]
        hits = hits or [hit for hit in found if _is_seen_in_history(hit, sighting)]
        yield Example(one, two, hits, (family(partner), family(row)))


def _is_seen_in_history(hit: logrules.Hit, sighting: Sighting) -> bool:
    """Tell whether a change of a message is the one that shows the cause, though it looks like another one's."""
    return hit.rank[0] == MESSAGES and hit.same and (hit.at.path, hit.at.char) == (sighting.path, sighting.char)
