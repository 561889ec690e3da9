"""What an expression would be as text, before other files are known.

A source lowers its syntax (Python, Jinja) to these values; `link` reads them across files. `start` and `end` are byte
offsets in the file that made the value. Values are tuples: cheap to make in great numbers, immutable, and encoded as
flat lists (`encode`, `decode`) for the result cache, shared parts once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

Inner = Any
"""A `Value`. Tuple types that contain themselves make a type checker compare them for minutes."""


class Lit(NamedTuple):
    """A string. `marks` map it to the file: from character `i` on, text starts at byte `b`, for each `(i, b)`."""

    text: str
    start: int
    end: int
    marks: tuple[tuple[int, int], ...] = ()


class Const(NamedTuple):
    """A number, a bool or None."""

    value: int | float | bool | None
    start: int
    end: int


class Join(NamedTuple):
    """Parts one after the other: strings, or lists."""

    parts: tuple[Inner, ...]
    start: int
    end: int


class Name(NamedTuple):
    """A name that leads elsewhere: `.x` in this module, `pkg.mod.x` in another, `x` a builtin."""

    dotted: str
    start: int
    end: int


class Var(NamedTuple):
    """A local name where it is read, and what it holds there."""

    name: str
    value: Inner
    start: int
    end: int


class Param(NamedTuple):
    """A parameter of a function of this file (its qualified name), or a variable of a template (`func` is empty)."""

    func: str
    name: str
    start: int
    end: int


class Attr(NamedTuple):
    """An attribute."""

    base: Inner
    name: str
    start: int
    end: int


class Item(NamedTuple):
    """An element by key or index."""

    base: Inner
    key: Inner
    start: int
    end: int


class Slice(NamedTuple):
    """A part of a sequence; None for an open side."""

    base: Inner
    lower: Inner | None
    upper: Inner | None
    start: int
    end: int


class Call(NamedTuple):
    """A call; a keyword named `**` spreads a mapping."""

    func: Inner
    args: tuple[Inner, ...]
    kwargs: tuple[tuple[str, Inner], ...]
    start: int
    end: int


REPLACE_EACH = "replace*"
"""The method that stands for `text.replace(key, value)` in a loop over a mapping: of that, and what is around a key."""


class Star(NamedTuple):
    """Spread elements, in a `Seq` or in arguments."""

    value: Inner
    start: int
    end: int


class Seq(NamedTuple):
    """Elements in brackets; `kind` is list, tuple or set."""

    kind: str
    items: tuple[Inner, ...]
    start: int
    end: int


class Map(NamedTuple):
    """A mapping; a key of None spreads another mapping."""

    entries: tuple[tuple[Inner | None, Inner], ...]
    start: int
    end: int


class Loop(NamedTuple):
    """`body` once per element of `source`; `kind` is list, set, gen, dict, or text and items for statement loops.

    `kept` is the condition of a comprehension.
    """

    source: Inner
    body: Inner
    kind: str
    kept: Inner | None
    start: int
    end: int


class Elem(NamedTuple):
    """The element of `source` at hand in a loop."""

    source: Inner
    start: int
    end: int


class Either(NamedTuple):
    """One of several values."""

    options: tuple[Inner, ...]
    start: int
    end: int


class Field(NamedTuple):
    """An interpolation: `{value!conversion:spec}`."""

    value: Inner
    conversion: str
    spec: str
    start: int
    end: int


class Template(NamedTuple):
    """A text with placeholders of a style (brace, percent, dollar, jinja, mustache) that others fill."""

    style: str
    text: Lit
    start: int
    end: int


class Op(NamedTuple):
    """Any other operation on values: arithmetic (`-`), set operations (`&`), `counter`, `?` for the unknown."""

    name: str
    operands: tuple[Inner, ...]
    start: int
    end: int


Value = (
    Lit
    | Const
    | Join
    | Name
    | Var
    | Param
    | Attr
    | Item
    | Slice
    | Call
    | Star
    | Seq
    | Map
    | Loop
    | Elem
    | Either
    | Field
    | Template
    | Op
)
TYPES: tuple[type, ...] = (
    Lit,
    Const,
    Join,
    Name,
    Var,
    Param,
    Attr,
    Item,
    Slice,
    Call,
    Star,
    Seq,
    Map,
    Loop,
    Elem,
    Either,
    Field,
    Template,
    Op,
)
_TAGS = {kind: number for number, kind in enumerate(TYPES)}


def children(value: Value) -> Iterator[Value]:
    """Give the direct parts of a value."""
    stack: list[Any] = list(reversed(value))
    while stack:
        part = stack.pop()
        if type(part) in _TAGS:
            yield part
        elif type(part) is tuple:
            stack.extend(reversed(part))


def walk(value: Value) -> Iterator[Value]:
    """Give a value and all its parts, each object once."""
    seen: set[int] = set()
    stack: list[Value] = [value]
    while stack:
        part = stack.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        stack.extend(reversed(list(children(part))))


def bare(value: Value) -> Value:
    """Give the value behind local names."""
    while type(value) is Var:
        value = value.value
    return value


def dotted(value: Value) -> str | None:
    """Give `a.b.c` for a name or a chain of attributes on a name or a local, else None."""
    if isinstance(value, Name):
        return value.dotted
    if isinstance(value, (Var, Param)):
        return value.name
    if isinstance(value, Attr):
        base = dotted(value.base)
        return None if base is None else f"{base}.{value.name}"
    return None


def text_of(value: Value | None) -> str | None:
    """Give the text of a literal, else None."""
    if value is None:
        return None
    value = bare(value)
    if isinstance(value, Lit):
        return value.text
    if isinstance(value, Join):
        texts = [text_of(part) for part in value.parts]
        return None if any(text is None for text in texts) else "".join(text or "" for text in texts)
    return None


class Encoder:
    """Turns values into a flat table; an object that is met again is a reference to its row."""

    def __init__(self) -> None:
        self.rows: list[list[Any]] = []
        self._seen: dict[int, int] = {}
        self._alive: list[Value] = []

    def add(self, value: Value) -> int:
        """Give the row number of a value, adding what is new. Iterative: chains of thousands of parts occur."""
        stack: list[tuple[Value, bool]] = [(value, False)]
        while stack:
            item, ready = stack.pop()
            if id(item) in self._seen:
                continue
            if not ready:
                stack.append((item, True))
                stack.extend((child, False) for child in children(item))
                continue
            row = [_TAGS[type(item)], *(self._field(part) for part in item)]
            self._seen[id(item)] = len(self.rows)
            self._alive.append(item)
            self.rows.append(row)
        return self._seen[id(value)]

    def _field(self, part: Any) -> Any:
        if type(part) in _TAGS:
            return {"v": self._seen[id(part)]}
        if type(part) is tuple:
            return [self._field(inner) for inner in part]
        return part


def decode(rows: list[list[Any]]) -> list[Value]:
    """Give the values of a table that `Encoder` made."""
    out: list[Value] = []

    def field(part: Any) -> Any:
        if type(part) is dict:
            return out[part["v"]]
        if type(part) is list:
            return tuple(field(inner) for inner in part)
        return part

    for tag, *fields in rows:
        out.append(TYPES[tag](*(field(part) for part in fields)))
    return out
