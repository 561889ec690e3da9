"""Every rule on its page's examples, on the snippets, and on small programs that repeat reported faults."""

import json
from pathlib import Path

import pytest

from prefixlint import logrules, logs, rulebook
from prefixlint.checks import checks
from prefixlint.errors import ConfigError, UsageError
from tests.linting import codes, findings, places

FIXTURES = Path(__file__).parents[1] / "fixtures" / "prompts"
RULES = rulebook.rules()
SNIPPETS = json.loads((FIXTURES / "snippets.json").read_text(encoding="utf-8"))
CASES = sorted((FIXTURES / "cases").iterdir())
ENDINGS = {"python": "example.py", "jinja": "example.j2", "text": "example.txt", "yaml": "example.yaml"}
EXAMPLES = [
    pytest.param(rule, example, id=f"{rule.code}-{example.section}-{number}".replace(" ", "-"))
    for rule in RULES.values()
    for number, example in enumerate(rule.examples)
]


@pytest.mark.parametrize(("rule", "example"), EXAMPLES)
def test_the_examples_of_a_page_do_what_it_says(rule, example, tmp_path):
    if example.language == "log":
        log = tmp_path / "example.jsonl"
        log.write_text(example.text, encoding="utf-8")
        seen = {finding.rule.code for finding in logrules.check(logs.read([str(log)]), RULES)}
        assert seen == ({rule.code} if example.section == "Example" else set())
        return
    name = example.name or ENDINGS[example.language]
    found = places({name: example.text})
    if example.section == "Example":
        lines = {line for code, _, line in found if code == rule.code}
        assert example.lines, "no line is marked"
        assert set(example.lines) <= lines
    else:
        assert not found


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.code)
def test_a_page_has_examples_for_both_sides_and_a_check(rule):
    sections = {example.section for example in rule.examples}
    assert {"Example", "Use instead", "Near misses"} <= sections
    assert set(rule.check.split()) <= checks().keys()
    assert rule.summary.endswith(".")
    assert not rule.help.endswith(".")


@pytest.mark.parametrize("snippet", SNIPPETS, ids=lambda s: f"{s['rule']}-{s['expect']}")
def test_snippets_fire_or_stay_quiet(snippet):
    found = codes({snippet["file"]: snippet["text"]})
    if snippet["expect"] == "fire":
        assert snippet["rule"] in found
    else:
        assert not found, snippet["why"]


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.name)
@pytest.mark.parametrize("min_tokens", [0, 24])
def test_reported_faults_are_found_at_their_line(case, min_tokens):
    expected = json.loads((case / "expected.json").read_text(encoding="utf-8"))
    files = {p.name: p.read_text(encoding="utf-8") for p in case.iterdir() if p.name != "expected.json"}
    broken = {name: text for name, text in files.items() if name not in expected["fixed"]}
    found = places(broken, min_tokens)
    lines = expected.get("accept_lines", [expected["line"]])
    rules = {expected["verdict"], *expected.get("accept", ())}
    assert any(code in rules and path == expected["file"] and line in lines for code, path, line in found)
    for silent in expected["must_not_fire"]:
        assert (silent["file"], silent["line"]) not in {(path, line) for _, path, line in found}
    assert not places({name: files[name] for name in expected["fixed"]}, min_tokens)


def test_the_severity_is_that_of_the_report():
    for case in CASES:
        expected = json.loads((case / "expected.json").read_text(encoding="utf-8"))
        files = {p.name: p.read_text(encoding="utf-8") for p in case.iterdir() if p.name not in expected["fixed"]}
        files.pop("expected.json")
        found, errors = findings(files)
        assert not errors
        assert max(f.severity for f in found if f.rule.code == expected["verdict"]).word == expected["severity"]


def test_rules_are_found_by_code_and_by_name():
    assert rulebook.find("pfx101") is rulebook.find("clock-in-prefix")
    with pytest.raises(UsageError, match="no rule") as caught:
        rulebook.find("clock-in-prefx")
    assert "clock-in-prefix" in caught.value.hint


def test_selectors_are_codes_prefixes_and_names():
    assert rulebook.matching(["PFX10"], RULES) >= {"PFX101", "PFX102"}
    assert rulebook.matching(["unstable-json"], RULES) == {"PFX302"}
    assert rulebook.matching(["ALL"], RULES) == set(RULES)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("no front matter", "TOML"),
        ("+++\ncheck = 3\nwrong\n+++\n", "rule.md"),
        ('+++\nchck = "volatile"\n+++\n', "chck"),
        ('+++\ncheck = "volatile"\n+++\n## What it dose\n', "What it dose"),
    ],
)
def test_a_page_that_is_none_says_why(text, said):
    with pytest.raises(ConfigError, match=said):
        rulebook.page(text, "PFX999", "x", "rule.md")
