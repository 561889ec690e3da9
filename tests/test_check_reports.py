"""`prefixlint check --format sarif` and `--format github`."""

import copy
import functools
import json
import re
import shutil
import subprocess
from pathlib import Path
from urllib.parse import unquote, urlsplit

import jsonschema
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from prefixlint import checksarif, rulebook, workflow
from prefixlint.cli import main

TAIL = ". You answer all questions of readers in one sentence, and name the shelf. Never guess, and never talk about other readers of the library, whatever they say."
SET = f'names = {{"a", "b"}} | extra\nSYSTEM_PROMPT = "Ü know: " + ", ".join(names) + "{TAIL}"\n'
CLOCK = f"{{# a date #}}\n{{{{ now() }}}}\n{TAIL}\n"


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    (tmp_path / "bad.py").write_text(SET, encoding="utf-8")
    return tmp_path


def run(*args):
    return CliRunner().invoke(main, ["check", *map(str, args)])


def sarif(*args):
    done = run(*args, "--format", "sarif")
    log = json.loads(done.stdout)
    assert log["version"] == "2.1.0"
    assert len(log["runs"]) == 1
    return log["runs"][0], done.exit_code


def test_a_sarif_result_has_its_rule_place_and_fingerprint(project):
    found, code = sarif()
    assert code == 1
    (result,) = found["results"]
    (rule,) = found["tool"]["driver"]["rules"]
    assert (result["ruleId"], result["ruleIndex"], rule["id"], result["level"]) == ("PFX301", 0, "PFX301", "warning")
    assert rule["help"]["markdown"] == rulebook.rules()["PFX301"].page
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "bad.py"}
    assert place["region"] == {"startLine": 2, "startColumn": 40, "endLine": 2, "endColumn": 45}
    plain = json.loads(run("--format", "json").stdout)["findings"][0]
    assert result["partialFingerprints"] == {"prefixlint/v1": plain["fingerprint"]}
    assert result["relatedLocations"][0]["physicalLocation"]["region"]["startLine"] == 1


def test_the_fix_in_sarif_is_the_fix_that_is_applied(project):
    """Applied as SARIF 3.57 says, the replacements give what --fix gives."""
    found, _ = sarif()
    lines = SET.splitlines(keepends=True)
    text, starts = SET, [sum(map(len, lines[:n])) for n in range(len(lines) + 1)]
    edits = found["results"][0]["fixes"][0]["artifactChanges"][0]["replacements"]
    for edit in sorted(edits, key=lambda e: -e["deletedRegion"]["startColumn"]):
        region = edit["deletedRegion"]
        start = starts[region["startLine"] - 1] + region["startColumn"] - 1
        stop = starts[region["endLine"] - 1] + region["endColumn"] - 1
        text = text[:start] + edit["insertedContent"]["text"] + text[stop:]
    assert run("--fix").exit_code == 0
    assert text == (project / "bad.py").read_text(encoding="utf-8") != SET


def test_what_is_suppressed_is_in_sarif_with_its_reason(project):
    (project / "bad.py").write_text(SET.rstrip("\n") + "  # prefixlint: ignore[PFX301] sets are small\n")
    (project / "pyproject.toml").write_text('[tool.prefixlint]\nper-file-ignores = {"p.j2" = ["PFX101"]}\n')
    (project / "p.j2").write_text(CLOCK)
    found, code = sarif()
    assert code == 0
    kinds = {r["ruleId"]: r["suppressions"][0] for r in found["results"]}
    assert kinds["PFX301"] == {"kind": "inSource", "justification": "sets are small"}
    assert kinds["PFX101"] == {"kind": "external", "justification": "per-file-ignores: p.j2"}


def test_what_cannot_be_read_is_a_notification(project):
    (project / "broken prompt.py").write_text('prompt = "\n')
    found, _ = sarif()
    (problem,) = found["invocations"][0]["toolExecutionNotifications"]
    assert problem["descriptor"] == {"id": "syntax-error"}
    place = problem["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]) == ("broken%20prompt.py", {"startLine": 1})
    assert found["invocations"][0]["executionSuccessful"] is True


def test_nothing_found_is_an_empty_run(project):
    (project / "bad.py").write_text("x = 1\n")
    found, code = sarif()
    assert (code, found["results"], found["tool"]["driver"]["rules"]) == (0, [], [])


@pytest.mark.parametrize("report", ["sarif", "github"])
def test_paths_are_from_the_repository_as_services_expect_them(tmp_path, monkeypatch, report):
    """A project may be a folder of a repository; its report names files from the repository's root."""
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    folder = tmp_path / "services" / "ünit"
    folder.mkdir(parents=True)
    (folder / "pyproject.toml").write_text("")
    (folder / "bad.py").write_text(SET, encoding="utf-8")
    monkeypatch.chdir(folder)
    shown = run("--format", report).stdout
    if report == "github":
        assert "file=services/ünit/bad.py," in shown
    else:
        uri = json.loads(shown)["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        assert (unquote(uri), uri.isascii()) == ("services/ünit/bad.py", True)


def test_a_file_outside_the_repository_has_an_absolute_uri(tmp_path, monkeypatch):
    inside = tmp_path / "in"
    inside.mkdir()
    (inside / "pyproject.toml").write_text("")
    (inside / "ok.py").write_text("")
    (tmp_path / "bad.py").write_text(SET, encoding="utf-8")
    monkeypatch.chdir(inside)
    found, _ = sarif("ok.py", "../bad.py")
    uri = found["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert urlsplit(uri).scheme == "file"
    assert unquote(urlsplit(uri).path) == str(tmp_path / "bad.py")


SCHEMA = Path(__file__).parents[1] / "fixtures" / "sarif" / "sarif-2.1.0-rtm.5.json"


@functools.cache
def official():
    return jsonschema.Draft4Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))


def is_official(*args):
    log = json.loads(run(*args, "--format", "sarif").stdout)
    problems = [f"{error.json_path}: {error.message[:200]}" for error in official().iter_errors(log)]
    assert not problems, problems[:5]
    return log


def test_sarif_is_what_the_official_schema_asks_for(project):
    (project / "p.j2").write_text(CLOCK)
    (project / "q.j2").write_text(CLOCK.replace("#}", "#}{# prefixlint: ignore[PFX101] wanted #}"))
    (project / "broken.py").write_text('prompt = "\n')
    (project / "a b\u202e#?%.j2").write_text(CLOCK)
    body = {"model": "m", "messages": [{"role": "system", "content": f"It is 09:12:{{:02d}}. \x00\x1b {TAIL}"}]}
    (project / "log.jsonl").write_text("".join(json.dumps(body).replace("{:02d}", f"{n:02d}") + "\n" for n in range(3)))
    log = is_official()
    assert {"PFX101", "PFX301"} <= {result["ruleId"] for result in log["runs"][0]["results"]}
    broken = copy.deepcopy(log)
    broken["runs"][0]["results"][0]["level"] = "fatal"
    assert not official().is_valid(broken)
    broken = copy.deepcopy(log)
    del broken["runs"][0]["tool"]["driver"]["name"]
    assert not official().is_valid(broken)


@pytest.mark.parametrize("folder", ["prompts/cases", "deployments", "templates", "chat_templates"])
def test_sarif_of_real_files_is_official(folder, tmp_path, monkeypatch):
    shutil.copytree(SCHEMA.parents[1] / folder, tmp_path / "in")
    monkeypatch.chdir(tmp_path)
    is_official("in", "--min-tokens", "0")


def test_every_rule_in_sarif_has_what_github_asks_for(project):
    """https://docs.github.com/code-security/code-scanning, SARIF support: reportingDescriptor."""
    (project / "p.j2").write_text(CLOCK)
    found, _ = sarif()
    for rule in found["tool"]["driver"]["rules"]:
        for part in ("shortDescription", "fullDescription", "help"):
            assert 0 < len(rule[part]["text"]) <= 1024
        assert rule["help"]["markdown"]
        assert len(rule["name"]) <= 255
        assert rule["properties"]["problem.severity"] in ("error", "warning", "recommendation")


def test_the_fingerprint_survives_what_moves_lines(project):
    (before,) = sarif()[0]["results"]
    (project / "bad.py").write_text("# a licence\n\nimport os\n\n" + SET, encoding="utf-8")
    (after,) = sarif()[0]["results"]
    assert after["locations"] != before["locations"]
    assert after["partialFingerprints"] == before["partialFingerprints"]
    (project / "bad.py").write_text(SET.replace("You know", "You also know").replace("Ü", ""), encoding="utf-8")
    assert sarif()[0]["results"][0]["partialFingerprints"] != before["partialFingerprints"]


def test_a_message_holds_no_link_of_strangers(project):
    assert checksarif._plain("a [click](javascript:alert) b [x]") == "a [click]\u200b(javascript:alert) b [x]"


def test_of_too_many_findings_the_gravest_are_kept(project, monkeypatch):
    (project / "p.j2").write_text(CLOCK)
    (project / "q.j2").write_text(CLOCK.replace("#}", "#}{# prefixlint: ignore[PFX101] wanted #}"))
    everything = sarif()[0]["results"]
    monkeypatch.setattr(checksarif, "MOST_RESULTS", 1)
    found, code = sarif()
    assert ([result["level"] for result in found["results"]], code) == (["error"], 1)
    (told,) = found["invocations"][0]["toolExecutionNotifications"]
    assert told["message"]["text"] == f"{len(everything) - 1} findings are left out: a file may hold 1"


def test_what_is_not_new_is_suppressed_from_outside(project):
    subprocess.run(["git", "init", "-q"], check=True)
    subprocess.run(["git", "add", "."], check=True)
    subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qm", "x"], check=True)
    (result,) = sarif("--diff-base", "HEAD")[0]["results"]
    assert result["suppressions"] == [{"kind": "external", "justification": "not new since HEAD"}]


COMMAND = re.compile(r"::(?P<name>error|warning|notice) (?P<fields>[^:\r\n]*)::(?P<message>[^\r\n]*)")


def commands(shown):
    out = []
    for line in shown.splitlines():
        match = COMMAND.fullmatch(line)
        assert match, line
        fields = dict(field.split("=", 1) for field in match["fields"].split(","))
        out.append((match["name"], {key: unquote(value) for key, value in fields.items()}, unquote(match["message"])))
    return out


def test_github_shows_a_finding_at_its_place(project):
    done = run("--format", "github")
    assert done.exit_code == 1
    ((name, fields, message),) = commands(done.stdout)
    assert name == "warning"
    place = {"file": "bad.py", "line": "2", "endLine": "2", "col": "40", "endColumn": "45"}
    assert fields == {**place, "title": "PFX301 unordered-iteration"}
    assert "bad.py:1: " in message
    assert "\nhelp: " in message


def test_github_shows_information_only_when_asked(project):
    (project / "bad.py").unlink()
    (project / "p.j2").write_text("{{ question }}\n" + "You are a careful assistant of a library. " * 20)
    severities = {f["severity"] for f in json.loads(run("--format", "json").stdout)["findings"]}
    assert severities == {"info"}
    assert run("--format", "github").stdout == ""
    assert {name for name, _, _ in commands(run("--format", "github", "-v").stdout)} == {"notice"}


def test_github_shows_what_cannot_be_read(project):
    (project / "bad.py").write_text('prompt = "\n')
    ((name, fields, _),) = commands(run("--format", "github").stdout)
    assert (name, fields) == ("error", {"file": "bad.py", "line": "1", "title": "syntax-error"})


def test_a_file_name_cannot_write_commands(project):
    evil = "a,title=x::\n::error file=b::c.py"
    (project / evil).write_text(SET, encoding="utf-8")
    found = commands(run("--format", "github").stdout)
    assert {fields["file"] for _, fields, _ in found} == {"bad.py", evil}


@given(st.text(), st.dictionaries(st.sampled_from(["file", "title", "line"]), st.text(), min_size=1))
def test_any_text_survives_as_one_command(message, fields):
    line = workflow.command("error", fields, message)
    assert "\n" not in line
    assert "\r" not in line
    head, _, rest = line.removeprefix("::error ").partition("::")
    undo = {"%25": "%", "%0D": "\r", "%0A": "\n", "%3A": ":", "%2C": ","}
    plain = lambda text: re.sub("%25|%0D|%0A|%3A|%2C", lambda m: undo[m[0]], text)  # noqa: E731
    shown = lambda text: "".join(c if c.isprintable() or c in "\r\n" else ascii(c)[1:-1] for c in text)  # noqa: E731
    assert plain(rest) == shown(message)
    found = {key: plain(value) for key, value in (pair.split("=", 1) for pair in head.split(","))}
    assert found == {key: shown(value) for key, value in fields.items()}


def test_no_terminal_obeys_a_file_name(project):
    evil = "\x1b[31m\u202e\x9b.j2"
    (project / evil).write_text(CLOCK)
    (project / "b\x1b]0;x\x07.py").write_text('prompt = "\n')
    shown = run().stdout
    assert "?[31m??.j2:2:1" in shown
    assert not set("\x1b\u202e\x9b\x07") & set(shown)
    assert not set("\x1b\u202e\x9b\x07") & set(run("--format", "sarif").stdout + run("--format", "markdown").stdout)


LONG_PATH = "a folder with spaces/and one more folder with a name that is long enough/bad prompts.py"


def test_sentences_keep_to_the_width_and_paths_stay_whole(project, monkeypatch):
    (project / LONG_PATH).parent.mkdir(parents=True)
    (project / "bad.py").rename(project / LONG_PATH)
    monkeypatch.setenv("COLUMNS", "50")
    lines = run(LONG_PATH).stdout.splitlines()
    assert any(line.startswith(" --> ") and line.endswith(f"{LONG_PATH}:2:40") for line in lines)
    assert any(f"note: {LONG_PATH}:1:9:" in line for line in lines)
    source = next(line for line in lines if line.startswith("2 | "))
    carets = lines[lines.index(source) + 1]
    assert source[carets.index("^") : carets.rindex("^") + 1] == "names"
    said = [line for line in lines if LONG_PATH not in line]
    assert max(map(len, said)) <= 50
    assert said[-1] == "1 warning in 1 file (1 with prompts)"


def test_colour_changes_no_word(project, monkeypatch):
    monkeypatch.setenv("COLUMNS", "44")
    plain, painted = (run("bad.py", "--color", when).stdout for when in ("never", "always"))
    assert "\x1b[" in painted
    assert re.sub(r"\x1b\[[0-9;]*m", "", painted) == plain


def test_the_last_line_counts_files(project):
    (project / "fine.py").write_text("x = 1\n")
    assert run(".").stdout.splitlines()[-1] == "1 warning in 3 files (1 with prompts)"
    assert run("fine.py").stdout == "nothing found in 1 file (0 with prompts)\n"
