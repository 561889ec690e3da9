"""Values -> nodes: what a value is as text, with every place that a run fills.

Formatting is undone from the inside: `A.format(x=v)` renders `A` with a *fill* that waits for the placeholders of the
literals it meets, whatever file they are in. A hole's span is the place in the text; `bound` are the arguments and
interpolations that lead there, the nearest to the value first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from prefixlint import placeholders
from prefixlint.fills import Fill, by_name, called, fill_of, keywords, loaded, read_file
from prefixlint.origins import Judge
from prefixlint.prompts import Choice, Hole, Include, Node, Repeat, Span, Text
from prefixlint.resolve import Frame, Resolver
from prefixlint.sources import _jinja
from prefixlint.speech import static_text
from prefixlint.textmap import offset
from prefixlint.textual import MAX_NESTING, SAME_FUNCTIONS, SAME_TEXT, TEMPLATE_CLASSES, Texts
from prefixlint.values import (
    Attr,
    Call,
    Const,
    Either,
    Field,
    Item,
    Join,
    Lit,
    Loop,
    Map,
    Name,
    Op,
    Param,
    Seq,
    Star,
    Template,
    Value,
    Var,
    bare,
    dotted,
    text_of,
)
from prefixlint.verdicts import Verdict, callable_only, named, path_named, weakened
from prefixlint.volatility import of_call

MAX_STEPS = 6000
"""Values read for one prompt; what comes behind is left out."""

_PHRASE = 200
"""Characters of fixed text up to which a text that fills a place is a phrase around a value, not a part of its own."""
_OF_ELEMENTS = frozenset(["clock", "date", "age", "random", "counter"])

_TEXT_ARGUMENTS = ("content", "template", "text", "prompt", "prompt_template")


class Renderer:
    """Renders values of a project."""

    def __init__(self, resolver: Resolver, judge: Judge) -> None:
        self.resolver = resolver
        self.judge = judge
        self.project = resolver.project
        self._texts = Texts(resolver, self.spent)
        self._depth = 0
        self._steps = 0

    def start(self) -> None:
        """Begin another prompt: its budget of steps is its own."""
        self._depth = self._steps = 0

    def spent(self) -> bool:
        """Take a step; true if the budget of the prompt is used up."""
        self._steps += 1
        return self._steps > MAX_STEPS or self._depth >= MAX_NESTING

    def render(
        self, value: Value, frame: Frame, fills: tuple[Fill, ...] = (), via: tuple[Span, ...] = ()
    ) -> list[Node]:
        """Give a value's nodes."""
        return self._within(lambda: self._nodes(value, frame, fills, via))

    def _within(self, give: Callable[[], list[Node]]) -> list[Node]:
        """Go a level deeper, unless the budget of the prompt is used up."""
        if self.spent():
            return []
        self._depth += 1
        try:
            return give()
        finally:
            self._depth -= 1

    def _nodes(self, value: Value, frame: Frame, fills: tuple[Fill, ...], via: tuple[Span, ...]) -> list[Node]:
        if isinstance(value, Lit):
            return self._literal(value, frame, fills, via)
        if isinstance(value, Template):
            return self._template(value, frame, fills, via)
        if isinstance(value, Const):
            return [Text(str(value.value), frame.span(value))]
        if isinstance(value, Field):
            return self._place(value.value, frame, via, frame.span(value), field=value)
        if isinstance(value, Join):
            return [node for part in value.parts for node in self._part(part, frame, fills, via)]
        if isinstance(value, Either):
            branches = tuple(tuple(self.render(option, frame, fills, via)) for option in value.options)
            return [Choice(branches, frame.span(value))]
        if isinstance(value, Loop):
            return self._repeat(value, frame, fills, via)
        if isinstance(value, Call):
            return self._call(value, frame, fills, via)
        if isinstance(value, (Seq, Map)):
            return self._shown(value, frame, fills, via)
        if isinstance(value, Op) and value.name.startswith("handed"):
            return self._handed(value, frame, fills, via)
        return self._place(value, frame, via, frame.span(value), fills=fills)

    def part(self, value: Value, frame: Frame) -> list[Node]:
        """Give the nodes of a value that stands in a place of its own."""
        return self._part(value, frame, (), ())

    def _part(self, part: Value, frame: Frame, fills: tuple[Fill, ...], via: tuple[Span, ...]) -> list[Node]:
        """Render an operand of a concatenation: a name is a place of its own."""
        if isinstance(part, (Var, Param, Name, Attr, Item)):
            return self._place(part, frame, via, frame.span(part), fills=fills)
        return self.render(part, frame, fills, via)

    # ------------------------------------------------------------------ literals and placeholders

    def _literal(self, lit: Lit, frame: Frame, fills: tuple[Fill, ...], via: tuple[Span, ...]) -> list[Node]:
        if not fills:
            return [Text(lit.text, frame.span(lit))] if lit.text else []
        fill, rest = fills[0], fills[1:]
        if fill.style == "jinja":
            value, _ = _jinja.lower(lit, frame.summary.path)
            inner = frame._replace(func="", args=fill.kwargs)
            return self.render(value, inner, rest, (fill.at, *via))
        marked = fill.style == "replace"
        parts = placeholders.around(lit.text, fill.kwargs) if marked else placeholders.parts(lit.text, fill.style)
        return self._filled(lit, parts, frame, fill, rest, via)

    def _template(self, template: Template, frame: Frame, fills: tuple[Fill, ...], via: tuple[Span, ...]) -> list[Node]:
        fill = fills[0] if fills else Fill(template.style, (), dict(frame.args or {}), frame.span(template))
        if template.style == "jinja":
            return self._literal(template.text, frame, (fill._replace(style="jinja"), *fills[1:]), via)
        parts = placeholders.parts(template.text.text, template.style)
        if fill.style == "replace":
            fill = fill._replace(style=template.style, kwargs=by_name(fills))
            return self._filled(template.text, parts, frame, fill, (), via)
        return self._filled(template.text, parts, frame, fill, fills[1:], via)

    def _filled(  # noqa: PLR0917 (one step of a recursion, called in two places)
        self,
        lit: Lit,
        parts: Sequence[placeholders.Part],
        frame: Frame,
        fill: Fill,
        rest: tuple[Fill, ...],
        via: tuple[Span, ...],
    ) -> list[Node]:
        nodes: list[Node] = []
        number = 0
        for part in parts:
            span = Span(frame.summary.path, offset(lit, part.start), offset(lit, part.end))
            if part.name is None:
                nodes.extend(self._text(part.text, span, frame, rest, via))
                continue
            bound = fill.kwargs.get(part.name)
            if bound is None and (part.name == "" or part.name.isdigit()):
                index = int(part.name) if part.name else number
                number += 1
                bound = fill.args[index] if index < len(fill.args) else None
            if bound is None and fill.style == "percent" and part.name == "" and len(fill.args) == 1:
                bound = fill.args[0]
            head = part.name.split(".")[0].split("[")[0].split(":")[-1]
            if bound is None and head != part.name:
                bound = fill.kwargs.get(head)
            if bound is None:
                nodes.append(self._unbound(part.name, span, via, kept=fill.style == "state"))
            else:
                nodes.extend(self._bound(bound, part, span, via))
        return nodes

    def _text(self, text: str, span: Span, frame: Frame, fills: tuple[Fill, ...], via: tuple[Span, ...]) -> list[Node]:
        if not text:
            return []
        if fills:
            return self._literal(Lit(text, span.start, span.end, ((0, span.start),)), frame, fills, via)
        return [Text(text, span)]

    def _unbound(self, name: str, span: Span, via: tuple[Span, ...], *, kept: bool) -> Node:
        said = path_named(name, "{" + name + "}")
        verdict = weakened(said, "clock", "age", "random", "counter") if kept else said  # in a session's state
        return Hole((name,), verdict.origins, span, verdict.constant, via)

    def _bound(
        self, bound: tuple[Value, Frame], part: placeholders.Part, span: Span, via: tuple[Span, ...]
    ) -> list[Node]:
        value, frame = self._called(*bound)
        field = Field(value, part.conversion, part.spec, value.start, value.end)
        return self._place(value, frame, (frame.span(value), *via), span, field=field, name=part.name or "")

    def _called(self, value: Value, frame: Frame) -> tuple[Value, Frame]:
        """Give the call of a function that fills a place: templates of frameworks call it whenever they are filled."""
        held = bare(value)
        if isinstance(held, Op) and held.name == "lambda":
            return value, frame._replace(frozen=False)
        if isinstance(held, Name):
            found = self.project.definition(held.dotted, frame.summary)
            known = found is None and of_call(held.dotted) is not None and callable_only(held.dotted)
            if known or (found is not None and found.kind == "func"):
                return Call(held, (), (), value.start, value.end), frame._replace(frozen=False)
        return value, frame

    # ------------------------------------------------------------------ values in a place

    def _place(
        self,
        value: Value,
        frame: Frame,
        via: tuple[Span, ...],
        span: Span,
        *,
        field: Field | None = None,
        fills: tuple[Fill, ...] = (),
        name: str = "",
    ) -> list[Node]:
        """Render what stands in a place: text is written out, anything else is a hole."""
        held, inner = self.resolver.resolve(value, frame)
        shown = self._texts.is_text(held, inner) and not self._texts.is_kept(held, inner, name or called(value))
        if shown and not self._texts.is_value(held, inner, frame, name):
            nodes = self.render(held, inner, fills, (span, *via))
            phrase = bool(name) and len(static_text(nodes)) <= _PHRASE
            return [_said(node, name, span) for node in nodes] if phrase else nodes
        verdict = self.judge.judge(field if field is not None else value, frame)
        names = tuple(dict.fromkeys(each for each in (name, called(value), called(held)) if each))
        if not verdict.origins and not verdict.constant and name:
            verdict = named(name)
        argument = via[0] if name and via else self._template_argument(value, frame)
        return [Hole(names, verdict.origins, span, verdict.constant, via, argument)]

    def _template_argument(self, value: Value, frame: Frame) -> Span | None:
        """Give the argument of the render call that fills a template's variable."""
        param = bare(value)
        bound = self.resolver.argument(param, frame) if isinstance(param, Param) and not param.func else None
        return bound[1].span(bound[0]) if bound is not None else None

    def textual(self, value: Value, frame: Frame) -> bool:
        """Tell whether a resolved value is text that the source shows."""
        return self._texts.is_text(value, frame)

    # ------------------------------------------------------------------ calls

    def _call(self, call: Call, frame: Frame, fills: tuple[Fill, ...], via: tuple[Span, ...]) -> list[Node]:
        path = dotted(call.func) or ""
        if isinstance(call.func, Attr):
            nodes = self._method(call, call.func, frame, fills, via)
            if nodes is not None:
                return nodes
        elif path in SAME_FUNCTIONS and call.args:
            return self._part(call.args[0], frame, fills, via)
        elif path.startswith("jinja."):
            nodes = self._jinja(path, call, frame, fills, via)
            if nodes is not None:
                return nodes
        elif self._texts.is_class(path):
            return self._of_class(call, path, frame, fills, via)
        held, inner = self.resolver.resolve(call, frame)
        if held is not call:
            return (
                self._place(held, inner, (frame.span(call), *via), inner.span(held), fills=fills)
                if not self._texts.is_text(held, inner)
                else self.render(held, inner, fills, (frame.span(call), *via))
            )
        found_file = loaded(self.resolver, call, frame)
        if found_file is not None:
            text, of_file = found_file
            of_file = of_file._replace(args=keywords(self.resolver, call, frame))
            return self._in_file(text, of_file, fills, (frame.span(call), *via))
        return self._place(call, frame, via, frame.span(call), fills=fills)

    def _method(
        self, call: Call, func: Attr, frame: Frame, fills: tuple[Fill, ...], via: tuple[Span, ...]
    ) -> list[Node] | None:
        method = func.name
        if method in SAME_TEXT:
            return self._part(func.base, frame, fills, via)
        if method == "join" and call.args:
            separator = text_of(self.resolver.resolve(func.base, frame)[0])
            if separator is not None:
                return self.elements(call.args[0], frame, fills, via)
            return None
        fill = fill_of(self.resolver, call, method, frame)
        if fill is not None:
            base, inner = self.resolver.resolve(func.base, frame)
            if isinstance(base, Call) and isinstance(read_file(self.resolver, base, inner), str):
                return None  # a text that is not at hand: what is put into it stands somewhere in it
            wants_file = method.startswith("render") or not self._texts.is_text(base, inner)
            found_file = loaded(self.resolver, base, inner) if wants_file else None
            if found_file is not None:
                text, of_file = found_file
                if method.startswith("render"):
                    return self.render(text, of_file._replace(args=fill.kwargs), fills, via)
                return self.render(text, of_file._replace(args=fill.kwargs), (fill, *fills), via)
            return self.render(base, inner, (fill, *fills), via) if self._texts.is_text(base, inner) else None
        return self._file(call, frame, fills, via)

    def _of_class(
        self, call: Call, path: str, frame: Frame, fills: tuple[Fill, ...], via: tuple[Span, ...]
    ) -> list[Node]:
        content = next((value for name, value in call.kwargs if name in _TEXT_ARGUMENTS), None)
        content = content if content is not None else (call.args[0] if call.args else None)
        if content is None:
            return []
        if path == "string.Template":
            return self.render(content, frame, fills, via)
        if any(part in TEMPLATE_CLASSES for part in path.split(".")[-2:]):
            keyed = dict(call.kwargs)
            given = text_of(keyed.get("template_format")) or ("mustache" if "functions" in keyed else "")
            own = "jinja" if path.endswith("PromptBuilder") else "brace"
            style = {"jinja2": "jinja", "mustache": "mustache"}.get(given, own)
            outer = fills[0].kwargs if fills else {}
            mappings = [value for name, value in call.kwargs if name in ("partial_variables", "functions")]
            inner = {name: held for value in mappings for name, held in self.resolver.spread(value, frame).items()}
            fill = Fill(style, (), {**inner, **outer}, frame.span(call))
            return self.render(content, frame, (fill, *fills[1:]), via)
        return self._part(content, frame, fills, via)

    def _jinja(
        self, path: str, call: Call, frame: Frame, fills: tuple[Fill, ...], via: tuple[Span, ...]
    ) -> list[Node] | None:
        if path in ("jinja.include", "jinja.extends") and call.args:
            target = text_of(self.resolver.resolve(call.args[0], frame)[0])
            found = self.project.template(target, frame.summary.path) if target else None
            at = frame.span(call.args[0])
            if found is None or found.text is None:
                return [Include(target or "?", at)]
            blocks = {f"block {name}": (value, frame) for name, value in call.kwargs}
            args = {**(frame.args or {}), **blocks} if frame.args is not None or blocks else None
            return self.render(found.text, Frame(found, "", args, depth=frame.depth + 1), fills, (at, *via))
        if path == "jinja.block":
            replaced = (frame.args or {}).get(f"block {text_of(call.args[0])}")
            value, inner = replaced if replaced is not None else (call.args[1], frame)
            return self.render(value, inner, fills, via)
        if path == "jinja.filter.join" and call.args:
            return self.elements(call.args[0], frame, fills, via)
        return None

    # ------------------------------------------------------------------ files

    def _file(self, call: Call, frame: Frame, fills: tuple[Fill, ...], via: tuple[Span, ...]) -> list[Node] | None:
        """Render what `open("x").read()` gives: the file's text, or text of unknown length."""
        found = read_file(self.resolver, call, frame)
        if found is None:
            return None
        if isinstance(found, str):
            return [Hole((found,), (), frame.span(call), constant=True)]
        text, inner = found
        if not fills:
            return self.render(text.text if isinstance(text, Template) else text, inner, (), via)
        return self._in_file(text, inner, fills, (frame.span(call), *via))

    def _in_file(self, text: Value, frame: Frame, fills: tuple[Fill, ...], via: tuple[Span, ...]) -> list[Node]:
        """Render a file's text; one whose placeholders are known is filled by their names."""
        if isinstance(text, (Lit, Template)):
            return self.render(text, frame, fills, via)
        return self.render(text, frame._replace(args={**by_name(fills), **(frame.args or {})}), (), via)

    # ------------------------------------------------------------------ sequences

    def elements(
        self, value: Value, frame: Frame, fills: tuple[Fill, ...] = (), via: tuple[Span, ...] = ()
    ) -> list[Node]:
        """Render a sequence's elements one after the other."""
        return self._within(lambda: self._elements(value, frame, fills, via))

    def _elements(self, value: Value, frame: Frame, fills: tuple[Fill, ...], via: tuple[Span, ...]) -> list[Node]:
        held, inner = self.resolver.resolve(value, frame)
        if isinstance(held, Seq):
            nodes = [node for item in held.items for node in self._element(item, inner, fills, via)]
            if held.kind == "set" and len(held.items) > 1:
                source = Hole((), self.judge.judge(held, inner).origins, frame.span(value), bound=via)
                return [Repeat(tuple(nodes), inner.span(held), source)]
            return nodes
        if isinstance(held, Star):
            return self.elements(held.value, inner, fills, via)
        if isinstance(held, Join):
            return [node for part in held.parts for node in self.elements(part, inner, fills, via)]
        if isinstance(held, Either):
            return [Choice(tuple(tuple(self.elements(o, inner, fills, via)) for o in held.options), inner.span(held))]
        listed = self._texts.elements_of(held, inner)
        if listed is not None:
            return self.elements(listed, inner, fills, via)
        if isinstance(held, Loop):
            nodes = self._repeat(held, inner, fills, via)
            return [_read_at(node, frame.span(value)) for node in nodes] if held.kind == "set" else nodes
        if isinstance(held, Call) and dotted(held.func) == "sorted" and held.args:
            return [_ordered(node) for node in self.elements(held.args[0], inner, fills, via)]
        verdict = self.judge.judge(value, frame)
        names = tuple(dict.fromkeys(each for each in (called(value), called(held)) if each))
        return [Hole(names, verdict.origins, frame.span(value), verdict.constant, via)]

    def _handed(self, op: Op, frame: Frame, fills: tuple[Fill, ...], via: tuple[Span, ...]) -> list[Node]:
        """Render what a function adds to the list or buffer that it is handed."""
        call, key = op.operands
        found = self.resolver.callee(call, frame)
        if found is None or frame.depth > MAX_NESTING:
            return []
        function = found[0]
        name = text_of(key) or next(iter(function.params[key.value : key.value + 1]), "")
        left = dict(function.leaves).get(name)
        if left is None:
            return []
        listed = op.name == "handed list"
        empty: Value = Seq("list", (), op.start, op.start) if listed else Lit("", op.start, op.start)
        inner = self.resolver.entered(call, frame, *found)
        inner = inner._replace(args={**(inner.args or {}), name: (empty, frame)})
        return (self.elements if listed else self.render)(left, inner, fills, (frame.span(op), *via))

    def _element(self, item: Value, frame: Frame, fills: tuple[Fill, ...], via: tuple[Span, ...]) -> list[Node]:
        if isinstance(item, Star):
            return self.elements(item.value, frame, fills, via)
        return self._part(item, frame, fills, via)

    def _repeat(self, loop: Loop, frame: Frame, fills: tuple[Fill, ...], via: tuple[Span, ...]) -> list[Node]:
        inner = frame._replace(counted=(*frame.counted, id(loop.source)))
        if isinstance(loop.body, Seq) and loop.kind == "items":
            nodes = [node for item in loop.body.items for node in self._element(item, inner, fills, via)]
        elif isinstance(loop.body, Loop) and loop.kind != "text":
            nodes = self._repeat(loop.body, inner, fills, via)
        else:
            nodes = self._part(loop.body, inner, fills, via)
        verdict = self.judge.judge(loop.source, frame)
        if loop.kind == "set":
            verdict = self.judge.judge(loop, frame)
        if verdict.constant:
            return nodes
        name = called(loop.source)
        # what the elements say stands where they are written; the source decides which and in what order
        origins = tuple(origin for origin in verdict.origins if origin.kind not in _OF_ELEMENTS)
        source = Hole((name,) if name else (), origins, frame.span(loop.source), bound=via)
        return [Repeat(tuple(nodes), frame.span(loop), source)]

    def _shown(self, value: Seq | Map, frame: Frame, fills: tuple[Fill, ...], via: tuple[Span, ...]) -> list[Node]:
        """Render a list or dict that is written as such: its strings, keys included."""
        if isinstance(value, Seq):
            return self.elements(value, frame, fills, via)
        nodes: list[Node] = []
        for key, item in value.entries:
            if key is not None:
                nodes.extend(self._part(key, frame, fills, via))
            nodes.extend(self._part(item, frame, fills, via))
        return nodes

    def verdict(self, value: Value, frame: Frame) -> Verdict:
        """Give why a value changes."""
        return self.judge.judge(value, frame)


def _said(node: Node, name: str, span: Span) -> Node:
    """Let a place that a phrase fills stand for a value in it of which only a name, or nothing, is known."""
    if isinstance(node, Choice):
        return Choice(tuple(tuple(_said(each, name, span) for each in branch) for branch in node.branches), node.span)
    if not isinstance(node, Hole) or node.constant or any(origin.evidence == "flow" for origin in node.origins):
        return node
    names = tuple(dict.fromkeys((name, *node.names)))
    return replace(
        node, names=names, origins=named(name).origins or node.origins, span=span, bound=(node.span, *node.bound)
    )


def _read_at(node: Node, span: Span) -> Node:
    """Give a loop over a set with the place where the set is read: the order is made there."""
    if isinstance(node, Repeat) and node.source is not None:
        return Repeat(node.nodes, node.span, replace(node.source, span=span))
    return node


def _ordered(node: Node) -> Node:
    """Take the order out of what decides a loop, because it was sorted."""
    if isinstance(node, Choice):
        return Choice(tuple(tuple(map(_ordered, branch)) for branch in node.branches), node.span)
    if isinstance(node, Repeat) and node.source is not None:
        kept = tuple(origin for origin in node.source.origins if origin.kind not in ("order", "selection"))
        return Repeat(node.nodes, node.span, replace(node.source, origins=kept))
    if isinstance(node, Hole):
        kept = tuple(origin for origin in node.origins if origin.kind not in ("order", "selection"))
        return Hole(node.names, kept, node.span, node.constant, node.bound)
    return node
