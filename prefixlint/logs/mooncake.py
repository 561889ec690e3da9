"""Mooncake traces: prompts as prefix hashes of blocks of 512 tokens (Mooncake, FAST '25).

    {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, …]}

`timestamp` is in milliseconds from the start of the trace. There are ceil(input_length / 512) ids, each the hash of the
prompt up to the end of its block, so that equal ids mean equal prefixes; the last block may be partly filled. Other
block sizes, which some tools write in this form, are told by the same rule: the first of 512, 16, 32, 64, 128, 256,
1024, 2048 that fits the row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefixlint.logs import _fields, _hashes
from prefixlint.model import BlockHashes, Skip, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prefixlint.logs import Reader, Record, RecordKind
    from prefixlint.model import Request

NAME = "mooncake"
KIND: RecordKind = "json"
STATELESS = True

_SIZES = (512, 16, 32, 64, 128, 256, 1024, 2048)
_OTHERS = ("chat_id", "parent_chat_id", "block_size", "messages", "prompt")


def detect(record: Record) -> int:
    """Take rows with a list of hash ids and a length that no other trace's key stands beside."""
    row = record.body
    if not isinstance(row, dict) or any(key in row for key in _OTHERS):
        return 0
    return 85 if _hashes.is_ids(row.get("hash_ids")) and "input_length" in row else 0


class _Rows:
    """Every row is read on its own."""

    def feed(self, record: Record) -> Iterable[Request | Skip] | None:
        if not detect(record):
            return None
        row = record.body
        hashes = row["hash_ids"]
        length = _fields.count(row["input_length"])
        size = None if length is None else block_size(length, len(hashes))
        if length is None or size is None:
            reason = f"{len(hashes)} hash ids do not fit an input_length of {row['input_length']!r:.40}"
            return (Skip(record.path, record.line, "wrong-lengths", reason),)
        content = BlockHashes(hashes, _hashes.sizes(length, size), size)
        usage = Usage(completion=_fields.count(row.get("output_length")))
        time = _fields.number(row.get("timestamp"))
        return (
            _fields.build(
                record,
                NAME,
                content,
                time=None if time is None else time / 1000,
                usage=None if usage.completion is None else usage,
            ),
        )

    def finish(self) -> Iterable[Request | Skip]:
        return ()


def block_size(length: int, blocks: int) -> int | None:
    """Give the block size at which a prompt of `length` tokens has `blocks` blocks, or None when none does."""
    return next((size for size in _SIZES if -(-length // size) == blocks), None)


def reader() -> Reader:
    """Give a reader for one file."""
    return _Rows()
