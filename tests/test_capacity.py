"""Curves of reuse: against direct simulation of every pool, against published rows, and under hostile input."""

from __future__ import annotations

import gzip
import json
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixlint.accesses import Recorder, Sample
from prefixlint.capacity import (
    Curve,
    blocks_above,
    capacity_curve,
    last_use,
    replica_hits,
    routed,
    sampled_error,
    ttl_curve,
    write_ttl_hits,
)
from prefixlint.model import BlockHashes

TRACE = Path(__file__).parent.parent / "fixtures" / "traces" / "mooncake-conversation.jsonl.gz"
BLOCK = 512

# ---- the direct simulation: sequences of tokens, one cache of blocks, one capacity at a time


def paths(ids, size):
    """The blocks of a sequence, each named by all tokens up to its end."""
    return [tuple(ids[:end]) for end in range(size, len(ids) + 1, size)]


def direct(requests, capacity, size, order, cap, *, seen=None):
    """Hit tokens of each request with a pool of `capacity` blocks, looked at request by request."""
    pool, hits = OrderedDict(), []
    for namespace, prompt, output in requests:
        blocks = [(namespace, p) for p in paths([*prompt, *output], size)]
        limit = max(0, len(prompt) - 1) // size if cap else len(prompt) // size
        if order == "tail_first":
            found = 0
            while found < limit and blocks[found] in pool:
                found += 1
            for block in reversed(blocks):
                pool[block] = None
                pool.move_to_end(block)
            while len(pool) > capacity:
                pool.popitem(last=False)
        else:
            found = 0
            for index, block in enumerate(blocks):
                if block in pool:
                    found += index < limit
                    pool.move_to_end(block)
                else:
                    pool[block] = None
                    if len(pool) > capacity:
                        pool.popitem(last=False)
        hits.append(found * size)
    return hits


def recorded(requests):
    recorder = Recorder()
    for namespace, prompt, output in requests:
        recorder.add(namespace, np.array(prompt, np.uint32), np.array(output, np.uint32) if output else None)
    return recorder


tokens = st.lists(st.integers(0, 2), max_size=14)
logs = st.lists(st.tuples(st.integers(0, 1), tokens, st.lists(st.integers(0, 2), max_size=5)), max_size=14)
orders = st.sampled_from(["tail_first", "head_first"])


@settings(max_examples=300, deadline=None)
@given(logs, st.integers(1, 4), orders, st.booleans())
def test_one_pass_equals_the_direct_simulation_at_every_capacity(requests, size, order, cap):
    curve = capacity_curve(recorded(requests).accesses(size, cap=cap), order)
    most = sum(len(p) + len(o) for _, p, o in requests) // size + 2
    for capacity in range(1, most):
        assert curve.hit(capacity * size) == sum(direct(requests, capacity, size, order, cap))


@settings(max_examples=100, deadline=None)
@given(logs, st.integers(1, 3), orders, st.data())
def test_requests_left_out_of_the_sums_stay_in_the_cache(requests, size, order, data):
    counted = np.array([data.draw(st.booleans()) for _ in requests], bool)
    curve = capacity_curve(recorded(requests).accesses(size), order, counted=counted)
    for capacity in (1, 3, 9):
        hits = np.array(direct(requests, capacity, size, order, True), int)
        assert curve.hit(capacity * size) == hits[counted].sum()


@settings(max_examples=100, deadline=None)
@given(logs, st.integers(1, 3), orders)
def test_laws(requests, size, order):
    accesses = recorded(requests).accesses(size)
    curve = capacity_curve(accesses, order)
    at = np.arange(0, 300)
    hits = curve.hit(at)
    assert (np.diff(hits) >= 0).all()
    assert curve.hit(0) == 0
    assert hits[-1] == curve.ceiling <= sum(len(p) for _, p, _ in requests)
    everywhere = replica_hits(accesses, np.zeros(len(requests), np.int64))
    assert everywhere == curve.ceiling
    for count in (2, 3):
        for route in ("round-robin", "random"):
            assert replica_hits(accesses, routed(route, len(requests), count)) <= everywhere
    if curve.ceiling:
        for share in (0.5, 0.9, 1.0):
            reached = curve.reach(share)
            assert curve.hit(reached) >= share * curve.ceiling - 1e-6
            assert reached == size or curve.hit(reached - size) < share * curve.ceiling
        assert size <= curve.knee() <= curve.reach(1.0)
        assert curve.points(5)[-1] == curve.reach(1.0)
    else:
        assert (curve.reach(0.9), curve.knee(), curve.points(5).size) == (None, None, 0)


@settings(max_examples=100, deadline=None)
@given(logs, st.integers(1, 3), st.integers(1, 6), st.integers(1, 3))
def test_replicas_with_pools_of_their_own(requests, size, capacity, count):
    replica = routed("random", len(requests), count, seed=7)
    wanted = sum(
        sum(
            direct(
                [r for r, at in zip(requests, replica, strict=True) if at == one], capacity, size, "tail_first", True
            )
        )
        for one in range(count)
    )
    accesses = recorded(requests).accesses(size)
    assert replica_hits(accesses, replica, capacity=capacity * size) == wanted


def direct_ttl(requests, times, lifetime, size, *, sliding):
    written, hits = {}, 0
    for (namespace, prompt, output), now in zip(requests, times, strict=True):
        limit, alive = max(0, len(prompt) - 1) // size, True
        for index, block in enumerate(paths([*prompt, *output], size)):
            key = (namespace, block)
            lives = key in written and now - written[key] <= lifetime
            alive &= lives
            hits += size * (alive and index < limit)
            if sliding or not lives:
                written[key] = now
    return hits


@settings(max_examples=150, deadline=None)
@given(logs, st.integers(1, 3), st.data())
def test_lifetimes_equal_the_direct_simulation(requests, size, data):
    times = sorted(data.draw(st.lists(st.integers(0, 20), min_size=len(requests), max_size=len(requests))))
    accesses, when = recorded(requests).accesses(size), np.array(times, float)
    steps = [0, 1, 3, 10, 20]
    sliding = ttl_curve(accesses, when)
    assert sliding.hit(steps).tolist() == [direct_ttl(requests, times, s, size, sliding=True) for s in steps]
    writes = write_ttl_hits(accesses, when, steps)
    assert writes.tolist() == [direct_ttl(requests, times, s, size, sliding=False) for s in steps]
    assert (writes <= sliding.hit(steps)).all()


# ---- the public trace


@pytest.fixture(scope="module")
def trace():
    with gzip.open(TRACE, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


@pytest.fixture(scope="module")
def recorder(trace):
    recorder = Recorder()
    for row in trace:
        hashes, length = row["hash_ids"], row["input_length"]
        sizes = [*[BLOCK] * (len(hashes) - 1), length - BLOCK * (len(hashes) - 1)]
        recorder.add_blocks(None, BlockHashes(hashes, sizes, BLOCK))
    return recorder


@pytest.fixture(scope="module")
def accesses(recorder):
    return recorder.accesses(cap=False)


@pytest.fixture(scope="module")
def times(trace):
    return np.array([row["timestamp"] / 1000 for row in trace])


@pytest.fixture(scope="module")
def blocks(accesses):
    """The stream with every block weighing one, as the trace's rows count."""
    return replace(accesses, unit=np.ones_like(accesses.unit), short=np.zeros_like(accesses.short))


def test_trace_is_the_published_one(accesses):
    curve = capacity_curve(accesses, "head_first", weight="blocks")
    assert (accesses.prompt.size, curve.total, curve.ceiling) == (12_031, 288_500, 105_710)
    assert capacity_curve(accesses).rate(1e12) == pytest.approx(0.37362, abs=5e-6)
    first = np.unique(accesses.atom, return_index=True)[1]
    assert accesses.size[first].sum() == 182_790


@pytest.mark.parametrize(
    ("capacity", "rate"),
    [(1_000, 0.0445), (5_859, 0.1355), (10_000, 0.2112), (30_000, 0.3257), (50_000, 0.3546), (100_000, 0.3637)],
)
def test_lru_rows(accesses, capacity, rate):
    curve = capacity_curve(accesses, "head_first", weight="blocks")
    assert float(curve.rate(capacity * BLOCK)) == pytest.approx(rate, abs=5e-5)


@pytest.mark.parametrize(("percent", "rate"), [(1, 0.0523), (5, 0.1954), (10, 0.2784), (25, 0.3535), (50, 0.3631)])
def test_lru_at_fractions_of_the_unique_blocks(accesses, percent, rate):
    curve = capacity_curve(accesses, "head_first", weight="blocks")
    assert float(curve.rate(182_790 * percent // 100 * BLOCK)) == pytest.approx(rate, abs=5e-5)


def test_another_simulators_hit_tokens_of_the_last_half(accesses):
    counted = np.arange(12_031) >= 12_031 // 2
    curve = capacity_curve(accesses, "tail_first", counted=counted)
    hits = curve.hit(np.array([1_000, 5_859, 10_000, 20_000, 30_000]) * BLOCK)
    assert hits.tolist() == [3_173_822, 9_286_131, 14_910_149, 20_586_572, 23_347_784]


STEPS = (10, 60, 300, 600, 1_800, 3_600)


def test_sliding_lifetime_rows(blocks, times):
    rates = ttl_curve(blocks, times).hit(STEPS) / 288_500
    assert rates == pytest.approx([0.0428, 0.1034, 0.2877, 0.3434, 0.3635, 0.3664], abs=5e-5)


def test_lifetime_from_the_write_rows(blocks, times):
    rates = write_ttl_hits(blocks, times, STEPS) / 288_500
    assert rates == pytest.approx([0.0418, 0.0934, 0.2484, 0.3044, 0.3555, 0.3664], abs=5e-5)


@pytest.mark.parametrize(("replicas", "rate"), [(1, 0.366), (2, 0.271), (4, 0.192), (8, 0.136), (16, 0.099)])
def test_round_robin_rows(blocks, replicas, rate):
    hits = replica_hits(blocks, routed("round-robin", 12_031, replicas))
    assert hits / 288_500 == pytest.approx(rate, abs=5e-4)


def test_pools_that_reach_a_share_of_the_ceiling(accesses):
    curve = capacity_curve(accesses, "head_first")
    for share in (0.9, 0.95, 0.99):
        pool = curve.reach(share)
        assert curve.hit(pool) >= share * curve.ceiling > curve.hit(pool - BLOCK)
    assert curve.reach(0.9) <= curve.knee() <= curve.reach(0.99)


# ---- samples


@pytest.mark.parametrize("rate", [0.5, 0.2])
@pytest.mark.parametrize("order", ["head_first", "tail_first"])
def test_a_sample_is_near_and_knows_its_error(recorder, accesses, rate, order):
    sampled = recorder.accesses(cap=False, sample=Sample(rate))
    assert sampled.request.size < accesses.request.size * (rate + 0.25)
    exact, curve = capacity_curve(accesses, order), capacity_curve(sampled, order)
    at = np.array([2_000, 5_859, 10_000, 30_000, 50_000, 100_000, 200_000]) * float(BLOCK)
    error = sampled_error(recorder, sampled, curve, at, cap=False, order=order)
    off = np.abs(curve.rate(at) - exact.rate(at))
    assert (error > 0).all()
    assert (off < 0.015).all()
    assert (off < 4 * error + 0.002).all()


def test_a_stream_beyond_the_limit_is_sampled(recorder):
    sampled = recorder.accesses(cap=False, limit=10_000)
    assert sampled.rate == pytest.approx(10_000 / 37_454, rel=0.01)
    assert recorder.accesses(cap=False, limit=40_000).sample is None


def test_an_exact_curve_has_no_error(recorder, accesses):
    curve = capacity_curve(accesses)
    assert sampled_error(recorder, accesses, curve, np.array([1.0]), cap=False, order="tail_first") is None


def test_the_parts_of_a_sample_make_the_whole():
    whole = np.diff(Sample(0.4).before(5_000)[np.arange(5_001)])
    parts = [np.diff(Sample(0.4, group, 4).before(5_000)[np.arange(5_001)]) for group in range(4)]
    assert (sum(parts) == whole).all()
    assert whole.mean() == pytest.approx(0.4, abs=0.03)


# ---- single pieces


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 9)), max_size=60))
def test_blocks_above_counts_distinct_ones(touches):
    """A stream of requests with one atom each: what lies above is what was used since."""
    atom = np.array([a for a, _ in touches], np.int64)
    size = np.array([dict(touches)[a] for a, _ in touches], np.int64)
    n = np.arange(atom.size)
    ones = np.ones(atom.size)
    from prefixlint.accesses import Accesses

    stream = Accesses(n, atom, size, size, ones, 0 * ones, ones, size, size, 1)
    for order in ("tail_first", "head_first"):
        above = blocks_above(stream, order)
        for i, a in enumerate(atom.tolist()):
            earlier = [j for j in range(i) if atom[j] == a]
            since = {int(atom[j]): int(size[j]) for j in range(earlier[-1] + 1, i)} if earlier else {}
            assert above[i] == (sum(since.values()) if earlier else -1)


def test_last_use():
    assert last_use(np.array([5, 3, 5, 5, 3])).tolist() == [-1, -1, 0, 2, 1]
    assert last_use(np.empty(0, np.int64)).size == 0


def test_nothing_recorded():
    accesses = Recorder().accesses(16)
    curve = capacity_curve(accesses)
    assert (curve.total, curve.ceiling, curve.knee(), curve.reach(0.9)) == (0, 0, None, None)
    assert curve.rate(1000) == 0
    assert ttl_curve(accesses, np.empty(0)).hit(5) == 0
    assert replica_hits(accesses, np.empty(0, np.int64)) == 0


def test_empty_prompts_take_no_part():
    recorder = recorded([(0, [], []), (0, [1, 2, 3], []), (0, [], []), (0, [1, 2, 3], [])])
    curve = capacity_curve(recorder.accesses(1))
    assert (curve.total, curve.ceiling) == (6, 2)


def test_capacity_is_floored_to_blocks():
    recorder = recorded([(0, list(range(40)), []), (0, list(range(40)), [])])
    curve = capacity_curve(recorder.accesses(16), "tail_first")
    assert curve.hit([0, 15, 16, 31, 32, 1e9]).tolist() == [0, 0, 16, 16, 32, 32]
    assert curve.reach(0.9) == 32


def test_times_that_are_unknown_or_run_backwards_are_refused():
    accesses = recorded([(0, [1, 2], []), (0, [1, 2], [])]).accesses(1)
    with pytest.raises(ValueError, match="needs the time"):
        ttl_curve(accesses, np.array([1.0, np.nan]))
    with pytest.raises(ValueError, match="backwards"):
        write_ttl_hits(accesses, np.array([2.0, 1.0]), [5])


def test_routes():
    assert routed("round-robin", 5, 2).tolist() == [0, 1, 0, 1, 0]
    assert routed("random", 50, 3, seed=1).tolist() == routed("random", 50, 3, seed=1).tolist()
    sessions = np.array([0, 1, 0, 2, 1])
    by_session = routed("session", 5, 4, sessions=sessions)
    assert by_session[0] == by_session[2]
    assert by_session[1] == by_session[4]
    with pytest.raises(ValueError, match="0 replicas"):
        routed("random", 5, 0)
    with pytest.raises(ValueError, match="needs sessions"):
        routed("session", 5, 2)


def test_hashes_count_by_their_path_where_they_are_no_prefix_hashes():
    recorder = Recorder()
    for hashes in (["a", "x"], ["b", "x"], ["b", "x"], ["a", "x", "x"]):
        recorder.add_blocks(None, BlockHashes(hashes, [4] * len(hashes), 4, prefixed=False))
    curve = capacity_curve(recorder.accesses(cap=False), weight="blocks")
    assert (curve.total, curve.ceiling) == (9, 4)


def test_namespaces_share_no_blocks():
    recorder = Recorder()
    for namespace in ("one", "two", "one"):
        recorder.add_blocks(namespace, BlockHashes([1, 2], [4, 3], 4))
    assert capacity_curve(recorder.accesses(cap=False)).ceiling == 7
    assert capacity_curve(recorder.accesses(cap=True)).ceiling == 4


def test_a_curve_without_points_is_flat():
    empty = np.empty(0)
    assert Curve(empty, empty, empty, 10.0).rate([1, 2]).tolist() == [0, 0]
