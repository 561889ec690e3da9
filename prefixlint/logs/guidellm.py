"""Data sets of GuideLLM: one conversation a row.

Columns: `prompt`, or `prompt_0`, `prompt_1`, … for the turns of a conversation; `system_prompt` or `prefix`;
`messages`, `tools`; `relative_timestamp` (seconds); `prompt_tokens_count`, `output_tokens_count`. The answers between
turns come from the server and are not in the file; an empty answer stands where one will.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from prefixlint.logs import _convert, _fields
from prefixlint.logs._rows import Rows
from prefixlint.model import Messages, Usage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from prefixlint.logs import Reader, Record, RecordKind
    from prefixlint.model import JsonObject, Request

NAME = "guidellm"
KIND: RecordKind = "json"
STATELESS = True

_TURN = re.compile(r"prompt_(\d+)")
_OWN = frozenset({"prompt_tokens_count", "output_tokens_count", "relative_timestamp", "prompt_0"})


def detect(record: Record) -> int:
    """Look for a prompt or messages with one of GuideLLM's column names."""
    value = record.value
    if not isinstance(value, dict) or "model" in value:
        return 0
    asked = isinstance(value.get("messages"), list) or any(_turns(value))
    if asked and value.keys() & _OWN:
        return 90
    return 62 if asked and ("system_prompt" in value or "prefix" in value) else 0


def reader() -> Reader:
    """Give a reader for one file."""
    return Rows(lambda record: list(_read(record)) if detect(record) else None)


def _turns(value: Mapping[str, Any]) -> list[str]:
    """Give the prompts of a row in the order of their numbers."""
    if isinstance(value.get("prompt"), str):
        return [value["prompt"]]
    numbered = [(int(found[1]), text) for name, text in value.items() if (found := _TURN.fullmatch(str(name)))]
    return [text for _, text in sorted(numbered, key=lambda pair: pair[0]) if isinstance(text, str)]


def _read(record: Record) -> Iterator[Request]:
    value = record.value
    tools = _convert.openai_tools(value)
    said: list[JsonObject] = []
    system = value.get("system_prompt", value.get("prefix"))
    if isinstance(system, str) and system:
        said.append({"role": "system", "content": system})
    given = _convert.openai_chat(value)
    if given is not None:
        yield _request(record, Messages([*said, *given.messages], tools), 0)
        return
    for part, prompt in enumerate(_turns(value)):
        said.append({"role": "user", "content": prompt})
        yield _request(record, Messages(list(said), tools), part)
        said.append({"role": "assistant", "content": ""})


def _request(record: Record, content: Messages, part: int) -> Request:
    value = record.value
    usage = Usage(
        prompt=_fields.count(value.get("prompt_tokens_count")) if part == 0 else None,
        completion=_fields.count(value.get("output_tokens_count")),
    )
    time = _fields.number(value.get("relative_timestamp"))
    session = f"{record.path}:{record.line}" if part or "prompt_0" in value else None
    return _fields.build(record, NAME, content, body=value, part=part, time=time, usage=usage, session=session)
