"""The wire order of a request body: tools before system before messages, whatever the dialect.

Providers and engines render a body in an order that the JSON does not show. This module walks a body in that order and
finds the first place at which two bodies differ, as the path and character that a reader of the log recognises. It
needs no tokenizer, so `check`, `diff` and `analyze` share it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

# Parts of a body that reach the prompt, in wire order; a body holds one or two of each row, by its dialect.
_TOOLS = ("tools", "functions", "toolConfig", "tool_config")
_SYSTEM = ("system", "instructions", "systemInstruction", "system_instruction")
_MESSAGES = ("messages", "input", "contents", "prompt", "inputs", "text", "input_ids")
_WIRE_ORDER = (*_TOOLS, *_SYSTEM, *_MESSAGES)

# Markers say where a cache may cut; they are not text and never break a prefix.
_MARKERS = frozenset({"cache_control", "cachePoint", "cache_point", "prompt_cache_breakpoint"})

# Within one message: what identifies it, then what it says.
_MESSAGE_KEYS = ("role", "type", "name", "tool_call_id", "reasoning_content", "content", "parts", "tool_calls")


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
