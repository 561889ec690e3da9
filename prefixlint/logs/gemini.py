"""Gemini `generateContent`: bodies, request/response pairs, and batch files (`{key, request}`).

A body has `contents` with `parts`; the system prompt is `systemInstruction`, tools are `functionDeclarations`; both
also in snake case, as the Python client writes them, which puts them under `config` as well. Function calls carry no id
in the classic API, so ids are made from their position in the conversation (the same prefix gets the same ids). The
model stands in the URL and not in the body: it is taken from the envelope or from the response's `modelVersion`. In the
usage, `promptTokenCount` includes `cachedContentTokenCount`. A body that names `cachedContent` begins with text that
only the server has.

Read as well: Vertex AI's request-response logging (`full_request`, `full_response`), batch output that holds no request
(usage only), and streamed answers (a list of chunks).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prefixlint.logs import Reader, Record
from prefixlint.logs._fields import build, call_of, plain_text, seconds, text, usage_of
from prefixlint.logs._values import compact, decoded, pick, rows, table
from prefixlint.model import JsonObject, Messages, NoPrompt, Output, Request, Skip, Usage

NAME = "gemini"
KIND = "json"
BODY = True
STATELESS = True

_ROLES = {"model": "assistant", "assistant": "assistant", "user": "user", "system": "system"}


def is_body(body: Any) -> bool:
    """Say whether a value is a `generateContent` body: `contents` made of `parts`, or anything with the API's words."""
    if not isinstance(body, dict) or "messages" in body:
        return False
    contents = body.get("contents")
    if isinstance(contents, list):
        return any(isinstance(entry, dict) and "parts" in entry for entry in contents) or _has_words(body)
    if isinstance(contents, dict):
        return "parts" in contents
    return isinstance(contents, str) and _has_words(body)


def _has_words(body: JsonObject) -> bool:
    words = ("systemInstruction", "system_instruction", "generationConfig", "generation_config", "config")
    return any(name in body for name in words)


def is_answer(answer: Any) -> bool:
    """Say whether a value is a response, or the list of chunks of a streamed one."""
    first = answer[0] if isinstance(answer, list) and answer else answer
    if not isinstance(first, dict):
        return False
    counts = pick(first, "usageMetadata", "usage_metadata")
    counted = isinstance(counts, dict) and any(n in counts for n in ("promptTokenCount", "prompt_token_count"))
    return counted or isinstance(first.get("candidates"), list)


def detect(record: Record) -> int:
    """Recognise the body, or an answer that stands without its request."""
    if is_body(record.body):
        return 85
    return 80 if is_body(_full_request(record.value)) or _answered(record) else 0


def _answered(record: Record) -> bool:
    """Say whether a record is an answer that stands without its request."""
    return not record.envelope and is_answer(_answer(record))


def _full_request(value: Any) -> Any:
    """Give the body in Vertex AI's request-response logging."""
    return decoded(pick(value, "full_request", "fullRequest")) if isinstance(value, dict) else None


def _answer(record: Record) -> Any:
    value = record.value if isinstance(record.value, dict) else {}
    places = (record.envelope, value) if record.envelope else (value,)
    found = next((held for place in places if (held := pick(place, "response", "full_response", "fullResponse"))), None)
    return decoded(value if found is None and is_answer(value) else found)


class _Reader:
    def feed(self, record: Record) -> list[Request | Skip] | None:
        body, answer = record.body, _answer(record)
        own = is_body(body)
        if not own:
            body = _full_request(record.value)
            own = is_body(body)
        if not own and not _answered(record):
            return None
        around: Mapping[str, Any] = record.envelope
        if not around and record.value is not body and isinstance(record.value, dict):
            around = record.value
        known: JsonObject = {
            "id": text(pick(around, "key")) or _of(answer, "responseId", "response_id"),
            "time": seconds(pick(around, "logging_time", "loggingTime", "processed_time")) if around else None,
            "model": text(pick(around, "model")) or _of(answer, "modelVersion", "model_version"),
            "usage": None if answer is None else usage(answer),
            "output": None if answer is None else output(answer),
        }
        if not own:
            return [build(record, NAME, NoPrompt("no-body"), body={}, envelope=around, **known)]
        if "config" in body:
            body = {**table(body["config"]), **body}
        if "labels" in body:
            known["user"] = text(table(body["labels"]).get("user"))
        known |= {"params": params(body), "namespace": _namespace(body)}
        return [build(record, NAME, content(body), body=body, envelope=around, **known)]

    def finish(self) -> list[Request | Skip]:
        return []


def reader() -> Reader:
    """Give a reader; it keeps no state."""
    return _Reader()


def _of(answer: Any, *names: str) -> str | None:
    return next((found for chunk in rows(answer) if (found := text(pick(chunk, *names)))), None)


def _namespace(body: JsonObject) -> tuple[str, ...] | None:
    cached = text(pick(body, "cachedContent", "cached_content"))
    return (f"cached_content={cached}",) if cached else None


def content(body: JsonObject) -> Messages:
    """Give the conversation of a body in the OpenAI form; what has a wrong type is left out."""
    messages: list[JsonObject] = []
    system = pick(body, "systemInstruction", "system_instruction")
    if system is not None:
        lines = [part["text"] for part in _parts(system) if isinstance(part.get("text"), str)]
        messages.append({"role": "system", "content": _joined(lines)})
    calls = _Calls()
    for turn in _turns(body.get("contents")):
        messages.extend(_messages(turn, calls))
    cached = text(pick(body, "cachedContent", "cached_content"))
    return Messages(messages, list(_tools(body.get("tools"))), missing="cached-content" if cached else None)


def _turns(contents: Any) -> Iterator[JsonObject]:
    contents = decoded(contents)
    if isinstance(contents, str):
        yield {"role": "user", "parts": [{"text": contents}]}
        return
    for turn in contents if isinstance(contents, list) else [contents]:
        if isinstance(turn, str):
            yield {"role": "user", "parts": [{"text": turn}]}
        elif isinstance(turn, dict):
            yield turn if "parts" in turn else {"role": "user", "parts": [turn]}


def _parts(turn: Any) -> Iterator[JsonObject]:
    """Give the parts of a content: an object with `parts`, one part, a list of parts, or plain text."""
    if isinstance(turn, dict) and "parts" in turn:
        turn = turn["parts"]
    for part in turn if isinstance(turn, list) else [turn]:
        if isinstance(part, str):
            yield {"text": part}
        elif isinstance(part, dict):
            yield part


class _Calls:
    """Hands out ids for function calls that have none, and finds the call that a response answers."""

    def __init__(self) -> None:
        self._made = 0
        self._open: list[tuple[str | None, str]] = []

    def made(self, call: JsonObject) -> str:
        self._made += 1
        made = text(call.get("id")) or f"call_{self._made}"
        self._open.append((text(call.get("name")), made))
        return made

    def answered(self, response: JsonObject) -> str | None:
        name = text(response.get("name"))
        for at, (called, made) in enumerate(self._open):
            if called == name:
                del self._open[at]
                return text(response.get("id")) or made
        return text(response.get("id"))


def _messages(turn: JsonObject, calls: _Calls) -> Iterator[JsonObject]:
    role = _ROLES.get(str(turn.get("role", "user")), "user")
    said: list[JsonObject] = []
    thoughts: list[str] = []
    called: list[JsonObject] = []
    for part in _parts(turn):
        if len(part) == 1 and isinstance(plain := part.get("text"), str):
            said.append({"type": "text", "text": plain})
        elif isinstance(call := pick(part, "functionCall", "function_call"), dict):
            called.append(call_of(calls.made(call), text(call.get("name")) or "", call.get("args")))
        elif isinstance(answer := pick(part, "functionResponse", "function_response"), dict):
            result = {"role": "tool", "content": compact(answer.get("response")), "name": text(answer.get("name"))}
            yield {**result, "tool_call_id": calls.answered(answer)}
        elif part.get("thought") is True:
            thoughts.append(text(part.get("text")) or "")
        elif (piece := _piece(part)) is not None:
            said.append(piece)
    if not (said or called or thoughts):
        return
    message: JsonObject = {"role": role, "content": _content(said)}
    if thoughts:
        message["reasoning_content"] = "".join(thoughts)
    if called:
        message["tool_calls"] = called
    yield message


def _piece(part: JsonObject) -> JsonObject | None:
    """Give a part as an OpenAI content part; what is not text keeps its bytes or address as its identity."""
    if isinstance(plain := part.get("text"), str):
        return {"type": "text", "text": plain}
    if isinstance(data := pick(part, "inlineData", "inline_data"), dict):
        mime = str(pick(data, "mimeType", "mime_type") or "")
        return _media(mime, f"data:{mime};base64,{data.get('data')}")
    if isinstance(data := pick(part, "fileData", "file_data"), dict):
        return _media(str(pick(data, "mimeType", "mime_type") or ""), str(pick(data, "fileUri", "file_uri")))
    if isinstance(code := pick(part, "executableCode", "executable_code"), dict):
        return {"type": "text", "text": str(code.get("code", ""))}
    if isinstance(run := pick(part, "codeExecutionResult", "code_execution_result"), dict):
        return {"type": "text", "text": str(run.get("output", ""))}
    return None


def _media(mime: str, address: str) -> JsonObject:
    if mime.startswith("image/") or not mime:
        return {"type": "image_url", "image_url": {"url": address}}
    return {"type": "file", "file": {"file_data": address}}


def _content(said: list[JsonObject]) -> Any:
    if not said:
        return None
    if len(said) == 1 and said[0]["type"] == "text":
        return said[0]["text"]
    return said


def _joined(lines: list[str]) -> Any:
    return lines[0] if len(lines) == 1 else [{"type": "text", "text": line} for line in lines]


def _tools(tools: Any) -> Iterator[JsonObject]:
    for tool in rows(tools):
        declarations = pick(tool, "functionDeclarations", "function_declarations")
        for declared in rows(declarations):
            function = {k: declared[k] for k in ("name", "description") if k in declared}
            schema = pick(declared, "parameters", "parametersJsonSchema", "parameters_json_schema")
            yield {"type": "function", "function": function if schema is None else {**function, "parameters": schema}}
        if declarations is None:  # a built-in tool, such as {"googleSearch": {}}, is part of the prompt as well
            yield {"type": "builtin", **tool}


def params(body: JsonObject) -> JsonObject:
    """Give the settings that change what a cache can match, under the OpenAI names."""
    generation = {**body, **table(pick(body, "generationConfig", "generation_config"))}
    chosen = {
        "tool_choice": pick(body, "toolConfig", "tool_config"),
        "response_format": pick(generation, "responseSchema", "response_schema", "responseJsonSchema"),
        "thinking": pick(generation, "thinkingConfig", "thinking_config"),
    }
    return {name: value for name, value in chosen.items() if value is not None}


def usage(answer: Any) -> Usage | None:
    """Give the usage of a response, or of the last chunk of a streamed one that has it."""
    for chunk in reversed(list(rows(answer))):
        found = usage_of(pick(chunk, "usageMetadata", "usage_metadata"))
        if found is not None:
            return found
    return None


def output(answer: Any) -> Output | None:
    """Give what the first candidate of a response generated, merged over the chunks of a streamed one."""
    parts: list[JsonObject] = []
    finish: str | None = None
    for chunk in rows(answer):
        for candidate in list(rows(chunk.get("candidates")))[:1]:
            parts.extend(_parts(candidate.get("content") or []))
            finish = text(pick(candidate, "finishReason", "finish_reason")) or finish
    if not parts:
        return None if finish is None else Output(finish=finish)
    message = next((m for m in _messages({"role": "model", "parts": parts}, _Calls()) if m["role"] != "tool"), {})
    said = plain_text(message.get("content"))
    return Output(said, message.get("reasoning_content"), message.get("tool_calls", ()), finish=finish)
