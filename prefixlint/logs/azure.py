"""Azure LLM inference traces (CSV): `TIMESTAMP,ContextTokens,GeneratedTokens`, in the multimodal one also `NumImages`.

They hold lengths and times. Nothing in them says which prompts share a prefix, so no hit rate can be given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefixlint.logs._lengths import Refusal

if TYPE_CHECKING:
    from prefixlint.logs import Reader, Record, RecordKind

NAME = "azure"
KIND: RecordKind = "csv"

_COLUMNS = frozenset({"TIMESTAMP", "ContextTokens", "GeneratedTokens"})


def detect(record: Record) -> int:
    """Look for the three columns."""
    return 95 if isinstance(record.value, dict) and record.value.keys() >= _COLUMNS else 0


def reader() -> Reader:
    """Give a reader for one file."""
    return Refusal(detect)
