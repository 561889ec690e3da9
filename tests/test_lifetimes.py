from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixlint.caches.lifetimes import LifetimeTree
from prefixlint.radix import PrefixIndex
from prefixlint.ways import Ways


def ids(text):
    return np.frombuffer(text.encode(), np.uint8).astype(np.uint32)


class Texts:
    """A tree of texts: those that are looked up or stored must be known from the start, as a log's requests are."""

    def __init__(self, texts, *args, **rest):
        ways = Ways.of((None, ids(text), None) for text in texts)
        self._ways = {text: ways.prompt(i) for i, text in enumerate(texts)}
        self._tree = LifetimeTree(ways.depth, *args, **rest)

    def match(self, text, now, **rest):
        return self._tree.match(self._ways[text], now, **rest)

    def store(self, text, now):
        self._tree.store(self._ways[text], now)


def test_entries_live_to_the_end_of_their_last_second():
    tree = Texts(["abc", "abcd"], 10)
    tree.store("abc", 0)
    assert tree.match("abcd", 10).length == 3
    assert tree.match("abcd", 10.001) == (0, 0, 3)


def test_use_begins_a_sliding_lifetime_again():
    tree = Texts(["abcdef", "abc"], 10)
    tree.store("abcdef", 0)
    tree.match("abc", 8, use=True)
    assert tree.match("abcdef", 12).length == 3
    assert tree.match("abcdef", 19).length == 0


@pytest.mark.parametrize(("sliding", "expected"), [(True, 3), (False, 0)])
def test_writing_again_while_alive(sliding, expected):
    tree = Texts(["abc"], 10, sliding=sliding)
    tree.store("abc", 0)
    tree.store("abc", 8)
    assert tree.match("abc", 12).length == expected


def test_what_has_expired_is_written_anew():
    tree = Texts(["ab", "abcd"], 10, sliding=False)
    tree.store("ab", 0)
    tree.store("abcd", 8)  # ab is alive, cd is new
    assert tree.match("abcd", 12).length == 0  # ab has expired, and what is behind it cannot be reached
    tree.store("ab", 12)
    assert tree.match("abcd", 13).length == 4  # cd was written at 8
    assert tree.match("abcd", 19).length == 2


def test_using_nothing_that_lives_changes_nothing():
    tree = Texts(["abc"], 10)
    tree.store("abc", 0)
    tree.match("abc", 20, use=True)
    assert tree.match("abc", 20).length == 0


def test_whole_units():
    tree = Texts(["aaabbb", "aaaccc", "aaaddd", "aaabbbx", "aaabb"])
    tree.store("aaabbb", 0)
    assert tree.match("aaaccc", 0) == (3, 0, 3)
    tree.store("aaaccc", 0)
    assert tree.match("aaaddd", 0).whole == 3
    assert tree.match("aaabbbx", 0).whole == 6
    assert tree.match("aaabb", 0) == (5, 3, 5)


texts = st.lists(st.text("ab", max_size=10), max_size=30)


@settings(max_examples=100, deadline=None)
@given(texts)
def test_without_a_lifetime_it_is_a_prefix_index(stored):
    tree, index = Texts(stored), PrefixIndex()
    for i, text in enumerate(stored):
        found = tree.match(text, i)
        assert found.length == found.stored == index.match_insert(ids(text), i).length
        assert found.whole <= found.length
        tree.store(text, i)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.text("ab", max_size=8), st.integers(0, 5)), max_size=25), st.integers(1, 12), st.booleans()
)
def test_each_prefix_lives_as_a_dictionary_of_prefixes_says(steps, ttl, sliding):
    tree, since, now = Texts([text for text, _ in steps], ttl, sliding=sliding), {}, 0
    for text, wait in steps:
        now += wait
        alive = 0
        while alive < len(text) and now - since.get(text[: alive + 1], -1000) <= ttl:
            alive += 1
        assert tree.match(text, now).length == alive
        tree.store(text, now)
        for n in range(1, len(text) + 1):
            if sliding or now - since.get(text[:n], -1000) > ttl:
                since[text[:n]] = now
