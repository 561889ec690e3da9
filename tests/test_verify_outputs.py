"""Answers compared token by token: equal ones, ones that part, ones that failed."""

from hypothesis import given
from hypothesis import strategies as st

from prefixlint.verify.outputs import Equality, equality

answers = st.lists(st.none() | st.lists(st.integers(0, 3), max_size=6), max_size=6)


def test_equal_answers():
    assert equality([[1, 2], [3]], [[1, 2], [3]], [1, 2]) == Equality(2, 2, 1.0)


def test_the_earliest_difference_is_named_with_its_line():
    found = equality([[1, 2, 3, 4], [5, 6, 7, 8]], [[1, 2, 9, 4], [5, 0, 7, 8]], [11, 12])
    assert found == Equality(2, 0, 3 / 8, 12, 1)  # what follows a difference does not count, equal or not


def test_an_answer_that_goes_on_or_ends_early_is_not_the_same():
    assert equality([[1, 2]], [[1, 2, 3]], [1]) == Equality(1, 0, 1.0, 1, 2)
    assert equality([[1, 2]], [[1]], [1]) == Equality(1, 0, 0.5, 1, 1)
    assert equality([[]], [[]], [1]) == Equality(1, 1, None)


def test_failed_answers_are_left_out():
    assert equality([None, [1]], [[1], None], [1, 2]) == Equality(0, 0, None)
    assert equality([None, [1]], [[2], [1]], [1, 2]) == Equality(1, 1, 1.0)


@given(answers)
def test_an_answer_is_equal_to_itself(some):
    known = [one for one in some if one is not None]
    found = equality(some, some, list(range(len(some))))
    assert (found.compared, found.same, found.line) == (len(known), len(known), None)
    assert found.share == (1.0 if any(known) else None)
