"""Anthropic Message Batches: request files (`{custom_id, params}`) and result files (`{custom_id, result}`).

Requests hold whole Messages bodies under `params`, without times; the order of the file stands in for them. Results
hold what was generated and the usage, but no prompt: they are read as usage only. `input_tokens` EXCLUDES cache reads
and writes. The body of the creating call (`{"requests": […]}`) is taken apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from prefixlint.logs import Reader, Record
from prefixlint.logs._exchange import exchange
from prefixlint.logs._numbers import text
from prefixlint.logs._values import decoded, table
from prefixlint.model import Request, Skip

NAME = "anthropic-batch"
KIND = "json"
WHOLE = True
STATELESS = True


def detect(record: Record) -> int:
    """Recognise `custom_id` with `params` or with a `result` that has a type."""
    value = record.value
    if not isinstance(value, dict) or "custom_id" not in value:
        return 0
    result = value.get("result")
    return 95 if "params" in value or (isinstance(result, dict) and "type" in result) else 0


def unpack(value: Any) -> Iterable[Any] | None:
    """Take the requests out of the body that creates a batch."""
    held = value.get("requests") if isinstance(value, dict) else None
    if isinstance(held, list) and held and all(isinstance(e, dict) and "custom_id" in e for e in held[:20]):
        return held
    return None


class _Reader:
    def feed(self, record: Record) -> list[Request | Skip] | None:
        value = record.value
        if not isinstance(value, dict) or "custom_id" not in value:
            return None
        known = {"id": text(value["custom_id"])}
        if isinstance(params := decoded(value.get("params")), dict):
            return list(exchange(record, NAME, params, None, absent="no-body", known=known))
        result = table(value.get("result"))
        if not result:
            return None
        if result.get("type") != "succeeded" and "message" not in result:
            reason = f"the batch request {known['id']} gave no result: {result.get('type')}"
            return [Skip(record.path, record.line, "failed-request", reason)]
        return list(exchange(record, NAME, None, result.get("message"), absent="batch-results-only", known=known))

    def finish(self) -> list[Request | Skip]:
        return []


def reader() -> Reader:
    """Give a reader; it keeps no state."""
    return _Reader()
