r"""Plain prompts: one prompt a line, nothing else (the input of `vllm analyze-prefix-cache` and kvlint).

    You are a helpful assistant.\nUser: hello

The last resort: text that no engine wrote, in a file that the user named. `\n`, `\r`, `\t` and `\\` in a line stand for
the characters, and a line that is one JSON string is that string. The text is a prompt without a chat template; the
tokenizer adds what its model starts with.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from prefixlint.logs import _fields
from prefixlint.model import Text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prefixlint.logs import Reader, Record, RecordKind
    from prefixlint.model import Request, Skip

NAME = "plain"
KIND: RecordKind = "text"
STATELESS = True

_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\"}
_ESCAPE = re.compile(r"\\([nrt\\])")
# What loggers put before each line: a date, a time, or a level; a page of metrics; pieces of indented JSON. A file of
# such lines holds no prompts.
_LOG_LINE = re.compile(
    r"\W{0,2}(?:\d{4}[-/]\d\d[-/]\d\d[T ]|\d\d:\d\d:\d\d"
    r"|(?:TRACE|DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL)\b|time=|level="
    r"|[#] (?:HELP|TYPE) |[a-zA-Z_:]+(?:\{[^{}]*\})? [-+.\deE]+$|\s*\"[^\"]{1,60}\"\s*:|\s*[\]}\[{],?\s*$)"
)


def detect(record: Record) -> int:
    """Take any line that does not begin like a logger's."""
    line = record.value
    return 0 if not isinstance(line, str) or _LOG_LINE.match(line) else 1


def prompt_of(line: str) -> str:
    r"""Give the prompt that a line stands for."""
    if line[:1] == '"' and line[-1:] == '"':
        value = _fields.maybe(f"[{line}]")
        if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):
            return value[0]
    return _ESCAPE.sub(lambda match: _ESCAPES[match[1]], line) if "\\" in line else line


class _Lines:
    """Every line is a prompt."""

    def feed(self, record: Record) -> Iterable[Request | Skip] | None:
        prompt = prompt_of(record.value)
        return (_fields.build(record, NAME, Text(prompt), body={"prompt": prompt}),)

    def finish(self) -> Iterable[Request | Skip]:
        return ()


def reader() -> Reader:
    """Give a reader for one file."""
    return _Lines()
