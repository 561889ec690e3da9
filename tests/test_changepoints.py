"""Changes of level in series of hit rates: planted ones are found at their place, noise has none."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixlint.changepoints import LEAST, changes


def series(seed, *parts, spread=0.15):
    """Give hits and tokens of requests whose rates scatter around the level of each part (requests, level)."""
    random = np.random.default_rng(seed)
    tokens = random.integers(200, 4000, sum(size for size, _ in parts))
    levels = np.repeat([level for _, level in parts], [size for size, _ in parts])
    rates = np.clip(levels + random.normal(0, spread, tokens.size), 0, 1)
    return (tokens * rates).astype(np.int64), tokens.astype(np.int64)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(("before", "after"), [(0.9, 0.3), (0.2, 0.6), (0.8, 0.65)])
def test_a_step_is_found_where_it_is(seed, before, after):
    found = changes(*series(seed, (700, before), (900, after)))
    assert len(found) == 1
    assert abs(found[0] - 700) <= 40


def test_a_clean_step_is_found_to_the_request():
    hits, tokens = series(1, (401, 0.9), (199, 0.1), spread=0.01)
    assert changes(hits, tokens) == [401]


def test_two_steps():
    found = changes(*series(5, (600, 0.8), (500, 0.3), (700, 0.7)))
    assert len(found) == 2
    assert abs(found[0] - 600) <= 40
    assert abs(found[1] - 1100) <= 40


def test_noise_has_no_changes():
    found = [changes(*series(seed, (1500, 0.5), spread=0.3)) for seed in range(60)]
    assert sum(map(bool, found)) <= 2


def test_small_steps_are_none():
    assert changes(*series(1, (800, 0.5), (800, 0.5 + LEAST / 2), spread=0.01)) == []


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=300))
def test_any_series_is_survived(pairs):
    hits = np.array([min(a, b) for a, b in pairs], np.int64)
    tokens = np.array([max(a, b) for a, b in pairs], np.int64)
    found = changes(hits, tokens)
    assert found == sorted(set(found))
    assert all(0 < at < hits.size for at in found)


@pytest.mark.parametrize("size", [0, 1, 5, 11])
def test_short_series_say_nothing(size):
    assert changes(np.zeros(size, np.int64), np.ones(size, np.int64)) == []
