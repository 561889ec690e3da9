"""LiteLLM's StandardLoggingPayload: what its callbacks and the JSON logs of its proxy write for each call.

`messages` is OpenAI's list (LiteLLM translates), but tools sit in `model_parameters.tools`. Times are seconds:
`startTime`, `completionStartTime` (first token), `endTime`. The usage is `response.usage`, where prompt tokens include
cached ones whatever the provider; without it the counters beside the messages say nothing about the cache. Calls that
LiteLLM answered from its own response cache never reached a model. Switched-off message logging leaves
`redacted-by-litellm`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prefixlint.logs import Reader, Record
from prefixlint.logs._exchange import exchange, labels
from prefixlint.logs._numbers import seconds, text
from prefixlint.logs._values import decoded, pick, rows, table
from prefixlint.model import JsonObject, Latency, Request, Skip

NAME = "litellm"
KIND = "json"
WHOLE = True
STATELESS = True

_MARKS = ("hidden_params", "model_parameters", "hiddenParams", "modelParameters", "standard_logging_object")
_REDACTED = "redacted-by-litellm"
OTHER_CALLS = ("embedding", "image", "transcription", "speech", "rerank", "moderation", "ocr", "search", "create_file")


def detect(record: Record) -> int:
    """Recognise `call_type` beside the parts that only this payload has."""
    value = record.value
    if not isinstance(value, dict) or pick(value, "call_type", "callType") is None:
        return 0
    return 95 if any(mark in value for mark in _MARKS) else 0


def unpack(value: Any) -> list[Any] | None:
    """Take the payload out of a callback's dump of its whole `kwargs`."""
    if isinstance(value, dict) and isinstance(held := decoded(value.get("standard_logging_object")), dict):
        return [held]
    return None


class _Reader:
    def feed(self, record: Record) -> list[Request | Skip] | None:
        value = record.value
        if not isinstance(value, dict) or detect(record) == 0:
            return None
        refusal = refused(value)
        if refusal is not None:
            return [Skip(record.path, record.line, *refusal)]
        body, absent = _body(value)
        answer = decoded(value.get("response"))
        return list(
            exchange(record, NAME, body, answer if answer != _REDACTED else None, absent=absent, known=known(value))
        )

    def finish(self) -> list[Request | Skip]:
        return []


def reader() -> Reader:
    """Give a reader; it keeps no state."""
    return _Reader()


def refused(value: Mapping[str, Any]) -> tuple[str, str] | None:
    """Give slug and reason if the call put no prompt before a model."""
    call = str(pick(value, "call_type", "callType") or "")
    if any(kind in call for kind in OTHER_CALLS):
        return "not-a-request", f"a call of type {call}"
    if str(pick(value, "cache_hit", "cacheHit")).lower() == "true":
        return "gateway-cache", "answered from LiteLLM's own response cache; no model was called"
    if value.get("status") == "failure":
        return "failed-request", "LiteLLM logged this call as failed"
    return None


def _body(value: JsonObject) -> tuple[Any, str]:
    """Put the body together that the caller sent: messages, and the parameters that belong to the prompt."""
    messages = decoded(value.get("messages"))
    if _redacted(messages):
        return None, "litellm-redacted"
    parameters = table(pick(value, "model_parameters", "modelParameters", "optional_params"))
    body = dict(parameters)
    if isinstance(messages, dict):  # a whole body, as pass-through routes log it
        body |= messages
    elif isinstance(messages, str):
        body["prompt"] = messages
    elif "text_completion" in str(value.get("call_type")):
        body["prompt"] = "".join(str(entry.get("content", "")) for entry in rows(messages))
    else:
        body["messages"] = messages
    return (body, "litellm-redacted") if messages else (None, "no-body")


def _redacted(messages: Any) -> bool:
    if messages == _REDACTED:
        return True
    entries = messages.get("messages") if isinstance(messages, dict) else messages
    return isinstance(entries, list) and any(
        isinstance(entry, dict) and entry.get("content") == _REDACTED for entry in entries
    )


def known(value: JsonObject) -> JsonObject:
    """Give the fields of a request that stand beside the messages, in payloads and in spend logs."""
    metadata = table(value.get("metadata"))
    start = seconds(pick(value, "startTime", "start_time"))
    end = seconds(pick(value, "endTime", "end_time"))
    first = seconds(pick(value, "completionStartTime", "completion_start_time"))
    took = pick(value, "response_time", "responseTime")
    total = float(took) if isinstance(took, int | float) and not isinstance(took, bool) else _gap(start, end)
    # non-streamed calls log the end as the time of the first token, which says nothing about it
    ttft = _gap(start, first) if first != end or value.get("stream") else None
    user = pick(value, "end_user", "endUser") or pick(metadata, "user_api_key_end_user_id", "user_api_key_user_id")
    shown = {
        "provider": value.get("custom_llm_provider"),
        "model_group": value.get("model_group"),
        "key": pick(metadata, "user_api_key_alias", "user_api_key_hash"),
        "team": pick(metadata, "user_api_key_team_alias", "user_api_key_team_id") or value.get("team_id"),
        "route": metadata.get("user_api_key_request_route"),
        "call_type": value.get("call_type"),
        "trace_id": value.get("trace_id"),
        "tags": ",".join(map(str, tags)) if isinstance(tags := decoded(value.get("request_tags")), list) else None,
    }
    return {
        "id": text(pick(value, "id", "request_id", "requestId")),
        "time": start,
        "model": text(value.get("model")),
        "session": text(pick(value, "session_id", "sessionId", "trace_id", "traceId")),
        "user": text(user) or text(value.get("user")),
        "replica": text(pick(value, "model_id", "modelId")),
        "latency": Latency(total, ttft),
        "fields": labels(shown),
    }


def _gap(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None or end < start else round(end - start, 6)
