"""Hash traces through the whole analysis beside a simulation of a few lines: memory, lifetimes, replicas, any of each."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prefixlint import pipeline
from prefixlint.fleet import Limits

BLOCK = 512
# Each request goes down a tree in which a node has three children: equal ids are equal prefixes. Times may be equal.
PATHS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=5), min_size=1, max_size=25)
GAPS = st.lists(st.integers(0, 40), min_size=25, max_size=25)
LAST = st.lists(st.integers(1, BLOCK), min_size=25, max_size=25)


def trace(paths, gaps, last):
    """Give rows of a trace: time in seconds, names of blocks (as their whole path), tokens of each."""
    rows, now = [], 0
    for path, gap, tokens in zip(paths, gaps, last, strict=False):
        now += gap
        names = [tuple(path[: i + 1]) for i in range(len(path))]
        rows.append((now, names, [BLOCK] * (len(path) - 1) + [tokens]))
    return rows


def written(path, rows):
    numbers: dict[tuple, int] = {}
    lines = [
        {
            "timestamp": 1000 * now,
            "input_length": sum(sizes),
            "output_length": 1,
            "hash_ids": [numbers.setdefault(name, len(numbers)) for name in names],
        }
        for now, names, sizes in rows
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def naive(rows, *, blocks=None, ttl=None, from_write=False, replicas=1):
    """Give the hit tokens of each request: whole leading blocks that are there, least recently used ones gone."""
    caches: list[dict[tuple, float]] = [{} for _ in range(replicas)]  # names to times, the least recently used first
    found = []
    for number, (now, names, sizes) in enumerate(rows):
        cache = caches[number % replicas]
        alive = [name in cache and (ttl is None or now - cache[name] <= ttl) for name in names]
        hit = alive.index(False) if False in alive else len(names)
        found.append(sum(sizes[:hit]))
        for name, was_alive in zip(names, alive, strict=True):
            since = cache.pop(name, now)
            cache[name] = since if from_write and was_alive else now
            if blocks is not None and len(cache) > blocks:
                del cache[next(iter(cache))]
    return found


def cached(path, limits):
    result = pipeline.analyze([str(path)], pipeline.Options(engines=["ideal"], limits=limits, what_if=()))
    (ideal,) = result.engines
    assert ideal.cached_tokens + sum(ideal.misses.values()) == ideal.prompt_tokens
    return ideal.cached_tokens


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("traces") / "trace.jsonl"


SOME = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@SOME
@given(paths=PATHS, gaps=GAPS, last=LAST, blocks=st.integers(1, 40))
def test_memory(place, paths, gaps, last, blocks):
    rows = trace(paths, gaps, last)
    assert cached(written(place, rows), Limits(capacity=blocks * BLOCK)) == sum(naive(rows, blocks=blocks))


@SOME
@given(paths=PATHS, gaps=GAPS, last=LAST, ttl=st.integers(1, 200), from_write=st.booleans())
def test_lifetimes(place, paths, gaps, last, ttl, from_write):
    rows = trace(paths, gaps, last)
    expected = sum(naive(rows, ttl=ttl, from_write=from_write))
    assert cached(written(place, rows), Limits(ttl=ttl, from_write=from_write)) == expected


@SOME
@given(paths=PATHS, gaps=GAPS, last=LAST, replicas=st.integers(1, 6), blocks=st.none() | st.integers(1, 40))
def test_replicas(place, paths, gaps, last, replicas, blocks):
    rows = trace(paths, gaps, last)
    limits = Limits(replicas=replicas, capacity=None if blocks is None else blocks * BLOCK)
    assert cached(written(place, rows), limits) == sum(naive(rows, replicas=replicas, blocks=blocks))
