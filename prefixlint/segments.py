"""The distinct segments of all prompts: their texts, and their tokens in one buffer that grows."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    Ids = NDArray[np.uint32]
    Segments = Sequence[int] | Ids

Key = str | tuple[int, int]
"""A short text; of a long one, and of ids, the hash (64 bits of SipHash) and the number, which tells the two apart."""

CHUNK = 128
"""Tokens that are interned together where a prompt has few pieces: ids, and long texts."""

LONG = 4_096
"""Characters from which a piece is kept as chunks of its tokens, since long ones often share a start."""

QUEUED = -1
"""The length of a segment that is not encoded yet."""


class Store:
    """Interned segments, numbered from 0.

    Short texts are kept; of long ones, and of segments that came as ids, `decode` makes the text when it is wanted.
    """

    def __init__(self, decode: Callable[[Ids], str]) -> None:
        self.known: dict[Key, int] = {}
        self.length = array("q")  # QUEUED until the segment is encoded
        self.chars = 0
        self._decode = decode
        self._texts: list[str | None] = []
        self._given = bytearray()  # 1 where a segment came as ids
        self._start = array("q")
        self._ranges: dict[int, list[tuple[int, int]]] = {}  # where the tokens of a long segment lie
        self._characters: dict[int, int] = {}  # of segments whose text is not kept, once it was known
        self._ids: Ids = np.empty(1 << 12, np.uint32)
        self._shown = _read_only(self._ids)
        self._used = 0

    def add_text(self, text: str) -> int:
        """Give a number to a text that is not known yet; it has no tokens until `put`.

        UnicodeEncodeError where the text holds lone surrogates.
        """
        if not text.isascii():
            text.encode()
        self.chars += len(text)
        return self._add(_key(text), text, 0, QUEUED)

    def find(self, text: str) -> int | None:
        """Give the segment of a text, if there is one; for short texts `known` itself is the quicker way."""
        return self.known.get(_key(text))

    def intern_ids(self, ids: Ids) -> int:
        """Give the segment of some token ids, a new one where these are new."""
        return self._intern(ids.tobytes(), ids)

    def intern_chunks(self, ids: Ids) -> array[int]:
        """Give the segments of many token ids, cut into chunks from the start, so that equal starts are equal."""
        data, step = ids.tobytes(), CHUNK * ids.itemsize
        starts = range(0, len(data), step)
        return array("I", (self._intern(data[at : at + step], ids, at // ids.itemsize) for at in starts))

    def put(self, segments: Sequence[int], ids: Ids, lengths: Sequence[int]) -> None:
        """Store what texts were encoded to, one after the other in `ids`."""
        at = 0
        for segment, length in zip(segments, lengths, strict=True):
            part = ids[at : at + length]
            at += length
            self.length[segment] = length
            text = self._texts[segment]
            if text is None or len(text) >= LONG:
                self._ranges[segment] = self._merged(self.intern_chunks(part))
            else:
                self._start[segment] = self._append(part)

    def shorten(self, segments: Iterable[int]) -> None:
        """Let go of the texts that are long."""
        for segment in segments:
            text = self._texts[segment]
            if segment in self._ranges and text is not None:
                self._characters[segment] = len(text)
                self._texts[segment] = None

    def join(self, segments: Segments) -> Ids:
        """Give the tokens of segments one after the other, read-only; RuntimeError where one is not encoded yet."""
        numbers = segments.tolist() if isinstance(segments, np.ndarray) else segments
        starts, lengths, ranges, ids = self._start, self.length, self._ranges, self._shown
        parts = []
        for segment in numbers:
            long = ranges.get(segment)
            if long is not None:
                parts += [ids[at:end] for at, end in long]
                continue
            at, length = starts[segment], lengths[segment]
            if length < 0:
                raise RuntimeError("a segment is not tokenized yet: call flush() first")
            parts.append(ids[at : at + length])
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts) if parts else np.empty(0, np.uint32)

    def sizes(self, segments: Ids) -> NDArray[np.int64]:
        """Give the number of tokens of each segment, QUEUED where one is not encoded yet."""
        return np.frombuffer(self.length, np.int64)[segments]

    def text_of(self, segment: int) -> str:
        """Give a segment's text."""
        text = self._texts[segment]
        return self._decode(self.join([segment])) if text is None else text

    def chars_of(self, segment: int) -> int:
        """Give the number of characters of a segment's text."""
        text = self._texts[segment]
        if text is not None:
            return len(text)
        if segment not in self._characters:
            self._characters[segment] = len(self.text_of(segment))
        return self._characters[segment]

    def is_text(self, segment: int) -> bool:
        """Tell whether a segment came as text, not as ids."""
        return not self._given[segment]

    def encoded_texts(self) -> list[int]:
        """List the segments that came as text and are encoded."""
        return [s for s, length in enumerate(self.length) if length >= 0 and self.is_text(s)]

    def core(self, segments: Segments) -> tuple[Segments, str, Segments]:
        """Part a prompt into ids that were put before its text, the text, and ids that were put behind."""
        first, last = 0, len(segments)
        while first < last and not self.is_text(segments[first]):
            first += 1
        while first < last and not self.is_text(segments[last - 1]):
            last -= 1
        text = "".join(self.text_of(s) for s in segments[first:last])
        return segments[:first], text, segments[last:]

    def _intern(self, data: bytes, ids: Ids, start: int = 0) -> int:
        """Give the segment of the ids that some bytes are; they stand in `ids` from `start` on."""
        size = len(data) // ids.itemsize
        key = hash(data), size
        segment = self.known.get(key)
        if segment is None:
            return self._add(key, None, self._append(ids[start : start + size]), size)
        return segment

    def _add(self, key: Key, text: str | None, start: int, length: int) -> int:
        segment = self.known[key] = len(self._texts)
        self._texts.append(text)
        self._given.append(text is None)
        self._start.append(start)
        self.length.append(length)
        return segment

    def _merged(self, chunks: Iterable[int]) -> list[tuple[int, int]]:
        """Give where chunks lie, those that lie one behind the other as one."""
        found: list[tuple[int, int]] = []
        for chunk in chunks:
            at, end = self._start[chunk], self._start[chunk] + self.length[chunk]
            if found and found[-1][1] == at:
                at = found.pop()[0]
            found.append((at, end))
        return found

    def _append(self, ids: Ids) -> int:
        at, end = self._used, self._used + ids.size
        if end > self._ids.size:
            # pages that are not written to cost no memory, copying does
            grown = np.empty(max(end, self._ids.size * 4), np.uint32)
            grown[:at] = self._ids[:at]
            self._ids, self._shown = grown, _read_only(grown)
        self._ids[at:end] = ids
        self._used = end
        return at


def _read_only(ids: Ids) -> Ids:
    view = ids.view()
    view.flags.writeable = False
    return view


def _key(text: str) -> Key:
    """Name a text: itself, or for a long one its hash (64 bits of SipHash) and its length."""
    return text if len(text) < LONG else (hash(text), len(text))
