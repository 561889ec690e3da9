"""Belady's optimum: what a cache of blocks could give that knew the future; no policy of eviction gives more."""

from __future__ import annotations

import heapq
from array import array
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from numpy.typing import NDArray

    Ids = NDArray[np.uint32]

_NEVER = 1 << 62


def optimum(prompts: Iterable[tuple[Hashable, Ids]], capacity: int, *, block: int = 1) -> NDArray[np.int64]:
    """Give the leading elements that each prompt finds in a pool of `capacity` elements that evicts optimally.

    Blocks are named by their path (namespace first); a last block that is not full counts where `block` is 1 only. What
    is used again latest is evicted first, the deepest block of those used at the same time, and a block that would be
    evicted at once is not stored. Needs all prompts before it answers: four bytes for each block of each of them.
    ValueError for a pool without a block.
    """
    most = capacity // block if block > 0 else 0
    if most < 1:
        raise ValueError(f"a pool of {capacity} in blocks of {block}")
    names, ends = _names(prompts, block)
    again = _next_uses(names, ends)
    stored: dict[int, tuple[int, int]] = {}  # block -> (minus its next use, minus its depth): least goes first
    heap: list[tuple[int, int, int]] = []
    hits = np.zeros(len(ends) - 1, np.int64)
    for number in range(len(ends) - 1):
        begin, end = ends[number], ends[number + 1]
        found, whole = 0, True
        for depth, (name, use) in enumerate(zip(names[begin:end], again[begin:end], strict=True)):
            whole = whole and name in stored
            found += whole
            if use == _NEVER:
                stored.pop(name, None)
                continue
            rank = (-use, -depth)
            known = name in stored
            stored[name] = rank
            heapq.heappush(heap, (*rank, name))
            if not known and len(stored) > most:
                _evict(stored, heap)
        hits[number] = found * block
    return hits


def _evict(stored: dict[int, tuple[int, int]], heap: list[tuple[int, int, int]]) -> None:
    while True:
        use, depth, name = heapq.heappop(heap)
        if stored.get(name) == (use, depth):
            del stored[name]
            return


def _names(prompts: Iterable[tuple[Hashable, Ids]], block: int) -> tuple[array[int], list[int]]:
    paths: dict[tuple[Hashable, bytes], int] = {}
    names, ends = array("I"), [0]
    for namespace, prompt in prompts:
        parent: Hashable = (namespace,)  # never equal to a number
        for start in range(0, prompt.size - block + 1, block):
            key = (parent, prompt[start : start + block].tobytes())
            number = paths.setdefault(key, len(paths))
            parent = number
            names.append(number)
        ends.append(len(names))
    return names, ends


def _next_uses(names: array[int], ends: list[int]) -> array[int]:
    """Give for each block of each prompt the number of the prompt that uses it next."""
    last: dict[int, int] = {}
    again = array("q", [_NEVER]) * len(names)
    for number in range(len(ends) - 2, -1, -1):
        for i in range(ends[number], ends[number + 1]):
            again[i] = last.get(names[i], _NEVER)
            last[names[i]] = number
    return again
