"""Cache facts of inference engines, one TOML file each, with the date and the source of each fact; and their loader.

Adding an engine is adding a file. Each fact is a table with `value`, `source`, `confidence` and maybe a `note`; what a
file may hold is checked when it is loaded, so that a typing error is an error and not a default.
"""

from __future__ import annotations

import difflib
import tomllib
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from prefixlint.errors import ConfigError, UsageError

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping

Stored = Literal["prompt", "prompt_and_output"]
Cap = Literal["none", "length_minus_one"]

_CHOICES: dict[str, tuple[str, ...]] = {
    "match": ("longest_prefix",),
    "cap": ("none", "length_minus_one"),
    "stored": ("prompt", "prompt_and_output"),
    "visible": ("at_once", "scheduling", "prefill_end"),
    "eviction": ("lru_leaf", "lru_block"),
}
_NUMBERS = {"granularity": 1, "minimum": 0}  # the least value allowed
_FACTS = (*_CHOICES, *_NUMBERS, "isolation")
_CONFIDENCE = ("source", "documented", "measured", "convention")


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact about an engine: its value, where it was read, and how sure it is.

    `confidence` is `source` (read in the source of the release), `documented`, `measured` by someone, or `convention`
    (a definition, not a finding).
    """

    value: str | int | tuple[str, ...]
    source: str
    confidence: str
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Engine:
    """How an engine's prefix cache counts. Sizes are in tokens.

    `granularity` is the block (vLLM) or page (SGLang): hits are floored to it. `cap` is how much of a prompt may come
    from the cache: `length_minus_one` because one token must be computed to predict the next. `minimum` is the
    shortest hit given. `stored` says whether generated tokens enter the cache, `visible` from when a request's tokens
    can be hit, `isolation` what separates caches besides the model. `facts` holds the same with sources.
    """

    name: str
    title: str
    version: str
    as_of: dt.date
    match: str
    granularity: int
    cap: Cap
    minimum: int
    stored: Stored
    visible: str
    eviction: str
    isolation: tuple[str, ...]
    facts: Mapping[str, Fact]
    aliases: tuple[str, ...] = ()

    def with_granularity(self, tokens: int | None) -> Engine:
        """Give the same engine with another block or page size; None changes nothing, below 1 is a UsageError."""
        if tokens is None:
            return self
        if tokens < 1:
            raise UsageError(
                f"a block size of {tokens} tokens is not possible", slug="bad-block-size", hint="Give 1 or more."
            )
        return replace(self, granularity=tokens)


def names() -> tuple[str, ...]:
    """List the engines, sorted by name, without aliases."""
    return tuple(sorted(_all()))


def load(name: str) -> Engine:
    """Give an engine by name or alias, in any case; an unknown name is a UsageError with the nearest ones."""
    known = {alias: engine for engine in _all().values() for alias in (engine.name, *engine.aliases)}
    found = known.get(name.strip().lower())
    if found is not None:
        return found
    near = difflib.get_close_matches(name.lower(), known, n=3, cutoff=0.5)
    hint = f"Did you mean {' or '.join(near)}?" if near else f"Known engines: {', '.join(sorted(known))}."
    raise UsageError(f"there is no engine called {name!r}", slug="unknown-engine", hint=hint)


def parse(text: str, origin: str) -> Engine:
    """Read one engine file; `origin` names it in errors. ConfigError where a key or value is not what it must be."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _wrong(origin, f"is not TOML: {error}") from error
    head = {"name": str, "title": str, "version": str}
    unknown = sorted(set(data) - set(head) - set(_FACTS) - {"as_of", "aliases"})
    if unknown:
        raise _wrong(origin, f"has the unknown key {unknown[0]!r}")
    for key, kind in head.items():
        if not isinstance(data.get(key), kind) or not data[key]:
            raise _wrong(origin, f"needs {key!r} as text")
    if type(data.get("as_of")).__name__ != "date":
        raise _wrong(origin, "needs 'as_of' as a date")
    facts = {key: _fact(origin, key, data.get(key)) for key in _FACTS}
    return Engine(
        name=data["name"],
        title=data["title"],
        version=data["version"],
        as_of=data["as_of"],
        aliases=tuple(data.get("aliases", ())),
        facts=MappingProxyType(facts),
        **{key: fact.value for key, fact in facts.items()},  # type: ignore[arg-type]  # _fact checked the kinds
    )


@cache
def _all() -> Mapping[str, Engine]:
    found = {}
    for file in resources.files(__name__).iterdir():
        if file.name.endswith(".toml"):
            engine = parse(file.read_text(encoding="utf-8"), file.name)
            found[engine.name] = engine
    return MappingProxyType(found)


def _fact(origin: str, key: str, table: Any) -> Fact:
    if not isinstance(table, dict):
        raise _wrong(origin, f"needs a table [{key}]")
    unknown = sorted(set(table) - {"value", "source", "confidence", "note"})
    if unknown:
        raise _wrong(origin, f"has the unknown key {unknown[0]!r} in [{key}]")
    value = table.get("value")
    if not _allowed(key, value):
        raise _wrong(origin, f"has the value {value!r} in [{key}], which is not allowed")
    if not isinstance(table.get("source"), str) or table.get("confidence") not in _CONFIDENCE:
        raise _wrong(origin, f"needs a source and a confidence ({', '.join(_CONFIDENCE)}) in [{key}]")
    kept: Any = tuple(value) if isinstance(value, list) else value
    return Fact(kept, table["source"], table["confidence"], table.get("note"))


def _allowed(key: str, value: Any) -> bool:
    if key in _CHOICES:
        return value in _CHOICES[key]
    if key in _NUMBERS:
        return type(value) is int and value >= _NUMBERS[key]
    return isinstance(value, list) and all(isinstance(v, str) for v in value)


def _wrong(origin: str, what: str) -> ConfigError:
    return ConfigError(f"{origin} {what}", slug="bad-engine-file", hint="Compare it with prefixlint/engines/vllm.toml.")
