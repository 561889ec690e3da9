"""CONTRIBUTING.md, followed by somebody who knows nothing else: each thing is one file, and works once it is there."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^(`{3,4})\w+ (?P<path>\S+/\S+)\n(?P<text>.*?)^\1$", re.MULTILINE | re.DOTALL)
RULES = "Weigh each crate, note the road it takes, and never guess what is in it. "
TICKETS = [{"ticket": n, "rules": f"It is 09:12:{n:02}. {RULES * 9}", "ask": f"Where is crate {n}?"} for n in range(4)]


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """Give a copy of the program with every file of the page in it."""
    folder = tmp_path_factory.mktemp("copy")
    for name in ("prefixlint", "rules"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    blocks = {found["path"]: found["text"] for found in BLOCK.finditer((ROOT / "CONTRIBUTING.md").read_text("utf-8"))}
    assert {path.split("/")[-2] for path in blocks} == {"logs", "engines", "reports", "rules"}
    for path, text in blocks.items():
        assert not (folder / path).exists(), "an example that replaces a part of the program"
        (folder / path).write_text(text, encoding="utf-8")
    (folder / "tickets.jsonl").write_text("".join(json.dumps(ticket) + "\n" for ticket in TICKETS))
    (folder / "steps.py").write_text(
        f"def run(llm, history):\n    for step in range(20):\n        llm(system_prompt=f'Step {{step}} of 20. ' + {RULES * 9!r})\n"
    )
    return folder


def run(folder, *arguments):
    program = "import sys; from prefixlint.cli import main; sys.exit(main())"
    environment = {**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "80"}
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def test_a_log_format_an_engine_and_a_report_are_there_once_their_files_are(copy):
    done = run(copy, "analyze", "tickets.jsonl", "--engine", "shelf", "--format", "rates", "--what-if", "none")
    assert done.returncode == 0, done.stderr
    name, rate = done.stdout.strip().split("\t")
    assert name == "shelf"
    assert rate.endswith(" %")
    shown = run(copy, "analyze", "tickets.jsonl", "--what-if", "none")
    assert "help-desk, in file order" in shown.stdout
    assert "PFX101 clock-in-prefix" in shown.stdout
    assert "Shelf" in run(copy, "engine", "shelf").stdout


def test_a_saved_result_has_the_new_report_as_well(copy):
    fresh = run(copy, "analyze", "tickets.jsonl", "--format", "rates", "--what-if", "none")
    run(copy, "analyze", "tickets.jsonl", "--format", "json", "--what-if", "none", "-o", "saved.json")
    assert run(copy, "report", "saved.json", "--format", "rates").stdout == fresh.stdout


def test_a_rule_is_there_once_its_page_is(copy):
    assert "How far a job is" in run(copy, "rule", "OWN101").stdout
    done = run(copy, "check", "steps.py", "--select", "OWN101", "--no-cache", "--format", "json")
    assert done.returncode in (0, 1), done.stderr
    assert {one["rule"] for one in json.loads(done.stdout)["findings"]} == {"OWN101"}


def test_the_examples_of_the_new_page_hold(copy):
    """As the pages of the program are held: marked lines are found, the others are not."""
    from prefixlint import rulebook

    for number, example in enumerate(rulebook.load(copy / "rules")["OWN101"].examples):
        folder = copy / f"example{number}"
        folder.mkdir()
        name = example.name or "example.py"
        (folder / name).write_text(example.text)
        only = ("--select", "OWN101", "--min-tokens", "0", "--no-cache", "--format", "json")
        found = json.loads(run(copy, "check", f"{folder.name}/{name}", *only).stdout)["findings"]
        assert {one["line"] for one in found} == set(example.lines), example
