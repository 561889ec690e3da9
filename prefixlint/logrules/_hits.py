"""What one comparison of two requests shows: hits, and the place in the logged bodies at which they stand."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from prefixlint import bodies
from prefixlint.logrules._message import bare

MESSAGES = 2
"""The first number of a hit's rank where it is about messages, and not about what stands ahead of them."""


@dataclass(frozen=True, slots=True)
class At:
    """A place in a logged body: `char` counts equal leading characters of the string at `path`."""

    path: str
    char: int
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class Hit:
    """One cause seen in one pair of requests (or in one request).

    `rank` orders the hits of a pair as the model reads them: the first one ends the shared prefix, the others stand
    behind it. `key` is equal for hits of one cause. `same` tells turns of a conversation from siblings of a template.
    `tail` are characters behind the place that both requests have: what is computed again for its sake.
    """

    code: str
    kind: str
    rank: tuple[int, int, int]
    at: At
    key: tuple[Any, ...]
    what: str
    before: str
    after: str
    same: bool
    tail: int = 0
    sure: int = 3
    mild: bool = False


def at(path: str, earlier: Any, later: Any, *, unmarked: bool = False) -> At:
    """Find the first difference of two values, of which the later one stands at a path of its body.

    A key or element that only one side has is named itself; where both sides have something else at the same place,
    the place is named. `unmarked` says that neither holds cache markers, which spares looking for them.
    """
    if not unmarked:
        earlier, later = bare(earlier), bare(later)
    pairs = zip_longest(bodies.walk(path, earlier), bodies.walk(path, later))
    for a, b in pairs:
        if a is None or b is None:
            leaf = a or b
            return At(leaf.path, 0, a and a.value, b and b.value)
        if a.path != b.path:
            return _missing(path, a, b, list(bodies.walk(path, earlier)), list(bodies.walk(path, later)))
        if a.value != b.value or type(a.value) is not type(b.value):
            char = 0
            if isinstance(a.value, str) and isinstance(b.value, str):
                char = bodies.common_prefix(a.value, b.value)
            return At(b.path, char, a.value, b.value)
    return At(path, 0, None, None)


def _missing(path: str, a: bodies.Leaf, b: bodies.Leaf, ours: list[bodies.Leaf], theirs: list[bodies.Leaf]) -> At:
    in_later = any(leaf.path == a.path for leaf in theirs)
    in_earlier = any(leaf.path == b.path for leaf in ours)
    if in_later or in_earlier:
        gone = in_earlier and not in_later
        return At(a.path if gone else b.path, 0, a.value, b.value)
    shared = a.path[: bodies.common_prefix(a.path, b.path)]
    cut = max((shared.rfind(sign) for sign in ".["), default=-1)
    if a.path.startswith(b.path) or b.path.startswith(a.path):
        shared = min(a.path, b.path, key=len)
    elif cut > 0:
        shared = shared[:cut]
    return At(shared if len(shared) >= len(path) else b.path, 0, a.value, b.value)


def short(value: Any) -> str:
    """Give a value as a line of text."""
    if value is None:
        return ""
    return value if isinstance(value, str) else repr(value)
