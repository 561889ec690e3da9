"""One message as logged, of any dialect: what it is known by, what it says, and how little of it is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

MARKERS = frozenset({"cache_control", "cachePoint", "cache_point", "prompt_cache_breakpoint"})


class Message:
    """One message as logged. `raw` is never changed; `key` is equal exactly where the logged text is, markers aside.

    A text alone is a message of the user's.

    `weight` are the characters that it keeps in memory; `marked` says that it carries cache markers.
    """

    __slots__ = ("__weakref__", "_json", "_plain", "_raw", "_said", "key", "marked", "path", "weight")

    def __init__(self, path: str, raw: Any, identity: Identity | None = None) -> None:
        self.path, self._raw = path, raw
        self.key, self.marked, self.weight, self._json = identity or identify(raw)
        self._plain: tuple[str, str] | None = None
        self._said: Said | None = None

    @property
    def packed(self) -> bool:
        """Whether the message is kept packed only."""
        return self._raw is None and self._said is None

    @property
    def raw(self) -> Any:
        """The message as logged."""
        if self._raw is None:
            if self._plain is not None:
                return dict(zip(_ROLE_AND_TEXT, self._plain, strict=True))
            if self._json is not None:
                return orjson.loads(self._json)
        return self._raw

    @property
    def size(self) -> int:
        """The characters of the message as logged, roughly."""
        return len(dumps(self.raw) if self._json is None else self._json)

    def pack(self, same: Message | None = None) -> None:
        """Keep the message as its text or as JSON only, in less memory: most messages are never looked at again.

        `same` may be a message that was packed: where it is the same one, what is kept of it is kept for both.
        """
        self._said = None
        if self._raw is None:
            return
        if same is not None and same.packed and self._is_as(same):
            self._json, self._plain, self._raw = same._json, same._plain, None  # noqa: SLF001  # of this class
            return
        if _is_ascii(self._raw):
            self._plain, self._raw = (self._raw["role"], self._raw["content"]), None
            return
        try:
            data = orjson.dumps(self._raw) if self._json is None else self._json
        except TypeError:
            return
        self._json = memoryview(data).tobytes()  # a copy: what orjson writes takes up more than its length
        self._raw = None

    def _is_as(self, other: Message) -> bool:
        """Tell whether another message is logged as this one is, markers too."""
        return (self.key, self.path) == (other.key, other.path) and not (self.marked or other.marked)

    @property
    def said(self) -> Said:
        """What the message says, in one shape for all dialects."""
        if self._said is None:
            self._said = said(unmarked(self.raw) if self.marked else self.raw)
        return self._said


def _is_ascii(raw: Any) -> bool:
    """Tell whether a message is a role and a text of which a character takes a byte, as JSON would.

    Of others the text may take four times as much as its JSON.
    """
    if type(raw) is not dict or tuple(raw) != _ROLE_AND_TEXT:
        return False
    role, text = raw.values()
    return type(role) is str is type(text) and text.isascii()


Identity = tuple[int, bool, int, bytes | None]
"""What a message is known by: its key, whether it is marked, its weight, and its JSON where that was written."""
_PLAIN = frozenset({str})
_ROLE_AND_TEXT = ("role", "content")


def identify(raw: Any) -> Identity:
    """Say what a message as logged is known by."""
    key = _plain_key(raw)
    if key is not None:
        return key, False, sum(map(len, raw.values())), None
    if isinstance(raw, str):
        return *identify({"role": "user", "content": raw})[:3], None
    try:
        data = orjson.dumps(raw)
    except TypeError:
        text = dumps(raw)
        return hash(text), has_markers(text), len(text), None
    if not has_markers(data):
        return hash(data), False, len(data), data
    bare_raw = unmarked(raw)
    key = _plain_key(bare_raw)
    return hash(dumps(bare_raw)) if key is None else key, True, len(data), data


def _plain_key(raw: Any) -> int | None:
    """Give the key of a message that is texts by name, which most are: faster than to write it as JSON."""
    if type(raw) is dict and len(raw) == 2 and type(raw.get("role")) is str is type(raw.get("content")):  # most of all
        return hash((*raw, *raw.values()))
    if type(raw) is dict and MARKERS.isdisjoint(raw) and _PLAIN.issuperset(map(type, raw.values())):
        return hash((*raw, *raw.values()))
    return None


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call: `arguments` as logged, a JSON string or an object."""

    id: str | None
    name: str
    arguments: Any


@dataclass(frozen=True, slots=True)
class Result:
    """What a tool gave back."""

    id: str | None
    text: str


@dataclass(frozen=True, slots=True)
class Said:
    """The content of a message: text, reasoning, calls, results, and attachments as JSON."""

    role: str
    text: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    results: tuple[Result, ...] = ()
    media: tuple[str, ...] = ()


def has_markers(data: bytes) -> bool:
    """Tell whether JSON may hold cache markers."""
    if b"cache" not in data:
        return False
    return b"cache_control" in data or b"cachePoint" in data or b"cache_point" in data or b"prompt_cache_b" in data


def dumps(value: Any) -> bytes:
    """Write JSON as it stands; what JSON cannot hold becomes its repr."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return repr(value).encode("utf-8", "surrogatepass")


def bare_json(value: Any) -> bytes:
    """Write JSON without cache markers."""
    data = dumps(value)
    return dumps(unmarked(value)) if has_markers(data) else data


def same_json(a: Any, b: Any) -> bool:
    """Tell whether two values are written as the same JSON, cache markers aside."""
    one, two = dumps(a), dumps(b)
    return one == two or ((has_markers(one) or has_markers(two)) and bare_json(a) == bare_json(b))


def bare(value: Any) -> Any:
    """Give a value without cache markers, as `unmarked`; faster where it is large and holds none."""
    return unmarked(value) if has_markers(dumps(value)) else value


def unmarked(value: Any) -> Any:
    """Give a value without cache markers; the value itself where it holds none."""
    if isinstance(value, dict):
        if MARKERS.isdisjoint(value):
            changed = {k: new for k, v in value.items() if type(v) in (dict, list) and (new := unmarked(v)) is not v}
            return value | changed if changed else value
        return {k: unmarked(v) for k, v in value.items() if k not in MARKERS}
    if isinstance(value, list):
        items = [unmarked(v) if type(v) in (dict, list) else v for v in value]
        items = [i for i, v in zip(items, value, strict=True) if not (i == {} and isinstance(v, dict) and v)]
        if len(items) == len(value) and all(a is b for a, b in zip(items, value, strict=True)):
            return value
        return items
    return value


_ROLES = {"model": "assistant", "function": "tool", "developer": "system"}


def said(raw: Any) -> Said:
    """Read a message of any dialect."""
    if not isinstance(raw, dict):
        return Said("user", text=raw if isinstance(raw, str) else dumps(raw).decode("utf-8", "replace"))
    reader = _ITEMS.get(str(raw.get("type")))
    if reader is not None:
        return reader(raw)
    role = str(raw.get("role", "user"))
    role = _ROLES.get(role, role)
    found = _Parts()
    found.read(raw.get("parts", raw.get("content")))
    for key in ("reasoning_content", "reasoning", "thinking"):
        if isinstance(raw.get(key), str):
            found.reasoning.append(raw[key])
    calls = raw.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        found.calls.append(_openai_call(call))
    if isinstance(raw.get("function_call"), dict):
        found.calls.append(_openai_call({"function": raw["function_call"]}))
    text = "\n".join(found.text)
    if role == "tool":
        result = Result(_text_or_none(raw.get("tool_call_id") or raw.get("name")), text)
        return Said(role, results=(result, *found.results), media=tuple(found.media))
    return Said(role, text, "\n".join(found.reasoning), tuple(found.calls), tuple(found.results), tuple(found.media))


class _Parts:
    """The parts of one message, sorted by what they are."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.reasoning: list[str] = []
        self.calls: list[Call] = []
        self.results: list[Result] = []
        self.media: list[str] = []

    def read(self, content: Any) -> None:
        if isinstance(content, str):
            self.text.append(content)
        elif isinstance(content, list):
            for part in content:
                self._part(part)
        elif isinstance(content, dict):
            self._part(content)

    def _part(self, part: Any) -> None:
        if not isinstance(part, dict):
            self.text.append(str(part))
            return
        kind = str(part.get("type", ""))
        if kind in ("thinking", "redacted_thinking", "reasoning") or part.get("thought") is True:
            self.reasoning.append(str(part.get("thinking") or part.get("text") or part.get("data") or ""))
        elif kind == "tool_use" or "toolUse" in part or "functionCall" in part:
            held = _held(part, "toolUse", "functionCall")
            given = next((held[k] for k in ("input", "args", "arguments") if k in held), None)
            called = _text_or_none(held.get("id") or held.get("toolUseId"))
            self.calls.append(Call(called, str(held.get("name")), given))
        elif kind == "tool_result" or "toolResult" in part or "functionResponse" in part:
            held = _held(part, "toolResult", "functionResponse")
            inner = _Parts()
            inner.read(held.get("content"))
            text = "\n".join(inner.text) or (dumps(held["response"]).decode() if "response" in held else "")
            answered = held.get("tool_use_id") or held.get("toolUseId") or held.get("id") or held.get("name")
            self.results.append(Result(_text_or_none(answered), text))
            self.media += inner.media
        elif isinstance(part.get("text"), str):
            self.text.append(part["text"])
        elif part:
            self.media.append(dumps(part).decode("utf-8", "replace"))


def _held(part: dict[str, Any], *keys: str) -> dict[str, Any]:
    """Give what a part holds under one of these names; the part itself where that is nothing to look into."""
    return next((held for key in keys if isinstance(held := part.get(key), dict) and held), part)


def _openai_call(call: Any) -> Call:
    if not isinstance(call, dict):
        return Call(None, "", call)
    function = call.get("function")
    held = function if isinstance(function, dict) else call
    return Call(_text_or_none(call.get("id")), str(held.get("name", "")), held.get("arguments"))


def _function_call(raw: Mapping[str, Any]) -> Said:
    call = Call(_text_or_none(raw.get("call_id")), str(raw.get("name")), raw.get("arguments"))
    return Said("assistant", calls=(call,))


def _function_output(raw: Mapping[str, Any]) -> Said:
    parts = _Parts()
    parts.read(raw.get("output"))
    return Said("tool", results=(Result(_text_or_none(raw.get("call_id")), "\n".join(parts.text)),))


def _reasoning(raw: Mapping[str, Any]) -> Said:
    parts = _Parts()
    parts.read(raw.get("summary"))
    parts.read(raw.get("content"))
    return Said("assistant", reasoning="\n".join(parts.text) or str(raw.get("encrypted_content") or "…"))


_ITEMS: Mapping[str, Callable[[Mapping[str, Any]], Said]] = {
    "function_call": _function_call,
    "function_call_output": _function_output,
    "reasoning": _reasoning,
}


def _text_or_none(value: Any) -> str | None:
    return None if value is None else str(value)
