"""One request of odd types among good ones: it is counted as refused, and the rest of the log is analysed."""

import json

import pytest

from prefixlint import pipeline

RULES = "Weigh each crate twice, and write down both weights.\n" * 30


def body(number, **more):
    messages = [{"role": "system", "content": RULES}, {"role": "user", "content": f"where is crate {number}?"}]
    return {"model": "m", "messages": messages, **more}


@pytest.mark.parametrize(
    "message",
    [
        {"role": ["user"], "content": "x"},
        {"role": {"a": 1}, "content": "x"},
        {"role": "assistant", "content": "x", "tool_calls": True},
        {"role": "assistant", "content": None, "tool_calls": {"a": 1}},
        {"role": "user", "content": 7},
        {"role": "user", "content": [7]},
    ],
)
@pytest.mark.parametrize("engine", ["sglang", "vllm", "anthropic"])
def test_a_message_of_odd_types_costs_no_other_request(tmp_path, message, engine):
    bodies = [body(number) for number in range(6)]
    odd = body(7)
    odd["messages"][1:1] = [message]

    def prompt_tokens(name, lines):
        path = tmp_path / name
        path.write_text("\n".join(json.dumps(line) for line in lines))
        result = pipeline.analyze([str(path)], pipeline.Options(engines=(engine,)))
        assert not [note for note in result.notes if "fault" in note.slug]
        return result.engines[0].prompt_tokens

    good = prompt_tokens("good.jsonl", bodies)
    assert good > 1_000
    assert prompt_tokens("odd.jsonl", [*bodies[:3], odd, *bodies[3:]]) >= good
