"""What an engine's chat route does to a conversation before the chat template sees it.

Read from SGLang 0.5.23 (`entrypoints/openai/serving_chat.py`, `parser/jinja_template_utils.py`, `protocol.py`) and
vLLM 0.33.0 (`renderers/chat_utils/`, `renderers/hf.py`). The two differ in ways that change the prompt:

| | vLLM | SGLang |
|---|---|---|
| text parts joined by | a line end | a space |
| a string, where the template loops over parts | becomes one text part | stays a string |
| tool-call arguments that are no JSON object | become `{}` | the request fails |
| role developer, unknown to the template | becomes system, all system messages merged | stays |
| last message by the assistant | stays | becomes the user's |
| `tool_choice: none` | keeps the tools | drops the tools |
| a tool's keys | name, description, parameters | in the client's order, `defer_loading` added |

What an image shows is opaque. So that two images are not taken for the same tokens, a mark with a digest of the part
stands beside it: prompts with media are told apart rightly, and are never exact.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import jinja2
import orjson
from jinja2 import nodes

from prefixlint.errors import TemplateRefusedError
from prefixlint.model import JsonObject

Route = Literal["vllm", "sglang"]
ContentFormat = Literal["string", "openai"]

_TEXT_KEYS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal", "thinking": "thinking"}
_MEDIA = {
    "image_url": "image",
    "input_image": "image",
    "image": "image",
    "audio_url": "audio",
    "input_audio": "audio",
    "audio": "audio",
    "video_url": "video",
    "video": "video",
    "file": "file",
}
_JOINT = {"vllm": "\n", "sglang": " "}
_BILLING_HEADER = "x-anthropic-billing-header"  # vLLM drops this line of Claude Code's system prompt
_SGLANG_KEYS = ("tool_call_id", "name", "phase", "reasoning_content", "tool_calls", "tools", "prefix")
_PLAIN_MESSAGE = {"role", "content"}
_HANDED_ON = ("user", "assistant")  # a tuple, since a logged role can be anything


def content_format(tree: nodes.Template, source: str, route: Route) -> ContentFormat:
    """Say whether the engine gives this template content as a string or as a list of parts."""
    if route == "sglang":
        if any(word in source for word in ("image", "audio", "video", "vision")):
            return "openai"
        loops = [loop.iter for loop in tree.find_all(nodes.For)]
        parts = any(_reads(item, name, "content") for item in loops for name in ("message", "msg", "m"))
        return "openai" if parts else "string"
    return "openai" if _loops_over_parts(tree) else "string"


def normalise(
    messages: Sequence[JsonObject],
    *,
    route: Route = "vllm",
    content: ContentFormat = "string",
    knows_developer: bool = True,
) -> list[JsonObject]:
    """Give the messages as the template sees them; what needs no change is not copied.

    `content` is `content_format` of the template; `knows_developer` says whether its source names that role.
    Raises TemplateRefusedError where the engine would refuse the request.
    """
    if route == "sglang":
        return [_sglang_message(message, content) for message in messages]
    plain = content == "string"
    result = [m if plain and _is_plain(m) else _vllm_message(m, content) for m in messages]
    if not knows_developer and "developer" in [message["role"] for message in result]:
        result = _without_developer(result)
    return result


def _is_plain(message: JsonObject) -> bool:
    """Tell quickly whether a message is one of those, most of a log, that the route hands on as they are."""
    if len(message) != 2 or type(message.get("content")) is not str:
        return False
    role = message.get("role")
    return type(role) is str and role in _HANDED_ON


def normalise_tools(tools: Sequence[JsonObject], *, route: Route = "vllm", choice: Any = None) -> list[JsonObject]:
    """Give the tools as the template sees them: order of keys, what is left out, and what `tool_choice` drops."""
    if route == "vllm":
        return [_vllm_tool(tool) for tool in tools]
    if choice == "none":
        return []
    wanted = choice.get("function", {}).get("name") if isinstance(choice, Mapping) else None
    chosen = [tool for tool in tools if wanted is None or _function(tool).get("name") == wanted]
    return [_sglang_tool(tool) for tool in chosen]


def _function(tool: JsonObject) -> JsonObject:
    """Give the function of a tool, also where a log has it without its wrapper."""
    function = tool.get("function")
    return function if isinstance(function, dict) else {k: v for k, v in tool.items() if k != "type"}


def _vllm_tool(tool: JsonObject) -> JsonObject:
    function = _function(tool)
    known = {key: function.get(key) for key in ("name", "description", "parameters")}
    for key in ("strict", "defer_loading"):
        if function.get(key) is not None:
            known[key] = function[key]
    return {"type": "function", "function": known}


def _sglang_tool(tool: JsonObject) -> JsonObject:
    function = _function(tool)
    known = ("description", "name", "parameters", "strict", "defer_loading")
    ordered = {
        key: value for key, value in function.items() if key in known and (value is not None or key in known[:3])
    }
    ordered.update({key: None for key in known[:3] if key not in ordered})
    return {"type": tool.get("type") or "function", "function": ordered, "defer_loading": tool.get("defer_loading")}


def _vllm_message(message: JsonObject, content_as: ContentFormat) -> JsonObject:
    role = message.get("role")
    content = message.get("content")
    if role == "system" and content:
        content = _without_billing(content)
    if content_as == "string" and type(content) is str and content is message.get("content"):
        if message.keys() == _PLAIN_MESSAGE:
            return message
    elif content_as == "string":
        content = content if isinstance(content, str) else "\n".join(_texts(content, "vllm"))
    else:
        content = _parts([content] if isinstance(content, str) else content, "vllm")
    result: JsonObject = {"role": role, "content": content}
    if role == "assistant":
        if message.get("tool_calls"):
            result["tool_calls"] = [_vllm_call(call) for call in _listed(message["tool_calls"])]
        reasoning = _first(message, "reasoning", "reasoning_content", "thinking")
        if reasoning is not None:
            result["reasoning"] = result["reasoning_content"] = reasoning
    elif role == "tool":
        if "tool_call_id" in message:
            result["tool_call_id"] = message["tool_call_id"]
        if isinstance(content, list) and all(part.get("type") == "text" for part in content):
            result["content"] = "\n".join(part["text"] for part in content)
    elif role == "developer":
        result["tools"] = message.get("tools")
    for key in ("name", "task"):
        if isinstance(message.get(key), str):
            result[key] = message[key]
    return result


def _listed(calls: Any) -> list[Any]:
    if not isinstance(calls, list):
        raise TemplateRefusedError("tool_calls is no list", slug="bad-tool-call")
    return calls


def _vllm_call(call: Any) -> JsonObject:
    if not isinstance(call, dict) or not isinstance(call.get("function"), dict):
        raise TemplateRefusedError("a tool call is not a function call", slug="bad-tool-call")
    function = call["function"]
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments) if arguments else {}
        except (ValueError, RecursionError):
            arguments = {}
    return {**call, "function": {**function, "arguments": arguments if isinstance(arguments, dict) else {}}}


def _sglang_message(message: JsonObject, content_as: ContentFormat) -> JsonObject:
    role = message.get("role")
    content = message.get("content")
    if type(content) is str and message.keys() == _PLAIN_MESSAGE:
        return message
    role = role.lower() if isinstance(role, str) else role
    if content is None:
        content = ""
    elif not isinstance(content, str):
        content = _parts(content, "sglang") if content_as == "openai" else " ".join(_texts(content, "sglang"))
    if role == "tool" and isinstance(content, list) and all(part.get("type") == "text" for part in content):
        content = " ".join(part["text"] for part in content)
    result: JsonObject = {"role": role, "content": content}
    for key in _SGLANG_KEYS if role != "user" else ():
        value = message.get(key)
        if key == "reasoning_content" and value is None:
            value = _first(message, "reasoning", "thinking")
        if value is not None:
            result[key] = _sglang_calls(value) if key == "tool_calls" else value
    return result


def _sglang_calls(calls: Any) -> list[JsonObject]:
    return [_sglang_call(call) for call in _listed(calls)]


def _sglang_call(call: Any) -> JsonObject:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        raise TemplateRefusedError("a tool call has no function", slug="bad-tool-call")
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = orjson.loads(arguments)
        except orjson.JSONDecodeError:
            arguments = None
        if not isinstance(arguments, dict):
            raise TemplateRefusedError("the arguments of a tool call are not a JSON object", slug="bad-tool-call")
    return {
        "id": call.get("id"),
        "index": call.get("index"),
        "type": call.get("type") or "function",
        "function": {"name": function.get("name"), "arguments": arguments},
    }


def _first(message: JsonObject, *keys: str) -> Any:
    return next((message[key] for key in keys if message.get(key) is not None), None)


def _texts(parts: Any, route: Route) -> list[str]:
    """Give the texts of content parts, with a mark for each that is not text."""
    return [part["text"] for part in _parts(parts, route) if part.get("type") == "text"]


def _parts(parts: Any, route: Route) -> list[JsonObject]:
    """Give content parts in the form that templates read: `text`, `image`, `audio`, `video`."""
    result: list[JsonObject] = []
    for part in parts if isinstance(parts, Iterable) and not isinstance(parts, Mapping) else ():
        if isinstance(part, str):
            result.append({"type": "text", "text": part})
        elif isinstance(part, dict):
            result.extend(_part(part, route))
    return result


def _part(part: JsonObject, route: Route) -> list[JsonObject]:
    kind = part.get("type")
    if not isinstance(kind, str):
        return []
    if kind in _TEXT_KEYS:
        text = part.get(_TEXT_KEYS[kind])
        wanted = route == "vllm" or kind in {"text", "input_text"}
        return [{"type": "text", "text": text}] if isinstance(text, str) and wanted else []
    if kind in _MEDIA:
        digest = hashlib.sha256(orjson.dumps(part, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)).hexdigest()
        return [{"type": _MEDIA[kind]}, {"type": "text", "text": f"<{_MEDIA[kind]} {digest[:12]}>"}]
    return [part]


def _without_billing(content: Any) -> Any:
    if isinstance(content, str):
        return content.partition("\n")[2] if content.startswith(_BILLING_HEADER) else content
    if not isinstance(content, list):
        return content
    kept = []
    for part in content:
        text = part.get("text") if isinstance(part, dict) else part
        if isinstance(text, str) and text.startswith(_BILLING_HEADER):
            rest = text.partition("\n")[2]
            if rest:
                kept.append(rest if isinstance(part, str) else {**part, "text": rest})
        else:
            kept.append(part)
    return kept


def _without_developer(messages: list[JsonObject]) -> list[JsonObject]:
    """Turn developer messages into system messages, and merge all system messages into the first."""
    system: list[str] = []
    others: list[JsonObject] = []
    for message in messages:
        if message["role"] in {"developer", "system"}:
            content = message.get("content")
            text = content if isinstance(content, str) else "\n".join(_texts(content, "vllm"))
            if text:
                system.append(text)
        else:
            others.append(message)
    if len(messages) - len(others) == 1 and messages[0]["role"] in {"developer", "system"}:
        first = {key: value for key, value in messages[0].items() if key != "tools"}
        return [{**first, "role": "system"}, *others]
    return [{"role": "system", "content": "\n\n".join(system)}, *others]


def _reads(node: nodes.Node | None, name: str, key: str | None = None) -> bool:
    """Say whether an expression is a variable, or a key of it, seen through filters, tests and slices."""
    while isinstance(node, nodes.Filter | nodes.Test) or (
        isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice)
    ):
        node = node.node
    if key is not None:
        if isinstance(node, nodes.Getitem):
            if not isinstance(node.arg, nodes.Const) or node.arg.value != key:
                return False
        elif not isinstance(node, nodes.Getattr) or node.attr != key:
            return False
        node = node.node
    if "." in name and isinstance(node, nodes.Getattr):
        return f"{getattr(node.node, 'name', None)}.{node.attr}" == name
    return isinstance(node, nodes.Name) and node.ctx == "load" and node.name == name


def _loops_over_parts(tree: nodes.Template) -> bool:
    """Find a loop over the content of a message, directly or through a macro's parameter."""
    aliases = _aliases(tree, "messages")
    items = {
        loop.target.name
        for loop in tree.find_all(nodes.For)
        if isinstance(loop.target, jinja2.nodes.Name) and any(_reads(loop.iter, alias) for alias in aliases)
    }
    in_macros: set[int] = set()
    for macro in tree.find_all(nodes.Macro):
        parameters = _content_parameters(tree, macro, items)
        for loop in macro.find_all(nodes.For):
            in_macros.add(id(loop))
            if isinstance(loop.iter, nodes.Name) and loop.iter.name in parameters:
                return True
    return any(
        any(_reads(loop.iter, item, "content") for item in items)
        or (id(loop) not in in_macros and isinstance(loop.iter, nodes.Name) and loop.iter.name == "content")
        for loop in tree.find_all(nodes.For)
        if items
    )


def _content_parameters(tree: nodes.Template, macro: nodes.Macro, items: set[str]) -> set[str]:
    """Give the parameters of a macro that some call fills with a message's content."""
    names = [argument.name for argument in macro.args]
    found: set[str] = set()
    for call in tree.find_all(nodes.Call):
        if not isinstance(call.node, nodes.Name) or call.node.name != macro.name:
            continue
        given = [*zip(names, call.args, strict=False), *((word.key, word.value) for word in call.kwargs)]
        found.update(name for name, value in given if any(_reads(value, item, "content") for item in items))
    return found & set(names)


def _aliases(tree: nodes.Template, name: str) -> set[str]:
    """Give the names under which a variable is known after `set`, also as attributes of namespaces."""
    found = {name}
    pairs: list[tuple[str, nodes.Node]] = []
    for assign in tree.find_all(nodes.Assign):
        target = assign.target
        if isinstance(target, nodes.Name):
            pairs.append((target.name, assign.node))
            if isinstance(assign.node, nodes.Call) and getattr(assign.node.node, "name", None) == "namespace":
                pairs.extend((f"{target.name}.{word.key}", word.value) for word in assign.node.kwargs)
        elif isinstance(target, nodes.NSRef):
            pairs.append((f"{target.name}.{target.attr}", assign.node))
    grew = True
    while grew:
        more = {left for left, right in pairs if left not in found and any(_reads(right, alias) for alias in found)}
        found |= more
        grew = bool(more)
    return found
