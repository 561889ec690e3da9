"""What makes an analysis fail: a low hit rate, and one that is worse than before."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from prefixlint.cli import main
from tests.clocked import bodies

DEMO = Path(__file__).parents[1] / "fixtures" / "logs" / "demo.jsonl"


def run(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def log(path, clock):
    path.write_text("".join(json.dumps(body) + "\n" for body in bodies(9, clock)))
    return path


@pytest.fixture
def logs(tmp_path):
    """Give a log with a stable prefix, one with a clock in it, and the result of each."""
    good, bad = log(tmp_path / "good.jsonl", "It is morning."), log(tmp_path / "bad.jsonl", "It is 09:12:0{}.")
    for path in (good, bad):
        assert run("analyze", path, "--format", "json", "-o", path.with_suffix(".json")).exit_code == 0
    return good, bad


def test_a_rate_that_fell_fails(logs):
    good, bad = logs
    done = run("analyze", bad, "--compare", good.with_suffix(".json"), "--max-drop", "5", "--format", "json")
    assert done.exit_code == 1
    failures = json.loads(done.stdout)["failures"]
    assert [failure.partition(" fell by")[0] for failure in failures] == ["hit rate of sglang", "hit rate of vllm"]
    assert all(failure.endswith("at most 5 are allowed") for failure in failures)
    assert done.stderr.splitlines()[-2:] == failures


def test_a_rate_that_rose_or_stayed_does_not(logs):
    good, bad = logs
    for new, old in ((good, bad), (good, good), (bad, bad)):
        done = run("analyze", new, "--compare", old.with_suffix(".json"), "--max-drop", "0", "--max-worse", "0")
        assert done.exit_code == 0, done.stderr


def test_a_cause_that_costs_more_fails_and_is_named(logs):
    good, bad = logs
    done = run("analyze", bad, "--compare", good.with_suffix(".json"), "--max-worse", "1")
    assert done.exit_code == 1
    assert "PFX101 clock-in-prefix at messages[*].content is new: " in done.stderr
    assert run("analyze", bad, "--compare", good.with_suffix(".json"), "--max-worse", "99").exit_code == 0


def test_no_threshold_never_fails(logs):
    good, bad = logs
    assert run("analyze", bad, "--compare", good.with_suffix(".json")).exit_code == 0


@pytest.mark.parametrize("option", ["--max-drop", "--max-worse"])
def test_a_threshold_that_cannot_be_judged_is_no_success(logs, option):
    good, _ = logs
    assert "no-compare" in run("analyze", good, option, "2").stderr
    old = json.loads(good.with_suffix(".json").read_text())
    good.with_suffix(".json").write_text(json.dumps({**old, "engines": []}))
    done = run("analyze", good, "--compare", good.with_suffix(".json"), option, "2")
    assert (done.exit_code, "nothing-to-compare" in done.stderr) == (2, True)
    assert "What the prefix cache" in done.stdout


@pytest.mark.parametrize("value", ["-1", "x", "100", "nan", "1e400"])
@pytest.mark.parametrize("option", ["--max-drop", "--max-worse", "--fail-under"])
def test_a_threshold_is_a_number_of_points(logs, option, value):
    good, _ = logs
    done = run("analyze", good, "--compare", good.with_suffix(".json"), option, value)
    assert (done.exit_code, "bad-percent" in done.stderr) == (2, True)


def test_a_low_rate_still_shows_the_whole_report():
    done = run("analyze", DEMO, "--fail-under", "90%")
    assert done.exit_code == 1
    assert "What breaks the prefix" in done.stdout
    assert "hit rate below 90 %: sglang 49.1 %, vllm 48.1 %" in done.stderr
