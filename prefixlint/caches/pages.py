"""SGLang's cache: a radix tree over pages that evicts whole leaves.

Equal to sglang 0.5.23 in the hits of every request, which tests/oracles compares: to srt/mem_cache/radix_cache.py with
evict_policy.py, and, for the policies that a server can be started with, to unified_radix_cache.py, its default.
"""

from __future__ import annotations

import heapq
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from prefixlint.radix import common

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from numpy.typing import NDArray

    Ids = NDArray[np.uint32]

_PROTECTED_HITS = 2  # sglang 0.5.23, evict_policy.py, SLRUStrategy: protected_threshold
_SLACK = 64  # stale entries that the heap of leaves may hold besides three for each leaf


class _Node:
    """One edge of the tree, called `name` among its parent's children; `used` and `born` are ticks of a clock.

    `end` counts the tokens of its path, `history` those of the longest path that ever went through it.
    """

    __slots__ = (
        "born", "children", "end", "history", "hits", "key", "locks", "name", "number", "parent", "priority", "used",
    )  # fmt: skip

    def __init__(self, key: Ids, name: Any, parent: _Node | None, tick: int, priority: int = 0) -> None:
        self.key = key
        self.name = name
        self.parent = parent
        self.children: dict[Any, _Node] = {}
        self.locks = 0
        self.hits = 0
        self.priority = priority
        self.number = self.used = self.born = tick
        self.end: int = 0 if parent is None else parent.end + key.size
        self.history = self.end


_POLICIES: dict[str, Callable[[_Node], tuple[int, int]]] = {
    "lru": lambda n: (n.used, 0),
    "lfu": lambda n: (n.hits, n.used),
    "fifo": lambda n: (n.born, 0),
    "mru": lambda n: (-n.used, 0),
    "filo": lambda n: (-n.born, 0),
    "priority": lambda n: (n.priority, n.used),
    "slru": lambda n: (int(n.hits >= _PROTECTED_HITS), n.used),
}
POLICIES = tuple(_POLICIES)
"""The eviction policies: what is evicted first is the leaf whose rank is least. `tlru:THRESHOLD` is one as well."""

_TLRU = re.compile(r"tlru:([1-9]\d{0,8})(?:\+(\d{1,9}))?")


def ranking(policy: str) -> Callable[[_Node], tuple[int, int]] | None:
    """Give how a policy ranks leaves; None for a name that is none.

    `tlru:1000+200` (tail-optimised LRU, arXiv:2510.15152) first lets go of what a conversation does not need: the next
    request brings 200 tokens more, of which together with evicted ones 1,000 may be computed.
    """
    match = _TLRU.fullmatch(policy)
    if match is None:
        return _POLICIES.get(policy)
    spare = int(match[1]) - int(match[2] or 0)
    return (lambda n: (-int(n.end - n.key.size >= max(n.history - spare, 0)), n.used)) if spare > 0 else None


@dataclass(slots=True)
class PageTicket:
    """A running request: `node` is the deepest one it holds, `protected` the tokens above its end.

    `size` counts the prompt and what was generated, `inserted` how much of it is in the tree by its own doing, `held`
    the tokens of pool that it has taken and not given to the tree, in whole pages. `chunked` says that the chunks of
    its prompt are stored.
    """

    namespace: Hashable
    prompt: Ids
    hit: int
    node: _Node
    protected: int
    size: int
    held: int
    inserted: int = 0
    chunked: bool = False
    output: list[Ids] = field(default_factory=list)


class PageCache:
    """A pool of `capacity` tokens, cut to whole pages.

    `page` is the page size in tokens, `policy` what `ranking` takes; `computed` tokens of a prompt's end are never
    looked up. The part of a prompt that is not found is stored in steps of `chunk` tokens (None: at once). `evicted`
    counts tokens evicted so far. ValueError where one of them is not possible.
    """

    def __init__(
        self, capacity: int, *, page: int = 1, policy: str = "lru", computed: int = 1, chunk: int | None = None
    ) -> None:
        if page < 1 or capacity < page:
            raise ValueError(f"a pool of {capacity} tokens in pages of {page}")
        rank = ranking(policy)
        if rank is None:
            raise ValueError(f"no eviction policy is called {policy!r}")
        self._page = page
        self._computed = computed
        self._chunk = chunk
        self._rank = rank
        self._clock = 0
        self._root = _Node(np.empty(0, np.uint32), None, None, 0)
        self._root.locks = 1
        self._free = self._all = capacity // page * page
        self._evictable = 0
        self._leaves: dict[_Node, tuple[int, int]] = {}
        self._heap: list[tuple[tuple[int, int], int, _Node]] = []
        self.evicted = 0

    def fits(self, size: int) -> bool:
        """Say whether a prompt of that size fits when nothing else runs."""
        return -(-size // self._page) * self._page <= self._all

    def find(self, namespace: Hashable, prompt: Ids) -> int:
        """Give how much of a prompt is there, which counts as its use."""
        return self._match(namespace, prompt)[1]

    def keep(self, namespace: Hashable, ids: Ids) -> None:
        """Store a sequence that was computed elsewhere, where it fits."""
        ticket = self.admit(namespace, ids)
        if ticket is not None:
            self.finish(ticket)

    def admit(self, namespace: Hashable, prompt: Ids) -> PageTicket | None:
        """Match all but the last token, lock the path, and take pages for the rest."""
        node, hit = self._match(namespace, prompt[: max(prompt.size - self._computed, 0)])
        self._lock(node)
        rest, taken = prompt.size - hit, -(-prompt.size // self._page) * self._page - hit
        if taken > self._free + self._evictable:
            self._unlock(node)
            return None
        # a paged allocation asks for one page more than it needs (sglang, alloc_paged_token_slots_extend)
        self._make_room(rest if self._page == 1 else rest + self._page)
        self._free -= taken
        return PageTicket(namespace, prompt, hit, node, hit, prompt.size, taken)

    def prefilled(self, ticket: PageTicket) -> None:
        """Put the computed prompt into the tree, where requests of other batches find it."""
        self._store_chunks(ticket)
        self._store(ticket, ticket.prompt, split=False)

    def generate(self, ticket: PageTicket, tokens: Ids) -> int:
        """Take pages for generated tokens, as long as something can be evicted."""
        page = self._page
        fits = (self._free + self._evictable) // page * page + -ticket.size % page
        done = min(tokens.size, fits)
        taken = -(-(ticket.size + done) // page) * page - -(-ticket.size // page) * page
        # each step asks for a page before it takes one or not; asking once for all of them evicts the same leaves
        last_takes = done > 0 and (ticket.size + done - 1) % page == 0
        if done:
            self._make_room(taken if last_takes else taken + page)
        self._free -= taken
        ticket.held += taken
        ticket.size += done
        ticket.output.append(tokens[:done].copy())
        return done

    def finish(self, ticket: PageTicket) -> None:
        """Store what was computed, give a last partial page back, and release the path."""
        self._store_chunks(ticket)
        ids = np.concatenate((ticket.prompt, *ticket.output)) if ticket.output else ticket.prompt
        self._store(ticket, ids, split=True)
        self._free += ticket.held
        ticket.held = 0
        self._unlock(ticket.node)

    def _store_chunks(self, ticket: PageTicket) -> None:
        """Store the prompt chunk by chunk, but for the last one, unless that was done."""
        if self._chunk is not None and not ticket.chunked:
            for end in range(ticket.hit + self._chunk, ticket.prompt.size, self._chunk):
                self._store(ticket, ticket.prompt[:end], split=False)
        ticket.chunked = True

    def _store(self, ticket: PageTicket, ids: Ids, *, split: bool) -> None:
        """Insert the whole pages of what a request has computed; pages that the tree had already are given back."""
        whole = ids.size // self._page * self._page
        if not whole:
            return
        found = self._insert(ticket.namespace, ids[:whole], 0, ticket.inserted)
        ticket.inserted = max(ticket.inserted, whole)
        prompt = ticket.prompt.size // self._page * self._page
        if split and 0 < prompt < whole:
            self._insert(ticket.namespace, ids[:prompt], 1, prompt)
        duplicates = max(0, found - ticket.protected)
        self._free += duplicates
        ticket.held -= whole - ticket.protected
        node, length = self._match(ticket.namespace, ids[:whole])
        assert length == whole
        self._lock(node)
        self._unlock(ticket.node)
        ticket.node, ticket.protected = node, whole

    def _tick(self) -> int:
        self._clock += 1
        return self._clock

    def _child_key(self, node: _Node, ids: Ids, namespace: Hashable) -> Any:
        first = ids.item(0) if self._page == 1 else ids[: self._page].tobytes()
        return (namespace, first) if node is self._root else first

    def _match(self, namespace: Hashable, ids: Ids) -> tuple[_Node, int]:
        """Find the longest stored prefix in whole pages, refresh it, and end it at a node."""
        ids = ids[: ids.size // self._page * self._page]
        now = self._tick()
        node, done = self._root, 0
        while done < ids.size:
            child = node.children.get(self._child_key(node, ids[done:], namespace))
            if child is None:
                break
            self._use(child, now)
            same = self._common(child.key, ids[done:])
            done += same
            node = child
            if same < child.key.size:
                node = self._split(child, same)
                break
        return node, done

    def _insert(self, namespace: Hashable, ids: Ids, priority: int, inserted: int) -> int:
        """Store a prefix of whole pages; give how much of it was there. `inserted` tokens count as no new hit."""
        now = self._tick()
        node, done = self._root, 0
        node.priority = max(node.priority, priority)
        while done < ids.size:
            child = node.children.get(self._child_key(node, ids[done:], namespace))
            if child is None:
                break
            self._use(child, now)
            same = self._common(child.key, ids[done:])
            done += same
            node = self._split(child, same) if same < child.key.size else child
            node.priority = max(node.priority, priority)
            if done > inserted:
                node.hits += 1
            self._leaf(node)
        found = done
        if done < ids.size:
            name = self._child_key(node, ids[done:], namespace)
            node.children[name] = leaf = _Node(ids[done:].copy(), name, node, self._tick(), priority)
            leaf.hits = int(ids.size > inserted)
            self._raise_history(node, leaf.end)
            self._evictable += leaf.key.size
            self._leaf(node)
            self._leaf(leaf)
        return found

    @staticmethod
    def _raise_history(node: _Node | None, end: int) -> None:
        while node is not None and node.history < end:
            node.history = end
            node = node.parent

    def _common(self, edge: Ids, ids: Ids) -> int:
        return common(edge, ids) // self._page * self._page

    def _use(self, node: _Node, now: int) -> None:
        node.used = now
        if node in self._leaves:
            self._leaf(node)

    def _split(self, child: _Node, at: int) -> _Node:
        """Cut an edge: a new node above takes its first part, with the hits, the locks and the priority."""
        parent = child.parent
        assert parent is not None
        upper = _Node(child.key[:at], child.name, parent, self._tick(), child.priority)
        upper.hits, upper.locks, upper.history = child.hits, child.locks, child.history
        parent.children[child.name] = upper
        child.parent, child.key = upper, child.key[at:]
        child.name = self._child_key(upper, child.key, None)
        upper.children[child.name] = child
        if child in self._leaves:
            self._leaf(child)
        return upper

    def _lock(self, node: _Node) -> None:
        while node is not self._root:
            if node.locks == 0:
                self._evictable -= node.key.size
            node.locks += 1
            self._leaf(node)
            assert node.parent is not None
            node = node.parent

    def _unlock(self, node: _Node) -> None:
        while node is not self._root:
            if node.locks == 1:
                self._evictable += node.key.size
            node.locks -= 1
            self._leaf(node)
            assert node.parent is not None
            node = node.parent

    def _leaf(self, node: _Node) -> None:
        """Keep the heap of leaves that may be evicted up to date for this node."""
        if node.locks or node.children:
            self._leaves.pop(node, None)
            return
        rank = self._rank(node)
        if self._leaves.get(node) != rank:
            self._leaves[node] = rank
            heapq.heappush(self._heap, (rank, node.number, node))
            if len(self._heap) > 3 * len(self._leaves) + _SLACK:
                self._heap = [(rank, leaf.number, leaf) for leaf, rank in self._leaves.items()]
                heapq.heapify(self._heap)

    def _make_room(self, tokens: int) -> None:
        """Evict leaves until so many tokens are free, or nothing is left to evict."""
        while self._free < tokens and self._leaves:
            rank, _, node = heapq.heappop(self._heap)
            if self._leaves.get(node) == rank:
                self._evict(node)

    def _evict(self, node: _Node) -> None:
        parent = node.parent
        assert parent is not None
        del self._leaves[node]
        del parent.children[node.name]
        size = node.key.size
        self._free += size
        self._evictable -= size
        self.evicted += size
        self._leaf(parent)
