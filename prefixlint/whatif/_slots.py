"""Which parts of a text stay from request to request, and which are values: learnt from pairs, found again in others.

A template is the pieces of text that never change, in order. Between two of them is a gap; a gap that is a *slot* holds
what a fix takes out. Gaps of other causes are left as they are, so that each fix is measured alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from prefixlint.bodies import common_prefix
from prefixlint.families import head_lines, without_digits
from prefixlint.logrules import _spans, _values
from prefixlint.logrules._heads import is_last_line

FREE = frozenset({"text", "retrieval", "environment", "order"})
"""Kinds of value that are running text: their ends are where lines end, but those of a list within a line."""

_LABEL = 40  # characters before a value, in its line, that say what it is
_JOIN = 4  # characters; shorter text between two values is found anywhere
_MOST = 64  # differences of two texts that are learnt from
_LINES = 6  # times a value's length that its line may have to be moved as a whole
_PASSAGE, _SHORT = 8, 400  # lines and characters, at most, of what only some texts have for the sake of a value in it
_DATA = frozenset({"json", "order"})
"""Kinds that stay where they are: a text without them needs no place for them."""
_ITEM, _ITEMS = 4, 3  # characters with which so many lines of a list begin alike
_GAP = "\0"  # stands for a gap
_VAIN = 64  # texts that are remembered as they taught nothing
_SAMPLE = 40  # characters of which one of some runs is in both of two texts that begin and end with values
_ALIKE = 0.2  # of a text that must be the same for it to be of one template
_STAYS = 0.6  # of what stays in a template that another text of it has; applications may share their first half


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which differences are slots: their kinds, and whether they stand at the end of the text (None: anywhere).

    `others` are kinds that other fixes are about: lines of such values at the edges of a passage stay where they are.
    `shared` are kinds that this one is about as well: of those, slots are what stands below the same lines, `above`.
    """

    kinds: frozenset[str]
    end: bool | None = None
    others: frozenset[str] = frozenset()
    shared: frozenset[str] = frozenset()
    above: frozenset[str] = frozenset()

    def takes(self, kind: str, text: str, begin: int, *, last: bool) -> bool:
        """Tell whether a difference is a slot that begins there in a text; `last` says that it stands at its end."""
        if kind not in self.kinds or self.end not in (None, last):
            return False
        return kind not in self.shared or above(text, begin) in self.above


def above(text: str, begin: int) -> str:
    """Give the line above the one in which a difference begins, by which it is told from others of its kind."""
    return without_digits(text[: text.rfind("\n", 0, begin) + 1].rstrip().rpartition("\n")[2])


@dataclass(frozen=True, slots=True)
class Filled:
    """A text taken apart by its template: the pieces between slots, and the values in them with what they are."""

    pieces: tuple[str, ...]
    values: tuple[tuple[str, str], ...]


@dataclass(slots=True)
class Template:
    """What a text is made of. `text` is the first one seen; `gaps` are begin, end and whether it is a slot, in it."""

    text: str
    gaps: list[tuple[int, int, bool]] = field(default_factory=list)
    empty: set[int] = field(default_factory=set)
    """Beginnings of slots in which some text has nothing."""
    kinds: frozenset[str] = frozenset()
    """Kinds of values that slots hold."""
    _pieces: list[str] = field(default_factory=list)
    _labels: list[str] = field(default_factory=list)

    def learn(self, other: str, wanted: Wanted) -> None:
        """Compare with another text of the template; differences of these kinds are slots."""
        self.kinds = wanted.kinds
        for place, stop, other_stop in _spans.spans(self.text, other, _MOST):
            last = stop == len(self.text) and other_stop == len(other)
            if wanted.end and place.kind in FREE and not (place.before and place.after):
                last = is_last_line(self.text[stop:]) and is_last_line(other[other_stop:])
            begin, end = stop - len(place.before), stop
            if place.kind not in wanted.kinds and wanted.end is None:
                begin, end = self._line_apart(begin, end, place.after, wanted)
                if begin == end and not place.after:
                    continue
            slot = wanted.takes(place.kind, self.text, begin, last=last)
            if slot and place.kind in FREE and not (place.before and place.after):
                slot = not _is_ordered(place.before or place.after, wanted.others)
            if slot and place.kind in FREE and (place.kind != "order" or "\n" in place.before):
                begin, end = self._widened(begin, end)
            if not slot and any(held and begin <= a and b <= end and a < b for a, b, held in self.gaps):
                if place.after or not self._is_passage(begin, end, most=1 if wanted.kinds <= _DATA else _PASSAGE):
                    # the other text has nothing like the slot, so it does not tell where the slot ends
                    within = [(a, b) for a, b, held in self.gaps if held and begin <= a and b <= end]
                    self.empty |= {a for a, b in within if self._is_line(a, b)}
                    continue
                slot = True
            if slot and not (place.before and place.after):
                self.empty.add(begin)
            self._add(begin, end, slot=slot)

    def _line_apart(self, begin: int, end: int, other: str, wanted: Wanted) -> tuple[int, int]:
        """Take a line at an edge of a difference that is there for a value as a slot; give what is left."""
        own = self.text[begin:end]
        for last in (True, False):
            one, two = (_edge(text, last=last) if text.endswith("\n") else "" for text in (own, other))
            kinds = [_values.kind_of_line(line) for line in (one, two)]
            if kinds[0] in wanted.kinds and (other or one != own):
                size = len(one)
            elif kinds[1] in wanted.kinds and own.endswith("\n"):
                size = 0
            else:
                continue
            at, stop = (end - size, end) if last else (begin, begin + size)
            if not wanted.kinds.issuperset(kinds):
                self.empty.add(at)
            self._add(at, stop, slot=True)
            return (begin, at) if last else (stop, end)
        return begin, end

    def _is_passage(self, begin: int, end: int, *, most: int) -> bool:
        """Tell whether a text is a line or some, in which only slots change: a text without it lacks it as a whole."""
        lines = self.text[begin:end].strip().split("\n")
        short = len(lines) == 1 or end - begin <= _SHORT
        return len(lines) <= most and short and all(held for a, b, held in self.gaps if a < end and begin < b)

    def _widened(self, begin: int, end: int) -> tuple[int, int]:
        """Give the whole lines that running text stands in, where they hold little else."""
        ends_line = self.text[begin : begin + 1] in ("", "\n")  # whole lines follow one that stays
        start = begin if ends_line else self.text.rfind("\n", 0, begin) + 1
        stop = self.text.find("\n", max(begin, end - 1))
        stop = len(self.text) if stop < 0 else stop
        if stop - start <= _LINES * max(12, end - begin):
            return min(start, begin), max(stop, end)
        return begin, end

    def _add(self, begin: int, end: int, *, slot: bool) -> None:
        """Join a gap to those that it touches; what a slot touches is part of it."""
        kept = []
        for gap in self.gaps:
            if gap[0] <= end + _JOIN and begin <= gap[1] + _JOIN and (slot == gap[2] or self._overlap(gap, begin, end)):
                if gap[0] in self.empty and gap[0] > begin:
                    self.empty.add(begin)
                begin, end, slot = min(begin, gap[0]), max(end, gap[1]), slot or gap[2]
            else:
                kept.append(gap)
        self.gaps = sorted([*kept, (begin, end, slot)])
        ends = [0, *(gap[1] for gap in self.gaps)]
        begins = [*(gap[0] for gap in self.gaps), len(self.text)]
        self._pieces = [self.text[a:b] for a, b in zip(ends, begins, strict=True)]
        self._labels = [self._label(a, b) for a, b in zip(ends, begins, strict=True)][:-1]

    @staticmethod
    def _overlap(gap: tuple[int, int, bool], begin: int, end: int) -> bool:
        return gap[0] < end and begin < gap[1]

    @property
    def is_clear(self) -> bool:
        """Whether it is known where each gap ends: by what stands behind it, or as it touches a slot that is a line."""
        inner = self._pieces[1:-1]
        if any(not one and not two for one, two in pairwise(inner)):
            return False
        return all(piece or self._line_of(gaps) >= 0 for piece, gaps in zip(inner, pairwise(self.gaps), strict=True))

    def _is_line(self, begin: int, end: int) -> bool:
        """Tell whether a slot is a line that is there for its value."""
        line = self.text[begin:end]
        return line.endswith("\n") and line.count("\n") == 1 and _values.kind_of_line(line) in self.kinds

    def _line_of(self, gaps: tuple[tuple[int, int, bool], tuple[int, int, bool]]) -> int:
        """Say which of two gaps that touch is a slot that is a line, the other one being no slot; -1 for neither."""
        lines = [slot and self._is_line(begin, end) for begin, end, slot in gaps]
        slots = [slot for _, _, slot in gaps]
        return lines.index(True) if sum(slots) == sum(lines) == 1 else -1

    def _shared_out(self, value: str, gaps: tuple[tuple[int, int, bool], tuple[int, int, bool]]) -> tuple[str, str]:
        """Share what stands in two gaps that touch: to the slot the line at its side, if it is of its kind."""
        second = self._line_of(gaps) == 1
        line = _edge(value, last=second)
        if _values.kind_of_line(line) not in self.kinds:
            line = ""
        rest = value[: len(value) - len(line)] if second else value[len(line) :]
        return (rest, line) if second else (line, rest)

    @property
    def slots(self) -> int:
        """Count the slots."""
        return sum(slot for _, _, slot in self.gaps)

    def fill(self, text: str, others: frozenset[str] = frozenset()) -> Filled | None:
        """Take a text apart; None where it is of another template, or has no slot. `others` as in `Wanted`."""
        found = self._values(text)
        if found is None:
            return None
        pieces, values, piece = [], [], self._pieces[0]
        for gap, label, value, behind in zip(self.gaps, self._labels, found, self._pieces[1:], strict=True):
            if gap[2]:
                whole = piece[-1:] in ("", "\n") and "\n" in (value[-1:], behind[:1])  # lines, and no part of one
                ahead, own, rest = _apart(value, others) if others and whole else ("", value, "")
                pieces.append(piece + ahead)
                values.append((label, own))
                piece = rest + behind
            else:
                piece += value + behind
        pieces.append(piece)
        return Filled(tuple(pieces), tuple(values)) if values else None

    def may_be_empty(self) -> Sequence[bool]:
        """Tell of each slot whether some text has nothing there."""
        return [begin in self.empty for begin, _, slot in self.gaps if slot]

    def _values(self, text: str) -> list[str] | None:
        """Find what stands in each gap of a text: the unchanging pieces are looked for from left to right."""
        if not self.gaps:
            return None
        head, tail = self._pieces[0], self._pieces[-1]
        if not text.startswith(head) or not text.endswith(tail) or len(text) < len(head) + len(tail):
            return None
        at, stop, found = len(head), len(text) - len(tail), list[str]()
        touch: int | None = None  # the gap that touches the next one
        for number, piece in enumerate((*self._pieces[1:-1], None)):
            if piece == "" and touch is None:
                touch = number
                continue
            here = stop if piece is None else text.find(piece, at, stop)
            if here < 0:
                return None
            value = text[at:here]
            found += [value] if touch is None else self._shared_out(value, (self.gaps[touch], self.gaps[number]))
            at, touch = here + len(piece or ""), None
        return found

    def _label(self, start: int, begin: int) -> str:
        """Say what a value is by what stands before it in its line, from the value before on: that one changes."""
        start = max(start, self.text.rfind("\n", 0, begin) + 1)
        line = self.text[start:begin]
        return line[-_LABEL:].lstrip(" \t[(<#*-;,.") if len(line) <= _LABEL else ""

    def is_alike(self, text: str) -> bool:
        """Tell whether a text that cannot be taken apart may still be of this template."""
        size = min(len(text), len(self.text))
        same = common_prefix(text, self.text)
        back = min(common_prefix(text[::-1], self.text[::-1]), size - same)
        little = same + back <= _ALIKE * size  # values may stand at both ends
        if little and not any(self.text[at : at + _SAMPLE] in text for at in (size // 4, size // 2, size * 3 // 4)):
            return False
        pieces = _GAP.join(self._pieces or [self.text])
        stay = {line: len(line) for line in head_lines(without_digits(pieces)) if _GAP not in line}
        here = set(head_lines(without_digits(text)))
        if little and sum(stay.values()) <= _ALIKE * size:
            return False
        return sum(n for line, n in stay.items() if line in here) >= _STAYS * sum(stay.values())


def _edge(text: str, *, last: bool) -> str:
    """Give the last line of a text, or the first one."""
    lines = text.splitlines(keepends=True)
    return lines[-1 if last else 0] if lines else ""


def _is_ordered(text: str, others: frozenset[str]) -> bool:
    """Tell whether a text that only some have is data of which another fix sees to the order."""
    if "json" in others and re.search(r"[{\[]\s*[\"{\[]", text):
        return True
    lines = text.split("\n")
    begins = Counter(line[:_ITEM] for line in lines if line.strip())
    items = max(sum(map(line.count, ",;|")) for line in lines)
    return "order" in others and max(items, *begins.values(), 0) >= _ITEMS


def _is_of(line: str, others: frozenset[str]) -> bool:
    return _values.kind_of_line(line) in others or _is_ordered(line, others)


def _apart(value: str, others: frozenset[str]) -> tuple[str, str, str]:
    """Cut lines at the beginning and the end of a passage off that are there for values of some kinds."""
    lines = value.splitlines(keepends=True)
    begin, end = 0, len(lines)
    while begin < end and _is_of(lines[begin], others):
        begin += 1
    while begin < end and _is_of(lines[end - 1], others):
        end -= 1
    return "".join(lines[:begin]), "".join(lines[begin:end]), "".join(lines[end:])


@dataclass(slots=True)
class Templates:
    """The templates of one place, the one that fitted last first."""

    wanted: Wanted
    found: list[Template] = field(default_factory=list)
    _vain: set[str] = field(default_factory=set)
    """Texts of which the first template that is like them, as it is now, can neither be filled nor learn."""

    def learn(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Learn from pairs of an earlier and a later text."""
        for earlier, later in pairs:
            template = next((one for one in self.found if one.is_alike(earlier)), None)
            if template is None:
                template = Template(earlier)
                self.found.append(template)
            for text in (earlier, later):
                if text != template.text:
                    template.learn(text, self.wanted)
        self.found = [self._told_apart(one, pairs) for one in self.found if one.slots]

    def _told_apart(self, template: Template, pairs: Sequence[tuple[str, str]]) -> Template:
        """Give a template whose text has what stands between gaps that touch: the longest it was learnt from."""
        if template.is_clear:
            return template
        texts = [text for pair in pairs for text in pair if template.is_alike(text)]
        texts = sorted(dict.fromkeys(texts), key=len, reverse=True)
        other = Template(texts[0] if texts else template.text)
        for text in texts[1:]:
            known = replace(other, empty=set(other.empty))
            other.learn(text, self.wanted)
            other = other if other.is_clear else known
        return other if other.slots else template

    def fill(self, text: str, *, shows: bool = True) -> tuple[Template, Filled] | None:
        """Take a text apart by the template that fits; one with a difference that none was learnt from teaches it.

        Only texts that show the cause (`shows`) teach something of where it stands.
        """
        for number, template in enumerate(self.found):
            filled = template.fill(text, self.wanted.others)
            if filled is not None:
                if number:
                    self.found.insert(0, self.found.pop(number))
                    self._vain.clear()
                return template, filled
        if not shows or text in self._vain:
            return None
        alike = next((one for one in self.found if one.is_alike(text)), None)
        return None if alike is None else self._taught(alike, text)

    def _taught(self, template: Template, text: str) -> tuple[Template, Filled] | None:
        known = list(template.gaps)
        template.learn(text, self.wanted)
        filled = template.fill(text, self.wanted.others)
        if template.gaps != known or len(self._vain) >= _VAIN:
            self._vain.clear()
        elif filled is None:
            self._vain.add(text)
        return None if filled is None else (template, filled)
