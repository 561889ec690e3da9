"""Prediction of requests as sent, against a cache written down plainly; and why measured differs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixlint import engines
from prefixlint.verify.predict import Cache, Circumstances, Predicted, Sent, cache_of, generated, predict, reason
from prefixlint.verify.prompts import differing
from prefixlint.verify.targets import About, Measured

IDS = st.lists(st.integers(0, 2), min_size=1, max_size=12)
SALTS = st.sampled_from([None, "a"])


def ids(*values: int) -> np.ndarray:
    return np.array(values, np.uint32)


def one(tokens, output=(), *, salt=None, start=0.0, first=None, done=None, **more) -> Sent:
    first = start if first is None else first
    return Sent(ids(*tokens), ids(*output), salt, start, first, first if done is None else done, **more)


def plain(sent: list[Sent], page: int) -> list[int]:
    """Longest common prefix with anything before, never the last token, whole pages."""
    found = []
    for number, request in enumerate(sent):
        best = 0
        for earlier in sent[:number]:
            if earlier.namespace != request.namespace:
                continue
            whole = [*earlier.ids.tolist(), *earlier.output.tolist()]
            length = 0
            while length < min(len(whole), request.ids.size) and whole[length] == request.ids[length]:
                length += 1
            best = max(best, length)
        found.append(min(best, request.ids.size - 1) // page * page)
    return found


@settings(deadline=None)
@given(
    st.lists(st.tuples(IDS, st.lists(st.integers(0, 2), max_size=4), SALTS), max_size=12), st.sampled_from([1, 2, 4])
)
def test_one_by_one_is_the_longest_common_prefix(rows, page):
    sent = [one(prompt, output, salt=salt) for prompt, output, salt in rows]
    cache = Cache(engines.load("sglang").with_granularity(page))
    assert [p.cached for p in predict(sent, cache, one_by_one=True)] == plain(sent, page)


@settings(deadline=None)
@given(st.lists(st.tuples(IDS, st.floats(0, 5), st.floats(0, 3)), max_size=10), st.sampled_from(["sglang", "vllm"]))
def test_with_several_at_once_the_bounds_hold(rows, engine):
    """Whatever of what ran at the same time was stored: nothing, or all of it."""
    rows = sorted(rows, key=lambda row: row[1])
    sent = [one(prompt, start=start, first=start + lasted, done=start + lasted) for prompt, start, lasted in rows]
    cache = Cache(engines.load(engine).with_granularity(1))
    for number, found in enumerate(predict(sent, cache, one_by_one=False)):
        before = [other for other in sent[:number] if other.done < sent[number].start]
        beside = [
            o for o in sent if o is not sent[number] and o.start < sent[number].done and o.done > sent[number].start
        ]
        assert found.least <= found.cached <= found.most
        assert found.least <= plain([*before, sent[number]], 1)[-1] or any(o.done == sent[number].start for o in sent)
        assert found.most >= plain([*before, *beside, sent[number]], 1)[-1]


def test_the_in_flight_rule_is_the_engines_own():
    prompt = range(20)
    sent = [one(prompt, start=0, first=2, done=2), one(prompt, start=1, first=3, done=3), one(prompt, start=5)]
    for engine, cached in (("sglang", [0, 0, 19]), ("vllm", [0, 19, 19])):
        found = predict(sent, Cache(engines.load(engine).with_granularity(1)), one_by_one=False)
        assert [p.cached for p in found] == cached
        assert (found[1].least, found[1].most) == (0, 19)
        assert (found[0].least, found[0].most) == (0, 19)  # the second may have been looked up, and stored, first
        assert (found[2].least, found[2].most) == (19, 19)


def test_a_pool_evicts():
    sent = [one(range(100 * n, 100 * n + 50)) for n in (1, 2, 3, 1)]
    unlimited = predict(sent, Cache(engines.load("sglang")), one_by_one=True)
    limited = predict(sent, Cache(engines.load("sglang"), capacity=110), one_by_one=True)
    assert (unlimited[3].cached, limited[3].cached) == (49, 0)
    assert limited[3].evicted > 0


def test_slots_hold_one_sequence_each_and_no_namespaces():
    about = About("llama.cpp", "llama.cpp", "llama.cpp", flags={"slots": 1}, block_size=1, context=2048)
    cache = cache_of(about)
    sent = [one([1, 2, 3, 4]), one([9, 8, 7]), one([1, 2, 3, 4]), one([1, 2, 3, 4, 5], salt="other")]
    assert [p.cached for p in predict(sent, cache, one_by_one=True)] == [0, 0, 0, 4]
    two = cache_of(replace(about, flags={"slots": 2}))
    assert [p.cached for p in predict(sent[:3], two, one_by_one=True)] == [0, 0, 3]


def test_rules_come_from_what_the_server_says():
    about = About(
        "sglang",
        "SGLang",
        "sglang",
        flags={"radix_eviction_policy": "lfu", "chunked_prefill_size": 512},
        block_size=16,
        capacity_tokens=900,
    )
    cache = cache_of(about)
    assert (cache.engine.granularity, cache.engine.prefill_chunk, cache.capacity, cache.eviction) == (
        16,
        512,
        900,
        "lfu",
    )
    assert cache_of(replace(about, caches=False)) is None
    assert cache_of(replace(about, engine=None)) is None


def test_generated_tokens_but_the_last_are_stored():
    told = Measured(output_tokens=3, output_ids=(7, 8, 9))
    assert generated(told, ids()).tolist() == [7, 8]
    assert generated(Measured(output_tokens=3), ids(4, 5)).tolist() == [4, 5]  # the stop token has no text
    assert generated(Measured(output_tokens=2), ids(4, 5)).tolist() == [4]
    assert generated(Measured(output_tokens=1), ids(4)).size == 0
    assert generated(None, ids(4)).size == 0


@pytest.mark.parametrize(
    ("measured", "around", "word", "explained"),
    [
        (8, Circumstances(), None, True),
        (None, Circumstances(), None, True),
        (9, Circumstances(), "unexplained", False),
        (7, Circumstances(), "unexplained", False),
        (9, Circumstances(shared_server=True), "cached by others", True),
        (7, Circumstances(after_failure=True), "a request before it failed", True),
        (7, Circumstances(evicts=True), "evicted", False),
        (7, Circumstances(evicts=True, concurrent=True), "evicted", True),
    ],
)
def test_reasons(measured, around, word, explained):
    why, known = reason(one(range(10), prompt=10, cached=measured), Predicted(8, 8, 8), around)
    assert known is explained
    assert why is None if word is None else why.startswith(word)


def test_between_the_bounds_is_in_flight_and_other_counts_come_first():
    assert reason(one(range(10), prompt=10, cached=5), Predicted(8, 0, 8), Circumstances())[0].startswith("in flight")
    why, explained = reason(one(range(10), prompt=11, cached=5), Predicted(8, 0, 8), Circumstances(after_failure=True))
    assert why.startswith("counted otherwise")
    assert not explained


@settings(deadline=None)
@given(IDS, IDS)
def test_the_first_differing_token(ours, theirs):
    at = differing(ids(*ours), ids(*theirs))
    if at is None:
        assert ours == theirs
    else:
        assert ours[:at] == theirs[:at]
        assert ours[at : at + 1] != theirs[at : at + 1]


def test_vllm_has_one_block_less_than_it_counts_and_not_two():
    """As the server counts: six blocks, of which it keeps one; five hold a prompt of two and one of three."""
    about = About("vllm", "vLLM", "vllm", block_size=4, capacity_tokens=6 * 4)
    sent = [one(range(9)), one(range(100, 112)), one(range(9))]
    assert [p.cached for p in predict(sent, cache_of(about), one_by_one=True)] == [0, 0, 8]
    less = cache_of(replace(about, capacity_tokens=5 * 4))
    assert predict(sent, less, one_by_one=True)[2].cached < 8
