"""ShareGPT data sets, as the benchmark clients of vLLM and SGLang load them.

    [{"id": "…", "conversations": [{"from": "human", "value": "…"}, {"from": "gpt", "value": "…"}]}]

One request before each answer; the row's `id` is the session. `role` and `content` instead of `from` and `value`, a
`system` beside the turns, and one object a line are read as well. There are no times: the order is that of the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefixlint.logs import _datasets

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prefixlint.logs import Reader, Record, RecordKind
    from prefixlint.model import Request, Skip

NAME = "sharegpt"
KIND: RecordKind = "json"
STATELESS = True

_KEYS = ("conversations", "conversation")


def detect(record: Record) -> int:
    """Take a row with conversations of turns that say who speaks."""
    body = record.body
    if not isinstance(body, dict):
        return 0
    turns = next((body[key] for key in _KEYS if isinstance(body.get(key), list)), None)
    if not turns or not isinstance(turns[0], dict):
        return 0
    return 85 if "from" in turns[0] and "value" in turns[0] else 60 if "role" in turns[0] else 0


class _Rows:
    """Every row is read on its own."""

    def feed(self, record: Record) -> Iterable[Request | Skip] | None:
        if not detect(record):
            return None
        body = record.body
        turns = next(body[key] for key in _KEYS if isinstance(body.get(key), list))
        messages = _datasets.messages_of(turns, body.get("system"))
        return None if messages is None else _datasets.requests_of(record, NAME, messages)

    def finish(self) -> Iterable[Request | Skip]:
        return ()


def reader() -> Reader:
    """Give a reader for one file."""
    return _Rows()
