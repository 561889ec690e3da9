"""Python expressions -> values."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Any

from prefixlint.sources import _literals, _pysinks
from prefixlint.sources._pyscope import Scope
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
    Star,
    Value,
    Var,
    bare,
    dotted,
    text_of,
)
from prefixlint.wordset import word_set

_MAX_ITEMS = 2_000
"""Elements of a list or dict that are read: longer ones are tables of data."""
_MARK = 160
"""Literals up to this length are mapped to bytes only if a placeholder may be in them: `{`, `%`, `$`, `<`."""


def lower(node: ast.expr, scope: Scope) -> Value:
    """Give the value of an expression."""
    handler = _HANDLERS.get(type(node))
    return scope.unknown(node) if handler is None else handler(node, scope)


def _constant(node: ast.Constant, scope: Scope) -> Value:
    start, end = scope.at(node)
    if isinstance(node.value, str):
        return literal(node.value, start, end, scope)
    if isinstance(node.value, (int, float)) or node.value is None:
        return Const(node.value, start, end)
    return Op("?", (), start, end)


def literal(text: str, start: int, end: int, scope: Scope) -> Lit:
    """Give a string literal, mapped to bytes where a placeholder may be found in it."""
    data = scope.module.data
    if scope.override is not None or not any(sign in text for sign in "{%$<"):
        return Lit(text, start, end)
    return Lit(text, start, end, _literals.marks(data, _literals.tokens(data, start, end)))


def _fstring(node: ast.JoinedStr, scope: Scope) -> Value:
    start, end = scope.at(node)
    if scope.override is None:
        found = _literals.tokens(scope.module.data, start, end)
        places = [place for token in found if token.formatted for place in _literals.fields(scope.module.data, token)]
    else:
        places = []
    holes = sum(isinstance(part, ast.FormattedValue) for part in node.values)
    if len(places) != holes:
        places = [(start, end)] * holes
    parts: list[Value] = []
    upcoming = iter(places)
    position = start
    kept = scope.override
    for part in node.values:
        if isinstance(part, ast.FormattedValue):
            place = next(upcoming)
            scope.override = place
            value = lower(part.value, scope)
            spec = text_of(lower(part.format_spec, scope)) if part.format_spec is not None else ""
            scope.override = kept
            conversion = chr(part.conversion) if part.conversion > 0 else ""
            parts.append(Field(value, conversion, spec or "", *place))
            position = place[1]
        elif isinstance(part, ast.Constant) and isinstance(part.value, str):
            parts.append(Lit(part.value, position, position, _left_open(part.value, position, end, scope)))
    return Join(tuple(parts), start, end)


_DOUBLED = re.compile(r"\{[a-zA-Z_][\w.]*\}")


def _left_open(text: str, start: int, end: int, scope: Scope) -> tuple[tuple[int, int], ...]:
    """Map the fixed text of an f-string to bytes where it holds placeholders that a later call fills: `{{name}}`."""
    if scope.override is not None or "{" not in text:
        return ()
    marks = [(0, start)]
    position = start
    for match in _DOUBLED.finditer(text):
        found = scope.module.data.find(b"{%b}" % match[0].encode(), position, end)
        if found < 0:
            break
        position = found + len(match[0].encode()) + 2
        marks += [(match.start(), found), (match.start() + 1, found + 2), (match.end(), position)]
    return tuple(marks) if len(marks) > 1 else ()


def _name(node: ast.Name, scope: Scope) -> Value:
    return scope.lookup(node.id, *scope.at(node))


def _attribute(node: ast.Attribute, scope: Scope) -> Value:
    start, end = scope.at(node)
    if isinstance(node.value, ast.Name) and scope.cls and node.value.id in (scope.selfname, "self", "cls"):
        return scope.self_attribute(node.attr, start, end)
    return attribute(lower(node.value, scope), node.attr, start, end)


def attribute(base: Value, name: str, start: int, end: int) -> Value:
    """Give an attribute; on a dotted name it is a longer dotted name."""
    if isinstance(base, Name):
        return Name(f"{base.dotted}.{name}", start, end)
    return Attr(base, name, start, end)


def _call(node: ast.Call, scope: Scope) -> Value:
    func = lower(node.func, scope)
    args = tuple(lower(arg, scope) for arg in node.args)
    kwargs = tuple((keyword.arg or "**", lower(keyword.value, scope)) for keyword in node.keywords)
    if args and isinstance(func, Name) and func.dotted in _ELSEWHERE:
        func, args = args[0], args[1:]
    call = Call(func, args, kwargs, *scope.at(node))
    if isinstance(func, Attr) and func.name == "getvalue" and isinstance(func.base, Var):
        held: Value = func.base.value
        return held
    _pysinks.of_call(call, scope)
    return call


_ELSEWHERE = word_set(
    "asyncio.to_thread anyio.to_thread.run_sync starlette.concurrency.run_in_threadpool "
    "fastapi.concurrency.run_in_threadpool trio.to_thread.run_sync"
)
"""Functions that call their first argument with the others, in another thread."""


def _binary(node: ast.BinOp, scope: Scope) -> Value:
    left, right = lower(node.left, scope), lower(node.right, scope)
    start, end = scope.at(node)
    if isinstance(node.op, ast.Add):
        parts = left.parts if isinstance(left, Join) and not _is_fstring(node.left) else (left,)
        return Join((*parts, right), start, end)
    if isinstance(node.op, ast.Mod) and _may_be_text(left):
        args = bare(right)
        given = args.items if isinstance(args, Seq) and args.kind == "tuple" else (right,)
        call = Call(Attr(left, "%", left.start, left.end), tuple(given), (), start, end)
        _pysinks.of_call(call, scope)
        return call
    if isinstance(node.op, ast.Mult):
        repeated = _repeated(left, right) or _repeated(right, left)
        if repeated is not None:
            return repeated
    if isinstance(node.op, ast.BitOr) and isinstance(bare(left), Map):  # {"now": clock} | prompt
        scope.note_call(Call(Attr(right, "invoke", *scope.at(node.right)), (left,), (), start, end), renders=True)
    return Op(_OPERATORS.get(type(node.op), "?"), (left, right), start, end)


_MAX_REPEATED = 100_000
"""Characters of a repeated text that are kept: more static text changes no finding."""
_MAX_PARTS = 50
"""Times that a text with placeholders or values is repeated; each of them is a place of its own."""


def _repeated(text: Value, times: Value) -> Value | None:
    """Give `text * times`; the text once where the number is not known, None for what is no text."""
    held, count = bare(text), bare(times)
    if not isinstance(held, (Lit, Join)):
        return None
    if not isinstance(count, Const) or type(count.value) is not int:
        return text if isinstance(held, Lit) else None
    if isinstance(held, Lit) and not held.marks:
        kept = min(max(count.value, 0), _MAX_REPEATED // (len(held.text) or 1) + 1)
        return Lit(held.text * kept, held.start, held.end)
    return Join((held,) * min(max(count.value, 0), _MAX_PARTS), held.start, held.end)


_OPERATORS: dict[type[ast.operator], str] = {
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.BitOr: "|",
    ast.BitAnd: "&",
    ast.BitXor: "^",
    ast.Mod: "mod",
}


def _is_fstring(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr)


def _may_be_text(value: Value) -> bool:
    value = bare(value)
    return isinstance(value, (Lit, Join)) or (isinstance(value, Name) and value.dotted.rsplit(".", 1)[-1].isupper())


def _sequence(kind: str) -> Callable[[Any, Scope], Value]:
    def handler(node: ast.List | ast.Tuple | ast.Set, scope: Scope) -> Value:
        return Seq(kind, tuple(lower(item, scope) for item in node.elts[:_MAX_ITEMS]), *scope.at(node))

    return handler


def _dict(node: ast.Dict, scope: Scope) -> Value:
    entries = tuple(
        (None if key is None else lower(key, scope), lower(value, scope))
        for key, value in zip(node.keys[:_MAX_ITEMS], node.values[:_MAX_ITEMS], strict=True)
    )
    value = Map(entries, *scope.at(node))
    _pysinks.of_dict(value, scope)
    return value


def _starred(node: ast.Starred, scope: Scope) -> Value:
    return Star(lower(node.value, scope), *scope.at(node))


def _comprehension(kind: str) -> Callable[[Any, Scope], Value]:
    def handler(node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp, scope: Scope) -> Value:
        start, end = scope.at(node)
        saved = dict(scope.env)
        sources: list[tuple[Value, Value | None]] = []
        for generator in node.generators:
            source = lower(generator.iter, scope)
            bind(generator.target, Elem(source, source.start, source.end), scope)
            conditions = tuple(lower(test, scope) for test in generator.ifs)
            sources.append((source, Op("and", conditions, start, end) if conditions else None))
        if isinstance(node, ast.DictComp):
            body: Value = Map(((lower(node.key, scope), lower(node.value, scope)),), start, end)
        else:
            body = lower(node.elt, scope)
        scope.env = saved
        for source, kept in reversed(sources):
            body = Loop(source, body, kind, kept, start, end)
        return body

    return handler


def _conditional(node: ast.IfExp, scope: Scope) -> Value:
    either = Either((lower(node.body, scope), lower(node.orelse, scope)), *scope.at(node))
    coin = drawn(lower(node.test, scope))
    return either if coin is None else one_of(either, coin)


_CHANCES = frozenset(["random.random", "random.randint", "random.choice", "random.getrandbits", "random.uniform"])


def drawn(test: Value) -> Call | None:
    """Give the call by which a test leaves to chance what is done, None for other tests."""
    held = bare(test)
    if isinstance(held, Op) and held.name in ("compare", "not"):
        return next((call for part in held.operands if (call := drawn(part)) is not None), None)
    return held if isinstance(held, Call) and dotted(held.func) in _CHANCES else None


def one_of(options: Either, coin: Call) -> Value:
    """Give a choice that chance makes as what it amounts to: `random.choice` of the options."""
    return Call(
        Name("random.choice", coin.start, coin.end), (Seq("list", options.options, *options[1:]),), (), *coin[3:]
    )


def _boolean(node: ast.BoolOp, scope: Scope) -> Value:
    options = tuple(lower(value, scope) for value in node.values)
    if isinstance(node.op, ast.And):
        return options[-1]
    return Either(options, *scope.at(node))


def _subscript(node: ast.Subscript, scope: Scope) -> Value:
    base = lower(node.value, scope)
    start, end = scope.at(node)
    if isinstance(node.slice, ast.Slice):
        lower_bound = None if node.slice.lower is None else lower(node.slice.lower, scope)
        upper_bound = None if node.slice.upper is None else lower(node.slice.upper, scope)
        return Slice(base, lower_bound, upper_bound, start, end)
    return Item(base, lower(node.slice, scope), start, end)


def _unary(node: ast.UnaryOp, scope: Scope) -> Value:
    operand = lower(node.operand, scope)
    if isinstance(node.op, ast.USub) and isinstance(operand, Const) and isinstance(operand.value, (int, float)):
        return Const(-operand.value, *scope.at(node))
    return Op("not" if isinstance(node.op, ast.Not) else "-", (operand,), *scope.at(node))


def _compare(node: ast.Compare, scope: Scope) -> Value:
    operands = (lower(node.left, scope), *(lower(item, scope) for item in node.comparators))
    return Op("compare", operands, *scope.at(node))


def _await(node: ast.Await, scope: Scope) -> Value:
    return lower(node.value, scope)


def _walrus(node: ast.NamedExpr, scope: Scope) -> Value:
    value = lower(node.value, scope)
    scope.env[node.target.id] = value
    return value


def _lambda(node: ast.Lambda, scope: Scope) -> Value:
    saved = dict(scope.env)
    for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
        scope.env[arg.arg] = Param(f"{scope.func}.<lambda>", arg.arg, *scope.at(node))
    body = lower(node.body, scope)
    scope.env = saved
    return Op("lambda", (body,), *scope.at(node))


def _yield(node: ast.Yield | ast.YieldFrom, scope: Scope) -> Value:
    if node.value is not None:
        value = lower(node.value, scope)
        scope.returns.append(Seq("list", (value,), *scope.at(node)))
    return scope.unknown(node)


def bind(target: ast.expr, value: Value, scope: Scope) -> None:
    """Bind a target of an assignment or loop; sinks that are attributes or items are noted."""
    if isinstance(target, ast.Name):
        scope.env[target.id] = value
    elif isinstance(target, (ast.Tuple, ast.List)):
        held = bare(value)
        same = isinstance(held, Seq) and len(held.items) == len(target.elts)
        counted = isinstance(held, Elem) and _is_call(held.source, "enumerate")
        for index, item in enumerate(target.elts):
            if same and isinstance(held, Seq):
                bind(item, held.items[index], scope)
            elif counted and index == 0:
                bind(item, Op("index", (value,), value.start, value.end), scope)
            else:
                bind(item, Item(value, Const(index, value.start, value.end), value.start, value.end), scope)
    elif isinstance(target, ast.Starred):
        bind(target.value, value, scope)
    elif isinstance(target, ast.Attribute):
        _bind_attribute(target, value, scope)
    elif isinstance(target, ast.Subscript):
        _bind_item(target, value, scope)


def _is_call(value: Value, name: str) -> bool:
    value = bare(value)
    return isinstance(value, Call) and isinstance(value.func, Name) and value.func.dotted == name


def _bind_attribute(target: ast.Attribute, value: Value, scope: Scope) -> None:
    if isinstance(target.value, ast.Name) and scope.cls and target.value.id in (scope.selfname, "cls"):
        scope.env[f"{scope.selfname}.{target.attr}"] = value
        scope.module.add_constant(f"{scope.cls}.{target.attr}", value)
    _pysinks.of_attribute(lower(target.value, scope), target.attr, value, scope)


def _bind_item(target: ast.Subscript, value: Value, scope: Scope) -> None:
    base, key = lower(target.value, scope), lower(target.slice, scope)
    start, end = scope.at(target)
    _pysinks.of_store(base, key, value, (start, end), scope)
    if isinstance(target.value, ast.Name):
        held = opened(bare(scope.env.get(target.value.id, base)), scope)  # a module's name is not followed elsewhere
        if isinstance(held, Map):
            kept = tuple(entry for entry in held.entries if entry[0] is None or text_of(entry[0]) != text_of(key))
            scope.env[target.value.id] = Map((*kept, (key, value)), held.start, held.end)


def opened(value: Value, scope: Scope) -> Value:
    """Give `**kwargs` as a mapping to which entries can be added, anything else as it is."""
    if isinstance(value, Param) and value.name == scope.spread:
        return Map(((None, value),), value.start, value.end)
    return value


_HANDLERS: dict[type[ast.expr], Callable[[Any, Scope], Value]] = {
    ast.Constant: _constant,
    ast.JoinedStr: _fstring,
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.Call: _call,
    ast.BinOp: _binary,
    ast.List: _sequence("list"),
    ast.Tuple: _sequence("tuple"),
    ast.Set: _sequence("set"),
    ast.Dict: _dict,
    ast.Starred: _starred,
    ast.ListComp: _comprehension("list"),
    ast.SetComp: _comprehension("set"),
    ast.GeneratorExp: _comprehension("gen"),
    ast.DictComp: _comprehension("dict"),
    ast.IfExp: _conditional,
    ast.BoolOp: _boolean,
    ast.Subscript: _subscript,
    ast.UnaryOp: _unary,
    ast.Compare: _compare,
    ast.Await: _await,
    ast.NamedExpr: _walrus,
    ast.Lambda: _lambda,
    ast.Yield: _yield,
    ast.YieldFrom: _yield,
}
