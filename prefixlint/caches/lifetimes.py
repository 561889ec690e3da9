"""A cache without a limit of memory whose entries live for a time: since their last use, or since they were written.

Also what an unlimited cache knows when stored prompts become visible only later, and where stored sequences end or
part, which is all that a cache of whole units can match.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from prefixlint.radix import common

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ids = NDArray[np.uint32]


class Alive(NamedTuple):
    """What of a sequence is stored and alive.

    `length` counts its leading elements that are. `whole` is the part of them that ends where a stored sequence ended,
    or where two of them were found to part. `stored` counts those that were ever stored.
    """

    length: int
    whole: int
    stored: int


class _Node:
    __slots__ = ("children", "key", "since")

    def __init__(self, key: Ids, since: float) -> None:
        self.key = key
        self.since = since
        self.children: dict[int, _Node] = {}

    def split(self, at: int) -> None:
        lower = _Node(self.key[at:], self.since)
        lower.children = self.children
        self.key, self.children = self.key[:at], {lower.key.item(0): lower}


class LifetimeTree:
    """The sequences of one namespace; entries live `ttl` seconds, to the end of the last one.

    `sliding` entries live since they were last used, others since they were written; one that has expired is written
    anew when it is stored again. Times must not run backwards.
    """

    def __init__(self, ttl: float = math.inf, *, sliding: bool = True) -> None:
        self._ttl = ttl
        self._sliding = sliding
        self._root = _Node(np.empty(0, np.uint32), math.inf)

    def match(self, ids: Ids, now: float, *, use: bool = False) -> Alive:
        """Look a sequence up.

        `use` begins the lifetime of what is alive of it again, where that counts from the last use.
        """
        refresh = use and self._sliding and self._ttl < math.inf
        node, done, alive, whole, dead = self._root, 0, 0, 0, False
        while done < ids.size:
            child = node.children.get(ids.item(done))
            if child is None:
                break
            same = common(child.key, ids[done:])
            done += same
            dead = dead or now - child.since > self._ttl
            ends = same < child.key.size
            if not dead:
                alive = done
                if not ends:
                    whole = done
                if refresh:
                    if ends:
                        child.split(same)
                    child.since = now
            if ends:
                break
            node = child
        return Alive(alive, whole, done)

    def store(self, ids: Ids, now: float) -> None:
        """Write a sequence: what is alive of it is used, what is not is written."""
        node, done = self._root, 0
        while done < ids.size:
            child = node.children.get(ids.item(done))
            if child is None:
                node.children[ids.item(done)] = _Node(ids[done:].copy(), now)
                return
            same = common(child.key, ids[done:])
            if same < child.key.size:
                child.split(same)
            if self._sliding or now - child.since > self._ttl:
                child.since = now
            done += same
            node = child
