"""CSV of token counters without prompts, as provider consoles and gateways export usage.

    usage_date_utc,model_version,api_key,usage_input_tokens_no_cache,usage_input_tokens_cache_read,…
    timestamp,model,user,prompt_tokens,cached_tokens,completion_tokens

Columns are found by the names that the providers give to counters. A file without a column of cached or written tokens
says nothing about a cache and is not read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefixlint.logs.usage_rows import row_of, usage_in

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prefixlint.logs import Reader, Record, RecordKind
    from prefixlint.model import Request, Skip

NAME = "usage-csv"
KIND: RecordKind = "csv"
STATELESS = True


def detect(record: Record) -> int:
    """Take rows with counts of prompt tokens and of cached or written ones."""
    usage = usage_in(record.value)
    known = usage is not None and usage.prompt is not None and (usage.cached is not None or usage.written is not None)
    return 6 if known else 0


class _Rows:
    """Every row is read on its own."""

    def feed(self, record: Record) -> Iterable[Request | Skip] | None:
        return (row_of(record, NAME),) if detect(record) else None

    def finish(self) -> Iterable[Request | Skip]:
        return ()


def reader() -> Reader:
    """Give a reader for one file."""
    return _Rows()
