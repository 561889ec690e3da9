"""Everything around a prompt: time, model, session, namespace, usage, latency, answer, and values to group by.

`build` is what a format calls once it has the content. It looks where loggers put things: in the response, in the
envelope, in the body. Helpers that formats need besides are re-exported here from `_numbers`, `_usage` and `_output`.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from prefixlint.logs._labels import Labels
from prefixlint.logs._numbers import count, number, seconds, text
from prefixlint.logs._output import as_response, call_of, from_message, output_of, plain_text, response_of
from prefixlint.logs._parse import maybe
from prefixlint.logs._usage import first_count, usage_of
from prefixlint.model import Content, Latency, Request, Usage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from prefixlint.logs import Record
    from prefixlint.model import JsonObject

__all__ = [
    "as_response",
    "build",
    "call_of",
    "count",
    "first_count",
    "from_message",
    "latency_of",
    "maybe",
    "namespace_of",
    "number",
    "output_of",
    "params_of",
    "plain_text",
    "response_of",
    "seconds",
    "session_of",
    "text",
    "time_of",
    "usage_of",
    "user_of",
]

_NOTHING: Mapping[str, Any] = MappingProxyType({})
PARAMS = (
    "chat_template_kwargs",
    "chat_template",
    "reasoning_effort",
    "reasoning",
    "thinking",
    "add_generation_prompt",
    "continue_final_message",
    "add_special_tokens",
    "documents",
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    "verbosity",
    "cache_control",
    "prompt_cache_options",
    "prompt_cache_retention",
    "output_config",
    "mm_processor_kwargs",
)
# when the request came before when the line was written
_TIMES = (
    "start_time",
    "startTime",
    "request_time",
    "requestTime",
    "request_created_at",
    "requested_at",
    "requestTimestamp",
    "request_timestamp",
    "received_at",
    "timestamp",
    "time",
    "ts",
    "created_at",
    "createdAt",
    "datetime",
    "date",
    "@timestamp",
    "created",
    "event_time",
)
_ENDS = ("end_time", "endTime", "completed_at", "completedAt", "response_time_stamp", "response_timestamp")
_FIRST_TOKEN_TIMES = ("completionStartTime", "completion_start_time", "first_token_time")
_UNITS = {"_ms": 1e-3, "_s": 1.0, "_sec": 1.0, "_seconds": 1.0, "_us": 1e-6, "_ns": 1e-9, "Ms": 1e-3, "": 1.0}


def _in_units(*names: str) -> dict[str, float]:
    return {name + ending: unit for name in names for ending, unit in _UNITS.items()}


_TOTALS = _in_units(
    "latency", "duration", "total_time", "elapsed", "e2e_latency", "response_time", "request_duration", "delay"
)
_TTFTS = _in_units("ttft", "time_to_first_token", "timeToFirstToken", "first_token_latency")
_QUEUES = _in_units("queue_time", "queue")
_GENERATIONS = _in_units("generation_time")
_PREFILLS = _in_units("prefill_time", "prefill")
_SESSIONS = (
    "session_id",
    "sessionId",
    "session",
    "conversation_id",
    "conversationId",
    "conversation",
    "thread_id",
    "threadId",
    "chat_id",
)
_USERS = ("user_id", "userId", "user", "end_user", "endUser", "safety_identifier", "customer_id", "username")
_IDS = ("id", "request_id", "requestId", "req_id", "rid", "custom_id", "call_id", "uuid", "trace_id")
_SALTS = (("cache_salt", "salt"), ("extra_key", "extra_key"), ("lora_path", "lora"), ("lora_name", "lora"))
_LORAS = ("lora_request", "lora")
_SEPARATORS = frozenset(key for key, _ in _SALTS) | frozenset(_LORAS)
_ORGANISATIONS = (
    "organization",
    "organization_id",
    "organisation",
    "org_id",
    "org",
    "openai-organization",
    "tenant_id",
)
_REPLICAS = ("replica", "replica_id", "instance", "instance_id", "worker_id", "backend", "server", "pod", "host")
_AROUND = frozenset(
    (*_TIMES, "response", "response_body", "usage", "latency_ms", "latency", "duration_ms", "ttft_ms", "ttft")
)


def build(
    record: Record,
    name: str,
    content: Content,
    *,
    body: Any = None,
    envelope: Mapping[str, Any] | None = None,
    response: JsonObject | None = None,
    part: int = 0,
    **known: Any,
) -> Request:
    """Make the request of a record: `content` is the prompt, the rest is found in body, envelope and response.

    `body` and `envelope` default to the record's own, `response` to what the envelope holds. `known` are fields of
    Request that the format knows better (`time=`, `usage=`, `session=` …); one that is None is looked for.
    """
    body = record.body if body is None else body
    inside: Mapping[str, Any] = body if isinstance(body, dict) else _NOTHING
    around = record.envelope if envelope is None else envelope
    if not around and not _AROUND.isdisjoint(inside):
        around = inside  # what a logger put beside the body's own keys instead of around the body
    if response is None and around:
        response = response_of(around)
    found: dict[str, Any] = {
        "model": text(inside.get("model")),
        "params": params_of(inside),
        "namespace": namespace_of(inside, around),
        "session": session_of(inside, around),
        "user": user_of(inside, around),
        "fields": Labels(inside, around),
    }
    if around:
        found |= {
            "id": _first_text(around, _IDS),
            "time": time_of(around),
            "latency": latency_of(around),
            "replica": _first_text(around, _REPLICAS),
            "usage": usage_of(around.get("usage")) or _flat_usage(around),
        }
    if response is not None:
        _add_response(found, response)
    if found.get("id") is None:
        found["id"] = _first_text(inside, ("custom_id", "request_id", "rid", "id"))
    if found["model"] is None and around:
        found["model"] = _first_text(around, ("model", "model_name", "model_id", "modelId"))
    for key, value in known.items():
        if value is not None:
            found[key] = value
    return Request(record.path, record.line, content, name, part=record.part + part, body=body, **found)


def _add_response(found: dict[str, Any], response: JsonObject) -> None:
    found["output"] = output_of(response)
    usage = usage_of(response.get("usage"))
    if usage is not None:
        found["usage"] = usage
    if found.get("id") is None:
        found["id"] = text(response.get("id"))
    if found.get("time") is None:
        created = response.get("created")
        found["time"] = seconds(response.get("created_at") if created is None else created)
    if found["model"] is None:
        found["model"] = text(response.get("model"))
    if found.get("latency") is None:
        found["latency"] = _metrics(response.get("metrics"))


def _metrics(metrics: Any) -> Latency | None:
    """Read the `metrics` that vLLM adds to a response; the first token's time includes the wait in the queue."""
    if not isinstance(metrics, dict):
        return None
    ttft, queue = _duration(metrics, _TTFTS), _duration(metrics, _QUEUES)
    rest = _duration(metrics, _GENERATIONS)
    if ttft is None and queue is None:
        return None
    return Latency(None if ttft is None or rest is None else ttft + rest, ttft, queue)


def _flat_usage(around: Mapping[str, Any]) -> Usage | None:
    """Counters beside the request instead of in a `usage` object."""
    if not any("token" in key or "Token" in key for key in around):
        return None
    return usage_of(dict(around))


def _first_text(values: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    for name in names:
        if name in values:
            found = text(values[name])
            if found is not None:
                return found
    return None


def time_of(values: Mapping[str, Any]) -> float | None:
    """Give the time of a request from keys that loggers use for it, as seconds since the epoch."""
    for name in _TIMES:
        if name in values:
            found = seconds(values[name])
            if found is not None:
                return found
    return None


def latency_of(values: Mapping[str, Any]) -> Latency | None:
    """Give latencies from keys that loggers use for them.

    The unit is the key's ending (`_ms`, `_s`, `_us`, `_ns`), seconds without one; or the difference of two times.
    """
    total, ttft = _duration(values, _TOTALS), _duration(values, _TTFTS)
    if total is None or ttft is None:
        start = time_of(values)
        if start is not None:
            total = _since(start, values, _ENDS) if total is None else total
            ttft = _since(start, values, _FIRST_TOKEN_TIMES) if ttft is None else ttft
    queue, prefill = _duration(values, _QUEUES), _duration(values, _PREFILLS)
    if total is None and ttft is None and queue is None and prefill is None:
        return None
    return Latency(total, ttft, queue, prefill)


def _duration(values: Mapping[str, Any], keys: Mapping[str, float]) -> float | None:
    """Give the first key of a table (key to its unit in seconds) that holds a duration."""
    if keys.keys().isdisjoint(values):
        return None
    for key, unit in keys.items():
        found = number(values.get(key))
        if found is not None and found >= 0:
            return found * unit
    return None


def _since(start: float, values: Mapping[str, Any], names: tuple[str, ...]) -> float | None:
    for name in names:
        end = seconds(values[name]) if name in values else None
        if end is not None and end >= start:
            return end - start
    return None


def params_of(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Give the arguments that reach the chat template or break caches; `extra_body` of clients is looked into."""
    found = {name: body[name] for name in PARAMS if name in body}
    extra = body.get("extra_body")
    if isinstance(extra, dict):
        found |= {name: extra[name] for name in PARAMS if name in extra}
    return found or _NOTHING


def session_of(body: Mapping[str, Any], envelope: Mapping[str, Any] = _NOTHING) -> str | None:
    """Give the conversation or session that a request belongs to."""
    for values in _nested(body, envelope):
        for name in _SESSIONS:
            value = values.get(name)
            if value is not None:
                found = text(value.get("id") if isinstance(value, dict) else value)
                if found is not None:
                    return found
    return _session_in_user(body)


def _session_in_user(body: Mapping[str, Any]) -> str | None:
    """Give the session that Claude Code puts into `metadata.user_id`, as a suffix or in a JSON string."""
    metadata = body.get("metadata")
    user = metadata.get("user_id") if isinstance(metadata, dict) else None
    if not isinstance(user, str):
        return None
    held = maybe(user)
    if isinstance(held, dict):
        return text(held.get("session_id"))
    _, mark, session = user.rpartition("_session_")
    return session if mark and session else None


def user_of(body: Mapping[str, Any], envelope: Mapping[str, Any] = _NOTHING) -> str | None:
    """Give the end user of a request; `metadata.user_id` is Anthropic's place for it."""
    for values in _nested(body, envelope):
        found = _first_text(values, _USERS)
        if found is not None:
            return found
    return None


def _nested(body: Mapping[str, Any], envelope: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Give the places to look for who sent a request, the outermost first."""
    places = [envelope, envelope.get("metadata"), envelope.get("properties")] if envelope else []
    places += [body, body.get("metadata")]
    return [place for place in places if isinstance(place, dict) and place]


def namespace_of(body: Mapping[str, Any], envelope: Mapping[str, Any] = _NOTHING) -> tuple[str, ...]:
    """Give what separates caches besides the model: salts, LoRA adapters, the organisation."""
    found: list[str] = []
    for values in (body, body.get("extra_body"), envelope):
        if isinstance(values, dict) and not _SEPARATORS.isdisjoint(values):
            found += [f"{name}={value}" for key, name in _SALTS if (value := text(values.get(key))) is not None]
            found += [f"lora={adapter}" for key in _LORAS if (adapter := _adapter(values.get(key))) is not None]
    if envelope and (owner := _owner(envelope)) is not None:
        found.append(f"org={owner}")
    return tuple(dict.fromkeys(found)) if found else ()


def _owner(envelope: Mapping[str, Any]) -> str | None:
    owner = _first_text(envelope, _ORGANISATIONS)
    headers = envelope.get("headers")
    return _first_text(headers, _ORGANISATIONS) if owner is None and isinstance(headers, dict) else owner


def _adapter(value: Any) -> str | None:
    if isinstance(value, dict):
        return _first_text(value, ("lora_name", "name", "lora_int_id", "lora_path"))
    return text(value)
