"""Which values of a Python file are text, as far as the file shows, and whether they speak to a model."""

from __future__ import annotations

import re

from prefixlint.sources._pyscope import words
from prefixlint.speech import IMPERATIVE, LONG, weight
from prefixlint.values import (
    REPLACE_EACH,
    Attr,
    Call,
    Either,
    Field,
    Item,
    Join,
    Lit,
    Map,
    Name,
    Param,
    Seq,
    Template,
    Value,
    bare,
    text_of,
)
from prefixlint.wordset import word_set

SYSTEM_KEYS = word_set(
    "system system_prompt system_message system_instruction system_instructions instructions instruction "
    "sys_prompt preamble global_instruction custom_instructions additional_instructions backstory persona "
    "systemPrompt system_text system_content developer_message state_modifier messages_modifier"
)
TEMPLATE_CLASSES = frozenset(
    ["PromptTemplate", "FewShotPromptTemplate", "ChatPromptTemplate", "StringPromptTemplate", "PromptBuilder"]
)
FILLED = word_set(
    "format format_map render render_async substitute safe_substitute partial invoke ainvoke "
    "format_prompt format_messages replace replace* %"
)
"""Methods that give a text with its places filled."""
_STAYS_TEXT = FILLED | {"strip", "rstrip", "lstrip"}
_PLACEHOLDER = re.compile(r"(?:\{\w+\}|\{\{ ?\w+ ?\}\}|<\w+>|\[\w+\]|%\w+%|\$\w+|__\w+__)\Z")
"""What `.replace` puts a value for, in a text that is not at hand."""


def is_text(value: Value, depth: int = 0, seen: set[tuple[int, int]] | None = None) -> bool:
    """Tell whether a value is surely text and may change; a plain constant counts only with signs of placeholders."""
    value = bare(value)
    seen = set() if seen is None else seen  # what branches leave of a name may hold the same values many times
    if depth > 6 or (id(value), depth) in seen:
        return False
    seen.add((id(value), depth))
    if isinstance(value, Lit):
        return depth > 0 or (len(value.text) >= 20 and bool(value.marks))
    if isinstance(value, Template):
        return True
    if isinstance(value, Join):
        return any(isinstance(part, (Lit, Field)) or is_text(part, depth + 1, seen) for part in value.parts[:50])
    if isinstance(value, Either):
        return any(is_text(option, depth, seen) for option in value.options)
    if isinstance(value, Call) and isinstance(value.func, Attr):
        base = bare(value.func.base)
        if value.func.name == "join":
            return isinstance(base, Lit)
        if value.func.name in ("replace", REPLACE_EACH) and any(map(_is_sign, _replaced(value))):
            return True
        return value.func.name in _STAYS_TEXT and (
            is_text(base, depth + 1, seen) or (isinstance(base, (Name, Attr, Item)) and value.func.name != "replace")
        )
    if isinstance(value, Call) and isinstance(value.func, Name) and value.args:
        last = value.func.dotted.rsplit(".", 1)[-1]
        if last in ("dedent", "str", "cleandoc", "Template", *TEMPLATE_CLASSES) or last.endswith("Prompt"):
            return is_text(value.args[0], depth, seen)
    if isinstance(value, Call) and isinstance(value.func, Name):
        return value.func.dotted.endswith((".format", ".render", ".substitute", ".safe_substitute"))
    return False


def _replaced(call: Call) -> list[str]:
    """Give what `.replace` looks for, as far as it is written out."""
    if call.func.name != REPLACE_EACH:
        return [text_of(call.args[0]) or ""] if call.args else []
    before, after = (text_of(part) or "" for part in call.args[1:])
    mapping = bare(call.args[0])
    keys = [text_of(key) or "" for key, _ in mapping.entries] if isinstance(mapping, Map) else ["key"]
    return [before + key + after for key in keys]


def _is_sign(text: str) -> bool:
    return _PLACEHOLDER.match(text) is not None


def is_imperative(value: Value) -> bool:
    """Tell whether the static text of a value is long enough and speaks to a model."""
    texts: list[str] = []
    _static(value, texts, 0)
    text = " ".join(texts)
    return weight(text) >= LONG and IMPERATIVE.search(text) is not None


def _static(value: Value, out: list[str], depth: int) -> None:
    value = bare(value)
    if depth > 6:
        return
    if isinstance(value, Lit):
        out.append(value.text)
    elif isinstance(value, Join):
        for part in value.parts[:50]:
            _static(part, out, depth + 1)
    elif isinstance(value, Either):
        for option in value.options:
            _static(option, out, depth + 1)
    elif isinstance(value, Seq):
        for item in value.items[:50]:
            _static(item, out, depth + 1)
    elif isinstance(value, Call):
        if isinstance(value.func, Attr):
            _static(value.func.base, out, depth + 1)
            if value.func.name == "join" and value.args:
                _static(value.args[0], out, depth + 1)
        elif value.args:
            _static(value.args[0], out, depth + 1)


def system_inside(value: Value) -> str:
    """Give the name of the parameter that a text holds the system text of, if it holds one: what is around is of it."""
    held = bare(value)
    for part in held.parts if isinstance(held, Join) else ():
        inner = bare(part.value if isinstance(part, Field) else part)
        if isinstance(inner, Param) and inner.name in SYSTEM_KEYS and "system" in words(inner.name):
            return inner.name
    return ""
