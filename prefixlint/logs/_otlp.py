"""OpenTelemetry's JSON: containers, typed values, and the spellings that exporters give the same span.

Read here: OTLP/JSON files (`resourceSpans`, `resourceLogs`; camelCase, or snake_case as protobuf's own printer writes
it; `scopeSpans` or the older `instrumentationLibrarySpans`; Tempo's `batches`), bare spans and log records one a line,
and the span objects of the Python console exporter. All become plain dicts with the keys of `SPAN` or `LOG`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from typing import Any

from prefixlint.logs._numbers import text
from prefixlint.logs._values import pick
from prefixlint.model import JsonObject

SPAN, LOG = "otlp.span", "otlp.log"  # the key that marks a normalised record; no exporter writes it
_MODELS = ("gen_ai.", "openinference.", "llm.input_messages.", "llm.prompts.")
_DEEPEST = 40  # nesting of typed values that is still followed; deeper is dropped, hostile input nests without end

_RESOURCES = ("resourceSpans", "resource_spans", "resourceLogs", "resource_logs", "batches")
_SCOPES = (
    ("scopeSpans", "spans"),
    ("scope_spans", "spans"),
    ("instrumentationLibrarySpans", "spans"),
    ("instrumentation_library_spans", "spans"),
    ("scopeLogs", "logRecords"),
    ("scope_logs", "log_records"),
)


def _dicts(value: Any) -> Iterator[JsonObject]:
    if isinstance(value, list):
        yield from (entry for entry in value if isinstance(entry, dict))


def unpack(value: Any) -> list[Any] | None:
    """Give the spans and log records in an OTLP container, or in a bare span or record, normalised; else None."""
    if not isinstance(value, dict) or SPAN in value or LOG in value:
        return None
    if any(isinstance(value.get(name), list) for name in _RESOURCES):
        return list(_records(value))
    inner = value.get("trace")
    if isinstance(inner, dict) and any(isinstance(inner.get(name), list) for name in _RESOURCES):
        return list(_records(inner))
    if any(isinstance(value.get(name), list) for name, _ in _SCOPES):
        return list(_in_resource(value))
    single = _bare(value)
    return None if single is None else [single]


def _records(container: JsonObject) -> Iterator[JsonObject]:
    for name in _RESOURCES:
        for resource in _dicts(container.get(name)):
            yield from _in_resource(resource)


def _in_resource(resource: JsonObject) -> Iterator[JsonObject]:
    shared = resource.get("resource")
    attributes = _attributes(shared.get("attributes")) if isinstance(shared, dict) else {}
    for scopes, records in _SCOPES:
        for scope in _dicts(resource.get(scopes)):
            for record in _dicts(pick(scope, records, "logRecords", "log_records")):
                yield _log(record, attributes) if records.lower().startswith("log") else _span(record, attributes)


def _bare(value: JsonObject) -> JsonObject | None:
    """Normalise a span or log record that stands alone, if the value is one."""
    if "attributes" not in value:
        return None
    if pick(value, "startTimeUnixNano", "start_time_unix_nano") is not None:
        return _span(value, {})
    if pick(value, "timeUnixNano", "time_unix_nano", "observedTimeUnixNano", "observed_time_unix_nano") is not None:
        return _log(value, {})
    context = value.get("context")
    console = isinstance(context, dict) and "span_id" in context and isinstance(value.get("kind"), str)
    if console and str(value["kind"]).startswith("SpanKind."):
        return _span(value, {})
    plain = "name" in value and "span_kind" not in value  # which Phoenix writes, whose spans are a format of their own
    return _span(value, {}) if plain and _is_of_a_model(value["attributes"]) else None


def _is_of_a_model(attributes: Any) -> bool:
    """Tell whether attributes are those that the conventions for model calls name, key by key."""
    return isinstance(attributes, dict) and any(isinstance(key, str) and key.startswith(_MODELS) for key in attributes)


def _span(span: JsonObject, resource: JsonObject) -> JsonObject:
    context = span.get("context")
    ids = context if isinstance(context, dict) else span
    return {
        SPAN: True,
        "trace": pick(ids, "traceId", "trace_id"),
        "span": pick(ids, "spanId", "span_id"),
        "name": span.get("name"),
        "start": pick(span, "startTimeUnixNano", "start_time_unix_nano", "start_time"),
        "end": pick(span, "endTimeUnixNano", "end_time_unix_nano", "end_time"),
        "attributes": _attributes(span.get("attributes")),
        "events": [
            {
                "name": text(event.get("name")),
                "time": pick(event, "timeUnixNano", "time_unix_nano", "timestamp"),
                "attributes": _attributes(event.get("attributes")),
            }
            for event in _dicts(span.get("events"))
        ],
        "resource": resource,
    }


def _log(record: JsonObject, resource: JsonObject) -> JsonObject:
    attributes = _attributes(record.get("attributes"))
    body = record.get("body")
    return {
        LOG: True,
        "trace": pick(record, "traceId", "trace_id"),
        "span": pick(record, "spanId", "span_id"),
        "name": text(pick(record, "eventName", "event_name") or attributes.get("event.name")),
        "time": pick(record, "timeUnixNano", "time_unix_nano", "observedTimeUnixNano", "observed_time_unix_nano"),
        "attributes": attributes,
        "held": typed(body),
        "resource": resource,
    }


def _attributes(value: Any) -> JsonObject:
    """Give attributes as a dict: OTLP's list of `{key, value}`, or a dict already."""
    if isinstance(value, dict):
        return value
    if not isinstance(value, list):
        return {}
    out: JsonObject = {}
    for entry in value:
        if isinstance(entry, dict) and isinstance(key := entry.get("key"), str):
            held = entry.get("value")
            # almost all values are strings: the shortest way for them
            if isinstance(held, dict) and isinstance(plain := held.get("stringValue"), str):
                out[key] = plain
            else:
                out[key] = typed(held)
    return out


def typed(value: Any, depth: int = 0) -> Any:
    """Give the plain value of an OTLP `AnyValue` (either spelling); other JSON comes back as it is."""
    if not isinstance(value, dict) or len(value) != 1 or depth > _DEEPEST:
        return value if depth <= _DEEPEST else None
    ((kind, held),) = value.items()
    match kind:
        case "stringValue" | "string_value" | "boolValue" | "bool_value" | "doubleValue" | "double_value":
            return held
        case "intValue" | "int_value":
            return _integer(held)
        case "bytesValue" | "bytes_value":
            return _bytes(held)
        case "arrayValue" | "array_value":
            values = held.get("values") if isinstance(held, dict) else held
            return [typed(entry, depth + 1) for entry in values] if isinstance(values, list) else []
        case "kvlistValue" | "kvlist_value":
            values = held.get("values") if isinstance(held, dict) else held
            return {str(entry.get("key")): typed(entry.get("value"), depth + 1) for entry in _dicts(values)}
        case _:
            return value


def _integer(held: Any) -> Any:
    """OTLP/JSON writes 64-bit integers as strings."""
    try:
        return int(held)
    except (TypeError, ValueError, OverflowError):
        return held


def _bytes(held: Any) -> Any:
    try:
        return base64.b64decode(held, validate=True).decode("utf-8", "replace")
    except (TypeError, ValueError, binascii.Error):
        return held


def nest(attributes: Mapping[str, Any], prefix: str, depth: int = 0) -> Any:
    """Build the tree under `prefix` from dotted keys; numbers make lists: `a.0.b` gives `[{"b": …}]` under `a.`.

    Values that are dicts or lists with dotted keys of their own (data frames hold them) are opened as well.
    Indices that leave holes are closed up, so that one huge index cannot ask for a huge list. Where two keys disagree
    on whether something is a value or a branch, the branch wins.
    """
    root: dict[str, Any] = {}
    start = len(prefix)
    for key, value in attributes.items():
        if key.startswith(prefix):
            _put(root, key[start:].split("."), _opened(value, depth + 1))
    return _settle(root)


def _put(root: dict[str, Any], steps: list[str], value: Any) -> None:
    if len(steps) > _DEEPEST:
        return
    for step in steps[:-1]:
        below = root.get(step)
        if not isinstance(below, dict):
            below = root[step] = {}
        root = below
    if not isinstance(root.get(steps[-1]), dict):
        root[steps[-1]] = value


def _opened(value: Any, depth: int) -> Any:
    if not isinstance(value, list | dict):
        return value
    if depth > _DEEPEST:
        return None
    if isinstance(value, list):
        return [_opened(entry, depth + 1) for entry in value] if any(isinstance(e, dict) for e in value) else value
    if any("." in key for key in value):
        return nest(value, "", depth)
    return {key: _opened(entry, depth + 1) for key, entry in value.items()}


def _settle(value: Any, depth: int = 0) -> Any:
    """Turn dicts whose keys are all numbers into lists in the order of the numbers."""
    if not isinstance(value, dict) or depth > 2 * _DEEPEST:
        return value
    if value and all(key.isdecimal() and len(key) < 10 for key in value):
        return [_settle(value[key], depth + 1) for key in sorted(value, key=int)]
    return {key: _settle(entry, depth + 1) for key, entry in value.items()}
