"""CSV from gateways and databases: one row a request, with the body as JSON text in a column.

The column is `request_json`, or one of the other usual names, or any whose cell is a request body of a known API. A
column with the response, if there is one, gives usage and output; time, model, session, user, durations and counters
are found by their usual names. The remaining short columns become labels, except those named like credentials.

Tables that Langfuse, LangSmith, Helicone, LiteLLM, Phoenix or CloudWatch export as CSV have the columns of their JSON
exports, and are read as such.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from prefixlint.logs import (
    Format,
    Reader,
    Record,
    bedrock_invocation,
    helicone,
    langfuse,
    langsmith,
    litellm,
    litellm_spend,
    phoenix,
)
from prefixlint.logs._exchange import exchange, labels
from prefixlint.logs._numbers import count, number, seconds, text
from prefixlint.logs._usage import usage_of
from prefixlint.logs._values import decoded, pick
from prefixlint.model import JsonObject, Latency, Request, Skip

NAME = "gateway-csv"
KIND = "csv"

_TABLES: Any = (bedrock_invocation, helicone, langfuse, langsmith, litellm, litellm_spend, phoenix)
_REQUEST = ("request_json", "requestjson", "request_body", "requestbody", "full_request", "@message", "request", "body")
_OTHERS = ("payload", "prompt_json", "messages", "input", "params", "raw_request", "proxy_server_request")
_RESPONSE = ("response_json", "responsejson", "response_body", "responsebody", "full_response", "response", "output")
_TIME = ("created_at", "timestamp", "@timestamp", "time", "ts", "start_time", "starttime", "date", "logging_time")
_ID = ("id", "request_id", "requestid", "trace_id", "uuid")
_SESSION = ("session_id", "sessionid", "session", "conversation_id", "thread_id", "chat_id")
_USER = ("user_id", "userid", "user", "end_user", "customer_id")
_MODEL = ("model", "model_name", "model_id", "request_model")
_TOTAL = ("latency_ms", "duration_ms", "delay_ms", "total_time_ms", "response_time_ms", "elapsed_ms")
_FIRST = ("ttft_ms", "time_to_first_token_ms", "first_token_ms")


def detect(record: Record) -> int:
    """Recognise a column that by its name holds a body, or a cell that is one."""
    row = record.value
    if not isinstance(row, dict):
        return 0
    if _exported(record) is not None:
        return 93
    names = {name.strip().lower() for name in row if isinstance(name, str)}
    if not names.isdisjoint(_REQUEST[:4]):
        return 92
    return 60 if any(_is_json(cell) for cell in row.values()) else 0


def _exported(record: Record) -> tuple[Format, Record] | None:
    """Find the JSON format whose rows these are, and give the row as that format has it (empty cells left out)."""
    row: Any = {name: cell for name, cell in record.value.items() if cell != ""}
    logged = bedrock_invocation.unpack(row)
    value = next(iter(logged), row) if logged is not None else row
    as_json = replace(record, kind="json", value=value, body=value)
    scored = [(item.detect(as_json), item) for item in _TABLES]
    score, best = max(scored, key=lambda pair: pair[0])
    return (best, as_json) if score >= 90 else None


def _is_json(cell: Any) -> bool:
    return isinstance(cell, str) and cell[:1] in "{[" and isinstance(decoded(cell), dict | list)


class _Reader:
    def __init__(self) -> None:
        self._plain: set[tuple[str, ...]] = set()  # the columns of tables that are no export

    def feed(self, record: Record) -> list[Request | Skip] | None:
        if not isinstance(record.value, dict):
            return None
        columns = tuple(record.value)
        exported = None if columns in self._plain else _exported(record)
        if exported is None:
            self._plain.add(columns)
        else:
            item, as_json = exported
            taken = item.reader().feed(as_json)
            return None if taken is None else list(taken)
        row = {name.strip().lower(): cell for name, cell in record.value.items() if isinstance(name, str)}
        known = _known(row)
        answer = decoded(pick(row, *_RESPONSE))
        for body in _bodies(row):
            found: list[Request | Skip] = list(exchange(record, NAME, body, answer, absent=None, known=known))
            if found:
                return found
        if any(name in row for name in _REQUEST[:4]):
            return [Skip(record.path, record.line, "no-body", "the row holds no request body that can be read")]
        return None

    def finish(self) -> list[Request | Skip]:
        return []


def reader() -> Reader:
    """Give a reader; it keeps no state."""
    return _Reader()


def _bodies(row: Mapping[str, Any]) -> Iterator[Any]:
    """Give the cells that may be the body, the most telling columns first."""
    likely = [name for name in (*_REQUEST, *_OTHERS) if name in row]
    others = [name for name in row if name not in likely and name not in _RESPONSE]
    for name in (*likely, *others):
        cell = decoded(row[name])
        if isinstance(cell, dict):
            yield cell
        elif isinstance(cell, list):
            yield {"messages": cell}


def _known(row: Mapping[str, Any]) -> JsonObject:
    total, first = number(pick(row, *_TOTAL)), number(pick(row, *_FIRST))
    counters = {name: cell for name, cell in row.items() if "token" in name and count(cell) is not None}
    return {
        "id": text(pick(row, *_ID)),
        "time": seconds(pick(row, *_TIME)),
        "model": text(pick(row, *_MODEL)),
        "session": text(pick(row, *_SESSION)),
        "user": text(pick(row, *_USER)),
        "latency": Latency(None if total is None else total / 1000, None if first is None else first / 1000),
        "usage": usage_of(counters) if counters else None,
        "fields": labels({name: cell for name, cell in row.items() if cell[:1] not in ("{", "[")}),
    }
