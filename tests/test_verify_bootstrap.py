"""How sure a change is: known answers, intervals that hold what they say, and inputs that hold nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixlint.verify.bootstrap import Sample, change, mean, quantile, ratio


def sample(values, conversations=None):
    array = np.atleast_2d(np.array(values, float))
    return Sample([array], range(array.shape[1]) if conversations is None else conversations)


def test_a_change_is_a_share_of_what_was_before():
    found = change(sample([100, 100, 100]), sample([25, 25, 25]), mean)
    assert (found.before, found.after, found.change, found.low, found.high) == (100, 25, -0.75, -0.75, -0.75)
    assert found.sure


def test_points_are_the_difference_of_shares():
    before = Sample([np.array([[10.0, 30.0]]), np.array([[100.0, 100.0]])], "ab")
    after = Sample([np.array([[50.0, 70.0]]), np.array([[100.0, 100.0]])], "ab")
    found = change(before, after, ratio, points=True)
    assert found.points
    assert found.change == pytest.approx(0.4)
    assert (found.before, found.after) == (pytest.approx(0.2), pytest.approx(0.6))
    # each request gained the same, so that nothing is unsure once the same ones are drawn on both sides
    assert (found.low, found.high) == (pytest.approx(0.4), pytest.approx(0.4))


def test_the_same_requests_on_both_sides_cancel_out():
    rng = np.random.default_rng(1)
    base = rng.lognormal(5, 1, (1, 200))
    paired = change(sample(base), sample(base * 0.9), mean)
    apart = change(sample(base), sample(base * 0.9, [f"other {n}" for n in range(200)]), mean)
    assert paired.sure
    assert not apart.sure
    assert paired.high - paired.low < 0.01 < apart.high - apart.low


def test_requests_of_a_conversation_are_drawn_together():
    rng = np.random.default_rng(2)
    values = np.repeat(rng.normal(100, 10, 20), 25)[None]  # 20 conversations of 25 requests that are all alike
    other = np.repeat(rng.normal(100, 10, 20), 25)[None]
    names = np.repeat(np.arange(20), 25).tolist()
    together = change(sample(values, names), sample(other, [f"b{n}" for n in names]), mean)
    alone = change(sample(values), sample(other, [f"b{n}" for n in range(500)]), mean)
    assert together.high - together.low > 2 * (alone.high - alone.low)


def test_rounds_that_differ_make_a_change_unsure():
    calm = change(sample([[100.0] * 50] * 3), sample([[95.0] * 50] * 3), mean)
    noisy = change(sample([[100.0] * 50, [130.0] * 50, [80.0] * 50]), sample([[95.0] * 50] * 3), mean)
    assert calm.sure
    assert not noisy.sure


def test_what_was_not_measured_is_left_out_and_never_zero():
    found = change(sample([np.nan, 10, 20]), sample([5, np.nan, 10]), mean)
    assert (found.before, found.after) == (15, 7.5)
    nothing = change(sample([np.nan, np.nan]), sample([1.0, 2.0]), quantile(0.5))
    assert (nothing.before, nothing.change, nothing.low, nothing.high, nothing.sure) == (None, None, None, None, False)
    assert nothing.after == 1.5


def test_a_ratio_counts_only_requests_of_which_both_parts_are_known():
    one = Sample([np.array([[50.0, np.nan, 0.0]]), np.array([[100.0, 100.0, 100.0]])], "abc")
    assert ratio(one.values) == 0.25
    assert change(one, one, ratio, points=True).change == 0


@pytest.mark.parametrize("shape", [(0, 3), (2, 0), (0, 0)])
def test_no_rounds_and_no_requests_are_unknown(shape):
    empty = Sample([np.empty(shape)], range(shape[1]))
    found = change(empty, sample([1.0]), mean)
    assert (found.before, found.change, found.low) == (None, None, None)


def test_nothing_to_divide_by_is_unknown():
    found = change(sample([0.0, 0.0]), sample([1.0, 1.0]), mean)
    assert (found.before, found.change, found.sure) == (0, None, False)


def test_arrays_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="one shape"):
        Sample([np.zeros((1, 2)), np.zeros((1, 3))], "ab")
    with pytest.raises(ValueError, match="one shape"):
        Sample([np.zeros(3)], "abc")
    with pytest.raises(ValueError, match="conversation"):
        Sample([np.zeros((1, 2))], "abc")


def test_the_interval_holds_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(3)
    held = 0
    for seed in range(60):
        before, after = rng.normal(100, 20, (1, 40)), rng.normal(80, 20, (1, 40))
        found = change(sample(before), sample(after, [f"b{n}" for n in range(40)]), mean, seed=seed, draws=200)
        held += found.low <= -0.2 <= found.high
    assert 50 <= held <= 60


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.floats(0.1, 1e6), min_size=1, max_size=30),
    st.floats(0.1, 10),
    st.integers(1, 3),
    st.integers(0, 2**32 - 1),
)
def test_the_same_arguments_give_the_same_numbers_and_a_common_factor_is_found(values, factor, rounds, seed):
    before = np.array([values] * rounds)
    found = [change(sample(before), sample(before * factor), quantile(0.5), seed=seed, draws=50) for _ in range(2)]
    assert found[0] == found[1]
    assert found[0].change == pytest.approx(factor - 1, abs=1e-9)
    assert found[0].low == pytest.approx(factor - 1, abs=1e-9)
    assert found[0].high == pytest.approx(factor - 1, abs=1e-9)


def test_large_samples_are_drawn_less_often_and_still_in_time():
    rng = np.random.default_rng(4)
    big = rng.lognormal(4, 1, (2, 20_000))
    found = change(sample(big), sample(big * 0.5), quantile(0.95))
    assert found.sure
    assert found.change == pytest.approx(-0.5)
