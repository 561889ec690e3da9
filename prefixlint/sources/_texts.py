"""Text files as values.

Decoding, the map from characters to bytes, role headings, and the choice of a placeholder style.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from prefixlint import placeholders
from prefixlint.sources import Diagnostic, SourceFile, _jinja
from prefixlint.textmap import offset
from prefixlint.values import Either, Join, Lit, Loop, Map, Seq, Template, Value, walk

PROMPT_PATH = re.compile(
    r"(?:^|[/_.-])(?:sys|system)?(?:prompts?|personas?|instructions?|skprompt)(?:[/_.-]|$)|(?:^|/)templates?/(?:agents?|llm|chat|prompts?)/",
    re.IGNORECASE,
)
MAX_BYTES = 2_000_000
"""Larger text files hold data, not prompts."""

_STRIDE = 512
_HEADING = re.compile(
    r"^[ \t]*#{0,3}[ \t]*(system|user|assistant|developer|tool)[ \t]*:[ \t]*\r?\n", re.MULTILINE | re.IGNORECASE
)


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
    if style == "jinja":
        value, problems = _jinja.lower(lit, path)
    else:
        value, problems = (lit if style is None else Template(style, lit, lit.start, lit.end)), ()
    return _by_role(value) or value, problems


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
    found = list(_HEADING.finditer(lit.text))
    out: list[tuple[str | None, Lit]] = []
    first = found[0].start() if found else len(lit.text)
    if first:
        out.append((None, cut(lit, 0, first)))
    stops = [*(heading.start() for heading in found[1:]), len(lit.text)]
    for heading, stop in zip(found, stops, strict=False):
        out.append((heading[1].lower(), cut(lit, heading.end(), stop)))
    return out


def cut(lit: Lit, start: int, stop: int) -> Lit:
    """Give characters `start` to `stop` of a mapped literal."""
    marks = tuple((max(0, char - start), byte) for char, byte in lit.marks if start < char < stop)
    head = offset(lit, start)
    return Lit(lit.text[start:stop], head, offset(lit, stop), ((0, head), *marks))


def style_of(text: str, suffix: str) -> str | None:
    """Give the placeholder style of a prompt file."""
    if suffix in (".hbs", ".handlebars", ".mustache"):
        return "mustache"
    return placeholders.guess(text)
