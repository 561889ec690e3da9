"""In which order the log rules see requests while a log is read."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixlint.model import Messages, Request
from prefixlint.watching import HELD, Watcher


class Seen:
    """Stands in for an observer: notes which rows it is shown."""

    def __init__(self):
        self.rows = []

    def taken(self, request, row, family):
        assert (request.line, family) == (row + 1, row % 3)
        return row

    def see_taken(self, row):
        self.rows.append(row)


def request(row, time):
    return Request(path="log", line=row + 1, part=0, format="f", content=Messages(messages=()), time=time)


def watch(times, *, most=float("inf"), by_time=True, monkeypatch):
    """Give the rows that are shown, and those that were read again for it."""
    monkeypatch.setattr("prefixlint.watching.Observer", Seen)
    watcher = Watcher(most, by_time=by_time, observer=Seen())
    for row, time in enumerate(times):
        watcher.add(request(row, time), row, row % 3)
    known = [t for t in times if t is not None]
    order = np.argsort(times, kind="stable") if by_time and len(known) == len(times) else np.arange(len(times))
    read = []

    def again(rows):
        read.extend(rows)
        return ((row, request(row, times[row]), row % 3) for row in read)

    observer = watcher.finish(order, again)
    assert observer.rows == order[: int(min(most, len(times)))].tolist()
    return read


def test_requests_that_are_written_a_little_late_are_read_once(monkeypatch):
    rng = random.Random(1)
    times = [n + rng.random() * (HELD - 2) for n in range(1000)]
    assert watch(times, monkeypatch=monkeypatch) == []


def test_a_log_in_order_is_read_once(monkeypatch):
    assert watch([float(n // 3) for n in range(500)], monkeypatch=monkeypatch) == []
    assert watch([None] * 500, monkeypatch=monkeypatch) == []
    assert watch([], monkeypatch=monkeypatch) == []


@pytest.mark.parametrize("most", [1, 7, 200])
def test_only_the_first_ones_are_shown(most, monkeypatch):
    assert watch([float(n ^ 1) for n in range(400)], most=most, monkeypatch=monkeypatch) == []


def test_a_shuffled_log_is_read_again_in_the_order_of_use(monkeypatch):
    times = [float(n) for n in range(600)]
    random.Random(2).shuffle(times)
    assert sorted(watch(times, monkeypatch=monkeypatch)) == list(range(600))


def test_the_order_of_the_file_needs_no_times(monkeypatch):
    assert watch([float(-n) for n in range(400)], by_time=False, monkeypatch=monkeypatch) == []


@given(st.lists(st.none() | st.integers(0, 9).map(float), max_size=40), st.integers(0, 50))
def test_whatever_the_times_are_the_order_of_use_is_seen(times, most):
    with pytest.MonkeyPatch.context() as monkeypatch:
        watch(times, most=most, monkeypatch=monkeypatch)
