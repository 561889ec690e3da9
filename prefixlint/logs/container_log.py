"""Engine logs inside the JSON lines of a log collector: Docker, Kubernetes, journald, CloudWatch, Loki, structlog.

`{"log": "INFO … Received request …", "stream": "stderr", "time": "…"}`: the inner line goes to the reader of the
engine that wrote it; the collector's time is put before it where the line has no full date of its own. Other lines of
the collector are stepped over. Lines of SGLang's JSON log that were cut out of their log are read here as well.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson

from prefixlint.logs import _detect, _fields
from prefixlint.logs._lines import ANY_ENGINE, HEAD

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from prefixlint.logs import Format, Reader, Record, RecordKind
    from prefixlint.model import Request, Skip

NAME = "container-log"
KIND: RecordKind = "json"

_LINES = ("log", "message", "MESSAGE", "msg", "textPayload", "line", "@message", "event", "body")
_COLLECTORS = frozenset(
    {
        "stream",
        "kubernetes",
        "docker",
        "container_name",
        "levelname",
        "level",
        "severity",
        "_SYSTEMD_UNIT",
        "__REALTIME_TIMESTAMP",
        "logStream",
        "@timestamp",
        "labels",
        "resource",
        "asctime",
        "filename",
    }
)
_TIMES = ("time", "timestamp", "@timestamp", "asctime", "ts", "__REALTIME_TIMESTAMP")


def detect(record: Record) -> int:
    """Look for a line of an engine in one of the usual keys; or any line beside what only collectors add."""
    value = record.value
    if not isinstance(value, dict):
        return 0
    if _is_sglang(value):
        return 94
    line = _line(value)
    if line is None:
        return 0
    if ANY_ENGINE.search(line, 0, HEAD):
        return 94
    return 15 if value.keys() & _COLLECTORS and not _detect.is_body(record.body) else 0


def _line(value: Mapping[str, Any]) -> str | None:
    return next((value[name] for name in _LINES if isinstance(value.get(name), str)), None)


def _is_sglang(value: Mapping[str, Any]) -> bool:
    """Whether this is a line of SGLang's JSON log without what stands before its brace."""
    return isinstance(value.get("obj"), dict) and str(value.get("event", "")).startswith("request.")


def _sglang_line(value: Mapping[str, Any]) -> str:
    """Write the line again; the keys that mark it come first."""
    marks = {"timestamp": str(value.get("timestamp", "")), "event": str(value["event"])}
    line = {**marks, **{key: one for key, one in value.items() if key not in marks}}
    try:
        return orjson.dumps(line).decode()
    except orjson.JSONEncodeError:  # lone surrogates, huge numbers
        return json.dumps(line)


def reader() -> Reader:
    """Give a reader for one file."""
    return _Reader()


class _Reader:
    def __init__(self) -> None:
        self._readers: dict[str, Reader] = {}
        self._last: Format | None = None

    def feed(self, record: Record) -> Iterable[Request | Skip] | None:
        if not detect(record):
            return None
        value = record.value
        if _is_sglang(value):
            line = _sglang_line(value)
            return self._inner(replace(record, kind="text", value=line, body=line, envelope={}))
        line = (_line(value) or "").rstrip("\r\n")
        time = next((str(value[name]) for name in _TIMES if _fields.seconds(value.get(name)) is not None), None)
        if time is not None and "-" in time[:5]:
            line = f"{time} {line}"
        return self._inner(replace(record, kind="text", value=line, body=line, envelope={}))

    def finish(self) -> Iterator[Request | Skip]:
        for reader_ in self._readers.values():
            yield from reader_.finish()

    def _inner(self, record: Record) -> Iterable[Request | Skip]:
        """Offer the line to the engine of the line before, then to the others."""
        if self._last is not None:
            taken = self._of(self._last).feed(record)
            if taken is not None:
                return taken
        scored = [(item.detect(record), item) for item in _detect.formats() if item.KIND == "text"]
        for score, item in sorted(scored, key=lambda pair: (-pair[0], pair[1].NAME)):
            if score > 50:
                taken = self._of(item).feed(record)
                if taken is not None:
                    self._last = item
                    return taken
        return ()

    def _of(self, item: Format) -> Reader:
        return self._readers.setdefault(item.NAME, item.reader())
