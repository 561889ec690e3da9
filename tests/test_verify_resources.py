"""What is read while a run goes on: levels, silences, GPUs that come and go, and no thread that stays."""

from __future__ import annotations

import sys
import threading
import time
import types
from dataclasses import dataclass

import pytest

from prefixlint.errors import ServerError
from prefixlint.verify import resources
from prefixlint.verify.gpus import GpuReading, open_gpus
from prefixlint.verify.resources import Level, Resources, Watcher


@dataclass(frozen=True)
class Gauges:
    kv_usage: float | None = None
    queue_length: float | None = None
    running: float | None = None


def watched(gauges, gpus=None, readings=3):
    """Watch until so many readings were asked for."""
    asked = threading.Semaphore(0)

    def counted(read):
        def reading():
            try:
                return read()
            finally:
                asked.release()

        return reading

    with Watcher(gauges and counted(gauges), gpus if gauges else counted(gpus), every=0.01) as watcher:
        for _ in range(readings):
            assert asked.acquire(timeout=5)
    return watcher.result()


def test_levels_are_means_and_highest_values():
    states = iter([Gauges(0.2, 0, 1), Gauges(0.8, 4, 3)])
    last = Gauges(0.5, 2, 2)
    found = watched(lambda: next(states, last), readings=5)
    assert found.readings >= 4
    assert found.kv_usage == Level(pytest.approx(0.5), 0.8)
    assert found.queue_length == Level(pytest.approx(2), 4)
    assert found.batch == Level(pytest.approx(2), 3)


def test_what_is_never_told_is_unknown_and_a_silence_is_no_zero():
    answers = iter([None, Gauges(running=4), None])
    found = watched(lambda: next(answers, None), readings=5)
    assert found == Resources(1, None, None, Level(4, 4))


def test_nothing_to_read_starts_no_thread():
    before = threading.active_count()
    with Watcher(None) as watcher:
        assert threading.active_count() == before
    assert watcher.result() == Resources()


def test_the_thread_ends_with_its_block_even_in_an_error():
    with pytest.raises(KeyError), Watcher(Gauges, every=0.01):
        raise KeyError
    assert not [thread for thread in threading.enumerate() if thread.name == "resources"]


def test_a_server_that_answers_late_is_not_asked_in_a_burst():
    asked = []

    def slow():
        asked.append(time.monotonic())
        if len(asked) == 1:
            time.sleep(0.3)
        return Gauges(0.1)

    with Watcher(slow, every=0.1):
        time.sleep(0.6)
    assert len(asked) <= 5


def test_gpus_are_told_apart_by_their_place():
    first = [GpuReading("H100", 0.5, 10, 80), GpuReading("H100", 0.1, 70, 80)]
    states = iter([first, [GpuReading("H100", 1.0, 30, 80)]])
    found = watched(None, lambda: next(states, []), readings=4)
    assert [(one.busy, one.used.highest, one.total) for one in found.gpus] == [
        (Level(0.75, 1.0), 30, 80),
        (Level(0.1, 0.1), 70, 80),
    ]


class NVMLError(Exception):
    pass


def nvml(*, fails=(), names=(b"NVIDIA H100", "NVIDIA L4")):
    """Stand in for the driver's library."""
    module = types.ModuleType("pynvml")
    module.calls = []

    def call(name, value):
        def function(*arguments):
            module.calls.append(name)
            if name in fails or (name, *arguments) in fails:
                raise NVMLError("Driver Not Loaded")
            return value(*arguments)

        setattr(module, name, function)

    module.NVMLError = NVMLError
    call("nvmlInit", lambda: None)
    call("nvmlShutdown", lambda: None)
    call("nvmlDeviceGetCount", lambda: len(names))
    call("nvmlDeviceGetHandleByIndex", lambda number: number)
    call("nvmlDeviceGetName", lambda handle: names[handle])
    call("nvmlDeviceGetUtilizationRates", lambda handle: types.SimpleNamespace(gpu=40 + handle))
    call("nvmlDeviceGetMemoryInfo", lambda handle: types.SimpleNamespace(used=1 << 30, total=80 << 30))
    return module


def test_the_gpus_of_the_machine_are_read(monkeypatch):
    module = nvml()
    monkeypatch.setitem(sys.modules, "pynvml", module)
    gpus, why = open_gpus()
    assert why is None
    assert gpus.names == ["NVIDIA H100", "NVIDIA L4"]
    assert gpus.read() == [
        GpuReading("NVIDIA H100", 0.40, 1 << 30, 80 << 30),
        GpuReading("NVIDIA L4", 0.41, 1 << 30, 80 << 30),
    ]
    gpus.close()
    assert module.calls[-1] == "nvmlShutdown"


def test_a_gpu_that_cannot_be_read_costs_only_its_own_reading(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", nvml(fails=[("nvmlDeviceGetUtilizationRates", 0)]))
    gpus, _ = open_gpus()
    assert [reading.name for reading in gpus.read()] == ["NVIDIA L4"]


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (None, "not installed"),
        (nvml(fails=["nvmlInit"]), "Driver Not Loaded"),
        (nvml(fails=["nvmlDeviceGetCount"]), "Driver Not Loaded"),
        (nvml(names=()), "no GPU"),
    ],
)
def test_no_gpu_is_no_error_and_says_why(monkeypatch, module, reason):
    monkeypatch.setitem(sys.modules, "pynvml", module)
    gpus, why = open_gpus()
    assert gpus is None
    assert reason in why
    if module is not None and "nvmlDeviceGetCount" in module.calls:
        assert module.calls[-1] == "nvmlShutdown"


def about(metrics):
    return types.SimpleNamespace(metrics=metrics)


def running(answer, url="http://gpu-box:1"):
    return types.SimpleNamespace(server=types.SimpleNamespace(url=url, get=answer))


class Target:
    """Reads one gauge, where the scrape has it."""

    @staticmethod
    def counters(metrics):
        usage = metrics.total("usage")
        return None if usage is None else Gauges(kv_usage=usage)


def test_a_server_is_watched_by_its_metrics(monkeypatch):
    monkeypatch.setitem(Watcher.__init__.__kwdefaults__, "every", 0.01)
    asked = threading.Semaphore(0)
    replies = iter([(200, "usage 0.25\n"), (503, ""), (200, "other 1\n"), (200, "usage 0.75\n")])

    def answer(path, *, timeout):
        assert path == "/metrics"
        asked.release()
        status, text = next(replies, (404, ""))
        if status == 404:
            raise ServerError("gone", slug="server-gone")
        return types.SimpleNamespace(status=status, text=text)

    with resources.sampler(Target, about(None))(running(answer)) as seen:
        for _ in range(6):
            assert asked.acquire(timeout=5)
        assert not seen  # it is filled when the run is over
    assert seen["readings"] == 2
    assert seen["kv_usage"] == {"mean": 0.5, "highest": 0.75}
    assert seen["queue_length"] is None


def test_a_server_without_metrics_is_not_asked():
    def answer(*_, **__):
        raise AssertionError

    with resources.sampler(Target, about(False))(running(answer)) as seen:
        pass
    assert seen == {}


@pytest.mark.parametrize(("url", "read"), [("http://127.0.0.1:3", True), ("http://gpu-box:3", False)])
def test_gpus_are_read_where_the_server_runs_on_this_machine(monkeypatch, url, read):
    module = nvml()
    monkeypatch.setitem(sys.modules, "pynvml", module)
    monkeypatch.setitem(Watcher.__init__.__kwdefaults__, "every", 0.01)
    with resources.sampler(Target, about(False))(running(None, url)) as seen:
        time.sleep(0.2)
    assert bool(seen) == read
    assert [gpu["name"] for gpu in seen.get("gpus", ())] == (["NVIDIA H100", "NVIDIA L4"] if read else [])
    assert ("nvmlShutdown" in module.calls) == read
