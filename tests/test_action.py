"""`action.yml` as GitHub runs it, as far as a machine without GitHub can: its scripts, in order, in a clone."""

import json
import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
ACTION = ROOT / "action.yml"
if not ACTION.is_file():
    pytest.skip("no checkout", allow_module_level=True)
if shutil.which("bash") is None or shutil.which("git") is None:
    pytest.skip("needs bash and git", allow_module_level=True)
FOUND = yaml.safe_load(ACTION.read_text(encoding="utf-8"))
STEPS = FOUND["runs"]["steps"]
PROGRAM = Path(sys.executable).with_name("prefixlint")
PROMPT = "You answer all questions of readers in one sentence, and name the shelf. Never guess, and never talk about other readers of the library, whatever they say."
CLOCK = f"{{{{ now() }}}}\n{PROMPT}\n"
IDENTITY = {f"GIT_{who}_{what}": "t@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
EXPRESSION = re.compile(r"\$\{\{\s*([^}]+?)\s*\}\}")


def git(*arguments, cwd):
    env = {**{name: value for name, value in os.environ.items() if not name.startswith("GIT_")}, **IDENTITY}
    done = subprocess.run(["git", *arguments], cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def origin(tmp_path):
    """Give a repository whose branch `main` has a clock in a prompt, and whose branch `topic` adds another one."""
    folder = tmp_path / "origin"
    folder.mkdir()
    git("init", "-q", "--initial-branch=main", cwd=folder)
    (folder / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    (folder / "old.j2").write_text(CLOCK)
    git("add", ".", cwd=folder)
    git("commit", "-qm", "first", cwd=folder)
    git("checkout", "-qb", "topic", cwd=folder)
    for number in range(60):  # more than the first deepening brings
        git("commit", "-qm", f"step {number}", "--allow-empty", cwd=folder)
    (folder / "new prompt.j2").write_text(CLOCK)
    git("add", ".", cwd=folder)
    git("commit", "-qm", "a new prompt", cwd=folder)
    git("config", "uploadpack.allowFilter", "true", cwd=folder)
    return folder


class Job:
    """What GitHub gives the steps of a job, and what they leave."""

    def __init__(self, folder, tmp_path, *, event=None, **inputs):
        self.folder = folder
        self.temp = tmp_path / "runner temp"
        self.temp.mkdir()
        self.summary = tmp_path / "summary.md"
        self.path = os.environ["PATH"]
        defaults = {name: value.get("default", "") for name, value in FOUND["inputs"].items()}
        self.values = {f"inputs.{name}": value for name, value in {**defaults, "token": "t0ken", **inputs}.items()}
        self.values |= {
            "runner.temp": str(self.temp),
            "github.action_path": str(ROOT),
            "github.base_ref": "" if event is None else "main",
            "github.repository": "o/r",
            "github.event.pull_request.number": "" if event is None else str(event),
            "steps.python.outputs.python-path": sys.executable,
            "steps.install.outputs.program": str(PROGRAM),
        }

    def value(self, text):
        return EXPRESSION.sub(lambda match: self.values.get(match[1], ""), str(text))

    def wanted(self, condition):
        terms = [term.split(" ", 2) for term in condition.split(" && ")]
        return all((self.values.get(name, "") == word.strip("'")) == (sign == "==") for name, sign, word in terms)

    def run(self, only=()):
        """Run the steps that are scripts, but for the installation; give the exit code of the first that fails."""
        shown = ""
        for step in STEPS:
            name = step.get("id", "")
            if "run" not in step or name == "install" or (only and name not in only):
                continue
            if not self.wanted(step["if"]) if "if" in step else False:
                continue
            out = self.temp / "out"
            out.write_text("")
            env = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "GITHUB_"))}
            env |= {key: self.value(value) for key, value in step.get("env", {}).items()}
            env |= {"GITHUB_OUTPUT": str(out), "GITHUB_STEP_SUMMARY": str(self.summary), "PATH": self.path}
            cwd = self.folder / self.value(step.get("working-directory", "."))
            done = subprocess.run(
                ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
                cwd=cwd, env=env, capture_output=True, text=True, check=False,
            )  # fmt: skip
            shown += done.stdout
            assert "Traceback" not in done.stderr
            for line in out.read_text().splitlines():
                key, _, value = line.partition("=")
                self.values[f"steps.{name}.outputs.{key}"] = value
            if done.returncode and not step.get("continue-on-error"):
                return done.returncode, shown + done.stderr
        return 0, shown

    def output(self, name):
        return self.value(FOUND["outputs"][name]["value"])


def clone(origin, tmp_path):
    """Give what actions/checkout gives: one commit of the branch, and nothing else."""
    folder = tmp_path / "work"
    git("clone", "-q", "--depth=1", "--branch=topic", f"file://{origin}", str(folder), cwd=tmp_path)
    return folder


def test_a_pull_request_shows_only_what_it_brought(origin, tmp_path):
    job = Job(clone(origin, tmp_path), tmp_path, event=7)
    code, shown = job.run()
    assert code == 1, shown
    annotations = [line for line in shown.splitlines() if line.startswith("::")]
    assert len(annotations) == 1
    assert annotations[0].startswith("::error file=new prompt.j2,line=1,")
    assert job.output("exit-code") == "1"
    sarif = json.loads(Path(job.output("sarif-file")).read_text(encoding="utf-8"))
    results = sarif["runs"][0]["results"]
    assert [result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for result in results] == [
        "new%20prompt.j2",
        "old.j2",
    ]
    assert ["suppressions" in result for result in results] == [False, True]
    summary = job.summary.read_text(encoding="utf-8")
    assert summary.startswith("<!-- prefixlint check -->")
    assert "1 place new since `refs/remotes/origin/main` breaks the prefix cache" in summary
    assert Path(job.output("markdown-file")).read_text(encoding="utf-8") == summary


@pytest.mark.parametrize("change", [{"only-new": "false"}, {"event": None}], ids=["asked for", "a push"])
def test_all_places_are_shown_without_a_base(origin, tmp_path, change):
    inputs = {"event": 7, **change}
    job = Job(clone(origin, tmp_path), tmp_path, **inputs)
    code, shown = job.run()
    assert code == 1
    assert sum(line.startswith("::error") for line in shown.splitlines()) == 2


def test_what_is_found_need_not_fail(origin, tmp_path):
    job = Job(clone(origin, tmp_path), tmp_path, fail="false")
    assert job.run()[0] == 0
    assert job.output("exit-code") == "1"


@pytest.mark.parametrize(
    ("inputs", "code", "job_code"),
    [
        ({"paths": "old.j2\npyproject.toml"}, "1", 1),
        ({"args": "--ignore PFX101"}, "0", 0),
        ({"args": "--select nonsense"}, "2", 2),
        ({"paths": "no-such-folder"}, "3", 0),
        ({"diff-base": "no-such-revision"}, "2", 2),
        ({"diff-base": "HEAD"}, "0", 0),
    ],
)
def test_inputs_and_exit_codes(origin, tmp_path, inputs, code, job_code):
    job = Job(clone(origin, tmp_path), tmp_path, **inputs)
    assert job.run()[0] == job_code
    assert job.output("exit-code") == code
    assert bool(job.output("sarif-file")) == (code in "01")


@pytest.mark.parametrize(
    "evil", ["$(touch owned)", "`touch owned`", "; touch owned", "' && touch owned #", "--output=owned"]
)
def test_no_input_is_run(origin, tmp_path, evil):
    folder = clone(origin, tmp_path)
    for name in ("paths", "diff-base"):
        (tmp_path / name).mkdir()
        Job(folder, tmp_path / name, **{name: evil}).run()
    assert not (folder / "owned").exists()


def test_no_expression_stands_in_a_script():
    for step in STEPS:
        assert "${{" not in step.get("run", ""), "an input would be run as text of the script"
        assert step.get("shell", "bash") == "bash"
        assert ("run" in step) != ("uses" in step)
    known = {f"inputs.{name}" for name in FOUND["inputs"]}
    for expression in EXPRESSION.findall(ACTION.read_text(encoding="utf-8")):
        assert expression in known or not expression.startswith("inputs."), expression
    assert all(value.get("description") for value in (*FOUND["inputs"].values(), *FOUND["outputs"].values()))


GH = """#!/usr/bin/env bash
echo "$GH_TOKEN $*" >> "$FAKE/calls"
for argument in "$@"; do case "$argument" in body=@*) cat "${argument#body=@}" >> "$FAKE/body";; esac; done
case "$*" in *--paginate*) cat "$FAKE/known";; esac
"""


PULL = 7


@pytest.mark.parametrize(
    ("known", "call"),
    [
        ("", f"--method POST repos/o/r/issues/{PULL}/comments"),
        ("41\n42\n", "--method PATCH repos/o/r/issues/comments/41"),
    ],
)
def test_a_comment_is_written_once_and_kept_up_to_date(origin, tmp_path, monkeypatch, known, call):
    fake = tmp_path / "fake"
    fake.mkdir()
    (fake / "known").write_text(known)
    program = fake / "gh"
    program.write_text(GH)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("FAKE", str(fake))
    job = Job(clone(origin, tmp_path), tmp_path, event=PULL, comment="true")
    job.path = f"{fake}{os.pathsep}{job.path}"
    assert job.run()[0] == 1
    calls = (fake / "calls").read_text().splitlines()
    assert len(calls) == 2
    assert call in calls[1]
    assert all(line.startswith("t0ken api ") for line in calls)
    assert (fake / "body").read_text(encoding="utf-8") == Path(job.output("markdown-file")).read_text(encoding="utf-8")


def test_the_installation_is_that_of_the_action_itself(tmp_path):
    """The step calls Python as it should; a program that stands in for it says with what."""
    (step,) = (step for step in STEPS if step.get("id") == "install")
    program = tmp_path / "python"
    program.write_text(
        f'#!/usr/bin/env bash\necho "$@" >> {tmp_path}/calls\nmkdir -p "${{@: -1}}/bin" 2>/dev/null\ncp "$0" "${{@: -1}}/bin/python" 2>/dev/null || true\n'
    )
    program.chmod(0o755)
    out = tmp_path / "out"
    env = {
        **os.environ,
        "PYTHON": str(program),
        "ACTION_PATH": str(tmp_path / "action"),
        "SCRATCH": str(tmp_path / "s"),
        "GITHUB_OUTPUT": str(out),
    }
    subprocess.run(["bash", "-eo", "pipefail", "-c", step["run"]], env=env, check=True)
    assert (tmp_path / "calls").read_text().splitlines() == [
        f"-m venv {tmp_path}/s/venv",
        f"-m pip install --quiet --disable-pip-version-check {tmp_path}/action",
    ]
    assert out.read_text() == f"program={tmp_path}/s/venv/bin/prefixlint\n"


def test_a_container_is_built_of_what_there_is():
    text = (ROOT / "Containerfile").read_text(encoding="utf-8")
    assert 'ENTRYPOINT ["prefixlint"]' in text
    assert re.search(r"^USER (?!root)", text, flags=re.MULTILINE)
    kept = [line[1:] for line in (ROOT / ".containerignore").read_text().splitlines() if line.startswith("!")]
    assert all((ROOT / name).exists() for name in kept)
    assert {"prefixlint", "rules", "pyproject.toml", "README.md", "LICENSE"} == set(kept)
    assert (ROOT / ".dockerignore").read_text() == (ROOT / ".containerignore").read_text()
