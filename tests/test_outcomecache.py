"""A run's outcome is read from disk while nothing has changed, and never after anything has."""

import json
import os
import sqlite3
import time

import pytest
from click.testing import CliRunner

from prefixlint import lint, outcomecache, rulebook
from prefixlint.cli import main
from prefixlint.findings import Applicability, Confidence, Edit, Finding, Fix, Related, Severity
from prefixlint.lint import Outcome
from prefixlint.outcomecache import Kept
from prefixlint.prompts import Span
from prefixlint.sources import Diagnostic

TEXT = "You are a careful assistant of a library. Always say which shelf a book stands on, and how long it may be kept by a reader, and which fee is due when it comes back late."
BAD = f'import uuid\n\ndef system_prompt():\n    return f"[{{uuid.uuid4()}}] {TEXT}"\n'


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(outcomecache, "SETTLED_NS", 0)
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    (tmp_path / "bad.py").write_text(BAD)
    return tmp_path


@pytest.fixture
def runs(monkeypatch):
    """Count the runs that lint."""
    seen = []
    original = lint.run
    monkeypatch.setattr(lint, "run", lambda *args: seen.append(1) or original(*args))
    return seen


def check(*args):
    done = CliRunner().invoke(main, ["check", *args, "--format", "json"])
    return json.loads(done.stdout)


def test_a_second_run_lints_nothing_and_gives_the_same(project, runs):
    first = check()
    assert first["findings"]
    assert check() == first
    assert len(runs) == 1


@pytest.mark.parametrize("change", ["bytes", "new", "gone", "rule", "tokens", "asked"])
def test_any_change_lints_again(project, runs, change):
    (project / "other.py").write_text("X = 1\n")
    before = check()
    args = []
    if change == "bytes":
        (project / "bad.py").write_text(BAD.replace("uuid.uuid4()", "str('abcdef')"))
    elif change == "new":
        (project / "more.py").write_text(BAD)
    elif change == "gone":
        (project / "other.py").unlink()
    else:
        args = {"rule": ["--ignore", "PFX104"], "tokens": ["--min-tokens", "900"], "asked": ["bad.py"]}[change]
    after = check(*args)
    assert len(runs) == 2
    if change in ("bytes", "rule"):
        assert not after["findings"]
    if change == "new":
        assert len(after["findings"]) == 2 * len(before["findings"])


def test_equal_size_and_a_modification_time_set_back_are_seen(project, runs):
    path = project / "bad.py"
    old = path.stat()
    assert check()["findings"]
    time.sleep(0.02)
    path.write_text(BAD.replace("uuid.uuid4()", "'uuid.uuid4'"))
    os.utime(path, ns=(old.st_atime_ns, old.st_mtime_ns))
    assert path.stat().st_size == old.st_size
    assert not check()["findings"]
    assert len(runs) == 2


def test_young_files_are_not_trusted(project, runs, monkeypatch):
    monkeypatch.setattr(outcomecache, "SETTLED_NS", 3_600_000_000_000)
    assert check() == check()
    assert len(runs) == 2


def test_no_cache_neither_reads_nor_writes(project, runs):
    check()
    check("--no-cache")
    assert len(runs) == 2


@pytest.mark.parametrize("junk", [b"", b"{}", b"[]", b"\xff", b'{"findings": [[1]], "errors": [], "with_prompts": 0}'])
def test_a_damaged_row_is_found_again(project, runs, junk):
    first = check()
    with sqlite3.connect(project / ".prefixlint_cache" / "summaries.db") as connection:
        connection.execute("UPDATE outcome SET value = ?", (junk,))
    connection.close()
    assert check() == first
    assert len(runs) == 2


def test_what_could_not_be_read_is_told_again(project, runs):
    (project / "wrong.py").write_text("def system_prompt(:\n")
    first = check()
    assert [error["slug"] for error in first["errors"]] == ["syntax-error"]
    assert check()["errors"] == first["errors"]
    assert len(runs) == 1


def test_old_outcomes_are_dropped(project, monkeypatch):
    monkeypatch.setattr("prefixlint.summarycache.MAX_OUTCOMES", 2)
    for tokens in range(5):
        check("--min-tokens", str(tokens))
    with sqlite3.connect(project / ".prefixlint_cache" / "summaries.db") as connection:
        (count,) = connection.execute("SELECT count(*) FROM outcome").fetchone()
    connection.close()
    assert count == 2


def test_a_finding_comes_back_whole():
    rules = rulebook.rules()
    span = Span("ä b.py", 3, 9)
    fix = Fix("sort it", (Edit(span, "sorted(x)"), Edit(Span("c.py", 0, 0), "")), Applicability.UNSAFE)
    full = Finding(
        rules["PFX104"],
        "it's “new”",
        span,
        Severity.ERROR,
        Confidence.LOW,
        7,
        (Related(span, "here"),),
        "help",
        fix,
        span,
        span,
    )
    bare = Finding(rules["PFX301"], "m", span, Severity.INFO)
    kept = Kept(Outcome((full, bare), (Diagnostic("a", 1, "s", "m"),), 4), ("a", "b"), (Diagnostic("b", 0, "t", "n"),))
    assert outcomecache.decode(outcomecache.encode(kept), rules) == kept
