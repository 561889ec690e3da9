"""The file that lines are appended to: whole lines only, rotated by size, shared safely, honest about loss."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path

from prefixlint.capture.config import Event, OnEvent
from prefixlint.errors import PrefixlintError

# Prompts are private: only the owner may read the log.
_MODE = 0o600


class LogFile:
    """An append-only file of lines.

    Each batch of lines is one `write` on a descriptor opened with O_APPEND, so that two recorders on one file do not
    tear each other's lines. The first recorder holds a lock; a later one is told so and leaves rotation to the first.
    A write that stops half way (full disk) is cut back, or closed with a line end where others write as well.
    """

    def __init__(
        self, path: str, on_event: OnEvent, *, rotate_bytes: int | None = None, keep: int | None = None
    ) -> None:
        self.path = Path(path)
        self._on_event = on_event
        self._rotate_bytes = rotate_bytes
        self._keep = keep
        self._torn = False
        self._fd = -1
        self._size = 0
        self._alone = True
        self._regular = True
        self._open(said=False)

    def append(self, lines: Sequence[bytes]) -> None:
        """Write whole lines (each ends with a line feed). Raises OSError where not all of them could be written."""
        data = b"".join(lines)
        if self._regular:
            self._follow()
            if self._rotate_bytes and self._alone and self._size and self._size + len(data) > self._rotate_bytes:
                self._rotate()
        if self._torn:
            data = b"\n" + data
        view = memoryview(data)
        try:
            while view:
                written = os.write(self._fd, view)
                view = view[written:]
                self._size += written
        except OSError:
            self._cut_back(len(data) - len(view))
            raise
        self._torn = False

    def close(self) -> None:
        """Close the file; the lock goes with it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open(self, *, said: bool) -> None:
        try:
            self._fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _MODE)
        except OSError:
            self._fd = self._open_write_only()
        status = os.fstat(self._fd)
        self._regular = stat.S_ISREG(status.st_mode)
        self._size = status.st_size
        if not self._regular:
            return
        self._alone = self._lock()
        if not self._alone and not said:
            self._on_event(
                Event(
                    "shared-file",
                    f"{self.path} is written by another recorder as well: lines stay whole, "
                    "the first recorder alone rotates the file; give each its own file to keep them apart",
                )
            )
        if self._size:
            self._torn = self._last_byte() != b"\n"

    def _open_write_only(self) -> int:
        try:
            return os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _MODE)
        except OSError as error:
            raise PrefixlintError(
                f"cannot write the log {self.path}: {error.strerror}",
                slug="record-output",
                hint="give a file in a folder that you may write to with -o",
            ) from error

    def _lock(self) -> bool:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def _last_byte(self) -> bytes:
        with contextlib.suppress(OSError):
            return os.pread(self._fd, 1, self._size - 1)
        return b"\n"

    def _follow(self) -> None:
        """Go on in a new file where someone renamed or removed ours (another recorder, logrotate)."""
        try:
            there = self.path.stat()
            ours = os.fstat(self._fd)
        except FileNotFoundError:
            self._reopen()
            return
        except OSError:
            return
        if (there.st_ino, there.st_dev) != (ours.st_ino, ours.st_dev):
            self._reopen()
        else:
            self._size = there.st_size

    def _rotate(self) -> None:
        numbers = self._rotated()
        target = self._numbered(numbers[-1] + 1 if numbers else 1)
        try:
            self.path.rename(target)
        except OSError as error:
            self._on_event(Event("rotate-failed", f"cannot rotate {self.path}: {error.strerror}; it goes on growing"))
            self._rotate_bytes = None
            return
        self._reopen()
        if self._keep is not None:
            for number in [*numbers, numbers[-1] + 1 if numbers else 1][: -self._keep or None]:
                with contextlib.suppress(OSError):
                    self._numbered(number).unlink()

    def _reopen(self) -> None:
        old = self._fd
        self._torn = False
        try:
            self._open(said=True)
        except PrefixlintError as error:
            raise OSError(error.message) from error
        os.close(old)

    def _rotated(self) -> list[int]:
        pattern = re.compile(re.escape(self.path.stem) + r"\.(\d{4,})" + re.escape(self.path.suffix))
        try:
            names = [path.name for path in self.path.parent.iterdir()]
        except OSError:
            return []
        return sorted(int(found[1]) for found in map(pattern.fullmatch, names) if found)

    def _numbered(self, number: int) -> Path:
        """Name a rotated file so that names sort in the order of time: `log.0001.jsonl`."""
        return self.path.with_name(f"{self.path.stem}.{number:04d}{self.path.suffix}")

    def _cut_back(self, written: int) -> None:
        """Undo a write that stopped half way, so that the file ends with a whole line."""
        if not written:
            return
        self._torn = True
        if self._alone and self._regular:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self._size - written)
                self._size -= written
                self._torn = False
