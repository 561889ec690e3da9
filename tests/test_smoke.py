"""The installed program as a user meets it. These run against the wheel as well, away from the sources."""

import json
import os
import signal
import subprocess
import sys
from importlib import metadata, resources
from pathlib import Path

import pytest

import prefixlint
from prefixlint.__main__ import _leave

DEMO = Path(__file__).parents[1] / "fixtures" / "logs" / "demo.jsonl"
EXTRAS = (
    "transformers",
    "gguf",
    "pyarrow",
    "openai_harmony",
    "httptools",
    "uvloop",
    "httpx",
    "litellm",
    "opentelemetry",
)
PROGRAM = Path(sys.executable).with_name("prefixlint")


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "HF_HUB_OFFLINE": "1", **environment}
    return subprocess.run(
        [str(PROGRAM), *arguments],
        capture_output=True,
        encoding="utf-8",
        stdin=subprocess.DEVNULL,
        env=env,
        timeout=60,
        check=False,
    )


def test_version_is_that_of_the_package():
    done = run("--version")
    assert done.returncode == 0
    assert prefixlint.__version__ in done.stdout
    assert metadata.version("prefixlint") == prefixlint.__version__


def scripted(before: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the program in an interpreter that has run some statements first, and keeps back what it writes, as usual."""
    code = (
        f"import sys; sys.argv = {['prefixlint', *arguments]!r}\n{before}\nfrom prefixlint.__main__ import run; run()"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, encoding="utf-8", timeout=60, check=False, env=environment)


@pytest.mark.parametrize(("arguments", "code"), [(("--version",), 0), (("analyze",), 2), (("--no-such-option",), 2)])
def test_the_end_is_quick_but_leaves_nothing_undone(arguments, code):
    done = scripted("import atexit; atexit.register(print, 'handled at the end')", *arguments)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (code, "handled at the end")


def test_threads_are_waited_for():
    done = scripted(
        "import threading, time\n"
        "threading.Thread(target=lambda: (time.sleep(1.5), print('done by the thread'))).start()",
        "--version",
    )
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "done by the thread")


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a timer that interrupts")
def test_a_signal_that_comes_within_a_finaliser_still_stops_the_program():
    done = scripted(
        "import os, signal, time, prefixlint.cli\n"
        "class Finalised:\n"
        "    def __del__(self): os.kill(os.getpid(), signal.SIGTERM)\n"
        "def main(**_given):\n"
        "    Finalised()\n"
        "    time.sleep(30)\n"
        "    print('went on')\n"
        "prefixlint.cli.main = main",
    )
    assert (done.returncode, done.stdout) == (128 + signal.SIGTERM, "")


def test_an_output_that_is_closed_ends_without_a_traceback():
    for before in ("sys.stdout.close()", "sys.stdout = None", "import os; os.close(1)"):
        done = scripted(before, "analyze")
        assert "Traceback" not in done.stderr
        assert "no log was named" in done.stderr


def test_a_message_is_no_exit_code():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "_exit", lambda code: pytest.fail(f"left with {code}"))
        _leave("what happened")


def test_the_demo_log_gives_a_report():
    done = run("analyze", str(DEMO))
    assert done.returncode == 0, done.stderr
    assert "sglang" in done.stdout.lower()
    assert "vllm" in done.stdout.lower()


def test_the_demo_needs_neither_home_nor_terminal(tmp_path):
    done = run("analyze", str(DEMO), "--format", "json", HOME=str(tmp_path), TERM="dumb", PATH="/nonexistent")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["schema"] == "prefixlint.analyze/1"
    assert found["input"]["requests"] == DEMO.read_bytes().count(b"\n")
    assert not list(tmp_path.rglob("*token*")), "the run wrote tokenizer files into the home directory"


def test_what_the_server_reported_is_below_what_the_caches_could_serve():
    # the demo log is made so: its server has the same habits as the log shows and a cache that is too small
    found = json.loads(run("analyze", str(DEMO), "--format", "json").stdout)
    rates = {engine["engine"]: engine["hit_rate"] for engine in found["engines"]}
    assert 0 < found["reported"]["hit_rate"] < rates["sglang"]
    assert rates["vllm"] <= rates["sglang"]


def test_every_module_imports_without_extras_or_names_the_one_it_needs():
    code = """
import importlib, pkgutil, prefixlint
for module in sorted(m.name for m in pkgutil.walk_packages(prefixlint.__path__, "prefixlint.")):
    if not module.endswith(".__main__"):
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            print(error.name.partition(".")[0])
        else:
            print("imported")
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    found = done.stdout.split()
    assert found.count("imported") > 50
    assert set(found) <= {"imported", *EXTRAS}


def test_data_files_are_part_of_the_package():
    names = {entry.name for entry in resources.files("prefixlint.engines").iterdir()}
    assert {"sglang.toml", "vllm.toml"} <= names
    assert resources.files("prefixlint").joinpath("py.typed").is_file()
