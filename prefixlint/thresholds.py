"""What makes a run fail: a hit rate that is too low, or worse than in an earlier result."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from prefixlint.errors import UsageError
from prefixlint.results import Analysis
from prefixlint.trends import Versus
from prefixlint.wording import percent


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Limits in percent or in points (0 to 100); None: no limit.

    `under` is the least hit rate of each engine. `drop` is how far the rate of an engine, or the reported one, may fall
    below that of the earlier result; `worse` how much more of the prompt tokens a cause may cost than it did there.
    """

    under: float | None = None
    drop: float | None = None
    worse: float | None = None


def failures(result: Analysis, wanted: Thresholds) -> tuple[str, ...]:
    """Say what is beyond the limits; UsageError where a limit needs an earlier result that lacks what to compare."""
    found = [*_under(result, wanted.under)]
    if wanted.drop is None and wanted.worse is None:
        return tuple(found)
    versus = result.versus
    if versus is None or not any(moved.change is not None for moved in versus.rates.values()):
        what = "no earlier result was named" if versus is None else f"{versus.name} has no rate of these engines"
        hint = "--compare OLD.json, written by analyze --format json with the same engines"
        raise UsageError(f"nothing to compare with: {what}", slug="nothing-to-compare", hint=hint)
    return (*found, *_dropped(versus, wanted.drop), *_worse(versus, wanted.worse))


def _under(result: Analysis, limit: float | None) -> Iterator[str]:
    rates = [(engine.engine, engine.hit_rate) for engine in result.engines if engine.hit_rate is not None]
    below = [f"{name} {percent(rate)}" for name, rate in rates if limit is not None and 100 * rate < limit]
    if below:
        yield f"hit rate below {limit:g} %: {', '.join(below)}"


def _dropped(versus: Versus, limit: float | None) -> Iterator[str]:
    for name, moved in versus.rates.items():
        if limit is not None and moved.before is not None and moved.after is not None:
            fell = 100 * (moved.before - moved.after)
            if fell > limit:
                way = f"from {percent(moved.before)} to {percent(moved.after)}"
                yield f"hit rate of {name} fell by {fell:.1f} points, {way}; at most {limit:g} are allowed"


def _worse(versus: Versus, limit: float | None) -> Iterator[str]:
    for cause in versus.causes:
        grown = {name: 100 * (moved.change or 0.0) for name, moved in cause.lost.items()}
        name = max(grown, key=lambda engine: grown[engine], default=None)
        if limit is not None and name is not None and grown[name] > limit:
            what = f"{cause.rule} {cause.name} at {cause.path or 'the prompt'} is {cause.state}"
            yield f"{what}: {grown[name]:.1f} points more of the tokens on {name}; at most {limit:g} are allowed"
