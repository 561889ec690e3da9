"""Prompts without their text: how a fingerprint is written, and what can still be told from two of them.

A fingerprint holds *marks*: the text (or its tokens) is cut into units, and each unit is replaced by the first bytes of
a hash over the salt and everything from the start to that unit. So the marks of two texts are equal exactly as far as
the texts are (but for chance: one in 256 for a mark of one byte, one in 2**32 for four), and equal units at different
places have different marks: counting them tells nothing.

Marks are written with sixteen signs that form no words, two a byte, so that no search for a word, a name or a number
can find one by accident.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from prefixlint.bodies import Difference
from prefixlint.model import Fingerprint, FingerprintSegment

_HEX = "0123456789abcdef"
_SIGNS = "!$%&()*+/;<>?@^~"
_WRITE = str.maketrans(_HEX, _SIGNS)
_READ = str.maketrans(_SIGNS, _HEX)
# Characters of one pseudo token where no tokenizer was given: English text has about four a token.
_CHARS_A_TOKEN = 4
TOKEN_BYTES = 4


def write(data: bytes) -> str:
    """Write bytes with signs, two for each."""
    return data.hex().translate(_WRITE)


def read(text: str) -> bytes:
    """Read what `write` wrote. Raises ValueError on anything else."""
    if not text.isascii() or any(sign in _HEX for sign in text):
        raise ValueError("not written with the signs of a fingerprint")
    return bytes.fromhex(text.translate(_READ))


def token_ids(data: bytes) -> list[int]:
    """Give the pseudo token ids (0 .. 2**32-1) that four-byte marks stand for. Raises ValueError on a torn one."""
    if len(data) % TOKEN_BYTES:
        raise ValueError("token marks are four bytes each")
    return [int.from_bytes(data[i : i + TOKEN_BYTES], "little") for i in range(0, len(data), TOKEN_BYTES)]


def estimated_ids(segments: Sequence[FingerprintSegment], grain: int) -> list[int]:
    """Give pseudo token ids where no tokenizer was used: about four characters each, one more for each segment.

    Two prompts have equal ids as far as their segments are equal, rounded down to `_CHARS_A_TOKEN` characters or
    `grain`, whichever is coarser. Counts of tokens are estimates.
    """
    ids: list[int] = []
    for segment in segments:
        ids.append(_small_hash(f"{segment.role}\0{segment.path}".encode()))
        units = max(1, _CHARS_A_TOKEN // grain) if grain <= _CHARS_A_TOKEN else 1
        width = len(segment.marks) and max(1, _mark_bytes(grain))
        step = units * width
        repeats = max(1, grain // _CHARS_A_TOKEN)
        for start in range(0, len(segment.marks), step or 1):
            mark = segment.marks[start : start + step]
            ids.extend(_small_hash(mark + bytes([part & 255])) for part in range(repeats))
    return ids


def mark_bytes(grain: int) -> int:
    """Give the bytes of one mark of `grain` characters: four, or one where each character has its own."""
    return _mark_bytes(grain)


def first_difference(
    earlier: Sequence[FingerprintSegment], later: Sequence[FingerprintSegment], grain: int
) -> Difference | None:
    """Give the first place at which the later prompt differs, as `bodies.first_difference` does for texts.

    `before` and `after` are None: the values are not known. `char` is exact for a grain of one character (but for
    chance, see above), else rounded down to a multiple of the grain. None where the prompts are equal.
    """
    for position, (a, b) in enumerate(zip_longest(earlier, later)):
        if a is None or b is None:
            here = b or a
            return Difference(here.path, 0, None, None, grows=a is None)
        if a.path != b.path or a.role != b.role:
            return Difference(b.path, 0, None, None, grows=False)
        if a.digest != b.digest:
            char = _common_chars(a, b, grain)
            ended = char == a.chars and position == len(earlier) - 1
            return Difference(b.path, char, None, None, grows=ended)
    return None


def place(earlier: Fingerprint, later: Fingerprint) -> tuple[str, int] | None:
    """Give path and character at which two prompts part; None where they are equal or not comparable."""
    if earlier.salt_id != later.salt_id or earlier.grain != later.grain:
        return None
    found = first_difference(earlier.segments, later.segments, later.grain)
    return (found.path, found.char) if found else None


def _common_chars(a: FingerprintSegment, b: FingerprintSegment, grain: int) -> int:
    width = _mark_bytes(grain)
    size = min(len(a.marks), len(b.marks))
    equal = next((i for i in range(0, size, width) if a.marks[i : i + width] != b.marks[i : i + width]), size)
    units = equal // width
    # A mark covers what stands before it too, so the whole shorter text is equal where all of its marks are.
    return min(units * grain, a.chars, b.chars)


def _mark_bytes(grain: int) -> int:
    return 1 if grain == 1 else TOKEN_BYTES


def _small_hash(data: bytes) -> int:
    """Spread a mark over 32 bits (FNV-1a): ids must differ from one another, they need not hide anything."""
    value = 0x811C9DC5
    for byte in data:
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value
