"""Which earlier request each request should have continued, and where their text first differs.

`check`, `analyze` and `diff` share it: no tokenizer, only the wire order of bodies (`bodies`). A request is compared
with the one before it in its session; without sessions, with the recent one that shares the most leading text.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from prefixlint.bodies import Difference, Leaf, common_prefix, first_difference, leaves
from prefixlint.model import Messages, Request, Text

KEEP = 256
"""Requests whose bodies are kept for comparison; older ones have no successors."""
_NEAR = 8
"""Last requests of which the most similar is taken, among those that share equally many whole strings."""


@dataclass(frozen=True, slots=True)
class Step:
    """A request and the earlier one that it is compared with; both None where there is nothing to compare with.

    `difference` is None as well where the two are equal; its paths are to be read in `body` and `earlier_body`.
    """

    request: Request
    body: Any
    earlier: Request | None = None
    earlier_body: Any = None
    difference: Difference | None = None


def body_of(request: Request) -> Any:
    """Give the body whose text is compared: the logged one, or one made of the prompt; None without text."""
    if request.body is not None:
        return request.body
    if isinstance(request.content, Messages):
        return {"tools": list(request.content.tools), "messages": list(request.content.messages)}
    return {"prompt": request.content.text} if isinstance(request.content, Text) else None


@dataclass(slots=True)
class _Kept:
    """A request that later ones may continue; `chain[i]` is the hash of its first `i + 1` leaves."""

    request: Request
    body: Any
    cache: tuple[Any, ...]
    chain: tuple[int, ...]
    leaves: tuple[Leaf, ...]


class Pairs:
    """Finds the request that each one continues, among the last `keep`."""

    def __init__(self, keep: int = KEEP) -> None:
        self._keep = keep
        self._kept: OrderedDict[int, _Kept] = OrderedDict()
        self._heads: dict[int, int] = {}
        self._sessions: dict[tuple[Any, ...], int] = {}
        self._recent: deque[int] = deque(maxlen=_NEAR)
        self._count = 0

    def add(self, request: Request) -> Step:
        """Give the request with the one before it, and remember it for later ones."""
        body = body_of(request)
        if body is None:
            return Step(request, None)
        own = self._make(request, body)
        before = self._before(own)
        self._remember(own)
        if before is None:
            return Step(request, body)
        return Step(request, body, before.request, before.body, first_difference(before.body, body))

    def _make(self, request: Request, body: Any) -> _Kept:
        cache = (request.model, request.namespace)
        found = tuple(leaves(body))
        chain: list[int] = []
        last = hash(cache)
        for leaf in found:
            last = hash((last, leaf.path, type(leaf.value), leaf.value))
            chain.append(last)
        return _Kept(request, body, cache, tuple(chain), found)

    def _before(self, own: _Kept) -> _Kept | None:
        session = own.request.session
        if session is not None:
            number = self._sessions.get((*own.cache, session))
            if number is not None and number in self._kept:
                return self._kept[number]
        depth, number = 0, None
        for link in own.chain:
            if link not in self._heads:
                break
            depth, number = depth + 1, self._heads[link]
        best = self._kept[number] if number is not None else None
        return self._nearest(own, depth, best)

    def _nearest(self, own: _Kept, depth: int, best: _Kept | None) -> _Kept | None:
        """Give, of the recent requests that share `depth` leaves, the one whose next text is most like this one's."""
        most = -1 if best is None else _alike(best, own, depth)
        for number in reversed(self._recent):
            other = self._kept.get(number)
            if other is None or other.cache != own.cache or other.chain[:depth] != own.chain[:depth]:
                continue
            shared = _alike(other, own, depth)
            if shared > most:
                best, most = other, shared
        return best

    def _remember(self, own: _Kept) -> None:
        number = self._count
        self._count += 1
        self._kept[number] = own
        self._recent.append(number)
        for link in own.chain:
            self._heads[link] = number
        if own.request.session is not None:
            self._sessions[*own.cache, own.request.session] = number
        if len(self._kept) > self._keep:
            self._forget()

    def _forget(self) -> None:
        number, old = self._kept.popitem(last=False)
        for link in old.chain:
            if self._heads.get(link) == number:
                del self._heads[link]
        if old.request.session is not None and self._sessions.get((*old.cache, old.request.session)) == number:
            del self._sessions[*old.cache, old.request.session]


def _alike(one: _Kept, two: _Kept, depth: int) -> int:
    """Count the equal leading characters of the leaf behind the first `depth`; 0 where one ends there."""
    if depth >= len(one.leaves) or depth >= len(two.leaves):
        return 0
    a, b = one.leaves[depth], two.leaves[depth]
    if a.path != b.path or not isinstance(a.value, str) or not isinstance(b.value, str):
        return 0
    return common_prefix(a.value, b.value)


def steps(requests: Iterable[Request], keep: int = KEEP) -> Iterator[Step]:
    """Give each request with the one that it is compared with, in order."""
    pairs = Pairs(keep)
    for request in requests:
        yield pairs.add(request)
