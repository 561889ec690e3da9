"""LMCache agent traces: the whole prompt of each request as text.

`{"timestamp" (microseconds), "input": "…", "output": "…", "session_id"}`. The text has had no chat template of a known
model; it is tokenized as it stands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefixlint.logs import _fields
from prefixlint.logs._rows import Rows
from prefixlint.model import Output, Text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prefixlint.logs import Reader, Record, RecordKind
    from prefixlint.model import Request, Skip

NAME = "lmcache-agent"
KIND: RecordKind = "json"
STATELESS = True

_YEAR_2001_US = 10**15


def detect(record: Record) -> int:
    """`input` and `output` as strings, with a time in microseconds."""
    value = record.value
    if not isinstance(value, dict) or not isinstance(value.get("input"), str) or "output" not in value:
        return 0
    time = value.get("timestamp")
    return 92 if type(time) is int and time > _YEAR_2001_US // 2 and "model" not in value else 0


def reader() -> Reader:
    """Give a reader for one file."""
    return Rows(_read)


def _read(record: Record) -> Iterable[Request | Skip] | None:
    value = record.value
    if not detect(record):
        return None
    said = value["output"]
    output = Output(text=said) if isinstance(said, str) and said else None
    time = _fields.number(value["timestamp"])
    return [
        _fields.build(
            record,
            NAME,
            Text(value["input"]),
            body=value,
            time=None if time is None else time / 1e6,
            session=_fields.text(value.get("session_id")),
            output=output,
        )
    ]
