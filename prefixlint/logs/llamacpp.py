"""llama.cpp server logs (`llama-server`), best with `--verbose`, which adds the bodies.

* `srv  log_server_r: request:  {body}` and `response: {…}`: prompt, output, usage with cached tokens, timings
* `slot update_slots: id N | task N | new prompt, … task.n_tokens = N` and `cached n_tokens = N` (older:
  `kv cache rm [N, end)`): prompt and cached tokens of a task
* `prompt eval time = … ms / N tokens`, `total time = … ms`: latency of a task

A body is joined with the finished task that has the same number of prompt tokens. Without bodies the slot lines still
give usage and latency. A slot is a cache of its own, so it is kept as the field `slot`.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import orjson

from prefixlint.logs._detect import guess_body
from prefixlint.logs._lines import ANY_ENGINE, HEAD, iso_time, plain
from prefixlint.logs._numbers import count, number
from prefixlint.model import Latency, NoPrompt, Request, Skip, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prefixlint.logs import Record, RecordKind

NAME = "llamacpp"
KIND: RecordKind = "text"

_BODY = re.compile(r"log_server_r: (?P<what>request|response): +(?=\S)|log_server_r: done request: ")
_SLOT = re.compile(r"slot +(?P<verb>\w+): id +(?P<slot>-?\d+) \| task (?P<task>-?\d+) \| ")
_PROMPT = re.compile(r"new prompt, .*?(?:task\.n_tokens|n_prompt_tokens) = (\d+)")
_CACHED = re.compile(r"cached n_tokens = (\d+)|kv cache rm \[(\d+), end\)|memory_seq_rm \[(\d+), end\)")
_TIMING = re.compile(r"(?P<what>prompt eval|eval|total) time = +(?P<ms>[\d.]+) ms / +(?P<n>\d+) (?:tokens|runs)")
_DONE = 64  # finished tasks that wait for their body


def detect(record: Record) -> int:
    """Look for a line about a task or a body, as llama-server words it."""
    value = record.value
    if not isinstance(value, str):
        return 0
    return 92 if _BODY.search(value, 0, HEAD) or _SLOT.search(value, 0, HEAD) else 0


def reader() -> _Reader:
    """Give a reader for one log file."""
    return _Reader()


@dataclass(slots=True)
class _Task:
    path: str
    line: int
    slot: str
    number: str
    time: float | None
    prompt: int | None = None
    cached: int | None = None
    completion: int | None = None
    prefill: float | None = None
    total: float | None = None

    @property
    def latency(self) -> Latency | None:
        if self.total is None and self.prefill is None:
            return None
        return Latency(total=self.total, ttft=self.prefill, prefill=self.prefill)

    def request(self) -> Request:
        return Request(
            path=self.path,
            line=self.line,
            content=NoPrompt("llamacpp-no-prompt"),
            format=NAME,
            id=f"task {self.number}",
            time=self.time,
            usage=Usage(prompt=self.prompt, cached=self.cached, completion=self.completion),
            latency=self.latency,
            fields={"slot": self.slot},
        )


@dataclass(slots=True)
class _Body:
    record: Record
    value: Any
    time: float | None


class _Reader:
    def __init__(self) -> None:
        self._running: dict[str, _Task] = {}
        self._done: deque[_Task] = deque()
        self._body: _Body | None = None

    def feed(self, record: Record) -> Iterable[Request | Skip] | None:
        line = plain(record.value)
        if line is None:
            return None
        if found := _SLOT.search(line, 0, HEAD):
            return list(self._slot(record, line, found))
        if found := _BODY.search(line, 0, HEAD):
            return list(self._server(record, line, found))
        return None if ANY_ENGINE.search(line, 0, HEAD) else ()

    def finish(self) -> Iterator[Request | Skip]:
        yield from self._flush(None)
        yield from (task.request() for task in self._done)
        yield from (task.request() for task in self._running.values() if task.prompt is not None)

    def _slot(self, record: Record, line: str, found: re.Match[str]) -> Iterator[Request]:
        number_ = found["task"]
        if number_.startswith("-"):
            return
        task = self._running.get(number_)
        if task is None:
            time = iso_time(line, 0, found.start())
            task = self._running[number_] = _Task(record.path, record.line, found["slot"], number_, time)
        if prompt := _PROMPT.search(line, found.end()):
            task.prompt = int(prompt[1])
        elif cached := _CACHED.search(line, found.end()):
            if task.cached is None:  # the first of several batches says what the cache held
                task.cached = int(next(group for group in cached.groups() if group))
        elif timing := _TIMING.search(line, found.end()):
            _take_timing(task, timing)
        if found["verb"] == "release" and "stop processing" in line:
            del self._running[number_]
            if task.prompt is not None:
                self._done.append(task)
            if len(self._done) > _DONE:
                yield self._done.popleft().request()

    def _server(self, record: Record, line: str, found: re.Match[str]) -> Iterator[Request | Skip]:
        what = found["what"]
        if what is None:
            yield from self._flush(None)
            return
        text = line[found.end() :]
        try:
            value = orjson.loads(text)
        except orjson.JSONDecodeError:
            value = None
        if what == "response":
            yield from self._flush(value if isinstance(value, dict) else None)
            return
        yield from self._flush(None)
        if value is None:
            reason = "a llama.cpp log line holds a request body that is no valid JSON"
            yield Skip(record.path, record.line, "invalid-json", reason)
            return
        self._body = _Body(record, value, iso_time(line, 0, found.start()))

    def _flush(self, response: dict[str, Any] | None) -> Iterator[Request]:
        """Give the request whose body waits, with its response if there is one."""
        body, self._body = self._body, None
        if body is None:
            return
        envelope = {"response": response} if response else {}
        for one in guess_body(body.record, body.value, name=NAME, envelope=envelope):
            yield self._joined(one, body, _timings(response))

    def _joined(self, one: Request, body: _Body, timings: _Task) -> Request:
        usage = one.usage or Usage()
        wanted = usage.prompt if timings.prompt is None else timings.prompt
        task = self._take(wanted)
        prompt = _first(usage.prompt, timings.prompt, task.prompt)
        usage = Usage(
            prompt=prompt,
            cached=_first(usage.cached, timings.cached, task.cached),
            written=usage.written,
            completion=_first(usage.completion, timings.completion, task.completion),
        )
        prefill = _first(timings.prefill, task.prefill)
        return replace(
            one,
            time=_first(body.time, one.time, task.time),
            usage=None if usage == Usage() else usage,
            latency=Latency(total=_first(task.total, timings.total), ttft=prefill, prefill=prefill),
            fields={**one.fields, "slot": task.slot} if task.slot else one.fields,
        )

    def _take(self, prompt: int | None) -> _Task:
        """Take out the oldest finished task of this size; of any size where the response does not tell."""
        for task in self._done:
            if prompt is None or task.prompt == prompt:
                self._done.remove(task)
                return task
        return _Task("", 0, "", "", None)


def _take_timing(task: _Task, timing: re.Match[str]) -> None:
    seconds = float(timing["ms"]) / 1000
    if timing["what"] == "prompt eval":
        task.prefill = seconds
    elif timing["what"] == "eval":
        task.completion = int(timing["n"])
    else:
        task.total = seconds


def _timings(response: dict[str, Any] | None) -> _Task:
    """Read the `timings` that llama-server adds to a response; `cache_n` and `prompt_n` add up to the prompt."""
    task = _Task("", 0, "", "", None)
    found = response.get("timings") if response else None
    if not isinstance(found, dict):
        return task
    task.cached = count(found.get("cache_n"))
    computed = count(found.get("prompt_n"))
    if task.cached is not None and computed is not None:
        task.prompt = task.cached + computed
    task.completion = count(found.get("predicted_n"))
    prefill, rest = number(found.get("prompt_ms")), number(found.get("predicted_ms"))
    if prefill is not None:
        task.prefill = prefill / 1000
        task.total = None if rest is None else (prefill + rest) / 1000
    return task


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)
