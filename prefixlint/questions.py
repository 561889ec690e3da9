"""Questions about values that need other files: is it a source itself, an element, a text of its own."""

from __future__ import annotations

import re

from prefixlint import volatility
from prefixlint.resolve import Frame, Resolver
from prefixlint.values import (
    Attr,
    Call,
    Either,
    Elem,
    Item,
    Join,
    Lit,
    Loop,
    Map,
    Name,
    Op,
    Param,
    Seq,
    Slice,
    Value,
    Var,
    dotted,
    text_of,
)
from prefixlint.verdicts import SHORT, is_delta

MAX_OWNERS = 6
"""Steps from a value to what it is a part of."""


def is_direct(resolver: Resolver, value: Value, frame: Frame, depth: int = 0) -> bool:
    """Tell whether a value is itself a source or a step from one, not a thing that was made with one."""
    for _ in range(8):
        held, frame = resolver.resolve(value, frame)
        if isinstance(held, Op):
            return held.name in ("-", "+")
        if isinstance(held, Join):  # a time and what is added to it
            given = [resolver.resolve(part, frame) for part in held.parts] if depth < MAX_OWNERS else []
            return len(given) == 2 and any(
                is_delta(part) or (not isinstance(part, Param) and is_direct(resolver, part, inner, depth + 1))
                for part, inner in given
            )
        if isinstance(held, Either):
            if any(_is_time(resolver, option, frame) for option in held.options):
                return True
            held = held.options[0]
        path = dotted(held.func) if isinstance(held, Call) else dotted(held)
        if path is not None and not path.startswith((".", "/")) and volatility.of_call(path) is not None:
            return True
        if isinstance(held, Call) and isinstance(held.func, Attr):
            value = held.func.base
        elif isinstance(held, (Attr, Item, Slice)):
            value = held.base
        else:
            return isinstance(held, Param)
    return False


def _is_time(resolver: Resolver, value: Value, frame: Frame) -> bool:
    """Tell whether one of several values is the time, or a step from it: `given or datetime.now()`."""
    for _ in range(MAX_OWNERS):
        value, frame = resolver.resolve(value, frame)
        path = dotted(value.func) if isinstance(value, Call) else dotted(value)
        source = volatility.of_call(path) if path is not None and not path.startswith((".", "/")) else None
        if source is not None:
            return source.kind in ("clock", "date")
        step = value.func if isinstance(value, Call) else value
        if not isinstance(step, Attr):
            return False
        value = step.base
    return False


def is_element(resolver: Resolver, value: Value, frame: Frame) -> bool:
    """Tell whether a value is one of several stored things."""
    return isinstance(resolver.resolve(value, frame)[0], (Elem, Item))


def is_written_out(resolver: Resolver, value: Value, frame: Frame) -> bool:
    """Tell whether a value is, or is a part of, an element of a list whose elements are written one after the other."""
    if not frame.counted:
        return False
    for _ in range(MAX_OWNERS):
        held, inner = resolver.resolve(value, frame)
        if isinstance(held, Elem):
            return id(held.source) in inner.counted
        if isinstance(held, Either):
            value, frame = held.options[0], inner
        elif isinstance(held, Call) and isinstance(held.func, Attr) and held.func.name == "get":
            value, frame = held.func.base, inner
        elif isinstance(held, (Item, Attr)):
            value, frame = held.base, inner
        else:
            return False
    return False


def owner(value: Value) -> str:
    """Give what the owner of an entry is called: `r` of `r["x"]`, `b` of `a.get("b")`; empty where nothing says it."""
    for _ in range(MAX_OWNERS):
        if isinstance(value, Either):
            value = value.options[0]
        elif isinstance(value, Item) and text_of(value.key) is not None:
            return text_of(value.key) or ""
        elif isinstance(value, Call) and isinstance(value.func, Attr) and value.func.name == "get" and value.args:
            return text_of(value.args[0]) or ""
        elif isinstance(value, Item):
            value = value.base
        else:
            break
    return (dotted(value) or "").rsplit(".", 1)[-1]


def is_long_text(resolver: Resolver, value: Value, frame: Frame) -> bool:
    """Tell whether an argument is a text of its own.

    What changes in it is reported where it stands in that text.
    """
    held, inner = resolver.resolve(value, frame)
    if isinstance(held, Join):
        return sum(len(part.text) for part in held.parts if isinstance(part, Lit)) > SHORT or any(
            is_long_text(resolver, part, inner) for part in held.parts[:20] if isinstance(part, (Var, Name))
        )
    if isinstance(held, (Seq, Map, Loop)):
        return True
    if isinstance(held, Call) and isinstance(held.func, Attr):
        return held.func.name in ("format", "join", "render", "substitute") or is_long_text(
            resolver, held.func.base, inner
        )
    return isinstance(held, Lit) and len(held.text) > SHORT


def has_default_text(value: Param, frame: Frame) -> bool:
    """Tell whether a parameter has a text of its own where nobody gives one: `user_name="Me"` may suit all callers."""
    function = frame.summary.functions.get(value.func)
    default = dict(function.defaults).get(value.name) if function is not None else None
    return bool(text_of(default))


_GETATTR_DEFAULT = 2
"""Which argument of `getattr` is the value of a missing attribute."""


def date_pattern(resolver: Resolver, value: Value, frame: Frame) -> str | None:
    """Give the format of a date: its text, the default of a setting, or what its name says it shows."""
    held, _ = resolver.resolve(value, frame)
    if isinstance(held, Call) and dotted(held.func) == "getattr" and len(held.args) > _GETATTR_DEFAULT:
        held = held.args[_GETATTR_DEFAULT]
    if isinstance(held, Join):  # f"%H:%M {zone}": what is put into a format is the text around its directives
        return "".join(filter(None, map(text_of, held.parts))) or None
    text = text_of(held)
    if text is not None:
        return text
    words = set(re.split(r"[^a-z]+", (dotted(held) or "").lower()))
    return "%Y-%m-%d" if "date" in words and not words & {"time", "datetime"} else None
