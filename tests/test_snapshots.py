"""What each command writes in each format, as files in `snapshots/`: a change of them is read as a diff.

    PREFIXLINT_SNAPSHOTS=write python -m pytest tests/test_snapshots.py      writes them again

Paths of the machine and the version are replaced, so that the files are the same everywhere.
"""

import json
import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

import prefixlint
from prefixlint.cli import main

SNAPSHOTS = Path(__file__).parent / "snapshots"
WRITE = os.environ.get("PREFIXLINT_SNAPSHOTS") == "write"
PROMPT = "You answer all questions of readers in one sentence, and name the shelf. Never guess, and never talk about other readers of the library, whatever they say."
FILES = {
    "pyproject.toml": '[tool.prefixlint]\nper-file-ignores = {"silent.j2" = ["PFX101"]}\n',
    "prompts/clock.j2": f"{{# a date #}}\n{{{{ now() }}}}\n{PROMPT}\n",
    "prompts/names.py": f'names = {{"a", "b"}} | extra\nSYSTEM_PROMPT = "Ü know: " + ", ".join(names) + ". {PROMPT}"\n',
    "prompts/broken.py": 'prompt = "\n',
    "prompts/silent.j2": f"{{{{ now() }}}}\n{PROMPT}\n",
    "prompts/hostile | @name.j2": f"{{# \x1b[31m\u202e<script> #}}{{{{ now() }}}}\n{PROMPT}\n",
    "app.py": f"import time\nSYSTEM_PROMPT = f\"It is {{time.strftime('%H:%M:%S')}}. {PROMPT}\"\n",
}
CHECKS = ("text", "json", "sarif", "github", "markdown")
COMMANDS = {
    **{f"check.{form}": ("check", "prompts", "--format", form) for form in CHECKS},
    "check.statistics": ("check", "prompts", "--statistics", "-v"),
    "check.diff": ("check", "prompts", "--fix", "--diff"),
    **{f"analyze.{form}": ("analyze", "log.jsonl", "--format", form) for form in ("text", "json", "sarif", "markdown", "github")},
    "analyze.source": ("analyze", "log.jsonl", "--source", "app.py", "--what-if", "none"),
    "analyze.compare": ("analyze", "log.jsonl", "--compare", "old.json", "--format", "markdown", "--max-drop", "1"),
    "analyze.limits": ("analyze", "log.jsonl", "--capacity", "300", "--replicas", "2", "--what-if", "none"),
    **{f"diff.{form}": ("diff", "log.jsonl#1", "log.jsonl#2", "--format", form) for form in ("text", "json")},
    **{f"explain.{form}": ("explain", "log.jsonl#2", "--format", form) for form in ("text", "json")},
    **{f"assert.{form}": ("assert", "log.jsonl#1", "log.jsonl#2", "--min-shared", "0.9", "--format", form) for form in ("text", "json")},
    "rule.text": ("rule", "PFX101"),
    "config.json": ("config", ".", "--format", "json"),
}  # fmt: skip


def body(number, text=PROMPT):
    head = f"It is 09:12:{number:02d}. {text}"
    user = f"Where is book {number}? <b>|`@you` \x1b[31m\u202e"
    return {"model": "m", "messages": [{"role": "system", "content": head}, {"role": "user", "content": user}]}


@pytest.fixture
def project(tmp_path, monkeypatch):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(body(number)) + "\n" for number in range(6)))
    bodies = (body(0) for _ in range(3))
    (tmp_path / "old.jsonl").write_text("".join(json.dumps(one) + "\n" for one in bodies))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    assert run("analyze", "old.jsonl", "--format", "json", "-o", "old.json").exit_code == 0
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(main, list(arguments))


def scrubbed(text, folder):
    text = text.replace(os.path.realpath(folder), "<root>").replace(str(folder), "<root>")
    text = re.sub(r"not valid Python 3\.\d+", "not valid Python 3", text)
    return re.sub(rf'("(?:semanticV|v)ersion": ?)"{re.escape(prefixlint.__version__)}"', r'\1"<version>"', text)


@pytest.mark.parametrize("name", COMMANDS)
def test_what_is_written(name, project):
    done = run(*COMMANDS[name])
    shown = f"$ prefixlint {' '.join(COMMANDS[name])}\nexit code {done.exit_code}\n\n{scrubbed(done.stdout, project)}"
    if done.stderr:
        shown += f"\non stderr:\n{scrubbed(done.stderr, project)}"
    path = SNAPSHOTS / f"{name}.txt"
    if WRITE:
        path.parent.mkdir(exist_ok=True)
        path.write_text(shown, encoding="utf-8", newline="\n")
    assert path.is_file(), "no snapshot: PREFIXLINT_SNAPSHOTS=write python -m pytest tests/test_snapshots.py"
    assert shown == path.read_text(encoding="utf-8"), "PREFIXLINT_SNAPSHOTS=write … writes the snapshots again"
    assert not set("\x1b\u202e") & set(shown), "a terminal would obey this"


def test_no_snapshot_is_left_over():
    assert {path.stem for path in SNAPSHOTS.glob("*.txt")} == set(COMMANDS)
