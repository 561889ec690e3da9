"""How many tokens of a request are computed again because it differs from the one that it should have matched.

Two prompts are compared as pieces in any order, since what breaks a prefix may also move, drop or reorder what stands
behind it: as segments, those that only one side has as lines, and lines that only one side has as tokens. Counted are
tokens behind what the cache served that the earlier request has too, as far as they would be a prefix again if the
difference were gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from prefixlint.attribute import Ids, Segments
from prefixlint.radix import common

Counts = NDArray[np.int64]
Mask = NDArray[np.bool_]

_TRIVIAL = 4
"""Tokens; a piece this short is punctuation of the chat template, found in any two prompts."""
_RUN = 16
"""Equal tokens in a row from which on two texts that differ hold the same passage."""
_FORMS = 2  # times the size at which the same content may stand in another form, as indented JSON does
_OPENS = 24  # tokens of a piece in which a message's beginning is looked for
_NEXT = 3  # pieces behind the last common one in which the texts may still go on alike
_TAIL = 8  # pieces at the end of a prompt, in which a template opens the answer
_KEPT = 1024  # segments whose lines are kept
_STARTS = 8_192  # pieces whose beginning is kept
_OPENER = 6  # tokens of a piece that opens a thought, at most
_WHOLE = 32  # tokens; shorter segments are not cut into lines
_UNKNOWN = 2  # of a token, whether it has a line's end: 0, 1, or this
_POWERS = np.array([pow(0x9E3779B97F4A7C15, i, 1 << 64) for i in range(_RUN)], np.uint64)


@dataclass(frozen=True, slots=True)
class Difference:
    """What parts two prompts, as far as it says which tokens would have been served without it.

    `rewritten`: what differs is the same content in another form, so that nothing of it is new. `moved`: what is gone
    from its place may stand in the newest message. `opening` is the beginning of the first message where nothing in the
    messages is the difference: behind it two prompts of one template share nothing but a common start, and two turns
    (`turn`) are served as far as they go on alike. `tail` is the number of characters that two texts without messages
    share behind the difference. `thoughts`: it is thoughts that are gone. `replaced`: something else stands in the
    place of what differs, if a prompt shows it. `fleeting`: the newest message has a block that is gone
    on the next turn. `begins` is the beginning of the first message where what is rewritten is all ahead of it.
    """

    rewritten: bool = False
    moved: bool = False
    opening: str | None = None
    tail: int | None = None
    turn: bool = False
    thoughts: bool = False
    replaced: bool = False
    fleeting: bool = False
    begins: str = ""


@dataclass(slots=True)
class Comparer:
    """Compares prompts that are given as segments."""

    segments: Segments
    _breaks: NDArray[np.uint8] = field(default_factory=lambda: np.empty(0, np.uint8))
    _lines: dict[int, _Text] = field(default_factory=dict)
    _starts: dict[int | bytes, str] = field(default_factory=dict)

    def recomputed(
        self, earlier: Ids, later: Ids, shared: int, difference: Difference, *, output: Ids | None = None
    ) -> int | None:
        """Count the tokens of `later`, from token `shared` on, that would be served if it went on like `earlier`.

        Prompts are segment ids; `output` is what `earlier` was answered, where it is known and later turns may go on
        from it. The result is 0 .. tokens of `later` - `shared`; None where they part, but not by this difference: two
        turns with the same messages whose heads are the same too, as rendered, are parted by their chat template.
        """
        k = common(earlier, later)
        sizes = self.segments.sizes(later)
        start, total = int(sizes[:k].sum()), int(sizes.sum())
        if difference.tail is not None and k < later.size:
            return self._of_text(later, total, shared, difference.tail)
        rest, other = earlier[k:], later[k:]
        both = set(rest.tolist()) & set(other.tolist())
        ours, theirs = self._cut(other, both), self._cut(rest, both)
        prompt = len(theirs.keys)
        replaced = difference.replaced and ours.keys and ours.keys[0] in theirs.keys[1:]
        if output is not None:
            theirs.add(self._cut(output, set()))
        gone = self._forgotten(ours, theirs) if difference.turn and not difference.thoughts else len(theirs.keys)
        again = _again(ours, theirs, gone, prompt) if difference.moved and gone < prompt else []
        if (gone == 0 < prompt and not again) or replaced:
            return None  # the template left something out
        del theirs.keys[gone:], theirs.sizes[gone:]
        prompt = min(prompt, gone)
        if gone == 0 and again:  # what it left out parts the two, and only what was moved could stand before that
            return sum(_left(start + at, size, shared) for at, size in again)
        if difference.turn and difference.opening is not None:
            located = self._located(difference, later[:k], ours, theirs)
            if located is None and k < min(earlier.size, later.size):
                return None
            difference = located or difference
        lost = max(0, start - shared)
        for begin, mask in _served(ours, theirs, prompt, difference):
            at = start + begin
            lost += int(mask[max(0, shared - at) :].sum()) if isinstance(mask, np.ndarray) else _left(at, mask, shared)
        lost += sum(_left(start + at, size, shared) for at, size in again)
        return max(0, min(lost, total - shared))

    def _located(self, difference: Difference, both: Ids, ours: _Text, theirs: _Text) -> Difference | None:
        """Give what parts two turns whose messages are the same; None where they part behind their head all the same.

        A chat template may leave out thoughts, or write the newest message in another way.
        """
        opening = difference.opening or ""
        if _opens(ours, 0, opening) < len(ours.keys) and _opens(theirs, 0, opening) < len(theirs.keys):
            return difference
        whole = _Text(self.segments, both.tolist(), self.segments.sizes(both).tolist(), self._starts)
        return None if _opens(whole, 0, opening) < both.size else replace(difference, opening=None)

    @staticmethod
    def _forgotten(ours: _Text, theirs: _Text) -> int:
        """Give the piece of the earlier prompt that opens a thought which the later one has no more; else the end.

        Many templates show thoughts only until the user speaks again: from there on nothing is served, whatever else
        parts the two prompts.
        """
        held = set(ours.keys)
        for index in range(len(theirs.keys) - 1):
            if theirs.sizes[index] > _OPENER or theirs.keys[index + 1] in held:
                continue
            if theirs.start(index).lstrip().startswith("<think"):
                return index
        return len(theirs.keys)

    def _cut(self, prompt: Ids, both: set[int]) -> _Text:
        """Cut a prompt into its segments, and those that the two prompts do not both have into lines."""
        text = _Text(self.segments, starts=self._starts)
        keys, sizes = text.keys, text.sizes
        for segment, size in zip(prompt.tolist(), self.segments.sizes(prompt).tolist(), strict=True):
            if segment in both or size <= _WHOLE:
                keys.append(segment)
                sizes.append(size)
            else:
                text.add(self._lines_of(segment))
        return text

    def _lines_of(self, segment: int) -> _Text:
        """Give the lines of a segment; the latest ones are kept, since what one request has the next one may have."""
        known = self._lines.get(segment)
        if known is None:
            if len(self._lines) >= _KEPT:
                self._lines.clear()
            ids = self.segments.piece(segment)
            places = [0, *(self._line_ends(ids) + 1).tolist()]
            if places[-1] < ids.size:
                places.append(ids.size)
            data, width = ids.tobytes(), ids.itemsize
            lines: list[int | bytes] = [data[a * width : b * width] for a, b in pairwise(places)]
            known = self._lines[segment] = _Text(self.segments, lines, [b - a for a, b in pairwise(places)])
        return known

    def _line_ends(self, ids: Ids) -> NDArray[np.intp]:
        """Give the positions of the tokens in which a line ends."""
        if not ids.size:
            return np.empty(0, np.intp)
        try:
            known = self._breaks[ids]
        except IndexError:
            more = int(ids.max()) + 1 - self._breaks.size
            self._breaks = np.concatenate((self._breaks, np.full(more, _UNKNOWN, np.uint8)))
            known = self._breaks[ids]
        if known.max() == _UNKNOWN:
            for token in np.unique(ids[known == _UNKNOWN]):
                self._breaks[token] = "\n" in self.segments.decode(np.array([token], np.uint32))
            known = self._breaks[ids]
        return known.nonzero()[0]

    def _of_text(self, later: Ids, total: int, shared: int, tail: int) -> int:
        """Count the tokens of so many characters behind the difference, by the length of the text's tokens."""
        chars = sum(len(self.segments.decode(self.segments.piece(int(s)))) for s in later)
        return max(0, min(total - shared, round(tail * total / chars))) if chars else 0


@dataclass(slots=True)
class _Text:
    """The pieces of a prompt from the first differing segment on, as segments or as the tokens of lines.

    `starts` are the beginnings of pieces that were asked for, of all prompts that are compared.
    """

    segments: Segments
    keys: list[int | bytes] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    starts: dict[int | bytes, str] = field(default_factory=dict)

    def add(self, other: _Text) -> None:
        self.keys += other.keys
        self.sizes += other.sizes

    def start(self, index: int) -> str:
        """Give the text that a piece begins with."""
        key = self.keys[index]
        known = self.starts.get(key)
        if known is None:
            if len(self.starts) >= _STARTS:
                self.starts.clear()
            known = self.starts[key] = self.segments.decode(self.ids(index)[:_OPENS])
        return known

    def beginning(self, index: int) -> str:
        """Give the text from a piece on, as much as a message's beginning takes up."""
        end = index + 1
        while end < len(self.keys) and sum(self.sizes[index:end]) < _OPENS:
            end += 1
        return self.segments.decode(np.concatenate([self.ids(i) for i in range(index, end)])[:_OPENS])

    def ids(self, index: int) -> Ids:
        key = self.keys[index]
        return np.frombuffer(key, np.uint32) if isinstance(key, bytes) else self.segments.piece(key)


@dataclass(slots=True)
class _Pairing:
    """Which pieces of the later prompt the earlier one has too.

    `whole` are those, `open` those before the last of them that it has not, `unused` those of the earlier prompt that
    found no partner. `ahead` and `behind` are the places right behind the last common piece, in both prompts.
    """

    whole: list[int] = field(default_factory=list)
    open: list[int] = field(default_factory=list)
    unused: list[int] = field(default_factory=list)
    ahead: int = 0
    behind: int = 0

    def go_on(self, ours: _Text, theirs: _Text, at: int, there: int) -> None:
        """Let the messages follow, which begin at two places: as far as those of both prompts are the same."""
        self.whole = [i for i in self.whole if i < at]
        n = 0
        while at + n < len(ours.keys) and there + n < len(theirs.keys) and ours.keys[at + n] == theirs.keys[there + n]:
            n += 1
        self.whole += range(at, at + n)
        self.ahead, self.behind = at + n, there + n

    def follow_form(self, ours: _Text, theirs: _Text, prompt: int) -> None:
        """Take the text up to the marks of the chat template that the earlier prompt ends with for its last text.

        It is the same in another form, and no longer than that may be: there is none where all old text came again.
        """
        end = prompt
        while end > self.behind and theirs.sizes[end - 1] <= _TRIVIAL:
            end -= 1
        if not any(index >= self.behind - 1 and theirs.sizes[index] > _TRIVIAL for index in self.unused):
            return
        marks, left = theirs.keys[end:prompt], _RUN + _FORMS * sum(theirs.sizes[max(0, self.behind - 1) : end])
        for index in range(self.ahead, len(ours.keys)) if marks else ():
            if ours.keys[index : index + len(marks)] == marks:
                self.open += range(self.ahead, index)
                self.unused += range(self.behind, end)
                self.whole += range(index, index + len(marks))
                self.ahead, self.behind = index + len(marks), prompt
                return
            left -= ours.sizes[index]
            if left < 0:
                return

    def follow_end(self, ours: _Text, theirs: _Text, prompt: int) -> None:
        """Skip what only the earlier prompt has before its end, where the later one goes on like its last pieces."""
        for start in range(max(self.behind, prompt - _TAIL), prompt):
            tail = theirs.keys[start:prompt]
            if tail == ours.keys[self.ahead : self.ahead + len(tail)]:
                self.whole += range(self.ahead, self.ahead + len(tail))
                self.ahead, self.behind = self.ahead + len(tail), prompt
                return


def _served(ours: _Text, theirs: _Text, prompt: int, difference: Difference) -> Iterator[tuple[int, Mask | int]]:
    """Give the places of `ours` that would be served: where each begins, and its tokens or a mask of them."""
    k, end, stop, opening = _first(ours, theirs), len(ours.keys), len(theirs.keys), difference.opening
    kept = opening is not None and difference.turn
    if opening is not None and kept:
        end, stop = _opens(ours, 0, opening), _opens(theirs, 0, opening)
    elif opening is not None:
        found = _opens(ours, k, opening) if opening else end
        end = found if found < end else min(k + 1, end)
    parts = k < min(prompt, end) and not (k == prompt - 1 and _begins(ours.ids(k), theirs.ids(k)))
    bounded = bool(opening) and end < len(ours.keys) and stop < len(theirs.keys)
    pairing = _paired(ours, theirs, range(k, end if parts else k), stop, difference, bounded=bounded)
    if kept:
        pairing.go_on(ours, theirs, end, stop)
    form = len(ours.keys) if difference.rewritten else 0  # pieces up to this one may be another form of old ones
    if difference.rewritten and opening is None:
        form = _opens(ours, 0, difference.begins) if difference.begins else form
        if form == len(ours.keys):
            pairing.follow_form(ours, theirs, prompt)
    if kept or opening is None:
        pairing.follow_end(ours, theirs, prompt)
    starts = np.concatenate(([0], np.cumsum(ours.sizes))).astype(np.int64).tolist()
    yield from ((starts[i], ours.sizes[i]) for i in pairing.whole)
    new: Sequence[int] = range(pairing.ahead, len(ours.keys)) if difference.moved else ()
    changed = [i for i in pairing.open if i >= form]
    if form:
        yield from ((starts[i], size) for i, size in _in_another_form(ours, theirs, pairing, form))
    paired = min(len(changed), len(pairing.unused)) if form in (0, len(ours.keys)) else 0
    passages = _Passages(theirs, pairing.unused)
    for number, index in enumerate([*changed, *new]):
        ids = ours.ids(index)
        mask = passages.covered(ids) if ids.size >= _RUN else np.zeros(ids.size, np.bool_)
        if number < paired:
            _mark_ends(ids, theirs.ids(pairing.unused[number]), mask, ours.segments)
        yield starts[index], mask
    if pairing.ahead < len(ours.keys) and not new:
        yield starts[pairing.ahead], _goes_on(ours, theirs, pairing, rewritten=pairing.ahead < form)


def _again(ours: _Text, theirs: _Text, gone: int, prompt: int) -> list[tuple[int, int]]:
    """Give the pieces that both prompts end with, behind what is gone from the earlier one: each as place and size."""
    found, at, before = [], sum(ours.sizes), set(theirs.keys[:gone])
    tail = zip(reversed(ours.keys), reversed(theirs.keys[gone:prompt]), reversed(ours.sizes), strict=False)
    for one, two, size in tail:
        if one != two:
            break
        at -= size
        if size > _TRIVIAL and one not in before:
            found.append((at, size))
    return found


def _first(ours: _Text, theirs: _Text) -> int:
    k = 0
    for one, two in zip(ours.keys, theirs.keys, strict=False):
        if one != two:
            break
        k += 1
    return k


def _begins(ids: Ids, start: Ids) -> bool:
    """Tell whether a piece is another one with more behind it: a prompt's last piece, and the answer."""
    return common(ids, start) == start.size


def _paired(ours: _Text, theirs: _Text, where: range, stop: int, difference: Difference, *, bounded: bool) -> _Pairing:
    """Pair the pieces of `where` with those up to `stop`; where there are none, nothing parts the two but their length.

    Where content was both rewritten and moved, what comes again behind much that is new was moved, and what is new
    there was not rewritten. So it is with lines of a fleeting block, which the newest message has again.

    `bounded` says that the same follows behind `where` and `stop`: what is rewritten is so up to there.
    """
    moved, rewritten = difference.moved, difference.rewritten
    head = difference.opening is not None and not difference.turn
    places: dict[int | bytes, list[int]] = {}
    k = where.start
    for index in range(k, stop):
        places.setdefault(theirs.keys[index], []).append(index)
    last = partner = k if where else k - 1
    whole: dict[int, int] = {}
    new = 0  # tokens behind `last` that the earlier prompt has not
    for index in where:
        held = places.get(ours.keys[index])
        if not held:
            new += ours.sizes[index]
            continue
        at = held.pop(next((n for n, i in enumerate(held) if i > partner), 0))
        whole[index] = at
        # what stands before other old text and comes again behind new text was sent once more, not moved
        stays = at > partner or (head and at == k and len(whole) == 1)  # what is new was put before it
        stays |= ours.sizes[index] >= _RUN and ((moved and not rewritten) or new <= _TRIVIAL)
        anew = difference.fleeting or (moved and rewritten)
        if anew and new > _RUN + 2 * sum(theirs.sizes[partner + 1 : at]):
            stays = False
        if ours.sizes[index] > _TRIVIAL and stays:
            last, partner, new = index, at, 0
    if bounded and rewritten and where:
        last, partner = where.stop - 1, stop - 1
    used = {at for index, at in whole.items() if index <= last}
    ahead, behind = last + 1, partner + 1
    while ahead < len(ours.keys) and behind < len(theirs.keys) and ours.keys[ahead] == theirs.keys[behind]:
        ahead, behind = ahead + 1, behind + 1
    return _Pairing(
        whole=[*range(k), *(i for i in whole if i <= last), *range(last + 1, ahead)],
        open=[i for i in range(k, last + 1) if i not in whole],
        unused=[i for i in range(k, stop) if i not in used],
        ahead=ahead,
        behind=behind,
    )


def _in_another_form(ours: _Text, theirs: _Text, pairing: _Pairing, end: int) -> Iterator[tuple[int, int]]:
    """Give the pieces up to `end` that are the same content in another form, with how much of each: some texts grow.

    Only so much can be that as the earlier prompt has in a form that is gone; what comes behind it is new.
    """
    left = _RUN + _FORMS * sum(theirs.sizes[i] for i in pairing.unused if i < pairing.behind)
    for index in pairing.open:
        if index >= end:
            return
        size = min(ours.sizes[index], left)
        if not size:
            return
        yield index, size
        left -= size


def _left(at: int, size: int, shared: int) -> int:
    """Count the tokens of a piece behind those that were served."""
    return max(0, at + size - max(at, shared))


def _goes_on(ours: _Text, theirs: _Text, pairing: _Pairing, *, rewritten: bool) -> Mask:
    """Mark how far the piece behind the last common ones begins like what stands there in the earlier prompt.

    Where nothing came again, that may be what the earlier prompt has in place of a piece that was put before it. What
    was rewritten and ends as it did is the same as a whole.
    """
    ids, there = ours.ids(pairing.ahead), pairing.behind
    size = _alike(ids, theirs, there)
    if there - 1 in pairing.unused:
        instead = _alike(ids, theirs, there - 1)
        size = max(size, instead if instead >= _RUN else 0)
    mask = np.zeros(ids.size, np.bool_)
    mask[:size] = True
    if rewritten and there < len(theirs.keys):
        mask |= int(common(ids[::-1], theirs.ids(there)[::-1])) >= max(_RUN, ids.size // 2)
    return mask


def _alike(ids: Ids, theirs: _Text, start: int) -> int:
    """Count the tokens with which a piece begins like the earlier prompt does from its piece `start` on."""
    rest = [theirs.ids(i) for i in range(start, min(start + _NEXT, len(theirs.keys)))]
    return int(common(ids, np.concatenate(rest))) if rest else 0


def _mark_ends(ids: Ids, other: Ids, mask: Mask, segments: Segments) -> None:
    """Mark what two texts have in common at their beginning and at their end.

    Where the text is the other one without its end, its last token may be another one and is nothing new.
    """
    front = common(ids, other)
    back = min(common(ids[::-1], other[::-1]), min(ids.size, other.size) - front)
    mask[:front] = True
    mask[mask.size - back :] = True
    if front == ids.size - 1 and front < other.size:
        one, two = segments.decode(ids[front:]), segments.decode(other[front : front + 1])
        mask[front] |= two.startswith(one)


class _Passages:
    """Runs of tokens that some pieces hold, found again wherever they stand."""

    def __init__(self, text: _Text, pieces: Sequence[int]) -> None:
        self._text, self._pieces = text, pieces
        self._known: NDArray[np.uint64] | None = None

    def covered(self, ids: Ids) -> Mask:
        """Mark the tokens of a text of at least _RUN that stand in such a run."""
        if self._known is None:
            hashes = [_windows(self._text.ids(i)) for i in self._pieces if self._text.sizes[i] >= _RUN]
            self._known = np.sort(np.concatenate(hashes)) if hashes else np.empty(0, np.uint64)
        mask = np.zeros(ids.size + 1, np.int8)
        if self._known.size:
            windows = _windows(ids)
            nearest = self._known[np.minimum(np.searchsorted(self._known, windows), self._known.size - 1)]
            starts = np.flatnonzero(nearest == windows)
            mask[starts] += 1
            mask[starts + _RUN] -= 1
        return np.cumsum(mask)[:-1] > 0


def _windows(ids: Ids) -> NDArray[np.uint64]:
    """Give a hash of each run of _RUN tokens (a polynomial modulo 2**64)."""
    wide = ids.astype(np.uint64) + np.uint64(1)
    return np.convolve(wide, _POWERS, "valid")


def _opens(text: _Text, k: int, opening: str) -> int:
    """Give the piece, from `k` on, with which the first message begins; the end where it is not found.

    Templates that write the role as text have it in the same piece.
    """
    line = opening.partition("\n")[0]
    within = end = len(text.keys)
    for index in range(k, end):
        start = text.start(index)
        if line not in start or opening not in text.beginning(index):
            continue
        if start.lstrip().startswith(line):
            return index
        within = min(within, index)
    return within
