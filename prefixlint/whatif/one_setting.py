"""A conversation keeps the settings of its first turn: how much to reason, which tools may be called.

What was asked of the model changes with it; a change of the model itself is left as it is. Where tools may be called on
some turns only, they may be on all: engines leave the tools out of the prompt of a request that may call none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from prefixlint.whatif._examples import Example
from prefixlint.whatif._turn import Turn

CODES = frozenset({"PFX504"})
ORDER = 41

_ABSENT: Any = object()
_CHOICE = "tool_choice"


@dataclass(frozen=True, slots=True)
class _Kept:
    keys: frozenset[str]
    choice: Any = _ABSENT
    HISTORY: frozenset[str] = frozenset()

    def apply(self, turn: Turn) -> None:
        """Put the first turn's settings in."""
        for key in sorted(self.keys):
            value = turn.body.get(key, _ABSENT)
            first = turn.talk.kept.setdefault(key, self.choice if key == _CHOICE and _is_none(value) else value)
            if first is value or first == value:
                continue
            rest = {name: held for name, held in turn.body.items() if name != key}
            turn.body = rest if first is _ABSENT else {**turn.body, key: first}
            turn.changed = True


def learn(codes: frozenset[str], pairs: Sequence[Example], others: frozenset[str]) -> _Kept | None:
    """Keep what was seen to change, but for the model."""
    del others
    paths = {hit.at.path for example in pairs for hit in example.hits if hit.code in codes}
    keys = frozenset(path.partition(".")[0].partition("[")[0] for path in paths) - {"model"}
    if not keys:
        return None
    choices = [view.settings.get(_CHOICE, _ABSENT) for example in pairs for view in (example.earlier, example.later)]
    return _Kept(keys, next((choice for choice in choices if not _is_none(choice)), _ABSENT))


def _is_none(choice: Any) -> bool:
    """Tell whether a `tool_choice` of any dialect says that no tool may be called."""
    return choice == "none" or (isinstance(choice, dict) and choice.get("type") == "none")
