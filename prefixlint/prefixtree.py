"""The prefix tree of a replay, made small enough to look at: the heaviest stretches, the others summed up.

Each request added one stretch to the tree: its prompt from where it left those before it. Cut wherever another request
leaves or ends, stretches become the atoms of the tree, and all numbers are sums over them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from prefixlint import accounts
from prefixlint.accounts import Material
from prefixlint.outline import PrefixTree, TreeNode

Ints = NDArray[np.int64]

_NODES = 300  # that are shown
_LIGHT = 1 / 4_000  # of the prompt tokens: a branch below it is no node of its own
_HEAD = 96  # tokens at the beginning of a stretch that are shown
_TAIL = 32  # and at the end of a long one
_AROUND = 200  # tokens around, in which values are looked for that an end cuts


def build(material: Material) -> PrefixTree | None:
    """Give the tree of the requests that were replayed; None where there are none."""
    if not material.rows.size or not int(material.replay.prompt.sum()):
        return None
    atoms = _atoms(material)
    shown = _Chosen(atoms).nodes()
    texts = _Texts(material)
    nodes = [
        node if place is None else replace(node, text=texts.of(place, node.start or 0, node.tokens or 0))
        for node, place in shown
    ]
    return PrefixTree(nodes, int(atoms.size.size))


@dataclass(frozen=True, slots=True)
class _Atoms:
    """Stretches that no request leaves or ends within, each behind its parent (-1 at the root).

    `place` is the position of the request that added it, `start` its first token in that prompt, `size` its tokens;
    `first` says that they were computed as a part of a prompt, and not generated. `asks` are the requests that run
    through it, `below` the tokens that they ask for in it and behind it, `new` those that were computed first there.
    """

    parent: Ints
    place: Ints
    start: Ints
    size: Ints
    first: NDArray[np.bool_]
    asks: Ints
    below: Ints
    new: Ints

    def own(self, members: Sequence[int]) -> int:
        """Count the tokens that are asked for in some atoms."""
        return sum(int(self.size[k] * self.asks[k]) for k in members)

    def reused(self, members: Sequence[int]) -> int:
        """Count those of them that were there before: all but the first time, or all where they were generated."""
        return sum(int(self.size[k] * (self.asks[k] - self.first[k])) for k in members)


def _atoms(material: Material) -> _Atoms:
    replay = material.replay
    served = next(iter(replay.engines.values()))
    count, prompt, start = replay.rows.size, replay.prompt, served.shared
    position = np.full(int(replay.rows.max()) + 2, -1)
    position[replay.rows] = np.arange(count)
    owner = position[served.owner]  # NO_OWNER is the last element, which stays -1
    owner = np.where(start > 0, owner, -1)
    while (beyond := (owner >= 0) & (start[owner] >= start)).any():  # whose output ran along another one's
        owner = np.where(beyond, owner[owner], owner)
    inner = owner >= 0
    end = prompt.copy()
    np.maximum.at(end, owner[inner], start[inner])  # what was generated, as far as somebody asks for it
    scale = int(end.max()) + 1
    at = np.arange(count) * scale
    keys = np.unique(np.concatenate((at + start, at + prompt, owner[inner] * scale + start[inner])))
    keys = keys[keys % scale < end[keys // scale]]
    place, begin = keys // scale, keys % scale
    same = np.append(place[1:] == place[:-1], False) if keys.size else np.zeros(0, bool)
    size = np.where(same, np.append(begin[1:], 0), end[place]) - begin
    parent = np.arange(keys.size) - 1
    opens = begin == start[place]
    above = owner[place[opens]]
    parent[opens] = np.where(above >= 0, np.searchsorted(keys, above * scale + begin[opens]) - 1, -1)
    whole = prompt == start  # requests that added nothing end in their owner's stretch
    ending = np.where(whole, owner * scale + start, at + prompt)[np.where(whole, inner, prompt > 0)]
    asks = np.bincount(np.searchsorted(keys, ending) - 1, minlength=keys.size)
    return _summed(_Atoms(parent, place, begin, size, begin < prompt[place], asks, asks, asks))


def _summed(atoms: _Atoms) -> _Atoms:
    """Add up from the leaves: a parent always stands before its children."""
    parent = atoms.parent.tolist()

    def up(values: Ints) -> Ints:
        sums = values.tolist()
        for k in range(len(parent) - 1, -1, -1):
            if parent[k] >= 0:
                sums[parent[k]] += sums[k]
        return np.array(sums, np.int64)

    asks = up(atoms.asks)
    return replace(atoms, asks=asks, below=up(asks * atoms.size), new=up(atoms.size * atoms.first))


class _Chosen:
    """Takes the heaviest stretches first, and sums up the rest under each of them."""

    def __init__(self, atoms: _Atoms) -> None:
        self._atoms = atoms
        order = np.argsort(atoms.parent, kind="stable")
        edges = np.searchsorted(atoms.parent[order], np.arange(-1, atoms.parent.size + 1))
        self._order, self._edges = order, edges

    def _children(self, atom: int) -> Ints:
        """Give the atoms right behind one (-1: the first ones), the heaviest first."""
        found = self._order[self._edges[atom + 1] : self._edges[atom + 2]]
        return found[np.argsort(-self._atoms.below[found], kind="stable")]

    def _chain(self, atom: int) -> list[int]:
        """Give an atom and those behind it that the same requests run through."""
        chain = [atom]
        while True:
            children = self._children(chain[-1])
            if children.size != 1 or self._atoms.asks[children[0]] != self._atoms.asks[atom]:
                return chain
            chain.append(int(children[0]))

    def nodes(self) -> list[tuple[TreeNode, int | None]]:
        """Give the nodes, parents first and the heaviest child first, each with the place of a request that has it."""
        atoms = self._atoms
        first = self._children(-1)
        total = int(atoms.below[first].sum())
        found: list[tuple[TreeNode, int | None]] = [
            (TreeNode(None, 0, 0, int(atoms.asks[first].sum()), total, 0, 0), None)
        ]
        heap: list[tuple[int, int, list[int]]] = []
        self._put(found, heap, first, 0, total)
        while heap:
            _, above, chain = heappop(heap)
            top = chain[0]
            node = TreeNode(
                parent=above,
                start=int(atoms.start[top]),
                tokens=int(sum(atoms.size[k] for k in chain)),
                requests=int(atoms.asks[top]),
                prompt_tokens=int(atoms.below[top]),
                own_tokens=atoms.own(chain),
                reused_tokens=atoms.reused(chain),
            )
            found.append((node, int(atoms.place[chain[-1]])))
            self._put(found, heap, self._children(chain[-1]), len(found) - 1, total)
        return found

    def _put(
        self,
        found: list[tuple[TreeNode, int | None]],
        heap: list[tuple[int, int, list[int]]],
        children: Ints,
        above: int,
        total: int,
    ) -> None:
        """Line up the children that are worth a node, and sum up the others at once."""
        atoms = self._atoms
        room = max(0, _NODES - len(found) - len(heap))
        heavy = children[: min(room, int((atoms.below[children] >= max(1, total * _LIGHT)).sum()))]
        for child in heavy.tolist():
            heappush(heap, (-int(atoms.below[child]), above, self._chain(child)))
        rest = children[heavy.size :]
        if rest.size:
            found.append((self._rest(rest, above), None))

    def _rest(self, tops: Ints, above: int) -> TreeNode:
        """Sum up branches with all that is below them."""
        tokens, new, requests = (
            int(sums[tops].sum()) for sums in (self._atoms.below, self._atoms.new, self._atoms.asks)
        )
        return TreeNode(above, None, None, requests, tokens, tokens, tokens - new, branches=int(tops.size))


class _Texts:
    """What stretches say, masked."""

    def __init__(self, material: Material) -> None:
        self._material = material
        self._known: tuple[int, NDArray[np.uint32]] = (-1, np.zeros(0, np.uint32))

    def of(self, place: int, start: int, tokens: int) -> str | None:
        """Give the beginning of a stretch, and its end where it is long; ids where no vocabulary is at hand."""
        if self._material.replay.distinct_blocks is not None:
            return None
        row, end = int(self._material.rows[place]), start + tokens
        ids = self._ids(row)
        if accounts.foreign(self._material, row):
            return " ".join(map(str, ids[start : min(end, start + _TAIL)].tolist()))
        if tokens <= _HEAD + _TAIL:
            return self._part(ids, start, end)
        return f"{self._part(ids, start, start + _HEAD)} … {self._part(ids, end - _TAIL, end)}"

    def _ids(self, row: int) -> NDArray[np.uint32]:
        if self._known[0] != row:
            table, encoder = self._material.table, self._material.encoder
            whole = np.concatenate([encoder.ids(table.prompt_segments(row)), encoder.ids(table.output_segments(row))])
            self._known = (row, whole)
        return self._known[1]

    def _part(self, ids: NDArray[np.uint32], start: int, end: int) -> str:
        decode = self._material.encoder.decode
        before, text = decode(ids[max(0, start - _AROUND) : start]), decode(ids[start:end])
        whole = before + text + decode(ids[end : end + _AROUND])
        return self._material.redactor.part(whole, len(before), len(before) + len(text))
