"""Two logs on one server, one log on several servers: what changed, in numbers, tables and sentences."""

from __future__ import annotations

import json
import shlex
import sys
import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from prefixlint.cli import main

from .fakeengine import FakeEngine
from .test_verify import SYSTEM, conversation
from .toy import write_log

ENGINE = Path(__file__).with_name("fakeengine.py")


def run(*arguments):
    return CliRunner().invoke(main, ["verify", *map(str, arguments)], catch_exceptions=False)


def verify(*arguments):
    done = run(*arguments, "--format", "json")
    return done.exit_code, json.loads(done.stdout) if done.stdout.strip() else {}, done.stderr


@pytest.fixture
def logs(tmp_path):
    """A log with a counter at its head, and the same without."""
    broken, fixed = [], []
    for number in range(6):
        for turn, body in enumerate(conversation(f"user{number}", 2)):
            counted = [{"role": "system", "content": f"Request {number}-{turn}. {SYSTEM}"}, *body["messages"][1:]]
            broken.append({**body, "messages": counted})
            fixed.append(body)
    return write_log(tmp_path / "broken.jsonl", broken), write_log(tmp_path / "fixed.jsonl", fixed)


def launch(*flags):
    return shlex.join([sys.executable, str(ENGINE), "--port", "{port}", *flags])


def test_two_logs_are_replayed_in_turns(logs):
    broken, fixed = logs
    with FakeEngine(seconds=0.06) as engine:
        code, found, _ = verify(broken, "--url", engine.url, "--compare", fixed)
    assert code == 0
    assert [(r["label"], r["cache"], r["round"]) for r in found["runs"]] == [
        (label, cache, number) for number in (1, 2) for label in ("before", "after") for cache in ("cold", "warm")
    ]
    told = found["comparison"]
    assert (told["kind"], told["baseline"], told["candidate"], told["rounds"]) == (
        "logs", str(broken), str(fixed), 2
    )  # fmt: skip
    assert told["hit_rate"]["before"] < 0.1
    assert told["hit_rate"]["after"] > 0.8
    assert told["hit_rate"]["change"] == pytest.approx(told["predicted_hit_rate"]["change"], abs=1e-9)
    assert told["hit_rate"]["sure"]
    assert told["ttft_p50"]["change"] < -0.2
    assert told["ttft_p50"]["high"] < 0
    assert told["warm"]["hit_rate"]["before"] > 0.9
    assert found["prediction"]["cached_equal"] == found["prediction"]["of"] == 96


def test_a_server_that_dies_half_way_leaves_what_was_compared_until_then(logs):
    broken, fixed = logs
    with FakeEngine(fault="dies", after=70) as engine:
        code, found, said = verify(broken, "--url", engine.url, "--compare", fixed)
    assert code == 2
    assert found["status"] == "failed"
    assert found["comparison"]["hit_rate"]["change"] > 0.5
    assert "Traceback" not in said


def test_the_table_is_of_before_and_after(logs, tmp_path):
    broken, fixed = logs
    saved = tmp_path / "run.json"
    with FakeEngine() as engine:
        done = run(broken, "--url", engine.url, "--compare", fixed, "--rounds", 1)
        run(broken, "--url", engine.url, "--compare", fixed, "--rounds", 1, "--format", "json", "-o", saved)
    assert "before" in done.stdout
    assert "TTFT P95" in done.stdout
    assert "were predicted" in done.stdout
    assert "cold runs" in done.stdout
    again = CliRunner().invoke(main, ["report", str(saved), "--format", "markdown"], catch_exceptions=False)
    assert "| hit rate |" in again.stdout
    assert "cold runs" in again.stdout


def test_the_fixes_of_the_analysis_are_replayed_and_no_file_gets_a_name_for_it(logs, monkeypatch):
    broken, _ = logs
    for name in ("TemporaryDirectory", "NamedTemporaryFile", "mkstemp", "mkdtemp"):
        monkeypatch.setattr(tempfile, name, lambda *args, **more: pytest.fail("a file for prompts"))
    with FakeEngine() as engine:
        code, found, said = verify(broken, "--url", engine.url, "--what-if", "--rounds", 1)
    assert code == 0, said
    told = found["comparison"]
    assert told["candidate"].endswith("with the fixes of what-if")
    assert told["hit_rate"]["after"] > told["hit_rate"]["before"] + 0.5
    assert told["hit_rate"]["change"] == pytest.approx(told["predicted_hit_rate"]["change"])


def test_a_sweep_tells_what_each_value_moves(logs):
    _, fixed = logs
    code, found, said = verify(fixed, "--launch", launch(), "--sweep", "page=1,16,64")
    assert code == 0, said
    rows = {row["name"]: row for row in found["comparison"]["variants"]}
    assert list(rows) == ["baseline", "page 1", "page 16", "page 64", "baseline again"]
    hits = [rows[name]["cold"]["hit_rate"]["after"] for name in ("page 1", "page 16", "page 64")]
    assert hits[0] > hits[1] > hits[2]
    assert rows["baseline again"]["cold"]["hit_rate"]["change"] == 0
    assert rows["page 64"]["command"][-2:] == ["--page", "64"]
    assert {run["label"] for run in found["runs"]} == set(rows)
    assert found["prediction"]["cached_equal"] == found["prediction"]["of"] == 5 * 2 * 12
    assert found["engine"]["command"][-2] == "--port"


def test_a_setting_that_makes_it_slower_is_found_and_one_that_does_not_start_costs_its_row(logs, tmp_path):
    _, fixed = logs
    file = tmp_path / "mine.toml"
    file.write_text(
        "[[setting]]\nname = 'sleepy'\nflags = ['--seconds', 0.2]\nexpect = 'everything slower'\n"
        "[[setting]]\nname = 'unknown'\nflags = ['--no-such-flag']\n"
    )
    arguments = (fixed, "--launch", launch("--seconds", "0.02"), "--bisect", file, "--limit", 6)
    code, found, _ = verify(*arguments)
    assert code == 0
    rows = {row["name"]: row for row in found["comparison"]["variants"]}
    assert rows["sleepy"]["verdict"] == "slower"
    assert "sleepy" in found["comparison"]["slower"]
    assert rows["unknown"]["verdict"] == rows["all together"]["verdict"] == "failed"
    assert "no-such-flag" in rows["unknown"]["error"]
    assert rows["baseline again"]["verdict"] != "failed"  # what it is hangs on what else the machine does
    done = run(*arguments)
    assert "Slower than the baseline: sleepy" in " ".join(done.stdout.split())
    assert "did not run" in done.stdout
    assert "expected: everything slower" in done.stdout
    assert all(len(line) <= 80 for line in done.stdout.splitlines() if "Started with" not in line)


def test_outputs_are_compared_where_a_setting_may_change_them(logs, tmp_path):
    _, fixed = logs
    file = tmp_path / "mine.toml"
    file.write_text("[[setting]]\nname = 'n'\nflags = ['--page', 16]\nnumerics = true\n")
    _, found, _ = verify(fixed, "--launch", launch(), "--bisect", file, "--limit", 3)
    rows = {row["name"]: row for row in found["comparison"]["variants"]}
    assert rows["n"]["outputs"] == {"compared": 3, "same": 3, "share": 1.0, "line": None, "token": None}
    assert rows["baseline"]["outputs"] is None
    assert rows["baseline again"]["outputs"]["same"] == 3


def test_settings_keep_their_names_in_a_narrow_terminal(logs):
    _, fixed = logs
    done = run(fixed, "--launch", launch(), "--sweep", "page=16", "--output-length", "logged", "--limit", 3)
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["setting", "cold", "TTFT", "warm", "TTFT", "hit", "rate", "verdict"] in lines
    assert [line[:2] for line in lines if line[:1] == ["page"]] == [["page", "16"]]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--sweep", "a=1", "--bisect", "sglang"], "at once"),
        (["--what-if", "--compare", "x.jsonl"], "at once"),
        (["--sweep", "a"], "names no values"),
        (["--bisect", "nothing.toml"], "cannot be read"),
        (["--sweep", "a=1"], "only be tried on a server that is started"),
        (["--compare", "nothing.jsonl"], "nothing.jsonl"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_sent(logs, arguments, said):
    with FakeEngine() as engine:
        done = run(logs[0], "--url", engine.url, *arguments)
        assert engine.asked == 0
    assert done.exit_code in (2, 3)
    assert said in done.stderr
