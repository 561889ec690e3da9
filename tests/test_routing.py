from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from prefixlint.routing import ROUTES, Passenger, Spill, router


def passenger(text="abc", session=None, replica=None, namespace=None):
    return Passenger(namespace, np.frombuffer(text.encode(), np.uint8).astype(np.uint32), session, replica)


def test_in_turn():
    choose = router("round-robin", 3)
    assert [choose(passenger(), [0, 0, 0]) for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]


def test_random_is_the_same_for_the_same_seed():
    draws = [
        [router_(passenger(), [0] * 4) for _ in range(400)]
        for router_ in (router("random", 4, 7), router("random", 4, 7))
    ]
    assert draws[0] == draws[1]
    assert draws[0] != [router("random", 4, 8)(passenger(), [0] * 4) for _ in range(400)]
    assert min(Counter(draws[0]).values()) > 50


def test_sessions_stay():
    choose = router("session", 2)
    assert [choose(passenger(session=s), [0, 0]) for s in "abcabcd"] == [0, 1, 0, 0, 1, 0, 1]


def test_logged_replicas_and_those_without_one():
    choose = router("logged", 1)
    assert [choose(passenger(replica=r), [0]) for r in ("gpu-7", "gpu-3", None, "gpu-7", None)] == [0, 1, 2, 0, 2]


def test_prefixes_go_where_they_were_and_new_ones_where_least_is():
    choose = router("prefix", 2)
    idle = [0, 0]
    assert choose(passenger("aaaaaaaaaaaa"), idle) == 0
    assert choose(passenger("bbbb"), idle) == 1
    assert choose(passenger("aaaaaaxx"), idle) == 0
    assert choose(passenger("bbbc"), idle) == 1
    assert choose(passenger("cccc"), idle) == 1  # it has seen less
    # 14 against 9 tokens by now; three of ten is not more than 0.3
    assert choose(passenger("aaa" + "z" * 7), idle) == 1


def test_prefixes_of_another_namespace_are_not_the_same():
    choose = router("prefix", 2)
    assert choose(passenger("aaaa"), [0, 0]) == 0
    assert choose(passenger("aaaa", namespace="salt"), [0, 0]) == 1


def test_prefixes_give_way_to_a_load_that_is_far_from_even():
    choose = router("prefix", 2)
    choose(passenger("aaaa"), [0, 0])
    assert choose(passenger("aaaa"), [65, 0]) == 1
    again = router("prefix", 2)
    again(passenger("aaaa"), [0, 0])
    assert again(passenger("aaaa"), [64, 0]) == 0  # 64 more is not more than 64
    assert again(passenger("aaaa"), [195, 130]) == 0  # nor 1.5 times as many more than 1.5 times


@pytest.mark.parametrize("route", [r for r in ROUTES if r != "logged"])
def test_every_route_stays_in_range(route):
    choose = router(route, 3)
    assert {choose(passenger("ab" * i, session=i), [0, 0, 0]) for i in range(30)} <= {0, 1, 2}


def test_an_unknown_route():
    with pytest.raises(ValueError, match="nearest"):
        router("nearest", 2)


def spilled(spill, moments, *, key=None, head="head"):
    return [spill(passenger(head)._replace(key=key, time=float(moment), head=head[:4])) for moment in moments]


def test_a_provider_sends_what_comes_too_fast_to_further_machines():
    spill = Spill(3)
    assert spilled(spill, [0, 1, 2, 3, 4, 5, 6]) == [0, 0, 0, 1, 1, 1, 2]
    assert spill.spilled == 4
    assert spilled(spill, [65.9]) == [0]  # only the one at 6 s is of the last minute
    assert spill.spilled == 4


def test_a_key_has_machines_of_its_own_and_a_head_has_not():
    spill = Spill(1)
    assert spilled(spill, [0, 0], key="a") == [0, 1]
    assert spilled(spill, [0, 0], key="b") == [2, 3]
    # other heads have a rate of their own; on one machine they do not meet
    assert spilled(spill, [0, 0], key="a", head="tail") == [0, 1]
    # what stands behind the head does not count
    assert spilled(spill, [0], key="a", head="tail and more") == [4]
