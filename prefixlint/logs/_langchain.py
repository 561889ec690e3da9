"""LangChain's messages, in the three forms that its tracers write, as OpenAI messages."""

from __future__ import annotations

from typing import Any

from prefixlint.logs._fields import call_of, text
from prefixlint.logs._values import decoded, pick, rows, table
from prefixlint.model import JsonObject

_ROLES = {
    "human": "user",
    "user": "user",
    "ai": "assistant",
    "assistant": "assistant",
    "system": "system",
    "developer": "developer",
    "tool": "tool",
    "function": "tool",
}


def messages(values: Any) -> list[Any]:
    """Give messages in the OpenAI form; what is no LangChain message comes back as it is.

    Read are the constructor form `{lc, type, id: […, "HumanMessage"], kwargs}`, the dict form `{type: "human", data}`,
    and the flat form `{type: "human", content}`.
    """
    return [_message(value) for value in values] if isinstance(values, list) else []


def _message(value: Any) -> Any:
    value = decoded(value)
    if not isinstance(value, dict):
        return value
    if isinstance(kwargs := value.get("kwargs"), dict) and isinstance(value.get("id"), list) and value["id"]:
        made = str(value["id"][-1]).removesuffix("Chunk").removesuffix("Message").lower()
        return _openai(kwargs.get("role") if made == "chat" else made, kwargs)
    kind = value.get("type")
    if isinstance(kind, str) and kind.removesuffix("MessageChunk").lower() in _ROLES and "role" not in value:
        kind = kind.removesuffix("MessageChunk").lower()
        data = value.get("data")
        return _openai(kind, data if isinstance(data, dict) else value)
    return value


def _openai(kind: Any, held: JsonObject) -> JsonObject:
    role = _ROLES.get(str(kind).lower(), text(kind) or "user")
    message: JsonObject = {"role": role, "content": _content(held.get("content"))}
    calls = [_call(call) for call in rows(held.get("tool_calls"))]
    extra = table(held.get("additional_kwargs"))
    if not calls:
        calls = list(rows(extra.get("tool_calls")))
    if calls:
        message["tool_calls"] = calls
    if isinstance(thought := extra.get("reasoning_content"), str):
        message["reasoning_content"] = thought
    if role == "tool":
        message["tool_call_id"] = text(held.get("tool_call_id"))
    if (name := text(held.get("name"))) is not None:
        message["name"] = name
    return message


def _content(content: Any) -> Any:
    """Leave out the blocks that repeat what `tool_calls` holds; a content that is nothing but those is none."""
    if not isinstance(content, list):
        return content or None
    kept = [{"type": "text", "text": part} if isinstance(part, str) else part for part in content]
    kept = [part for part in kept if not (isinstance(part, dict) and part.get("type") in ("tool_use", "tool_call"))]
    return kept or None


def _call(call: JsonObject) -> JsonObject:
    if isinstance(call.get("function"), dict):
        return call
    return call_of(text(call.get("id")), text(call.get("name")) or "", pick(call, "args", "arguments"))
