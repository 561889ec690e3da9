"""Limited caches over series of requests: laws, overlap, waiting, replicas, scaled counts."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixlint import engines
from prefixlint.caches.marks import Marks
from prefixlint.fleet import Limits, follow
from prefixlint.lives import Visit
from prefixlint.losses import Outcome, serve
from prefixlint.model import MissCause
from prefixlint.simulate import Arrival, lookup, misses, run, scaled

NAMES = [n for n in engines.names() if not engines.load(n).usage_only]


def ids(*pieces):
    parts = [np.arange(p[0], p[0] + p[1]) if isinstance(p, tuple) else np.array([p]) for p in pieces]
    return np.concatenate(parts).astype(np.uint32)


def replay(name, visits, limits=None, factors=None):
    engine = engines.load(name)
    arrivals = [Arrival(i, v.namespace, v.prompt, v.output) for i, v in enumerate(visits)]
    base = run(arrivals, [engine]).engines[engine.name]
    if factors is not None:
        base = scaled(base, factors)
    factors = np.ones(len(visits)) if factors is None else factors
    return base, serve(lambda: visits, [(base, limits or Limits())], factors)[0]


def cached(name, visits, limits=None):
    return replay(name, visits, limits)[1].served.cached.tolist()


def losses(outcome, index):
    return {c: int(t[index]) for c, t in misses(outcome.served).items() if t[index]}


visits_ = st.lists(
    st.builds(
        lambda text, out, wait, first, more, session: (text, out, wait, first, more, session),
        st.text("ab", max_size=14),
        st.text("ab", max_size=5),
        st.integers(0, 4),
        st.integers(0, 3),
        st.integers(0, 6),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=20,
)


def as_visits(drawn):
    now, found = 0, []
    for text, out, wait, first, more, session in drawn:
        now += wait
        prompt, output = (np.frombuffer(t.encode(), np.uint8).astype(np.uint32) for t in (text, out))
        found.append(Visit("m", prompt, output, now, first, first + more, session, f"r{session % 2}", "m"))
    return found


limits_ = st.builds(
    Limits,
    capacity=st.none() | st.integers(64, 200),
    replicas=st.integers(1, 3),
    route=st.sampled_from([None, "random", "session", "prefix", "logged"]),
    ttl=st.none() | st.integers(1, 10),
    from_write=st.booleans(),
)


@settings(max_examples=150, deadline=None)
@given(visits_, limits_, st.sampled_from(NAMES))
def test_every_request_adds_up_and_none_finds_more_than_an_unlimited_cache(drawn, limits, name):
    visits = as_visits(drawn)
    if name == "lmcache" and limits.capacity is not None:
        limits = dataclasses.replace(limits, capacity=512)  # two of its chunks
    base, outcome = replay(name, visits, limits)
    why = misses(outcome.served)
    for i in range(len(visits)):
        account = lookup(outcome.served, i, why)
        assert account.prompt == visits[i].prompt.size
        if base.engine.match != "marked_breakpoint":
            assert account.cached <= base.cached[i]
        assert account.cached <= base.shared[i]
    assert sum(outcome.load) == base.prompt.sum()


@settings(max_examples=60, deadline=None)
@given(visits_, limits_, st.sampled_from(["sglang", "vllm", "llama.cpp", "deepseek"]))
def test_two_runs_are_the_same(drawn, limits, name):
    first, second = (replay(name, as_visits(drawn), limits)[1] for _ in range(2))
    assert first.served.cached.tobytes() == second.served.cached.tobytes()
    assert {c: t.tobytes() for c, t in first.served.losses.items()} == {
        c: t.tobytes() for c, t in second.served.losses.items()
    }


@settings(max_examples=60, deadline=None)
@given(visits_, st.integers(2, 4), st.sampled_from(["round-robin", "random", "session", "prefix"]))
def test_with_unlimited_memory_many_replicas_find_no_more_than_one(drawn, replicas, route):
    visits = [v._replace(first=None, total=None) for v in as_visits(drawn)]
    for name in ("sglang", "vllm", "lmcache"):
        one = cached(name, visits)
        many = cached(name, visits, Limits(replicas=replicas, route=route))
        assert all(m <= o for m, o in zip(many, one, strict=True))


@settings(max_examples=60, deadline=None)
@given(visits_)
def test_enough_memory_changes_nothing(drawn):
    visits = [v._replace(first=None, total=None) for v in as_visits(drawn)]
    for name in ("sglang", "vllm", "lmcache", "ideal"):
        base, outcome = replay(name, visits, Limits(capacity=100_000))
        assert outcome.served.cached.tolist() == base.cached.tolist()


@settings(max_examples=40, deadline=None)
@given(visits_, st.integers(32, 120))
def test_the_optimum_finds_no_less_than_vllm(drawn, capacity):
    visits = [v._replace(first=None, total=None, output=None) for v in as_visits([d for d in drawn for _ in range(2)])]
    best = sum(cached("vllm", visits, Limits(capacity=capacity, eviction="opt")))
    assert best >= sum(cached("vllm", visits, Limits(capacity=capacity)))


A = ids((1000, 64))


def at(time, prompt, first=None, total=None, output=None, **rest):
    return Visit(None, prompt, output, time, first, total, **rest)


def test_what_still_runs():
    """SGLang finds a prompt after its prefill, vLLM from scheduling on; both find what it generated at its end."""
    turn = np.concatenate((A, ids((5000, 32)), ids(1)))
    visits = [at(0, A, 2, 10, ids((5000, 32))), at(1, turn, 2, 3), at(2.5, turn, 2, 3), at(20, turn)]
    assert cached("sglang", visits) == [0, 0, 64, 96]
    assert cached("vllm", visits) == [0, 64, 96, 96]
    _, outcome = replay("sglang", visits[:2])
    assert losses(outcome, 1) == {MissCause.IN_FLIGHT: 96, MissCause.COLD: 1}


def test_a_request_waits_where_it_does_not_fit():
    """The pool holds one of them: the second starts when the first ends, and then finds what it left."""
    visits = [at(0, A, 1, 50), at(1, np.concatenate((A, ids((5000, 20)))), 1, 50)]
    _, outcome = replay("sglang", visits, Limits(capacity=100))
    assert outcome.refused == 0
    assert outcome.served.cached.tolist() == [0, 63 + 1]


def test_larger_than_the_pool():
    visits = [at(0, A), at(1, A), at(2, ids((1000, 30)))]
    _, outcome = replay("sglang", visits, Limits(capacity=40))
    assert outcome.refused == 2
    assert outcome.served.cached.tolist() == [0, 0, 0]
    assert losses(outcome, 1) == {MissCause.EVICTED: 63, MissCause.UNALIGNED: 1}


def test_generated_tokens_take_memory_as_they_come():
    """Of 100 generated tokens half have come at 6 s: then the prompt that was there before has gone."""
    visits = [at(0, ids((9000, 64)), 0, 0), at(1, A, 1, 10, ids((5000, 100))), at(6.5, ids((9000, 64)), 1, 2)]
    assert cached("sglang", visits, Limits(capacity=170)) == [0, 0, 0]
    early = [*visits[:2], visits[2]._replace(time=2.5)]
    assert cached("sglang", early, Limits(capacity=170)) == [0, 0, 63]


def test_a_prompt_is_found_while_its_request_generates_what_the_log_does_not_hold():
    visits = [at(0, A, 1, 50), at(5, A, 1, 2)]
    assert cached("sglang", visits, Limits(capacity=1000)) == [0, 63]
    assert cached("sglang", [visits[0], visits[1]._replace(time=0.5)], Limits(capacity=1000)) == [0, 0]


def test_one_that_is_too_large_stops_no_other():
    """It is refused at once: the request that runs goes on, and is found only when it has ended."""
    visits = [at(0, A, 1, 50, ids((5000, 8))), at(2, ids((9000, 500))), at(3, np.concatenate((A, ids((5000, 9)))))]
    _, outcome = replay("sglang", visits, Limits(capacity=150))
    assert outcome.refused == 1
    assert outcome.served.cached.tolist() == [0, 0, 64]


def test_capacity_is_floored_to_blocks():
    other = ids((9000, 64))
    visits = [at(i, p) for i, p in enumerate((A, other, A))]
    # vLLM: 11 blocks of 16, one of them set aside, hold ten: A's four and six more
    assert cached("vllm", visits, Limits(capacity=16 * 9 + 15)) == [0, 0, 48]
    assert cached("vllm", visits, Limits(capacity=16 * 6)) == [0, 0, 16]


@pytest.mark.parametrize(("seconds", "found"), [(10, [0, 63, 63, 0]), (7, [0, 63, 63, 0]), (6, [0, 63, 0, 0])])
def test_lifetimes(seconds, found):
    visits = [at(t, A) for t in (0, 5, 12, 30)]
    assert cached("sglang", visits, Limits(ttl=seconds)) == found


def test_a_lifetime_from_the_write():
    visits = [at(t, A) for t in (0, 5, 12, 15)]
    assert cached("sglang", visits, Limits(ttl=10, from_write=True)) == [0, 63, 0, 63]
    assert cached("sglang", visits, Limits(ttl=10)) == [0, 63, 63, 63]


def test_the_host_tier_gives_back_what_the_pool_lost():
    prompts = [ids((1000 * k, 64)) for k in (1, 2, 3)] * 2
    visits = [at(i, p) for i, p in enumerate(prompts)]
    assert cached("sglang", visits, Limits(capacity=80)) == [0] * 6
    assert cached("sglang", visits, Limits(capacity=80, host_capacity=200)) == [0, 0, 0, 63, 63, 63]
    assert cached("sglang", visits, Limits(capacity=80, host_capacity=100)) == [0] * 6


def test_replicas():
    visits = [at(i, A, session=i % 2, replica=f"gpu-{i % 2}") for i in range(6)]
    _, outcome = replay("sglang", visits, Limits(replicas=2))
    assert outcome.served.cached.tolist() == [0, 0, 63, 63, 63, 63]
    assert losses(outcome, 1) == {MissCause.REPLICA: 64}
    assert outcome.load == (192, 192)
    _, outcome = replay("sglang", visits, Limits(route="logged"))
    assert (outcome.served.cached.tolist(), outcome.load) == ([0, 0, 63, 63, 63, 63], (192, 192))
    assert cached("sglang", visits, Limits(replicas=2, route="prefix")) == [0, 63, 63, 63, 63, 63]


def test_scaled_counts_are_those_of_the_server():
    """Where a stand-in tokenizer gives half of the tokens, minimum, steps and capacity are the server's."""
    visits = [at(0, ids((0, 600)), model="gpt-4o"), at(1, ids((0, 600), (9000, 10)), model="gpt-4o")]
    assert cached("openai", visits) == [0, 0]
    _, outcome = replay("openai", visits, factors=np.array([2.0, 2.0]))
    assert outcome.served.prompt.tolist() == [1200, 1220]
    assert outcome.served.cached.tolist() == [0, 1152]
    factors = np.full(3, 2.0)
    pool = [at(0, A), at(1, ids((9000, 64))), at(2, A)]
    assert replay("sglang", pool, Limits(capacity=255), factors)[1].served.cached.tolist() == [0, 0, 0]
    assert replay("sglang", pool, Limits(capacity=256), factors)[1].served.cached.tolist() == [0, 0, 126]


def test_without_times_requests_come_one_after_the_other():
    visits = [at(None, A), at(None, A)]
    assert cached("sglang", visits) == [0, 63]


@settings(max_examples=60, deadline=None)
@given(visits_, limits_, st.sampled_from(["sglang", "vllm", "deepseek", "openai"]), st.booleans())
def test_requests_that_do_not_overlap_need_no_second_look(drawn, limits, name, spill):
    limits = dataclasses.replace(limits, spill=spill)
    visits = [v._replace(first=None, total=None) for v in as_visits(drawn)]
    base, expected = replay(name, visits, limits)
    (found,) = serve(lambda: visits, [(base, limits)], np.ones(len(visits)), overlap=False)
    assert found.served.cached.tolist() == expected.served.cached.tolist()
    assert {c: t.tolist() for c, t in found.served.losses.items()} == {
        c: t.tolist() for c, t in expected.served.losses.items()
    }


@pytest.mark.parametrize("name", ["sglang", "vllm", "tensorrt-llm", "lmcache"])
def test_the_host_gives_back_what_the_pool_lost(name):
    size = 512
    prompts = [ids((1000 * i, size)) for i in (0, 1, 2, 0, 1, 2)]
    visits = [Visit("ns", prompt, time=float(i)) for i, prompt in enumerate(prompts)]
    bare = replay(name, visits, Limits(capacity=600))[1].served
    tiers = replay(name, visits, Limits(capacity=600, host_capacity=4 * size))[1].served
    assert bare.cached.sum() == 0
    assert bare.from_host is None
    assert (tiers.cached[3:] >= size - 300).all()
    assert tiers.from_host.tolist() == tiers.cached.tolist()  # the pool itself holds one prompt only
    small = replay(name, visits, Limits(capacity=600, host_capacity=600))[1].served
    # where evicted blocks go to the host, both sizes add up, and heads outlive tails
    assert (small.cached.sum() > 0) == (name == "tensorrt-llm")


@settings(max_examples=60, deadline=None)
@given(visits_, st.integers(6, 60), st.integers(6, 120), st.sampled_from(["sglang", "tensorrt-llm"]))
def test_two_tiers_give_no_less_than_the_host_and_no_more_than_all(drawn, near, host, name):
    visits = as_visits(drawn)
    engine = "sglang" if name == "sglang" else name
    free = replay(engine, visits)[1].served
    capacity, host = near * 32, host * 32
    served = replay(engine, visits, Limits(capacity=capacity, host_capacity=host))[1].served
    assert (served.cached <= free.cached).all()
    assert (served.from_host >= 0).all()
    assert (served.from_host <= served.cached).all()
    account = [sum(losses(Outcome(served, (), 0), i).values()) + served.cached[i] for i in range(len(visits))]
    assert account == served.prompt.tolist()


def keyed(times, keys):
    return [
        Visit("ns", ids((0, 2000), (10_000 + 100 * i, 50)), time=float(t), model="gpt-4o", key=k)
        for i, (t, k) in enumerate(zip(times, keys, strict=True))
    ]


def test_a_provider_machine_takes_its_rate_and_the_next_one_is_cold():
    visits = keyed(range(17), [None] * 17)
    outcome = replay("openai", visits, Limits(spill=True))[1]
    assert outcome.served.cached.tolist() == [0, *[1920] * 14, 0, 1920]
    assert losses(outcome, 15)[MissCause.REPLICA] == 2000
    assert outcome.spilled == 2
    assert replay("openai", visits)[1].served.cached.tolist() == [0, *[1920] * 16]


def test_keys_part_what_one_machine_would_share():
    visits = keyed(range(4), ["a", "b", "a", "b"])
    assert replay("openai", visits, Limits(spill=True))[1].served.cached.tolist() == [0, 0, 1920, 1920]


def test_what_marks_write_and_for_how_long():
    prompt = ids((0, 3000))
    blocks = Marks([1500, 2000, 3000], {0: 3600.0, 2: None})
    visits = [Visit("ns", prompt, time=float(t), model="claude-sonnet-4-5", marks=blocks) for t in (0, 10, 1000)]
    served = replay("anthropic", visits, Limits())[1].served
    assert served.cached.tolist() == [0, 3000, 1500]
    assert served.written.tolist() == [3000, 0, 1500]
    assert served.long.tolist() == [1500, 0, 0]


def test_an_engine_that_knows_no_salts_shares_across_them():
    prompts = [np.arange(100, dtype=np.uint32)] * 2
    visits = [Visit(f"salt{i}", prompt, time=float(i), unsalted="all") for i, prompt in enumerate(prompts)]
    llama, sglang = engines.load("llama.cpp"), engines.load("sglang")
    found = follow(lambda: visits, [(llama, Limits()), (sglang, Limits(capacity=1000))], [1.0] * 2)
    assert [list(each.hit) for each in found] == [[0, 99], [0, 0]]


BLOCKS_OF_32 = dataclasses.replace(engines.load("tensorrt-llm"), granularity=32)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 12)), min_size=1, max_size=30), st.integers(1, 8))
@settings(max_examples=60, deadline=None)
def test_a_host_that_gets_what_is_evicted_adds_to_the_pool(requests, host):
    """TensorRT-LLM's two tiers find what one LRU of both sizes finds, block by block."""
    prompts = [
        np.arange(1000 * family, 1000 * family + 32 * blocks + 1, dtype=np.uint32) for family, blocks in requests
    ]
    pool = 6
    limits = Limits(capacity=32 * pool, host_capacity=32 * host)
    visits = [Visit("ns", prompt, time=float(i)) for i, prompt in enumerate(prompts)]
    (found,) = follow(lambda: visits, [(BLOCKS_OF_32, limits)], [1.0] * len(visits))
    used, expected, near = [], [], []
    for family, blocks in requests:
        names = [(family, i) for i in range(blocks)]
        for size, out in ((pool + host, expected), (pool, near)):
            held = used[-size:]
            out.append(next((i for i, name in enumerate(names) if name not in held), blocks))
        used = [name for name in used if name not in names] + names[::-1]
    assert [hit // 32 for hit in found.hit] == expected
    assert [hit // 32 for hit in found.near] == near


@pytest.mark.parametrize(
    ("write", "order", "hit"),
    [
        ("write_through", "ABA", 100),
        ("write_through_selective", "ABA", 0),  # A was there once only, and went
        ("write_through_selective", "AABA", 99),  # found again before it went
        ("write_back", "ABA", 100),
    ],
)
def test_when_the_host_gets_a_prompt(write, order, hit):
    start = {"A": 0, "B": 1000}
    visits = [
        Visit("ns", np.arange(start[name], start[name] + 100, dtype=np.uint32), time=float(i))
        for i, name in enumerate(order)
    ]
    limits = Limits(capacity=120, host_capacity=400, host_write=write)
    (found,) = follow(lambda: visits, [(engines.load("sglang"), limits)], [1.0] * len(visits))
    assert found.hit[-1] == hit
    assert found.near[-1] == 0
