"""The requests that show a cause, as columns: 37 bytes each, since a clock is seen in every request of a log."""

from __future__ import annotations

import copy
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar, overload

from prefixlint.logfindings import Sighting
from prefixlint.names import Names

T = TypeVar("T")

_FIRST, _TURN, _ASKED, _HEAD, _TOLD = 1, 2, 4, 8, 16
_ALONE = -1


def _longs() -> array[int]:
    return array("q")


def _bytes() -> array[int]:
    return array("B")


def _ints() -> array[int]:
    return array("i")


@dataclass(slots=True)
class _Column(Generic[T]):
    """Values of which few are distinct."""

    _names: Names = field(default_factory=Names)
    numbers: array[int] = field(default_factory=_ints)

    def append(self, value: T) -> None:
        self.numbers.append(self._names.number(value))

    def __getitem__(self, index: int) -> T:
        found: T = self._names.values[self.numbers[index]]
        return found


@dataclass(slots=True)
class Sightings(Sequence[Sighting]):
    """Sightings of one cause in the order in which they were seen."""

    rows: array[int] = field(default_factory=_longs)
    partners: array[int] = field(default_factory=_longs)
    _flags: array[int] = field(default_factory=_bytes)
    _paths: _Column[str] = field(default_factory=_Column)
    _chars: array[int] = field(default_factory=_longs)
    _openings: _Column[str | int | None] = field(default_factory=_Column)
    _leads: _Column[str] = field(default_factory=_Column)
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
        asked: bool = False,
        head: bool = False,
        told: bool = False,
    ) -> None:
        """Take in one request. `behind` is the sighting's opening, or its tail; with `told` what it begins with."""
        self.rows.append(row)
        self.partners.append(_ALONE if partner is None else partner)
        self._flags.append(_FIRST * first | _TURN * turn | _ASKED * asked | _HEAD * head | _TOLD * told)
        self._paths.append(path)
        self._openings.append(behind)
        self._leads.append(lead)
        self._chars.append(char)
        self.firsts += first

    def joined(self, others: Iterable[Sightings]) -> Sightings:
        """Give the requests of all in their order; those that several have once, unless a later one ends a prefix."""
        found = copy.deepcopy(self)
        for other in others:
            found._take(other)  # noqa: SLF001  # of this class
        order = sorted(range(len(found)), key=list(found.rows).__getitem__)
        names = (column.numbers for column in (found._paths, found._openings, found._leads))  # noqa: SLF001
        for column in [found.rows, found.partners, found._flags, found._chars, *names]:  # noqa: SLF001
            column[:] = array(column.typecode, [column[index] for index in order])
        return found

    def _take(self, other: Sightings) -> None:
        known = set(self.rows)
        for one in other:
            if one.first or one.row not in known:
                self.add(
                    one.row,
                    one.partner,
                    first=one.first,
                    turn=one.turn,
                    path=one.path,
                    char=one.char,
                    behind=(one.begins or one.opening) if one.tail is None else one.tail,
                    lead=one.lead,
                    asked=one.asked,
                    head=one.head,
                    told=bool(one.begins),
                )

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
        flags, behind = self._flags[index], self._openings[index]
        text = behind if isinstance(behind, str) else ""
        return Sighting(
            row=self.rows[index],
            partner=None if self.partners[index] == _ALONE else self.partners[index],
            first=bool(flags & _FIRST),
            turn=bool(flags & _TURN),
            path=self._paths[index],
            char=self._chars[index],
            opening="" if flags & _TOLD else text,
            tail=behind if isinstance(behind, int) else None,
            lead=self._leads[index],
            asked=bool(flags & _ASKED),
            head=bool(flags & _HEAD),
            begins=text if flags & _TOLD else "",
        )
