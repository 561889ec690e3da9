"""Amazon Bedrock model invocation logs (`schemaType: ModelInvocationLog`), from S3 or CloudWatch.

`operation` and the model decide the dialect of `input.inputBodyJson`: Converse, or the model's own (Anthropic, Llama
`prompt`, Titan `inputText`, …) for InvokeModel; here the body's shape decides, which needs neither. The body may be a
JSON string; bodies over 100 KB are not in the log but in S3 (`inputBodyS3Path`), as are those whose delivery is
switched off: then only the counters remain. `inputTokenCount` EXCLUDES cache reads and writes, which stand beside it.
Streamed answers are lists of chunks, whose last one may hold `amazon-bedrock-invocationMetrics` with the times.
CloudWatch wraps each record as text in `message` or `@message`. The timestamp has a grain of one second. The user is
the session name at the end of `identity.arn`; account and region separate caches.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from prefixlint.logs import Reader, Record
from prefixlint.logs import bedrock_converse as converse
from prefixlint.logs._exchange import exchange, labels
from prefixlint.logs._numbers import number, seconds, text
from prefixlint.logs._usage import usage_of
from prefixlint.logs._values import decoded, pick, rows, table
from prefixlint.model import JsonObject, Latency, Request, Skip, Usage

NAME = "bedrock-invocation"
KIND = "json"
WHOLE = True
STATELESS = True

_NOT_PROMPTS = ("embed", "rerank", "image", "canvas", "reel", "stable-diffusion", "sonic")


def detect(record: Record) -> int:
    """Recognise the schema's name."""
    value = record.value
    return 98 if isinstance(value, dict) and _is_log(value) else 0


def _is_log(value: JsonObject) -> bool:
    if value.get("schemaType") == "ModelInvocationLog" or value.get("schema_type") == "ModelInvocationLog":
        return True
    held = value.get("input")
    return isinstance(held, dict) and "operation" in value and ("inputBodyJson" in held or "inputBodyS3Path" in held)


def unpack(value: Any) -> Iterable[Any] | None:
    """Take the records out of CloudWatch: one event (`message`, `@message`), or a download or subscription of many."""
    if not isinstance(value, dict) or _is_log(value):
        return None
    many = pick(value, "logEvents", "events")
    if isinstance(many, list):
        found = [log for event in rows(many) if (log := _wrapped(event)) is not None]
        return found or None
    log = _wrapped(value)
    return None if log is None else [log]


def _wrapped(event: JsonObject) -> JsonObject | None:
    message = pick(event, "@message", "message")
    if isinstance(message, str) and "ModelInvocationLog" not in message:
        return None
    log = decoded(message)
    return log if isinstance(log, dict) and _is_log(log) else None


class _Reader:
    def feed(self, record: Record) -> list[Request | Skip] | None:
        value = record.value
        if not isinstance(value, dict) or not _is_log(value):
            return None
        model = converse.model_of(text(pick(value, "modelId", "model_id")))
        if model and any(part in model for part in _NOT_PROMPTS):
            return [Skip(record.path, record.line, "not-a-request", f"{model} takes no prompt to continue")]
        given, made = table(value.get("input")), table(value.get("output"))
        body = decoded(pick(given, "inputBodyJson", "input_body_json"))
        answer = decoded(pick(made, "outputBodyJson", "output_body_json"))
        absent = "bedrock-body-in-s3" if pick(given, "inputBodyS3Path", "input_body_s3_path") else "bedrock-no-body"
        if isinstance(body, dict) and isinstance(prompt := body.get("inputText"), str):
            body = {"prompt": prompt}
        known = _known(value, given, made) | {"model": model, "latency": _latency(answer)}
        return list(exchange(record, NAME, body, answer, absent=absent, known=known))

    def finish(self) -> list[Request | Skip]:
        return []


def reader() -> Reader:
    """Give a reader; it keeps no state."""
    return _Reader()


def _known(value: JsonObject, given: JsonObject, made: JsonObject) -> JsonObject:
    metadata = table(pick(value, "requestMetadata", "request_metadata"))
    arn = text(table(value.get("identity")).get("arn"))
    account, region = text(value.get("accountId")), text(pick(value, "inferenceRegion", "region"))
    shown = {
        "identity": arn,
        "account": account,
        "region": region,
        "operation": value.get("operation"),
        "error": value.get("errorCode"),
    }
    return {
        "id": text(pick(value, "requestId", "request_id")),
        "time": seconds(value.get("timestamp")),
        "user": arn.rsplit("/", 1)[-1] if arn else None,
        "session": converse.session(metadata),
        "namespace": tuple(f"{k}={v}" for k, v in (("account", account), ("region", region)) if v),
        "usage": _usage(given, made),
        "fields": labels(metadata) | labels(shown),
    }


def _usage(given: JsonObject, made: JsonObject) -> Usage | None:
    """Give the counters beside the bodies."""
    counters = {name: held for name, held in given.items() if "oken" in name}
    return usage_of({**counters, "outputTokenCount": pick(made, "outputTokenCount", "output_token_count")})


def _latency(answer: Any) -> Latency | None:
    """Give the times in the last chunk of an InvokeModel stream (ms); those of Converse are read with its answer."""
    for chunk in reversed(answer if isinstance(answer, list) else []):
        metrics = chunk.get("amazon-bedrock-invocationMetrics") if isinstance(chunk, dict) else None
        if isinstance(metrics, dict):
            total, first = number(metrics.get("invocationLatency")), number(metrics.get("firstByteLatency"))
            return Latency(total and total / 1000, first and first / 1000)
    return None
