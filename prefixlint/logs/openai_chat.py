"""OpenAI chat completions bodies (`POST /v1/chat/completions`), alone or in an envelope with the response.

Also what vLLM, SGLang, llama.cpp and most gateways take. One object a line:

    {"model": "…", "messages": [{"role": "user", "content": "…"}], "tools": […]}
    {"timestamp": "…", "session_id": "…", "request": {…as above…}, "response": {…}, "latency_ms": 840}

The body has no time: it comes from the envelope or from the response's `created`. The older `functions` and
`function_call` are read as tools. A body of the same shape that has marks of another API is declined.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prefixlint.logs import _convert, _fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from prefixlint.logs import Reader, Record, RecordKind
    from prefixlint.model import Request, Skip

NAME = "openai-chat"
KIND: RecordKind = "json"
BODY = True
STATELESS = True

_FOREIGN_BLOCKS = ("tool_use", "tool_result", "thinking", "redacted_thinking")
_CALL_KEYS = (
    "model",
    "temperature",
    "max_tokens",
    "max_completion_tokens",
    "stream",
    "top_p",
    "stop",
    "seed",
    "user",
    "n",
    "timestamp",
    "session_id",
    "continue_final_message",
    "add_generation_prompt",
)


def detect(record: Record) -> int:
    """Score a record by its body: the shape, and marks that only this API has."""
    body = record.body
    if not _has_shape(body) or is_foreign(body):
        return 0
    messages = body["messages"]
    if _is_row(body, record.envelope):
        return 0
    score = 50
    if any(message.get("role") in ("system", "developer", "tool") or "tool_calls" in message for message in messages):
        score += 5
    tools = body.get("tools")
    if isinstance(tools, list) and tools and isinstance(tools[0], dict) and "function" in tools[0]:
        score += 5
    response = record.envelope.get("response", body.get("response"))
    if isinstance(response, dict) and "choices" in response:
        score += 15
    return score


def _has_shape(body: Any) -> bool:
    if not isinstance(body, dict):
        return False
    messages = body.get("messages")
    return (
        isinstance(messages, list)
        and bool(messages)
        and all(isinstance(message, dict) and "role" in message for message in messages)
    )


def is_call(body: Mapping[str, Any], envelope: Mapping[str, Any]) -> bool:
    """Whether a body was sent to a server, rather than being a row of a data set."""
    return bool(envelope) or any(key in body for key in _CALL_KEYS)


def _is_row(body: Mapping[str, Any], envelope: Mapping[str, Any]) -> bool:
    """Whether a body is a finished conversation of a data set, whose last answer was no part of a prompt."""
    return bool(body["messages"][-1].get("role") == "assistant") and not is_call(body, envelope)


def _is_answered_by_another(record: Record) -> bool:
    """Whether the answer is one of the Anthropic API."""
    response = record.envelope.get("response", record.body.get("response"))
    return isinstance(response, dict) and response.get("type") == "message" and "choices" not in response


def is_foreign(body: Mapping[str, Any]) -> bool:
    """Whether a body has marks of the Anthropic, Bedrock or Gemini API."""
    if "system" in body or "toolConfig" in body or "inferenceConfig" in body or "contents" in body:
        return True
    tools = body.get("tools")
    if isinstance(tools, list) and tools and isinstance(tools[0], dict) and "input_schema" in tools[0]:
        return True
    for message in body["messages"]:
        content = message.get("content") if isinstance(message, dict) else None
        if type(content) is list:
            for part in content:
                if type(part) is dict and (part.get("type", "") in _FOREIGN_BLOCKS or "type" not in part):
                    return True
    return False


class _Bodies:
    """Every record is read on its own."""

    def feed(self, record: Record) -> Iterable[Request | Skip] | None:
        body = record.body
        if not isinstance(body, dict):
            return None
        content = _convert.openai_chat(body)
        if content is None or is_foreign(body) or _is_row(body, record.envelope) or _is_answered_by_another(record):
            return None
        return (_fields.build(record, NAME, content),)

    def finish(self) -> Iterable[Request | Skip]:
        return ()


def reader() -> Reader:
    """Give a reader for one file."""
    return _Bodies()
