"""What an engine file may hold, and its checks: a typing error names the nearest key and is no default."""

from __future__ import annotations

import datetime as dt
import difflib
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any

from prefixlint.errors import ConfigError

CONFIDENCE = ("source", "documented", "measured", "convention", "assumed")

_CHOICES: dict[str, tuple[str, ...]] = {
    "match": ("longest_prefix", "marked_breakpoint", "whole_unit", "slot"),
    "cap": ("none", "length_minus_one", "after_rounding"),
    "stored": ("prompt", "prompt_and_output", "marked"),
    "visible": ("at_once", "scheduling", "prefill_end", "first_token", "response_end"),
    "eviction": ("lru_leaf", "lru_block", "lru_tail", "lru_path", "lru_slot", "unknown"),
    "lifetime": ("memory", "sliding", "from_write", "unknown"),
}
_MAYBE: dict[str, tuple[str, ...]] = {
    "states": ("page", "chunk", "checkpoint"),
    "host_write": ("write_through", "write_through_selective", "write_back"),
}
_NUMBERS = {
    "granularity": 1,
    "minimum": 0,
    "ttl": 0,
    "lookback": 1,
    "marks": 1,
    "prefill_chunk": 1,
    "rate": 1,
    "head": 1,
}  # the least value allowed
_RATIOS = ("read_ratio", "write_ratio", "write_ratio_1h", "write_ratio_12h")
_LISTS = ("isolation", "order")
_TEXTS = ("usage",)
REQUIRED = (*_CHOICES, "granularity", "minimum", "isolation")
OPTIONAL = ("ttl", "lookback", "marks", "prefill_chunk", "rate", "head", "order", *_MAYBE, *_RATIOS, *_TEXTS)
_FACT_KEYS = ("value", "source", "confidence", "note", "models", "as_of")


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(v, str) for v in value)


_HEAD: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "name": ("text", lambda v: isinstance(v, str) and bool(v)),
    "title": ("text", lambda v: isinstance(v, str) and bool(v)),
    "version": ("text", lambda v: isinstance(v, str) and bool(v)),
    "as_of": ("a date", lambda v: type(v) is dt.date),
    "kind": ("engine, provider or convention", lambda v: v in ("engine", "provider", "convention")),
    "aliases": ("a list of texts", _is_texts),
    "formats": ("a list of texts", _is_texts),
    "models": ("a list of texts", _is_texts),
    "usage_only": ("true or false", lambda v: isinstance(v, bool)),
    "implicit": ("true or false", lambda v: isinstance(v, bool)),
    "instead": ("a table of texts", lambda v: isinstance(v, dict) and _is_texts(list(v.values()))),
}
_HEAD_REQUIRED = ("name", "title", "version", "as_of")

Value = str | int | float | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact about an engine: its value, where it was read, when, and how sure it is.

    `confidence` is `source` (read in the source of the release), `documented`, `measured` by someone, `convention` (a
    definition, not a finding) or `assumed` (nobody says; the note says what follows). `models` are the values for the
    models whose names match a pattern (`*` and `?`, case ignored); the longest pattern that matches is used.
    """

    value: Value
    source: str
    confidence: str
    note: str | None = None
    models: Mapping[str, Value] = field(default_factory=dict)
    as_of: dt.date | None = None

    def of(self, model: str | None) -> Value:
        """Give the value for a model, the general one where none is named for it."""
        pattern = best_pattern(self.models, model)
        return self.value if pattern is None else self.models[pattern]


def best_pattern(patterns: Iterable[str], model: str | None) -> str | None:
    """Give the longest pattern that a model's name matches, with or without what stands before its last slash."""
    if model is None:
        return None
    names = {model.lower(), model.lower().rsplit("/", 1)[-1]}
    fits = [p for p in patterns if any(fnmatchcase(name, p.lower()) for name in names)]
    return max(fits, key=len, default=None)


def read(text: str, origin: str) -> tuple[dict[str, Any], dict[str, Fact]]:
    """Read an engine file: its head and its facts. `origin` names it in errors, which are ConfigErrors."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _wrong(origin, f"is not TOML: {error}") from error
    known = (*_HEAD, *REQUIRED, *OPTIONAL)
    for key in data:
        if key not in known:
            raise _unknown(origin, key, known, "")
    for key, (what, fits) in _HEAD.items():
        if (key in data and not fits(data[key])) or (key in _HEAD_REQUIRED and key not in data):
            raise _wrong(origin, f"needs {key!r} as {what}")
    head = {key: data[key] for key in _HEAD if key in data}
    names = [*REQUIRED, *(key for key in OPTIONAL if key in data)]
    return head, {key: _fact(origin, key, data.get(key)) for key in names}


def _fact(origin: str, key: str, table: Any) -> Fact:
    if not isinstance(table, dict):
        raise _wrong(origin, f"needs a table [{key}]")
    for name in table:
        if name not in _FACT_KEYS:
            raise _unknown(origin, name, _FACT_KEYS, f" in [{key}]")
    models = table.get("models", {})
    if not isinstance(models, dict):
        raise _wrong(origin, f"needs a table of values by model in [{key}] models")
    for value in (table.get("value"), *models.values()):
        if not _allowed(key, value):
            raise _wrong(origin, f"has the value {value!r} in [{key}], which is not allowed", _choices(key, value))
    if not isinstance(table.get("source"), str) or table.get("confidence") not in CONFIDENCE:
        raise _wrong(origin, f"needs a source and a confidence ({', '.join(CONFIDENCE)}) in [{key}]")
    if not isinstance(table.get("note", ""), str) or type(table.get("as_of", dt.date.min)) is not dt.date:
        raise _wrong(origin, f"needs text in 'note' and a date in 'as_of' of [{key}]")
    by_model = MappingProxyType({pattern: _kept(value) for pattern, value in models.items()})
    return Fact(
        _kept(table["value"]), table["source"], table["confidence"], table.get("note"), by_model, table.get("as_of")
    )


def _kept(value: Any) -> Value:
    kept: Value = tuple(value) if isinstance(value, list) else value
    return kept


def _allowed(key: str, value: Any) -> bool:
    if key in _CHOICES or key in _MAYBE:
        return value in (_CHOICES | _MAYBE)[key]
    if key in _NUMBERS:
        return type(value) is int and value >= _NUMBERS[key]
    if key in _RATIOS:
        return type(value) in (int, float) and 0 <= value < float("inf")
    return isinstance(value, str) if key in _TEXTS else _is_texts(value)


def _choices(key: str, value: Any) -> str:
    allowed = (_CHOICES | _MAYBE).get(key, ())
    near = difflib.get_close_matches(str(value), allowed, n=1)
    if near:
        return f"Did you mean {near[0]!r}?"
    return f"Allowed: {', '.join(allowed)}." if allowed else _COMPARE


_COMPARE = "Compare it with prefixlint/engines/vllm.toml, or with what `prefixlint engine vllm` shows."


def _unknown(origin: str, key: str, known: Iterable[str], where: str) -> ConfigError:
    near = difflib.get_close_matches(key, known, n=1)
    hint = f"Did you mean {near[0]!r}?" if near else f"Known keys: {', '.join(known)}."
    return _wrong(origin, f"has the unknown key {key!r}{where}", hint)


def _wrong(origin: str, what: str, hint: str = _COMPARE) -> ConfigError:
    return ConfigError(f"{origin} {what}", slug="bad-engine-file", hint=hint)
