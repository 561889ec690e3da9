"""SGLang server logs (`--log-requests`), text and JSON form, log levels 0 to 3.

* `[time] Finish: obj=GenerateReqInput(…), out={'text': …, 'output_ids': […], 'meta_info': {…}}`
* `[time] {"timestamp": …, "event": "request.finished", "rid": …, "obj": {…}, "out": {…}}`
* older: `Finish: input_ids_len=… input_ids=[…] … 'request_received_ts': …`
* `Receive: obj=…` / `request.received`: joined with its Finish by `rid`; alone where the server died before it
* `Receive OpenAI: obj={…}` / `request.received.chat`: the chat body, without an id; it gives model, user and template
  arguments to the next request

A Finish line holds the prompt from level 2 on. Level 2 cuts texts and lists of more than 2048 to their first and last
1024, so such prompts are not used: only `--log-requests-level 3` is complete. Level 0 and 1 lines have usage and times
only. Token ids win over the text; a `rid` that begins with HEALTH_CHECK is the server's own. The times in brackets are
local ones; the epoch times in `meta_info` set them right.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import orjson

from prefixlint.logs import _pyrepr
from prefixlint.logs._detect import guess_body
from prefixlint.logs._lines import ANY_ENGINE, HEAD, iso_time, plain
from prefixlint.logs._sglang import CUT, META_KEYS, NAME, Draft, is_cut_body, known, request_of
from prefixlint.model import NoPrompt, Request, Skip

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prefixlint.logs import Record, RecordKind

__all__ = ["KIND", "NAME", "detect", "reader"]

KIND: RecordKind = "text"

_MARK = re.compile(
    r"(?P<receive>Receive: obj=\w+\()"
    r"|(?P<finish>Finish: obj=\w+\()"
    r"|(?P<openai>Receive OpenAI: obj=)"
    r"|Finish: (?P<old>(?=input_ids_len=))"
    r"|(?P<json>\{(?=\"timestamp\": ?\"[^\"]*\", ?\"event\": ?\"request\.(?:received|finished)))"
)
_RID = re.compile(r"\"rid\": ?\"([^\"]*)\"")
_CHAT = re.compile(r"\btext=None\b|\"text\": ?null")
_CHAT_KEYS = frozenset({"model", "user"})
_OBJ_KEYS = frozenset(
    {
        "rid",
        "text",
        "input_ids",
        "input_embeds",
        "image_data",
        "audio_data",
        "video_data",
        "session_id",
        "conversation_id",
        "routing_key",
        "lora_path",
        "lora_id",
        "extra_key",
        "cache_salt",
        "data_parallel_rank",
        "routed_dp_rank",
    }
)
_OUT_KEYS = frozenset({"text", "output_ids", "meta_info"})
_OLD_IDS = re.compile(r"input_ids=(\[[\d, ]*\])")
_OLD_META = re.compile(
    r"'(request_received_ts|request_finished_ts|cached_tokens|prompt_tokens|completion_tokens|e2e_latency|"
    r"first_token_latency|queue_time)': ([\d.]+(?:e-?\d+)?)"
)
_OLD_RID = re.compile(r"(?:'id': |\brid=)'([^']*)'")
_IN_FLIGHT = 4096
_ENDED = 8192
_CHATS = 64


def detect(record: Record) -> int:
    """Look for a line about a request, as SGLang words it."""
    value = record.value
    return 95 if isinstance(value, str) and _MARK.search(value, 0, HEAD) else 0


def reader() -> _Reader:
    """Give a reader for one log file."""
    return _Reader()


@dataclass(slots=True)
class _Received:
    """A Receive line, read only if its Finish never comes or has no prompt."""

    record: Record
    line: str
    mark: re.Match[str]
    chat: Request | None


class _Reader:
    def __init__(self) -> None:
        self._received: dict[str, _Received] = {}
        self._early: dict[str, None] = {}
        self._chats: deque[Request] = deque()
        self._offset: float | None = None

    def feed(self, record: Record) -> Iterable[Request | Skip] | None:
        line = plain(record.value)
        if line is None:
            return None
        mark = _MARK.search(line, 0, HEAD)
        if mark is None:
            return None if ANY_ENGINE.search(line, 0, HEAD) else ()
        try:
            return self._read(record, line, mark)
        except _pyrepr.BrokenReprError as error:
            return [Skip(record.path, record.line, "truncated-line", f"an SGLang log line is cut off: {error}")]
        except orjson.JSONDecodeError:
            return [Skip(record.path, record.line, "invalid-json", "an SGLang log line holds no valid JSON")]

    def finish(self) -> Iterator[Request | Skip]:
        for received in list(self._received.values()):
            yield from self._unfinished(received)
        self._received.clear()
        while self._chats:
            yield self._chats.popleft()

    def _read(self, record: Record, line: str, mark: re.Match[str]) -> Iterable[Request | Skip]:
        kind = mark.lastgroup
        if kind == "json":
            kind = _event(line, mark.start())
        if kind == "openai":
            return self._take_openai(record, line, mark)
        if kind == "receive":
            return self._take_received(record, line, mark)
        draft = self._old(record, line, mark) if kind == "old" else _parse(record, line, mark)
        if draft.rid and draft.rid.startswith("HEALTH_CHECK"):
            return ()
        return self._finished(draft, line, mark)

    def _take_openai(self, record: Record, line: str, mark: re.Match[str]) -> Iterable[Request]:
        body = _chat_body(line, mark)
        time = iso_time(line, 0, mark.start())
        cut = mark.lastgroup == "json" and is_cut_body(body)
        chats = [] if cut else guess_body(record, body, name=NAME, envelope={})
        if not chats:  # cut: what is short is still whole
            model, user = (one if isinstance(one := body.get(key), str) else None for key in ("model", "user"))
            content = NoPrompt("sglang-truncated")
            chats = [Request(record.path, record.line, content, NAME, model=model, user=user)]
        self._chats.append(replace(chats[0], time=time))
        # more bodies than requests: their requests are not in this log
        return [self._chats.popleft() for _ in range(len(self._chats) - _CHATS)]

    def _take_received(self, record: Record, line: str, mark: re.Match[str]) -> Iterable[Request | Skip]:
        rid = _rid(line, mark)
        if rid is None or rid.startswith("HEALTH_CHECK"):
            return ()  # a batch has a list of ids; each of its requests has a Finish line of its own
        given_up: list[Request | Skip] = []
        if rid in self._received:
            given_up.extend(self._unfinished(self._received.pop(rid)))
        elif len(self._received) >= _IN_FLIGHT:
            oldest = next(iter(self._received))
            given_up.extend(self._unfinished(self._received.pop(oldest)))
            self._early[oldest] = None
            if len(self._early) > _ENDED:
                del self._early[next(iter(self._early))]
        self._received[rid] = _Received(record, line, mark, self._chat_for(line, mark))
        return given_up

    def _chat_for(self, line: str, mark: re.Match[str]) -> Request | None:
        """Give the oldest chat body that waits, when this is a request of the chat route.

        Where several wait, their order may differ, so the prompt is not taken from it.
        """
        if not self._chats or not _CHAT.search(line, mark.end(), mark.end() + 3 * HEAD):
            return None
        alone = len(self._chats) == 1
        chat = self._chats.popleft()
        return chat if alone else replace(chat, content=NoPrompt("sglang-truncated"), body=None)

    def _finished(self, draft: Draft, line: str, mark: re.Match[str]) -> Iterable[Request | Skip]:
        if draft.rid in self._early:
            del self._early[draft.rid or ""]
            return ()
        received = self._received.pop(draft.rid or "", None)
        self._learn_offset(draft, line, mark)
        if received is None:
            return [request_of(draft, None)]
        if not draft.has_prompt:
            early = _parse(received.record, received.line, received.mark)
            draft.obj = {**known(draft.obj), **known(early.obj)}
        if draft.time is None:
            draft.time = self._local(received.line, received.mark)
        draft.line = received.record.line
        return [request_of(draft, received.chat)]

    def _unfinished(self, received: _Received) -> Iterator[Request | Skip]:
        record = received.record
        try:
            draft = _parse(record, received.line, received.mark)
        except (_pyrepr.BrokenReprError, orjson.JSONDecodeError) as error:
            yield Skip(record.path, record.line, "truncated-line", f"an SGLang log line is cut off: {error}")
            return
        draft.time = self._local(received.line, received.mark)
        yield request_of(draft, received.chat)

    def _old(self, record: Record, line: str, mark: re.Match[str]) -> Draft:
        ids = _OLD_IDS.search(line, mark.end())
        rid = _OLD_RID.search(line, mark.end())
        meta = {name: float(value) for name, value in _OLD_META.findall(line, mark.end())}
        if ids is None and not meta:
            raise _pyrepr.BrokenReprError("it has neither token ids nor numbers")
        obj = {"input_ids": _pyrepr.value(ids[1]) if ids else None}
        return Draft(record.path, record.line, rid[1] if rid else None, obj, {"meta_info": meta})

    def _learn_offset(self, draft: Draft, line: str, mark: re.Match[str]) -> None:
        """Find how far the local times of this log are from UTC, in quarters of an hour."""
        ended = draft.ended
        if self._offset is None and ended is not None and (local := _time_of(line, mark)) is not None:
            self._offset = round((local - ended) / 900) * 900.0

    def _local(self, line: str, mark: re.Match[str]) -> float | None:
        local = _time_of(line, mark)
        return None if local is None else local - (self._offset or 0.0)


def _time_of(line: str, mark: re.Match[str]) -> float | None:
    """Give the time of a line as it stands there; the JSON form has it to the microsecond."""
    precise = iso_time(line, mark.start(), mark.start() + 60) if mark.lastgroup == "json" else None
    return iso_time(line, 0, mark.start()) if precise is None else precise


def _event(line: str, start: int) -> str:
    event = line.find('"event"', start)
    word = line[event : event + 40]
    if "finished" in word:
        return "finish"
    return "openai" if "openai" in word else "receive"


def _json_part(line: str, mark: re.Match[str]) -> str:
    return line[mark.start() :]


def _rid(line: str, mark: re.Match[str]) -> str | None:
    if mark.lastgroup == "json":
        found = _RID.search(line, mark.start(), mark.start() + HEAD)
        return found[1] if found else None
    rid = _pyrepr.value(_pyrepr.first(line, mark.end(), _pyrepr.KEYWORD, "rid"))
    return rid if isinstance(rid, str) else None


def _chat_body(line: str, mark: re.Match[str]) -> dict[str, Any]:
    if mark.lastgroup == "json":
        body = orjson.loads(_json_part(line, mark)).get("obj")
        return body if isinstance(body, dict) else {}
    body = _pyrepr.value(line[mark.end() :])
    if isinstance(body, dict):
        return body
    raw, _ = _pyrepr.wanted(line, mark.end() + 1, _pyrepr.DICT_KEY, _CHAT_KEYS)
    return {name: _pyrepr.value(span) for name, span in raw.items()}


def _parse(record: Record, line: str, mark: re.Match[str]) -> Draft:
    if mark.lastgroup == "json":
        value = orjson.loads(_json_part(line, mark))
        rid, obj, out = value.get("rid"), _dict(value.get("obj")), _dict(value.get("out"))
        return Draft(record.path, record.line, rid if isinstance(rid, str) else None, obj, out)
    raw, end = _pyrepr.wanted(line, mark.end(), _pyrepr.KEYWORD, _OBJ_KEYS)
    obj = _decode_obj(raw)
    came_out: dict[str, Any] = {}
    if line.startswith("), out={", end):
        spans, _ = _pyrepr.wanted(line, end + 8, _pyrepr.DICT_KEY, _OUT_KEYS)
        came_out = _decode_out(spans)
    elif mark.lastgroup == "finish":
        raise _pyrepr.BrokenReprError("the part that says what came out is missing")
    rid = obj.get("rid")
    return Draft(record.path, record.line, rid if isinstance(rid, str) else None, obj, came_out)


def _decode_obj(raw: Mapping[str, str]) -> dict[str, Any]:
    """Decode the wanted values; a text is not decoded where token ids stand beside it."""
    cut = {name for name, span in raw.items() if name in ("text", "input_ids") and _pyrepr.is_cut(span)}
    ids = None if "input_ids" in cut else _pyrepr.value(raw.get("input_ids"))
    obj = {name: _pyrepr.value(span) for name, span in raw.items() if name not in ("text", "input_ids")}
    obj["input_ids"] = [] if "input_ids" in cut else ids
    if ids:
        return obj
    obj["text"] = CUT if cut else _pyrepr.value(raw.get("text"))
    return obj


def _decode_out(spans: Mapping[str, str]) -> dict[str, Any]:
    meta = spans.get("meta_info", "{")
    raw, _ = _pyrepr.wanted(meta, 1, _pyrepr.DICT_KEY, META_KEYS)
    out: dict[str, Any] = {"meta_info": {name: _pyrepr.value(span) for name, span in raw.items()}}
    for name in ("text", "output_ids"):
        if name in spans:
            out[name] = CUT if _pyrepr.is_cut(spans[name]) else _pyrepr.value(spans[name])
    return out


def _dict(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else {}
