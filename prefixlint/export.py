"""A log as an anonymous trace: when requests came, how long they were, and which blocks of prefix they share.

The form is that of Mooncake's traces, one JSON object a line, which capacity planners read:

    {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, …]}

There are ceil(input_length / block) ids; equal ids mean equal prefixes up to the end of the block, the last of which
may be partly filled. Without a salt the ids number the blocks in the order in which they first came, so that they hold
nothing of the text, not even a hash of it. With a salt they are keyed hashes, the same in all exports with that salt
(of several servers, of several days), and who does not have the salt cannot test what a prompt was.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import orjson

from prefixlint.results import Note
from prefixlint.table import UNKNOWN
from prefixlint.wording import many

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator

    from numpy.typing import NDArray

    from prefixlint.model import BlockHashes
    from prefixlint.table import Table
    from prefixlint.tokens import Encoder

    Ids = NDArray[np.uint32]

BLOCK = 512
"""Tokens of a block, as the published traces have it."""
_ID_BITS = 53  # what a program that reads JSON numbers as doubles still tells apart


class Row(NamedTuple):
    """One request to write: token ids or the blocks of a hash trace; seconds and generated tokens where known."""

    namespace: Hashable
    prompt: Ids | BlockHashes
    time: float | None
    output: int | None


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written: requests, blocks and distinct ones; `empty` requests have no tokens and were left out.

    `sizes` are the tokens of a block, more than one where a hash trace has blocks of several sizes: the form has no
    place for them, and who reads it takes one for all.
    """

    requests: int
    blocks: int
    distinct: int
    empty: int
    sizes: tuple[int, ...]


class Exporter:
    """Turns requests into lines, in the order in which they are given; a hash trace keeps its own blocks."""

    def __init__(self, *, block: int = BLOCK, salt: bytes | None = None) -> None:
        if block < 1:
            raise ValueError(f"blocks of {block} tokens")
        self._block = block
        # BLAKE2b takes keys of up to 64 bytes.
        self._key = b"" if salt is None else hashlib.blake2b(salt, digest_size=32).digest()
        self._salted = salt is not None
        self._numbers: dict[bytes, int] = {}
        self._sizes: set[int] = set()
        self._start: float | None = None
        self._requests = self._blocks = self._empty = 0

    def lines(self, rows: Iterable[Row]) -> Iterator[bytes]:
        """Give a line of JSON for each request that has a token.

        Timestamps are in milliseconds from the first one; a request without a time has none.
        """
        for row in rows:
            ids, length = self._ids(row)
            if not length:
                self._empty += 1
                continue
            self._requests += 1
            self._blocks += len(ids)
            line: dict[str, object] = {}
            if row.time is not None:
                self._start = row.time if self._start is None else self._start
                line["timestamp"] = max(0, round((row.time - self._start) * 1000))
            line["input_length"] = length
            if row.output is not None:
                line["output_length"] = row.output
            line["hash_ids"] = ids
            yield orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)

    def result(self) -> Exported:
        """Say what was written so far."""
        return Exported(self._requests, self._blocks, len(self._numbers), self._empty, tuple(sorted(self._sizes)))

    def _ids(self, row: Row) -> tuple[list[int], int]:
        """Give the ids of a prompt's blocks and its tokens."""
        digest = self._digest(b"namespace", repr(row.namespace).encode("utf-8", "surrogatepass"))
        if isinstance(row.prompt, np.ndarray):
            # Little-endian on every machine, so that salted ids agree between them.
            parts = _split(row.prompt.astype("<u4").tobytes(), 4 * self._block)
            length = int(row.prompt.size)
            self._sizes.add(self._block)
        else:
            parts = [f"{type(h).__name__}:{h}".encode("utf-8", "surrogatepass") for h in row.prompt.hashes]
            length = sum(row.prompt.sizes)
            self._sizes.add(row.prompt.block_size)
        ids = []
        for part in parts:
            digest = self._digest(digest, part)
            number = self._numbers.setdefault(digest, len(self._numbers))
            ids.append(int.from_bytes(digest[:8], "big") >> (64 - _ID_BITS) if self._salted else number)
        return ids, length

    def _digest(self, parent: bytes, part: bytes) -> bytes:
        return hashlib.blake2b(parent + part, digest_size=16, key=self._key).digest()


def write(
    exporter: Exporter,
    table: Table,
    encoder: Encoder,
    rows: NDArray[np.intp],
    to: Callable[[bytes], None],
    *,
    of_blocks: bool,
) -> list[Note]:
    """Write these rows in this order, and say what was assumed: unknown outputs have the median length of the known."""
    members = rows.tolist()
    reported = np.frombuffer(table.completion, np.int64)
    guess = int(np.median(known)) if (known := reported[rows][reported[rows] != UNKNOWN]).size else 1
    guessed = 0
    prompts = encoder.sequences(table.prompt_segments(row) for row in members if not of_blocks)
    outputs = encoder.sequences(table.output_segments(row) for row in members if not of_blocks)

    def lines() -> Iterator[Row]:
        nonlocal guessed
        for row in members:
            prompt, output = (table.blocks[row], 0) if of_blocks else (next(prompts), next(outputs).size)
            length = int(reported[row]) if reported[row] != UNKNOWN else int(output)
            guessed += not length
            time = table.time[row]
            yield Row(table.namespace[row], prompt, None if np.isnan(time) else time, length or guess)

    for line in exporter.lines(lines()):
        to(line)
    return _notes(exporter.result(), guessed, guess)


def _notes(done: Exported, guessed: int, guess: int) -> list[Note]:
    notes = []
    if done.empty:
        notes.append(Note("export-empty", f"{many(done.empty, 'request')} without a token: not in the exported trace"))
    if guessed:
        text = f"{many(guessed, 'request')} without a known output: {many(guess, 'token')} in the exported trace"
        notes.append(Note("export-outputs", f"{text}, since simulators want a number"))
    if len(done.sizes) > 1:
        text = "the trace has blocks of several sizes, which its exported form cannot say: its readers take one for all"
        notes.append(Note("export-sizes", text))
    return notes


def _split(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]
