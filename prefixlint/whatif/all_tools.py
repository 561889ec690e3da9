"""All tools that the requests of a template ever had are declared from the start, in one order.

Which of them may be called is left to `tool_choice`; a request sees more tools than it did, and none less.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from prefixlint.logrules._view import tool_name
from prefixlint.whatif import _edit
from prefixlint.whatif._examples import Example
from prefixlint.whatif._turn import Turn

CODES = frozenset({"PFX305"})
ORDER = 11


@dataclass(slots=True)
class _All:
    HISTORY: frozenset[str] = frozenset()
    known: dict[int, dict[str, Any]] = field(default_factory=dict)

    def see(self, family: int, tools: Iterable[Any]) -> None:
        """Take in the tools of a request."""
        known = self.known.setdefault(family, {})
        for tool in tools:
            if name := tool_name(tool):
                known.setdefault(name, tool)

    def apply(self, turn: Turn) -> None:
        """Declare every tool that is known of the template; a request's own definitions hold."""
        tools = _edit.get(turn.body, turn.view.tools_path)
        if not isinstance(tools, list) or turn.family not in self.known:
            return
        self.see(turn.family, tools)
        known = self.known[turn.family]
        own = {tool_name(tool): tool for tool in tools}
        if list(own) == [name for name in known if name in own]:
            every = [own.get(name, tool) for name, tool in known.items()]
            every += [tool for tool in tools if not tool_name(tool)]
        else:  # an order of its own is another cause
            every = tools + [tool for name, tool in known.items() if name not in own]
        if every != tools:
            turn.write(turn.view.tools_path, every)


def learn(codes: frozenset[str], pairs: Sequence[Example], others: frozenset[str]) -> _All | None:
    """Learn the tools of each template."""
    del others
    every = _All()
    for example in pairs:
        if any(hit.code in codes for hit in example.hits):
            for family, view in zip(example.families, (example.earlier, example.later), strict=True):
                every.see(family, view.tools)
    return every if every.known else None
