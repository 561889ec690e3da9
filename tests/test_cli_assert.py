"""`prefixlint assert`: exit codes, thresholds, and the excerpt where it fails."""

import json

import pytest
from click.testing import CliRunner

from prefixlint.cli import main

RULES = "Weigh each crate, note the road it takes, and never guess. " * 20


def run(*arguments):
    done = CliRunner().invoke(main, ["assert", *map(str, arguments)])
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("assert")
    paths = []
    for name, tail in (("a", "Ask anna."), ("b", "Ask bo!")):
        paths.append(folder / f"{name}.txt")
        paths[-1].write_text(RULES + tail)
    return paths


@pytest.mark.parametrize("least", ["0.9", "90%", "200", "1"])
def test_it_holds(pair, least):
    code, out, _ = run(*pair, "--min-shared", least)
    assert code == 0
    assert "tokens shared" in out


@pytest.mark.parametrize("least", ["0.999", "99.9%", "2000", "1.0"])
def test_it_fails_and_shows_where_they_part(pair, least):
    code, out, talk = run(*pair, "--min-shared", least)
    assert code == 1
    assert "failed: " in out
    assert "first divergence: prompt, character" in out
    assert "anna" in out
    assert not talk


def test_the_count_is_the_prefix(pair):
    code, out, _ = run(*pair, "--min-shared", "1", "--format", "json")
    found = json.loads(out)
    assert code == 0
    assert (found["schema"], found["ok"], found["unit"]) == ("prefixlint.assert/1", True, "token")
    assert found["shared"] == found["diff"]["first"]["token"]
    for least, code in ((found["shared"], 0), (found["shared"] + 1, 1)):
        assert run(*pair, "--min-shared", least)[0] == code


def test_characters_need_no_tokenizer(pair):
    shared = len(RULES) + len("Ask ")
    assert run(*pair, "--text-only", "--min-shared", shared)[0] == 0
    code, out, _ = run(*pair, "--text-only", "--min-shared", shared + 1, "--format", "json")
    assert code == 1
    found = json.loads(out)
    assert (found["unit"], found["shared"], found["later"]) == ("character", shared, len(RULES) + len("Ask bo!"))


def test_all_lines_of_a_prompt_count(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).write_text(f"{RULES}\nAsk {name}.\n")
    code, out, _ = run(tmp_path / "a", tmp_path / "b", "--min-shared", "1.0", "--text-only")
    assert code == 1
    assert f"character {len(RULES) + 5:,}" in out


def test_budgets(pair):
    assert run(*pair, "--max-tokens", "5000")[0] == 0
    code, out, _ = run(*pair, "--max-tokens", "100")
    assert code == 1
    assert "A has" in out
    assert "B has" in out


def test_lines_of_a_log(tmp_path):
    log = tmp_path / "log.jsonl"
    rows = [
        {"model": "m", "messages": [{"role": "system", "content": RULES}, {"role": "user", "content": q}]} for q in "xy"
    ]
    log.write_text("\n".join(map(json.dumps, rows)))
    assert run(f"{log}#1", f"{log}#2", "--min-shared", "0.9")[0] == 0


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--min-shared", "much"),
        ("--min-shared", "0"),
        ("--min-shared", "0.0"),
        ("--min-shared", "1.5"),
        ("--min-shared", "-3"),
        ("--min-shared", "nan%"),
        ("--min-shared", "150%"),
        ("--max-tokens", "0"),
        ("--max-tokens", "9", "--text-only"),
    ],
)
def test_what_cannot_be_asked(pair, arguments):
    code, out, talk = run(*pair, *arguments)
    assert code == 2
    assert not out
    assert "Traceback" not in talk


def test_a_file_that_is_not_there(pair):
    assert run(pair[0], "missing.txt", "--min-shared", "0.9")[0] == 3


def test_empty_prompts(tmp_path):
    path = tmp_path / "empty.txt"
    path.write_text("")
    assert run(path, path, "--min-shared", "1", "--text-only")[0] == 1


def test_masks(tmp_path):
    for name in ("anna@example.org", "bo@example.org"):
        (tmp_path / name).write_text(f"mail {name} with sk-abcdefghijklmnopqrst{name[:2]}")
    code, out, _ = run(tmp_path / "anna@example.org", tmp_path / "bo@example.org", "--min-shared", "1.0", "--redact")
    shown = out.split("first divergence", 1)[1]
    assert code == 1
    assert "example.org" not in shown
    assert "sk-abc" not in shown
