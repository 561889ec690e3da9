"""What hits do to waiting: a small discrete-event simulation of an engine's serving loop.

The loop runs in steps. Each generates one token of every running request and spends the rest of its token budget on
prompts, in order of arrival, in chunks (vLLM's scheduler; SGLang's does prompts first). What is left out: preemption
when memory runs out, the work around the engine, and how hits change with the schedule: hits are an input.

Near saturation a few percent of load move waiting by factors, so that a result always has its load, and what a load
20 % lower and higher would give.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TYPE_CHECKING

import numpy as np

from prefixlint.cost import prefill_seconds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from prefixlint.cost import Timing
    from prefixlint.shapes import Shape

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

BAND = 0.2
STEP_OVERHEAD = 0.002
"""Seconds of a step outside of the model (launch and scheduling take 2 to 5 ms)."""


@dataclass(frozen=True, slots=True)
class Load:
    """Requests in order of arrival (seconds): prompt tokens, those of them that are cached, generated tokens (>= 1)."""

    arrival: Floats
    prompt: Ints
    cached: Ints
    output: Ints

    def faster(self, factor: float) -> Load:
        """Give the same requests at another rate."""
        first = self.arrival[0] if self.arrival.size else 0.0
        return Load(first + (self.arrival - first) / factor, self.prompt, self.cached, self.output)


@dataclass(frozen=True, slots=True)
class Server:
    """One replica: seconds of a step, and its scheduler's limits.

    A step takes the root of the squares of reading the weights (`read`) and computing (`per_token` a token, `per_pair`
    a query and key), plus reading the KV of what is generated for (`per_context` a token of it) and `overhead`. With
    `prefill_first`, no tokens are generated while prompts wait (SGLang without mixed chunks).
    """

    read: float
    per_token: float
    per_pair: float
    per_context: float
    overhead: float = STEP_OVERHEAD
    budget: int = 8192
    max_running: int = 1024
    prefill_first: bool = False

    def step(self, tokens: int, pairs: float, context: int) -> float:
        """Give the seconds of a step over some tokens, their pairs, and the context of the generating requests."""
        computing = tokens * self.per_token + pairs * self.per_pair
        return math.hypot(self.read, computing) + context * self.per_context + self.overhead


@dataclass(frozen=True, slots=True)
class Waits:
    """What requests met, an element each, in seconds.

    `queue` lasts until a step first takes a request, `prefill` from there to its first token; `per_token` is the time
    between generated tokens (NaN where there is one only).
    """

    queue: Floats
    prefill: Floats
    per_token: Floats

    @property
    def ttft(self) -> Floats:
        """The time to the first token."""
        total: Floats = self.queue + self.prefill
        return total


@dataclass(frozen=True, slots=True)
class Effect:
    """Waiting with the cache and without it, at the log's rate and at rates 20 % lower and higher.

    `load` is prefill work without and with the cache, in seconds of the server's time a second; 1 is all of it. The
    quantiles (P50, P95; seconds) are of the time in the queue and to the first token, keyed by the rate's factor.
    """

    load: tuple[float, float]
    queue: dict[float, tuple[tuple[float, float], tuple[float, float]]]
    ttft: dict[float, tuple[tuple[float, float], tuple[float, float]]]


def server(
    shape: Shape,
    timing: Timing,
    *,
    budget: int = 8192,
    max_running: int = 1024,
    kv_dtype: str = "bf16",
    prefill_first: bool = False,
) -> Server:
    """Give the step costs of a model on its GPUs."""
    rate = timing.compute * timing.gpu.peak(timing.dtype) * timing.tp
    bandwidth = timing.memory * timing.gpu.bandwidth
    # Windows are taken as full attention: short contexts, or an upper bound.
    return Server(
        read=shape.touched_bytes(budget) / timing.tp / bandwidth,
        per_token=shape.token_flops / rate,
        per_pair=sum(shape.pair_flops.values()) / rate,
        per_context=shape.kv_bytes_per_token(kv_dtype, tp=timing.tp) / bandwidth,
        budget=budget,
        max_running=max_running,
        prefill_first=prefill_first,
    )


def simulate(load: Load, server: Server) -> Waits:
    """Run the loop over all requests until each has its last token."""
    return _Loop(load, server).run()


class _Loop:
    """The state between two steps."""

    def __init__(self, load: Load, server: Server) -> None:
        self._server = server
        self._arrival, self._prompt = load.arrival.tolist(), load.prompt.tolist()
        # The last token of a prompt is always computed.
        self._done = np.minimum(load.cached, np.maximum(load.prompt - 1, 0)).tolist()
        self._output = load.output.tolist()
        count = len(self._arrival)
        self._first_step, self._first_token, self._finish = ([math.nan] * count for _ in range(3))
        self._next = 0  # the next request to arrive
        self._waiting: deque[int] = deque()
        self._filling: deque[int] = deque()  # prompts that are partly computed
        self._ends: list[tuple[int, int]] = []  # generating requests, by the step of their last token
        self._step = 0
        self._context = 0  # tokens of the generating requests

    def run(self) -> Waits:
        now = 0.0
        while True:
            if not (self._waiting or self._filling or self._ends):
                if self._next == len(self._arrival):
                    break
                now = max(now, self._arrival[self._next])
            self._arrive(now)
            now = self._advance(now)
        first, token = np.array(self._first_step), np.array(self._first_token)
        later = np.array(self._output) - 1
        between = np.divide(np.array(self._finish) - token, later, out=np.full(token.size, np.nan), where=later > 0)
        return Waits(first - np.array(self._arrival), token - first, between)

    def _arrive(self, now: float) -> None:
        while self._next < len(self._arrival) and self._arrival[self._next] <= now:
            self._waiting.append(self._next)
            self._next += 1

    def _advance(self, now: float) -> float:
        """Run one step; give the time at its end."""
        running = len(self._ends)
        alone = self._server.prefill_first and bool(self._filling or self._can_admit(running, 0))
        generating, context = (0, 0) if alone else (running, self._context)
        left = max(0, self._server.budget - generating)
        tokens, pairs = generating, float(context)
        complete: list[int] = []
        still: deque[int] = deque()
        while left > 0 and (self._filling or self._can_admit(running, len(still) + len(complete))):
            one = self._filling.popleft() if self._filling else self._admit(now)
            have, wanted = self._done[one], self._prompt[one]
            took = min(left, wanted - have)
            left, tokens = left - took, tokens + took
            pairs += took * have + took * (took + 1) / 2
            self._done[one] = have + took
            (complete if have + took >= wanted else still).append(one)
        self._filling.extendleft(reversed(still))
        end = now + self._server.step(tokens, pairs, context)
        if not alone:
            self._generate(end)
        for one in complete:
            self._first_token[one] = self._finish[one] = end
            if self._output[one] > 1:
                heappush(self._ends, (self._step + self._output[one] - 1, one))
                self._context += self._prompt[one] + 1
        return end

    def _can_admit(self, generating: int, others: int) -> bool:
        return bool(self._waiting) and generating + len(self._filling) + others < self._server.max_running

    def _admit(self, now: float) -> int:
        one = self._waiting.popleft()
        self._first_step[one] = now
        return one

    def _generate(self, end: float) -> None:
        """Give each generating request its token; those with their last one leave."""
        self._step += 1
        self._context += len(self._ends)
        while self._ends and self._ends[0][0] <= self._step:
            _, one = heappop(self._ends)
            self._finish[one] = end
            self._context -= self._prompt[one] + self._output[one]


def effect(load: Load, server: Server, shape: Shape, timing: Timing) -> Effect | None:
    """Compare the cache with none at three rates; None where the requests span no time."""
    span = float(np.ptp(load.arrival)) if load.arrival.size else 0.0
    if span <= 0:
        return None
    none = Load(load.arrival, load.prompt, np.zeros_like(load.cached), load.output)
    work = [float(prefill_seconds(shape, timing, one.prompt, one.cached).sum()) / span for one in (none, load)]
    queue, ttft = {}, {}
    for factor in (1 - BAND, 1.0, 1 + BAND):
        without, with_cache = (simulate(one.faster(factor), server) for one in (none, load))
        queue[factor] = (_quantiles(without.queue), _quantiles(with_cache.queue))
        ttft[factor] = (_quantiles(without.ttft), _quantiles(with_cache.ttft))
    return Effect((work[0], work[1]), queue, ttft)


def _quantiles(seconds: Floats) -> tuple[float, float]:
    middle, high = np.quantile(seconds, (0.5, 0.95)).tolist()
    return middle, high
