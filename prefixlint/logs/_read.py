"""The loop over inputs, records and formats behind `prefixlint.logs.read` and `fetch`."""

from __future__ import annotations

import io
import os
from array import array
from bisect import bisect_left
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, BinaryIO, cast

from prefixlint.errors import LogRefusedError, NoInputError
from prefixlint.logs import _detect, _io, _recipes, _records
from prefixlint.model import Request, Skip

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from prefixlint.logs import Format

_SAMPLED_LINES = 200
_LONGEST_REASON = 200
_AHEAD = 1 << 16  # bytes that are read at once where single lines are wanted: most stand near the one before
# What code that looks into the JSON of strangers raises when a value is of a kind that it did not think of.
_FAULTS = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError)


@dataclass(slots=True)
class _Offsets:
    """Where the lines of a file start that one can seek in, and the format that read them all."""

    format: str = ""
    lines: array[int] = field(default_factory=lambda: array("Q"))
    starts: array[int] = field(default_factory=lambda: array("Q"))

    def start_of(self, line: int) -> int | None:
        at = bisect_left(self.lines, line)
        return self.starts[at] if at < len(self.lines) and self.lines[at] == line else None


@dataclass(slots=True)
class Index:
    """What a first pass remembers for a second one: inputs that can be read only once, and byte offsets of lines.

    16 bytes a line, and the disk space of what came from standard input.
    """

    spools: _io.Spools = field(default_factory=_io.Spools)
    offsets: dict[str, _Offsets] = field(default_factory=dict)

    def close(self) -> None:
        """Forget everything and give the disk space back."""
        self.spools.close()
        self.offsets.clear()


@dataclass(slots=True)
class _Progress:
    """Bytes done of bytes in all, where all sizes are known."""

    report: Callable[[int, int | None], None]
    total: int | None
    done: int = 0

    def add(self, size: int) -> None:
        self.done += size
        self.report(self.done, self.total)


def read(
    inputs: list[_io.Input | _io.Missing],
    only: Format | None,
    stdin: BinaryIO | None,
    on_bytes: Callable[[int, int | None], None] | None,
    index: Index | None,
) -> Iterator[Request | Skip]:
    """Read all inputs; see `prefixlint.logs.read`."""
    with _own(index) as memory:
        progress = _progress(inputs, on_bytes, memory)
        skips: list[Skip] = []
        found = False
        for item in inputs:
            for result in _read_one(item, only, stdin, progress, memory):
                if isinstance(result, Skip):
                    if len(skips) < _SAMPLED_LINES:
                        skips.append(result)
                else:
                    found = True
                yield result
        if not found:
            raise _nothing(skips)


@contextmanager
def _own(index: Index | None) -> Iterator[Index]:
    """Give the caller's index, or one that is closed at the end."""
    if index is not None:
        yield index
        return
    with closing(Index()) as memory:
        yield memory


def _progress(
    inputs: list[_io.Input | _io.Missing], on_bytes: Callable[[int, int | None], None] | None, index: Index
) -> _Progress | None:
    if on_bytes is None:
        return None
    sizes = [_io.size_of(item.path, index.spools) for item in inputs if isinstance(item, _io.Input)]
    return _Progress(on_bytes, None if None in sizes else sum(size for size in sizes if size is not None))


def _nothing(skips: list[Skip]) -> LogRefusedError | NoInputError:
    """Say why no input gave any request."""
    if not skips or all(skip.slug in ("not-found", "empty-file") for skip in skips):
        first = f"{skips[0].path}: {skips[0].reason}" if skips else "no file was found"
        return NoInputError(first, slug=skips[0].slug if skips else "not-found", hint="give files, folders, globs or -")
    worst = next((skip for skip in skips if _recipes.hint(skip.slug)), skips[0])
    where = f"{worst.path}, line {worst.line}" if worst.line else worst.path
    return LogRefusedError(f"{where}: {worst.reason}", slug=worst.slug, hint=_recipes.hint(worst.slug))


def _read_one(
    item: _io.Input | _io.Missing,
    only: Format | None,
    stdin: BinaryIO | None,
    progress: _Progress | None,
    index: Index,
) -> Iterator[Request | Skip]:
    if isinstance(item, _io.Missing):
        yield Skip(item.path, 0, "not-found", "no such file or folder")
        return
    try:
        raw = _io.open_raw(item.path, stdin, index.spools)
    except OSError as error:
        yield Skip(item.path, 0, "unreadable", f"cannot be opened: {error.strerror or error}")
        return
    silent = True
    with raw:
        for result in _read_stream(item, only, raw, progress, index):
            silent = False
            yield result
    if silent:
        yield Skip(item.path, 0, "no-requests", "no line of this file is a request that a known format writes")


def _read_stream(
    item: _io.Input, only: Format | None, raw: BinaryIO, progress: _Progress | None, index: Index
) -> Iterator[Request | Skip]:
    for _, _, results in _read_records(item, only, raw, progress, index):
        yield from results


def _read_records(
    item: _io.Input, only: Format | None, raw: BinaryIO, progress: _Progress | None, index: Index
) -> Iterator[tuple[str, _records.Raw | None, Iterable[Request | Skip]]]:
    """Give the file's layout, each record, and what it holds; None where what is told belongs to no record."""
    try:
        stream, start = _io.open_plain(raw, progress.add if progress else None)
        kind = only.KIND if only else None
        layout, records = _records.records(item.path, stream, _detect.knows_csv, kind)
        plain = layout == "text" and _is_plain(item, only, stream)
    except (_io.BrokenStreamError, OSError) as error:
        yield "", None, (Skip(item.path, 0, "broken-stream", f"cannot be read: {error}"),)
        return
    dispatcher = _detect.Dispatcher(item.path, layout, only, plain=plain)
    offsets = _Offsets() if start is not None and layout in ("json", "text") else None
    for record in records:
        if isinstance(record, Skip):
            yield layout, None, (record,)
            continue
        if record.offset < 0:
            offsets = None
        if offsets is not None and start is not None:
            offsets.lines.append(record.line)
            offsets.starts.append(start + record.offset)
        yield layout, record, _safely(item.path, record.line, partial(dispatcher.feed, record))
    yield layout, None, _safely(item.path, 0, dispatcher.finish)
    _remember(index, item.path, offsets, dispatcher)


def records(
    inputs: list[_io.Input | _io.Missing], only: Format | None, stdin: BinaryIO | None, index: Index
) -> Iterator[tuple[str, str, _records.Raw | None, list[Request | Skip]]]:
    """Read all inputs again, record by record: path, layout (see `_records`), record, and what the record holds.

    The record is None where what is told belongs to none, as with a line that cannot be read. Inputs that cannot be
    opened are left out.
    """
    for item in inputs:
        if isinstance(item, _io.Missing):
            continue
        with suppress(OSError), _io.open_raw(item.path, stdin, index.spools) as raw:
            for layout, record, results in _read_records(item, only, raw, None, index):
                yield item.path, layout, record, list(results)


def _safely(path: str, line: int, give: Callable[[], Iterable[Request | Skip]]) -> Iterator[Request | Skip]:
    """Turn a fault of a reader into a Skip of its record, so that it costs one line and not the log."""
    try:
        yield from give()
    except _FAULTS as error:
        reason = f"a reader failed on this record ({type(error).__name__}: {error}); please report it"
        yield Skip(path, line, "reader-fault", reason[:_LONGEST_REASON])


def _is_plain(item: _io.Input, only: Format | None, stream: io.BufferedReader) -> bool:
    """Whether lines of text may be taken for prompts: the user named the file, and no engine wrote such lines."""
    if only is not None:
        return only.NAME == _detect.PLAIN
    head = stream.peek(1).split(b"\n", _SAMPLED_LINES)[:_SAMPLED_LINES]
    return item.named and _detect.may_be_plain([line.decode("utf-8", "replace").rstrip("\r") for line in head])


def _remember(index: Index, path: str, offsets: _Offsets | None, dispatcher: _detect.Dispatcher) -> None:
    """Keep the offsets of a file whose lines one format reads, each on its own."""
    used = list(dispatcher.used.values())
    if offsets is not None and len(used) == 1 and getattr(used[0], "STATELESS", False):
        offsets.format = used[0].NAME
        index.offsets[path] = offsets


def fetch(
    inputs: list[_io.Input | _io.Missing],
    wanted: Iterable[tuple[str, int, int]],
    only: Format | None,
    stdin: BinaryIO | None,
    index: Index | None,
) -> Iterator[Request]:
    """Read some requests again; see `prefixlint.logs.fetch`."""
    with _own(index) as memory:
        yield from _fetch(inputs, wanted, only, stdin, memory)


def _fetch(
    inputs: list[_io.Input | _io.Missing],
    wanted: Iterable[tuple[str, int, int]],
    only: Format | None,
    stdin: BinaryIO | None,
    index: Index,
) -> Iterator[Request]:
    by_path: dict[str, set[tuple[int, int]]] = {}
    for path, line, part in wanted:
        by_path.setdefault(path, set()).add((line, part))
    for item in inputs:
        places = by_path.pop(item.path, None)
        if places is None:
            continue
        offsets = index.offsets.get(item.path)
        if offsets is not None and isinstance(item, _io.Input):
            yield from _fetch_by_seeking(item, places, offsets, stdin, index)
        else:
            yield from _fetch_by_streaming(item, places, only, stdin, index)


def _fetch_by_streaming(
    item: _io.Input | _io.Missing,
    places: set[tuple[int, int]],
    only: Format | None,
    stdin: BinaryIO | None,
    index: Index,
) -> Iterator[Request]:
    left = set(places)
    for result in _read_one(item, only, stdin, None, index):
        if isinstance(result, Request) and (result.line, result.part) in left:
            left.remove((result.line, result.part))
            yield result
            if not left:
                return


def _fetch_by_seeking(
    item: _io.Input, places: set[tuple[int, int]], offsets: _Offsets, stdin: BinaryIO | None, index: Index
) -> Iterator[Request]:
    only = _detect.named(offsets.format)
    layout = "text" if only.KIND == "text" else "json"
    dispatcher = _detect.Dispatcher(item.path, layout, only, plain=True)
    with _io.open_raw(item.path, stdin, index.spools) as raw:
        stream = io.BufferedReader(cast("io.RawIOBase", raw), _AHEAD)
        for line in sorted({line for line, _ in places}):
            start = offsets.start_of(line)
            if start is None:
                continue
            stream.seek(start)
            for record in _records.one(item.path, line, stream, layout):
                for result in dispatcher.feed(record):
                    if isinstance(result, Request) and (line, result.part) in places:
                        yield result


def unique(paths: Iterable[str]) -> list[_io.Input | _io.Missing]:
    """Give the inputs that paths name, each file once: a log read twice would show hits that never were."""
    seen: set[str] = set()
    found: list[_io.Input | _io.Missing] = []
    for item in _io.expand(paths):
        real = item.path if item.path == _io.STDIN else os.path.realpath(item.path)
        if real not in seen:
            seen.add(real)
            found.append(item)
    return found
