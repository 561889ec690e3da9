"""The examples in fixtures/traces that were counted by hand."""

from __future__ import annotations

import tomllib
from fractions import Fraction
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from prefixlint.engines import load
from prefixlint.simulate import Arrival, computed_output, lookup, misses, rates, run
from prefixlint.tokens import Encoder

WORKED = sorted((Path(__file__).parent.parent / "fixtures" / "traces").glob("worked-*.toml"))


def word_encoder(texts):
    """A tokenizer of whole words; words like <end> are added tokens, so prompts are cut at them."""
    words = sorted({word for text in texts for word in text.split()})
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens([word for word in words if word.startswith("<")])
    return Encoder(tokenizer.to_str())


def test_there_are_three():
    assert [path.stem for path in WORKED] == ["worked-image", "worked-reasoning", "worked-tools"]


@pytest.mark.parametrize("path", WORKED, ids=lambda path: path.stem)
def test_the_count_by_hand(path):
    example = tomllib.loads(path.read_text(encoding="utf-8"))
    requests = example["request"]
    encoder = word_encoder([text for r in requests for text in (r["prompt"], r["output"])])
    prompts = [encoder.add(r["prompt"], special=False) for r in requests]
    outputs = [encoder.add(r["output"], special=False) for r in requests]
    end = encoder.add("<end>", special=False)
    encoder.flush()
    stored = [computed_output(encoder.ids(o), "stop", encoder.ids(end).tolist()) for o in outputs]
    arrivals = [Arrival(i, None, encoder.ids(p), o) for i, (p, o) in enumerate(zip(prompts, stored, strict=True))]
    sglang = run(arrivals, [load("sglang")]).engines["sglang"]
    vllm = run(arrivals, [load("vllm").with_granularity(example["block_size"])]).engines["vllm"]
    why = misses(sglang)
    for index, request in enumerate(requests):
        assert sglang.prompt[index] == request["tokens"] == len(request["prompt"].split())
        assert sglang.cached[index] == request["sglang"]
        assert vllm.cached[index] == request["vllm"]
        assert {cause.value: n for cause, n in lookup(sglang, index, why).misses.items()} == request["misses"]
    for served, total in ((sglang, example["sglang"]), (vllm, example["vllm"])):
        found = rates(served)
        assert f"{found.cached_tokens}/{found.prompt_tokens}" == total
        assert found.hit_rate == pytest.approx(float(Fraction(total)))
