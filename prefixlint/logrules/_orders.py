"""Where two texts hold the same things in another order: lines, or the items of a list within a line."""

from __future__ import annotations

import re
from collections import Counter

from prefixlint.logrules._meeting import REACH

_BACK = 100  # characters before a difference in which its list may begin
_LISTED = 60  # lines of a list that are looked through for another order

_ITEM_BEGUN = re.compile(r"(?:[^\s,;|:()\[\]{}][^,;|:\n()\[\]{}]*)?\Z")
_ITEMS = re.compile(r"(?:[^,;|\n()\[\]{}.]|\.(?=\S))+(?:[,;|](?:[^,;|\n()\[\]{}.]|\.(?=\S))+)+")


def same_lines(earlier: str, i: int, later: str, j: int) -> tuple[int, int] | None:
    """Find lines around a difference that stand in another order in the other text: (start, end) in the earlier one."""
    back = min(i - (earlier.rfind("\n", 0, i) + 1), j - (later.rfind("\n", 0, j) + 1))
    a = earlier[i - back : i - back + REACH].split("\n", _LISTED)
    b = later[j - back : j - back + REACH].split("\n", _LISTED)
    if a[0] not in b[1:] or b[0] not in a[1:]:
        return None
    here: Counter[str] = Counter()
    open_lines = size = 0
    for one, two in zip(a[:_LISTED], b[:_LISTED], strict=False):
        for line, sign in ((one, 1), (two, -1)):
            open_lines += 1 if here[line] * sign >= 0 else -1
            here[line] += sign
        size += len(one) + 1
        if not open_lines:
            return i - back, min(len(earlier), i - back + size - 1)
    return None


def same_items(earlier: str, i: int, later: str, j: int) -> tuple[int, int, int] | None:
    """Find a list within a line that is in another order in the other text: (start, its end in each text)."""
    begun = _ITEM_BEGUN.search(earlier, max(0, i - _BACK), i)
    whole = len(begun[0]) if begun is not None else 0
    for back in {whole, j - word_start(later, j)}:  # the first item may stand behind words
        found = [_ITEMS.match(text, at - back, at + REACH) for text, at in ((earlier, i), (later, j)) if at >= back]
        if len(found) < 2 or found[0] is None or found[1] is None or earlier[i - back : i] != later[j - back : j]:
            continue
        if shuffled(found[0][0], found[1][0]):
            return i - back, found[0].end(), found[1].end()
    return None


def shuffled(before: str, after: str) -> bool:
    """Tell whether both hold the same lines, or the same listed words, in another order."""
    for cut in ("\n", ",", ";", "|", " "):
        a, b = ([p.strip(" -*•.;\n\t") for p in t.split(cut)] for t in (before, after))
        if 2 <= len(a) == len(b) <= 2000 and a != b and sorted(a) == sorted(b):
            return True
    return False


def word_start(text: str, at: int) -> int:
    start = at
    while start > 0 and at - start < 40 and not text[start - 1].isspace():
        start -= 1
    return start
