"""What changed between the runs of two sides: times, parts, rates, and requests that only one side had."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from prefixlint.verify import changes
from prefixlint.verify.changes import Side
from prefixlint.verify.targets import Measured


def call(number, *, after=None, session=None):
    return SimpleNamespace(number=number, after=after, request=SimpleNamespace(session=session))


def exchange(number, *, done=None, failure=None, **told):
    measured = None if failure else Measured(**told)
    first = told.get("ttft_s")
    done = done if done is not None else first or 0.0
    return SimpleNamespace(call=call(number), measured=measured, failure=failure, sent=0.0, first=first, done=done)


def outcome(*exchanges, **spreads):
    run = SimpleNamespace(**{f"{part}_ms": spreads.get(part) for part in ("queue", "prefill", "other")})
    run.predicted_hit_rate = spreads.get("predicted")
    return SimpleNamespace(exchanges=list(exchanges), run=run)


def side(*outcomes, calls=None):
    calls = calls or [call(number) for number in range(len(outcomes[0].exchanges))]
    return Side(list(outcomes), calls)


def changed(before, after):
    return changes.changes(before, after, draws=40)


def spread(mean, count=10):
    return SimpleNamespace(mean=mean, count=count)


def test_times_are_in_milliseconds_and_hit_rates_in_points():
    before = side(outcome(*(exchange(n, ttft_s=0.2, prompt_tokens=100, cached_tokens=20) for n in range(4))))
    after = side(outcome(*(exchange(n, ttft_s=0.05, prompt_tokens=100, cached_tokens=90) for n in range(4))))
    found = changed(before, after)
    assert (found["ttft_p50"].before, found["ttft_p50"].after) == (200, 50)
    assert found["ttft_p50"].change == found["ttft_p95"].high == pytest.approx(-0.75)
    assert found["hit_rate"].change == pytest.approx(0.7)
    assert found["hit_rate"].points
    assert set(found) == {"ttft_p50", "ttft_p95", "ttft_mean", "hit_rate", "total_p50"}


def test_rates_are_sums_over_sums():
    one = exchange(0, prompt_tokens=1000, cached_tokens=0), exchange(1, prompt_tokens=10, cached_tokens=10)
    assert changed(side(outcome(*one)), side(outcome(*one)))["hit_rate"].before == pytest.approx(10 / 1010)


def test_what_is_not_reported_is_unknown():
    old = side(outcome(exchange(0, ttft_s=1.0)))
    new = side(outcome(exchange(0, ttft_s=1.0, prompt_tokens=10, cached_tokens=5)))
    found = changed(old, new)["hit_rate"]
    assert (found.before, found.after, found.change, found.sure) == (None, 0.5, None, False)


def test_parts_of_requests_and_what_is_left_of_the_time():
    old = side(outcome(exchange(0, ttft_s=0.5, queue_s=0.1, prefill_s=0.3)))
    new = side(outcome(exchange(0, ttft_s=0.5, queue_s=0.0, prefill_s=0.1)))
    found = changed(old, new)
    assert found["queue_p50"].before == pytest.approx(100)
    assert found["other_p50"].after == pytest.approx(400)
    assert found["prefill_mean"].change == pytest.approx(-2 / 3)


def test_parts_that_only_histograms_tell_have_a_mean_and_no_interval():
    old = side(outcome(exchange(0, ttft_s=0.5), prefill=spread(300.0)), outcome(exchange(0), prefill=spread(100.0)))
    new = side(outcome(exchange(0, ttft_s=0.5), prefill=spread(50.0)), outcome(exchange(0), prefill=spread(0.0, 0)))
    found = changed(old, new)
    assert (found["prefill_mean"].before, found["prefill_mean"].after) == (200, 50)
    assert found["prefill_mean"].change == -0.75
    assert (found["prefill_mean"].low, found["prefill_mean"].sure) == (None, False)
    assert "prefill_p50" not in found
    assert "queue_mean" not in found


def test_time_between_tokens_needs_two_of_them():
    many = exchange(0, ttft_s=0.1, done=0.5, output_tokens=5)
    one = exchange(1, ttft_s=0.1, done=0.1, output_tokens=1)
    found = changed(side(outcome(many, one)), side(outcome(many, one)))
    assert found["token_p50"].before == pytest.approx(100)
    assert found["total_p50"].before == pytest.approx(300)


def test_failures_count_in_no_time():
    good, bad = exchange(0, ttft_s=0.1, done=0.2), exchange(1, done=9.0, failure=SimpleNamespace(slug="server-gone"))
    found = changed(side(outcome(good, bad)), side(outcome(good, bad)))
    assert found["total_p50"].before == pytest.approx(200)
    assert found["ttft_mean"].before == pytest.approx(100)


def test_requests_that_only_one_side_had_are_passed_over():
    both = side(outcome(exchange(0, ttft_s=0.1), exchange(7, ttft_s=99.0)), calls=[call(0)])
    assert changed(both, both)["ttft_mean"].before == pytest.approx(100)


def test_conversations_are_sessions_or_chains_of_turns():
    calls = [call(0), call(1, session="s"), call(2, after=0), call(3, after=2), call(4, session="s"), call(5, after=99)]
    names = changes.conversations(calls)
    assert names[0] == names[2] == names[3]
    assert names[1] == names[4]
    assert len(set(names)) == 3


def test_the_same_places_are_paired_whatever_links_their_turns():
    times = [0.1, 0.4, 1.6, 6.4, 25.6, 102.4]
    old = side(outcome(*(exchange(n, ttft_s=t) for n, t in enumerate(times))))
    linked = [call(0), *(call(n, after=n - 1) for n in range(1, 6))]
    new = side(outcome(*(exchange(n, ttft_s=t / 2) for n, t in enumerate(times))), calls=linked)
    found = changed(old, new)["ttft_mean"]
    assert (found.low, found.high) == (pytest.approx(-0.5), pytest.approx(-0.5))


def test_what_was_predicted_of_both_sides():
    old, new = side(outcome(exchange(0), predicted=0.2)), side(outcome(exchange(0), predicted=0.9))
    assert changes.expected(old, new) == {"before": 0.2, "after": 0.9, "change": pytest.approx(0.7)}
    assert changes.expected(old, side(outcome(exchange(0)))) is None


def test_changes_are_plain_values():
    one = side(outcome(exchange(0, ttft_s=0.1)))
    told = changes.as_json(changed(one, one))["ttft_p50"]
    assert told == {
        "before": 100.0, "after": 100.0, "change": 0.0, "low": 0.0, "high": 0.0, "points": False, "sure": False
    }  # fmt: skip
