"""`prefixlint report`: a saved result in each format is what the command itself would have written."""

import copy
import json
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixlint import rulebook
from prefixlint.cli import main
from prefixlint.paper import MOST, Paper, byte
from prefixlint.reports import Look, _restored
from prefixlint.reports import json as as_json
from prefixlint.reports import text as as_text
from tests.clocked import PROMPT, bodies

ROOT = Path(__file__).parents[1]
LOGS = ROOT / "fixtures" / "logs"
DEMO = str(LOGS / "demo.jsonl")
METRICS = ROOT / "fixtures" / "metrics"
SARIF = json.loads((ROOT / "fixtures" / "sarif" / "sarif-2.1.0-rtm.5.json").read_text(encoding="utf-8"))
CLOCK = 'import time\ndef system_prompt(): return f"""It is {time.ctime()} 漢字\n%s"""\n' % PROMPT  # noqa: UP031 - braces stand in it
FORMS = ("text", "sarif", "github", "markdown", "html")


def run(*arguments, code=0):
    done = CliRunner().invoke(main, [str(word) for word in arguments], env={"COLUMNS": "80", "GITHUB_STEP_SUMMARY": ""})
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code == code, done.stderr
    return done


def written(log):
    lines = [json.dumps(body) for body in bodies(6)]
    log.write_text("\n".join([*lines, "{broken", ""]), encoding="utf-8")
    return str(log)


def is_official(text):
    log = json.loads(text)
    problems = [error.message[:200] for error in jsonschema.Draft4Validator(SARIF).iter_errors(log)]
    assert not problems, problems[:3]
    return log["runs"][0]


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "app.py").write_text(CLOCK, encoding="utf-8")
    (tmp_path / "tools.j2").write_text(f"{{{{ now() }}}}\n{PROMPT}\n")
    written(tmp_path / "log.jsonl")
    return tmp_path


OPTIONS = {
    "limits": ("--capacity", "6000", "--replicas", "2", "--by", "model", "-v"),
    "providers": ("--engine", "openai", "--engine", "anthropic", "--engine", "sglang", "--what-if", "none"),
}


@pytest.mark.parametrize("options", [(), *OPTIONS.values()], ids=["plain", *OPTIONS])
def test_a_saved_analysis_looks_like_a_fresh_one(tmp_path, options):
    saved = tmp_path / "saved.json"
    verbose = [word for word in options if word == "-v"]
    run("analyze", DEMO, *options, "--format", "json", "-o", saved)
    for form in ("text", "sarif", "github"):
        fresh = run("analyze", DEMO, *options, "--format", form).stdout
        assert run("report", saved, "--format", form, *verbose).stdout == fresh, form


def test_a_comparison_and_a_source_are_kept(project):
    run("analyze", "log.jsonl", "--format", "json", "-o", "old.json")
    named = ("--source", ".", "--compare", "old.json", "--fail-under", "99")
    run("analyze", "log.jsonl", *named, "--format", "json", "-o", "saved.json", code=1)
    for form in FORMS:
        fresh = run("analyze", "log.jsonl", *named, "--format", form, code=1).stdout
        assert run("report", "saved.json", "--format", form).stdout == fresh, form


@pytest.mark.parametrize("path", sorted((LOGS / "samples").glob("*.jsonl"))[::4], ids=lambda path: path.stem)
def test_logs_of_all_kinds_come_back(path):
    done = CliRunner().invoke(main, ["analyze", str(path), "--format", "json", "--what-if", "none"])
    if done.exit_code:
        pytest.skip("a log that is refused has no result")
    document = json.loads(done.stdout)
    back = _restored.analysis(document)
    again = as_json.as_json(back)
    for row in [*document["findings"], *again["findings"]]:
        row.pop("related")  # further examples are not shown
    assert again == document
    assert (
        as_text.analysis(back, Look()) == CliRunner().invoke(main, ["analyze", str(path), "--what-if", "none"]).stdout
    )


@pytest.mark.parametrize("form", FORMS)
def test_a_saved_check_looks_like_a_fresh_one(project, form):
    saved = project.parent / f"{project.name}.json"  # not among what is checked
    run("check", "--format", "json", "-o", saved, code=1)
    assert run("report", saved, "--format", form).stdout == run("check", "--format", form, code=1).stdout


def test_where_the_sources_are_not_the_excerpts_are_shown_at_their_lines(project, tmp_path, monkeypatch):
    run("check", "--unsafe-fixes", "--diff", code=1)
    run("check", "--format", "json", "-o", "saved.json", code=1)
    there = is_official(run("report", "saved.json", "--format", "sarif").stdout)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    shown = run("report", "../saved.json", "--format", "text").stdout
    assert "app.py:2:39" in shown
    row = next(line for line in shown.splitlines() if line.startswith("2 | "))
    assert row.split() == ["2", "|", "{time.ctime()}"]
    assert row.index("{time") == len("2 | ") + 38
    here = is_official(run("report", "../saved.json", "--format", "sarif").stdout)
    places = [[one["locations"][0]["physicalLocation"]["region"] for one in log["results"]] for log in (there, here)]
    assert places[0] == places[1]
    assert not any("fixes" in one for one in here["results"])


def test_a_file_that_changed_is_not_quoted(project):
    run("check", "--format", "json", "-o", "saved.json", code=1)
    (project / "app.py").write_text("secret = 1\n" * 9)
    shown = run("report", "saved.json", "--format", "text").stdout
    assert "secret" not in shown
    assert "{time.ctime()}" in shown


@pytest.mark.parametrize("path", ["../outside.py", "/etc/hostname", "link.py", "folder", "pipe"])
def test_a_result_of_strangers_shows_no_file_from_elsewhere(project, path):
    import os

    run("check", "app.py", "--format", "json", "-o", "saved.json", code=1)
    outside = project.parent / "outside.py"
    outside.write_text(CLOCK + "# from elsewhere", encoding="utf-8")
    (project / "link.py").symlink_to(outside)
    (project / "folder").mkdir()
    os.mkfifo(project / "pipe")
    saved = json.loads((project / "saved.json").read_text())
    for finding in saved["findings"]:
        finding["path"] = path
    (project / "saved.json").write_text(json.dumps(saved))
    shown = run("report", "saved.json", "--format", "text").stdout
    assert "It is" not in shown
    assert "{time.ctime()}" in shown


def test_an_empty_excerpt_quotes_nothing(project):
    run("check", "app.py", "--format", "json", "-o", "saved.json", code=1)
    saved = json.loads((project / "saved.json").read_text())
    saved["findings"][0]["excerpt"] = ""
    (project / "saved.json").write_text(json.dumps(saved))
    assert "It is" not in run("report", "saved.json", "--format", "text").stdout


def test_causes_stand_in_sarif_at_the_source_or_else_in_the_log(project):
    plain = is_official(run("analyze", "log.jsonl", "--format", "sarif").stdout)
    led = is_official(run("analyze", "log.jsonl", "--source", "app.py", "--format", "sarif").stdout)
    (before,), (after,) = plain["results"], led["results"]
    assert before["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "log.jsonl"},
        "region": {"startLine": 2},
    }
    place = after["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "app.py"}
    assert place["region"] == {"startLine": 2, "startColumn": 39, "endLine": 2, "endColumn": 53}
    assert before["ruleId"] == after["ruleId"] == "PFX101"
    assert plain["tool"]["driver"]["rules"][0]["help"]["markdown"].startswith("#")
    assert "tokens computed again: " in after["message"]["text"]
    (static,) = is_official(run("check", "app.py", "--format", "sarif", code=1).stdout)["results"]
    assert after["partialFingerprints"] == static["partialFingerprints"], "check and analyze name one place alike"


def test_a_threshold_that_was_missed_is_in_sarif(project):
    log = is_official(run("analyze", "log.jsonl", "--fail-under", "99", "--format", "sarif", code=1).stdout)
    (invocation,) = log["invocations"]
    assert {one["descriptor"]["id"] for one in invocation["toolExecutionNotifications"]} == {"threshold"}


def test_hostile_text_in_sarif_of_a_log_is_official_and_inert(project):
    evil = "](javascript:x) \x1b[31m \u202e \x00 \ud800 <script>"
    rows = [
        {"model": evil, "messages": [{"role": "system", "content": f"It is 09:12:{n:02}. {PROMPT} {evil}"}]}
        for n in range(4)
    ]
    name = "a b\u202e#?%.jsonl"
    (project / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = run("analyze", name, "--format", "sarif")
    assert is_official(done.stdout)["results"]
    assert not set("\x1b\u202e\x00") & set(done.stdout)
    assert "](" not in json.loads(done.stdout)["runs"][0]["results"][0]["message"]["text"]


def test_a_form_that_does_not_fit_is_refused_alike(project):
    run("explain", "log.jsonl#2", "--format", "json", "-o", "explained.json")
    for saved, form, known in (
        ("explained.json", "html", "text, json"),
        ("explained.json", "github", "text, json"),
        (ROOT / "fixtures" / "verify" / "embedded.json", "sarif", "text, json, markdown, html"),
        (ROOT / "fixtures" / "verify" / "embedded.json", "github", "text, json, markdown, html"),
    ):
        done = run("report", saved, "--format", form, code=2)
        assert f"which has no {form} form" in done.stderr
        assert f"help: its formats: {known}\n" in done.stderr
        assert "error[no-such-form]" in done.stderr
    assert json.loads(run("report", "explained.json", "--format", "json").stdout)["schema"] == "prefixlint.explain/1"


def test_a_rule_that_is_no_more_keeps_its_name(project):
    run("analyze", "log.jsonl", "--format", "json", "-o", "saved.json")
    saved = json.loads((project / "saved.json").read_text())
    saved["findings"][0] |= {"rule": "OLD999", "name": "as-it-was"}
    (project / "saved.json").write_text(json.dumps(saved))
    assert "OLD999 as-it-was" in run("report", "saved.json", "--format", "text").stdout
    assert is_official(run("report", "saved.json", "--format", "sarif").stdout)["results"][0]["ruleId"] == "OLD999"
    assert "OLD999" not in rulebook.rules()


def paths(value, at=()):
    if isinstance(value, dict):
        for key, item in value.items():
            yield (*at, key)
            yield from paths(item, (*at, key))
    elif isinstance(value, list) and value:
        yield (*at, 0)
        yield from paths(value[0], (*at, 0))


@pytest.fixture(scope="module")
def saved_results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    (folder / "app.py").write_text(CLOCK, encoding="utf-8")
    (folder / "pyproject.toml").write_text("")
    log = written(folder / "log.jsonl")
    run("analyze", log, "--source", folder / "app.py", "--by", "model", "--format", "json", "-o", folder / "a.json")
    run("check", folder / "app.py", "--format", "json", "-o", folder / "c.json", code=1)
    return [json.loads((folder / name).read_text()) for name in ("a.json", "c.json")]


def test_a_result_that_lacks_something_is_an_error_in_words(saved_results, tmp_path):
    """Whatever is missing or of another type: a report or an error with a slug, never a fault of the program."""
    analyzed, checked = saved_results
    seen = 0

    @settings(deadline=None, max_examples=120)
    @given(st.data())
    def broken(data):
        nonlocal seen
        which = data.draw(st.sampled_from(["analyze", "check"]))
        document = copy.deepcopy(analyzed if which == "analyze" else checked)
        where = data.draw(st.sampled_from(sorted(paths(document), key=str)))
        holder = document
        for key in where[:-1]:
            holder = holder[key]
        if data.draw(st.booleans()) and isinstance(holder, dict):
            del holder[where[-1]]
        else:
            holder[where[-1]] = data.draw(st.sampled_from([None, -1, "x", [], {}, [1], 1e300, True, 10**9]))
        if not isinstance(document.get("schema"), str) or not document["schema"].startswith("prefixlint."):
            return
        path = tmp_path / "broken.json"
        path.write_text(json.dumps(document))
        form = data.draw(st.sampled_from(FORMS))
        done = CliRunner().invoke(main, ["report", str(path), "--format", form])
        assert done.exit_code in (0, 2), done.stderr
        assert "error[internal]" not in done.stderr, (where, form, done.stderr)
        seen += done.exit_code == 2

    broken()
    assert seen, "nothing was refused"


@settings(deadline=None)  # a busy machine is no fault
@given(
    st.lists(
        st.tuples(st.integers(1, 30), st.integers(1, 60), st.text("ab漢🙂é\n", max_size=8)), min_size=1, max_size=12
    )
)
def test_texts_on_paper_stand_where_they_were_put(placed):
    paper = Paper()
    for line, column, text in placed:
        paper.put("f", line, column, text)
    data = paper.files()["f"]
    line, column, text = placed[-1]
    rows = text.split("\n")
    end = (line + len(rows) - 1, len(rows[-1]) + (column if len(rows) == 1 else 1))
    span = paper.span("f", (line, column), end)
    assert data[span.start : span.end].decode().startswith(rows[0])
    assert byte(data, line, column) == span.start
    assert len(data[: span.start].decode().split("\n")) == line


@pytest.mark.parametrize(("line", "column"), [(10**9, 1), (1, 10**9), (0, 1), (-3, 1), (MOST + 1, 1)])
def test_a_place_that_no_file_has_is_refused_before_memory_is_taken(line, column):
    with pytest.raises(ValueError, match="line"):
        Paper().put("f", line, column, "x")


def test_bytes_of_a_shorter_file_are_not_found():
    with pytest.raises(ValueError, match="subsection not found"):
        byte(b"a\nb", 4, 1)
    assert byte("é\nbü".encode(), 2, 3) == 6


MAPS = ("formats", "engines", "tokens_lost", "misses", "reach", "lost", "key", "reasons")
"""Fields of results whose keys are no names of fields."""


def grown(value, name=""):
    """Give a result as a later version may write it: with a field more in each of its objects."""
    if isinstance(value, dict):
        more = {} if name in MAPS else {"of_tomorrow": 1}
        return {**{key: grown(item, key) for key, item in value.items()}, **more}
    return [grown(item) for item in value] if isinstance(value, list) else value


def test_what_a_later_version_adds_is_passed_over(saved_results, tmp_path):
    """Results grow: a field that is not known here is no reason to refuse one."""
    for number, document in enumerate(saved_results):
        old, new = tmp_path / f"{number}.json", tmp_path / f"{number}.new.json"
        old.write_text(json.dumps(document))
        new.write_text(json.dumps(grown(document)))
        for form in ("text", "github", "markdown"):
            assert run("report", new, "--format", form).stdout == run("report", old, "--format", form).stdout


@pytest.mark.parametrize("width", ["80", "46"])
@pytest.mark.parametrize(
    "command",
    [
        ("diff", f"{DEMO}#1", f"{DEMO}#2"),
        ("diff", f"{DEMO}#3", f"{DEMO}#3"),
        ("diff", f"{DEMO}#1", f"{DEMO}#4", "--text-only", "-v"),
        ("assert", f"{DEMO}#1", f"{DEMO}#2", "--min-shared", "0.9"),
        ("assert", f"{DEMO}#1", f"{DEMO}#2", "--min-shared", "1", "--text-only"),
        *(("explain", f"{DEMO}#{line}") for line in (1, 5, 30, 90)),
        ("explain", f"{DEMO}#5", "--capacity", "2000", "-v"),
        ("watch", METRICS / "vllm.txt"),
        ("watch", METRICS / "sglang.txt", METRICS / "sglang.txt"),
    ],
    ids=lambda words: "-".join(Path(word).name for word in words),
)
def test_what_a_command_said_is_said_again(command, width, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", width)
    fresh, saved = (CliRunner().invoke(main, [*map(str, command), "--format", form]) for form in ("text", "json"))
    assert fresh.exit_code == saved.exit_code
    verbose = [word for word in command if word == "-v"]
    for document in (json.loads(saved.stdout), grown(json.loads(saved.stdout))):
        (tmp_path / "saved.json").write_text(json.dumps(document), encoding="utf-8")
        assert CliRunner().invoke(main, ["report", str(tmp_path / "saved.json"), *verbose]).stdout == fresh.stdout


@pytest.mark.parametrize("kind", ["diff", "assert", "explain", "probe", "watch"])
def test_a_result_of_another_version_is_told_as_such(kind, tmp_path):
    (tmp_path / "saved.json").write_text(json.dumps({"schema": f"prefixlint.{kind}/1", "first": {}, "diff": {}}))
    done = run("report", tmp_path / "saved.json", code=2)
    assert "error[bad-result]: the saved result lacks what its schema says" in done.stderr
