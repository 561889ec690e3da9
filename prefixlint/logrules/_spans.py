"""The differences of two texts in order, each taken for what it is: a value, or a passage that is always another one.

Two passages have words, marks and ends of lines in common. What stands between those is no value of its own: a number
in a sentence that was found for the question is part of what was found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from prefixlint.bodies import common_prefix
from prefixlint.logrules._pieces import piece
from prefixlint.logrules._values import Place, classify, is_listing, running_text

Span = tuple[Place, int, int]
"""A place, and where its values end in the earlier and in the later text."""

_PLACES = 12  # differences of one text that are told apart
_RAW = 48  # differences that are looked at for them
_BETWEEN = 60  # equal characters between two words of a passage, at most
_PASSAGE = 80  # characters that make running text a passage
_FEW = 3  # differences of passages, at least, where what stands above says that they were found
_FREE = frozenset({"text", "retrieval"})
_APART = frozenset({"address", "age", "clock", "header", "identity", "json", "order"})
"""Kinds of value that stay causes of their own where they have a line of their own beside a passage."""


def places(earlier: str, later: str) -> list[Place]:
    """Give the differences of two texts in order, at most twelve; equal texts have none."""
    return [place for place, _, _ in spans(earlier, later)]


def spans(earlier: str, later: str, most: int = _PLACES) -> list[Span]:
    """Give the differences of two texts in order, each with where its values end in the earlier and the later text."""
    found: list[Span] = []
    run: list[Span] = []
    for span in _each(earlier, later, max(most, _RAW)):
        run.append(span)
        if span[0].tail > _BETWEEN or (len(run) + len(found) >= most and not _is_free(run)):
            found += _joined(run, earlier, later)
            run = []
            if len(found) >= most:
                break
    return [*found, *_joined(run, earlier, later)][:most]


def _each(earlier: str, later: str, most: int) -> Iterator[Span]:
    i = j = 0
    for _ in range(most):
        same = _ahead(earlier, i, later, j)
        i, j = i + same, j + same
        if i == len(earlier) and j == len(later):
            return
        place, i, j = classify(earlier, i, later, j)
        yield replace(place, tail=_ahead(earlier, i, later, j)), i, j
        if i >= len(earlier) and j >= len(later):
            return


def _ahead(a: str, i: int, b: str, j: int) -> int:
    if i == 0 and j == 0:
        return common_prefix(a, b)
    window = 4096
    total = 0
    while True:
        x, y = a[i + total : i + total + window], b[j + total : j + total + window]
        same = common_prefix(x, y)
        total += same
        if same < window:
            return total


def _is_free(run: Sequence[Span]) -> bool:
    """Tell whether differences are those of passages: by how much text they are, or by many under one heading."""
    free = [place for place, _, _ in run if place.kind in _FREE]
    if len(free) >= _FEW and any(place.kind == "retrieval" for place in free):
        return True
    return sum(max(len(place.before), len(place.after)) for place in free) >= _PASSAGE


def _joined(run: Sequence[Span], earlier: str, later: str) -> Iterator[Span]:
    """Join what stands in one passage; with little running text there is none."""
    if len(run) < 2 or not _is_free(run):
        yield from run
        return
    free = [number for number, (place, _, _) in enumerate(run) if place.kind in _FREE]
    breaks = [True, *(_parts(run[n], run[n + 1], later) for n in range(len(run) - 1)), True]
    labels = Counter(place.lead for place, _, _ in run)
    begin, end = free[0], free[-1]
    while begin and run[begin - 1][0].kind not in _APART and not breaks[begin]:
        begin -= 1
    while end + 1 < len(run) and run[end + 1][0].kind not in _APART and not breaks[end + 1]:
        end += 1
    yield from run[:begin]
    passage: list[Span] = []
    for number in range(begin, end + 1):
        place = run[number][0]
        if place.kind in _APART and breaks[number] and breaks[number + 1] and labels[place.lead] < 2:
            yield from _one(passage, earlier, later)
            yield run[number]
            passage = []
        else:
            passage.append(run[number])
    yield from _one(passage, earlier, later)
    yield from run[end + 1 :]


def _parts(span: Span, following: Span, later: str) -> bool:
    """Tell whether a line ends between two differences."""
    return "\n" in later[span[2] : following[2] - len(following[0].after)]


def _one(passage: Sequence[Span], earlier: str, later: str) -> Iterator[Span]:
    if not passage:
        return
    first, begin_a, begin_b = passage[0]
    last, end_a, end_b = passage[-1]
    begin_a, begin_b = begin_a - len(first.before), begin_b - len(first.after)
    before, after = piece(earlier, begin_a, end_a), piece(later, begin_b, end_b)
    kind = "environment" if is_listing(before) and is_listing(after) else running_text(later, begin_b)
    yield Place(kind, first.char, before, after, first.lead, last.tail), end_a, end_b
