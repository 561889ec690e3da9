"""TraceLab rounds: usage and times of each round of Claude Code and Codex sessions, without prompts.

`{"provider", "session_id", "round_id", "model", "input_tokens_total", "prefix_tokens", "newly_append_tokens",
"output_tokens", "timing_events"}`. `prefix_tokens` came from the cache and are part of `input_tokens_total`. A round
begins with the last of its inputs (tools may run side by side).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prefixlint.logs import _fields
from prefixlint.logs._rows import Rows
from prefixlint.model import Latency, NoPrompt, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prefixlint.logs import Reader, Record, RecordKind
    from prefixlint.model import Request, Skip

NAME = "tracelab"
KIND: RecordKind = "json"
STATELESS = True

_INPUTS = ("user_message", "tool_result", "tool_output")


def detect(record: Record) -> int:
    """Look for the split of a prompt into what was cached and what was appended."""
    value = record.value
    return 95 if isinstance(value, dict) and {"prefix_tokens", "newly_append_tokens"} <= value.keys() else 0


def reader() -> Reader:
    """Give a reader for one file."""
    return Rows(_read)


def _read(record: Record) -> Iterable[Request | Skip] | None:
    value = record.value
    if not detect(record):
        return None
    cached, appended = _fields.count(value["prefix_tokens"]), _fields.count(value["newly_append_tokens"])
    total = _fields.count(value.get("input_tokens_total"))
    if total is None and cached is not None and appended is not None:
        total = cached + appended
    begun, ended = _span(value.get("timing_events"))
    provider, project = _fields.text(value.get("provider")), _fields.text(value.get("project"))
    labels = {name: text for name, text in (("provider", provider), ("project", project)) if text}
    return [
        _fields.build(
            record,
            NAME,
            NoPrompt("usage-only"),
            id=_fields.text(value.get("round_id")),
            time=begun,
            usage=Usage(
                prompt=total,
                cached=cached,
                written=_fields.count(value.get("claude_cache_creation_input_tokens")),
                completion=_fields.count(value.get("output_tokens")),
            ),
            latency=None if begun is None or ended is None else Latency(total=max(ended - begun, 0.0)),
            fields=labels,
        )
    ]


def _span(events: Any) -> tuple[float | None, float | None]:
    """Give when the last input of a round was there and when its last output was."""
    came: list[float] = []
    went: list[float] = []
    for event in events if isinstance(events, list) else ():
        at = _fields.seconds(event.get("timestamp")) if isinstance(event, dict) else None
        if at is not None:
            (came if event.get("event_type") in _INPUTS else went).append(at)
    begun = max(came) if came else min(went, default=None)
    return begun, max(went, default=None)
