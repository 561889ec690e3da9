"""An index of token sequences that answers: how much of this one has been seen before, and in which request.

A radix tree whose edges are uint32 arrays. Walking an edge is one vectorised comparison, so a lookup costs about two
microseconds an edge and not a step a token. What is kept is one copy of each distinct prefix: four bytes a distinct
token, and about half a kilobyte for each place where sequences part or end.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import nsmallest
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Ids = NDArray[np.uint32]

_PROBE = 512  # tokens compared at once while an edge still differs early; beyond it the rest of the edge is compared


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
    """One edge of the tree with what hangs below it. `count` is the number of sequences that run through its end."""

    __slots__ = ("children", "count", "edge", "ends", "owner")

    def __init__(self, edge: Ids, owner: int) -> None:
        self.edge = edge
        self.owner = owner
        self.count = 1
        self.ends = False
        self.children: dict[int, _Node] = {}

    def split(self, at: int) -> None:
        """Cut the edge behind its first `at` tokens: this node keeps them, a new one below it takes the rest."""
        lower = _Node(self.edge[at:], self.owner)
        lower.count, lower.ends, lower.children = self.count, self.ends, self.children
        self.edge, self.ends, self.children = self.edge[:at], False, {lower.edge.item(0): lower}


def _common(a: Ids, b: Ids) -> int:
    """Count the equal leading tokens of two arrays."""
    n = min(a.size, b.size)
    if n > 2 * _PROBE:
        head = _common(a[:_PROBE], b[:_PROBE])
        if head < _PROBE:
            return head
    same = a[:n] == b[:n]
    first = int(same.argmin()) if n else 0
    return n if n == 0 or same[first] else first


class PrefixIndex:
    """The sequences of one namespace, in the order in which they came.

    Token arrays are one-dimensional uint32; rows are non-negative numbers that the caller gives. Arrays handed in are
    never kept: what is new in them is copied.
    """

    def __init__(self) -> None:
        self._root = _Node(np.empty(0, np.uint32), -1)
        self._root.count = 0
        self.distinct = 0
        """Tokens in the tree: the number of distinct prefixes, without the empty one."""

    def match(self, ids: Ids) -> Match:
        """Find the longest prefix of `ids` that an earlier sequence has too, and change nothing."""
        node, done, inside = self._walk(ids)
        return self._result(node, done, inside)

    def match_insert(self, ids: Ids, owner: int, *, output: Ids | None = None) -> Match:
        """Match `ids`, then store it, followed by `output`: tokens that later sequences may match but this one not."""
        node, done, inside = self._walk(ids, counting=True)
        result = self._result(node, done, inside)
        node = self._append(node, done, inside, ids, owner)
        if output is not None and output.size:
            node, done, inside = self._walk(output, start=node, counting=True)
            node = self._append(node, done, inside, output, owner)
        node.ends = True
        return result

    def shared_prefixes(self, top: int, *, min_tokens: int = 1) -> list[SharedPrefix]:
        """List the prefixes that save most, as (requests - 1) x length, in that order.

        A prefix counts only where it could not be longer with the same requests; `min_tokens` leaves out short ones.
        """
        found = (p for p in self._prefixes() if p.length >= min_tokens)
        return nsmallest(top, found, key=lambda p: (-(p.requests - 1) * p.length, p.owner, p.length))

    def _prefixes(self) -> Iterator[SharedPrefix]:
        stack = [(child, 0) for child in self._root.children.values()]
        while stack:
            node, above = stack.pop()
            if node.count < 2:
                continue
            length = above + node.edge.size
            if all(child.count < node.count for child in node.children.values()):
                yield SharedPrefix(length, node.count, node.owner)
            stack.extend((child, length) for child in node.children.values())

    def _walk(self, ids: Ids, *, start: _Node | None = None, counting: bool = False) -> tuple[_Node, int, int]:
        """Follow `ids` from a node: the last node touched, the tokens matched, and how many of them lie on its edge.

        Those are the whole edge, or fewer where the sequence leaves or ends inside of it. With `counting`, one is added
        to the count of each node that is run through to its end.
        """
        node, done, n = start or self._root, 0, ids.size
        inside = node.edge.size
        if counting and start is None:
            node.count += 1
        while done < n:
            child = node.children.get(ids.item(done))
            if child is None:
                break
            node = child
            edge = node.edge
            inside = _common(edge, ids[done:])
            done += inside
            if inside < edge.size:
                break
            if counting:
                node.count += 1
        return node, done, inside

    @staticmethod
    def _result(node: _Node, done: int, inside: int) -> Match:
        if done == 0:
            return NOTHING
        return Match(done, node.owner, node.ends and inside == node.edge.size)

    def _append(self, node: _Node, done: int, inside: int, ids: Ids, owner: int) -> _Node:
        """Store what a walk did not find; give the node at which the sequence ends."""
        if inside < node.edge.size:
            node.split(inside)
            node.count += 1
        if done == ids.size:
            return node
        leaf = _Node(ids[done:].copy(), owner)
        node.children[ids.item(done)] = leaf
        self.distinct += ids.size - done
        return leaf
