"""Functions, names and files that a project declares to be prompts."""

import json

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from prefixlint import declared, lintconfig
from prefixlint.cli import main
from prefixlint.declared import Declared, DeclaredSink
from prefixlint.errors import ConfigError

WORDS = "Read the shelves aloud, one after the other, and name the author of each book that stands there today. " * 2
ASK = f'import time\nfrom myapp.llm import ask\ndef f(q):\n    return ask(f"At {{time.time()}}. {WORDS}", q)\n'


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def check(project, files, config="", *args):
    for path, text in files.items():
        (project / path).parent.mkdir(parents=True, exist_ok=True)
        (project / path).write_text(text)
    (project / "prefixlint.toml").write_text(config)
    done = CliRunner().invoke(main, ["check", "--format", "json", *args])
    return json.loads(done.stdout) if done.exit_code < 2 else done


def seen(report):
    return {(each["rule"], each["path"], each["line"]) for each in report["findings"]}


FORMS = {
    "imported function": ("myapp.llm.ask", ASK),
    "its end": ("llm.ask", ASK),
    "its own name": ("ask", ASK),
    "imported module": (
        "myapp.llm.ask",
        ASK.replace("from myapp.llm import ask", "from myapp import llm").replace("return ask", "return llm.ask"),
    ),
    "relative import": ("myapp.llm.ask", ASK.replace("from myapp.llm", "from .llm")),
    "function of this file": ("myapp.a.ask", ASK.replace("from myapp.llm import ask", "def ask(*x):\n    return x")),
    "attribute of an instance": (
        "llm.chat:0",
        f'import time\nclass A:\n    def f(self, q):\n        return self.llm.chat(f"At {{time.time()}}. {WORDS}", q)\n',
    ),
    "method of an instance": (
        "Bot.say",
        f'import time\nfrom myapp.bots import Bot\ndef f(q):\n    bot = Bot(q)\n    return bot.say(f"At {{time.time()}}. {WORDS}")\n',
    ),
    "keyword": (
        "llm.chat:words",
        f'import time\ndef f(llm):\n    return llm.chat(words=f"At {{time.time()}}. {WORDS}")\n',
    ),
    "messages": (
        "llm.chat:turns",
        f'import time\ndef f(llm, q):\n    return llm.chat(turns=[make(q), ("system", f"At {{time.time()}}. {WORDS}")])\n',
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_declared_function_is_found_however_it_is_called(project, form):
    entry, text = FORMS[form]
    files = {"myapp/a.py": text, "myapp/__init__.py": "", "myapp/llm.py": "def ask(*args):\n    return args\n"}
    report = check(project, files, f"sinks = [{entry!r}]")
    assert {rule for rule, path, _ in seen(report) if path == "myapp/a.py"} == {"PFX101"}
    if form != "messages":
        assert not seen(check(project, files))


@pytest.mark.parametrize(
    ("entry", "fires"),
    [
        ("llm.chat:words", True),
        ("llm.chat:0", True),
        ("llm.chat:label", False),
        ("llm.chat:1", False),
        ("lm.chat", False),
        ("llm.chat:7", False),
    ],
)
def test_only_the_argument_that_was_declared_counts(project, entry, fires):
    definition = "class llm:\n    @staticmethod\n    def chat(words, label):\n        return words\n"
    text = f'import time\n{definition}def f(q):\n    return llm.chat(f"At {{time.time()}}. {WORDS}", "x")\n'
    assert bool(seen(check(project, {"a.py": text}, f'sinks = ["{entry}"]'))) is fires


def test_system_text_stands_in_front_of_the_rest(project):
    text = f'import time\ndef f(llm, q):\n    return llm.run(f"{WORDS} {{q}}", instructions=f"At {{time.time()}}. {WORDS}")\n'
    report = check(project, {"a.py": text}, 'sinks = ["llm.run"]')
    (clock,) = [each for each in report["findings"] if each["rule"] == "PFX101"]
    assert "of the system message" in clock["message"]
    assert clock["tokens_at_risk"] > len(WORDS) / 4 * 1.5


def test_names_and_files_can_be_declared(project):
    files = {
        "a.py": f'import time\ndef f(q):\n    shelf_card = f"At {{time.time()}}. {WORDS}"\n    send(shelf_card)\n',
        "voices/one.txt": f"At {{timestamp}}. {WORDS}",
        "sounds/one.txt": f"At {{timestamp}}. {WORDS}",
    }
    assert not seen(check(project, files))
    report = check(project, files, 'prompt-names = ["*_card"]\nprompt-files = ["voices/*.txt"]')
    assert seen(report) == {("PFX101", "a.py", 3), ("PFX101", "voices/one.txt", 1)}


def test_what_was_kept_of_other_declarations_is_not_used(project):
    files = {"a.py": ASK, "myapp/llm.py": ""}
    for _ in range(2):
        assert seen(check(project, files, 'sinks = ["ask"]'))
        assert not seen(check(project, files))


@pytest.mark.parametrize("entry", ["", "a b", "a..b", ".a", "a:", "a:b:c", "a:-1", "1a", "a.b()", "a:1x"])
def test_what_is_no_name_is_refused(entry):
    with pytest.raises(ConfigError) as caught:
        lintconfig.parse({"sinks": [entry]}, "prefixlint.toml")
    assert repr(entry) in caught.value.message
    assert "package.module.function" in caught.value.hint


def test_a_key_that_is_nearly_one_is_named():
    with pytest.raises(ConfigError) as caught:
        lintconfig.parse({"sink": ["a"]}, "prefixlint.toml")
    assert "sinks" in caught.value.hint
    with pytest.raises(ConfigError):
        lintconfig.parse({"prompt-names": "a"}, "prefixlint.toml")


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("myapp.llm.aks", "did you mean ask?"),
        ("myapp.llm.Bot.sy", "did you mean Bot.say?"),
        ("myapp.llm.ask:qestion", "did you mean 'question'?"),
        ("myapp.llm.ask:question", ""),
        ("myapp.llm.ask:0", ""),
        ("myapp.llm.Bot.say:text", ""),
        ("otherlib.llm2.aks", ""),
        ("myapp.llm.zzzzzz", ""),
    ],
)
def test_names_that_the_project_contradicts_are_reported_with_the_nearest(project, entry, said):
    llm = "class Bot:\n    def say(self, text):\n        return text\ndef ask(question):\n    return question\n"
    report = check(project, {"a.py": ASK, "myapp/__init__.py": "", "myapp/llm.py": llm}, f'sinks = ["{entry}"]')
    problems = [each["message"] for each in report["errors"] if each["slug"] == "unknown-sink"]
    assert ([said in problem for problem in problems] == [True]) if said else not problems


def test_the_command_that_shows_the_configuration_shows_declarations(project):
    (project / "prefixlint.toml").write_text('sinks = ["a.b", "c:d"]\nprompt-names = ["*_card"]\n')
    shown = CliRunner().invoke(main, ["config"]).stdout
    assert "sinks: a.b, c:d\n" in shown
    assert "prompt-names: *_card\n" in shown
    assert "prompt-files" not in shown


names = st.from_regex(r"[a-z_][a-z0-9_]{0,5}(\.[a-z_][a-z0-9_]{0,5}){0,3}", fullmatch=True)


@given(names, st.one_of(st.just(""), st.from_regex(r"[a-z_][a-z0-9_]{0,5}|[0-9]", fullmatch=True)))
def test_an_entry_is_read_as_it_is_written(function, argument):
    entry = f"{function}:{argument}" if argument else function
    assert declared.sinks([entry]) == (DeclaredSink(function, argument),)


@given(names, names)
def test_a_sink_is_the_whole_end_of_a_name(function, owner):
    said = Declared(sinks=(DeclaredSink(function),))
    assert said.arguments(function) == said.arguments(f"{owner}.{function}") == [""]
    assert said.arguments(f"x{function}x") == []
    assert said.arguments(f"{owner}_{function}") == ([""] if f"{owner}_{function}".endswith(f".{function}") else [])
