r"""JSON of strangers: parse it as servers do, and say in few words what is wrong with it.

orjson is the fast path. What it refuses although a server may have accepted it (lone surrogates written as `\ud800`,
NaN, raw control characters inside strings) goes through `json`, which keeps the text as it was.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterator

_LENIENT = json.JSONDecoder(strict=False)
_SPACE_AND_COMMA = " \t\r\n,"


class BadJsonError(ValueError):
    """Text that is not JSON, with a slug and a reason for people; never leaves this package."""

    def __init__(self, slug: str, reason: str) -> None:
        super().__init__(reason)
        self.slug = slug
        self.reason = reason


def loads(data: bytes) -> Any:
    """Parse one JSON value.

    Raises BadJsonError: `invalid-utf8`, `nested-too-deep` (over 1024 levels, orjson's limit) or `invalid-json`.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        return _loads_again(data, str(error))


def _loads_again(data: bytes, complaint: str) -> Any:
    if "recursion" in complaint.lower():
        raise BadJsonError("nested-too-deep", "nested more than 1024 levels deep")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadJsonError("invalid-utf8", f"not UTF-8 at byte {error.start} of the line") from None
    if not text.strip("\0 \t\r\n"):
        raise BadJsonError("invalid-json", "only NUL bytes (a file that was not written to its end)")
    text = text.rstrip(_SPACE_AND_COMMA)  # a line copied out of a list
    try:
        return _LENIENT.decode(text)
    except json.JSONDecodeError as error:
        raise BadJsonError("invalid-json", _what(error)) from None
    except RecursionError:
        raise BadJsonError("nested-too-deep", "nested too deep") from None
    except ValueError as error:  # a number of thousands of digits
        raise BadJsonError("invalid-json", f"invalid JSON: {error}") from None


def _what(error: json.JSONDecodeError) -> str:
    if error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated string"):
        return "invalid JSON: it is cut off"
    return f"invalid JSON: {error.msg} (column {error.colno})"


def maybe(text: Any) -> Any:
    """Give what a JSON string inside JSON holds, or the value as it is when it is not such a string."""
    if not isinstance(text, str):
        return text
    start = text[:16].lstrip()[:1]
    if start not in ("{", "["):
        return text
    try:
        return loads(text.encode("utf-8", "surrogatepass"))
    except (BadJsonError, UnicodeError):
        return text


def several(data: bytes) -> list[Any] | None:
    """Give the values of a line that holds several, one right after the other, or None when it is not that.

    Amazon's Firehose writes objects so, without line ends.
    """
    found = list(_pieces(data)) if data.lstrip()[:1] == b"{" else []
    return found if len(found) > 1 and not any(isinstance(one, BadJsonError) for one in found) else None


def document(data: bytes) -> Iterator[Any | BadJsonError]:
    """Give the values of a whole-file document, then what is wrong with the rest.

    That is its one value, values written one after the other, or, when a list is cut off, the elements before the cut.
    """
    try:
        yield loads(data)
    except BadJsonError as error:
        if error.slug == "nested-too-deep":
            yield error
        else:
            yield from _pieces(data)


def _pieces(data: bytes) -> Iterator[Any | BadJsonError]:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        yield BadJsonError("invalid-utf8", f"not UTF-8 in line {line} of the document")
        text = data.decode("utf-8", "replace")
    at = len(text) - len(text.lstrip(" \t\r\n"))
    elements = text.startswith("[", at)
    at += elements
    while True:
        while at < len(text) and text[at] in _SPACE_AND_COMMA:
            at += 1
        if at >= len(text) or (elements and text[at] == "]"):
            return
        try:
            value, at = _LENIENT.raw_decode(text, at)
        except (ValueError, RecursionError):
            yield BadJsonError("invalid-json", f"invalid JSON in line {text.count(chr(10), 0, at) + 1} of the document")
            at = text.find("\n{", at + 1) + 1
            if not at:
                return
        else:
            yield value
