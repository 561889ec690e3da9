"""Whether a setting changes what the model says: greedy answers of a sample, token by token against the baseline's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SAMPLE = 12
"""Requests of which the answers are compared."""
TOKENS = 48
"""Tokens of each answer: a difference in numerics shows within some dozens, where it shows at all."""


@dataclass(frozen=True, slots=True)
class Equality:
    """Answers beside the baseline's.

    `same` of `compared` are equal to the end; `share` of the baseline's tokens stand before the first difference of
    their answer. `line` and `token` say where the first difference is.
    """

    compared: int
    same: int
    share: float | None
    line: int | None = None
    token: int | None = None


def equality(
    baseline: Sequence[Sequence[int] | None], other: Sequence[Sequence[int] | None], lines: Sequence[int]
) -> Equality:
    """Compare answers to the same requests, which stand in these lines of the log; None is an answer that failed."""
    compared = same = equal = tokens = 0
    first: tuple[int, int] | None = None
    for old, new, line in zip(baseline, other, lines, strict=True):
        if old is None or new is None:
            continue
        shared = _shared(old, new)
        compared += 1
        equal += shared
        tokens += len(old)
        if shared == len(old) == len(new):
            same += 1
        elif first is None or shared < first[1]:
            first = line, shared
    share = equal / tokens if tokens else None
    return Equality(compared, same, share, *(first or (None, None)))


def _shared(old: Sequence[int], new: Sequence[int]) -> int:
    for place, (one, two) in enumerate(zip(old, new, strict=False)):
        if one != two:
            return place
    return min(len(old), len(new))
