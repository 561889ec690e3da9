"""NVIDIA Dynamo traces: request traces (`dynamo.request.trace.v1`) and agentic Mooncake traces.

Request traces hold an event a line; the requests are those of type `request_end`, with `replay.input_sequence_hashes`
of blocks of `replay.trace_block_size` tokens; other events (tools, payloads) are stepped over. Agentic traces begin
with `{"schema": "dynamo.agentic_mooncake", "block_size": …}`; their requests wait for each other and have no time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prefixlint.logs import _fields
from prefixlint.logs._blocks import block_hashes
from prefixlint.logs._rows import misfit
from prefixlint.model import Latency, Request, Skip, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prefixlint.logs import Record, RecordKind

NAME = "dynamo"
KIND: RecordKind = "json"

_EVENTS = frozenset({"request_end", "request_payload", "tool_start", "tool_end", "request_start"})


def detect(record: Record) -> int:
    """Look for the name of the schema, an event of it, or a request of an agentic trace."""
    value = record.value
    if not isinstance(value, dict):
        return 0
    if str(value.get("schema", "")).startswith("dynamo."):
        return 96
    if isinstance(event := value.get("event_type"), str) and event in _EVENTS:
        return 80
    return 92 if "hash_ids" in value and "play_id" in value else 0


def reader() -> _Reader:
    """Give a reader for one file."""
    return _Reader()


class _Reader:
    def __init__(self) -> None:
        self._block: int | None = None
        self._local = False

    def feed(self, record: Record) -> Iterable[Request | Skip] | None:
        value = record.value
        if not detect(record):
            return None
        if value.get("schema") == "dynamo.agentic_mooncake":
            self._block = _fields.count(value.get("block_size"))
            self._local = value.get("hash_id_scope") == "local"
            return ()
        if "hash_ids" in value:
            return [self._agentic(record, value)]
        request = value.get("request")
        if value.get("event_type") != "request_end" or not isinstance(request, dict):
            return ()
        return [_ended(record, value, request)]

    def finish(self) -> Iterable[Request | Skip]:
        return ()

    def _agentic(self, record: Record, value: dict[str, Any]) -> Request | Skip:
        total = _fields.count(value.get("input_length"))
        play = _fields.text(value.get("play_id")) or ""
        scope = play if self._local else ""
        tail = f"{record.path}:{record.line}"
        content = block_hashes(value["hash_ids"], total, self._block or 512, tail=tail, scope=scope)
        if content is None:
            return misfit(record, NAME)
        usage = Usage(prompt=total, completion=_fields.count(value.get("output_length")))
        return _fields.build(record, NAME, content, usage=usage)


def _ended(record: Record, value: dict[str, Any], request: dict[str, Any]) -> Request | Skip:
    replay = request.get("replay")
    replay = replay if isinstance(replay, dict) else {}
    total, block = _fields.count(replay.get("input_length")), _fields.count(replay.get("trace_block_size"))
    tail = f"{record.path}:{record.line}"
    content = block_hashes(replay.get("input_sequence_hashes"), total, block, tail=tail)
    if content is None:
        return misfit(record, NAME)
    agent = value.get("agent_context")
    received, took = _fields.number(request.get("request_received_ms")), _fields.number(request.get("total_time_ms"))
    cached = _fields.count(request.get("cached_tokens"))
    return _fields.build(
        record,
        NAME,
        content,
        body=request,
        id=_fields.text(request.get("request_id")),
        time=None if received is None else received / 1000,
        session=_fields.session_of(agent) if isinstance(agent, dict) else None,
        usage=Usage(prompt=total, cached=cached, completion=_fields.count(request.get("output_tokens"))),
        latency=None if took is None else Latency(total=took / 1000),
    )
