"""A value that knows the text it stands in, so that what is shown of it can be masked as a part of that text.

What makes a value a credential often stands outside of what differs: `Bearer` before it, the first part of a token.
"""

from __future__ import annotations

from prefixlint.redact import Redactor

_AROUND = 2_000  # characters of the text that are remembered on both sides: a private key fits in


class Piece(str):
    """A part of a text, as a string of its own. `around` is text with the part in it, which begins there at `at`."""

    __slots__ = ("around", "at")

    around: str
    at: int


def piece(text: str, start: int, end: int) -> Piece:
    """Cut the characters `start` to `end` out of a text."""
    cut = Piece(text[start:end])
    begin = max(0, start - _AROUND)
    cut.around, cut.at = text[begin : end + _AROUND], start - begin
    return cut


def shown(value: str, path: str, redactor: Redactor, begin: int = 0, most: int | None = None) -> str:
    """Mask what is shown of a value that differs at a path of a body: `most` characters from `begin`."""
    text, at = (value.around, value.at) if isinstance(value, Piece) else (value, 0)
    end = len(value) if most is None else min(len(value), begin + most)
    return redactor.value(path, text, at + begin, at + end)
