"""Planted causes are found, no others are, and their cost is what the log without them saves."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import planting

from prefixlint import logrules, logs, pipeline, rulebook


def found(planted, folder):
    path = planted.write(folder / "planted.jsonl")
    return {f.rule.code for f in logrules.check(logs.read([str(path)]), rulebook.rules())}


@pytest.mark.parametrize("code", sorted(planting.CAUSES))
def test_each_cause_alone(code, tmp_path):
    assert found(planting.Planted(7, (code,), 200), tmp_path) == {code}


@pytest.mark.parametrize("seed", range(4))
def test_causes_in_one_file(seed, tmp_path):
    planted = planting.planted(seed, 400)
    assert found(planted, tmp_path) == set(planted.codes)


def test_without_causes_nothing_is_found(tmp_path):
    planted = planting.planted(2, 300)
    for code in planted.codes:
        planted = planted.without(code)
    assert found(planted, tmp_path) == set()


@pytest.mark.parametrize("code", ["PFX101", "PFX104", "PFX110", "PFX304", "PFX306", "PFX202", "PFX407"])
def test_the_cost_is_what_the_log_without_the_cause_saves(code, tmp_path):
    planted = planting.Planted(11, (code,), 250)
    (tmp_path / "clean").mkdir()
    with_it = pipeline.analyze([str(planted.write(tmp_path / "log.jsonl"))])
    without = pipeline.analyze([str(planted.without(code).write(tmp_path / "clean" / "log.jsonl"))])
    (finding,) = with_it.findings
    served, possible = (
        next(e.cached_tokens for e in result.engines if e.engine == "sglang") for result in (with_it, without)
    )
    assert finding.tokens_lost["sglang"] == pytest.approx(possible - served, rel=0.05)
