"""Where two texts meet again behind a difference."""

from __future__ import annotations

import re
from collections import Counter
from difflib import SequenceMatcher

from prefixlint.bodies import common_prefix

_RESYNC = 12  # equal characters behind a value after which the texts have met again
_LINE = 600  # characters of a line in which two values are looked for
_ALIGNED = 6_000  # pairs of equal characters up to which two lines are aligned; of English, some 300 characters
REACH = 40_000  # characters behind a difference in which texts may meet again
_LINES = 600
_OPENS = 4  # characters with which a line begins that holds the same words in another order
_SPACING = 64  # characters by which two such lines differ in length
_WORDS = re.compile(r"\w+")


def meeting(earlier: str, i: int, later: str, j: int) -> tuple[int, int]:
    """Find where two texts meet again: in the line where they part if the next ones are equal, else at a later line."""
    a, b = earlier[i : i + REACH], later[j : j + REACH]
    if not a or not b:
        return len(earlier), len(later)
    line_a, line_b = a.partition("\n"), b.partition("\n")
    if line_a[2][:_RESYNC] == line_b[2][:_RESYNC] and max(len(line_a[0]), len(line_b[0])) <= _LINE:
        close = near(line_a[0], line_b[0])
        if close is not None:
            return i + close[0], j + close[1]
        return i + len(line_a[0]), j + len(line_b[0])
    whole = earlier[i - 1 : i] in ("", "\n") and later[j - 1 : j] in ("", "\n")
    met = _next_line(a.splitlines(keepends=True)[:_LINES], b.splitlines(keepends=True)[:_LINES], whole=whole)
    if met is not None:
        return i + met[0], j + met[1]
    tail = common_prefix(earlier[i:][::-1], later[j:][::-1])
    return len(earlier) - tail, len(later) - tail


def put_ahead(before: str, after: str) -> int:
    """Count the characters of lines that two values end with, where one is nothing else: more stands ahead of them.

    That is so where both begin alike, as two headings do.
    """
    one, two = sorted((before, after), key=len)
    lines = one.strip() and two.endswith(one) and two[: len(two) - len(one)].endswith("\n")
    return len(one) if lines else 0


def near(a: str, b: str) -> tuple[int, int] | None:
    """Give where two lines have the first run of _RESYNC characters in common, as they align best.

    What both end with is set aside first: behind most values the rest of the line is the same, and aligning it would
    take time by the square of its length.
    """
    tail = common_prefix(a[::-1], b[::-1])
    a, b = a[: len(a) - tail], b[: len(b) - tail]
    found = _aligned(a, b)
    return (len(a), len(b)) if found is None and tail >= _RESYNC else found


def _aligned(a: str, b: str) -> tuple[int, int] | None:
    """Give where the first run of _RESYNC characters begins that two texts have in common."""
    places = {b[at : at + _RESYNC]: at for at in range(len(b) - _RESYNC, -1, -1)}
    met = [(at, places[run]) for at in range(len(a)) if (run := a[at : at + _RESYNC]) in places]
    if not met:
        return None
    if len(a) * len(b) > _ALIGNED and _pairs(a, b) > _ALIGNED:  # a few signs only, each of which fits everywhere
        return min(met, key=sum)
    matcher = SequenceMatcher(None, a, b, autojunk=False)
    first = len(a), len(b)
    while True:  # the first block of those that difflib makes and that are long enough: the longest, or one before it
        x, y, size = matcher.find_longest_match(0, first[0], 0, first[1])
        if size < _RESYNC:
            return first
        first = x, y


def _pairs(a: str, b: str) -> int:
    """Count the pairs of equal characters of two texts."""
    ours, theirs = Counter(a), Counter(b)
    return sum(count * theirs[sign] for sign, count in ours.items())


def _next_line(a: list[str], b: list[str], *, whole: bool) -> tuple[int, int] | None:
    """Give where the nearest line that both have begins; behind the first of each, unless those are `whole` lines.

    What stands right before it in both texts and differs in a value only goes with it.
    """
    offsets: dict[str, int] = {}
    for number, line in enumerate(b):
        if (number or whole) and len(line.strip()) >= _RESYNC:
            offsets.setdefault(line, number)
    met = [(n, other) for n, line in enumerate(a) if (n or whole) and (other := offsets.get(line)) is not None]
    if not met and max(len(a), len(b)) >= _LINES:
        return None
    one, two = min(met, key=sum) if met else (len(a), len(b))  # they may end alike
    least = 0 if whole else 1
    while min(one, two) > least and _is_alike(a[one - 1], b[two - 1]):
        one, two = one - 1, two - 1
    if (one, two) == (len(a), len(b)):
        return None
    return sum(map(len, a[:one])), sum(map(len, b[:two]))


def _is_alike(a: str, b: str) -> bool:
    """Tell whether two lines are the same or begin with the same words, or hold the same ones in another order."""
    front = common_prefix(a, b)
    if a == b or (front >= _RESYNC and front * 2 >= min(len(a), len(b))):
        return True
    return (
        front >= _OPENS and abs(len(a) - len(b)) <= _SPACING and sorted(_WORDS.findall(a)) == sorted(_WORDS.findall(b))
    )
