"""LangSmith runs: exports of `list_runs`, API pages, and bulk exports (whose JSON columns are strings).

Only runs of type `llm` are model calls. `inputs` holds OpenAI's messages, a provider's whole body (the SDK's wrappers),
LangChain's form (`messages` is a list of lists of `{lc, id, kwargs}`) or plain `prompts`. Tools stand in
`extra.invocation_params`. Times are UTC without a zone. The column `session_id` is the PROJECT; conversations are in
`extra.metadata` (`thread_id`, `session_id`, `conversation_id`). Prompt counts include cached tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prefixlint.logs import Reader, Record
from prefixlint.logs._exchange import exchange, labels
from prefixlint.logs._langchain import messages as from_langchain
from prefixlint.logs._numbers import seconds, text
from prefixlint.logs._usage import usage_of
from prefixlint.logs._values import decoded, page, pick, rows, table
from prefixlint.model import JsonObject, Latency, Output, Request, Skip, Usage

NAME = "langsmith"
KIND = "json"
WHOLE = True
STATELESS = True

_THREAD = ("thread_id", "session_id", "conversation_id")  # LangSmith's own order for grouping threads


def detect(record: Record) -> int:
    """Recognise a run: its type, its inputs, its place in a trace."""
    value = record.value
    return 93 if isinstance(value, dict) and _is_run(value) else 0


def _is_run(value: JsonObject) -> bool:
    if "run_type" not in value and "runType" not in value:
        return False
    return "inputs" in value or any(name in value for name in ("dotted_order", "trace_id", "dottedOrder", "traceId"))


def unpack(value: Any) -> list[Any] | None:
    """Take the runs out of a page of the API."""
    if not isinstance(value, dict) or _is_run(value):
        return None
    return page(pick(value, "runs", "data"), _is_run)


class _Reader:
    def feed(self, record: Record) -> list[Request | Skip] | None:
        value = record.value
        if not isinstance(value, dict) or not _is_run(value):
            return None
        kind = pick(value, "run_type", "runType")
        if str(kind).lower() != "llm":
            return [Skip(record.path, record.line, "not-a-request", f"a run of type {kind}")]
        extra = table(value.get("extra"))
        outputs = table(value.get("outputs"))
        body = _body(table(value.get("inputs")), _settings(extra))
        known = _known(value, extra, outputs)
        return list(exchange(record, NAME, body, outputs, absent="langsmith-no-inputs", known=known))

    def finish(self) -> list[Request | Skip]:
        return []


def reader() -> Reader:
    """Give a reader; it keeps no state."""
    return _Reader()


def _settings(extra: JsonObject) -> JsonObject:
    return {**table(extra.get("options")), **table(pick(extra, "invocation_params", "invocationParams"))}


def _body(inputs: JsonObject, settings: JsonObject) -> JsonObject | None:
    """Give the inputs as a request body, with the tools and settings that stand beside them."""
    prompts = decoded(pick(inputs, "prompts", "prompt"))
    if "messages" not in inputs and "input" not in inputs and "contents" not in inputs and prompts:
        return {"prompt": prompts[0] if isinstance(prompts, list) and len(prompts) == 1 else prompts}
    body = dict(inputs)
    messages = decoded(inputs.get("messages"))
    if isinstance(messages, list):
        nested = [entry for entry in messages if isinstance(entry, list)]
        body["messages"] = from_langchain(nested[0] if nested else messages)
    if not any(body.get(name) for name in ("messages", "input", "contents")):
        return None
    for name in ("tools", "functions", "tool_choice", "response_format", "system"):
        if name not in body and settings.get(name) is not None:
            body[name] = decoded(settings[name])
    return body


def _known(value: JsonObject, extra: JsonObject, outputs: JsonObject) -> JsonObject:
    metadata = table(extra.get("metadata"))
    start, end = seconds(pick(value, "start_time", "startTime")), seconds(pick(value, "end_time", "endTime"))
    first = seconds(pick(value, "first_token_time", "firstTokenTime"))
    named = pick(metadata, "ls_model_name") or pick(_settings(extra), "model", "model_name", "model_id")
    shown = {
        "name": value.get("name"),
        "provider": metadata.get("ls_provider"),
        "project": pick(value, "session_name", "session_id", "sessionId"),
        "status": value.get("status"),
        "tags": ",".join(map(str, tags)) if isinstance(tags := decoded(value.get("tags")), list) and tags else None,
    }
    return {
        "id": text(value.get("id")),
        "time": start,
        "model": text(named),
        "session": text(pick(metadata, *_THREAD)),
        "user": text(pick(metadata, "user_id", "user", "userId")),
        "latency": Latency(_gap(start, end), _gap(start, first)),
        "usage": _usage(value, outputs),
        "output": _output(outputs),
        "fields": labels(metadata) | labels(shown),
    }


def _gap(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None or end < start else round(end - start, 6)


def _generated(outputs: JsonObject) -> Iterator[JsonObject]:
    """Give the messages that LangChain puts into `outputs.generations`."""
    for group in decoded(outputs.get("generations")) or []:
        for generation in rows(group):
            message = table(generation.get("message"))
            if message:
                yield table(message.get("kwargs")) or message


def _usage(value: JsonObject, outputs: JsonObject) -> Usage | None:
    """Give the usage: the message's own first, then the outputs', then the columns of the run."""
    kept = table(pick(outputs, "llm_output", "llmOutput"))
    places: list[Any] = [message.get("usage_metadata") for message in _generated(outputs)]
    places += [outputs.get("usage_metadata"), outputs.get("usage"), pick(kept, "token_usage", "usage")]
    columns = {name: value.get(name) for name in ("prompt_tokens", "completion_tokens")}
    details = table(pick(value, "prompt_token_details", "promptTokenDetails"))
    places.append({**columns, "prompt_tokens_details": details} if details else columns)
    found = [usage for place in places if (usage := usage_of(place)) is not None]
    return next((usage for usage in found if usage.cached is not None), found[0] if found else None)


def _output(outputs: JsonObject) -> Output | None:
    for message in _generated(outputs):
        made = from_langchain([{"type": "ai", **message}])[0]
        said = made.get("content")
        return Output(said if isinstance(said, str) else None, tool_calls=made.get("tool_calls", ()))
    return None
