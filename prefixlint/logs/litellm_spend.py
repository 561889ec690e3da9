"""LiteLLM's spend logs: rows of the proxy's `LiteLLM_SpendLogs` table, or pages of its `/spend/logs` API.

By default a row has counters only (`messages` is `{}`); with `store_prompts_in_spend_logs` the caller's body is in
`proxy_server_request` (a JSON string), with the tools, and `messages` may hold the list as well. What the provider
reported about its cache is in `response.usage` or in `metadata` (a JSON string: `usage_object`,
`additional_usage_values`); the row's own `prompt_tokens` includes cached tokens. `startTime` is ISO, UTC;
`request_duration_ms` is the total. `api_key` is a hash that LiteLLM makes; it is kept as the label `key` only when it
does not look like a key.
"""

from __future__ import annotations

from typing import Any

from prefixlint.logs import Reader, Record
from prefixlint.logs._exchange import exchange, labels
from prefixlint.logs._numbers import count, number
from prefixlint.logs._usage import usage_of
from prefixlint.logs._values import decoded, page, pick, table
from prefixlint.logs.litellm import known as known_beside
from prefixlint.logs.litellm import refused
from prefixlint.model import JsonObject, Latency, Request, Skip, Usage

NAME = "litellm-spend"
KIND = "json"
WHOLE = True
STATELESS = True


def detect(record: Record) -> int:
    """Recognise a row by its id, call type and cost."""
    value = record.value
    return 92 if isinstance(value, dict) and _is_row(value) else 0


def _is_row(value: JsonObject) -> bool:
    return "request_id" in value and "call_type" in value and ("spend" in value or "startTime" in value)


def unpack(value: Any) -> list[Any] | None:
    """Take the rows out of a page of the API."""
    return page(value.get("data"), _is_row) if isinstance(value, dict) else None


class _Reader:
    def feed(self, record: Record) -> list[Request | Skip] | None:
        value = record.value
        if not isinstance(value, dict) or not _is_row(value):
            return None
        refusal = refused(value)
        if refusal is not None:
            return [Skip(record.path, record.line, *refusal)]
        answer = decoded(value.get("response"))
        known = known_beside(value) | {"usage": _usage(value, table(answer))}
        took = number(pick(value, "request_duration_ms", "requestDurationMs"))
        if took is not None:
            known["latency"] = Latency(took / 1000, known["latency"].ttft)
        known["fields"] = labels({"key": value.get("api_key")}) | known["fields"]
        found = exchange(record, NAME, _body(value), answer, absent="litellm-spend-without-prompts", known=known)
        return list(found)

    def finish(self) -> list[Request | Skip]:
        return []


def reader() -> Reader:
    """Give a reader; it keeps no state."""
    return _Reader()


def _body(value: JsonObject) -> Any:
    """Give the caller's body, or the messages alone where only they were stored."""
    asked = table(pick(value, "proxy_server_request", "proxyServerRequest"))
    asked = table(asked.get("body")) or asked
    if asked:
        return asked
    messages = decoded(value.get("messages"))
    if isinstance(messages, list) and messages:
        return {"model": value.get("model"), "messages": messages}
    return messages if isinstance(messages, dict) and messages else None


def _usage(value: JsonObject, answer: JsonObject) -> Usage | None:
    """Give what is known about the tokens: the counters of the row, the cache's part from the places that have it."""
    metadata = table(value.get("metadata"))
    places = (answer.get("usage"), metadata.get("usage_object"), metadata.get("additional_usage_values"))
    parts = [found for place in places if (found := usage_of(table(place))) is not None]
    prompt, completion = count(value.get("prompt_tokens")), count(value.get("completion_tokens"))
    cached = next((part.cached for part in parts if part.cached is not None), None)
    written = next((part.written for part in parts if part.written is not None), None)
    long = next((part.long for part in parts if part.long is not None), None)
    return Usage(prompt, cached, written, completion, long)
