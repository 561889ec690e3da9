"""What statements such as `x.append(v)` and `add_to(x)` do to what a name of Python code holds."""

from __future__ import annotations

from collections.abc import Callable

from prefixlint.sources import _pysinks
from prefixlint.sources._pyexpr import opened
from prefixlint.sources._pyscope import Scope, words
from prefixlint.values import (
    Attr,
    Call,
    Const,
    Either,
    Field,
    Join,
    Lit,
    Map,
    Name,
    Op,
    Seq,
    Slice,
    Star,
    Value,
    Var,
    bare,
    dotted,
)

_TEXTS = (Lit, Join, Field, Either, Star, Op)
"""Values that may be lines of a text, not messages or other things."""


def hand(call: Call, scope: Scope) -> None:
    """Let a list or buffer of text hold what a function of the file adds to it, where that is handed to one."""
    if not (dotted(call.func) or "").startswith("."):
        return
    given: list[tuple[Value, Value]] = [(Const(at, call.start, call.end), arg) for at, arg in enumerate(call.args)]
    given += [(Lit(name, call.start, call.end), arg) for name, arg in call.kwargs]
    for key, arg in given:
        if not isinstance(arg, Var):
            continue
        held = bare(arg.value)
        if isinstance(held, Call):
            held = _buffer(held)
        if isinstance(held, Seq) and held.kind == "list" and all(isinstance(bare(item), _TEXTS) for item in held.items):
            if held.items or not words(arg.name) & _pysinks.HISTORY_WORDS:
                added = Op("handed list", (call, key), call.start, call.end)
                scope.env[arg.name] = _extended(held, added, call)
        elif isinstance(held, Join) and not any(isinstance(part, Seq) for part in held.parts):
            added = Op("handed text", (call, key), call.start, call.end)
            scope.env[arg.name] = Join((*held.parts, added), held.start, call.end)


def mutate(call: Call, scope: Scope) -> None:
    """Apply `x.append(v)` and its like to what the name holds."""
    shuffled = dotted(call.func) in ("random.shuffle", "numpy.random.shuffle") and len(call.args) == 1
    if shuffled and isinstance(call.args[0], (Var, Name)):
        name = call.args[0].name if isinstance(call.args[0], Var) else call.args[0].dotted.removeprefix(".")
        if "." not in name:
            scope.env[name] = Call(call.func, call.args, (), call.start, call.end)
            _share(name, scope)
        return
    if not isinstance(call.func, Attr):
        return
    base, method = call.func.base, call.func.name
    key = base.name if isinstance(base, Var) else dotted(base) if isinstance(base, Name) else None
    if key is None or method not in _MUTATIONS:
        return
    own = (
        f"{scope.selfname}.{key.removeprefix(f'.{scope.cls}.')}"
        if scope.cls and key.startswith(f".{scope.cls}.")
        else key
    )
    held: Value = base.value if isinstance(base, Var) else scope.env.get(own.removeprefix(".")) or base
    if isinstance(held, Call):
        held = _buffer(held)
    if method == "update":
        held = opened(bare(held), scope)
    scope.env[own.removeprefix(".")] = _MUTATIONS[method](held, call)
    _share(own.removeprefix("."), scope)


def _share(name: str, scope: Scope) -> None:
    """Let the module know what a mutation of an attribute of the instance, or of a module name, left behind."""
    if scope.cls and name.startswith(f"{scope.selfname}."):
        scope.module.add_constant(f"{scope.cls}.{name.split('.', 1)[1]}", scope.env[name])


def _buffer(made: Call) -> Value:
    """Give what a fresh `StringIO` holds, any other call as it is."""
    buffer = (dotted(made.func) or "").endswith("StringIO")
    return Join(tuple(made.args[:1]), made.start, made.end) if buffer else made


def _append(held: Value, call: Call) -> Value:
    if not call.args:
        return held
    return _extended(held, call.args[0], call)


def _extended(held: Value, item: Value, call: Call) -> Value:
    inner = bare(held)
    if isinstance(inner, Seq) and inner.kind == "list":
        return Seq("list", (*inner.items, item), inner.start, call.end)
    if isinstance(inner, Join) and inner.parts and isinstance(inner.parts[-1], Seq):
        last = inner.parts[-1]
        return Join((*inner.parts[:-1], Seq("list", (*last.items, item), last.start, call.end)), inner.start, call.end)
    return Join((held, Seq("list", (item,), call.start, call.end)), held.start, call.end)


def _extend(held: Value, call: Call) -> Value:
    if not call.args:
        return held
    added = bare(call.args[0])
    if isinstance(added, Seq) and added.kind in ("list", "tuple"):
        for item in added.items:
            held = _extended(held, item, call)
        return held
    return _extended(held, Star(call.args[0], call.start, call.end), call)


def _insert(held: Value, call: Call) -> Value:
    if len(call.args) != 2:
        return held
    inner, where = bare(held), bare(call.args[0])
    if isinstance(where, Const) and where.value == 0:
        if isinstance(inner, Seq):
            return Seq("list", (call.args[1], *inner.items), inner.start, inner.end)
        return Join((Seq("list", (call.args[1],), call.start, call.end), held), held.start, held.end)
    if isinstance(inner, Seq) and isinstance(where, Const) and isinstance(where.value, int):
        items = (*inner.items[: where.value], call.args[1], *inner.items[where.value :])
        return Seq("list", items, inner.start, inner.end)
    between = Seq("list", (call.args[1],), call.start, call.end)
    before = Slice(held, None, call.args[0], held.start, held.end)
    return Join((before, between, Slice(held, call.args[0], None, held.start, held.end)), held.start, held.end)


def _write(held: Value, call: Call) -> Value:
    if not call.args:
        return held
    inner = bare(held)
    if isinstance(inner, Name):
        return held
    parts = inner.parts if isinstance(inner, Join) else (held,)
    return Join((*parts, call.args[0]), held.start, call.end)


def _update(held: Value, call: Call) -> Value:
    inner = bare(held)
    given: tuple[tuple[Value | None, Value], ...] = tuple(
        (Lit(name, value.start, value.start) if name != "**" else None, value) for name, value in call.kwargs
    )
    given += tuple((None, arg) for arg in call.args)
    if isinstance(inner, Call) and dotted(inner.func) == "dict" and not inner.args:
        entries = tuple((Lit(name, value.start, value.start), value) for name, value in inner.kwargs if name != "**")
        inner = Map(entries, inner.start, inner.end)
    return Map((*inner.entries, *given), inner.start, inner.end) if isinstance(inner, Map) else held


def _sort(held: Value, call: Call) -> Value:
    return Call(Name("sorted", call.start, call.end), (held,), (), call.start, call.end)


_MUTATIONS: dict[str, Callable[[Value, Call], Value]] = {
    "append": _append,
    "extend": _extend,
    "insert": _insert,
    "write": _write,
    "sort": _sort,
    "update": _update,
}
