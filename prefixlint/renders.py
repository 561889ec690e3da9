"""Which calls fill which texts, wherever they stand: by the text, the template or the file that their receiver is.

`CONST.format(…)`, `env.get_template("x").render(…)`, `(prompt | model).invoke({…})`, and a helper that formats the
text which its callers hand over.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from prefixlint import placeholders
from prefixlint.fills import Fill, by_name, fill_of, keywords, last_name, loaded
from prefixlint.prompts import Node
from prefixlint.render import Renderer
from prefixlint.resolve import Frame
from prefixlint.sources import Sink
from prefixlint.sources._pytexts import TEMPLATE_CLASSES
from prefixlint.textual import SAME_FUNCTIONS, SAME_TEXT
from prefixlint.values import Attr, Call, Either, Join, Lit, Map, Name, Op, Param, Template, Value, bare, dotted
from prefixlint.wordset import word_set

MAX_RENDERS = 6
"""Calls that fill one text and are followed."""
_DEPTH = 20
"""Wrappers around a text, and links of a chain, that are looked through."""
_SAME_TEMPLATE = word_set("partial bind with_config with_retry with_structured_output with_fallbacks with_types pipe")
_MOST = 200
"""Values that are read to find the literals of one text."""
Bound = dict[str, tuple[Value, Frame]]


class Renders:
    """Asked for each text once all files are read; what fills what is found out at the first question."""

    def __init__(self, renderer: Renderer) -> None:
        self.renderer = renderer
        self.resolver = renderer.resolver
        self.project = renderer.project
        self._by_literal: dict[int, list[tuple[Call, Frame, str]]] = defaultdict(list)
        self._by_template: dict[int, list[Bound]] = defaultdict(list)
        self._by_file: dict[str, list[Bound]] = defaultdict(list)
        self._built = False

    def _build(self) -> None:
        if self._built:
            return
        self._built = True
        for summary in list(self.project.loaded()):
            for site in summary.renders:
                func = site.call.func if isinstance(site.call.func, Attr) else _as_attribute(site.call.func)
                if func is not None:
                    frame = Frame(summary, site.func, None, not site.func)
                    self._note(site.call._replace(func=func), func, frame)
            for site in summary.calls:
                frame = Frame(summary, site.func, None, not site.func)
                found = loaded(self.resolver, site.call, frame)
                if found is not None and site.call.kwargs:
                    self._by_file[found[1].summary.path].append(keywords(self.resolver, site.call, frame))

    def _note(self, call: Call, func: Attr, outer: Frame) -> None:
        """Keep what a call fills."""
        for frame in self._frames(func, outer):
            base, inner, head = self._template(*self.resolver.resolve(func.base, frame))
            for literal in self._literals(base, inner):
                self._by_literal[id(literal)].append((call, frame, func.name))
            found = loaded(self.resolver, base, inner)
            template = _is_template(base)
            if not template and (found is None or found[1].summary.text is not found[0]):
                continue
            fill = fill_of(self.resolver, call, func.name, frame)
            if fill is None:
                continue
            if template:
                self._by_template[id(base)].append({**head, **fill.kwargs})
            elif found is not None:
                self._by_file[found[1].summary.path].append(by_name((fill,)))

    def _frames(self, func: Attr, frame: Frame) -> list[Frame]:
        """Give the frames in which a call is to be read: those of the callers, where they hand the text over."""
        base, _ = self.resolver.resolve(func.base, frame)
        function = frame.summary.functions.get(frame.func)
        if not isinstance(base, Param) or base.func != frame.func or function is None:
            return [frame]
        out = []
        for site, other in self.project.call_sites(frame.summary, frame.func)[:MAX_RENDERS]:
            caller = Frame(other, site.func, None, not site.func, 1)
            out.append(frame._replace(args=self.resolver.bound(site.call, caller, function), depth=1))
        usual = dict(function.defaults).get(base.name)
        return out or [frame if usual is None else frame._replace(args={base.name: (usual, frame)})]

    def _template(self, value: Value, frame: Frame) -> tuple[Value, Frame, Bound]:
        """Give the template at the head of a chain (`template | model`), and what a mapping before it fills."""
        head: Bound = {}
        for _ in range(_DEPTH):
            value = bare(value)
            if isinstance(value, Op) and value.name == "|" and value.operands:
                first, inner = self.resolver.resolve(value.operands[0], frame)
                if isinstance(first, Map):
                    head = self.resolver.spread(first, inner)
                    first = value.operands[1]
                value, frame = self.resolver.resolve(first, inner)
            elif isinstance(value, Call) and (inside := _inside(value)) is not None:
                value, frame = self.resolver.resolve(inside, frame)
            else:
                break
        return value, frame, head

    def fillings(self, sink: Sink, frame: Frame) -> Iterator[list[Node]]:
        """Give a text's nodes, once for each call that fills it; with open placeholders if none is known."""
        self._build()
        held, inner = self.resolver.resolve(sink.value, frame)
        given, where = self.resolver.given(held, inner)
        if given is not held:  # a function that is called for each request, wherever it is handed over
            held, inner, frame = given, where._replace(frozen=False), frame._replace(frozen=False)
        text = unwrapped(held)
        template = _is_template(text)
        if (isinstance(text, (Lit, Join)) and sink.kind == "named") or isinstance(text, Template) or template:
            filled = list(self._by_calls(text, inner))
            yield from filled
            if filled:
                return
        if isinstance(text, (Lit, Join)) and sink.kind == "named":
            fixed = "".join(literal.text for literal in self._literals(text, inner))
            if isinstance(text, Lit) or _is_left_open(text, fixed):
                style = placeholders.guess(fixed) or "brace"
                yield self.renderer.render(text, inner, (Fill(style, (), {}, inner.span(held)),))
                return
        if sink.role == "system" and isinstance(held, Lit) and sink.name == "":
            yield self.renderer.render(held, inner, (Fill("state", (), {}, inner.span(held)),))
            return
        for each in self.bound(sink, frame):
            if held is not text or template:
                yield self.renderer.render(sink.value, each)
            else:
                yield self.renderer.render(text, inner if each is frame else each)

    def _by_calls(self, text: Value, frame: Frame) -> Iterator[list[Node]]:
        literals = self._literals(text, frame)
        calls = [call for literal in literals for call in self._by_literal.get(id(literal), ())]
        partial = [(call, where) for call, where, method in calls if method == "partial"]
        fixed = {name: bound for call, where in partial for name, bound in self._filled(call, where)}
        seen: set[tuple[str, int]] = set()
        for call, where, method in sorted(calls, key=lambda found: found[2] == "partial"):
            key = (where.summary.path, call.start)
            if key in seen or len(seen) == MAX_RENDERS or (seen and method == "partial"):
                continue
            seen.add(key)
            fill = fill_of(self.resolver, call, method, where)
            if fill is not None:
                yield self.renderer.render(text, frame, (fill._replace(kwargs={**fixed, **fill.kwargs}),))

    def _filled(self, call: Call, frame: Frame) -> Iterator[tuple[str, tuple[Value, Frame]]]:
        fill = fill_of(self.resolver, call, "partial", frame)
        yield from fill.kwargs.items() if fill is not None else ()

    def of_messages(self, sink: Sink, frame: Frame) -> Bound:
        """Give what calls put into a template that consists of messages; an empty mapping if none is known."""
        self._build()
        held, _ = self.resolver.resolve(sink.value, frame)
        found = self._by_template.get(id(held), [])
        merged: Bound = {}
        for each in found[:MAX_RENDERS]:
            merged = {**each, **merged}
        return merged

    def _literals(self, value: Value, frame: Frame) -> list[Lit]:
        """Give the literals that a text consists of, in order, those that names lead to as well."""
        out: list[Lit] = []
        seen: set[int] = set()
        stack = [(value, frame)]
        while stack and len(seen) < _MOST:
            held, inner = self.resolver.resolve(*stack.pop())
            if id(held) in seen:
                continue
            seen.add(id(held))
            if isinstance(held, Lit):
                out.append(held)
            elif isinstance(held, Template):
                out.append(held.text)
            else:
                stack.extend((part, inner) for part in reversed(_parts(held)))
        return out

    def bound(self, sink: Sink, frame: Frame) -> list[Frame]:
        """Give the frames in which calls render the file that a sink is; the sink's own frame if none does."""
        if frame.summary.text is not sink.value:
            return [frame]
        self._build()
        calls = self._by_file.get(frame.summary.path, ())
        return [frame._replace(func="", args=kwargs) for kwargs in calls[:MAX_RENDERS]] or [frame]


def _as_attribute(func: Value) -> Attr | None:
    """Give `module.CONST.format` as an attribute of `module.CONST`."""
    if isinstance(func, Name) and "." in func.dotted.strip("."):
        base, _, method = func.dotted.rpartition(".")
        return Attr(Name(base, func.start, func.end), method, func.start, func.end)
    return None


def _inside(call: Call) -> Value | None:
    """Give what a call hands on: the template of `template.partial(…)`, and of `LLMChain(prompt=template)`."""
    if isinstance(call.func, Attr) and call.func.name in _SAME_TEMPLATE:
        base: Value = call.func.base
        return base
    if last_name(call).endswith("Chain"):
        return dict(call.kwargs).get("prompt")
    return None


def _is_template(value: Value) -> bool:
    if not isinstance(value, Call):
        return False
    return any(part in TEMPLATE_CLASSES for part in (dotted(value.func) or "").split(".")[-2:])


def unwrapped(value: Value) -> Value:
    """Give the text inside of what only trims it, or makes a thing of a class of its own: `TextPrompt("…")`."""
    for _ in range(_DEPTH):
        value = bare(value)
        if not isinstance(value, Call):
            break
        if isinstance(value.func, Attr) and value.func.name in SAME_TEXT:
            value = value.func.base
        elif len(value.args) == 1 and not value.kwargs and (_trims(value) or _is_made_of_text(value)):
            value = value.args[0]
        else:
            break
    return value


def _trims(call: Call) -> bool:
    return (dotted(call.func) or "") in SAME_FUNCTIONS


def _is_made_of_text(call: Call) -> bool:
    last = last_name(call)
    return last[:1].isupper() and last.endswith(("Prompt", "Text")) and isinstance(bare(call.args[0]), (Lit, Join))


def _is_left_open(text: Join, fixed: str) -> bool:
    """Tell whether a text made of several has places that later calls fill: an f-string with doubled braces."""
    return all(isinstance(bare(part), Lit) for part in text.parts) or placeholders.guess(fixed) == "brace"


def _parts(value: Value) -> Sequence[Value]:
    """Give what a text is made of, as far as its literals are filled with it."""
    if isinstance(value, Join):
        return value.parts
    if isinstance(value, Either):
        return value.options
    if isinstance(value, Call) and isinstance(value.func, Attr):
        return (value.func.base,) if value.func.name in SAME_TEXT else ()
    if isinstance(value, Call) and isinstance(value.func, Name):
        return (*value.args[:1], *(held for name, held in value.kwargs if name in ("template", "content")))
    return ()
