"""Text Generation Inference router log: times of each request, no prompt and no token counts.

`2025-03-03T09:00:00.84Z  INFO generate{parameters=… total_time="840ms" validation_time="1.2ms" queue_time="80µs"
inference_time="838ms" …}: text_generation_router::server: …: Success`. Prompts are in the client's bodies (format
`tgi`), which a recording proxy in front of the server writes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from prefixlint.logs._lines import ANY_ENGINE, HEAD, iso_time, plain
from prefixlint.logs._tgi import seconds, timed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prefixlint.logs import Record, RecordKind
    from prefixlint.model import Request, Skip

NAME = "tgi-log"
KIND: RecordKind = "text"

_TIME = re.compile(r'\b(total_time|validation_time|queue_time|inference_time)="([^"]*)"')


def detect(record: Record) -> int:
    """Look for a line of the router that says how a request ended."""
    return 95 if _is_request(record.value) else 0


def _is_request(line: object) -> bool:
    return isinstance(line, str) and "text_generation_router" in line and 'total_time="' in line


def reader() -> _Reader:
    """Give a reader for one log file."""
    return _Reader()


class _Reader:
    def feed(self, record: Record) -> Iterable[Request | Skip] | None:
        line = plain(record.value)
        if line is not None and _is_request(line):
            times = {name: seconds(text) for name, text in _TIME.findall(line)}
            return [timed(record, iso_time(line, 0, max(line.find("{"), 0)), times)]
        if line is None or ("text_generation_router" not in line and ANY_ENGINE.search(line, 0, HEAD)):
            return None
        return ()

    def finish(self) -> Iterable[Request | Skip]:
        return ()
