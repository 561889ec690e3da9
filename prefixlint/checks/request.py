"""What a request is given besides its text: tools, schemas, markers, keys, ids. `shape` says what to look for."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise

from prefixlint.checks import Context
from prefixlint.checks._shapes import (
    HISTORY_WORDS,
    Hit,
    entries,
    holds_messages,
    is_called,
    is_of_request,
    is_received,
    last_name,
    literals,
    receiver,
    report,
    sinks,
)
from prefixlint.findings import Finding, Rule, Severity
from prefixlint.placement import CHARS_PER_TOKEN
from prefixlint.prompts import Hole, Node, Origin, Text
from prefixlint.resolve import Frame
from prefixlint.sources import Sink
from prefixlint.sources._pyscope import words
from prefixlint.values import (
    Attr,
    Call,
    Either,
    Elem,
    Item,
    Join,
    Loop,
    Map,
    Param,
    Seq,
    Slice,
    Star,
    Value,
    bare,
    children,
    dotted,
    text_of,
    walk,
)
from prefixlint.wordset import word_set

NAME = "request"

SMALLEST_MINIMUM = 512
"""Tokens below which no provider keeps a marked prefix (the least of the minima in the engines' facts)."""
_SIGNERS = word_set(
    "generate_presigned_url presigned_get_object generate_signed_url create_presigned_url get_presigned_url"
)


_CONSTANTS = frozenset(["schema", "model", "format", "type", "name", "cls"])
"""Words of parameters that callers give one constant for: a schema that is only turned into another form."""
_READS = word_set("parse parsed parser extract chunk chunks stream streaming delta response completion result output")
"""Words of functions that read what a model has just sent: the id that they make is the first one, and is kept."""
_REBUILDS = word_set("messages message history rebuild restore replay convert input inputs format serialize")
"""Words of functions that make the messages of a conversation from what was kept of it."""
_SIDE_WORDS = word_set("compact compaction summarise summarize condense compress title")


def check(context: Context, rule: Rule) -> Iterator[Finding]:
    """Report the places that have the rule's shape."""
    return report(_SHAPES, context, rule)


def _reserialised(context: Context) -> Iterator[Hit]:
    for _, sink, frame in sinks(context, "expr", "message"):
        for part in walk(sink.value):
            dumped = (
                bare(entries(part)["arguments"]) if isinstance(part, Map) and "arguments" in entries(part) else None
            )
            if isinstance(dumped, Call) and dotted(dumped.func) == "json.dumps" and dumped.args:
                held, _ = context.linked.resolver.resolve(dumped.args[0], frame)
                if isinstance(held, Call) and dotted(held.func) == "json.loads":
                    yield (
                        frame.span(dumped),
                        "arguments that the model wrote are parsed and written again for the replay",
                    )


def _tool_set(context: Context) -> Iterator[Hit]:
    for _, sink, frame in sinks(context, "call"):
        tools = _keyword(sink.value, "tools")
        if tools is None:
            continue
        held, inner = context.linked.resolver.resolve(tools, frame)
        if inner.frozen:
            continue
        if isinstance(held, Loop):
            listed, other = context.linked.resolver.resolve(held.source, inner)
            if held.kept is not None and _depends(held.kept, held.source):
                yield inner.span(held), "the tools are chosen anew on each call"
            elif _ranked(listed):
                yield other.span(listed), "the tools are chosen anew on each call"
        elif _ranked(held):
            yield inner.span(held), "the tools are chosen anew on each call"
        elif isinstance(held, Seq) and inner.func == frame.func and inner.summary is frame.summary:
            for added in _branched(held):
                yield inner.span(added), "a branch of each call decides whether this tool is sent", Severity.INFO


def _ranked(value: Value) -> bool:
    """Tell whether a value is the first few of a list that is sorted by something that a caller gives."""
    held = bare(value)
    if not isinstance(held, Slice):
        return False
    ordered = bare(held.base)
    if not isinstance(ordered, Call) or last_name(ordered) not in ("sorted", "nlargest"):
        return False
    key = dict(ordered.kwargs).get("key")
    return key is not None and any(isinstance(part, Param) and "<lambda>" not in part.func for part in walk(key))


def _branched(tools: Seq) -> Iterator[Value]:
    """Give the tools that only some ways through a function add to a list of tools that it always sends."""
    if not tools.items or isinstance(tools.items[0], Star):
        return
    for item in tools.items:
        held = bare(item.value) if isinstance(item, Star) else None
        if isinstance(held, Either):
            for option in held.options:
                yield from option.items[:1] if isinstance(option, Seq) else ()


def _live_enum(context: Context) -> Iterator[Hit]:
    for _, sink, frame in sinks(context, "tools"):
        for part in walk(sink.value):
            values = entries(part).get("enum") if isinstance(part, Map) else None
            if values is None:
                continue
            held, inner = context.linked.resolver.resolve(values, frame)
            while isinstance(held, Loop):
                held, inner = context.linked.resolver.resolve(held.source, inner)
            if not inner.frozen and isinstance(held, Call) and _reads_data(held):
                yield frame.span(values), "the values that a tool accepts are read from live data", Severity.WARNING


def _reads_data(call: Call) -> bool:
    """Tell whether a call asks something that holds data: `db.query(…)`."""
    target = receiver(call)
    return target is not None and bool(set(re.split(r"[._]", (dotted(target) or "").lower())) & _STORES)


_STORES = word_set("db database session cursor conn connection store repo repository api client redis cache crud dao")
"""Words of things that hold live data."""


def _depends(condition: Value, source: Value) -> bool:
    """Tell whether a condition on the elements of `source` reads a parameter besides them."""
    stack, seen = [condition], set[int]()
    while stack:
        part = stack.pop()
        if isinstance(part, Param):
            return True
        if id(part) not in seen and not (isinstance(part, Elem) and part.source is source):
            seen.add(id(part))
            stack.extend(children(part))
    return False


def _schema(context: Context) -> Iterator[Hit]:
    for _, sink, frame in sinks(context, "call"):
        for name in ("response_format", "text_format"):
            value = _keyword(sink.value, name)
            if value is None or not sink.func:
                continue
            held, inner = context.linked.resolver.resolve(value, frame)
            made: list[Value] = [held] if isinstance(held, Call) and last_name(held) == "create_model" else []
            if isinstance(held, Map):
                made = [part for part in walk(held) if isinstance(part, Loop) and part.kind in ("dict", "list")]
            if any(_varies(part) for part in made):
                # that it is made on each call does not say that it is another one each time; a log does
                yield inner.span(held), "the output schema is built on each call", Severity.INFO


def _varies(value: Value) -> bool:
    """Tell whether a value depends on what callers give, and not on one constant for all."""
    return any(isinstance(p, Param) and not set(p.name.lower().split("_")) & _CONSTANTS for p in walk(value))


def _ids(context: Context) -> Iterator[Hit]:
    for value, frame, rebuilt in (*_ids_of_calls(context), *_ids_of_messages(context)):
        if any(o.kind == "random" and o.evidence == "flow" for o in _origins(context, value, frame)):
            fresh = rebuilt and not _is_fallback(context, value, frame)
            severity = Severity.ERROR if fresh else Severity.INFO
            yield frame.span(value), "a call id is made anew when the conversation is rebuilt", severity


def _is_fallback(context: Context, value: Value, frame: Frame) -> bool:
    """Tell whether a function gives a call's own id, alone or with more, and makes one only where it has none."""
    whole = bare(value)
    whole = bare(whole.base) if isinstance(whole, Item) else whole  # one of the results that a function gives together
    for each in (whole, *whole.args) if isinstance(whole, Call) else ():
        held, inner = context.linked.resolver.resolve(each, frame)
        for option in held.options if isinstance(held, Either) else ():
            if isinstance(bare(option), (Attr, Item)) and not _origins(context, option, inner):
                return True
    return False


def _ids_of_calls(context: Context) -> Iterator[tuple[Value, Frame, bool]]:
    """Give the ids of calls that are written as mappings, and whether those make a conversation again."""
    for _, sink, frame in sinks(context, "expr"):
        if sink.name not in ("tool_calls", "call_id"):
            continue
        for part in walk(sink.value):
            if not isinstance(part, Map):
                continue
            for key in ("id", "call_id", "tool_call_id"):
                value = entries(part).get(key)
                if key == "id" and "role" in entries(part):
                    continue  # the message's own
                spare = isinstance(bare(value), Either) if value is not None else False
                if value is not None and (sink.loop or spare):
                    # elsewhere than in what makes messages again, a call may be made, or told to people who watch
                    again = (spare and sink.loop and not is_received(value)) or bool(words(sink.func) & _REBUILDS)
                    yield value, frame, again and _rebuilds(sink)


def _ids_of_messages(context: Context) -> Iterator[tuple[Value, Frame, bool]]:
    """Give the same of messages that a loop makes."""
    for _, sink, frame in sinks(context, "message"):
        for value in _made_ids(sink.value) if sink.loop else ():
            yield value, frame, bool(words(sink.func) & _REBUILDS) and not (sink.aside or _is_record(sink.value))


def _is_record(message: Value) -> bool:
    """Tell whether a message says whose it is, as rows of a store do: those are made once, and stay as they are."""
    return any(name.endswith("_id") and name not in ("tool_call_id", "call_id") for name in _given(message))


def _given(message: Value) -> dict[str, Value]:
    """Give what a message is made of, whether a class makes it or it is written as a mapping."""
    return dict(message.kwargs) if isinstance(message, Call) else entries(message) if isinstance(message, Map) else {}


def _made_ids(message: Value) -> Iterator[Value]:
    """Give the ids of calls in a message that a class makes, or in the message of a tool."""
    given = _given(message)
    if "tool_call_id" in given:
        yield given["tool_call_id"]
    for part in walk(given["tool_calls"]) if isinstance(message, Call) and "tool_calls" in given else ():
        if isinstance(part, Map) and "id" in entries(part):
            yield entries(part)["id"]
    blocks = bare(given.get("content", message))
    for block in map(_given, map(bare, blocks.items if isinstance(blocks, Seq) else ())):  # as Anthropic has them
        if (key := {"tool_use": "id", "tool_result": "tool_use_id"}.get(text_of(block.get("type")) or "")) in block:
            yield block[key]


def _origins(context: Context, value: Value, frame: Frame) -> tuple[Origin, ...]:
    return context.linked.renderer.verdict(value, frame).origins


def _rebuilds(sink: Sink) -> bool:
    """Tell whether calls stand in a message that is made for a model, not in what one has just sent."""
    keys = frozenset({"type", "role"} if sink.name == "call_id" else {"role"})  # what an API's own items say they are
    message = isinstance(sink.value, Map) and not keys.isdisjoint(entries(sink.value))
    return message and not sink.aside and not set(sink.func.lower().replace(".", "_").split("_")) & _READS


def _attachment(context: Context) -> Iterator[Hit]:
    for _, sink, frame in sinks(context, "expr"):
        if sink.name == "image_url":
            for part in walk(sink.value):
                if isinstance(part, Call) and last_name(part) in _SIGNERS:
                    yield frame.span(part), "the attachment gets another signed address on each call"


def _marked(context: Context) -> Iterator[tuple[Map, Value, Frame, list[Node]]]:
    """Give blocks with a marker, the marker, the frame and the text. Bedrock's markers stand behind their block."""
    for _, sink, frame in sinks(context, "expr"):
        if sink.name == "cache_control" and isinstance(sink.value, Map):
            yield from _block(context, sink.value, _key_of(sink.value), frame)
    pointed = _holding(context, "cachePoint", 1)
    for summary, sink, frame in sinks(context, "call", "messages"):
        for blocks in walk(sink.value) if summary.path in pointed else ():
            items = [bare(item) for item in blocks.items] if isinstance(blocks, Seq) else []
            for block, marker in pairwise(items):
                if isinstance(block, Map) and isinstance(marker, Map) and "cachePoint" in entries(marker):
                    yield from _block(context, block, marker, frame)


def _holding(context: Context, key: str, least: int) -> set[str]:
    """Give the files in which at least so many dicts have a key: others need no search."""
    found = Counter(summary.path for summary, sink, _ in sinks(context, "expr") if sink.name == key)
    return {path for path, count in found.items() if count >= least}


def _block(context: Context, block: Map, marker: Value, frame: Frame) -> Iterator[tuple[Map, Value, Frame, list[Node]]]:
    text = entries(block).get("text")
    if text is not None:
        context.linked.renderer.start()
        yield block, marker, frame, context.linked.renderer.part(text, frame)


def _key_of(block: Map) -> Value:
    """Give the marker of a block, from its key on."""
    keys: list[Value] = [key for key, _ in block.entries if key is not None and text_of(key) == "cache_control"]
    return keys[0] if keys else block


MOST_MARKERS = 4
"""Markers that Anthropic takes in one request; one more is an error of the whole request."""


def _too_many(context: Context) -> Iterator[Hit]:
    full = _holding(context, "cache_control", MOST_MARKERS + 1)
    for summary, sink, frame in sinks(context, "messages", "tools"):
        for part in walk(sink.value) if summary.path in full else ():
            items = [bare(item) for item in part.items] if isinstance(part, Seq) else []
            marked = [item for item in items if isinstance(item, Map) and "cache_control" in entries(item)]
            for block in marked[MOST_MARKERS:]:
                yield frame.span(_key_of(block)), f"marker {MOST_MARKERS + 1} of one request: {MOST_MARKERS} are taken"


def _misplaced(context: Context) -> Iterator[Hit]:
    yield from _too_many(context)
    for value, marker, frame, nodes in _marked(context):
        fixed = any(isinstance(node, Text) or (isinstance(node, Hole) and node.constant) for node in nodes)
        moving = [node for node in nodes if isinstance(node, Hole) and not node.constant]
        if fixed and moving:
            new = [node for node in moving if is_of_request(node)]
            what = f"`{name}`" if (name := next(iter((new or moving)[0].names), "")) else "a value"
            message = f"the marked block contains {what}, so each write is unique and never read"
            if not new:  # it may be one of few, a persona for one
                message = f"the marked block contains {what}: where that is another one each time, no write is read"
            # a document is marked so that the questions about it share it: it changes, but not with each request
            known = bool(new) and not _spoken_by_user(context, value, frame)
            yield frame.span(marker), message, Severity.WARNING if known else Severity.INFO


def _spoken_by_user(context: Context, block: Map, frame: Frame) -> bool:
    """Tell whether a block stands in a message of the user."""
    for _, sink, other in sinks(context, "message", "messages"):
        if other.summary is frame.summary and any(part is block for part in walk(sink.value)):
            for part in walk(sink.value):
                if isinstance(part, Map) and text_of(entries(part).get("role")) == "user":
                    return any(inner is block for inner in walk(part))
    return False


def _too_short(context: Context) -> Iterator[Hit]:
    for value, _, frame, nodes in _marked(context):
        if nodes and all(isinstance(node, Text) for node in nodes):
            tokens = sum(len(node.text) for node in nodes if isinstance(node, Text)) / CHARS_PER_TOKEN
            if tokens < SMALLEST_MINIMUM:
                yield (
                    frame.span(value),
                    f"about {round(tokens):,} tokens are marked; nothing below {SMALLEST_MINIMUM} is kept",
                )


def _key(context: Context) -> Iterator[Hit]:
    for _, sink, frame in sinks(context, "call"):
        given = dict(sink.value.kwargs) if isinstance(sink.value, Call) else {}
        keys = {name: value for name, value in given.items() if name in _KEYS}
        for name, known in (("extra_body", _KEYS), ("extra_headers", _AFFINITY)):
            held = bare(given[name]) if name in given else None
            found = entries(held) if isinstance(held, Map) else {}
            keys |= {
                key: value for key, value in found.items() if key.lower().replace("_", "-") in known or key in known
            }
        for name, value in keys.items():
            origins = _origins(context, value, frame)
            if any(origin.kind in ("random", "clock") for origin in origins):
                yield frame.span(value), f"{name} is another one on each call, so no two requests share a cache"


_KEYS = frozenset(["prompt_cache_key", "cache_salt"])
_AFFINITY = frozenset(
    ["session-id", "x-session-id", "x-session-affinity", "conversation-id", "x-conversation-id", "x-grok-conv-id"]
)
"""Headers by which gateways and providers choose the replica that has a conversation's prefix."""


def _toggled(context: Context) -> Iterator[Hit]:
    for _, sink, frame in sinks(context, "call"):
        if _keyword(sink.value, "messages") is None and _keyword(sink.value, "input") is None:
            continue
        names = ("reasoning", "reasoning_effort", "effort", "thinking")
        for name in (*names, "tool_choice") if _is_anthropic(sink.value) else names:
            value = _keyword(sink.value, name)
            if value is None:
                continue
            held, inner = context.linked.resolver.resolve(value, frame)
            choices = list(entries(held).values()) if isinstance(held, Map) else [value]
            for choice in choices:
                resolved, _ = context.linked.resolver.resolve(choice, inner)
                if len(literals(resolved)) > 1 or _kinds(resolved) > 1:
                    message = f"{name} is chosen by each call, and a change rewrites the prefix"
                    severity = Severity.WARNING if _is_condition(bare(choice)) else Severity.INFO
                    yield frame.span(choice), message, severity
        yield from _switched(context, sink.value, frame)


def _is_condition(value: Value) -> bool:
    """Tell whether a value is written as a condition, not set beforehand or given by a function that reads settings."""
    if not isinstance(value, Either):
        return False
    first, *_, last = map(bare, value.options)
    return bool(value.start <= first.start and first.end <= last.start and last.end <= value.end)


def _kinds(value: Value) -> int:
    """Count the kinds of a setting that is one of several mappings: `{"type": "enabled", …}` or `{"type": …}`."""
    options = value.options if isinstance(value, Either) else ()
    return len(
        {
            text_of(entries(held)["type"])
            for o in options
            if isinstance(held := bare(o), Map) and "type" in entries(held)
        }
    )


def _switched(context: Context, call: Value, frame: Frame) -> Iterator[Hit]:
    """Give models that each call with a history chooses: another one reads all of it again."""
    sent = _keyword(call, "messages") or _keyword(call, "input")
    if sent is None or not holds_messages(sent) or isinstance(bare(sent), Seq):
        return
    value = _keyword(call, "model")
    if value is None:
        return
    resolved, inner = context.linked.resolver.resolve(value, frame)
    if not inner.frozen and len(literals(resolved)) > 1:
        yield frame.span(value), "the model is chosen by each call, and a change rewrites the prefix", Severity.INFO


def _is_anthropic(call: Value) -> bool:
    """Tell whether a call is one of `messages.create` or `.stream`; with other clients, prompts omit `tool_choice`."""
    name = (dotted(call.func) or "") if isinstance(call, Call) else ""
    return name.endswith(("messages.create", "messages.stream"))


def _bypassed(context: Context) -> Iterator[Hit]:
    for _, sink, frame in sinks(context, "call"):
        value = _keyword(sink.value, "prompt_logprobs")
        if value is not None and bare(value) is not None and getattr(bare(value), "value", 1) not in (None, False):
            yield frame.span(sink.value), "prompt_logprobs makes the engine compute the whole prompt again"
        for name, off in (("enable_prefix_caching", False), ("disable_radix_cache", True)):
            switch = _keyword(sink.value, name)
            if switch is not None and getattr(bare(switch), "value", None) is off:
                yield frame.span(sink.value), f"{name}={off} makes an engine without a prefix cache"


def _side_call(context: Context) -> Iterator[Hit]:
    for _, sink, frame in sinks(context, "call"):
        messages, system = _keyword(sink.value, "messages"), _keyword(sink.value, "system")
        if messages is not None and words(sink.func) & _SIDE_WORDS and _own_head(bare(messages)):
            yield frame.span(sink.value), "the whole history is sent again behind another system text"
            continue
        if messages is None or system is None or not is_called(messages, HISTORY_WORDS):
            continue
        tools = bare(_keyword(sink.value, "tools") or system)
        if (isinstance(tools, Seq) and not tools.items) or set(sink.func.lower().split("_")) & _SIDE_WORDS:
            yield frame.span(sink.value), "the whole history is sent again behind another system text or other tools"


def _own_head(messages: Value) -> bool:
    """Tell whether messages are a system text of their own and behind it those of a conversation."""
    parts = messages.items if isinstance(messages, Seq) else messages.parts if isinstance(messages, Join) else ()
    items = [item for part in parts for item in (part.items if isinstance(part, Seq) else (part,))]
    first = bare(items[0]) if items else None
    if not isinstance(first, Map) or text_of(entries(first).get("role")) != "system":
        return False
    rest = (bare(item.value if isinstance(item, Star) else item) for item in items[1:])
    return any(holds_messages(held.source if isinstance(held, Loop) else held) for held in rest)


def _keyword(value: Value, name: str) -> Value | None:
    return dict(value.kwargs).get(name) if isinstance(value, Call) else None


_SHAPES: dict[str, Callable[[Context], Iterator[Hit]]] = {
    "reserialised": _reserialised,
    "tool-set": _tool_set,
    "live-enum": _live_enum,
    "schema": _schema,
    "ids": _ids,
    "attachment": _attachment,
    "misplaced": _misplaced,
    "too-short": _too_short,
    "key": _key,
    "toggled": _toggled,
    "bypassed": _bypassed,
    "side-call": _side_call,
}
