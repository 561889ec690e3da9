"""SGLang metrics export (`--export-metrics-to-file`): one JSON object per finished request.

`request_parameters` is a JSON string of the request object, the other keys are those of `meta_info`. Like the request
log it holds prompts only where the log level is 2 or more, and complete ones only at level 3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prefixlint.logs import _parse
from prefixlint.logs._sglang import Draft, request_of
from prefixlint.model import Request, Skip

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prefixlint.logs import Record, RecordKind

NAME = "sglang-metrics"
KIND: RecordKind = "json"
STATELESS = True


def detect(record: Record) -> int:
    """`request_parameters` beside counters of `meta_info`."""
    value = record.value
    return 95 if isinstance(value, dict) and "request_parameters" in value and _has_meta(value) else 0


def _has_meta(value: dict[str, Any]) -> bool:
    return "prompt_tokens" in value or "cached_tokens" in value or "e2e_latency" in value


def reader() -> _Reader:
    """Give a reader for one file."""
    return _Reader()


class _Reader:
    def feed(self, record: Record) -> Iterable[Request | Skip] | None:
        value = record.value
        if not detect(record):
            return None
        obj = _parse.maybe(value["request_parameters"])
        if not isinstance(obj, dict):
            reason = "the request_parameters of an SGLang metrics line are no JSON object"
            return [Skip(record.path, record.line, "invalid-json", reason)]
        rid = obj.get("rid") or value.get("id")
        draft = Draft(record.path, record.line, rid, obj, {"meta_info": value}, format=NAME)
        return [request_of(draft, None)]

    def finish(self) -> Iterable[Request | Skip]:
        return ()
