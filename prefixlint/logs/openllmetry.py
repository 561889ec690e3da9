"""OpenLLMetry (Traceloop) spans in OTLP/JSON: flat attributes `gen_ai.prompt.N.role`, `.content`, `.tool_calls.M.*`.

Tools are `llm.request.functions.N.{name,description,parameters}`. Session and user are association properties, whose
names users choose; the usual ones are looked for. Spans of workflows and tasks surround the calls and are left out.
With `TRACELOOP_TRACE_CONTENT=false` only counters remain. Its newer versions write the attributes of `otel-genai`.
"""

from __future__ import annotations

from typing import Any

from prefixlint.logs import Reader, Record
from prefixlint.logs import _otlp as otlp
from prefixlint.logs._convert import openai_chat, simple_content
from prefixlint.logs._exchange import body_of, labels
from prefixlint.logs._fields import build, call_of, from_message, seconds, text
from prefixlint.logs._values import decoded, pick, rows, table
from prefixlint.logs.otel_genai import latency, usage
from prefixlint.model import Content, JsonObject, Messages, NoPrompt, Output, Request, Skip, Text

NAME = "openllmetry"
KIND = "json"
WHOLE = True
STATELESS = True

unpack = otlp.unpack

_PROPERTIES = "traceloop.association.properties."
_MARKS = ("gen_ai.prompt.", "llm.request.", "traceloop.", "gen_ai.completion.0", "llm.prompts.0.", "llm.usage.")
_CONTENT = ("gen_ai.prompt.", "gen_ai.completion.", "llm.request.functions.", "llm.prompts.", "llm.completions.")
_SESSION = ("session_id", "conversation_id", "thread_id", "chat_id", "sessionId", "conversationId")
_USER = ("user_id", "userId", "user", "customer_id")
_NOT_CALLS = ("embedding", "rerank")


def detect(record: Record) -> int:
    """Recognise a span by Traceloop's attribute names."""
    value = record.value
    if not isinstance(value, dict) or otlp.SPAN not in value:
        return 0
    attributes = value["attributes"]
    if "gen_ai.input.messages" in attributes or "openinference.span.kind" in attributes:
        return 0
    return 92 if any(str(name).startswith(_MARKS) for name in attributes) else 0


class _Reader:
    def feed(self, record: Record) -> list[Request | Skip] | None:
        if not isinstance(record.value, dict) or detect(record) == 0:
            return None
        span = record.value
        attributes = span["attributes"]
        kind = pick(attributes, "llm.request.type", "gen_ai.operation.name")
        surrounds = "traceloop.span.kind" in attributes and kind is None
        if surrounds or any(other in str(kind).lower() for other in _NOT_CALLS):
            what = kind or attributes.get("traceloop.span.kind")
            return [Skip(record.path, record.line, "not-a-request", f"a span of type {what}")]
        return [_request(record, span, attributes)]

    def finish(self) -> list[Request | Skip]:
        return []


def reader() -> Reader:
    """Give a reader; it keeps no state."""
    return _Reader()


def _request(record: Record, span: JsonObject, attributes: JsonObject) -> Request:
    start, end = seconds(span.get("start")), seconds(span.get("end"))
    properties = {k[len(_PROPERTIES) :]: v for k, v in attributes.items() if k.startswith(_PROPERTIES)}
    shown = {k: v for k, v in attributes.items() if not k.startswith((*_CONTENT, _PROPERTIES))}
    content = _content(attributes)
    return build(
        record,
        NAME,
        content,
        body=body_of(content),
        envelope={},
        id=text(pick(attributes, "gen_ai.response.id") or span.get("span")),
        time=start,
        model=text(pick(attributes, "gen_ai.request.model", "llm.request.model", "gen_ai.response.model")),
        session=text(pick(properties, *_SESSION) or pick(attributes, "gen_ai.conversation.id", "session.id")),
        user=text(pick(properties, *_USER) or pick(attributes, "llm.user", "gen_ai.user", "user.id")),
        usage=usage(attributes),
        latency=latency(start, end, attributes),
        output=_output(attributes),
        fields=labels({**span.get("resource", {}), **shown, **properties}),
    )


def _content(attributes: JsonObject) -> Content:
    asked = otlp.nest(attributes, "gen_ai.prompt.") or otlp.nest(attributes, "llm.prompts.")
    messages = [message for entry in rows(asked) if (message := _message(entry)) is not None]
    if not messages:
        return NoPrompt("openllmetry-no-content")
    if len(messages) == 1 and attributes.get("llm.request.type") == "completion":
        held = messages[0]["content"]
        return Text(held) if isinstance(held, str) else Messages(messages)
    functions = otlp.nest(attributes, "llm.request.functions.")
    read = openai_chat({"messages": messages})
    return Messages(messages if read is None else read.messages, [_tool(function) for function in rows(functions)])


def _message(entry: JsonObject) -> JsonObject | None:
    content = entry.get("content")
    blocks = decoded(content) if isinstance(content, str) and content[:1] == "[" else content
    if isinstance(blocks, list) and all(isinstance(block, dict) and "type" in block for block in blocks):
        content = simple_content(blocks)
    elif isinstance(content, dict | list):
        return None
    message: JsonObject = {"role": text(entry.get("role")) or "user", "content": content}
    calls = [_call(call) for call in rows(entry.get("tool_calls"))]
    if calls:
        message["tool_calls"] = calls
    if (answered := text(entry.get("tool_call_id"))) is not None:
        message["tool_call_id"] = answered
    return message


def _call(call: JsonObject) -> JsonObject:
    function = call.get("function")
    held = function if isinstance(function, dict) else call
    return call_of(text(call.get("id")), text(held.get("name")) or "", held.get("arguments"))


def _tool(function: JsonObject) -> JsonObject:
    kept: JsonObject = {name: function[name] for name in ("name", "description") if name in function}
    schema = table(pick(function, "parameters", "input_schema"))
    return {"type": "function", "function": {**kept, "parameters": schema} if schema else kept}


def _output(attributes: JsonObject) -> Output | None:
    made: Any = otlp.nest(attributes, "gen_ai.completion.") or otlp.nest(attributes, "llm.completions.")
    for entry in rows(made):
        message = _message(entry)
        return None if message is None else from_message(message, entry.get("finish_reason"))
    return None
