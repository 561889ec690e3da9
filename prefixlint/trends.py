"""How hit rates move, as values: over the time of a log, and from an earlier result to this one. Rates are 0 .. 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Reason = Literal["families", "cause", "new_text", "eviction", "expiry", "routing", "namespace", "engine", "server"]


@dataclass(frozen=True, slots=True)
class Spot:
    """A request of a log: its file, its line (1-based), and its time in epoch seconds (None: not known)."""

    path: str
    line: int
    time: float | None = None


@dataclass(frozen=True, slots=True)
class Bucket:
    """A stretch of the log: its first request, the time of its last one, and tokens by engine (prompt, cached).

    `reported` are those of the requests in it that report cached tokens, None where none does.
    """

    first: Spot
    end: float | None
    requests: int
    engines: Mapping[str, tuple[int, int]]
    reported: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Explained:
    """One reason of a change of a hit rate: what happened, and how far the rate moved for its sake (signed, 0 .. 1).

    `family` is the id of a family, `rule` the code of a log rule, `first` the first request that shows it,
    and `last` the last one, of what ended.
    """

    reason: Reason
    message: str
    points: float
    family: str | None = None
    rule: str | None = None
    first: Spot | None = None
    last: Spot | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """A request from which on the hit rate was another one.

    `series` is an engine, or `reported`. `before` and `after` are the rates of the stretches on both sides, up to the
    next changes, `requests` their numbers of requests. `reasons` come with the weightiest first.
    """

    series: str
    at: Spot
    before: float
    after: float
    requests: tuple[int, int]
    reasons: Sequence[Explained]


@dataclass(frozen=True, slots=True)
class Timeline:
    """The hit rate over the log: stretches in order, and the requests at which it changed."""

    buckets: Sequence[Bucket] = ()
    changes: Sequence[Change] = ()


@dataclass(frozen=True, slots=True)
class Moved:
    """A rate, or a share of the prompt tokens, in an earlier result and in this one; None where it is not known."""

    before: float | None
    after: float | None

    @property
    def change(self) -> float | None:
        """How far it moved; None where a side is not known."""
        return None if self.before is None or self.after is None else self.after - self.before


@dataclass(frozen=True, slots=True)
class FamilyMoved:
    """A family in two results: its share of the prompt tokens, and its hit rate by engine."""

    name: str
    model: str | None
    share: Moved
    rates: Mapping[str, Moved]


@dataclass(frozen=True, slots=True)
class CauseMoved:
    """A cause in two results: the share of the prompt tokens that it costs, by engine.

    `state` is new, gone, worse, better or same.
    """

    rule: str
    name: str
    path: str
    state: str
    lost: Mapping[str, Moved]


@dataclass(frozen=True, slots=True)
class Versus:
    """This result against an earlier one (`name`): rates by engine (and `reported`), families, causes, and reasons.

    `reasons` say, for each engine, what moved its rate.
    """

    name: str
    rates: Mapping[str, Moved]
    families: Sequence[FamilyMoved]
    causes: Sequence[CauseMoved]
    reasons: Mapping[str, Sequence[Explained]]
