"""Changes to logged bodies, whatever their dialect. Nothing that a log held is changed: what is touched is copied."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]")
_PATHS = 4_096  # paths that are kept taken apart
_TEXTS = ("content", "output", "parts", "text")


@lru_cache(_PATHS)
def steps(path: str) -> tuple[str | int, ...]:
    """Take a path like `messages[0].content` apart."""
    return tuple(int(number) if number else name for name, number in _STEP.findall(path))


def get(value: Any, path: str) -> Any:
    """Give what stands at a path; None where nothing does."""
    for step in steps(path):
        if isinstance(value, list) and isinstance(step, int):
            value = value[step] if step < len(value) else None
        else:
            value = value.get(step) if isinstance(value, dict) else None
    return value


def put(value: Any, path: str, new: Any) -> Any:
    """Give a value in which something else stands at a path. KeyError where there is no such place."""
    return _put(value, steps(path), new)


def _put(value: Any, path: Sequence[str | int], new: Any) -> Any:
    if not path:
        return new
    step, rest = path[0], path[1:]
    if isinstance(value, list) and isinstance(step, int) and step < len(value):
        return [*value[:step], _put(value[step], rest, new), *value[step + 1 :]]
    if isinstance(value, dict) and step in value:
        return {**value, step: _put(value[step], rest, new)}
    raise KeyError(step)


def strings(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Walk the strings of a value, each with its path."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            if "." not in key and "[" not in key:
                yield from strings(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from strings(item, f"{path}[{index}]")


def replaced(value: Any, words: Mapping[str, str]) -> Any:
    """Give a value in which whole strings are other ones."""
    if isinstance(value, str):
        return words.get(value, value)
    if isinstance(value, dict):
        return {key: replaced(item, words) for key, item in value.items()}
    if isinstance(value, list):
        return [replaced(item, words) for item in value]
    return value


def added(message: Any, text: str) -> Any | None:
    """Give a message that says something more at its end; None where it has no text to add to.

    Behind results of tools it is the last of these that says more: text beside them would be a question of the user's.
    """
    if isinstance(message, str):
        return f"{message}\n\n{text}"
    if not isinstance(message, dict):
        return None
    for key in _TEXTS:
        held = message.get(key)
        if isinstance(held, str):
            return {**message, key: f"{held}\n\n{text}" if held else text}
        if isinstance(held, list):
            more = added(held[-1], text) if held and _is_result(held[-1]) else None
            return {**message, key: [*held, _part(held, text)] if more is None else [*held[:-1], more]}
    return None


def _is_result(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "tool_result"


def _part(parts: list[Any], text: str) -> Any:
    """Give a part of the kind that the other parts of text have."""
    for part in reversed(parts):
        if isinstance(part, str):
            return text
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            return {"type": part["type"], "text": text} if "type" in part else {"text": text}
    typed = not parts or any(isinstance(part, dict) and "type" in part for part in parts)
    return {"type": "text", "text": text} if typed else {"text": text}


def without(message: Any, block: str) -> Any | None:
    """Give a message without a block of text in it; None where it does not hold the block, or nothing else."""
    for path, text in strings(message):
        if block in text:
            rest = text.replace(block, "", 1).strip("\n")
            return put(message, path, rest) if rest.strip() else None
    return None
