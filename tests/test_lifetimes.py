from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixlint.caches.lifetimes import LifetimeTree
from prefixlint.radix import PrefixIndex


def ids(text):
    return np.frombuffer(text.encode(), np.uint8).astype(np.uint32)


def test_entries_live_to_the_end_of_their_last_second():
    tree = LifetimeTree(10)
    tree.store(ids("abc"), 0)
    assert tree.match(ids("abcd"), 10).length == 3
    assert tree.match(ids("abcd"), 10.001) == (0, 0, 3)


def test_use_begins_a_sliding_lifetime_again():
    tree = LifetimeTree(10)
    tree.store(ids("abcdef"), 0)
    tree.match(ids("abc"), 8, use=True)
    assert tree.match(ids("abcdef"), 12).length == 3
    assert tree.match(ids("abcdef"), 19).length == 0


@pytest.mark.parametrize(("sliding", "expected"), [(True, 3), (False, 0)])
def test_writing_again_while_alive(sliding, expected):
    tree = LifetimeTree(10, sliding=sliding)
    tree.store(ids("abc"), 0)
    tree.store(ids("abc"), 8)
    assert tree.match(ids("abc"), 12).length == expected


def test_what_has_expired_is_written_anew():
    tree = LifetimeTree(10, sliding=False)
    tree.store(ids("ab"), 0)
    tree.store(ids("abcd"), 8)  # ab is alive, cd is new
    assert tree.match(ids("abcd"), 12).length == 0  # ab has expired, and what is behind it cannot be reached
    tree.store(ids("ab"), 12)
    assert tree.match(ids("abcd"), 13).length == 4  # cd was written at 8
    assert tree.match(ids("abcd"), 19).length == 2


def test_using_nothing_that_lives_changes_nothing():
    tree = LifetimeTree(10)
    tree.store(ids("abc"), 0)
    tree.match(ids("abc"), 20, use=True)
    assert tree.match(ids("abc"), 20).length == 0


def test_whole_units():
    tree = LifetimeTree()
    tree.store(ids("aaabbb"), 0)
    assert tree.match(ids("aaaccc"), 0) == (3, 0, 3)
    tree.store(ids("aaaccc"), 0)
    assert tree.match(ids("aaaddd"), 0).whole == 3
    assert tree.match(ids("aaabbbx"), 0).whole == 6
    assert tree.match(ids("aaabb"), 0) == (5, 3, 5)


texts = st.lists(st.text("ab", max_size=10), max_size=30)


@settings(max_examples=100, deadline=None)
@given(texts)
def test_without_a_lifetime_it_is_a_prefix_index(stored):
    tree, index = LifetimeTree(), PrefixIndex()
    for i, text in enumerate(stored):
        found = tree.match(ids(text), i)
        assert found.length == found.stored == index.match_insert(ids(text), i).length
        assert found.whole <= found.length
        tree.store(ids(text), i)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.text("ab", max_size=8), st.integers(0, 5)), max_size=25), st.integers(1, 12), st.booleans()
)
def test_each_prefix_lives_as_a_dictionary_of_prefixes_says(steps, ttl, sliding):
    tree, since, now = LifetimeTree(ttl, sliding=sliding), {}, 0
    for text, wait in steps:
        now += wait
        alive = 0
        while alive < len(text) and now - since.get(text[: alive + 1], -1000) <= ttl:
            alive += 1
        assert tree.match(ids(text), now).length == alive
        tree.store(ids(text), now)
        for n in range(1, len(text) + 1):
            if sliding or now - since.get(text[:n], -1000) > ttl:
                since[text[:n]] = now
