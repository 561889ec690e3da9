"""Qwen-Bailian usage traces (Alibaba): one request a line, known by prefix hashes of blocks of 16 tokens.

`{"chat_id", "parent_chat_id", "timestamp" (seconds), "input_length", "output_length", "type", "turn", "hash_ids"}`.
A conversation is a chain of `parent_chat_id`; its first chat names the session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prefixlint.logs import _fields
from prefixlint.logs._blocks import block_hashes
from prefixlint.logs._rows import misfit
from prefixlint.model import Request, Skip, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prefixlint.logs import Record, RecordKind

NAME = "bailian"
KIND: RecordKind = "json"

_BLOCK = 16  # tokens, from the README of the published trace


def detect(record: Record) -> int:
    """`hash_ids` beside the chain of chats."""
    value = record.value
    return 95 if isinstance(value, dict) and "hash_ids" in value and "parent_chat_id" in value else 0


def reader() -> _Reader:
    """Give a reader for one file."""
    return _Reader()


class _Reader:
    def __init__(self) -> None:
        self._roots: dict[Any, str] = {}

    def feed(self, record: Record) -> Iterable[Request | Skip] | None:
        value = record.value
        if not detect(record):
            return None
        total = _fields.count(value.get("input_length"))
        content = block_hashes(value["hash_ids"], total, _BLOCK, tail=f"{record.path}:{record.line}")
        if content is None:
            return [misfit(record, NAME)]
        chat, parent = _fields.text(value.get("chat_id")), _fields.text(value.get("parent_chat_id"))
        session = self._roots.get(parent) or (parent if parent not in (None, "-1") else chat)
        if chat and session:
            self._roots[chat] = session
        kind = _fields.text(value.get("type"))
        usage = Usage(prompt=total, completion=_fields.count(value.get("output_length")))
        return [
            _fields.build(
                record,
                NAME,
                content,
                id=chat,
                time=_fields.number(value.get("timestamp")),
                session=session,
                usage=usage,
                fields={"type": kind} if kind else None,
            )
        ]

    def finish(self) -> Iterable[Request | Skip]:
        return ()
