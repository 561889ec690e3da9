"""Which values of a Python file reach a model: by the shape of calls and dicts, and by what names say."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator

from prefixlint.sources._pyagents import with_time
from prefixlint.sources._pyreaders import NOTES, keeps, shows, tells_people
from prefixlint.sources._pyscope import Scope, words
from prefixlint.sources._pytexts import FILLED, SYSTEM_KEYS, TEMPLATE_CLASSES, is_imperative, is_text, system_inside
from prefixlint.sources._pytools import MOST, SCHEMAS, holds_tools, is_definition, map_keys, tool_lists
from prefixlint.speech import LONG, weight
from prefixlint.values import (
    Attr,
    Call,
    Const,
    Either,
    Elem,
    Item,
    Join,
    Lit,
    Loop,
    Map,
    Name,
    Op,
    Param,
    Seq,
    Slice,
    Star,
    Value,
    Var,
    bare,
    dotted,
    text_of,
)
from prefixlint.wordset import word_set

PROMPT_KEYS = word_set("prompt prompt_template user_prompt initial_prompt suffix_prompt prompt_text")
MESSAGE_KEYS = word_set("messages input contents history input_items message_history")
SENT = "sent"
"""The role of a sink that holds tool definitions which a call hands over, or whose elements are made as tools."""
TOOL_KEYS = frozenset(["tools", "functions", "function_declarations", "tool_schemas"])
CACHE_KEYS = word_set(
    "messages input prompt_cache_key extra_body response_format reasoning reasoning_effort effort "
    "tool_choice cache_salt prompt_logprobs maxlen text_format thinking metadata user "
    "enable_prefix_caching disable_radix_cache memory"
)
MESSAGE_CLASSES = {
    "SystemMessage": "system",
    "SystemChatMessage": "system",
    "SystemMessagePromptTemplate": "system",
    "SystemPromptPart": "system",
    "DeveloperMessage": "developer",
    "HumanMessage": "user",
    "UserMessage": "user",
    "HumanMessagePromptTemplate": "user",
    "UserPromptPart": "user",
    "AIMessage": "assistant",
    "AssistantMessage": "assistant",
    "ToolMessage": "tool",
    "from_system": "system",
    "from_user": "user",
    "from_assistant": "assistant",
}
WINDOWS = frozenset(["ConversationBufferWindowMemory", "ConversationTokenBufferMemory", "trim_messages"])
"""Calls of frameworks that keep the last messages of a conversation."""
_CHANGES = frozenset(["append", "insert", "extend", "pop"])
"""Methods that change a list of messages."""
KEEPS = frozenset(["append", "add", "add_message", "save", "save_message"])
"""Methods of what keeps a conversation that put a message behind the others."""
RENDERS = FILLED | word_set(
    "partial_format stream astream astream_events batch abatch predict apredict aformat_prompt aformat_messages aformat"
)
"""These, and those that fill a text and send it."""
_RUNS = frozenset(["run", "arun"])
"""Methods that fill a chain's template where they have keywords."""
PROMPT_WORDS = word_set("prompt prompts system instruction instructions persona backstory preamble sysprompt")
_WEAK_WORDS = word_set("template message messages context text header head intro summary guidelines rules")
_TOOLS = re.compile(r"(?:^|_)tools$|(?:^|_)tool_(?:list|schemas|definitions|specs)$", re.IGNORECASE)
HISTORY_WORDS = frozenset(["msgs", "messages", "history", "conversation", "chat"])
_SYSTEM_METHODS = frozenset(
    ["append_instructions", "add_system_message", "set_system_prompt", "add_instructions", "with_instructions"]
)
_SPOKEN = {f"sglang.{role}": role for role in ("system", "user", "assistant")}
"""Functions of SGLang's own language that put a message into a state."""
_GENERATES = frozenset(["generate", "generate_async", "async_generate"])
"""Methods of engines that are given prompts as texts, and beside them how to sample."""
_AGENT_MAKERS = frozenset(["create_react_agent", "create_agent"])
"""Functions whose `prompt` is the system text of an agent."""
_SYSTEM_DECORATORS = frozenset(["system_prompt", "instructions"])
_USER_DECORATORS = frozenset(["ell.simple", "ell.complex"])
"""Decorators of functions that give the user's message."""
_SYSTEM_TEXT = word_set("prompt message instruction instructions")
"""Words that, beside `system`, say that a function gives system text, whatever else its name tells."""
_NOT_TEXT = word_set("path file filename url dir key id name names title label logger info")
_COMMON_KEYS = frozenset(["instruction", "instructions", "persona", "additional_instructions"])
"""Of the keys of system text, those that calls which speak to people or to other programs have as well."""
_SPEAKERS = frozenset(["system", "developer", "user", "assistant"])
_REQUEST_KEYS = frozenset(["model", "messages", "input", "tools"])
_MODEL_WORDS = word_set(
    "agent agents llm llms chat model models assistant assistants create generate complete completion completions "
    "run runner prompt signature predict realtime session responses client task"
)


def of_call(call: Call, scope: Scope) -> None:
    """Note what a call sends, and the call itself where other files or rules need it."""
    func = call.func
    path = dotted(func) or ""
    last = func.name if isinstance(func, Attr) else path.rsplit(".", 1)[-1]
    owner = path.rsplit(".", 2)[-2] if path.count(".") else ""
    if call.kwargs:
        _keywords(call.kwargs, scope, path or last)
        for agent in with_time(call):
            scope.sink("messages", agent, "system", at_run=True)
    if last in MESSAGE_CLASSES or owner in MESSAGE_CLASSES:
        scope.sink("message", call, MESSAGE_CLASSES.get(last) or MESSAGE_CLASSES[owner])
    elif is_message_call(call):
        scope.sink("message", call)
    elif last in TEMPLATE_CLASSES or (owner in TEMPLATE_CLASSES and not path.startswith(".")):
        messages = last in ("from_messages", "ChatPromptTemplate")
        scope.sink("messages" if messages else "text", call)
    elif last in _SYSTEM_METHODS and not shows(owner):
        for arg in call.args:
            held = bare(arg)
            for item in held.items if isinstance(held, Seq) else (arg,):
                scope.sink("text", item, "system")
    elif path in _SPOKEN:
        for arg in call.args[:1]:
            scope.sink("text", arg, _SPOKEN[path])
    elif last == "Signature" and path.startswith("dspy.") and len(call.args) > 1:
        scope.sink("text", call.args[1], "system")
    elif last in _GENERATES and call.args and _is_sampled(call):
        for text in _each(call.args[0]):
            scope.sink("text", text)
    for arg in call.args:
        if looks_like_messages(arg) and owner not in TEMPLATE_CLASSES and last not in TEMPLATE_CLASSES:
            scope.sink("messages", arg)
    _inline(call, last, path, scope)
    if scope.module.declared.sinks:
        _declared(call, scope)
    changes = last in _CHANGES and call.args
    stored = last in KEEPS and bool(call.args) and {"role", "content"} <= map_keys(bare(call.args[-1]))
    if changes or stored or last in WINDOWS or any(key in CACHE_KEYS for key, _ in call.kwargs):
        scope.sink("call", call, name=last)
    method = isinstance(func, Attr) or (isinstance(func, Name) and "." in path.strip("."))
    if method and (last in RENDERS or (last in _RUNS and call.kwargs)):
        scope.note_call(call, renders=True)
    elif _project_call(func, last):
        scope.note_call(call, renders=False)


def _is_sampled(call: Call) -> bool:
    """Tell whether a call says how to sample, as those of vLLM's and SGLang's engines in a program do."""
    given = (held.func for arg in call.args[1:] if isinstance(held := bare(arg), Call))
    named = any(key in ("sampling_params", "sampling_param") for key, _ in call.kwargs)
    return named or any((dotted(func) or "").endswith("SamplingParams") for func in given)


def _each(value: Value) -> Iterator[Value]:
    """Give the texts of a list or of a comprehension; a text alone is one."""
    held = bare(value)
    if isinstance(held, Seq):
        yield from held.items
    else:
        yield held.body if isinstance(held, Loop) and held.kind == "list" else value


def _declared(call: Call, scope: Scope) -> None:
    """Note a call of a function that the configuration names, however the code reaches it."""
    names = [dotted(call.func) or ""]
    if isinstance(call.func, Attr):
        made = bare(call.func.base)
        if isinstance(made, Call):
            names.append(f"{dotted(made.func) or ''}.{call.func.name}")
    for name in names:
        own = f"{scope.module.package}.{scope.module.stem}{name}" if name.startswith(".") else name
        for argument in scope.module.declared.arguments(own.strip("/.")):
            scope.sink("declared", call, name=argument)


def _project_call(func: Value, last: str) -> bool:
    if isinstance(func, Name):
        root = func.dotted.split(".", 1)[0]
        return "." in func.dotted and root not in sys.stdlib_module_names
    return bool(words(last) & (PROMPT_WORDS | _WEAK_WORDS)) or last.startswith(("build", "get", "make", "compile"))


def _keywords(pairs: tuple[tuple[str, Value], ...], scope: Scope, owner: str = "") -> None:
    """Note keyword arguments of a call of `owner`, or dict entries, that name a part of a request."""
    keys = {key for key, _ in pairs}
    for key, value in pairs:
        if key in SYSTEM_KEYS or (key in ("role", "goal") and "backstory" in keys):
            if looks_like_messages(value) or holds_blocks(value):
                scope.sink("messages", value, "system")
            elif not isinstance(bare(value), (Param,)):
                sure = key not in _COMMON_KEYS or keys & _REQUEST_KEYS or words(owner) & _MODEL_WORDS
                scope.sink("text" if sure else "hint", value, "system", aside=keeps(owner))
        elif (key in MESSAGE_KEYS and key != "input") or (key == "input" and looks_like_messages(value)):
            scope.sink("messages", value)
        elif key in TOOL_KEYS:
            last = owner.rsplit(".", 1)[-1]
            made = last if last[:1].isupper() else owner  # a class says it, not its module
            sent = keys & {"messages", "input"} or words(made) & _MODEL_WORDS or holds_tools(value)
            scope.sink("tools", value, SENT if sent else "text")
        elif key == "prompt" and owner.rsplit(".", 1)[-1] in _AGENT_MAKERS:
            scope.sink("text", value, "system")
        elif key in PROMPT_KEYS or (key == "description" and "expected_output" in keys):
            scope.sink("named", value, name=key)


def _inline(call: Call, last: str, path: str, scope: Scope) -> None:
    """Note text that speaks to a model and stands in a call, whatever is called; not where people read it."""
    if last in RENDERS or last in ("join", "append", "write", "strip", "dedent", "format", "extend"):
        return
    given: list[tuple[str, Value]] = [*(("", arg) for arg in call.args), *call.kwargs]
    for _, value in tuple(given):
        if isinstance(value, Map) and "role" not in map_keys(value):
            given += [(text, held) for key, held in value.entries if (text := text_of(key)) is not None]
    for name, value in given:
        if not isinstance(value, (Join, Call)) or name in NOTES or not (is_text(value) and is_imperative(value)):
            continue
        if not tells_people(path or last):
            scope.sink("named", value, "text", name or last)


def is_message_call(call: Call) -> bool:
    """Tell whether a call makes a message: `Message(role=…, content=…)`, whatever the class is called."""
    given = dict(call.kwargs)
    if "role" in given:
        spoken = text_of(given["role"]) in _SPEAKERS
        return bool(given.keys() & {"content", "parts"}) or (spoken and bool(given.keys() & {"message", "text"}))
    if len(call.args) < 2 or text_of(call.args[0]) not in _SPEAKERS:
        return False
    last = (dotted(call.func) or "").rsplit(".", 1)[-1]
    return last[:1].isupper() or bool(words(last) & {"message", "msg", "turn"})


def holds_blocks(value: Value) -> bool:
    """Tell whether a value is a list of content blocks: `[{"type": "text", "text": …}]`."""
    held = bare(value)
    return isinstance(held, Seq) and any({"type", "text"} <= map_keys(bare(item)) for item in held.items)


def of_dict(value: Map, scope: Scope) -> None:
    """Note a dict that is a message, a tool definition, or a request body."""
    keys = map_keys(value)
    if "role" in keys and keys & {"content", "parts", "tool_calls"}:
        scope.sink("message", value)
    if is_definition(keys) and keys & SCHEMAS:
        scope.sink("tools", value, SENT)
    for marker in ("cache_control", "cachePoint", "tool_calls", "call_id", "image_url"):
        if marker in keys:
            scope.sink("expr", value, name=marker)
    if "role" not in keys:
        pairs = tuple((text, entry[1]) for entry in value.entries if (text := text_of(entry[0])) is not None)
        _keywords(tuple(pair for pair in pairs if pair[0] not in PROMPT_KEYS), scope)


def of_attribute(base: Value, name: str, value: Value, scope: Scope) -> None:
    """Note `x.system_message = value` and the like."""
    if name in SYSTEM_KEYS and is_text(value):
        scope.sink("text", value, "system", name)
    elif name in ("content", "text") and _is_in_history(base) and is_text(value):
        scope.sink("named", value, "system" if _is_first(base) else "text", name)
    elif _says_prompt(name, scope) and not words(name) & _NOT_TEXT and is_text(value):
        scope.sink("named", value, name=name)


def _is_in_history(value: Value) -> bool:
    """Tell whether a value is a message of a list of messages: `messages[0]`, `self.history[-1].content[0]`."""
    while isinstance(value, (Item, Attr, Var)):
        if isinstance(value, Item) and words((dotted(value.base) or "").rsplit(".", 1)[-1]) & HISTORY_WORDS:
            return True
        value = value.value if isinstance(value, Var) else value.base
    return False


def _is_first(value: Value) -> bool:
    while isinstance(value, (Item, Attr)):
        if isinstance(value, Item) and not isinstance(value.base, (Item, Attr)):
            return isinstance(value.key, Const) and value.key.value == 0
        value = value.base
    return False


def of_store(base: Value, key: Value, value: Value, at: tuple[int, int], scope: Scope) -> None:
    """Note `target[key] = value` for keys of messages and requests."""
    text = text_of(key)
    if text in ("content", "tool_calls", "arguments", "reasoning_content", "role", "text"):
        scope.sink("store", Seq("tuple", (base, key, value), *at), name=text)
        if text in ("content", "text") and _is_in_history(base) and is_text(value):
            scope.sink("named", value, "system" if _is_first(base) else "text", name=text)
    elif text is not None:
        _keywords(((text, value),), scope)
    elif {"role", "content"} <= map_keys(bare(value)):
        scope.sink("store", Seq("tuple", (base, key, value), *at), name="message")
    elif isinstance(value, Join) and any(isinstance(bare(part), Slice) for part in value.parts):
        scope.sink("expr", value, name="kept")


def of_role_test(test: Op, body: list[ast.stmt], scope: Scope) -> None:
    """Note where a loop over messages gathers those of a role: `if m["role"] == "system": text += m["content"]`."""
    of_role = [held for each in test.operands if isinstance(held := bare(each), (Item, Attr)) and _is_role(held)]
    if len(test.operands) != 2 or not of_role or not any(text_of(each) == "system" for each in test.operands):
        return
    for statement in body:
        grown = isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Add)
        called = statement.value if isinstance(statement, ast.Expr) else None
        added = isinstance(called, ast.Call) and isinstance(called.func, ast.Attribute) and called.func.attr == "append"
        if grown or added:
            scope.sink("expr", Op("gathered", (of_role[0],), *scope.at(statement)), name="gathered")


def _is_role(value: Item | Attr) -> bool:
    name = value.name if isinstance(value, Attr) else text_of(value.key)
    return name == "role" and isinstance(bare(value.base), Elem)


def of_return(value: Value, name: str, decorators: tuple[str, ...], scope: Scope) -> None:
    """Note what a function gives back when the function is one that makes prompts, messages or tools."""
    said = words(name)
    cls = words(scope.cls.rsplit(".", 1)[-1])
    if any(decorator.rsplit(".", 1)[-1] in _SYSTEM_DECORATORS for decorator in decorators):
        scope.sink("text", value, "system", name)
    elif looks_like_messages(value):
        scope.sink("messages", value)
    elif any(decorator in _USER_DECORATORS for decorator in decorators) and is_text(value):
        scope.sink("text", value, "user", name)
    elif _names_tools(name) and (lists := tool_lists(value)):
        for listed in lists:
            scope.sink("tools", listed, SENT if holds_tools(listed) else "text", name=name)
    elif is_text(value) and (_says_prompt(name, scope) or cls & {"prompt", "prompts"} or is_imperative(value)):
        system = "system" in said and (said & _SYSTEM_TEXT or not said - {"system", "build", "get"})
        scope.sink("named", value, "system" if system else "text", name=name)
    elif is_text(value) and (inside := system_inside(value)):
        scope.sink("named", value, "system", name=inside, aside=True)


def of_names(env: dict[str, Value], before: dict[str, Value], scope: Scope, *, ended: bool = True) -> None:
    """Note the names of a scope that hold prompts, messages or tools, where a branch or the scope ends.

    Not `ended`, a loop goes on: a list of tools may still be sorted, and a text that grows is not yet what is sent.
    """
    in_order = {id(part) for part in map(_put_in_order, scope.returns) if part is not None}
    for name, value in env.items():
        if before.get(name) is value or isinstance(value, (Param, Var, Name)):
            continue
        if not ended and _grows(before.get(name), value):
            continue
        said = words(name.rsplit(".", 1)[-1])
        prompt = _says_prompt(name, scope)
        if prompt and "system" in said and isinstance(value, Call):
            scope.tell(value, "system")
        if prompt and isinstance(value, Map):
            _of_table(name, value, scope)
        elif is_text(value) or (prompt and _sum_of_parts(value)):
            if said & _NOT_TEXT and not said & {"prompt"}:
                continue
            if (
                prompt
                or is_imperative(value)
                or (scope.module.prompt_file and (name.isupper() or _is_long(value, scope)))
            ):
                role = "system" if said & {"system", "persona"} else "text"
                scope.sink("named", value, role, name=name)
        elif looks_like_messages(value) or (said & HISTORY_WORDS and isinstance(value, (Seq, Join, Slice, Call))):
            scope.sink("messages", value, name=name)
        elif (
            ended
            and _names_tools(name)
            and isinstance(value, (Join, Loop, Seq))
            and getattr(value, "kind", "") not in ("set", "dict")
            and id(value) not in in_order
        ):
            scope.sink("tools", value, SENT if holds_tools(value) else "text", name=name)


def _put_in_order(returned: Value) -> Value | None:
    """Give the list that a function gives back sorted: `return sorted(tools, key=…)`."""
    held = bare(returned)
    ordered = isinstance(held, Call) and dotted(held.func) == "sorted" and bool(held.args)
    return bare(held.args[0]) if ordered and isinstance(held, Call) else None


def _is_long(value: Value, scope: Scope) -> bool:
    """Tell whether a module holds a text of several lines; in a file of prompts it is one, whatever it is called."""
    return scope.is_module and weight(text_of(value) or "") >= LONG


def _of_table(name: str, table: Map, scope: Scope, depth: int = 0) -> None:
    """Note the texts of a table of prompts: `PROMPTS = {"grade": "…"}`, by language or by model too."""
    for key, value in table.entries[:MOST]:
        entry = f"{name}.{text_of(key) or ''}".rstrip(".")
        if isinstance(value, Map) and depth < 2:  # by language and by task
            _of_table(entry, value, scope, depth + 1)
        elif not isinstance(value, (Var, Name, Param)) and is_text(value):
            scope.sink("named", value, "text", name=entry)


def of_class(scope: Scope) -> None:
    """Note the templates of a class that holds a system text among them: they are the messages behind it."""
    texts = {name: value for name, value in scope.env.items() if is_text(value) or isinstance(bare(value), Lit)}
    if any(words(name) >= {"system", "template"} or words(name) >= {"system", "prompt"} for name in texts):
        for name, value in texts.items():
            if "template" in words(name) and is_text(value):
                scope.sink("named", value, "text", name)


def _says_prompt(name: str, scope: Scope) -> bool:
    """Tell whether a name says that it holds a prompt, by its words or by the configuration.

    `GRADE_USER` does where `GRADE_SYSTEM` stands beside it: both halves of one request.
    """
    if name.isupper() and name.endswith("_USER") and f"{name.removesuffix('USER')}SYSTEM" in scope.env:
        return True
    return bool(words(name.rsplit(".", 1)[-1]) & PROMPT_WORDS) or (
        bool(scope.module.declared.names) and scope.module.declared.is_prompt_name(name.rsplit(".", 1)[-1])
    )


def _grows(old: Value | None, value: Value) -> bool:
    """Tell whether a value is what a name held before, with more behind it."""
    if old is None or not isinstance(value, Join) or not value.parts:
        return False
    return value.parts[0] is (old.parts[0] if isinstance(old, Join) and old.parts else old)


def _names_tools(name: str) -> bool:
    """Tell whether a name says that it holds tool definitions, not names of tools, calls or results."""
    return _TOOLS.search(name) is not None


def _sum_of_parts(value: Value) -> bool:
    """Tell whether a value is a concatenation that may be text: of names and calls, with no list in it."""
    return isinstance(value, Join) and not any(isinstance(bare(part), (Seq, Map, Loop)) for part in value.parts)


def looks_like_messages(value: Value, depth: int = 0) -> bool:
    """Tell whether a value is a list that shows at least one message."""
    value = bare(value)
    if depth > 6:
        return False
    if isinstance(value, Seq):
        return value.kind == "list" and any(_is_message(item, depth) for item in value.items[:8])
    if isinstance(value, Join):
        return any(looks_like_messages(part, depth + 1) for part in value.parts[:8])
    if isinstance(value, Either):
        return any(looks_like_messages(option, depth + 1) for option in value.options)
    return isinstance(value, Loop) and value.kind == "list" and _is_message(value.body, depth)


def _is_message(value: Value, depth: int) -> bool:
    value = bare(value)
    if isinstance(value, Star):
        return looks_like_messages(value.value, depth + 1)
    if isinstance(value, Map):
        keys = map_keys(value)
        return "role" in keys and bool(keys & {"content", "parts", "tool_calls"})
    if isinstance(value, Seq) and value.kind == "tuple" and len(value.items) == 2:
        return text_of(value.items[0]) in ("system", "human", "user", "ai", "assistant", "placeholder", "developer")
    if isinstance(value, Loop):
        return looks_like_messages(value.body, depth + 1) or _is_message(value.body, depth + 1)
    if isinstance(value, Call):
        path = dotted(value.func) or ""
        return any(part in MESSAGE_CLASSES for part in path.split(".")[-2:]) or is_message_call(value)
    return False
