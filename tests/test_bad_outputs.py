"""Disks that are full or cannot be written, readers who stop, narrow terminals: words and exit codes, no half file."""

import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from prefixlint.cli import main
from prefixlint.reports._terminal import columns
from tests.clocked import PROMPT, bodies

COMMANDS = {
    "check": (("check", "clock.j2"), ("text", "json", "sarif", "github", "markdown", "html")),
    "analyze": (("analyze", "log.jsonl", "--what-if", "none"), ("text", "json", "sarif", "markdown", "github", "html")),
    "diff": (("diff", "log.jsonl#1", "log.jsonl#2"), ("text", "json")),
    "explain": (("explain", "log.jsonl#2"), ("text", "json")),
    "assert": (("assert", "log.jsonl#1", "log.jsonl#2", "--min-shared", "1"), ("text", "json")),
    "engine": (("engine", "sglang"), ("text", "json")),
    "rule": (("rule", "PFX101"), ("text", "json")),
    "config": (("config",), ("text", "json")),
    "report": (("report", "saved.json"), ("html", "json", "markdown", "text", "sarif", "github")),
}
EVERY = [(name, form) for name, (_, forms) in COMMANDS.items() for form in forms]
needs_full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Give a folder with something for each command."""
    tmp_path = tmp_path_factory.mktemp("made")
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "clock.j2").write_text(f"{{{{ now() }}}}\n{PROMPT}\n")
    asked = bodies(4, asks="Frage {} 🙂 漢字")
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(body) + "\n" for body in asked))
    saved = (
        "analyze",
        str(tmp_path / "log.jsonl"),
        "--what-if",
        "none",
        "--format",
        "json",
        "-o",
        str(tmp_path / "saved.json"),
    )
    assert run(*saved).exit_code == 0
    return tmp_path


@pytest.fixture
def project(made, tmp_path, monkeypatch):
    folder = tmp_path / "project"
    shutil.copytree(made, folder)
    monkeypatch.chdir(folder)
    return folder


def run(*arguments, **environment):
    done = CliRunner(env=environment).invoke(main, list(arguments))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert "[internal]" not in done.stderr
    return done


@needs_full
@pytest.mark.parametrize(("name", "form"), EVERY)
def test_a_full_disk_is_told_in_words(project, name, form):
    done = run(*COMMANDS[name][0], "--format", form, "-o", "/dev/full")
    assert done.exit_code == 2
    assert "error[cannot-write]: cannot write /dev/full: No space left on device" in done.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_a_folder_that_is_not_there_is_told_in_words(project, name):
    before = sorted(project.rglob("*"))
    done = run(*COMMANDS[name][0], "-o", "gone/out.txt")
    assert (done.exit_code, "error[cannot-write]" in done.stderr) == (2, True)
    assert [path for path in sorted(project.rglob("*")) if ".prefixlint_cache" not in path.parts] == before


@pytest.mark.parametrize(
    "command", [("analyze", "log.jsonl", "--format", "json"), ("check", "--format", "sarif")], ids=["analyze", "check"]
)
def test_a_disk_that_fills_up_leaves_what_was_there(project, command):
    """Half of a result is never left: neither under its own name nor under another."""
    (project / "out.json").write_text("what was there")
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000)); from prefixlint.__main__ import run; import sys; sys.argv = {['prefixlint', *command, '-o', 'out.json']!r}; run()"
    before = sorted(path.name for path in project.iterdir())
    done = subprocess.run([sys.executable, "-c", limited], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "cannot write out.json: File too large" in done.stderr
    assert "Traceback" not in done.stderr
    assert (project / "out.json").read_text() == "what was there"
    assert sorted(path.name for path in project.iterdir() if path.name != ".prefixlint_cache") == before
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 2000


@needs_full
@pytest.mark.parametrize("form", ["text", "markdown", "html"])
def test_a_full_standard_output_is_no_traceback(project, form):
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "prefixlint", "analyze", "log.jsonl", "--format", form],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 2
    assert "cannot write standard output" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("check", "--format", "sarif"),
        ("analyze", "log.jsonl", "--format", "html"),
        ("report", "saved.json", "--format", "markdown"),
    ],
    ids=lambda command: command[0],
)
def test_a_reader_who_stops_is_no_failure(project, command):
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        done = subprocess.run(
            [sys.executable, "-m", "prefixlint", *command], stdout=pipe, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == (1 if command[0] == "check" else 0), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_a_narrow_terminal_gets_the_same_words(project, name):
    arguments, forms = COMMANDS[name]
    if "text" not in forms:
        pytest.skip("has no text")
    narrow, usual = (run(*arguments, "--format", "text", COLUMNS=str(width)).stdout for width in (20, 80))
    assert narrow
    if name == "rule":  # a list, and pages: not wrapped
        assert narrow == usual
        return
    kept = ("root: ", "configuration: ") if name == "config" else ()
    sentences = [line for line in usual.splitlines() if " | " not in line and not line.startswith(kept)]
    assert max(map(columns, sentences)) <= 80
    if name in ("check", "config"):
        assert narrow.split() == usual.split()


def test_the_cache_of_a_check_may_be_unwritable(project):
    (project / ".prefixlint_cache").write_text("a file where a folder should be")
    done = run("check", "--format", "json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["findings"]
