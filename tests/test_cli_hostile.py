"""Options, names and places that nobody means: each is refused or served in words, never as a fault of prefixlint."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from prefixlint import console
from prefixlint.cli import main
from prefixlint.reports._terminal import columns

SYSTEM = "You are a careful assistant of the harbour office. Answer briefly and never guess a tide. " * 3
MANY_DIGITS = "9" * 5000  # more than Python turns into a number


@pytest.fixture
def log(tmp_path):
    lines = (
        {"model": "m", "messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": f"Tide {i}?"}]}
        for i in range(3)
    )
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return str(path)


def run(*arguments):
    result = CliRunner().invoke(main, [str(argument) for argument in arguments], color=True)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert "[internal]" not in result.stderr
    return result


@pytest.mark.parametrize(
    ("option", "value", "slug"),
    [
        ("--why", "²", "bad-why"),
        ("--why", MANY_DIGITS, "bad-why"),
        ("--warmup", "²", "bad-warmup"),
        ("--warmup", MANY_DIGITS, "bad-warmup"),
        ("--capacity", "1e300", "bad-capacity"),
        ("--capacity", "-1e300", "bad-capacity"),
        ("--replicas", "99999999999", "bad-replicas"),
    ],
)
def test_numbers_beyond_reason_are_refused(log, option, value, slug):
    result = run("analyze", log, option, value)
    assert result.exit_code == 2
    assert slug in result.stderr


def test_a_block_beyond_reason_is_refused_and_a_large_one_is_not(log):
    assert run("analyze", log, "--block-size", 1 << 70).exit_code == 2
    assert run("analyze", log, "--block-size", 1 << 30).exit_code == 0


@pytest.mark.parametrize("limits", [(), ("--host-capacity", "9e14")])
def test_a_pool_costs_no_memory_before_it_is_used(log, limits):
    def cached(*options):
        report = json.loads(run("analyze", log, "--format", "json", *options).stdout)
        return [engine["cached_tokens"] for engine in report["engines"]]

    unlimited = cached()
    assert min(unlimited) > 0
    assert cached("--capacity", "1e14", *limits) == unlimited


def test_a_host_pool_is_not_told_to_be_what_it_cannot_be(log):
    result = run("analyze", log, "--capacity", "1000", "--host-capacity", "40GiB")
    assert result.exit_code == 2
    assert "like 400000 or 400k" in result.stderr
    assert "auto" not in result.stderr


@pytest.mark.parametrize("place", [f"#{MANY_DIGITS}", f"#1.{MANY_DIGITS}", "#٣", "#²", "#1.²"])
def test_lines_that_are_no_numbers(log, place):
    assert run("explain", log + place).exit_code == 2
    assert run("diff", log + place, log).exit_code == 3
    assert run("assert", log + place, log, "--min-shared", "1").exit_code == 3


def test_a_part_that_is_not_there_is_named_as_it_was_asked_for(log):
    explained = run("explain", log + "#2.7")
    assert explained.exit_code == 2
    assert "no request at line 2.7" in explained.stderr
    assert "the nearest one is at line 2\n" in explained.stderr
    assert "no request at line 2.7" in run("diff", log + "#2.7", log).stderr


@pytest.mark.parametrize("name", ["\x1b[31mred", "\x1b]0;title\x07", "over\u202eridden", "\udcff", "a\rb"])
def test_messages_show_names_that_a_terminal_would_obey(log, name):
    for arguments in (
        ("analyze", log, "--model", name),
        ("analyze", log, "--engine", name),
        ("analyze", log, "--log-format", name),
        ("analyze", name),
        ("explain", name + "#1"),
        ("diff", name, log),
    ):
        result = run(*arguments)
        assert result.exit_code in (2, 3)
        assert result.stderr.replace("\x1b[31m\x1b[1merror\x1b[0m", "").replace("\x1b[36mhelp\x1b[0m", "").isascii()
        assert (
            not set(name)
            & set("\x1b\x07\u202e\udcff\r")
            & set(result.stderr.replace("\x1b[31m\x1b[1merror\x1b[0m", "").replace("\x1b[36mhelp\x1b[0m", ""))
        )


def test_the_name_of_a_group_is_shown_and_not_obeyed(log):
    assert "\x1b[31m" not in run("analyze", log, "--by", "\x1b[31mx", "--color", "never").stdout


@pytest.mark.parametrize("option", ["--write-fixed", "--requests-out", "--export", "-o"])
def test_a_log_is_never_replaced_by_what_is_made_of_it(log, tmp_path, option):
    before = Path(log).read_bytes()
    link = tmp_path / "link.jsonl"
    link.symlink_to(log)
    for target in (log, link, tmp_path / "." / "log.jsonl"):
        result = run("analyze", log, option, target)
        assert result.exit_code == 2
        assert "output-is-log" in result.stderr
    assert run("analyze", str(tmp_path / "l*.jsonl"), option, log).exit_code == 2
    assert Path(log).read_bytes() == before


def test_two_results_are_not_written_over_each_other(log, tmp_path):
    out = tmp_path / "out.json"
    result = run("analyze", log, "--requests-out", out, "-o", out)
    assert result.exit_code == 2
    assert "output-twice" in result.stderr
    assert not out.exists()
    assert run("analyze", log, "--requests-out", "/dev/null", "--export", "/dev/null", "-o", "/dev/null").exit_code == 0


@pytest.mark.parametrize("nested", [False, True], ids=["bodies", "bodies in strings"])
def test_what_only_some_readers_take_is_written_back_as_it_was(tmp_path, nested):
    def line(number):
        body = {
            "model": "m",
            "messages": [
                {"role": "system", "content": f"Current time: 2026-03-03 08:{number:02d}:17. {SYSTEM}"},
                {"role": "user", "content": f"Tide {number}?", "name": "\ud800"},
            ],
            "metadata": {"x": "\ud800"},
        }
        return {"request": json.dumps(body) if nested else body}

    path, fixed = tmp_path / "log.jsonl", tmp_path / "fixed.jsonl"
    path.write_text("".join(json.dumps(line(number)) + "\n" for number in range(12)), encoding="utf-8")
    result = run("analyze", path, "--write-fixed", fixed)
    assert result.exit_code == 0, result.stderr
    lines = [json.loads(text)["request"] for text in fixed.read_text(encoding="utf-8").splitlines()]
    bodies = [json.loads(text) for text in lines] if nested else lines
    assert len(bodies) == 12
    assert all(body["metadata"] == {"x": "\ud800"} for body in bodies)
    assert "08:05:17" not in bodies[5]["messages"][0]["content"]


def test_excerpts_of_wide_characters_stay_within_the_width_and_their_marks_below_what_differs(tmp_path, monkeypatch):
    one, two = tmp_path / "a.txt", tmp_path / "b.txt"
    one.write_text("港の潮位を答える助手です。今は朝です。" + SYSTEM, encoding="utf-8")
    two.write_text("港の潮位を答える助手です。今は夜です。" + SYSTEM, encoding="utf-8")
    for terminal in (20, 40, 80):
        monkeypatch.setenv("COLUMNS", str(terminal))
        lines = run("diff", one, two, "--text-only").stdout.splitlines()
        marks = next(line for line in lines if line.strip(" ") and not line.strip(" ^"))
        earlier = lines[lines.index(marks) - 2]
        assert columns(earlier) <= terminal
        assert columns(earlier[: earlier.index("朝")]) == marks.index("^")
        assert marks.count("^") == columns("朝")


@pytest.mark.parametrize("text", ["tool = 5", "[tool]\nprefixlint = 5", "[[tool.prefixlint]]\nsinks = []"])
def test_a_configuration_that_is_no_table(tmp_path, monkeypatch, text):
    (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for command in ("check", "config"):
        result = run(command, ".")
        assert result.exit_code == 2
        assert "must be a table" in result.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("option", ["--requests-out", "--export", "--write-fixed"])
def test_a_full_disk_for_one_result_does_not_lose_the_others(log, tmp_path, option):
    report, lines = tmp_path / "report.txt", tmp_path / "lines.jsonl"
    also = ("--requests-out", lines) if option != "--requests-out" else ("--export", lines)
    result = run("analyze", log, option, "/dev/full", *also, "-o", report)
    assert result.exit_code == 2
    assert result.stderr.count("cannot-write") == 1
    assert "3 requests" in report.read_text(encoding="utf-8")
    assert lines.read_bytes().count(b"\n") == 3


def test_a_reader_who_stops_does_not_turn_a_failure_into_success(log):
    for arguments, code in (
        (("assert", log + "#1", log + "#2", "--min-shared", "1.0"), 1),
        (("analyze", log, "--fail-under", "99"), 1),
        (("analyze", log), 0),
    ):
        reading, writing = os.pipe()
        os.close(reading)
        with os.fdopen(writing, "wb") as pipe:
            done = subprocess.run(
                [sys.executable, "-m", "prefixlint", *arguments], stdout=pipe, stderr=subprocess.PIPE, check=False
            )
        assert done.returncode == code, done.stderr
        assert b"Traceback" not in done.stderr


def test_a_fault_of_the_command_is_not_taken_for_one_of_a_file_that_it_writes(tmp_path):
    failed, fault = [], OSError(5, "Input/output error", "log.jsonl")
    with pytest.raises(OSError, match="Input/output error") as caught, console.aside(str(tmp_path / "x"), failed):
        raise fault
    assert caught.value is fault
    assert not failed
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", ["record", "report", "explain", "probe", "rule", "schema", "check"])
@pytest.mark.parametrize(
    "words", [("a\x1b[31m\u202e", "b\u202e", "c\x9b"), ("--o\u202e\x1b[31mpt",)], ids=["names", "option"]
)
def test_a_wrong_word_is_shown_and_not_obeyed(command, words):
    done = CliRunner().invoke(main, [command, *words])
    assert done.exit_code != 0
    assert done.stderr
    assert not set("\x1b\u202e\x9b") & set(done.output)


@pytest.mark.skipif(not Path("/dev/zero").is_char_device(), reason="this system has no endless device")
@pytest.mark.parametrize("words", [("analyze", "/dev/zero"), ("report", "/dev/zero"), ("analyze", "/dev/full")])
def test_a_device_that_never_ends_is_not_read(words):
    result = run(*words)
    assert (result.exit_code, "may never end" in result.stderr) == (2, True)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full device")
@pytest.mark.parametrize("word", ["--help", "--version"])
def test_a_help_text_that_cannot_be_written_is_told_in_words(word):
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "prefixlint", word], stdout=full, stderr=subprocess.PIPE, check=False, text=True
        )
    assert done.returncode == 2
    assert done.stderr.startswith("error[cannot-write]")
    assert "Traceback" not in done.stderr


def test_a_closed_stderr_costs_no_result(log):
    script = 'exec "$0" -m prefixlint analyze "$1" 2>&-'
    done = subprocess.run(["sh", "-c", script, sys.executable, log], capture_output=True, check=False, text=True)
    assert done.returncode == 0
    assert "hit rate" in done.stdout


def test_an_address_with_a_password_is_refused_and_not_shown(log):
    result = run("verify", log, "--url", "http://someone:hush-hush@127.0.0.1:1")
    assert result.exit_code == 2
    assert "bad-url" in result.stderr
    assert "hush" not in result.output


def test_a_saved_result_is_not_replaced_by_what_is_made_of_it(log, tmp_path):
    saved = tmp_path / "run.json"
    run("analyze", log, "--format", "json", "-o", saved)
    before = saved.read_bytes()
    assert "output-is-input" in run("report", saved, "--format", "markdown", "-o", saved).stderr
    assert saved.read_bytes() == before


def test_a_folder_without_files_is_not_taken_for_no_argument(tmp_path):
    result = run("analyze", tmp_path)
    assert (result.exit_code, "no file was found" in result.stderr) == (3, True)


def test_a_terminal_that_shows_no_colour_gets_none(monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert console.wants_color("auto", None)
    monkeypatch.setenv("TERM", "dumb")
    assert not console.wants_color("auto", None)
    assert console.wants_color("always", None)
