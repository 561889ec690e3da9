"""LMCache lookup logs: the chunk hashes of each lookup.

`{"timestamp" (seconds), "request_id", "model_name", "chunk_size", "seq_len", "dtypes", "shapes", "chunk_hashes"}`. Only
full chunks have a hash; the tokens behind the last one never match, as in LMCache's own simulator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefixlint.logs import _fields
from prefixlint.logs._blocks import block_hashes
from prefixlint.logs._rows import Rows, misfit
from prefixlint.model import Usage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prefixlint.logs import Reader, Record, RecordKind
    from prefixlint.model import Request, Skip

NAME = "lmcache-lookup"
KIND: RecordKind = "json"
STATELESS = True


def detect(record: Record) -> int:
    """Chunk hashes with the length and the chunk size."""
    value = record.value
    return 95 if isinstance(value, dict) and {"chunk_hashes", "seq_len", "chunk_size"} <= value.keys() else 0


def reader() -> Reader:
    """Give a reader for one file."""
    return Rows(_read)


def _read(record: Record) -> Iterable[Request | Skip] | None:
    value = record.value
    if not detect(record):
        return None
    total, chunk = _fields.count(value["seq_len"]), _fields.count(value["chunk_size"])
    content = block_hashes(value["chunk_hashes"], total, chunk, tail=f"{record.path}:{record.line}")
    if content is None:
        return [misfit(record, NAME)]
    model = _fields.text(value.get("model_name"))
    salt = _fields.text(value.get("cache_salt"))
    return [
        _fields.build(
            record,
            NAME,
            content,
            model=model,
            usage=Usage(prompt=total),
            namespace=(f"salt={salt}",) if salt else None,
        )
    ]
