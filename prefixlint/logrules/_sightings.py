"""The requests that show a cause, as columns: forty bytes each, since a clock is seen in every request of a log."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import overload

from prefixlint.logfindings import Sighting

_FIRST, _TURN = 1, 2
_ALONE = -1


def _longs() -> array[int]:
    return array("q")


def _bytes() -> array[int]:
    return array("B")


@dataclass(slots=True)
class Sightings(Sequence[Sighting]):
    """Sightings of one cause in the order in which they were seen."""

    rows: array[int] = field(default_factory=_longs)
    partners: array[int] = field(default_factory=_longs)
    _flags: array[int] = field(default_factory=_bytes)
    _paths: array[int] = field(default_factory=_longs)
    _chars: array[int] = field(default_factory=_longs)
    _numbers: dict[str, int] = field(default_factory=dict)
    _names: list[str] = field(default_factory=list)
    _openings: dict[int, str | int] = field(default_factory=dict)
    _leads: dict[int, str] = field(default_factory=dict)
    _held: dict[str | int, str | int] = field(default_factory=dict)
    _texts: dict[str, str] = field(default_factory=dict)
    firsts: int = 0

    def add(
        self,
        row: int,
        partner: int | None,
        *,
        first: bool,
        turn: bool,
        path: str,
        char: int,
        behind: str | int | None = None,
        lead: str = "",
    ) -> None:
        """Take in one request. `behind` is the sighting's opening, or its tail."""
        if lead:
            self._leads[len(self.rows)] = self._texts.setdefault(lead, lead)
        if behind is not None:
            self._openings[len(self.rows)] = self._held.setdefault(behind, behind)
        self.rows.append(row)
        self.partners.append(_ALONE if partner is None else partner)
        self._flags.append(_FIRST * first | _TURN * turn)
        number = self._numbers.setdefault(path, len(self._names))
        if number == len(self._names):
            self._names.append(path)
        self._paths.append(number)
        self._chars.append(char)
        self.firsts += first

    def __len__(self) -> int:
        """Count the requests."""
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> Sighting: ...
    @overload
    def __getitem__(self, index: slice) -> list[Sighting]: ...
    def __getitem__(self, index: int | slice) -> Sighting | list[Sighting]:
        """Give one sighting, or some."""
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        index = range(len(self))[index]
        flags, behind = self._flags[index], self._openings.get(index)
        return Sighting(
            row=self.rows[index],
            partner=None if self.partners[index] == _ALONE else self.partners[index],
            first=bool(flags & _FIRST),
            turn=bool(flags & _TURN),
            path=self._names[self._paths[index]],
            char=self._chars[index],
            opening=behind if isinstance(behind, str) else "",
            tail=behind if isinstance(behind, int) else None,
            lead=self._leads.get(index, ""),
        )
