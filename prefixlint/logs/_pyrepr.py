"""Read values out of Python reprs in log lines without running or compiling the line.

Engines log objects as `GenerateReqInput(rid='a', text='…', input_ids=[…])`, as dicts, or as `key: value, key: value`.
Such a line may hold a prompt of 100 kB that itself looks like a log line, and values that are no literals
(`<Mode.NONE: 0>`, `SamplingParams(…)`), so it is walked item by item with regular expressions that know strings and
brackets; only the wanted values are decoded, and `ast.literal_eval` is the last resort, never `eval`.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterator

KEYWORD = re.compile(r"(\w+)=")
DICT_KEY = re.compile(r"'?(\w+)'?: ")  # older versions of SGLang write keys without quotes
COLON = re.compile(r"([A-Za-z_][A-Za-z_ ]*): ")

# Groups that can match in part are not repeated possessively: Python before 3.11.5, which Debian 12 has, keeps what the
# last, failed round had matched (gh-106052). A string's escapes cannot.
_STRING = r"""'[^'\\]*+(?:\\.[^'\\]*+)*+'|"[^"\\]*+(?:\\.[^"\\]*+)*+\""""
# what most values are: a string, a list of numbers, a bare word, or a dict of such
_FLAT_DICT = r"\{(?:'[^'\\]*+': (?:[-\w.]++|'[^'\\]*+'|\[[-\d., ]*+\])(?:, )?)*\}"
_SIMPLE = re.compile(rf"(?:{_STRING}|\[[-\d., ]*+\]|[-\w.]++|{_FLAT_DICT})(?=, |[)\]}}]|\.?$)", re.DOTALL)
_MOST_COMMAS = 200_000  # a second of compiling
_WHOLE = re.compile(_STRING, re.DOTALL)
# the pieces of everything else; a quote that starts no complete string is a broken line
_PIECE = re.compile(rf"{_STRING}|[\[({{]|[\])}}]|, |['\"]", re.DOTALL)
# unset and numeric fields are most of a request object and hold nothing: stepped over in one go
_DULL = {
    # the rank of a replica is a number that counts
    KEYWORD: re.compile(r"(?:(?!\w+_rank=)\w+=(?:None|True|False|-?\d+(?:\.\d+)?|\[\]), )+"),
    DICT_KEY: re.compile(r"(?:'?\w+'?: (?:None|True|False|\[\]), )+"),
}


class BrokenReprError(ValueError):
    """The text ends inside a value, or is no repr."""


def items(text: str, start: int, key: re.Pattern[str]) -> Iterator[tuple[str, int, int]]:
    """Walk `key value, key value …` from `start`: yield each key with the span of its value.

    Unset values may be left out. Ends at the closing bracket of the object, or at the end of the text.
    Raises BrokenReprError when the text ends inside a string or a bracket.
    """
    pos = start
    dull = _DULL.get(key)
    while True:
        if dull and (skipped := dull.match(text, pos)):
            pos = skipped.end()
        found = key.match(text, pos)
        if not found:
            return
        begin = found.end()
        simple = _SIMPLE.match(text, begin)
        end = simple.end() if simple else _end_of_value(text, begin)
        yield found[1], begin, end
        if not text.startswith(", ", end):
            return
        pos = end + 2


def _end_of_value(text: str, begin: int) -> int:
    depth = 0
    for piece in _PIECE.finditer(text, begin):
        found = piece[0]
        if found == ", ":
            if depth == 0:
                return piece.start()
        elif found in "[({":
            depth += 1
        elif found in "])}":
            if depth == 0:
                return piece.start()
            depth -= 1
        elif len(found) == 1:
            raise BrokenReprError("a string does not end")
    if depth:
        raise BrokenReprError("a bracket does not close")
    return len(text)


def wanted(text: str, start: int, key: re.Pattern[str], names: frozenset[str]) -> tuple[dict[str, str], int]:
    """Give the raw values of the wanted keys from `start`, and where the last value ends."""
    found: dict[str, str] = {}
    end = start
    for name, begin, end in items(text, start, key):
        if name in names and name not in found:
            found[name] = text[begin:end]
    return found, end


def first(text: str, start: int, key: re.Pattern[str], name: str) -> str | None:
    """Give the raw value of one key, and read no further than it."""
    return next((text[begin:end] for found, begin, end in items(text, start, key) if found == name), None)


def is_cut(raw: str) -> bool:
    """Whether a value is `head ... tail`, as SGLang logs what is too long for the log level."""
    return " ... " in raw and not _WHOLE.fullmatch(raw)


def value(raw: str | None) -> Any:
    """Decode one literal; None for None, an empty text, and whatever is no literal (a class, an enum)."""
    if not raw or raw == "None":
        return None
    head = raw[0]
    if head in "'\"":
        return string(raw)
    if head == "[" or head.isdigit():
        try:
            return orjson.loads(raw)
        except orjson.JSONDecodeError:
            pass
    if raw.count(",") > _MOST_COMMAS:
        return None
    try:
        return ast.literal_eval(raw)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


def string(raw: str) -> str | None:
    r"""Decode a string literal as `repr` writes it; None when it is not one.

    A repr differs from JSON in its quotes and in `\x..` and `\U........`; without those the JSON parser is the quicker.
    """
    inner, quote = raw[1:-1], raw[0]
    if len(raw) < 2 or raw[-1] != quote or inner.count(quote) != inner.count("\\" + quote):
        return None
    if "\\" not in inner:
        return inner
    if quote == "'":
        inner = inner.replace("\\'", "'").replace('"', '\\"')
    try:
        decoded = orjson.loads(f'"{inner}"')
    except (orjson.JSONDecodeError, UnicodeEncodeError):
        try:
            decoded = ast.literal_eval(raw)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return None
    return decoded if isinstance(decoded, str) else None
