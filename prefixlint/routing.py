"""Which replica a request goes to: what routers do, as far as it decides what a cache finds."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from prefixlint.radix import PrefixIndex

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ROUTES = ("round-robin", "random", "session", "prefix", "logged")

# sglang-router 0.3.2, router_args.py, policy cache_aware
_MATCH = 0.3  # share of the prompt that a replica must have seen
_MORE, _TIMES = 64, 1.5  # where the busiest runs that many more, and that many times the least busy one: balance

NO_REPLICA = "(no replica logged)"


class Passenger(NamedTuple):
    """What a router knows of a request. `head` is the same for prompts of a namespace that begin alike."""

    namespace: Hashable
    prompt: NDArray[np.uint32]
    session: Hashable
    replica: str | None
    key: Hashable = None
    time: float = 0.0
    head: Hashable = None


Choose = Callable[[Passenger, Sequence[int]], int]
"""Gives the replica of a request; the second argument is how many requests each replica runs now."""


def router(route: str, replicas: int, seed: int = 0) -> Choose:
    """Make a router over `replicas` replicas. ValueError for a name that is not in ROUTES.

    `round-robin` goes in turn; `random` draws, the same for the same seed; `session` sends new sessions in turn and
    those that are known to where they were; `prefix` is the cache-aware rule of sglang-router; `logged` takes the
    log's own replicas, numbered as they appear, those without one sharing a replica of their own.
    """
    if route == "round-robin":
        return _in_turn(replicas)
    if route == "random":
        draw = random.Random(seed)  # noqa: S311  # a simulation, not a secret
        return lambda _passenger, _running: draw.randrange(replicas)
    if route == "session":
        return _sticky(replicas)
    if route == "prefix":
        return _CacheAware(replicas)
    if route == "logged":
        return _logged()
    raise ValueError(f"no route is called {route!r}")


def _in_turn(replicas: int) -> Choose:
    count = 0

    def choose(_passenger: Passenger, _running: Sequence[int]) -> int:
        nonlocal count
        count += 1
        return (count - 1) % replicas

    return choose


def _sticky(replicas: int) -> Choose:
    known: dict[Hashable, int] = {}
    return lambda passenger, _running: known.setdefault(passenger.session, len(known) % replicas)


def _logged() -> Choose:
    known: dict[str, int] = {}
    return lambda passenger, _running: known.setdefault(passenger.replica or NO_REPLICA, len(known))


_MINUTE = 60.0


class Spill:
    """A provider's routing: by the prompt's head and a key of the request's, to the first machine that has room.

    Each machine takes `rate` requests of any minute with one head and key; what comes faster goes to
    the next one, and so on. Machines are numbered as they appear; those of different heads are one, since what they
    hold has nothing in common. `spilled` counts the requests that went past the first machine.
    """

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._recent: dict[Hashable, list[deque[float]]] = {}
        self._machines: dict[tuple[Hashable, int], int] = {}
        self.spilled = 0

    def __call__(self, passenger: Passenger, _running: Sequence[int] = ()) -> int:
        """Choose a machine; requests come in the order of their times (seconds)."""
        head = (passenger.namespace, passenger.key, passenger.head)
        machines = self._recent.setdefault(head, [])
        for recent in machines:
            while recent and recent[0] <= passenger.time - _MINUTE:
                recent.popleft()
        level = next((i for i, recent in enumerate(machines) if len(recent) < self._rate), len(machines))
        if level == len(machines):
            machines.append(deque())
        machines[level].append(passenger.time)
        self.spilled += level > 0
        return self._machines.setdefault((passenger.key, level), len(self._machines))


class _CacheAware:
    """Sends a request to the replica that has seen most of it, else to the one that has seen least at all.

    The trees here hold tokens, the router's own hold text; neither knows what a replica has evicted.
    """

    def __init__(self, replicas: int) -> None:
        self._trees: list[dict[Hashable, PrefixIndex]] = [{} for _ in range(replicas)]
        self._seen = [0] * replicas

    def __call__(self, passenger: Passenger, running: Sequence[int]) -> int:
        """Choose, and remember that the replica now has this prompt."""
        chosen = self._choose(passenger, running)
        tree = self._trees[chosen].setdefault(passenger.namespace, PrefixIndex())
        self._seen[chosen] += passenger.prompt.size - tree.match_insert(passenger.prompt, 0).length
        return chosen

    def _choose(self, passenger: Passenger, running: Sequence[int]) -> int:
        if max(running) - min(running) > _MORE and max(running) > _TIMES * min(running):
            return min(range(len(running)), key=running.__getitem__)
        matched = [self._matched(trees.get(passenger.namespace), passenger) for trees in self._trees]
        best = max(range(len(matched)), key=matched.__getitem__)
        if matched[best] > _MATCH * passenger.prompt.size:
            return best
        return min(range(len(self._seen)), key=self._seen.__getitem__)

    @staticmethod
    def _matched(tree: PrefixIndex | None, passenger: Passenger) -> int:
        return 0 if tree is None else tree.match(passenger.prompt).length
