"""`analyze --compare`: what moved between two saved results."""

import json

import pytest
from click.testing import CliRunner

from prefixlint.cli import main

RULES = "Weigh each crate, note the road it takes, and never guess. " * 20
OTHER = "You write small poems about harbours, in four lines and without a rhyme. " * 20


def chat(system, question):
    return {"model": "m", "messages": [{"role": "system", "content": system}, {"role": "user", "content": question}]}


def clocked(n):
    return chat(f"It is 2026-03-01 09:{n % 60:02}:17. " + RULES, f"how heavy is {n * 7919}?")


def plain(n):
    return chat(RULES, f"how heavy is {n * 7919}?")


def poem(n):
    return chat(OTHER, " ".join(str(n * 7919 + i) for i in range(150)))


def invoke(*arguments):
    return CliRunner().invoke(main, ["analyze", *map(str, arguments)])


def save(folder, name, rows):
    log = folder / f"{name}.jsonl"
    log.write_text("\n".join(map(json.dumps, rows)))
    done = invoke(log, "--format", "json", "-o", folder / f"{name}.json")
    assert done.exit_code == 0, done.output
    return folder / f"{name}.json"


def against(folder, old, rows, *options):
    log = folder / "new.jsonl"
    log.write_text("\n".join(map(json.dumps, rows)))
    done = invoke(log, "--compare", old, "--format", "json", *options)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)["compare"]


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    return save(tmp_path_factory.mktemp("old"), "old", [plain(n) for n in range(40)])


def test_a_cause_that_is_new(tmp_path, old):
    found = against(tmp_path, old, [clocked(n) for n in range(40)])
    assert found["with"] == str(old)
    assert found["engines"]["sglang"]["change"] < -0.7
    cause = found["causes"][0]
    assert (cause["rule"], cause["state"], cause["path"]) == ("PFX101", "new", "messages[*].content")
    assert cause["lost"]["sglang"]["before"] == 0
    assert cause["lost"]["sglang"]["after"] > 0.7
    reason = found["reasons"]["sglang"][0]
    assert (reason["kind"], reason["rule"]) == ("cause", "PFX101")
    assert "clock-in-prefix at messages[*].content is new" in reason["message"]


def test_a_cause_that_is_gone(tmp_path):
    before = save(tmp_path, "old", [clocked(n) for n in range(40)])
    found = against(tmp_path, before, [plain(n) for n in range(40)])
    assert (found["causes"][0]["rule"], found["causes"][0]["state"]) == ("PFX101", "gone")
    assert found["reasons"]["sglang"][0]["points"] > 0.7


def test_another_mix(tmp_path, old):
    found = against(tmp_path, old, [plain(n) if n % 4 == 0 else poem(n) for n in range(40)])
    (reason,) = found["reasons"]["sglang"]
    assert reason["kind"] == "families"
    families = {family["name"]: family for family in found["families"]}
    assert families[next(n for n in families if "poems" in n)]["share"]["before"] == 0


def test_the_same_log_moves_nothing(tmp_path, old):
    found = against(tmp_path, old, [plain(n) for n in range(40)])
    assert all(moved["change"] == 0 for moved in found["engines"].values())
    assert found["reasons"] == {"sglang": [], "vllm": []}
    assert all(family["share"]["change"] == 0 for family in found["families"])


def test_the_text(tmp_path, old):
    log = tmp_path / "new.jsonl"
    log.write_text("\n".join(json.dumps(clocked(n)) for n in range(40)))
    out = " ".join(invoke(log, "--compare", old).stdout.split())
    assert "Against" in out
    assert "PFX101 clock-in-prefix, messages[*].content 0.0 %" in out
    assert "new" in out


def test_engines_that_the_old_result_lacks_are_unknown(tmp_path, old):
    found = against(tmp_path, old, [plain(n) for n in range(20)], "--engine", "deepseek")
    assert found["engines"] == {
        "deepseek": {"before": None, "after": found["engines"]["deepseek"]["after"], "change": None}
    }


def test_fail_under_judges_this_result(tmp_path, old):
    log = tmp_path / "new.jsonl"
    log.write_text("\n".join(json.dumps(clocked(n)) for n in range(40)))
    assert invoke(log, "--compare", old, "--fail-under", "50").exit_code == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        "[" * 10000,
        '{"schema": "prefixlint.check/1"}',
        '{"schema": "prefixlint.analyze/1"}',
        '{"schema": "prefixlint.analyze/1", "engines": [1], "families": [], "findings": []}',
    ],
)
def test_what_is_no_result_is_refused(tmp_path, text):
    (tmp_path / "old.json").write_text(text)
    log = tmp_path / "log.jsonl"
    log.write_text(json.dumps(plain(1)))
    done = invoke(log, "--compare", tmp_path / "old.json")
    assert done.exit_code == 2
    assert "bad-result" in done.stderr
    assert invoke(log, "--compare", tmp_path / "missing.json").exit_code == 3


@pytest.mark.parametrize("key", ["tokens", "reported", "engines", "families", "findings"])
@pytest.mark.parametrize(
    "value", [[], [{}], [{"engine": "sglang", "misses": 7, "hit_rate": "x", "engines": [], "at": 1}]]
)
def test_results_with_odd_values_are_survived(tmp_path, old, key, value):
    changed = json.loads(old.read_text()) | {key: value}
    (tmp_path / "odd.json").write_text(json.dumps(changed))
    assert against(tmp_path, tmp_path / "odd.json", [plain(n) for n in range(10)])["with"]


PEOPLE = ("ana.lee@mail.example", "bo.berg@mail.example")


def for_people(n):
    return chat(f"You write to {PEOPLE[0]} of the harbour office. " + RULES, f"how heavy is {n * 7919}?")


@pytest.mark.parametrize("old_masked", [True, False])
@pytest.mark.parametrize("new_masked", [True, False])
def test_families_are_the_same_where_personal_values_are_masked(old_masked, new_masked, tmp_path):
    """Labels differ between runs, and a label is not the value that it stands for."""
    rows = [for_people(n) for n in range(20)] + [poem(n) for n in range(20)]
    log = tmp_path / "old.jsonl"
    log.write_text("\n".join(map(json.dumps, rows)))
    saved = tmp_path / "old.json"
    masked = ("--redact",) if old_masked else ()
    assert invoke(log, "--format", "json", "-o", saved, *masked).exit_code == 0
    assert (PEOPLE[0] in saved.read_text()) is not old_masked
    found = against(tmp_path, saved, rows, *(("--redact",) if new_masked else ()))
    assert len(found["families"]) == 2
    for family in found["families"]:
        assert family["share"]["before"] == pytest.approx(family["share"]["after"])
        assert family["engines"]["sglang"]["change"] == pytest.approx(0)
    if old_masked or new_masked:
        assert PEOPLE[0] not in json.dumps(found)
        assert any("<email>" in family["name"] for family in found["families"])


def test_without_masks_families_of_two_people_are_two(tmp_path):
    def rows(number):
        return [chat(f"You write to {PEOPLE[number]}. " + (RULES, OTHER)[number], f"{n * 7919}?") for n in range(9)]

    old = save(tmp_path, "old", rows(0))
    found = against(tmp_path, old, rows(0) + rows(1))
    assert sorted(family["name"].split()[3] for family in found["families"]) == [f"{name}." for name in PEOPLE]
