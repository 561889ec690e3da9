"""What a request is given besides its text: tools, schemas, markers, keys, ids. `shape` says what to look for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prefixlint.checks import Context
from prefixlint.checks._shapes import HISTORY_WORDS, Hit, entries, is_called, last_name, literals, report, sinks
from prefixlint.findings import Finding, Rule, Severity
from prefixlint.placement import CHARS_PER_TOKEN
from prefixlint.prompts import Hole, Node, Text
from prefixlint.resolve import Frame
from prefixlint.sources import Sink
from prefixlint.values import Call, Either, Elem, Loop, Map, Param, Seq, Value, bare, children, dotted, text_of, walk
from prefixlint.wordset import word_set

NAME = "request"

SMALLEST_MINIMUM = 512
"""Tokens below which no provider keeps a marked prefix (the least of the minima in the engines' facts)."""
_SIGNERS = frozenset(
    [
        "generate_presigned_url",
        "presigned_get_object",
        "generate_signed_url",
        "create_presigned_url",
        "get_presigned_url",
    ]
)


_CONSTANTS = frozenset(["schema", "model", "format", "type", "name", "cls"])
"""Words of parameters that callers give one constant for: a schema that is only turned into another form."""
_READS = word_set("parse parsed parser extract chunk chunks stream streaming delta response completion result output")
"""Words of functions that read what a model has just sent: the id that they make is the first one, and is kept."""
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
        kept = held.kept if isinstance(held, Loop) and not inner.frozen else None
        if isinstance(held, Loop) and kept is not None and _depends(kept, held.source):
            yield inner.span(held), "the tools are chosen anew on each call"


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
            if (
                isinstance(held, Call)
                and last_name(held) == "create_model"
                and any(isinstance(p, Param) and not set(p.name.lower().split("_")) & _CONSTANTS for p in walk(held))
            ):
                yield inner.span(held), "the output schema is built on each call"


def _ids(context: Context) -> Iterator[Hit]:
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
                if value is None or not (sink.loop or isinstance(bare(value), Either)):
                    continue
                if any(
                    o.kind == "random" and o.evidence == "flow"
                    for o in context.linked.renderer.verdict(value, frame).origins
                ):
                    severity = Severity.ERROR if _rebuilds(sink) else Severity.INFO
                    yield frame.span(value), "a call id is made anew when the conversation is rebuilt", severity


def _rebuilds(sink: Sink) -> bool:
    """Tell whether calls stand in a message that is made for a model, not in what one has just sent."""
    keys = frozenset({"type", "role"} if sink.name == "call_id" else {"role"})  # what an API's own items say they are
    message = isinstance(sink.value, Map) and not keys.isdisjoint(entries(sink.value))
    return message and not set(sink.func.lower().replace(".", "_").split("_")) & _READS


def _attachment(context: Context) -> Iterator[Hit]:
    for _, sink, frame in sinks(context, "expr"):
        if sink.name == "image_url":
            for part in walk(sink.value):
                if isinstance(part, Call) and last_name(part) in _SIGNERS:
                    yield frame.span(part), "the attachment gets another signed address on each call"


def _marked(context: Context) -> Iterator[tuple[Map, Frame, list[Node]]]:
    for _, sink, frame in sinks(context, "expr"):
        if sink.name in ("cache_control", "cachePoint") and isinstance(sink.value, Map):
            text = entries(sink.value).get("text")
            if text is not None:
                context.linked.renderer.start()
                yield sink.value, frame, context.linked.renderer.part(text, frame)


def _misplaced(context: Context) -> Iterator[Hit]:
    for value, frame, nodes in _marked(context):
        fixed = any(isinstance(node, Text) or (isinstance(node, Hole) and node.constant) for node in nodes)
        moving = [node for node in nodes if isinstance(node, Hole) and not node.constant]
        if fixed and moving:
            what = moving[0].names[0] if moving[0].names else "a value"
            # a document is marked so that the questions about it share it: it changes, but not with each request
            severity = Severity.INFO if _spoken_by_user(context, value, frame) else Severity.WARNING
            message = f"the marked block contains `{what}`, so each write is unique and never read"
            yield frame.span(value), message, severity


def _spoken_by_user(context: Context, block: Map, frame: Frame) -> bool:
    """Tell whether a block stands in a message of the user."""
    for _, sink, other in sinks(context, "message", "messages"):
        if other.summary is frame.summary and any(part is block for part in walk(sink.value)):
            for part in walk(sink.value):
                if isinstance(part, Map) and text_of(entries(part).get("role")) == "user":
                    return any(inner is block for inner in walk(part))
    return False


def _too_short(context: Context) -> Iterator[Hit]:
    for value, frame, nodes in _marked(context):
        if nodes and all(isinstance(node, Text) for node in nodes):
            tokens = sum(len(node.text) for node in nodes if isinstance(node, Text)) / CHARS_PER_TOKEN
            if tokens < SMALLEST_MINIMUM:
                yield (
                    frame.span(value),
                    f"about {round(tokens):,} tokens are marked; nothing below {SMALLEST_MINIMUM} is kept",
                )


def _key(context: Context) -> Iterator[Hit]:
    for _, sink, frame in sinks(context, "call"):
        extra = _keyword(sink.value, "extra_body")
        held = bare(extra) if extra is not None else None
        inner = entries(held) if isinstance(held, Map) else {}
        for name in ("prompt_cache_key", "cache_salt"):
            value = _keyword(sink.value, name) or inner.get(name)
            if value is None:
                continue
            origins = context.linked.renderer.verdict(value, frame).origins
            if any(origin.kind in ("random", "clock") for origin in origins):
                yield frame.span(value), f"{name} is another one on each call, so no two requests share a cache"


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
                if len(literals(resolved)) > 1:
                    yield frame.span(choice), f"{name} is chosen by each call, and a change rewrites the prefix"


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
        if messages is None or system is None or not is_called(messages, HISTORY_WORDS):
            continue
        tools = bare(_keyword(sink.value, "tools") or system)
        if (isinstance(tools, Seq) and not tools.items) or set(sink.func.lower().split("_")) & _SIDE_WORDS:
            yield frame.span(sink.value), "the whole history is sent again behind another system text or other tools"


def _keyword(value: Value, name: str) -> Value | None:
    return dict(value.kwargs).get(name) if isinstance(value, Call) else None


_SHAPES: dict[str, Callable[[Context], Iterator[Hit]]] = {
    "reserialised": _reserialised,
    "tool-set": _tool_set,
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
