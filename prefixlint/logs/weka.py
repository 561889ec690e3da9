"""WEKA traces of agents (kv-cache-tester): one JSON document a session, with prefix hashes of full blocks.

`{"id", "block_size": 64, "hash_id_scope": "local", "requests": [{"t", "model", "in", "out", "hash_ids", "api_time"}]}`.
Sub-agents stand among the requests with `requests` of their own, whose `t` counts from the sub-agent's start. Local
ids count within the document only. The tokens behind the last full block have no hash and never match.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prefixlint.logs import _fields
from prefixlint.logs._blocks import block_hashes
from prefixlint.logs._rows import Rows, misfit
from prefixlint.model import Latency, Request, Skip, Usage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from prefixlint.logs import Reader, Record, RecordKind

NAME = "weka"
KIND: RecordKind = "json"
STATELESS = True

_BLOCK = 64  # tokens, where a document does not say
_DEPTH = 16


def detect(record: Record) -> int:
    """Look for `requests` beside the block size and scope of their hashes."""
    value = record.value
    return 95 if isinstance(value, dict) and isinstance(value.get("requests"), list) and "hash_id_scope" in value else 0


def reader() -> Reader:
    """Give a reader for one file."""
    return Rows(lambda record: list(_document(record)) if detect(record) else None)


def _document(record: Record) -> Iterator[Request | Skip]:
    value = record.value
    session = _fields.text(value.get("id")) or f"{record.path}:{record.line}"
    scope = session if value.get("hash_id_scope") == "local" else ""
    block = _fields.count(value.get("block_size")) or _BLOCK
    for part, (start, one) in enumerate(_requests(value["requests"], 0.0, _DEPTH)):
        total = _fields.count(one.get("in"))
        tail = f"{record.path}:{record.line}:{part}"
        content = block_hashes(one.get("hash_ids"), total, block, tail=tail, scope=scope)
        if content is None:
            yield misfit(record, NAME)
            continue
        took = _fields.number(one.get("api_time"))
        yield _fields.build(
            record,
            NAME,
            content,
            body=one,
            part=part,
            time=start,
            session=session,
            usage=Usage(prompt=total, completion=_fields.count(one.get("out"))),
            latency=None if took is None else Latency(total=took),
        )


def _requests(values: list[Any], start: float, depth: int) -> Iterator[tuple[float, Mapping[str, Any]]]:
    """Give each request with its time; those of a sub-agent count from the time it started."""
    for one in values:
        if not isinstance(one, dict):
            continue
        at = start + (_fields.number(one.get("t")) or 0.0)
        inner = one.get("requests")
        if isinstance(inner, list) and depth:
            yield from _requests(inner, at, depth - 1)
        elif "hash_ids" in one:
            yield at, one
