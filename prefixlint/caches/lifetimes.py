"""A cache without a limit of memory whose entries live for a time: since their last use, or since they were written.

Also what an unlimited cache knows when stored prompts become visible only later, and where stored sequences end or
part, which is all that a cache of whole units can match. Sequences are ways through the tree of all (`ways.Ways`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class Alive(NamedTuple):
    """What of a sequence is stored and alive.

    `length` counts its leading elements that are. `whole` is the part of them that ends where a stored sequence ended,
    or where two of them were found to part. `stored` counts those that were ever stored.
    """

    length: int
    whole: int
    stored: int


class LifetimeTree:
    """Sequences whose nodes' depths are `depth`; entries live `ttl` seconds, to the end of the last one.

    `sliding` entries live since they were last used, others since they were written; one that has expired is written
    anew when it is stored again. Times must not run backwards.
    """

    def __init__(self, depth: Sequence[int], ttl: float = math.inf, *, sliding: bool = True) -> None:
        self._depth = depth
        self._ttl = ttl
        self._sliding = sliding
        self._since: dict[int, float] = {}
        self._borders: set[int] = set()
        """Nodes at whose end a stored sequence ended, or was found to part from another one."""

    def match(self, way: Sequence[int], now: float, *, use: bool = False) -> Alive:
        """Look a sequence up.

        `use` begins the lifetime of what is alive of it again, where that counts from the last use.
        """
        since, borders, ttl = self._since, self._borders, self._ttl
        refresh = use and self._sliding and ttl < math.inf
        stored = alive = whole = -1
        for node in way:
            begun = since.get(node)
            if begun is None:
                break
            if alive == stored and now - begun <= ttl:
                alive = node
                if node in borders:
                    whole = node
                if refresh:
                    since[node] = now
            stored = node
        if refresh and 0 <= alive == stored:
            borders.add(alive)
        depth = self._depth
        reached = depth[stored] if stored >= 0 else 0
        lives = reached if alive == stored else depth[alive] if alive >= 0 else 0
        return Alive(lives, depth[whole] if whole >= 0 else 0, reached)

    def store(self, way: Sequence[int], now: float) -> None:
        """Write a sequence: what is alive of it is used, what is not is written."""
        since, ttl = self._since, self._ttl
        again = ttl < math.inf
        last = -1
        for at, node in enumerate(way):
            begun = since.get(node)
            if begun is None:
                if last >= 0:
                    self._borders.add(last)
                since.update(dict.fromkeys(way[at:], now))
                break
            if again and (self._sliding or now - begun > ttl):
                since[node] = now
            last = node
        if way:
            self._borders.add(way[-1])
