"""What `prefixlint engine` shows: every fact with its value, its source, how sure it is, and how old."""

from __future__ import annotations

import datetime as dt
import textwrap
from collections.abc import Sequence

from prefixlint.engines import OLD_DAYS, Engine, Fact, load, names, old

_INDENT = " " * 18
_TITLES = {
    "granularity": "tokens",
    "minimum": "tokens",
    "ttl": "s",
    "lookback": "block ends",
    "prefill_chunk": "tokens",
    "rate": "requests a minute",
    "head": "tokens",
    "read_ratio": "x the input price",
    "write_ratio": "x the input price",
    "write_ratio_1h": "x the input price",
    "write_ratio_12h": "x the input price",
}


def listing(today: dt.date, width: int = 80) -> str:
    """List all engines and providers, one a line, and say which of their facts are old."""
    rows = [load(name) for name in names()]
    longest = max(len(engine.name) for engine in rows)
    lines = []
    for engine in rows:
        about = f"{engine.title}, as of {engine.as_of}"
        if engine.usage_only:
            about += "; usage only"
        if old(engine, today):
            about += f"; facts older than {OLD_DAYS} days"
        lines += _wrapped(f"{engine.name:{longest}}  ", about, width)
    return "\n".join([*lines, "", "prefixlint engine NAME shows one, with the source of each fact."]) + "\n"


def page(engine: Engine, today: dt.date, width: int = 80) -> str:
    """Show one engine or provider."""
    ages = dict(old(engine, today))
    lines = [f"{engine.name}: {engine.title}", f"{engine.kind}, {engine.version}; facts as of {engine.as_of}"]
    if engine.aliases:
        lines.append(f"also called {', '.join(engine.aliases)}")
    if engine.usage_only:
        text = "Its rule is not documented well enough to be simulated: only what the log reports is shown."
        lines += _wrapped("", text, width)
    if engine.models or engine.formats:
        lines += _wrapped("", f"shown by logs of {_listed([*engine.formats, *engine.models])}", width)
    for pattern, other in engine.instead.items():
        lines.append(f"{pattern}: see {other}")
    for key, fact in engine.facts.items():
        lines += ["", *_fact(key, fact, ages.get(key), width)]
    return "\n".join(lines) + "\n"


def _fact(key: str, fact: Fact, age: int | None, width: int) -> list[str]:
    unit = _TITLES.get(key)
    value = _shown(fact.value) + (f" {unit}" if unit else "")
    lines = _wrapped(f"{key:{len(_INDENT)}}", value, width)
    for pattern, own in fact.models.items():
        lines += _wrapped(_INDENT, f"{pattern}: {_shown(own)}", width)
    dated = f", {fact.as_of}" if fact.as_of else ""
    lines += _wrapped(_INDENT, f"{fact.confidence}{dated}: {fact.source}", width)
    if fact.note:
        lines += _wrapped(_INDENT, fact.note, width)
    if age is not None:
        lines += _wrapped(_INDENT, f"{age} days old: check it before you rely on it", width)
    return lines


def _shown(value: str | float | Sequence[str]) -> str:
    if isinstance(value, str):
        return value.replace("_", " ") if value.replace("_", "").isalpha() else value
    if isinstance(value, int | float):
        return f"{value:,}"
    return _listed(value) if value else "nothing"


def _listed(values: Sequence[str]) -> str:
    return ", ".join(values)


def _wrapped(first: str, text: str, width: int) -> list[str]:
    lines = textwrap.wrap(
        text,
        max(width, len(first) + 20),
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return lines or [first.rstrip()]


def as_json(chosen: Sequence[Engine], today: dt.date) -> str:
    """Give engines as JSON, in the form that programs read."""
    import orjson

    shown = [
        {
            "name": engine.name,
            "title": engine.title,
            "version": engine.version,
            "kind": engine.kind,
            "as_of": engine.as_of,
            "aliases": engine.aliases,
            "usage_only": engine.usage_only,
            "old": [key for key, _ in old(engine, today)],
            "facts": {
                key: {
                    "value": fact.value,
                    "models": dict(fact.models),
                    "source": fact.source,
                    "confidence": fact.confidence,
                    "note": fact.note,
                    "as_of": fact.as_of or engine.as_of,
                }
                for key, fact in engine.facts.items()
            },
        }
        for engine in chosen
    ]
    value = {"schema": "prefixlint.engine/1", "engines": shown}
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode()
