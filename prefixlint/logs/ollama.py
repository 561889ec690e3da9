"""Ollama: bodies of `/api/chat` and `/api/generate`, alone or beside their response.

What sets them apart from OpenAI's: `options`, `keep_alive`, `think`, `format`; the arguments of tool calls are objects;
a response has `prompt_eval_count` and durations in nanoseconds. Ollama reports no cached tokens. `created_at` is when
the response was ready, so the request's time is earlier by `total_duration`.

A `/api/generate` body has `prompt` and `system`, which Ollama puts through the model's template, unless it has `raw`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prefixlint.logs import _fields
from prefixlint.model import Content, Latency, Messages, Output, Request, Skip, Text, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from prefixlint.logs import Record, RecordKind

NAME = "ollama"
KIND: RecordKind = "json"
STATELESS = True
BODY = True

_OWN_KEYS = frozenset({"options", "keep_alive", "think", "raw"})
_GENERATE_KEYS = frozenset({"system", "template", "context", "suffix", "images"})
_DURATIONS = ("total_duration", "prompt_eval_duration")
_NANOSECOND = 1e-9
_TEMPLATE_PARAMS = ("think", "format")


def detect(record: Record) -> int:
    """Look for a chat or generate body with a key that only Ollama has, or a response with its counters."""
    body = record.body
    if not isinstance(body, dict):
        return 0
    if not isinstance(body.get("messages"), list) and not isinstance(body.get("prompt"), str):
        return 0
    if _response(record.envelope):
        return 92
    own = body.keys() & _OWN_KEYS
    if own and "model" in body:
        return 91 if "messages" in body or own - {"options"} or body.keys() & _GENERATE_KEYS else 70
    return 60 if "prompt" in body and "system" in body and "model" in body else 0


def reader() -> _Reader:
    """Give a reader for one file."""
    return _Reader()


class _Reader:
    def feed(self, record: Record) -> Iterable[Request | Skip] | None:
        body = record.body
        if not isinstance(body, dict):
            return None
        content = _content(body)
        return None if content is None else [_request(record, body, content)]

    def finish(self) -> Iterable[Request | Skip]:
        return ()


def _content(body: Mapping[str, Any]) -> Content | None:
    messages = body.get("messages")
    if isinstance(messages, list):
        tools = body.get("tools")
        return Messages(
            [_message(one) for one in messages if isinstance(one, dict)],
            [one for one in tools if isinstance(one, dict)] if isinstance(tools, list) else (),
        )
    prompt, system = body.get("prompt"), body.get("system")
    if not isinstance(prompt, str):
        return None
    if body.get("raw") is True:
        return Text(prompt, rendered=True)
    before = [{"role": "system", "content": system}] if isinstance(system, str) and system else []
    return Messages([*before, _message({"role": "user", "content": prompt, "images": body.get("images")})])


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    """Write a message the OpenAI way: images as parts, `thinking` as reasoning, `tool_name` as name."""
    out = {key: value for key, value in message.items() if key not in ("images", "thinking", "tool_name")}
    out.setdefault("role", "user")
    images = message.get("images")
    if isinstance(images, list) and images:
        parts: list[dict[str, Any]] = [{"type": "image_url", "image_url": {"url": str(one)}} for one in images]
        out["content"] = [*parts, {"type": "text", "text": message.get("content") or ""}]
    if isinstance(message.get("thinking"), str) and message["thinking"]:
        out["reasoning_content"] = message["thinking"]
    if isinstance(message.get("tool_name"), str):
        out["name"] = message["tool_name"]
    if isinstance(message.get("tool_calls"), list):
        out["tool_calls"] = [_call(one, index) for index, one in enumerate(message["tool_calls"])]
    return out


def _call(call: Any, index: int) -> dict[str, Any]:
    if not isinstance(call, dict):
        return {"id": f"call_{index}", "type": "function", "function": {"name": "", "arguments": {}}}
    return {"id": f"call_{index}", "type": "function", **call}


def _request(record: Record, body: Mapping[str, Any], content: Content) -> Request:
    response = _response(record.envelope)
    lasted = {name: value * _NANOSECOND for name in _DURATIONS if (value := _fields.number(response.get(name)))}
    ready = _fields.seconds(response.get("created_at"))
    total, prefill = lasted.get("total_duration"), lasted.get("prompt_eval_duration")
    # a body and its response flat beside each other share `created_at`, which is the response's
    logged = None if response is record.envelope else _fields.time_of(record.envelope)
    return _fields.build(
        record,
        NAME,
        content,
        time=logged if logged is not None or ready is None else ready - (total or 0.0),
        params={name: body[name] for name in _TEMPLATE_PARAMS if body.get(name) is not None},
        output=_output(response),
        usage=_usage(response),
        latency=Latency(total=total, prefill=prefill) if lasted else None,
    )


def _response(envelope: Mapping[str, Any]) -> Mapping[str, Any]:
    """Give the response beside a body, when it is one of Ollama's."""
    response = _fields.maybe(envelope.get("response", envelope.get("output")))
    if isinstance(response, dict) and (response.keys() & {"prompt_eval_count", "total_duration", "done_reason"}):
        return response
    return envelope if "prompt_eval_count" in envelope or "total_duration" in envelope else {}


def _usage(response: Mapping[str, Any]) -> Usage | None:
    usage = Usage(
        prompt=_fields.count(response.get("prompt_eval_count")),
        completion=_fields.count(response.get("eval_count")),
    )
    return None if usage == Usage() else usage


def _output(response: Mapping[str, Any]) -> Output | None:
    message = response.get("message")
    if isinstance(message, dict):
        calls = message.get("tool_calls")
        return Output(
            text=_fields.text(message.get("content")),
            reasoning=_fields.text(message.get("thinking")),
            tool_calls=[_call(one, index) for index, one in enumerate(calls)] if isinstance(calls, list) else (),
            finish=_fields.text(response.get("done_reason")),
        )
    text = response.get("response")
    if not isinstance(text, str):
        return None
    return Output(
        text=text, reasoning=_fields.text(response.get("thinking")), finish=_fields.text(response.get("done_reason"))
    )
