"""Calls that fill texts: the arguments that wait for placeholders, and the files that loaders name."""

from __future__ import annotations

from typing import NamedTuple

from prefixlint.prompts import Span
from prefixlint.resolve import Frame, Resolver
from prefixlint.sources import _jinja
from prefixlint.values import (
    REPLACE_EACH,
    Attr,
    Call,
    Either,
    Field,
    Item,
    Join,
    Lit,
    Loop,
    Name,
    Op,
    Seq,
    Value,
    bare,
    dotted,
    text_of,
)
from prefixlint.wordset import word_set

_INVOKED = word_set("invoke ainvoke stream astream astream_events astream_log")
_BATCHED = frozenset(["batch", "abatch"])
BRACE_METHODS = _INVOKED | word_set(
    "format format_map partial partial_format format_prompt aformat_prompt format_messages aformat_messages aformat "
    "batch abatch predict apredict run arun"
)
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
    if method == REPLACE_EACH:
        before, after = (text_of(part) or "" for part in call.args[1:])
        entries = resolver.spread(call.args[0], frame)
        wanted = {before + key + after: bound for key, bound in entries.items() if before + key + after}
        return Fill("replace", (), wanted or {"\0": (call.args[0], frame)}, at)
    if method == "replace":
        old = text_of(resolver.resolve(call.args[0], frame)[0]) if len(call.args) >= 2 else None
        if old and any(sign in old for sign in "{<[$%#@_") and len(old) > 2:
            return Fill("replace", (), {old: (call.args[1], frame)}, at)
        return Fill("replace", (), {"\0": (call.args[1], frame)}, at) if len(call.args) >= 2 else None
    if method == "%":
        spread = resolver.spread(call.args[0], frame) if len(call.args) == 1 else {}
        return Fill("percent", tuple((arg, frame) for arg in call.args), spread, at)
    kwargs = keywords(resolver, call, frame)
    if method in _BATCHED:
        for arg in call.args[:1]:
            kwargs.update(resolver.spread(*_first(resolver, arg, frame)))
    if method in _INVOKED or method == "format_map" or (method.startswith("render") and call.args):
        for arg in call.args[:1]:
            kwargs.update(resolver.spread(arg, frame))
    if method in BRACE_METHODS:
        return Fill("brace", tuple((arg, frame) for arg in call.args), kwargs, at)
    if method in DOLLAR_METHODS:
        for arg in call.args[:1]:
            kwargs.update(resolver.spread(arg, frame))
        return Fill("dollar", (), kwargs, at)
    return Fill("jinja", (), kwargs, at) if method in ("render", "render_async") else None


def _first(resolver: Resolver, value: Value, frame: Frame) -> tuple[Value, Frame]:
    """Give an element of a list that is written out or made by a loop."""
    held, inner = resolver.resolve(value, frame)
    if isinstance(held, Seq) and held.items:
        return held.items[0], inner
    return (held.body, inner) if isinstance(held, Loop) else (held, inner)


def loaded(resolver: Resolver, value: Value, frame: Frame, depth: int = 0) -> tuple[Value, Frame] | None:
    """Give the text of the file that a value names.

    `env.get_template("x.j2")`, `load_prompt("x")`, `from_string(s)`; of a loader that keeps what it read, the reading.
    """
    if isinstance(value, Either) and depth < _MAX_PATH:
        options = (loaded(resolver, *resolver.resolve(option, frame), depth + 1) for option in value.options)
        return next((text for text in options if text is not None), None)
    if not isinstance(value, Call):
        return None
    last = last_name(value)
    if last in ("from_string", "Template", "from_template") and value.args:
        text, inner = resolver.resolve(value.args[0], frame)
        if isinstance(text, Lit):
            lowered, _ = _jinja.lower(text, inner.summary.path)
            return lowered, inner._replace(func="", args={})
        return loaded(resolver, text, inner, depth + 1) if depth < _MAX_PATH else None
    if last in _TRIMS and isinstance(value.func, Attr) and depth < _MAX_PATH:
        return loaded(resolver, *resolver.resolve(value.func.base, frame), depth + 1)
    read = read_file(resolver, value, frame)
    if read is not None:
        return None if isinstance(read, str) else read
    if not any(word in last for word in ("template", "prompt", "load", "read", "render", "open", "instruction")):
        return None
    for arg in (
        *value.args[:2],
        *(item for name, item in value.kwargs if name in ("name", "path", "template", "template_name")),
    ):
        target = path_of(resolver, arg, frame)
        if target and len(target) < 200 and "\n" not in target and " " not in target:
            found = resolver.project.template(target, frame.summary.path)
            if found is not None and found.text is not None:
                return found.text, Frame(found, "", {}, depth=frame.depth + 1)
    return None


def read_file(resolver: Resolver, call: Call, frame: Frame) -> tuple[Value, Frame] | str | None:
    """Give the text that a call reads from a file, the file's name where it is not at hand.

    `open("x").read()`, `Path("x").read_text()`, `resources.files("p").joinpath("x").read_text()`, `get_data("p", "x")`.
    """
    for value, inner in _opened(resolver, call, frame):
        target = path_of(resolver, value, inner)
        if target and "." in target and "\n" not in target:
            found = resolver.project.template(target, frame.summary.path)
            if found is not None and found.text is not None:
                return found.text, Frame(found, "", {})
            return target
    return None


def by_name(fills: tuple[Fill, ...]) -> dict[str, tuple[Value, Frame]]:
    """Give what fills put into a text by the names of its placeholders, whatever signs `replace` looks for."""
    out: dict[str, tuple[Value, Frame]] = {}
    for fill in fills:
        for key, bound in fill.kwargs.items():
            out.setdefault(key.strip("{}<>[]$%#@ ") if fill.style == "replace" else key, bound)
    return out


def _opened(resolver: Resolver, call: Call, frame: Frame) -> list[tuple[Value, Frame]]:
    """Give what may name the file that a call reads, the likeliest first; nothing for other calls."""
    if last_name(call) in _READERS and call.args:
        return [(call.args[-1], frame)]
    if not isinstance(call.func, Attr) or call.func.name not in ("read", "read_text", "read_bytes"):
        return []
    base, inner = resolver.resolve(call.func.base, frame)
    if isinstance(base, Call):
        if isinstance(base.func, Attr) and base.func.name == "open":  # Path("x").open()
            return [(base.func.base, inner)]
        if isinstance(base.func, Attr) and base.func.name in _JOINING:
            return [(base, inner)]
        return [(arg, inner) for arg in reversed(base.args)]
    return [(base, inner)] if isinstance(base, Op) else []


_TRIMS = frozenset(["strip", "lstrip", "rstrip"])
_READERS = frozenset(["get_data", "load_text", "read_file", "read_text_file"])
_JOINING = frozenset(["joinpath", "join", "with_name", "with_suffix", "resolve", "absolute", "expanduser", "as_posix"])
_MAX_PATH = 8
"""Parts inside parts of a path that are read."""


def path_of(resolver: Resolver, value: Value, frame: Frame, depth: int = 0) -> str | None:
    """Give the end of a path as far as it is known: `prompts/x.md` of `Path(__file__).parent / "prompts" / "x.md"`."""
    held, inner = resolver.resolve(value, frame)
    if depth > _MAX_PATH:
        return None
    if isinstance(held, Lit):
        return held.text
    if isinstance(held, Join):
        texts = [path_of(resolver, part, inner, depth + 1) for part in held.parts]
        known = next((at for at in range(len(texts), 0, -1) if texts[at - 1] is None), 0)
        tail = "".join(text or "" for text in texts[known:])
        return tail if not known else tail.partition("/")[2] or None
    if isinstance(held, Either):  # any of them: files of one folder differ in little
        return next(filter(None, (path_of(resolver, option, inner, depth + 1) for option in held.options)), None)
    if isinstance(held, Field) and not held.conversion and not held.spec:
        return path_of(resolver, held.value, inner, depth + 1)
    parts = _components(held)
    if parts is None:
        return None
    tails: list[str] = []
    for part in reversed(parts):
        ending = path_of(resolver, part, inner, depth + 1)
        if ending is None:
            break
        tails.insert(0, ending.strip("/"))
    return "/".join(tail for tail in tails if tail != ".") or None


def _components(value: Value) -> tuple[Value, ...] | None:
    """Give the parts of a path that a call or `/` puts together, None for what is no path."""
    if isinstance(value, Op):
        return value.operands if value.name == "/" else None
    if not isinstance(value, Call):
        return None
    if isinstance(value.func, Attr):
        return (value.func.base, *value.args) if value.func.name in _JOINING - {"join"} else None
    path = dotted(value.func) or ""
    if path in ("os.path.join", "posixpath.join", "str") or path.rsplit(".", 1)[-1] in ("Path", "PurePath", "joinpath"):
        return value.args
    return (
        value.args[:1] if path in ("os.path.abspath", "os.path.normpath", "os.fspath", "os.path.expanduser") else None
    )


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
