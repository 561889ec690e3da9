"""Text files as values.

Decoding, the map from characters to bytes, role headings, and the choice of a placeholder style.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from prefixlint import placeholders
from prefixlint.sources import Diagnostic, SourceFile, _jinja
from prefixlint.textmap import offset
from prefixlint.values import Call, Either, Join, Lit, Loop, Map, Name, Seq, Template, Value, walk

PROMPT_PATH = re.compile(
    r"(?:^|[/_.-])(?:sys|system)?(?:prompts?|personas?|instructions?|skprompt)(?:[/_.-]|$)|(?:^|/)templates?/(?:agents?|llm|chat|prompts?)/",
    re.IGNORECASE,
)
MAX_BYTES = 1_000_000
"""Larger text files hold data, not prompts."""

_STRIDE = 512
_HEADING = re.compile(
    r"^[ \t]*#{0,3}[ \t]*(system|user|assistant|developer|tool)[ \t]*:[ \t]*\r?\n"
    r"|<message[ \t]+role=[\"'](system|user|assistant|developer|tool)[\"'][ \t]*>"
    r"|\{\{[ \t]*role[ \t]+[\"'](\w+)[\"'][ \t]*\}\}"
    r"|\{\{[ \t]*(history)[ \t]*\}\}",
    re.MULTILINE | re.IGNORECASE,
)
"""What begins a message: `system:` on a line of its own, Semantic Kernel's `<message role="system">`, dotprompt's
`{{role "system"}}` and, with it, `{{history}}`."""
_PARTIAL = re.compile(r"\{\{>[ \t]*([\w./-]+)[^{}]*\}\}")


def decode(file: SourceFile) -> tuple[str, tuple[tuple[int, int], ...]] | Diagnostic:
    """Give a file's text with plain line ends, and the marks that map it to bytes; a diagnostic if it is not text."""
    data = file.data
    if b"\0" in data[:4096]:
        return Diagnostic(file.path, 0, "not-text", "holds NUL bytes: not a text file, or UTF-16; save it as UTF-8")
    shift = 3 if data.startswith(b"\xef\xbb\xbf") else 0
    try:
        text = data[shift:].decode("utf-8")
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        return Diagnostic(file.path, number, "wrong-encoding", "is not UTF-8; save it as UTF-8")
    if "\r" not in text:
        return text, ((0, shift),) if text.isascii() else tuple(_steps(text, shift))
    marks, position, count = [(0, shift)], shift, 0
    for line in data[shift:].splitlines(keepends=True):
        kept = line.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        position += len(line)
        count += len(kept.decode("utf-8"))
        marks.append((count, position))
    return text.replace("\r\n", "\n").replace("\r", "\n"), tuple(marks)


def _steps(text: str, shift: int) -> Iterator[tuple[int, int]]:
    """Give marks at short distances, so that finding a byte does not mean encoding the whole text before it."""
    byte = shift
    for char in range(0, len(text), _STRIDE):
        yield char, byte
        byte += len(text[char : char + _STRIDE].encode("utf-8", "surrogatepass"))


def value_of(lit: Lit, style: str | None, path: str) -> tuple[Value, tuple[Diagnostic, ...]]:
    """Give the value of a text in a style, messages if it has role headings."""
    problems: tuple[Diagnostic, ...] = ()
    if style == "jinja":
        value, problems = _jinja.lower(lit, path)
    else:
        value = _with_partials(lit, style, path)
    return _by_role(value) or value, problems


def _with_partials(lit: Lit, style: str | None, path: str) -> Value:
    """Give a text with the files that `{{>name}}` puts into it."""
    found = list(_PARTIAL.finditer(lit.text)) if style == "mustache" else []
    if not found:
        return lit if style is None else Template(style, lit, lit.start, lit.end)
    mark = "_" if path.endswith(".prompt") else ""
    parts: list[Value] = []
    position = 0
    for match in found:
        before = cut(lit, position, match.start())
        at = (offset(lit, match.start()), offset(lit, match.end()))
        parts.append(Template("mustache", before, before.start, before.end))
        parts.append(Call(Name("jinja.include", *at), (Lit(f"{mark}{match[1]}", *at),), (), *at))
        position = match.end()
    rest = cut(lit, position, len(lit.text))
    return Join((*parts, Template("mustache", rest, rest.start, rest.end)), lit.start, lit.end)


def _by_role(value: Value) -> Value | None:
    """Split a text at its role headings (`system:`, `# user:` on a line of their own) into messages."""
    parts = value.parts if isinstance(value, Join) else (value,)
    messages: list[tuple[str, list[Value]]] = []
    for part in parts:
        if isinstance(part, Template) and part.style != "state":
            pieces = _pieces(part.text)
            items: list[tuple[str | None, Value]] = [
                (role, Template(part.style, lit, lit.start, lit.end)) for role, lit in pieces
            ]
        elif isinstance(part, Lit):
            items = [(role, lit) for role, lit in _pieces(part)]
        elif isinstance(part, (Loop, Either)) and _has_heading(part):
            items = [("history", Lit("", part.start, part.start))]
        else:
            items = [(None, part)]
        for role, item in items:
            if role is not None:
                messages.append((role, []))
            elif not messages:
                if isinstance(item, Lit) and not item.text.strip():
                    continue
                messages.append(("text", []))
            messages[-1][1].append(item)
    if all(role == "text" for role, _ in messages):
        return None
    maps = tuple(_message(role, nodes, value) for role, nodes in messages if nodes)
    return Seq("list", maps, value.start, value.end)


def _has_heading(value: Value) -> bool:
    """Tell whether a repeated or optional part writes messages of its own: earlier turns."""
    return any(isinstance(part, Lit) and _HEADING.search(part.text) for part in walk(value))


def _message(role: str, nodes: list[Value], near: Value) -> Map:
    start = nodes[0].start if nodes else near.start
    end = nodes[-1].end if nodes else near.end
    entries = (
        (Lit("role", start, start), Lit(role, start, start)),
        (Lit("content", start, start), Join(tuple(nodes), start, end)),
    )
    return Map(entries, start, end)


def _pieces(lit: Lit) -> list[tuple[str | None, Lit]]:
    """Cut a literal at its headings: the text before the first has no role."""
    found = [match for match in _HEADING.finditer(lit.text) if match[4] is None or "{{role " in lit.text]
    out: list[tuple[str | None, Lit]] = []
    first = found[0].start() if found else len(lit.text)
    if first:
        out.append((None, cut(lit, 0, first)))
    stops = [*(heading.start() for heading in found[1:]), len(lit.text)]
    for heading, stop in zip(found, stops, strict=False):
        role = next(group for group in heading.groups() if group).lower()
        out.append((_HEADED.get(role, role), cut(lit, heading.end(), stop)))
    return out


_HEADED = {"model": "assistant"}


def cut(lit: Lit, start: int, stop: int) -> Lit:
    """Give characters `start` to `stop` of a mapped literal."""
    marks = tuple((max(0, char - start), byte) for char, byte in lit.marks if start < char < stop)
    head = offset(lit, start)
    return Lit(lit.text[start:stop], head, offset(lit, stop), ((0, head), *marks))


def without_front_matter(lit: Lit) -> Lit:
    """Give a text behind the YAML between `---` lines at its head; what is there are settings."""
    match = _FRONT.match(lit.text)
    return lit if match is None else cut(lit, match.end(), len(lit.text))


_FRONT = re.compile(r"\A---\n.*?\n---[ \t]*(?:\n|\Z)", re.DOTALL)


def message(role: str, content: Value) -> Map:
    """Give the mapping that a message with a role is."""
    at = (content.start, content.start)
    return Map(((Lit("role", *at), Lit(role, *at)), (Lit("content", *at), content)), content.start, content.end)


def styled(lit: Lit, path: str) -> Value | None:
    """Give a string with its placeholders, None if it has none."""
    style = style_of(lit.text, "")
    if style is None:
        return None
    value, _ = value_of(lit, style, path)
    return value if isinstance(value, (Seq, Template)) or style == "jinja" else None


def style_of(text: str, suffix: str) -> str | None:
    """Give the placeholder style of a prompt file."""
    if suffix in (".hbs", ".handlebars", ".mustache"):
        return "mustache"
    return placeholders.guess(text)
