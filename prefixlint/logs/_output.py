"""What the model answered: response objects of OpenAI and Anthropic, whole or streamed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prefixlint.logs import _stream
from prefixlint.logs._parse import maybe
from prefixlint.model import Output

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from prefixlint.model import JsonObject

_PLACES = (
    "response",
    "response_body",
    "responseBody",
    "response_json",
    "result",
    "completion",
    "raw_response",
    "http_response",
    "resp",
    "output",
    "outputBodyJson",
    "chunks",
    "events",
)
_INSIDE = ("body", "json", "response", "message", "data", "response_body", "content")
_REASONING = ("reasoning_content", "reasoning", "thinking")


def response_of(envelope: Mapping[str, Any]) -> JsonObject | None:
    """Find the response object beside a request, by its usual names.

    It may be an object, a JSON string, server-sent events as text, or a list of streamed chunks.
    """
    for name in _PLACES:
        if name in envelope:
            found = as_response(envelope[name])
            if found is not None:
                return found
    return None


def as_response(value: Any, depth: int = 4) -> JsonObject | None:
    """Give the response object that a logged value stands for, or None when it is none."""
    value = maybe(value)
    if isinstance(value, str):
        return _stream.from_events(value)
    if isinstance(value, list):
        return _stream.merge(value)
    if not isinstance(value, dict):
        return None
    if is_response(value):
        return value
    if depth:
        for name in _INSIDE:
            found = as_response(value[name], depth - 1) if value.get(name) else None
            if found is not None:
                return found
    return value if "usage" in value else None


def is_response(value: JsonObject) -> bool:
    """Whether an object is an answer of one of the APIs."""
    return (
        isinstance(value.get("choices"), list)
        or (isinstance(value.get("content"), list) and value.get("role") == "assistant")
        or isinstance(value.get("output"), (list, dict))
        or isinstance(value.get("candidates"), list)
        or "prompt_eval_count" in value
    )


def output_of(response: Any) -> Output | None:
    """Read an answer; None when there is none (an error, an empty list of choices)."""
    if not isinstance(response, dict):
        return None
    choices = response.get("choices")
    if isinstance(choices, list):
        return _from_choice(choices[0]) if choices and isinstance(choices[0], dict) else None
    if isinstance(response.get("output"), list):
        return _from_items(response["output"], response.get("status"))
    content = response.get("content")
    if isinstance(content, list) or response.get("role") == "assistant":
        if isinstance(content, list) and not response.get("tool_calls"):
            return _from_blocks(content, response.get("stop_reason"))
        return from_message(response, response.get("finish_reason") or response.get("done_reason"))
    message = response.get("message")
    return from_message(message, response.get("done_reason")) if isinstance(message, dict) else None


def _from_choice(choice: JsonObject) -> Output | None:
    finish = choice.get("finish_reason")
    ids = choice.get("token_ids")
    ids = ids if isinstance(ids, list) else None
    message = choice.get("message")
    if isinstance(message, dict):
        return from_message(message, finish, ids)
    text = choice.get("text")
    return Output(text=text, ids=ids, finish=_word(finish)) if isinstance(text, str) else None


def from_message(message: JsonObject, finish: Any = None, ids: Sequence[int] | None = None) -> Output:
    """Read an assistant message in the OpenAI form."""
    reasoning = next((message[name] for name in _REASONING if isinstance(message.get(name), str)), None)
    calls = message.get("tool_calls")
    tool_calls = [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    return Output(plain_text(message.get("content")), reasoning, tool_calls, ids, _word(finish))


def plain_text(content: Any) -> str | None:
    """Give the text of a content: a string, or the texts of its parts put together; None when there is no text."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return None
    texts = [part if isinstance(part, str) else part.get("text") for part in content if isinstance(part, (str, dict))]
    found = [text for text in texts if isinstance(text, str)]
    return "".join(found) if found else None


def _from_blocks(blocks: list[Any], finish: Any) -> Output:
    """Read the content blocks of an Anthropic message."""
    kept = [block for block in blocks if isinstance(block, dict)]
    thinking = [block["thinking"] for block in kept if isinstance(block.get("thinking"), str)]
    return Output(
        text=plain_text([block for block in kept if block.get("type") == "text"]),
        reasoning="".join(thinking) or None,
        tool_calls=[call_of(block.get("id"), block.get("name"), block.get("input")) for block in kept if _calls(block)],
        finish=_word(finish),
    )


def _calls(block: JsonObject) -> bool:
    return block.get("type") == "tool_use"


def call_of(identity: Any, name: Any, arguments: Any) -> JsonObject:
    """Give a tool call in the OpenAI form; `arguments` stay a JSON string or an object as they were logged."""
    function = {"name": name, "arguments": {} if arguments is None else arguments}
    return {"id": identity, "type": "function", "function": function}


def _from_items(items: list[Any], status: Any) -> Output:
    """Read the output items of a Responses object."""
    texts: list[str] = []
    reasoning: list[str] = []
    calls: list[JsonObject] = []
    for item in items:
        if not isinstance(item, dict):
            continue
        kind = item.get("type")
        if kind == "function_call":
            calls.append(call_of(item.get("call_id") or item.get("id"), item.get("name"), item.get("arguments")))
        elif kind == "reasoning":
            reasoning.append(plain_text(item.get("content")) or plain_text(item.get("summary")) or "")
        elif kind in ("message", None):
            texts.append(plain_text(item.get("content")) or "")
    finish = "tool_calls" if calls else ("stop" if status == "completed" else _word(status))
    return Output("".join(texts) if texts else None, "".join(reasoning) or None, calls, None, finish)


def _word(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
