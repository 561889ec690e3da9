"""Options, names and places that nobody means: each is refused or served in words, never as a fault of prefixlint."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from prefixlint.cli import main

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
