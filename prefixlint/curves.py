"""The curves of an analysis: hits over memory, lifetime and replicas, of the requests that a replay passes by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prefixlint import capacity
from prefixlint.accesses import Accesses, Recorder
from prefixlint.engines import Engine
from prefixlint.radix import Match
from prefixlint.results import CapacityPoint, Curves, HostPoint, PoolSize, ReplicaPoint, TtlPoint
from prefixlint.simulate import BlockArrival, Kept, kept

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_POINTS = 32  # of a capacity curve in the result
_SHARES = (0.9, 0.95, 0.99)
_LIFETIMES = (10, 30, 60, 300, 600, 1_800, 3_600, 14_400, 43_200, 86_400)
_REPLICAS = (1, 2, 4, 8, 16)
_HOSTS = (1, 2, 4, 8, 16, 32, 64)  # times the pool


class Tap:
    """Notes what a replay finds of its requests, for each kind of stored tokens that the engines have.

    `salts`: whether any request has one (see `simulate.kept`).
    """

    def __init__(self, engines: Sequence[Engine], *, salts: bool = False) -> None:
        self._salts = salts
        # A minimum makes hits depend on the whole prefix, which a sum over blocks does not see.
        self._engines = [e for e in engines if e.match == "longest_prefix" and not e.minimum]
        self._recorders = {kept(engine, salts=salts): Recorder() for engine in self._engines}
        self._found: dict[str, _Engine] = {}

    def stored(self, key: Kept, row: int, found: Match, total: int, prompt: int) -> None:
        """Take what a replay found of a request of tokens in a cache of that kind."""
        recorder = self._recorders.get(key)
        if recorder is not None:
            recorder.add_found(row, found, total, prompt)

    def blocks(self, arrivals: Iterable[BlockArrival]) -> Iterator[BlockArrival]:
        """Pass the requests of a hash trace on."""
        for arrival in arrivals:
            for recorder in self._recorders.values():
                recorder.add_blocks(arrival.namespace, arrival.blocks)
            yield arrival

    def outputs(self) -> Ints | None:
        """Give the generated tokens of each request that the log holds, 0 where it holds none; None if none passed."""
        recorder = next((one for (stored, _), one in self._recorders.items() if stored == "prompt_and_output"), None)
        return None if recorder is None else recorder.outputs()

    def curves(self, setting: Setting) -> Curves:
        """Give the curves of all engines that take the longest prefix, however short; none where no request passed."""
        self._found = {e.name: _Engine(e, self._recorders[kept(e, salts=self._salts)], setting) for e in self._engines}
        found = [one.curves() for one in self._found.values()]
        return Curves(
            capacity=[point for one in found for point in one.capacity],
            ttl=[point for one in found for point in one.ttl],
            replicas=[point for one in found for point in one.replicas],
            sizes=[size for one in found for size in one.sizes],
            host=[point for one in found for point in one.host],
        )

    def rate(self, engine: str, tokens: float) -> float | None:
        """Give the hit rate of a pool by the curve of `curves`; None where the engine has none."""
        found = self._found.get(engine)
        return None if found is None else found.rate(tokens)


@dataclass(frozen=True, slots=True)
class Pool:
    """What a replica's memory holds in tokens, what running requests take of it (None: not known), and why."""

    tokens: int
    running: int | None
    basis: str


@dataclass(frozen=True, slots=True)
class Setting:
    """What the curves of all engines share.

    `counted` leaves the warm-up out. `times` (seconds, ascending) and `sessions` (numbers) have an element a request;
    None where they are not known. `kv_bytes` are the model's KV of a token, and
    `pools` the pools that are there, by engine; `simulated` are pools (tokens) that an engine itself was simulated
    with, and its hit rate. `factors` turn the tokens counted of each request into reported ones. `every` asks for the
    curves over lifetimes and replicas too.
    """

    counted: Bools
    times: Floats | None = None
    sessions: Ints | None = None
    kv_bytes: float | None = None
    pools: dict[str, Pool] | None = None
    simulated: dict[str, tuple[int, float]] | None = None
    factors: Floats | None = None
    every: bool = True

    def factor(self, prompt: Ints) -> float:
        """Give what all tokens together are multiplied by: pools are shared by requests with factors of their own."""
        if self.factors is None or not prompt.sum():
            return 1.0
        return float((prompt * self.factors).sum() / prompt.sum())


class _Engine:
    """The curves of one engine."""

    def __init__(self, engine: Engine, recorder: Recorder, setting: Setting) -> None:
        published = engine.cap == "none"
        self._setting, self._recorder, self._factor = setting, recorder, 1.0
        self._curve: capacity.Curve | None = None
        self._engine = engine
        # The order in which published traces are evaluated, and the one in which engines let go of blocks.
        self._order: capacity.Order = "head_first" if published else "tail_first"
        # A cap of one token off whole blocks is a token a request at most, and left out.
        whole = recorder.of_blocks and self._engine.granularity == 1
        self._cap = self._engine.cap == "length_minus_one" and not whole

    def curves(self) -> Curves:
        if not len(self._recorder):
            return Curves()
        self._factor = self._setting.factor(self._recorder.prompts())
        # The engine's blocks are of tokens as they are reported, those of the recorder as they were counted.
        block = max(1, round(self._engine.granularity / self._factor))
        accesses = self._recorder.accesses(block, cap=self._cap)
        if self._setting.factors is not None:
            accesses = accesses.weighted(self._setting.factors)
        total = float(accesses.prompt[self._setting.counted].sum())
        if not total:
            return Curves()
        points, sizes = self._capacity(accesses) if self._engine.eviction.startswith("lru") else ([], [])
        host = [point for size in sizes for point in self._host(size)]
        lives, fleets = (self._ttl(accesses, total), self._replicas(accesses)) if self._setting.every else ([], [])
        return Curves(points, lives, fleets, sizes, host)

    def _capacity(self, accesses: Accesses) -> tuple[list[CapacityPoint], list[PoolSize]]:
        setting, name = self._setting, self._engine.name
        curve = capacity.capacity_curve(accesses, self._order, counted=setting.counted)
        self._curve = curve
        at = curve.points(_POINTS)
        error = capacity.sampled_error(
            self._recorder,
            accesses,
            curve,
            at,
            cap=self._cap,
            order=self._order,
            counted=setting.counted,
            factors=setting.factors,
        )
        points = [
            CapacityPoint(name, self._scaled(x), self._gib(x), float(rate), None if error is None else float(error[i]))
            for i, (x, rate) in enumerate(zip(at.tolist(), curve.rate(at), strict=True))
        ]
        return points, [self._size(curve, sampled=accesses.sample is not None)]

    def rate(self, tokens: float) -> float | None:
        """Give the hit rate of a pool, in tokens as they are reported, once the curve was taken."""
        return None if self._curve is None else float(self._curve.rate(tokens / self._factor))

    def _size(self, curve: capacity.Curve, *, sampled: bool) -> PoolSize:
        method = "block-LRU in one pass" + (", sampled" if sampled else "")
        if self._engine.eviction == "lru_leaf":
            method += "; the engine evicts whole leaves"
        knee = curve.knee()
        reach = {share: self._scaled(x) for share in _SHARES if (x := curve.reach(share)) is not None}
        pool = (self._setting.pools or {}).get(self._engine.name)
        direct = (self._setting.simulated or {}).get(self._engine.name)
        left = None if pool is None else max(0, pool.tokens - (pool.running or 0)) / self._factor
        return PoolSize(
            engine=self._engine.name,
            method=method,
            ceiling=curve.ceiling / curve.total,
            knee=None if knee is None else self._scaled(knee),
            knee_hit_rate=None if knee is None else float(curve.rate(knee)),
            reach=reach,
            have=pool.tokens if pool else None,
            running=pool.running if pool else None,
            hit_rate=None if left is None else float(curve.rate(left)),
            basis=pool.basis if pool else None,
            simulated=(*direct, float(curve.rate(direct[0] / self._factor))) if direct else None,
        )

    def _host(self, size: PoolSize) -> Iterator[HostPoint]:
        """Give the curve over tiers behind the pool at hand; nothing where no pool is known.

        Where what is computed is written through, the tier holds what the pool does: the larger of them decides. Where
        it gets what the pool lets go of, they are as one.
        """
        pool = size.simulated[0] if size.simulated is not None else size.have
        everything = size.reach.get(_SHARES[-1])
        if pool is None or everything is None or self._engine.kind == "convention":
            return
        left = max(0, pool - (size.running or 0))
        alone = self.rate(left) or 0.0
        for times in _HOSTS:
            tier = times * pool
            both = left + tier if self._engine.host_write == "write_back" else max(left, tier)
            yield HostPoint(size.engine, pool, tier, self._gib(tier / self._factor), self.rate(both) or 0.0, alone)
            if tier >= everything:
                return

    def _ttl(self, accesses: Accesses, total: float) -> list[TtlPoint]:
        setting, name = self._setting, self._engine.name
        if setting.times is None:
            return []
        span = float(np.ptp(setting.times))
        # One step that is longer than the log: it shows what no lifetime would give.
        steps = [x for i, x in enumerate(_LIFETIMES) if i == 0 or _LIFETIMES[i - 1] < span]
        use = capacity.ttl_curve(accesses, setting.times, counted=setting.counted).hit(steps) / total
        write = capacity.write_ttl_hits(accesses, setting.times, steps, counted=setting.counted) / total
        sliding = [TtlPoint(name, x, "use", rate) for x, rate in zip(steps, use.tolist(), strict=True)]
        return sliding + [TtlPoint(name, x, "write", rate) for x, rate in zip(steps, write.tolist(), strict=True)]

    def _replicas(self, accesses: Accesses) -> list[ReplicaPoint]:
        setting, count = self._setting, accesses.prompt.size
        total = float(accesses.prompt[setting.counted].sum())
        routes: tuple[capacity.Route, ...] = ("round-robin",)
        if setting.sessions is not None:
            routes += ("session",)
        ways = [(route, number) for route in routes for number in _REPLICAS]
        spreads = (capacity.routed(route, count, number, sessions=setting.sessions) for route, number in ways)
        hits = capacity.spread_hits(accesses, spreads, counted=setting.counted)
        return [
            ReplicaPoint(self._engine.name, number, route, hit / total)
            for (route, number), hit in zip(ways, hits, strict=True)
        ]

    def _scaled(self, tokens: float) -> int:
        return round(tokens * self._factor)

    def _gib(self, tokens: float) -> float | None:
        each = self._setting.kv_bytes
        return None if each is None else tokens * self._factor * each / 2**30
