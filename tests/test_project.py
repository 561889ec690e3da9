"""Promises about the repository as a whole: layout, documentation, start-up cost, what its files may not say."""

import ast
import re
import statistics
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import prefixlint

ROOT = Path(__file__).parents[1]
MODULES = sorted((ROOT / "prefixlint").rglob("*.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# what starting the program must not load: it costs more than the start itself
HEAVY = ("numpy", "tokenizers", "fastokens", "transformers", "torch", "huggingface_hub", "aiohttp", "pyarrow")


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def ours() -> list[Path]:
    """Text files that git tracks or would; samples are other people's words."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    paths = [ROOT / name.decode() for name in listed.stdout.split(b"\0") if name]
    return [path for path in paths if path.is_file() and not relative(path).startswith("fixtures/")]


def loaded_by(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_version_is_stated_once():
    assert PROJECT["version"] == prefixlint.__version__
    assert f"[{prefixlint.__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8") or "[Unreleased]" in (
        ROOT / "CHANGELOG.md"
    ).read_text(encoding="utf-8")


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_modules_say_what_they_are_for_and_stay_short(path):
    text = path.read_text(encoding="utf-8")
    doc = ast.get_docstring(ast.parse(text))
    assert doc, "no docstring"
    assert doc.splitlines()[0].endswith((".", ":", ").", "`.")), "the first line is no sentence"
    assert text.count("\n") <= 500


def test_the_median_module_is_short():
    lengths = [path.read_text(encoding="utf-8").count("\n") for path in MODULES]
    assert statistics.median(lengths) <= 200


@pytest.mark.parametrize("module", ["prefixlint", "prefixlint.cli", "prefixlint.logs", "prefixlint.model"])
def test_importing_loads_nothing_heavy(module):
    assert not loaded_by(f"import {module}").intersection(HEAVY)


def test_reading_a_log_needs_no_tokenizer_and_no_numpy(tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text('{"model": "m", "messages": [{"role": "user", "content": "hello"}]}\n')
    assert not loaded_by(f"from prefixlint.logs import read; assert list(read([{str(log)!r}]))").intersection(HEAVY)


@pytest.mark.parametrize("asked", ["--version", "--help"])
def test_the_program_starts_with_click_and_little_else(asked):
    """What takes long at a start is what is imported, and that can be counted."""
    loaded = loaded_by(
        f"from click.testing import CliRunner; from prefixlint.cli import main; "
        f"assert not CliRunner().invoke(main, [{asked!r}], catch_exceptions=False).exit_code"
    )
    assert loaded - loaded_by("pass") - sys.stdlib_module_names == {"click", "prefixlint"}


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (r"(?<![\w.])/(?:work|root|home/\w+)/", "a path of one machine"),
        (r"(?i)\bissue #?\d|\bissues/\d", "the number of an issue"),
        (r"(?i)\bthis session\b|\bhelper session", "how it was made"),
        (r"(?i)\bTODO\b|\bFIXME\b|\bXXX\b", "a note to oneself"),
    ],
)
def test_no_file_mentions(pattern, why):
    found = []
    for path in ours():
        if path == Path(__file__) or path.name == "LICENSE":
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{relative(path)}:{n}" for n, line in enumerate(text.splitlines(), 1) if re.search(pattern, line)]
    assert not found, why


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "CHANGELOG.md"])
def test_links_between_files_lead_somewhere(name):
    page = ROOT / name
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
        assert "://" in target or (page.parent / target).exists(), target


def test_make_help_names_every_target_that_a_person_runs():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    helped = set(re.findall(r"'make (\w+)", makefile))
    targets = set(re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[1].split())
    assert helped <= targets
    assert {"demo", "test", "check", "bench", "clean"} <= helped


def test_ci_lists_its_jobs_and_refuses_others():
    listed = subprocess.run([str(ROOT / ".ci" / "run"), "--list"], capture_output=True, text=True, check=True)
    assert listed.stdout.split()[-1] == "tests", "the suite comes last: its summary ends the output"
    refused = subprocess.run([str(ROOT / ".ci" / "run"), "nonsense"], capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "nonsense" in refused.stderr


def test_every_extra_is_explained_where_people_look():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for extra in PROJECT["optional-dependencies"]:
        if extra not in {"test", "oracle", "dev"}:
            assert f"prefixlint[{extra}]" in readme, extra


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_no_group_that_can_match_in_part_is_repeated_possessively(path):
    """Python 3.11.0 to 3.11.4 keeps what the last, failed round had matched (gh-106052); Debian 12 has 3.11.2."""
    texts = [n.value for n in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(n, ast.Constant)]
    for text in (text for text in texts if isinstance(text, str) and "(?:" in text):
        rest = re.sub(r"\(\?:\\\\\.\[\^['\"]\\\\\]\*\+\)\*\+", "", text)
        assert not re.search(r"\)[*+?]\+|\(\?>", rest), text
