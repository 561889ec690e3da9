"""Careful looks into the JSON of strangers: everything may be missing, or of the wrong type, or JSON in a string."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prefixlint.logs._parse import maybe
from prefixlint.model import JsonObject


def pick(value: Mapping[str, Any], *names: str) -> Any:
    """Give the first of the named entries that is there and not None, else None."""
    for name in names:
        found = value.get(name)
        if found is not None:
            return found
    return None


def table(value: Any) -> JsonObject:
    """Give the object that a value is or that its JSON text holds; an empty one if it is none."""
    value = decoded(value)
    return value if isinstance(value, dict) else {}


def rows(value: Any) -> Iterator[JsonObject]:
    """Give the objects in a list (or in its JSON text); an object that is not empty counts as a list of one."""
    value = decoded(value)
    if isinstance(value, dict):
        if value:
            yield value
    elif isinstance(value, list):
        yield from (entry for entry in value if isinstance(entry, dict))


def page(held: Any, is_row: Callable[[JsonObject], bool]) -> list[Any] | None:
    """Give the rows that a page of an API holds, told by its first one; None where it is no list of them."""
    if isinstance(held, list) and held and isinstance(held[0], dict) and is_row(held[0]):
        return held
    return None


def decoded(value: Any) -> Any:
    """Undo JSON in a string, twice where an exporter quoted what was quoted; other values come back as they are."""
    if not isinstance(value, str):
        return value
    if value[:1] == '"':
        try:
            value = json.loads(value)
        except ValueError:
            return value
    return maybe(maybe(value))


def compact(value: Any) -> str:
    """Give a value as the JSON text that a client would have sent for it (json.dumps with its own separators)."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return ""
