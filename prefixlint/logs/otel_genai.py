"""OpenTelemetry GenAI: spans and events of the semantic conventions 1.27 to today, in OTLP/JSON or one span a line.

| conventions | where the prompt is |
|---|---|
| 1.37 and later | attributes `gen_ai.input.messages`, `gen_ai.system_instructions`, `gen_ai.tool.definitions`, as JSON strings or structured, on the span or on the event `gen_ai.client.inference.operation.details` |
| 1.28 to 1.36 | log records `gen_ai.{system,user,assistant,tool}.message` and `gen_ai.choice`, joined by trace and span id |
| 1.27 | span event `gen_ai.content.prompt` with `gen_ai.prompt` |

Model, usage and times stand on the span. Spans and their log records may come in any order; what is waiting is given out
when both are there, at the end of the file, or when 200,000 wait. Content is off by default in most instrumentations:
such spans are read as usage only. Spans of agents, tools and embeddings repeat or surround model calls and are left out.
"""  # noqa: E501  # a table

from __future__ import annotations

from dataclasses import replace
from typing import Any

from prefixlint.logs import Reader, Record
from prefixlint.logs import _otlp as otlp
from prefixlint.logs._convert import role_of, tool_of
from prefixlint.logs._exchange import body_of, labels
from prefixlint.logs._fields import build, call_of, from_message, number, seconds, text, usage_of
from prefixlint.logs._values import compact, decoded, pick, rows
from prefixlint.model import Content, JsonObject, Latency, Messages, NoPrompt, Output, Request, Skip, Text, Usage

NAME = "otel-genai"
KIND = "json"
WHOLE = True

unpack = otlp.unpack

_WAITING = 200_000
_DETAILS = "gen_ai.client.inference.operation.details"
_INPUT = "gen_ai.input.messages"
_LEGACY = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}
_CALLS = ("chat", "text_completion", "generate_content", "completion", "responses")
_FOREIGN = ("openinference.span.kind", "llm.request.type", "traceloop.span.kind", "gen_ai.prompt.0.role")


def detect(record: Record) -> int:
    """Recognise a span or record of these conventions; as a last resort any span, to name it in what was left out."""
    value = record.value
    if not isinstance(value, dict):
        return 0
    if otlp.LOG in value:
        return 90 if str(value.get("name")).startswith("gen_ai.") else 5
    if otlp.SPAN not in value:
        return 0
    attributes = value["attributes"]
    if any(name in attributes for name in _FOREIGN) and _INPUT not in attributes:
        return 0
    return 88 if any(str(name).startswith("gen_ai.") for name in attributes) else 5


class _Reader:
    def __init__(self) -> None:
        self._waiting: dict[Any, _Call] = {}
        self._given: set[Any] = set()

    def feed(self, record: Record) -> list[Request | Skip] | None:
        value = record.value
        if not isinstance(value, dict) or detect(record) == 0:
            return None
        if otlp.LOG in value:
            return self._log(record, value)
        attributes = value["attributes"]
        kind = attributes.get("gen_ai.operation.name")
        if (kind is not None and kind not in _CALLS) or not any(str(n).startswith("gen_ai.") for n in attributes):
            return [Skip(record.path, record.line, "not-a-request", f"a span of {kind or 'no model call'}")]
        return self._joined(_key(value, record), record, span=value)

    def _log(self, record: Record, value: JsonObject) -> list[Request | Skip]:
        name = value.get("name")
        if name != _DETAILS and name not in _LEGACY and name != "gen_ai.choice":
            return [Skip(record.path, record.line, "not-a-request", "a log record of something else")]
        return self._joined(_key(value, record), record, event=value)

    def _joined(
        self, key: Any, record: Record, *, span: JsonObject | None = None, event: JsonObject | None = None
    ) -> list[Request | Skip]:
        if key in self._given:
            return []
        call = self._waiting.setdefault(key, _Call(record))
        if span is not None:
            call.record, call.span = record, span
        if event is not None:
            call.events.append(event)
        if call.complete():
            del self._waiting[key]
            self._remember(key)
            return [call.request()]
        if len(self._waiting) > _WAITING:
            oldest = next(iter(self._waiting))
            self._remember(oldest)
            return [self._waiting.pop(oldest).request()]
        return []

    def _remember(self, key: Any) -> None:
        """Later parts of a call that was given out must not make a second request."""
        if len(self._given) >= 2 * _WAITING:
            self._given.clear()
        self._given.add(key)

    def finish(self) -> list[Request | Skip]:
        left = [call.request() for call in self._waiting.values()]
        self._waiting.clear()
        return list(left)


def reader() -> Reader:
    """Give a reader, which joins spans with their log records."""
    return _Reader()


def _key(value: JsonObject, record: Record) -> Any:
    trace, span = text(value.get("trace")), text(value.get("span"))
    return (trace, span) if span is not None else (record.line, record.part)


class _Call:
    """What is known about one model call: its span, its events, or both."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.span: JsonObject | None = None
        self.events: list[JsonObject] = []

    def complete(self) -> bool:
        if self.span is None:
            return False
        attributes = self.span["attributes"]
        if _INPUT in attributes or any(event["name"] == "gen_ai.content.prompt" for event in self.span["events"]):
            return True
        return any(event["name"] in (_DETAILS, "gen_ai.choice") for event in (*self.events, *self.span["events"]))

    def request(self) -> Request:
        span = self.span or {"attributes": {}, "events": [], "resource": {}}
        held = [*self.events, *span["events"]]
        held.sort(key=lambda event: number(event.get("time")) or 0.0)
        attributes = dict(span["attributes"])
        for event in held:
            if event["name"] == _DETAILS:
                attributes |= event["attributes"]
        if self.span is None and held:
            attributes = {**held[0]["attributes"], **attributes}
        return _request(self.record, span, held, attributes)


def _request(record: Record, span: JsonObject, events: list[JsonObject], attributes: JsonObject) -> Request:
    start, end = seconds(span.get("start")), seconds(span.get("end"))
    if start is None and events:
        start = seconds(events[0].get("time"))
    resource = span.get("resource") or {}
    content = _content(events, attributes)
    return build(
        record,
        NAME,
        content,
        body=body_of(content),
        envelope={},
        id=text(pick(attributes, "gen_ai.response.id") or span.get("span")),
        time=start,
        model=text(pick(attributes, "gen_ai.request.model", "gen_ai.response.model")),
        session=text(pick(attributes, "gen_ai.conversation.id", "session.id", "thread.id")),
        user=text(pick(attributes, "user.id", "enduser.id", "gen_ai.user.id", "gen_ai.openai.request.user")),
        usage=usage(attributes),
        latency=latency(start, end, attributes),
        output=_output(events, attributes),
        params=params(attributes),
        fields=labels({**resource, **{k: v for k, v in attributes.items() if k not in _LONG}}),
    )


_LONG = frozenset((_INPUT, "gen_ai.output.messages", "gen_ai.system_instructions", "gen_ai.tool.definitions"))


def usage(attributes: JsonObject) -> Usage | None:
    """Give the usage from the attributes of any of the conventions.

    The input count includes cached tokens; instrumentations that pass Anthropic's count through leave them out, which
    shows where more was cached than counted.
    """
    names = "gen_ai.usage."
    counted = usage_of(
        {
            "prompt_tokens": pick(attributes, names + "input_tokens", names + "prompt_tokens"),
            "cached_tokens": pick(attributes, names + "cache_read.input_tokens", names + "cache_read_input_tokens"),
            "cache_creation_input_tokens": pick(
                attributes, names + "cache_creation.input_tokens", names + "cache_creation_input_tokens"
            ),
            "completion_tokens": pick(attributes, names + "output_tokens", names + "completion_tokens"),
        }
    )
    return None if counted is None else including(counted)


def including(counted: Usage) -> Usage:
    """Add what was cached and written to a prompt count that is too small to include it."""
    apart = (counted.cached or 0) + (counted.written or 0)
    if counted.prompt is not None and apart > counted.prompt:
        return replace(counted, prompt=counted.prompt + apart)
    return counted


def latency(start: float | None, end: float | None, attributes: JsonObject) -> Latency | None:
    """Give the length of a span and the time to its first token (seconds), where they are known."""
    first = number(pick(attributes, "gen_ai.response.time_to_first_chunk", "gen_ai.server.time_to_first_token"))
    total = None if start is None or end is None or end < start else round(end - start, 6)
    return None if first is None and total is None else Latency(total, first)


def params(attributes: JsonObject) -> JsonObject:
    """Give the settings that change what a cache can match."""
    chosen = {
        "response_format": attributes.get("gen_ai.output.type"),
        "reasoning_effort": attributes.get("gen_ai.request.reasoning.level"),
    }
    return {name: value for name, value in chosen.items() if value is not None}


def _content(events: list[JsonObject], attributes: JsonObject) -> Content:
    tools = [tool_of(tool) for tool in rows(attributes.get("gen_ai.tool.definitions"))]
    asked = decoded(attributes.get(_INPUT))
    if isinstance(asked, list):
        system = _instructions(attributes.get("gen_ai.system_instructions"))
        return Messages([*system, *(m for one in asked for m in _messages(one))], tools)
    for event in events:
        if event["name"] == "gen_ai.content.prompt":
            held = decoded(pick(event["attributes"], "gen_ai.prompt", "gen_ai.content.prompt"))
            return _prompt(held, tools)
    said = [_legacy(event) for event in events if event["name"] in _LEGACY]
    if said:
        return Messages(said, tools)
    return NoPrompt("otel-no-content")


def _prompt(held: Any, tools: list[JsonObject]) -> Content:
    """Give the prompt of 1.27: a list of messages, or text."""
    messages = [message for one in rows(held) for message in _messages(one)]
    if messages:
        return Messages(messages, tools)
    return Text(held) if isinstance(held, str) and held else NoPrompt("otel-no-content")


def _instructions(value: Any) -> list[JsonObject]:
    held = decoded(value)
    if isinstance(held, str) and held:
        return [{"role": "system", "content": held}]
    pieces = [piece for part in rows(held) for piece in _pieces(part)]
    return [{"role": "system", "content": _simple(pieces)}] if pieces else []


def _messages(value: Any) -> list[JsonObject]:
    """Give one message of the current conventions (`role`, `parts`) in the OpenAI form; that form itself passes."""
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    if not isinstance(value, dict):
        return []
    if "parts" not in value:
        return [value] if "role" in value else []
    found: list[JsonObject] = []
    pieces: list[JsonObject] = []
    message: JsonObject = {"role": role_of(value.get("role") or "user")}
    for part in rows(value["parts"]):
        kind = part.get("type")
        if kind == "tool_call":
            message.setdefault("tool_calls", []).append(
                call_of(text(part.get("id")), text(part.get("name")) or "", part.get("arguments"))
            )
        elif kind == "tool_call_response":
            result = compact(pick(part, "response", "result", "content") or "")
            found.append({"role": "tool", "tool_call_id": text(part.get("id")), "content": result})
        elif kind in ("reasoning", "thinking"):
            message["reasoning_content"] = message.get("reasoning_content", "") + str(part.get("content") or "")
        else:
            pieces.extend(_pieces(part))
    if pieces or len(message) > 1:
        found.append({**message, "content": _simple(pieces)})
    return found


def _pieces(part: JsonObject) -> list[JsonObject]:
    held = pick(part, "content", "text")
    if part.get("type", "text") == "text":
        return [{"type": "text", "text": held}] if isinstance(held, str) else []
    if part.get("type") in ("uri", "blob", "file") and part.get("modality", "image") == "image":
        mime = pick(part, "mime_type", "mimeType")
        address = pick(part, "uri", "file_id") or f"data:{mime};base64,{held}"
        return [{"type": "image_url", "image_url": {"url": str(address)}}]
    return [part]


def _simple(pieces: list[JsonObject]) -> Any:
    if not pieces:
        return None
    return pieces[0]["text"] if len(pieces) == 1 and pieces[0].get("type") == "text" else pieces


def _legacy(event: JsonObject) -> JsonObject:
    """Give one message event of 1.28 to 1.36; its body is the message without, or with, its role."""
    body = decoded(event.get("held"))
    body = body if isinstance(body, dict) else event["attributes"] if body is None else {"content": body}
    message: JsonObject = {"role": text(body.get("role")) or _LEGACY[event["name"]], "content": body.get("content")}
    if isinstance(message["content"], dict):
        message["content"] = compact(message["content"])
    calls = [
        call
        if isinstance(call.get("function"), dict)
        else call_of(call.get("id"), call.get("name"), call.get("arguments"))
        for call in rows(body.get("tool_calls"))
    ]
    if calls:
        message["tool_calls"] = calls
    if message["role"] == "tool":
        message["tool_call_id"] = text(pick(body, "tool_call_id", "id"))
    return message


def _output(events: list[JsonObject], attributes: JsonObject) -> Output | None:
    made = decoded(attributes.get("gen_ai.output.messages"))
    for one in made if isinstance(made, list) else []:
        for message in _messages(one):
            return from_message(message, one.get("finish_reason") if isinstance(one, dict) else None)
    for event in events:
        if event["name"] == "gen_ai.choice" and isinstance(body := decoded(event.get("held")), dict):
            said = body.get("message")
            return from_message(said, body.get("finish_reason")) if isinstance(said, dict) else None
        if event["name"] == "gen_ai.content.completion":
            held = decoded(pick(event["attributes"], "gen_ai.completion", "gen_ai.content.completion"))
            return next((from_message(message, message.get("finish_reason")) for message in rows(held)), None)
    return None
