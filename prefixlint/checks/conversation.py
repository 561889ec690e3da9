"""What code does to a conversation that was already sent. The parameter `shape` says what to look for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prefixlint.checks import Context
from prefixlint.checks._shapes import (
    HISTORY_WORDS,
    MESSAGE_WORDS,
    Hit,
    elements_of,
    entries,
    gives_messages,
    holds_messages,
    is_called,
    keeps,
    last_name,
    named_parts,
    receiver,
    report,
    sinks,
    unstarred,
)
from prefixlint.checks._windows import CONDENSED, windows
from prefixlint.findings import Finding, Rule, Severity
from prefixlint.link import HISTORY
from prefixlint.prompts import Hole, Span, Text
from prefixlint.resolve import Frame
from prefixlint.sources import Summary
from prefixlint.sources._pyscope import words
from prefixlint.sources._pysinks import KEEPS
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
    bare,
    dotted,
    text_of,
    walk,
)

NAME = "conversation"


def check(context: Context, rule: Rule) -> Iterator[Finding]:
    """Report the places that have the rule's shape."""
    return report(_SHAPES, context, rule)


def _moving_block(context: Context) -> Iterator[Hit]:
    for path in context.paths:
        for prompt in context.linked.prompts.get(path, ()):
            roles = [message.role for message in prompt.messages]
            if HISTORY not in roles:
                continue
            first = roles.index(HISTORY)
            for index, message in enumerate(prompt.messages):
                fixed = all(
                    isinstance(node, Text) or (isinstance(node, Hole) and node.constant) for node in message.nodes
                )
                if (
                    message.role == "system"
                    and index > first
                    and "system" not in roles[:first]
                    and HISTORY not in roles[index:]
                    and "assistant" not in roles[index:]
                    and message.nodes
                    and fixed
                ):
                    # what is added to a list may be kept there, so that it never moves again
                    written = _holds(prompt.span, message.span) or _is_listed(context, message.span)
                    fresh = written and not _is_added(context, message.span)
                    yield message.span, _BEHIND, Severity.WARNING if fresh else Severity.INFO


_ADDS = frozenset(["append", "extend", "insert"])
_BEHIND = "constant system text stands behind the history, so it moves on each turn"


def _is_added(context: Context, span: Span) -> bool:
    return any(_holds(frame.span(sink.value), span) for _, sink, frame in sinks(context, "call") if sink.name in _ADDS)


def _is_listed(context: Context, span: Span) -> bool:
    """Tell whether text is written into a list of messages that goes on with a conversation, and is kept nowhere."""
    given = ((sink.value, frame) for _, sink, frame in sinks(context, "messages") if not sink.name)
    return any(_holds(frame.span(value), span) and _with_history(value) for value, frame in given)


def _holds(outer: Span, inner: Span) -> bool:
    return outer.path == inner.path and outer.start <= inner.start and inner.end <= outer.end


def _mutated(context: Context) -> Iterator[Hit]:
    for _, sink, frame in sinks(context, "store"):
        if sink.name not in ("content", "tool_calls") or not isinstance(sink.value, Seq):
            continue
        target, _, value = sink.value.items
        cut = sink.name == "content" and (_cuts(value) or _is_note(context, value, frame))
        if elements_of(target, HISTORY_WORDS) or (cut and sink.loop and (_by_index(target) or _is_older(target))):
            severity = Severity.ERROR if cut else Severity.INFO
            yield frame.span(sink.value), "a message that was already sent is changed in place", severity
    for path in context.paths:
        summary = context.linked.project.summary(path)
        for function in summary.functions.values() if summary is not None else ():
            held = bare(function.returns) if function.returns is not None else None
            if summary is not None and isinstance(held, Loop) and _rewrites(held):
                # who gets them, a model or a store, is not shown
                yield Frame(summary).span(held.body), _REWRITTEN, Severity.INFO


_REWRITTEN = "messages of the history are rewritten before they are sent again"


def _by_index(target: Value) -> bool:
    """Tell whether a target is one of the messages, by a number that a loop gives."""
    held = bare(target)
    if not isinstance(held, Item) or not holds_messages(held.base):
        return False
    return isinstance(bare(held.key), (Elem, Op, Item))


def _is_older(target: Value) -> bool:
    """Tell whether a target is one of all messages but the newest: `for m in messages[:-6]`."""
    held = bare(target)
    source = bare(held.source) if isinstance(held, Elem) else None
    if not isinstance(source, Slice) or source.upper is None or not holds_messages(source.base):
        return False
    upper = bare(source.upper)
    return (isinstance(upper, Op) and upper.name == "-" and len(upper.operands) == 1) or (
        isinstance(upper, Const) and isinstance(upper.value, int) and upper.value < 0
    )


def _cuts(value: Value) -> bool:
    """Tell whether what is put into a message is a part of its own content, or a note in its place.

    Anything else may be how it is first sent, or how people see it.
    """
    held = bare(value)
    if isinstance(held, Join) and len(held.parts) == 2 and isinstance(bare(held.parts[1]), Lit):
        held = bare(held.parts[0].value if isinstance(held.parts[0], Field) else held.parts[0])  # with a note behind it
        return isinstance(held, Slice) and _is_content(held.base)
    # an empty text is put where there was none
    return (isinstance(held, Lit) and held.text != "") or (isinstance(held, Slice) and _is_content(held.base))


def _is_note(context: Context, value: Value, frame: Frame) -> bool:
    """Tell whether a value is a constant of a module that holds a note: `CLEARED = "[cleared]"`."""
    if not isinstance(bare(value), Name):
        return False
    held, inner = context.linked.resolver.resolve(value, frame)
    return inner.frozen and isinstance(held, Lit) and held.text != ""


def _is_content(value: Value) -> bool:
    """Tell whether a value is a message's content: `m["content"]`, `m.get("content")`."""
    held = bare(value.value if isinstance(value, Field) else value)
    if isinstance(held, Item):
        return text_of(held.key) == "content"
    if isinstance(held, Call) and isinstance(held.func, Attr) and held.func.name == "get" and held.args:
        return text_of(held.args[0]) == "content"
    return isinstance(held, Attr) and held.name == "content"


def _rewrites(loop: Loop) -> bool:
    """Tell whether a comprehension over a history copies its messages with another content."""
    if not is_called(loop.source, MESSAGE_WORDS):
        return False
    body = bare(loop.body)
    if isinstance(body, Call) and dotted(body.func) == "dict" and body.args:
        return isinstance(bare(body.args[0]), Elem) and any(name == "content" for name, _ in body.kwargs)
    if isinstance(body, Map):
        spread = any(key is None and isinstance(bare(item), Elem) for key, item in body.entries)
        return spread and "content" in entries(body)
    return False


def _reasoning(context: Context) -> Iterator[Hit]:
    for _, sink, frame in sinks(context, "call"):
        call = sink.value
        if sink.name != "append" or not isinstance(call, Call) or not call.args:
            continue
        item, target = bare(call.args[0]), receiver(call)
        if not isinstance(item, Map) or target is None or not is_called(target, MESSAGE_WORDS):
            continue
        found = entries(item)
        answer = bare(found["content"]) if "content" in found else None
        kept = {"reasoning_content", "reasoning", "thinking", "thinking_blocks"} & set(found)
        if text_of(found.get("role")) != "assistant" or kept or answer is None:
            continue
        if _without_thoughts(answer):
            yield frame.span(answer), "the model's thoughts are cut out of the message that is sent again"
        if _is_answered_text(answer):
            yield (
                frame.span(item),
                "only the content of the model's message is kept: its reasoning is lost on replay",
            )


def _is_answered_text(answer: Value) -> bool:
    """Tell whether a value is the text of what a model answered: `….message.content`, `…["message"]["content"]`."""
    return _key(answer) == "content" and _key(_owner(answer)) == "message"


def _key(value: Value | None) -> str | None:
    """Give the name of an attribute, or the key of an entry."""
    if isinstance(value, Attr):
        return value.name
    return text_of(value.key) if isinstance(value, Item) else None


def _owner(value: Value) -> Value | None:
    return bare(value.base) if isinstance(value, (Attr, Item)) else None


def _without_thoughts(answer: Value) -> bool:
    """Tell whether an answer is what is left of one without its thoughts: by a pattern, a split, or kinds of blocks."""
    held = answer
    while isinstance(held, Call) and isinstance(held.func, Attr) and held.func.name in ("strip", "lstrip"):
        held = bare(held.func.base)
    if isinstance(held, Loop) and held.kept is not None:
        return any(isinstance(part, Lit) and part.text in _THOUGHTS for part in walk(held.kept))
    if isinstance(held, Item):
        held = bare(held.base)
    if not isinstance(held, Call) or last_name(held) not in ("sub", "split", "rsplit", "partition", "rpartition"):
        return False
    return any("think>" in (text_of(argument) or "") for argument in held.args)


_THOUGHTS = frozenset(["thinking", "redacted_thinking", "reasoning"])
"""Kinds of content blocks that hold a model's thoughts."""


def _ephemeral(context: Context) -> Iterator[Hit]:
    stored: dict[tuple[str, str], list[Map]] = {}
    kept_whole: set[int] = set()  # what is appended is stored as it stands
    for summary, sink, _ in sinks(context, "call"):
        call = sink.value
        if sink.name in KEEPS and isinstance(call, Call) and call.args:
            item, target = bare(call.args[-1]), receiver(call)
            kept_whole.add(id(item))
            if isinstance(item, Map) and target and is_called(target, _KEEPERS) and "content" in entries(item):
                stored.setdefault((summary.path, sink.func), []).append(item)
    for summary, sink, frame in sinks(context, "messages", "store"):
        for part in _sent_parts(sink.value) if sink.kind == "store" else walk(sink.value):
            if not isinstance(part, Map) or "content" not in entries(part):
                continue
            sent = entries(part)["content"]
            if not isinstance(bare(sent), Join) or id(part) in kept_whole:
                continue
            for message in stored.get((summary.path, sink.func), ()):
                kept = entries(message)["content"]
                if not _may_be_one(message, part):
                    continue  # what the model said, quoted in what it is asked next
                if dotted(kept) in (None, dotted(sent)):
                    continue  # the one name, with what it holds in each case
                whole = sink.kind == "messages" and _with_history(sink.value)
                if any(_is_same(kept, part) for part in named_parts(sent, fields=whole)):
                    yield (
                        frame.span(part),
                        "the text sent is not the text stored: on the next turn this message differs",
                    )


def _may_be_one(stored: Map, sent: Map) -> bool:
    """Tell whether a message that is kept and one that is sent may be the same: both are of one role."""
    roles = [text_of(entries(message).get("role")) for message in (stored, sent)]
    return None in roles or roles[0] == roles[1]


def _with_history(messages: Value) -> bool:
    """Tell whether a list of messages goes on with a conversation, so that the next request holds the newest again."""
    held = bare(messages)
    parts = held.items if isinstance(held, Seq) else held.parts if isinstance(held, Join) else ()
    lists = [*map(unstarred, parts)]
    lists += [option for part in lists if isinstance(part, Either) for option in part.options]
    return any(holds_messages(part) or gives_messages(part) for part in lists)


_KEEPERS = MESSAGE_WORDS | {"store", "memory", "session", "db", "repo", "repository"}
"""Names of what keeps a conversation."""


def _sent_parts(stored: Value) -> Iterator[Value]:
    """Give the message that replaces the newest one of a list: `payload[-1] = {…}`."""
    if isinstance(stored, Seq) and isinstance(bare(stored.items[2]), Map) and _is_newest(stored.items[1]):
        yield bare(stored.items[2])


def _is_newest(key: Value) -> bool:
    held = bare(key)
    return isinstance(held, Const) and held.value == -1


def _is_same(kept: Value, sent: Value) -> bool:
    """Tell whether two uses of a name mean one value: a name may be given another between them."""
    if dotted(kept) != dotted(sent):
        return False
    return not (isinstance(kept, Var) and isinstance(sent, Var)) or bare(kept)[-2:] == bare(sent)[-2:]


def _shape_flip(context: Context) -> Iterator[Hit]:
    for summary, sink, frame in sinks(context, "store"):
        if sink.name != "content" or not isinstance(sink.value, Seq):
            continue
        target, _, value = (bare(item) for item in sink.value.items)
        alone = isinstance(value, Seq) and len(value.items) == 1  # with an image beside it, there is no other way
        if alone and isinstance(target, Item) and _is_newest(target.key) and _wraps_content(value):
            yield frame.span(value), _FLIPPED, _flips(summary)
    for summary, sink, frame in sinks(context, "message"):
        if not isinstance(sink.value, Map):
            continue
        found = entries(sink.value)
        content = bare(found["content"]) if "content" in found else None
        role = bare(found.get("role", sink.value))
        if not isinstance(role, Item) or isinstance(bare(role.base), Elem) or not isinstance(content, Seq):
            continue  # what is done to each message alike changes none of them later
        if _wraps_content(content):
            yield frame.span(sink.value), _FLIPPED, Severity.INFO if _is_answer(content) else _flips(summary)


def _is_answer(content: Seq) -> bool:
    """Tell whether blocks hold what a model has said, for who asked."""
    kinds = [
        text_of(entries(held)["type"])
        for item in content.items
        if isinstance(held := bare(item), Map) and "type" in entries(held)
    ]
    return "output_text" in kinds


_FLIPPED = "a message that was a string is sent as a list of blocks"


def _flips(summary: Summary) -> Severity:
    """Give how grave another shape is: with Anthropic's own client, a string and a block of it are the same prompt."""
    own = any(name.partition(".")[0] == "anthropic" for name in summary.imports.values())
    return Severity.INFO if own else Severity.WARNING


def _wraps_content(value: Value) -> bool:
    """Tell whether a value is a list with a block whose text is the content of a message."""
    for block in value.items if isinstance(value, Seq) else ():
        held = bare(block)
        text = bare(entries(held)["text"]) if isinstance(held, Map) and "text" in entries(held) else None
        if isinstance(text, Item) and text_of(text.key) == "content":
            return True
    return False


def _hoisted(context: Context) -> Iterator[Hit]:
    for _, sink, frame in sinks(context, "expr"):
        if (
            sink.name == "gathered"
            and isinstance(sink.value, Op)
            and elements_of(sink.value.operands[0], MESSAGE_WORDS)
        ):
            # a converter, which may only ever see system messages at the start
            yield frame.span(sink.value), _HOISTED, Severity.INFO
    for _, sink, frame in sinks(context, "messages"):
        loops = [part for part in walk(sink.value) if keeps(part, "system")]
        for part in walk(sink.value):
            if isinstance(part, Map) and text_of(entries(part).get("role")) == "system" and len(loops) > 1:
                first = [call.args[0] for call in walk(part) if isinstance(call, Call) and last_name(call) == "next"]
                inner = [loop for loop in walk(part) if keeps(loop, "system") and loop not in first]
                if inner:
                    # what is left of a conversation that was cut may bring system messages of its own
                    cut = words(sink.func) & CONDENSED
                    yield frame.span(part), _HOISTED, Severity.INFO if cut else Severity.ERROR


_HOISTED = "system messages from anywhere in the conversation are merged into the first"


def _completion_order(context: Context) -> Iterator[Hit]:
    for path in context.paths:
        summary = context.linked.project.summary(path)
        if summary is None or not any(
            _names_calls(name) for each in summary.functions.values() for name in each.params
        ):
            continue
        returned = [function.returns for function in summary.functions.values() if function.returns is not None]
        for part in (part for value in returned for part in walk(value)):
            if isinstance(part, Loop) and _completes(bare(part.source)):
                # whether they become messages, and are replayed in another order, is not shown
                yield Frame(summary).span(part.source), _FINISHED, Severity.INFO
    for _, sink, frame in sinks(context, "message"):
        # results that are found by the calls' ids stand in the calls' order
        answered = _answered(sink.value) if sink.loop else None
        source = _loop_of(answered) if answered is not None else None
        if isinstance(source, Call) and last_name(source) == "as_completed":
            yield frame.span(source), _FINISHED


_FINISHED = "results stand in the order in which the calls finished"


def _loop_of(value: Value) -> Value | None:
    """Give what the loop goes over whose element a value is, or is a part of."""
    for _ in range(_MAX_OWNERS):
        held = bare(value)
        if isinstance(held, Elem):
            return bare(held.source)
        if isinstance(held, Item) and isinstance(bare(held.key), Elem):  # `calls[future]`
            value = held.key
        elif isinstance(held, (Attr, Item)):
            value = held.base
        elif isinstance(held, Call):
            value = held.func.base if isinstance(held.func, Attr) else held
        else:
            return None
    return None


_MAX_OWNERS = 8
"""Steps from a value to the element that it is a part of."""


def _answered(message: Value) -> Value | None:
    """Give the id of the call that a tool's message answers, the message where it has none."""
    given: dict[str, Value] = {}
    if isinstance(message, Map) and text_of(entries(message).get("role")) == "tool":
        given = entries(message)
    elif isinstance(message, Call) and last_name(message) == "ToolMessage":
        given = dict(message.kwargs)
    else:
        return None
    return given.get("tool_call_id", message)


def _completes(source: Value) -> bool:
    if not isinstance(source, Call) or last_name(source) != "as_completed":
        return False
    return any(isinstance(part, Param) and _names_calls(part.name) for part in walk(source))


def _names_calls(name: str) -> bool:
    """Tell whether a name means the calls that a model asked for, not a number of them."""
    said = name.lower().strip("_").split("_")
    return said[-1] in ("calls", "call", "toolcalls") and set(said) <= _OF_CALLS


_OF_CALLS = frozenset("calls call toolcalls tool tools function functions pending model parsed all new the".split())  # noqa: SIM905 (reads better)

_SHAPES: dict[str, Callable[[Context], Iterator[Hit]]] = {
    "moving-block": _moving_block,
    "mutated": _mutated,
    "window": windows,
    "reasoning": _reasoning,
    "ephemeral": _ephemeral,
    "shape-flip": _shape_flip,
    "hoisted": _hoisted,
    "completion-order": _completion_order,
}
