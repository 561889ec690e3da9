"""Which files besides those of a run are read: what their bytes name decides, before anything is parsed."""

import ast
import keyword

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixlint import fillers
from prefixlint.fillers import fillers as find

PROMPT = "PROMPT = 1\n"


def filling(files, wanted, asked=()):
    data = {path: text.encode() for path, text in files.items()}
    return find([*data, *wanted], [*wanted, *asked], wanted, data.get)


@pytest.mark.parametrize(
    "code",
    [
        'env.get_template("prompts/greet.j2")',
        'load_prompt("greet")',
        "render('greet.md.j2', x=1)",
        'open(f"{HERE}/greet.txt")',
        'Path(HERE) / "greet.txt"',
        'load("prompts.greet")',
        r'open("prompts\greet.txt")',
    ],
)
def test_code_that_names_a_template_in_a_string_may_fill_it(code):
    assert filling({"app.py": code}, ["prompts/greet.j2"]) == ["app.py"]


@pytest.mark.parametrize(
    "code", ["greet()", "def greet(name): ...", 'say("greetings")', "# greet the user", "x = 'a greet b'"]
)
def test_a_word_outside_strings_names_no_template(code):
    assert filling({"app.py": code}, ["prompts/greet.j2"]) == []


def test_code_that_is_linted_anyway_is_not_given_again():
    assert filling({"app.py": 'load("greet")'}, ["greet.j2", "app.py"]) == []


@pytest.mark.parametrize(
    "code",
    [
        "import pkg.build",
        "import pkg.build as b",
        "from pkg import build",
        "from pkg.build import system",
        "from . import build",
        "from .build import (\n    system,\n    other,\n)",
        "from pkg import (  # both\n    other,\n    build,\n)",
        "def f():\n    from pkg import build",
        "import os, pkg.build",
    ],
)
def test_code_outside_the_run_that_imports_a_module_of_it_may_call_it(code):
    assert filling({"src/pkg/app.py": f"{PROMPT}{code}\n"}, ["src/pkg/build.py"]) == ["src/pkg/app.py"]


@pytest.mark.parametrize(
    "code",
    [
        "from other import build",
        "import other.build",
        "from .sub import build",
        "from .. import build",
        "from other.build import x",
    ],
)
def test_a_module_of_the_same_name_elsewhere_is_another(code):
    assert filling({"src/pkg/app.py": f"{PROMPT}{code}\n"}, ["src/pkg/build.py"]) == []


@pytest.mark.parametrize(
    "code",
    ["from ..pkg import build", "from ..pkg.build import x", "from ... import src", "from ...src.pkg import build"],
)
def test_dots_lead_up(code):
    found = filling({"src/other/app.py": f"{PROMPT}{code}\n"}, ["src/pkg/build.py", "src/__init__.py"])
    assert found == ["src/other/app.py"]


@pytest.mark.parametrize(
    "code", ["import rebuild", "build()", "x = 'build'", "from pkg import builder", "important = build"]
)
def test_a_word_outside_imports_calls_no_module(code):
    assert filling({"app.py": f"{PROMPT}{code}\n"}, ["pkg/build.py"]) == []


def test_a_package_is_imported_by_the_name_of_its_folder():
    code = f"{PROMPT}from app.agents import system\n"
    assert filling({"main.py": code}, ["app/agents/__init__.py"]) == ["main.py"]
    assert filling({"main.py": f"{PROMPT}import __init__\n"}, ["app/agents/__init__.py"]) == []


def test_a_caller_must_hold_prompts_and_stand_outside_the_run():
    assert filling({"main.py": "from pkg import build\n"}, ["pkg/build.py"]) == []
    asked = filling({"main.py": f"{PROMPT}from pkg import build\n"}, ["pkg/build.py"], asked=["main.py"])
    assert asked == [], "it was asked for and holds no prompt, or it would be wanted"


def test_short_names_lead_nowhere():
    assert filling({"a.py": 'load("hi")'}, ["hi.j2"]) == []


def test_at_most_so_many_are_given_and_the_same_ones_each_time(monkeypatch):
    monkeypatch.setattr(fillers, "LIMIT", 3)
    files = {f"m{number}.py": 'load("greet")' for number in range(9)}
    assert filling(files, ["greet.j2"]) == ["m0.py", "m1.py", "m2.py"]
    assert filling(dict(reversed(files.items())), ["greet.j2"]) == ["m0.py", "m1.py", "m2.py"]


def test_what_cannot_be_read_is_passed_over():
    assert find(["a.py", "greet.j2"], ["greet.j2"], ["greet.j2"], lambda path: None) == []


def test_nothing_is_read_where_nothing_can_be_filled():
    def refuse(path):
        raise AssertionError(path)

    assert find(["a.py", "b.py"], ["a.py", "b.py"], [], refuse) == []
    assert find(["a.py", "b.py"], ["a.py", "b.py"], ["b.py"], refuse) == [], "both are asked for"


names = st.from_regex(r"[a-z_]{3,8}", fullmatch=True).filter(lambda name: not keyword.iskeyword(name))


@given(
    module=names,
    folder=names,
    form=st.sampled_from(["import {f}.{m}", "from {f} import {m}", "from {f}.{m} import x"]),
    spaces=st.integers(1, 3),
)
def test_every_import_that_python_understands_is_seen(module, folder, form, spaces):
    code = form.format(f=folder, m=module).replace(" ", " " * spaces)
    ast.parse(code)
    assert filling({"main.py": f"{PROMPT}{code}\n"}, [f"{folder}/{module}.py"]) == ["main.py"]
