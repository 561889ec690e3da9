"""The sequences of a log as ways through the one tree that they make.

Once all sequences are known, where they part and where they end stays as it is. A prompt is then a short list of the
tree's nodes, and what caches without a limit of memory ask of it needs no token any more: how far earlier ones went the
same way, and whether two prefixes are the same.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from prefixlint.radix import PrefixIndex

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    import numpy as np
    from numpy.typing import NDArray

    Ids = NDArray[np.uint32]

_SHIFT = 32  # bits of a prefix's name that hold its length


class Ways:
    """The ways of sequences, by their positions in the order in which they came.

    A way is the numbers of nodes, those of all namespaces being different. `depth` gives, by a node's number, the
    elements (tokens, or the blocks of a hash trace) from the beginning of its sequences to its end.
    """

    __slots__ = ("_prompts", "_whole", "depth")

    def __init__(self, trees: Iterable[PrefixIndex], rows: Iterable[int]) -> None:
        """Take them from indexes that noted where they end; `rows` are the owners that were given there, in order."""
        self.depth = array("q")
        whole: dict[int, array[int]] = {}
        prompts: dict[int, int] = {}
        for tree in trees:
            way = array("i")
            for level, depth, ends in tree.nodes():
                if level:
                    del way[level - 1 :]
                    way.append(len(self.depth))
                    self.depth.append(depth)
                if ends:
                    own = way[:]
                    for end in ends:
                        if end & 1:
                            whole[end >> 1] = own
                        else:
                            prompts[end >> 1] = level
        order = list(rows)
        self._whole = [whole[row] for row in order]
        self._prompts = array("i", (prompts.get(row, len(whole[row])) for row in order))

    @classmethod
    def of(cls, sequences: Iterable[tuple[Hashable, Ids, Ids | None]]) -> Ways:
        """Find them for sequences given by namespace, prompt and output."""
        trees: dict[Hashable, PrefixIndex] = {}
        count = 0
        for namespace, prompt, output in sequences:
            if namespace not in trees:
                trees[namespace] = PrefixIndex(noting=True)
            trees[namespace].match_insert(prompt, count, output=output)
            count += 1
        return cls(trees.values(), range(count))

    def __len__(self) -> int:
        """Count the sequences."""
        return len(self._whole)

    def prompt(self, position: int) -> array[int]:
        """Give a prompt's way."""
        whole, count = self._whole[position], self._prompts[position]
        return whole if count == len(whole) else whole[:count]

    def whole(self, position: int) -> array[int]:
        """Give the way of a prompt and the output behind it."""
        return self._whole[position]

    def size(self, position: int) -> int:
        """Give the number of elements of a prompt."""
        count = self._prompts[position]
        return self.depth[self._whole[position][count - 1]] if count else 0

    def names(self, position: int, ends: Iterable[int]) -> list[int]:
        """Name the prefixes of a prompt that have `ends` elements (in its size, not decreasing).

        Equal names are equal prefixes of one namespace; those without an element have one name in all of them.
        """
        way, depth = self._whole[position], self.depth
        names, at = [], 0
        for end in ends:
            if not end:
                names.append(0)
                continue
            while depth[way[at]] < end:
                at += 1
            names.append(way[at] << _SHIFT | end)
        return names
