"""RAGPulse traces: the parts of RAG prompts as ids of content, in five groups.

    {"timestamp": "82", "input_length": 3112, "output_length": 192, "session_id": "…", "hash_ids":
     {"sys_prompt": [8302], "passages_ids": [7398, …], "history": […], "web_search": [], "user_input": [26923]}}

An id says what a block holds and not what stands before it, so a block counts by its path: the same passage behind
other passages is another block. Blocks stand in the order of the groups in the row. The row gives no length per id; a
block is taken as input_length / ids tokens, rounded half up, at most 512. `timestamp` is a string of seconds from the
start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefixlint.logs import _fields, _hashes
from prefixlint.model import BlockHashes, Skip, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prefixlint.logs import Reader, Record, RecordKind
    from prefixlint.model import Request

NAME = "ragpulse"
KIND: RecordKind = "json"
STATELESS = True

_BLOCK = 512


def detect(record: Record) -> int:
    """Take rows whose hash ids are an object of groups."""
    row = record.body
    if not isinstance(row, dict) or not isinstance(row.get("hash_ids"), dict):
        return 0
    return 95 if all(_hashes.is_ids(ids) for ids in row["hash_ids"].values()) else 0


class _Rows:
    """Every row is read on its own."""

    def feed(self, record: Record) -> Iterable[Request | Skip] | None:
        if not detect(record):
            return None
        row = record.body
        hashes = [f"{group}:{one}" for group, ids in row["hash_ids"].items() for one in ids]
        length = _fields.count(row.get("input_length"))
        if not hashes or not length:
            return (Skip(record.path, record.line, "wrong-lengths", "a row without ids or without input_length"),)
        size = min(_BLOCK, max(1, (2 * length + len(hashes)) // (2 * len(hashes))))
        content = BlockHashes(hashes, [size] * len(hashes), size, prefixed=False)
        completion = _fields.count(row.get("output_length"))
        usage = None if completion is None else Usage(completion=completion)
        return (_fields.build(record, NAME, content, usage=usage, time=_fields.number(row.get("timestamp"))),)

    def finish(self) -> Iterable[Request | Skip]:
        return ()


def reader() -> Reader:
    """Give a reader for one file."""
    return _Rows()
