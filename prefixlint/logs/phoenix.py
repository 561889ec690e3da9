"""Arize Phoenix exports: rows of its spans data frame, or spans of its REST API, one JSON object each or `{data: […]}`.

The columns are OpenInference's attributes behind `attributes.` with the ids behind `context.`; lists of messages and
tools stay lists, whose entries have dotted keys (`message.role`) or are nested. The REST form has `attributes` as one
object, flat or nested.
"""

from __future__ import annotations

from typing import Any

from prefixlint.logs import Reader, Record
from prefixlint.logs._values import page, pick, table
from prefixlint.logs.openinference import request
from prefixlint.model import JsonObject, Request, Skip

NAME = "phoenix"
KIND = "json"
WHOLE = True
STATELESS = True

_COLUMN = "attributes."
_DEEPEST = 12


def detect(record: Record) -> int:
    """Recognise a row by the ids of its context and OpenInference's span kind."""
    value = record.value
    return 93 if isinstance(value, dict) and _is_span(value) else 0


def _is_span(value: JsonObject) -> bool:
    context = value.get("context")
    has_ids = "context.trace_id" in value or "context.span_id" in value
    has_ids = has_ids or (isinstance(context, dict) and "trace_id" in context)
    columns = "span_kind" in value or "attributes.openinference.span.kind" in value
    return has_ids and (columns or "attributes.llm.input_messages" in value)


def unpack(value: Any) -> list[Any] | None:
    """Take the spans out of a page of the REST API."""
    return page(value.get("data"), _is_span) if isinstance(value, dict) else None


class _Reader:
    def feed(self, record: Record) -> list[Request | Skip] | None:
        value = record.value
        if not isinstance(value, dict) or not _is_span(value):
            return None
        attributes = _attributes(value)
        kind = pick(value, "span_kind") or attributes.get("openinference.span.kind")
        if str(kind).upper() != "LLM":
            return [Skip(record.path, record.line, "not-a-request", f"a span of kind {kind}")]
        context = table(value.get("context"))
        span = {
            "span": pick(value, "context.span_id") or context.get("span_id"),
            "start": pick(value, "start_time", "startTime"),
            "end": pick(value, "end_time", "endTime"),
            "resource": {"name": value.get("name"), "status": value.get("status_code")},
        }
        return [request(record, NAME, span, attributes)]

    def finish(self) -> list[Request | Skip]:
        return []


def reader() -> Reader:
    """Give a reader; it keeps no state."""
    return _Reader()


def _attributes(value: JsonObject) -> JsonObject:
    """Give the attributes with dotted keys, whichever way the export nests them."""
    found = {name[len(_COLUMN) :]: held for name, held in value.items() if name.startswith(_COLUMN)}
    flat: JsonObject = {}
    _flatten(flat, "", {**table(value.get("attributes")), **found}, _DEEPEST)
    return flat


def _flatten(flat: JsonObject, prefix: str, value: JsonObject, depth: int) -> None:
    for name, held in value.items():
        if isinstance(held, dict) and depth:
            _flatten(flat, f"{prefix}{name}.", held, depth - 1)
        elif held is not None:
            flat[f"{prefix}{name}"] = held
