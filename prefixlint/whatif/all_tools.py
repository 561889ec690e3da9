"""All tools that the requests of a template ever had are declared from the start, in one order.

Which of them may be called is left to `tool_choice`; a request sees more tools than it did, and none less.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Any

from prefixlint.logrules._view import tool_name
from prefixlint.whatif._examples import Example
from prefixlint.whatif._turn import Turn

CODES = frozenset({"PFX305"})
ORDER = 11


@dataclass(slots=True)
class _All:
    HISTORY: frozenset[str] = frozenset()
    known: dict[int, dict[str, Any]] = field(default_factory=dict)
    """The tools of each application, by their names. Those of one template may have other tools each."""
    before: dict[int, dict[str, set[str]]] = field(default_factory=dict)
    """Which tools stood right ahead of a tool in some request of an application."""
    _numbers: dict[int, list[int]] = field(default_factory=dict)

    def number(self, family: int, tools: Iterable[Any]) -> int | None:
        """Give the number of the application of a family that has most of some tools; None where none has half."""
        own = {tool_name(tool) for tool in tools}
        best = max(self._numbers.get(family, ()), key=lambda n: len(own & self.known[n].keys()), default=None)
        if best is None or len(own & self.known[best].keys()) * 2 < min(len(own), len(self.known[best])):
            return None
        return best

    def see(self, family: int, tools: Sequence[Any]) -> int:
        """Take in the tools of a request, and put all that are known into an order that none of them contradicts."""
        number = self.number(family, tools)
        if number is None:
            number = len(self.known)
            self._numbers.setdefault(family, []).append(number)
        known = self.known.setdefault(number, {})
        before = self.before.setdefault(number, {})
        ahead, news = None, False
        for tool in tools:
            if name := tool_name(tool):
                known.setdefault(name, tool)
                over = before.setdefault(name, set())
                news = news or (ahead is not None and ahead not in over)
                over |= {ahead} if ahead is not None else set()
                ahead = name
        if news:
            with suppress(CycleError):  # an order of its own is another cause
                order = list(TopologicalSorter({name: sorted(before[name]) for name in known}).static_order())
                self.known[number] = {name: known[name] for name in order}
        return number

    def apply(self, turn: Turn) -> None:
        """Declare every tool that is known of the template; a request's own definitions hold."""
        tools = turn.tools()
        if tools is None or self.number(turn.family, tools) is None:
            return
        known = self.known[self.see(turn.family, tools)]
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
