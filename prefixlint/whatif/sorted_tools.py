"""Tools stand in the order of their names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prefixlint.logrules._view import tool_name
from prefixlint.whatif._examples import Example
from prefixlint.whatif._turn import Turn

CODES = frozenset({"PFX304"})
ORDER = 12


@dataclass(frozen=True, slots=True)
class _Sorted:
    HISTORY: frozenset[str] = frozenset()

    def apply(self, turn: Turn) -> None:
        """Sort the tools; what has no name (a cache marker) stays behind them."""
        tools = turn.tools()
        if tools is not None and (ordered := sorted(tools, key=_rank)) != tools:
            turn.write(turn.view.tools_path, ordered)


def _rank(tool: object) -> tuple[bool, str]:
    name = tool_name(tool)
    return not name, name


def learn(codes: frozenset[str], pairs: Sequence[Example], others: frozenset[str]) -> _Sorted | None:
    """Sort wherever an order was seen to change."""
    del others
    return _Sorted() if any(hit.code in codes for example in pairs for hit in example.hits) else None
