"""Scrapes: what real servers gave, odd and hostile text, and what happened between two of them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixlint.verify import metrics
from prefixlint.verify.metrics import Histogram

FOLDER = Path(__file__).parent.parent / "fixtures" / "metrics"


def real(name: str) -> metrics.Metrics:
    return metrics.parse((FOLDER / f"{name}.txt").read_text())


@pytest.mark.parametrize("name", ["sglang", "vllm", "llamacpp"])
def test_every_line_of_real_scrapes_is_read(name):
    text = (FOLDER / f"{name}.txt").read_text()
    found = metrics.parse(text)
    assert found.unread == 0
    assert sum(len(series) for series in found.samples.values()) == sum(
        1 for line in text.split("\n") if line and not line.startswith("#")
    )


def test_samples_are_found_by_name_and_labels():
    found = real("sglang")
    assert found.total("sglang:prompt_tokens_total") == 18340
    assert found.total("sglang:prompt_tokens_total", is_streaming="true") == 31
    assert found.total("sglang:prompt_tokens_total", is_streaming="maybe") is None
    assert found.total("nothing") is None
    assert found.total("nothing", "sglang:page_size") == 1
    assert found.most("sglang:realtime_tokens_total") == 10188
    assert found.total("sglang:fwd_occupancy") is None  # the sample is NaN
    assert real("vllm").label("vllm:cache_config_info", "block_size") == "32"
    assert "sglang:page_size" in found


def test_a_histogram_sums_over_labels_and_keeps_to_those_asked_for():
    found = real("sglang")
    ttft = found.histogram("sglang:time_to_first_token_seconds")
    assert ttft is not None
    assert ttft.count == 46
    assert ttft.sum == pytest.approx(8.44223, abs=1e-5)
    assert ttft.mean == pytest.approx(8.44223 / 46, abs=1e-6)
    prefill = found.histogram("sglang:per_stage_req_latency_seconds", stage="prefill_forward")
    assert prefill is not None
    assert prefill.count == 47
    assert found.histogram("sglang:per_stage_req_latency_seconds", stage="nonsense") is None
    assert found.histogram("sglang:page_size") is None


def test_quantiles_are_those_of_prometheus():
    histogram = Histogram(100, 50.0, ((0.1, 10), (0.5, 60), (1.0, 90), (math.inf, 100)))
    assert histogram.quantile(0.5) == pytest.approx(0.1 + 0.4 * 40 / 50)
    assert histogram.quantile(0.9) == pytest.approx(1.0)
    assert histogram.bounds(0.75) == (0.5, 1.0)


def test_a_quantile_is_not_known_where_no_bound_is():
    histogram = Histogram(100, 50.0, ((0.1, 10), (0.5, 60), (math.inf, 100)))
    assert histogram.quantile(0.95) is None
    assert histogram.bounds(0.95) == (0.5, math.inf)
    assert histogram.quantile(0.05) is None  # all that is known: below 0.1
    assert histogram.bounds(0.05) == (0.0, 0.1)
    assert Histogram(0, 0.0, ((0.1, 0), (math.inf, 0))).quantile(0.5) is None
    assert Histogram(0, 0.0, ()).mean is None
    assert Histogram(3, 1.0, ()).quantile(0.5) is None
    assert Histogram(3, 1.0, ()).bounds(0.5) is None


@given(st.lists(st.floats(0.001, 100), min_size=1, max_size=60), st.sampled_from([0.5, 0.9, 0.99]))
def test_a_quantile_lies_in_the_bucket_of_the_true_one(values, share):
    bounds = [0.01, 0.1, 1.0, 10.0, math.inf]
    histogram = Histogram(len(values), math.fsum(values), tuple((b, sum(v <= b for v in values)) for b in bounds))
    true = sorted(values)[math.ceil(share * len(values)) - 1]
    low, high = histogram.bounds(share)
    assert low <= true <= high
    estimate = histogram.quantile(share)
    assert estimate is None or low <= estimate <= high


def test_labels_may_hold_anything():
    text = 'a{x="q\\"u{o}te, \\\\ and = \\n",y=""} 3 1712000000\na{ y = "z" , } +Inf\na{x="a}b"} 1e3 # {trace="1"} 2\n'
    found = metrics.parse(text)
    assert found.unread == 0
    assert list(found.items("a")) == [
        ({"x": 'q"u{o}te, \\ and = \n', "y": ""}, 3.0),
        ({"y": "z"}, math.inf),
        ({"x": "a}b"}, 1000.0),
    ]


@pytest.mark.parametrize(
    "line", ["a", "a b", "a{x=1} 2", 'a{x="1} 2', '{x="1"} 2', "a{} x", "<html>", "a 1 2 3", 'a{x="y"z} 1', "é 1"]
)
def test_lines_that_are_no_samples_are_counted(line):
    found = metrics.parse(f"good 1\n{line}\ngood2 2\n")
    assert found.unread == 1
    assert found.total("good") == 1
    assert found.total("good2") == 2


@given(st.text(max_size=300))
def test_no_text_makes_it_fail(text):
    found = metrics.parse(text)
    metrics.delta(found, found)


def test_a_line_without_end_is_read_in_linear_time():
    assert metrics.parse('a{x="' + "\\" * 200_000).unread == 1
    assert metrics.parse("a{" + 'x="1",' * 50_000 + "} 1").total("a") == 1


def scrape(*lines: str) -> metrics.Metrics:
    return metrics.parse("\n".join(lines) + "\n")


def test_what_counts_is_subtracted_and_what_is_a_state_is_not():
    before = scrape(
        "# TYPE a counter",
        "a 3",
        "# TYPE g gauge",
        "g 9",
        "# TYPE h histogram",
        "h_sum 1",
        "h_count 2",
        'h_bucket{le="1"} 1',
    )
    after = scrape(
        "# TYPE a counter",
        "a 5",
        "# TYPE g gauge",
        "g 4",
        "# TYPE h histogram",
        "h_sum 4",
        "h_count 6",
        'h_bucket{le="1"} 3',
    )
    moved = metrics.delta(before, after)
    assert moved is not None
    assert moved.total("a") == 2
    assert moved.total("g") == 4
    assert moved.histogram("h") == Histogram(4, 3.0, ((1.0, 2.0),))


def test_without_types_the_names_tell():
    moved = metrics.delta(scrape("a_total 3", "b 3"), scrape("a_total 5", "b 5"))
    assert moved is not None
    assert (moved.total("a_total"), moved.total("b")) == (2, 5)


def test_a_gauge_whose_name_ends_like_a_counter_stays_one():
    kind = "# TYPE vllm:prompt_tokens_created gauge"
    moved = metrics.delta(scrape(kind, "vllm:prompt_tokens_created 9"), scrape(kind, "vllm:prompt_tokens_created 8"))
    assert moved is not None
    assert moved.total("vllm:prompt_tokens_created") == 8


def test_a_series_that_appears_began_at_zero():
    moved = metrics.delta(scrape("b_total 1"), scrape("b_total 1", 'a_total{x="1"} 7'))
    assert moved is not None
    assert moved.total("a_total") == 7


def test_a_server_that_was_started_again_in_between_is_noticed():
    assert metrics.delta(scrape("a_total 5"), scrape("a_total 2")) is None
    assert metrics.delta(scrape("a_total 5", "b_total 1"), scrape("b_total 1")) is None
    assert metrics.delta(scrape('a_total{x="1"} 5', 'a_total{x="2"} 1'), scrape('a_total{x="2"} 9')) is None


def test_two_equal_real_scrapes_have_no_difference():
    for name in ("sglang", "vllm", "llamacpp"):
        moved = metrics.delta(real(name), real(name))
        assert moved is not None
        for metric, series in moved.samples.items():
            if metric.endswith(("_total", "_bucket")):
                assert not any(series.values()), metric
