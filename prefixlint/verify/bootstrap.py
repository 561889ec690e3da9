"""How much a measurement changed between two sets of runs, and how sure that is: a bootstrap over rounds and requests.

A measurement is an array of rounds x requests; NaN is a request that was not measured. What is drawn again and again is
what would differ on another day: which rounds were run, and which conversations came. Requests of a conversation are
drawn together, since a miss at its head is a miss of all its turns; where both sets hold the same conversations, the
same ones are drawn in both, so that what they have in common cancels out.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Measured = NDArray[np.float64]
    Statistic = Callable[[Sequence[Measured]], float]

CONFIDENCE = 0.95
DRAWS = 1000
_LEAST_DRAWS = 100
_WORK = 2e7  # elements over all draws, for which the number of draws is lowered to the least


@dataclass(frozen=True, slots=True)
class Sample:
    """The runs of one side: parallel arrays of rounds x requests, and the conversation of each request.

    `values` are what the statistic takes; several where it is a ratio. ValueError for shapes that do not fit.
    """

    values: Sequence[Measured]
    conversations: Sequence[Hashable]

    def __post_init__(self) -> None:
        """Refuse arrays of different shapes: they would be drawn apart."""
        if len({value.shape for value in self.values}) != 1 or self.values[0].ndim != 2:
            raise ValueError("the arrays of a sample must have one shape, rounds x requests")
        if self.values[0].shape[1] != len(self.conversations):
            raise ValueError("a sample needs one conversation for each request")


@dataclass(frozen=True, slots=True)
class Change:
    """A statistic before and after, and how it changed: `change` is a share of `before` (-0.77 is 77 % less).

    With `points`, it is the difference of two shares instead (0.12 is 12 points). `low` and `high` hold 95 % of the
    changes that were drawn. None is unknown: nothing was measured, or there is nothing to divide by.
    """

    before: float | None
    after: float | None
    change: float | None
    low: float | None
    high: float | None
    points: bool = False

    @property
    def sure(self) -> bool:
        """Whether the direction of the change is the same in 95 % of what was drawn, zero excluded."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


def quantile(share: float) -> Statistic:
    """Give the statistic that is a quantile of one array, like 0.5; NaN where nothing was measured."""

    def statistic(values: Sequence[Measured]) -> float:
        known = values[0][~np.isnan(values[0])]
        return float(np.quantile(known, share)) if known.size else np.nan

    return statistic


def mean(values: Sequence[Measured]) -> float:
    """Give the mean of one array; NaN where nothing was measured."""
    known = values[0][~np.isnan(values[0])]
    return float(known.mean()) if known.size else np.nan


def ratio(values: Sequence[Measured]) -> float:
    """Give the sum of the first array over the sum of the second, where both were measured; a hit rate."""
    known = ~(np.isnan(values[0]) | np.isnan(values[1]))
    whole = float(values[1][known].sum())
    return float(values[0][known].sum()) / whole if whole else np.nan


def change(
    before: Sample, after: Sample, statistic: Statistic, *, points: bool = False, seed: int = 0, draws: int = DRAWS
) -> Change:
    """Say how a statistic changed from one sample to the other; the same arguments give the same numbers.

    `draws` are fewer for large samples, of which each is more certain.
    """
    old, new = statistic(before.values), statistic(after.values)
    unknown = np.isnan(_difference(old, new, points=points))
    drawn = [] if unknown else _draws(before, after, statistic, np.random.default_rng(seed), draws)
    changes = np.array([_difference(*pair, points=points) for pair in drawn])
    changes = changes[~np.isnan(changes)]
    low = high = None
    if changes.size:
        tail = (1 - CONFIDENCE) / 2
        low, high = (float(value) for value in np.quantile(changes, (tail, 1 - tail)))
    return Change(_known(old), _known(new), _known(_difference(old, new, points=points)), low, high, points)


def _known(value: float) -> float | None:
    return None if np.isnan(value) else value


def _difference(old: float, new: float, *, points: bool) -> float:
    if points:
        return new - old
    return new / old - 1 if old else np.nan


def _draws(
    before: Sample, after: Sample, statistic: Statistic, rng: np.random.Generator, draws: int
) -> list[tuple[float, float]]:
    sides = before, after
    if not all(side.values[0].size for side in sides):
        return []
    groups = [_Groups(side.conversations) for side in sides]
    paired = groups[0].names == groups[1].names
    size = sum(side.values[0].size for side in sides)
    found = []
    for _ in range(int(min(draws, max(_LEAST_DRAWS, _WORK / size)))):
        drawn = groups[0].draw(rng)
        both = drawn, drawn if paired else groups[1].draw(rng)
        old, new = (
            statistic(_drawn(side, own.positions(numbers), rng))
            for side, own, numbers in zip(sides, groups, both, strict=True)
        )
        found.append((old, new))
    return found


def _drawn(side: Sample, columns: NDArray[np.intp], rng: np.random.Generator) -> list[Measured]:
    """Give the requests at these positions, from rounds that are drawn."""
    count = side.values[0].shape[0]
    where = np.ix_(rng.integers(count, size=count), columns)
    return [value[where] for value in side.values]


class _Groups:
    """The conversations of requests, by their names in the order of first appearance."""

    def __init__(self, conversations: Sequence[Hashable]) -> None:
        members: dict[Hashable, list[int]] = {}
        for position, name in enumerate(conversations):
            members.setdefault(name, []).append(position)
        self.names = list(members)
        self._sizes = np.array([len(one) for one in members.values()])
        self._all = np.array([position for one in members.values() for position in one])
        self._starts = np.cumsum(self._sizes) - self._sizes

    def draw(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw as many conversations as there are, with replacement."""
        return rng.integers(len(self.names), size=len(self.names))

    def positions(self, drawn: NDArray[np.int64]) -> NDArray[np.intp]:
        """Give the positions of all requests of these conversations."""
        sizes = self._sizes[drawn]
        ends = np.cumsum(sizes)
        found: NDArray[np.intp] = self._all[
            np.repeat(self._starts[drawn] - (ends - sizes), sizes) + np.arange(ends[-1])
        ]
        return found
