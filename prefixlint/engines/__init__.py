"""Cache facts of engines and providers, one TOML file each, with the date and the source of each fact; their loader.

Adding an engine is adding a file. Each fact is a table with `value`, `source`, `confidence` and maybe a `note`, values
for single `models`, and a date of its own; `_schema` says what a file may hold.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from prefixlint.engines._schema import Fact, best_pattern, read
from prefixlint.errors import ConfigError, UsageError

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable, Mapping

__all__ = ["OLD_DAYS", "Cap", "Engine", "Fact", "SizedBy", "Stored", "load", "names", "old", "parse", "shown_by"]

Stored = Literal["prompt", "prompt_and_output", "marked"]
SizedBy = Literal["profile", "option", "model", "server"]
Cap = Literal["none", "length_minus_one", "after_rounding"]

_SALTS = frozenset({"cache_salt", "extra_key"})
OLD_DAYS = 180
"""A fact that was read longer ago than this is said to be old."""


@dataclass(frozen=True, slots=True)
class Engine:
    """How an engine's or a provider's prefix cache counts. Sizes are in tokens, times in seconds.

    `match` is what is looked for: the `longest_prefix`, the positions that a `marked_breakpoint` wrote, a `whole_unit`
    that was stored, or what a `slot` holds. `granularity` is the block (vLLM) or page (SGLang): hits are floored to it.
    `cap` is how much of a prompt may come from the cache: `length_minus_one` because one token must be computed to
    predict the next; `after_rounding` takes that one off whole blocks. `minimum` is the shortest hit given. `stored`
    says whether generated tokens enter the cache, `visible` from when a request's tokens can be hit, `isolation` what
    separates caches besides the model. `lifetime` says what ends an entry, `ttl` after how long (None: no fixed time).
    `lookback` is how many positions before a mark are looked up, `marks` how many a request may have; with `implicit`,
    the end of a prompt is marked without being asked for. Longer prompts are computed, and stored, in steps of
    `prefill_chunk`. `states` says which prefixes a model with states gives back: whole blocks that are as large as a
    state (`page`), multiples of its `chunk`, those that end at a `checkpoint`; None where it is not known. `sized_by`
    is what set the granularity: the profile, an option, the model or the server. `host_write` is when a second tier on
    the host gets something: at once, when it was found once, or when the pool lets go of it. A server of slots has
    `slots` of them (None: its default). A provider sends requests whose first `head` tokens and key agree to one
    machine, `rate` of them a minute, and the others to further ones. `formats` and `models` are the logs that show this
    provider, `instead` the engines that hold for some of its models. The rule of a `usage_only` provider is not known
    well enough to be simulated. `facts` holds the same with sources.
    """

    name: str
    title: str
    version: str
    as_of: dt.date
    kind: str
    match: str
    granularity: int
    cap: Cap
    minimum: int
    stored: Stored
    visible: str
    eviction: str
    lifetime: str
    isolation: tuple[str, ...]
    facts: Mapping[str, Fact]
    aliases: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    usage_only: bool = False
    implicit: bool = False
    instead: Mapping[str, str] = field(default_factory=dict)
    ttl: float | None = None
    lookback: int | None = None
    marks: int | None = None
    prefill_chunk: int | None = None
    rate: int | None = None
    head: int = 1
    slots: int | None = None
    states: str | None = None
    sized_by: SizedBy = "profile"
    host_write: str = "write_through"

    def with_granularity(self, tokens: int | None, by: SizedBy = "option") -> Engine:
        """Give the same engine with another block or page size; None changes nothing, below 1 is a UsageError."""
        if tokens is None:
            return self
        if tokens < 1:
            raise UsageError(
                f"a block size of {tokens} tokens is not possible", slug="bad-block-size", hint="Give 1 or more."
            )
        return replace(self, granularity=tokens, sized_by=by)

    @property
    def salted(self) -> bool:
        """Whether salts separate its caches: a server that does not know them ignores them, and shares."""
        return self.kind != "engine" or not _SALTS.isdisjoint(self.isolation)

    def goes_by_marks(self, models: Iterable[str | None]) -> bool:
        """Tell whether marks decide what is cached, for any of these models."""
        return any(self.for_model(model).match == "marked_breakpoint" for model in models)

    def for_model(self, model: str | None) -> Engine:
        """Give what holds for one model: another engine where `instead` names one, and the model's own values."""
        pattern = best_pattern(self.instead, model)
        if pattern is not None:
            return replace(load(self.instead[pattern]).for_model(model), name=self.name)
        own = {key: fact.of(model) for key, fact in self.facts.items() if fact.models}
        fields: dict[str, Any] = {key: own[key] for key in ("minimum", "granularity", "lookback") if key in own}
        if "ttl" in own:
            fields["ttl"] = own["ttl"] or None
        return replace(self, **fields) if fields else self


def names() -> tuple[str, ...]:
    """List the engines, sorted by name, without aliases."""
    return tuple(sorted(_all()))


def load(name: str) -> Engine:
    """Give an engine by name or alias, in any case, or from a user's own file (`mine.toml`).

    An unknown name is a UsageError with the nearest ones, a wrong file a ConfigError.
    """
    if name.strip().lower().endswith(".toml"):
        return _from_file(Path(name.strip()))
    known = {alias: engine for engine in _all().values() for alias in (engine.name, *engine.aliases)}
    found = known.get(name.strip().lower())
    if found is not None:
        return found
    near = difflib.get_close_matches(name.lower(), known, n=3, cutoff=0.5)
    hint = f"Did you mean {' or '.join(near)}?" if near else f"Known engines: {', '.join(sorted(known))}."
    raise UsageError(f"there is no engine called {name!r}", slug="unknown-engine", hint=hint)


def shown_by(pairs: Iterable[tuple[str, str | None]]) -> list[Engine]:
    """Give the providers that a log shows by its (format, model) pairs, in the order in which they come."""
    found: dict[str, Engine] = {}
    providers = [engine for engine in _all().values() if engine.kind == "provider" and not engine.usage_only]
    for form, model in pairs:
        shown = [e for e in providers if form in e.formats] or [e for e in providers if best_pattern(e.models, model)]
        found |= {engine.name: engine for engine in shown}
    return list(found.values())


def parse(text: str, origin: str) -> Engine:
    """Read one engine file; `origin` names it in errors. ConfigError where a key or value is not what it must be."""
    head, facts = read(text, origin)
    values: dict[str, Any] = {key: fact.value for key, fact in facts.items() if key in Engine.__dataclass_fields__}
    values["ttl"] = values.get("ttl") or None
    values |= {key: tuple(head.pop(key, ())) for key in ("aliases", "formats", "models")}
    values |= {"kind": head.pop("kind", "engine"), "instead": MappingProxyType(head.pop("instead", {}))}
    return Engine(**head, **values, facts=MappingProxyType(facts))


def old(engine: Engine, today: dt.date) -> list[tuple[str, int]]:
    """List the facts that were read more than OLD_DAYS days before `today`, with their age in days, oldest first."""
    ages = [(key, (today - (fact.as_of or engine.as_of)).days) for key, fact in engine.facts.items()]
    return sorted(((key, days) for key, days in ages if days > OLD_DAYS), key=lambda item: (-item[1], item[0]))


def _from_file(path: Path) -> Engine:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the engine file {path} cannot be read: {error}", slug="bad-engine-file") from error
    return parse(text, str(path))


@cache
def _all() -> Mapping[str, Engine]:
    found = {}
    for file in sorted(resources.files(__name__).iterdir(), key=lambda f: f.name):
        if file.name.endswith(".toml"):
            engine = parse(file.read_text(encoding="utf-8"), file.name)
            found[engine.name] = engine
    return MappingProxyType(found)
