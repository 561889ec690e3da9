"""`prefixlint check --diff-base`: only what a change brought."""

import json
import subprocess

import pytest
from click.testing import CliRunner

from prefixlint.cli import main

REST = " You answer all questions of readers in one sentence, and name the shelf. Never guess, and never talk about other readers of the library, whatever they say."
OLD = f'import uuid\ndef system_prompt():\n    return f"{{uuid.uuid4()}}{REST}"\n'
NEW = f'import time\ndef system_prompt():\n    return f"{{time.time()}}{REST}"\n'


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "t")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "t@example.org")
    git("init", "-q", "-b", "main")
    (tmp_path / "ä old.py").write_text(OLD)
    commit()
    return tmp_path


def git(*args):
    subprocess.run(["git", *args], check=True, capture_output=True)


def commit():
    git("add", "-A")
    git("commit", "-qm", "x")


def check(*args):
    done = CliRunner().invoke(main, ["check", "--no-cache", "--format", "json", *args])
    found = json.loads(done.stdout)
    return {(f["rule"], f["path"]) for f in found["findings"]}, done.exit_code


def test_what_was_there_is_not_counted_and_what_is_new_is(project):
    assert check() == ({("PFX104", "ä old.py")}, 1)
    assert check("--diff-base", "main") == (set(), 0)
    (project / "ä old.py").write_text("# moved\n\n" + OLD)
    assert check("--diff-base", "main") == (set(), 0)
    (project / "new.py").write_text(NEW)
    assert check("--diff-base", "main") == ({("PFX101", "new.py")}, 1)
    git("checkout", "-qb", "topic")
    commit()
    assert check("--diff-base", "main") == ({("PFX101", "new.py")}, 1)
    assert check("--diff-base", "topic") == (set(), 0)


def test_what_the_base_brought_meanwhile_is_not_this_change(project):
    git("checkout", "-qb", "topic")
    (project / "new.py").write_text(NEW)
    commit()
    git("checkout", "-q", "main")
    (project / "ä old.py").write_text("x = 1\n")
    commit()
    git("checkout", "-q", "topic")
    assert check("--diff-base", "main") == ({("PFX101", "new.py")}, 1)


@pytest.mark.parametrize("ref", ["nope", "--output=x", "", "HEAD:ä old.py"])
def test_a_wrong_revision_is_said(project, ref):
    done = CliRunner().invoke(main, ["check", f"--diff-base={ref}"])
    assert done.exit_code == 2
    assert "diff-base" in done.stderr
    assert not (project / "x").exists()
