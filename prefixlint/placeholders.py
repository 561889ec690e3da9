"""Placeholders in text: which characters of a string are filled when it is used, for each common syntax.

One function hides the syntaxes: `parts(text, style)`. Jinja proper is read by `sources.jinja`, which knows its grammar.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

STYLES = ("brace", "percent", "dollar", "mustache", "state")


class Part(NamedTuple):
    """Characters `start` to `end` of a text: a placeholder called `name`, or literal text `text` (escapes undone)."""

    start: int
    end: int
    name: str | None
    text: str = ""
    spec: str = ""
    conversion: str = ""


_BRACE = re.compile(
    r"(?P<open>\{\{)|(?P<close>\}\})|\{(?P<name>[^{}!:\n]*)(?:!(?P<conversion>[rsa]))?(?::(?P<spec>(?:[^{}\n]|\{[^{}\n]*\})*))?\}"
)
_PERCENT = re.compile(
    r"(?P<open>%%)|%(?:\((?P<name>[^)\n]*)\))?[#0\- +]*(?:\d+|\*)?(?:\.\d+)?(?P<conversion>[diouxXeEfFgGcrsa])"
)
_DOLLAR = re.compile(r"(?P<open>\$\$)|\$(?:(?P<name>[_a-zA-Z]\w*)|\{(?P<braced>[_a-zA-Z]\w*)\})")
_MUSTACHE = re.compile(r"\{\{\{?\s*(?P<name>[^{}\n]*?)\s*\}?\}\}")
_STATE = re.compile(r"\{+(?P<name>[a-zA-Z_][\w.]*(?::[a-zA-Z_]\w*)?)\??\}+")
_IDENTIFIER = re.compile(r"[a-zA-Z_]\w*(?:\.\w+|\[[^\]\n]*\])*\s*\Z")
_NUMBER = re.compile(r"\d*\Z")


def parts(text: str, style: str) -> list[Part]:
    """Split a text into literal parts and placeholders, in order, without gaps.

    Braces around what cannot be a field (JSON in a prompt) are text, although `str.format` would fail on them: such a
    text is not what the code formats, or another tool fills it.
    """
    out: list[Part] = []
    position = 0
    for part in _SCANNERS[style](text):
        if part.start > position:
            out.append(Part(position, part.start, None, text[position : part.start]))
        out.append(part)
        position = part.end
    if position < len(text):
        out.append(Part(position, len(text), None, text[position:]))
    return out


def around(text: str, signs: Iterable[str]) -> list[Part]:
    """Split a text at each of some signs, whatever they are: those are the placeholders, and their own names."""
    wanted = re.compile("|".join(map(re.escape, sorted(signs, key=len, reverse=True))))
    out: list[Part] = []
    position = 0
    for match in wanted.finditer(text):
        if match.start() > position:
            out.append(Part(position, match.start(), None, text[position : match.start()]))
        out.append(Part(*match.span(), match[0]))
        position = match.end()
    out.append(Part(position, len(text), None, text[position:]))
    return out


def names(text: str, style: str) -> list[str]:
    """Give the names of the placeholders in order."""
    return [part.name for part in parts(text, style) if part.name is not None]


def _brace(text: str) -> Iterator[Part]:
    for match in _BRACE.finditer(text):
        if match["open"]:
            yield Part(match.start(), match.end(), None, "{")
        elif match["close"]:
            yield Part(match.start(), match.end(), None, "}")
        elif _NUMBER.match(match["name"]) or _IDENTIFIER.match(match["name"]):
            yield Part(
                match.start(), match.end(), match["name"].strip(), "", match["spec"] or "", match["conversion"] or ""
            )


def _percent(text: str) -> Iterator[Part]:
    for match in _PERCENT.finditer(text):
        if match["open"]:
            yield Part(match.start(), match.end(), None, "%")
        else:
            yield Part(match.start(), match.end(), match["name"] or "", "", "", match["conversion"])


def _dollar(text: str) -> Iterator[Part]:
    for match in _DOLLAR.finditer(text):
        if match["open"]:
            yield Part(match.start(), match.end(), None, "$")
        else:
            yield Part(match.start(), match.end(), match["name"] or match["braced"])


def _mustache(text: str) -> Iterator[Part]:
    """Handlebars, Mustache, Semantic Kernel, dify, promptfoo.

    A block tag is an empty text, a variable a placeholder.
    """
    for match in _MUSTACHE.finditer(text):
        name = match["name"]
        if not name or name[0] in "/!^>&" or name in {"else", "^"}:
            yield Part(match.start(), match.end(), None, "")
        elif name[0] == "#" and not name.endswith("#"):
            words = name.split()
            yield Part(match.start(), match.end(), words[-1] if len(words) > 1 else name[1:].strip())
        else:
            yield Part(match.start(), match.end(), name.strip("$#@ ").split(" ")[-1].lstrip("$@") or name)


def _state(text: str) -> Iterator[Part]:
    """Session-state placeholders of agent kits: `{name}`, `{name?}`, `{user:name}`."""
    for match in _STATE.finditer(text):
        yield Part(match.start(), match.end(), match["name"])


_SCANNERS = {"brace": _brace, "percent": _percent, "dollar": _dollar, "mustache": _mustache, "state": _state}

_JINJA = re.compile(
    r"\{%-?\s*(?:if|for|set|macro|include|extends|block|raw|endif|endfor|else|elif|endraw|import|from)\b|\{\{(?!\s*\"[^\"\n]*\"\s*:)[^}\n]{0,300}?(?:\||\w\(|\[)|\{#"
)
_DOUBLE = re.compile(r"\{\{-?\s*[$@]?[a-zA-Z_][\w.]*\s*-?\}\}")
_SPACED = re.compile(r"\{\{-?\s+[a-zA-Z_][\w.]*\s+-?\}\}")
_ESCAPES = 3
"""Names in doubled braces per name in single ones, up to which the doubled ones are taken for escaped braces."""
_SINGLE = re.compile(r"(?<![{$\\])\{[a-zA-Z_][\w.]*\}(?!\})")
_HANDLEBARS = re.compile(r"\{\{[#/^>]\w|\{\{\{|\{\{\$|\{\{@|\{\{else\}\}")


def guess(text: str) -> str | None:
    """Give the style that the placeholders of a prompt file seem to have, None where there are none."""
    if _HANDLEBARS.search(text):
        return "mustache"
    if _JINJA.search(text):
        return "jinja"
    doubles, singles = len(_DOUBLE.findall(text)), len(_SINGLE.findall(text))
    escaped = singles and doubles <= _ESCAPES * singles and not _SPACED.search(text)
    if doubles and doubles >= singles and not escaped:
        return "jinja"
    return "brace" if singles else None
