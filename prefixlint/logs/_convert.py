"""Message lists of other APIs to the OpenAI chat form that `prefixlint.model.Messages` describes.

Nothing is dropped: what has no place in that form (images, documents, server-side tools, redacted thinking) stays as a
part of its own type. Cache markers (`cache_control`) are not text and stay only in the body.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prefixlint.logs._output import call_of
from prefixlint.model import Messages

if TYPE_CHECKING:
    from collections.abc import Mapping

    from prefixlint.model import JsonObject

_ROLES = {
    "human": "user",
    "gpt": "assistant",
    "ai": "assistant",
    "model": "assistant",
    "bot": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "function": "tool",
    "observation": "tool",
    "tool_response": "tool",
    "function_call": "assistant",
}
_STANDARD = frozenset(("system", "developer", "user", "assistant", "tool"))
_TOLD = ("user", "assistant", "system")  # the roles of most messages; a tuple, in which anything can be looked for


def role_of(name: Any) -> str:
    """Give the OpenAI role for what datasets and other APIs call it; unknown names stay as they are."""
    lowered = str(name).lower()
    return lowered if lowered in _STANDARD else _ROLES.get(lowered, str(name))


def openai_chat(body: Mapping[str, Any]) -> Messages | None:
    """Read an OpenAI chat body; None when `messages` is no list of objects with a role.

    Messages that are canonical already are not copied. Older forms (`functions`, `function_call`, role `function`) and
    other names of the reasoning become today's.
    """
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return None
    result = messages
    for position, message in enumerate(messages):
        if not isinstance(message, dict) or "role" not in message:
            return None
        if (len(message) == 2 and "content" in message and message["role"] in _TOLD) or _is_canonical(message):
            continue
        if result is messages:
            result = list(messages)
        result[position] = _modern(message)
    return Messages(result, openai_tools(body))


def _is_canonical(message: JsonObject) -> bool:
    return (
        (
            message["role"] in _STANDARD
            and "function_call" not in message
            and ("reasoning_content" in message or not ("reasoning" in message or "thinking" in message))
        )
        if isinstance(message["role"], str)
        else False
    )


def _modern(message: JsonObject) -> JsonObject:
    new = {key: value for key, value in message.items() if key not in ("function_call", "reasoning", "thinking")}
    new["role"] = role_of(message["role"])
    for key in ("reasoning", "thinking"):
        if isinstance(message.get(key), str):
            new.setdefault("reasoning_content", message[key])
    call = message.get("function_call")
    if isinstance(call, dict) and "tool_calls" not in new:
        new["tool_calls"] = [call_of(None, call.get("name"), call.get("arguments"))]
    return new


def openai_tools(body: Mapping[str, Any]) -> list[JsonObject]:
    """Give the tools of a body in the chat form, whether it has `tools` (nested or flat) or the older `functions`."""
    tools = body.get("tools")
    if isinstance(tools, list):
        if all(isinstance(tool, dict) and "function" in tool for tool in tools):
            return tools
        return [tool_of(tool) for tool in tools if isinstance(tool, dict)]
    functions = body.get("functions")
    if isinstance(functions, list):
        return [{"type": "function", "function": one} for one in functions if isinstance(one, dict)]
    return []


def tool_of(tool: JsonObject) -> JsonObject:
    """Give one tool in the chat form: Anthropic's (`input_schema`), the Responses API's (flat), or as it is.

    A tool that the provider runs itself (`web_search`) has no schema and stays as it was logged.
    """
    if "function" in tool:
        return tool
    schema = next((tool[key] for key in ("input_schema", "inputSchema", "parameters") if key in tool), None)
    if schema is None and "description" not in tool:
        return tool
    function: JsonObject = {key: tool[key] for key in ("name", "description") if key in tool}
    if schema is not None:
        function["parameters"] = schema
    if tool.get("strict") is not None:
        function["strict"] = tool["strict"]
    return {"type": "function", "function": function}


def anthropic(body: Mapping[str, Any]) -> Messages | None:
    """Read an Anthropic body: `system` as a string or blocks, messages of strings or blocks; None when it has none."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return None
    result: list[JsonObject] = []
    system = body.get("system")
    if system:
        result.append({"role": "system", "content": simple_content(system)})
    for message in messages:
        if not isinstance(message, dict) or "role" not in message:
            return None
        _add_anthropic(result, message)
    tools = body.get("tools")
    return Messages(
        result, [tool_of(tool) for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []
    )


def _add_anthropic(result: list[JsonObject], message: JsonObject) -> None:
    role, content = role_of(message["role"]), message.get("content")
    if not isinstance(content, list):
        result.append({"role": role, "content": content})
    elif role == "assistant":
        result.append(_assistant(content))
    else:
        _add_user(result, role, content)


def _assistant(blocks: list[Any]) -> JsonObject:
    message: JsonObject = {"role": "assistant", "content": None}
    kept: list[Any] = []
    thinking: list[str] = []
    calls: list[JsonObject] = []
    for block in blocks:
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "tool_use":
            calls.append(call_of(block.get("id"), block.get("name"), block.get("input")))
        elif kind == "thinking" and isinstance(block.get("thinking"), str):
            thinking.append(block["thinking"])
        else:
            kept.append(block)
    message["content"] = simple_content(kept) if kept else None
    if thinking:
        message["reasoning_content"] = "".join(thinking)
    if calls:
        message["tool_calls"] = calls
    return message


def _add_user(result: list[JsonObject], role: str, blocks: list[Any]) -> None:
    """Tool results become messages of their own, at the place where they stood."""
    kept: list[Any] = []
    for block in blocks:
        if isinstance(block, dict) and block.get("type") == "tool_result":
            if kept:
                result.append({"role": role, "content": simple_content(kept)})
                kept = []
            result.append(_tool_result(block))
        else:
            kept.append(block)
    if kept or not blocks:
        result.append({"role": role, "content": simple_content(kept) if kept else ""})


def _tool_result(block: JsonObject) -> JsonObject:
    message = {
        "role": "tool",
        "tool_call_id": block.get("tool_use_id"),
        "content": simple_content(block.get("content") or ""),
    }
    return message | {"is_error": True} if block.get("is_error") else message


def simple_content(content: Any) -> Any:
    """Give content as a string where it is one text, else as parts.

    Texts become `{"type": "text", "text"}`; the rest stays as logged, without cache markers.
    """
    if not isinstance(content, list):
        return content
    parts = [_part(part) for part in content]
    only = parts[0] if len(parts) == 1 else {}
    return only["text"] if only.get("type") == "text" and isinstance(only.get("text"), str) else parts


def _part(part: Any) -> JsonObject:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if not isinstance(part, dict):
        return {"type": "unknown", "value": part}
    text = part.get("text")
    if isinstance(text, str) and part.get("type", "text") in ("text", "input_text", "output_text"):
        return {"type": "text", "text": text}
    if "cache_control" in part:
        return {key: value for key, value in part.items() if key != "cache_control"}
    return part
