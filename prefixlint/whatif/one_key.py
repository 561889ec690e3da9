"""A conversation keeps the cache key or salt of its first turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prefixlint.whatif import _edit
from prefixlint.whatif._examples import Example
from prefixlint.whatif._turn import Turn

CODES = frozenset({"PFX503"})
ORDER = 40

_KEYS = ("cache_salt", "prompt_cache_key")


@dataclass(frozen=True, slots=True)
class _Kept:
    HISTORY: frozenset[str] = frozenset()

    def apply(self, turn: Turn) -> None:
        """Put the first turn's key in."""
        for key in _KEYS:
            value = _edit.get(turn.body, key)
            if isinstance(value, str):
                first = turn.talk.kept.setdefault(key, value)
                if first != value:
                    turn.write(key, first)


def learn(codes: frozenset[str], pairs: Sequence[Example], others: frozenset[str]) -> _Kept | None:
    """Keep keys that stand in the bodies; others are set by what routes the requests."""
    del others
    seen = any(hit.code in codes and hit.at.path in _KEYS for example in pairs for hit in example.hits)
    return _Kept() if seen else None
