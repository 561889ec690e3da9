"""Caches with limits: memory, lifetimes, several replicas, requests that overlap, rules of providers.

For each request this follows how far its prompt would be found, step by step from what all replicas have seen down to
what this cache still holds. Requests run from their logged time to their logged end, where there are any; otherwise
each one is complete before the next one comes.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from prefixlint import routing
from prefixlint.caches.choose import OPTIMAL, build, build_tier
from prefixlint.caches.lifetimes import LifetimeTree
from prefixlint.caches.marks import Marks, MarkStore
from prefixlint.caches.opt import optimum
from prefixlint.lives import Life, Replica, Visit
from prefixlint.spots import Spot
from prefixlint.ways import Ways

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from prefixlint.engines import Engine
    from prefixlint.model import MissCause

    Ids = NDArray[np.uint32]
    Counts = NDArray[np.int64]

OPT_BLOCK = 16
"""Tokens of a block of the optimal cache, for engines that evict smaller pieces."""

_NO_MARKS = Marks((), {})
_LOAD_BACK = 10
"""Tokens that the host must have more than the cache to be asked for them (sglang 0.5.23, load_back_threshold)."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What caches may hold. Sizes are tokens a replica, times are seconds; None is no limit, or the engine's own.

    `host_write` is when the tier on the host gets something (see `Engine`; None: as the engine does). `eviction` is one
    of `caches.choose.EVICTIONS`, `route` one of `routing.ROUTES` (None: round-robin). `from_write`
    counts `ttl` from when an entry was written, and not from its last use. `seed` is for the random route. With
    `spill`, a provider sends what comes faster than its rate to further machines. `marks` are where prompts are marked
    instead of where they mark themselves, and `keys` how requests are keyed: both are for who makes the visits.
    """

    capacity: int | None = None
    host_capacity: int | None = None
    eviction: str | None = None
    replicas: int = 1
    route: str | None = None
    ttl: float | None = None
    from_write: bool = False
    host_write: str | None = None
    seed: int = 0
    spill: bool = False
    marks: tuple[Spot, ...] | None = None
    keys: str | None = None


@dataclass(slots=True)
class Followed:
    """How far each prompt was found, in its elements, an array element a request.

    `size` is the prompt's. `own`: what earlier requests of its replica had, complete or
    not (all of it where there is one replica, which the caller knows as the shared prefix); `seen`: what of that was
    stored by then; `alive`: what had not expired; `whole`: the part of it that ends where a stored sequence ended or
    two of them parted; `hit`: what the cache gave, of which `near` came from its own memory and the rest from the host.
    `replica` is where the request went, `written` what it wrote anew behind a mark, of which `long` was to live longer
    than usual. `losses` are causes that the cache itself told. `bounded` says whether `hit` is a cache's own answer
    and not only `alive`. `refused` counts requests that were larger than the pool, `spilled` those that came too fast
    for one machine of a provider.
    """

    size: array[int] = field(default_factory=lambda: array("q"))
    own: array[int] = field(default_factory=lambda: array("q"))
    seen: array[int] = field(default_factory=lambda: array("q"))
    alive: array[int] = field(default_factory=lambda: array("q"))
    whole: array[int] = field(default_factory=lambda: array("q"))
    hit: array[int] = field(default_factory=lambda: array("q"))
    near: array[int] = field(default_factory=lambda: array("q"))
    written: array[int] = field(default_factory=lambda: array("q"))
    long: array[int] = field(default_factory=lambda: array("q"))
    replica: array[int] = field(default_factory=lambda: array("q"))
    losses: list[dict[MissCause, int]] = field(default_factory=list)
    models: list[str | None] = field(default_factory=list)
    bounded: bool = False
    refused: int = 0
    spilled: int = 0


def follow(
    visits: Callable[[], Iterable[Visit]],
    fleets: Sequence[tuple[Engine, Limits]],
    factors: Sequence[float] | NDArray[np.float64],
    *,
    block: int = 0,
    overlap: bool = True,
    ways: Callable[[bool], Ways] | None = None,
) -> list[Followed]:
    """Replay requests in their order, through the caches of each engine with its limits.

    `visits` gives the requests anew each time it is called: once for all engines together, and once more for each
    replica of an optimal cache. `ways` gives their ways, for engines that salts keep apart or those that know none;
    where it is None, they are found by further visits. `factors` turn the tokens of each request into those that the
    server counts; a capacity is given in the server's. `block` is, for a hash trace, the tokens of a full block.
    `overlap` may be False where no request says how long it took. ValueError for a pool without a block.
    """
    known = cache(ways or partial(ways_of, visits))
    runs = [_Run(engine, limits, factors, known, block=block, overlap=overlap) for engine, limits in fleets]
    for number, visit in enumerate(visits()):
        for run in runs:
            run.visit(number, visit)
    for run in runs:
        run.end()
        if run.limits.eviction == OPTIMAL:
            run.optimal(visits)
    return [run.followed for run in runs]


def by_elements(engine: Engine, limits: Limits) -> bool:
    """Tell whether an engine with these limits looks at the elements of prompts, and not only at their ways."""
    return limits.capacity is not None or engine.match == "slot" or limits.route == "prefix"


def ways_of(visits: Callable[[], Iterable[Visit]], salted: bool) -> Ways:
    """Find the ways of requests, as salts keep them apart or as engines see them that know none."""
    return Ways.of((v.namespace if salted or v.unsalted is None else v.unsalted, v.prompt, v.output) for v in visits())


class _Run:
    """The replay of one engine."""

    def __init__(
        self,
        engine: Engine,
        limits: Limits,
        factors: Sequence[float] | NDArray[np.float64],
        ways: Callable[[bool], Ways],
        *,
        block: int,
        overlap: bool,
    ) -> None:
        self._block = block
        self._overlap = overlap
        self._find_ways = ways
        self.followed = Followed()
        self._engine = engine
        self.limits = limits
        self._factors = np.asarray(factors, np.float64)
        self._scale = float(self._factors.mean()) if self._factors.size else 1.0
        self._replicas: list[Replica] = []
        self._engines: dict[str | None, Engine] = {}
        self._route = routing.router(limits.route or "round-robin", limits.replicas, limits.seed)
        self._spill = None
        if limits.spill and engine.rate is not None:
            self._spill = routing.Spill(engine.rate)
        self._head = max(1, int(engine.head / self._scale))
        self._by_elements = by_elements(engine, limits)

    @cached_property
    def _ways(self) -> Ways:
        return self._find_ways(self._engine.salted)

    def visit(self, number: int, visit: Visit) -> None:
        visit = self._named(visit)
        now = float(number) if visit.time is None else visit.time
        size = visit.prompt.size if self._by_elements else self._ways.size(number)
        chosen, replica = self._choose(number, visit, now)
        engine = self._engines.get(visit.model)
        if engine is None:
            engine = self._engines[visit.model] = self._engine.for_model(visit.model)
        self.followed.size.append(size)
        stored = self._look_up(number, replica, visit, engine, now)
        ticket, waited = self._admit(replica, visit, now)
        out = self.followed
        near = hit = out.alive[-1] if replica.cache is None else 0 if ticket is None else ticket.hit
        if replica.host is not None:
            kept = replica.host.find(visit.namespace, visit.prompt)
            hit = kept if kept - near >= (1 if self._block else _LOAD_BACK) else near
        written = long = 0
        losses: dict[MissCause, int] = {}
        if engine.match == "marked_breakpoint":
            marks = visit.marks or _NO_MARKS
            read = self._marks(replica, visit.model, engine).visit(
                self._ways.names(number, marks.ends),
                marks,
                now,
                now + ((visit.first if engine.visible == "first_token" else visit.total) or 0.0),
                shared=out.own[-1],
                scale=float(self._factors[number]),
            )
            near = hit = read.hit
            written, long, losses = read.written, read.long, dict(read.losses)
        out.hit.append(hit)
        out.near.append(near)
        out.written.append(written)
        out.long.append(long)
        out.losses.append(losses)
        out.replica.append(chosen)
        out.models.append(visit.model)
        ways = () if stored is None else (self._ways.prompt(number), self._ways.whole(number))
        Life(replica, visit, engine, ticket, stored, *ways).begin(now + waited)

    def _named(self, visit: Visit) -> Visit:
        """Give a request the namespace that the engine knows."""
        return visit if self._engine.salted or visit.unsalted is None else visit._replace(namespace=visit.unsalted)

    def end(self) -> None:
        """Note what is known once all requests have come."""
        self.followed.spilled = 0 if self._spill is None else self._spill.spilled

    def _choose(self, number: int, visit: Visit, now: float) -> tuple[int, Replica]:
        if self._spill is not None:
            (head,) = self._ways.names(number, (min(self._head, self._ways.size(number)),))
            chosen = self._spill(
                routing.Passenger(visit.namespace, visit.prompt, visit.session, visit.replica, visit.key, now, head)
            )
            while len(self._replicas) <= chosen:
                self._replicas.append(self._new_replica())
            self._replicas[chosen].advance(now)
            return chosen, self._replicas[chosen]
        while len(self._replicas) < self.limits.replicas:
            self._replicas.append(self._new_replica())
        for replica in self._replicas:
            replica.advance(now)
        passenger = routing.Passenger(visit.namespace, visit.prompt, visit.session, visit.replica)
        chosen = self._route(passenger, [replica.running for replica in self._replicas])
        while len(self._replicas) <= chosen:
            self._replicas.append(self._new_replica())
        return chosen, self._replicas[chosen]

    def _new_replica(self) -> Replica:
        limits, engine = self.limits, self._engine
        unit = self._block or self._scale
        capacity = None if limits.capacity is None else int(limits.capacity / unit)
        host = None if limits.host_capacity is None else int(limits.host_capacity / unit)
        if limits.eviction == OPTIMAL:
            return Replica(None, None)
        cache = build(engine, capacity, limits.eviction, of_blocks=bool(self._block), host=host)
        self.followed.bounded = cache is not None
        if host is None or cache is None:
            return Replica(cache, None)
        write = limits.host_write or engine.host_write
        # What the pool lets go of is the newest that the host has: together they are one cache of both their sizes.
        room = host + (capacity or 0) if write == "write_back" else host
        tier = build_tier(engine, room, of_blocks=bool(self._block))
        return Replica(cache, tier, selective=write == "write_through_selective")

    def _look_up(self, number: int, replica: Replica, visit: Visit, engine: Engine, now: float) -> LifetimeTree | None:
        """Note how far the prompt is found without a limit of memory; give what is stored of its namespace.

        None where nothing is to be looked up: all that was given is stored and stays, or marks say what is stored.
        """
        out = self.followed
        stays = not self._overlap and self._ttl(engine) == math.inf and engine.match != "whole_unit"
        if stays or engine.match == "marked_breakpoint":
            given = self._given(number, replica, engine)
            for lengths in (out.own, out.seen, out.alive, out.whole):
                lengths.append(given)
            return None
        stored = replica.stored.get(visit.namespace)
        if stored is None:
            from_write = self.limits.from_write if self.limits.ttl is not None else engine.lifetime == "from_write"
            stored = LifetimeTree(self._ways.depth, self._ttl(engine), sliding=not from_write)
            replica.stored[visit.namespace] = stored
        found = stored.match(self._ways.prompt(number), now, use=True)
        # where no request is under way when the next one comes, all that was given was stored at some time
        out.own.append(self._given(number, replica, engine, None if self._overlap else found.stored))
        out.seen.append(found.stored)
        out.alive.append(found.length)
        out.whole.append(found.whole)
        return stored

    def _given(self, number: int, replica: Replica, engine: Engine, known: int | None = None) -> int:
        """Give what earlier requests of the replica had of the prompt (or `known`), all where the caller knows."""
        alone = self.limits.replicas == 1 and self.limits.route is None and self._spill is None
        if alone and engine.match != "marked_breakpoint":
            return self.followed.size[number]
        if known is not None:
            return known
        given, ways = replica.given, self._ways
        way = ways.prompt(number)
        last = next((node for node in reversed(way) if node in given), None)
        given.update(ways.whole(number) if engine.stored == "prompt_and_output" else way)
        return 0 if last is None else ways.depth[last]

    def _ttl(self, engine: Engine) -> float:
        ttl = engine.ttl if self.limits.ttl is None else self.limits.ttl
        return math.inf if ttl is None else ttl

    def _admit(self, replica: Replica, visit: Visit, now: float) -> tuple[Any, float]:
        """Start a request, behind those that run where it does not fit beside them; give how long it waited."""
        if replica.cache is None:
            return None, 0.0
        if not replica.cache.fits(visit.prompt.size):
            self.followed.refused += 1
            return None, 0.0
        time = now
        while (ticket := replica.cache.admit(visit.namespace, visit.prompt)) is None:
            time = max(time, replica.step())
        return ticket, time - now

    def _marks(self, replica: Replica, model: str | None, engine: Engine) -> MarkStore:
        if model not in replica.marks:
            sliding = not self.limits.from_write if self.limits.ttl is not None else engine.lifetime != "from_write"
            replica.marks[model] = MarkStore(
                engine.lookback or 0, engine.marks or 1, engine.minimum, self._ttl(engine), sliding=sliding
            )
        return replica.marks[model]

    def optimal(self, visits: Callable[[], Iterable[Visit]]) -> None:
        """Replace the hits by those of caches that know the future."""
        out = self.followed
        where, alive = np.frombuffer(out.replica, np.int64), np.frombuffer(out.alive, np.int64)
        hits = np.zeros(where.size, np.int64)
        capacity = int((self.limits.capacity or 0) / (self._block or self._scale))
        block = 1 if self._block else max(self._engine.granularity, OPT_BLOCK)
        for number in range(len(self._replicas)):
            mine = where == number
            prompts = ((self._named(v).namespace, v.prompt) for v, taken in zip(visits(), mine, strict=True) if taken)
            hits[mine] = optimum(prompts, capacity, block=block)
        out.hit = out.near = array("q", np.minimum(hits, alive).tolist())
        out.bounded = True
