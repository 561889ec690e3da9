"""From what a limited cache found to tokens by cause: cached + misses = prompt for each request."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from prefixlint.fleet import Followed, Limits, follow
from prefixlint.lives import Visit
from prefixlint.model import MissCause
from prefixlint.simulate import Served, by_rule

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from prefixlint.engines import Engine
    from prefixlint.ways import Ways

    Counts = NDArray[np.int64]
    Losses = dict[MissCause, Counts]


class Blocks(NamedTuple):
    """The blocks of a hash trace: tokens of a full one, and for each prompt the tokens up to the end of each of its."""

    size: int
    ends: Sequence[Counts]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What limited caches served, and the prompt tokens that each replica got.

    `refused` counts requests larger than the pool, `spilled` those that came too fast for a provider's machine.
    """

    served: Served
    load: tuple[int, ...]
    refused: int
    spilled: int = 0


def serve(
    visits: Callable[[], Iterable[Visit]],
    fleets: Sequence[tuple[Served, Limits]],
    factors: NDArray[np.float64],
    blocks: Blocks | None = None,
    *,
    overlap: bool = True,
    ways: Callable[[bool], Ways] | None = None,
    marked: bool = True,
) -> list[Outcome]:
    """Replay requests through the caches of several engines, each with its limits.

    Each engine is given as what it serves without limits, its counts multiplied by `factors` (one for each request,
    other than 1 where the tokenizer is a stand-in). `blocks` are those of a hash trace; `overlap` may be False where no
    request says how long it took, and `marked` where none has a mark; `ways` gives the requests' ways (see `follow`).
    ValueError for a pool without a block.
    """
    ends, block = (None, 0) if blocks is None else (blocks.ends, blocks.size)
    engines = [(base.engine, limits) for base, limits in fleets]
    followed = follow(visits, engines, factors, block=block, overlap=overlap, ways=ways, marked=marked)
    outcomes = []
    for (base, limits), found in zip(fleets, followed, strict=True):
        load = np.zeros(max(limits.replicas, found.replica.max(initial=-1) + 1), np.int64)
        np.add.at(load, found.replica, base.prompt)
        account = _Account(base, found, factors, ends, tiers=limits.host_capacity is not None)
        outcomes.append(Outcome(account.served(), tuple(load.tolist()), found.refused, found.spilled))
    return outcomes


@dataclass(slots=True)
class _Account:
    base: Served
    found: Followed
    factors: NDArray[np.float64]
    ends: Sequence[Counts] | None
    tiers: bool

    def served(self) -> Served:
        """Tell cached tokens and losses, each step down from what is shared being a cause."""
        shared = self.base.shared
        own = np.minimum(shared, self._tokens(self.found.own))
        losses: Losses = {MissCause.REPLICA: shared - own}
        marked = np.zeros(own.size, bool)
        for engine, mine in self._variants():
            marked |= mine & (engine.match == "marked_breakpoint")
        cached, told = self._followed(own)
        if marked.any():
            read, why = self._marked(own)
            cached = np.where(marked, read, cached)
            none = np.zeros_like(own)
            told = {c: np.where(marked, why.get(c, none), told.get(c, none)) for c in {**told, **why}}
        losses |= told
        kept = {cause: tokens for cause, tokens in losses.items() if tokens.any()}
        near = np.minimum(cached, self._ruled(self._tokens(self.found.near)))
        return replace(
            self.base,
            cached=cached,
            blocks_hit=self._blocks_hit(cached),
            losses=MappingProxyType(kept),
            from_host=cached - near if self.tiers else None,
            written=self._counted(self.found.written) if marked.any() else None,
            long=self._counted(self.found.long) if marked.any() else None,
        )

    def _followed(self, own: Counts) -> tuple[Counts, Losses]:
        """Step down through what was stored, had not expired, and was still held."""
        seen = np.minimum(own, self._tokens(self.found.seen))
        alive = np.minimum(seen, self._tokens(self.found.alive))
        whole_units = self.base.engine.match == "whole_unit"
        usable = np.minimum(alive, self._tokens(self.found.whole)) if whole_units else alive
        best = self._ruled(usable)
        cached = np.minimum(best, self._ruled(self._tokens(self.found.hit))) if self.found.bounded else best
        rest = usable - best
        short = usable < self._minimum()
        return cached, {
            MissCause.IN_FLIGHT: own - seen,
            MissCause.EXPIRED: seen - alive,
            MissCause.NOT_WRITTEN: alive - usable,
            MissCause.EVICTED: best - cached,
            MissCause.TOO_SHORT: np.where(short, rest, 0),
            MissCause.UNALIGNED: np.where(short, 0, rest),
        }

    def _marked(self, own: Counts) -> tuple[Counts, Losses]:
        """Take over the causes that the cache told; what is left of them was written nowhere."""
        cached = np.minimum(own, self._tokens(self.found.hit))
        left = own - cached
        losses: Losses = {}
        for cause in (MissCause.EXPIRED, MissCause.IN_FLIGHT, MissCause.TOO_SHORT):
            told = np.fromiter((why.get(cause, 0) for why in self.found.losses), np.int64, left.size)
            losses[cause] = np.minimum(np.floor(told * self.factors).astype(np.int64), left)
            left = left - losses[cause]
        losses[MissCause.NOT_WRITTEN] = left
        return cached, losses

    def _counted(self, counts: Counts) -> Counts:
        """Turn lengths that begin anywhere in prompts into tokens as the server counts them."""
        return np.floor(counts * self.factors).astype(np.int64)

    def _tokens(self, counts: Counts) -> Counts:
        """Turn elements of prompts into tokens as the server counts them."""
        if self.ends is not None:
            found = (int(e[n - 1]) if n else 0 for e, n in zip(self.ends, counts.tolist(), strict=True))
            return np.fromiter(found, np.int64, counts.size)
        if (self.factors == 1).all():
            return counts
        whole = counts == self.found.size
        return np.where(whole, self.base.prompt, np.floor(counts * self.factors).astype(np.int64))

    def _ruled(self, reach: Counts) -> Counts:
        """Apply the rule of each request's engine: cap, whole blocks, minimum."""
        if self.ends is not None:
            return self._ruled_blocks(reach)
        cached = np.zeros_like(reach)
        for engine, mine in self._variants():
            cached[mine] = by_rule(engine, reach[mine], self.base.prompt[mine])
        return cached

    def _ruled_blocks(self, reach: Counts) -> Counts:
        """Apply an engine's rule to a hash trace: its blocks are the trace's own, a last one may not be full."""
        engine, prompt = self.base.engine, self.base.prompt
        if engine.cap == "none":
            return reach
        capped = np.minimum(reach, np.maximum(prompt - 1, 0))
        if engine.granularity == 1:
            return capped
        assert self.ends is not None
        before_last = np.fromiter((e[-2] if e.size > 1 else 0 for e in self.ends), np.int64, prompt.size)
        return np.where(capped < reach, before_last, capped)

    def _blocks_hit(self, cached: Counts) -> Counts:
        if self.ends is None:
            return -(-cached // self.base.engine.granularity)
        whole = (np.searchsorted(e, c, "right") for e, c in zip(self.ends, cached.tolist(), strict=True))
        return np.minimum(np.fromiter(whole, np.int64, cached.size), self.base.blocks_hit)

    def _minimum(self) -> Counts:
        least = np.zeros(self.base.prompt.size, np.int64)
        for engine, mine in self._variants():
            least[mine] = engine.minimum
        return least

    def _variants(self) -> list[tuple[Engine, NDArray[np.bool_]]]:
        """Give the engine that holds for each model, and the requests to that model."""
        models = self.found.models
        return [
            (self.base.engine.for_model(model), np.fromiter((m == model for m in models), bool, len(models)))
            for model in dict.fromkeys(models)
        ]
