"""OpenAI Batch files: what was sent, and what came back.

    {"custom_id": "r1", "method": "POST", "url": "/v1/chat/completions", "body": {…}}
    {"id": "batch_req_1", "custom_id": "r1", "response": {"status_code": 200, "body": {…}}, "error": null}

The body is of any dialect. An output file holds no prompts: its requests count with the reported usage only. Requests
of a batch have no time of their own; an answer has the second in which it was made.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from prefixlint.logs import _fields
from prefixlint.logs._detect import guess_body
from prefixlint.model import NoPrompt, Skip

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prefixlint.logs import Reader, Record, RecordKind
    from prefixlint.model import Request

NAME = "openai-batch"
KIND: RecordKind = "json"
STATELESS = True


def detect(record: Record) -> int:
    """Take what has a `custom_id` beside a body with method or url, or beside a response or error."""
    value = record.value
    if not isinstance(value, dict) or "custom_id" not in value:
        return 0
    if "body" in value and ("url" in value or "method" in value):
        return 92
    return 91 if "response" in value or "error" in value else 0


class _Lines:
    """Every line is read on its own."""

    def feed(self, record: Record) -> Iterable[Request | Skip] | None:
        value = record.value
        if not detect(record):
            return None
        if "body" in value:
            return _sent(record, value)
        return (_answered(record, value),)

    def finish(self) -> Iterable[Request | Skip]:
        return ()


def _sent(record: Record, value: dict[str, Any]) -> list[Request] | tuple[Skip]:
    around = {key: held for key, held in value.items() if key != "body"}
    found = guess_body(record, value["body"], name=NAME, envelope=around)
    if not found:
        return (Skip(record.path, record.line, "not-a-prompt", "a batch request that sends no prompt"),)
    return [replace(request, id=_fields.text(value["custom_id"])) for request in found]


def _answered(record: Record, value: dict[str, Any]) -> Request | Skip:
    response = _fields.as_response(value.get("response"))
    if response is None:
        return Skip(record.path, record.line, "failed-request", "a batch request that failed")
    around = {"custom_id": value["custom_id"]}
    return _fields.build(record, NAME, NoPrompt("no-prompt"), body=value, envelope=around, response=response)


def reader() -> Reader:
    """Give a reader for one file."""
    return _Lines()
