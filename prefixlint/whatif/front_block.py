"""A message that is the same in all conversations and stands behind the history is sent once, ahead of it.

One that is the same within a conversation only stays where the conversation had it first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prefixlint.logrules._message import identify
from prefixlint.whatif._examples import Example
from prefixlint.whatif._turn import Turn

CODES = frozenset({"PFX203"})
ORDER = 40


@dataclass(frozen=True, slots=True)
class _Front:
    keys: frozenset[int]
    HISTORY: frozenset[str] = CODES

    def apply(self, turn: Turn) -> None:
        """Put the messages where the history begins."""
        found = [at for at, message in enumerate(turn.messages) if identify(message)[0] in self.keys]
        if found and found != [*range(len(found))]:
            turn.put_first(found)


def learn(codes: frozenset[str], pairs: Sequence[Example], others: frozenset[str]) -> _Front | None:
    """Learn which messages requests of several conversations end with."""
    del others
    keys = {
        example.later.messages[hit.rank[1]].key
        for example in pairs
        for hit in example.hits
        if hit.code in codes and not hit.same
    }
    return _Front(frozenset(keys)) if keys else None
