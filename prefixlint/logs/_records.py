"""Bytes to records: a JSON value a line, a whole-file document, CSV rows, parquet rows, or lines of text."""

from __future__ import annotations

import csv
import io
import re
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from prefixlint.logs import _parse
from prefixlint.logs._io import BrokenStreamError
from prefixlint.model import Skip

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prefixlint.logs import RecordKind

MAX_LINE = 512 << 20
MAX_DOCUMENT = 1 << 30
_HEAD = 1 << 20
_MAX_SPREAD = 100_000  # lines of one object
_LOOKED_AT = 40
_NOWHERE = -1
_DELIMITERS = ",;\t|"
_PICKLE_PROTOCOLS = frozenset(b"\x02\x03\x04\x05")
_TEXT_PICKLES = (b"(dp0\n", b"(lp0\n", b"(dp1\n", b"ccopy_reg\n")
_BINARY = {
    b"PK\x03\x04": "a zip archive (unpack it first)",
    b"SQLite format 3\x00": "an SQLite database (export the table as JSON lines)",
    b"ARROW1": "an Arrow file (write it as parquet or JSON lines)",
    b"7z\xbc\xaf": "a 7-Zip archive (unpack it first)",
    b"BZh": "bzip2 data (unpack it first)",
    b"\xfd7zXZ": "xz data (unpack it first)",
    b"%PDF-": "a PDF",
    b"\x7fELF": "a program",
    b"\x89PNG": "an image",
    b"\xff\xd8\xff": "an image",
    b"GGUF": "a model file",
}
_DOCUMENT_START = re.compile(rb'\s*(?:\[\s*(?:[\[{"\]]|$)|\{\s*(?:["}]|$))')


class Raw(NamedTuple):
    """One thing as the file holds it.

    `offset` is the byte where its line starts, from the start of the stream, and negative where it has no line of its
    own. `complaint` says what to report when no
    format knows what to do with it. `source` is the line of a JSON value that may turn out to be a line of text.
    """

    line: int
    kind: RecordKind
    value: Any
    offset: int
    complaint: Skip | None = None
    source: bytes = b""


def records(
    path: str, stream: io.BufferedReader, knows_csv: Callable[[dict[str, str]], bool], kind: RecordKind | None = None
) -> tuple[str, Iterator[Raw | Skip]]:
    """Give the layout of a file (`empty`, `binary`, `json`, `document`, `csv`, `parquet` or `text`) and its records.

    `knows_csv` says whether a first row (by its header) is one that some format reads; `kind` is what the user's format
    wants, if there is one.
    """
    layout = _layout(stream.peek(_HEAD), knows_csv)
    if kind == "text" and layout in ("json", "document", "csv"):
        layout = "text"
    give = {
        "empty": _empty,
        "binary": _binary,
        "document": _document,
        "csv": _rows,
        "parquet": _parquet,
        "json": _json_lines,
        "text": _text_lines,
    }[layout]
    return layout, _guarded(path, give(path, stream))


def _guarded(path: str, items: Iterator[Raw | Skip]) -> Iterator[Raw | Skip]:
    """Turn a stream that breaks into a Skip after the last record that was readable."""
    line = 0
    try:
        for item in items:
            line = item.line
            yield item
    except BrokenStreamError as error:
        yield Skip(path, line + 1, "broken-stream", f"the rest of the file is lost: {error}")
    except OSError as error:
        yield Skip(path, line + 1, "unreadable", f"the rest of the file is lost: {error.strerror or error}")


def _layout(head: bytes, knows_csv: Callable[[dict[str, str]], bool]) -> str:
    body = head.lstrip(b" \t\r\n")
    if not body:
        return "empty"
    if head.startswith(b"PAR1"):
        return "parquet"
    if _binary_kind(head):
        return "binary"
    lines = [line for line in body.split(b"\n", _LOOKED_AT)[:_LOOKED_AT] if line.strip()]
    if body[:1] in b"{[" and _DOCUMENT_START.match(lines[0].rstrip()):
        return "json" if _is_lines(lines) else "document"
    if 2 * sum(line.startswith(b"{") for line in lines) >= len(lines):
        return "json"
    if knows_csv(_first_row(body)):
        return "csv"
    return "text"


def _is_lines(lines: list[bytes]) -> bool:
    """Whether a file that begins as JSON holds a value a line: an indented document has one `{` at the margin only."""
    if len(lines) == 1 or _parses(lines[0]):
        return True
    return lines[0].startswith(b"{") and any(line.startswith(b"{") and line.strip() != b"{" for line in lines[1:])


def _parses(line: bytes) -> bool:
    try:
        _parse.loads(line)
    except _parse.BadJsonError:
        return False
    return True


def _binary_kind(head: bytes) -> str | None:
    if (head[:1] == b"\x80" and head[1:2] and head[1] in _PICKLE_PROTOCOLS) or head.startswith(_TEXT_PICKLES):
        return "pickle"
    for magic, kind in _BINARY.items():
        if head.startswith(magic):
            return kind
    if head[257:262] == b"ustar":
        return "a tar archive (unpack it first)"
    start = head[:1024]
    return "binary data" if b"\0" in start and not start.lstrip(b"\0 \t\r\n").startswith((b"{", b"[")) else None


def _empty(path: str, stream: io.BufferedReader) -> Iterator[Raw | Skip]:
    while chunk := stream.read(_HEAD):
        if chunk.strip():
            break
    else:
        yield Skip(path, 0, "empty-file", "the file is empty")
        return
    yield Skip(path, 0, "binary-file", "the file begins with more than a megabyte of blanks")


def _binary(path: str, stream: io.BufferedReader) -> Iterator[Raw | Skip]:
    kind = _binary_kind(stream.peek(_HEAD))
    if kind == "pickle":
        yield Skip(path, 0, "pickle", "a Python pickle; it is not read, because loading one runs code")
    else:
        yield Skip(path, 0, "binary-file", f"this is {kind}, not a log")


def _lines(path: str, stream: io.BufferedReader) -> Iterator[tuple[int, int, bytes] | Skip]:
    """Give (line number, offset, line) of each line that is not blank."""
    number = offset = 0
    while line := stream.readline(MAX_LINE):
        number += 1
        start = offset
        offset += len(line)
        if len(line) == MAX_LINE and not line.endswith(b"\n"):
            while more := stream.readline(_HEAD):
                offset += len(more)
                if more.endswith(b"\n"):
                    break
            yield Skip(path, number, "line-too-long", f"a line of more than {MAX_LINE >> 20} MiB")
        elif not line.isspace():
            yield number, start, line


def _json_lines(path: str, stream: io.BufferedReader) -> Iterator[Raw | Skip]:
    """Lines of JSON; a list that is all of its file counts as a document."""
    loads = _parse.loads
    for item in _lines(path, stream):
        if isinstance(item, Skip):
            yield item
            continue
        number, offset, line = item
        try:
            value = loads(line)
        except _parse.BadJsonError as error:
            value = _parse.several(line) if error.slug == "invalid-json" else None
            if value is None:
                yield _not_json(path, number, offset, line, error)
                continue
        if type(value) is list and number == 1 and not stream.peek(1):
            for element_number, element in enumerate(_elements(value), 1):
                yield Raw(element_number, "json", element, _NOWHERE)
        else:
            yield Raw(number, "json", value, offset)


def _not_json(path: str, number: int, offset: int, line: bytes, error: _parse.BadJsonError) -> Raw | Skip:
    """Text between JSON lines may be an engine's; a line that begins as an object is a damaged one."""
    complaint = Skip(path, number, error.slug, error.reason)
    if error.slug != "invalid-json" or line.lstrip()[:1] == b"{":
        return complaint
    return Raw(number, "text", _text(line), offset, complaint)


def _elements(value: Any) -> list[Any]:
    """Give the elements of a list of requests; anything else, one list of messages too, is one element."""
    return value if type(value) is list and not is_conversation(value) else [value]


def _document(path: str, stream: io.BufferedReader) -> Iterator[Raw | Skip]:
    data = stream.read(MAX_DOCUMENT + 1)
    if len(data) > MAX_DOCUMENT:
        reason = f"one JSON document of more than {MAX_DOCUMENT >> 30} GiB; write it as one object a line"
        yield Skip(path, 0, "document-too-large", reason)
        return
    number = 0
    for value in _parse.document(data):
        if isinstance(value, _parse.BadJsonError):
            yield Skip(path, number + 1, value.slug, value.reason)
            continue
        for element in _elements(value):
            number += 1
            yield Raw(number, "json", element, 0)


def is_conversation(value: Any) -> bool:
    """Whether a list is one list of messages rather than a list of requests."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(item, dict) and "role" in item and "content" in item for item in value)
    )


def _text(line: bytes) -> str:
    return line.rstrip(b"\r\n").decode("utf-8", "replace")


def _text_lines(path: str, stream: io.BufferedReader) -> Iterator[Raw | Skip]:
    """Lines of text; those that are JSON objects, and objects written over several lines, are given as such."""
    lines = _lines(path, stream)
    for item in lines:
        if isinstance(item, Skip):
            yield item
        elif item[2].rstrip() == b"{":
            yield from _spread_object(path, item, lines)
        else:
            yield _text_line(path, item)


def _text_line(path: str, item: tuple[int, int, bytes]) -> Raw | Skip:
    number, offset, line = item
    if line[:1] == b"{":
        try:
            return Raw(number, "json", _parse.loads(line), offset, source=line.rstrip(b"\r\n"))
        except _parse.BadJsonError:
            pass
    try:
        return Raw(number, "text", line.rstrip(b"\r\n").decode("utf-8"), offset)
    except UnicodeDecodeError as error:
        return Skip(path, number, "invalid-utf8", f"not UTF-8 at byte {error.start} of the line")


def _spread_object(
    path: str, first: tuple[int, int, bytes], lines: Iterator[tuple[int, int, bytes] | Skip]
) -> Iterator[Raw | Skip]:
    """Put an object together whose first line is `{` and whose last one is `}`; if it is none, give its lines."""
    block = [first]
    skip: Skip | None = None
    for item in lines:
        if isinstance(item, Skip):
            skip = item
            break
        block.append(item)
        if item[2].rstrip(b"\r\n") == b"}" or len(block) == _MAX_SPREAD:
            break
    try:
        yield Raw(first[0], "json", _parse.loads(b"".join(line for _, _, line in block)), first[1])
    except _parse.BadJsonError:
        yield from (_text_line(path, item) for item in block)
    if skip is not None:
        yield skip


def one(path: str, line: int, stream: BinaryIO, layout: str) -> Iterator[Raw]:
    """Give the record of one line again, as the first reading gave it; the stream stands at the start of that line."""
    data = stream.readline(MAX_LINE)
    if layout == "text" or data.rstrip() == b"{":
        yield from _one_of_text(path, line, data, stream)
        return
    try:
        yield Raw(line, "json", _parse.loads(data), 0)
    except _parse.BadJsonError:
        values = _parse.several(data)
        if values is not None:
            yield Raw(line, "json", values, 0)


def _one_of_text(path: str, line: int, first: bytes, stream: BinaryIO) -> Iterator[Raw]:
    data = [first]
    if first.rstrip() == b"{":
        while len(data) < _MAX_SPREAD and data[-1] and data[-1].rstrip(b"\r\n") != b"}":
            data.append(stream.readline(MAX_LINE))
    found = _text_lines(path, io.BufferedReader(io.BytesIO(b"".join(data))))
    yield from (item._replace(line=line) for item in found if isinstance(item, Raw))


def _first_row(body: bytes) -> dict[str, str]:
    text = body.decode("utf-8", "replace")
    delimiter = _delimiter(text)
    if delimiter is None:
        return {}
    _allow_long_fields()
    try:
        return _named(next(iter(csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter))))
    except (csv.Error, StopIteration):
        return {}


def _delimiter(text: str) -> str | None:
    """Give what parts the columns of a header line; None when nothing does."""
    header = text.split("\n", 1)[0]
    best = max(_DELIMITERS, key=header.count)
    return best if best in header else None


def _named(row: dict[Any, Any]) -> dict[str, str]:
    """Leave out what a row has too much or too little of."""
    return {name: value for name, value in row.items() if isinstance(name, str) and isinstance(value, str)}


def _allow_long_fields() -> None:
    csv.field_size_limit(MAX_LINE)  # a request body is longer than the module's limit of 128 KiB


def _rows(path: str, stream: io.BufferedReader) -> Iterator[Raw | Skip]:
    _allow_long_fields()
    delimiter = _delimiter(stream.peek(_HEAD).lstrip(b" \t\r\n").decode("utf-8", "replace")) or ","
    text = io.TextIOWrapper(stream, encoding="utf-8", errors="replace", newline="")
    reader = csv.DictReader(text, delimiter=delimiter)
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield Skip(path, line, "invalid-csv", f"not a CSV row: {error}")
            continue
        yield Raw(max(line, 2), "csv", _named(row), 0)


def _parquet(path: str, stream: io.BufferedReader) -> Iterator[Raw | Skip]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        yield Skip(path, 0, "needs-parquet", "a parquet file; install prefixlint[parquet] to read it")
        return
    number = 0
    try:
        table = parquet.ParquetFile(io.BytesIO(stream.read()))
        for batch in table.iter_batches(batch_size=256):
            for row in batch.to_pylist():
                number += 1
                yield Raw(number, "json", row, 0)
    except (ArrowException, ValueError, OSError) as error:
        yield Skip(path, number + 1, "broken-parquet", f"the rest of the file is lost: {error}")
