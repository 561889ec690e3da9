"""What a response says: usage, generated text, how it ended; from JSON, server-sent events or JSON lines.

Dialects: OpenAI chat, completions and Responses (and all servers that speak them), Anthropic Messages, SGLang's
`/generate`, Gemini, Ollama. Of several choices the first is taken.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson

from prefixlint.logs._usage import usage_of

# Longest decompressed body that is looked at: a bomb must not fill the memory.
_DECOMPRESSED = 256 << 20
# Events without any of these say nothing about tokens.
_TELLING = re.compile(
    rb'"(?:usage|meta_info|usageMetadata|prompt_eval_count)":(?!null)|"finish_reason":"|"stop_reason":"'
)
_EVENT_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_LAST_USAGE = re.compile(rb'"(?:usage|usageMetadata|meta_info)"\s*:\s*(?=\{)')


@dataclass(slots=True)
class Reply:
    """What a response said. `first_at` is the number of bytes after which the first generated content was complete."""

    id: str | None = None
    model: str | None = None
    finish: str | None = None
    reported: dict[str, Any] = field(default_factory=dict)
    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    first_at: int | None = None
    streamed: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def usage(self) -> dict[str, int]:
        """Tokens by the names of `Usage`; what the server did not say is left out."""
        found = usage_of(self.reported)
        counts = {} if found is None else asdict(found)
        return {name: count for name, count in counts.items() if count is not None}


def decoded(data: bytes, encoding: str) -> tuple[bytes, str | None]:
    """Undo `Content-Encoding`; gives what could be undone and a note where that is not all."""
    for name in [part.strip().lower() for part in encoding.split(",") if part.strip()][::-1]:
        if name in {"identity", ""}:
            continue
        try:
            data, complete = _decompress(name, data)
        except Exception as error:  # noqa: BLE001  (each library has its own, and a body may hold anything)
            return b"", f"{name}: {error}"
        if not complete:
            return data, f"{name}: incomplete"
    return data, None


def read_reply(data: bytes, tail: bytes, content_type: str, *, everything: bool) -> Reply:
    """Read a response body; `tail` are the last bytes of one too long to keep, `everything` asks for the text too."""
    reply = Reply()
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "text/event-stream" or data[:6] in {b"data: ", b"event:"}:
        reply.streamed = True
        _read_events(reply, data, tail, everything=everything)
    elif kind in {"application/x-ndjson", "application/jsonl", "application/json-seq"}:
        reply.streamed = True
        _read_lines(reply, data)
    elif data:
        _read_document(reply, data, tail)
    if tail and not reply.reported:
        _usage_from_tail(reply, tail)
    return reply


def _read_events(reply: Reply, data: bytes, tail: bytes, *, everything: bool) -> None:
    for payload, end in _events(data):
        if everything or reply.first_at is None or _TELLING.search(payload):
            _take(reply, payload, end)
    if tail:
        reply.notes.append("response cut")
        first = _EVENT_END.search(tail)
        for payload, _ in _events(tail[first.end() :] if first else b""):
            if _TELLING.search(payload):
                _take(reply, payload, None)


def _events(data: bytes) -> Iterator[tuple[bytes, int]]:
    """Split a stream of server-sent events; gives the data of each and where it ends."""
    start = 0
    while start < len(data):
        found = _EVENT_END.search(data, start)
        end, after = (found.start(), found.end()) if found else (len(data), len(data))
        payload = b"\n".join(
            line[5:].removeprefix(b" ") for line in data[start:end].splitlines() if line.startswith(b"data:")
        )
        if payload and payload != b"[DONE]":
            yield payload, after
        start = after


def _read_lines(reply: Reply, data: bytes) -> None:
    at = 0
    for line in data.splitlines(keepends=True):
        at += len(line)
        if line.strip():
            _take(reply, line, at)


def _read_document(reply: Reply, data: bytes, tail: bytes) -> None:
    if tail:
        reply.notes.append("response cut")
        return
    try:
        value = orjson.loads(data)
    except ValueError:
        reply.notes.append("response is no JSON")
        return
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, dict):
            previous = reply.reported
            reply.reported = {}
            _absorb(reply, item)
            reply.reported = _summed(previous, reply.reported) if previous else reply.reported


def _take(reply: Reply, payload: bytes, end: int | None) -> None:
    try:
        item = orjson.loads(payload)
    except ValueError:
        return
    if not isinstance(item, dict):
        return
    before = _content_count(reply)
    _absorb(reply, item)
    if reply.first_at is None and end is not None and _content_count(reply) > before:
        reply.first_at = end


def _content_count(reply: Reply) -> int:
    return len(reply.text) + len(reply.reasoning) + len(reply.tool_calls)


def _absorb(reply: Reply, item: dict[str, Any]) -> None:
    """Take one JSON object of a response, whichever dialect it speaks."""
    kind = _text(item.get("type"))
    if kind is not None and kind.startswith("response."):
        _absorb_responses_event(reply, kind, item)
    elif kind in {"message_start", "content_block_start", "content_block_delta", "message_delta"}:
        _absorb_anthropic_event(reply, item)
    elif kind == "message" and isinstance(item.get("content"), list):
        _head(reply, item)
        for block in item["content"]:
            _absorb_block(reply, block)
    elif item.get("object") == "response":
        _head(reply, item)
        _absorb_output_items(reply, item.get("output"))
    elif isinstance(item.get("meta_info"), dict):
        _absorb_sglang(reply, item)
    elif isinstance(item.get("candidates"), list) or "usageMetadata" in item:
        _absorb_gemini(reply, item)
    elif "prompt_eval_count" in item or ("done" in item and "created_at" in item):
        _absorb_ollama(reply, item)
    else:
        _head(reply, item)
        _absorb_choices(reply, item.get("choices"))


def _head(reply: Reply, item: Mapping[str, Any]) -> None:
    reply.id = _text(item.get("id")) or reply.id
    reply.model = _text(item.get("model")) or reply.model
    reply.finish = _text(item.get("stop_reason")) or _text(item.get("status")) or reply.finish
    if isinstance(item.get("usage"), dict):
        reply.reported = {**reply.reported, **{k: v for k, v in item["usage"].items() if v is not None}}


def _absorb_choices(reply: Reply, choices: Any) -> None:
    for choice in _objects(choices):
        if choice.get("index", 0) != 0:
            continue
        reply.finish = _text(choice.get("finish_reason")) or reply.finish
        _add(reply.text, choice.get("text"))
        message = choice.get("message") or choice.get("delta")
        if isinstance(message, dict):
            _add(reply.text, message.get("content"))
            _add(reply.reasoning, message.get("reasoning_content") or message.get("reasoning"))
            for call in _objects(message.get("tool_calls")):
                _add_call(reply, call)


def _add_call(reply: Reply, call: dict[str, Any]) -> None:
    """Take a tool call, or the next piece of one: streamed pieces carry the `index` of their call."""
    function = call.get("function")
    function = function if isinstance(function, dict) else {}
    index = call.get("index")
    if isinstance(index, int) and 0 <= index < len(reply.tool_calls):
        known = reply.tool_calls[index]["function"]
        if isinstance(known["arguments"], str):
            known["arguments"] += _text(function.get("arguments")) or ""
        known["name"] += _text(function.get("name")) or ""
        return
    arguments = function.get("arguments")
    reply.tool_calls.append(
        {
            "id": call.get("id"),
            "type": "function",
            "function": {
                "name": _text(function.get("name")) or "",
                "arguments": arguments if isinstance(arguments, dict) else _text(arguments) or "",
            },
        }
    )


def _absorb_anthropic_event(reply: Reply, item: dict[str, Any]) -> None:
    message, delta, block = item.get("message"), item.get("delta"), item.get("content_block")
    if isinstance(message, dict):
        _head(reply, message)
    _head(reply, {"usage": item.get("usage")})
    if isinstance(block, dict):
        _absorb_block(reply, {**block, "input": ""} if block.get("type") == "tool_use" else block)
    if isinstance(delta, dict):
        reply.finish = _text(delta.get("stop_reason")) or reply.finish
        _add(reply.text, delta.get("text"))
        _add(reply.reasoning, delta.get("thinking"))
        piece = _text(delta.get("partial_json"))
        if piece and reply.tool_calls and isinstance(reply.tool_calls[-1]["function"]["arguments"], str):
            reply.tool_calls[-1]["function"]["arguments"] += piece


def _absorb_block(reply: Reply, block: Any) -> None:
    if not isinstance(block, dict):
        return
    if block.get("type") == "tool_use":
        call = {"name": block.get("name"), "arguments": block.get("input")}
        _add_call(reply, {"id": block.get("id"), "function": call})
    else:
        _add(reply.text, block.get("text"))
        _add(reply.reasoning, block.get("thinking"))


def _absorb_responses_event(reply: Reply, kind: str, item: dict[str, Any]) -> None:
    if kind.endswith("output_text.delta"):
        _add(reply.text, item.get("delta"))
    elif kind.endswith(("reasoning_text.delta", "reasoning_summary_text.delta")):
        _add(reply.reasoning, item.get("delta"))
    elif kind == "response.output_item.done":
        output = item.get("item")
        if isinstance(output, dict) and output.get("type") == "function_call":
            _absorb_output_items(reply, [output])
    elif isinstance(item.get("response"), dict):
        _head(reply, item["response"])


def _absorb_output_items(reply: Reply, items: Any) -> None:
    for item in _objects(items):
        if item.get("type") == "function_call":
            call = {"name": item.get("name"), "arguments": item.get("arguments")}
            _add_call(reply, {"id": item.get("call_id"), "function": call})
            continue
        target = reply.reasoning if item.get("type") == "reasoning" else reply.text
        for key in ("summary", "content"):
            for part in _objects(item.get(key)):
                _add(target, part.get("text"))


def _absorb_sglang(reply: Reply, item: dict[str, Any]) -> None:
    """Take an answer of `/generate`; its streams repeat the whole text so far in each event."""
    text = _text(item.get("text"))
    if text:
        reply.text[:] = [text]
    info = item["meta_info"]
    reply.id = _text(info.get("id")) or reply.id
    finish = info.get("finish_reason")
    reply.finish = _text(finish.get("type") if isinstance(finish, dict) else finish) or reply.finish
    names = ("prompt_tokens", "cached_tokens", "completion_tokens")
    reply.reported = {**reply.reported, **{k: info[k] for k in names if info.get(k) is not None}}


def _absorb_gemini(reply: Reply, item: dict[str, Any]) -> None:
    reply.id = _text(item.get("responseId")) or reply.id
    reply.model = _text(item.get("modelVersion")) or reply.model
    if isinstance(item.get("usageMetadata"), dict):
        reply.reported = item["usageMetadata"]
    candidates = item.get("candidates")
    for candidate in _objects(candidates)[:1]:
        reply.finish = _text(candidate.get("finishReason")) or reply.finish
        content = candidate.get("content")
        for part in _objects(content.get("parts") if isinstance(content, dict) else None):
            call = part.get("functionCall")
            if isinstance(call, dict):
                _add_call(reply, {"function": {"name": call.get("name"), "arguments": call.get("args")}})
            else:
                _add(reply.reasoning if part.get("thought") else reply.text, part.get("text"))


def _absorb_ollama(reply: Reply, item: dict[str, Any]) -> None:
    reply.model = _text(item.get("model")) or reply.model
    reply.finish = _text(item.get("done_reason")) or reply.finish
    _add(reply.text, item.get("response"))
    message = item.get("message")
    if isinstance(message, dict):
        _add(reply.text, message.get("content"))
        _add(reply.reasoning, message.get("thinking"))
        for call in _objects(message.get("tool_calls")):
            _add_call(reply, call)
    names = ("prompt_eval_count", "eval_count")
    reply.reported = {**reply.reported, **{k: item[k] for k in names if item.get(k) is not None}}


def _usage_from_tail(reply: Reply, tail: bytes) -> None:
    """Find the usage object in the last bytes of a document too long to be kept."""
    text = tail.decode("utf-8", "replace")
    for found in reversed(list(re.finditer(_LAST_USAGE.pattern.decode(), text))):
        try:
            value, _ = json.JSONDecoder().raw_decode(text, found.end())
        except (ValueError, RecursionError):
            continue
        reply.reported = value
        return


def _summed(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Any]:
    """Add the counters that both have: one request that held several prompts."""
    return {k: a[k] + b[k] for k in a if isinstance(a[k], int) and isinstance(b.get(k), int)}


def _add(pieces: list[str], value: Any) -> None:
    if isinstance(value, str) and value:
        pieces.append(value)


def _objects(items: Any) -> list[dict[str, Any]]:
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _decompress(name: str, data: bytes) -> tuple[bytes, bool]:
    if name in {"gzip", "x-gzip", "deflate"}:
        raw_deflate = name == "deflate" and data[:1] != b"\x78"
        window = -zlib.MAX_WBITS if raw_deflate else zlib.MAX_WBITS | 32
        inflater = zlib.decompressobj(window)
        return inflater.decompress(data, _DECOMPRESSED), inflater.eof
    if name == "zstd":
        try:
            from compression import zstd
        except ImportError:
            from backports import zstd
        unpacker = zstd.ZstdDecompressor()
        return unpacker.decompress(data, _DECOMPRESSED), unpacker.eof
    if name == "br":
        import brotli  # type: ignore[import-not-found,unused-ignore]  # used where it is installed

        return brotli.decompress(data), True
    raise ValueError("unknown encoding")
