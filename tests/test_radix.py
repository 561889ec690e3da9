from __future__ import annotations

import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pygtrie
import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from growth import work

from prefixlint import radix
from prefixlint.radix import NOTHING, Match, PrefixIndex, SharedPrefix

SEQUENCES = st.lists(st.lists(st.integers(0, 2), max_size=12), max_size=30)
"""Few distinct tokens, so that sequences often share, split and end inside one another."""


@pytest.fixture(autouse=True, scope="module", params=[1, 2, 5, radix._SKIP])
def skip(request):
    """Small trees have no skips unless these are short."""
    before, radix._SKIP = radix._SKIP, request.param
    yield request.param
    radix._SKIP = before


def ids(*tokens):
    return np.array(tokens, np.uint32)


def inserted(prompts):
    index = PrefixIndex()
    for row, prompt in enumerate(prompts):
        index.match_insert(prompt, row)


def common(a, b):
    n = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        n += 1
    return n


def naive_match(earlier, sequence):
    length = max((common(e, sequence) for e in earlier), default=0)
    if length == 0:
        return NOTHING
    owner = next(row for row, e in enumerate(earlier) if common(e, sequence) == length)
    return Match(length, owner, any(len(e) == length and common(e, sequence) == length for e in earlier))


@given(SEQUENCES)
def test_equals_a_list_of_all_earlier_sequences(sequences):
    index = PrefixIndex()
    for row, sequence in enumerate(sequences):
        array = np.array(sequence, np.uint32)
        expected = naive_match(sequences[:row], sequence)
        assert index.match(array) == expected
        assert index.match_insert(array, row) == expected
    assert index.distinct == len({tuple(s[: i + 1]) for s in sequences for i in range(len(s))})


@given(SEQUENCES, st.integers(1, 5))
def test_equals_a_trie_of_pages(sequences, page):
    """A page is one key of the trie, so the trie finds whole pages; so must the index, floored."""
    trie, index = pygtrie.Trie(), PrefixIndex()
    for row, sequence in enumerate(sequences):
        pages = [tuple(sequence[at : at + page]) for at in range(0, len(sequence) // page * page, page)]
        found = max((n for n in range(1, len(pages) + 1) if trie.has_node(pages[:n])), default=0)
        length = index.match_insert(np.array(sequence, np.uint32), row).length
        assert length // page == found
        if pages:
            trie[pages] = row


@given(SEQUENCES, st.lists(st.lists(st.integers(0, 2), max_size=4), max_size=30))
def test_output_is_matched_by_later_sequences_only(prompts, outputs):
    index = PrefixIndex()
    stored = []
    for row, prompt in enumerate(prompts):
        output = outputs[row] if row < len(outputs) else []
        found = index.match_insert(np.array(prompt, np.uint32), row, output=np.array(output, np.uint32))
        assert found == naive_match(stored, prompt)
        stored.append(prompt + output)
    for sequence in stored:
        assert index.match(np.array(sequence, np.uint32)) == naive_match(stored, sequence)


@given(SEQUENCES)
def test_shared_prefixes_are_those_that_two_or_more_begin_with(sequences):
    index = PrefixIndex()
    for row, sequence in enumerate(sequences):
        index.match_insert(np.array(sequence, np.uint32), row)
    counts = {}
    for sequence in sequences:
        for n in range(1, len(sequence) + 1):
            counts[tuple(sequence[:n])] = counts.get(tuple(sequence[:n]), 0) + 1
    maximal = [
        (len(prefix), count, next(r for r, s in enumerate(sequences) if tuple(s[: len(prefix)]) == prefix))
        for prefix, count in counts.items()
        if count > 1 and all(counts.get((*prefix, token), 0) < count for token in range(3))
    ]
    maximal.sort(key=lambda p: (-(p[1] - 1) * p[0], p[2], p[0]))
    assert index.shared_prefixes(1000) == [SharedPrefix(*p) for p in maximal]
    assert index.shared_prefixes(2, min_tokens=3) == [SharedPrefix(*p) for p in maximal if p[0] >= 3][:2]


def test_nothing_is_shared_with_nothing():
    index = PrefixIndex()
    assert index.match_insert(ids(), 0) == NOTHING
    assert index.match_insert(ids(), 1) == NOTHING
    assert index.match_insert(ids(7), 2) == NOTHING
    assert index.distinct == 1
    assert index.shared_prefixes(10) == []


def test_identical_requests_extend_one_another():
    index = PrefixIndex()
    index.match_insert(ids(1, 2, 3), 10)
    for row in range(11, 1000):
        assert index.match_insert(ids(1, 2, 3), row) == Match(3, 10, True)
    assert index.distinct == 3
    assert index.shared_prefixes(5) == [SharedPrefix(3, 990, 10)]


def test_a_prefix_of_an_earlier_request_is_no_extension_the_first_time():
    index = PrefixIndex()
    index.match_insert(ids(1, 2, 3), 0)
    assert index.match_insert(ids(1, 2), 1) == Match(2, 0, False)
    assert index.match_insert(ids(1, 2, 9), 2) == Match(2, 0, True)


@pytest.mark.parametrize("at", [0, 1, 511, 512, 513, 1023, 1024, 1025, 4998, 4999])
def test_long_edges_part_at_the_right_token(at):
    index = PrefixIndex()
    first = np.arange(5000, dtype=np.uint32)
    second = first.copy()
    second[at] = 2**32 - 1
    index.match_insert(first, 0)
    assert index.match(second).length == at
    assert index.match_insert(second, 1).length == at
    assert index.match(second) == Match(5000, 1, True)
    assert index.match(first) == Match(5000, 0, True)


def test_ten_thousand_children():
    index = PrefixIndex()
    for row in range(10_000):
        found = index.match_insert(ids(5, row, row), row)
        assert found.length == (1 if row else 0)
    assert index.distinct == 20_001
    assert index.match(ids(5, 9_999, 9_999)) == Match(3, 9_999, True)


def test_a_conversation_of_five_thousand_turns(skip):
    """The tree is as deep as the conversation is long: nothing may recurse, or visit every turn for every turn."""
    index = PrefixIndex()
    turns = 5_000 if skip > 5 else 200
    whole = np.arange(turns * 3, dtype=np.uint32)
    for turn in range(1, turns + 1):
        found = index.match_insert(whole[: turn * 3], turn)
        assert found == Match((turn - 1) * 3, turn - 1 if turn > 1 else None, turn > 1)
    assert index.distinct == whole.size
    assert index.shared_prefixes(1) == [SharedPrefix(turns // 2 * 3, turns // 2 + 1, turns // 2)]
    if skip > 5:
        assert work(inserted, [whole[: turn * 3] for turn in range(1_000)]) < 3 * work(
            inserted, [whole[: turn * 3] for turn in range(500)]
        )


def test_two_long_conversations_that_take_turns():
    """Their ways share the first nodes, so each leads the skips there its own way; both stay right."""
    index = PrefixIndex()
    talks = [np.arange(900, dtype=np.uint32) + np.uint32(start) for start in (0, 0, 5_000)]
    talks[1][450:] += np.uint32(1_000)
    for turn in range(1, 301):
        for number, talk in enumerate(talks):
            found = index.match_insert(talk[: turn * 3], number)
            expected = turn * 3 if number == 1 and turn <= 150 else (turn - 1) * 3
            assert found.length == expected
    for number, talk in enumerate(talks):
        assert index.match(talk) == Match(900, number, True)


def test_keeps_no_array_of_the_caller():
    index = PrefixIndex()
    prompt = ids(1, 2, 3)
    index.match_insert(prompt, 0)
    prompt[:] = 9
    assert index.match(ids(1, 2, 3)).length == 3


def test_memory_follows_the_distinct_tokens():
    """200 prompts of 10,000 tokens with 50 new ones each: 20,000 distinct tokens, though 2 million were handed in."""
    shared = np.arange(10_000, dtype=np.uint32)
    tracemalloc.start()
    try:
        index = PrefixIndex()
        for row in range(200):
            prompt = shared.copy()
            prompt[-50:] += np.uint32(row * 100)
            index.match_insert(prompt, row)
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used < 400_000


def test_many_prompts_are_matched_in_linear_time():
    shared = np.arange(2_000, dtype=np.uint32)
    prompts = [np.concatenate((shared, np.array([row, 1, 2], np.uint32))) for row in range(1_000)]
    assert work(inserted, prompts) < 2.2 * work(inserted, prompts[:500])
