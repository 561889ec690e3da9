"""The life of a request in a replica: what happens to the caches, and when."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from prefixlint.caches.lifetimes import LifetimeTree
from prefixlint.caches.marks import Marks, MarkStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from prefixlint.caches import Cache, Tier
    from prefixlint.engines import Engine

    Ids = NDArray[np.uint32]

STEPS = 8
"""Steps in which a running request's generated tokens take memory, evenly from its first token to its end."""


class Visit(NamedTuple):
    """One request. `time` is when it comes, `first` and `total` how long until its first token and its end (seconds).

    None is unknown: without `time`, requests count as one second apart; without the others, a request is complete at
    once. The elements of `prompt` are tokens, or the blocks of a hash trace; both arrays are empty where no cache looks
    at elements (`fleet.by_elements`). `key` is what a provider's routing is told besides the prompt (prompt_cache_key).
    `unsalted` is the namespace of engines that know no salts, None where it is the same.
    """

    namespace: Hashable
    prompt: Ids
    output: Ids | None = None
    time: float | None = None
    first: float | None = None
    total: float | None = None
    session: Hashable = None
    replica: str | None = None
    model: str | None = None
    marks: Marks | None = None
    key: Hashable = None
    unsalted: Hashable = None


@dataclass(slots=True)
class Replica:
    """One replica: its caches, what it was given and what it has stored, and what is still to happen.

    A `selective` host is given what was found at least once. `given` are the nodes of all ways that came here. An event
    is (time, number, what happens, whether a request ends with it).
    """

    cache: Cache | None
    host: Tier | None
    selective: bool = False
    given: set[int] = field(default_factory=set)
    stored: dict[Hashable, LifetimeTree] = field(default_factory=dict)
    marks: dict[str | None, MarkStore] = field(default_factory=dict)
    running: int = 0
    _events: list[tuple[float, int, Callable[[float], None], bool]] = field(default_factory=list)
    _number: Iterator[int] = field(default_factory=count)

    @property
    def busy(self) -> bool:
        """Whether anything is still to happen."""
        return bool(self._events)

    def plan(self, time: float, happen: Callable[[float], None], *, ends: bool = False) -> None:
        """Let something happen at a time; of what happens at the same time, what was planned first comes first."""
        heapq.heappush(self._events, (time, next(self._number), happen, ends))

    def advance(self, now: float) -> None:
        """Let everything happen that is due."""
        while self._events and self._events[0][0] <= now:
            self.step()

    def step(self) -> float:
        """Let the next thing happen, and give its time; IndexError where nothing is planned."""
        time, _, happen, ends = heapq.heappop(self._events)
        self.running -= ends
        happen(time)
        return time


@dataclass(slots=True)
class Life:
    """A request that was looked up in a replica.

    `ticket` is the cache's, None where the cache has no limits or refused it. `stored` is what the replica has stored
    of its namespace, None where nobody asks for it; otherwise `way` is that of the prompt, and `whole` that of it and
    its output.
    """

    replica: Replica
    visit: Visit
    engine: Engine
    ticket: Any
    stored: LifetimeTree | None
    way: Sequence[int] = ()
    whole: Sequence[int] = ()
    _goes_on: bool = True

    def begin(self, now: float) -> None:
        """Start at `now`, and plan the rest: the prompt is computed, tokens are generated, the request ends."""
        first = now + (self.visit.first or 0.0)
        end = max(first, now + (self.visit.total or 0.0))
        if self.stored is not None and self.engine.visible in ("at_once", "scheduling"):
            self.stored.store(self.way, now)
        runs = end > first or len(self.whole) > len(self.way) or bool(self._output().size)
        if end <= now and not self.replica.busy:
            self._at_once(now, runs=runs)
            return
        self.replica.running += 1
        self.replica.plan(first, self._computed if runs else _nothing)
        self._plan_growth(first, end)
        self.replica.plan(end, self._ended, ends=True)
        if end <= now:
            self.replica.advance(now)

    def _at_once(self, now: float, *, runs: bool) -> None:
        """Do all of it now, as the plan would have it where nothing else is planned."""
        if runs:
            self._computed(now)
        if self.ticket is not None and (output := self._output()).size:
            self._generated(output, now)
        self._ended(now)

    def _output(self) -> Ids:
        return self.visit.prompt[:0] if self.visit.output is None else self.visit.output

    def _plan_growth(self, first: float, end: float) -> None:
        output = self._output()
        steps = min(STEPS, output.size) if end > first else 1
        if not output.size or self.ticket is None:
            return
        borders = [output.size * i // steps for i in range(steps + 1)]
        for i in range(steps):
            part = output[borders[i] : borders[i + 1]]
            self.replica.plan(first + (end - first) * (i + 1) / steps, partial(self._generated, part))

    def _computed(self, time: float) -> None:
        if self.replica.cache is not None and self.ticket is not None:
            self.replica.cache.prefilled(self.ticket)
        if self.stored is not None and self.engine.visible in ("prefill_end", "first_token"):
            self.stored.store(self.way, time)

    def _generated(self, part: Ids, _time: float) -> None:
        """Take memory for generated tokens; a request for which there is none stops growing."""
        assert self.replica.cache is not None
        if self._goes_on:
            self._goes_on = self.replica.cache.generate(self.ticket, part) == part.size

    def _ended(self, time: float) -> None:
        if self.replica.cache is not None and self.ticket is not None:
            self.replica.cache.finish(self.ticket)
        outputs = self.engine.stored == "prompt_and_output"  # what was generated is stored only where the engine does
        if self.stored is not None:
            everything = self.whole if outputs else self.way
            if self.engine.match == "whole_unit" and len(everything) > len(self.way):
                self.stored.store(self.way, time)  # a unit of its own
            self.stored.store(everything, time)
        if self.replica.host is not None:
            kept = np.concatenate((self.visit.prompt, self._output())) if outputs else self.visit.prompt
            self.replica.host.keep(self.visit.namespace, kept[: self._again()] if self.replica.selective else kept)

    def _again(self) -> int:
        """Give how much of the prompt was there before, in either tier: it is wanted again."""
        assert self.replica.host is not None
        own = 0 if self.ticket is None else self.ticket.hit
        return max(own, self.replica.host.find(self.visit.namespace, self.visit.prompt))


def _nothing(_time: float) -> None:
    """Let a request that only had its prompt computed be stored when it ends."""
