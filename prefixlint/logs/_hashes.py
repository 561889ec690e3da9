"""What traces of block hashes share."""

from __future__ import annotations

from typing import Any


def is_ids(value: Any) -> bool:
    """Whether a value is a list of block ids (numbers or strings)."""
    return isinstance(value, list) and all(isinstance(one, (int, str)) and not isinstance(one, bool) for one in value)


def sizes(length: int, block_size: int) -> list[int]:
    """Give the tokens of each block of a prompt: full ones, then a partial last one if there is a rest."""
    full, rest = divmod(length, block_size)
    return [block_size] * full + ([rest] if rest else [])
