"""Files made up of what is known of them: texts at lines and columns, and blanks everywhere else.

Reports show places of files by their bytes. Of a saved result, or of a source that a log was led back to, only lines,
columns and excerpts are known; on paper each stands where it stood.
"""

from __future__ import annotations

from itertools import accumulate

from prefixlint.prompts import Span

MOST = 20_000_000
"""Characters of all the files together; a place beyond is none of a file that was read."""


class Paper:
    """Files by path, into which texts are put; when all are, `files` gives their bytes and `span` places in them."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[int, str]] = {}
        self._size = 0
        self._starts: dict[str, list[int]] = {}

    def put(self, path: str, line: int, column: int, text: str = "") -> None:
        """Put a text at a line and column (both from 1), over what is there; ValueError for a place that is none."""
        rows = self._rows.setdefault(path, {})
        for number, part in enumerate(text.split("\n")):
            at = column - 1 if number == 0 else 0
            row = rows.get(line + number, "")
            self._grow(path, line + number, at + len(part) - len(row))
            rows[line + number] = row[:at].ljust(at) + part + row[at + len(part) :]

    def _grow(self, path: str, line: int, characters: int) -> None:
        if not isinstance(line, int) or line < 1:
            raise ValueError(f"{path}: no line {line}")
        lines = max(0, line - max(self._rows[path], default=0))
        self._size += lines + max(0, characters)
        if self._size > MOST:
            raise ValueError(f"{path}: line {line} is too far down, or too long")

    def files(self) -> dict[str, bytes]:
        """Give the bytes of each file."""
        made = {}
        for path, rows in self._rows.items():
            lines = [rows.get(number, "").encode("utf-8", "replace") for number in range(1, max(rows) + 1)]
            self._starts[path] = [0, *accumulate(len(line) + 1 for line in lines)]
            made[path] = b"\n".join(lines)
        return made

    def span(self, path: str, start: tuple[int, int], end: tuple[int, int]) -> Span:
        """Give the bytes from a line and column to just before others, of places that were put down."""
        return Span(path, self._byte(path, *start), self._byte(path, *end))

    def _byte(self, path: str, line: int, column: int) -> int:
        row = self._rows[path].get(line, "")
        return self._starts[path][line - 1] + len(row[: column - 1].encode("utf-8", "replace"))


def byte(data: bytes, line: int, column: int) -> int:
    """Give the byte of a real file at a line and column, both from 1, columns in characters."""
    start = 0
    for _ in range(line - 1):
        start = data.index(b"\n", start) + 1
    stop = data.find(b"\n", start)
    row = data[start : stop if stop >= 0 else len(data)].decode("utf-8", "replace")
    return start + len(row[: column - 1].encode("utf-8", "replace"))


def stands(data: bytes, span: Span, excerpt: str) -> bool:
    """Tell whether an excerpt, which may be cut at its end, still stands at a place of a real file."""
    return span.start <= span.end and data[span.start : span.end].decode("utf-8", "replace").startswith(excerpt)
