"""Files that nobody should have, each alone and all in one folder: what is wrong is said, and the run goes on."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parent))

from growth import work

from prefixlint import checktext, link, placement
from prefixlint.cli import main
from prefixlint.placement import UNKNOWN_TOKENS
from prefixlint.reports._terminal import columns
from tests.clocked import PROMPT, bodies
from tests.linting import findings, places, project_of

BAD = 'import uuid\n\ndef system_prompt():\n    return f"[{uuid.uuid4()}] " + "You are a careful assistant of a library. " * 9\n'
NOTEBOOK = {"nbformat": 4, "cells": [{"cell_type": "code", "source": ["prompt = f'{x}'"]}]}
FILES = {
    "syntax.py": ("def system_prompt(:\n    x\n", "syntax-error", 1),
    "python2.py": ("print 'You are a prompt'\n", "syntax-error", 1),
    "encoding.py": (b"prompt = '\xff\xfe caf\xe9'\n", "syntax-error", 1),
    "unknown_encoding.py": ("# coding: klingon\nprompt = 1\n", "syntax-error", 1),
    "utf16.py": ("prompt = 1\n".encode("utf-16"), "not-text", 1),
    "nul.py": ("x = 1\nprompt = 1\0\n", "not-text", 2),
    "prompts/nul.md": ("{current_time}\0\n", "not-text", 0),
    "prompts/latin.md": (b"You are\n{current_time} caf\xe9\n", "wrong-encoding", 2),
    "parentheses.py": ("prompt = " + "(" * 5000 + ")" * 5000, "syntax-error", 1),
    "minus.py": ("prompt = " + "-" * 3000 + "1\n", "too-deep", 0),
    "sum.py": ("prompt = " + "+".join(["'a'"] * 20_000) + "\n", "too-deep", 0),
    "chain.py": ("prompt = a" + ".b()" * 3000 + "\n", "too-deep", 0),
    "deep.json": ('{"prompt":' * 3000 + '"{x} y"' + "}" * 3000, "data-syntax", 1),
    "deep.yaml": ("prompt: " + "[" * 3000 + "'{x}'" + "]" * 3000, "data-syntax", 1),
    "cut.toml": ("system_prompt = '{current_time} You'\n[a]\na=1\na=2\n", "data-syntax", 4),
    "old.ipynb": (json.dumps({**NOTEBOOK, "nbformat": 3}), "notebook-version", 0),
    "new.ipynb": (json.dumps({**NOTEBOOK, "nbformat": 9}), "notebook-version", 0),
    "cut.ipynb": ('{"nbformat": 4, "cells": [{"source": ["prompt', "notebook-syntax", 1),
    "large.py": (BAD + "#" * 5_000_001, "too-large", 0),
}
QUIET = {
    "chain.j2": "{% if a %}" * 1500 + "{{ x }}" + "{% endif %}" * 1500,
    "recursive/a.j2": '{% include "b.j2" %}',
    "recursive/b.j2": '{% include "a.j2" %}',
    "recursive/self.j2": '{% extends "self.j2" %}',
    "recursive/macro.j2": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "missing.j2": '{% include "nowhere.j2" %}{% extends "gone.j2" %}',
    "cycle/__init__.py": "",
    "cycle/a.py": "from cycle.b import *\nfrom cycle.b import prompt as p\nprompt = p\nsystem_prompt = prompt.format(x=p)\n",
    "cycle/b.py": "from cycle.a import *\nfrom cycle.a import prompt as q\nprompt = q\nclass A(A):\n    prompt = A.prompt\n",
    "lists.ipynb": json.dumps({"nbformat": 4, "cells": [1, None, {"cell_type": "code", "source": {"a": 1}}]}),
    "types/tokenizer_config.json": '{"chat_template": [1, {"name": "x"}]}',
    "loop/tokenizer_config.json": '{"chat_template": "{% for i in range(10**9) %}x{% endfor %}{{ messages }}"}',
    "object.yaml": "a: !!python/object/apply:os.system ['touch EXECUTED']\nprompt: 'You {x} are'\n",
    "run.py": "open('EXECUTED', 'w')\nprompt = 1\n",
    "empty.py": "",
    "empty.yaml": "",
    "empty.ipynb": "",
}
QUIET["laughs.yaml"] = (
    "a: &a ['{x} prompt', '{x} y']\n"
    + "".join(f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(12))
    + "prompt: *m\n"
)
QUIET["laughing-manifest.yaml"] = "image: vllm/vllm-openai\n" + QUIET["laughs.yaml"]


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prefixlint.toml").touch()
    return tmp_path


def put(root, path, content):
    full = root / path
    full.parent.mkdir(parents=True, exist_ok=True)
    full.write_bytes(content if isinstance(content, bytes) else content.encode())


def check(*args):
    done = CliRunner().invoke(main, ["check", "--no-cache", "--format", "json", *args])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, json.loads(done.stdout)


def said(document, path):
    return [(error["slug"], error["line"] or 0) for error in document["errors"] if error["path"] == path]


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_cannot_be_read_is_said_with_its_line(project, name):
    content, slug, line = FILES[name]
    put(project, name, content)
    code, document = check(name)
    assert said(document, name) == [(slug, line)]
    assert code == 0
    assert document["findings"] == []


@pytest.mark.parametrize("name", QUIET)
def test_a_strange_file_alone_ends_well(project, name):
    for path, content in QUIET.items():
        if path.rpartition("/")[0] == name.rpartition("/")[0]:
            put(project, path, content)
    code, document = check(name)
    assert code == 0
    assert said(document, name) == []


def test_a_folder_of_all_of_them_still_shows_what_is_wrong_with_a_good_one(project):
    for path, (content, _, _) in FILES.items():
        put(project, path, content)
    for path, content in QUIET.items():
        put(project, path, content)
    put(project, "good.py", BAD)
    os.mkfifo(project / "pipe.py")
    (project / "again").symlink_to(project)
    code, document = check(".")
    assert code == 1
    assert [(f["rule"], f["path"]) for f in document["findings"]] == [("PFX104", "good.py")]
    assert {name: said(document, name) for name in FILES} == {n: [(slug, line)] for n, (_, slug, line) in FILES.items()}
    assert not (project / "EXECUTED").exists()


@pytest.mark.parametrize("name", ["pipe.py", "pipe.jsonl", "pipe.md"])
def test_a_pipe_is_not_waited_for(project, name):
    os.mkfifo(project / name)
    put(project, "good.py", BAD)
    _, document = check(name, "good.py")
    assert [f["path"] for f in document["findings"]] == ["good.py"]
    if name != "pipe.jsonl":
        assert said(document, name) == [("not-a-file", 0)]


@pytest.mark.parametrize("report", ["text", "json", "sarif", "github"])
@pytest.mark.parametrize("name", [b"n\xff\xfe.py", b"new\nline.py", b"tab\t.py"])
def test_names_that_are_no_text_are_read(project, name, report):
    with open(os.path.join(os.fsencode(project), name), "wb") as file:  # noqa: PTH118, PTH123 (bytes are no Path)
        file.write(BAD.encode())
    program = "from prefixlint.cli import main; main()"
    for _ in range(2):  # the second time with a cache
        done = subprocess.run(
            [sys.executable, "-c", program, "check", "--format", report, os.fsdecode(name)],
            capture_output=True,
            check=False,
            cwd=project,
        )
        assert done.returncode == 1, done.stderr
        assert b"PFX104" in done.stdout
        assert not done.stderr


def test_an_unreadable_file_is_said(project, monkeypatch):
    put(project, "closed.py", BAD)
    read_bytes = type(project).read_bytes

    def refusing(path):
        if path.name == "closed.py":
            raise PermissionError(13, "Permission denied")
        return read_bytes(path)

    monkeypatch.setattr(type(project), "read_bytes", refusing)
    _, document = check("closed.py")
    assert said(document, "closed.py") == [("unreadable", 0)]


def test_a_prompt_that_is_too_deep_leaves_the_others(monkeypatch):
    read = link._prompts

    def deep(linked, summary, sink, renders):
        if summary.path == "a.j2":
            raise RecursionError
        return read(linked, summary, sink, renders)

    monkeypatch.setattr(link, "_prompts", deep)
    found, errors = findings({"a.j2": "{{ now() }} You", "b.j2": "{{ now() }} You are a careful assistant."})
    assert [(error.path, error.slug) for error in errors] == [("a.j2", "too-deep")]
    assert {each.span.path for each in found} == {"b.j2"}


# ---------------------------------------------------------------------- time


@pytest.mark.parametrize("room", [30, 77, 120])
@pytest.mark.parametrize("before", ["", "\t\x07", "x" * 1_000, "今" * 500])
@pytest.mark.parametrize("behind", ["", "y", "y" * 1_000_000, "です" * 500])
def test_a_long_line_is_cut_to_the_room_that_there_is_and_the_carets_stand_below_the_place(room, before, behind):
    data = f"first\n{before}{{今日}}{behind}\r\nnext".encode()
    line = checktext._line_of(data, 6)
    source, carets = checktext._marked_line(line, len(before), len("{今日}"), room)
    assert columns(source) <= room
    assert columns(source) >= room - 2 or source == checktext._plain(line.replace("\t", " "))
    assert carets == " " * columns(source.partition("{")[0]) + "^" * 6


def test_carets_go_on_to_the_end_of_a_line_where_the_place_does():
    assert checktext._marked_line("a = {b", 4, None, 40) == ("a = {b", "    ^^")
    assert checktext._marked_line("", 0, 0, 40) == ("", "^")


def test_places_count_what_stands_beside_them_in_their_own_branch():
    text = (
        "A" * 40
        + "{% if a %}"
        + "B" * 80
        + "{{ now() }}"
        + "C" * 20
        + "{% else %}"
        + "D" * 400
        + "{% endif %}{{ now() }}"
        + "E" * 60
    )
    project, _ = project_of({"prompts/a.j2": text})
    (prompt,) = link.link(project, ["prompts/a.j2"]).prompts["prompts/a.j2"]
    first, second = placement.places(prompt)
    assert (first.before, first.behind) == (30, 20), "the branch it stands in"
    assert (second.before, second.behind) == (110, 15), "the branch with the most text"
    assert UNKNOWN_TOKENS == 64


def test_many_places_take_no_time_each_for_all_the_others():
    found = places({"prompts/a.md": "{{ current_time }} " + "{{ x }} y " * 4000})
    assert ("PFX101", "prompts/a.md", 1) in found


@pytest.mark.parametrize("depth", [100, 300, 600, 900, 2000, 50_000])
def test_values_that_are_nested_too_deep_cost_no_other_finding(project, depth):
    """The clock of the same log is found, and so is what stands in other files."""
    deep = [], "[" * depth + "{}" + "]" * depth
    rows = [json.dumps(body) for body in bodies(4)]
    for end in ("1", "2"):
        tools = '[{"type": "function", "function": {"name": "f", "parameters": ' + deep[1].replace("{}", end) + "}}]"
        rows.insert(2, rows[0][:-1] + f', "tools": {tools}}}')
    (project / "deep.jsonl").write_text("\n".join(rows))
    (project / "clock.j2").write_text(f"{{{{ now() }}}}\n{PROMPT}\n")
    done = CliRunner().invoke(main, ["check", "--format", "json", "--no-cache", "deep.jsonl", "clock.j2"])
    assert done.exit_code == 1, done.stderr
    assert {one["path"] for one in json.loads(done.stdout)["findings"] if one["rule"] == "PFX101"} == {
        "deep.jsonl",
        "clock.j2",
    }
    shown = CliRunner().invoke(main, ["analyze", "deep.jsonl", "--what-if", "none"])
    assert shown.exit_code == 0, shown.stderr
    assert "PFX101 clock-in-prefix" in shown.stdout


@pytest.mark.parametrize("place", ["prefixlint.logrules.view", "prefixlint.logrules.Observer.findings"])
def test_a_fault_of_a_log_rule_costs_that_log_alone(project, monkeypatch, place):
    def broken(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr(place, broken)
    (project / "log.jsonl").write_text("\n".join(json.dumps(body) for body in bodies(4)))
    (project / "clock.j2").write_text(f"{{{{ now() }}}}\n{PROMPT}\n")
    done = CliRunner().invoke(main, ["check", "--format", "json", "--no-cache", "log.jsonl", "clock.j2"])
    found = json.loads(done.stdout)
    assert [one["path"] for one in found["findings"]] == ["clock.j2"]
    assert [(one["path"], one["slug"]) for one in found["errors"]] == [("log.jsonl", "log-rules-failed")]


@pytest.mark.parametrize(
    "line",
    [
        "    if a:\n        x = x or y\n",
        "    x = x if a else (x or y)\n",
        "    x = (x or y) + (y or x)\n",
        "    try:\n        x = x or y\n    except E:\n        x = y or x\n",
    ],
)
def test_branches_that_leave_a_name_many_times_take_no_time(line):
    def read(times):
        body = line * times
        code = f"def f(x, y, a):\n{body}    prompt = x + y\n    return [prompt, {{'role': 'user', 'content': x}}]\n"
        _, errors = findings({"app.py": code})
        assert not errors

    assert work(read, 60) < 4 * work(read, 30), "each branch is looked at again"


def test_a_source_is_not_replaced_by_the_report(project):
    put(project, "clock.j2", "You are a careful assistant. It is {{ now() }}. " + "Answer in one sentence. " * 20)
    before = (project / "clock.j2").read_bytes()
    done = CliRunner().invoke(main, ["check", "--no-cache", "clock.j2", "-o", "clock.j2"])
    assert done.exit_code == 2
    assert "output-is-input" in done.stderr
    assert (project / "clock.j2").read_bytes() == before


def test_a_report_in_the_project_can_be_written_again(project):
    put(project, "clock.j2", "You are a careful assistant. It is {{ now() }}. " + "Answer in one sentence. " * 20)
    for _ in range(2):
        done = CliRunner().invoke(main, ["check", "--no-cache", "--format", "json", "-o", "old.json"])
        assert done.exit_code == 1, done.stderr


def test_a_baseline_is_looked_for_where_the_command_runs(project, monkeypatch):
    put(project, "pyproject.toml", "")
    put(project, "sub/clock.j2", "You are a careful assistant. It is {{ now() }}. " + "Answer in one sentence. " * 20)
    monkeypatch.chdir(project / "sub")
    CliRunner().invoke(main, ["check", "--no-cache", "--format", "json", "-o", "old.json"])
    assert CliRunner().invoke(main, ["check", "--no-cache", "--baseline", "old.json"]).exit_code == 0
    monkeypatch.chdir(project)
    assert CliRunner().invoke(main, ["check", "--no-cache", "--baseline", "sub/old.json"]).exit_code == 0


def test_a_file_name_with_escapes_is_harmless_in_annotations(project):
    put(project, "a\x1b[31m\u202e.j2", "You are careful. It is {{ now() }}. " + "Answer in one sentence. " * 20)
    done = CliRunner().invoke(main, ["check", "--no-cache", "--format", "github"])
    assert "\\x1b[31m\\u202e.j2" in done.output
    assert "\x1b" not in done.output


def test_a_configuration_that_is_nested_too_deep_is_told(project):
    put(project, "prefixlint.toml", "select = " + "[" * 5000)
    done = CliRunner().invoke(main, ["check", "--no-cache"])
    assert (done.exit_code, "nested too deeply" in done.stderr) == (2, True)


def test_what_cannot_be_fixed_is_told(project):
    put(project, "clock.j2", "You are careful. It is {{ now() }}, as said. " + "Answer in one sentence. " * 20)
    done = CliRunner().invoke(main, ["check", "--no-cache", "--diff"])
    assert (done.exit_code, done.stdout) == (1, "")
    assert "no fix for any of the findings" in done.stderr
