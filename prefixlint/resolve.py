"""Follows a value to what it is.

Through local names, parameters, constants, attributes and functions of the project.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from prefixlint.project import Definition, Project, is_starred
from prefixlint.prompts import Span
from prefixlint.sources import Function, Summary
from prefixlint.values import (
    Attr,
    Call,
    Const,
    Either,
    Elem,
    Item,
    Lit,
    Map,
    Name,
    Op,
    Param,
    Seq,
    Star,
    Value,
    Var,
    bare,
    children,
    text_of,
)
from prefixlint.wordset import word_set

MAX_DEPTH = 40
"""Names and calls followed one after the other for one value."""
OF_TEXTS = word_set(
    "format format_map substitute safe_substitute render render_async partial partial_format replace replace* strip "
    "lstrip rstrip join invoke ainvoke run format_prompt aformat_prompt format_messages aformat_messages aformat get "
    "pop copy read_text read"
)
"""Methods by which a constant becomes a text, or gives one: `CONST.format(…)` is then read as a call on what it holds.
Other calls on a constant of the project are as often those of a module or class."""


MAX_ENTRIES = 40
"""Texts of a table, any of which an unknown key may choose."""
_LONG = 80
"""Characters from which an entry of a table is a text of its own, not a word."""


class Frame(NamedTuple):
    """Where a value is read: its file, the function at work, what that function was called with (None: not known).

    `frozen` says that the code runs once, when the module is imported. `depth` counts calls. `counted` are the sources
    of the loops around, whose elements are written one after the other. `loop` says that the sink stands in a loop,
    `once` that an attribute is read that is set where its object is made, and nowhere else.
    """

    summary: Summary
    func: str = ""
    args: Mapping[str, tuple[Value, Frame]] | None = None
    frozen: bool = False
    depth: int = 0
    counted: tuple[int, ...] = ()
    loop: bool = False
    once: bool = False

    @property
    def state(self) -> tuple[bool, ...]:
        """How often the code runs."""
        return self.frozen, self.loop, self.once

    def span(self, value: Value) -> Span:
        """Give a value's place."""
        return Span(self.summary.path, value.start, value.end)


class Resolver:
    """Resolves values of a project."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._frames: dict[tuple[str, str, tuple[str, ...]], Frame] = {}

    def resolve(self, value: Value, frame: Frame) -> tuple[Value, Frame]:
        """Give what a value is, and the frame to read it in; a value that leads no further is itself."""
        for _ in range(MAX_DEPTH):
            step = self._step(value, frame)
            if step is None:
                break
            value, frame = step
        return value, frame

    def _step(self, value: Value, frame: Frame) -> tuple[Value, Frame] | None:
        if isinstance(value, Var):
            return value.value, frame
        if isinstance(value, Param):
            return self.argument(value, frame)
        if isinstance(value, Name):
            return self._constant(self.project.definition(value.dotted, frame.summary), value)
        if isinstance(value, Attr):
            return self._attribute(value, frame)
        if isinstance(value, Item):
            return self._item(value, frame)
        if isinstance(value, Call):
            return self._called(value, frame)
        return None

    def _called(self, value: Call, frame: Frame) -> tuple[Value, Frame] | None:
        """Give what a function of the project returns; `mapping.get(key)` is read as `mapping[key]`."""
        base = self.resolve(value.func.base, frame) if isinstance(value.func, Attr) else None
        found = self.callee(value, frame, base)
        if found is not None and found[0].returns is not None and frame.depth < MAX_DEPTH:
            return found[0].returns, self.entered(value, frame, *found)
        if base is None:
            return self._of_constant(value, frame)
        held, inner = base
        if isinstance(held, Map) and isinstance(value.func, Attr) and value.func.name == "get" and value.args:
            return self.entry(held, inner, text_of(self.resolve(value.args[0], frame)[0]))
        return None

    def given(self, value: Value, frame: Frame) -> tuple[Value, Frame]:
        """Give what a caller of a function without arguments gets: frameworks call functions that stand for a text."""
        if isinstance(value, Op) and value.name == "lambda":
            return value.operands[0], frame
        if isinstance(value, Name):
            found = self.project.definition(value.dotted, frame.summary)
            if found is not None and found.kind == "func":
                return self.resolve(Call(value, (), (), value.start, value.end), frame)
        return value, frame

    def _of_constant(self, value: Call, frame: Frame) -> tuple[Value, Frame] | None:
        """Read `module.CONST.format(…)` as a method of the text that the constant holds."""
        func = value.func
        if not isinstance(func, Name):
            return None
        base, _, method = func.dotted.rpartition(".")
        if method not in OF_TEXTS or not base.strip("."):
            return None
        found = self.project.definition(base, frame.summary)
        if found is None or found.kind != "const":
            return None
        return value._replace(func=Attr(Name(base, func.start, func.end), method, func.start, func.end)), frame

    def argument(self, param: Param, frame: Frame) -> tuple[Value, Frame] | None:
        """Give what a parameter is bound to, if the call is known."""
        if frame.args is None or param.func != frame.func:
            return None
        return frame.args.get(param.name)

    def _constant(self, found: Definition | None, value: Value) -> tuple[Value, Frame] | None:
        if found is None or found.kind != "const":
            return None
        constant = found.summary.constants[found.name]
        for attribute in found.rest:
            constant = Attr(constant, attribute, value.start, value.end)
        key = found.summary.path, found.name, found.rest
        if key not in self._frames:
            self._frames[key] = _frame_of(found, constant)
        return constant, self._frames[key]

    def _attribute(self, value: Attr, frame: Frame) -> tuple[Value, Frame] | None:
        base, inner = self.resolve(value.base, frame)
        if isinstance(base, Lit) and value.name == "value":  # of a member of an enumeration: strings have none
            return base, inner
        if isinstance(base, Name) and base is not value.base:
            return Name(f"{base.dotted}.{value.name}", value.start, value.end), inner
        found = self.instance(base, inner)
        if found is None:
            return None
        member = self.project.member(found.summary, found.name, value.name)
        return self._constant(member, value) if member is not None else None

    def instance(self, value: Value, frame: Frame) -> Definition | None:
        """Give the class of which a value is an instance."""
        if not isinstance(value, Call) or not isinstance(value.func, Name):
            return None
        found = self.project.definition(value.func.dotted, frame.summary)
        return found if found is not None and found.kind == "class" else None

    def _item(self, value: Item, frame: Frame) -> tuple[Value, Frame] | None:
        base, inner = self.resolve(value.base, frame)
        key, _ = self.resolve(value.key, frame)
        if isinstance(base, Map):
            return self.entry(base, inner, text_of(key))
        chosen = [_at(option, key) for option in (base.options if isinstance(base, Either) else (base,))]
        found = [each for each in chosen if each is not None]
        if len(found) < len(chosen):
            return None
        return found[0] if len(found) == 1 else Either(tuple(found), base.start, base.end), inner

    def entry(self, held: Map, frame: Frame, wanted: str | None) -> tuple[Value, Frame] | None:
        """Give the entry of a key; one of all texts of a table where the key is not known."""
        if wanted is not None:
            found = (entry[1] for entry in reversed(held.entries) if text_of(entry[0]) == wanted)
            return next(((value, frame) for value in found), None)
        values = tuple(value for _, value in held.entries)
        if not 0 < len(values) <= MAX_ENTRIES or not all(
            map(_is_long, (self.resolve(value, frame)[0] for value in values))
        ):
            return None
        return Either(values, held.start, held.end), frame

    def callee(
        self, call: Call, frame: Frame, of: tuple[Value, Frame] | None = None
    ) -> tuple[Function, Definition] | None:
        """Give the function of the project that a call calls; `of` is what it is a method of, where that is known."""
        found: Definition | None = None
        func = call.func.value if isinstance(call.func, Var) else call.func
        if isinstance(func, Param):
            bound = self.argument(func, frame)
            func, frame = bound if bound is not None else (func, frame)
        if isinstance(func, Name):
            if "." not in func.dotted and not is_starred(frame.summary):
                return None
            found = self.project.definition(func.dotted, frame.summary)
            found = found and (self.project.method(found) or found)
        elif isinstance(func, Attr):
            base, inner = of or self.resolve(func.base, frame)
            cls = self.instance(base, inner)
            if cls is not None:
                found = self.project.member(cls.summary, cls.name, func.name)
        function = self.project.function(found) if found is not None else None
        return (function, found) if function is not None and found is not None else None

    def entered(self, call: Call, frame: Frame, function: Function, found: Definition) -> Frame:
        """Give the frame in which a called function's result is read."""
        return Frame(
            found.summary,
            found.name,
            self.bound(call, frame, function),
            frame.frozen,
            frame.depth + 1,
            frame.counted,
            once=frame.once,
        )

    def bound(self, call: Call, frame: Frame, function: Function) -> dict[str, tuple[Value, Frame]]:
        """Match arguments with parameters; what a spread hides stays unbound."""
        args: dict[str, tuple[Value, Frame]] = {}
        for name, value in function.defaults:
            args[name] = (value, frame._replace(args=None))
        for name, value in zip(function.params, call.args, strict=False):
            if isinstance(value, Star):
                break
            args[name] = (value, frame)
        for name, value in call.kwargs:
            if name != "**":
                args[name] = (value, frame)
        return args

    def spread(self, value: Value, frame: Frame) -> dict[str, tuple[Value, Frame]]:
        """Give the entries of a mapping that is spread into a call, as far as they are literal.

        Of a function's own `**kwargs`, what a known call hands it.
        """
        held, inner = self.resolve(value, frame)
        if isinstance(held, Either):
            return self.spread(held.options[0], inner)
        out: dict[str, tuple[Value, Frame]] = {}
        if isinstance(held, Param):
            function = inner.summary.functions.get(held.func)
            if function is not None and inner.func == held.func and held.name not in function.params:  # `**kwargs`
                out.update((name, bound) for name, bound in (inner.args or {}).items() if name not in function.params)
        elif isinstance(held, Map):
            for key, item in held.entries:
                name = text_of(key)
                if name is not None:
                    out[name] = (item, inner)
                elif key is None:
                    out.update(self.spread(item, inner))
        elif isinstance(held, Call) and isinstance(held.func, Name) and held.func.dotted == "dict":
            out.update((name, (item, inner)) for name, item in held.kwargs if name != "**")
        return out


def _is_long(value: Value) -> bool:
    return len(text_of(value) or "") >= _LONG


def _frame_of(found: Definition, constant: Value) -> Frame:
    """Give the frame in which what a module or class holds is read."""
    cls = found.name.rsplit(".", 1)[0]
    own = "." in found.name and cls in found.summary.classes
    params = own and any(isinstance(part, Param) for part in _shallow(constant))
    once = own and _is_kept(found.summary, cls, found.summary.constants[found.name])
    return Frame(found.summary, frozen=not params, depth=0, once=once)


def _at(value: Value, key: Value) -> Value | None:
    """Give the element of a list that is written out, None where it is none or nobody knows which."""
    held = bare(value)
    if not isinstance(held, Seq) or not isinstance(key, Const) or not isinstance(key.value, int) or held.kind == "set":
        return None
    known = -len(held.items) <= key.value < len(held.items) and not any(isinstance(item, Star) for item in held.items)
    return held.items[key.value] if known else None


def _is_kept(summary: Summary, cls: str, value: Value) -> bool:
    """Tell whether all that an attribute may hold is set where nothing shows that requests set it anew."""
    options = value.options if isinstance(value, Either) else (value,)
    own = [(name, each) for name, each in summary.functions.items() if name.startswith(f"{cls}.")]
    around = [[name for name, each in own if each.start <= option.start < each.end] for option in options]
    return all(names and is_setting_up(summary, names[-1]) for names in around)


def is_setting_up(summary: Summary, function: str) -> bool:
    """Tell whether a method runs where its object is made, or is set up by others, and sends nothing itself."""
    if function.rpartition(".")[2] in MAKING:
        return True
    if any(sink.func == function and sink.kind in _SENDING for sink in summary.sinks):
        return False
    said = f".{function}"
    called = {site.func for site in summary.calls if isinstance(site.call.func, Name) and site.call.func.dotted == said}
    return all(func.rpartition(".")[2] in MAKING for func in called)


MAKING = ("__init__", "__post_init__")
_SENDING = ("call", "messages", "message")


def _shallow(value: Value) -> list[Value]:
    """Give a value and its nearest parts, enough to see whether it depends on a parameter."""
    out: list[Value] = []
    stack: list[tuple[Value, int]] = [(value, 0)]
    while stack and len(out) < 200:
        part, depth = stack.pop()
        out.append(part)
        if isinstance(part, Var):
            stack.append((part.value, depth))
        elif depth < 4 and isinstance(part, (Attr, Item, Call, Either, Op, Elem)):
            inner = [part.base] if isinstance(part, (Attr, Item)) else children(part)
            stack.extend((each, depth + 1) for each in inner)
    return out
