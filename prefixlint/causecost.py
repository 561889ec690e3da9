"""What each cause costs: the tokens that engines compute again in the requests whose shared prefix it ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prefixlint import attribute
from prefixlint.logfindings import LogFinding, with_losses
from prefixlint.model import MissCause
from prefixlint.simulate import Served
from prefixlint.table import Table

Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Measure:
    """The replay that losses are taken from. `rows` are the replayed requests in order; arrays go by that order."""

    table: Table
    rows: NDArray[np.intp]
    served: Mapping[str, Served]
    misses: Mapping[str, Mapping[MissCause, Counts]]
    segments: attribute.Segments

    def ranked(self, findings: Iterable[LogFinding]) -> list[LogFinding]:
        """Give the findings with their losses, the most costly first."""
        position = np.full(len(self.table), -1, np.int64)
        position[self.rows] = np.arange(self.rows.size)
        measured = [with_losses(finding, self._lost(finding, position)) for finding in findings]
        return sorted(measured, key=lambda f: (-max((f.tokens_lost or {"": 0}).values()), -f.severity, f.rule.code))

    def _lost(self, finding: LogFinding, position: Counts) -> dict[str, int]:
        rows = np.asarray([sighting.row for sighting in finding.sightings if sighting.first], np.int64)
        where = position[rows]
        where = where[where >= 0]
        apart = self._apart(finding, position)
        lost = {}
        for name, served in self.served.items():
            diverged = self.misses[name].get(MissCause.DIVERGED)
            total = int(diverged[where].sum()) if diverged is not None else 0
            for here, tokens in apart:
                known = int(diverged[here]) if diverged is not None else 0
                rest = int(served.prompt[here] - served.cached[here])
                total += max(0, min(tokens - int(served.cached[here]), rest) - known)
            lost[name] = total
        return lost

    def _apart(self, finding: LogFinding, position: Counts) -> list[tuple[int, int]]:
        """Give what requests share with those in another namespace: positions, and shared tokens."""
        found = []
        for sighting in finding.sightings:
            row, partner = sighting.row, sighting.partner
            if not sighting.first or partner is None:
                continue
            here = int(position[row])
            if here < 0 or self.table.namespace[row] == self.table.namespace[partner]:
                continue
            earlier, later = self.table.prompt_segments(partner), self.table.prompt_segments(row)
            parted = attribute.part(self.segments, earlier, later)
            shared = int(self.segments.sizes(earlier).sum()) if parted is None else parted[2] + parted[3]
            found.append((here, shared))
        return found
