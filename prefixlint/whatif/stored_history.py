"""History is sent as it was stored: what was changed, dropped or moved stands where it stood, as it was sent.

What a changed message says that the stored one does not is told in the newest message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prefixlint.logrules._hits import MESSAGES
from prefixlint.whatif._examples import Example
from prefixlint.whatif._turn import Turn

CODES = frozenset(f"PFX{number}" for number in (103, 203, 302, 303, 401, 402, 403, 404, 405, 406, 408, 409))
ORDER = 0


@dataclass(frozen=True, slots=True)
class _Stored:
    HISTORY: frozenset[str]

    def apply(self, turn: Turn) -> None:
        """Do nothing more: the messages are what was sent already."""


def learn(codes: frozenset[str], pairs: Sequence[Example], others: frozenset[str]) -> _Stored | None:
    """Take every rule that was seen in a history, and those whose changes of it are of the same cause."""
    del others
    seen = frozenset(hit.code for example in pairs for hit in example.hits if hit.rank[0] == MESSAGES)
    return _Stored(seen) if seen & codes else None
