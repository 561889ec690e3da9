"""What is sent to servers whose API is OpenAI's, and what their streams tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from prefixlint.verify.targets import Ask, Measured
from prefixlint.verify.wire import Server, Streamed

_TOKENIZED = ("messages", "tools", "chat_template", "chat_template_kwargs", "continue_final_message")

# of a logged body: what the prompt is made of. The rest would change the answer's form or length, or name its sender.
KEPT = (
    "messages", "tools", "tool_choice", "functions", "function_call", "parallel_tool_calls", "documents",
    "chat_template", "chat_template_kwargs", "add_generation_prompt", "continue_final_message", "reasoning_effort",
    "thinking", "mm_processor_kwargs",
)  # fmt: skip


def chat(body: Mapping[str, Any], ask: Ask, kept: tuple[str, ...] = KEPT) -> dict[str, Any]:
    """Give a streaming chat request with what a logged body's prompt is made of."""
    sent = {key: body[key] for key in kept if body.get(key) is not None}
    return {**sent, **_common(ask, body.get("model")), "max_tokens": ask.max_tokens}


def completion(ids: list[int], ask: Ask) -> dict[str, Any]:
    """Give a streaming completion request for token ids."""
    return {"prompt": ids, **_common(ask, None), "max_tokens": ask.max_tokens}


def salt_of(body: Mapping[str, Any], ask: Ask) -> str | None:
    """Give the namespace of a request with a logged body."""
    logged = body.get("cache_salt")
    return ask.namespace(logged if isinstance(logged, str) else None)


def _common(ask: Ask, logged_model: Any) -> dict[str, Any]:
    model = ask.model if ask.model is not None else logged_model
    sent: dict[str, Any] = {"model": model} if model is not None else {}
    sent |= {"stream": True, "stream_options": {"include_usage": True}, "temperature": ask.temperature}
    if ask.ignore_eos:
        sent["ignore_eos"] = True
    return {**sent, **ask.sampling}


def objects(streamed: Streamed) -> list[tuple[float, dict[str, Any]]]:
    """Give the events of a stream that are JSON objects, with their moments."""
    found = []
    for at, data in streamed.events:
        try:
            value = orjson.loads(data)
        except orjson.JSONDecodeError:
            continue
        if isinstance(value, dict):
            found.append((at, value))
    return found


def reading(streamed: Streamed) -> Measured:
    """Read the chunks of a chat or text completion. Without a word on cached tokens they are not known, and not 0."""
    text: list[str] = []
    ids: list[int] = []
    prompt_ids: tuple[int, ...] | None = None
    first = finish = None
    usage: dict[str, Any] = {}
    for at, chunk in objects(streamed):
        if isinstance(chunk.get("usage"), dict):
            usage = chunk["usage"]
        prompt_ids = prompt_ids or whole_ids(chunk.get("prompt_token_ids"))
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if not isinstance(choice, dict) or choice.get("index", 0) != 0:
                continue
            prompt_ids = prompt_ids or whole_ids(choice.get("prompt_token_ids"))
            said, speaks = _said(choice)
            text += said
            ids += whole_ids(choice.get("token_ids")) or ()
            finish = choice.get("finish_reason") or finish
            if first is None and (speaks or finish):
                first = at
    return Measured(
        prompt_tokens=number(usage.get("prompt_tokens")),
        cached_tokens=_cached(usage),
        output_tokens=number(usage.get("completion_tokens")),
        output_text="".join(text),
        output_ids=tuple(ids) or None,
        prompt_ids=prompt_ids,
        ttft_s=None if first is None else first - streamed.sent,
        finish=finish if isinstance(finish, str) else None,
    )


def _said(choice: dict[str, Any]) -> tuple[list[str], bool]:
    """Give the text of a choice, and whether it carries output at all (a call of a tool is output without text)."""
    inner = choice.get("delta")
    delta = inner if isinstance(inner, dict) else choice
    pieces = [delta.get(key) for key in ("reasoning_content", "reasoning", "content", "text")]
    said = [piece for piece in pieces if isinstance(piece, str) and piece]
    return said, bool(said or delta.get("tool_calls") or choice.get("token_ids"))


def _cached(usage: dict[str, Any]) -> int | None:
    for name in ("prompt_tokens_details", "input_tokens_details"):
        details = usage.get(name)
        if isinstance(details, dict) and number(details.get("cached_tokens")) is not None:
            return number(details["cached_tokens"])
    return number(usage.get("prompt_cache_hit_tokens"))  # DeepSeek's API


def number(value: Any) -> int | None:
    """Give a count; None for all else."""
    return value if type(value) is int and value >= 0 else None


def seconds(value: Any) -> float | None:
    """Give a duration; None for all else."""
    return float(value) if type(value) in (int, float) and 0 <= value < float("inf") else None


def whole_ids(value: Any) -> tuple[int, ...] | None:
    """Give token ids; None for all else."""
    if not isinstance(value, list) or not all(type(token) is int for token in value):
        return None
    return tuple(value)


def asked_tokens(server: Server, body: Mapping[str, Any], model: str | None) -> list[int] | None:
    """Ask a vLLM or SGLang server's `/tokenize` for the ids of a chat body's prompt."""
    asked = {key: body[key] for key in _TOKENIZED if body.get(key) is not None}
    asked |= {"add_generation_prompt": body.get("add_generation_prompt", True)}
    if model is not None:
        asked["model"] = model
    reply = server.post("/tokenize", orjson.dumps(asked))
    value = reply.json() if reply.status == 200 else None
    ids = whole_ids(value.get("tokens")) if isinstance(value, dict) else None
    return None if ids is None else list(ids)
