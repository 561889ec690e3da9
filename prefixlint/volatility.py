"""Where a value comes from -> how widely and how often it changes. The facts are in `rules/sources.toml`.

`of_call` and `of_method` judge what code calls, `of_name` what people call things; `refine` follows a clock through the
methods and formats that coarsen it: `datetime.now().strftime("%Y-%m-%d")` changes once a day, `.year` hardly ever.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

from prefixlint import rulefiles
from prefixlint.prompts import Origin, Period, Scope, Volatility
from prefixlint.wordset import word_set

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


class Source(NamedTuple):
    """What the table says of a name; `weak` if that is little."""

    kind: str
    volatility: Volatility
    weak: bool = False


class _Tables(NamedTuple):
    calls: Any
    methods: dict[str, Source]
    exact: dict[tuple[str, ...], Source]
    suffix: dict[tuple[str, ...], Source]
    kinds: dict[str, str]
    things: frozenset[str]


@cache
def _tables() -> _Tables:
    import pygtrie

    data = tomllib.loads((rulefiles.folder() / "sources.toml").read_text(encoding="utf-8"))
    calls = pygtrie.StringTrie(separator=".")
    methods: dict[str, Source] = {}
    exact: dict[tuple[str, ...], Source] = {}
    suffix: dict[tuple[str, ...], Source] = {}
    for row in data["call"]:
        for name in row["names"]:
            calls[name] = _source(row)
    for row in data["method"]:
        methods.update((name, _source(row)) for name in row["names"])
    for row in data["name"]:
        exact.update((tuple(name.split()), _source(row)) for name in row.get("exact", ()))
        suffix.update((tuple(name.split()), _source(row)) for name in row.get("suffix", ()))
    return _Tables(calls, methods, exact, suffix, data["kinds"], frozenset(data["things"]))


def _source(row: dict[str, Any]) -> Source:
    return Source(
        row["kind"], Volatility(Scope[row["scope"].upper()], Period[row["period"].upper()]), row.get("weak", False)
    )


def of_call(dotted: str) -> Source | None:
    """Give what a dotted name is known for, by its longest known prefix; kind `constant` clears a name."""
    found = _tables().calls.longest_prefix(dotted)
    return found.value if found else None


@cache
def is_thing(name: str) -> bool:
    """Tell whether what a name names is a thing, whose name or address identifies nobody."""
    return any(word.lower() in _tables().things for word in _WORDS.findall(name))


def of_method(name: str) -> Source | None:
    """Give what a method of this name does on an object that is not known."""
    return _tables().methods.get(name)


@cache
def of_name(name: str) -> Source | None:
    """Give what a name says, by whole words; None for most names. Kind `static` says that it is fixed text."""
    said = tuple(_SHORT.get(word.lower(), word.lower()) for word in _WORDS.findall(name))
    if not said:
        return None
    tables = _tables()
    found = tables.exact.get(said)
    if found is not None:
        return found
    for skip in range(len(said)):
        found = tables.suffix.get(said[skip:])
        if found is not None:
            return found
    return None


_SHORT = {"curr": "current", "cur": "current", "usr": "user"}
"""What people write for words of the table."""

_CALL_NOISE = word_set(
    "get fetch compute format formatted str string iso generate make create the load build read as to"
)


def of_callee(name: str) -> Source | None:
    """Give what the name of an unknown function says: `get_today_str` is about today. Only changing things count."""
    said = [word.lower() for word in _WORDS.findall(name.rsplit(".", 1)[-1])]
    kept = [word for word in said if word not in _CALL_NOISE]
    found = of_name(" ".join(kept)) if kept else None
    return found if found is not None and found.kind in ("clock", "date", "random", "environment", "counter") else None


def describe(kind: str) -> str:
    """Give the words for a kind."""
    return _tables().kinds.get(kind, kind)


_SECOND = frozenset("SfscXTrN+")
_MINUTE = frozenset("MRHIpPklZz")
_DAY = frozenset("djaAxDFeuwUVWmbBhGg")
_DIRECTIVE = re.compile(r"%[-_0^#]?([a-zA-Z+])")
_DAY_ATTRIBUTES = word_set(
    "date day month weekday isoweekday isocalendar toordinal day_name month_name days to_date_string"
)
_HOUR_ATTRIBUTES = frozenset(["hour", "minute"])
_STEPS = word_set(
    "strftime format strftime_now to_format isoformat ctime timestamp timetuple astimezone replace time total_seconds "
    "to_iso8601_string to_datetime_string to_time_string humanize shift add subtract localize normalize"
)


def is_step(name: str) -> bool:
    """Tell whether a method of this name gives a time again, or writes it."""
    return name in _STEPS or name in _DAY_ATTRIBUTES or name in _HOUR_ATTRIBUTES


def refine(origin: Origin, step: str, argument: str | None = None) -> Origin | None:
    """Follow an origin through an attribute or method; None if what is left hardly ever changes.

    `step` is the name, `format` for a format spec; `argument` its first argument if that is a literal.
    """
    if origin.kind not in ("clock", "date", "age"):
        return origin
    if step in ("strftime", "format", "strftime_now", "to_format"):
        return origin if argument is None else _formatted(origin, argument)
    if step in ("year", "tzinfo", "tzname", "utcoffset"):
        return None
    if step in _DAY_ATTRIBUTES:
        return _at(origin, Period.DAY)
    if step in _HOUR_ATTRIBUTES:
        return _at(origin, Period.MINUTE)
    return origin


def _formatted(origin: Origin, pattern: str) -> Origin | None:
    directives = {match[1] for match in _DIRECTIVE.finditer(pattern)}
    if not directives:
        return _named_format(origin, pattern)
    if directives & _SECOND:
        return _at(origin, Period.SECOND)
    if directives & _MINUTE - {"Z", "z"}:
        return _at(origin, Period.MINUTE)
    return _at(origin, Period.DAY) if directives & _DAY else None


def _named_format(origin: Origin, pattern: str) -> Origin | None:
    """Read formats such as `YYYY-MM-DD HH:mm` (pendulum, arrow, moment); others leave the origin as it is."""
    if not re.search(r"YY|DD|HH|mm", pattern):
        return origin
    if "ss" in pattern or "S" in pattern:
        return _at(origin, Period.SECOND)
    if re.search(r"HH?|hh?|mm", pattern):
        return _at(origin, Period.MINUTE)
    return _at(origin, Period.DAY) if re.search(r"D|M|d", pattern) else None


def _at(origin: Origin, period: Period) -> Origin:
    if origin.frozen:
        return replace(origin, kind=_clock_kind(origin, period))
    volatility = Volatility(origin.volatility.scope, min(origin.volatility.period, period))
    return replace(origin, kind=_clock_kind(origin, volatility.period), volatility=volatility)


def _clock_kind(origin: Origin, period: Period) -> str:
    if origin.kind == "age":
        return "age"
    return "date" if period <= Period.DAY else "clock"
