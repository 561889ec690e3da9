"""Agentic traces of SGLang's benchmark: `{"metadata": …, "conversations": [[{"messages": […], "prompt_tokens"}, …]]}`.

Each conversation is a list of turns, each turn the messages that are new in it. The answers between turns come from
the server and are not in the file; an empty answer stands where one will, unless the next turn brings its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prefixlint.logs import _convert, _fields
from prefixlint.logs._rows import Rows
from prefixlint.model import Messages, Usage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prefixlint.logs import Reader, Record, RecordKind
    from prefixlint.model import JsonObject, Request

NAME = "sglang-bench-agentic"
KIND: RecordKind = "json"
STATELESS = True


def detect(record: Record) -> int:
    """Conversations as lists of turns with messages."""
    value = record.value
    conversations = value.get("conversations") if isinstance(value, dict) else None
    return 93 if isinstance(conversations, list) and any(_is_turns(one) for one in conversations[:8]) else 0


def _is_turns(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict) and "messages" in value[0]


def reader() -> Reader:
    """Give a reader for one file."""
    return Rows(lambda record: list(_read(record)) if detect(record) else None)


def _read(record: Record) -> Iterator[Request]:
    part = 0
    for number, turns in enumerate(record.value["conversations"]):
        if not _is_turns(turns):
            continue
        said: list[JsonObject] = []
        for turn in turns:
            new = _convert.openai_chat(turn) if isinstance(turn, dict) else None
            if new is None:
                continue
            if said and new.messages[0]["role"] != "assistant":
                said.append({"role": "assistant", "content": ""})
            said.extend(new.messages)
            # the count includes the answers that the file leaves out, so it is no count of this prompt
            length = _fields.count(turn.get("max_tokens", turn.get("output_tokens")))
            usage = None if length is None else Usage(completion=length)
            session = f"{record.path}:{number}"
            content = Messages(list(said), new.tools)
            yield _fields.build(record, NAME, content, body=turn, part=part, session=session, usage=usage)
            part += 1
