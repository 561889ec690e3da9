"""What leads to a place in code: requests, a clock, or nothing."""

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from growth import work

from prefixlint.callers import MOST_FILES, Callers, Reach
from prefixlint.cli import main
from prefixlint.prompts import Span

SERVER = "if __name__ == '__main__':\n    serve()\n"
MARK = "return 'here'"


def reach(text, others=None, path="app/bot.py"):
    """Give what leads to the mark in a file."""
    files = {"run.py": SERVER, path: text, **(others or {})}
    data = {name: held.encode() for name, held in files.items()}
    start = data[path].index(MARK.encode())
    return Callers(data, data.get).reach(Span(path, start, start + 1))


LONE = f"def ask(q):\n    {MARK}\n"


@pytest.mark.parametrize(
    ("others", "wanted"),
    [
        ({}, Reach.NOTHING),
        ({"app/api.py": "from app.bot import ask\n"}, Reach.NOTHING),
        ({"app/api.py": "from app.bot import ask\nask(1)\n"}, Reach.REQUESTS),
        ({"app/api.py": "from app.bot import ask as reply\nreply(1)\n"}, Reach.REQUESTS),
        ({"app/api.py": "from app.bot import ask as reply\nprint(1)\n"}, Reach.NOTHING),
        ({"app/api.py": "import app.bot\nROUTES = {'/': app.bot.ask}\n"}, Reach.REQUESTS),
        ({"app/api.py": "start('app.bot:ask')\n"}, Reach.REQUESTS),
        ({"app/api.py": "start('please ask')\n"}, Reach.NOTHING),
        ({"app/__init__.py": "from .bot import ask\n__all__ = ['ask']\n"}, Reach.NOTHING),
        ({"app/__init__.py": "__all__: list[str] = ['ask']\n__all__ += ['ask']\n"}, Reach.NOTHING),
        ({"tests/test_bot.py": "from app.bot import ask\nask(1)\n"}, Reach.NOTHING),
        ({"archive/legacy/main.py": "from app.bot import ask\nask(1)\n"}, Reach.NOTHING),
        ({"app/api.py": "def old():\n    return ask(1)\n"}, Reach.NOTHING),
        ({"app/api.py": "def old():\n    return ask(1)\nold()\n"}, Reach.REQUESTS),
        ({"app/api.py": "def test_it():\n    return ask(1)\n"}, Reach.NOTHING),
        ({"app/api.py": "def one():\n    ask(1)\n    two()\ndef two():\n    one()\n"}, Reach.NOTHING),
        ({"serverless.yml": "handler: app/bot.ask\n"}, Reach.REQUESTS),
        ({"notes.md": "handler: app/bot.ask\n"}, Reach.NOTHING),
        ({"app/api.py": "@router.post('/')\ndef post(q):\n    return ask(q)\n"}, Reach.REQUESTS),
        ({"app/api.py": "def broken(:\n    ask(1)\n"}, Reach.REQUESTS),
    ],
)
def test_a_function_is_reached_where_its_name_stands_in_what_is_reached(others, wanted):
    assert reach(LONE, others) == (wanted, "ask")


def test_a_function_that_only_calls_itself_is_not_reached():
    assert reach(f"def ask(q):\n    ask(q)\n    {MARK}\n")[0] is Reach.NOTHING


METHOD = "class Bot{bases}:\n    {decorator}def {name}(self):\n        " + MARK + "\n"


@pytest.mark.parametrize(
    ("fields", "used", "wanted"),
    [
        ({}, "", Reach.NOTHING),
        ({}, "Bot()\n", Reach.NOTHING),
        ({}, "Bot().ask()\n", Reach.REQUESTS),
        ({}, "other.ask()\n", Reach.NOTHING),
        ({"name": "__call__"}, "Bot()\n", Reach.REQUESTS),
        ({"bases": "(Cog)"}, "Bot()\n", Reach.REQUESTS),
        ({"bases": "(Cog)"}, "", Reach.NOTHING),
        ({"bases": "(ABC, Generic[T])"}, "Bot()\n", Reach.NOTHING),
        ({"bases": "(Base)"}, "class Base:\n    pass\nBot()\n", Reach.NOTHING),
        ({"bases": "(Base)"}, "class Base(Cog):\n    pass\nBot()\n", Reach.REQUESTS),
        ({"bases": "(Base)"}, "class Base(Base):\n    pass\nBot()\n", Reach.REQUESTS),
        ({"decorator": "@property\n    "}, "Bot()\n", Reach.NOTHING),
        ({"decorator": "@bot.command('x')\n    "}, "Bot()\n", Reach.REQUESTS),
        ({}, "Bot()\ngetattr(self, f'on_{kind}')()\n", Reach.REQUESTS),
        ({}, "Bot()\ngetattr(self, 'on_it')()\n", Reach.NOTHING),
    ],
)
def test_a_method_is_reached_where_its_class_is_and_it_may_be_called(fields, used, wanted):
    text = METHOD.format(**{"bases": "", "decorator": "", "name": "ask", **fields})
    assert reach(text + used)[0] is wanted


@pytest.mark.parametrize("name", ["main", "lambda_handler"])
def test_platforms_call_some_functions_by_their_names(name):
    assert reach(f"def {name}(event):\n    {MARK}\n")[0] is Reach.REQUESTS


def test_what_stands_in_a_function_is_reached_as_it_is():
    inner = f"def outer():\n    def inner():\n        {MARK}\n    return inner\n"
    assert reach(inner)[0] is Reach.NOTHING
    assert reach(f"{inner}outer()\n")[0] is Reach.REQUESTS
    assert reach(f"x = 1\n{MARK.removeprefix('return ')}\n".replace("'here'", MARK)) == (Reach.REQUESTS, "")


@pytest.mark.parametrize(
    ("used", "wanted"),
    [
        ("scheduler.add_job(ask, 'cron', hour=3, minute=0)\n", Reach.SELDOM),
        ("scheduler.add_job(ask, 'interval', seconds=20)\n", Reach.REQUESTS),
        ("scheduler.add_job(ask, trigger)\n", Reach.REQUESTS),
        ("schedule.every().day.at('03:00').do(ask)\n", Reach.SELDOM),
        ("schedule.every(5).minutes.do(ask)\n", Reach.REQUESTS),
        ("def nightly_cleanup():\n    ask()\nnightly_cleanup()\n", Reach.SELDOM),
        ("@scheduler.scheduled_job('cron', hour=4)\ndef tidy():\n    ask()\n", Reach.SELDOM),
        ("@tasks.loop(minutes=1)\ndef tidy():\n    ask()\n", Reach.REQUESTS),
        ("def nightly_cleanup():\n    ask()\nnightly_cleanup()\nask()\n", Reach.REQUESTS),
    ],
)
def test_what_runs_once_in_a_long_while_is_told_by_its_schedule(used, wanted):
    assert reach(LONE + used)[0] is wanted


@pytest.mark.parametrize(
    ("others", "wanted"),
    [
        ({"pyproject.toml": "[build-system]\n"}, Reach.REQUESTS),
        ({"pyproject.toml": "[tool.ruff]\n"}, Reach.NOTHING),
        ({"pyproject.toml": "[build-system]\n", "deploy/Dockerfile": "FROM python\n"}, Reach.NOTHING),
        ({"run.py": "import app\n"}, Reach.REQUESTS),
        ({"run.py": "import app\n", "docker-compose.yml": "services: {}\n"}, Reach.NOTHING),
    ],
)
def test_the_public_functions_of_what_is_only_imported_are_called_from_outside(others, wanted):
    assert reach(LONE, others)[0] is wanted


def test_a_private_function_of_a_library_is_called_from_nowhere_else():
    assert reach(LONE.replace("ask", "_ask"), {"setup.py": "setup()\n"})[0] is Reach.NOTHING


def test_a_name_in_very_many_files_is_taken_for_reached():
    few = {f"app/part{number}.py": f"def f{number}():\n    ask(1)\n" for number in range(MOST_FILES - 1)}
    assert reach(LONE, few)[0] is Reach.NOTHING
    assert reach(LONE, {**few, "app/more.py": "def g():\n    ask(1)\n", "app/most.py": ""})[0] is Reach.REQUESTS


@pytest.mark.parametrize("path", ["app/page.j2", "app/gone.py"])
def test_what_is_no_python_is_reached(path):
    assert Callers(["run.py", path], {"run.py": SERVER.encode()}.get).reach(Span(path, 0, 1)) == (Reach.REQUESTS, "")


def test_marks_of_a_byte_order_and_other_line_ends_move_no_place():
    text = "\ufeff" + LONE.replace("\n", "\r\n")
    assert reach(text)[0] is Reach.NOTHING


def test_callers_that_call_one_another_by_hundreds_end():
    def chain(length):
        calls = "".join(f"def f{n}():\n    f{n + 1}()\n    f{n + 2}()\n" for n in range(length))
        assert reach(f"def f{length + 1}():\n    {MARK}\n{calls}")[0] in Reach

    assert work(chain, 400) < 3 * work(chain, 200)
    chain(900)


@given(st.dictionaries(st.sampled_from(["a.py", "b.py", "c.toml"]), st.binary(max_size=80)))
def test_no_bytes_break_it(others):
    data = {**others, "run.py": SERVER.encode(), "x.py": LONE.encode()}
    assert Callers(data, data.get).reach(Span("x.py", 20, 21))[0] in Reach


RULES = "You are a careful assistant of a small library. Answer in one sentence and name the shelf. " * 12
CLOCK = f"from datetime import datetime\ndef ask(client, history):\n    messages = [{{'role': 'system', 'content': f'It is {{datetime.now()}}. {RULES}'}}, *history]\n    return client.chat.completions.create(messages=messages)\n"


@pytest.mark.parametrize(("used", "severity"), [("", "info"), ("from bot import ask\nask(c, h)\n", "error")])
def test_a_finding_where_no_request_comes_is_information(tmp_path, used, severity):
    for name, text in {"bot.py": CLOCK, "run.py": f"{used}{SERVER}"}.items():
        (tmp_path / name).write_text(text)
    done = CliRunner().invoke(main, ["check", "--no-cache", "--format", "json", str(tmp_path / "bot.py")])
    (found,) = [each for each in json.loads(done.stdout)["findings"] if each["rule"] == "PFX101"]
    assert found["severity"] == severity
    assert ("nothing calls `ask`" in found["message"]) is (severity == "info")


@pytest.mark.parametrize(
    ("others", "name"),
    [
        ({}, "current_time"),
        ({"docs.md": "{{ current_time }} is the time."}, "current_time"),
        ({"app/fill.py": "render(current_time=now())\n"}, ""),
        ({"app/fill.yaml": "fills: [current_time]\n"}, ""),
        ({"run.py": "import library\n"}, ""),
    ],
)
def test_a_placeholder_that_no_code_of_a_program_says_is_filled_by_none(others, name):
    files = {"run.py": SERVER, "prompts/a.md": "It is {{ current_time }}.", **others}
    data = {path: text.encode() for path, text in files.items()}
    assert Callers(data, data.get).unfilled(Span("prompts/a.md", 6, 24)) == name
