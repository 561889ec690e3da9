"""Python sources as trees, also where they are written for a newer Python than the one that runs.

What newer versions added to the grammar, and older ones refuse, is replaced by text of the same length that means the
same to a linter: type parameters by blanks, a `type` statement by an assignment, quotes that an f-string uses again by
others, template strings by f-strings. Every position in the tree stays that of the file.
"""

from __future__ import annotations

import ast
import re
import sys
import warnings
from bisect import bisect_right
from collections.abc import Sequence

_STRING = r"(?P<prefix>(?<![\w\"'])[rRbBuUfFtT]{0,2})(?P<quote>'''|\"\"\"|'|\")"
_TOKEN = re.compile(
    rf"""{_STRING}
    | (?P<comment>\#[^\n]*)
    | \b(?:def|class)[ \t]+\w+(?P<params>[ \t]*\[)
    | (?m:^)[ \t]*(?P<type>type[ \t]+(?P<name>\w+))[ \t]*(?=[\[=])(?!==)
    | (?m:^)[ \t]*except\*?[ \t]+[\w.]+[ \t]*(?P<others>,[^:\n()]*)(?=:)
    | (?P<open>[(\[{{])
    | (?P<close>[)\]}}])
    | (?P<end>!=|[:!])""",
    re.VERBOSE,
)
_IN_TEXT = re.compile(r"\\N\{[^}\n]*\}|\\[^{}]|'''|\"\"\"|'|\"|\{\{|\}\}|[{}\n]", re.DOTALL)
_LINE = re.compile(rb"\r\n|\n|\r")
_QUOTES = "\"'"


class NotPythonError(ValueError):
    """What is no Python: `line` counts from 1, 0 where it is not known; `slug` names the reason."""

    def __init__(self, message: str, slug: str, line: int = 0) -> None:
        super().__init__(message)
        self.slug = slug
        self.line = line


def parse(data: bytes) -> ast.Module:
    """Parse as UTF-8, or as the encoding that the file declares; columns are then those of its UTF-8 form.

    NotPythonError for what this Python does not read, and what a newer one added does not explain.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(data)
        except SyntaxError as error:
            tree = _newer(data)
            if tree is not None:
                return tree
            version = ".".join(map(str, sys.version_info[:2]))
            message = f"not valid Python {version}: {error.msg}"
            raise NotPythonError(message, "syntax-error", error.lineno or 1) from error
        except (ValueError, LookupError) as error:
            raise NotPythonError(f"cannot be read as Python: {error}", "unreadable") from error
        except (RecursionError, MemoryError) as error:
            raise NotPythonError("nested too deeply to be read", "too-deep") from error


def line_starts(data: bytes, shift: int = 0) -> list[int]:
    """Give the byte offset of each line. Python ends lines as text files do, and at a lone carriage return.

    `shift` are bytes that stand before `data`; its end comes last.
    """
    ends = (match.end() + shift for match in _LINE.finditer(data))
    return [shift, *ends, len(data) + shift]


def extent(node: ast.expr | ast.stmt, starts: Sequence[int]) -> tuple[int, int]:
    """Give the byte range of a node, by where lines start."""
    last = node.end_lineno or node.lineno
    return starts[node.lineno - 1] + node.col_offset, starts[last - 1] + (node.end_col_offset or 0)


def _newer(data: bytes) -> ast.Module | None:
    try:
        plain = older(data)
        return None if plain == data else _placed(ast.parse(plain), plain, data)
    except (SyntaxError, ValueError, LookupError, RecursionError, MemoryError):
        return None


def _placed(tree: ast.Module, plain: bytes, data: bytes) -> ast.Module:
    """Give the nodes the lines and columns that they have in `data`, where `plain` has fewer lines of as many bytes."""
    ours, theirs = (line_starts(text)[:-1] for text in (data, plain))
    for node in ast.walk(tree) if len(ours) != len(theirs) else ():
        for line, column in (("lineno", "col_offset"), ("end_lineno", "end_col_offset")):
            if hasattr(node, line):
                at = theirs[getattr(node, line) - 1] + getattr(node, column)
                number = bisect_right(ours, at)
                setattr(node, line, number)
                setattr(node, column, at - ours[number - 1])
    return tree


def older(data: bytes) -> bytes:
    """Give a source as Python 3.11 reads it, each byte in its place; line ends inside of f-strings are blanks.

    SyntaxError for a string that does not end, RecursionError where it is nested too deeply.
    """
    walk = _Older(data)
    walk.code(0)
    return bytes(walk.out)


class _Older:
    """One walk over a source, a character a byte, that writes into `out` what older versions read."""

    def __init__(self, data: bytes) -> None:
        self.text = data.decode("latin-1")  # all that has a meaning here is ASCII
        self.out = bytearray(data)

    def code(self, at: int, outer: Sequence[str] = (), *, field: bool = False) -> int:
        """Walk over code; give where it ends: the end of the text, a closing bracket too many, or that of a field.

        `outer` are the quotes of the f-strings around it.
        """
        depth = 0
        while match := _TOKEN.search(self.text, at):
            at = match.end()
            if match["quote"]:
                at = self._string(match, outer)
            elif match["comment"] and outer:
                self._blank(match.start(), at)
            elif match["params"]:
                at = self.code(at) + 1
                self._blank(match.start("params"), at)
            elif match["type"]:
                at = self._type(match)
            elif match["others"] and not outer:
                self._blank(*match.span("others"))
            elif match["open"]:
                depth += 1
            elif match["close"]:
                if depth == 0:
                    return match.start()
                depth -= 1
            elif match["end"] and field and depth == 0 and match["end"] != "!=":
                return match.start()
        return len(self.text)

    def _blank(self, start: int, end: int) -> None:
        """Write blanks over what stands there; lines stay lines."""
        for at in range(start, min(end, len(self.out))):
            if self.text[at] not in "\r\n":
                self.out[at] = ord(" ")

    def _type(self, match: re.Match[str]) -> int:
        """Make an assignment of a `type` statement; give where its name and parameters end."""
        name, at = match["name"], match.end()
        start, end = match.span("type")
        if self.text[at] == "[":
            at = self.code(at + 1) + 1
            self._blank(match.end(), at)
        self.out[start:end] = name.ljust(end - start).encode("latin-1")
        return at

    def _string(self, match: re.Match[str], outer: Sequence[str]) -> int:
        """Walk over a string, inside of f-strings with a quote that theirs is not; give where it ends."""
        prefix, quote = match["prefix"].lower(), match["quote"]
        if "t" in prefix:
            self.out[match.start() + prefix.index("t")] = ord("f")
        at, fields = match.end(), bool(set(prefix) & set("ft"))
        other = self._free(quote, outer)
        while found := _IN_TEXT.search(self.text, at):
            what, at = found[0], found.end()
            if what[:2] == "\\N" and ("r" in prefix or not fields):
                at = found.start() + 2  # the brace names no character
            if what == "\n" and len(quote) == 1:
                raise SyntaxError
            if what == quote or (what[0] == quote and len(quote) == 1):  # "" that stands in a longer run
                at = found.start() + len(quote)
                self._write(match.start("quote"), other or quote)
                self._write(found.start(), other or quote)
                if not other and not fields:  # what it says is not read, but that something stands there
                    self._write(match.start(), "0".ljust(at - match.start()))
                break
            if what == "{" and fields:
                at = self._field(at, (*outer, other or quote))
            elif outer and what[0] == "\\":
                self._blank(found.start(), at)
            elif outer and what[0] in _QUOTES:
                self._write(found.start(), "`" * len(what))
        return at

    def _field(self, at: int, outer: Sequence[str]) -> int:
        """Walk over a field of an f-string from behind its brace, its format with it; give where it ends."""
        start = at
        at = self.code(at, outer, field=True)
        if any(len(quote) == 1 for quote in outer):
            self.out[start:at] = self.out[start:at].replace(b"\n", b" ").replace(b"\r", b" ")
        while at < len(self.text) and self.text[at] != "}":
            at = self._field(at + 1, outer) if self.text[at] == "{" else at + 1
        return at + 1

    def _write(self, at: int, text: str) -> None:
        self.out[at : at + len(text)] = text.encode("ascii")

    @staticmethod
    def _free(quote: str, outer: Sequence[str]) -> str | None:
        """Give a quote of that length that no string around holds, its own before others; None where none is free."""
        choice = (char * len(quote) for char in (quote[0], *_QUOTES))
        return next((free for free in choice if not any(around in free for around in outer)), None)
