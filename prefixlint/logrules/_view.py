"""One request as the rules compare it: tools, head and messages, each with its path in the logged body.

The dialects differ in where they keep these and in how a message says what it says; everything behind this module sees
one shape. What cannot be read as a conversation (text prompts) is a head without messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from prefixlint.model import Messages, Request, Text

MARKERS = frozenset({"cache_control", "cachePoint", "cache_point", "prompt_cache_breakpoint"})
_SYSTEM_ROLES = frozenset({"system", "developer"})
_TOOL_KEYS = ("tools", "functions")
_SYSTEM_KEYS = ("system", "instructions", "systemInstruction", "system_instruction")
_MESSAGE_KEYS = ("messages", "input", "contents")


@dataclass(frozen=True, slots=True)
class Unit:
    """A piece of text of a request's head: `path` is where the string stands in the body."""

    path: str
    text: str


class Message:
    """One message as logged. `raw` is never changed; `key` is equal exactly where the logged text is, markers aside.

    `size` are the characters of the message as logged, roughly; `marked` says that it carries cache markers.
    """

    __slots__ = ("_data", "_raw", "_said", "_written", "key", "marked", "path", "size")

    def __init__(self, path: str, raw: Any) -> None:
        self.path, self._raw = path, raw
        try:
            self._data, self._written = orjson.dumps(raw), True
        except TypeError:
            self._data, self._written = dumps(raw), False
        data = self._data
        self.size = len(data)
        self.marked = has_markers(data)
        self.key = hash(dumps(unmarked(raw)) if self.marked else data)
        self._said: Said | None = None

    @property
    def raw(self) -> Any:
        """The message as logged."""
        return orjson.loads(self._data) if self._raw is None and self._written else self._raw

    def pack(self) -> None:
        """Keep the message as JSON only, in a third of the memory, since most messages are never looked at again."""
        if self._written:
            self._raw = None
            self._data = memoryview(self._data).tobytes()  # a copy: what orjson writes takes up more than its length
        self._said = None

    @property
    def said(self) -> Said:
        """What the message says, in one shape for all dialects."""
        if self._said is None:
            self._said = said(unmarked(self.raw) if self.marked else self.raw)
        return self._said


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


@dataclass(frozen=True, slots=True)
class View:
    """A request taken apart. `line` is 1-based, `row` its number in the run; `settings` stand around the prompt.

    `head_text` is the system text as one string, `tools_key` stands for the tools byte for byte and `keys` for the
    messages, markers aside. `size` are the characters of head and messages; `marked` says that there may be markers.
    """

    row: int
    line: int
    path: str
    model: str | None
    tools: Sequence[Any]
    tools_path: str
    head: tuple[Unit, ...]
    messages: tuple[Message, ...]
    body: Any
    settings: Mapping[str, Any] = field(default_factory=dict)
    session: str | None = None
    replica: str | None = None
    namespace: tuple[str, ...] = ()
    cached: int | None = None
    written: int | None = None

    head_text: str = ""
    tool_names: tuple[str, ...] = ()
    tools_key: int = 0
    keys: frozenset[int] = frozenset()
    size: int = 0
    marked: bool = False


def packed(view: View, tools: Sequence[Any], head: tuple[Unit, ...], head_text: str) -> View:
    """Give a view for later comparisons, in less memory: without the body, its messages as JSON.

    `tools`, `head` and `head_text` are the view's own, or equal ones that other views hold as well.
    """
    for message in view.messages:
        message.pack()
    return replace(view, body=None, tools=tools, head=head, head_text=head_text)


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


def tool_name(tool: Any) -> str:
    """Give the name of a tool definition of any dialect."""
    if not isinstance(tool, dict):
        return ""
    for holder in (tool, tool.get("function"), tool.get("toolSpec")):
        if isinstance(holder, dict) and isinstance(holder.get("name"), str):
            return str(holder["name"])
    return str(tool.get("type", ""))


def view(request: Request, row: int) -> View | None:
    """Take a request apart; None where its log holds no text to compare."""
    content, body = request.content, request.body
    if isinstance(content, Text):
        return _of_text(request, row, content, body)
    if not isinstance(content, Messages):
        return None
    if not _is_body(body):
        body = {"tools": list(content.tools), "messages": list(content.messages)}
    tools_path, tools = _first(body, _TOOL_KEYS, list)
    if tools is None:
        tools_path, tools = _wrapped_tools(body)
    head = list(_system(body))
    path, raw = _first(body, _MESSAGE_KEYS, list)
    messages: list[Message] = []
    for index, item in enumerate(raw or ()):
        at = f"{path}[{index}]"
        if not messages and isinstance(item, dict) and item.get("role") in _SYSTEM_ROLES:
            head += _texts(f"{at}.content", item.get("content"))
        else:
            messages.append(Message(at, item))
    return _made(
        request, row, body, tools=tools or (), tools_path=tools_path, head=tuple(head), messages=tuple(messages)
    )


def _is_body(body: Any) -> bool:
    return isinstance(body, dict) and any(isinstance(body.get(key), list) for key in _MESSAGE_KEYS)


def _of_text(request: Request, row: int, content: Text, body: Any) -> View:
    path = "prompt"
    if isinstance(body, dict):
        path = next((key for key in ("prompt", "input", "inputs", "text") if body.get(key) == content.text), path)
    shown = body if isinstance(body, dict) and isinstance(body.get(path), str) else {path: content.text}
    return _made(request, row, shown, tools=(), tools_path="tools", head=(Unit(path, content.text),), messages=())


def _made(
    request: Request,
    row: int,
    body: Any,
    *,
    tools: Sequence[Any],
    tools_path: str,
    head: tuple[Unit, ...],
    messages: tuple[Message, ...],
) -> View:
    usage = request.usage
    inside = body.get("usage") if isinstance(body, dict) else None
    inside = inside if isinstance(inside, dict) else {}
    settings = dict(request.params)
    if isinstance(body, dict):
        settings |= {k: body[k] for k in ("prompt_cache_key", "cache_salt", "effort", "text") if k in body}
    head_text = head[0].text if len(head) == 1 else "\n".join(unit.text for unit in head)
    data = dumps(list(tools)) if tools else b""
    marked_tools = has_markers(data)
    return View(
        row=row,
        line=request.line,
        path=request.path,
        model=request.model,
        tools=tools,
        tools_path=tools_path,
        head=head,
        messages=messages,
        body=body,
        settings=settings,
        session=request.session,
        replica=request.replica,
        namespace=request.namespace,
        cached=usage.cached if usage is not None else inside.get("cache_read_input_tokens"),
        written=usage.written if usage is not None else inside.get("cache_creation_input_tokens"),
        head_text=head_text,
        tool_names=tuple(tool_name(tool) for tool in tools),
        tools_key=hash(dumps(unmarked(list(tools))) if marked_tools else data) if tools else 0,
        keys=frozenset(message.key for message in messages),
        size=len(head_text) + sum(message.size for message in messages),
        marked=marked_tools or any(m.marked for m in messages) or _marked_head(body),
    )


def _marked_head(body: Any) -> bool:
    if not isinstance(body, dict):
        return False
    return any(has_markers(dumps(body[key])) for key in ("system", "toolConfig") if body.get(key))


def _first(body: Mapping[str, Any], keys: Sequence[str], kind: type) -> tuple[str, Any]:
    for key in keys:
        if isinstance(body.get(key), kind):
            return key, body[key]
    return keys[0], None


def _wrapped_tools(body: Mapping[str, Any]) -> tuple[str, Any]:
    config = body.get("toolConfig") or body.get("tool_config")
    if isinstance(config, dict) and isinstance(config.get("tools"), list):
        return "toolConfig.tools", config["tools"]
    return "tools", None


def _system(body: Mapping[str, Any]) -> Iterator[Unit]:
    for key in _SYSTEM_KEYS:
        value = body.get(key)
        if isinstance(value, dict) and isinstance(value.get("parts"), list):
            yield from _texts(f"{key}.parts", value["parts"])
        elif value is not None:
            yield from _texts(key, value)


def _texts(path: str, content: Any) -> Iterator[Unit]:
    if isinstance(content, str):
        yield Unit(path, content)
    elif isinstance(content, list):
        for index, part in enumerate(content):
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                yield Unit(f"{path}[{index}].text", part["text"])
            elif isinstance(part, str):
                yield Unit(f"{path}[{index}]", part)


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
    parts = raw.get("parts", raw.get("content"))
    found = _Parts()
    found.read(parts)
    for key in ("reasoning_content", "reasoning", "thinking"):
        if isinstance(raw.get(key), str):
            found.reasoning.append(raw[key])
    for call in raw.get("tool_calls") or ():
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
            held = part.get("toolUse") or part.get("functionCall") or part
            given = next((held[k] for k in ("input", "args", "arguments") if k in held), None)
            called = _text_or_none(held.get("id") or held.get("toolUseId"))
            self.calls.append(Call(called, str(held.get("name")), given))
        elif kind == "tool_result" or "toolResult" in part or "functionResponse" in part:
            held = part.get("toolResult") or part.get("functionResponse") or part
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
