"""Random traces of requests that overlap, given to an engine's own cache and to ours alike.

A trace is a list of events in the order in which they happen: `Admit` (a request arrives and is looked up), `Prefilled`
(its prompt was computed and it goes on), `Generate` (that many of its tokens were computed), `Finish`. The events of a
request that was refused are left out by whoever plays the trace.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Trace:
    """`requests` are (namespace, prompt, generated tokens); `events` are (kind, request, count)."""

    capacity: int
    granularity: int
    requests: list[tuple[str | None, list[int], list[int]]]
    events: list[tuple[str, int, int]]


def random_trace(seed: int, granularities: list[int]) -> Trace:
    rng = random.Random(seed)
    granularity = rng.choice(granularities)
    requests = _requests(rng)
    longest = max(len(prompt) + len(output) for _, prompt, output in requests)
    low = max(granularity * 3, longest + granularity * 2 if rng.random() < 0.5 else longest // 2)
    return Trace(rng.randint(low, low * 5), granularity, requests, list(_events(rng, requests)))


def _requests(rng: random.Random) -> list[tuple[str | None, list[int], list[int]]]:
    letters = rng.choice([2, 3, 50])
    found: list[tuple[str | None, list[int], list[int]]] = []

    def new(most: int) -> list[int]:
        return [rng.randrange(letters) for _ in range(rng.randint(1, most))]

    for _ in range(rng.randint(8, 40)):
        prompt = new(40)
        namespace = rng.choice([None, None, None, "a", "b"])
        if found and rng.random() < 0.8:
            namespace, old, output = rng.choice(found[-8:])
            whole = old + output
            prompt = whole[: rng.randint(1, len(whole))] if rng.random() < 0.5 else whole
            if rng.random() < 0.8:
                prompt = prompt + new(30)
            prompt = prompt[-200:] if rng.random() < 0.1 else prompt[:200]
            if rng.random() < 0.1:
                namespace = rng.choice([None, "a", "b"])
        found.append((namespace, prompt, new(20) if rng.random() < 0.7 else []))
    return found


def _events(rng: random.Random, requests: list[tuple[str | None, list[int], list[int]]]):
    most = rng.choice([1, 1, 2, 4])
    running: dict[int, list[int]] = {}  # request -> [prefilled, tokens generated]
    waiting = list(range(len(requests)))
    while waiting or running:
        if waiting and len(running) < most and (not running or rng.random() < 0.5):
            running[waiting[0]] = [0, 0]
            yield "admit", waiting.pop(0), 0
            continue
        number = rng.choice(list(running))
        state, total = running[number], len(requests[number][2])
        if not state[0] and (total or rng.random() < 0.3):
            state[0] = 1
            yield "prefilled", number, 0
        elif state[0] and state[1] < total:
            count = rng.randint(1, total - state[1])
            state[1] += count
            yield "generate", number, count
        else:
            del running[number]
            yield "finish", number, 0


def play(cache, trace: Trace) -> list[int | None]:
    """Give what each request finds; None for a request that is refused. A request that cannot go on ends early."""
    tickets, done, hits = {}, {}, {}
    for kind, number, count in trace.events:
        namespace, prompt, output = trace.requests[number]
        if kind == "admit":
            ticket = cache.admit(namespace, np.array(prompt, np.uint32))
            hits[number] = None if ticket is None else ticket.hit
            if ticket is not None:
                tickets[number], done[number] = ticket, 0
        elif number not in tickets:
            continue
        elif kind == "prefilled":
            cache.prefilled(tickets[number])
        elif kind == "generate":
            begun = done[number]
            fitted = cache.generate(tickets[number], np.array(output[begun : begun + count], np.uint32))
            done[number] += fitted
            if fitted < count:
                cache.finish(tickets.pop(number))
        else:
            cache.finish(tickets.pop(number))
    return [hits[number] for number in range(len(trace.requests))]
