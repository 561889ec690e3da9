"""From the runs of two sides to what changed between them: times, parts of times, hit rates, each with its interval."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from prefixlint.verify import bootstrap
from prefixlint.verify.bootstrap import Change, Sample

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from prefixlint.runs import Run, Spread
    from prefixlint.verify.bootstrap import Statistic
    from prefixlint.verify.replay import Call, Exchange
    from prefixlint.verify.session import Outcome

    Measured = NDArray[np.float64]

_MS = 1000
_NAN = float("nan")
_P50, _P95 = bootstrap.quantile(0.50), bootstrap.quantile(0.95)
_STATISTICS: Mapping[str, tuple[Sequence[str], Statistic]] = {
    "ttft_p50": (("ttft",), _P50),
    "ttft_p95": (("ttft",), _P95),
    "ttft_mean": (("ttft",), bootstrap.mean),
    "hit_rate": (("cached", "prompt"), bootstrap.ratio),
    "queue_p50": (("queue",), _P50),
    "queue_mean": (("queue",), bootstrap.mean),
    "prefill_p50": (("prefill",), _P50),
    "prefill_mean": (("prefill",), bootstrap.mean),
    "other_p50": (("other",), _P50),
    "other_mean": (("other",), bootstrap.mean),
    "total_p50": (("total",), _P50),
    "token_p50": (("token",), _P50),
}
_PARTS = ("queue", "prefill", "other")


class Side:
    """The runs of one side, of one state of the cache: as many as there were rounds, over the same calls."""

    def __init__(self, outcomes: Sequence[Outcome], calls: Sequence[Call]) -> None:
        self.runs: list[Run] = [outcome.run for outcome in outcomes]
        self.names = conversations(calls)
        self._calls = calls
        self._outcomes = outcomes

    def sample(self, values: Sequence[str], names: Sequence[Hashable]) -> Sample:
        """Give what was measured of each request in each round; NaN where it was not."""
        places = {call.number: place for place, call in enumerate(self._calls)}
        shape = (len(self._outcomes), len(self._calls))
        arrays = [np.full(shape, _NAN) for _ in values]
        for number, outcome in enumerate(self._outcomes):
            for exchange in outcome.exchanges:
                place = places.get(exchange.call.number)  # None: only this side had it
                for array, value in zip(arrays, values, strict=True) if place is not None else ():
                    array[number, place] = _VALUES[value](exchange)
        return Sample(arrays, names)

    def spread_mean(self, part: str) -> float:
        """Give a part's mean over the rounds in ms by the server's histograms; NaN where they do not tell it."""
        spreads: list[Spread | None] = [getattr(run, f"{part}_ms") for run in self.runs]
        means = [one.mean for one in spreads if one is not None and one.mean is not None and one.count]
        return sum(means) / len(means) if means else _NAN


def conversations(calls: Sequence[Call]) -> list[Hashable]:
    """Give the conversation of each call: its session where the log names it, else the first call that it continues."""
    roots: dict[int, Hashable] = {}
    for call in calls:
        session = call.request.session
        known = (
            ("session", session) if session is not None else roots.get(call.after) if call.after is not None else None
        )
        roots[call.number] = ("call", call.number) if known is None else known
    return [roots[call.number] for call in calls]


def changes(before: Side, after: Side, *, draws: int = bootstrap.DRAWS) -> dict[str, Change]:
    """Say how each number changed; those of which neither side knows anything are left out. Times are in ms.

    Where both sides have as many requests, one of a place is the same request on both: they are drawn together.
    """
    names = before.names, before.names if len(before.names) == len(after.names) else after.names
    found = {}
    for name, (values, statistic) in _STATISTICS.items():
        samples = before.sample(values, names[0]), after.sample(values, names[1])
        change = bootstrap.change(*samples, statistic, points=name == "hit_rate", draws=draws)
        part, _, kind = name.partition("_")
        if kind == "mean" and part in _PARTS and change.before is None and change.after is None:
            change = _of_histograms(before.spread_mean(part), after.spread_mean(part))
        if change.before is not None or change.after is not None:
            found[name] = change
    return found


def _of_histograms(old: float, new: float) -> Change:
    """Give the change of what only a server's histograms told: how sure it is, is not known."""
    known = [None if np.isnan(value) else value for value in (old, new)]
    changed = new / old - 1 if old and not np.isnan(old) and not np.isnan(new) else None
    return Change(known[0], known[1], changed, None, None)


def as_json(found: Mapping[str, Change]) -> dict[str, Any]:
    """Give changes as plain values."""
    return {name: {**asdict(change), "sure": change.sure} for name, change in found.items()}


def expected(before: Side, after: Side) -> dict[str, Any] | None:
    """Give what was predicted of the hit rates, beside `changes`; None where nothing was."""
    old, new = (_predicted(side.runs) for side in (before, after))
    return None if old is None or new is None else {"before": old, "after": new, "change": new - old}


def _predicted(runs: Sequence[Run]) -> float | None:
    known = [run.predicted_hit_rate for run in runs if run.predicted_hit_rate is not None]
    return sum(known) / len(known) if known else None


def _of(name: str, factor: float) -> Callable[[Exchange], float]:
    def value(exchange: Exchange) -> float:
        found = None if exchange.measured is None else getattr(exchange.measured, name)
        return _NAN if found is None else factor * found

    return value


def _total(exchange: Exchange) -> float:
    return _NAN if exchange.failure is not None else _MS * (exchange.done - exchange.sent)


def _token(exchange: Exchange) -> float:
    """Give the time between generated tokens, in ms."""
    measured, first = exchange.measured, exchange.first
    if measured is None or first is None or exchange.failure is not None or (measured.output_tokens or 0) < 2:
        return _NAN
    return _MS * (exchange.done - first) / ((measured.output_tokens or 0) - 1)


_VALUES: Mapping[str, Callable[[Exchange], float]] = {
    "ttft": _of("ttft_s", _MS),
    "queue": _of("queue_s", _MS),
    "prefill": _of("prefill_s", _MS),
    "other": _of("other_s", _MS),
    "prompt": _of("prompt_tokens", 1),
    "cached": _of("cached_tokens", 1),
    "total": _total,
    "token": _token,
}
