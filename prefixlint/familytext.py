"""One prompt of a family with the places marked at which its members part: what the template is, seen from a log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from prefixlint import accounts, attribute, excerpts
from prefixlint.accounts import Material
from prefixlint.outline import Piece

_AROUND = 220  # characters that are shown on each side of a place, and at the beginning
_AHEAD = 200  # characters of a value in which its end is looked for
_SAME = 24  # characters in which two requests agree where they have the same value
_MOST = 400_000  # characters of a prompt that are read


def template(material: Material, places: Sequence[attribute.Place]) -> list[Piece]:
    """Give a prompt that shows the family's costliest place, its values marked; empty without text or places.

    `span` of a piece is the index of its place. A place that this prompt does not have is left out.
    """
    if not places or accounts.foreign(material, places[0].example.row):
        return []
    row = places[0].example.row
    texts = _texts(material, row)
    holes = sorted(_holes(material, row, texts, places))
    return list(_pieces(material, "".join(texts), holes))


def _texts(material: Material, row: int) -> list[str]:
    """Give the texts of a prompt's segments, as far as they are read."""
    texts, size = [], 0
    for index in range(material.table.prompt_segments(row).size):
        texts.append(accounts.segment_text(material, row, index))
        size += len(texts[-1])
        if size > _MOST:
            break
    return texts


def _holes(
    material: Material, row: int, texts: Sequence[str], places: Sequence[attribute.Place]
) -> Iterator[tuple[int, int, int]]:
    """Give where the values of the places begin and end in the prompt, and which place each is of."""
    begins = list(accumulate(map(len, texts), initial=0))
    for index, place in enumerate(places):
        parting = place.example
        if parting.segment >= len(texts):
            continue
        here = texts[parting.segment]
        there = [accounts.segment_text(material, other, parting.segment) for other in (parting.partner, parting.row)]
        char = attribute.first_difference(*there)[1]
        context = there[1][max(0, char - _SAME) : char]
        if parting.row != row:
            found = here.find(context) if context else 0
            if found < 0:
                continue
            char = found + len(context)
        other = next((text for text in there if text[char : char + _SAME] != here[char : char + _SAME]), None)
        if other is None:
            continue
        end = char + excerpts.values(other[char : char + _AHEAD], here[char : char + _AHEAD])[1]
        yield begins[parting.segment] + char, begins[parting.segment] + end, index


def _pieces(material: Material, text: str, holes: Sequence[tuple[int, int, int]]) -> Iterator[Piece]:
    at = 0
    for begin, end, index in holes:
        if begin < at:
            continue  # two places at one value
        yield from _same(material, text, at, begin)
        yield Piece(material.redactor.part(text, begin, end), index)
        at = end
    if at:
        yield from _same(material, text, at, len(text), last=True)


def _same(material: Material, text: str, begin: int, end: int, *, last: bool = False) -> Iterator[Piece]:
    """Give text that stays the same, its middle left out where it is long; at the end, all behind its beginning."""
    part = material.redactor.part
    ends = 0 if last else _AROUND
    if end - begin <= 2 * _AROUND + ends:
        yield Piece(part(text, begin, end))
        return
    yield Piece(part(text, begin, begin + _AROUND))
    yield Piece(left_out=end - begin - _AROUND - ends)
    if ends:
        yield Piece(part(text, end - ends, end))
