"""Prompt sources: one file in, one `Summary` out, before other files are known. One module per kind of syntax.

A module satisfies `Kind` below; adding one is adding a file here and a fixture. Names that begin with an underscore are
not kinds. A summary depends on its file's bytes alone, so it is cached by their hash (`encode`, `decode`).
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol, cast

from prefixlint import values
from prefixlint.declared import NOTHING, Declared
from prefixlint.values import Call, Value

VERSION = 19
"""Of the summaries' meaning.

Raise it when a source kind reads the same bytes differently, so that caches are not used.
"""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file as read: its path as users know it (forward slashes), its bytes, and what the configuration declares."""

    path: str
    data: bytes
    declared: Declared = NOTHING

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rsplit("/", 1)[-1]

    @property
    def suffix(self) -> str:
        """The ending, lower case, with its dot; empty where there is none."""
        name = self.name.lower()
        return name[name.rindex(".") :] if "." in name[1:] else ""


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """Something that could not be read: where (1-based line, 0 for the whole file), a stable slug, and what to do."""

    path: str
    line: int
    slug: str
    message: str


@dataclass(frozen=True, slots=True)
class Sink:
    """A value that reaches a model, or something that rules about calls need to see.

    `kind` is one of
      text      a prompt's text, of role `role`
      hint      text under a key that prompts share with other things: a prompt if it is long or speaks to a model
      messages  a list of messages
      message   one message that no list shows (an append)
      tools     a list of tool definitions, or one
      declared  a call of a function that the configuration names; `name` is the argument that counts, empty for all
      named     text whose name (`name`) says prompt: used where no other sink covers it
      call      a call with arguments that matter to caching; `value` is the Call
      store     `target[key] = value` or `target.key = value`; `value` is a Seq of target, key, value
      expr      any other value of interest to a check, `name` saying which
    `func` is the qualified name of the function it stands in, empty at module level. `loop` says that it stands in a
    loop statement, `aside` that it is what is done when something fails, or what a store is given to keep, or that only
    a parameter in it says that it is a prompt.
    """

    kind: str
    value: Value
    start: int
    end: int
    role: str = "text"
    func: str = ""
    name: str = ""
    loop: bool = False
    aside: bool = False


@dataclass(frozen=True, slots=True)
class Function:
    """What a function gives back. A method's first parameter is not in `params`.

    `doc` is the byte range of its text. `leaves` are the parameters that it adds to, with what they hold at its end.
    """

    params: tuple[str, ...]
    returns: Value | None
    defaults: tuple[tuple[str, Value], ...] = ()
    start: int = 0
    end: int = 0
    leaves: tuple[tuple[str, Value], ...] = ()


@dataclass(frozen=True, slots=True)
class Class:
    """A class: its bases as dotted names, and whether its text form shows no address."""

    bases: tuple[str, ...]
    printable: bool


@dataclass(frozen=True, slots=True)
class CallSite:
    """A call whose arguments may matter to the function called; `func` is where it stands, empty at module level."""

    call: Call
    func: str = ""


@dataclass(frozen=True, slots=True)
class Summary:
    """What one file says.

    `constants` are module names and `Class.attribute` names; `functions` and `classes` by qualified name; `imports`
    maps a local name to a dotted one (of a star import, `*` and a number). `calls` are calls of functions that the
    project may define, `renders` those that fill a text (`format`, `render`, …). `text` is the whole file as a text
    value where other files may load it.
    """

    path: str
    kind: str
    sinks: tuple[Sink, ...] = ()
    constants: Mapping[str, Value] = field(default_factory=dict)
    functions: Mapping[str, Function] = field(default_factory=dict)
    classes: Mapping[str, Class] = field(default_factory=dict)
    imports: Mapping[str, str] = field(default_factory=dict)
    calls: tuple[CallSite, ...] = ()
    renders: tuple[CallSite, ...] = ()
    text: Value | None = None
    comments: tuple[tuple[int, int], ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()


class Kind(Protocol):
    """What a module in this folder provides; its docstring says what it reads.

    `NAME` is the word that configuration uses. `claims(file)` says cheaply, from name and first bytes, whether it reads
    the file; the first kind by name order of `ORDER` wins. `wanted(file)` says from the bytes alone whether the file
    can hold prompts; others are read only when a wanted file leads to them. `summarize(file)` never raises.
    """

    NAME: str
    ORDER: int

    def claims(self, file: SourceFile) -> bool: ...  # noqa: D102
    def wanted(self, file: SourceFile) -> bool: ...  # noqa: D102
    def summarize(self, file: SourceFile) -> Summary: ...  # noqa: D102


@cache
def kinds() -> tuple[Kind, ...]:
    """Give the kinds, the most specific first."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))
    found = [cast("Kind", importlib.import_module(f"{__name__}.{name}")) for name in names]
    return tuple(sorted(found, key=lambda kind: (kind.ORDER, kind.NAME)))


def kind_of(file: SourceFile) -> Kind | None:
    """Give the kind that reads a file, None where none does."""
    return next((kind for kind in kinds() if kind.claims(file)), None)


def encode(summary: Summary) -> dict[str, Any]:
    """Give a summary as JSON values."""
    table = values.Encoder()
    calls = [[table.add(site.call), site.func] for site in summary.calls]
    renders = [[table.add(site.call), site.func] for site in summary.renders]
    return {
        "kind": summary.kind,
        "sinks": [
            [s.kind, table.add(s.value), s.start, s.end, s.role, s.func, s.name, s.loop, s.aside] for s in summary.sinks
        ],
        "constants": {name: table.add(value) for name, value in summary.constants.items()},
        "functions": {name: _encode_function(function, table) for name, function in summary.functions.items()},
        "classes": {name: [list(c.bases), c.printable] for name, c in summary.classes.items()},
        "imports": dict(summary.imports),
        "calls": calls,
        "renders": renders,
        "text": None if summary.text is None else table.add(summary.text),
        "comments": [list(pair) for pair in summary.comments],
        "diagnostics": [[d.line, d.slug, d.message] for d in summary.diagnostics],
        "values": table.rows,
    }


def _encode_function(function: Function, table: values.Encoder) -> list[Any]:
    returns = None if function.returns is None else table.add(function.returns)
    defaults = [[name, table.add(value)] for name, value in function.defaults]
    leaves = [[name, table.add(value)] for name, value in function.leaves]
    return [list(function.params), returns, defaults, function.start, function.end, leaves]


def decode(path: str, row: Mapping[str, Any]) -> Summary:
    """Give the summary that `encode` wrote, for a file at `path`."""
    table = values.decode(row["values"])

    def site(pair: list[Any]) -> CallSite:
        return CallSite(cast("Call", table[pair[0]]), pair[1])

    def function(fields: list[Any]) -> Function:
        params, returns, defaults, start, end, leaves = fields
        return Function(
            tuple(params),
            None if returns is None else table[returns],
            tuple((name, table[value]) for name, value in defaults),
            start,
            end,
            tuple((name, table[value]) for name, value in leaves),
        )

    return Summary(
        path=path,
        kind=row["kind"],
        sinks=tuple(Sink(kind, table[value], *rest) for kind, value, *rest in row["sinks"]),
        constants={name: table[value] for name, value in row["constants"].items()},
        functions={name: function(fields) for name, fields in row["functions"].items()},
        classes={name: Class(tuple(bases), printable) for name, (bases, printable) in row["classes"].items()},
        imports=row["imports"],
        calls=tuple(map(site, row["calls"])),
        renders=tuple(map(site, row["renders"])),
        text=None if row["text"] is None else table[row["text"]],
        comments=tuple((start, end) for start, end in row["comments"]),
        diagnostics=tuple(Diagnostic(path, line, slug, message) for line, slug, message in row["diagnostics"]),
    )
