"""Where a logged body marks its prompt for caching, as places in the rendered prompt.

A body's blocks are its tools, the parts of its system text and of its messages, in wire order. Each one is looked for
in the rendered prompt by what it says; one that is not found there (an image) ends where the block before it ended.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

UNMARKED = -1.0
DEFAULT_TTL = 0.0
"""A mark that names no lifetime: the provider's default holds."""

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_KEYS = ("cache_control", "prompt_cache_breakpoint")
_POINTS = ("cachePoint", "cache_point")
_FAR = 4  # times the length of a block's JSON in which its strings are looked for


@dataclass(frozen=True, slots=True)
class Block:
    """A block of a prompt: the character at which it ends, and the lifetime of its mark in seconds.

    UNMARKED where it carries no mark, DEFAULT_TTL where the mark names no lifetime.
    """

    end: int
    ttl: float


def blocks(body: Any, prompt: str, *, implicit: bool = False) -> list[Block]:
    """Find a body's blocks in the rendered prompt.

    A `cache_control` of the whole body marks the last block (Anthropic's automatic caching). With `implicit`, the last
    block is marked unless the body asks for explicit breakpoints only (OpenAI from gpt-5.6 on).
    """
    if not isinstance(body, dict):
        return []
    found: list[Block] = []
    position = 0
    for part, ttl in _parts(body):
        if part is None:  # a cachePoint: it marks what stands before it
            if found:
                found[-1] = Block(found[-1].end, ttl)
            continue
        position = _end(part, prompt, position)
        found.append(Block(position, ttl))
    automatic = _automatic(body, implicit=implicit)
    if found and automatic != UNMARKED and found[-1].ttl == UNMARKED:
        found[-1] = Block(found[-1].end, automatic)
    return found


def _parts(body: dict[str, Any]) -> Iterator[tuple[Any, float]]:
    """Walk the blocks in wire order, each with the lifetime of its mark; None stands for a mark of its own."""
    config = body.get("toolConfig") or body.get("tool_config")
    tools = config.get("tools") if isinstance(config, dict) else body.get("tools")
    for section in (tools, body.get("system"), body.get("instructions")):
        yield from _content(section)
    for key in ("messages", "input"):
        messages = body.get(key)
        for message in messages if isinstance(messages, list) else [messages]:
            if isinstance(message, dict) and "content" in message:
                own = _ttl(message)
                parts = list(_content(message["content"]))
                if own != UNMARKED and parts:
                    parts[-1] = (parts[-1][0], own)
                yield from parts
                if message.get("tool_calls"):
                    yield message["tool_calls"], UNMARKED
            else:
                yield from _content(message)


def _content(content: Any) -> Iterator[tuple[Any, float]]:
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, dict):
            point = next((part[key] for key in _POINTS if key in part), None)
            yield (part, _ttl(part)) if point is None else (None, _seconds(point))
        elif part:
            yield part, UNMARKED


def _ttl(part: dict[str, Any]) -> float:
    marker = next((part[key] for key in _KEYS if part.get(key)), None)
    return UNMARKED if marker is None else _seconds(marker)


def _seconds(marker: Any) -> float:
    """Read a lifetime like `5m`; what is not one is the provider's default."""
    text = marker.get("ttl") if isinstance(marker, dict) else None
    if isinstance(text, str) and text[:-1].isdigit() and text[-1:] in _UNITS:
        return float(int(text[:-1]) * _UNITS[text[-1]])
    return DEFAULT_TTL


def _automatic(body: dict[str, Any], *, implicit: bool) -> float:
    if body.get("cache_control"):
        return _seconds(body["cache_control"])
    options = body.get("prompt_cache_options")
    options = options if isinstance(options, dict) else {}
    return _seconds(options) if implicit and options.get("mode") != "explicit" else UNMARKED


def _end(part: Any, prompt: str, start: int) -> int:
    """Give where a block ends in the prompt: behind the furthest of its strings that stands there."""
    texts = list(_strings(part))
    far = start + _FAR * (sum(map(len, texts)) + 200)
    end = start
    for text in texts:
        for shape in (text, json.dumps(text, ensure_ascii=False)[1:-1]):
            at = prompt.find(shape, start, far)
            if at >= 0:
                end = max(end, at + len(shape))
                break
    return end


def _strings(value: Any) -> Iterator[str]:
    """Give the strings of a block that may reach the prompt, without its markers and its kind."""
    if isinstance(value, str):
        if value:
            yield value
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key not in (*_KEYS, *_POINTS, "type", "role", "id", "tool_use_id"):
                yield from _strings(item)
