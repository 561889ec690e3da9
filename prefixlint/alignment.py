"""All differences of two request bodies in the order of the prompt, with what is equal between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from prefixlint import logrules
from prefixlint.bodies import Leaf, Row, common_prefix
from prefixlint.details import Difference, Relation
from prefixlint.logrules import Hit
from prefixlint.redact import Redactor

_SIDE = 80  # characters of a value that are shown


class Alignment:
    """Turns aligned rows into differences. `hits` is what the log rules say of the pair; `redactor` masks values."""

    def __init__(self, hits: Iterable[Hit], redactor: Redactor) -> None:
        self._spoken = {(hit.at.path, hit.at.char): hit for hit in reversed(list(hits))}
        self._redactor = redactor

    def differences(self, rows: Iterable[Row]) -> list[Difference]:
        """Give a row for each run of equal units, and one for each change in a unit."""
        found: list[Difference] = []
        run: list[Row] = []
        for row in rows:
            if row.equal:
                run.append(row)
                continue
            found += [*_run(run), *self._changes(row)]
            run = []
        return [*found, *_run(run)]

    def _changes(self, row: Row) -> Iterator[Difference]:
        if not row.earlier or not row.later:
            yield self._whole(row)
            return
        old, new = _old(row), {leaf.path for leaf in row.later}
        orders = [path for path in old if path in new], [leaf.path for leaf in row.later if leaf.path in old]
        parted = next((here for there, here in zip(*orders, strict=True) if there != here), None)
        for leaf in row.later:
            if leaf.path == parted:
                first = orders[1].index(parted)
                values = self._keys(row.path, orders[0][first:]), self._keys(row.path, orders[1][first:])
                yield self.made("changed", parted, 0, what="the same content, in another order", values=values)
            if leaf.path not in old:
                yield self.made("added", leaf.path, 0, values=("", self._shown(leaf)))
            elif not _same(old[leaf.path], leaf.value):
                yield from self._changed(Leaf(leaf.path, old[leaf.path]), leaf)
        for path, value in old.items():
            if path not in new:
                yield self.made("removed", path, 0, values=(self._shown(Leaf(path, value)), ""))

    def _keys(self, stem: str, paths: Iterable[str]) -> str:
        return cut(", ".join(self._redactor.path(path[len(stem) :].lstrip(".")) for path in paths))

    def _whole(self, row: Row) -> Difference:
        held = row.later or row.earlier
        spoken = next((hit for (path, _), hit in self._spoken.items() if _within(path, row.path)), None)
        text = self._shown(next((leaf for leaf in held if not leaf.path.endswith((".role", ".type"))), held[0]))
        relation: Relation = "added" if row.later else "removed"
        values = ("", text) if row.later else (text, "")
        return _named(Difference(relation, row.path, row.path, 0, size(held), _WORDS[relation], *values), spoken)

    def _changed(self, other: Leaf, leaf: Leaf) -> Iterator[Difference]:
        """Give the changes of one string, each with the characters that are equal behind it."""
        if not isinstance(leaf.value, str) or not isinstance(other.value, str):
            yield self.made("changed", leaf.path, 0, values=(self._shown(other), self._shown(leaf)))
            return
        for place, words in logrules.differences(other.value, leaf.value):
            values = self._part(leaf.path, place.before), self._part(leaf.path, place.after)
            what = words if place.before and place.after else "text that is new" if place.after else "text that is gone"
            yield replace(self.made("changed", leaf.path, place.char, what=what, values=values), characters=place.tail)

    def _part(self, path: str, value: str) -> str:
        return cut(logrules.shown(value, path, self._redactor, most=2 * _SIDE))

    def _shown(self, leaf: Leaf) -> str:
        return cut(self._redactor.value(leaf.path, str(leaf.value)))

    def made(
        self, relation: Relation, path: str, char: int, *, values: tuple[str, str], what: str | None = None
    ) -> Difference:
        """Give the difference at a place, in the words of the rule that speaks of it, if one does."""
        words = _WORDS[relation] if what is None else what
        return _named(Difference(relation, path, path, char, 0, words, *values), self._spoken.get((path, char)))


def _named(row: Difference, hit: Hit | None) -> Difference:
    return row if hit is None else replace(row, what=hit.what, rule=hit.code)


def _within(path: str, unit: str) -> bool:
    """Tell whether a path is that of a unit of a body, or of something in it."""
    return path == unit or path.startswith((f"{unit}.", f"{unit}["))


_WORDS = {
    "added": "only in the later request",
    "removed": "only in the earlier request",
    "changed": "another value",
    "equal": "equal",
}


def equal(row: Row) -> int:
    """Count the characters of a row that both sides have."""
    if row.equal:
        return size(row.later)
    if not row.earlier or not row.later:
        return 0
    old = _old(row)
    total = 0
    for leaf in row.later:
        value = old.get(leaf.path)
        if _same(value, leaf.value):
            total += len(str(value))
        elif isinstance(value, str) and isinstance(leaf.value, str):
            places = [place for place, _ in logrules.differences(value, leaf.value)]
            total += places[0].char + sum(place.tail + _ending(place.before, place.after) for place in places)
    return total


def _ending(before: str, after: str) -> int:
    """Count the characters that two values end with; a value is shown with what belongs to it, equal or not."""
    room = min(len(before), len(after)) - common_prefix(before, after)
    return min(max(0, room), common_prefix(before[::-1], after[::-1]))


def size(leaves: Iterable[Leaf]) -> int:
    """Count the characters of leaves."""
    return sum(len(str(leaf.value)) for leaf in leaves)


def cut(text: str) -> str:
    """Cut a value to what is shown of it."""
    return text if len(text) <= _SIDE else text[: _SIDE - 1] + "…"


def _run(rows: Sequence[Row]) -> Iterator[Difference]:
    if rows:
        count = sum(size(row.later) for row in rows)
        yield Difference("equal", rows[0].path, rows[-1].path, 0, count, _WORDS["equal"])


def _same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and bool(a == b)


def _old(row: Row) -> dict[str, Any]:
    """Give the earlier values of a row by the paths that they would have in the later body."""
    stem, bracket, _ = row.path.rpartition("[")
    length = row.earlier[0].path.find("]", len(stem)) + 1 if bracket else len(row.path)
    return {row.path + leaf.path[length:]: leaf.value for leaf in row.earlier}
