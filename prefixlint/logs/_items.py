"""Items of the OpenAI Responses API to the chat form.

Consecutive items of one answer (reasoning, text, function calls) become one assistant message, as the chat route of a
server gets it. Items that have no place in the chat form (server-side tools, images) stay as parts of their own type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prefixlint.logs._convert import role_of, simple_content
from prefixlint.logs._output import call_of, plain_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prefixlint.model import JsonObject

_CALLS = ("function_call", "custom_tool_call")
_RESULTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")


def items_of(value: Any) -> list[Any] | None:
    """Give an `input` as a list of items: a string is one user message; None when it is neither."""
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    return value if isinstance(value, list) else None


def to_messages(items: Iterable[Any]) -> list[JsonObject]:
    """Give the messages that items stand for."""
    writer = Writer()
    for item in items:
        if isinstance(item, str):
            writer.messages.append({"role": "user", "content": item})
        elif isinstance(item, dict):
            writer.add(item)
    return writer.messages


class Writer:
    """Messages so far; `_answer` is the assistant message that further items of the same answer join."""

    def __init__(self) -> None:
        self.messages: list[JsonObject] = []
        self._answer: JsonObject | None = None

    def cut(self, count: int) -> None:
        """Forget all but the first `count` messages."""
        del self.messages[count:]
        self._answer = None

    def add(self, item: JsonObject) -> None:
        """Put an item where it belongs: into the answer before it, or into a message of its own."""
        kind = item.get("type", "message")
        if kind in _CALLS:
            arguments = item.get("arguments", item.get("input"))
            call = call_of(item.get("call_id") or item.get("id"), item.get("name"), arguments)
            self._join().setdefault("tool_calls", []).append(call)
        elif kind in _RESULTS:
            self._end({"role": "tool", "tool_call_id": item.get("call_id"), "content": _content(item.get("output"))})
        elif kind == "reasoning":
            self._reason(item)
        elif "role" in item:
            self._message(role_of(item["role"]), _content(item.get("content")))
        else:
            self._opaque(item)

    def _join(self) -> JsonObject:
        if self._answer is None:
            self._answer = {"role": "assistant", "content": None}
            self.messages.append(self._answer)
        return self._answer

    def _end(self, message: JsonObject) -> None:
        self._answer = None
        self.messages.append(message)

    def _message(self, role: str, content: Any) -> None:
        if role != "assistant":
            self._end({"role": role, "content": content})
            return
        if self._answer is not None and (self._answer["content"] is not None or "tool_calls" in self._answer):
            self._answer = None
        self._join()["content"] = content

    def _reason(self, item: JsonObject) -> None:
        if self._answer is not None and (self._answer["content"] is not None or "tool_calls" in self._answer):
            self._answer = None
        text = plain_text(item.get("content")) or plain_text(item.get("summary"))
        if text:
            answer = self._join()
            answer["reasoning_content"] = answer.get("reasoning_content", "") + text

    def _opaque(self, item: JsonObject) -> None:
        """Keep an item that the chat form has no place for, where it stood."""
        self._end({"role": "assistant", "content": [item]})


def _content(content: Any) -> Any:
    """Give content with its texts in the chat form, and as a string where it is text only."""
    simple = simple_content(content)
    if isinstance(simple, list) and simple and all(part.get("type") == "text" for part in simple):
        return "".join(part["text"] for part in simple)
    return simple
