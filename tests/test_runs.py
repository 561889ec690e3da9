"""Values of measured runs: distributions, and results that are read again."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixlint import runs
from prefixlint.errors import UsageError
from prefixlint.runs import EngineUsed, LoadUsed, Residual, Run, TokenDifference, Verification

SECONDS = st.lists(st.floats(0, 1e4), min_size=1, max_size=300)


@settings(deadline=None)
@given(SECONDS)
def test_percentiles_are_those_of_numpy(values):
    found = runs.spread(values)
    expected = np.quantile(np.array(values) * 1000, [0.5, 0.95, 0.99])
    assert [found.p50, found.p95, found.p99] == pytest.approx(expected.tolist())
    assert found.mean == pytest.approx(float(np.mean(values)) * 1000)
    assert found.count == len(values)


@settings(deadline=None)
@given(SECONDS)
def test_quantiles_go_evenly_from_the_least_to_the_largest(values):
    kept = runs.spread(values).quantiles
    assert kept[0] == pytest.approx(1000 * min(values))
    assert kept[-1] == pytest.approx(1000 * max(values))
    assert list(kept) == sorted(kept)
    assert len(kept) <= 101


def test_nothing_has_no_distribution():
    assert runs.spread([]) is None


def example() -> Verification:
    run = Run("baseline", "cold", "salt", 10, None, None, runs.spread([0.1, 0.2]), None, None, None, None, {"x": 1})
    return Verification(
        EngineUsed("sglang", flags={"page_size": 1}),
        LoadUsed(1, None, None, "logged", "one"),
        [run],
        None,
        [Residual(1, None, None, None), Residual(2, 3, None, "they said: secret", error="server-failed")],
        token_differences=[TokenDifference("a", 1, 2, 3, before="secret", our_text="secret", their_text="secret")],
    )


def test_a_result_survives_json():
    data = json.loads(json.dumps(runs.as_json(example())))
    again = runs.from_json(data)
    assert json.loads(json.dumps(runs.as_json(again))) == data
    assert runs.from_json(data | {"from a later version": 1}) == again


def test_texts_are_left_out_of_results_that_are_kept():
    assert "secret" not in json.dumps(runs.as_json(runs.without_texts(example())))
    assert "server-failed" in json.dumps(runs.as_json(runs.without_texts(example())))


@pytest.mark.parametrize(
    "change",
    [
        {"schema": "prefixlint.analyze/1"},
        {"runs": "none"},
        {"runs": [3]},
        {"runs": [{"label": "x"}]},
        {"engine": None},
        {"engine": {"name": 7}},
        {"load": {"requests": True}},
        {"prediction": {"of": "many"}},
    ],
)
def test_a_damaged_result_is_refused_with_words(change):
    data = json.loads(json.dumps(runs.as_json(example()))) | change
    with pytest.raises(UsageError):
        runs.from_json(data)


@pytest.mark.parametrize("data", [None, [], 3, "x", {}])
def test_what_is_no_result_is_refused(data):
    with pytest.raises(UsageError):
        runs.from_json(data)


@settings(deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_no_content_of_a_field_gives_a_traceback(value):
    data = runs.as_json(example())
    for key in ("runs", "engine", "load", "prediction", "residuals", "left", "notes", "token_differences"):
        try:
            runs.from_json(data | {key: value})
        except UsageError:
            continue


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"engine": None}, "it has no engine where a verification belongs"),
        ({"notes": [{"slug": "x"}]}, "it has no message where a note belongs"),
    ],
)
def test_what_a_damaged_result_lacks_is_said_without_names_of_code(change, words):
    saved = runs.as_json(example()) | change
    if saved["engine"] is None:
        del saved["engine"]
    with pytest.raises(UsageError) as caught:
        runs.from_json(json.loads(json.dumps(saved)))
    assert words in caught.value.message
    assert "__init__" not in caught.value.message
