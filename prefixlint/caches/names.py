"""Names of blocks: each stands for its own elements and for everything before them."""

from __future__ import annotations


def chain(parent: int, data: bytes, step: int, *, partial: bool = False) -> list[int]:
    """Name the blocks of `step` bytes behind a parent's name; with `partial`, a last one that is shorter as well.

    A name is a hash of 64 bits, keyed by the process: that two of a million blocks agree by chance happens in one log
    of 30 million.
    """
    names = []
    for start in range(0, len(data) if partial else len(data) - step + 1, step):
        parent = hash((parent, data[start : start + step]))
        names.append(parent)
    return names
