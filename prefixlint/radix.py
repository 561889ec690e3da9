"""An index of token sequences that answers: how much of this one has been seen before, and in which request.

A radix tree whose edges are uint32 arrays. Walking an edge is one vectorised comparison, so a lookup costs about two
microseconds an edge and not a step a token. What is kept is one copy of each distinct prefix: four bytes a distinct
token, and about half a kilobyte for each place where sequences part or end. Long conversations make deep trees; there,
nodes remember the way to one far below, which takes the tokens on that way a second time.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import nsmallest
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    Ids = NDArray[np.uint32]

_PROBE = 512  # tokens compared at once while an edge still differs early; beyond it the rest of the edge is compared
_SKIP = 48  # nodes that a skip leads over; only trees deeper than this have any


@dataclass(frozen=True, slots=True)
class Match:
    """How far a sequence runs along an earlier one.

    `length` is the number of leading tokens that some earlier sequence also begins with. `owner` is the row that first
    wrote the last of them, the one to compare with (None when `length` is 0). `extends` says that an earlier sequence
    ended exactly there, so that what follows is new text and not a difference.
    """

    length: int
    owner: int | None
    extends: bool


NOTHING = Match(0, None, False)


@dataclass(frozen=True, slots=True)
class SharedPrefix:
    """A prefix that several sequences begin with: its length in tokens, how many do, and the row that had it first."""

    length: int
    requests: int
    owner: int


class _Node:
    """One edge of the tree with what hangs below it.

    `depth` is the number of tokens from the root to the end of the edge, `ended` how many sequences end exactly there.
    `skip` leads over many nodes at once: the tokens on the way to a node below, and that node. It holds as long as
    the node lies that much deeper, which a split of its edge changes. `noted` are the sequences that end here, see
    `PrefixIndex.nodes`; None where there is none.
    """

    __slots__ = ("children", "depth", "edge", "ended", "noted", "owner", "skip")

    def __init__(self, edge: Ids, owner: int, depth: int) -> None:
        self.edge = edge
        self.owner = owner
        self.depth = depth
        self.ended = 0
        self.children: dict[int, _Node] = {}
        self.skip: tuple[Ids, _Node] | None = None
        self.noted: list[int] | None = None

    def note(self, end: int) -> None:
        """Note that a sequence ends here."""
        if self.noted is None:
            self.noted = []
        self.noted.append(end)

    def split(self, at: int) -> None:
        """Cut the edge behind its first `at` tokens: this node keeps them, a new one below it takes the rest."""
        lower = _Node(self.edge[at:], self.owner, self.depth)
        lower.ended, lower.children, lower.skip, lower.noted = self.ended, self.children, self.skip, self.noted
        self.depth -= self.edge.size - at
        self.edge, self.ended, self.children = self.edge[:at], 0, {lower.edge.item(0): lower}
        self.skip = self.noted = None

    def leap(self, ids: Ids) -> _Node | None:
        """Give the node that the skip leads to where it holds and `ids` go all the way, else None."""
        if self.skip is None:
            return None
        tokens, target = self.skip
        n = tokens.size
        if target.depth - self.depth == n <= ids.size and common(tokens, ids[:n]) == n:
            return target
        return None


def common(a: Ids, b: Ids) -> int:
    """Count the equal leading tokens of two arrays."""
    n = min(a.size, b.size)
    if n > 2 * _PROBE:
        head = common(a[:_PROBE], b[:_PROBE])
        if head < _PROBE:
            return head
    if n == 0:
        return 0
    first = (a[:n] == b[:n]).tobytes().find(0)
    return n if first < 0 else first


class PrefixIndex:
    """The sequences of one namespace, in the order in which they came.

    Token arrays are one-dimensional uint32; rows are non-negative numbers that the caller gives. Arrays handed in are
    never kept: what is new in them is copied. With `noting`, `nodes` tells where each row's sequence ends.
    """

    def __init__(self, *, noting: bool = False) -> None:
        self._root = _Node(np.empty(0, np.uint32), -1, 0)
        self._noting = noting
        self.distinct = 0
        """Tokens in the tree: the number of distinct prefixes, without the empty one."""
        self.stored = NOTHING
        """What the last `match_insert` found of the whole sequence that it stored, the output included."""

    def match(self, ids: Ids) -> Match:
        """Find the longest prefix of `ids` that an earlier sequence has too, and change nothing."""
        return self._result(*self._walk(self._root, ids))

    def match_insert(self, ids: Ids, owner: int, *, output: Ids | None = None) -> Match:
        """Match `ids`, then store it, followed by `output`: tokens that later sequences may match but this one not."""
        node, done, inside = self._walk(self._root, ids)
        result = self.stored = self._result(node, done, inside)
        node = self._append(node, done, inside, ids, owner)
        if output is not None and output.size:
            if self._noting:
                node.note(2 * owner)
            node, further, inside = self._walk(node, output)
            if further:
                found = self._result(node, further, inside)
                self.stored = Match(done + further, found.owner, found.extends)
            node = self._append(node, further, inside, output, owner)
        node.ended += 1
        if self._noting:
            node.note(2 * owner + 1)
        return result

    def nodes(self) -> Iterator[tuple[int, int, Sequence[int]]]:
        """Walk the tree, each node before those below it: how many lie above it, the tokens to its end, and what ends.

        That is 2 x row + 1 for all of a row's sequence, 2 x row for `ids` where an output follows them.
        """
        left = [(self._root, 0)]
        while left:
            node, level = left.pop()
            yield level, node.depth, node.noted or ()
            left += [(child, level + 1) for child in node.children.values()]

    def shared_prefixes(self, top: int, *, min_tokens: int = 1) -> list[SharedPrefix]:
        """List the prefixes that save most, as (requests - 1) x length, in that order.

        A prefix counts only where it could not be longer with the same requests; `min_tokens` leaves out short ones.
        """
        found = (p for p in self._prefixes() if p.length >= max(1, min_tokens))
        return nsmallest(top, found, key=lambda p: (-(p.requests - 1) * p.length, p.owner, p.length))

    def _prefixes(self) -> Iterator[SharedPrefix]:
        order = [self._root]
        for node in order:  # grows while it is read: parents come before their children
            order.extend(node.children.values())
        through: dict[_Node, int] = {}
        for node in reversed(order):
            below = [through.pop(child) for child in node.children.values()]
            through[node] = requests = node.ended + sum(below)
            if requests > 1 and max(below, default=0) < requests:
                yield SharedPrefix(node.depth, requests, node.owner)

    def _walk(self, start: _Node, ids: Ids) -> tuple[_Node, int, int]:
        """Follow `ids` from a node: the last node touched, the tokens matched, and how many of them lie on its edge.

        Those are the whole edge, or fewer where the sequence leaves or ends inside of it. A long way leaves skips.
        """
        node, done, n = start, 0, ids.size
        inside = node.edge.size
        mark, marked, steps = node, 0, 0
        while done < n:
            target = node.leap(ids[done:]) if node.skip is not None else None
            if target is not None:
                done += target.depth - node.depth
                node, inside = target, target.edge.size
                mark, marked, steps = node, done, 0
                continue
            child = node.children.get(ids.item(done))
            if child is None:
                break
            node = child
            inside = common(node.edge, ids[done:])
            done += inside
            if inside < node.edge.size:
                break
            steps += 1
            if steps == _SKIP:
                mark.skip = (ids[marked:done].copy(), node)
                mark, marked, steps = node, done, 0
        return node, done, inside

    @staticmethod
    def _result(node: _Node, done: int, inside: int) -> Match:
        if done == 0:
            return NOTHING
        return Match(done, node.owner, node.ended > 0 and inside == node.edge.size)

    def _append(self, node: _Node, done: int, inside: int, ids: Ids, owner: int) -> _Node:
        """Store what a walk did not find; give the node at which the sequence ends."""
        if inside < node.edge.size:
            node.split(inside)
        if done == ids.size:
            return node
        leaf = _Node(ids[done:].copy(), owner, node.depth + ids.size - done)
        node.children[ids.item(done)] = leaf
        self.distinct += ids.size - done
        return leaf
