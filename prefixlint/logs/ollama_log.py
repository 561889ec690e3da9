r"""Ollama server log at `OLLAMA_DEBUG=1`: prompts after the template, and cached tokens.

* `source=routes.go:1501 msg="chat request" images=0 prompt="…"`: the rendered prompt (also `generate request`, and the
  older `chat handler`); Go quotes it as a string
* `source=cache.go:104 msg="loading cache slot" id=0 cache=40 prompt=212 used=208 remaining=4`: `used` tokens came from
  the cache; it belongs to the oldest request that has none yet
* `[GIN] 2025/03/03 - 09:00:00 | 200 | 840ms | 127.0.0.1 | POST "/api/chat"`: how long it took, taken where only one
  request was running
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from prefixlint.logs._lines import ANY_ENGINE, HEAD, Held, iso_time, plain
from prefixlint.model import Latency, NoPrompt, Request, Skip, Text, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prefixlint.logs import Record, RecordKind

NAME = "ollama-log"
KIND: RecordKind = "text"

_ASKED = re.compile(r"msg=\"(?:chat|generate) (?:request|handler)\"(?: images=\d+)? prompt=")
_SLOT = re.compile(r"msg=\"loading cache slot\" id=(?P<slot>\d+) .*?\bprompt=(?P<prompt>\d+) used=(?P<used>\d+)")
_GIN = re.compile(r"\[GIN\] .*? \| +\d{3} \| +(?P<took>[\dhmsµun.]+) \|.*?\| POST +\"(?P<route>[^\"]*)\"")
_ROUTES = ("/api/chat", "/api/generate", "/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses")
_QUOTED = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_DURATION = re.compile(r"([\d.]+)(h|m(?!s)|s|ms|µs|us|ns)")
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "µs": 1e-6, "us": 1e-6, "ns": 1e-9}
_IN_FLIGHT = 64


def detect(record: Record) -> int:
    """Look for a prompt or a cache slot, as Ollama logs it."""
    value = record.value
    if not isinstance(value, str):
        return 0
    return 95 if _ASKED.search(value, 0, HEAD) or _SLOT.search(value, 0, HEAD) else 0


def reader() -> _Reader:
    """Give a reader for one log file."""
    return _Reader()


@dataclass(slots=True)
class _Draft:
    path: str
    line: int
    time: float | None
    prompt: str | None
    usage: Usage | None = None
    slot: str | None = None
    took: float | None = None

    def request(self) -> Request:
        return Request(
            path=self.path,
            line=self.line,
            content=NoPrompt("ollama-no-prompt") if self.prompt is None else Text(self.prompt, rendered=True),
            format=NAME,
            time=self.time,
            usage=self.usage,
            latency=None if self.took is None else Latency(total=self.took),
            fields={} if self.slot is None else {"slot": self.slot},
            body=None if self.prompt is None else {"prompt": self.prompt},
        )


class _Reader:
    def __init__(self) -> None:
        self._held: Held[_Draft] = Held(_IN_FLIGHT)

    def feed(self, record: Record) -> Iterable[Request | Skip] | None:
        line = plain(record.value)
        if line is None:
            return None
        if found := _ASKED.search(line, 0, HEAD):
            return self._asked(record, line, found)
        if found := _SLOT.search(line, 0, HEAD):
            self._loaded(record, line, found)
        elif found := _GIN.search(line, 0, HEAD):
            self._answered(found)
        elif ANY_ENGINE.search(line, 0, HEAD):
            return None
        return [draft.request() for draft in self._held.ready()]

    def finish(self) -> Iterator[Request | Skip]:
        return (draft.request() for draft in self._held.drain())

    def _asked(self, record: Record, line: str, found: re.Match[str]) -> Iterable[Request | Skip]:
        prompt = _unquote(line, found.end())
        if prompt is None:
            return [Skip(record.path, record.line, "truncated-line", "an Ollama log line ends inside its prompt")]
        self._held.add(str(record.line), _Draft(record.path, record.line, iso_time(line, 0, found.start()), prompt))
        return [draft.request() for draft in self._held.ready()]

    def _loaded(self, record: Record, line: str, found: re.Match[str]) -> None:
        usage = Usage(prompt=int(found["prompt"]), cached=int(found["used"]))
        draft = next((one for one in self._held.waiting() if one.usage is None), None)
        if draft is None:  # another runner's request, or one whose prompt is not in the log
            draft = _Draft(record.path, record.line, iso_time(line, 0, found.start()), None)
            self._held.add(str(record.line), draft)
        draft.usage, draft.slot = usage, found["slot"]

    def _answered(self, found: re.Match[str]) -> None:
        if not found["route"].startswith(_ROUTES):
            return
        waiting = self._held.waiting()
        if len(waiting) == 1:
            waiting[0].took = _duration(found["took"])
        if waiting:
            self._held.close(str(waiting[0].line))


def _unquote(line: str, start: int) -> str | None:
    """Read a value of a Go log line: a bare word, or a string with Go's escapes (which Python has too)."""
    if not line.startswith('"', start):
        return line[start:].split(" ", 1)[0]
    found = _QUOTED.match(line, start)
    if found is None:
        return None
    try:
        decoded = orjson.loads(found[0])
    except orjson.JSONDecodeError:
        try:
            decoded = ast.literal_eval(found[0])
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return None
    return decoded if isinstance(decoded, str) else None


def _duration(text: str) -> float | None:
    parts = _DURATION.findall(text)
    try:
        return sum(float(value) * _UNITS[unit] for value, unit in parts) if parts else None
    except ValueError:
        return None
