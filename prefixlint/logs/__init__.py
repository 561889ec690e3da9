"""Request logs: bytes in, `Request` values out. One module per format; a format is found by content, never by name.

A format module satisfies `Format` below; adding one is adding a file here and a fixture. Modules whose name begins
with an underscore are not formats:

`_io`       files, folders, standard input, compression
`_parse`    JSON, and what is wrong with it
`_records`  bytes to records
`_detect`   envelopes, the choice of the format; `guess_body(record, body, name=…)` for a body inside another format
`_read`     the loop over all of them
`_fields`   `build(record, NAME, content)` makes a Request with everything around the prompt; times and numbers
`_usage`    token counts of every provider
`_convert`  message lists of Anthropic, Responses and others to the OpenAI chat form
`_output`   response objects, whole or as streamed chunks
`_recipes`  why logs are refused and what to switch on (`recipes.toml`)

How a byte becomes a request: `_io` opens inputs (files, folders, globs, `-`), undoes gzip and zstd, strips a BOM, and
yields records: a JSON value a line, the elements of a whole-file JSON document, a CSV row, or a run of text lines.
A record that is a container (`unpack`) is replaced by what it holds. Each record is offered to the format that read
the record before it, and only when that one declines to all others, the most specific first; so two formats in one file
work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, Protocol

from prefixlint.model import Request, Skip

if TYPE_CHECKING:
    from prefixlint.logs._read import Index

RecordKind = Literal["json", "text", "csv"]

_CHECKED = 1_000  # records of a file among which a request shows whether it can be written back


@dataclass(frozen=True, slots=True)
class Record:
    """One logged thing.

    `value` is what was logged: a JSON value, one line of text without its line end, or a CSV row as a dict.
    `body` is the request body found in it by undoing envelopes (`body`, `params`, `request`, `request_body`, `payload`
    …); for other records the value itself. `envelope` are the keys that stood around the body, outermost last to win
    nothing: the innermost value of a key is kept. `part` counts from 0 where one line holds several records.
    """

    path: str
    line: int
    kind: RecordKind
    value: Any
    body: Any
    envelope: Mapping[str, Any]
    part: int = 0


class Format(Protocol):
    """What a module in this folder provides. The module's docstring is the format's documentation page.

    `NAME` is the word users type (`openai-chat`); the file is the same with underscores.
    `KIND` says which records it wants.
    `detect(record)` scores 0 (not mine) to 100; the highest score wins, ties by name. A score of 90 and more means
    that a marker no other format has was seen; 50 that the body has the shape; 10 a last resort. It must be cheap and
    never raise.
    `reader()` gives a fresh reader for one input file.

    Optional attributes:
    `unpack(value)` gives the values inside a container, or None when the value is not such a container.
    `BODY = True`: the format is a dialect of request bodies, and `_detect.guess_body` may use it inside other formats.
    `WHOLE = True`: the format looks at `record.value` only, so that no envelope needs to be undone for its records.
    `STATELESS = True`: each record is read on its own, so that one request can be read again alone.
    """

    NAME: str
    KIND: RecordKind

    def detect(self, record: Record) -> int: ...  # noqa: D102
    def reader(self) -> Reader: ...  # noqa: D102


class Reader(Protocol):
    """Reads the records of one file in order; may hold back what needs a later record (joins by id)."""

    def feed(self, record: Record) -> Iterable[Request | Skip] | None:
        """Give the requests that this record completes; None declines the record (it is offered to other formats).

        Must not be a generator function: None has to be returned at once.
        """
        ...

    def finish(self) -> Iterable[Request | Skip]:
        """Give what was held back, at the end of the file."""
        ...


def read(
    paths: Iterable[str],
    *,
    log_format: str | None = None,
    stdin: BinaryIO | None = None,
    on_bytes: Callable[[int, int | None], None] | None = None,
    index: Index | None = None,
) -> Iterator[Request | Skip]:
    """Read logs in file order: files, folders (recursively, sorted), globs, and `-` for `stdin`.

    `log_format` forces one format by its name. `on_bytes(done, total)` is called as bytes are taken from the files;
    total is None where some size is not known. `index` remembers what `fetch` needs to be quick, and what came from
    standard input.

    Raises UsageError for an unknown format, and at the end NoInputError when nothing was found and LogRefusedError when
    nothing at all was readable. A line or file that cannot be read otherwise gives a Skip, and the rest is read.
    """
    from prefixlint.logs import _detect, _read

    only = None if log_format is None else _detect.named(log_format)
    return _read.read(_read.unique(paths), only, stdin, on_bytes, index)


def fetch(
    paths: Iterable[str],
    wanted: Iterable[tuple[str, int, int]],
    *,
    log_format: str | None = None,
    stdin: BinaryIO | None = None,
    index: Index | None = None,
) -> Iterator[Request]:
    """Read again only the requests that stand at `wanted` (path, line, part), in file order.

    `paths` and `log_format` are those of the first `read`. With the `index` of that read, a request of a plain file is
    found by its byte offset, and standard input can be read again; without, files are streamed again.
    """
    from prefixlint.logs import _detect, _read

    only = None if log_format is None else _detect.named(log_format)
    return _read.fetch(_read.unique(paths), wanted, only, stdin, index)


def with_body(request: Request, body: Any) -> Request | None:
    """Give a request as it would be read with another body; None where its prompt is not all in its body.

    What the log reports of the request's tokens is left out: it is not known of the new one.
    """
    from prefixlint.logs import _write

    return _write.with_body(request, body)


def rewritable(request: Request) -> bool:
    """Tell whether the prompt of a request is all in its body, so that another body gives another prompt."""
    from prefixlint.logs import _write

    return _write.rewritable(request)


def as_chat(request: Request) -> Request | None:
    """Give a request as one of the chat API with the same prompt; None where that would be another prompt."""
    from prefixlint.logs import _write

    return _write.as_chat(request)


def rewritten(
    paths: Iterable[str],
    body_of: Callable[[tuple[str, int, int]], Any | None],
    *,
    log_format: str | None = None,
    stdin: BinaryIO | None = None,
    index: Index,
    on_lost: Callable[[Skip], None] | None = None,
) -> Iterator[bytes]:
    """Write logs again, line by line in their own format, with other bodies where `body_of` (path, line, part) has one.

    `on_lost` gets the lines that cannot be read and so are not written. Raises UsageError, which names the format,
    where a body cannot be written back.
    """
    from prefixlint.logs import _detect, _read, _write

    only = None if log_format is None else _detect.named(log_format)
    return _write.lines(_read.records(_read.unique(paths), only, stdin, index), body_of, on_lost)


def check_writable(
    paths: Iterable[str], *, log_format: str | None = None, stdin: BinaryIO | None = None, index: Index
) -> None:
    """Raise UsageError, as `rewritten` would, where the first request of a file cannot be written back."""
    from itertools import islice

    from prefixlint.logs import _detect, _read, _write

    only = None if log_format is None else _detect.named(log_format)
    for item in _read.unique(paths):
        _write.check(islice(_read.records([item], only, stdin, index), _CHECKED))


def new_index() -> Index:
    """Give an empty index for `read` to fill and `fetch` to use; `close()` gives its disk space back."""
    from prefixlint.logs import _read

    return _read.Index()


def files(paths: Iterable[str]) -> list[str]:
    """Give the files that `read` would read because they or their glob are named; nothing is opened."""
    from prefixlint.logs import _io, _read

    return [
        item.path
        for item in _read.unique(paths)
        if isinstance(item, _io.Input) and item.named and item.path != _io.STDIN
    ]


def format_names() -> tuple[str, ...]:
    """Give the names of all log formats, sorted: what `log_format` may be."""
    from prefixlint.logs import _detect

    return tuple(sorted(item.NAME for item in _detect.formats()))


def why_no_prompt(slug: str) -> tuple[str, str | None]:
    """Say for people why a log holds no prompt, and what to do about it (None where nothing is known)."""
    from prefixlint.logs import _recipes

    found = _recipes.load()["refusals"].get(slug)
    return (slug, None) if found is None else (str(found["reason"]), str(found["hint"]))
