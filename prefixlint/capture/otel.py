"""An OpenTelemetry span processor that records the model calls among the spans of a program.

    from opentelemetry import trace
    from prefixlint.capture.hooks import open_log
    from prefixlint.capture.otel import RecordingSpanProcessor

    trace.get_tracer_provider().add_span_processor(RecordingSpanProcessor(open_log("log.jsonl")))

Spans must hold their messages: OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_ONLY (or true, for older
instrumentations), which most leave off. The conventions are those that `analyze` reads from files: GenAI with messages
on the span, OpenInference, OpenLLMetry. Other spans, and calls whose messages went elsewhere, are passed over.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict
from typing import Any

from prefixlint.capture.hooks import exchange
from prefixlint.capture.recorder import Recorder
from prefixlint.logs import Record
from prefixlint.model import JsonObject, Messages, Output, Request, Text, Usage

_DIALECTS = ("otel-genai", "openinference", "openllmetry")


class RecordingSpanProcessor:
    """Takes spans as they end; has the shape of `opentelemetry.sdk.trace.SpanProcessor`."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        """Do nothing: what counts is known at the end."""

    def _on_ending(self, span: Any) -> None:
        """Do nothing: newer versions of the SDK call this before `on_end`."""

    def on_end(self, span: Any) -> None:
        """Record a span that is a model call; nothing may go wrong for the program."""
        with contextlib.suppress(Exception):
            for request in _requests(json.loads(span.to_json(indent=None))):
                self._recorder.submit(_exchange(request))

    def shutdown(self) -> None:
        """Write what waits."""
        self._recorder.flush()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Write what waits; False where that takes longer."""
        return self._recorder.flush(timeout_millis / 1000)


def _requests(span: JsonObject) -> list[Request]:
    """Read a span as `analyze` reads it from a file."""
    from prefixlint.logs import _otlp
    from prefixlint.logs._detect import named

    dialects = [named(name) for name in _DIALECTS]
    found: list[Request] = []
    for value in _otlp.unpack(span) or ():
        record = Record("", 0, "json", value, value, {})
        best = max(dialects, key=lambda dialect: dialect.detect(record))
        reader = best.reader()
        results = [*(reader.feed(record) or ()), *reader.finish()]
        found += [item for item in results if isinstance(item, Request) and isinstance(item.content, Messages | Text)]
    return found


def _exchange(request: Request) -> Any:
    latency = request.latency
    return exchange(
        {"model": request.model, **_body(request)},
        {"id": request.id, "model": request.model, **_answer(request.output), **_usage(request.usage)},
        target="/otel",
        time=request.time or 0.0,
        total=latency.total if latency else None,
        ttft=latency.ttft if latency else None,
        session=request.session,
    )


def _body(request: Request) -> JsonObject:
    content = request.content
    body: JsonObject = {"user": request.user} if request.user else {}
    if isinstance(content, Text):
        return {**body, "prompt": content.text}
    assert isinstance(content, Messages)
    if content.tools:
        body["tools"] = list(content.tools)
    return {**body, "messages": list(content.messages)}


def _answer(output: Output | None) -> JsonObject:
    if output is None:
        return {}
    message: JsonObject = {"role": "assistant", "content": output.text}
    if output.reasoning:
        message["reasoning_content"] = output.reasoning
    if output.tool_calls:
        message["tool_calls"] = list(output.tool_calls)
    return {"choices": [{"index": 0, "message": message, "finish_reason": output.finish}]}


def _usage(usage: Usage | None) -> JsonObject:
    if usage is None:
        return {}
    counts = {name: count for name, count in asdict(usage).items() if count is not None}
    details = {
        name: counts[held]
        for name, held in (("cached_tokens", "cached"), ("cache_write_tokens", "written"))
        if held in counts
    }
    named = {
        name: counts[held]
        for name, held in (("prompt_tokens", "prompt"), ("completion_tokens", "completion"))
        if held in counts
    }
    return {"usage": {**named, "prompt_tokens_details": details}}
