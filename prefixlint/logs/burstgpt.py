"""BurstGPT traces (CSV): `Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type`, later `Session ID`.

They hold lengths and times. Nothing in them says which prompts share a prefix, so no hit rate can be given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefixlint.logs._lengths import Refusal

if TYPE_CHECKING:
    from prefixlint.logs import Reader, Record, RecordKind

NAME = "burstgpt"
KIND: RecordKind = "csv"

_COLUMNS = frozenset({"Timestamp", "Model", "Request tokens", "Response tokens"})


def detect(record: Record) -> int:
    """Look for the columns of lengths."""
    return 95 if isinstance(record.value, dict) and record.value.keys() >= _COLUMNS else 0


def reader() -> Reader:
    """Give a reader for one file."""
    return Refusal(detect)
