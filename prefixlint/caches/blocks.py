"""vLLM's automatic prefix caching: a chain of block hashes over a queue of free blocks.

Equal to vllm 0.32.0, v1/core/block_pool.py and kv_cache_manager.py, for one full-attention group, in the hits of every
request and in the order of the free queue, which tests/oracles compares; 0.33.0 reads the same. Blocks are registered
when they are allocated, so that a request finds those of one that still runs; a finished request's blocks are freed
tail first; those without a hash are used again first.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    import numpy as np
    from numpy.typing import NDArray

    Ids = NDArray[np.uint32]

_HASH_BYTES = 16


@dataclass(slots=True)
class BlockTicket:
    """A running request: its blocks, the hash of the last full one, and the elements behind it."""

    hit: int
    size: int
    blocks: list[int]
    parent: bytes
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
        self._free = OrderedDict.fromkeys(range(count))
        self._users: list[int] = [0] * count
        self._hash: list[bytes | None] = [None] * count
        self._cached: dict[bytes, dict[int, None]] = {}

    def fits(self, size: int) -> bool:
        """Say whether a prompt of that size fits when nothing else runs."""
        return -(-size // self._block) <= len(self._users)

    def admit(self, namespace: Hashable, prompt: Ids) -> BlockTicket | None:
        """Find the cached full blocks before the last token, and take new blocks for the rest."""
        size = self._block
        hashes = list(self._chain(_seed(namespace), prompt))
        found = self._find(hashes[: max(prompt.size - self._computed, 0) // size])
        needed = -(-prompt.size // size) - len(found)
        reused = sum(not self._users[b] for b in found)
        if needed + reused > len(self._free):
            return None
        for block in found:
            if not self._users[block]:
                del self._free[block]
            self._users[block] += 1
        blocks = found + self._take(needed)
        for block, digest in zip(blocks[len(found) :], hashes[len(found) :], strict=False):
            self._register(block, digest)
        tail = prompt[len(hashes) * size :].tobytes()
        parent = hashes[-1] if hashes else _seed(namespace)
        return BlockTicket(len(found) * size, prompt.size, blocks, parent, tail)

    def prefilled(self, ticket: BlockTicket) -> None:
        """Do nothing: blocks were registered when they were allocated."""

    def generate(self, ticket: BlockTicket, tokens: Ids) -> int:
        """Take a block where the last one is full; register a block once generated tokens have filled it."""
        size = self._block
        room = len(ticket.blocks) * size - ticket.size
        done = min(tokens.size, room + len(self._free) * size)
        ticket.blocks += self._take(-(-max(done - room, 0) // size))
        data = ticket.tail + tokens[:done].tobytes()
        step = size * tokens.itemsize
        first = ticket.size // size
        full = len(data) // step
        for i in range(full):
            ticket.parent = _digest(ticket.parent, data[i * step : (i + 1) * step])
            self._register(ticket.blocks[first + i], ticket.parent)
        ticket.tail = data[full * step :]
        ticket.size += done
        return done

    def finish(self, ticket: BlockTicket) -> None:
        """Free the blocks: hashed ones to the right of the queue, the tail first; one without a hash to the left."""
        for block in reversed(ticket.blocks):
            self._users[block] -= 1
            if self._users[block]:
                continue
            self._free[block] = None
            if self._hash[block] is None:
                self._free.move_to_end(block, last=False)

    def free_queue(self) -> list[int]:
        """Give the numbers of the free blocks, the one that is taken next first."""
        return list(self._free)

    def _chain(self, parent: bytes, prompt: Ids) -> Iterator[bytes]:
        """Give the hash of each full block, which stands for everything before it too."""
        data, step = prompt.tobytes(), self._block * prompt.itemsize
        for start in range(0, len(data) - step + 1, step):
            parent = _digest(parent, data[start : start + step])
            yield parent

    def _find(self, hashes: list[bytes]) -> list[int]:
        """Give the blocks of the leading hashes that are cached; of duplicates the one inserted first."""
        found = []
        for digest in hashes:
            blocks = self._cached.get(digest)
            if blocks is None:
                break
            found.append(next(iter(blocks)))
        return found

    def _take(self, count: int) -> list[int]:
        """Take blocks from the left of the free queue; their hashes go with that, and not before."""
        taken = []
        for _ in range(count):
            block, _ = self._free.popitem(last=False)
            self._users[block] = 1
            digest = self._hash[block]
            if digest is not None:
                self._forget(block, digest)
            taken.append(block)
        return taken

    def _register(self, block: int, digest: bytes) -> None:
        self._hash[block] = digest
        self._cached.setdefault(digest, {})[block] = None

    def _forget(self, block: int, digest: bytes) -> None:
        self._hash[block] = None
        blocks = self._cached[digest]
        del blocks[block]
        if not blocks:
            del self._cached[digest]


def _digest(parent: bytes, data: bytes) -> bytes:
    return blake2b(data, digest_size=_HASH_BYTES, key=parent).digest()


def _seed(namespace: Hashable) -> bytes:
    return blake2b(repr(namespace).encode(), digest_size=_HASH_BYTES).digest()
