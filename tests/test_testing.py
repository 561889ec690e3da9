"""The assertions for tests of prompts, as functions and as the fixtures of the pytest plugin."""

import importlib.metadata
import json
import subprocess
import sys

import pytest

from prefixlint.errors import NoInputError, UsageError
from prefixlint.testing import assert_prefix_stable, assert_shared_prefix

pytest_plugins = ["pytester"]

RULES = "Weigh each crate, note the road it takes, and never guess. " * 20
INSTALLED = any(entry.name == "prefixlint" for entry in importlib.metadata.entry_points(group="pytest11"))
PLUGIN = [] if INSTALLED else ["-p", "prefixlint.pytest_plugin"]


def body(system, *texts, **more):
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]
    return {"model": "m", "messages": [{"role": "system", "content": system}, *messages], **more}


def test_prompts_of_all_kinds(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text(RULES + "anna")
    for a, b in (
        (RULES + "anna", RULES + "bo"),
        (body(RULES, "anna"), body(RULES, "bo")),
        (body(RULES, "anna")["messages"], body(RULES, "bo")["messages"]),
        (lambda: RULES + "anna", lambda: RULES + "bo"),
        (path, RULES + "bo"),
        (list(range(100)), [*range(98), 7, 8]),
    ):
        assert_shared_prefix(a, b, at_least=0.9)
        with pytest.raises(AssertionError, match="first divergence"):
            assert_shared_prefix(a, b, at_least=1.0)


def test_the_message_shows_both_sides():
    with pytest.raises(AssertionError) as caught:
        assert_shared_prefix(f"It is 09:10. {RULES}", f"It is 09:12. {RULES}", at_least=0.5, unit="characters")
    text = str(caught.value)
    assert "09:10" in text
    assert "09:12" in text
    assert "at least 50.0 % wanted" in text


def test_an_int_counts_and_a_float_is_a_share():
    a, b = RULES + "anna", RULES + "bo"
    assert_shared_prefix(a, b, at_least=1)
    with pytest.raises(AssertionError):
        assert_shared_prefix(a, b, at_least=1.0)
    assert_shared_prefix(a, b, at_least=len(RULES), unit="characters")
    with pytest.raises(AssertionError, match="2,000 wanted"):
        assert_shared_prefix(a, b, at_least=2000, unit="characters")


def test_budgets():
    assert_shared_prefix(RULES, RULES, max_tokens=5000)
    with pytest.raises(AssertionError, match="at most 10 wanted"):
        assert_shared_prefix(RULES, RULES, at_least=0.5, max_tokens=10)


@pytest.mark.parametrize("value", [7, None, b"bytes", {}, {"nothing": 1}, {"messages": object()}, []])
def test_what_is_no_prompt_is_said(value):
    with pytest.raises(UsageError):
        assert_shared_prefix(value, "text", at_least=0.5, unit="characters")


def test_nothing_asked_is_refused():
    with pytest.raises(UsageError):
        assert_shared_prefix("a", "a")


STABLE = [body(RULES, "q"), body(RULES, "q", "a", "r"), body(RULES, "q", "a", "r", "b", "s")]
CLOCK = [
    body(f"Now 09:1{n}:44. {RULES}", *texts)
    for n, texts in enumerate((("q",), ("q", "a", "r"), ("q", "a", "r", "b", "s")))
]


def test_a_stable_log(tmp_path):
    assert_prefix_stable(STABLE)
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, STABLE)))
    assert_prefix_stable(path)
    assert_prefix_stable(str(path))


def test_a_log_with_a_clock():
    with pytest.raises(AssertionError) as caught:
        assert_prefix_stable(CLOCK)
    text = str(caught.value)
    for part in (
        "PFX101",
        "messages[0].content, character 8",
        "line 2, compared with line 1",
        "09:10:44",
        "09:11:44",
        "->",
    ):
        assert part in text


def test_rules_are_chosen():
    assert_prefix_stable(CLOCK, ignore=["PFX101"])
    assert_prefix_stable(CLOCK, select=["PFX4"])
    with pytest.raises(AssertionError):
        assert_prefix_stable(CLOCK, select=["clock-in-prefix"], fail_on="info")


def test_logs_that_cannot_be_judged(tmp_path):
    with pytest.raises(UsageError):
        assert_prefix_stable([])
    with pytest.raises(UsageError):
        assert_prefix_stable(STABLE, fail_on="never")
    with pytest.raises(NoInputError):
        assert_prefix_stable(tmp_path / "missing.jsonl")


def test_the_fixtures(pytester):
    pytester.makeini("[pytest]\nprefixlint_unit = characters\n")
    pytester.makepyfile(
        f"""
        RULES = {RULES!r}

        def test_holds(assert_shared_prefix):
            assert_shared_prefix(RULES + "anna", RULES + "bo", at_least=len(RULES))

        def test_fails(assert_shared_prefix):
            assert_shared_prefix("anna " + RULES, "bo " + RULES, at_least=0.9)

        def test_log(assert_prefix_stable):
            assert_prefix_stable({CLOCK!r})
        """
    )
    done = pytester.runpytest_inprocess(*PLUGIN, "-p", "no:randomly")
    done.assert_outcomes(passed=1, failed=2)
    done.stdout.fnmatch_lines(["*0.0 % of B (0 of * characters) shared, at least 90.0 % wanted*", "*PFX101*"])
    done.stdout.no_fnmatch_line("*sharing.py*")


def test_the_start_of_pytest_imports_nothing_heavy(pytester, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # other plugins import what they like
    pytester.makeconftest(
        """
        import sys

        def pytest_sessionfinish():
            heavy = {"numpy", "tokenizers", "jinja2", "click", "orjson", "prefixlint.pipeline", "prefixlint.testing"}
            print("imported:", sorted(heavy & set(sys.modules)))
        """
    )
    pytester.makepyfile("def test_nothing(): pass")
    done = pytester.runpytest_subprocess("-p", "prefixlint.pytest_plugin", "-s")
    done.stdout.fnmatch_lines(["*imported: []*"])


def test_importing_the_assertions_is_cheap():
    code = "import sys, prefixlint.testing; print({'numpy', 'tokenizers', 'click', 'jinja2'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"
