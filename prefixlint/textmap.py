"""Characters of a literal <-> bytes of its file."""

from __future__ import annotations

from bisect import bisect_right

from prefixlint.values import Lit

_TOP = 1 << 60


def offset(lit: Lit, index: int) -> int:
    """Give the byte at which character `index` of a literal's text stands; its own start where it is not mapped."""
    if not lit.marks:
        return lit.start
    at = bisect_right(lit.marks, (index, _TOP)) - 1
    char, byte = lit.marks[max(at, 0)]
    if lit.text.isascii():
        return byte + index - char
    return byte + len(lit.text[char:index].encode("utf-8", "surrogatepass"))
