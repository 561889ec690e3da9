"""The wire order of a request body: tools before system before messages, whatever the dialect.

Providers and engines render a body in an order that the JSON does not show. This module walks a body in that order and
finds the first place at which two bodies differ, as the path and character that a reader of the log recognises. It
needs no tokenizer, so `check`, `diff` and `analyze` share it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from prefixlint.model import Messages, Request, Text

# Parts of a body that reach the prompt, in wire order; a body holds one or two of each row, by its dialect.
_TOOLS = ("tools", "functions", "toolConfig", "tool_config")
_SYSTEM = ("system", "instructions", "systemInstruction", "system_instruction")
_MESSAGES = ("messages", "input", "contents", "prompt", "inputs", "text", "input_ids")
_WIRE_ORDER = (*_TOOLS, *_SYSTEM, *_MESSAGES)

# Markers say where a cache may cut; they are not text and never break a prefix.
_MARKERS = frozenset({"cache_control", "cachePoint", "cache_point", "prompt_cache_breakpoint"})

# Within one message: what identifies it, then what it says.
_MESSAGE_KEYS = ("role", "type", "name", "tool_call_id", "reasoning_content", "content", "parts", "tool_calls")


# What loggers write in place of the rest of a text: "…[truncated]", "... (1,204 more characters)".
_CUT = re.compile(
    r"\[?(?:\.\.\.|…)\s*\[?truncated\]?|\[truncated\]|<truncated[^>]{0,40}>"
    r"|(?:\.\.\.|…)?\s*[\[(<]\s*(?:truncated\W{1,3})?\+?\d[\d,]*\s*(?:more\s+)?(?:chars?|characters?|bytes|tokens)\b[^\])>]{0,20}[\])>]",
    re.IGNORECASE,
)
_CUT_ENDS = ("]", ")", ">", "d")
_CUT_SIZE = 80

_PAIRS = 250_000  # pairs of units up to which replaced ones are aligned by their roles and names


@dataclass(frozen=True, slots=True)
class Leaf:
    """One string, number or literal of a body; `path` is like `messages[3].content` or `system[0].text`."""

    path: str
    value: Any


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place at which two bodies differ.

    `path` is where it stands in the later body (in the earlier one, where the later has ended), `char` the number of
    equal leading characters of the string there. `before` and `after` are the two values, None where one body ends.
    `grows` is true where the earlier value (or body) ended and the later one only goes on: nothing was changed.
    """

    path: str
    char: int
    before: Any
    after: Any
    grows: bool


def continues(body: Any) -> bool:
    """Tell whether a body goes on from what its server keeps (Responses API), so that it is not the whole prompt."""
    return (
        isinstance(body, dict)
        and "input" in body
        and bool(body.get("previous_response_id") or body.get("conversation"))
    )


def leaves(body: Any) -> Iterator[Leaf]:
    """Walk a body in wire order. What never reaches the prompt (temperature, user, cache markers …) is left out."""
    if not isinstance(body, dict):
        yield from walk("", body)
        return
    for key in _WIRE_ORDER:
        if body.get(key) is not None:
            yield from walk(key, body[key])


def first_difference(earlier: Any, later: Any) -> Difference | None:
    """Give the first place at which the later body differs from the earlier one; None where they are equal."""
    ours, theirs = leaves(earlier), leaves(later)
    while True:
        a, b = next(ours, None), next(theirs, None)
        if a is None and b is None:
            return None
        if a is None or b is None:
            here = b or a
            assert here is not None
            return Difference(here.path, 0, a and a.value, b and b.value, grows=a is None)
        if a.path != b.path:
            return Difference(b.path, 0, a.value, b.value, grows=False)
        if a.value != b.value or type(a.value) is not type(b.value):
            return _value_difference(a, b, last=next(ours, None) is None)


@dataclass(frozen=True, slots=True)
class Row:
    """A row of two aligned bodies: units (tools, parts of the system text, messages) that stand side by side.

    `earlier` and `later` are the leaves of either side, empty where only the other one has the unit. `path` is where
    the unit stands in the later body (in the earlier one, where the later lacks it).
    """

    path: str
    earlier: tuple[Leaf, ...]
    later: tuple[Leaf, ...]
    equal: bool


def aligned(earlier: Any, later: Any) -> list[Row]:
    """Put the units of two bodies side by side, in the order of the prompt; a changed one stands beside its old self.

    Units are equal by what they say. Of those that are not, such with the same name or role are taken as one.
    """
    ours, theirs = list(_units(earlier)), list(_units(later))
    rows: list[Row] = []
    for kind, i, k, j, m in _opcodes([u.key for u in ours], [u.key for u in theirs]):
        if kind == "equal":
            pairs = zip(ours[i:k], theirs[j:m], strict=True)
            rows += [Row(b.path, a.leaves, b.leaves, equal=True) for a, b in pairs]
        else:
            rows += _replaced(ours[i:k], theirs[j:m])
    return rows


@dataclass(frozen=True, slots=True)
class _Unit:
    path: str
    label: str
    leaves: tuple[Leaf, ...]

    @property
    def key(self) -> tuple[tuple[str, str, Any], ...]:
        cut = len(self.path)
        return tuple((leaf.path[cut:], type(leaf.value).__name__, leaf.value) for leaf in self.leaves)


def _units(body: Any) -> Iterator[_Unit]:
    if not isinstance(body, dict):
        yield _Unit("", "", tuple(leaves(body)))
        return
    for key in _WIRE_ORDER:
        path, value = key, body.get(key)
        while isinstance(value, dict) and "role" not in value:
            lists = [(name, item) for name, item in value.items() if isinstance(item, list)]
            if len(lists) != 1:
                break
            path, value = f"{path}.{lists[0][0]}", lists[0][1]
        for where, item in _elements(path, value) if isinstance(value, list) else ((path, value),):
            found = tuple(walk(where, item))
            if found:
                yield _Unit(where, f"{key} {_label(item)}", found)


def _label(item: Any) -> str:
    if not isinstance(item, dict):
        return ""
    held = item["function"] if isinstance(item.get("function"), dict) else item
    return str(next((held[key] for key in ("role", "name", "type") if isinstance(held.get(key), str)), ""))


def _opcodes(a: list[Any], b: list[Any]) -> Sequence[tuple[str, int, int, int, int]]:
    return SequenceMatcher(None, a, b, autojunk=False).get_opcodes()


def _replaced(ours: list[_Unit], theirs: list[_Unit]) -> Iterator[Row]:
    if len(ours) * len(theirs) > _PAIRS:  # long histories in which nothing is equal: side by side as they come
        both = min(len(ours), len(theirs))
        ours, theirs, rest = ours[:both], theirs[:both], (ours[both:], theirs[both:])
        yield from (Row(b.path, a.leaves, b.leaves, equal=False) for a, b in zip(ours, theirs, strict=True))
        yield from (Row(a.path, a.leaves, (), equal=False) for a in rest[0])
        yield from (Row(b.path, (), b.leaves, equal=False) for b in rest[1])
        return
    for kind, i, k, j, m in _opcodes([u.label for u in ours], [u.label for u in theirs]):
        if kind == "equal":
            pairs = zip(ours[i:k], theirs[j:m], strict=True)
            yield from (Row(b.path, a.leaves, b.leaves, equal=False) for a, b in pairs)
        else:
            yield from (Row(a.path, a.leaves, (), equal=False) for a in ours[i:k])
            yield from (Row(b.path, (), b.leaves, equal=False) for b in theirs[j:m])


def body_of(request: Request) -> Any:
    """Give the body whose text is compared: the logged one, or one made of the prompt; None without text."""
    content = request.said
    if not isinstance(content, Messages | Text):
        return None
    if isinstance(request.body, dict) and any(True for _ in leaves(request.body)):
        return request.body
    if isinstance(content, Messages):
        return {"tools": list(content.tools), "messages": list(content.messages)}
    return {"prompt": content.text}


def locate(body: Any, rendered: str, offset: int) -> tuple[str, int] | None:
    """Find what stands at a character of the rendered prompt: the body's path and the character in its string.

    Between two strings of the body (in the chat template's own text) it is the beginning of the next one; None where
    the body does not show the text, as with JSON that the template writes in its own way.
    """
    tools, rest = 0, 0
    for leaf in leaves(body):
        if not isinstance(leaf.value, str) or leaf.path.endswith((".role", ".type")):
            continue
        in_tools = leaf.path.startswith(_TOOLS)
        text = leaf.value.strip()
        at = rendered.find(text, tools if in_tools else rest) if text else -1
        if at < 0:
            continue
        if offset < at + len(text) and (at <= offset or not in_tools):
            return leaf.path, max(0, offset - at) + (len(leaf.value) - len(leaf.value.lstrip()) if at <= offset else 0)
        if in_tools:
            tools = at + len(text)
        else:
            rest = at + len(text)
    return None


def common_prefix(a: str, b: str) -> int:
    """Count the equal leading characters of two strings, by bisection over slices (fast on long strings)."""
    low, high = 0, min(len(a), len(b))
    if a[:high] == b[:high]:
        return high
    while low + 1 < high:
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low if a[low : low + 1] != b[low : low + 1] else low + 1


def _value_difference(a: Leaf, b: Leaf, *, last: bool) -> Difference:
    if not (isinstance(a.value, str) and isinstance(b.value, str)):
        return Difference(b.path, 0, a.value, b.value, grows=False)
    char = common_prefix(a.value, b.value)
    return Difference(b.path, char, a.value, b.value, grows=last and char == len(a.value))


def walk(path: str, value: Any) -> Iterator[Leaf]:
    """Walk a part of a body that stands at `path`; without recursion, since it may be nested deeper than the stack."""
    stack: list[Iterator[tuple[str, Any]]] = [iter([(path, value)])]
    while stack:
        step = next(stack[-1], None)
        if step is None:
            stack.pop()
            continue
        where, item = step
        if isinstance(item, dict):
            stack.append(_members(where, item))
        elif isinstance(item, list):
            stack.append(_elements(where, item))
        elif item is not None:
            yield Leaf(where, item)


def _elements(path: str, items: list[Any]) -> Iterator[tuple[str, Any]]:
    return ((f"{path}[{i}]", item) for i, item in enumerate(items))


def _members(path: str, item: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    prefix = f"{path}." if path else ""
    if "role" in item:
        known = [k for k in _MESSAGE_KEYS if k in item]
        keys = [*known, *(k for k in item if k not in _MESSAGE_KEYS)]
    else:
        keys = list(item)
    return ((f"{prefix}{k}", item[k]) for k in keys if k not in _MARKERS)


def is_cut(text: str) -> bool:
    """Tell whether a text ends like one whose rest was left out of a log."""
    end = text[-_CUT_SIZE:].rstrip()
    return end.endswith(_CUT_ENDS) and any(found.end() == len(end) for found in _CUT.finditer(end))


def in_cut_mark(text: str, char: int) -> bool:
    """Tell whether a character belongs to what stands for the rest of a text that was left out of a log."""
    begin = max(0, char - _CUT_SIZE)
    near = _CUT.finditer(text[begin : char + _CUT_SIZE])
    return any(begin + found.start() <= char < begin + found.end() for found in near)
