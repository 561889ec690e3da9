"""Which part of a prompt in the source wrote a character of a prompt in a log.

The static lines of a prompt's segments are looked for in the logged text; those that stand there in the order of the
source are its landmarks, and what the source has between two of them wrote what the log has between them. Landmarks are
lines, so that texts which were dedented, stripped or cut on their way are still found.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from prefixlint.prompts import Hole, Segment, Text

_LINE = 8  # characters without blanks from which on a line is a landmark
_LANDMARKS = 400
_SURE = 16  # characters of landmarks below which a prompt is not recognised
_GAP = 4_000  # characters between two landmarks in which several holes are told apart
_HOLES = 8

# Kinds of values in logs, and the kinds of sources that write them.
_SAME = {
    "age": ("age", "clock"),
    "clock": ("clock", "date"),
    "date": ("date", "clock"),
    "address": ("object", "random"),
    "header": ("random", "counter"),
    "json": ("order", "object"),
    "tools": ("order", "selection", "tools"),
}


@dataclass(frozen=True, slots=True)
class Written:
    """What wrote a character: a hole, or static text. `score` are the characters of the prompt that were recognised."""

    score: int
    node: Hole | Text


@dataclass(frozen=True, slots=True)
class _Mark:
    """A static line found in the logged text: characters `start` to `end` of it, `of` the segment with that index.

    `begin` and `stop` are where it stands in the segment's own text.
    """

    of: int
    begin: int
    stop: int
    start: int
    end: int


def written(segments: Sequence[Segment], text: str, char: int, kind: str) -> Written | None:
    """Find what wrote the character at `char` of a logged text; None where the segments did not write this text.

    `kind` is the kind of the value there as the log rules name it; it decides between several holes.
    """
    marks = _in_order(list(_found(segments, text)))
    score = sum(mark.end - mark.start for mark in marks)
    if score < _SURE:
        return None
    before = next((mark for mark in reversed(marks) if mark.start < char), None)
    behind = next((mark for mark in marks if mark.start >= char), None)
    if before is not None and char < before.end:
        node = segments[before.of].node
        assert isinstance(node, Text)
        return Written(score, node)
    first = 0 if before is None else before.of
    last = len(segments) - 1 if behind is None else behind.of
    holes = [i for i in range(first, last + 1) if isinstance(segments[i].node, Hole)]
    if not holes:
        return None
    if len(holes) > 1:
        chosen = _told_apart(segments, text, char, before, behind)
        holes = holes if chosen is None else [chosen]
    node = segments[_of_kind(segments, holes, kind)].node
    assert isinstance(node, Hole)
    return Written(score, node)


def of_order(segments: Sequence[Segment]) -> Hole | None:
    """Give the hole that decides in which order, or how many, elements are written; None where there is none."""
    for segment in segments:
        if isinstance(segment.node, Hole) and any(o.kind in _SAME["tools"] for o in segment.node.origins):
            return segment.node
    return None


def _found(segments: Sequence[Segment], text: str) -> Iterator[_Mark]:
    """Give the static lines that stand in the text, each where it stands first."""
    left = _LANDMARKS
    for index, segment in enumerate(segments):
        if not isinstance(segment.node, Text) or segment.repeated:
            continue
        for line in re.finditer(r"[^\n]+", segment.node.text):
            stripped = line[0].strip()
            if len(stripped) < _LINE or not left:
                continue
            start = text.find(stripped)
            if start >= 0:
                left -= 1
                begin = line.start() + line[0].index(stripped)
                yield _Mark(index, begin, begin + len(stripped), start, start + len(stripped))


def _in_order(marks: Sequence[_Mark]) -> list[_Mark]:
    """Keep the heaviest run of landmarks that stand one behind the other: the others are other branches, or chance."""
    best: list[tuple[int, int]] = []  # the weight of the best run that ends with each mark, and the mark before it
    for i, mark in enumerate(marks):
        weight, previous = 0, -1
        for j in range(i):
            if marks[j].end <= mark.start and best[j][0] > weight:
                weight, previous = best[j][0], j
        best.append((weight + mark.end - mark.start, previous))
    at = max(range(len(best)), key=lambda i: best[i][0], default=-1)
    run = []
    while at >= 0:
        run.append(marks[at])
        at = best[at][1]
    return run[::-1]


def _told_apart(
    segments: Sequence[Segment], text: str, char: int, before: _Mark | None, behind: _Mark | None
) -> int | None:
    """Fit what the source has between two landmarks to what the log has there; give the hole that took it."""
    start, end = 0 if before is None else before.end, len(text) if behind is None else behind.start
    first, last = 0 if before is None else before.of, len(segments) - 1 if behind is None else behind.of
    parts, groups = [], []
    for index in range(first, last + 1):
        node = segments[index].node
        if segments[index].branch or segments[index].repeated:
            return None
        if isinstance(node, Text):
            from_, to = 0, len(node.text)
            if before is not None and index == before.of:
                from_ = before.stop
            if behind is not None and index == behind.of:
                to = behind.begin
            parts.append(re.escape(node.text[from_:to]))
        else:
            parts.append("(.*?)")
            groups.append(index)
    if end - start > _GAP or len(groups) > _HOLES:
        return None
    fit = re.compile("".join(parts), re.DOTALL).fullmatch(text, start, end)
    if fit is None:
        return None
    spans = [(fit.span(number + 1), index) for number, index in enumerate(groups)]
    inside = [index for (low, high), index in spans if low <= char < high or low == char == high]
    return inside[0] if inside else None


def _of_kind(segments: Sequence[Segment], holes: Sequence[int], kind: str) -> int:
    wanted = _SAME.get(kind, (kind,))
    for index in holes:
        node = segments[index].node
        if isinstance(node, Hole) and any(origin.kind in wanted for origin in node.origins):
            return index
    return holes[0]
