"""Helicone exports and API pages: one row a request, with the bodies when they were asked for (`--include-body`).

`request_body` and `response_body` are those of the provider's own API, as objects or JSON strings; rows without them
carry a `signed_body_url` instead and are read as usage only. `delay_ms` is the total and `time_to_first_token` (ms) the
TTFT. The session is the property `Helicone-Session-Id`. Usage is taken from the response body; the row's
`prompt_cache_read_tokens` and `prompt_cache_write_tokens` stand beside a `prompt_tokens` that leaves them out for
Anthropic.
"""

from __future__ import annotations

from typing import Any

from prefixlint.logs import Reader, Record
from prefixlint.logs._exchange import exchange, labels
from prefixlint.logs._numbers import count, number, seconds, text
from prefixlint.logs._values import decoded, page, pick, table
from prefixlint.model import JsonObject, Latency, Request, Skip, Usage

NAME = "helicone"
KIND = "json"
WHOLE = True
STATELESS = True


def detect(record: Record) -> int:
    """Recognise the time of the request beside Helicone's own columns."""
    value = record.value
    return 94 if isinstance(value, dict) and _is_row(value) else 0


def _is_row(value: JsonObject) -> bool:
    return pick(value, "request_created_at", "requestCreatedAt") is not None and any(
        name in value
        for name in (
            "request_body",
            "delay_ms",
            "response_id",
            "signed_body_url",
            "requestBody",
            "delayMs",
            "request_id",
        )
    )


def unpack(value: Any) -> list[Any] | None:
    """Take the rows out of a page of the API."""
    return page(value.get("data"), _is_row) if isinstance(value, dict) else None


class _Reader:
    def feed(self, record: Record) -> list[Request | Skip] | None:
        value = record.value
        if not isinstance(value, dict) or not _is_row(value):
            return None
        status = count(pick(value, "response_status", "responseStatus"))
        if status is not None and status >= 400:
            return [Skip(record.path, record.line, "failed-request", f"the request failed with status {status}")]
        body = decoded(pick(value, "request_body", "requestBody"))
        answer = decoded(pick(value, "response_body", "responseBody"))
        return list(exchange(record, NAME, body, answer, absent="helicone-no-body", known=_known(value)))

    def finish(self) -> list[Request | Skip]:
        return []


def reader() -> Reader:
    """Give a reader; it keeps no state."""
    return _Reader()


def _known(value: JsonObject) -> JsonObject:
    properties = table(pick(value, "request_properties", "requestProperties", "properties"))
    folded = {str(name).lower(): held for name, held in properties.items()}
    total = number(pick(value, "delay_ms", "delayMs"))
    first = number(pick(value, "time_to_first_token", "timeToFirstToken"))
    shown = {
        "provider": value.get("provider"),
        "route": pick(value, "request_path", "requestPath"),
        "session_name": folded.get("helicone-session-name"),
    }
    return {
        "id": text(pick(value, "request_id", "requestId")),
        "time": seconds(pick(value, "request_created_at", "requestCreatedAt")),
        "model": text(pick(value, "model_override", "request_model", "requestModel", "model")),
        "session": text(pick(folded, "helicone-session-id", "session-id", "session_id")),
        "user": text(pick(value, "request_user_id", "requestUserId", "helicone_user")),
        "latency": Latency(None if total is None else total / 1000, None if first is None else first / 1000),
        "usage": _usage(value),
        "fields": labels(properties) | labels(shown),
    }


def _usage(value: JsonObject) -> Usage | None:
    prompt = count(pick(value, "prompt_tokens", "promptTokens"))
    read = count(pick(value, "prompt_cache_read_tokens", "promptCacheReadTokens"))
    written = count(pick(value, "prompt_cache_write_tokens", "promptCacheWriteTokens"))
    completion = count(pick(value, "completion_tokens", "completionTokens"))
    if prompt is None and read is None and completion is None:
        return None
    outside = "ANTHROPIC" in str(value.get("provider")).upper() or (read or 0) + (written or 0) > (prompt or 0)
    if prompt is not None and outside:
        prompt += (read or 0) + (written or 0)
    return Usage(prompt, read, written, completion)
