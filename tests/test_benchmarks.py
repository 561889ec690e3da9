"""The benchmark's own parts: a log that is always the same, and a measurement that measures the right process."""

import importlib.util
import io
import itertools
import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "benchmarks"


def load(name: str):
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


generate = load("generate")
measure = load("measure")
floor = load("floor")
capacity = load("capacity")


@pytest.fixture(scope="module")
def bodies():
    return list(itertools.islice(generate.requests(seed=5), 600))


@pytest.fixture(scope="module")
def by_application(bodies):
    found = defaultdict(list)
    for body in bodies:
        found[body["session_id"].partition("-")[0]].append(body)
    return found


def written(count: int, seed: int) -> bytes:
    out = io.BytesIO()
    size = generate.write(out, count=count, seed=seed)
    assert size == len(out.getvalue())
    return out.getvalue()


def test_a_seed_fixes_every_byte_and_a_shorter_log_is_the_start_of_a_longer_one():
    long = written(60, 3)
    assert written(60, 3) == long
    assert long.startswith(written(20, 3))
    assert written(20, 4) != written(20, 3)


def test_another_process_writes_the_same(tmp_path):
    # neither the hash seed nor the output's kind may matter
    program = [sys.executable, str(FOLDER / "generate.py"), "--requests", "30", "--seed", "3"]
    first = subprocess.run(program, capture_output=True, check=True, env={"PYTHONHASHSEED": "1"}).stdout
    target = tmp_path / "log.jsonl"
    subprocess.run([*program, "-o", str(target)], capture_output=True, check=True, env={"PYTHONHASHSEED": "2"})
    assert first == target.read_bytes() == written(30, 3)


def test_requests_are_in_time_order_and_numbered(bodies):
    times = [body["timestamp"] for body in bodies]
    assert times == sorted(times)
    assert [body["request_id"] for body in bodies] == [f"req-{n}" for n in range(1, len(bodies) + 1)]


def test_all_eight_applications_take_part_and_sessions_overlap(bodies, by_application):
    assert set(by_application) == set(generate.SYSTEM_TOKENS)
    order = [body["session_id"] for body in bodies]
    interrupted = {a for a, b in itertools.pairwise(order) if a != b and a in order[order.index(b) :]}
    assert len(interrupted) > 50


def test_the_size_is_what_the_readme_says(bodies):
    sizes = [len(json.dumps(body, ensure_ascii=False).encode()) for body in bodies]
    assert 9_000 < sum(sizes) / len(sizes) < 12_500


def test_conversations_only_grow(by_application):
    for name in ("helpdesk", "operations"):
        sessions = defaultdict(list)
        for body in by_application[name]:
            sessions[body["session_id"]].append(body["messages"])
        longest = max(sessions.values(), key=len)
        assert len(longest) >= 3
        for earlier, later in itertools.pairwise(longest):
            assert later[: len(earlier)] == earlier
            assert len(later) > len(earlier)


def test_each_application_has_its_habit(by_application):
    def systems(name):
        return [body["messages"][0]["content"] for body in by_application[name]]

    assert len(set(systems("helpdesk"))) == 1
    assert all(text.startswith("Current time: 2026-03-02 ") for text in systems("dispatch"))
    assert len(set(systems("dispatch"))) > len(systems("dispatch")) / 2
    tails = {text.partition("You are the concierge")[2] for text in systems("concierge")}
    assert len(tails) == 1
    assert len(set(systems("concierge"))) > 10

    fixed = {json.dumps(body["tools"]) for body in by_application["operations"]}
    shuffled = [json.dumps(body["tools"]) for body in by_application["storefront"]]
    assert len(fixed) == 1
    assert len(set(shuffled)) > len(shuffled) / 2
    as_set = {tuple(sorted(t["function"]["name"] for t in body["tools"])) for body in by_application["storefront"]}
    assert len(as_set) == 1, "only the order differs"

    def examples(name):
        return [json.dumps(body["messages"][1:17]) for body in by_application[name]]

    assert len(set(examples("triage"))) == 1
    assert len(set(examples("drafting"))) == len(examples("drafting"))


def test_tool_calls_are_answered(by_application):
    for body in by_application["operations"]:
        asked = [call["id"] for m in body["messages"] for call in m.get("tool_calls", ())]
        answered = [m["tool_call_id"] for m in body["messages"] if m["role"] == "tool"]
        assert asked == answered


def test_the_floor_sees_all_text_of_a_request():
    body = {
        "tools": [{"type": "function", "function": {"name": "find"}}],
        "messages": [
            {"role": "system", "content": "rules"},
            {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "find", "arguments": "{}"}}]},
            {"role": "tool", "content": "found"},
        ],
    }
    head, call, result = floor.texts(body)
    assert head == '[{"type":"function","function":{"name":"find"}}]rules'
    assert call == '{"name":"find","arguments":"{}"}'
    assert result == "found"


def test_memory_is_that_of_the_measured_command_and_not_of_an_earlier_one():
    # in a small process of its own: the kernel counts from the fork on, and this one may hold much by now
    code = """
import sys, measure
for program in ("x = bytearray(300_000_000)", "pass"):
    print(measure.run([sys.executable, "-c", program]).peak_mb)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=FOLDER, capture_output=True, text=True, check=True)
    large, small = map(float, done.stdout.split())
    assert 300 < large < 400
    assert small < 60


def test_cpu_is_counted_and_waiting_is_not():
    busy = measure.run(
        [sys.executable, "-c", "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass"]
    )
    idle = measure.run([sys.executable, "-c", "import time; time.sleep(0.3)"])
    assert busy.cpu >= 0.3
    assert idle.cpu < 0.25
    assert idle.wall >= 0.3


def test_output_and_status_come_back():
    done = measure.run(
        [sys.executable, "-c", "import sys; print('out', flush=True); print('err', file=sys.stderr); sys.exit(3)"]
    )
    assert done.status == 3
    assert done.output.split() == [b"out", b"err"]


def test_the_curve_that_is_timed_is_the_whole_one():
    timed = capacity.curve(capacity.TRACE, 5)
    assert len(timed["tokens"]) == 5
    assert timed["hit_rate"] == sorted(timed["hit_rate"])
    assert timed["hit_rate"][-1] == pytest.approx(0.37362, abs=2e-4)
    assert capacity.capacities(20)[0] == 500


def test_a_missed_target_is_told(capsys):
    assert capacity.report("times as fast", -10.0, -20.0, "")
    assert not capacity.report("seconds", 1.0, 1.5, "s")
    assert "MISSED" in capsys.readouterr().out
