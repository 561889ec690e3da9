"""Langfuse: observations from the API (`{data, meta}` pages), the UI's export and the blob-storage export.

The API and the UI write camelCase, the blob export snake_case with `YYYY-MM-DD HH:MM:SS.ffffff` in UTC. Only
observations of type GENERATION are model calls. `input` is a list of messages, an object with `messages` and `tools`, a
provider's body, or any of these as a JSON string; LangChain's integration puts the tools into the list, as messages of
role `tool`. `usageDetails` has free keys; the prompt is the sum of all keys that begin with `input` or `cache_` where
`total` confirms that, and `input` alone where `total` confirms that instead. Traces with `observations` are taken
apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from prefixlint.logs import Reader, Record
from prefixlint.logs._exchange import exchange, labels
from prefixlint.logs._fields import from_message
from prefixlint.logs._numbers import count, number, seconds, text
from prefixlint.logs._values import decoded, pick, rows, table
from prefixlint.model import JsonObject, Latency, Output, Request, Skip, Usage

NAME = "langfuse"
KIND = "json"
WHOLE = True
STATELESS = True

_TYPES = frozenset(
    ["GENERATION", "SPAN", "EVENT", "AGENT", "TOOL", "CHAIN", "RETRIEVER", "EVALUATOR", "EMBEDDING", "GUARDRAIL"]
)
_CACHED = ("input_cached_tokens", "cache_read_input_tokens", "input_cache_read", "input_cached", "cached_tokens")
_WRITTEN = ("cache_creation_input_tokens", "input_cache_creation", "input_cache_write", "cache_write_input_tokens")


def detect(record: Record) -> int:
    """Recognise an observation: its type, its trace, its start."""
    value = record.value
    return 93 if isinstance(value, dict) and _is_observation(value) else 0


def _is_observation(value: JsonObject) -> bool:
    kind = value.get("type")
    return (
        isinstance(kind, str)
        and kind.upper() in _TYPES
        and pick(value, "startTime", "start_time") is not None
        and ("traceId" in value or "trace_id" in value)
    )


def unpack(value: Any) -> list[Any] | None:
    """Take the observations out of a page, or out of a trace (which knows session and user)."""
    if not isinstance(value, dict) or _is_observation(value):
        return None
    page = value.get("data")
    if isinstance(page, list) and any(
        isinstance(e, dict) and (_is_observation(e) or "observations" in e) for e in page[:20]
    ):
        return [held for entry in rows(page) for held in _observations(entry)]
    if any(isinstance(entry, dict) and _is_observation(entry) for entry in _listed(value)[:20]):
        return list(_observations(value))
    return None


def _listed(trace: JsonObject) -> list[Any]:
    held = decoded(trace.get("observations"))
    return held if isinstance(held, list) else []


def _observations(entry: JsonObject) -> Iterable[JsonObject]:
    if _is_observation(entry):
        return [entry]
    shared = {"sessionId": pick(entry, "sessionId", "session_id"), "userId": pick(entry, "userId", "user_id")}
    shared = {name: held for name, held in shared.items() if held is not None}
    return [{**shared, "traceId": entry.get("id"), **held} for held in rows(_listed(entry))]


class _Reader:
    def feed(self, record: Record) -> list[Request | Skip] | None:
        value = record.value
        if not isinstance(value, dict) or not _is_observation(value):
            return None
        if value["type"].upper() != "GENERATION":
            return [Skip(record.path, record.line, "not-a-request", f"an observation of type {value['type']}")]
        body = _body(value)
        answer = decoded(value.get("output"))
        known = _known(value) | {"output": _output(answer)}
        return list(exchange(record, NAME, body, answer, absent="langfuse-no-input", known=known))

    def finish(self) -> list[Request | Skip]:
        return []


def reader() -> Reader:
    """Give a reader; it keeps no state."""
    return _Reader()


def _body(value: JsonObject) -> Any:
    """Give the input as a request body; tools that stand elsewhere are put into it."""
    held = decoded(value.get("input"))
    parameters = table(pick(value, "modelParameters", "model_parameters"))
    if isinstance(held, str):
        return {"prompt": held} if held else None
    if isinstance(held, list):
        held, tools = _without_tools(held)
        body: JsonObject = {"messages": held, **({"tools": tools} if tools else {})}
    elif isinstance(held, dict):
        body = {"messages": [held]} if "role" in held and "content" in held else dict(held)
    else:
        return None
    for name in ("tools", "tool_choice", "response_format", "system"):
        found = decoded(pick(parameters, name) or table(value.get("metadata")).get(name))
        if name not in body and found is not None:
            body[name] = found
    return body


def _without_tools(messages: list[Any]) -> tuple[list[Any], list[Any]]:
    """Part messages from tool definitions that were logged as messages of role `tool`."""
    kept, tools = [], []
    for entry in messages:
        held = entry.get("content") if isinstance(entry, dict) and entry.get("role") == "tool" else None
        if isinstance(held, dict) and held.get("type") == "function" and "function" in held:
            tools.append(held)
        else:
            kept.append(entry)
    return kept, tools


def _output(answer: Any) -> Output | None:
    """Give a message or plain text that stands alone; whole responses are read with the body."""
    if isinstance(answer, str):
        return Output(text=answer)
    said = isinstance(answer, dict) and ("role" in answer or "tool_calls" in answer)
    return from_message(answer) if said else None


def _known(value: JsonObject) -> JsonObject:
    start, end = seconds(pick(value, "startTime", "start_time")), seconds(pick(value, "endTime", "end_time"))
    first = seconds(pick(value, "completionStartTime", "completion_start_time"))
    total = _duration(pick(value, "latency"), start, end)
    ttft = _duration(pick(value, "timeToFirstToken", "time_to_first_token"), start, first)
    metadata = table(value.get("metadata"))
    shown = {
        "name": value.get("name"),
        "environment": value.get("environment"),
        "project": pick(value, "projectId", "project_id"),
        "prompt_name": pick(value, "promptName", "prompt_name"),
        "level": value.get("level"),
    }
    return {
        "id": text(value.get("id")),
        "time": start,
        "model": text(pick(value, "model", "provided_model_name", "providedModelName", "model_id")),
        "session": text(pick(value, "sessionId", "session_id") or pick(metadata, "langfuse_session_id", "session_id")),
        "user": text(pick(value, "userId", "user_id") or pick(metadata, "langfuse_user_id", "user_id")),
        "latency": Latency(total, ttft),
        "usage": usage(value),
        "fields": labels(metadata) | labels(shown),
    }


def _duration(logged: Any, start: float | None, end: float | None) -> float | None:
    """Give a duration in seconds: the logged number where the two times agree with it, else their difference.

    Exports differ on whether `latency` is in seconds or milliseconds; the times tell.
    """
    said = number(logged)
    gap = None if start is None or end is None or end < start else round(end - start, 6)
    if said is None or gap is None:
        return gap if said is None else said
    return next((seconds_ for seconds_ in (said, said / 1000) if abs(seconds_ - gap) <= 0.002 + 0.01 * gap), gap)


def usage(value: Mapping[str, Any]) -> Usage | None:
    """Give the usage from `usageDetails`, or from the older `usage` and the flat counters."""
    details = {
        k: n for k, v in table(pick(value, "usageDetails", "usage_details")).items() if (n := count(v)) is not None
    }
    if not details:
        older = {**table(value.get("usage")), **value}
        prompt = count(pick(older, "promptTokens", "prompt_tokens", "input", "inputUsage", "input_usage"))
        completion = count(
            pick(older, "completionTokens", "completion_tokens", "output", "outputUsage", "output_usage")
        )
        return None if prompt is None and completion is None else Usage(prompt=prompt, completion=completion)
    cached = next((details[name] for name in _CACHED if name in details), None)
    written = next((details[name] for name in _WRITTEN if name in details), None)
    return Usage(_prompt(details, cached, written), cached, written, details.get("output"))


def _prompt(details: dict[str, int], cached: int | None, written: int | None) -> int | None:
    """Give the prompt's tokens: with or without the cached ones added to `input`, as `total` confirms."""
    plain = details.get("input")
    summed = sum(n for name, n in details.items() if name.startswith(("input", "cache_")))
    made = [details.get("output", 0), sum(n for name, n in details.items() if name.startswith("output"))]
    total = details.get("total")
    if total is not None:
        if any(summed + out == total for out in made):
            return summed
        if plain is not None and any(plain + out == total for out in made):
            return plain
    if plain is None:
        return None
    if (cached or 0) + (written or 0) > plain:  # more cached than all of it: it was left out
        return summed
    return plain if not cached and not written else None
