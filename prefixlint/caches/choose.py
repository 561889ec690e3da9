"""Which cache an engine has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefixlint.caches.blocks import BlockCache
from prefixlint.caches.lru import LruCache
from prefixlint.caches.pages import POLICIES, PageCache, ranking
from prefixlint.caches.slots import SLOTS, SlotCache

if TYPE_CHECKING:
    from prefixlint.caches import Cache, Tier
    from prefixlint.engines import Engine

OPTIMAL = "opt"
EVICTIONS = (*POLICIES, "tlru:1000+200", OPTIMAL)
"""What --eviction may name; only a radix tree that evicts leaves has a choice besides `lru` and the optimum.

The numbers of tail-optimised LRU are an example: see `pages.ranking`.
"""

_PART_BLOCKS = 32  # TensorRT-LLM's tokens_per_block, where the engine's granularity is one token


def build(
    engine: Engine, capacity: int | None, eviction: str | None, *, of_blocks: bool = False, host: int | None = None
) -> Cache | None:
    """Give a cache of `capacity` elements with the engine's structure; None where nothing bounds it.

    `of_blocks`: elements are the blocks of a hash trace, and a prompt's last one may come from the cache. `host` is
    the host cache of llama.cpp. ValueError for a capacity that holds no block.
    """
    if engine.match == "slot":
        return SlotCache(capacity, slots=engine.slots or SLOTS, host=host or 0)
    if capacity is None:
        return None
    size = 1 if of_blocks else engine.granularity
    if engine.eviction == "lru_leaf":
        chunk = None if of_blocks else engine.prefill_chunk
        return PageCache(capacity, page=size, policy=eviction or "lru", computed=0 if of_blocks else 1, chunk=chunk)
    if engine.eviction == "lru_block":
        return BlockCache(capacity, block=size, computed=0 if of_blocks else 1)
    if engine.eviction == "lru_path":
        return LruCache(capacity, block=size, first="head", partial=size == 1)
    if engine.eviction == "lru_tail":
        size = size if size > 1 or of_blocks else _PART_BLOCKS
        return LruCache(capacity, block=size, first="tail", outputs=engine.stored == "prompt_and_output")
    return None


def build_tier(engine: Engine, capacity: int, *, of_blocks: bool = False) -> Tier | None:
    """Give the host memory of `capacity` elements behind an engine's cache; None where it is part of the cache.

    It evicts for itself: leaves of a tree, as SGLang's HiCache does, blocks elsewhere. ValueError for a capacity that
    holds no block.
    """
    if engine.match == "slot":
        return None
    size = 1 if of_blocks else engine.granularity
    if engine.eviction == "lru_leaf":
        return PageCache(capacity, page=size, computed=0)
    size = size if size > 1 or of_blocks else _PART_BLOCKS
    return LruCache(capacity, block=size, first="tail")


def is_eviction(name: str) -> bool:
    """Whether --eviction takes this name."""
    return name == OPTIMAL or ranking(name) is not None


def has_policies(engine: Engine) -> bool:
    """Whether an engine lets one choose what it evicts."""
    return engine.eviction == "lru_leaf"


def has_capacity(engine: Engine) -> bool:
    """Whether an engine's memory is one's own to bound; a provider's is not known."""
    return engine.eviction != "unknown"
