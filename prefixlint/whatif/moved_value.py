"""A value in the system text, a tool or a first message is told in the newest message instead.

Where it stood, its place is kept by the same words in every request. A conversation is told a value when it is new or
has changed, so what stays the same for a conversation (who is asking) stands in its first message only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from prefixlint.logrules import Hit, _spans
from prefixlint.logrules._hits import MESSAGES
from prefixlint.logrules._view import View, tool_name
from prefixlint.whatif import _edit
from prefixlint.whatif._examples import Example
from prefixlint.whatif._slots import FREE, Filled, Template, Templates, Wanted, above
from prefixlint.whatif._turn import Turn

CODES = frozenset(f"PFX{number}" for number in (101, 102, 103, 104, 105, 106, 107, 109, 110, 201, 202, 306, 407))
ORDER = 30

_TEXT = frozenset({"PFX201", "PFX202", "PFX407"})
"""Rules about running text, in which values of any kind stand."""
_KINDS = FREE | frozenset(["address", "age", "clock", "date", "identity", "random", "counter", "header", "json"])
_GROWS = "appended"  # the kind of PFX407
_STAND_IN = "(stated below)"

_ELEMENT = re.compile(r"\[\d+\]\Z")

Place = tuple[str, ...]


@dataclass(slots=True)
class _Moved:
    HISTORY: frozenset[str]
    templates: dict[Place, Templates] = field(default_factory=dict)
    lists: dict[Place, list[Any]] = field(default_factory=dict)
    """Lists in tools, as an example has them: they stay so."""

    def apply(self, turn: Turn) -> None:
        """Take the values out of where they stand, and have the newest message tell them."""
        self._head(turn)
        self._tools(turn)
        self._opening(turn)

    def _head(self, turn: Turn) -> None:
        for index, unit in enumerate(turn.view.head):
            templates = self.templates.get(("head", str(index)))
            if templates is None:
                continue
            text = _edit.get(turn.body, unit.path)
            taken = templates.fill(text, shows=turn.shows) if isinstance(text, str) else None
            if taken is not None:
                turn.write(unit.path, _canonical(*taken))
                _say(turn, f"head {index}", "", taken[1])

    def _tools(self, turn: Turn) -> None:
        places = [place for place in self.templates if place[0] == "tool"]
        if not places and not self.lists:
            return
        tools = turn.tools() or []
        for index, tool in enumerate(tools):
            name = tool_name(tool)
            for place, first in self.lists.items():
                words = _edit.get(tool, place[2]) if place[1] == name else None
                if not isinstance(words, list):
                    continue
                if words != first:
                    turn.write(f"{turn.view.tools_path}[{index}].{place[2]}", first)
                turn.say(" ".join(place), f"{name} {place[2].rpartition('.')[2]}: ", ", ".join(map(str, words)))
            for place in places:
                if place[1] != name:
                    continue
                text = _edit.get(tool, place[2])
                taken = self.templates[place].fill(text, shows=turn.shows) if isinstance(text, str) else None
                if taken is not None:
                    turn.write(f"{turn.view.tools_path}[{index}].{place[2]}", _canonical(*taken))
                    _say(turn, " ".join(place), f"{name}: ", taken[1])

    def _opening(self, turn: Turn) -> None:
        places = [place for place in self.templates if place[0] == "opening"]
        if not places or not turn.messages or turn.messages[0] is not turn.view.messages[0].raw:
            return
        raw = turn.messages[0]
        for place in places:
            text = _edit.get(raw, place[1])
            taken = self.templates[place].fill(text, shows=turn.shows) if isinstance(text, str) else None
            if taken is None:
                continue
            canonical = _canonical(*taken)
            turn.talk.opening = canonical
            past = turn.past
            known = past is not None and past.opening == canonical and 0 in past.own
            turn.messages[0] = raw = past.own[0] if past is not None and known else _edit.put(raw, place[1], canonical)
            _say(turn, " ".join(place), "", taken[1])


def _canonical(template: Template, filled: Filled) -> str:
    """Put a text together again, with the same words in place of every value."""
    pieces = list(filled.pieces)
    for number, empty in enumerate(template.may_be_empty()):
        value = filled.values[number][1]
        pieces[number] += "" if empty else _STAND_IN + ("\n" if value.endswith("\n") else "")
    return "".join(pieces)


def _say(turn: Turn, what: str, prefix: str, filled: Filled) -> None:
    for number, (label, value) in enumerate(filled.values):
        turn.say(f"{what} {number}", prefix + label, value)


def learn(codes: frozenset[str], pairs: Sequence[Example], others: frozenset[str]) -> _Moved | None:
    """Learn where values stand and what stays around them."""
    texts: dict[Place, list[tuple[str, str]]] = {}
    kinds: dict[Place, set[str]] = {}
    lines: dict[Place, set[str]] = {}
    lists: dict[Place, list[Any]] = {}
    history = False
    for example in pairs:
        for hit in example.hits:
            first = _place(example.later, hit)
            history = history or (hit.rank[0] == MESSAGES if first is None else first[0] == "opening")
            for place in _all_of_tool(example, first) if first is not None else ():
                found = _texts(example, place)
                held = _text(example.earlier, place)
                if isinstance(held, list):
                    lists.setdefault(place, held)
                elif found is not None:
                    texts.setdefault(place, []).append(found)
                    kinds.setdefault(place, set()).update(_kinds(found, hit, others, only=place == first))
                    if hit.kind in others:
                        lines.setdefault(place, set()).add(above(found[1], hit.at.char))
    moved = _Moved(codes if history else frozenset(), lists=lists)
    for place, found_pairs in texts.items():
        end, known = _end(codes, others), frozenset(lines.get(place, ()))
        shared = frozenset(kinds[place] & others if end is None else ())
        wanted = Wanted(frozenset(kinds[place]), end, others - kinds[place], shared, known)
        templates = Templates(wanted)
        templates.learn(found_pairs)
        if templates.found:
            moved.templates[place] = templates
    return moved if moved.templates or lists or history else None


def _end(codes: frozenset[str], others: frozenset[str]) -> bool | None:
    """Tell running text that grows at the end of a text from other running text in it."""
    if "PFX407" in codes:
        return True
    return False if codes & _TEXT and _GROWS in others else None


def _kinds(texts: tuple[str, str], hit: Hit, others: frozenset[str], *, only: bool) -> Iterator[str]:
    """Give the kinds of value that a hit is about; running text holds values of any kind, but those of other fixes."""
    if not only or hit.code == "PFX407":
        yield from _KINDS
    elif hit.code in _TEXT:
        yield from (_KINDS - others) | {hit.kind}
        return
    for place, _, _ in _spans.spans(*texts):
        if place.char == hit.at.char:
            yield place.kind


def _all_of_tool(example: Example, first: Place) -> Iterator[Place]:
    """Give each place of a tool that differs, where `first` is one of them. Lists of words are taken as a whole."""
    if first[0] != "tool":
        yield first
        return
    one, two = (_tool(view, first[1]) for view in (example.earlier, example.later))
    seen = set()
    for path, text in [(first[2], None), *_edit.strings(two)]:
        whole = _ELEMENT.sub("", path)
        if whole not in seen and (text is None or _edit.get(one, path) != text):
            seen.add(whole)
            yield "tool", first[1], whole


def _tool(view: View, name: str) -> Any:
    return next((tool for tool in view.tools if tool_name(tool) == name), None)


def _place(view: View, hit: Hit) -> Place | None:
    path = hit.at.path
    for index, unit in enumerate(view.head):
        if unit.path == path:
            return "head", str(index)
    if path.startswith(f"{view.tools_path}["):
        number, _, rest = path[len(view.tools_path) + 1 :].partition("]")
        if number.isdigit() and int(number) < len(view.tools) and rest:
            return "tool", tool_name(view.tools[int(number)]), rest.lstrip(".")
    if view.messages and hit.rank[:2] == (MESSAGES, 0) and path.startswith(view.messages[0].path):
        return "opening", path[len(view.messages[0].path) :].lstrip(".")
    return None


def _texts(example: Example, place: Place) -> tuple[str, str] | None:
    """Give the earlier and the later text of a place."""
    one, two = (_text(view, place) for view in (example.earlier, example.later))
    if not isinstance(one, str) or not isinstance(two, str) or one == two:
        return None
    return one, two


def _text(view: View, place: Place) -> Any:
    if place[0] == "head":
        index = int(place[1])
        return view.head[index].text if index < len(view.head) else None
    if place[0] == "tool":
        return _edit.get(_tool(view, place[1]), place[2])
    return _edit.get(view.messages[0].raw, place[1]) if view.messages else None
