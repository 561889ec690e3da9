"""Which blocks of the prefix tree each request touches, as columns that whole-log questions can be asked of.

Blocks that are always touched together are one *atom*: a stretch of the tree at which no request parts from another or
ends. A log of a million blocks has some ten thousand atoms, so that reuse over all of it is arithmetic on short arrays.
What is kept while requests stream through is the prefix index and five numbers a request.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from prefixlint.radix import PrefixIndex

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from numpy.typing import NDArray

    from prefixlint.model import BlockHashes
    from prefixlint.radix import Match

    Ids = NDArray[np.uint32]
    Ints = NDArray[np.int64]
    Places = NDArray[np.int32]
    Blocks = NDArray[np.signedinteger]
    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]

LIMIT = 400_000
"""Accesses that are held at once, at about 140 bytes each while curves are made; a log with more is sampled.

A repeated log has no more distinct text, so that they would be most of what its analysis holds.
"""

_NONE = -1  # for a request's number
_HASHED = 1 << 16  # blocks whose hashes are held at once, a multiple of eight
_ONES = np.array([byte.bit_count() for byte in range(256)], np.uint8)  # bits that a byte has
_HEADS = np.array([(1 << bits) - 1 for bits in range(8)], np.uint8)  # the lowest bits of a byte


@dataclass(frozen=True, slots=True)
class Sample:
    """A share of all blocks, chosen by a hash of their number, so that every access of a block is in it or none is.

    Spatial sampling as in SHARDS (Waldspurger et al., FAST '15). `group` takes one of `groups` parts of the sample,
    which have no block in common.
    """

    rate: float
    group: int = 0
    groups: int = 1

    def before(self, blocks: int) -> _Before:
        """Count the sampled ones among the first 0, 1, … `blocks` blocks."""
        begins = range(0, blocks, _HASHED)
        bits = [np.packbits(self._has(begin, min(blocks - begin, _HASHED)), bitorder="little") for begin in begins]
        return _Before(np.concatenate((*bits, np.zeros(1, np.uint8))))

    def _has(self, begin: int, blocks: int) -> Bools:
        """Say of so many blocks from `begin` on which are in the sample."""
        # SplitMix64 (Steele, Lea, Flood 2014) of the block's number
        x = np.arange(begin + 1, begin + 1 + blocks, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
        share = (x ^ (x >> np.uint64(31))) >> np.uint64(11)
        low, high = (int(self.rate * (self.group + edge) / self.groups * 2**53) for edge in (0, 1))
        return (share >= np.uint64(low)) & (share < np.uint64(high))


class _Before:
    """How many of the first blocks are set in `bits` (eight blocks a byte), for any number of them.

    A log may have as many blocks as tokens: a count for each of them would be most of what its analysis holds.
    """

    def __init__(self, bits: NDArray[np.uint8]) -> None:
        small = np.int32 if 8 * bits.size < 2**31 else np.int64
        self._bits = bits
        self._counts = np.concatenate((np.zeros(1, small), np.cumsum(_ONES[bits], dtype=small)))

    def __getitem__(self, blocks: NDArray[np.signedinteger]) -> NDArray[np.signedinteger]:
        byte = blocks >> 3
        counts: NDArray[np.signedinteger] = self._counts[byte] + _ONES[self._bits[byte] & _HEADS[blocks & 7]]
        return counts


@dataclass(frozen=True, slots=True)
class Accesses:
    """Touched atoms, request by request in order, and from the head of each request's path to its end.

    One element an access: `request` (its index), `atom` (a number; in a smaller stream numbers keep their meaning),
    `size` (its blocks), `looked` (how many of them the request looks up; generated tokens are stored only), `unit`
    (prompt tokens of a looked-up block) and `short` (the tokens that the last one has less than `unit`).
    `asked`, `prompt` and `blocks` have one element a request: the tokens that it looks up, all of its tokens, and its
    blocks, a partial last one counted.
    `block_tokens` is what a block takes of a pool. With a `sample`, sizes count the sampled blocks only, and accesses
    without one are left out.
    """

    request: Places
    atom: Places
    size: Blocks
    looked: Blocks
    unit: Floats
    short: Floats
    asked: Floats
    prompt: Ints
    blocks: Ints
    block_tokens: int
    sample: Sample | None = None

    def select(self, requests: Bools) -> Accesses:
        """Give the stream of some requests (a mask, an element a request); the others become empty."""
        keep = requests[self.request]
        return replace(
            self,
            request=self.request[keep],
            atom=self.atom[keep],
            size=self.size[keep],
            looked=self.looked[keep],
            unit=self.unit[keep],
            short=self.short[keep],
            asked=np.where(requests, self.asked, 0.0),
            prompt=np.where(requests, self.prompt, 0),
            blocks=np.where(requests, self.blocks, 0),
        )

    def weighted(self, factors: Floats) -> Accesses:
        """Give the stream with each request's tokens multiplied by its factor; sizes of blocks stay as they are."""
        each = factors[self.request]
        return replace(
            self,
            unit=self.unit * each,
            short=self.short * each,
            asked=self.asked * factors,
            prompt=np.rint(self.prompt * factors).astype(np.int64),
        )

    @property
    def rate(self) -> float:
        """The share of the blocks that are in the stream."""
        return 1.0 if self.sample is None else self.sample.rate / self.sample.groups

    @property
    def tokens(self) -> Floats:
        """The prompt tokens that each access looks up."""
        tokens: Floats = self.unit * self.looked - self.short
        return tokens


class Recorder:
    """Notes where each request leaves the tree of those before it; requests are of tokens, or all of block hashes."""

    def __init__(self) -> None:
        self._trees: dict[Hashable, PrefixIndex] = {}
        self._blocks = _BlockTree()
        self._numbers = array("q")  # of requests, by the rows of `add_found`
        self._owner, self._shared, self._total, self._prompt, self._last = (array("q") for _ in range(5))
        self._unit = array("d")
        self._block_tokens: int | None = None

    def __len__(self) -> int:
        """Count the requests."""
        return len(self._owner)

    @property
    def of_blocks(self) -> bool:
        """Whether the requests are those of a hash trace."""
        return self._block_tokens is not None

    def prompts(self) -> Ints:
        """Give the prompt tokens of each request."""
        return _ints(self._prompt)

    def outputs(self) -> Ints:
        """Give the tokens behind each prompt that were noted; 0 where there are none, as in a hash trace."""
        return np.zeros(len(self), np.int64) if self.of_blocks else _ints(self._total) - _ints(self._prompt)

    def add(self, namespace: Hashable, prompt: Ids, output: Ids | None = None) -> None:
        """Note a request of tokens; `output` are the generated tokens that the cache stores behind the prompt."""
        ids = prompt if output is None or not output.size else np.concatenate((prompt, output))
        tree = self._trees.get(namespace)
        if tree is None:
            tree = self._trees[namespace] = PrefixIndex()
        match = tree.match_insert(ids, len(self._owner))
        self.add_found(len(self._owner), match, ids.size, prompt.size)

    def add_found(self, row: int, found: Match, total: int, prompt: int) -> None:
        """Note a request by what an index found of it: `total` tokens are stored, the first `prompt` are asked for.

        `row` is its number in that index, where the owner has one, too.
        """
        if row >= len(self._numbers):
            self._numbers.extend([_NONE] * (row + 1 - len(self._numbers)))
        self._numbers[row] = len(self._owner)
        self._note(_NONE if found.owner is None else self._numbers[found.owner], found.length, total, prompt)

    def add_blocks(self, namespace: Hashable, content: BlockHashes) -> None:
        """Note a request of a hash trace."""
        count, sizes = len(content.hashes), content.sizes
        total, last = sum(sizes), sizes[-1] if count else 0
        shared, owner = self._blocks.match_insert(namespace, content.hashes, len(self._owner))
        self._note(owner, shared, count, total)
        self._unit.append((total - last) / (count - 1) if count > 1 else last)
        self._last.append(last)
        self._block_tokens = max(self._block_tokens or 1, content.block_size)

    def _note(self, owner: int, shared: int, total: int, prompt: int) -> None:
        self._owner.append(owner)
        self._shared.append(shared)
        self._total.append(total)
        self._prompt.append(prompt)

    def accesses(
        self, block_size: int = 1, *, cap: bool = True, sample: Sample | None = None, limit: int = LIMIT
    ) -> Accesses:
        """Give the stream in blocks of `block_size` tokens (a hash trace keeps its own blocks).

        With `cap`, blocks that end behind the second last token of a prompt are not looked up. Only full blocks are
        stored, but in a hash trace, where each id is one. Without a `sample` named, a stream of more than `limit`
        accesses is sampled.
        """
        prompt = _ints(self._prompt)
        size = 1 if self.of_blocks else block_size
        total = _ints(self._total) // size
        if self.of_blocks:
            unit, last = np.frombuffer(self._unit), _ints(self._last)
            asked = _Asked(np.maximum(total - 1, 0) if cap else total, unit, unit - last if not cap else 0 * unit)
        else:
            lookups = np.maximum(prompt - 1, 0) // size if cap else prompt // size
            asked = _Asked(lookups, np.array(float(size)), np.array(0.0))
        spans = _spans(_ints(self._owner), _ints(self._shared) // size, total)
        atoms = _atoms(spans)
        kept, chosen = np.arange(atoms.size.size, dtype=np.int32), None
        if sample is None:
            walks = _walks(spans, atoms, kept)
            touched = int((walks.high - walks.low).sum())
            if touched > limit:
                sample = Sample(limit / touched)
                del walks
        if sample is not None:
            chosen = sample.before(int(atoms.size.sum()))
            kept = kept[chosen[atoms.first + atoms.size] > chosen[atoms.first]]
            walks = _walks(spans, atoms, kept)
        return Accesses(
            *_stream(atoms, walks, kept, asked, chosen),
            asked=asked.lookups * asked.unit - asked.short,
            prompt=prompt,
            blocks=total if self.of_blocks else -(-prompt // size),
            block_tokens=self._block_tokens or size,
            sample=sample,
        )


class _BlockTree:
    """The tree of a hash trace, a node a block. Where equal hashes mean equal prefixes, one dictionary is all of it."""

    def __init__(self) -> None:
        self._first: dict[int | str, int] = {}  # by hash, the node that had it first
        self._others: dict[tuple[int, int | str], int] = {}  # by parent and hash, nodes with a hash had elsewhere
        self._roots: dict[Hashable, int] = {}
        self._parent, self._owner = array("q"), array("q")

    def match_insert(self, namespace: Hashable, hashes: Sequence[int | str], row: int) -> tuple[int, int]:
        """Store a path; give the number of its blocks that were there, and the row that stored the last of them."""
        node = self._roots.setdefault(namespace, -1 - len(self._roots))
        shared, owner = 0, -1
        first, others, parent = self._first, self._others, self._parent
        for one in hashes:
            known = first.get(one)
            if known is not None and parent[known] != node:
                known = others.get((node, one))
            if known is None:
                break
            node = known
            shared += 1
        if shared:
            owner = self._owner[node]
        for one in hashes[shared:]:
            number = len(parent)
            parent.append(node)
            self._owner.append(row)
            if first.setdefault(one, number) != number:
                others[node, one] = number
            node = number
        return shared, owner


@dataclass(frozen=True, slots=True)
class _Spans:
    """The part of the tree that each request added: blocks `start` .. `end` of its path, behind those of `parent`."""

    parent: Ints
    start: Ints
    end: Ints


def _spans(owner: Ints, start: Ints, end: Ints) -> _Spans:
    """Find whose stretch each path branches off from, which is not the owner where flooring to blocks went past it."""
    parent = np.where(start > 0, owner, -1)
    while True:
        beyond = (parent >= 0) & (start[parent] >= start)
        if not beyond.any():
            return _Spans(parent, start, end)
        parent = np.where(beyond, owner[parent], parent)


@dataclass(frozen=True, slots=True)
class _Atoms:
    """The atoms in the order of (request that added them, position): where each begins and how many blocks it has.

    `key` is request * `scale` + start, ascending. `first` counts the blocks of the tree before the atom.
    """

    key: Ints
    scale: int
    size: Ints
    first: Ints

    def find(self, row: Ints, position: Ints) -> Ints:
        """Give the first atom of a request's stretch that begins at a position or behind it."""
        return np.searchsorted(self.key, row * self.scale + position)


def _atoms(spans: _Spans) -> _Atoms:
    """Cut each request's stretch wherever another one branches off or ends."""
    rows = np.arange(spans.start.size)
    scale = int(spans.end.max(initial=0)) + 1
    inner = spans.parent >= 0
    begins = np.concatenate((rows * scale + spans.start, spans.parent[inner] * scale + spans.start[inner]))
    ends = rows * scale + spans.end
    # A cut at the end of a stretch begins nothing; stretches without a block have no atom.
    keys = np.unique(begins)
    owner = keys // scale
    keys = keys[keys < ends[owner]]
    owner = keys // scale
    after = np.append(keys[1:], 0)
    same = np.append(owner[1:] == owner[:-1], np.zeros(min(1, keys.size), bool))
    size = np.where(same, after, ends[owner]) - keys
    return _Atoms(keys, scale, size, np.cumsum(size) - size)


@dataclass(frozen=True, slots=True)
class _Walks:
    """Stretches of paths: the request, and the atoms `low` .. `high` (exclusive) of the tree that it runs through."""

    request: Places
    low: Places
    high: Places


def _walks(spans: _Spans, atoms: _Atoms, kept: Places) -> _Walks:
    """Follow all paths at once from their ends to the root, and give their stretches from the root on.

    Of the atoms only those in `kept` count, in which they are numbered; stretches without one are left out.
    """
    row = np.arange(spans.start.size)
    request, upto = row, spans.end
    parts: list[_Walks] = []
    while row.size:
        start = spans.start[row]
        low, high = (np.searchsorted(kept, atoms.find(row, at)).astype(np.int32) for at in (start, upto))
        some = high > low
        parts.append(_Walks(request[some].astype(np.int32), low[some], high[some]))
        inner = spans.parent[row] >= 0
        row, request, upto = spans.parent[row[inner]], request[inner], start[inner]
    place = np.zeros(spans.start.size, np.int64)
    for part in parts:
        place[part.request] += 1
    place = np.cumsum(place)
    columns = np.empty((3, sum(part.request.size for part in parts)), np.int32)
    for part in parts:  # a request has one stretch in each of them, its last one in the first
        place[part.request] -= 1
        columns[:, place[part.request]] = part.request, part.low, part.high
    return _Walks(*columns)


class _Asked(NamedTuple):
    """What a request looks up: blocks from the head of its path, the tokens of each, and what the last one lacks.

    The tokens have no dimension where they are the same for all requests.
    """

    lookups: Ints
    unit: Floats
    short: Floats


def _stream(
    atoms: _Atoms, walks: _Walks, kept: Places, asked: _Asked, chosen: _Before | None
) -> tuple[Places, Places, Blocks, Blocks, Floats, Floats]:
    """Lay the atoms of all walks in a row: the first six columns of `Accesses`."""
    counts = walks.high - walks.low
    request = np.repeat(walks.request, counts)
    atom = kept[np.arange(request.size) - np.repeat(np.cumsum(counts) - counts - walks.low, counts)]
    # numbers of blocks in the tree and in a path, which few logs have that many of
    small = np.int32 if max(atoms.scale, int(atoms.size.sum())) < 2**31 else np.int64
    place = (atoms.key % atoms.scale).astype(small)[atom]  # of an atom's first block in the request's path
    size, asks = atoms.size.astype(small)[atom], asked.lookups.astype(small)[request]
    looked = np.clip(asks - place, 0, size)
    ends = (looked > 0) & (place + looked == asks)
    del place, asks
    if chosen is not None:
        first = atoms.first.astype(small)[atom]
        ends &= chosen[first + looked] > chosen[first + np.maximum(looked - 1, 0)]
        held = chosen[first]
        size, looked = chosen[first + size] - held, chosen[first + looked] - held
    unit, short = _each(asked.unit, request), _each(asked.short, request)
    return request, atom, size, looked, unit, np.where(ends, short, 0.0) if asked.short.ndim else short


def _each(values: Floats, request: Places) -> Floats:
    """Give what the request of each access has; what all have alike takes no memory."""
    return values[request] if values.ndim else np.broadcast_to(values, request.shape)


def _ints(numbers: array[int]) -> Ints:
    return np.frombuffer(numbers, np.int64) if numbers else np.empty(0, np.int64)
