"""What the model of a cache says of requests as they were sent, beside what the server told: equal, or why not.

Predicted is the series of everything that was sent since the cache was empty, in the order in which it was sent, with
what each answer added to the cache. Nothing here asks a server.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from prefixlint import engines, simulate
from prefixlint.fleet import Limits
from prefixlint.lives import Visit
from prefixlint.losses import serve
from prefixlint.model import MissCause
from prefixlint.radix import common

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from prefixlint.engines import Engine
    from prefixlint.verify.targets import About, Measured

    Ids = NDArray[np.uint32]
    Counts = NDArray[np.int64]

_POLICIES = ("lru", "lfu", "slru", "priority", "fifo", "mru", "filo")


@dataclass(frozen=True, slots=True)
class Sent:
    """One request that was sent, as a cache sees it. Times are seconds of one clock.

    `output` are the generated tokens that were computed, so that they may be reused. `first` is when the prompt was
    computed, `start` when it was looked up: when it was sent, and its time in the queue where that is known.
    """

    ids: Ids
    output: Ids
    namespace: Hashable
    start: float
    first: float
    done: float
    prompt: int | None = None
    cached: int | None = None
    failed: bool = False
    retried: bool = False


@dataclass(frozen=True, slots=True)
class Cache:
    """The rules of a server's cache: its engine's profile with the server's own sizes. None: no limit is known."""

    engine: Engine
    capacity: int | None = None
    eviction: str | None = None
    apart: bool = True
    """Whether namespaces separate it."""

    @property
    def name(self) -> str:
        """The engine's name."""
        return self.engine.name


@dataclass(frozen=True, slots=True)
class Predicted:
    """What is predicted of one request: `cached` tokens.

    Which of several requests at once is looked up first, and when, is the server's business: `least` is what it finds
    where none that ran with it was stored, `most` where all were. `evicted` are tokens that had been cached before.
    """

    cached: int
    least: int
    most: int
    evicted: int = 0


def cache_of(about: About) -> Cache | None:
    """Give the rules of a server's cache as it says that it was started; None where they are not known."""
    if about.engine is None or about.caches is False:
        return None
    engine = engines.load(about.engine)
    if about.name != "openai":
        engine = engine.with_granularity(about.block_size, "server")
    chunk = about.flags.get("chunked_prefill_size")
    if isinstance(chunk, int) and chunk > 0:
        engine = replace(engine, prefill_chunk=chunk)
    slots = about.flags.get("slots")
    if engine.match == "slot" and isinstance(slots, int) and slots > 0:
        engine = replace(engine, slots=slots)
    policy = about.flags.get("radix_eviction_policy")
    capacity = None if engine.match == "slot" else about.capacity_tokens
    return Cache(engine, capacity, policy if policy in _POLICIES else None, apart=engine.match != "slot")


def predict(sent: Sequence[Sent], cache: Cache, *, one_by_one: bool) -> list[Predicted]:
    """Say how many tokens of each request, in the order sent, come from the cache.

    `one_by_one`: each had ended before the next was sent, so that none was in flight.
    """
    if not sent:
        return []
    done = _served(sent, cache, None)
    if one_by_one:
        rows = [done.cached.tolist()] * 3
    else:
        late = replace(cache, engine=replace(cache.engine, visible="response_end"))
        stored, never = _served(sent, cache, cache), _served(sent, cache, late)
        most = np.maximum(done.cached, _beside(sent, cache))
        rows = [c.tolist() for c in (stored.cached, np.minimum(stored.cached, never.cached), most)]
    lost = (done.losses or {}).get(MissCause.EVICTED)
    evicted = np.zeros(len(sent), np.int64) if lost is None else lost
    return [Predicted(*row) for row in zip(*rows, evicted.tolist(), strict=True)]


def _beside(sent: Sequence[Sent], cache: Cache) -> Counts:
    """Give what each request finds where all that ran at the same time, sent later or earlier, were stored first."""
    reach = np.zeros(len(sent), np.int64)
    whole = [np.concatenate((one.ids, one.output)) for one in sent]
    order = sorted(range(len(sent)), key=lambda i: sent[i].start)
    for place, i in enumerate(order):
        for j in order[place + 1 :]:
            if sent[j].start >= sent[i].done:
                break
            if not cache.apart or sent[i].namespace == sent[j].namespace:
                reach[i] = max(reach[i], common(whole[j], sent[i].ids))
                reach[j] = max(reach[j], common(whole[i], sent[j].ids))
    sizes = np.fromiter((one.ids.size for one in sent), np.int64, len(sent))
    return simulate.by_rule(cache.engine, reach, sizes)


def _served(sent: Sequence[Sent], cache: Cache, timed: Cache | None) -> simulate.Served:
    """Replay the requests; with `timed`, those overlap that overlapped, and its rule says when they are stored."""
    cache = timed or cache
    names = [one.namespace if cache.apart else None for one in sent]
    arrivals = (simulate.Arrival(i, names[i], one.ids, one.output) for i, one in enumerate(sent))
    base = simulate.run(arrivals, [cache.engine]).engines[cache.engine.name]
    total = sum(one.ids.size + one.output.size for one in sent)
    slack = cache.engine.granularity * len(sent)
    # where everything fits, nothing is evicted
    capacity = cache.capacity if cache.capacity is not None and total + slack > cache.capacity else None
    if capacity is None and timed is None and cache.engine.match != "slot":
        return base
    limits = Limits(capacity=capacity, eviction=cache.eviction if capacity is not None else None)
    start = min(one.start for one in sent)

    def visits() -> list[Visit]:
        return [_visit(one, name, start if timed is not None else None) for one, name in zip(sent, names, strict=True)]

    return serve(visits, [(base, limits)], np.ones(len(sent)), overlap=timed is not None)[0].served


def _visit(one: Sent, name: Hashable, start: float | None) -> Visit:
    if start is None:
        return Visit(name, one.ids, one.output)
    first, total = max(0.0, one.first - one.start), max(0.0, one.done - one.start)
    return Visit(name, one.ids, one.output, one.start - start, first, max(first, total))


def reason(one: Sent, found: Predicted, context: Circumstances) -> tuple[str | None, bool]:
    """Say why measured and predicted cached tokens differ, and whether that explains it; (None, True): they do not."""
    if one.cached is None or one.cached == found.cached:
        return None, True
    if one.prompt is not None and one.prompt != one.ids.size:
        return "counted otherwise: the server's prompt is not the one that was predicted", False
    if found.least <= one.cached <= found.most:
        return "in flight: which of the requests at once was looked up first is the server's business", True
    if one.retried or context.after_failure:
        return "a request before it failed or was repeated: what that left in the cache is not known", True
    if one.cached < found.cached and context.evicts:
        return "evicted: the server gave cached tokens up", context.concurrent
    if one.cached > found.cached and context.shared_server:
        return "cached by others: the server serves more than this run", True
    return "unexplained", False


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What else is known of a run, by which differences are explained."""

    concurrent: bool = False
    after_failure: bool = False
    evicts: bool = False
    shared_server: bool = False


def generated(measured: Measured | None, tokenized: Ids) -> Ids:
    """Give the generated tokens that were computed: all but the last, which was only sampled.

    `tokenized` is the answer's text in tokens, for servers that do not tell the ids.
    """
    if measured is None:
        return np.empty(0, np.uint32)
    ids = np.array(measured.output_ids, np.uint32) if measured.output_ids is not None else tokenized
    count = measured.output_tokens if measured.output_tokens is not None else ids.size
    return ids[: max(0, count - 1)]
