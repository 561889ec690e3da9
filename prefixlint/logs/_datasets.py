"""Rows of conversation data sets to the requests that a server would have got: one before each answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prefixlint.logs import _convert, _fields
from prefixlint.logs._parse import maybe
from prefixlint.model import Messages

if TYPE_CHECKING:
    from prefixlint.logs import Record
    from prefixlint.model import JsonObject, Request

_ROW_IDS = ("id", "conversation_id", "prompt_id", "session_id", "uuid")


def messages_of(turns: Any, system: Any = None) -> list[JsonObject] | None:
    """Read turns named `role`/`content` or `from`/`value`; None when they are neither."""
    if not isinstance(turns, list) or not turns:
        return None
    found: list[JsonObject] = [{"role": "system", "content": system}] if isinstance(system, str) and system else []
    for turn in turns:
        if not isinstance(turn, dict):
            return None
        role = turn.get("role", turn.get("from"))
        if not isinstance(role, str):
            return None
        rest = {key: value for key, value in turn.items() if key not in ("role", "from", "value", "weight")}
        found.append(rest | {"role": _convert.role_of(role), "content": turn.get("content", turn.get("value"))})
    return found


def requests_of(record: Record, name: str, messages: list[JsonObject]) -> list[Request]:
    """Give one request for each answer that follows a question or a tool result, and one for an open question."""
    row = record.body
    tools = _convert.openai_tools({"tools": maybe(row.get("tools"))} if "tools" in row else row)
    session = next((text for key in _ROW_IDS if (text := _fields.text(row.get(key))) is not None), None)
    found: list[Request] = []
    for position in range(1, len(messages) + 1):
        if messages[position - 1]["role"] not in ("user", "tool"):
            continue
        answer = messages[position] if position < len(messages) else None
        if answer is not None and answer["role"] != "assistant":
            continue
        content = Messages(messages[:position], tools)
        output = None if answer is None else _fields.from_message(answer)
        part = len(found)
        found.append(_fields.build(record, name, content, part=part, output=output, session=session, id=session))
    return found
