"""Caches under a limit of memory: what a person can count, and laws that hold for every series of requests.

That two of them equal the engines' own code is shown in tests/oracles.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixlint import engines
from prefixlint.caches.blocks import BlockCache
from prefixlint.caches.choose import EVICTIONS, build, is_eviction
from prefixlint.caches.lru import LruCache
from prefixlint.caches.opt import optimum
from prefixlint.caches.pages import POLICIES, PageCache
from prefixlint.caches.slots import SlotCache
from prefixlint.radix import PrefixIndex

from .oracles.traces import play, random_trace


def ids(*pieces):
    """Make tokens: a number for one, (first, count) for a run."""
    parts = [np.arange(p[0], p[0] + p[1]) if isinstance(p, tuple) else np.array([p]) for p in pieces]
    return np.concatenate(parts).astype(np.uint32) if parts else np.empty(0, np.uint32)


def ask(cache, prompt, output=(), namespace=None):
    """One request from its beginning to its end; what it found, None where it was refused."""
    ticket = cache.admit(namespace, prompt)
    if ticket is None:
        return None
    if len(output):
        cache.prefilled(ticket)
        cache.generate(ticket, np.asarray(output, np.uint32))
    cache.finish(ticket)
    return ticket.hit


A, B, C = ids((1000, 40)), ids((2000, 40)), ids((3000, 40))


@pytest.mark.parametrize(("page", "expected"), [(1, [0, 99, 49, 50, 0]), (16, [0, 96, 48, 48, 0])])
def test_sglang_without_pressure(page, expected):
    """The figures of a real server: cold, the same again, half of it, a change in the middle, another first token."""
    cache, prompt = PageCache(10**6, page=page), ids((1000, 100))
    asked = [prompt, prompt, prompt[:50], ids((1000, 50), (7, 30)), ids(5, (1001, 99))]
    assert [ask(cache, p) for p in asked] == expected


def test_sglang_evicts_whole_leaves():
    cache = PageCache(100)
    assert [ask(cache, p) for p in (A, B, A, C, A, B, C)] == [0, 0, 39, 0, 39, 0, 0]
    assert cache.evicted == 120


def test_sglang_a_shared_head_stays_while_tails_go():
    cache = PageCache(60)
    assert [ask(cache, ids((0, 30), (100 * k, 10))) for k in range(1, 6)] == [0, 30, 30, 30, 30]


def test_sglang_generated_tokens_are_found():
    cache = PageCache(1000)
    ask(cache, A, [7, 8, 9])
    assert ask(cache, np.concatenate((A, ids(7, 8, 9, 50)))) == 43


def test_sglang_running_requests_are_not_evicted():
    cache = PageCache(100)
    held = cache.admit(None, A)
    cache.prefilled(held)
    assert ask(cache, B) == 0
    assert ask(cache, C) == 0  # evicts B
    assert cache.admit(None, ids((9000, 61))) is None  # only A could give way
    cache.finish(held)
    assert ask(cache, ids((9000, 61))) == 0


def test_sglang_prompts_of_one_batch_do_not_share():
    cache = PageCache(1000)
    first, second = cache.admit(None, A), cache.admit(None, A)
    assert (first.hit, second.hit) == (0, 0)
    cache.finish(first)
    cache.finish(second)
    assert ask(cache, A) == 39
    assert ask(cache, ids((5000, 960))) == 0  # the second copy was given back: 960 of 1,000 are free


def test_sglang_a_prompt_larger_than_the_pool():
    cache = PageCache(39)
    assert cache.admit(None, A) is None
    assert ask(cache, A[:39]) == 0


def test_sglang_a_policy_decides():
    def after(policy):
        cache = PageCache(100, policy=policy)
        for prompt in (A, A, A, B):
            ask(cache, prompt)
        ask(cache, C)
        return ask(cache, A) > 0

    assert {p: after(p) for p in POLICIES} == {
        "lru": False,
        "lfu": True,
        "fifo": False,
        "mru": True,
        "filo": True,
        "priority": False,
        "slru": True,
    }


def test_vllm_counts_whole_blocks():
    cache = BlockCache(1600, block=16)
    assert [ask(cache, p) for p in (A, A, A[:33], A[:32], ids((1000, 20), (7, 20)))] == [0, 32, 32, 16, 16]


def test_vllm_finds_what_is_still_computed():
    cache = BlockCache(1600, block=16)
    first, second = cache.admit(None, A), cache.admit(None, A)
    assert (first.hit, second.hit) == (0, 32)


def test_vllm_the_tail_goes_before_the_head():
    cache = BlockCache(16 * 5, block=16)  # four usable blocks
    ask(cache, A)  # two full ones and a part, which is used again first
    ask(cache, ids((5000, 33)))  # takes the part, the block that is free, and A's tail
    assert ask(cache, A) == 16


def test_vllm_a_refusal_changes_nothing():
    cache = BlockCache(16 * 5, block=16)
    held = cache.admit(None, A)
    before = cache.free_queue()
    assert cache.admit(None, ids((5000, 64))) is None
    assert cache.free_queue() == before
    cache.finish(held)
    assert ask(cache, ids((5000, 64))) == 0


def test_vllm_generated_blocks_are_found():
    cache = BlockCache(1600, block=16)
    ask(cache, A, range(24))  # 64 tokens
    assert ask(cache, np.concatenate((A, ids((0, 24), 99)))) == 64


@pytest.mark.parametrize("make", [lambda: PageCache(1000), lambda: BlockCache(1000), lambda: LruCache(1000)])
def test_namespaces_share_memory_but_no_text(make):
    cache = make()
    assert [ask(cache, A, namespace=n) for n in ("a", "b")] == [0, 0]
    assert ask(cache, A, namespace="a") > 0


def test_plain_blocks_the_two_ends():
    head, tail = LruCache(3), LruCache(3, first="tail")
    prompt = ids((0, 4))
    assert [ask(head, prompt), ask(head, prompt)] == [0, 0]  # the head is the oldest, and goes
    assert [ask(tail, prompt), ask(tail, prompt)] == [0, 3]


def test_plain_blocks_keep_outputs_where_asked():
    plain, full = LruCache(100, block=4), LruCache(100, block=4, outputs=True)
    for cache, expected in ((plain, 40), (full, 48)):
        ask(cache, A, range(8))
        assert ask(cache, np.concatenate((A, ids((0, 8), 1)))) == expected


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: PageCache(0),
        lambda: PageCache(15, page=16),
        lambda: PageCache(10, page=0),
        lambda: PageCache(10, policy="clock"),
        lambda: BlockCache(16, block=16),
        lambda: BlockCache(-16, block=16),
        lambda: BlockCache(100, block=0),
        lambda: LruCache(3, block=4),
        lambda: LruCache(3, block=0),
        lambda: SlotCache(0),
        lambda: SlotCache(slots=0),
        lambda: optimum([], 3, block=4),
    ],
)
def test_impossible_sizes(wrong):
    with pytest.raises(ValueError, match=r"a pool of|policy|slots"):
        wrong()


def test_the_empty_prompt():
    for cache in (PageCache(10), BlockCache(64, block=16), LruCache(10), SlotCache()):
        assert [ask(cache, ids()), ask(cache, ids())] == [0, 0]


@pytest.mark.parametrize(
    ("cache", "most"),
    [
        (PageCache(100), 100),
        (PageCache(100, page=16), 96),
        (BlockCache(100, block=16), 80),
        (SlotCache(100), 100),
    ],
)
def test_what_fits(cache, most):
    assert cache.fits(most)
    assert not cache.fits(most + 1)
    assert ask(cache, ids((0, most))) == 0
    assert LruCache(1).fits(1000)
    assert SlotCache().fits(10**9)


def test_each_engine_has_its_cache():
    kinds = {n: type(build(engines.load(n), 10_000, None)).__name__ for n in ("sglang", "vllm", "ideal", "llama.cpp")}
    assert kinds == {"sglang": "PageCache", "vllm": "BlockCache", "ideal": "LruCache", "llama.cpp": "SlotCache"}
    assert build(engines.load("sglang"), None, None) is None
    assert build(engines.load("anthropic"), 10_000, None) is None
    assert set(EVICTIONS) == {*POLICIES, "tlru:1000+200", "opt"}
    assert all(map(is_eviction, EVICTIONS))


@pytest.mark.parametrize("name", ["tlru", "tlru:0", "tlru:5+5", "tlru:x", "best", ""])
def test_what_is_no_policy(name):
    assert not is_eviction(name)
    with pytest.raises(ValueError, match="no eviction policy"):
        PageCache(100, policy=name)


def test_tail_optimised_lru_lets_go_of_what_a_conversation_can_do_without():
    def hits(policy):
        cache = PageCache(340, policy=policy)
        # a long conversation in two steps, whose second part may be computed again, and an older short one
        found = [ask(cache, ids((5000, 120))), ask(cache, ids((0, 100))), ask(cache, ids((0, 200)))]
        # room for these must come from the old one (lru), or from the long one's tail (tlru)
        found.append(ask(cache, ids((9000, 60))))
        return [*found, ask(cache, ids((5000, 120))), ask(cache, ids((0, 101)))]

    assert hits("lru") == [0, 0, 100, 0, 0, 100]
    assert hits("tlru:100") == [0, 0, 100, 0, 119, 100]


def test_optimum_keeps_what_comes_back():
    one, two, three = (ids(k) for k in (1, 2, 3))
    prompts = [(None, p) for p in (one, two, three, one, two, three)]
    assert optimum(prompts, 2).tolist() == [0, 0, 0, 1, 1, 0]  # three is never stored
    assert [ask(LruCache(2), p) for _, p in prompts] == [0] * 6


prompts_ = st.lists(
    st.tuples(st.sampled_from([None, "n"]), st.lists(st.integers(0, 2), max_size=12)), min_size=1, max_size=25
).map(lambda items: [(n, np.array(tokens, np.uint32)) for n, tokens in items])


def unlimited(prompts):
    trees = {}
    return [trees.setdefault(name, PrefixIndex()).match_insert(prompt, 0).length for name, prompt in prompts]


@settings(max_examples=60, deadline=None)
@given(prompts_, st.integers(1, 3))
def test_laws_of_least_recently_used_blocks_and_of_the_optimum(prompts, block):
    """Both grow with their memory, the optimum is never worse, and neither finds more than there is."""
    most = [n // block * block for n in unlimited(prompts)]
    before = before_best = 0
    for capacity in range(block, 40, block):
        cache = LruCache(capacity, block=block)
        hits = [ask(cache, p, namespace=n) for n, p in prompts]
        best = optimum(prompts, capacity, block=block).tolist()
        assert all(h <= m for h, m in zip(hits, most, strict=True))
        assert all(h <= m for h, m in zip(best, most, strict=True))
        assert before <= sum(hits) <= sum(best)
        assert sum(best) >= before_best
        before, before_best = sum(hits), sum(best)
    big = LruCache(10_000, block=block)
    assert [ask(big, p, namespace=n) for n, p in prompts] == most
    assert optimum(prompts, 10_000, block=block).tolist() == most


@settings(max_examples=60, deadline=None)
@given(prompts_, st.sampled_from([1, 2, 4]), st.sampled_from(POLICIES), st.integers(8, 60))
def test_engines_never_find_more_than_there_is(prompts, size, policy, capacity):
    caps = [max(p.size - 1, 0) for _, p in prompts]
    most = [min(n, c) // size * size for n, c in zip(unlimited(prompts), caps, strict=True)]
    for cache in (PageCache(max(capacity, size), page=size, policy=policy), BlockCache(capacity, block=size)):
        for (namespace, prompt), limit in zip(prompts, most, strict=True):
            hit = ask(cache, prompt, namespace=namespace)
            assert hit is None or hit <= limit
    for cache in (PageCache(10_000, page=size, policy=policy), BlockCache(10_000, block=size)):
        assert [ask(cache, p, namespace=n) for n, p in prompts] == most


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**9))
def test_overlapping_requests_leave_nothing_behind(seed):
    """When all have ended, all memory is free or can be, and the same trace gives the same answers."""
    trace = random_trace(seed, [1, 2, 16])
    pages = [PageCache(trace.capacity, page=trace.granularity) for _ in range(2)]
    assert play(pages[0], trace) == play(pages[1], trace)
    whole = trace.capacity // trace.granularity * trace.granularity
    room = whole if trace.granularity == 1 else whole - trace.granularity
    assert ask(pages[0], ids((10**6, room))) == 0  # nothing is locked any more
    if trace.capacity // trace.granularity > 1:
        blocks = BlockCache(trace.capacity, block=trace.granularity)
        play(blocks, trace)
        assert sorted(blocks.free_queue()) == list(range(trace.capacity // trace.granularity - 1))


@given(st.integers(0, 2**32 - 1), st.integers(4, 12))
@settings(max_examples=60, deadline=None)
def test_vllm_the_queue_is_the_one_that_holds_every_block_from_the_start(seed, blocks):
    """The queue of free blocks beside one list that is kept as vLLM keeps it: taken left, freed right or, bare, left."""
    rng = np.random.default_rng(seed)
    cache = BlockCache(4 * (blocks + 1), block=4)
    queue, running, named = list(range(blocks)), [], set()
    for _ in range(30):
        prompt = np.asarray(rng.integers(0, 2, rng.integers(1, 14)), np.uint32)
        ticket = cache.admit(None, prompt)
        if ticket is not None:
            found, fresh = ticket.blocks[: ticket.hit // 4], ticket.blocks[ticket.hit // 4 :]
            queue = [block for block in queue if block not in found]
            assert fresh == queue[: len(fresh)]
            queue = queue[len(fresh) :]
            named = (named - set(fresh)) | set(ticket.blocks[: prompt.size // 4])
            running.append(ticket)
        if running and (ticket is None or rng.random() < 0.6):
            done = running.pop(int(rng.integers(len(running))))
            cache.finish(done)
            for block in reversed(done.blocks):
                if not any(block in other.blocks for other in running):
                    queue = [*queue, block] if block in named else [block, *queue]
        assert cache.free_queue() == queue
