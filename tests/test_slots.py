from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixlint.caches.slots import SlotCache


def ids(text):
    return np.frombuffer(text.encode(), np.uint8).astype(np.uint32)


def ask(cache, text, output="", namespace=None):
    ticket = cache.admit(namespace, ids(text))
    if ticket is None:
        return None
    cache.generate(ticket, ids(output))
    cache.finish(ticket)
    return ticket.hit


def test_repeat_change_and_next_turn():
    """The figures of a real server: n - 1 for a repeat, p for a change at p, prompt and output for the next turn."""
    cache = SlotCache(slots=1)
    assert ask(cache, "abcdefghij") == 0
    assert ask(cache, "abcdefghij") == 9
    assert ask(cache, "abcdeXghij", "klm") == 5
    assert ask(cache, "abcdeXghijklmn") == 13


def test_slots_share_nothing():
    cache = SlotCache(slots=2)
    first = cache.admit(None, ids("system one"))
    assert ask(cache, "system two") == 0
    cache.finish(first)
    assert ask(cache, "system two!") == 10


def test_little_in_common_takes_the_least_recently_used_slot():
    cache = SlotCache(slots=2)
    ask(cache, "a" * 20)
    ask(cache, "b" * 20)
    assert ask(cache, "bx" + "y" * 30) == 0  # a tenth of the prompt is not enough: the slot of a is taken
    assert ask(cache, "b" * 20) == 19
    assert ask(cache, "a" * 20) == 0


def test_all_slots_busy():
    cache = SlotCache(slots=1)
    held = cache.admit(None, ids("abc"))
    assert cache.admit(None, ids("abc")) is None
    cache.finish(held)
    assert ask(cache, "abc") == 2


def test_the_host_cache_gives_back_what_a_slot_lost_once():
    cache = SlotCache(slots=1, host=100)
    ask(cache, "a" * 20)
    ask(cache, "b" * 20)
    assert ask(cache, "a" * 20) == 19
    assert ask(cache, "b" * 20) == 19  # swapped again
    without = SlotCache(slots=1)
    assert [ask(without, c * 20) for c in "aba"] == [0, 0, 0]


def test_the_host_cache_drops_the_oldest():
    cache = SlotCache(slots=1, host=30)
    for letter in "abc":
        ask(cache, letter * 20)
    assert ask(cache, "a" * 20) == 0


def test_idle_slots_give_way():
    cache = SlotCache(30, slots=2)
    ask(cache, "a" * 20)
    assert ask(cache, "b" * 20) == 0
    assert ask(cache, "a" * 20) == 0  # the slot of a was emptied for b
    assert ask(cache, "c" * 31) is None
    assert ask(cache, "c" * 29, "d" * 5) == 0  # one of five generated tokens fits
    assert ask(cache, "c" * 29 + "d" * 1) == 29


def test_namespaces_are_apart():
    cache = SlotCache(slots=1)
    ask(cache, "abc", namespace="lora")
    assert ask(cache, "abc") == 0


@settings(max_examples=80, deadline=None)
@given(st.lists(st.text("ab", max_size=8), max_size=20), st.integers(1, 3), st.integers(0, 30))
def test_never_more_than_an_earlier_prompt_had(texts, slots, host):
    cache, earlier = SlotCache(slots=slots, host=host), []
    for text in texts:
        most = (
            max(
                (next((i for i, (a, b) in enumerate(zip(text, e, strict=False)) if a != b), min(len(text), len(e))))
                for e in earlier
            )
            if earlier
            else 0
        )
        assert ask(cache, text) <= min(most, max(len(text) - 1, 0))
        earlier.append(text)


def test_more_host_memory_than_the_law_needs():
    with pytest.raises(ValueError, match="on the host"):
        SlotCache(host=-1)
