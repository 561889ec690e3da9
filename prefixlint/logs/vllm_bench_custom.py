"""Custom data sets of `vllm bench serve`: `{"prompt": "…", "output_tokens": 24}`.

The benchmark sends each prompt as one user message through the chat template, unless told to skip it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefixlint.logs import _fields
from prefixlint.logs._rows import Rows
from prefixlint.model import Messages, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prefixlint.logs import Reader, Record, RecordKind
    from prefixlint.model import Request, Skip

NAME = "vllm-bench-custom"
KIND: RecordKind = "json"
STATELESS = True


def detect(record: Record) -> int:
    """Look for a prompt and how long its answer shall be."""
    value = record.value
    if not isinstance(value, dict) or not isinstance(value.get("prompt"), str) or "model" in value:
        return 0
    return 85 if "output_tokens" in value and len(value) <= 4 else 0


def reader() -> Reader:
    """Give a reader for one file."""
    return Rows(_read)


def _read(record: Record) -> Iterable[Request | Skip] | None:
    if not detect(record):
        return None
    value = record.value
    content = Messages([{"role": "user", "content": value["prompt"]}])
    usage = Usage(completion=_fields.count(value["output_tokens"]))
    return [_fields.build(record, NAME, content, body=value, usage=usage)]
