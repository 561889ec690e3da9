"""String literals of Python at the level of bytes: where each character of the value stands in the file.

`ast` gives a literal's extent but not where its characters are (escapes, implicit concatenation, prefixes), and before
Python 3.12 its positions inside f-strings are wrong. So the tokens are scanned again, only for literals that matter.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_PREFIX = re.compile(rb"[rbufRBUF]{0,2}(\"\"\"|'''|\"|')")
_SKIP = re.compile(rb"(?:[\s()]|\\\r?\n|#[^\n]*)*")
_ESCAPE = re.compile(rb"\\(?:\r\n|N\{[^}]*\}|U[0-9a-fA-F]{8}|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|[0-7]{1,3}|.)", re.DOTALL)


class Token(NamedTuple):
    """One quoted token: whether it is raw or formatted, and the bytes of its body."""

    raw: bool
    formatted: bool
    start: int
    end: int


def tokens(data: bytes, start: int, end: int) -> list[Token]:
    """Give the quoted tokens between two offsets; what cannot be read ends the list."""
    out: list[Token] = []
    position = start
    while position < end:
        skipped = _SKIP.match(data, position, end)
        position = skipped.end() if skipped else position
        opening = _PREFIX.match(data, position, end)
        if opening is None:
            break
        prefix = data[position : opening.start(1)].lower()
        quote, body = opening[1], opening.end()
        formatted = b"f" in prefix
        close = _closing(data, body, end, quote, formatted=formatted)
        if close < 0:
            break
        out.append(Token(b"r" in prefix, formatted, body, close))
        position = close + len(quote)
    return out


def _closing(data: bytes, position: int, end: int, quote: bytes, *, formatted: bool) -> int:
    """Find the closing quote; in an f-string, quotes inside replacement fields do not close it."""
    depth = 0
    while position < end:
        byte = data[position : position + 1]
        if byte == b"\\":
            position += 2
        elif formatted and byte == b"{":
            if depth == 0 and data[position : position + 2] == b"{{":
                position += 2
            else:
                depth += 1
                position += 1
        elif formatted and byte == b"}" and depth:
            depth -= 1
            position += 1
        elif data.startswith(quote, position) and (depth == 0 or len(quote) == 1 or formatted is False):
            if depth and _nested_string_end(data, position, end) > 0:
                position = _nested_string_end(data, position, end)
                continue
            return position
        elif depth and byte in b"'\"":
            stop = _nested_string_end(data, position, end)
            position = stop if stop > 0 else position + 1
        else:
            position += 1
    return -1


def _nested_string_end(data: bytes, position: int, end: int) -> int:
    """Give the end of the string that opens at `position` inside a replacement field, -1 if it does not close there."""
    opening = _PREFIX.match(data, position, end)
    if opening is None:
        return -1
    found = data.find(opening[1], opening.end(), end)
    return found + len(opening[1]) if found >= 0 and b"\n" not in data[position:found] else -1


def fields(data: bytes, token: Token) -> list[tuple[int, int]]:
    """Give the extents, braces included, of the outer replacement fields of an f-string token."""
    out: list[tuple[int, int]] = []
    depth, opened, position = 0, 0, token.start
    while position < token.end:
        byte = data[position]
        if byte == 0x5C and not depth:
            position += 2
            continue
        if byte == 0x7B:
            if not depth and data[position + 1 : position + 2] == b"{":
                position += 2
                continue
            opened = opened if depth else position
            depth += 1
        elif byte == 0x7D and depth:
            depth -= 1
            if not depth:
                out.append((opened, position + 1))
        elif byte in b"'\"" and depth:
            stop = _nested_string_end(data, position, token.end)
            position = stop - 1 if stop > 0 else position
        position += 1
    return out


def marks(data: bytes, token_list: list[Token]) -> tuple[tuple[int, int], ...]:
    """Map the characters of a plain literal's value to bytes, as `(character, byte)` pairs at which a run begins."""
    out: list[tuple[int, int]] = []
    count = 0
    for token in token_list:
        if token.start == token.end:
            continue
        out.append((count, token.start))
        body = data[token.start : token.end]
        if token.raw or b"\\" not in body:
            count += _length(body)
            continue
        position = 0
        for match in _ESCAPE.finditer(body):
            count += _length(body[position : match.start()])
            kept = 0 if match[0] in (b"\\\n", b"\\\r\n") else _kept(match[0])
            count += kept
            position = match.end()
            out.append((count, token.start + position))
        count += _length(body[position:])
    return tuple(out)


def _kept(escape: bytes) -> int:
    """Give how many characters an escape stands for; an unknown one keeps its backslash."""
    return 1 if escape[1:2] in b"\\'\"abfnrtv01234567xNuU" else 1 + _length(escape[1:])


def _length(body: bytes) -> int:
    return len(body.decode("utf-8", "replace").replace("\r\n", "\n"))
