"""Python statements, followed once in order: what each name holds, what a function returns, what reaches a model.

Branches are followed apart and merged; what a branch or a loop adds to an accumulator (`+=`, `append`, `write`) stays
an optional or repeated part of it, so that the parts before and after keep their order.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from prefixlint.sources import Class, Function, _pysinks
from prefixlint.sources._pyexpr import bind, drawn, lower, one_of
from prefixlint.sources._pymutate import hand, mutate
from prefixlint.sources._pyscope import MAX_OPTIONS, Scope, bind_parameters, parameters
from prefixlint.values import (
    REPLACE_EACH,
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
    Name,
    Op,
    Param,
    Seq,
    Star,
    Value,
    Var,
    bare,
    dotted,
    text_of,
    walk,
)

Env = dict[str, Value]


def run(statements: Sequence[ast.stmt], scope: Scope) -> bool:
    """Follow statements; True if control never reaches their end."""
    for statement in statements:
        handler = _HANDLERS.get(type(statement))
        if handler is not None and handler(statement, scope):
            return True
    return False


def _assign(node: ast.Assign, scope: Scope) -> None:
    value = lower(node.value, scope)
    for target in node.targets:
        bind(target, value, scope)


def _annotated(node: ast.AnnAssign, scope: Scope) -> None:
    if node.value is not None:
        bind(node.target, _default(lower(node.value, scope)), scope)


def _default(value: Value) -> Value:
    """Give the default of a field of a model or dataclass: `Field(default="…")`, `field(default_factory=lambda: …)`."""
    if not isinstance(value, Call) or (dotted(value.func) or "").rsplit(".", 1)[-1] not in ("Field", "field"):
        return value
    given = dict(value.kwargs)
    held: Value | None = given.get("default", given.get("default_factory", value.args[0] if value.args else None))
    if isinstance(held, Op) and held.name == "lambda":
        held = held.operands[0]
    return held if held is not None and isinstance(bare(held), (Lit, Join, Call)) else value


def _augmented(node: ast.AugAssign, scope: Scope) -> None:
    start, end = scope.at(node)
    old = lower(node.target, scope)
    value = lower(node.value, scope)
    if not isinstance(node.op, ast.Add):
        kind = _SET_OPERATIONS.get(type(node.op), "") if _is_set(old) or _is_set(value) else ""
        bind(node.target, Op(kind or ("counter" if scope.loops else "?"), (old, value), start, end), scope)
        return
    held = old.value if isinstance(old, Var) else old
    if (isinstance(value, Const) and value.value is not None) or _is_number(old, scope):
        kept = isinstance(node.target, ast.Attribute) and bool(scope.cls)
        bind(node.target, Op("total" if kept else "counter", (old, value), start, end), scope)
        return
    parts = held.parts if isinstance(held, Join) else (held,)
    bind(node.target, Join((*parts, value), held.start, end), scope)


def _is_number(value: Value, scope: Scope) -> bool:
    """Tell whether a name was first bound to a number: what is added to it is a sum, not a text."""
    held = bare(value)
    if isinstance(held, Name) and held.dotted.startswith("."):
        held = scope.module.constants.get(held.dotted[1:], held)
    if isinstance(held, Either):
        held = bare(held.options[0])
    return isinstance(held, Const) and type(held.value) in (int, float)


_SET_OPERATIONS: dict[type[ast.operator], str] = {ast.BitOr: "|", ast.BitAnd: "&", ast.Sub: "-", ast.BitXor: "^"}


def _is_set(value: Value) -> bool:
    """Tell whether a value is made as a set."""
    held = bare(value)
    if isinstance(held, Call):
        return dotted(held.func) in ("set", "frozenset")
    if isinstance(held, Op):
        return held.name in _SET_OPERATIONS.values() and any(map(_is_set, held.operands))
    return isinstance(held, (Seq, Loop)) and held.kind == "set"


def _expression(node: ast.Expr, scope: Scope) -> None:
    if isinstance(node.value, ast.Constant):
        return
    value = lower(node.value, scope)
    if isinstance(value, Call):
        mutate(value, scope)
        hand(value, scope)


def _return(node: ast.Return, scope: Scope) -> bool:
    if node.value is not None:
        scope.returns.append(lower(node.value, scope))
    return True


def _stop(node: ast.stmt, scope: Scope) -> bool:
    del node, scope
    return True


def _if(node: ast.If, scope: Scope) -> bool:
    test = lower(node.test, scope)
    if scope.loops and isinstance(test, Op) and test.name == "compare":
        _pysinks.of_role_test(test, node.body, scope)
    before = scope.env
    stopped = _branches([node.body, node.orelse], scope)
    coin = drawn(test)
    if coin is not None and not stopped:
        scope.env = {name: _by_chance(before.get(name), value, coin) for name, value in scope.env.items()}
    return stopped


def _by_chance(old: Value | None, value: Value, coin: Call) -> Value:
    """Give what a name holds after branches of which chance took one: a choice among what each left."""
    if value is old:
        return value
    if isinstance(value, Join) and value.parts and isinstance(value.parts[-1], Either):
        return Join((*value.parts[:-1], one_of(value.parts[-1], coin)), value.start, value.end)
    return one_of(value, coin) if isinstance(value, Either) else value


def _branches(bodies: Sequence[Sequence[ast.stmt]], scope: Scope, *, failing: bool = False) -> bool:
    """Follow alternatives from the same state and merge what they leave; all but the first may be for failures."""
    before = scope.env
    left: list[Env] = []
    for number, body in enumerate(bodies):
        scope.env = dict(before)
        scope.failures += failing and number > 0
        if run(body, scope):
            _pysinks.of_names(scope.env, before, scope)
        else:
            left.append(scope.env)
        scope.failures -= failing and number > 0
    if not left:
        scope.env = before
        return True
    merged = left[0]
    for other in left[1:]:
        merged = _merge_env(merged, other)
    scope.env = merged
    return False


def _merge_env(left: Env, right: Env) -> Env:
    out = dict(left)
    for name, value in right.items():
        old = left.get(name)
        out[name] = value if old is None or old is value else merge(old, value)
    return out


def merge(left: Value, right: Value) -> Value:
    """Give a value that is `left` or `right`; what both share at their beginning stays in common."""
    if isinstance(left, Seq) and isinstance(right, Seq) and left.kind == right.kind == "list":
        shared = _shared(left.items, right.items)
        rest = Either(
            (
                Seq("list", left.items[shared:], left.start, left.end),
                Seq("list", right.items[shared:], right.start, right.end),
            ),
            left.start,
            left.end,
        )
        return Seq(
            "list", (*left.items[:shared], Star(rest, left.start, left.end)), left.start, max(left.end, right.end)
        )
    first, second = _parts(left, right), _parts(right, left)
    shared = _shared(first, second)
    if shared:
        rest_left, rest_right = (_joined(rest, left) for rest in (first[shared:], second[shared:]))
        return Join((*first[:shared], Either((rest_left, rest_right), left.start, left.end)), left.start, left.end)
    options = [*(left.options if isinstance(left, Either) else (left,)), right]
    if any(option is right for option in options[:-1]) or len(options) > MAX_OPTIONS:
        return left
    return Either(tuple(options), left.start, left.end)


def _parts(value: Value, other: Value) -> tuple[Value, ...]:
    if isinstance(value, Join):
        return (value,) if isinstance(other, Join) and any(part is value for part in other.parts[:1]) else value.parts
    return (value,)


def _joined(parts: Sequence[Value], like: Value) -> Value:
    if any(isinstance(part, Seq) for part in parts):
        return Join(tuple(parts), like.start, like.end)
    return Join(tuple(parts), like.start, like.end) if parts else Lit("", like.end, like.end)


def _shared(left: Sequence[Value], right: Sequence[Value]) -> int:
    count = 0
    for one, two in zip(left, right, strict=False):
        if one is not two:
            break
        count += 1
    return count


def _for(node: ast.For | ast.AsyncFor, scope: Scope) -> None:
    source = lower(node.iter, scope)
    before = dict(scope.env)
    scope.loops += 1
    bind(node.target, Elem(source, source.start, source.end), scope)
    _loop(node, source, before, scope)


def _while(node: ast.While, scope: Scope) -> None:
    start, _ = scope.at(node)
    before = dict(scope.env)
    scope.loops += 1
    lower(node.test, scope)
    guard = _is_overflow(node.test)
    scope.failures += guard
    _loop(node, Op("while", (), start, start + len("while")), before, scope)
    scope.failures -= guard


_OVERFLOW = 16_000
"""Tokens above which a conversation is cut only so that it fits: most of them never get there."""


def _is_overflow(test: ast.expr) -> bool:
    """Tell whether a loop runs while something is above the size of a model's context: `while tokens > 127_000`."""
    return any(
        isinstance(each, ast.Compare)
        and isinstance(each.ops[0], (ast.Gt, ast.GtE))
        and isinstance(limit := each.comparators[0], ast.Constant)
        and isinstance(limit.value, int)
        and limit.value >= _OVERFLOW
        for each in ast.walk(test)
    )


def _loop(node: ast.For | ast.AsyncFor | ast.While, source: Value, before: Env, scope: Scope) -> None:
    start, end = scope.at(node)
    body = scope.env
    scope.env = dict(body)
    run(node.body, scope)
    _pysinks.of_names(scope.env, body, scope, ended=False)
    scope.loops -= 1
    after = dict(before)
    for name, value in scope.env.items():
        old = before.get(name)
        if old is value:
            continue
        each = None if old is None else _replaced_each(old, value, source)
        if each is not None:
            scope.note_call(each, renders=True)
        after[name] = each or (value if old is None else _repeated(old, value, source, start, end))
    scope.env = after
    run(node.orelse, scope)


def _replaced_each(old: Value, new: Value, source: Value) -> Call | None:
    """Give what `for key, value in mapping.items(): text = text.replace(key, value)` makes of a text as one call."""
    calls = [new, *(new.options if isinstance(new, Either) else ())]
    made = next((call for call in calls if isinstance(call, Call) and _replaces(call, old)), None)
    items = source.func if isinstance(source, Call) else None
    if made is None or not isinstance(items, (Attr, Name)):
        return None
    owner, _, method = ("", "", items.name) if isinstance(items, Attr) else items.dotted.rpartition(".")
    if method != "items":
        return None
    mapping = items.base if isinstance(items, Attr) else Name(owner, items.start, items.end)
    parts = made.args[0].parts if isinstance(made.args[0], Join) else made.args[:1]
    held = [bare(part.value if isinstance(part, Field) else part) for part in parts]
    at = next((index for index, part in enumerate(held) if _is_item(part, 0, source)), None)
    if at is None or not any(_is_item(part, 1, source) for part in walk(made.args[1])):
        return None
    before, after = (text_of(Join(tuple(each), *made[-2:])) for each in (held[:at], held[at + 1 :]))
    if before is None or after is None:
        return None
    around = tuple(Lit(text, *made[-2:]) for text in (before, after))
    return Call(Attr(old, REPLACE_EACH, *made[-2:]), (mapping, *around), (), *made[-2:])


def _replaces(call: Call, old: Value) -> bool:
    """Tell whether a call replaces something in what a name held before."""
    func = call.func
    return isinstance(func, Attr) and func.name == "replace" and bare(func.base) is bare(old) and len(call.args) == 2


def _is_item(value: Value, index: int, source: Value) -> bool:
    """Tell whether a value is the key (0) or the value (1) of the entry at hand in a loop over a mapping's items."""
    if not isinstance(value, Item) or not isinstance(value.base, Elem) or value.base.source is not source:
        return False
    return isinstance(value.key, Const) and value.key.value == index


def _repeated(old: Value, new: Value, source: Value, start: int, end: int) -> Value:
    """Give what a loop leaves of a name: what it held, and what each round added or put there."""
    if isinstance(old, Seq) and isinstance(new, Seq):
        shared = _shared(old.items, new.items)
        if shared == len(old.items):
            added = Seq("list", new.items[shared:], new.start, new.end)
            loop = Loop(source, added, "items", None, start, end)
            return Seq("list", (*old.items, Star(loop, start, end)), old.start, end)
    if isinstance(new, Join):
        first = old.parts if isinstance(old, Join) else (old,)
        if 0 < len(first) <= len(new.parts) and _shared(first, new.parts) == len(first):
            rest = new.parts[len(first) :]
            if rest and all(isinstance(part, Seq) for part in rest):
                items = tuple(item for part in rest if isinstance(part, Seq) for item in part.items)
                loop = Loop(source, Seq("list", items, start, end), "items", None, start, end)
                return Join((*first, Seq("list", (Star(loop, start, end),), start, end)), old.start, end)
            return Join((*first, Loop(source, Join(rest, start, end), "text", None, start, end)), old.start, end)
    return Either((old, new), old.start, old.end) if not isinstance(new, Op) else new


def _with(node: ast.With | ast.AsyncWith, scope: Scope) -> bool:
    for item in node.items:
        value = lower(item.context_expr, scope)
        if item.optional_vars is not None:
            bind(item.optional_vars, value, scope)
    return run(node.body, scope)


def _try(node: ast.Try | ast.TryStar, scope: Scope) -> bool:
    bodies = [[*node.body, *node.orelse], *(handler.body for handler in node.handlers)]
    stopped = _branches(bodies, scope, failing=True)
    return run(node.finalbody, scope) or stopped


def _match(node: ast.Match, scope: Scope) -> bool:
    lower(node.subject, scope)
    return _branches([*(case.body for case in node.cases), []], scope)


def _delete(node: ast.Delete, scope: Scope) -> None:
    for target in node.targets:
        if isinstance(target, ast.Subscript):
            value = lower(target, scope)
            scope.sink("expr", value, name="delete")


def _function(node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope) -> None:
    method = bool(scope.cls) and not scope.func
    prefix = scope.func or scope.cls
    name = f"{prefix}.{node.name}" if prefix else node.name
    names, selfname = parameters(node, method=method)
    inner = Scope(scope.module, name, scope.cls, scope, selfname or scope.selfname)
    defaults = tuple(zip(reversed(names), (lower(d, scope) for d in reversed(node.args.defaults)), strict=False))
    decorators = tuple(
        dotted(lower(d.func if isinstance(d, ast.Call) else d, scope)) or "" for d in node.decorator_list
    )
    bind_parameters(inner, node, names)
    _of_decorators(node, inner)
    initial = dict(inner.env)
    run(node.body, inner)
    _pysinks.of_names(inner.env, initial, inner)
    returns = tuple(inner.returns)
    value: Value | None = None
    if returns:
        value = returns[0] if len(returns) == 1 else Either(returns[-MAX_OPTIONS:], *scope.at(node))
        for each in returns:
            _pysinks.of_return(each, node.name, decorators, inner)
    start, end = scope.at(node)
    leaves = tuple((each, held) for each in names if _is_added_to(held := bare(inner.env[each]), each))
    scope.module.functions[name] = Function(tuple(names), value, defaults, start, end, leaves)
    if not scope.is_module and not method:
        scope.env[node.name] = Name(f".{name}", start, end)


def _of_decorators(node: ast.FunctionDef | ast.AsyncFunctionDef, inner: Scope) -> None:
    """Note the text of `@prompt_template("…{question}…")`: the function's arguments fill it."""
    for each in node.decorator_list:
        if not isinstance(each, ast.Call) or not each.args:
            continue
        made = lower(each, inner)
        if isinstance(made, Call) and (dotted(made.func) or "").endswith("prompt_template"):
            start, end = inner.at(each)
            given = tuple((name, value) for name, value in inner.env.items() if isinstance(value, Param))
            filled = Call(Attr(made.args[0], "format", start, end), (), given, start, end)
            opens = (text_of(made.args[0]) or "").lstrip().upper().startswith("SYSTEM:")
            inner.sink("text", filled, "system" if opens else "text", node.name)


def _is_added_to(held: Value, param: str) -> bool:
    """Tell whether a parameter holds what it was given and something behind it."""
    first = bare(held.parts[0]) if isinstance(held, Join) and held.parts else held
    return first is not held and isinstance(first, Param) and first.name == param


def _class(node: ast.ClassDef, scope: Scope) -> None:
    prefix = scope.cls or scope.func
    name = f"{prefix}.{node.name}" if prefix else node.name
    inner = Scope(scope.module, "", name, scope)
    bases = tuple(dotted(lower(base, scope)) or "?" for base in node.bases)
    decorators = [dotted(lower(d.func if isinstance(d, ast.Call) else d, scope)) or "" for d in node.decorator_list]
    run(node.body, inner)
    own = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
    printable = bool(own & {"__repr__", "__str__", "__format__"}) or any(bases) or any(decorators)
    scope.module.classes[name] = Class(bases, printable)
    for attribute, value in inner.env.items():
        scope.module.add_constant(f"{name}.{attribute}", value)
    _pysinks.of_names(inner.env, {}, inner)
    _pysinks.of_class(inner)


_HANDLERS: dict[type[ast.stmt], Callable[[Any, Scope], bool | None]] = {
    ast.Assign: _assign,
    ast.AnnAssign: _annotated,
    ast.AugAssign: _augmented,
    ast.Expr: _expression,
    ast.Return: _return,
    ast.Raise: _stop,
    ast.Continue: _stop,
    ast.Break: _stop,
    ast.If: _if,
    ast.For: _for,
    ast.AsyncFor: _for,
    ast.While: _while,
    ast.With: _with,
    ast.AsyncWith: _with,
    ast.Try: _try,
    ast.TryStar: _try,
    ast.Match: _match,
    ast.Delete: _delete,
    ast.FunctionDef: _function,
    ast.AsyncFunctionDef: _function,
    ast.ClassDef: _class,
}
