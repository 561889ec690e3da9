"""AIBrix workloads: `{"timestamp" (ms), "requests": [{"prompt", "prompt_length", "output_length", "session_id"}]}`.

Each line holds the requests that begin at its time, maybe none. A prompt is one user message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefixlint.logs import _convert, _fields
from prefixlint.logs._rows import Rows
from prefixlint.model import Messages, Usage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prefixlint.logs import Reader, Record, RecordKind
    from prefixlint.model import Request

NAME = "aibrix"
KIND: RecordKind = "json"
STATELESS = True


def detect(record: Record) -> int:
    """Look for a time and the requests that begin at it."""
    value = record.value
    if not isinstance(value, dict) or not isinstance(value.get("requests"), list) or "timestamp" not in value:
        return 0
    requests = value["requests"]
    if not requests:
        return 80 if len(value) == 2 else 0
    return 92 if isinstance(requests[0], dict) and requests[0].keys() & {"prompt", "messages"} else 0


def reader() -> Reader:
    """Give a reader for one file."""
    return Rows(lambda record: list(_read(record)) if detect(record) else None)


def _read(record: Record) -> Iterator[Request]:
    time = _fields.number(record.value["timestamp"])
    for part, one in enumerate(record.value["requests"]):
        if not isinstance(one, dict):
            continue
        prompt = one.get("prompt")
        if isinstance(prompt, str):
            content = Messages([{"role": "user", "content": prompt}])
        else:
            found = _convert.openai_chat({"messages": prompt if isinstance(prompt, list) else one.get("messages")})
            if found is None:
                continue
            content = found
        # what a workload expects of its tokenizer is no report of a server
        usage = Usage(completion=_fields.count(one.get("output_length")))
        yield _fields.build(
            record,
            NAME,
            content,
            body=one,
            part=part,
            time=None if time is None else time / 1000,
            session=_fields.text(one.get("session_id")),
            usage=usage,
        )
