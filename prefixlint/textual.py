"""Which values are text: shown by the source, though it may have places that a run fills."""

from __future__ import annotations

from collections.abc import Callable

from prefixlint.fills import BRACE_METHODS, DOLLAR_METHODS, loaded, read_file
from prefixlint.resolve import Frame, Resolver
from prefixlint.values import (
    REPLACE_EACH,
    Attr,
    Call,
    Either,
    Elem,
    Field,
    Join,
    Lit,
    Loop,
    Op,
    Seq,
    Template,
    Value,
    bare,
    dotted,
)
from prefixlint.verdicts import SHORT, named
from prefixlint.wordset import word_set

MAX_NESTING = 40
"""Values inside values that are followed."""
SAME_TEXT = word_set(
    "strip lstrip rstrip lower upper title capitalize removeprefix removesuffix expandtabs encode decode "
    "getvalue with_config bind"
)
_PASSING_ON = word_set("list tuple filter map reversed iter")
SAME_FUNCTIONS = word_set(
    "str textwrap.dedent dedent inspect.cleandoc cleandoc textwrap.indent typing.cast cast "
    "markupsafe.Markup html.unescape jinja.filter.trim jinja.filter.safe jinja.filter.string "
    "jinja.filter.indent jinja.filter.default jinja.filter.d list tuple"
)
TEMPLATE_CLASSES = word_set(
    "PromptTemplate ChatPromptTemplate StringPromptTemplate SystemMessagePromptTemplate HumanMessagePromptTemplate "
    "PromptBuilder"
)
TEXT_CLASSES = word_set(
    "SystemMessage HumanMessage AIMessage UserMessage AssistantMessage Message ChatMessage TextContent TextBlock Part"
)


class Texts:
    """Asks whether values are text; `spent` takes a step of the prompt's budget and says whether it is used up."""

    def __init__(self, resolver: Resolver, spent: Callable[[], bool]) -> None:
        self.resolver = resolver
        self._spent = spent
        self._depth = 0

    def is_text(self, value: Value, frame: Frame) -> bool:
        """Tell whether a resolved value is text that the source shows."""
        if self._spent() or self._depth > MAX_NESTING:
            return False
        self._depth += 1
        try:
            return self._textual(value, frame)
        finally:
            self._depth -= 1

    def _textual(self, value: Value, frame: Frame) -> bool:
        if isinstance(value, (Lit, Template)):
            return True
        if isinstance(value, Join):
            return any(
                isinstance(part, (Lit, Field, Template)) or self.is_text(*self.resolver.resolve(part, frame))
                for part in value.parts[:40]
            )
        if isinstance(value, Either):
            return any(self.is_text(*self.resolver.resolve(option, frame)) for option in value.options)
        if isinstance(value, Loop):
            return value.kind == "text"
        if isinstance(value, Op):
            return value.name == "handed text"
        if isinstance(value, Call):
            return self._makes_text(value, frame)
        return False

    def _makes_text(self, call: Call, frame: Frame) -> bool:
        path = dotted(call.func) or ""
        if isinstance(call.func, Attr):
            method = call.func.name
            base, inner = self.resolver.resolve(call.func.base, frame)
            if method == "join":
                return isinstance(base, Lit)
            if method in BRACE_METHODS | DOLLAR_METHODS | {"%", "replace", REPLACE_EACH, "render"} | SAME_TEXT:
                return self.is_text(base, inner) or (
                    method == "render" and loaded(self.resolver, base, inner) is not None
                )
            return read_file(self.resolver, call, frame) is not None
        if path in SAME_FUNCTIONS:
            return bool(call.args) and self.is_text(*self.resolver.resolve(call.args[0], frame))
        return (
            path.startswith(("jinja.include", "jinja.extends", "jinja.block"))
            or self.is_class(path)
            or loaded(self.resolver, call, frame) is not None
        )

    def is_class(self, path: str) -> bool:
        """Tell whether a dotted name is a class whose instances are texts."""
        # a method of a class of the project is not that of a framework's class of the same name
        named = path.split(".")[-1:] if path.startswith(".") else path.split(".")[-2:]
        return any(part in TEMPLATE_CLASSES or part in TEXT_CLASSES for part in named) or path == "string.Template"

    def elements_of(self, held: Value, frame: Frame) -> Value | None:
        """Give the list whose elements another one has, one by one: `filter(None, x)`, `(p for p in x if p)`."""
        if isinstance(held, Call):
            return held.args[-1] if dotted(held.func) in _PASSING_ON and held.args else None
        body = bare(held.body) if isinstance(held, Loop) and held.kind in ("list", "gen") else None
        while isinstance(body, Call) and isinstance(body.func, Attr) and body.func.name in SAME_TEXT:
            body = bare(body.func.base)
        if not isinstance(held, Loop) or not isinstance(body, Elem) or body.source is not held.source:
            return None
        written = isinstance(self.resolver.resolve(held.source, frame)[0], (Seq, Join, Either))
        return held.source if written else None

    def is_kept(self, held: Value, inner: Frame, name: str) -> bool:
        """Tell whether a value that is called recalled memory is what a file holds, or nothing.

        Such a file is written while the program runs: what stands beside the source is what it begins as.
        """
        if not any(origin.kind == "memory" for origin in named(name).origins):
            return False
        options = held.options if isinstance(held, Either) else (held,)
        read = [self.resolver.resolve(option, inner) for option in options]
        return all(
            (isinstance(each, Lit) and not each.text.strip())
            or (isinstance(each, Call) and read_file(self.resolver, each, frame) is not None)
            for each, frame in read
        )

    def is_value(self, held: Value, inner: Frame, outer: Frame, name: str) -> bool:
        """Tell whether a text is so short, and made elsewhere, that it counts as one value.

        A date written by a helper.
        """
        if not name and inner.func == outer.func and inner.summary is outer.summary:
            return False
        if isinstance(held, Join):
            fixed = sum(len(part.text) for part in held.parts if isinstance(part, Lit))
            return fixed <= SHORT and any(isinstance(part, Field) for part in held.parts)
        return (
            isinstance(held, Call)
            and isinstance(held.func, Attr)
            and held.func.name in ("replace", "strip", "upper", "lower")
        )
