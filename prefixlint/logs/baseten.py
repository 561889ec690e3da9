"""Baseten traces (parquet or JSON lines): `timestamp_start_unix_ms`, `prompt`, `input_tokens`, `output_tokens`.

The prompt is text, tokenized as it stands. `provided_session_id` names the session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefixlint.logs import _fields
from prefixlint.logs._rows import Rows
from prefixlint.model import NoPrompt, Text, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prefixlint.logs import Reader, Record, RecordKind
    from prefixlint.model import Request, Skip

NAME = "baseten"
KIND: RecordKind = "json"
STATELESS = True


def detect(record: Record) -> int:
    """Look for the time column, whose name no other format has."""
    value = record.value
    return 95 if isinstance(value, dict) and "timestamp_start_unix_ms" in value else 0


def reader() -> Reader:
    """Give a reader for one file."""
    return Rows(_read)


def _read(record: Record) -> Iterable[Request | Skip] | None:
    value = record.value
    if not detect(record):
        return None
    prompt = value.get("prompt")
    start = _fields.number(value["timestamp_start_unix_ms"])
    usage = Usage(
        prompt=_fields.count(value.get("input_tokens")),
        cached=_fields.count(value.get("cached_tokens")),
        completion=_fields.count(value.get("output_tokens")),
    )
    return [
        _fields.build(
            record,
            NAME,
            Text(prompt) if isinstance(prompt, str) else NoPrompt("no-prompt"),
            body=value,
            time=None if start is None else start / 1000,
            session=_fields.text(value.get("provided_session_id")),
            usage=None if usage == Usage() else usage,
        )
    ]
