"""Inputs: paths, folders, globs and standard input, as streams of plain bytes with gzip and zstd undone.

A stream that breaks in the middle gives every byte before the break and then raises `BrokenStreamError`, so that a
reader keeps what was readable.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import sys
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from _typeshed import WriteableBuffer

    Stream = io.BufferedReader[Any]

GZIP = b"\x1f\x8b"
ZSTD = b"\x28\xb5\x2f\xfd"
STDIN = "-"
_CHUNK = 1 << 16
_BUFFER = 1 << 20
_GLOB_CHARS = frozenset("*?[")
_UTF16 = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
_UTF8_BOM = b"\xef\xbb\xbf"


class BrokenStreamError(Exception):
    """A compressed stream that ends early or is damaged; never leaves this package."""


@dataclass(frozen=True, slots=True)
class Input:
    """One file to read.

    `named` is true where the user named it (or its glob, or standard input) and false where a folder gave it: a file
    that nobody named is not taken for a list of prompts just because it is text.
    """

    path: str
    named: bool = True


@dataclass(frozen=True, slots=True)
class Missing:
    """A path that names nothing."""

    path: str


def expand(paths: Iterable[str]) -> Iterator[Input | Missing]:
    """Give the files that paths name: folders recursively in sorted order, hidden entries left out; globs sorted."""
    for path in paths:
        if path == STDIN:
            yield Input(STDIN)
        elif Path(path).is_dir():
            yield from _walk(path)
        elif os.path.lexists(path):
            yield Input(path)
        else:
            yield from _expand_glob(path)


def _expand_glob(pattern: str) -> Iterator[Input | Missing]:
    import glob

    found = sorted(glob.glob(pattern, recursive=True)) if _GLOB_CHARS & set(pattern) else []  # noqa: PTH207
    if not found:
        yield Missing(pattern)
    for path in found:
        if Path(path).is_dir():
            yield from _walk(path)
        else:
            yield Input(path)


def _walk(folder: str) -> Iterator[Input]:
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = str(Path(root) / name)
            if not name.startswith(".") and Path(path).is_file():
                yield Input(path, named=False)


@dataclass(slots=True)
class Spools:
    """Copies of inputs that can be read only once (standard input, pipes), kept for a second pass.

    They are anonymous temporary files without a name in the file system; they vanish with the process. What is in
    memory (`io.BytesIO`) stays there.
    """

    files: dict[str, BinaryIO] = field(default_factory=dict)

    def keep(self, path: str, source: BinaryIO) -> BinaryIO:
        """Copy a stream away once, and give the copy from its start."""
        if path not in self.files and isinstance(source, io.BytesIO):
            self.files[path] = io.BytesIO(source.read())
        if path not in self.files:
            import shutil
            import tempfile

            spool = cast("BinaryIO", tempfile.TemporaryFile())  # noqa: SIM115  # lives as long as this object
            shutil.copyfileobj(source, spool, _BUFFER)
            self.files[path] = spool
        self.files[path].seek(0)
        return self.files[path]

    def close(self) -> None:
        """Give the disk space back."""
        for spool in self.files.values():
            spool.close()
        self.files.clear()


def open_raw(path: str, stdin: BinaryIO | None, spools: Spools) -> BinaryIO:
    """Open one input at its start, as it lies on the disk; what can be read only once is spooled.

    Raises OSError where that is not possible.
    """
    if path in spools.files:
        return _Shared(spools.keep(path, spools.files[path]))
    if path == STDIN:
        return _Shared(spools.keep(path, stdin if stdin is not None else sys.stdin.buffer))
    status = Path(path).stat()
    if stat.S_ISREG(status.st_mode):
        return Path(path).open("rb", buffering=0)
    with Path(path).open("rb") as pipe:
        endless = stat.S_ISCHR(status.st_mode) and not pipe.isatty()
        if endless and status.st_rdev != Path(os.devnull).stat().st_rdev:
            raise OSError(errno.ENODEV, "a device, which may never end")
        return _Shared(spools.keep(path, pipe))


class _Shared(io.RawIOBase, BinaryIO):
    """A spool seen through a handle that may be closed without closing the spool."""

    def __init__(self, inner: BinaryIO) -> None:
        self._inner = inner

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._inner.seek(offset, whence)

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        data = self._inner.read(len(view))
        view[: len(data)] = data
        return len(data)


def size_of(path: str, spools: Spools) -> int | None:
    """Bytes of an input as it lies on the disk; None where that is not known before it is read."""
    if path in spools.files:
        held = spools.files[path]
        return held.getbuffer().nbytes if isinstance(held, io.BytesIO) else os.fstat(held.fileno()).st_size
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


class _Source(io.RawIOBase):
    """A raw stream whose bytes come from `_more`; errors of decompression become `BrokenStreamError`."""

    def __init__(self) -> None:
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def _more(self) -> bytes:
        raise NotImplementedError

    def readinto(self, buffer: WriteableBuffer) -> int:
        if not self._ready:
            self._ready = memoryview(self._more())
        view = memoryview(buffer).cast("B")
        size = min(len(view), len(self._ready))
        view[:size] = self._ready[:size]
        self._ready = self._ready[size:]
        return size


class _Counted(io.RawIOBase):
    """The bytes of a file, counted as they are taken."""

    def __init__(self, raw: BinaryIO, on_bytes: Callable[[int], None] | None) -> None:
        self._raw = cast("io.RawIOBase", raw)
        self._on_bytes = on_bytes

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int | None:
        size = self._raw.readinto(buffer)
        if size and self._on_bytes is not None:
            self._on_bytes(size)
        return size


class _Gunzip(_Source):
    """gzip with several members. Unlike `gzip.GzipFile` it gives every byte before a fault, to the byte."""

    def __init__(self, compressed: Stream) -> None:
        super().__init__()
        self._in = compressed
        self._inflate = zlib.decompressobj(wbits=31)
        self._pending = b""
        self._fault: str | None = None

    def _more(self) -> bytes:
        out = b""
        while not out:
            if self._fault:
                raise BrokenStreamError(self._fault)
            data = self._pending or self._in.read(_CHUNK)
            if not data:
                if not self._inflate.eof:
                    raise BrokenStreamError("it ends before the gzip data does")
                break
            out = self._feed(data)
        return out

    def _feed(self, data: bytes) -> bytes:
        self._pending = b""
        if self._inflate.eof:
            data = data.lstrip(b"\0")  # padding between members, as gzip allows
            if not data:
                return b""
            self._inflate = zlib.decompressobj(wbits=31)
        before = self._inflate.copy()
        try:
            out = self._inflate.decompress(data, _BUFFER)
        except zlib.error as error:
            self._fault = f"damaged gzip data ({error})"
            return _salvage(before, data)
        self._pending = self._inflate.unused_data if self._inflate.eof else self._inflate.unconsumed_tail
        return out


def _salvage(inflate: zlib._Decompress, data: bytes) -> bytes:
    """Give what a chunk holds before the byte that is at fault."""
    out = bytearray()
    try:
        for value in data:
            out += inflate.decompress(bytes((value,)))
    except zlib.error:
        pass
    return bytes(out)


class _Unzstd(_Source):
    """zstd with several frames."""

    def __init__(self, compressed: Stream) -> None:
        super().__init__()
        if sys.version_info >= (3, 14):
            from compression import zstd
        else:
            from backports import zstd
        self._errors: tuple[type[Exception], ...] = (zstd.ZstdError, EOFError)
        self._file = zstd.ZstdFile(compressed)

    def _more(self) -> bytes:
        try:
            return self._file.read1(_CHUNK)
        except self._errors as error:
            raise BrokenStreamError(f"damaged or incomplete zstd data ({error})") from error


class _Utf16(_Source):
    """UTF-16 (what some shells on Windows write) as UTF-8."""

    def __init__(self, text: Stream, encoding: str) -> None:
        super().__init__()
        self._in = io.TextIOWrapper(text, encoding=encoding, errors="replace", newline="")

    def _more(self) -> bytes:
        return self._in.read(_CHUNK).encode("utf-8", "replace")


def open_plain(raw: BinaryIO, on_bytes: Callable[[int], None] | None = None) -> tuple[Stream, int | None]:
    """Undo compression (also twice), a BOM and UTF-16.

    Gives the stream, and the offset in the file where it starts (after a BOM), or None where the stream's offsets are
    not those of the file, so that one cannot seek to a line again. `on_bytes` gets the size of each chunk taken.
    """
    stream: Stream = io.BufferedReader(_Counted(raw, on_bytes), _BUFFER)
    start: int | None = 0
    for _ in range(2):
        head = stream.peek(4)[:4]
        if head.startswith(GZIP):
            stream = io.BufferedReader(_Gunzip(stream), _BUFFER)
        elif head == ZSTD:
            stream = io.BufferedReader(_Unzstd(stream), _BUFFER)
        else:
            break
        start = None
    head = stream.peek(3)[:3]
    if head == _UTF8_BOM:
        stream.read(3)
        return stream, None if start is None else 3
    if encoding := _UTF16.get(head[:2]):
        stream.read(2)
        return io.BufferedReader(_Utf16(stream, encoding), _BUFFER), None
    return stream, start
