"""Request logs: bytes in, `Request` values out. One module per format; a format is found by content, never by name.

A format module satisfies `Format` below; adding one is adding a file here and a fixture. Modules whose name begins
with an underscore are not formats (`_io`: files, compression, records; `_detect`: the dispatch; `_fields`: times,
numbers, usage and message conversions that formats share).

How a byte becomes a request: `_io` opens inputs (files, folders, globs, `-`), undoes gzip and zstd, strips a BOM, and
yields records: a JSON value a line, the elements of a whole-file JSON document, a CSV row, or a run of text lines.
A record that is a container (`unpack`) is replaced by what it holds. Each record is offered to the format that read
the record before it, and only when that one declines to all others, the most specific first; so two formats in one file
work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from prefixlint.model import Request, Skip

RecordKind = Literal["json", "text", "csv"]


@dataclass(frozen=True, slots=True)
class Record:
    """One logged thing.

    `value` is what was logged: a JSON value, one line of text without its line end, or a CSV row as a dict.
    `body` is the request body found in it by undoing envelopes (`body`, `params`, `request`, `request_body`, `payload`
    …); for other records the value itself. `envelope` are the keys that stood around the body, outermost last to win
    nothing: the innermost value of a key is kept. `time` is the time that an envelope gave, if any.
    """

    path: str
    line: int
    kind: RecordKind
    value: Any
    body: Any
    envelope: Mapping[str, Any]


class Format(Protocol):
    """What a module in this folder provides. The module's docstring is the format's documentation page.

    `NAME` is the word users type (`openai-chat`); the file is the same with underscores.
    `KIND` says which records it wants.
    `detect(record)` scores 0 (not mine) to 100; the highest score wins, ties by name. A score of 90 and more means
    that a marker no other format has was seen; 50 that the body has the shape; 10 a last resort. It must be cheap and
    never raise.
    `reader()` gives a fresh reader for one input file.
    `unpack(value)` (optional) gives the records inside a container, or None when the value is not such a container.
    """

    NAME: str
    KIND: RecordKind

    def detect(self, record: Record) -> int: ...  # noqa: D102
    def reader(self) -> Reader: ...  # noqa: D102


class Reader(Protocol):
    """Reads the records of one file in order; may hold back what needs a later record (joins by id)."""

    def feed(self, record: Record) -> Iterable[Request | Skip] | None:
        """Give the requests that this record completes; None declines the record (it is offered to other formats)."""
        ...

    def finish(self) -> Iterable[Request | Skip]:
        """Give what was held back, at the end of the file."""
        ...


def read(paths: Iterable[str], *, log_format: str | None = None) -> Iterator[Request | Skip]:
    """Read logs in file order."""
    raise NotImplementedError
