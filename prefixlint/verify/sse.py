"""Server-sent events out of bytes that arrive in pieces split anywhere."""

from __future__ import annotations

_DATA = b"data:"


class Events:
    """Puts a stream's pieces together (WHATWG HTML, 9.2.6): lines end with LF, CRLF or CR, an event with a blank line.

    `feed` gives the data of each event that ends in a piece; comments, names and ids are left out. `pending` is what
    came after the last whole event: a stream that stops there was cut off. Work and memory grow with the bytes that
    came and not with the number of pieces.
    """

    def __init__(self) -> None:
        self._line: list[bytes] = []  # the pieces of a line that has not ended
        self._data: list[bytes] = []  # the data lines of an event that has not ended
        self._cr = False  # the last piece ended with CR: an LF that follows belongs to it
        self.held = 0  # bytes that are kept of an unfinished event

    @property
    def pending(self) -> bool:
        """Whether an event has begun and not ended."""
        return bool(self._data) or any(piece.strip() for piece in self._line)

    def feed(self, piece: bytes) -> list[bytes]:
        """Take a piece; give the data of the events that ended in it."""
        if self._cr and piece.startswith(b"\n"):
            piece = piece[1:]
            self._cr = False
        if not piece:
            return []
        self._cr = piece.endswith(b"\r")
        if b"\r" in piece:
            piece = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        first, newline, rest = piece.partition(b"\n")
        self._line.append(first)
        self.held += len(first)
        if not newline:
            return []
        lines = rest.split(b"\n")
        lines.insert(0, b"".join(self._line))
        self._line = [lines.pop()]
        found = [event for line in lines if (event := self._take(line)) is not None]
        self.held = len(self._line[0]) + sum(map(len, self._data))
        return found

    def _take(self, line: bytes) -> bytes | None:
        if line.startswith(_DATA):
            self._data.append(line[6:] if line[5:6] == b" " else line[5:])
        elif not line and self._data:
            event = b"\n".join(self._data)
            self._data = []
            return event
        return None
