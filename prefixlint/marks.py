"""Where a logged body marks its prompt for caching, as places in the rendered prompt.

A body's blocks are its tools, the parts of its system text and of its messages, in wire order. Each one is looked for
in the rendered prompt by what it says; one that is not found there (an image) ends where the block before it ended.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

UNMARKED = -1.0
DEFAULT_TTL = 0.0
"""A mark that names no lifetime: the provider's default holds."""

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_UNSEEN = frozenset(
    ("cache_control", "prompt_cache_breakpoint", "cachePoint", "cache_point", "type", "role", "id", "tool_use_id")
)
_FAR = 4  # times the length of a block's JSON in which its strings are looked for
_BEGIN = 32  # characters of a longer string that are looked for first
_TRIES = 4  # places at which a string begins like that, before it is looked for as a whole


class Place(NamedTuple):
    """Where a block stands: in the `tools`, the `system` text or the `messages` behind it.

    `item` counts tools, blocks of the system text, or messages; `part` counts the blocks of one message.
    """

    section: str = "messages"
    item: int = 0
    part: int = 0


@dataclass(frozen=True, slots=True)
class Block:
    """A block of a prompt: the character at which it ends, the lifetime of its mark in seconds, and its place.

    UNMARKED where it carries no mark, DEFAULT_TTL where the mark names no lifetime.
    """

    end: int
    ttl: float
    place: Place


def blocks(body: Any, prompt: str, *, implicit: bool = False) -> list[Block]:
    """Find a body's blocks in the rendered prompt.

    A `cache_control` of the whole body marks the last block (Anthropic's automatic caching). With `implicit`, the last
    block is marked unless the body asks for explicit breakpoints only (OpenAI from gpt-5.6 on).
    """
    if not isinstance(body, dict):
        return []
    found: list[Block] = []
    position = 0
    for part, ttl, place in _parts(body):
        if part is None:  # a cachePoint: it marks what stands before it
            if found:
                found[-1] = replace(found[-1], ttl=ttl)
            continue
        position = _end(part, prompt, position)
        found.append(Block(position, ttl, place))
    automatic = _automatic(body, implicit=implicit)
    if found and automatic != UNMARKED and found[-1].ttl == UNMARKED:
        found[-1] = replace(found[-1], ttl=automatic)
    return found


def _parts(body: dict[str, Any]) -> Iterator[tuple[Any, float, Place]]:
    """Walk the blocks in wire order, each with the lifetime of its mark; None stands for a mark of its own.

    Messages of the system at the head of a conversation are its system text.
    """
    config = body.get("toolConfig") or body.get("tool_config")
    tools = config.get("tools") if isinstance(config, dict) else body.get("tools")
    yield from _numbered("tools", _content(tools), 0)
    system = 0
    for section in (body.get("system"), body.get("instructions")):
        parts = list(_content(section))
        yield from _numbered("system", parts, system)
        system += len(parts)
    number = 0
    for key in ("messages", "input"):
        messages = body.get(key)
        for message in messages if isinstance(messages, list) else [messages]:
            parts = list(_message(message))
            if not number and isinstance(message, dict) and message.get("role") in ("system", "developer"):
                yield from _numbered("system", parts, system)
                system += len(parts)
            elif parts:
                yield from ((part, ttl, Place("messages", number, i)) for i, (part, ttl) in enumerate(parts))
                number += 1


def _numbered(section: str, parts: Iterable[tuple[Any, float]], first: int) -> Iterator[tuple[Any, float, Place]]:
    for number, (part, ttl) in enumerate(parts, first):
        yield part, ttl, Place(section, number)


def _message(message: Any) -> Iterator[tuple[Any, float]]:
    """Give the blocks of a message; a mark of the message itself is that of its last block."""
    if not isinstance(message, dict) or "content" not in message:
        yield from _content(message)
        return
    own, parts = _ttl(message), list(_content(message["content"]))
    if own != UNMARKED and parts:
        parts[-1] = (parts[-1][0], own)
    yield from parts
    if message.get("tool_calls"):
        yield message["tool_calls"], UNMARKED


def _content(content: Any) -> Iterator[tuple[Any, float]]:
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, dict):
            point = part["cachePoint"] if "cachePoint" in part else part.get("cache_point")
            yield (part, _ttl(part)) if point is None else (None, _seconds(point))
        elif part:
            yield part, UNMARKED


def _ttl(part: dict[str, Any]) -> float:
    marker = part.get("cache_control") or part.get("prompt_cache_breakpoint")
    return _seconds(marker) if marker else UNMARKED


def _seconds(marker: Any) -> float:
    """Read a mark's lifetime; what is not one is the provider's default."""
    text = marker.get("ttl") if isinstance(marker, dict) else None
    found = seconds(text) if isinstance(text, str) else None
    return DEFAULT_TTL if found is None else found


def seconds(text: str) -> float | None:
    """Read a lifetime like `5m`; None for what is not one."""
    known = text[:-1].isdecimal() and text[:-1].isascii() and text[-1:] in _UNITS
    return float(int(text[:-1]) * _UNITS[text[-1]]) if known else None


def _automatic(body: dict[str, Any], *, implicit: bool) -> float:
    if body.get("cache_control"):
        return _seconds(body["cache_control"])
    options = body.get("prompt_cache_options")
    options = options if isinstance(options, dict) else {}
    return _seconds(options) if implicit and options.get("mode") != "explicit" else UNMARKED


def _end(part: Any, prompt: str, start: int) -> int:
    """Give where a block ends in the prompt: behind the furthest of its strings that stands there."""
    texts = ([part] if part else []) if isinstance(part, str) else _strings(part, [])
    far = start + _FAR * (sum(map(len, texts)) + 200)
    end = start
    for text in texts:
        shown = text
        at = _find(prompt, shown, start, far)
        if at < 0:
            shown = json.dumps(text, ensure_ascii=False)[1:-1]
            if shown != text:
                at = _find(prompt, shown, start, far)
        if at >= 0 and at + len(shown) > end:
            end = at + len(shown)
    return end


def _find(prompt: str, text: str, start: int, far: int) -> int:
    """Do what `prompt.find` does, which takes long to get ready for a long text: look for how it begins first."""
    if len(text) <= _BEGIN:
        return prompt.find(text, start, far)
    begin, at = text[:_BEGIN], start - 1
    for _ in range(_TRIES):
        at = prompt.find(begin, at + 1, far)
        if at < 0 or prompt.startswith(text, at, far):
            return at
    return prompt.find(text, at + 1, far)


def _strings(value: Any, found: list[str]) -> list[str]:
    """Add the strings of a block that may reach the prompt to `found`, without its markers and its kind."""
    items: Iterable[Any] = ()
    if isinstance(value, dict):
        items = [item for key, item in value.items() if key not in _UNSEEN]
    elif isinstance(value, list):
        items = value
    elif isinstance(value, str):
        items = (value,)
    for item in items:
        if isinstance(item, str):
            if item:
                found.append(item)
        elif item:
            _strings(item, found)
    return found
