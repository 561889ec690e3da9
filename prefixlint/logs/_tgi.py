"""Times of a request in a Text Generation Inference router log."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from prefixlint.logs import _fields
from prefixlint.model import Latency, NoPrompt

if TYPE_CHECKING:
    from collections.abc import Mapping

    from prefixlint.logs import Record
    from prefixlint.model import Request

_DURATION = re.compile(r"([\d.]+)(ns|µs|us|ms|s)")
_SECONDS = {"ns": 1e-9, "µs": 1e-6, "us": 1e-6, "ms": 1e-3, "s": 1.0}


def seconds(text: str | None) -> float | None:
    """Read a duration as Rust prints it (`840.0ms`, `80.1µs`), in seconds."""
    found = _DURATION.fullmatch(text) if text else None
    try:
        return float(found[1]) * _SECONDS[found[2]] if found else None
    except ValueError:
        return None


def timed(record: Record, ended: float | None, times: Mapping[str, float | None]) -> Request:
    """Build a request of which only times are known; the log line is written when it ends."""
    total, queue, validation = times.get("total_time"), times.get("queue_time"), times.get("validation_time")
    begun = ended - total if ended is not None and total is not None else ended
    waited = queue if validation is None or queue is None else queue + validation
    latency = Latency(total=total, queue=waited)
    return _fields.build(record, "tgi-log", NoPrompt("tgi-no-prompt"), time=begun, latency=latency)
