"""Amazon Bedrock Converse: bodies, and pairs with a response (`{request, response}`), streamed or not.

The blocks of `messages[].content` have no `type`; the key names the kind (`text`, `toolUse`, `toolResult`,
`reasoningContent`, `cachePoint` …), which is also how a body is recognised. Tools are `toolConfig.tools[].toolSpec`.
The model (`modelId`) often stands only in the URL. In the usage, `inputTokens` EXCLUDES cache reads and writes. Times
are not part of a body; `metrics.latencyMs` of a response gives the total.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prefixlint.logs import Reader, Record
from prefixlint.logs._fields import build, call_of, count, number, plain_text, text, usage_of
from prefixlint.logs._values import compact, decoded, pick, rows, table
from prefixlint.model import JsonObject, Latency, Messages, Output, Request, Skip, Usage

NAME = "bedrock-converse"
KIND = "json"
BODY = True
STATELESS = True

_BLOCKS = frozenset(
    "text image document video audio toolUse tool_use toolResult tool_result cachePoint cache_point guardContent "  # noqa: SIM905  # a list of words
    "guard_content reasoningContent reasoning_content citationsContent citations_content searchResult".split(" ")
)
_WORDS = ("toolConfig", "tool_config", "inferenceConfig", "inference_config", "additionalModelRequestFields")


def is_body(body: Any) -> bool:
    """Say whether a value is a Converse body: untyped content blocks, or the settings that only this API has."""
    if not isinstance(body, dict) or not isinstance(messages := body.get("messages"), list):
        return False
    if any(name in body for name in _WORDS):
        return True
    first = messages[0] if messages else None
    blocks = first.get("content") if isinstance(first, dict) else None
    return isinstance(blocks, list) and bool(blocks) and all(_untyped(block) for block in blocks)


def _untyped(block: Any) -> bool:
    return isinstance(block, dict) and "type" not in block and not _BLOCKS.isdisjoint(block)


def detect(record: Record) -> int:
    """Recognise the body."""
    body = record.body
    if not is_body(body):
        return 0
    return 85 if any(name in body for name in _WORDS) else 75


class _Reader:
    def feed(self, record: Record) -> list[Request | Skip] | None:
        body = record.body
        if not is_body(body):
            return None
        answer = decoded(pick(record.envelope, "response", "output", "outputBodyJson")) if record.envelope else None
        known: JsonObject = {
            "model": model_of(text(pick(body, "modelId", "model_id", "model"))),
            "params": params(body),
            "usage": usage(answer),
            "latency": latency(answer),
            "output": output(answer),
            "session": session(table(pick(body, "requestMetadata", "request_metadata"))),
        }
        return [build(record, NAME, content(body), **known)]

    def finish(self) -> list[Request | Skip]:
        return []


def reader() -> Reader:
    """Give a reader; it keeps no state."""
    return _Reader()


def model_of(name: str | None) -> str | None:
    """Cut the ARN of a model or an inference profile down to its id."""
    return name.rsplit("/", 1)[-1] if name and name.startswith("arn:") else name


def session(metadata: JsonObject) -> str | None:
    """Give the conversation from the free keys of `requestMetadata`."""
    names = ("session", "session_id", "sessionId", "conversation_id", "conversationId", "thread_id", "threadId")
    return text(pick(metadata, *names))


def content(body: JsonObject) -> Messages:
    """Give the conversation of a body in the OpenAI form; what has a wrong type is left out."""
    messages: list[JsonObject] = []
    system = [piece for block in _blocks(body.get("system")) for piece in _pieces(block)]
    if system:
        messages.append({"role": "system", "content": _content(system)})
    for turn in rows(body.get("messages")):
        messages.extend(_messages(turn))
    config = table(pick(body, "toolConfig", "tool_config"))
    return Messages(messages, list(_tools(config.get("tools"))))


def _blocks(value: Any) -> Iterator[JsonObject]:
    value = decoded(value) if isinstance(value, str) and value[:1] == "[" else value
    for block in value if isinstance(value, list) else [value]:
        if isinstance(block, str):
            yield {"text": block}
        elif isinstance(block, dict):
            yield block


def _messages(turn: JsonObject) -> Iterator[JsonObject]:
    role = text(turn.get("role")) or "user"
    said: list[JsonObject] = []
    called: list[JsonObject] = []
    thoughts: list[str] = []
    for block in _blocks(turn.get("content")):
        if isinstance(use := pick(block, "toolUse", "tool_use"), dict):
            called.append(_call(use))
        elif isinstance(result := pick(block, "toolResult", "tool_result"), dict):
            yield _result(result)
        elif isinstance(thought := pick(block, "reasoningContent", "reasoning_content"), dict):
            held = pick(thought, "reasoningText", "reasoning_text")
            thoughts.append(text(table(held).get("text")) or text(held) or "")
        else:
            said.extend(_pieces(block))
    if not (said or called or thoughts):
        return
    message: JsonObject = {"role": role, "content": _content(said)}
    if any(thoughts):
        message["reasoning_content"] = "".join(thoughts)
    if called:
        message["tool_calls"] = called
    yield message


def _call(use: JsonObject) -> JsonObject:
    call = text(pick(use, "toolUseId", "tool_use_id"))
    return call_of(call, text(use.get("name")) or "", decoded(use.get("input")))


def _result(result: JsonObject) -> JsonObject:
    pieces = [piece for block in _blocks(result.get("content")) for piece in _pieces(block)]
    call = text(pick(result, "toolUseId", "tool_use_id"))
    return {"role": "tool", "tool_call_id": call, "content": _content(pieces) or ""}


def _pieces(block: JsonObject) -> Iterator[JsonObject]:
    """Give a block as OpenAI content parts; a cache point is no content and gives none."""
    if isinstance(plain := block.get("text"), str):
        yield {"type": "text", "text": plain}
    elif "json" in block:
        yield {"type": "text", "text": compact(block["json"])}
    elif isinstance(guarded := pick(block, "guardContent", "guard_content"), dict):
        held = guarded.get("text")
        yield {"type": "text", "text": text(table(held).get("text")) or text(held) or ""}
    elif isinstance(cited := pick(block, "citationsContent", "citations_content"), dict):
        for inner in _blocks(cited.get("content")):
            if isinstance(plain := inner.get("text"), str):
                yield {"type": "text", "text": plain}
    elif isinstance(block.get("image"), dict):
        yield {"type": "image", "image": block["image"]}
    else:
        for kind in ("document", "video", "audio", "searchResult"):
            if isinstance(block.get(kind), dict):
                yield {"type": "file", "file": block[kind]}


def _content(said: list[JsonObject]) -> Any:
    if not said:
        return None
    return said[0]["text"] if len(said) == 1 and said[0]["type"] == "text" else said


def _tools(tools: Any) -> Iterator[JsonObject]:
    for tool in rows(tools):
        if isinstance(spec := pick(tool, "toolSpec", "tool_spec"), dict):
            function = {k: spec[k] for k in ("name", "description") if k in spec}
            schema = pick(spec, "inputSchema", "input_schema")
            held = decoded(schema["json"]) if isinstance(schema, dict) and "json" in schema else schema
            yield {"type": "function", "function": function if held is None else {**function, "parameters": held}}


def params(body: JsonObject) -> JsonObject:
    """Give the settings that change what a cache can match, under the OpenAI names."""
    config = table(pick(body, "toolConfig", "tool_config"))
    extra = table(pick(body, "additionalModelRequestFields", "additional_model_request_fields"))
    chosen = {
        "tool_choice": pick(config, "toolChoice", "tool_choice"),
        "thinking": pick(extra, "thinking", "reasoning_config"),
    }
    return {name: value for name, value in chosen.items() if value is not None}


def usage(answer: Any) -> Usage | None:
    """Give the usage of a response, or of the `metadata` event of a streamed one."""
    for event in reversed(list(rows(answer))):
        found = usage_of(event.get("usage")) or usage_of(table(event.get("metadata")).get("usage"))
        if found is not None:
            return found
    return None


def latency(answer: Any) -> Latency | None:
    """Give the total time of a response, from `metrics.latencyMs`."""
    for event in rows(answer):
        held = table(event.get("metrics")) or table(table(event.get("metadata")).get("metrics"))
        total = number(pick(held, "latencyMs", "latency_ms"))
        if total is not None:
            return Latency(total=total / 1000)
    return None


def output(answer: Any) -> Output | None:
    """Give what a response generated; the events of a streamed one are merged."""
    message, finish = _merged(answer) if isinstance(answer, list) else _whole(table(answer))
    if message is None:
        return None if finish is None else Output(finish=finish)
    made = next((m for m in _messages({"role": "assistant", **message}) if m["role"] != "tool"), {})
    said = plain_text(made.get("content"))
    return Output(said, made.get("reasoning_content"), made.get("tool_calls", ()), finish=finish)


def _whole(answer: JsonObject) -> tuple[JsonObject | None, str | None]:
    message = table(answer.get("output")).get("message")
    return (message if isinstance(message, dict) else None), text(pick(answer, "stopReason", "stop_reason"))


def _merged(events: list[Any]) -> tuple[JsonObject | None, str | None]:
    """Put the blocks of a stream together: `contentBlockStart`, `contentBlockDelta`, `messageStop`."""
    blocks: dict[int, JsonObject] = {}
    finish: str | None = None
    for event in rows(events):
        if isinstance(start := event.get("contentBlockStart"), dict):
            use = table(start.get("start")).get("toolUse")
            if isinstance(use, dict):
                blocks[count(start.get("contentBlockIndex")) or 0] = {"toolUse": {**use, "input": ""}}
        elif isinstance(change := event.get("contentBlockDelta"), dict):
            at = count(change.get("contentBlockIndex")) or 0
            _extend(blocks.setdefault(at, {}), table(change.get("delta")))
        elif isinstance(stop := event.get("messageStop"), dict):
            finish = text(stop.get("stopReason"))
    if not blocks:
        return None, finish
    return {"content": [blocks[at] for at in sorted(blocks)]}, finish


def _extend(block: JsonObject, delta: JsonObject) -> None:
    if isinstance(more := delta.get("text"), str):
        block["text"] = str(block.get("text", "")) + more
    if isinstance(use := delta.get("toolUse"), dict) and isinstance(held := block.get("toolUse"), dict):
        held["input"] = str(held.get("input", "")) + str(use.get("input", ""))
    if isinstance(thought := delta.get("reasoningContent"), dict) and isinstance(thought.get("text"), str):
        inner = block.setdefault("reasoningContent", {"reasoningText": {"text": ""}})
        inner["reasoningText"]["text"] += thought["text"]
