"""From the block hashes of a trace to `BlockHashes`: sizes of blocks that add up to the prompt."""

from __future__ import annotations

from typing import Any

from prefixlint.model import BlockHashes

_LONGEST = 1 << 30  # tokens; what is longer is no prompt but a broken line


def block_hashes(
    hashes: Any, total: int | None, block_size: int | None, *, tail: str, scope: str = ""
) -> BlockHashes | None:
    """Give the blocks of a prompt of `total` tokens; None when these are no hashes or do not fit the length.

    Each hash stands for `block_size` tokens. Where the hashes cover more than the prompt, the last block is the partial
    one. Where they cover less (traces that hash full blocks only), the rest becomes one more block whose name, made
    from `tail`, no other request has: nothing is known about it, so it never matches. Without a total the blocks are
    full. `scope` is put before hashes that count only within a file or session.
    """
    if not isinstance(hashes, list) or not block_size or block_size < 1:
        return None
    names: list[int | str] = []
    for one in hashes:
        if type(one) is not int and not isinstance(one, str):
            return None
        names.append(f"{scope}:{one}" if scope else one)
    if total is None:
        total = len(names) * block_size
    if total > _LONGEST or (names and total <= (len(names) - 1) * block_size):
        return None
    sizes = [block_size] * len(names)
    missing = total - len(names) * block_size
    if missing < 0:
        sizes[-1] += missing
    elif missing > 0:
        names.append(f"unhashed:{tail}")
        sizes.append(missing)
    return BlockHashes(names, sizes, block_size) if names else None
