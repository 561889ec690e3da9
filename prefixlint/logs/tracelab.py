"""TraceLab rounds: usage and times of each round of Claude Code and Codex sessions, without prompts.

`{"provider", "session_id", "round_id", "model", "input_tokens_total", "prefix_tokens", "newly_append_tokens",
"output_tokens", "timing_events"}`. `prefix_tokens` came from the cache and are part of `input_tokens_total`.
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
    times = _times(value.get("timing_events"))
    provider, project = _fields.text(value.get("provider")), _fields.text(value.get("project"))
    labels = {name: text for name, text in (("provider", provider), ("project", project)) if text}
    return [
        _fields.build(
            record,
            NAME,
            NoPrompt("usage-only"),
            id=_fields.text(value.get("round_id")),
            time=times[0] if times else None,
            usage=Usage(
                prompt=total,
                cached=cached,
                written=_fields.count(value.get("claude_cache_creation_input_tokens")),
                completion=_fields.count(value.get("output_tokens")),
            ),
            latency=Latency(total=times[-1] - times[0]) if len(times) > 1 else None,
            fields=labels,
        )
    ]


def _times(events: Any) -> list[float]:
    if not isinstance(events, list):
        return []
    found = (_fields.seconds(one.get("timestamp")) for one in events if isinstance(one, dict))
    return sorted(one for one in found if one is not None)
