"""`prefixlint check` as its users meet it: options, exit codes, suppressions, fixes, the cache."""

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from prefixlint.cli import main

BAD = 'import uuid\n\ndef system_prompt():\n    return f"[{uuid.uuid4()}] You are a careful assistant of a library. Always say which shelf a book stands on, and how long it may be kept by a reader, and which fee is due when it comes back late."\n'
SET = 'names = {"a", "b"} | extra\nSYSTEM_PROMPT = "You know: " + ", ".join(names) + ". You answer all questions of readers in one sentence, and name the shelf. Never guess, and never talk about other readers of the library, whatever they say."\n'


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    (tmp_path / "bad.py").write_text(BAD)
    return tmp_path


def run(*args):
    return CliRunner().invoke(main, ["check", *map(str, args)])


def result(*args):
    done = run(*args, "--format", "json")
    return json.loads(done.stdout), done.exit_code


def test_text_shows_the_line_with_carets_and_help(project):
    done = run()
    assert done.exit_code == 1
    assert "error[PFX104]" in done.stdout
    assert "--> bad.py:4:15" in done.stdout
    assert "^^^^^^^^^^^^^^" in done.stdout
    assert "= help:" in done.stdout


def test_json_has_the_documented_shape(project):
    found, code = result()
    assert code == 1
    assert found["schema"] == "prefixlint.check/1"
    assert found["files"] == {"scanned": 2, "with_prompts": 1, "skipped": 0}
    (finding,) = found["findings"]
    assert finding["rule"] == "PFX104"
    assert (finding["line"], finding["column"], finding["end_line"], finding["end_column"]) == (4, 15, 4, 29)
    assert finding["excerpt"] == "{uuid.uuid4()}"
    assert finding["tokens_at_risk"] > 32
    assert " ".join(sorted(finding)) == (
        "at column confidence end_column end_line excerpt fingerprint fix line masked_by message name path related "
        "requests rule severity tokens_at_risk tokens_lost values"
    )


@pytest.mark.parametrize(
    ("args", "code"),
    [
        ([], 1),
        (["--fail-on", "error"], 1),
        (["--ignore", "PFX104"], 0),
        (["--select", "PFX2"], 0),
        (["--min-tokens", "100000"], 1),  # a fresh id in system text loses the conversation as well
        (["--select", "NOPE"], 2),
        (["--config", "missing.toml"], 2),
        (["missing.py"], 3),
    ],
)
def test_exit_codes(project, args, code):
    assert run(*args).exit_code == code


def test_files_without_prompts_are_fine(project):
    (project / "bad.py").unlink()
    (project / "a.py").write_text("x = 1\n")
    assert run().exit_code == 0


@pytest.mark.parametrize(
    ("comment", "left", "silenced"),
    [
        ("  # prefixlint: ignore[PFX104] the id is wanted", set(), {"PFX104"}),
        ("  # prefixlint: ignore[random-id-in-prefix] wanted", set(), {"PFX104"}),
        ("  # prefixlint: ignore[PFX104]", {"PFX104", "PFX001"}, set()),
        ("  # prefixlint: ignore it is wanted", {"PFX104", "PFX001"}, set()),
        ("  # prefixlint: ignore[PFX101] the clock is wanted", {"PFX104", "PFX002"}, set()),
        ("  # prefixlint: ignor[PFX104] it is wanted", {"PFX104", "PFX001"}, set()),
        ("  # prefixlint: disable=PFX104", {"PFX104", "PFX001"}, set()),
        ("  # prefixlint: Ignore[PFX104] it is wanted", {"PFX104", "PFX001"}, set()),
        ("  # prefixlint: see rule PFX104", {"PFX104"}, set()),
        ("  # prefixlint: ignore[PFX9] no such rule", {"PFX104", "PFX001"}, set()),
    ],
)
def test_an_ignore_needs_a_rule_and_a_reason(project, comment, left, silenced):
    (project / "bad.py").write_text(BAD.rstrip("\n") + comment + "\n")
    found, _ = result()
    assert {f["rule"] for f in found["findings"]} == left
    assert {f["rule"] for f in found["suppressed"]} == silenced


def test_an_ignore_may_stand_on_the_line_before_and_in_templates(project):
    (project / "bad.py").unlink()
    (project / "p.j2").write_text("{# prefixlint: ignore[PFX101] a demo #}\n{{ now() }}\n" + "You are a bot. " * 20)
    found, code = result()
    assert code == 0
    assert [f["reason"] for f in found["suppressed"]] == ["a demo"]


def test_add_ignore_silences_what_is_there(project):
    done = run("--add-ignore", "known since spring")
    assert done.exit_code == 0
    assert "# prefixlint: ignore[PFX104] known since spring" in (project / "bad.py").read_text()
    assert run().exit_code == 0


def test_a_baseline_knows_old_findings_when_lines_move(project):
    run("--format", "json", "-o", "base.json")
    (project / "bad.py").write_text("# moved\n\n" + BAD)
    assert run("--baseline", "base.json").exit_code == 0
    (project / "worse.py").write_text(BAD)
    assert run("--baseline", "base.json").exit_code == 1


def test_fixes_change_only_what_they_must(project):
    (project / "bad.py").write_text(SET)
    shown = run("--diff")
    assert '+SYSTEM_PROMPT = "You know: " + ", ".join(sorted(names))' in shown.stdout
    assert (project / "bad.py").read_text() == SET
    assert run("--fix").exit_code == 0
    assert (project / "bad.py").read_text() == SET.replace("join(names)", "join(sorted(names))")
    assert run("--fix").exit_code == 0
    assert run("--diff").stdout == ""


def test_configuration_is_read_and_its_mistakes_named(project):
    config = project / "pyproject.toml"
    config.write_text('[tool.prefixlint]\nper-file-ignores = {"bad.py" = ["PFX104"]}\n')
    assert run().exit_code == 0
    config.write_text('[tool.prefixlint]\nignor = ["PFX104"]\n')
    done = run()
    assert done.exit_code == 2
    assert "ignore" in done.stderr
    config.write_text("[tool.prefixlint]\nmin-tokens = -1\n")
    assert run().exit_code == 2


def test_gitignore_and_excludes_are_respected(project):
    (project / ".gitignore").write_text("gen/\n")
    for folder in ("gen", "vendor", "node_modules"):
        (project / folder).mkdir()
        (project / folder / "bad.py").write_text(BAD)
    assert result()[0]["files"]["scanned"] == 2
    assert run("vendor/bad.py").exit_code == 1, "a file that is named is read"
    assert run("vendor/bad.py", "--force-exclude").exit_code == 0


def test_link_loops_unreadable_and_large_files_do_not_stop_a_run(project):
    (project / "loop").symlink_to(project)
    (project / "dangling.py").symlink_to(project / "nowhere.py")
    (project / "large.py").write_bytes(b"x = 1\n" * 1_000_000)
    (project / "wrong.py").write_bytes(b"def prompt(:\n")
    found, code = result()
    assert code == 1
    assert {"too-large", "syntax-error"} <= {error["slug"] for error in found["errors"]}


def test_files_that_were_not_asked_for_are_not_complained_about(project):
    (project / "large.py").write_bytes(b"bad = 1\n" * 1_000_000)
    found, _ = result("bad.py")
    assert found["errors"] == []


def test_links_are_resolved_when_only_one_file_is_given(project):
    (project / "bad.py").write_text("TEMPLATE_PROMPT = '''At {when}: " + "You are a careful assistant. " * 12 + "'''\n")
    (project / "use.py").write_text(
        "import uuid\nfrom bad import TEMPLATE_PROMPT\n\ndef f():\n    return TEMPLATE_PROMPT.format(when=uuid.uuid4())\n"
    )
    found, _ = result("bad.py")
    assert [(f["rule"], f["path"]) for f in found["findings"]] == [("PFX104", "use.py")]


def test_the_cache_gives_the_same_and_a_damaged_one_is_left_alone(project):
    first = result()[0]
    assert (project / ".prefixlint_cache" / "summaries.db").exists()
    assert result()[0] == first
    (project / ".prefixlint_cache" / "summaries.db").write_bytes(b"not a database" * 100)
    assert result()[0] == first
    assert result("--no-cache")[0] == first


def test_a_check_that_crashes_is_named_and_the_others_go_on(project, monkeypatch):
    from prefixlint.checks import request

    monkeypatch.setattr(request, "check", lambda context, rule: 1 / 0)
    found, code = result()
    assert code == 2
    assert any(f["rule"] == "PFX104" for f in found["findings"])
    assert any(error["slug"] == "check-crashed" and "PFX501" in error["message"] for error in found["errors"])


def test_own_rules_are_pages_of_a_folder(project):
    (project / "own").mkdir()
    page = (
        '+++\ncheck = "volatile"\nseverity = "error"\nsince = "1"\nsummary = "S."\nhelp = "h"\n[params]\nkinds = ["random"]\n+++\n'
        "## What it does\n## Why is this bad?\n## Example\n## Use instead\n## Near misses\n"
    )
    (project / "own" / "OWN001-no-ids.md").write_text(page)
    found, _ = result("--rules", "own", "--select", "OWN001")
    assert [f["rule"] for f in found["findings"]] == ["OWN001"]


def test_rule_and_config_explain():
    runner = CliRunner()
    assert "Near misses" in runner.invoke(main, ["rule", "clock-in-prefix"]).stdout
    assert "PFX301" in runner.invoke(main, ["rule"]).stdout
    assert runner.invoke(main, ["rule", "nope"]).exit_code == 2
    assert "selected by default" in runner.invoke(main, ["config", "."]).stdout


def test_nothing_heavy_is_loaded_and_nothing_scanned_is_run(project):
    (project / "evil.py").write_text("prompt = f\"You are {__import__('pathlib').Path('ran').touch()}\"\n" + BAD)
    code = (
        "import sys\nfrom prefixlint.cli import main\n"
        "try:\n    main(['check', '.'])\nexcept SystemExit:\n    pass\n"
        "print(sorted({'numpy', 'tokenizers', 'transformers', 'torch', 'fastokens', 'libcst'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=project)
    assert done.stdout.rstrip().endswith("[]")
    assert not (project / "ran").exists()


def test_code_without_prompts_that_fills_a_template_is_read(project):
    (project / "bad.py").unlink()
    (project / "greet.j2").write_text("Day: {{ value }}\n" + "You are a careful assistant. " * 12)
    (project / "main.py").write_text(
        'import uuid\n\ndef make(env):\n    return env.get_template("greet.j2").render(value=uuid.uuid4())\n'
    )
    found, _ = result()
    assert [(f["rule"], f["path"], f["line"]) for f in found["findings"]] == [("PFX104", "main.py", 4)]
