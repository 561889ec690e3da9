"""Windows over a conversation: code that keeps its last messages and sends them behind a system text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from prefixlint import link
from prefixlint.checks import Context
from prefixlint.checks._shapes import (
    MESSAGE_WORDS,
    Hit,
    entries,
    has_rest,
    holds_messages,
    last_name,
    makes_message,
    moving_slices,
    number_of,
    passed_on,
    receiver,
    sinks,
    unstarred,
    words_of,
)
from prefixlint.findings import Severity
from prefixlint.prompts import Hole, Include, Message, Period, Prompt, Text, flatten
from prefixlint.resolve import Frame
from prefixlint.sources import Sink, Summary
from prefixlint.sources._pyscope import words
from prefixlint.sources._pysinks import WINDOWS, is_message_call, looks_like_messages
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
from prefixlint.verdicts import is_constant_name
from prefixlint.wordset import word_set

_MOVES = "the history starts at another message on each turn, so nothing behind the system text is reused"


def windows(context: Context) -> Iterator[Hit]:
    """Give what lets the history of a conversation start at another message on each turn."""
    yield from _kept_last(context)
    yield from _taken_out(context)
    yield from _beside_system(context)
    for summary, sink, frame in sinks(context, "messages", "expr"):
        if sink.kind == "expr" and sink.name != "kept":
            continue
        held = bare(sink.value)
        if isinstance(held, Loop) and _gives_messages(held):
            # what is sent in front of them, the source shows elsewhere if at all
            yield from ((frame.span(found), _MOVES, Severity.INFO) for found in moving_slices(held.source))
        for option in held.options if isinstance(held, Either) else (held,):
            yield from _in_list(context, summary, replace(sink, value=option), frame)


def _in_list(context: Context, summary: Summary, sink: Sink, frame: Frame) -> Iterator[Hit]:
    """Give the windows in a list of messages, those behind a system text in it as the gravest."""
    parts = _parts(sink.value)
    # a list that shows its messages and is only given a name is sent to nobody
    kept = bool(sink.name) and looks_like_messages(sink.value)
    tails = [*((number, found, frame) for number, found in _tails(parts)), *_given_tails(context, parts, frame)]
    for number, found, inner in tails if len(parts) > 1 else ():
        if has_rest(sink.value, found):
            continue
        costs = not kept and not _is_few(context, found, inner) and not _is_condensed(sink, parts)
        if any(_is_first_of(part, found) for part in parts[:number]):
            sent = any(other.kind == "messages" and not other.name for other in summary.sinks)
            costs = costs and (sent or _sends(summary))
        else:
            costs = costs and _is_led(context, parts[:number], frame)
        yield inner.span(found), _MOVES, Severity.ERROR if costs else Severity.INFO


def _given_tails(context: Context, parts: Iterable[Value], frame: Frame) -> Iterator[tuple[int, Slice, Frame]]:
    """Give the windows that functions of the project give back, with the frames that they stand in."""
    for number, part in enumerate(parts):
        call = bare(unstarred(part))
        if isinstance(call, Call):
            held, inner = context.linked.resolver.resolve(call, frame)
            if isinstance(held, Slice):
                yield from ((number, found, inner) for found in moving_slices(held))


def _parts(value: Value) -> tuple[Value, ...]:
    """Give the parts of a list of messages, none of what is text."""
    held = bare(value)
    parts = _flat(held) if isinstance(held, Join) else held.items if isinstance(held, Seq) else ()
    return () if any(isinstance(part, (Lit, Field)) for part in parts) else parts


def _tails(parts: Iterable[Value]) -> Iterator[tuple[int, Slice]]:
    """Give slices that keep the last elements of a conversation, with the number of the part that holds them."""
    for number, part in enumerate(parts):
        inner = bare(unstarred(part))
        if not makes_message(inner) and not (isinstance(inner, Loop) and not _gives_messages(inner)):
            yield from ((number, found) for found in moving_slices(inner))


def _is_first_of(part: Value, tail: Slice) -> bool:
    """Tell whether a part of a list keeps the first message of the conversation that a slice cuts: its system text."""
    held = bare(part)
    if isinstance(held, Seq) and len(held.items) == 1:
        held = bare(held.items[0])
    first = (isinstance(held, Item) and _is_number(held.key, 0)) or (
        isinstance(held, Slice) and held.lower is None and _is_number(held.upper, 1)
    )
    return first and isinstance(held, (Item, Slice)) and dotted(held.base) == (dotted(tail.base) or "?")


def _is_number(value: Value | None, number: int) -> bool:
    held = bare(value) if value is not None else None
    return isinstance(held, Const) and held.value == number and not isinstance(held.value, bool)


def _beside_system(context: Context) -> Iterator[Hit]:
    """Give windows over what a call sends behind a system text of its own: `create(system=…, messages=…)`."""
    for _, sink, frame in sinks(context, "call"):
        given = dict(sink.value.kwargs) if isinstance(sink.value, Call) else {}
        texts = [given[key] for key in link.REQUEST_SYSTEM if key in given]
        if not texts or "messages" not in given:
            continue
        held, inner = context.linked.resolver.resolve(given["messages"], frame)
        parts = (held,) if isinstance(held, Slice) else _parts(held)
        tails = [found for _, found in _tails(parts) if not has_rest(held, found)]
        if not tails or _is_condensed(sink, parts):
            continue
        stays = _lasts(link.system(context.linked, texts[0], frame))
        for found in tails:
            made = last_name(sink.value)[:1].isupper()  # an object that holds both: who sends them is not shown
            costs = stays and not made and not _is_few(context, found, inner)
            yield inner.span(found), _MOVES, Severity.ERROR if costs else Severity.INFO


def _is_led(context: Context, front: Iterable[Value], frame: Frame) -> bool:
    """Tell whether system text that is shown to stay the same stands in front of a window.

    Without one it may be what is added to a conversation, or kept of one; behind one that each request changes, as most
    do that are not shown, nothing is left that the window could cost.
    """
    parts = tuple(front)
    if not any(map(_is_system, parts)):
        return False
    if all(isinstance(part, Name) and is_constant_name(part.dotted) for part in parts):
        return True  # of another project
    return _lasts([message for part in parts for message in link.message(context.linked, part, frame)])


def _lasts(shown: Iterable[Message]) -> bool:
    """Tell whether there is system text in messages, and all of it the same in all requests of a conversation."""
    messages = tuple(shown)
    segments = flatten(Prompt(messages, messages[0].span)) if messages else []
    ahead = [segment.node for segment in segments if segment.role in _SYSTEM]
    return bool(ahead) and all(map(_stays, ahead))


def _stays(node: Text | Hole | Include) -> bool:
    """Tell whether a piece of a system text is the same in all requests of a conversation."""
    if not isinstance(node, Hole):
        return isinstance(node, Text)
    return node.constant or (bool(node.origins) and all(o.volatility.period <= Period.PROCESS for o in node.origins))


def _is_condensed(sink: Sink, parts: Iterable[Value]) -> bool:
    """Tell whether a list is what is left of a conversation that was summarised: it is cut once, not on each turn."""
    names = [sink.func, *(last_name(part) for value in parts for part in walk(value) if isinstance(part, _NAMED))]
    return any(words(name) & CONDENSED for name in names)


_NAMED = (Name, Var, Param, Attr, Call)
CONDENSED = word_set(
    "summary summaries summarize summarise summarized summarised compact compaction compacted compress compressed "
    "condense condensed truncate classify classifier classification intent router routing rewrite rephrase reformulate "
    "title"
)
"""Words of what is asked about a conversation, or made of it, beside the requests that go on with it."""
_MEMORY = 3
"""Exchanges that a small memory of a framework keeps."""
_EXCHANGES = range(1, 2 * _MEMORY + 1)
"""Messages of as many exchanges: what is kept of so few is no window over a conversation, or one meant to be."""


def _is_few(context: Context, tail: Slice, frame: Frame) -> bool:
    """Tell whether a slice keeps few messages, by a number, a constant or what a parameter is unless a caller says."""
    number = number_of(tail)
    lower = bare(tail.lower) if tail.lower is not None else None
    if isinstance(lower, Op) and len(lower.operands) == 1:
        held, inner = context.linked.resolver.resolve(lower.operands[0], frame)
        function = inner.summary.functions.get(held.func) if isinstance(held, Param) else None
        if isinstance(held, Param) and function is not None:
            held = bare(dict(function.defaults).get(held.name, held))
        number = held.value if isinstance(held, Const) and isinstance(held.value, int) else None
    return number in _EXCHANGES


def _flat(value: Join, depth: int = 0) -> tuple[Value, ...]:
    """Give the parts of a sum, those of sums in it in their place."""
    out: list[Value] = []
    for part in value.parts:
        inner = bare(part)
        out.extend(_flat(inner, depth + 1) if isinstance(inner, Join) and depth < 4 else [part])
    return tuple(out)


def _is_system(value: Value) -> bool:
    """Tell whether a part of a list of messages is, or is called, system text."""
    for part in walk(value):
        if isinstance(part, Map) and text_of(entries(part).get("role")) in _SYSTEM:
            return True
        if isinstance(part, Call) and _is_system_call(part):
            return True
        if isinstance(part, (Name, Var, Param, Attr)) and "system" in words(last_name(part)):
            return True
    return False


def _is_system_call(call: Call) -> bool:
    given = dict(call.kwargs).get("role", call.args[0] if call.args else None)
    return "system" in words(last_name(call)) or text_of(given) in _SYSTEM


_SYSTEM = frozenset(["system", "developer"])


def _kept_last(context: Context) -> Iterator[Hit]:
    """Give what keeps the last messages by itself: a deque with a length, a memory of a framework."""
    for path in context.paths:
        summary = context.linked.project.summary(path)
        held = [(name, bare(value)) for name, value in summary.constants.items()] if summary is not None else []
        named = [value for name, value in held if words_of(name) & (MESSAGE_WORDS | {"memory"})]
        local = [bare(sink.value) for sink in (summary.sinks if summary is not None else ()) if sink.kind == "messages"]
        for value in (*named, *local):
            bounded = isinstance(value, Call) and any(name == "maxlen" for name, _ in value.kwargs)
            if summary is not None and bounded and last_name(value) == "deque":
                # what is kept so may be shown to people, or only counted
                yield Frame(summary).span(value), _MOVES, Severity.INFO
    for summary, sink, frame in sinks(context, "call"):
        if sink.name in WINDOWS and isinstance(sink.value, Call) and _keeps_last(sink.value):
            aside = words(sink.func) & CONDENSED or _is_handed_back(summary, sink) or _is_written(context, sink, frame)
            if sink.name not in _MEMORIES:  # what runs once, when a file is read, cuts a conversation once
                aside = aside or not sink.func
            else:
                aside = aside or _is_short(sink.value) or not _is_given(context, summary, sink)
            yield frame.span(sink.value), _MOVES, Severity.INFO if aside else Severity.ERROR


def _is_handed_back(summary: Summary, sink: Sink) -> bool:
    """Tell whether a function only gives back what a call kept, alone, in a list or as what a state is to hold.

    Who sends it is not shown; and a state may add it to the messages that it has.
    """
    function = summary.functions.get(sink.func)
    if function is None or function.returns is None:
        return False
    given = [bare(part) for part in passed_on(function.returns)]
    states = [entries(part).get("messages") for part in given if isinstance(part, Map)]
    more = (part for held in states if held is not None for part in passed_on(held))
    return any(part is sink.value for part in (*given, *more))


def _is_written(context: Context, sink: Sink, frame: Frame) -> bool:
    """Tell whether what is cut is a conversation that is written out in the source: it never grows."""
    given = sink.value.args[:1] if isinstance(sink.value, Call) else ()
    if not given or not isinstance(bare(given[0]), Name):
        return False
    held, _ = context.linked.resolver.resolve(given[0], frame)
    return isinstance(held, Seq) and bool(held.items) and all(makes_message(bare(item)) for item in held.items)


_MEMORIES = WINDOWS - {"trim_messages"}


def _is_short(memory: Call) -> bool:
    """Tell whether a memory keeps three exchanges at most: chains write them into a text, often for a question."""
    kept = bare(dict(memory.kwargs).get("k", memory))
    return isinstance(kept, Const) and isinstance(kept.value, int) and kept.value <= _MEMORY


def _is_given(context: Context, summary: Summary, memory: Sink) -> bool:
    """Tell whether a chain or an agent gets a memory: what else is kept in one may be told in other words."""
    for other in summary.sinks:
        given = dict(other.value.kwargs).get("memory") if isinstance(other.value, Call) else None
        frame = context.linked.frame(summary, other)
        if given is not None and context.linked.resolver.resolve(given, frame)[0] is memory.value:
            return True
    return False


def _keeps_last(call: Call) -> bool:
    """Tell whether a call of a framework keeps the last messages, not the first."""
    given = dict(call.kwargs)
    listed = bare(call.args[0]) if call.args else None
    if isinstance(listed, Seq) and listed.items and all(map(makes_message, map(bare, listed.items))):
        return False  # messages made for this alone: their text is cut
    return text_of(given.get("strategy")) != "first" and (last_name(call) != "trim_messages" or "max_tokens" in given)


def _taken_out(context: Context) -> Iterator[Hit]:
    """Give places where a loop takes the oldest messages out of a conversation that is sent."""
    for summary, sink, frame in sinks(context, "call", "expr"):
        call = bare(sink.value)
        if sink.kind == "call" and sink.name == "pop" and isinstance(call, Call):
            target, key = receiver(call), bare(call.args[0])
        elif sink.kind == "expr" and sink.name == "delete" and isinstance(call, Item):
            target, key = call.base, bare(call.key)
        else:
            continue
        oldest = isinstance(key, Const) and type(key.value) is int and key.value >= 0
        if sink.loop and oldest and target is not None and holds_messages(target):
            behind_system = isinstance(key, Const) and key.value == 1 and _sends(summary)
            first = isinstance(key, Const) and key.value == 0 and not words(sink.func) & CONDENSED
            costs = not sink.aside and (behind_system or (first and _is_sent_behind_system(context, summary, target)))
            yield frame.span(call), _MOVES, Severity.ERROR if costs else Severity.INFO


def _is_sent_behind_system(context: Context, summary: Summary, target: Value) -> bool:
    """Tell whether a file sends a list behind a system text that stays: `[system, *self.messages]`."""
    for other, sink, frame in sinks(context, "messages"):
        parts = _parts(sink.value) if other is summary else ()
        for number, part in enumerate(map(unstarred, parts)):
            if dotted(part) == (dotted(target) or "?") and _is_led(context, parts[:number], frame):
                return True
    return False


def _sends(summary: Summary) -> bool:
    """Tell whether a file sends messages to a model."""
    keys = {"messages", "input", "contents"}
    return any(
        sink.kind == "call" and isinstance(sink.value, Call) and keys & {name for name, _ in sink.value.kwargs}
        for sink in summary.sinks
    )


def _gives_messages(loop: Loop) -> bool:
    """Tell whether a loop over a conversation gives messages, not lines of a text about it."""
    return any(
        makes_message(part) or (isinstance(part, Call) and is_message_call(part)) or isinstance(part, Elem)
        for part in _bodies(loop.body)
    )


def _bodies(value: Value, depth: int = 0) -> Iterator[Value]:
    """Give what a loop's body adds, whichever way it does."""
    held = bare(value.value if isinstance(value, Star) else value)
    inner: tuple[Value, ...] = ()
    if isinstance(held, Seq):
        inner = held.items
    elif isinstance(held, Either):
        inner = held.options
    elif isinstance(held, Loop):
        inner = (held.body,)
    if not inner or depth > 4:
        yield held
    for part in inner:
        yield from _bodies(part, depth + 1)
