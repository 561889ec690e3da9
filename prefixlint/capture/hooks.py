"""What the hooks share: a recorder with sensible defaults, and exchanges made of what a client or gateway knows.

    from prefixlint.capture.hooks import open_log
    log = open_log("log.jsonl")                       # options as in config.RecordConfig

The log is closed when the program ends; `log.close()` does it earlier, `log.flush()` waits for what is on its way.
"""

from __future__ import annotations

import atexit
import json
import logging
import secrets
from typing import Any

import orjson

from prefixlint.capture.config import BODY_LIMIT, RecordConfig
from prefixlint.capture.exchange import Body, Exchange
from prefixlint.capture.recorder import Recorder

_LOGGER = logging.getLogger("prefixlint")


def open_log(path: str, **options: Any) -> Recorder:
    """Open a log to record into. Raises PrefixlintError where it cannot be written.

    What goes wrong later is said as warnings of the logger `prefixlint`; it never reaches the code that is recorded.
    """
    options.setdefault("salt", secrets.token_bytes(32))
    config = RecordConfig(output=path, run=secrets.token_hex(4), **options)
    recorder = Recorder(config, lambda event: _LOGGER.warning("%s", event.message))
    atexit.register(recorder.close)
    return recorder


def exchange(
    body: Any,
    answer: Any,
    *,
    target: str,
    time: float,
    total: float | None,
    ttft: float | None = None,
    session: str | None = None,
    failed: str | None = None,
    limit: int = BODY_LIMIT,
) -> Exchange:
    """Make the exchange of a call whose body and answer are known as JSON values, and not as bytes on a wire.

    Times are in seconds; `failed` says why there is no answer.
    """
    made = Exchange(time, "POST", target, Body(limit), Body(limit), total=total, ttft=ttft)
    made.request.feed(_dumps(body))
    made.response_headers = {"content-type": "application/json"}
    if session:
        made.request_headers = {"x-session-id": session}
    if failed is None:
        made.status = 200
        made.response.feed(_dumps(answer))
    else:
        made.outcome, made.error = "upstream-failed", failed
    return made


def _dumps(value: Any) -> bytes:
    try:
        return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:
        return json.dumps(value, default=str).encode()
