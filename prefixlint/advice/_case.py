"""What advice is computed from, and what all of it needs: limits, first requests, the command that shows a change."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefixlint import bounded, curves, savings
from prefixlint.engines import Engine
from prefixlint.fleet import Limits
from prefixlint.losses import Outcome
from prefixlint.results import Analysis
from prefixlint.simulate import Replay, Served, after_warmup, scaled

LEAST = 0.005
"""Of the hit rate, or of what the prompts cost: what gains less is within what simulations leave out."""


@dataclass(frozen=True, slots=True)
class Case:
    """An analysed log.

    `served` is what each engine gives, in tokens as they are reported, `limits` the limits asked for, and `factors`
    what each request's counts were multiplied by. `paths` and `flags` (option to value) are those of the command line.
    `tap` has the curves. `pools` are the pools (tokens) of engines that are simulated at those of their GPUs.
    """

    analysis: Analysis
    log: bounded.Log
    replay: Replay
    served: Mapping[str, Served]
    limits: Limits
    factors: NDArray[np.float64]
    server: savings.Machine
    tap: curves.Tap
    warmup: float
    paths: Sequence[str]
    flags: Mapping[str, str]
    pools: Mapping[str, int]

    @property
    def counted(self) -> slice:
        """The requests behind the warm-up, of which rates are told."""
        return after_warmup(self.log.rows.size, self.warmup)

    def engine(self, name: str) -> Engine:
        """Give an engine of the analysis."""
        return self.replay.engines[name].engine

    def base(self, name: str) -> Served:
        """Give what an engine serves without limits, in tokens as they are reported."""
        return scaled(self.replay.engines[name], self.factors)

    def own(self, name: str, limits: Limits) -> Limits:
        """Give those of some limits that an engine has, and its own."""
        if name in self.pools:
            limits = replace(limits, capacity=self.pools[name])
        return bounded.own_limits(self.engine(name), limits, self.log)[0] or Limits()

    def command(self, engine: str, **changes: str | None) -> str:
        """Give the command that shows a change: the one that was run, for one engine, with other options.

        `changes` are options by their names with underscores; None leaves one out.
        """
        flags = {**self.flags, "--engine": engine}
        for name, value in changes.items():
            flag = "--" + name.replace("_", "-")
            flags.pop(flag, None)
            if value is not None:
                flags[flag] = value
        words = [word for flag, value in flags.items() for word in (flag, value)]
        return shlex.join(["prefixlint", "analyze", *self.paths, *words])

    def rate(self, served: Served) -> float | None:
        """Give a hit rate over the counted requests; None without tokens."""
        tokens = int(served.prompt[self.counted].sum())
        return int(served.cached[self.counted].sum()) / tokens if tokens else None

    def serve(self, options: Sequence[tuple[str, Limits]], limits: Limits) -> list[Outcome]:
        """Replay the log through engines with other limits; `limits` say how requests are marked and keyed."""
        return self.replay_of([(self.base(name), own) for name, own in options], limits)

    def replay_of(self, fleets: Sequence[tuple[Served, Limits]], limits: Limits) -> list[Outcome]:
        """Do the same for engines that are given as what they serve without limits."""
        return bounded.run(self.log, fleets, self.factors, limits)

    def head(self, requests: int) -> Case:
        """Give the case of the first requests only, to choose between options in."""
        if requests >= self.log.rows.size:
            return self
        first = slice(requests)
        engines = {name: _cut(served, first) for name, served in self.replay.engines.items()}
        return replace(
            self,
            log=replace(self.log, rows=self.log.rows[first], ways=dict(self.log.ways)),
            replay=replace(self.replay, engines=engines),
            served={name: _cut(served, first) for name, served in self.served.items()},
            factors=self.factors[first],
        )


def _cut(served: Served, where: slice) -> Served:
    """Give the first requests of what was served: each array has an element a request."""
    parts: dict[str, Any] = {f.name: getattr(served, f.name) for f in fields(Served)}
    cut: dict[str, Any] = {name: part[where] for name, part in parts.items() if isinstance(part, np.ndarray)}
    if served.losses is not None:
        cut["losses"] = {cause: tokens[where] for cause, tokens in served.losses.items()}
    return replace(served, **cut)
