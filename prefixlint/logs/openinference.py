"""OpenInference spans (Arize Phoenix's instrumentations) in OTLP/JSON: `llm.input_messages.N.message.*`.

Only spans of kind LLM are model calls. Tools are `llm.tools.N.tool.json_schema` (JSON strings). What the flat
attributes leave out is taken from `input.value`, the whole request body, where it was logged. Prompt counts include
cached tokens. Hidden inputs (`OPENINFERENCE_HIDE_INPUTS`) leave `__REDACTED__` and are read as usage only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prefixlint.logs import Reader, Record
from prefixlint.logs import _otlp as otlp
from prefixlint.logs._convert import openai_tools, tool_of
from prefixlint.logs._detect import guess_body
from prefixlint.logs._exchange import body_of, labels
from prefixlint.logs._fields import build, call_of, from_message, params_of, seconds, text, usage_of
from prefixlint.logs._values import decoded, pick, rows, table
from prefixlint.logs.otel_genai import including, latency
from prefixlint.model import Content, JsonObject, Messages, NoPrompt, Output, Request, Skip, Text, Usage

NAME = "openinference"
KIND = "json"
WHOLE = True
STATELESS = True

unpack = otlp.unpack

_KIND = "openinference.span.kind"
_HIDDEN = "__REDACTED__"
_LONG = ("llm.input_messages", "llm.output_messages", "llm.tools", "llm.prompts", "input.value", "output.value")


def detect(record: Record) -> int:
    """Recognise a span by the attribute that every OpenInference span has."""
    value = record.value
    if not isinstance(value, dict) or otlp.SPAN not in value:
        return 0
    attributes = value["attributes"]
    return 94 if _KIND in attributes or "llm.input_messages.0.message.role" in attributes else 0


class _Reader:
    def feed(self, record: Record) -> list[Request | Skip] | None:
        if not isinstance(record.value, dict) or detect(record) == 0:
            return None
        span = record.value
        kind = span["attributes"].get(_KIND)
        if kind is not None and str(kind).upper() != "LLM":
            return [Skip(record.path, record.line, "not-a-request", f"a span of kind {kind}")]
        return [request(record, NAME, span, span["attributes"])]

    def finish(self) -> list[Request | Skip]:
        return []


def reader() -> Reader:
    """Give a reader; it keeps no state."""
    return _Reader()


def request(record: Record, name: str, span: JsonObject, attributes: JsonObject) -> Request:
    """Give the request of a span (`span`, `start`, `end`, `resource`) with dotted attributes, as the format `name`."""
    start, end = seconds(span.get("start")), seconds(span.get("end"))
    shown = {k: v for k, v in attributes.items() if not k.startswith(_LONG)}
    settings = table(attributes.get("llm.invocation_parameters"))
    content = _content(record, attributes, settings)
    return build(
        record,
        name,
        content,
        body=body_of(content),
        envelope={},
        id=text(span.get("span")),
        time=start,
        model=text(pick(attributes, "llm.model_name", "embedding.model_name") or settings.get("model")),
        session=text(attributes.get("session.id")),
        user=text(attributes.get("user.id")),
        params=params_of(settings),
        usage=_usage(attributes),
        latency=latency(start, end, attributes),
        output=_output(attributes),
        fields=labels({**span.get("resource", {}), **shown, **table(attributes.get("metadata"))}),
    )


def _usage(attributes: Mapping[str, Any]) -> Usage | None:
    counted = usage_of(
        {
            "prompt_tokens": attributes.get("llm.token_count.prompt"),
            "cached_tokens": attributes.get("llm.token_count.prompt_details.cache_read"),
            "cache_creation_input_tokens": attributes.get("llm.token_count.prompt_details.cache_write"),
            "completion_tokens": attributes.get("llm.token_count.completion"),
        }
    )
    return None if counted is None else including(counted)


def _content(record: Record, attributes: JsonObject, settings: JsonObject) -> Content:
    logged = _logged(record, attributes)
    tools = _tools(attributes, settings) or (logged.tools if isinstance(logged, Messages) else ())
    asked = _branch(attributes, "llm.input_messages")
    messages = [message for entry in rows(asked) if (message := _message(entry)) is not None]
    if messages:
        return Messages(messages, tools)
    if logged is not None:
        return logged
    prompts = [text(_under(entry, "prompt").get("text")) for entry in rows(_branch(attributes, "llm.prompts"))]
    if prompts and prompts[0] is not None:
        return Text(prompts[0])
    return NoPrompt("openinference-hidden-inputs")


def _logged(record: Record, attributes: JsonObject) -> Content | None:
    """Read the whole body that `input.value` may hold, where the flat attributes are not complete without it."""
    if "llm.tools.0.tool.json_schema" in attributes and "llm.input_messages.0.message.role" in attributes:
        return None
    body = decoded(attributes.get("input.value"))
    found = guess_body(record, body, name=NAME, envelope={}) if isinstance(body, dict) else []
    return found[0].content if found else None


def _branch(attributes: JsonObject, name: str) -> Any:
    """Give a list that was flattened into dotted keys, or that stands under its name (as in data frames)."""
    if name in attributes:
        return decoded(attributes[name])
    return otlp.nest(attributes, name + ".")


def _under(entry: JsonObject, name: str) -> JsonObject:
    """Give what stands under a name: an object, or the entries whose dotted keys begin with it."""
    held = entry.get(name)
    if isinstance(held, dict):
        return held
    prefix = name + "."
    start = len(prefix)
    return {key[start:]: value for key, value in entry.items() if key.startswith(prefix)}


def _tools(attributes: JsonObject, settings: JsonObject) -> list[JsonObject]:
    found = []
    for entry in rows(_branch(attributes, "llm.tools")):
        schema = table(_under(entry, "tool").get("json_schema"))
        if schema:
            found.append(tool_of(schema))
    return found or openai_tools(settings)


def _message(entry: JsonObject) -> JsonObject | None:
    held = _under(entry, "message")
    content = held.get("content")
    if not held or content == _HIDDEN:
        return None
    parts = [piece for part in rows(held.get("contents")) if (piece := _piece(part)) is not None]
    message: JsonObject = {"role": text(held.get("role")) or "user", "content": content}
    if content is None and parts:
        message["content"] = parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts
    calls = [_call(call) for call in rows(held.get("tool_calls"))]
    if calls:
        message["tool_calls"] = calls
    if (answered := text(held.get("tool_call_id"))) is not None:
        message["tool_call_id"] = answered
    return message


def _piece(part: JsonObject) -> JsonObject | None:
    held = _under(part, "message_content")
    if isinstance(plain := held.get("text"), str):
        return {"type": "text", "text": plain}
    image = _under(_under(held, "image"), "image")
    return {"type": "image_url", "image_url": {"url": str(image.get("url"))}} if image else None


def _call(entry: JsonObject) -> JsonObject:
    call = _under(entry, "tool_call")
    function = _under(call, "function")
    return call_of(text(call.get("id")), text(function.get("name")) or "", function.get("arguments"))


def _output(attributes: JsonObject) -> Output | None:
    for entry in rows(_branch(attributes, "llm.output_messages")):
        message = _message(entry)
        return None if message is None else from_message(message)
    return None
