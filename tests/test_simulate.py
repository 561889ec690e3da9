from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixlint import engines
from prefixlint.engines import load
from prefixlint.errors import UsageError
from prefixlint.model import BlockHashes, MissCause
from prefixlint.simulate import (
    NO_OWNER,
    Arrival,
    BlockArrival,
    after_warmup,
    computed_output,
    lookup,
    misses,
    rates,
    run,
    run_blocks,
)

BOTH = [load("sglang"), load("vllm")]
ALL = [*BOTH, load("ideal")]
TOKENS = st.lists(st.integers(0, 1), max_size=40)


def ids(tokens):
    return np.array(list(tokens), np.uint32)


def replay(prompts, which=ALL, **options):
    return run((Arrival(row, None, ids(p)) for row, p in enumerate(prompts)), which, **options)


def common(a, b):
    n = 0
    while n < min(len(a), len(b)) and a[n] == b[n]:
        n += 1
    return n


@given(st.lists(st.tuples(st.sampled_from("ab"), TOKENS, TOKENS), max_size=12), st.integers(1, 20))
def test_every_engine_equals_its_definition(requests, size):
    result = run(
        (Arrival(row, name, ids(prompt), ids(output)) for row, (name, prompt, output) in enumerate(requests)),
        [engine if engine.cap == "none" else engine.with_granularity(size) for engine in ALL],
    )
    for row, (name, prompt, _) in enumerate(requests):
        earlier = [(p, p + o) for other, p, o in requests[:row] if other == name]
        with_output = max((common(prompt, stored) for _, stored in earlier), default=0)
        without = max((common(prompt, stored) for stored, _ in earlier), default=0)
        capped = max(0, min(with_output, len(prompt) - 1))
        assert result.engines["sglang"].cached[row] == capped // size * size
        assert result.engines["vllm"].cached[row] == capped // size * size
        assert result.engines["ideal"].cached[row] == without
    for served in result.engines.values():
        why = misses(served)
        for row, (_, prompt, _) in enumerate(requests):
            assert lookup(served, row, why).prompt == len(prompt)


@pytest.mark.parametrize(
    ("length", "sglang", "vllm"),
    [(0, 0, 0), (1, 0, 0), (15, 14, 0), (16, 15, 0), (17, 16, 16), (32, 31, 16), (33, 32, 32)],
)
def test_one_token_is_always_computed(length, sglang, vllm):
    """A repeated prompt: vLLM loses a whole block where its length is a multiple of 16."""
    result = replay([range(length)] * 2, BOTH)
    assert result.engines["sglang"].cached.tolist() == [0, sglang]
    assert result.engines["vllm"].cached.tolist() == [0, vllm]


def test_namespaces_share_nothing():
    arrivals = [Arrival(i, ns, ids([1, 2, 3, 4])) for i, ns in enumerate([("m", "a"), ("m", "b"), ("m", "a")])]
    served = run(arrivals, BOTH).engines["sglang"]
    assert served.cached.tolist() == [0, 0, 3]
    assert served.owner.tolist() == [NO_OWNER, NO_OWNER, 0]


def test_generated_tokens_are_found_by_the_next_turn():
    first = Arrival(0, None, ids([1, 2, 3]), ids([7, 8]))
    same = Arrival(1, None, ids([1, 2, 3, 7, 8, 4, 5]))
    other = Arrival(2, None, ids([1, 2, 3, 7, 9, 4, 5]))
    served = run([first, same, other], [load("sglang"), load("ideal")]).engines
    assert served["sglang"].cached.tolist() == [0, 5, 4]
    assert served["sglang"].extends.tolist() == [False, True, False]
    assert served["ideal"].cached.tolist() == [0, 3, 4], "ideal counts prompts only"


def test_a_request_does_not_find_its_own_output():
    again = [Arrival(i, None, ids([1, 2]), ids([1, 2, 1, 2])) for i in range(2)]
    served = run(again, [load("sglang")]).engines["sglang"]
    assert served.shared.tolist() == [0, 2]


@pytest.mark.parametrize(
    ("output", "finish", "stops", "stored"),
    [
        ([], "stop", [], []),
        ([5, 6, 99], "stop", [99], [5, 6]),
        ([5, 6], "stop", [99], [5, 6]),
        ([5, 6], "length", [99], [5]),
        ([5, 99], "length", [99], [5]),
        ([5, 6], None, [], [5, 6]),
        ([99], "tool_calls", [98, 99], []),
    ],
)
def test_only_tokens_with_kv_are_stored(output, finish, stops, stored):
    assert computed_output(ids(output), finish, stops).tolist() == stored


def test_causes():
    """Row 1 repeats row 0, row 2 leaves it in the middle, row 3 goes on where row 0 ended, row 4 is new."""
    prompts = [[1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 9, 9, 9], [1, 2, 3, 4, 5, 6], [8, 8]]
    served = replay(prompts).engines["sglang"]
    why = misses(served)
    assert [lookup(served, i, why).misses for i in range(5)] == [
        {MissCause.COLD: 4},
        {MissCause.UNALIGNED: 1},
        {MissCause.DIVERGED: 3},
        {MissCause.COLD: 2},
        {MissCause.COLD: 2},
    ]


def test_a_minimum_hides_short_hits():
    text = "".join(
        f"[{k}]\nvalue = {v}\nsource = 's'\nconfidence = 'convention'\n"
        for k, v in {
            "match": "'longest_prefix'",
            "granularity": 4,
            "cap": "'length_minus_one'",
            "minimum": 8,
            "stored": "'prompt'",
            "visible": "'at_once'",
            "eviction": "'lru_block'",
            "lifetime": "'memory'",
            "isolation": "[]",
        }.items()
    )
    engine = engines.parse("name = 'x'\ntitle = 'x'\nversion = '1'\nas_of = 2026-01-01\n" + text, "x.toml")
    served = replay([range(20), [*range(7), 99], [*range(10), 99]], [engine]).engines["x"]
    assert served.cached.tolist() == [0, 0, 8]
    why = misses(served)
    assert lookup(served, 1, why).misses == {MissCause.TOO_SHORT: 7, MissCause.DIVERGED: 1}
    assert lookup(served, 2, why).misses == {MissCause.UNALIGNED: 2, MissCause.DIVERGED: 1}


def test_rates_by_every_definition():
    """Prompts of 20, 20, 4 and 0 tokens; vLLM's blocks of 16: 2 + 2 + 1 + 0."""
    served = replay([range(20), range(20), range(4), []]).engines["vllm"]
    found = rates(served)
    assert (found.requests, found.prompt_tokens, found.cached_tokens) == (4, 44, 16)
    assert found.hit_rate == pytest.approx(16 / 44)
    assert found.hit_rate_blocks == pytest.approx(1 / 5)
    assert found.hit_rate_mean == pytest.approx((0 + 16 / 20 + 0) / 3)
    assert found.zero_hit_requests == pytest.approx(3 / 4)


def test_unknown_is_none_and_not_zero():
    nothing = rates(replay([]).engines["vllm"])
    assert (nothing.requests, nothing.hit_rate, nothing.hit_rate_blocks) == (0, None, None)
    assert (nothing.hit_rate_mean, nothing.zero_hit_requests) == (None, None)
    empty = rates(replay([[]]).engines["vllm"])
    assert (empty.hit_rate, empty.zero_hit_requests) == (None, 1)


@pytest.mark.parametrize(("warmup", "first"), [(0, 0), (3, 3), (0.5, 5), (0.99, 9), (10, 10), (99, 10)])
def test_warm_up(warmup, first):
    assert list(range(10))[after_warmup(10, warmup)] == list(range(first, 10))


def test_a_negative_warm_up_is_refused():
    with pytest.raises(ValueError, match="warm-up"):
        after_warmup(10, -1)


def test_rates_of_some_requests():
    served = replay([[1, 2], [1, 2], [3, 4]]).engines["ideal"]
    assert rates(served, slice(1, None)).hit_rate == 0.5
    assert rates(served, np.array([False, True, False])).hit_rate == 1
    assert rates(served, np.array([2])).hit_rate == 0


def test_rows_are_the_callers():
    result = run([Arrival(40, None, ids([1, 2])), Arrival(7, None, ids([1, 3]))], BOTH)
    assert result.rows.tolist() == [40, 7]
    assert result.engines["sglang"].owner.tolist() == [NO_OWNER, 40]


def test_block_sizes():
    sized = [engine.with_granularity(64) for engine in BOTH]
    assert replay([range(100)] * 2, sized).engines["sglang"].cached.tolist() == [0, 64]
    with pytest.raises(UsageError):
        BOTH[0].with_granularity(0)


def test_an_engine_is_needed():
    with pytest.raises(ValueError, match="engine"):
        run([], [])
    with pytest.raises(ValueError, match="engine"):
        run_blocks([], [])


def test_prompts_stream_through():
    alive: list[weakref.ref] = []

    def arrivals():
        for row in range(50):
            prompt = ids([1, 2, 3, row])
            alive.append(weakref.ref(prompt))
            yield Arrival(row, None, prompt)
            del prompt
            gc.collect()
            assert sum(ref() is not None for ref in alive) <= 2

    gc.freeze()  # what other tests have made is not to be looked through fifty times
    try:
        assert run(arrivals(), BOTH).distinct == 53
    finally:
        gc.unfreeze()


def test_distinct_counts_prompts_and_stored_outputs():
    assert replay([[1, 2, 3], [1, 2, 4]], [load("ideal")]).distinct == 4
    with_output = run([Arrival(0, None, ids([1]), ids([2])), Arrival(1, None, ids([1, 2, 3]))], BOTH)
    assert with_output.distinct == 3


def blocks(hashes, sizes, **options):
    return BlockHashes(hashes, sizes, 512, **options)


def test_blocks_count_by_path_and_by_their_sizes():
    trace = [
        blocks(["a", "b", "c"], [512, 512, 10]),
        blocks(["x", "b"], [512, 300]),
        blocks(["a", "b", "d"], [512, 512, 9]),
    ]
    result = run_blocks((BlockArrival(i, None, b) for i, b in enumerate(trace)), ALL)
    assert result.engines["ideal"].cached.tolist() == [0, 0, 1024]
    assert result.engines["ideal"].blocks_hit.tolist() == [0, 0, 2]
    assert (result.distinct, result.distinct_blocks) == (1034 + 812 + 9, 6)


def test_a_repeated_trace_request():
    """`ideal` counts the partial last block; vLLM takes full blocks; SGLang all tokens but the last."""
    again = [BlockArrival(i, None, blocks([1, 2], [512, 100])) for i in range(2)]
    result = run_blocks(again, ALL)
    assert [result.engines[e].cached[1] for e in ("ideal", "vllm", "sglang")] == [612, 512, 611]
    assert [result.engines[e].blocks_hit[1] for e in ("ideal", "vllm", "sglang")] == [2, 1, 1]


def test_a_repeated_request_of_full_blocks_loses_the_last_one():
    again = [BlockArrival(i, None, blocks([1, 2], [512, 512])) for i in range(2)]
    assert run_blocks(again, ALL).engines["vllm"].cached.tolist() == [0, 512]


def test_an_empty_trace_request():
    result = run_blocks([BlockArrival(0, None, blocks([], []))], ALL)
    assert all(served.cached.tolist() == [0] for served in result.engines.values())
    assert all(rates(served).hit_rate is None for served in result.engines.values())


requests_ = st.lists(
    st.tuples(st.integers(0, 2), st.lists(st.integers(0, 1), max_size=8), st.lists(st.integers(0, 1), max_size=4)),
    max_size=15,
)


@settings(max_examples=150, deadline=None)
@given(requests_, st.booleans())
def test_what_stores_prompts_alone_finds_the_same_beside_what_stores_outputs_too(requests, salts):
    def arrivals():
        for i, (namespace, prompt, output) in enumerate(requests):
            yield Arrival(50 - i, namespace, np.array(prompt, np.uint32), np.array(output, np.uint32))

    def told(found):
        return lambda kind, *rest: found.setdefault(kind, []).append(rest)

    unsalted = {2: 1} if salts else {}
    lmcache, sglang = load("lmcache"), load("sglang")
    alone_told, beside_told = {}, {}
    alone = run(arrivals(), [lmcache], unsalted=unsalted, on_stored=told(alone_told))
    beside = run(arrivals(), [sglang, lmcache], unsalted=unsalted, on_stored=told(beside_told))
    for name in ("shared", "owner", "extends", "cached"):
        one, other = (getattr(replay.engines["lmcache"], name).tolist() for replay in (alone, beside))
        assert one == other
    kind = ("prompt", True)
    assert beside_told.get(kind, []) == alone_told.get(kind, [])
