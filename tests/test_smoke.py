"""The installed program as a user meets it. These run against the wheel as well, away from the sources."""

import json
import os
import subprocess
import sys
from importlib import metadata, resources
from pathlib import Path

import prefixlint

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
