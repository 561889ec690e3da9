"""Anthropic Messages bodies (`POST /v1/messages`), alone or in an envelope with the response.

    {"model": "claude-…", "max_tokens": 512, "system": "…" or […blocks…], "tools": […], "messages": […]}
    {"ts": 1740992400.0, "request": {…as above…}, "response": {…}, "duration_ms": 840}

No single key is relied on: a top-level `system`, `input_schema` in tools, blocks such as `tool_use`, a response of type
`message`, or a `claude` model without OpenAI's roles each suffice. `usage.input_tokens` leaves out what was read from
and written to the cache; the sum of the three is the prompt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prefixlint.logs import _convert, _fields

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prefixlint.logs import Reader, Record, RecordKind
    from prefixlint.model import JsonObject, Request, Skip

NAME = "anthropic-messages"
KIND: RecordKind = "json"
BODY = True
STATELESS = True

# tuples: what stands in a log may be of a kind that has no hash
_BLOCKS = ("tool_use", "tool_result", "thinking", "redacted_thinking", "document", "server_tool_use")
_OPENAI_ROLES = ("system", "developer", "tool", "function")
_KEYS = ("anthropic_version", "anthropic_beta", "stop_sequences", "mcp_servers", "context_management", "container")


def detect(record: Record) -> int:
    """Score a record by the marks of this API, of which none is required."""
    body = record.body
    if not isinstance(body, dict) or not isinstance(body.get("messages"), list) or not body["messages"]:
        return 0
    if not all(isinstance(message, dict) and "role" in message for message in body["messages"]):
        return 0
    if "toolConfig" in body or "inferenceConfig" in body or _is_openai(body):
        return 0
    if any(_block_marks(message.get("content")) for message in body["messages"]) or _has_own_keys(body):
        return 80
    response = record.envelope.get("response", body.get("response"))
    if isinstance(response, dict) and response.get("type") == "message":
        return 80
    if isinstance(body.get("system"), (str, list)):
        return 70
    model = body.get("model")
    return 60 if isinstance(model, str) and model.startswith("claude") else 0


def _is_openai(body: JsonObject) -> bool:
    tools = body.get("tools")
    if isinstance(tools, list) and any(isinstance(tool, dict) and "function" in tool for tool in tools):
        return True
    return any(message.get("role") in _OPENAI_ROLES or "tool_calls" in message for message in body["messages"])


def _has_own_keys(body: JsonObject) -> bool:
    if any(key in body for key in _KEYS):
        return True
    tools = body.get("tools")
    return isinstance(tools, list) and any(isinstance(tool, dict) and "input_schema" in tool for tool in tools)


def _block_marks(content: Any) -> bool:
    return isinstance(content, list) and any(
        isinstance(block, dict)
        and (
            block.get("type") in _BLOCKS
            or "cache_control" in block
            or (block.get("type") == "image" and "source" in block)
        )
        for block in content
    )


class _Bodies:
    """Every record is read on its own."""

    def feed(self, record: Record) -> Iterable[Request | Skip] | None:
        if not detect(record):
            return None
        content = _convert.anthropic(record.body)
        return None if content is None else (_fields.build(record, NAME, content),)

    def finish(self) -> Iterable[Request | Skip]:
        return ()


def reader() -> Reader:
    """Give a reader for one file."""
    return _Bodies()
