"""`prefixlint analyze` on logs that are broken, malicious or merely odd: a true answer or a clear refusal, no traceback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from prefixlint.cli import main
from prefixlint.reports._terminal import columns, duration, table
from prefixlint.wording import many
from tests.toy import model_folder, write_log

SYSTEM = "You are the help desk of a small bookshop. " * 10


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return model_folder(tmp_path_factory.mktemp("model"), SYSTEM + "question")


def run(*args, code=0, width=80):
    result = CliRunner(env={"COLUMNS": str(width)}).invoke(main, ["analyze", *map(str, args)], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result


def analyze(*args, **kwargs):
    return json.loads(run(*args, "--format", "json", **kwargs).stdout)


def body(n, **more):
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": f"question {n}"}]
    return {"model": "m", "messages": messages, **more}


def usage(prompt, cached):
    return {
        "usage": {"prompt_tokens": prompt, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": cached}}
    }


def notes(result):
    return {note["slug"]: note["message"] for note in result["notes"]}


def test_lone_surrogates_anywhere_reach_every_report(tmp_path, model):
    odd = {key: f"\ud800{key}\udfff" for key in ("model", "user", "cache_salt")}
    around = {key: f"\ud800{key}\udfff" for key in ("id", "session_id", "team")}
    rows = [{"request": body(n, **odd)} | around for n in range(2)]
    rows[0]["request"]["messages"][0]["content"] = "\udc00" + SYSTEM
    log, lines = tmp_path / "log.jsonl", tmp_path / "lines.jsonl"
    log.write_text("\n".join(json.dumps(row) for row in rows))
    result = analyze(log, "--model", model, "--by", "team,model,user", "--requests-out", lines)
    assert result["groups"][0]["key"]["team"] == "?team?"
    assert [json.loads(line)["prompt_tokens"] for line in lines.read_text().splitlines()]
    text = run(log, "--model", model, "--by", "team,model,user").stdout
    text.encode()
    assert "\\ud800team" in text


@pytest.mark.parametrize(
    "absurd", [(10, 500), (0, 3), (-5, 3), (10**30, 1), (40, -7), (True, False), ("x", "y"), (None, None)]
)
def test_counts_that_contradict_themselves_are_no_report(tmp_path, model, absurd):
    rows = [{"request": body(n), "response": usage(100, 60)} for n in range(3)]
    rows.append({"request": body(3), "response": usage(*absurd)})
    result = analyze(write_log(tmp_path / "log.jsonl", rows), "--model", model)
    assert result["reported"]["requests"] in (3, 4)
    assert 0 <= result["reported"]["hit_rate"] <= 1
    assert ("contradictory-usage" in notes(result)) == (absurd in [(10, 500), (0, 3)])


def test_usage_that_is_all_nonsense_is_unknown(tmp_path, model):
    rows = [{"request": body(n), "response": usage(10, 11)} for n in range(3)]
    result = analyze(write_log(tmp_path / "log.jsonl", rows), "--model", model)
    assert result["reported"] is None
    assert result["tokenizers"][0]["compared"] == 0
    assert "did serve" not in run(tmp_path / "log.jsonl", "--model", model).stdout


@pytest.mark.parametrize(
    ("times", "order"),
    [
        ([1e308, -1e308, 1, 2], "file"),
        ([float("nan"), float("inf"), 1], "file"),
        ([-5, 0, 3], "file"),
        ([1, "2026-01-01T00:00:00Z", None, 1772355600000, "yesterday", [], {}, True], "file"),
        (["Mon, 02 Mar 2026 10:00:00 GMT", "2026-03-02T10:00:02+09:00", "20260302T100003Z"], "time"),
        ([1772355600, 1772355601], "time"),
    ],
)
def test_odd_times_cost_the_order_and_never_a_request(tmp_path, model, times, order):
    log = tmp_path / "log.jsonl"
    log.write_text("\n".join(json.dumps({"timestamp": t, "request": body(n)}) for n, t in enumerate(times)))
    result = analyze(log, "--model", model)
    assert result["input"]["requests"] == len(times)
    assert result["input"]["order"] == order
    assert ("times-missing" in notes(result)) == (order == "file")
    if 1772355600000 not in times:
        assert "1970" not in run(log, "--model", model).stdout


def test_a_clock_that_begins_with_the_trace_is_no_date(tmp_path):
    rows = [
        {"timestamp": t, "input_length": 600, "output_length": 1, "hash_ids": [1, t]} for t in (0, 60_000, 3_661_000)
    ]
    text = run(write_log(tmp_path / "trace.jsonl", rows)).stdout
    assert "mooncake, over 1 h 1 min, in time order" in text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.4, "0 s"),
        (59, "59 s"),
        (60, "1 min"),
        (3600, "1 h"),
        (3660, "1 h 1 min"),
        (90_000, "1 d 1 h"),
        (-3, "0 s"),
    ],
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_numbers_and_nouns():
    assert [many(n, "request") for n in (0, 1, 2500)] == ["0 requests", "1 request", "2,500 requests"]
    assert many(2, "family", "families") == "2 families"


def test_blocks_that_were_never_seen_are_new(tmp_path):
    """Ids of prefixes cannot tell whether equal content stood behind a difference; ids of contents can."""
    rows = [{"timestamp": i, "input_length": 1024, "output_length": 1, "hash_ids": [i, 7]} for i in range(3)]
    ideal = analyze(write_log(tmp_path / "mooncake.jsonl", rows))["engines"][0]
    assert ideal["misses"] == {"cold": 3 * 1024}
    groups = [{"sys_prompt": [i], "user_input": [7, 8]} for i in range(3)]
    rows = [
        {"timestamp": str(i), "input_length": 300, "output_length": 1, "hash_ids": ids, "session_id": "s"}
        for i, ids in enumerate(groups)
    ]
    result = analyze(write_log(tmp_path / "ragpulse.jsonl", rows))
    assert result["input"]["formats"] == {"ragpulse": 3}
    assert result["engines"][0]["misses"] == {"cold": 300 + 100 + 100, "diverged": 200 + 200}
    assert sum(f["lost_tokens"] for f in result["families"]) == 400


def test_token_ids_of_the_log_need_no_tokenizer(tmp_path):
    rows = [{"model": "m", "prompt": [5, 6, 7, n]} for n in range(3)] + [body(1)]
    uses = analyze(write_log(tmp_path / "log.jsonl", rows))["tokenizers"]
    assert tuple(uses[0][key] for key in ("name", "exact", "requests")) == ("token ids of the log", "assumed", 3)
    assert uses[1]["exact"] == "no"
    assert uses[1]["requests"] == 1


def test_the_id_of_a_family_joins_requests_and_result(tmp_path, model):
    other = {"model": "m", "messages": [{"role": "system", "content": "Translate into Danish."}]}
    rows = [body(1), other, body(2)]
    lines = tmp_path / "lines.jsonl"
    result = analyze(write_log(tmp_path / "log.jsonl", rows), "--model", model, "--requests-out", lines)
    of_requests = [json.loads(line)["family"] for line in lines.read_text().splitlines()]
    assert of_requests[0] == of_requests[2] != of_requests[1]
    assert set(of_requests) == {family["id"] for family in result["families"]}


def test_what_was_skipped_is_counted_by_file_and_reason(tmp_path, model):
    for name in "ab":
        (tmp_path / f"{name}.jsonl").write_text('{"colour": "green"}\n' * 3000 + "{broken\n" + json.dumps(body(1)))
    result = analyze(tmp_path, "--model", model)
    assert result["input"]["skipped_total"] == 6002
    kinds = {(Path(k["path"]).name, k["slug"]): (k["line"], k["count"]) for k in result["input"]["skipped_by_reason"]}
    assert kinds[("a.jsonl", "unknown-format")] == (1, 3000)
    assert kinds[("b.jsonl", "unknown-format")] == (1, 3000)
    assert sum(count for _, count in kinds.values()) == 6002
    text = " ".join(run(tmp_path, "--model", model).stdout.split())
    assert text.count("no known log format") == 2
    assert "and 2,999 more lines like it" in text


def test_a_template_that_words_each_refusal_differently_does_not_flood(tmp_path, model):
    template = tmp_path / "t.jinja"
    template.write_text("{{ raise_exception('no: ' + messages[-1].content * 300) }}")
    log = write_log(tmp_path / "log.jsonl", [body(n) for n in range(40)])
    result = analyze(log, "--model", model, "--chat-template", template)
    refused = [n["message"] for n in result["notes"] if n["slug"] == "refused-prompt"]
    assert len(refused) == 11
    assert refused[-1] == "30 more requests left out for 30 other reasons"
    assert max(map(len, refused)) < 600


def test_a_thousand_models_are_a_few_lines(tmp_path, model):
    log = write_log(tmp_path / "log.jsonl", [body(1, model=f"model-{n}") for n in range(1000)])
    text = run(log, "--model", model).stdout
    assert "model-0, model-1, model-2 and 997 more models" in " ".join(text.split())
    assert len(text.splitlines()) < 60


def test_prefixes_that_differ_by_a_word_are_one_line(tmp_path, model):
    rows = [body(n) for n in range(30)]
    shared = analyze(write_log(tmp_path / "log.jsonl", rows), "--model", model)["shared_prefixes"]
    assert len(shared) == 1


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_lines_keep_to_the_width(tmp_path, width):
    folder = tmp_path / ("a long name of a folder " * 4).strip()
    folder.mkdir()
    rows = [{"timestamp": 100 + n, "request": body(n), "response": usage(100, 0)} for n in range(5)]
    rows += [{"timestamp": 200, "colour": "green"}]
    log = write_log(folder / "log.jsonl", rows)
    for line in run(log, "--by", "model", width=width).stdout.splitlines():
        if width >= 80 and not line.lstrip().startswith("$ "):  # a command to copy stays in one piece
            assert columns(line) <= min(width, 120), line
    head = " ".join(run(log, width=width).stdout.split("\n\n")[0].split())
    assert "5 requests" in head
    assert "500 prompt tokens" in head


def test_the_widest_of_several_columns_is_cut():
    rows = [("team", "model", "n"), ("a" * 50, "b" * 10, "1")]
    lines = table(rows, align="<<>", width=30, grow=(0, 1), indent=0)
    assert lines[1] == "a" * 14 + "…  " + "b" * 10 + "  1"
    assert max(map(columns, table(rows, align="<<>", width=20, grow=(0, 1), indent=0))) == 20


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_without_a_traceback_and_leaves_nothing_half_written(tmp_path, model, number):
    out = ["--requests-out", str(tmp_path / "lines.jsonl"), "-o", str(tmp_path / "result.json")]
    command = [sys.executable, "-m", "prefixlint", "analyze", "-", "--model", str(model), *out]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdin.write(json.dumps(body(1)).encode() + b"\n")
        process.stdin.flush()
        until = time.monotonic() + 30
        while not any(tmp_path.iterdir()) and time.monotonic() < until:
            time.sleep(0.02)
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=30)
    assert process.returncode == 128 + number
    assert (stdout, stderr) == (b"", b"interrupted\n" if number == signal.SIGINT else b"")
    assert not any(tmp_path.iterdir())


def test_a_reader_that_goes_away_is_no_error(tmp_path, model):
    log = write_log(tmp_path / "log.jsonl", [body(n) for n in range(20)])
    command = [sys.executable, "-m", "prefixlint", "analyze", str(log), "--model", str(model)]
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_behind_stdout_is_said(tmp_path, model):
    log = write_log(tmp_path / "log.jsonl", [body(n) for n in range(20)])
    command = [sys.executable, "-m", "prefixlint", "analyze", str(log), "--model", str(model)]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(b"error[cannot-write]")
    assert b"Traceback" not in done.stderr


def test_devices_and_pipes_are_written_into_and_never_replaced(tmp_path, model):
    log = write_log(tmp_path / "log.jsonl", [body(n) for n in range(3)])
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    run(log, "--model", model, "-o", pipe)
    assert b"What the prefix cache" in os.read(reader, 1 << 16)
    os.close(reader)
    assert pipe.is_fifo()


def test_a_link_stays_a_link_and_its_target_is_replaced(tmp_path, model):
    log = write_log(tmp_path / "log.jsonl", [body(n) for n in range(3)])
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    target.write_text("old")
    link.symlink_to(target)
    run(log, "--model", model, "-o", link, "--format", "json")
    assert link.is_symlink()
    assert json.loads(target.read_text())["schema"] == "prefixlint.analyze/1"


def test_a_dash_is_standard_output(tmp_path, model):
    log = write_log(tmp_path / "log.jsonl", [body(n) for n in range(3)])
    done = run(log, "--model", model, "--requests-out", "-", "-o", tmp_path / "result.txt")
    assert [json.loads(line)["line"] for line in done.stdout.splitlines()] == [1, 2, 3]
    assert run(log, "--model", model, "-o", "-").stdout == run(log, "--model", model).stdout
    assert "error[output-twice]" in run(log, "--requests-out", "-", code=2).stderr
    assert not Path("-").exists()


def test_a_closed_standard_output_is_said(tmp_path, model):
    log = write_log(tmp_path / "log.jsonl", [body(n) for n in range(3)])
    command = f"exec {sys.executable} -m prefixlint analyze {log} --model {model} >&-"
    done = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(b"error[cannot-write]: standard output is closed")


def test_a_fault_of_the_program_is_a_line_and_exit_code_2(tmp_path, model, monkeypatch):
    def broken(*args, **kwargs):
        raise KeyError("text of the log")

    monkeypatch.setattr("prefixlint.summary.build", broken)
    log = write_log(tmp_path / "log.jsonl", [body(1)])
    done = run(log, "--model", model, "-o", tmp_path / "out.txt", code=2)
    assert "error[internal]: prefixlint has a fault: KeyError in test_analyze_hostile.py, line" in done.stderr
    assert "text of the log" not in done.stderr
    assert not (tmp_path / "out.txt").exists()


def test_verbose_leaves_no_row_out(tmp_path, model):
    words = [
        "refund",
        "invoice",
        "parcel",
        "stock",
        "route",
        "tariff",
        "batch",
        "crate",
        "dock",
        "seal",
        "origin",
        "label",
    ]
    rows = [body(1, messages=[{"role": "system", "content": f"{word} only, " * 9}]) for word in words]
    log = write_log(tmp_path / "log.jsonl", rows)
    few, all_of_them = run(log, "--model", model).stdout, run(log, "--model", model, "-v").stdout
    assert "and 7 more families with 7 requests" in few
    assert sum(f"{word} only" in few for word in words) == 5
    assert all(f"{word} only" in all_of_them for word in words)
