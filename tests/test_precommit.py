"""The hooks that `.pre-commit-hooks.yaml` offers. `tests/precommit.sh` runs them with pre-commit itself."""

import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from prefixlint import discover
from prefixlint.cli import main

HOOKS = Path(__file__).parent.parent / ".pre-commit-hooks.yaml"
if not HOOKS.is_file():
    pytest.skip("no checkout", allow_module_level=True)
FOUND = {hook["id"]: hook for hook in yaml.safe_load(HOOKS.read_text())}


def test_there_are_a_checking_and_a_fixing_hook():
    assert list(FOUND) == ["prefixlint", "prefixlint-fix"]
    for hook in FOUND.values():
        assert hook["language"] == "python"
        assert hook["require_serial"] is True
        assert "--force-exclude" in hook["entry"].split()
    assert "--fix" in FOUND["prefixlint-fix"]["entry"].split()


@pytest.mark.parametrize("suffix", sorted(discover.SUFFIXES))
@pytest.mark.parametrize("hook", FOUND)
def test_every_ending_that_is_read_is_passed(hook, suffix):
    pattern = re.compile(FOUND[hook]["files"])
    assert pattern.search(f"a/b{suffix}")
    assert pattern.search(f"B{suffix.upper()}")


@pytest.mark.parametrize(
    ("path", "passed"),
    [
        ("Dockerfile", True),
        ("deploy/Dockerfile.gpu", True),
        ("gpu.dockerfile", True),
        ("bin/serve", True),
        ("src/app.ts", False),
        ("a.py/image.png", False),
        ("style.css", False),
    ],
)
def test_other_files_are_left_out(path, passed):
    assert bool(re.search(FOUND["prefixlint"]["files"], path)) is passed


@pytest.mark.parametrize("hook", FOUND)
def test_a_hook_given_only_excluded_files_passes(hook, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/prompt.py").write_text('import uuid\nPROMPT = f"{uuid.uuid4()} You are a bot."\n' * 20)
    done = CliRunner().invoke(main, [*FOUND[hook]["entry"].split()[1:], "tests/prompt.py"])
    assert (done.exit_code, done.stderr) == (0, "")
