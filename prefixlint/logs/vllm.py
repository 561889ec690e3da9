"""vLLM server logs (`--enable-log-requests`; before 0.10 on by default).

Read are, among any other lines and with any collector's prefix:

* `Received request ID: prompt: '…', params: …, prompt_token_ids: […], lora_request: …` (0.10 and older, all variants)
* `Request ID details: prompt: '…', prompt_token_ids: […], …` (newer, at log level DEBUG)
* `Received request ID: params: …, lora_request: …` (newer, at INFO): it has no prompt, so switch on DEBUG or the bodies
* `Request ID JSON body: {…}` (newer, at the level that VLLM_REQUEST_BODY_LOG_LEVEL names)
* `Generated response ID…: output: '…', output_token_ids: […], finish_reason: …` (`--enable-log-outputs`)

The lines of one request are joined by its id. A body whose id the engine did not take over (the client sent its own
`X-Request-Id`) is joined with the next request whose prompt holds the body's last message. Tokens are counted by their
ids where these are logged, and causes are read from the body or the text. vLLM logs no cached tokens per request and no
year; prompts cut by `--max-log-len` are not used.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import orjson

from prefixlint.logs import _pyrepr
from prefixlint.logs._detect import guess_body
from prefixlint.logs._lines import ANY_ENGINE, HEAD, Held, YearlessClock, last_text, plain
from prefixlint.logs._recipes import refusal
from prefixlint.model import Content, Messages, NoPrompt, Output, Request, Skip, Text, TokenIds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from prefixlint.logs import Record, RecordKind

NAME = "vllm"
KIND: RecordKind = "text"

_MARK = re.compile(
    r"Received request (?P<received>\S+?): (?=prompt: |params: |sampling_params: |pooling_params: )"
    r"|Request (?P<details>\S+) details: "
    r"|Request (?P<body>\S+) JSON body: "
    r"|Generated response (?P<output>\S+?)(?: \(streaming (?P<stream>\w+)\))?(?P<ids> details)?: "
)
_INPUT_KEYS = frozenset({"prompt", "prompt_token_ids", "prompt_embeds shape", "lora_request"})
_OUTPUT_KEYS = frozenset({"output", "output_token_ids", "finish_reason"})
_LORA = re.compile(r"lora_name=('[^']*'|\"[^\"]*\")")
_MAX_LOG_LEN = re.compile(r"['\"]?max_log_len['\"]?\s*[=:]\s*(\d+)")
_MODEL = re.compile(r"Initializing an? .*?\bmodel=('[^']*'|\"[^\"]*\")")
_ROUTE = re.compile(r"^(?:chatcmpl|cmpl|resp|generate-tokens)-")
_PART = re.compile(r"-(\d+)$")

_WAIT_FOR_OUTPUT = 256  # requests in flight at once: vLLM's default max_num_seqs
_WAIT_FOR_INPUT = 8  # the lines about one prompt follow each other at once
_BODIES = 64


def detect(record: Record) -> int:
    """Look for a line about a request, as vLLM words it."""
    value = record.value
    if not isinstance(value, str):
        return 0
    if _MARK.search(value, 0, HEAD):
        return 95
    told = "max_log_len" in value or ("Initializing a" in value and _MODEL.search(value) is not None)
    return 40 if told else 0  # lines at the start of the server that say how to read the others


def reader() -> _Reader:
    """Give a reader for one log file."""
    return _Reader()


@dataclass(slots=True)
class _Draft:
    rid: str
    path: str
    line: int
    time: float | None
    prompt: str | None = None
    ids: Sequence[int] | None = None
    embeds: bool = False
    cut: bool = False
    lora: str | None = None
    received: bool = False
    body: Request | None = None
    output: str | None = None
    output_ids: Sequence[int] | None = None
    finish: str | None = None

    def content(self) -> Content:
        if self.cut:
            return self.body.content if self.body else NoPrompt("vllm-max-log-len")
        # the text of /v1/completions has had no chat template, and the tokenizer puts its own start before it
        text = None if self.prompt is None else Text(self.prompt, rendered=not self.rid.startswith("cmpl-"))
        if self.ids is not None:
            sent = None if self.body is None else self.body.content
            return TokenIds(self.ids, sent if isinstance(sent, Messages) else text)
        if text is not None:
            return text
        if self.body:
            return self.body.content
        return NoPrompt("prompt-embeds" if self.embeds else "vllm-no-prompt")

    def request(self, model: str | None) -> Request | Skip:
        content = self.content()
        if isinstance(content, NoPrompt):
            return refusal(self.path, self.line, content.slug)
        output = None
        if self.output is not None or self.output_ids is not None:
            output = Output(text=self.output, ids=self.output_ids, finish=self.finish)
        body = {"prompt_token_ids": self.ids} if self.ids is not None else {"prompt": self.prompt}
        base = self.body or Request(self.path, self.line, content, NAME, body=body)
        lora = (f"lora={self.lora}",) if self.lora else ()
        return replace(
            base,
            line=self.line,
            content=content,
            id=self.rid,
            time=self.time,
            model=base.model or model,
            output=output or base.output,
            namespace=(*(n for n in base.namespace if n not in lora), *lora),
        )


@dataclass(slots=True)
class _Body:
    key: str
    requests: list[Request]
    last_text: str | None


class _Reader:
    def __init__(self) -> None:
        self._clock: YearlessClock | None = None
        self._held: Held[_Draft] = Held(_WAIT_FOR_OUTPUT)
        self._seen = 0
        self._outputs = False
        self._bodies: deque[_Body] = deque()
        self._claimed: dict[str, list[Request]] = {}
        self._max_log_len: int | None = None
        self._model: str | None = None

    def feed(self, record: Record) -> Iterable[Request | Skip] | None:
        line = plain(record.value)
        if line is None:
            return None
        mark = _MARK.search(line, 0, HEAD)
        if mark is None:
            if ANY_ENGINE.search(line, 0, HEAD):
                return None
            self._note(line)
            return ()
        try:
            return [*self._read(record, line, mark), *self._ready()]
        except _pyrepr.BrokenReprError as error:
            return [Skip(record.path, record.line, "truncated-line", f"a vLLM log line is cut off: {error}")]

    def finish(self) -> Iterator[Request | Skip]:
        yield from (draft.request(self._model) for draft in self._held.drain())
        while self._bodies:
            yield from self._bodies.popleft().requests

    def _note(self, line: str) -> None:
        if "max_log_len" in line and (found := _MAX_LOG_LEN.search(line)):
            self._max_log_len = int(found[1])
        elif "Initializing a" in line and (found := _MODEL.search(line)):
            self._model = found[1][1:-1]

    def _read(self, record: Record, line: str, mark: re.Match[str]) -> Iterable[Request | Skip]:
        kind = mark.lastgroup if mark["output"] is None else "output"
        if kind == "body":
            return self._read_body(record, line, mark)
        rid = mark[kind or "received"]
        if kind == "output":
            if mark["stream"] != "delta":
                self._read_output(rid, line, mark)
            return ()
        raw, _ = _pyrepr.wanted(line, mark.end(), _pyrepr.COLON, _INPUT_KEYS)
        draft = self._draft(rid, record, line, mark, again=kind == "received")
        self._take_input(draft, raw)
        return ()

    def _draft(self, rid: str, record: Record, line: str, mark: re.Match[str], *, again: bool) -> _Draft:
        draft = self._held.get(rid)
        if draft is None or (draft.received and again):
            draft = self._held.add(rid, _Draft(rid, record.path, record.line, self._time(record, line, mark)))
            self._seen += 1
        draft.received |= again
        return draft

    def _time(self, record: Record, line: str, mark: re.Match[str]) -> float | None:
        if self._clock is None:
            self._clock = YearlessClock(record.path)
        return self._clock.read(line, mark.start())

    def _take_input(self, draft: _Draft, raw: dict[str, str]) -> None:
        ids = _pyrepr.value(raw.get("prompt_token_ids"))
        prompt = raw.get("prompt", "None")
        draft.embeds |= raw.get("prompt_embeds shape", "None").rstrip(".") != "None"
        if isinstance(ids, list) and ids:
            draft.ids = ids
        if prompt != "None":
            draft.prompt = _pyrepr.string(prompt)
        if self._max_log_len is not None:  # which cuts ids and text, each for itself
            if len(draft.prompt or "") >= self._max_log_len:
                draft.prompt, draft.cut = None, draft.cut or draft.ids is None
            draft.cut |= len(draft.ids or ()) >= self._max_log_len
        if found := _LORA.search(raw.get("lora_request", "")):
            draft.lora = found[1][1:-1]
        if draft.body is None:
            draft.body = self._claim(draft.rid, prompt)

    def _claim(self, rid: str, prompt: str) -> Request | None:
        """Find the logged body of a request: by its id, else the oldest one whose last message is in the prompt."""
        key, part = _split(rid)
        requests = self._claimed.get(key)
        if requests is None:
            found = next((body for body in self._bodies if body.key == key), None)
            if found is None and prompt != "None":
                found = next((body for body in self._bodies if _is_in(body.last_text, prompt)), None)
            elif found is None and len(self._bodies) == 1:
                found = self._bodies[0]
            if found is None:
                return None
            self._bodies.remove(found)
            requests = self._claimed[key] = found.requests
            if len(self._claimed) > _WAIT_FOR_OUTPUT:
                del self._claimed[next(iter(self._claimed))]
        return requests[part] if part < len(requests) else requests[0]

    def _read_body(self, record: Record, line: str, mark: re.Match[str]) -> Iterable[Request | Skip]:
        text = line[mark.end() :]
        try:
            body: Any = orjson.loads(text)
        except orjson.JSONDecodeError:
            return [Skip(record.path, record.line, "bad-json", "a vLLM log line holds a request body that is no JSON")]
        time = self._time(record, line, mark)
        key, _ = _split(mark["body"])
        requests = guess_body(record, body, name=NAME, envelope={}, id=mark["body"], time=time)
        if requests:
            self._bodies.append(_Body(key, requests, last_text(body)))
        return self._bodies.popleft().requests if len(self._bodies) > _BODIES else ()

    def _read_output(self, rid: str, line: str, mark: re.Match[str]) -> None:
        self._outputs = True
        draft = self._held.get(rid)
        if draft is None:
            return
        raw, _ = _pyrepr.wanted(line, mark.end(), _pyrepr.COLON, _OUTPUT_KEYS)
        text = _pyrepr.value(raw.get("output"))
        ids = _pyrepr.value(raw.get("output_token_ids"))
        if isinstance(ids, list):
            draft.output_ids = ids
        if isinstance(text, str):
            draft.output = text
        if "finish_reason" in raw:
            finish = raw["finish_reason"].strip("'\"")
            draft.finish = None if finish == "None" else finish
            self._held.close(rid)

    def _ready(self) -> Iterator[Request | Skip]:
        if not self._outputs and self._seen > _WAIT_FOR_OUTPUT:
            self._held.limit = _WAIT_FOR_INPUT
        return (draft.request(self._model) for draft in self._held.ready())


def _split(rid: str) -> tuple[str, int]:
    """Split an engine's request id into the client's part and the number of the prompt among several."""
    key = _ROUTE.sub("", rid)
    if rid.startswith("cmpl-") and (found := _PART.search(key)):
        return key[: found.start()], int(found[1])
    return key, 0


def _is_in(text: str | None, raw: str) -> bool:
    """Whether the longest piece of a text that a Python repr leaves as it is stands in a repr."""
    if not text:
        return False
    piece = max(re.split(r"[^ -&(-\[\]-~]", text[-2000:]), key=len).strip()[-80:]
    return bool(piece) and piece in raw
