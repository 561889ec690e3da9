"""Inputs of NVIDIA AIPerf: `mooncake_trace` rows with text, `single_turn`, `multi_turn`, and `inputs.json`.

* Mooncake rows that hold `text_input`, `messages` or `payload` instead of `hash_ids`; `timestamp` in milliseconds.
  A row with a length only says nothing about prefixes.
* `{"text": …}` or `{"texts": […]}` with `role`, `timestamp` (ms), `delay` (ms), `session_id`: one user message
* `{"session_id", "turns": [{"text", "delay"}, …]}`: a conversation. Its answers come from the server and are not in
  the file; an empty answer stands where one will.
* `{"data": [{"session_id", "payloads": [body, …]}]}` (`inputs.json`): whole bodies

Raw payloads, one body a line, are read by the format of the body.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from prefixlint.logs import _fields, _recipes
from prefixlint.logs._detect import guess_body
from prefixlint.logs._rows import Rows
from prefixlint.model import Messages, Request, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from prefixlint.logs import Reader, Record, RecordKind
    from prefixlint.model import JsonObject, Skip

NAME = "aiperf"
KIND: RecordKind = "json"
STATELESS = True

_ROW_KEYS = frozenset({"timestamp", "delay", "session_id", "output_length"})
_MODALITIES = ("image", "images", "audio", "audios", "video", "videos")


def detect(record: Record) -> int:
    """One of the shapes, with the keys that AIPerf has beside it."""
    value = record.value
    if not isinstance(value, dict):
        return 0
    if _sessions(value) is not None:
        return 95
    turns = value.get("turns")
    if isinstance(turns, list) and turns and all(isinstance(one, dict) and _texts(one) for one in turns):
        return 90
    if "model" in value or "hash_ids" in value:
        return 0
    own = len(value.keys() & _ROW_KEYS)
    if isinstance(value.get("text_input"), str):
        return 91
    if own >= 2 and ("payload" in value or "messages" in value or "input_length" in value):
        return 85
    return 60 if own and _texts(value) and "messages" not in value and "prompt" not in value else 0


def _sessions(value: Mapping[str, Any]) -> list[Any] | None:
    data = value.get("data")
    if isinstance(data, list) and data and isinstance(data[0], dict) and isinstance(data[0].get("payloads"), list):
        return data
    return None


def reader() -> Reader:
    """Give a reader for one file."""
    return Rows(lambda record: list(_read(record)) if detect(record) else None)


def _read(record: Record) -> Iterator[Request | Skip]:
    value = record.value
    sessions = _sessions(value)
    if sessions is not None:
        yield from _inputs(record, sessions)
    elif isinstance(value.get("turns"), list):
        yield from _conversation(record, value)
    else:
        yield from _row(record, value)


def _inputs(record: Record, sessions: list[Any]) -> Iterator[Request]:
    part = 0
    for session in sessions:
        payloads = session.get("payloads") if isinstance(session, dict) else None
        for payload in payloads if isinstance(payloads, list) else ():
            around = {"session_id": session.get("session_id")}
            yield from _numbered(guess_body(record, payload, name=NAME, envelope=around), part)
            part += 1


def _numbered(requests: Iterable[Request], part: int) -> Iterator[Request]:
    return (replace(one, part=part + index) for index, one in enumerate(requests))


def _conversation(record: Record, value: Mapping[str, Any]) -> Iterator[Request]:
    said: list[JsonObject] = []
    time: float | None = None
    for part, turn in enumerate(value["turns"]):
        time = _time(turn, time)
        said.append(_message(turn))
        content = Messages(list(said))
        yield _fields.build(record, NAME, content, body=turn, part=part, time=time, **_labels(value, turn))
        said.append({"role": "assistant", "content": ""})


def _row(record: Record, value: Mapping[str, Any]) -> Iterator[Request | Skip]:
    time = _time(value, None)
    labels = _labels(value, value)
    body = value.get("payload", value if "messages" in value else None)
    if body is not None:
        for one in guess_body(record, body, name=NAME, envelope={"session_id": value.get("session_id")}):
            yield _timed(one, time, labels.get("usage"))
    elif isinstance(value.get("text_input"), str) or _texts(value):
        yield _fields.build(record, NAME, Messages([_message(value)]), body=dict(value), time=time, **labels)
    else:
        yield _recipes.refusal(record.path, record.line, "length-only-trace")


def _timed(one: Request, time: float | None, usage: Usage | None) -> Request:
    return replace(one, time=one.time if time is None else time, usage=one.usage or usage)


def _labels(value: Mapping[str, Any], turn: Mapping[str, Any]) -> dict[str, Any]:
    length = _fields.count(turn.get("output_length", turn.get("max_tokens")))
    return {
        "session": _fields.text(value.get("session_id")),
        "model": _fields.text(turn.get("model")),
        "usage": None if length is None else Usage(completion=length),
    }


def _time(turn: Mapping[str, Any], before: float | None) -> float | None:
    """Milliseconds to seconds; a delay counts from the turn before."""
    at, delay = _fields.number(turn.get("timestamp")), _fields.number(turn.get("delay"))
    if at is not None:
        return at / 1000
    return before + delay / 1000 if before is not None and delay is not None else before


def _texts(turn: Mapping[str, Any]) -> list[str]:
    """Give the texts of a turn: `text`, `texts` (strings or `{"contents": […]}`), `text_input`."""
    found: list[str] = []
    for value in (turn.get("text_input"), turn.get("text"), turn.get("texts")):
        for one in value if isinstance(value, list) else [value]:
            inner = one.get("contents") if isinstance(one, dict) else one
            found.extend(text for text in (inner if isinstance(inner, list) else [inner]) if isinstance(text, str))
    return found


def _message(turn: Mapping[str, Any]) -> JsonObject:
    role = turn.get("role")
    texts = _texts(turn)
    parts: list[JsonObject] = [{"type": "text", "text": text} for text in texts]
    parts += [{"type": kind.rstrip("s"), kind.rstrip("s"): turn[kind]} for kind in _MODALITIES if turn.get(kind)]
    content: Any = texts[0] if len(parts) == 1 and texts else parts
    return {"role": role if isinstance(role, str) else "user", "content": content}
