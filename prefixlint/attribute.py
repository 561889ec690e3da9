"""Where a request parts from the one it should have matched, and how much that costs.

A request is compared with the best candidate there is: the previous request of its conversation, else the request that
its longest prefix came from, else the previous one of its family. Behind the first difference, text that both have is
*lost*: computed again although it was there; text that only the later one has is new, whatever is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from prefixlint.bodies import common_prefix
from prefixlint.model import BlockHashes
from prefixlint.radix import common

Ids = NDArray[np.uint32]
Counts = NDArray[np.int64]

# A segment this short behind a difference is punctuation of the chat template, found in any two prompts.
_TRIVIAL = 4
_WORD = 40  # characters; a value's beginning is looked for this far back
_BACK, _AHEAD = 16, 4  # tokens around a difference that are read to find the word it is in


class Segments(Protocol):
    """The distinct pieces of text that prompts are made of, as tokens."""

    def piece(self, segment: int) -> Ids:
        """Give the token ids of a segment."""
        ...

    def sizes(self, segments: Ids) -> Counts:
        """Give the number of tokens of each segment."""
        ...

    def decode(self, ids: Ids) -> str:
        """Give the text of some tokens."""
        ...


@dataclass(frozen=True, slots=True)
class Parting:
    """Where request `row` parts from request `partner`.

    `segment` is the index of the first differing segment, `context` the text before the differing word in it, `token`
    the offset in the later prompt of the first differing token, `lost` the tokens behind it that both have.
    """

    row: int
    partner: int
    segment: int
    context: str
    token: int
    lost: int


@dataclass(slots=True)
class Place:
    """A place at which requests of one family part: the first example, and the sums over all of them."""

    example: Parting
    requests: int
    lost: int


def part(segments: Segments, earlier: Ids, later: Ids, *, shared: int = 0) -> tuple[int, str, int, int] | None:
    """Compare two prompts given as segment ids: what a Parting holds; None where the later one only goes on.

    `shared` are the leading tokens that the cache served: they are not lost, whatever the two prompts have in common.
    """
    parted = _parted(segments, earlier, later)
    if parted is None:
        return None
    k, start, a, b, at, _ = parted
    if k == later.size:
        return k, "", start, 0
    return k, _context(segments, a, b, at), start + at, _lost(parted, earlier, later, shared)


def lost(segments: Segments, earlier: Ids, later: Ids, *, shared: int = 0) -> int:
    """Count only the tokens that are lost, as `part` does."""
    parted = _parted(segments, earlier, later)
    return 0 if parted is None or parted.segment == later.size else _lost(parted, earlier, later, shared)


def place(segments: Segments, earlier: Ids, later: Ids) -> tuple[int, str, int] | None:
    """Say only where two prompts part, as `part` does: the segment, the text before the difference, and its token."""
    parted = _parted(segments, earlier, later)
    if parted is None:
        return None
    k, start, a, b, at, _ = parted
    return k, _context(segments, a, b, at) if k < later.size else "", start + at


def read_before(segments: Segments, prompt: Ids, token: int, most: int) -> str:
    """Give the text of the tokens before the one at `token`, and of that one: as many as `most`."""
    end = min(token + 1, int(segments.sizes(prompt).sum()))
    held = read(segments, prompt, end - most, end)
    return segments.decode(held) if held.size else ""


def read(segments: Segments, prompt: Ids, begin: int = 0, end: int | None = None) -> Ids:
    """Give the tokens of a prompt from `begin` to `end`."""
    if not prompt.size:
        return np.empty(0, np.uint32)
    ends = np.cumsum(segments.sizes(prompt))
    begin, end = max(0, begin), int(ends[-1]) if end is None else min(end, int(ends[-1]))
    first, last = (int(np.searchsorted(ends, at, "right")) for at in (begin, end - 1))
    held = [segments.piece(int(segment)) for segment in prompt[first : last + 1]]
    start = int(ends[first]) - held[0].size if held else 0
    return np.concatenate(held)[begin - start : end - start] if held else np.empty(0, np.uint32)


class _Parted(NamedTuple):
    """The first differing segment and the tokens before it, that segment in both prompts, and where the two differ.

    `sizes` are the tokens of each segment of the later prompt.
    """

    segment: int
    start: int
    earlier: Ids
    later: Ids
    at: int
    sizes: Counts


def _parted(segments: Segments, earlier: Ids, later: Ids) -> _Parted | None:
    k = common(earlier, later)
    if k == earlier.size:
        return None
    sizes = segments.sizes(later)
    start = int(sizes[:k].sum())
    if k == later.size:
        return _Parted(k, start, later[k:], later[k:], 0, sizes)
    a, b = segments.piece(int(earlier[k])), segments.piece(int(later[k]))
    at = common(a, b)
    if at == a.size and k == earlier.size - 1:
        return None
    return _Parted(k, start, a, b, at, sizes)


def _lost(parted: _Parted, earlier: Ids, later: Ids, shared: int) -> int:
    k, start, a, b, at, sizes = parted
    end = start + b.size
    same = min(common(a[at:][::-1], b[at:][::-1]), max(0, end - shared))
    return same + _found_again(sizes[k + 1 :], earlier[k + 1 :], later[k + 1 :], shared - end)


def lost_blocks(prompts: Iterable[tuple[int, BlockHashes]], shared: Counts) -> Counts:
    """Count, for each prompt of a hash trace, the tokens of blocks that an earlier one had, but behind other blocks.

    `prompts` are pairs of namespace and blocks in order; `shared` the tokens that each found as a prefix. Only ids that
    name the content of a block can tell; where they name the whole prefix, equal content behind a difference has
    another id, and all that misses counts as new.
    """
    seen: dict[int, set[int | str]] = {}
    lost = np.zeros(shared.size, np.int64)
    for position, ((namespace, content), found) in enumerate(zip(prompts, shared.tolist(), strict=True)):
        if content.prefixed:
            continue
        known = seen.setdefault(namespace, set())
        starts = accumulate(content.sizes, initial=0)
        blocks = zip(content.hashes, content.sizes, starts, strict=False)  # there is one start more
        lost[position] = sum(size for block, size, start in blocks if start >= found and block in known)
        known.update(content.hashes)
    return lost


def first_difference(earlier: str, later: str) -> tuple[int, int]:
    """Give the first differing character of two texts, and where the word around it begins in the later one."""
    char = common_prefix(earlier, later)
    return char, _word_start(later, char)


def partners(order: Sequence[int], conversation: Sequence[int], owner: Counts, family: Sequence[int]) -> list[int]:
    """Give for each request in order the row that it is compared with; -1 where it is the first of its family."""
    last_turn: dict[int, int] = {}
    last_member: dict[int, int] = {}
    found = []
    for position, row in enumerate(order):
        own = family[row]
        candidate = last_turn.get(conversation[row], -1)
        if candidate < 0:
            candidate = int(owner[position])
            if candidate < 0 or family[candidate] != own:
                candidate = last_member.get(own, -1)
        found.append(candidate)
        last_turn[conversation[row]] = row
        last_member[own] = row
    return found


def places(partings: Iterable[Parting], family: Sequence[int]) -> dict[int, list[Place]]:
    """Sum partings by family and place, the most costly place first."""
    found: dict[int, dict[tuple[int, str], Place]] = {}
    for parting in partings:
        members = found.setdefault(family[parting.row], {})
        place = members.get((parting.segment, parting.context))
        if place is None:
            members[parting.segment, parting.context] = Place(parting, 1, parting.lost)
        else:
            place.requests += 1
            place.lost += parting.lost
    return {
        number: sorted(members.values(), key=lambda p: (-p.lost, -p.requests, p.example.row))
        for number, members in found.items()
    }


def _found_again(sizes: Counts, earlier: Ids, later: Ids, served: int) -> int:
    """Count the tokens of later segments that the earlier prompt has too, template punctuation left out.

    The first `served` of them do not count.
    """
    known = set(earlier.tolist())
    found = end = 0
    for segment, size in zip(later.tolist(), sizes.tolist(), strict=True):
        end += size
        if size > _TRIVIAL and segment in known:
            found += max(0, min(size, end - served))
    return found


def _context(segments: Segments, earlier: Ids, later: Ids, at: int) -> str:
    """Give the text before the differing word; the same for all values of it, although some of their tokens agree."""
    begin = max(0, at - _BACK)
    here = segments.decode(later[begin : at + _AHEAD])
    there = segments.decode(earlier[begin : at + _AHEAD])
    before = here[: _word_start(here, common_prefix(there, here))]
    return before[-_WORD // 2 :] if begin else before


def _word_start(text: str, char: int) -> int:
    """Move back to where the differing word begins, so that digits which happen to agree do not move a place."""
    start = char
    while start > 0 and char - start < _WORD and not text[start - 1].isspace():
        start -= 1
    return start
