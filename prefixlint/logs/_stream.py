"""Streamed answers put together again: the chunks of OpenAI chat and completions, Responses and Anthropic events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prefixlint.logs._parse import maybe

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prefixlint.model import JsonObject

_ENDS = ("response.completed", "response.incomplete", "response.failed")


def from_events(text: str) -> JsonObject | None:
    """Read server-sent events (`data: {…}` lines) logged as text; None when the text is something else."""
    if "data:" not in text:
        return None
    lines = (line.removeprefix("data:").strip() for line in text.splitlines() if line.startswith("data:"))
    return merge(maybe(line) for line in lines)


def merge(chunks: Iterable[Any]) -> JsonObject | None:
    """Put chunks together to the object that the same call gives without streaming; None when they are not chunks."""
    parts = [chunk for chunk in map(maybe, chunks) if isinstance(chunk, dict)]
    parts = [_event(part) for part in parts]
    for part in parts:
        if part.get("type") in _ENDS and isinstance(part.get("response"), dict):
            return dict(part["response"])
    if any(part.get("type") == "message_start" for part in parts):
        return _anthropic(parts)
    if any(isinstance(part.get("choices"), list) for part in parts):
        return _openai(parts)
    return None


def _event(part: JsonObject) -> JsonObject:
    """Undo a logger's own `{"event": …, "data": {…}}` around an event."""
    inner = maybe(part.get("data"))
    return inner if isinstance(inner, dict) and "choices" not in part and "type" not in part else part


def _openai(parts: list[JsonObject]) -> JsonObject:
    merged: JsonObject = {}
    message: JsonObject = {"role": "assistant", "content": None}
    text: list[str] = []
    finish = None
    for part in parts:
        for key in ("id", "model", "created", "usage", "system_fingerprint", "service_tier"):
            if part.get(key) is not None:
                merged[key] = part[key]
        choices = part.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict) or choice.get("index", 0) != 0:
            continue
        finish = choice.get("finish_reason") or finish
        if isinstance(choice.get("text"), str):
            text.append(choice["text"])
        if isinstance(choice.get("delta"), dict):
            _add_delta(message, choice["delta"])
        elif isinstance(choice.get("message"), dict):
            message.update(choice["message"])
    last: JsonObject = {"index": 0, "finish_reason": finish}
    last |= {"text": "".join(text)} if text else {"message": message}
    return merged | {"choices": [last]}


def _add_delta(message: JsonObject, delta: JsonObject) -> None:
    for key in ("content", "reasoning_content", "reasoning"):
        if isinstance(delta.get(key), str):
            message[key] = (message.get(key) or "") + delta[key]
    calls = delta.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, dict):
            _add_call(message.setdefault("tool_calls", []), call)


def _add_call(calls: list[JsonObject], call: JsonObject) -> None:
    index = call.get("index")
    known = next((one for one in calls if one.get("index") == index and index is not None), None)
    if known is None:
        known = {"index": index, "type": "function", "function": {"name": "", "arguments": ""}}
        calls.append(known)
    if call.get("id"):
        known["id"] = call["id"]
    function = call.get("function")
    for key in ("name", "arguments"):
        if isinstance(function, dict) and isinstance(function.get(key), str):
            known["function"][key] += function[key]


def _anthropic(parts: list[JsonObject]) -> JsonObject:
    merged: JsonObject = {}
    blocks: dict[Any, JsonObject] = {}
    usage: JsonObject = {}
    for part in parts:
        kind = part.get("type")
        if kind == "message_start" and isinstance(part.get("message"), dict):
            merged = dict(part["message"])
            usage |= _mapping(merged.get("usage"))
        elif kind == "content_block_start":
            blocks[part.get("index")] = dict(_mapping(part.get("content_block")))
        elif kind == "content_block_delta":
            _add_block_delta(blocks.setdefault(part.get("index"), {"type": "text"}), _mapping(part.get("delta")))
        elif kind == "message_delta":
            merged |= {key: value for key, value in _mapping(part.get("delta")).items() if value is not None}
            usage |= {key: value for key, value in _mapping(part.get("usage")).items() if value is not None}
    for block in blocks.values():
        if "partial_json" in block:
            block["input"] = maybe(block.pop("partial_json")) or {}
    return merged | {"content": list(blocks.values()), "usage": usage, "role": "assistant"}


def _add_block_delta(block: JsonObject, delta: JsonObject) -> None:
    for key in ("text", "thinking", "partial_json"):
        if isinstance(delta.get(key), str):
            block[key] = (block.get(key) or "") + delta[key]


def _mapping(value: Any) -> JsonObject:
    return value if isinstance(value, dict) else {}
