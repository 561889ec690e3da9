"""What stands around the prompt and separates caches: model, switches, keys, salts, output schema, replica."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prefixlint.logrules._hits import Hit, at, short
from prefixlint.logrules._message import dumps
from prefixlint.logrules._view import View

_SWITCHES = (
    "reasoning_effort",
    "reasoning",
    "effort",
    "thinking",
    "output_config",
    "tool_choice",
    "chat_template_kwargs",
    "verbosity",
)
_KEYS = ("prompt_cache_key", "cache_salt")
# Parts of switches that never reach the prompt.
_HARMLESS = frozenset({"summary", "generate_summary", "format", "budget_tokens", "include_thoughts"})


def changes(earlier: View, later: View) -> Iterator[Hit]:
    """Compare the settings of two turns of one conversation."""
    if earlier.model and later.model and earlier.model != later.model:
        where = at("model", earlier.model, later.model)
        key = ("PFX504", "model", *sorted((earlier.model, later.model)))
        what = "the model changes within a conversation"
        yield Hit("PFX504", "model", (-2, 0, 0), where, key, what, earlier.model, later.model, same=True, tail=1)
    if earlier.settings == later.settings and earlier.namespace == later.namespace:
        return
    for number, name in enumerate(_SWITCHES):
        a, b = (_effective(view.settings.get(name)) for view in (earlier, later))
        if a != b and not _is_default(name, a, b):
            where = at(name, a, b)
            what = f"{name} changes within a conversation"
            before, after = (_line(value) for value in (a, b))
            yield Hit("PFX504", name, (-1, number, 0), where, ("PFX504", name), what, before, after, same=True, tail=1)
    yield from _keys(earlier, later)


def _keys(earlier: View, later: View) -> Iterator[Hit]:
    for name in _KEYS:
        a, b = earlier.settings.get(name), later.settings.get(name)
        if a != b and (isinstance(b, str) or (b is None and isinstance(a, str))):
            where = at(name, a, b)
            what = f"{name} is another one on each turn of a conversation"
            yield Hit("PFX503", name, (-1, 90, 0), where, ("PFX503", name), what, short(a), short(b), same=True, tail=1)
            return
    if earlier.namespace != later.namespace:
        gone, come = ([part for part in x if part not in y] for x, y in _both(earlier.namespace, later.namespace))
        name = (come or gone)[0].partition("=")[0]
        path = {"salt": "cache_salt", "lora": "lora_request"}.get(name, name)
        where = at(path, " ".join(gone), " ".join(come))
        what = f"the {name} that separates caches changes within a conversation"
        before, after = " ".join(gone), " ".join(come)
        yield Hit("PFX503", name, (-1, 91, 0), where, ("PFX503", name), what, before, after, same=True, tail=1)


def _both(a: tuple[str, ...], b: tuple[str, ...]) -> tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]:
    return (a, b), (b, a)


def _effective(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: v for k, v in value.items() if k not in _HARMLESS} or None
    return value


def _is_default(name: str, a: Any, b: Any) -> bool:
    """Tell whether a switch was only left out on one side, with the value that it then has."""
    return name == "tool_choice" and {_line(a), _line(b)} <= {"", "auto", '{"type":"auto"}'}


def _line(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else dumps(value).decode("utf-8", "replace")


def schema(earlier: View, later: View, *, same: bool) -> Iterator[Hit]:
    """Compare output schemas: a schema is part of the prompt, ahead of the messages."""
    path, a = _schema_of(earlier)
    other, b = _schema_of(later)
    if a is None or b is None or path != other or dumps(a) == dumps(b):
        return
    where = at(path, a, b)
    what = "the output schema is another one for requests that share their prompt"
    before, after = _line(a), _line(b)
    yield Hit("PFX307", "schema", (0, 1 << 20, 0), where, ("PFX307",), what, before, after, same, 1)


def _schema_of(view: View) -> tuple[str, Any]:
    held = view.settings.get("response_format")
    if isinstance(held, dict) and held.get("type") == "json_schema":
        inner = held.get("json_schema")
        if isinstance(inner, dict) and "schema" in inner:
            return "response_format.json_schema.schema", inner["schema"]
        return "response_format", held.get("schema", inner)
    for name in ("text", "output_config"):
        config = view.settings.get(name)
        form = config.get("format") if isinstance(config, dict) else None
        if isinstance(form, dict) and "schema" in form:
            return f"{name}.format.schema", form["schema"]
    return "", None
