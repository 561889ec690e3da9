"""vLLM's automatic prefix caching: a chain of block hashes over a queue of free blocks.

Equal to vllm 0.32.0, v1/core/block_pool.py and kv_cache_manager.py, for one full-attention group, in the hits of every
request and in the order of the free queue, which tests/oracles compares; 0.33.0 reads the same. Blocks are registered
when they are allocated, so that a request finds those of one that still runs; a finished request's blocks are freed
tail first; those without a hash are used again first.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prefixlint.caches.names import chain

if TYPE_CHECKING:
    from collections.abc import Hashable

    import numpy as np
    from numpy.typing import NDArray

    Ids = NDArray[np.uint32]


@dataclass(slots=True)
class BlockTicket:
    """A running request: its blocks, the hash of the last full one, and the elements behind it."""

    hit: int
    size: int
    blocks: list[int]
    parent: int
    tail: bytes


class BlockCache:
    """A pool of `capacity` tokens in blocks of `block`.

    `null_block` sets one block aside, as vLLM does: of N blocks, N - 1 are usable. `computed` tokens of a prompt's end
    are never looked up. ValueError for a pool without a usable block.
    """

    def __init__(self, capacity: int, *, block: int = 16, null_block: bool = True, computed: int = 1) -> None:
        count = capacity // block - null_block if block > 0 else 0
        if count < 1:
            raise ValueError(f"a pool of {capacity} tokens in blocks of {block}")
        self._block = block
        self._computed = computed
        self._count = count
        # the queue of free blocks in three parts, in this order: those freed without a hash, the last one first; those
        # never taken, which only their number stands for, so that a pool costs no memory before it is used; the others
        self._bare: list[int] = []
        self._free: OrderedDict[int, None] = OrderedDict()
        self._users: list[int] = []  # of the blocks that were ever taken, like their hashes
        self._hash: list[int | None] = []
        self._cached: dict[int, int] = {}  # by hash, the block that was registered first
        self._others: dict[int, list[int]] = {}  # and those with the same one that were registered after it

    def fits(self, size: int) -> bool:
        """Say whether a prompt of that size fits when nothing else runs."""
        return -(-size // self._block) <= self._count

    def admit(self, namespace: Hashable, prompt: Ids) -> BlockTicket | None:
        """Find the cached full blocks before the last token, and take new blocks for the rest."""
        size = self._block
        seed = hash((None, namespace))
        hashes = chain(seed, prompt.tobytes(), size * prompt.itemsize)
        found = self._find(hashes[: max(prompt.size - self._computed, 0) // size])
        needed = -(-prompt.size // size) - len(found)
        users, free = self._users, self._free
        idle = [block for block in found if not users[block]]
        if needed + len(idle) > self._idle():
            return None
        for block in idle:
            del free[block]
        for block in found:
            users[block] += 1
        blocks = found + self._take(needed)
        cached, named = self._cached, self._hash
        for block, digest in zip(blocks[len(found) :], hashes[len(found) :], strict=False):
            named[block] = digest
            if cached.setdefault(digest, block) != block:
                self._others.setdefault(digest, []).append(block)
        tail = prompt[len(hashes) * size :].tobytes()
        return BlockTicket(len(found) * size, prompt.size, blocks, hashes[-1] if hashes else seed, tail)

    def prefilled(self, ticket: BlockTicket) -> None:
        """Do nothing: blocks were registered when they were allocated."""

    def generate(self, ticket: BlockTicket, tokens: Ids) -> int:
        """Take a block where the last one is full; register a block once generated tokens have filled it."""
        size = self._block
        room = len(ticket.blocks) * size - ticket.size
        done = min(tokens.size, room + self._idle() * size)
        ticket.blocks += self._take(-(-max(done - room, 0) // size))
        data = ticket.tail + tokens[:done].tobytes()
        step = size * tokens.itemsize
        first = ticket.size // size
        hashes = chain(ticket.parent, data, step)
        for i, digest in enumerate(hashes):
            self._register(ticket.blocks[first + i], digest)
        if hashes:
            ticket.parent = hashes[-1]
        full = len(hashes)
        ticket.tail = data[full * step :]
        ticket.size += done
        return done

    def finish(self, ticket: BlockTicket) -> None:
        """Free the blocks: hashed ones to the right of the queue, the tail first; one without a hash to the left."""
        users, free, bare, hashes = self._users, self._free, self._bare, self._hash
        for block in reversed(ticket.blocks):
            users[block] -= 1
            if users[block]:
                continue
            if hashes[block] is None:
                bare.append(block)
            else:
                free[block] = None

    def free_queue(self) -> list[int]:
        """Give the numbers of the free blocks, the one that is taken next first."""
        return [*reversed(self._bare), *range(len(self._users), self._count), *self._free]

    def _idle(self) -> int:
        """Count the free blocks."""
        return len(self._bare) + self._count - len(self._users) + len(self._free)

    def _find(self, hashes: list[int]) -> list[int]:
        """Give the blocks of the leading hashes that are cached; of duplicates the one registered first."""
        found = []
        cached = self._cached
        for digest in hashes:
            block = cached.get(digest)
            if block is None:
                break
            found.append(block)
        return found

    def _take(self, count: int) -> list[int]:
        """Take blocks from the left of the free queue; their hashes go with that, and not before."""
        taken: list[int] = []
        users, free, bare, hashes = self._users, self._free, self._bare, self._hash
        while bare and len(taken) < count:
            block = bare.pop()
            users[block] = 1
            taken.append(block)
        unused = min(count - len(taken), self._count - len(users))
        if unused:
            taken += range(len(users), len(users) + unused)
            users += [1] * unused
            hashes += [None] * unused
        for _ in range(count - len(taken)):
            block, _ = free.popitem(last=False)
            users[block] = 1
            digest = hashes[block]
            if digest is not None:
                self._forget(block, digest)
            taken.append(block)
        return taken

    def _register(self, block: int, digest: int) -> None:
        self._hash[block] = digest
        if self._cached.setdefault(digest, block) != block:
            self._others.setdefault(digest, []).append(block)

    def _forget(self, block: int, digest: int) -> None:
        self._hash[block] = None
        others = self._others.get(digest)
        if others is None:
            del self._cached[digest]
            return
        if self._cached[digest] == block:
            self._cached[digest] = others.pop(0)
        else:
            others.remove(block)
        if not others:
            del self._others[digest]
