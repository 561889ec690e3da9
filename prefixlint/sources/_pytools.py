"""What in a Python file defines tools: mappings with a tool's keys, and calls of what is named after tools."""

from __future__ import annotations

from prefixlint.sources._pyscope import words
from prefixlint.values import Attr, Call, Either, Elem, Join, Loop, Map, Seq, Star, Value, bare, dotted, text_of
from prefixlint.wordset import word_set

SCHEMAS = frozenset(["parameters", "input_schema", "inputSchema", "args_schema"])
"""Keys of a tool definition that hold what it takes."""
_DEFINITION = SCHEMAS | word_set(
    "name description type strict function cache_control title annotations outputSchema output_schema returns required "
    "properties defer_loading allowed_callers input_examples eager_input_streaming examples func handler coroutine"
)
"""Keys of tool definitions; something with other keys besides has a name and a description for another reason."""
MOST = 200
"""Elements of a list, or entries of a table, that are looked at."""
_PASSED_ON = word_set("as_completed list tuple sorted set reversed gather chain")
_OF_CALLS = word_set(
    "call calls result results name names message messages choice id ids task run execute simulate invoke response "
    "output outputs submit strip lower upper split rename label labels key keys"
)
"""Words that make of a tool one of its calls, or what it gave."""


def map_keys(value: Value) -> set[str]:
    """Give the literal keys of a mapping."""
    if not isinstance(value, Map):
        return set()
    return {key for entry in value.entries if (key := text_of(entry[0])) is not None}


def is_definition(keys: set[str]) -> bool:
    """Tell whether a mapping with these keys defines a tool."""
    return {"name", "description"} <= keys <= _DEFINITION


def holds_tools(value: Value) -> bool:
    """Tell whether the elements of a list are made as tools: defined in place, or by something called a tool."""
    stack, steps = [value], 0
    while stack and steps < MOST:
        steps += 1
        part = bare(stack.pop())
        if isinstance(part, Map):
            if is_definition(map_keys(part)):
                return True
        elif isinstance(part, Call):
            if _makes_tool(part):
                return True
            stack.extend(part.args if (dotted(part.func) or "").rsplit(".", 1)[-1] in _PASSED_ON else ())
        elif isinstance(part, (Loop, Star, Elem, Seq, Join, Either)):
            stack.extend(_elements(part))
    return False


def tool_lists(value: Value) -> list[Value]:
    """Give the lists that a function's result is: itself, or of several results (`tools, allowed_names`) the lists."""
    held = bare(value)
    results = held.items if isinstance(held, Seq) and held.kind == "tuple" else ()
    several = any(isinstance(part, (Seq, Join, Loop)) for part in map(bare, results))
    return [part for part in (map(bare, results) if several else [value]) if _is_list(bare(part))]


def _is_list(value: Value) -> bool:
    return isinstance(value, (Seq, Join, Loop)) and getattr(value, "kind", "") not in ("set", "dict")


def _elements(value: Loop | Star | Elem | Seq | Join | Either) -> tuple[Value, ...]:
    """Give what the elements of a list are, or of what an element is one."""
    if isinstance(value, Loop):
        return (value.body,)
    if isinstance(value, Star):
        return (value.value,)
    if isinstance(value, Elem):
        return (value.source,)
    return value.items if isinstance(value, Seq) else value.parts if isinstance(value, Join) else value.options


def _makes_tool(call: Call) -> bool:
    path = dotted(call.func) or (call.func.name if isinstance(call.func, Attr) else "")
    owner, _, last = path.rpartition(".")
    said = words(last) if "tool" in words(last) else words(owner.rpartition(".")[2])  # a method says it, else its class
    return "tool" in said and not (said | words(last)) & _OF_CALLS
