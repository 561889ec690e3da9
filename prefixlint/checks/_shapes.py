"""Shapes of values that checks about conversations and requests look for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prefixlint import volatility
from prefixlint.checks import Context
from prefixlint.findings import Confidence, Finding, Rule, Severity
from prefixlint.prompts import Hole, Period, Span
from prefixlint.reach import is_aside
from prefixlint.resolve import Frame
from prefixlint.sources import Sink, Summary
from prefixlint.sources._pyscope import words
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
    walk,
)
from prefixlint.wordset import word_set

_MAX_NESTING = 8
"""Lists inside lists that are looked into."""
HISTORY_WORDS = frozenset("history conversation transcript turns dialogue".split())  # noqa: SIM905 (reads better)
MESSAGE_WORDS = HISTORY_WORDS | {"messages", "msgs"}


Hit = tuple[Span, str] | tuple[Span, str, Severity]
"""A place that has a rule's shape, what to say about it, and how severe it is at most."""


def report(shapes: Mapping[str, Callable[[Context], Iterator[Hit]]], context: Context, rule: Rule) -> Iterator[Finding]:
    """Report the places that have the rule's shape (its parameter `shape`), each once, as the gravest that it is.

    What stands aside from what serves requests is information.
    """
    best: dict[Span, Finding] = {}
    for hit in shapes[rule.params["shape"]](context):
        span, message = hit[:2]
        severity = min(rule.severity, hit[2]) if len(hit) > 2 else rule.severity
        severity = Severity.INFO if is_aside(span.path) else severity
        if span not in best or severity > best[span].severity:
            best[span] = Finding(rule, message, span, severity, Confidence.MEDIUM, help=rule.help)
    yield from best.values()


def sinks(context: Context, *kinds: str) -> Iterator[tuple[Summary, Sink, Frame]]:
    """Give the sinks of some kinds in the files that are checked, in order, with the frame to read them in."""
    for path in context.paths:
        summary = context.linked.project.summary(path)
        for sink in summary.sinks if summary is not None else ():
            if sink.kind in kinds and summary is not None:
                yield summary, sink, context.linked.frame(summary, sink)


def last_name(value: Value) -> str:
    """Give the last part of what a value is called; of a call, of its function."""
    value = value.func if isinstance(value, Call) else value
    if isinstance(value, Attr):
        return value.name
    return (dotted(value) or "").rsplit(".", 1)[-1]


def receiver(call: Call) -> Value | None:
    """Give the object whose method a call calls."""
    if isinstance(call.func, Attr):
        base: Value = call.func.base
        return base
    if isinstance(call.func, Name) and "." in call.func.dotted:
        return Name(call.func.dotted.rpartition(".")[0], call.func.start, call.func.end)
    return None


def words_of(name: str) -> set[str]:
    """Give the words of the last part of a dotted name."""
    return set(name.rsplit(".", 1)[-1].lower().split("_"))


def is_called(value: Value, words: frozenset[str]) -> bool:
    """Tell whether a value's own name has one of some words: `self.chat_history`, `history`."""
    if isinstance(value, Call):
        return False
    return bool(words_of(last_name(value)) & words)


def holds_messages(value: Value) -> bool:
    """Tell whether a value's name says that it holds messages: `chat_history`, not `history_images`."""
    name = last_name(value).lower().rstrip("_").rsplit("_", 1)[-1]
    return not isinstance(value, Call) and name in MESSAGE_WORDS


def entries(value: Map) -> dict[str, Value]:
    """Give the entries of a mapping under literal keys."""
    return {key: item for entry, item in value.entries if (key := text_of(entry)) is not None}


def moving_slices(value: Value) -> Iterator[Slice]:
    """Give slices that keep the last N elements of a conversation."""
    for part in passed_on(value):
        if isinstance(part, Slice) and part.upper is None and (holds_messages(part.base) or gives_messages(part.base)):
            lower = bare(part.lower) if part.lower is not None else None
            negative = isinstance(lower, Const) and isinstance(lower.value, int) and lower.value < -1
            if isinstance(lower, Op) and lower.name == "*":  # `-TURNS * 2`
                lower = next((held for each in lower.operands if isinstance(held := bare(each), Op)), lower)
            if negative or (isinstance(lower, Op) and lower.name == "-" and len(lower.operands) == 1):
                yield part


def gives_messages(value: Value) -> bool:
    """Tell whether a function says that it gives the messages of a conversation: `self.get_history(chat)[-10:]`."""
    held = bare(value)
    said = words_of(last_name(held)) if isinstance(held, Call) else set()
    return bool(said & MESSAGE_WORDS) and bool(said & _GIVES)


_GIVES = frozenset(["get", "load", "fetch", "read", "list", "recent", "stored"])


def unstarred(part: Value) -> Value:
    """Give an element of a list; of `*items` the list that is put there."""
    return part.value if isinstance(part, Star) else part


def number_of(tail: Slice) -> int | None:
    """Give how many elements a slice of the last ones keeps, None where it is not a number."""
    lower = bare(tail.lower) if tail.lower is not None else None
    return -lower.value if isinstance(lower, Const) and isinstance(lower.value, int) else None


def passed_on(value: Value, depth: int = 0) -> Iterator[Value]:
    """Give a value and the lists whose elements are its own, not what is written into a text."""
    held = bare(value)
    yield held
    if depth > _MAX_NESTING:
        return
    inner: tuple[Value, ...] = ()
    if isinstance(held, Star):
        inner = (held.value,)
    elif isinstance(held, Loop):
        inner = (held.source,) if held.kind != "text" else ()
    elif isinstance(held, Either):
        inner = held.options
    elif isinstance(held, Join) and not any(isinstance(part, (Lit, Field)) for part in held.parts):
        inner = held.parts
    elif isinstance(held, Seq) and held.kind != "set":
        inner = held.items
    elif isinstance(held, Call) and last_name(held) in ("list", "reversed", "tuple", "copy", "deepcopy"):
        inner = held.args
    for part in inner:
        yield from passed_on(part, depth + 1)


def makes_message(value: Value) -> bool:
    """Tell whether a value is one message: what is cut in it is text, not the conversation."""
    return isinstance(value, Map) or (isinstance(value, Call) and last_name(value)[:1].isupper())


def has_rest(value: Value, tail: Slice) -> bool:
    """Tell whether what a slice leaves out stands in the same value: a list that was split, not cut."""
    cut = _number(tail.lower)
    return any(
        isinstance(part, Slice) and part.lower is None and cut is not None and _number(part.upper) == cut
        for part in walk(value)
    )


def _number(bound: Value | None) -> object:
    """Give what tells two bounds of slices apart: the number, or the name behind the minus sign."""
    held = bare(bound) if bound is not None else None
    if isinstance(held, Const):
        return held.value
    return dotted(held.operands[0]) if isinstance(held, Op) and len(held.operands) == 1 else None


def elements_of(value: Value, words: frozenset[str]) -> bool:
    """Tell whether a value is an element of something with one of some words in its name."""
    value = bare(value)
    while isinstance(value, (Item, Attr)):
        value = bare(value.base)
    if not isinstance(value, Elem):
        return False
    source = value.source
    while isinstance(bare(source), Slice):
        source = bare(source).base  # type: ignore[union-attr]
    return is_called(source, words)


def keeps(loop: Value, role: str) -> bool:
    """Tell whether a loop over messages keeps them by comparing with a role."""
    loop = bare(loop)
    return (
        isinstance(loop, Loop)
        and loop.kept is not None
        and any(isinstance(part, Lit) and part.text == role for part in walk(loop.kept))
    )


def literals(value: Value) -> set[str]:
    """Give the literal alternatives of a value."""
    value = bare(value)
    if isinstance(value, Either):
        return set().union(*map(literals, value.options))
    return {value.text} if isinstance(value, Lit) else set()


def named_parts(value: Value, *, fields: bool = False) -> list[Value]:
    """Give the parts of a concatenation that are names, with `fields` those in an f-string too."""
    held = bare(value)
    parts = held.parts if isinstance(held, Join) else (value,)
    parts = tuple(part.value if fields and isinstance(part, Field) else part for part in parts)
    return [part for part in parts if dotted(part)]


_RECEIVED = word_set(
    "acc accumulated accumulator buffer buffered chunk chunks completion delta deltas fragment fragments partial "
    "pending response stream streamed streaming"
)
"""Words of what is put together while a model answers: a call without an id gets one there that is kept."""


def is_received(value: Value) -> bool:
    """Tell whether an id is that of a call which a model has just made, or one in its place."""
    return any(isinstance(part, (Name, Var, Param)) and words(last_name(part)) & _RECEIVED for part in walk(value))


_ELEMENTS = word_set("row rows record item entry line sample case")
"""Words of one of many that requests are made for, one after the other."""


def is_of_request(hole: Hole) -> bool:
    """Tell whether a place is filled with another value for each request, not with one of few: a persona, a state."""
    fresh = [origin for origin in hole.origins if origin.volatility.period >= Period.CALL and not origin.weak]
    called = hole.names[0] if hole.names else ""
    said = not called.endswith("dumps()") and volatility.of_name(called) is not None
    # what flows into a place may be little of it
    own = any(o.evidence == "flow" or said or o.label.strip("{}") == called for o in fresh)
    return own or bool(words(called.partition(".")[0]) & _ELEMENTS)
