"""Text files that hold prompts: `.md`, `.txt`, `.prompt`, `.hbs`, `.mustache`.

The text may be Jinja, `str.format` or Handlebars.
They are prompts where their folder or name says so; others are read only when code loads them.
"""

from __future__ import annotations

import re

from prefixlint.sources import Diagnostic, Sink, SourceFile, Summary, _texts
from prefixlint.values import Lit, Seq

NAME = "text"
ORDER = 90
_ENDINGS = (".md", ".txt", ".prompt", ".hbs", ".handlebars", ".mustache", ".mdx")
_DOCS = re.compile(
    r"(?:^|/)(?:readme|changelog|contributing|license|security|code_of_conduct|history|requirements)[^/]*\Z",
    re.IGNORECASE,
)
_FENCE = re.compile(r"^(```|~~~).*?^\1[ \t]*$", re.MULTILINE | re.DOTALL)


def claims(file: SourceFile) -> bool:
    """Claim the endings of text files."""
    return file.suffix in _ENDINGS


def wanted(file: SourceFile) -> bool:
    """Want files under prompt folders or with prompt names, small enough to be one."""
    if file.suffix in (".prompt", ".hbs", ".handlebars", ".mustache"):
        return len(file.data) <= _texts.MAX_BYTES
    if file.declared.is_prompt_file(file.path):
        return len(file.data) <= _texts.MAX_BYTES
    return (
        len(file.data) <= _texts.MAX_BYTES
        and _texts.PROMPT_PATH.search(file.path) is not None
        and _DOCS.search(file.path) is None
        and b"{" in file.data
    )


def summarize(file: SourceFile) -> Summary:
    """Read a text file."""
    if len(file.data) > _texts.MAX_BYTES:
        return Summary(path=file.path, kind=NAME)
    decoded = _texts.decode(file)
    if isinstance(decoded, Diagnostic):
        return Summary(path=file.path, kind=NAME, diagnostics=(decoded,))
    text, marks = decoded
    lit = Lit(text, marks[0][1], len(file.data), marks)
    if file.suffix == ".prompt":
        lit = _texts.without_front_matter(lit)
        text = lit.text
    style = _texts.style_of(_FENCE.sub("", text) if file.suffix in (".md", ".mdx") else text, file.suffix)
    value, problems = _texts.value_of(lit, style, file.path)
    sinks: tuple[Sink, ...] = ()
    if wanted(file) and style is not None:
        kind = "messages" if isinstance(value, Seq) else "text"
        sinks = (Sink(kind, value, lit.start, lit.end, name="<file>"),)
    return Summary(
        path=file.path, kind=NAME, sinks=sinks, text=value, diagnostics=problems if style == "jinja" and sinks else ()
    )
