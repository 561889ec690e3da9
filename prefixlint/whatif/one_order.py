"""The same data in a system text or tool definition is written as it was written first: key order, spacing, lines.

Other data is written with its keys in order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from prefixlint.logrules._view import tool_name
from prefixlint.whatif import _edit
from prefixlint.whatif._examples import Example
from prefixlint.whatif._slots import Templates, Wanted
from prefixlint.whatif._turn import Turn

CODES = frozenset({"PFX301", "PFX302"})
ORDER = 10

_OPENS = re.compile(r"[{\[]")
_TRIED = 8  # brackets of a value at which JSON may begin
_DECODER = json.JSONDecoder()
_CUTS = ("\n", ", ", ",", "; ", " | ", " ")


@dataclass(slots=True)
class _Ordered:
    HISTORY: frozenset[str] = frozenset()
    units: dict[int, Templates] = field(default_factory=dict)
    tools: bool = False
    first: dict[str, object] = field(default_factory=dict)
    written: dict[tuple[str, ...], str] = field(default_factory=dict)

    def apply(self, turn: Turn) -> None:
        """Write data in the one way."""
        for index, templates in self.units.items():
            if index < len(turn.view.head):
                self._text(turn, turn.view.head[index].path, templates)
        if self.tools:
            self._definitions(turn)

    def _text(self, turn: Turn, path: str, templates: Templates) -> None:
        text = _edit.get(turn.body, path)
        taken = templates.fill(text, shows=turn.shows) if isinstance(text, str) else None
        if taken is None:
            return
        _, filled = taken
        parts = [filled.pieces[0]]
        for (_, value), piece in zip(filled.values, filled.pieces[1:], strict=True):
            parts += [self._once(value), piece]
        if (new := "".join(parts)) != text:
            turn.write(path, new)

    def _once(self, value: str) -> str:
        """Give a value as the same data was written first."""
        begin, end, key = _data(value)
        behind = self._once(value[end:]) if key[0] == "json" and end < len(value) else value[end:]
        return value[:begin] + self.written.setdefault(key, value[begin:end]) + behind

    def _definitions(self, turn: Turn) -> None:
        tools = list(turn.tools() or ())
        for index, tool in enumerate(tools):
            tools[index] = _like(self.first.setdefault(tool_name(tool), tool), tool)
        if turn.view.tools:
            turn.write(turn.view.tools_path, tools)


def _like(first: Any, value: Any) -> Any:
    """Give a value with its keys, and the names in its lists, in the order of another one, whatever else they say."""
    if isinstance(first, dict) and isinstance(value, dict):
        keys = [key for key in first if key in value]
        return {key: _like(first.get(key), value[key]) for key in dict.fromkeys([*keys, *value])}
    if isinstance(first, list) and isinstance(value, list) and len(first) == len(value):
        if all(isinstance(item, str) for item in (*first, *value)):
            return first if sorted(first) == sorted(value) else value
        return [_like(one, two) for one, two in zip(first, value, strict=True)]
    return value


def _data(value: str) -> tuple[int, int, tuple[str, ...]]:
    """Say where data stands in a value and what it is: words may stand before and behind it, as in a line of others."""
    for found in islice(_OPENS.finditer(value), _TRIED):
        try:
            data, end = _DECODER.raw_decode(value, found.start())
        except (ValueError, RecursionError):
            continue
        if data:
            return found.start(), end, ("json", json.dumps(data, sort_keys=True))
    cut = next((cut for cut in _CUTS if cut in value.strip("\n")), None)
    if cut is None:
        return 0, len(value), ("text", value)
    begin, end = 0, len(value)
    if cut != "\n":
        first, last = value.index(cut), value.rindex(cut) + len(cut)
        begin = value.rfind(": ", 0, first) + 2 if ": " in value[:first] else 0
        stop = value.find(". ", last)
        end = stop if stop >= 0 else len(value.rstrip(" .\n"))
    return begin, end, ("list", *sorted(part.strip(" -*•.;\n\t") for part in value[begin:end].split(cut)))


def learn(codes: frozenset[str], pairs: Sequence[Example], others: frozenset[str]) -> _Ordered | None:
    """Learn where data stands in system texts, and whether tools are written in other ways."""
    del others
    texts: dict[int, list[tuple[str, str]]] = {}
    ordered = _Ordered()
    for example in pairs:
        for hit in example.hits:
            if hit.code not in codes:
                continue
            if hit.rank[0] == 0:
                ordered.tools = True
            for index, (one, two) in enumerate(zip(example.earlier.head, example.later.head, strict=False)):
                if two.path == hit.at.path and one.text != two.text:
                    texts.setdefault(index, []).append((one.text, two.text))
    for index, found in texts.items():
        templates = Templates(Wanted(frozenset({"json", "order"})))
        templates.learn(found)
        if templates.found:
            ordered.units[index] = templates
    return ordered if ordered.units or ordered.tools else None
