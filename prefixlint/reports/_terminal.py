"""Text for terminals: numbers with units, tables that keep to a width, and strangers' text made inert."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

_ESCAPES = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
_MIN_CELL = 4  # columns that a cell keeps when its column is cut
_LEAST_NAME = 26  # columns that the first column keeps before others go into a table of their own
# Beyond these a time is not a date that people use; such numbers come from broken logs.
_LAST_TIME = 253_402_300_799


def visible(text: str) -> str:
    """Show a stranger's text on one line: controls, escapes, bidi overrides and surrogates become visible codes."""
    return "".join(_visible(c) for c in text)


def _visible(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp"):
        code = ord(char)
        return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    return char


def columns(text: str) -> int:
    """Count the terminal columns of a text without escapes: wide characters take two, combining ones none."""
    return sum(_columns(c) for c in text)


def _columns(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def shorten(text: str, width: int, *, keep: str = "start") -> str:
    """Cut a text to a number of columns, with an ellipsis where something is left out."""
    if columns(text) <= width:
        return text
    if width <= 1:
        return "…"[:width]
    chars = text if keep == "start" else text[::-1]
    used, out = 0, []
    for char in chars:
        used += _columns(char)
        if used > width - 1:
            break
        out.append(char)
    kept = "".join(out)
    return kept + "…" if keep == "start" else "…" + kept[::-1]


def count(number: int | None) -> str:
    """Show a whole number with thousands separated."""
    return "unknown" if number is None else f"{number:,}"


def short_count(number: int) -> str:
    """Show a whole number in at most five characters and a unit: 950, 12.3 k, 2.01 M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return str(number)


def moment(seconds: float | None) -> str:
    """Show a time in UTC to the second."""
    if seconds is None or not 0 <= seconds <= _LAST_TIME:
        return "unknown"
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def duration(seconds: float) -> str:
    """Show a time span in its two largest units: `9 s`, `58 min 56 s`, `6 d 23 h`."""
    whole = max(0, round(seconds))
    parts = ((whole // 86_400, "d"), (whole // 3600 % 24, "h"), (whole // 60 % 60, "min"), (whole % 60, "s"))
    first = next((i for i, (number, _) in enumerate(parts) if number), len(parts) - 1)
    shown = parts[first : first + 2]
    return " ".join(f"{number} {unit}" for number, unit in shown[:1] + tuple(part for part in shown[1:] if part[0]))


@dataclass(frozen=True, slots=True)
class Style:
    """ANSI styles, or none. Red: what costs; green: what is good; yellow: what to know; dim: what may be skipped."""

    color: bool

    def _wrap(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.color and text else text

    def bold(self, text: str) -> str:
        """Style headings and the number that counts."""
        return self._wrap("1", text)

    def dim(self, text: str) -> str:
        """Style what may be skipped."""
        return self._wrap("2", text)

    def red(self, text: str) -> str:
        """Style what costs."""
        return self._wrap("31", text)

    def green(self, text: str) -> str:
        """Style what is good."""
        return self._wrap("32", text)

    def yellow(self, text: str) -> str:
        """Style what one must know."""
        return self._wrap("33", text)


def table(
    rows: Sequence[Sequence[str]], *, align: str, width: int, grow: Sequence[int] = (0,), indent: int = 2
) -> list[str]:
    """Lay out plain cells in columns; `align` has `<` or `>` a column; the columns `grow` are cut so that lines fit."""
    if not rows:
        return []
    sizes = [max(columns(row[i]) for row in rows) for i in range(len(align))]
    excess = indent + 2 * (len(sizes) - 1) + sum(sizes) - width
    while excess > 0:
        widest = max(grow, key=lambda i: sizes[i])
        if sizes[widest] <= _MIN_CELL:
            break
        sizes[widest] -= 1
        excess -= 1
    return [
        " " * indent + "  ".join(_cell(row[i], sizes[i], align[i]) for i in range(len(sizes))).rstrip() for row in rows
    ]


def banded(
    rows: Sequence[Sequence[str]],
    *,
    align: str,
    width: int,
    fixed: int,
    step: int = 1,
    grow: Sequence[int] = (0,),
    sparse: bool = False,
) -> list[list[str]]:
    """Lay out cells in one table, or in several where its columns do not fit side by side.

    The first `fixed` columns stand in each of them, those of `grow` cut where that helps; the others, `step` of which
    stay together, are shared out. Of `sparse` rows a table leaves out those that have nothing in the others.
    """
    sizes = [max(columns(row[i]) for row in rows) for i in range(len(align))]
    least = [min(size, _LEAST_NAME // len(grow) + 2) if i in grow else size for i, size in enumerate(sizes)]
    room = width + 2 - sum(2 + size for size in least[:fixed])
    bands: list[list[int]] = [[]]
    left = room
    for start in range(fixed, len(align), step):
        group = list(range(start, min(start + step, len(align))))
        needed = sum(2 + sizes[i] for i in group)
        if bands[-1] and needed > left:
            bands.append([])
            left = room
        bands[-1] += group
        left -= needed
    shown = [[*range(fixed), *band] for band in bands]
    return [
        table(
            [[row[i] for i in at] for row in rows if not sparse or any(row[i] for i in at[fixed:])],
            align="".join(align[i] for i in at),
            width=width,
            grow=grow,
            indent=0,
        )
        for at in shown
    ]


def _cell(text: str, size: int, align: str) -> str:
    text = shorten(text, size)
    pad = " " * (size - columns(text))
    return text + pad if align == "<" else pad + text


def wrap(text: str, width: int, *, indent: str = "  ", first: str | None = None) -> list[str]:
    """Break a sentence into lines of at most `width` columns; long words are left whole."""
    lines, line = [], first if first is not None else indent
    start = line
    for word in text.split():
        if line != start and columns(line) + columns(word) + 1 > width:
            lines.append(line.rstrip())
            line = start = indent
        line += word if line == start else " " + word
    return [*lines, line.rstrip()]
