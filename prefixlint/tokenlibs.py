"""The two tokenizer libraries behind one small face: what loads, what encodes a batch, what fails.

`tokenizers` is the reference and loads in about 0.3 s for a vocabulary of 128,000; `fastokens` takes about 1 s, in a
thread, and is then some fifty times as fast.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from prefixlint.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from threading import Thread

    from numpy.typing import NDArray

    Ids = NDArray[np.uint32]


class Wrapping:
    """What a tokenizer puts around a text of its own: token ids before and after."""

    def __init__(self, before: Sequence[int], after: Sequence[int], note: str | None = None) -> None:
        self.before, self.after, self.note = tuple(before), tuple(after), note

    @classmethod
    def of(cls, tokenizer: Any, bos: Sequence[str] | None) -> Wrapping:
        """Ask a `tokenizers` tokenizer, unless `bos` names the tokens; ModelError where it has no such token."""
        if bos is not None:
            ids = [tokenizer.token_to_id(content) for content in bos]
            if None in ids:
                lost = bos[ids.index(None)]
                raise ModelError(f"the tokenizer has no token {lost!r} to begin with", slug="no-bos-token")
            return cls(ids, ())
        plain = tokenizer.encode("a", add_special_tokens=False).ids
        full = tokenizer.encode("a", add_special_tokens=True).ids
        for at in range(len(full) - len(plain) + 1):
            if full[at : at + len(plain)] == plain:
                return cls(full[:at], full[at + len(plain) :])
        return cls((), (), "what the tokenizer adds around a raw prompt is not known and left out")


class FastTokenizer:
    """fastokens, loaded in a thread (its load releases the interpreter), with its failures kept for later."""

    def __init__(self, source: Path | str) -> None:
        self._source = source
        self._thread: Thread | None = None
        self._tokenizer: Any = None
        self._gone = False
        self.error: str | None = None
        self.used = False

    @property
    def started(self) -> bool:
        """Whether it was asked for, and not given up since."""
        return self._thread is not None

    def start(self) -> None:
        """Begin to load, once."""
        if self._thread is None and not self._gone:
            from threading import Thread

            self._thread = Thread(target=self._load, name="fastokens-load")
            self._thread.start()

    def usable(self) -> bool:
        """Wait for the load where one runs; tell whether the tokenizer is there."""
        if self._thread is not None:
            self._thread.join()
        return self._tokenizer is not None

    def encode(self, texts: list[str]) -> tuple[Ids, list[int]]:
        """Encode texts: their ids one after the other, and the number of each. Raises what the library does."""
        self.used = True
        flat, offsets = self._tokenizer.encode_batch_flat(texts)
        return np.frombuffer(flat, "<u4"), np.diff(np.frombuffer(offsets, "<u8").astype(np.int64)).tolist()

    def rest(self) -> None:
        """Let go of it until it is asked for again: a vocabulary of 128,000 takes some 80 MB."""
        self.usable()
        self._thread, self._tokenizer, self.used = None, None, False

    def give_up(self) -> None:
        """Let go of it for good."""
        self.rest()
        self._gone = True

    def _load(self) -> None:
        try:
            from fastokens import Tokenizer

            if isinstance(self._source, str):
                tokenizer = Tokenizer.from_json_str(self._source)
            else:
                tokenizer = Tokenizer.from_file(str(self._source))
            tokenizer.no_truncation()
            tokenizer.no_padding()
        except Exception as error:  # noqa: BLE001  # kept, and told when the tokenizer is asked for
            self.error = str(error) or type(error).__name__
        else:
            self._tokenizer = tokenizer


def load_slow(source: Path | str) -> Any:
    """Load the `tokenizers` tokenizer, which neither truncates nor pads; ModelError where it cannot be read.

    The last file stays loaded, since tests of prompts ask for the same one again and again.
    """
    if isinstance(source, str):
        return _load_slow(source)
    try:
        state = source.stat()
    except OSError:
        return _load_slow(source)
    return _kept(source, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=1)
def _kept(source: Path, changed: int, size: int) -> Any:  # noqa: ARG001 - a changed file is another one
    return _load_slow(source)


def _load_slow(source: Path | str) -> Any:
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_str(source) if isinstance(source, str) else Tokenizer.from_file(str(source))
    except Exception as error:  # tokenizers raises plain Exception
        where = "the tokenizer" if isinstance(source, str) else f"the tokenizer {source}"
        hint = "Give a tokenizer.json of the Hugging Face tokenizers library."
        raise ModelError(f"{where} cannot be read: {error}", slug="bad-tokenizer", hint=hint) from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def encode_slow(tokenizer: Any, texts: list[str]) -> tuple[Ids, list[int]]:
    """Encode texts with `tokenizers`: their ids one after the other, and the number of each. ModelError if it fails."""
    try:
        encoded = [e.ids for e in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
    except Exception as error:  # tokenizers raises plain Exception
        raise ModelError(f"the tokenizer fails on a text: {error}", slug="tokenizer-failed") from error
    lengths = [len(ids) for ids in encoded]
    flat = np.fromiter((i for ids in encoded for i in ids), np.uint32, sum(lengths))
    return flat, lengths
