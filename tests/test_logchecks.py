"""Request logs among the files of a check: which files are logs, what is found in them, and how it is shown."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from prefixlint import checkrun, logchecks, rulebook
from prefixlint.cli import main
from prefixlint.findings import At, Finding
from prefixlint.lintconfig import LintConfig
from prefixlint.model import Skip

ROOT = Path(__file__).parent.parent
RULES = rulebook.rules()
BODIES = [
    {
        "model": "m",
        "messages": [
            {"role": "system", "content": f"At 09:1{i}. Weigh crates and say so."},
            {"role": "user", "content": f"q{i}"},
        ],
    }
    for i in range(3)
]


def write(path, bodies=BODIES, opener=open):
    with opener(path, "wt") as file:
        file.writelines(json.dumps(body) + "\n" for body in bodies)
    return path


def test_a_cause_is_found_at_its_line(tmp_path):
    (finding,) = logchecks.examine(write(tmp_path / "a.jsonl"), "a.jsonl", RULES)
    assert (finding.rule.code, finding.span.path, finding.requests) == ("PFX101", "a.jsonl", 2)
    assert finding.at == At(2, 1, "messages[0].content", 7)
    assert finding.also == (At(3, 2, "messages[0].content", 7),)
    assert finding.values == ("09:10", "09:11")


@pytest.mark.parametrize(
    ("shown", "aside"), [("demo.jsonl", False), ("logs/test.jsonl", False), ("benchmarks/load/a.jsonl", True)]
)
def test_a_load_of_a_benchmark_serves_nobody(tmp_path, shown, aside):
    (finding,) = logchecks.examine(write(tmp_path / "a.jsonl"), shown, RULES)
    assert (finding.severity.word == "info") is aside


def test_lines_that_cannot_be_read_are_said_and_the_rest_is_seen(tmp_path):
    path = write(tmp_path / "a.jsonl")
    path.write_text(path.read_text().replace("\n", "\n{broken\n", 1))
    items = list(logchecks.examine(path, "a.jsonl", RULES))
    assert [item.line for item in items if isinstance(item, Skip)] == [2]
    assert [(item.at.line, item.at.other_line) for item in items if isinstance(item, Finding)] == [(3, 1)]


def test_a_log_that_is_refused_is_said(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("{broken\n")
    assert all(isinstance(item, Skip) for item in logchecks.examine(path, "a.jsonl", RULES))


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.jsonl", json.dumps(BODIES[0]), True),
        ("a.ndjson", json.dumps({"request": BODIES[0], "response": {}}), True),
        ("a.jsonl", '{"city": "Oslo"}\n', False),
        ("a.jsonl", "", False),
        ("a.jsonl", "\0\0\0", False),
        ("a.json", json.dumps(BODIES[0]), False),
    ],
)
def test_logs_are_known_by_their_content(tmp_path, name, text, expected):
    path = tmp_path / name
    path.write_text(text)
    assert logchecks.is_log(path) is expected


def test_compressed_logs_and_missing_files(tmp_path):
    assert logchecks.is_log(write(tmp_path / "a.jsonl.gz", opener=gzip.open))
    assert not logchecks.is_log(tmp_path / "missing.jsonl")


def check(folder, *options):
    done = CliRunner().invoke(main, ["check", str(folder), "--format", "json", "--no-cache", *options])
    return done.exit_code, json.loads(done.stdout)


def test_check_reports_the_lines_of_logs(tmp_path):
    write(tmp_path / "requests.jsonl")
    (tmp_path / "data.jsonl").write_text('{"city": "Oslo"}\n')
    code, shown = check(tmp_path)
    assert code == 1
    (hit,) = shown["findings"]
    assert (hit["rule"], hit["path"], hit["line"], hit["requests"]) == ("PFX101", "requests.jsonl", 2, 2)
    assert hit["at"] == {"line": 2, "other_line": 1, "path": "messages[0].content", "char": 7}
    assert hit["values"] == ["09:10", "09:11"]
    assert [other["line"] for other in hit["related"]] == [3]
    assert hit["excerpt"] == "09:11"
    assert shown["errors"] == []


def test_a_clean_log_exits_with_0(tmp_path):
    write(tmp_path / "requests.jsonl", [BODIES[0]] * 3)
    code, shown = check(tmp_path)
    assert (code, shown["findings"]) == (0, [])


def test_rules_can_be_left_out_and_findings_be_old(tmp_path):
    write(tmp_path / "requests.jsonl")
    assert check(tmp_path, "--ignore", "PFX101")[0] == 0
    _, shown = check(tmp_path)
    (tmp_path / "old.json").write_text(json.dumps(shown))
    code, shown = check(tmp_path, "--baseline", "old.json")
    assert (code, shown["findings"], len(shown["suppressed"])) == (0, [], 1)


def test_the_text_shows_both_values(tmp_path):
    write(tmp_path / "requests.jsonl")
    done = CliRunner().invoke(main, ["check", str(tmp_path), "--no-cache"])
    assert "requests.jsonl:2: messages[0].content, character 7" in done.stdout
    assert "line 1: 09:10\n  line 2: 09:11\n" in done.stdout


def test_a_log_larger_than_a_prompt_may_be_is_streamed(tmp_path):
    long = {"model": "m", "messages": [{"role": "user", "content": "x" * 3_000_000}]}
    write(tmp_path / "requests.jsonl", [long, long, *BODIES])
    result = checkrun.check([str(tmp_path)], LintConfig(), root=tmp_path, cache=False)
    assert result.errors == ()
    assert [finding.rule.code for finding in result.findings] == ["PFX101"]


def test_nothing_heavy_is_imported():
    program = (
        "import sys; from pathlib import Path; from prefixlint import logchecks, rulebook;"
        f"path = Path({str(ROOT / 'fixtures/logs/demo.jsonl')!r}); assert logchecks.is_log(path);"
        "assert list(logchecks.examine(path, 'demo.jsonl', rulebook.rules()));"
        "print([m for m in ('numpy', 'torch', 'transformers', 'tokenizers', 'jinja2') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
