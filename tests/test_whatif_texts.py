"""Fixes of prompts that are one text and grow from turn to turn: what was sent stays as it was sent."""

import json

import pytest

from prefixlint import pipeline

RULES = "\n".join(f"- Rule {n} of the harbour office holds for every crate that is weighed here." for n in range(40))
NAMES = ("Anna Berg", "Tom Fox", "Lena Holm", "Ivo Kral", "Maja Lund", "Nils Dahl")


def conversations(turns=4):
    for name in NAMES:
        text = f"Customer: {name}\nYou are the clerk of the harbour office.\n{RULES}\n"
        for turn in range(turns):
            text += f"\nQuestion {turn}: where is crate {turn} of the second ship?\nAnswer:"
            yield text
            text += f" It stands in shed {turn}, behind the scales.\n"


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps({"model": "m", "prompt": text}) + "\n" for text in conversations()))
    return path


def test_a_text_that_grows_is_sent_as_it_was_before(log):
    written = []
    result = pipeline.analyze(
        [str(log)], pipeline.Options(what_if=("all",)), watch=pipeline.Watch(on_fixed=written.append)
    )
    sent = [json.loads(line)["prompt"] for line in b"".join(written).splitlines()]
    logged = list(conversations())
    assert len(sent) == len(logged)
    for turn in range(len(sent)):
        assert sent[turn].count(NAMES[turn // 4]) == 1
        assert sent[turn].startswith("Customer: (stated below)\nYou are the clerk")
        if turn % 4:
            assert sent[turn].startswith(sent[turn - 1])
            assert sent[turn][len(sent[turn - 1]) :] == logged[turn][len(logged[turn - 1]) :]
    fix = next(row for row in result.what_if if row.rules == ("PFX105",) and row.engine == "sglang")
    steps = result.waterfalls[0].steps
    assert fix.cached_tokens / fix.prompt_tokens > 0.9
    assert steps[-1].cached_tokens >= steps[0].cached_tokens
