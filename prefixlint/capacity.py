"""Hit rate at every size of the pool at once, at every lifetime, and over the number of replicas.

LRU has the stack property: what a pool of n blocks holds, a larger one holds too. So the blocks that were used since a
block's last use decide alone from which size on it is found again, and one pass gives the whole curve (Mattson et al.,
1970). The distances are counted without a tree: all inversions of the order of last uses, bit by bit in numpy.

Two orders of use within a request are in use. `tail_first`: a request looks up all of its blocks, and leaves its head
as the most recent, as vLLM frees them. `head_first`: one block after the other, as published traces are evaluated.
SGLang evicts whole leaves, which `tail_first` follows closely and not exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from prefixlint.accesses import Sample

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import ArrayLike, NDArray

    from prefixlint.accesses import Accesses, Recorder

    Ints = NDArray[np.int64]
    Places = NDArray[np.int32]
    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]

Order = Literal["tail_first", "head_first"]
Weight = Literal["tokens", "blocks"]
Route = Literal["round-robin", "random", "session"]

_GROUPS = 4  # disjoint parts of a sample, whose scatter tells the error of the whole


@dataclass(frozen=True, slots=True)
class Curve:
    """What is hit as a function of something that grows: pool (tokens), lifetime (seconds).

    `hits` are reached at the ascending points `at`, and grow by `slope` a unit behind each of them; nothing is hit
    before the first. `total` is what could be asked for, so that hits / total is the hit rate. `step` is the unit in
    which the x axis can be had (tokens of a block; 0 where it is continuous).
    """

    at: Floats
    hits: Floats
    slope: Floats
    total: float
    step: float = 0.0

    def hit(self, x: ArrayLike) -> Floats:
        """Give what is hit at these points, floored to whole steps."""
        points = np.asarray(x, np.float64)
        if self.step:
            points = np.floor(points / self.step) * self.step
        index = np.searchsorted(self.at, points, side="right") - 1
        known = np.maximum(index, 0)
        if not self.at.size:
            return np.zeros(points.shape)
        grown = self.hits[known] + self.slope[known] * (points - self.at[known])
        return np.where(index < 0, 0.0, np.maximum(grown, 0.0))

    def rate(self, x: ArrayLike) -> Floats:
        """Give the hit rates at these points, 0 where nothing was asked for."""
        return self.hit(x) / self.total if self.total else np.zeros(np.shape(x))

    @property
    def ceiling(self) -> float:
        """What is hit without a limit."""
        return float(self.hits[-1]) if self.hits.size else 0.0

    def reach(self, share: float) -> float | None:
        """Give the least x at which this share (0 < share <= 1) of the ceiling is hit; None where nothing ever is."""
        if self.ceiling <= 0:
            return None
        # What sums of floats lose must not move the answer to the next point.
        wanted = share * self.ceiling * (1 - 1e-12)
        index = int(np.argmax(self.hits >= wanted))
        if index and self.slope[index - 1] > 0:
            x = self.at[index - 1] + (wanted - self.hits[index - 1]) / self.slope[index - 1]
            x = min(float(x), float(self.at[index]))
        else:
            x = float(self.at[index])
        return float(np.ceil(x / self.step - 1e-9) * self.step) if self.step else x

    def knee(self) -> float | None:
        """Give the x behind which the gain falls below the curve's average, the farthest point above its chord.

        Found on linear axes (Satopaa et al., 2011) up to where the ceiling is reached; None where nothing is hit.
        """
        end = self.reach(1.0)
        if end is None or end <= 0:
            return None
        inside = self.at[(self.at > 0) & (self.at <= end)]
        above = self.hit(inside) / self.ceiling - inside / end
        return float(inside[int(np.argmax(above))])

    def points(self, count: int) -> Floats:
        """Give at most about `count` x values that show the curve: spaced by ratio, the knee and the ceiling too."""
        end = self.reach(1.0)
        if end is None or end <= 0:
            return np.empty(0)
        first = max(self.step, float(self.at[self.at > 0][0]), end / 1e5)
        spaced = np.geomspace(min(first, end), end, max(2, count))
        if self.step:
            spaced = np.ceil(spaced / self.step - 1e-9) * self.step
        special = [x for x in (self.knee(), *(self.reach(share) for share in (0.9, 0.95, 0.99))) if x]
        return np.unique(np.concatenate((spaced, special)))


def capacity_curve(
    accesses: Accesses, order: Order = "tail_first", *, counted: Bools | None = None, weight: Weight = "tokens"
) -> Curve:
    """Give hits at every pool size (tokens; LRU over blocks) in one pass.

    `counted` leaves requests out of the sums, not out of the cache. Of a request larger than the pool, the head of its
    path stays (`tail_first`) or its tail (`head_first`). Of a sample, both axes are scaled to the whole log.
    """
    above = blocks_above(accesses, order)
    hit = above >= 0 if counted is None else (above >= 0) & counted[accesses.request]
    hit &= accesses.looked > 0
    depth, looked = above[hit].astype(np.float64), accesses.looked[hit].astype(np.float64)
    del above
    unit, short = accesses.unit[hit], accesses.short[hit]
    if weight == "blocks":
        unit, short = np.ones_like(unit), np.zeros_like(short)
    if order == "head_first":
        # All blocks of an atom have the same distance: those of it behind a block then, and those before it now.
        end = depth + accesses.size[hit]
        at, slope, jump = end, np.zeros_like(end), unit * looked - short
    else:
        at = np.concatenate((depth, depth + looked))
        slope, jump = np.concatenate((unit, -unit)), np.concatenate((np.zeros_like(short), -short))
    missing = _missing(accesses, counted, weight)
    if missing:
        # The hottest blocks decide what a sample lacks. They are the last request's: at the top of the pool, or as far
        # below it as that request is long.
        hot = float(accesses.blocks.mean()) * accesses.rate if order == "head_first" else 0.0
        at, slope, jump = np.append(at, hot), np.append(slope, 0.0), np.append(jump, missing)
    del depth, looked, unit, short  # of a long log, what is held at once here is the most that ever is
    total = accesses.prompt if weight == "tokens" else accesses.blocks
    asked = float((total if counted is None else total[counted]).sum())
    curve = _curve(at, slope, jump, asked)
    rate, size = accesses.rate, accesses.block_tokens
    return replace(
        curve,
        at=curve.at / rate * size,
        hits=curve.hits / rate,
        slope=curve.slope / size,
        step=float(size) if rate == 1 else 0.0,
    )


def _missing(accesses: Accesses, counted: Bools | None, weight: Weight) -> float:
    """Give what a sample lacks of its share of all lookups (SHARDS-adj); negative where it has more."""
    if accesses.sample is None:
        return 0.0
    mask = np.ones(accesses.prompt.size, bool) if counted is None else counted
    inside = mask[accesses.request]
    if weight == "blocks":
        return float(accesses.blocks[mask].sum() * accesses.rate - accesses.looked[inside].sum())
    return float(accesses.asked[mask].sum() * accesses.rate - accesses.tokens[inside].sum())


def sampled_error(
    recorder: Recorder,
    whole: Accesses,
    curve: Curve,
    at: Floats,
    *,
    cap: bool,
    order: Order,
    counted: Bools | None = None,
    factors: Floats | None = None,
) -> Floats | None:
    """Give the standard error of a sampled curve's rates at some points, from the scatter of its parts; None if exact.

    `factors` weigh the requests' tokens, as `whole` is weighted. Each part is a smaller sample and scatters more, so
    that the error is not understated.
    """
    if whole.sample is None:
        return None
    rates = []
    for group in range(_GROUPS):
        sample = Sample(whole.sample.rate, group, _GROUPS)
        part = recorder.accesses(whole.block_tokens, cap=cap, sample=sample)
        part = part if factors is None else part.weighted(factors)
        rates.append(capacity_curve(part, order, counted=counted).rate(at))
    scatter: Floats = np.std(np.array(rates), axis=0, ddof=1) / np.sqrt(_GROUPS)
    return np.where(np.isfinite(scatter), scatter, 0.0) if curve.total else np.zeros_like(at)


def blocks_above(accesses: Accesses, order: Order = "tail_first") -> Ints:
    """Count, for each access, the distinct blocks used since the atom was last used; -1 where it never was.

    `tail_first`: those that the requests since then used, as the request begins. `head_first`: also those that the
    request itself used before.
    """
    request, count = accesses.request, accesses.request.size
    place = np.arange(count, dtype=np.int32)
    first = np.searchsorted(request, request, side="left").astype(np.int32)
    if order == "tail_first":
        place = first + np.searchsorted(request, request, side="right").astype(np.int32) - 1 - place
    atom, size = accesses.atom[place], accesses.size[place]
    last = last_use(atom)
    del atom
    again = np.flatnonzero(last >= 0)
    # The blocks used since, less those that were used more than once. Blocks of the same request that stand before
    # this one in the stream were last used before it and are not among those (`tail_first`), or count (`head_first`).
    repeated = _greater_before(last[again], size[again])
    before = np.concatenate((np.zeros(1, np.int64), np.cumsum(size)))
    upto = first[again] if order == "tail_first" else again
    above = np.full(count, -1, np.int64)
    above[again] = before[upto] - before[last[again] + 1] - repeated
    result = np.empty_like(above)
    result[place] = above
    return result


def last_use(keys: NDArray[np.signedinteger]) -> Places:
    """Give, for each element, the index of the one before it with the same key; -1 where there is none."""
    order = np.argsort(keys, kind="stable")
    same = keys[order[1:]] == keys[order[:-1]]
    last = np.full(keys.size, -1, np.int32)
    last[order[1:][same]] = order[:-1][same]
    return last


def _greater_before(values: Places, weights: NDArray[np.signedinteger]) -> Ints:
    """Sum, for each element, the weights of the elements before it that have a greater value; values are distinct.

    The elements are split by the bits of their rank from the highest down, keeping their order. Where a bit is the
    first in which two differ, they are in the same part, and the one with a 1 is the greater.
    """
    count = values.size
    here = np.arange(count, dtype=np.int32)
    rank = np.empty_like(here)
    rank[np.argsort(values)] = here
    sums, heavy = np.zeros(count, np.int64), np.zeros(count + 1, np.int64)
    for bit in range(max(0, count - 1).bit_length() - 1, -1, -1):
        ranks = rank[here]
        begin = (ranks >> (bit + 1)) << (bit + 1)  # ranks are 0 .. count-1, so a part lies where its ranks say
        one = (ranks >> bit) & 1
        np.cumsum(one * weights[here], dtype=np.int64, out=heavy[1:])
        less = np.flatnonzero(one == 0)
        sums[here[less]] += heavy[less] - heavy[begin[less]]
        ones = np.concatenate((np.zeros(1, np.int32), np.cumsum(one, dtype=np.int32)))
        among = ones[:-1] - ones[begin]
        target = np.where(one == 1, begin + (1 << bit) + among, np.arange(count, dtype=np.int32) - among)
        moved = np.empty_like(here)
        moved[target] = here
        here = moved
    return sums


def _curve(at: Floats, slope: Floats, jump: Floats, total: float) -> Curve:
    """Sum changes of slope and jumps at points into a curve."""
    order = np.argsort(at, kind="stable")
    at = at[order]
    new = np.ones(at.size, bool)
    new[1:] = at[1:] != at[:-1]
    points, where = at[new], np.cumsum(new) - 1
    slopes = np.cumsum(np.bincount(where, slope[order], points.size)).astype(np.float64)
    jumps = np.bincount(where, jump[order], points.size)
    grown = np.concatenate((np.zeros(min(1, points.size)), slopes[:-1] * np.diff(points)))
    return Curve(points, np.cumsum(grown + jumps), slopes, total)


def ttl_curve(accesses: Accesses, times: Floats, *, counted: Bools | None = None) -> Curve:
    """Give hits at every lifetime (seconds) that each use starts anew, without a limit on memory.

    `times` has one element a request, ascending; ValueError where one is unknown or they run backwards.
    """
    _check(times)
    last = last_use(accesses.atom)
    hit = last >= 0 if counted is None else (last >= 0) & counted[accesses.request]
    gap = times[accesses.request[hit]] - times[accesses.request[last[hit]]]
    total = accesses.prompt if counted is None else accesses.prompt[counted]
    return _curve(gap, np.zeros_like(gap), accesses.tokens[hit] / accesses.rate, float(total.sum()))


def write_ttl_hits(
    accesses: Accesses, times: Floats, lifetimes: Sequence[float], *, counted: Bools | None = None
) -> Floats:
    """Give the tokens hit at lifetimes (seconds) that count from the write, and that no read makes longer.

    A request hits up to the first block that has expired; blocks behind it that have not are kept as they are.
    """
    _check(times)
    order = np.argsort(accesses.atom, kind="stable")
    when = times[accesses.request[order]]
    new = np.ones(order.size, bool)
    new[1:] = accesses.atom[order[1:]] != accesses.atom[order[:-1]]
    # What is used once is never alive; most of a log is such.
    several = np.flatnonzero(~new | np.append(~new[1:], np.zeros(min(1, new.size), bool)))
    times_again, new_again = when[several], new[several]
    tokens = accesses.tokens if counted is None else np.where(counted[accesses.request], accesses.tokens, 0.0)
    begins = np.searchsorted(accesses.request, accesses.request, side="left")
    hits = []
    for lifetime in lifetimes:
        alive = np.zeros(order.size, bool)
        alive[order[several]] = _alive(times_again, new_again, lifetime)
        dead = np.concatenate((np.zeros(1, np.int64), np.cumsum(~alive)))
        reached = dead[1:] == dead[begins]
        hits.append(float(tokens[reached].sum()) / accesses.rate)
    return np.array(hits)


def _alive(times: Floats, new: Bools, lifetime: float) -> Bools:
    """Say of each use of a block, blocks one after the other, whether what was written last has not expired."""
    begins = new.copy()
    begins[1:] |= np.diff(times) > lifetime  # what was not used for so long is written anew
    heads = np.flatnonzero(begins)
    part = np.cumsum(begins) - 1
    age = times - times[heads[part]] if heads.size else np.empty(0)
    alive = ~begins & (age <= lifetime)
    # only where uses went on for longer than a lifetime does it matter which of them wrote
    long = np.zeros(heads.size, bool)
    long[part[age > lifetime]] = True
    rest = np.flatnonzero(long[part]) if heads.size else heads
    written, kept = 0.0, []
    for time, first in zip(times[rest].tolist(), begins[rest].tolist(), strict=True):
        lives = not first and time - written <= lifetime
        kept.append(lives)
        if not lives:
            written = time
    alive[rest] = kept
    return alive


def _check(times: Floats) -> None:
    if np.isnan(times).any():
        raise ValueError("a lifetime needs the time of every request")
    if (np.diff(times) < 0).any():
        raise ValueError("times run backwards")


def replica_hits(
    accesses: Accesses,
    replica: Ints,
    *,
    capacity: float | None = None,
    order: Order = "tail_first",
    counted: Bools | None = None,
) -> float:
    """Give the tokens hit where each request goes to a replica (a number from 0) with a pool (tokens) of its own.

    `capacity` None is a pool without a limit; `counted` leaves requests out of the sum.
    """
    if capacity is None:
        return spread_hits(accesses, [replica], counted=counted)[0]
    parts = (accesses.select(replica == one) for one in np.unique(replica))
    return float(sum(float(capacity_curve(part, order, counted=counted).hit(capacity)) for part in parts))


def spread_hits(accesses: Accesses, spreads: Iterable[Ints], *, counted: Bools | None = None) -> list[float]:
    """Give the tokens hit in pools without a limit for each way to spread requests over replicas (a number from 0)."""
    tokens, wanted = accesses.tokens, True if counted is None else counted[accesses.request]
    by_atom = np.argsort(accesses.atom, kind="stable")
    atom, request = accesses.atom[by_atom], accesses.request[by_atom]
    hits = []
    for replica in spreads:
        small = np.uint16 if replica.max(initial=0) < 1 << 16 else np.int64  # which numpy sorts in one pass
        place = replica[request].astype(small)
        order = np.argsort(place, kind="stable")
        same = (np.diff(place[order]) == 0) & (np.diff(atom[order]) == 0)
        hit = np.zeros(atom.size, bool)
        hit[by_atom[order[1:][same]]] = True
        hits.append(float(tokens[hit & wanted].sum()) / accesses.rate)
    return hits


def routed(route: Route, requests: int, replicas: int, *, sessions: Ints | None = None, seed: int = 0) -> Ints:
    """Give each request's replica: in turn, at random from a seed, or by its session's number, spread by a hash.

    ValueError for fewer than one replica, or for the route `session` without sessions.
    """
    if replicas < 1:
        raise ValueError(f"{replicas} replicas")
    if route == "round-robin":
        return np.arange(requests) % replicas
    if route == "random":
        return np.random.default_rng(seed).integers(replicas, size=requests)
    if sessions is None:
        raise ValueError("the route by session needs sessions")
    spread = np.random.default_rng(seed).integers(replicas, size=int(sessions.max(initial=0)) + 1)
    return spread[sessions]
