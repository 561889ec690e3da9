"""Jinja text -> values. The lexer and the expression grammar are jinja2's; nothing is compiled or rendered.

Blocks are read from the token stream instead of jinja2's tree, because the tree knows lines only, and because unknown
tags (`{% trans %}`, `{% generation %}`) must not stop the reading: what they enclose is text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

from prefixlint.sources import Diagnostic
from prefixlint.textmap import offset
from prefixlint.values import (
    Attr,
    Call,
    Const,
    Either,
    Elem,
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
    Slice,
    Value,
    Var,
)

MAX_DEPTH = 100
"""Blocks nested more deeply are not followed."""


MAX_CALLS = 100
"""Calls of macros that are written out in one template."""


class Piece(NamedTuple):
    """A run of the source: `data`, `expr` or `stmt`, its characters, and its inner text."""

    kind: str
    start: int
    end: int
    text: str


@cache
def _environment() -> Any:
    from jinja2 import Environment

    return Environment(keep_trailing_newline=True)  # noqa: S701 (nothing is rendered)


def lower(lit: Lit, path: str) -> tuple[Value, tuple[Diagnostic, ...]]:
    """Give a template's value, in which its free variables are parameters of the unnamed function."""
    pieces, problem = _pieces(lit.text)
    reader = _Reader(lit, pieces)
    value = reader.block(frozenset())
    while not reader.done:
        reader.position += 1
        value = Join((value, reader.block(frozenset())), value.start, lit.end)
    diagnostics = () if problem is None else (Diagnostic(path, problem[0], "template-syntax", problem[1]),)
    return reader.finish(value), diagnostics


def _pieces(text: str) -> tuple[list[Piece], tuple[int, str] | None]:
    """Split a template at its tags; what the lexer refuses ends the list and gives its line and reason."""
    from jinja2 import TemplateSyntaxError

    out: list[Piece] = []
    position = opened = 0
    problem = None
    try:
        for _, lexeme, value in _environment().lexer.tokeniter(text, None):
            found = text.find(value, position)
            start = position if found < 0 else found
            position = start + len(value)
            if lexeme == "data":
                out.append(Piece("data", start, position, value))
            elif lexeme in ("variable_begin", "block_begin"):
                opened = start
            elif lexeme in ("variable_end", "block_end"):
                inner = text[opened:position].strip("\n ")
                kind = "expr" if lexeme == "variable_end" else "stmt"
                out.append(
                    Piece(kind, opened, position, inner[2:-2].strip().strip("-+").strip() if len(inner) > 3 else "")
                )
    except TemplateSyntaxError as error:
        problem = (error.lineno, f"not a valid template: {error.message}")
    return out, problem


class _Macro(NamedTuple):
    """Where the body of a macro begins, as a number of pieces, and its parameters."""

    begin: int
    parameters: tuple[str, ...]


def _parameters(heading: str) -> tuple[str, ...]:
    """Give the parameters of `name(a, b=1)`; none where it cannot be parsed."""
    from jinja2 import TemplateSyntaxError

    try:
        tree = _environment().parse("{% macro " + heading + " %}{% endmacro %}")
    except (TemplateSyntaxError, RecursionError, ValueError):
        return ()
    return tuple(each.name for each in tree.body[0].args)


class _Reader:
    """Reads blocks recursively; `names` are the variables that `set` and `for` have bound."""

    def __init__(self, lit: Lit, pieces: Sequence[Piece]) -> None:
        self.lit = lit
        self.pieces = pieces
        self.position = 0
        self.names: dict[str, Value] = {}
        self.extends: Value | None = None
        self.blocks: dict[str, Value] = {}
        self.macros: dict[str, _Macro] = {}
        self.depth = self.written = 0

    @property
    def done(self) -> bool:
        return self.position >= len(self.pieces)

    def span(self, piece: Piece) -> tuple[int, int]:
        return offset(self.lit, piece.start), offset(self.lit, piece.end)

    def finish(self, value: Value) -> Value:
        """Give the template's value; one that extends another is that other with its blocks replaced."""
        if self.extends is None:
            return value
        blocks = tuple(sorted(self.blocks.items()))
        return Call(Name("jinja.extends", value.start, value.start), (self.extends,), blocks, value.start, value.end)

    def block(self, stops: frozenset[str]) -> Value:
        """Read until a tag in `stops`, which is left for the caller."""
        parts: list[Value] = []
        begin = self.pieces[self.position].start if not self.done else len(self.lit.text)
        while not self.done:
            piece = self.pieces[self.position]
            word, _, rest = piece.text.partition(" ") if piece.kind == "stmt" else ("", "", "")
            if word in stops or (piece.kind == "stmt" and word.startswith("end") and stops):
                break
            if word.startswith("end") or (word in ("else", "elif") and not stops):
                break
            self.position += 1
            if piece.kind == "data":
                start, end = self.span(piece)
                parts.append(
                    Lit(piece.text, start, end, ((0, start),) if len(self.lit.marks) == 1 else self._marks(piece))
                )
            elif piece.kind == "expr":
                start, end = self.span(piece)
                parts.append(Field(self.expression(piece.text, start, end), "", "", start, end))
            else:
                parts.extend(self.statement(word, rest.strip(), piece))
        start = parts[0].start if parts else offset(self.lit, begin)
        return Join(tuple(parts), start, parts[-1].end if parts else start)

    def _marks(self, piece: Piece) -> tuple[tuple[int, int], ...]:
        inner = [(char - piece.start, byte) for char, byte in self.lit.marks if piece.start < char < piece.end]
        return ((0, offset(self.lit, piece.start)), *inner)

    def statement(self, word: str, rest: str, piece: Piece) -> Iterator[Value]:
        """Read a tag and what it encloses."""
        start, end = self.span(piece)
        self.depth += 1
        try:
            if self.depth > MAX_DEPTH:
                return
            if word == "if":
                yield self._if(start)
            elif word == "for":
                yield self._for(rest, start, end)
            elif word == "set":
                self._set(rest, start, end)
            elif word in ("include", "extends"):
                yield from self._other(word, rest, start, end)
            elif word == "block":
                yield self._named_block(rest, start)
            elif word in ("macro", "call"):
                begin = self.position
                body = self.block(frozenset({"endmacro", "endcall"}))
                self._skip()
                if word == "macro":
                    name = rest.split("(", 1)[0].strip()
                    self.names[name] = Op("lambda", (body,), start, end)
                    self.macros[name] = _Macro(begin, _parameters(rest))
                else:
                    yield body
            elif word in ("filter", "with", "autoescape", "trans", "generation"):
                yield self.block(frozenset({f"end{word}"}))
                self._skip()
        finally:
            self.depth -= 1

    def _skip(self) -> None:
        self.position += 1

    def write_out(self, name: str, args: Sequence[Value], kwargs: Sequence[tuple[str, Value]]) -> Value | None:
        """Read a macro of this template again with what a call hands it; None for other functions, or too often."""
        macro = self.macros.get(name)
        if macro is None or self.depth >= MAX_DEPTH or self.written >= MAX_CALLS:
            return None
        self.written += 1
        saved = self.position, self.names, self.depth
        given = {**dict(zip(macro.parameters, args, strict=False)), **dict(kwargs)}
        self.position, self.names, self.depth = macro.begin, {**self.names, **given}, self.depth + 1
        try:
            return self.block(frozenset({"endmacro"}))
        finally:
            self.position, self.names, self.depth = saved

    def _if(self, start: int) -> Value:
        branches: list[Value] = []
        saved = self.names
        stops = frozenset({"elif", "else", "endif"})
        otherwise = False
        while True:
            self.names = dict(saved)
            branches.append(self.block(stops))
            if self.done:
                break
            word = self.pieces[self.position].text.partition(" ")[0]
            self._skip()
            if word == "else":
                otherwise = True
            elif word != "elif":
                break
        self.names = saved
        end = branches[-1].end
        if not otherwise:
            branches.append(Lit("", end, end))
        return Either(tuple(branches), start, end)

    def _for(self, rest: str, start: int, end: int) -> Value:
        targets, _, source_text = rest.partition(" in ")
        source_text, _, kept = source_text.partition(" if ")
        source = self.expression(source_text.removesuffix(" recursive"), start, end)
        saved = self.names
        self.names = dict(saved)
        names = [name.strip(" ()") for name in targets.split(",")]
        element = Elem(source, start, end)
        for index, name in enumerate(names):
            key = Const(index, start, end)
            self.names[name] = element if len(names) == 1 else Item(element, key, start, end)
        self.names["loop"] = Op("loop", (), start, end)
        body = self.block(frozenset({"else", "endfor"}))
        otherwise: Value | None = None
        if not self.done and self.pieces[self.position].text.startswith("else"):
            self._skip()
            otherwise = self.block(frozenset({"endfor"}))
        self._skip()
        self.names = saved
        condition = Op("and", (), start, end) if kept else None
        loop = Loop(source, body, "text", condition, start, body.end)
        return loop if otherwise is None else Either((loop, otherwise), start, otherwise.end)

    def _set(self, rest: str, start: int, end: int) -> None:
        name, equals, text = rest.partition("=")
        if equals:
            self.names[name.strip()] = self.expression(text, start, end)
        else:
            self.names[rest.strip()] = self.block(frozenset({"endset"}))
            self._skip()

    def _other(self, word: str, rest: str, start: int, end: int) -> Iterator[Value]:
        for ending in (" ignore missing", " with context", " without context"):
            rest = rest.removesuffix(ending)
        target = self.expression(rest, start, end)
        if word == "extends":
            self.extends = target
        else:
            yield Call(Name("jinja.include", start, end), (target,), (), start, end)

    def _named_block(self, rest: str, start: int) -> Value:
        name = rest.split(" ", 1)[0]
        body = self.block(frozenset({"endblock"}))
        self._skip()
        self.blocks[name] = body
        return Call(Name("jinja.block", start, start), (Lit(name, start, start), body), (), start, body.end)

    def expression(self, text: str, start: int, end: int) -> Value:
        """Give the value of an expression; unknown where it cannot be parsed."""
        from jinja2 import TemplateSyntaxError

        try:
            tree = _environment().parse("{{ " + text + " }}")
            node = tree.body[0].nodes[0]
        except (TemplateSyntaxError, IndexError, AttributeError, RecursionError, ValueError):
            return Op("?", (), start, end)
        return _Expressions(self, start, end).lower(node)


class _Expressions:
    """Lowers jinja2's expression nodes; all values share the place of their tag."""

    def __init__(self, reader: _Reader, start: int, end: int) -> None:
        self.reader = reader
        self.names = reader.names
        self.at = (start, end)

    def lower(self, node: Any) -> Value:
        """Give the value of a node."""
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is not None:
            return method(node)  # type: ignore[no-any-return]
        return Op("?", tuple(map(self.lower, node.iter_child_nodes())), *self.at)

    def _name(self, node: Any) -> Value:
        held = self.names.get(node.name)
        return Param("", node.name, *self.at) if held is None else Var(node.name, held, *self.at)

    def _const(self, node: Any) -> Value:
        value = node.value
        return Lit(value, *self.at) if isinstance(value, str) else Const(value, *self.at)

    def _templatedata(self, node: Any) -> Value:
        return Lit(node.data, *self.at)

    def _getattr(self, node: Any) -> Value:
        base = self.lower(node.node)
        if isinstance(base, Var) and isinstance(base.value, Op) and base.value.name == "loop":
            return Op("index", (), *self.at)
        return Attr(base, node.attr, *self.at)

    def _getitem(self, node: Any) -> Value:
        if type(node.arg).__name__ == "Slice":
            bounds = [None if bound is None else self.lower(bound) for bound in (node.arg.start, node.arg.stop)]
            return Slice(self.lower(node.node), bounds[0], bounds[1], *self.at)
        return Item(self.lower(node.node), self.lower(node.arg), *self.at)

    def _call(self, node: Any) -> Value:
        name = node.node.name if type(node.node).__name__ == "Name" else ""
        args, kwargs = tuple(map(self.lower, node.args)), self._keywords(node)
        if name in self.names:
            body = self.reader.write_out(name, args, kwargs)
            if body is not None:
                return body
        func = Name(f"jinja.{name}", *self.at) if name and name not in self.names else self.lower(node.node)
        return Call(func, args, kwargs, *self.at)

    def _keywords(self, node: Any) -> tuple[tuple[str, Value], ...]:
        return tuple((keyword.key, self.lower(keyword.value)) for keyword in node.kwargs or ())

    def _filter(self, node: Any) -> Value:
        args = () if node.node is None else (self.lower(node.node),)
        args = (*args, *map(self.lower, node.args or ()))
        return Call(Name(f"jinja.filter.{node.name}", *self.at), args, self._keywords(node), *self.at)

    def _condexpr(self, node: Any) -> Value:
        otherwise = Lit("", *self.at) if node.expr2 is None else self.lower(node.expr2)
        return Either((self.lower(node.expr1), otherwise), *self.at)

    def _or(self, node: Any) -> Value:
        return Either((self.lower(node.left), self.lower(node.right)), *self.at)

    def _add(self, node: Any) -> Value:
        return Join((self.lower(node.left), self.lower(node.right)), *self.at)

    def _sub(self, node: Any) -> Value:
        return Op("-", (self.lower(node.left), self.lower(node.right)), *self.at)

    def _concat(self, node: Any) -> Value:
        return Join(tuple(Field(self.lower(item), "", "", *self.at) for item in node.nodes), *self.at)

    def _list(self, node: Any) -> Value:
        return Seq("list", tuple(map(self.lower, node.items)), *self.at)

    def _tuple(self, node: Any) -> Value:
        return Seq("tuple", tuple(map(self.lower, node.items)), *self.at)

    def _dict(self, node: Any) -> Value:
        return Map(tuple((self.lower(pair.key), self.lower(pair.value)) for pair in node.items), *self.at)
