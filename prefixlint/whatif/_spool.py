"""Rewritten bodies on disk, by row: they are made in the order of use and written in the order of the log."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass, field
from typing import Any, BinaryIO, cast

import orjson


def _file() -> BinaryIO:
    return cast("BinaryIO", tempfile.TemporaryFile())  # closed by Spool.close


@dataclass(slots=True)
class Spool:
    """Bodies in a file without a name, which is gone when it is closed."""

    _stream: BinaryIO = field(default_factory=_file)
    _places: dict[int, tuple[int, int]] = field(default_factory=dict)

    def put(self, row: int, body: Any) -> None:
        """Keep the body of a request."""
        try:
            data = orjson.dumps(body)
        except TypeError:  # lone surrogates, numbers beyond 64 bits
            data = json.dumps(body).encode()
        self._places[row] = self._stream.seek(0, 2), len(data)
        self._stream.write(data)

    def rows(self) -> list[int]:
        """Give the rows whose bodies are kept."""
        return list(self._places)

    def get(self, row: int) -> Any | None:
        """Give the body of a request; None where it was not changed."""
        if row not in self._places:
            return None
        start, size = self._places[row]
        self._stream.seek(start)
        data = self._stream.read(size)
        try:
            return orjson.loads(data)
        except orjson.JSONDecodeError:  # what only `json` could write, only `json` reads
            return json.loads(data)

    def close(self) -> None:
        """Give the disk space back."""
        self._stream.close()
