"""Notebooks: places in the file as it is, cells that are not Python, versions, hostile input."""

import json

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixlint.cli import main
from prefixlint.sources import Diagnostic, SourceFile, kind_of, notebook

REST = ". You answer all questions of readers in one sentence, and name the shelf. Never guess, and never talk about other readers of the library, whatever they say."


def book(*cells, nbformat=4, metadata=None, indent=1, **more):
    rows = [{"cell_type": kind, "metadata": {}, "outputs": [], "source": source} for kind, source in cells]
    text = json.dumps(
        {"cells": rows, "metadata": metadata or {}, "nbformat": nbformat, "nbformat_minor": 5}, indent=indent, **more
    )
    return text.encode("utf-8", "surrogatepass")


def code(source):
    return ("code", source.splitlines(keepends=True))


def summary(data):
    file = SourceFile("agents/prompts.ipynb", data)
    kind = kind_of(file)
    assert kind is notebook
    return kind.summarize(file)


@pytest.fixture
def check(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("")

    def run(data, *args):
        (tmp_path / "nb.ipynb").write_bytes(data)
        done = CliRunner().invoke(main, ["check", "nb.ipynb", "--no-cache", "--format", "json", *args])
        return json.loads(done.stdout), done.exit_code

    return run


@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("indent", [1, None])
@pytest.mark.parametrize("listed", [True, False])
def test_a_finding_names_cell_and_line_and_points_at_the_value(check, ascii_only, indent, listed):
    first = code("%pip install x\nimport uuid\n")
    text = f'# Zoë "says" \\n 🙂\nSYSTEM_PROMPT = f"""Ü "one"\n\tTwo: {{uuid.uuid4()}}{REST}"""\n'
    bad = code(text) if listed else ("code", text)
    found, status = check(book(("markdown", ["# Title\n"]), first, bad, indent=indent, ensure_ascii=ascii_only))
    assert status == 0  # a notebook is run by hand: no requests follow each other
    (finding,) = found["findings"]
    assert finding["severity"] == "info"
    assert finding["rule"] == "PFX104"
    assert finding["excerpt"] == "{uuid.uuid4()}"
    assert finding["cell"] == {"number": 3, "line": 3}
    assert found["errors"] == []


def test_values_are_followed_from_cell_to_cell(check):
    cells = [
        code("from datetime import datetime\nnow = datetime.now()\n"),
        code(f'SYSTEM_PROMPT = f"It is {{now}}{REST}"'),
    ]
    found, _ = check(book(*cells))
    assert [(f["rule"], f["cell"]["number"]) for f in found["findings"]] == [("PFX101", 2)]
    assert all(related["path"] == "nb.ipynb" for related in found["findings"][0]["related"])


def test_text_shows_the_cell(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nb.ipynb").write_bytes(book(code(f'import uuid\nSYSTEM_PROMPT = f"{{uuid.uuid4()}}{REST}"')))
    shown = CliRunner().invoke(main, ["check", "nb.ipynb", "-v"]).stdout
    assert "(cell 1, line 2)" in shown


@pytest.mark.parametrize(
    "comment", ["@  # prefixlint: ignore[PFX104] wanted\n", "# prefixlint: ignore[PFX104] wanted\n@\n"]
)
def test_an_ignore_works_in_a_cell(check, comment):
    bad = f'SYSTEM_PROMPT = f"{{uuid.uuid4()}}{REST}"'
    found, status = check(book(code("import uuid\n" + comment.replace("@", bad) + "y = 1")))
    assert (status, [f["reason"] for f in found["suppressed"]]) == (0, ["wanted"])


def test_add_ignore_and_fix_never_break_a_notebook(check, tmp_path):
    data = book(code(f'names = {{"a"}} | extra\nPROMPT = "You know: " + ", ".join(names) + "{REST}"'))
    for args in (["--add-ignore", "known"], ["--fix"]):
        check(data, *args)
        json.loads((tmp_path / "nb.ipynb").read_bytes())


@pytest.mark.parametrize(
    "magic",
    ["%matplotlib inline", "!ls -l", "files = !ls", "x = %sql select 1", "print?", "?print", "print??", "%%time\n"],
)
def test_magics_do_not_hide_a_cell(magic):
    found = summary(
        book(
            code(
                f'import uuid\n{magic}\nSYSTEM_PROMPT = f"{{uuid.uuid4()}}{REST}"'
                if "%%" not in magic
                else f'{magic}\nSYSTEM_PROMPT = "{REST}"'
            )
        )
    )
    assert found.diagnostics == ()
    assert "SYSTEM_PROMPT" in found.constants


def test_cells_in_other_languages_are_left_out():
    assert summary(book(code("%%bash\nPROMPT='x\n"))).diagnostics == ()
    other = {"language_info": {"name": "R"}}
    assert summary(book(code("x <- 'prompt\n"), metadata=other)).diagnostics == ()


def test_a_broken_cell_is_told_and_the_others_are_read():
    found = summary(book(code("ok = 1\nprompt = = 2\n"), code(f'SYSTEM_PROMPT = "{REST}"')))
    (problem,) = found.diagnostics
    assert problem.slug == "syntax-error"
    assert "cell 1, line 2" in problem.message
    assert "SYSTEM_PROMPT" in found.constants


@pytest.mark.parametrize(
    ("data", "slug"),
    [
        (book(code("x = 1"), nbformat=3), "notebook-version"),
        (book(code("x = 1"), nbformat=5), "notebook-version"),
        (b'{"worksheets": [], "nbformat": 2}', "notebook-version"),
        (b"[]", "notebook-version"),
        (b'{"nbformat": 4, "cells": 7}', "notebook-version"),
        (b'{"nbformat": 4,', "notebook-syntax"),
        (b"", "notebook-syntax"),
        (b"\xff{}", "wrong-encoding"),
        (b"{\0}", "not-text"),
        (b"[" * 100_000, "too-deep"),
    ],
)
def test_what_is_no_notebook_is_a_diagnostic(data, slug):
    assert [problem.slug for problem in summary(data).diagnostics] == [slug]


@pytest.mark.parametrize("cell", [1, None, [], {}, {"cell_type": "code"}, {"cell_type": "code", "source": [1, None]}])
def test_odd_cells_are_read_over(cell):
    data = json.dumps({"nbformat": 4, "cells": [cell]}).encode()
    assert isinstance(summary(data).sinks, tuple)


@settings(max_examples=60, deadline=None)
@given(st.text(st.characters(exclude_characters="\r\0", exclude_categories=["Cs"]), max_size=30), st.booleans())
def test_any_text_is_mapped_back_to_its_bytes(text, ascii_only):
    """The bytes between the mapped ends, read as JSON, are the code between the ends."""
    source = f"PROMPT = {text!r}\n"
    data = book(("code", [source[:5], source[5:]]), ensure_ascii=ascii_only)
    cells = notebook._cells(SourceFile("x.ipynb", data))
    assert not isinstance(cells, Diagnostic)
    joined = notebook._Joined()
    assert joined.add(cells[0], SourceFile("x.ipynb", data)) is None
    own = source.encode()
    for start in range(5, len(own)):
        if own[start] & 0xC0 == 0x80:
            continue
        stop = next(i for i in range(start + 1, len(own) + 1) if i == len(own) or own[i] & 0xC0 != 0x80)
        there = data[joined.start(start) : joined.end(stop)].decode()
        assert json.loads(f'"{there}"') == own[start:stop].decode()


def test_half_a_character_in_a_string_hides_no_finding(check):
    bad = code(f'import uuid\nicon = "\udd04"\nSYSTEM_PROMPT = f"You are {{uuid.uuid4()}}{REST}"\n')
    found, _ = check(book(bad))
    assert not found["errors"]
    (finding,) = found["findings"]
    assert (finding["excerpt"], finding["cell"]) == ("{uuid.uuid4()}", {"number": 1, "line": 3})


def test_a_cell_may_be_of_a_newer_python(check):
    bad = code(f'import uuid\ntype Row = dict\nSYSTEM_PROMPT = f"You are {{a["n"]}}{{uuid.uuid4()}}{REST}"\n')
    found, _ = check(book(bad))
    assert not found["errors"]
    assert "{uuid.uuid4()}" in [finding["excerpt"] for finding in found["findings"]]
