"""Summaries on disk, by the hash of a file's path and bytes, and outcomes of runs by a key of theirs.

One SQLite file in `.prefixlint_cache`. Whatever is wrong with it (locked, damaged, read-only), a run goes on without
it.
"""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
import sys
from pathlib import Path

import orjson

from prefixlint import __version__, sources
from prefixlint.sources import SourceFile, Summary

FOLDER = ".prefixlint_cache"
MAX_ROWS = 50_000
"""Rows kept; beyond, the oldest half is dropped."""
MAX_OUTCOMES = 50
"""Runs whose outcome is kept."""


class SummaryCache:
    """Gives and keeps summaries. Without a folder it only computes."""

    def __init__(self, root: Path | None) -> None:
        self._connection: sqlite3.Connection | None = None
        self._new: list[tuple[bytes, bytes]] = []
        self._salt = f"{__version__}:{sources.VERSION}:{sys.version_info[:2]}".encode()
        if root is not None:
            with contextlib.suppress(sqlite3.Error, OSError):
                self._open(root / FOLDER)

    def _open(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        ignore = folder / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n", encoding="utf-8")
        connection = sqlite3.connect(folder / "summaries.db", timeout=0.2, isolation_level=None)
        try:
            connection.execute("CREATE TABLE IF NOT EXISTS summary (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID")
            connection.execute("CREATE TABLE IF NOT EXISTS outcome (key BLOB PRIMARY KEY, value BLOB)")
        except sqlite3.DatabaseError:
            connection.close()
            (folder / "summaries.db").unlink(missing_ok=True)
            return
        self._connection = connection

    @property
    def open(self) -> bool:
        """Whether anything is kept."""
        return self._connection is not None

    def summary(self, file: SourceFile) -> Summary | None:
        """Give a file's summary, None if no source kind reads it."""
        kind = sources.kind_of(file)
        if kind is None:
            return None
        said = [self._salt, file.path.encode(errors="surrogateescape"), repr(file.declared).encode(), file.data]
        key = hashlib.blake2b(b"\0".join(said), digest_size=16).digest()
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error, ValueError, KeyError, IndexError, TypeError):
                row = self._connection.execute("SELECT value FROM summary WHERE key = ?", (key,)).fetchone()
                if row is not None:
                    return sources.decode(file.path, orjson.loads(row[0]))
        summary = kind.summarize(file)
        if self._connection is not None:
            with contextlib.suppress(TypeError, ValueError):
                self._new.append((key, orjson.dumps(sources.encode(summary))))
        return summary

    def outcome(self, key: bytes) -> bytes | None:
        """Give what `keep` was given."""
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                row = self._connection.execute("SELECT value FROM outcome WHERE key = ?", (key,)).fetchone()
                return None if row is None else row[0]
        return None

    def keep(self, key: bytes, value: bytes) -> None:
        """Keep the outcome of a run, and those of the latest `MAX_OUTCOMES` runs."""
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("INSERT OR REPLACE INTO outcome VALUES (?, ?)", (key, value))
                oldest = "DELETE FROM outcome WHERE rowid <= (SELECT max(rowid) FROM outcome) - ?"
                self._connection.execute(oldest, (MAX_OUTCOMES,))

    def close(self) -> None:
        """Write what is new."""
        if self._connection is None:
            return
        with contextlib.suppress(sqlite3.Error):
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany("INSERT OR REPLACE INTO summary VALUES (?, ?)", self._new)
            (count,) = self._connection.execute("SELECT count(*) FROM summary").fetchone()
            if count > MAX_ROWS:
                self._connection.execute("DELETE FROM summary")
            self._connection.execute("COMMIT")
        self._connection.close()
        self._connection = None
