"""`prefixlint diff`: two requests, from files or from lines of a log."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from prefixlint.cli import main

LOG = Path(__file__).parents[1] / "fixtures" / "logrules" / "checksum-line" / "requests.jsonl"


def run(*arguments):
    done = CliRunner().invoke(main, ["diff", *map(str, arguments)])
    return done.exit_code, done.stdout, done.stderr


def shown(*arguments):
    code, out, _ = run(*arguments, "--format", "json")
    assert code == 0
    return json.loads(out)


def body(path, system, *texts, **more):
    roles = ("user", "assistant")
    messages = [{"role": "system", "content": system}]
    messages += [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]
    path.write_text(json.dumps({"model": "m", "messages": messages, **more}))
    return path


def test_two_lines_of_a_log():
    found = shown(f"{LOG}#1", f"{LOG}#2")
    first = found["first"]
    assert (first["rule"], first["path"], first["char"]) == ("PFX110", "system[0].text", 40)
    assert first["values"] == ["3fa10", "b07c2"]
    assert found["shared"]["characters"] == len("text") + 40


def test_all_differences_are_listed_in_order(tmp_path):
    a = body(tmp_path / "a.json", "Now 09:10. Be kind.", "first", "reply", "second question of some length")
    b = body(tmp_path / "b.json", "Now 09:12. Be kind.", "first", "REPLY!", "second question of some length", "x", "y")
    found = shown(a, b)["differences"]
    assert [(d["rule"], d["path"]) for d in found] == [
        ("PFX101", "messages[0].content"),
        ("PFX401", "messages[2].content"),
    ]


def test_a_request_that_only_goes_on(tmp_path):
    a, b = body(tmp_path / "a.json", "s", "q"), body(tmp_path / "b.json", "s", "q", "a", "r")
    found = shown(a, b)
    assert found["first"]["message"] == "the later request only goes on"
    assert found["first"]["rule"] is None


def test_equal_requests(tmp_path):
    a = body(tmp_path / "a.json", "s", "q")
    assert shown(a, a)["equal"] is True
    assert "equal to a prefix cache" in run(a, a)[1]


def test_plain_prompts(tmp_path):
    (tmp_path / "a.txt").write_text("You weigh crates. Step 1 of 9.")
    (tmp_path / "b.txt").write_text("You weigh crates. Step 2 of 9.")
    found = shown(tmp_path / "a.txt", tmp_path / "b.txt")
    assert (found["first"]["path"], found["first"]["char"]) == ("prompt", 23)
    assert found["shared"] == {"characters": 23, "of": 30}


def test_credentials_are_masked(tmp_path):
    a, b = (body(tmp_path / f"{n}.json", f"key sk-abcdefghijklmnopqrst{n} and on", "q") for n in "12")
    assert "sk-abc" not in run(a, b)[1]


@pytest.mark.parametrize(("name", "code"), [("missing.json", 3), (f"{LOG}#99", 2), ("missing.jsonl#1", 3)])
def test_what_cannot_be_read_is_said(name, code):
    found, _, talk = run(f"{LOG}#1", name)
    assert found == code
    assert "Traceback" not in talk
    assert talk
