"""Jupyter notebooks: the code cells of one, in order, as one Python file.

The cells' sources are JSON strings; each place in them is mapped to its bytes in the notebook, escapes included, so
that a finding points into the file as it is. A cell that is not Python even without its magics is left out, with a
diagnostic.
"""

from __future__ import annotations

import json
import json.scanner
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

from prefixlint import pysyntax
from prefixlint.pysyntax import NotPythonError
from prefixlint.sources import Diagnostic, SourceFile, Summary, _texts, python
from prefixlint.textmap import offset
from prefixlint.values import Lit

NAME = "notebook"
ORDER = 55
FORMAT = 4
"""The nbformat that is read; the one before it (2015) kept its cells elsewhere."""

_ROLE_KEY = rb"role\""
_HALF = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")
_CELL_MAGIC = re.compile(r"\s*%%(?!time\b|timeit\b|capture\b|prun\b)")
_MAGIC = re.compile(r"^([ \t]*)[%!?](?=.)", re.MULTILINE)
_ASSIGNED = re.compile(r"^([ \t]*[\w, \t]+=[ \t]*)[%!][ -~]", re.MULTILINE)
_ASKED = re.compile(r"^([ \t]*)[\w.](?=[\w.]*\?{1,2}[ \t]*$)", re.MULTILINE)
_ESCAPE = re.compile(r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u....|\\.")


def claims(file: SourceFile) -> bool:
    """Claim `.ipynb`."""
    return file.suffix == ".ipynb"


def wanted(file: SourceFile) -> bool:
    """Look for the words without which no Python file holds a prompt."""
    return python.wanted(file) or _ROLE_KEY in file.data


def summarize(file: SourceFile) -> Summary:
    """Read the code of a notebook; what cannot be read gives a diagnostic."""
    cells = _cells(file)
    if isinstance(cells, Diagnostic):
        return Summary(path=file.path, kind=NAME, diagnostics=(cells,))
    joined = _Joined()
    problems = []
    for cell in cells:
        if cell.code:
            problem = joined.add(cell, file)
            problems += [problem] if problem else []
    summary = python.summarize(SourceFile(file.path, bytes(joined.data), file.declared))
    try:
        moved: Summary = _Mover(joined).moved(summary)
    except RecursionError:
        problems.append(Diagnostic(file.path, 0, "too-deep", "nested too deeply to be followed"))
        return Summary(path=file.path, kind=NAME, diagnostics=tuple(problems))
    inner = tuple(replace(each, line=0) for each in summary.diagnostics)
    return replace(moved, kind=NAME, diagnostics=(*problems, *inner))


def cell_of(data: bytes, at: int) -> tuple[int, int] | None:
    """Give the cell (from 1, of all kinds) and the line in it (from 1) of a byte; None outside the cells' sources."""
    cells = _cells(SourceFile("", data))
    if isinstance(cells, Diagnostic):
        return None
    for cell in cells:
        line = 1
        for text, start, stop in cell.sources:
            if start <= at <= stop:
                raw = data[start:at].decode("utf-8", "replace")
                return cell.number, line + sum(escape[0] == r"\n" for escape in _ESCAPE.finditer(raw))
            line += text.count("\n")
    return None


@dataclass(frozen=True, slots=True)
class _Cell:
    """A cell: its number from 1, whether it is code, and its strings with the bytes between their quotes."""

    number: int
    code: bool
    sources: tuple[tuple[str, int, int], ...]


class _Placed(str):
    """A string of a JSON document; `begin` and `stop` are the characters between its quotes."""

    __slots__ = ("begin", "stop")
    begin: int
    stop: int


class _Decoder(json.JSONDecoder):
    """Reads JSON and keeps the places of the strings that are values."""

    def __init__(self) -> None:
        super().__init__()
        self.parse_string = self._string
        self.scan_once = json.scanner.py_make_scanner(self)  # type: ignore[attr-defined]

    def _string(self, text: str, begin: int, strict: bool) -> tuple[str, int]:
        value, end = json.decoder.scanstring(text, begin, strict)  # type: ignore[attr-defined]
        placed = _Placed(value)
        placed.begin, placed.stop = begin, end - 1
        return placed, end


def _cells(file: SourceFile) -> list[_Cell] | Diagnostic:
    decoded = _texts.decode(file)
    if isinstance(decoded, Diagnostic):
        return decoded
    text, marks = decoded
    try:
        book = _Decoder().decode(text)
    except json.JSONDecodeError as error:
        return Diagnostic(file.path, error.lineno, "notebook-syntax", f"not valid JSON: {error.msg}")
    except RecursionError:
        return Diagnostic(file.path, 0, "too-deep", "nested too deeply to be read")
    version = book.get("nbformat") if isinstance(book, dict) else None
    if version != FORMAT or not isinstance(book.get("cells"), list):
        hint = f"nbformat {version}" if isinstance(version, int) else "no version of the notebook format"
        upgrade = "convert it with `jupyter nbconvert --to notebook`"
        return Diagnostic(file.path, 0, "notebook-version", f"has {hint}; only {FORMAT} is read: {upgrade}")
    whole = Lit(text, marks[0][1], len(file.data), marks)
    python_kernel = _is_python(book.get("metadata"))
    return [_cell(number, cell, python_kernel, whole) for number, cell in enumerate(book["cells"], 1)]


def _is_python(metadata: Any) -> bool:
    """Tell whether the code is Python; where nothing is said, it is."""
    for key, name in (("language_info", "name"), ("kernelspec", "language")):
        about = metadata.get(key) if isinstance(metadata, dict) else None
        if isinstance(about, dict) and isinstance(about.get(name), str):
            return "python" in about[name].lower()
    return True


def _cell(number: int, cell: Any, python_kernel: bool, whole: Lit) -> _Cell:
    held = cell.get("source") if isinstance(cell, dict) else None
    strings = [each for each in (held if isinstance(held, list) else [held]) if isinstance(each, _Placed)]
    sources = tuple((str(each), offset(whole, each.begin), offset(whole, each.stop)) for each in strings)
    return _Cell(number, python_kernel and isinstance(cell, dict) and cell.get("cell_type") == "code", sources)


def _encoded(text: str) -> bytes:
    """Encode as UTF-8; of half a character, which JSON may hold and Python may not, only the length is kept."""
    return _HALF.sub(b"???", text.encode("utf-8", "surrogatepass"))


def _code(source: str) -> str | NotPythonError:
    """Give a cell as Python of the same length in bytes, or why it is none."""
    if _CELL_MAGIC.match(source):
        return " " * len(source.encode("utf-8", "surrogatepass"))
    plain = _MAGIC.sub(r"\1#", _ASKED.sub(r"\1#", _ASSIGNED.sub(r"\g<1>0#", source)))
    failure: NotPythonError | None = None
    for text in dict.fromkeys((source, plain)):
        try:
            pysyntax.parse(_encoded(text))
        except NotPythonError as error:
            failure = error
        else:
            return text
    assert failure is not None
    return failure


@dataclass(slots=True)
class _Joined:
    """The code of all cells, and the map of its bytes to those of the notebook.

    From byte `own[i]` on, the code stands at byte `there[i]`; where `width[i]` is not 0, one escape of that many bytes
    stands there for the code up to `own[i + 1]`.
    """

    data: bytearray = field(default_factory=bytearray)
    own: list[int] = field(default_factory=list)
    there: list[int] = field(default_factory=list)
    width: list[int] = field(default_factory=list)

    def add(self, cell: _Cell, file: SourceFile) -> Diagnostic | None:
        """Add a cell; a cell that is not Python is left out and told."""
        code = _code("".join(text for text, _, _ in cell.sources))
        if isinstance(code, NotPythonError):
            line = file.data.count(b"\n", 0, cell.sources[0][1]) + 1
            return Diagnostic(file.path, line, code.slug, f"cell {cell.number}, line {code.line or 1}: {code}")
        at = len(self.data)
        for text, start, stop in cell.sources:
            raw = file.data[start:stop].decode("utf-8", "surrogatepass")
            self._map(raw, at, start)
            at += len(text.encode("utf-8", "surrogatepass"))
        self.data += _encoded(code) + b"\n"
        return None

    def _map(self, raw: str, own: int, there: int) -> None:
        self._point(own, there, 0)
        done = 0
        for escape in _ESCAPE.finditer(raw):
            plain = len(raw[done : escape.start()].encode("utf-8", "surrogatepass"))
            own, there = own + plain, there + plain
            self._point(own, there, len(escape[0]))
            own += len(json.loads(f'"{escape[0]}"').encode("utf-8", "surrogatepass"))
            there += len(escape[0])
            self._point(own, there, 0)
            done = escape.end()

    def _point(self, own: int, there: int, width: int) -> None:
        self.own.append(own)
        self.there.append(there)
        self.width.append(width)

    def start(self, at: int) -> int:
        """Give where what begins at a byte of the code begins in the notebook."""
        index = max(bisect_right(self.own, at) - 1, 0)
        if not self.own:
            return 0
        return self.there[index] + (0 if self.width[index] else max(at - self.own[index], 0))

    def end(self, at: int) -> int:
        """Give where what ends before a byte of the code ends in the notebook."""
        index = bisect_right(self.own, at - 1) - 1
        if index < 0:
            return self.start(at)
        return self.there[index] + (self.width[index] or at - self.own[index])

    def marks(self, lit: Lit) -> Iterator[tuple[int, int]]:
        """Give the marks of a literal of the code, as of the notebook."""
        stops = [char for char, _ in lit.marks[1:]] + [len(lit.text)]
        for (char, byte), stop in zip(lit.marks, stops, strict=True):
            yield char, self.start(byte)
            piece = lit.text[char:stop].encode("utf-8", "surrogatepass")
            for index in range(bisect_right(self.own, byte), len(self.own)):
                inner = self.own[index] - byte
                if inner >= len(piece):
                    break
                yield char + len(piece[:inner].decode("utf-8", "ignore")), self.start(self.own[index])


class _Mover:
    """Moves every place in a summary from the code to the notebook; what is shared stays shared."""

    def __init__(self, joined: _Joined) -> None:
        self._joined = joined
        self._done: dict[int, tuple[Any, Any]] = {}  # by identity, with what keeps the identity taken

    def moved(self, value: Any) -> Any:
        """Give a value of a summary with its places moved."""
        if isinstance(value, (str, int, float, type(None))):
            return value
        known = self._done.get(id(value))
        if known is None:
            known = self._done[id(value)] = (value, self._move(value))
        return known[1]

    def _move(self, value: Any) -> Any:
        if is_dataclass(value) and not isinstance(value, type):
            return replace(value, **{f.name: self._part(f.name, getattr(value, f.name), value) for f in fields(value)})
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            names = value._fields
            return type(value)(*(self._part(name, part, value) for name, part in zip(names, value, strict=True)))
        if isinstance(value, tuple):
            return tuple(self.moved(part) for part in value)
        return {key: self.moved(part) for key, part in value.items()} if isinstance(value, Mapping) else value

    def _part(self, name: str, part: Any, owner: Any) -> Any:
        if name == "start":
            return self._joined.start(part)
        if name == "end":
            return self._joined.end(part)
        if name == "marks":
            return tuple(dict(self._joined.marks(owner)).items()) if part else ()
        if name == "comments":
            return tuple((self._joined.start(start), self._joined.end(end)) for start, end in part)
        return self.moved(part)
