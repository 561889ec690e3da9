"""Least recently used blocks, each for itself, named by their path: traces, LMCache, TensorRT-LLM, a host tier.

A prefix of blocks is found as far as all of them are there.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from prefixlint.caches.names import chain

if TYPE_CHECKING:
    from collections.abc import Hashable

    from numpy.typing import NDArray

    Ids = NDArray[np.uint32]


@dataclass(slots=True)
class LruTicket:
    """A request: the name before its first block, and those of its prompt's; nothing is held."""

    hit: int
    start: int
    names: list[int]
    prompt: Ids
    output: list[Ids] = field(default_factory=list)


class LruCache:
    """A pool of `capacity` elements in blocks of `block`.

    `first` is the end of a prompt that is used first: with `head`, in the order in which they are read, its tail is
    the newest and its head goes before it; with `tail`, as vLLM frees blocks, a head outlives its tail. `partial` says
    whether a last block that is not full is kept as well, `outputs` whether generated tokens are stored. ValueError
    for a pool without a block.
    """

    def __init__(
        self,
        capacity: int,
        *,
        block: int = 1,
        first: Literal["head", "tail"] = "head",
        partial: bool = False,
        outputs: bool = False,
    ) -> None:
        self._most = capacity // block if block > 0 else 0
        if self._most < 1:
            raise ValueError(f"a pool of {capacity} in blocks of {block}")
        self._block = block
        self._tail_first = first == "tail"
        self._partial = partial
        self._outputs = outputs
        self._used: OrderedDict[int, None] = OrderedDict()

    def fits(self, size: int) -> bool:  # noqa: ARG002  # the protocol's
        """Say yes: a prompt that is larger than the pool leaves its end there."""
        return True

    def find(self, namespace: Hashable, prompt: Ids) -> int:
        """Give the leading elements whose blocks are all there; nothing changes."""
        return self._leading(self._names(namespace, prompt), prompt)

    def keep(self, namespace: Hashable, ids: Ids) -> None:
        """Store a sequence that was computed elsewhere."""
        self._use(self._names(namespace, ids))

    def admit(self, namespace: Hashable, prompt: Ids) -> LruTicket:
        """Find the leading blocks that are all there, then use all of the prompt's blocks."""
        names = self._names(namespace, prompt)
        hit = self._leading(names, prompt)
        self._use(names)
        return LruTicket(hit, _start(namespace), names, prompt)

    def prefilled(self, ticket: LruTicket) -> None:
        """Do nothing: a prompt counts as used when it is looked up."""

    def generate(self, ticket: LruTicket, tokens: Ids) -> int:
        """Remember generated tokens, where they are stored."""
        if self._outputs:
            ticket.output.append(tokens.copy())
        return tokens.size

    def finish(self, ticket: LruTicket) -> None:
        """Use the blocks of the prompt and of what was generated."""
        if ticket.output:
            done = len(ticket.names) if not self._partial else ticket.prompt.size // self._block
            names = ticket.names[:done]
            rest = np.concatenate((ticket.prompt[done * self._block :], *ticket.output))
            parent = names[-1] if names else ticket.start
            self._use(names + chain(parent, rest.tobytes(), self._block * rest.itemsize, partial=self._partial))

    def _leading(self, names: list[int], prompt: Ids) -> int:
        found = 0
        for name in names:
            if name not in self._used:
                break
            found += 1
        return min(found * self._block, prompt.size)

    def _use(self, names: list[int]) -> None:
        used, most = self._used, self._most
        for name in reversed(names) if self._tail_first else names:
            if name in used:
                used.move_to_end(name)
                continue
            used[name] = None
            if len(used) > most:
                used.popitem(last=False)

    def _names(self, namespace: Hashable, prompt: Ids) -> list[int]:
        """Name each block by the path to it."""
        return chain(_start(namespace), prompt.tobytes(), self._block * prompt.itemsize, partial=self._partial)


def _start(namespace: Hashable) -> int:
    return hash((None, namespace))
