"""Rows of token counters without prompts: what a server or provider reported, one object a row.

    {"timestamp": "…", "model": "…", "key": "…", "prompt_tokens": 212, "cached_tokens": 160, "completion_tokens": 24}
    {"ts": 1740992400, "response": {"object": "chat.completion", "usage": {…}, …}}
    {"object": "page", "data": [{"object": "bucket", "start_time": 1740992400, "results": [{…counters…}]}]}

The last is what the usage APIs of OpenAI and Anthropic give: sums over a bucket of time, one row a result. The rows
give the reported side of the analysis; what the cache could serve needs the prompts. A last resort: a record that
another format reads is left to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prefixlint.logs import _fields
from prefixlint.model import NoPrompt, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prefixlint.logs import Reader, Record, RecordKind
    from prefixlint.model import JsonObject, Request, Skip

NAME = "usage-rows"
KIND: RecordKind = "json"
STATELESS = True

_STARTS = ("start_time", "starting_at")
_LAST_RESORT = 6


def unpack(value: Any) -> list[JsonObject] | None:
    """Give the results of a page, or of one bucket, of a usage API."""
    if not isinstance(value, dict):
        return None
    buckets = value.get("data") if isinstance(value.get("data"), list) else [value]
    if not buckets or not all(_is_bucket(one) for one in buckets):
        return None
    return [
        {"start_time": next(bucket[key] for key in _STARTS if key in bucket), **result}
        for bucket in buckets
        for result in bucket["results"]
        if isinstance(result, dict)
    ]


def _is_bucket(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("results"), list) and any(key in value for key in _STARTS)


def detect(record: Record) -> int:
    """Take what holds a count of prompt tokens, after every other format."""
    usage = usage_in(record.value) if isinstance(record.value, dict) else None
    return _LAST_RESORT if usage is not None and usage.prompt is not None else 0


def usage_in(row: JsonObject) -> Usage | None:
    """Find the counters of a row: in its response, in `usage`, or beside the other keys."""
    response = _fields.response_of(row) or {}
    for held in (response.get("usage"), response.get("usageMetadata"), row.get("usage"), row.get("usageMetadata"), row):
        found = _fields.usage_of(held)
        if found is not None:
            return found
    return None


class _Rows:
    """Every row is read on its own."""

    def feed(self, record: Record) -> Iterable[Request | Skip] | None:
        return (row_of(record, NAME),) if detect(record) else None

    def finish(self) -> Iterable[Request | Skip]:
        return ()


def row_of(record: Record, name: str) -> Request:
    """Give the request of a row that holds counters only."""
    row = record.value
    return _fields.build(record, name, NoPrompt("no-prompt"), body=row, envelope=row, usage=usage_in(row))


def reader() -> Reader:
    """Give a reader for one file."""
    return _Rows()
