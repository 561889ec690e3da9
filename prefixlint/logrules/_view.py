"""One request as the rules compare it: tools, head and messages, each with its path in the logged body.

Everything behind this module sees one shape for all dialects; a text prompt is a head without messages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice, zip_longest
from typing import Any

from prefixlint.bodies import continues
from prefixlint.logrules._message import Message, dumps, has_markers, unmarked
from prefixlint.model import Messages, Request, Text
from prefixlint.renderedtext import starts, taken_apart

_SYSTEM_ROLES = frozenset({"system", "developer"})
_TOOL_KEYS = ("tools", "functions")
_SYSTEM_KEYS = ("system", "instructions", "systemInstruction", "system_instruction")
_MESSAGE_KEYS = ("messages", "input", "contents")
_DECLARED = ("functionDeclarations", "function_declarations")
_OF_MESSAGE = re.compile(r"messages\[(\d+)\](\.content)?")
_PATHS = 4_096  # paths of messages that are kept


@dataclass(frozen=True, slots=True)
class Unit:
    """A piece of text of a request's head: `path` is where the string stands in the body."""

    path: str
    text: str


@dataclass(eq=False, slots=True)
class View:
    """A request taken apart. `line` is 1-based, `row` its number in the run; `settings` stand around the prompt.

    `head_text` is the system text as one string, `tools_key` stands for the tools byte for byte and `keys` for the
    messages, markers aside. `weight` are the characters of head and messages that are kept in memory; `marked` says
    that there may be markers. `starts` are the characters of a text prompt at which its messages begin, where a chat
    template wrote it: paths are then those of messages, see `placed`. Nothing of a view changes but that it is packed,
    when no rule looks at it any more.
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
    starts: tuple[int, ...] = ()
    text_path: str = "prompt"
    keys: frozenset[int] = frozenset()
    weight: int = 0
    marked: bool = False

    @property
    def size(self) -> int:
        """The characters of head and messages."""
        return len(self.head_text) + sum(message.size for message in self.messages)

    def placed(self, path: str, char: int) -> tuple[str, int]:
        """Give the place in the logged body for one in what was made of it."""
        found = _OF_MESSAGE.match(path) if self.starts else None
        if found is None:
            return path, char
        start = self.starts[min(int(found[1]), len(self.starts) - 1)]
        return self.text_path, start + (char if found[2] else 0)

    def pack(self, tools: Sequence[Any], head: tuple[Unit, ...], head_text: str) -> None:
        """Keep what later requests are compared with, and no body.

        `tools`, `head` and `head_text` are the view's own, or equal ones that other views hold as well.
        """
        self.body, self.tools, self.head, self.head_text = None, tools, head, head_text

    def pack_messages(self, earlier: Sequence[Message]) -> None:
        """Keep the messages as their text or JSON, in less memory; `earlier` are messages that most of these repeat."""
        for message, same in zip_longest(self.messages, earlier[: len(self.messages)]):
            if not message.packed:
                message.pack(same)


def tool_name(tool: Any) -> str:
    """Give the name of a tool definition of any dialect."""
    if not isinstance(tool, dict):
        return ""
    for holder in (tool, tool.get("function"), tool.get("toolSpec")):
        if isinstance(holder, dict) and isinstance(holder.get("name"), str):
            return str(holder["name"])
    return str(tool.get("type", ""))


def view(request: Request, row: int, message: Callable[[str, Any], Message] = Message) -> View | None:
    """Take a request apart; None where its log holds no text to compare.

    `message` gives the message of a path and of what was logged there.
    """
    content, body = request.said, request.body
    if isinstance(content, Text):
        return _of_text(request, row, content, body, message)
    if not isinstance(content, Messages):
        return None
    alone = _only_text(body, content)
    if alone is None and (not _is_body(body) or continues(body)):
        body = _stand_in(body, content)
    tools_path, tools = _first(body, _TOOL_KEYS, list)
    if tools is None:
        tools_path, tools = _wrapped_tools(body)
    tools_path, tools = _declared(tools_path, tools)
    head = list(_system(body))
    path, raw = _first(body, _MESSAGE_KEYS, list)
    items = raw or ()
    first = 0
    for item in items:
        if not _is_system(item):
            break
        head += _texts(f"{path}[{first}].content", item.get("content"))
        first += 1
    made = [message(_at(path, index), item) for index, item in enumerate(islice(items, first, None), first)]
    if alone is not None:
        made = [message(alone, body[alone])]
    return _made(request, row, body, tools=tools or (), tools_path=tools_path, head=tuple(head), messages=tuple(made))


@lru_cache(_PATHS)
def _at(name: str, index: int) -> str:
    """Give the path of an element of a list: the same string for all requests."""
    return f"{name}[{index}]"


def _only_text(body: Any, content: Messages) -> str | None:
    """Name the key of the one user message that a body has as a text instead of a list; None where it has a list."""
    if not isinstance(body, dict) or _is_body(body) or continues(body):
        return None
    spoken = [m for m in content.messages if not _is_system(m)]
    if len(spoken) != 1:
        return None
    key = next((key for key in (*_MESSAGE_KEYS, "prompt") if isinstance(body.get(key), str)), None)
    return key if key is not None and spoken[0].get("content") == body[key] else None


def _stand_in(body: Any, content: Messages) -> dict[str, Any]:
    """Make a body of what a log holds in another way; a system text that stands in the body is named there."""
    messages = list(content.messages)
    held = {key: body[key] for key in _SYSTEM_KEYS if key in body} if isinstance(body, dict) else {}
    first = messages[0] if messages and isinstance(messages[0], dict) else {}
    if held and _is_system(first) and [u.text for u in _system(held)] == [first.get("content")]:
        return {**held, "tools": list(content.tools), "messages": messages[1:]}
    return {"tools": list(content.tools), "messages": messages}


def _is_system(message: Any) -> bool:
    role = message.get("role") if isinstance(message, dict) else None
    return isinstance(role, str) and role in _SYSTEM_ROLES


def _is_body(body: Any) -> bool:
    return isinstance(body, dict) and _first(body, _MESSAGE_KEYS, list)[1] is not None


def _of_text(request: Request, row: int, content: Text, body: Any, message: Callable[[str, Any], Message]) -> View:
    path, shown = "prompt", {"prompt": content.text}
    if isinstance(body, dict):
        for key in ("prompt", "input", "inputs", "text"):
            if body.get(key) in (content.text, [content.text]):
                path, shown = (key if isinstance(body[key], str) else f"{key}[0]"), body
                break
    chat = taken_apart(content.text)
    if chat is None:
        return _made(request, row, shown, tools=(), tools_path="tools", head=(Unit(path, content.text),), messages=())
    said = chat["messages"]
    first = next((n for n, one in enumerate(said) if one["role"] not in _SYSTEM_ROLES), len(said))
    head = tuple([Unit(f"{_at('messages', n)}.content", one["content"]) for n, one in enumerate(said[:first])])
    made = tuple([message(_at("messages", n), one) for n, one in enumerate(said[first:], first)])
    view = _made(request, row, {"messages": said}, tools=(), tools_path="tools", head=head, messages=made)
    view.starts, view.text_path = starts(chat), path
    return view


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
        settings |= {k: body[k] for k in _BESIDE & body.keys()}
    head_text = head[0].text if len(head) == 1 else "\n".join([unit.text for unit in head])
    data = dumps(tools) if tools else b""
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
        tool_names=tuple([tool_name(tool) for tool in tools]),
        tools_key=hash(dumps(unmarked(list(tools))) if marked_tools else data) if tools else 0,
        keys=frozenset([message.key for message in messages]),
        weight=len(head_text) + sum([message.weight for message in messages]),
        marked=marked_tools or any(m.marked for m in messages) or _marked_head(body),
    )


_BESIDE = frozenset(
    ["prompt_cache_key", "cache_salt", "effort", "text", "prompt_logprobs", "return_logprob", "logprob_start_len"]
)
"""Keys of a body, beside its parameters, that say how caches are used."""


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


def _declared(path: str, tools: Any) -> tuple[str, Any]:
    """Give the tools that one element of a list declares, as Gemini has them; else the list itself."""
    found = [
        (index, key)
        for index, tool in enumerate(tools or ())
        for key in _DECLARED
        if isinstance(tool, dict) and tool.get(key) and isinstance(tool[key], list)
    ]
    if len(found) != 1:
        return path, tools
    index, key = found[0]
    return f"{path}[{index}].{key}", tools[index][key]


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
