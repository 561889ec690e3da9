"""Inputs of benchmark tools: what each of their rows would send to a server."""

import json
from pathlib import Path

import pytest

from prefixlint.logs import read
from prefixlint.model import Messages, Request, Skip

SAMPLES = Path(__file__).parent.parent / "fixtures" / "logs" / "samples"
SYSTEM = "You are the desk clerk of the Harbour Street library. Answer briefly, name the shelf, and never guess a call number."
LICHENS = "Do you hold a field guide to coastal lichens?"
SUNDAY = "When does the hill branch open on Sundays?"
HOLD = "Please hold one copy for me until Thursday."


def results(path):
    return list(read([str(path)]))


def requests_of(path):
    found = results(path)
    assert all(isinstance(item, Request) for item in found), found
    return found


def said(request):
    assert isinstance(request.content, Messages)
    return [(message["role"], message["content"]) for message in request.content.messages]


@pytest.fixture
def log(tmp_path):
    def read_values(*values):
        path = tmp_path / "bench.jsonl"
        path.write_text("".join(json.dumps(value) + "\n" for value in values), "utf-8")
        return results(path)

    return read_values


def test_vllm_custom_prompts_are_user_messages():
    found = requests_of(SAMPLES / "vllm_bench_custom.jsonl")
    assert said(found[0]) == [("user", LICHENS)]
    assert [r.usage.completion for r in found] == [24, 19, 14, 12]
    assert all(r.usage.prompt is None for r in found)
    assert {r.format for r in found} == {"vllm-bench-custom"}


def test_sglang_openai_rows_are_chat_bodies():
    found = requests_of(SAMPLES / "sglang_bench_openai.jsonl")
    assert {r.format for r in found} == {"openai-chat"}
    assert said(found[0]) == [("system", SYSTEM), ("user", LICHENS)]


def test_sglang_agentic_turns_build_on_each_other():
    found = requests_of(SAMPLES / "sglang_bench_agentic_trace.json")
    assert [said(r) for r in found] == [
        [("system", SYSTEM), ("user", LICHENS)],
        [("system", SYSTEM), ("user", LICHENS), ("assistant", ""), ("user", HOLD)],
        [("system", SYSTEM), ("user", SUNDAY)],
    ]
    assert found[0].session == found[1].session != found[2].session
    assert [r.part for r in found] == [0, 1, 2]


def test_sglang_agentic_turns_that_bring_the_answer_need_no_placeholder(log):
    turns = [{"messages": [{"role": "user", "content": "a"}]}]
    turns.append({"messages": [{"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]})
    found = log({"metadata": {}, "conversations": [turns]})
    assert said(found[1]) == [("user", "a"), ("assistant", "b"), ("user", "c")]


def test_aiperf_mooncake_rows_with_text():
    *found, skipped = results(SAMPLES / "aiperf_mooncake_variants.jsonl")
    assert [r.format for r in found] == ["aiperf"] * 3
    assert said(found[0]) == [("user", LICHENS)]
    assert said(found[1]) == [("system", SYSTEM), ("user", SUNDAY)]
    assert [tool["function"]["name"] for tool in found[1].content.tools] == ["find_book"]
    assert (found[2].model, found[2].user) == ("gpt-4.1-mini", "u-17")
    assert [r.session for r in found] == ["s-alder", "s-birch", "s-cedar"]
    assert [r.time for r in found] == [0.0, 31.0, 40.0]
    assert isinstance(skipped, Skip)
    assert (skipped.line, skipped.slug) == (4, "length-only-trace")


def test_aiperf_single_turns():
    found = requests_of(SAMPLES / "aiperf_single_turn.jsonl")
    assert said(found[0]) == [("user", LICHENS)]
    assert said(found[1]) == [("user", [{"type": "text", "text": SYSTEM}, {"type": "text", "text": SUNDAY}])]
    assert [r.time for r in found] == [0.0, 31.0, None]


def test_aiperf_single_turns_with_pictures_and_nested_texts(log):
    (found,) = log({"texts": [{"name": "t", "contents": ["look"]}], "images": ["a.png"], "session_id": "s", "delay": 1})
    assert said(found) == [("user", [{"type": "text", "text": "look"}, {"type": "image", "image": ["a.png"]}])]


def test_aiperf_conversations_leave_room_for_the_answers():
    found = requests_of(SAMPLES / "aiperf_multi_turn.jsonl")
    assert said(found[1]) == [("user", LICHENS), ("assistant", ""), ("user", HOLD)]
    assert [r.session for r in found] == ["s-alder", "s-alder", "s-birch", "s-cedar"]
    assert [(r.line, r.part) for r in found] == [(1, 0), (1, 1), (2, 0), (3, 0)]


def test_aiperf_delays_count_from_the_turn_before(log):
    found = log({"session_id": "s", "turns": [{"text": "a", "timestamp": 1000}, {"text": "b", "delay": 500}]})
    assert [r.time for r in found] == [1.0, 1.5]


def test_aiperf_inputs_hold_whole_bodies():
    found = requests_of(SAMPLES / "aiperf_inputs.json")
    assert [r.session for r in found] == ["s-alder", "s-alder", "s-alder", "s-birch"]
    assert [r.user for r in found] == ["u-17", "u-17", "u-17", "u-22"]
    assert [(r.line, r.part) for r in found] == [(1, 0), (1, 1), (1, 2), (1, 3)]
    assert said(found[0])[1] == ("user", LICHENS)
    assert all(r.content.tools for r in found)


def test_guidellm_rows():
    found = requests_of(SAMPLES / "guidellm.jsonl")
    assert [said(r) for r in found] == [
        [("system", SYSTEM), ("user", LICHENS)],
        [("system", SYSTEM), ("user", LICHENS)],
        [("system", SYSTEM), ("user", LICHENS), ("assistant", ""), ("user", HOLD)],
        [("system", SYSTEM), ("user", SUNDAY)],
    ]
    assert [r.time for r in found] == [None, None, None, 31.0]
    assert [(r.line, r.part) for r in found] == [(1, 0), (2, 0), (2, 1), (3, 0)]


def test_guidellm_turns_are_ordered_by_number_and_take_a_prefix(log):
    row = {f"prompt_{n}": f"q{n}" for n in (10, 2, 0)}
    found = log({**row, "prefix": "P", "prompt_tokens_count": 7})
    assert said(found[2]) == [
        ("system", "P"),
        ("user", "q0"),
        ("assistant", ""),
        ("user", "q2"),
        ("assistant", ""),
        ("user", "q10"),
    ]


def test_aibrix_lines_hold_the_requests_of_a_moment():
    found = requests_of(SAMPLES / "aibrix_workload.jsonl")
    assert [said(r) for r in found] == [[("user", LICHENS)], [("user", SUNDAY)], [("user", HOLD)]]
    assert [r.time for r in found] == [0.0, 31.0, 31.0]
    assert [r.session for r in found] == ["0", "1", "0"]
    assert [(r.line, r.part) for r in found] == [(1, 0), (2, 0), (2, 1)]


def test_aibrix_prompts_may_be_conversations(log):
    (found,) = log({"timestamp": 5, "requests": [{"prompt": [{"role": "user", "content": "hi"}], "session_id": 3}]})
    assert said(found) == [("user", "hi")]


@pytest.mark.parametrize(
    "value",
    [
        {"session_id": "s", "turns": [{"text": "a"}, None, 5, {"text": ["x"]}]},
        {"data": [{"payloads": [None, 5, {"messages": "x"}]}, 7]},
        {"timestamp": 1, "requests": [{"prompt": 5}, None, {"prompt": "ok"}]},
        {"metadata": None, "conversations": [[{"messages": None}, 3], None, [{"messages": [{"role": "user"}]}]]},
        {"prompt_0": None, "prompt_1": 5, "prompt_tokens_count": "x"},
        {"prompt": "a", "output_tokens": {"x": 1}},
        {"text": "a", "timestamp": {"x": 1}, "delay": "soon", "session_id": ["s"]},
        {"timestamp_start_unix_ms": None, "prompt": None},
        {"inputs": "x", "parameters": {"adapter_id": {}}},
        {"model": "m", "messages": [{"images": 5}, None, {"tool_calls": [None, 5]}], "options": None, "think": []},
    ],
)
def test_strange_values_give_only_requests_and_skips(log, value):
    good = {"prompt": "a", "output_tokens": 3}
    for found in log(good, value):
        assert isinstance(found, (Request, Skip))
