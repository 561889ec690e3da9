"""One request of odd types among good ones: it is counted as refused, and the rest of the log is analysed."""

import json
import random
from pathlib import Path

import pytest

from prefixlint import pipeline
from prefixlint.errors import LogRefusedError

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


ODD = (None, True, -1, 1e308, "", [], {}, "x" * 300, {"role": "user"}, [[]], [None], [{"type": "tool_use"}], "\x00")
SAMPLES = sorted((Path(__file__).parents[1] / "fixtures" / "logs" / "samples").glob("*.jsonl"))


def places(value, path=()):
    yield path
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from places(value[key], (*path, key))


def changed(value, rng):
    """Give a JSON value with up to three of its parts taken out, shuffled, or replaced by something odd."""
    value = json.loads(json.dumps(value))
    for _ in range(rng.choice((1, 1, 3))):
        path = rng.choice([path for path in places(value) if path] or [()])
        if not path:
            return value
        parent = value
        for key in path[:-1]:
            parent = parent[key]
        way = rng.randrange(3)
        if way == 0:
            parent[path[-1]] = rng.choice(ODD)
        elif way == 1:
            del parent[path[-1]]
        elif isinstance(parent, list):
            rng.shuffle(parent)
    return value


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_lines_of_odd_types_cost_no_other_line(sample, tmp_path):
    rng = random.Random(sample.stem)
    lines = [json.loads(line) for line in sample.read_text(encoding="utf-8").splitlines() if line.strip()][:12]
    for number in range(4):
        path = tmp_path / f"{number}.jsonl"
        odd = [changed(line, rng) if rng.random() < 0.5 and line else line for line in lines]
        path.write_text("\n".join(json.dumps(line) for line in odd))
        try:
            result = pipeline.analyze([str(path)], pipeline.Options(what_if=("all",)))
        except LogRefusedError:  # nothing that a format knows is left
            continue
        assert not [note for note in result.notes if "fault" in note.message]
