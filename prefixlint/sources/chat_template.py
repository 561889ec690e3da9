"""Chat templates: `chat_template.jinja` and its like, `tokenizer_config.json`, `chat_template.json`.

A summary holds what rendering showed (`chatprobe`), so that the result cache spares the rendering as well.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from prefixlint.sources import Diagnostic, Sink, SourceFile, Summary, _texts
from prefixlint.textmap import offset
from prefixlint.values import Lit, Seq

NAME = "chat_template"
ORDER = 10
SINK = "template"
"""Kind of the sinks: `name` is what was seen, `role` its detail, `value` the message and the related places."""

_ENDINGS = frozenset({".jinja", ".jinja2", ".j2"})
_NAME = re.compile(
    r"(?:^|[._-])chat[._-]?template|(?:^|[._-])chatml(?=[._-])|(?:^|/)(?:additional_)?chat_templates/", re.IGNORECASE
)
_FILES = frozenset({"tokenizer_config.json", "chat_template.json", "processor_config.json"})
_LOOP = re.compile(rb"\{%-?\s*for\s+\w+\s+in\s+[\w.]*messages\b")
_FRAME = re.compile(
    rb"add_generation_prompt|\b[be]os_token\b|raise_exception\s*\(|<\|\w+\|?>|<\|\{\{|\[/?INST\]|<start_of_turn>|\\u003c\|",
    re.IGNORECASE,
)
_PLACE = re.compile(r'"(chat_template|template)"\s*:\s*(?=")')
_ESCAPE = re.compile(
    r"\\r\\n|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.|[^\\]+", re.DOTALL
)
_COPIED = re.compile(r"[%}]\}\\n")
"""A line end that is an escape, outside of expressions: a string copied out of JSON, whose escapes would be printed."""
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)


def claims(file: SourceFile) -> bool:
    """Claim the files of models, and Jinja files that frame the turns of a conversation."""
    if file.name.lower() in _FILES:
        return True
    if file.suffix not in _ENDINGS:
        return False
    return _LOOP.search(file.data) is not None and (
        _NAME.search(file.path) is not None or _FRAME.search(file.data) is not None
    )


def wanted(file: SourceFile) -> bool:
    """Want the files that hold a template."""
    return file.suffix != ".json" or b'"chat_template"' in file.data


def summarize(file: SourceFile) -> Summary:
    """Render the templates of a file and keep what shows."""
    decoded = _texts.decode(file)
    if isinstance(decoded, Diagnostic):
        return Summary(path=file.path, kind=NAME, diagnostics=(decoded,))
    text, marks = decoded
    whole = Lit(text, marks[0][1], len(file.data), marks)
    if file.suffix != ".json" and _COPIED.search(text):
        return Summary(path=file.path, kind=NAME)
    if file.suffix != ".json":
        comments = [
            (offset(whole, m.start()), offset(whole, m.end())) for m in re.finditer(r"\{#.*?#\}", text, re.DOTALL)
        ]
        sinks, problems = _seen(whole, {}, file.path)
        return Summary(
            path=file.path, kind=NAME, sinks=tuple(sinks), comments=tuple(comments), diagnostics=tuple(problems)
        )
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        problem = Diagnostic(file.path, getattr(error, "lineno", 0), "data-syntax", f"not valid JSON: {error}")
        return Summary(path=file.path, kind=NAME, diagnostics=(problem,))
    found: list[Sink] = []
    problems = []
    for lit in _templates(config, whole):
        sinks, errors = _seen(lit, _tokens(config), file.path)
        found += sinks
        problems += [
            Diagnostic(error.path, text.count("\n", 0, _index(whole, lit)) + 1, error.slug, error.message)
            for error in errors
        ]
    return Summary(path=file.path, kind=NAME, sinks=tuple(found), diagnostics=tuple(problems))


def _index(whole: Lit, lit: Lit) -> int:
    """Give the character at which a template stands; bytes are a close enough bound for counting lines."""
    return min(lit.start - whole.start, len(whole.text))


def _tokens(config: dict[str, Any]) -> dict[str, str]:
    """Give the special tokens of a tokenizer's configuration."""
    tokens = {}
    for name, value in config.items():
        if name.endswith("_token"):
            content = value.get("content") if isinstance(value, dict) else value
            if isinstance(content, str):
                tokens[name] = content
    return tokens


def _templates(config: Any, whole: Lit) -> Iterator[Lit]:
    """Give the templates of a configuration, at their place in the file."""
    given = config.get("chat_template") if isinstance(config, dict) else None
    texts = [given] if isinstance(given, str) else _named(given)
    for match in _PLACE.finditer(whole.text):
        string = _STRING.match(whole.text, match.end())
        if string is None:
            continue
        lit = _unescaped(string[1], string.start(1), whole)
        if any(lit.text == re.sub(r"\r\n|\r", "\n", text) for text in texts):
            yield lit


def _named(given: Any) -> list[str]:
    """Give the texts of a list of named templates, or of a mapping of them."""
    if isinstance(given, dict):
        return [text for text in given.values() if isinstance(text, str)]
    if not isinstance(given, list):
        return []
    return [item["template"] for item in given if isinstance(item, dict) and isinstance(item.get("template"), str)]


def _unescaped(raw: str, at: int, whole: Lit) -> Lit:
    """Give a JSON string's text with plain line ends, mapped to the file behind each escape."""
    pieces: list[str] = []
    marks: list[tuple[int, int]] = []
    count = 0
    for match in _ESCAPE.finditer(raw):
        marks.append((count, offset(whole, at + match.start())))
        piece = match[0]
        if piece[0] == "\\":
            piece = "\n" if piece in ("\\r\\n", "\\r") else str(json.loads(f'"{piece}"'))
        pieces.append(piece)
        count += len(piece)
    end = offset(whole, at + len(raw))
    return Lit("".join(pieces), marks[0][1] if marks else end, end, tuple(marks))


def _seen(lit: Lit, tokens: dict[str, str], path: str) -> tuple[list[Sink], list[Diagnostic]]:
    """Give what rendering a template shows."""
    from prefixlint.chatprobe import observe
    from prefixlint.errors import TemplateError

    try:
        observations = observe(lit.text, tokens)
    except TemplateError as error:
        line = getattr(error.__cause__, "lineno", None)
        return [], [Diagnostic(path, line if isinstance(line, int) else 0, error.slug, error.message)]
    sinks = []
    for seen in observations:
        start, end = offset(lit, seen.start), offset(lit, seen.end)
        related = [Lit(words, offset(lit, a), offset(lit, b)) for a, b, words in seen.related]
        value = Seq("list", (Lit(seen.message, start, end), *related), start, end)
        sinks.append(Sink(SINK, value, start, end, role=seen.detail, name=seen.kind))
    return sinks, []
