"""Text to token ids, each distinct piece of text once.

Prompts of one log repeat one another, so a prompt is kept as the ids of its segments: its pieces between the
tokenizer's added tokens (see `pieces`), interned. Segments are tokenized in batches, with `tokenizers` while there is
little text, and with `fastokens`, which takes longer to load and is then some fifty times as fast, when there is much.

Neither shortcut is trusted: a sample of the run's own prompts is encoded whole by `tokenizers` and compared. Where a
shortcut gives other ids it is dropped, everything is done the slow way, and `Encoder.notes` says so.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from prefixlint import heap
from prefixlint.pieces import cutter, sanitize
from prefixlint.segments import LONG, Store
from prefixlint.tokenlibs import FastTokenizer, Wrapping, encode_slow, load_slow

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    Ids = NDArray[np.uint32]
    Segments = Sequence[int] | Ids

FAST_FROM = 2_000_000
"""Characters of distinct text from which loading fastokens pays (about 1 s, against 5 MB/s of `tokenizers`)."""

_BATCH = 4_000_000  # characters handed to a tokenizer library at once, which bounds its copies
_WAITING = 16_000_000  # characters that may wait for a flush
_TALKS = 160  # conversations whose latest prompt is kept for the next one: so many overlap in the log of a busy server
_TALK_CHARS = 3_000_000  # of those prompts together
_SAMPLE_CHARS = 1_000  # of each end of a sampled prompt, and of a sampled segment
_SAMPLE_FOREIGN = 4  # prompts in other scripts that a check takes besides
_SAMPLE_SEGMENTS = 24  # of a batch of fastokens, until ten times as many were compared; then
_SAMPLE_LATER = 4


class Encoder:
    """The tokenizer of one model, and every distinct segment that its prompts hold.

    `tokenizer_json` is the file, or its text as a string. `bos` replaces what the tokenizer itself puts before a raw
    completion prompt: the contents of special tokens, () for none, None to leave it to the tokenizer. `expected_chars`
    is how much text may come (a log's size, say): where it is much, fastokens is loaded at once, in the background.

    First `add` all prompts, then `flush`; from then on `ids` gives their tokens. A flush may find that a shortcut was
    wrong, and then ids given out before it were wrong too: `notes` says so. Memory follows the distinct text; where
    prompts are encoded whole, that is kept as text, and ids are made each time they are asked for.
    """

    def __init__(
        self, tokenizer_json: Path | str, *, bos: Sequence[str] | None = None, expected_chars: int | None = None
    ) -> None:
        self._fast = FastTokenizer(tokenizer_json)
        if expected_chars is not None and expected_chars >= FAST_FROM:
            self._fast.start()
        self._slow = load_slow(tokenizer_json)
        self._cutter = cutter(self._slow)
        self._store = Store(self.decode)
        self._queue: list[int] = []
        self._queued_chars = 0
        self._talks: OrderedDict[Hashable, _Begun] = OrderedDict()
        self._talk_chars = 0
        self._rested = 0  # characters that were known when the fast library was let go of
        self._texts_added = 0
        self._samples: list[str] = []
        self._compared = 0
        self._wrapping = Wrapping.of(self._slow, bos)
        self.notes: list[str] = []
        """What a reader of the result should know about how it was tokenized."""
        self.whole = self._cutter.whole is not None
        """Whether prompts are encoded whole, because their pieces are not independent of one another."""
        if self._cutter.whole is not None:
            self.notes.append(f"prompts are tokenized whole: {self._cutter.whole}")
        if self._wrapping.note is not None:
            self.notes.append(self._wrapping.note)

    def add(self, text: str, *, special: bool, talk: Hashable = None) -> array[int]:
        """Intern a prompt and give its segments.

        `special` says that the engine adds what its tokenizer starts and ends a text with, as it does for raw
        completions; text rendered by a chat template has that in it already. Added tokens that the text spells out are
        read as such wherever they stand, as engines do. Lone surrogates become U+FFFD. `talk` names the conversation:
        what its prompts begin with alike is cut once.
        """
        try:
            segments = self._intern(text, talk)
        except UnicodeEncodeError:
            text = sanitize(text)
            segments = self._intern(text, talk)
        self._sample(text)
        if self._queued_chars >= _WAITING:
            self.flush()
        return self._wrap(segments) if special else segments

    def add_ids(self, ids: Sequence[int]) -> array[int]:
        """Intern a prompt of token ids and give its segments. ValueError for an id that is not in 0 .. 2**32-1."""
        try:
            wide = np.asarray(ids, np.int64)
        except OverflowError as error:
            raise ValueError("a token id is not in 0 .. 2**32-1") from error
        if wide.size and (wide.min() < 0 or wide.max() > 0xFFFFFFFF):
            raise ValueError("a token id is not in 0 .. 2**32-1")
        return self._store.intern_chunks(wide.astype(np.uint32))

    def flush(self) -> None:
        """Tokenize the segments that are new since the last flush, and check the sample."""
        if not self.whole:
            self._encode(self._queue)
        self._check()
        if not self.whole:
            self._store.shorten(self._queue)
        self._queue.clear()
        self._queued_chars = 0
        heap.trim()

    def rest(self) -> None:
        """Let go of what only new text needs; where much comes after all, that is loaded again."""
        if not self.whole and not self._queue:
            self._fast.rest()
            self._rested = self._store.chars
            self._talks.clear()
            self._talk_chars = 0
        heap.trim()

    def ids(self, segments: Segments) -> Ids:
        """Give the tokens of a prompt. RuntimeError where a flush is missing."""
        if self.whole and any(self._store.is_text(s) for s in segments):
            return self._whole_ids([segments])[0]
        return self._store.join(segments)

    def sequences(self, prompts: Iterable[Segments]) -> Iterator[Ids]:
        """Give the tokens of many prompts in order, which is faster than one by one where they are encoded whole."""
        if not self.whole:
            yield from map(self.ids, prompts)
            return
        source = iter(prompts)
        while batch := list(islice(source, 64)):
            yield from self._whole_ids(batch)

    def bounds(self, segments: Segments) -> NDArray[np.int64]:
        """Give the token offsets at which the segments begin, and at last the number of tokens.

        Where prompts are encoded whole, a token belongs to the segment in which it begins.
        """
        if self.whole and any(self._store.is_text(s) for s in segments):
            return self._whole_bounds(segments)
        return np.concatenate(([0], np.cumsum([self._store.length[s] for s in segments]))).astype(np.int64)

    def sizes(self, segments: Ids) -> NDArray[np.int64]:
        """Give the number of tokens of each segment.

        RuntimeError where a flush is missing, or where prompts are encoded whole, so that none has tokens of its own.
        """
        sizes = self._store.sizes(segments)
        if self.whole or (self._queue and (sizes < 0).any()):
            raise RuntimeError("these segments have no tokens of their own")
        return sizes

    def text(self, segment: int) -> str:
        """Give a segment's text; for tokens added by the tokenizer, and chunks of token ids, what they decode to."""
        return self._store.text_of(segment)

    def chars(self, segment: int) -> int:
        """Give the number of characters of `text(segment)`, which is cheaper than the text."""
        return self._store.chars_of(segment)

    def decode(self, ids: Sequence[int] | Ids) -> str:
        """Give the text of some tokens, special ones included; ids that the vocabulary lacks vanish."""
        numbers = ids.tolist() if isinstance(ids, np.ndarray) else list(ids)
        return str(self._slow.decode(numbers, skip_special_tokens=False))

    def special_ids(self, contents: Iterable[str]) -> list[int]:
        """Give the ids of these tokens of the vocabulary; those that it lacks are left out."""
        ids = (self._slow.token_to_id(content) for content in contents)
        return [i for i in ids if i is not None]

    @property
    def library(self) -> str:
        """The library that tokenizes now."""
        return "fastokens" if self._fast.started and self._fast.usable() else "tokenizers"

    def _intern(self, text: str, talk: Hashable = None) -> array[int]:
        begun = None if talk is None else self._talks.pop(talk, None)
        if begun is not None:
            self._talk_chars -= len(begun.text)
        if begun is None or not begun.begins(text):
            begun = _NOTHING
        known, find = self._store.known, self._store.find
        segments = begun.segments[:]
        pieces = self._cutter.cut(text[begun.end :] if begun.end else text)
        for piece in pieces:
            segment = known.get(piece) if len(piece) < LONG else find(piece)
            segments.append(self._new(piece) if segment is None else segment)
        if talk is not None:
            self._keep(talk, self._begun(text, pieces, segments) or begun)
        return segments

    def _keep(self, talk: Hashable, begun: _Begun) -> None:
        self._talks[talk] = begun
        self._talk_chars += len(begun.text)
        while len(self._talks) > _TALKS or self._talk_chars > _TALK_CHARS:
            self._talk_chars -= len(self._talks.popitem(last=False)[1].text)

    def _begun(self, text: str, pieces: Sequence[str], segments: array[int]) -> _Begun | None:
        """Give the beginning of a prompt that is cut in the same way whatever follows it: all but the last pieces."""
        end, reach = len(text), self._cutter.reach
        for number, piece in enumerate(reversed(pieces), 1):
            end -= len(piece)
            if end + reach <= len(text):
                return _Begun(text, end, end + reach, segments[: len(segments) - number])
        return None

    def _new(self, piece: str) -> int:
        segment = self._store.add_text(piece)
        self._queue.append(segment)
        self._queued_chars += len(piece)
        if self._store.chars - self._rested >= FAST_FROM:
            self._fast.start()
        return segment

    def _wrap(self, segments: array[int]) -> array[int]:
        before = array("I", (self._store.intern_ids(np.array([i], np.uint32)) for i in self._wrapping.before))
        after = array("I", (self._store.intern_ids(np.array([i], np.uint32)) for i in self._wrapping.after))
        return before + segments + after

    def _sample(self, text: str) -> None:
        """Keep the ends of some prompts for the check: the first, second, fourth … and a few in other scripts."""
        self._texts_added += 1
        n = self._texts_added
        if n & (n - 1) and (n % 8 or len(self._samples) >= _SAMPLE_FOREIGN or text.isascii()):
            return
        self._samples.append(text[:_SAMPLE_CHARS])
        if len(text) > _SAMPLE_CHARS:
            self._samples.append(text[-_SAMPLE_CHARS:])

    def _encode(self, queue: Sequence[int]) -> None:
        for batch in _batches(queue, self._store):
            texts = [self._store.text_of(s) for s in batch]
            ids, lengths = self._encode_texts(texts)
            self._store.put(batch, ids, lengths)

    def _encode_texts(self, texts: list[str]) -> tuple[Ids, list[int]]:
        """Encode texts without special tokens around them, in the fast way where it is worth it and right."""
        if self._fast.started and self._fast.usable():
            try:
                ids, lengths = self._fast.encode(texts)
            except Exception as error:  # noqa: BLE001  # a foreign library: whatever it raises, the other one is there
                self._distrust(f"it failed ({error})")
            else:
                if self._agrees(texts):
                    return ids, lengths
                self._distrust("it gave other tokens for a sample of this text")
        elif self._fast.started and self._fast.error is not None:
            self._distrust(f"it cannot load this tokenizer ({self._fast.error})")
        return encode_slow(self._slow, texts)

    def _agrees(self, texts: list[str]) -> bool:
        """Compare the libraries on a spread of the texts, some of other scripts among them."""
        many = _SAMPLE_SEGMENTS if self._compared < 10 * _SAMPLE_SEGMENTS else _SAMPLE_LATER
        spread = range(0, len(texts), -(-len(texts) // many))
        foreign = islice((i for i, text in enumerate(texts) if not text.isascii()), many // 3)
        chosen = [texts[i][:_SAMPLE_CHARS] for i in sorted({*spread, *foreign})]
        self._compared += len(chosen)
        return np.array_equal(self._fast.encode(chosen)[0], encode_slow(self._slow, chosen)[0])

    def _distrust(self, why: str) -> None:
        """Stop using fastokens, and encode again what it encoded."""
        used = self._fast.used
        self._fast.give_up()
        self.notes.append(f"fastokens is not used: {why}")
        if used and not self.whole:
            self._encode(self._store.encoded_texts())

    def _check(self) -> None:
        """Compare the sampled prompts with what `tokenizers` gives for their whole text."""
        samples, self._samples = self._samples, []
        if self.whole:
            return
        pieces = [piece for text in samples for piece in self._cutter.cut(text)]
        ids, _ = encode_slow(self._slow, pieces)
        if self._fast.used and not np.array_equal(self._fast.encode(pieces)[0], ids):
            self._distrust("it gave other tokens for a sample of this text")
        if not np.array_equal(encode_slow(self._slow, samples)[0], ids):
            self.whole = True
            self.notes.append("prompts are tokenized whole: a sample showed that its pieces are not independent")

    def _whole_ids(self, prompts: Sequence[Segments]) -> list[Ids]:
        cores = [self._store.core(segments) for segments in prompts]
        ids, lengths = self._encode_texts([text for _, text, _ in cores])
        parts = np.split(ids, np.cumsum(lengths)[:-1])
        return [
            np.concatenate((self._store.join(before), part, self._store.join(after)))
            for (before, _, after), part in zip(cores, parts, strict=True)
        ]

    def _whole_bounds(self, segments: Segments) -> NDArray[np.int64]:
        before, text, after = self._store.core(segments)
        starts = [start for start, _ in self._slow.encode(text, add_special_tokens=False).offsets]
        middle = segments[len(before) : len(segments) - len(after)]
        ends = np.cumsum([len(self._store.text_of(s)) for s in middle])
        inner = len(before) + np.searchsorted(starts, ends, side="left")
        if len(inner):
            inner[-1] = len(before) + len(starts)
        behind = len(before) + len(starts) + 1 + np.arange(len(after))
        return np.concatenate((np.arange(len(before) + 1), inner, behind)).astype(np.int64)


class _Begun(NamedTuple):
    """A prompt that was cut: its first `end` characters are `segments` in all prompts that are like it up to `sure`."""

    text: str
    end: int
    sure: int
    segments: array[int]

    def begins(self, text: str) -> bool:
        """Tell whether another prompt begins with the same segments; most begin with all of this one."""
        return text.startswith(self.text) or text.startswith(self.text[: self.sure])  # noqa: PIE810  # the second is a copy


_NOTHING = _Begun("", 0, 0, array("I"))


def _batches(queue: Sequence[int], store: Store) -> Iterator[list[int]]:
    batch: list[int] = []
    chars = 0
    for segment in queue:
        batch.append(segment)
        chars += len(store.text_of(segment))
        if chars >= _BATCH:
            yield batch
            batch, chars = [], 0
    if batch:
        yield batch
