"""Traces of kvcache-simulator: block hashes with their block size in the row.

    {"block_size": 64, "hash_ids": [2001, 2002], "input_length": 128}
    {"block_size": 64, "hash_ids": ["a", "b"], "input_length": 90, "block_tokens": [64, 26]}

Ids are numbers or strings and mean equal prefixes. `block_tokens` gives the tokens of each block; without it blocks are
full but for the last. A `timestamp` is ignored, as that tool does: the order is that of the file.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from prefixlint.logs import _fields, _hashes
from prefixlint.model import BlockHashes, Skip, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prefixlint.logs import Reader, Record, RecordKind
    from prefixlint.model import JsonObject, Request

NAME = "kvcache-simulator"
KIND: RecordKind = "json"
STATELESS = True


def detect(record: Record) -> int:
    """Take rows with hash ids and a block size of their own."""
    row = record.body
    return 88 if isinstance(row, dict) and _hashes.is_ids(row.get("hash_ids")) and "block_size" in row else 0


class _Rows:
    """Every row is read on its own."""

    def feed(self, record: Record) -> Iterable[Request | Skip] | None:
        if not detect(record):
            return None
        row = record.body
        size, sizes = _fields.count(row["block_size"]), _sizes(row)
        if not size or sizes is None:
            reason = f"{len(row['hash_ids'])} hash ids do not fit the lengths of the row"
            return (Skip(record.path, record.line, "wrong-lengths", reason),)
        completion = _fields.count(row.get("output_length"))
        usage = None if completion is None else Usage(completion=completion)
        content = BlockHashes(row["hash_ids"], sizes, size)
        return (replace(_fields.build(record, NAME, content, usage=usage), time=None),)

    def finish(self) -> Iterable[Request | Skip]:
        return ()


def _sizes(row: JsonObject) -> list[int] | None:
    size, blocks = _fields.count(row["block_size"]), len(row["hash_ids"])
    tokens: Any = row.get("block_tokens")
    if isinstance(tokens, list):
        counts = [_fields.count(one) for one in tokens]
        known = [one for one in counts if one is not None]
        return known if len(known) == blocks else None
    if not size:
        return None
    length = _fields.count(row.get("input_length", size * blocks))
    found = None if length is None else _hashes.sizes(length, size)
    return found if found is not None and len(found) == blocks else None


def reader() -> Reader:
    """Give a reader for one file."""
    return _Rows()
