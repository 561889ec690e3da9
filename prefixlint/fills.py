"""Calls that fill texts: the arguments that wait for placeholders, and the files that loaders name."""

from __future__ import annotations

from typing import NamedTuple

from prefixlint.prompts import Span
from prefixlint.resolve import Frame, Resolver
from prefixlint.sources import _jinja
from prefixlint.values import Attr, Call, Item, Lit, Name, Op, Template, Value, bare, dotted, text_of
from prefixlint.wordset import word_set

BRACE_METHODS = word_set("format format_map partial format_prompt format_messages aformat invoke ainvoke")
DOLLAR_METHODS = frozenset(["substitute", "safe_substitute"])


class Fill(NamedTuple):
    """Arguments waiting for the placeholders of a style; `at` is the call."""

    style: str
    args: tuple[tuple[Value, Frame], ...]
    kwargs: dict[str, tuple[Value, Frame]]
    at: Span


def keywords(resolver: Resolver, call: Call, frame: Frame) -> dict[str, tuple[Value, Frame]]:
    """Give a call's keyword arguments, spread mappings included as far as they are literal."""
    out: dict[str, tuple[Value, Frame]] = {}
    for name, value in call.kwargs:
        if name == "**":
            out.update(resolver.spread(value, frame))
        else:
            out[name] = (value, frame)
    return out


def fill_of(resolver: Resolver, call: Call, method: str, frame: Frame) -> Fill | None:
    """Give the fill that a method call of this name is, None for other methods."""
    at = frame.span(call)
    if method == "replace":
        old = text_of(resolver.resolve(call.args[0], frame)[0]) if len(call.args) >= 2 else None
        if old and any(sign in old for sign in "{<[$%#@_") and len(old) > 2:
            return Fill("replace", (), {old: (call.args[1], frame)}, at)
        return Fill("replace", (), {"\0": (call.args[1], frame)}, at) if len(call.args) >= 2 else None
    if method == "%":
        spread = resolver.spread(call.args[0], frame) if len(call.args) == 1 else {}
        return Fill("percent", tuple((arg, frame) for arg in call.args), spread, at)
    kwargs = keywords(resolver, call, frame)
    if method in ("invoke", "ainvoke", "format_map") or (method.startswith("render") and call.args):
        for arg in call.args[:1]:
            kwargs.update(resolver.spread(arg, frame))
    if method in BRACE_METHODS:
        return Fill("brace", tuple((arg, frame) for arg in call.args), kwargs, at)
    if method in DOLLAR_METHODS:
        for arg in call.args[:1]:
            kwargs.update(resolver.spread(arg, frame))
        return Fill("dollar", (), kwargs, at)
    return Fill("jinja", (), kwargs, at) if method in ("render", "render_async") else None


def loaded(resolver: Resolver, value: Value, frame: Frame) -> tuple[Value, Frame] | None:
    """Give the text of the file that a value names.

    `env.get_template("x.j2")`, `load_prompt("x")`, `from_string(s)`.
    """
    if not isinstance(value, Call):
        return None
    last = last_name(value)
    if last in ("from_string", "Template", "from_template") and value.args:
        text, inner = resolver.resolve(value.args[0], frame)
        if isinstance(text, Lit):
            lowered, _ = _jinja.lower(text, inner.summary.path)
            return lowered, inner._replace(func="", args={})
        return loaded(resolver, text, inner)
    if not any(word in last for word in ("template", "prompt", "load", "read", "render", "open", "instruction")):
        return None
    for arg in (
        *value.args[:2],
        *(item for name, item in value.kwargs if name in ("name", "path", "template", "template_name")),
    ):
        target = text_of(resolver.resolve(arg, frame)[0])
        if target and len(target) < 200 and "\n" not in target and " " not in target:
            found = resolver.project.template(target, frame.summary.path)
            if found is not None and found.text is not None:
                return found.text, Frame(found, "", {}, depth=frame.depth + 1)
    return None


def read_file(resolver: Resolver, call: Call, frame: Frame) -> tuple[Lit, Frame] | str | None:
    """Give the text that `open("x").read()` or `Path("x").read_text()` reads, its file's name where it is not known."""
    if not isinstance(call.func, Attr) or call.func.name not in ("read", "read_text"):
        return None
    base, inner = resolver.resolve(call.func.base, frame)
    if not isinstance(base, (Call, Op)):
        return None
    for arg in reversed(base.args if isinstance(base, Call) else base.operands):
        target = text_of(resolver.resolve(arg, inner)[0])
        if target and "." in target and "\n" not in target:
            found = resolver.project.template(target, frame.summary.path)
            text = found.text if found is not None else None
            if found is not None and isinstance(text, (Lit, Template)):
                return text.text if isinstance(text, Template) else text, Frame(found, "", {})
            return target
    return None


def called(value: Value) -> str:
    """Give what a value is called, as a reader would say it."""
    name = dotted(value)
    if name is not None:
        return name.lstrip("./")
    if isinstance(value, Call):
        inner = dotted(value.func)
        return f"{inner.lstrip('./')}()" if inner else ""
    if isinstance(value, Item):
        return text_of(value.key) or called(value.base)
    return ""


def last_name(call: Call) -> str:
    """Give the last part of the name of what a call calls."""
    func = bare(call.func)
    if isinstance(func, Attr):
        return func.name
    return func.dotted.rsplit(".", 1)[-1] if isinstance(func, Name) else ""
