"""Caches with limits: memory, lifetimes, several replicas, requests that overlap, rules of providers.

For each request this follows how far its prompt would be found, step by step from what all replicas have seen down to
what this cache still holds. Requests run from their logged time to their logged end, where there are any; otherwise
each one is complete before the next one comes.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from prefixlint import routing
from prefixlint.caches.choose import OPTIMAL, build, build_tier
from prefixlint.caches.lifetimes import LifetimeTree
from prefixlint.caches.marks import Marks, MarkStore, Read
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
_NO_LOSSES: Mapping[MissCause, int] = MappingProxyType({})
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


@dataclass(frozen=True, slots=True)
class Followed:
    """How far each prompt was found, in its elements, an array element a request.

    `size` is the prompt's. `own`: what earlier requests of its replica had, complete or
    not (all of it where there is one replica, which the caller knows as the shared prefix); `seen`: what of that was
    stored by then; `alive`: what had not expired; `whole`: the part of it that ends where a stored sequence ended or
    two of them parted; `hit`: what the cache gave, of which `near` came from its own memory and the rest from the host.
    `replica` is where the request went, `written` what it wrote anew behind a mark, of which `long` was to live longer
    than usual. `losses` are causes that the cache itself told, `models` those of the requests. `bounded` says whether
    `hit` is a cache's own answer and not only `alive`. `refused` counts requests that were larger than the pool,
    `spilled` those that came too fast for one machine of a provider.
    """

    size: Counts
    own: Counts
    seen: Counts
    alive: Counts
    whole: Counts
    hit: Counts
    near: Counts
    written: Counts
    long: Counts
    replica: Counts
    losses: Sequence[Mapping[MissCause, int]]
    models: Sequence[str | None]
    bounded: bool = False
    refused: int = 0
    spilled: int = 0


_LENGTHS = ("size", "own", "seen", "alive", "whole", "hit", "near", "written", "long", "replica")
"""The arrays of `Followed`, in the order in which `_Run` notes them."""


def follow(
    visits: Callable[[], Iterable[Visit]],
    fleets: Sequence[tuple[Engine, Limits]],
    factors: Sequence[float] | NDArray[np.float64],
    *,
    block: int = 0,
    overlap: bool = True,
    ways: Callable[[bool], Ways] | None = None,
    marked: bool = True,
) -> list[Followed]:
    """Replay requests in their order, through the caches of each engine with its limits.

    `visits` gives the requests anew each time it is called: once for all engines together, and once more for each
    replica of an optimal cache. `ways` gives their ways, for engines that salts keep apart or those that know none;
    where it is None, they are found by further visits. `factors` turn the tokens of each request into those that the
    server counts; a capacity is given in the server's. `block` is, for a hash trace, the tokens of a full block.
    `overlap` may be False where no request says how long it took, and `marked` where none has a mark. ValueError for a
    pool without a block.
    """
    known = cache(ways or partial(ways_of, visits))
    setting = _Setting(factors, known, block, overlap=overlap, marked=marked)
    runs = [_Run(engine, limits, setting) for engine, limits in fleets]
    for number, visit in enumerate(visits()):
        for run in runs:
            run.visit(number, visit)
    return [run.optimal(visits) if run.limits.eviction == OPTIMAL else run.end() for run in runs]


def by_elements(engine: Engine, limits: Limits) -> bool:
    """Tell whether an engine with these limits looks at the elements of prompts, and not only at their ways."""
    return limits.capacity is not None or engine.match == "slot" or limits.route == "prefix"


def ways_of(visits: Callable[[], Iterable[Visit]], salted: bool) -> Ways:
    """Find the ways of requests, as salts keep them apart or as engines see them that know none."""
    return Ways.of((v.namespace if salted or v.unsalted is None else v.unsalted, v.prompt, v.output) for v in visits())


@dataclass(frozen=True, slots=True)
class _Setting:
    """What all engines share, see `follow`."""

    factors: Sequence[float] | NDArray[np.float64]
    ways: Callable[[bool], Ways]
    block: int
    overlap: bool
    marked: bool


class _Run:
    """The replay of one engine."""

    def __init__(self, engine: Engine, limits: Limits, setting: _Setting) -> None:
        self._engine = engine
        self.limits = limits
        self._setting = setting
        self._block = setting.block
        factors = np.asarray(setting.factors, np.float64)
        self._factors: list[float] = factors.tolist()
        self._scale = float(factors.mean()) if factors.size else 1.0
        self._lengths = array("q")
        self._losses: list[Mapping[MissCause, int]] = []
        self._models: list[str | None] = []
        self._bounded = False
        self._refused = 0
        self._replicas: list[Replica] = []
        self._variants: dict[str | None, tuple[Engine, str]] = {}
        self._route = routing.router(limits.route or "round-robin", limits.replicas, limits.seed)
        self._spill = None
        if limits.spill and engine.rate is not None:
            self._spill = routing.Spill(engine.rate)
        self._alone = limits.replicas == 1 and limits.route is None and self._spill is None
        self._head = max(1, int(engine.head / self._scale))
        self._by_elements = by_elements(engine, limits)

    @cached_property
    def _ways(self) -> Ways:
        return self._setting.ways(self._engine.salted)

    def visit(self, number: int, visit: Visit) -> None:
        """Let the next request come."""
        engine, goes_by = self._variant(visit.model)
        size = visit.prompt.size if self._by_elements else self._ways.size(number)
        if goes_by == "nothing":
            hit = 0 if engine.match == "marked_breakpoint" else size
            self._note(visit.model, (size, size, size, size, size, hit, hit, 0, 0, 0))
            return
        visit = self._named(visit)
        now = float(number) if visit.time is None else visit.time
        chosen, replica = self._choose(number, visit, now)
        stored = self._stored(replica, visit, engine) if goes_by == "ways" else None
        if stored is None:
            own = seen = alive = whole = self._given(number, size, replica, engine)
        else:
            found = stored.match(self._ways.prompt(number), now, use=True)
            seen, alive, whole = found.stored, found.length, found.whole
            # where no request is under way when the next one comes, all that was given was stored at some time
            own = self._given(number, size, replica, engine, None if self._setting.overlap else seen)
        ticket, waited = self._admit(replica, visit, now)
        near = hit = alive if replica.cache is None else 0 if ticket is None else ticket.hit
        if replica.host is not None:
            kept = replica.host.find(visit.namespace, visit.prompt)
            hit = kept if kept - near >= (1 if self._block else _LOAD_BACK) else near
        written = long = 0
        losses = _NO_LOSSES
        if goes_by == "marks":
            read = self._read(number, replica, visit, now, own)
            near = hit = read.hit
            written, long, losses = read.written, read.long, read.losses
        self._note(visit.model, (size, own, seen, alive, whole, hit, near, written, long, chosen), losses)
        if stored is not None:
            ways = self._ways.prompt(number), self._ways.whole(number)
            Life(replica, visit, engine, ticket, stored, *ways).begin(now + waited)
        elif not self._alone or ticket is not None or replica.host is not None:
            Life(replica, visit, engine, ticket, None).begin(now + waited)

    def _note(self, model: str | None, lengths: tuple[int, ...], losses: Mapping[MissCause, int] = _NO_LOSSES) -> None:
        """Note the lengths that `Followed` has of a request, in its order."""
        self._lengths.extend(lengths)
        self._losses.append(losses)
        self._models.append(model)

    def _variant(self, model: str | None) -> tuple[Engine, str]:
        """Give what holds for a model, and by what its prompts are looked up without a limit of memory.

        `marks` say what is stored, or `ways` tell it. With `given`, all that was given is stored and stays; `nothing`
        is to be looked up where it was given to one replica without limits, or where nothing is marked.
        """
        found = self._variants.get(model)
        if found is None:
            engine = self._engine.for_model(model)
            stays = not self._setting.overlap and self._ttl(engine) == math.inf and engine.match != "whole_unit"
            by_marks = engine.match == "marked_breakpoint"
            goes_by = "marks" if by_marks else "given" if stays else "ways"
            if self._alone and not self._by_elements and (not self._setting.marked if by_marks else stays):
                goes_by = "nothing"
            found = self._variants[model] = engine, goes_by
        return found

    def _named(self, visit: Visit) -> Visit:
        """Give a request the namespace that the engine knows."""
        return visit if visit.unsalted is None or self._engine.salted else visit._replace(namespace=visit.unsalted)

    def end(self) -> Followed:
        """Give what was found, once all requests have come."""
        flat = np.frombuffer(self._lengths, np.int64) if self._lengths else np.empty(0, np.int64)
        lengths: list[Counts] = list(np.ascontiguousarray(flat.reshape(-1, len(_LENGTHS)).T))
        return Followed(
            **dict(zip(_LENGTHS, lengths, strict=True)),
            losses=self._losses,
            models=self._models,
            bounded=self._bounded,
            refused=self._refused,
            spilled=0 if self._spill is None else self._spill.spilled,
        )

    def _choose(self, number: int, visit: Visit, now: float) -> tuple[int, Replica]:
        """Give the replica of a request, in which all has happened that is due."""
        chosen = 0
        if self._spill is not None:
            (head,) = self._ways.names(number, (min(self._head, self._ways.size(number)),))
            chosen = self._spill(
                routing.Passenger(visit.namespace, visit.prompt, visit.session, visit.replica, visit.key, now, head)
            )
        elif not self._alone:
            while len(self._replicas) < self.limits.replicas:
                self._replicas.append(self._new_replica())
            for replica in self._replicas:
                replica.advance(now)
            passenger = routing.Passenger(visit.namespace, visit.prompt, visit.session, visit.replica)
            chosen = self._route(passenger, [replica.running for replica in self._replicas])
        while len(self._replicas) <= chosen:
            self._replicas.append(self._new_replica())
        self._replicas[chosen].advance(now)
        return chosen, self._replicas[chosen]

    def _new_replica(self) -> Replica:
        limits, engine = self.limits, self._engine
        unit = self._block or self._scale
        capacity = None if limits.capacity is None else int(limits.capacity / unit)
        host = None if limits.host_capacity is None else int(limits.host_capacity / unit)
        if limits.eviction == OPTIMAL:
            return Replica(None, None)
        cache = build(engine, capacity, limits.eviction, of_blocks=bool(self._block), host=host)
        self._bounded = cache is not None
        if host is None or cache is None:
            return Replica(cache, None)
        write = limits.host_write or engine.host_write
        # What the pool lets go of is the newest that the host has: together they are one cache of both their sizes.
        room = host + (capacity or 0) if write == "write_back" else host
        tier = build_tier(engine, room, of_blocks=bool(self._block))
        return Replica(cache, tier, selective=write == "write_through_selective")

    def _stored(self, replica: Replica, visit: Visit, engine: Engine) -> LifetimeTree:
        """Give what is stored of a request's namespace where memory has no limit."""
        stored = replica.stored.get(visit.namespace)
        if stored is None:
            from_write = self.limits.from_write if self.limits.ttl is not None else engine.lifetime == "from_write"
            stored = LifetimeTree(self._ways.depth, self._ttl(engine), sliding=not from_write)
            replica.stored[visit.namespace] = stored
        return stored

    def _read(self, number: int, replica: Replica, visit: Visit, now: float, shared: int) -> Read:
        """Let a request read and write where its marks are; `shared` is what earlier ones had of it."""
        engine, _ = self._variant(visit.model)
        marks = visit.marks or _NO_MARKS
        return self._marks(replica, visit.model, engine).visit(
            self._ways.names(number, marks.ends),
            marks,
            now,
            now + ((visit.first if engine.visible == "first_token" else visit.total) or 0.0),
            shared=shared,
            scale=self._factors[number],
        )

    def _given(self, number: int, size: int, replica: Replica, engine: Engine, known: int | None = None) -> int:
        """Give what earlier requests of the replica had of the prompt (or `known`), all where the caller knows."""
        if self._alone and engine.match != "marked_breakpoint":
            return size
        if known is not None:
            return known
        given, ways = replica.given, self._ways
        way = ways.prompt(number)
        there = len(way)
        while there and way[there - 1] not in given:
            there -= 1
        given.update(ways.whole(number) if engine.stored == "prompt_and_output" else way)
        return ways.depth[way[there - 1]] if there else 0

    def _ttl(self, engine: Engine) -> float:
        ttl = engine.ttl if self.limits.ttl is None else self.limits.ttl
        return math.inf if ttl is None else ttl

    def _admit(self, replica: Replica, visit: Visit, now: float) -> tuple[Any, float]:
        """Start a request, behind those that run where it does not fit beside them; give how long it waited."""
        if replica.cache is None:
            return None, 0.0
        if not replica.cache.fits(visit.prompt.size):
            self._refused += 1
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

    def optimal(self, visits: Callable[[], Iterable[Visit]]) -> Followed:
        """Give what was found, with the hits of caches that know the future."""
        out = self.end()
        hits = np.zeros(out.size.size, np.int64)
        capacity = int((self.limits.capacity or 0) / (self._block or self._scale))
        block = 1 if self._block else max(self._engine.granularity, OPT_BLOCK)
        for number in range(len(self._replicas)):
            mine = out.replica == number
            prompts = ((self._named(v).namespace, v.prompt) for v, taken in zip(visits(), mine, strict=True) if taken)
            hits[mine] = optimum(prompts, capacity, block=block)
        hits = np.minimum(hits, out.alive)
        return replace(out, hit=hits, near=hits, bounded=True)
