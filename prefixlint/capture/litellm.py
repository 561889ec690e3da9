"""A LiteLLM callback that records each call, from LiteLLM's own standard logging payload.

In a program:

    import litellm
    from prefixlint.capture.hooks import open_log
    from prefixlint.capture.litellm import callback

    litellm.callbacks = [callback(open_log("log.jsonl"))]

In the proxy: put the same `handler = callback(…)` into a file `record.py` beside the configuration, and name it there:
`litellm_settings: {callbacks: record.handler}`. Messages must not be switched off (`turn_off_message_logging`).
"""

from __future__ import annotations

import contextlib
import importlib
from typing import Any

from prefixlint.capture.hooks import exchange
from prefixlint.capture.recorder import Recorder
from prefixlint.model import JsonObject

# Parameters of a call that are LiteLLM's own and never reach a model.
_OWN = frozenset({"extra_headers", "headers", "api_key", "api_base", "user_continue_message"})


def callback(recorder: Recorder) -> Any:
    """Give an object for `litellm.callbacks`: LiteLLM's own logger class where it is there, else one of its shape."""
    base: Any = object
    with contextlib.suppress(ImportError):
        base = importlib.import_module("litellm.integrations.custom_logger").CustomLogger

    class PrefixlintRecorder(base):  # type: ignore[misc]  # the base is known when the program runs
        """Takes each call once: LiteLLM calls one form for synchronous use and the other for asynchronous."""

        def log_success_event(self, kwargs: JsonObject, *_rest: Any, **_named: Any) -> None:
            _take(recorder, kwargs)

        async def async_log_success_event(self, kwargs: JsonObject, *_rest: Any, **_named: Any) -> None:
            _take(recorder, kwargs)

        def log_failure_event(self, kwargs: JsonObject, *_rest: Any, **_named: Any) -> None:
            _take(recorder, kwargs)

        async def async_log_failure_event(self, kwargs: JsonObject, *_rest: Any, **_named: Any) -> None:
            _take(recorder, kwargs)

    return PrefixlintRecorder()


def _take(recorder: Recorder, kwargs: JsonObject) -> None:
    """Record a call; nothing may go wrong for the caller, whatever LiteLLM hands over."""
    payload = kwargs.get("standard_logging_object")
    if isinstance(payload, dict):
        with contextlib.suppress(Exception):
            recorder.submit(_exchange(payload))


def _exchange(payload: JsonObject) -> Any:
    start, end, first = (payload.get(name) for name in ("startTime", "endTime", "completionStartTime"))
    failed = payload.get("status") == "failure"
    return exchange(
        _body(payload),
        payload.get("response"),
        target=f"/litellm/{payload.get('call_type') or 'completion'}",
        time=float(start or 0.0),
        total=end - start if start and end else None,
        ttft=first - start if start and first and payload.get("stream") else None,
        session=payload.get("session_id") or None,
        failed=str(payload.get("error_str") or "the call failed") if failed else None,
    )


def _body(payload: JsonObject) -> JsonObject:
    """Put the request together: LiteLLM keeps the tools among the parameters."""
    parameters = payload.get("model_parameters")
    kept = {k: v for k, v in parameters.items() if k not in _OWN} if isinstance(parameters, dict) else {}
    body = {"model": payload.get("model"), **kept}
    messages = payload.get("messages")
    body["prompt" if isinstance(messages, str) else "messages"] = messages
    user = payload.get("end_user")
    return {**body, "user": user} if user else body
