"""The rates and lengths that LMCache published for its agent traces (real text, Llama-3.1's tokenizer).

They follow the ideal rule: longest prefix to the token, no cap, prompts only, each trace a cache of its own. The
tokenizer is Meta's and is not in this repository: `pip install --no-deps llama-models==0.3.0` brings its ranks.
"""

from __future__ import annotations

import base64
import gzip
import importlib.util
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers

from prefixlint.cli import main
from prefixlint.engines import load
from prefixlint.simulate import Arrival, rates, run
from prefixlint.tokens import FAST_FROM, Encoder

TRACES = Path(__file__).parent.parent / "fixtures" / "traces" / "lmcache"
PUBLISHED = json.loads((TRACES / "published.json").read_text(encoding="utf-8"))
WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.skipif(importlib.util.find_spec("llama_models") is None, reason="llama-models is not installed"),
]


def byte_letters():
    """The printable stand-ins of byte-level tokenizers: Latin-1 letters for themselves, others from U+0100 on."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in kept]
    return {byte: chr(byte) for byte in kept} | {byte: chr(256 + i) for i, byte in enumerate(others)}


def llama3_json():
    """Llama 3's ranks as a tokenizer.json: a merge for each way in which a token is made of two others."""
    folder = Path(importlib.util.find_spec("llama_models").origin).parent
    lines = (folder / "llama3" / "tokenizer.model").read_bytes().splitlines()
    ranks = {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in lines if line)}
    letters = byte_letters()

    def spell(token):
        return "".join(letters[byte] for byte in token)

    merges = []
    for token in sorted(ranks, key=ranks.get):
        parts = [(token[:i], token[i:]) for i in range(1, len(token))]
        known = sorted((ranks[a], ranks[b], a, b) for a, b in parts if a in ranks and b in ranks)
        merges.extend((spell(a), spell(b)) for _, _, a, b in known)
    tokenizer = Tokenizer(models.BPE({spell(t): r for t, r in ranks.items()}, merges, ignore_merges=True))
    split = pre_tokenizers.Split(Regex(WORDS), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.add_special_tokens([AddedToken("<|begin_of_text|>", normalized=False, special=True)])
    return tokenizer.to_str()


@pytest.fixture(scope="module", params=["tokenizers", "fastokens"])
def encoder(request, llama3):
    chars = FAST_FROM if request.param == "fastokens" else None
    return Encoder(llama3, bos=["<|begin_of_text|>"], expected_chars=chars)


@pytest.fixture(scope="module")
def llama3():
    return llama3_json()


def test_every_published_trace_is_here():
    assert len(PUBLISHED) == 20
    assert sum("avg_tokens" in figures for figures in PUBLISHED.values()) == 18


@pytest.mark.parametrize("trace", PUBLISHED)
def test_published(encoder, trace):
    with gzip.open(TRACES / f"{trace}.gz", "rt", encoding="utf-8") as file:
        prompts = [encoder.add(json.loads(line)["input"], special=True) for line in file]
    encoder.flush()
    replay = run((Arrival(i, None, ids) for i, ids in enumerate(encoder.sequences(prompts))), [load("ideal")])
    found = rates(replay.engines["ideal"])
    figures = PUBLISHED[trace]
    assert round(100 * found.hit_rate, 1) == pytest.approx(figures["prefix_hit_pct"], abs=1e-6)
    if "avg_tokens" in figures:
        assert round(found.prompt_tokens / found.requests, 1) == pytest.approx(figures["avg_tokens"], abs=1e-6)
    assert not encoder.whole
    assert not encoder.notes


@pytest.fixture(scope="module")
def model(llama3, tmp_path_factory):
    folder = tmp_path_factory.mktemp("llama3")
    (folder / "tokenizer.json").write_text(llama3, encoding="utf-8")
    (folder / "tokenizer_config.json").write_text('{"bos_token": "<|begin_of_text|>", "add_bos_token": true}')
    return folder


@pytest.mark.parametrize("trace", sorted(PUBLISHED)[::5])
def test_published_through_the_command_line(model, trace):
    command = ["analyze", str(TRACES / f"{trace}.gz"), "--model", str(model), "--engine", "ideal", "--format", "json"]
    done = CliRunner().invoke(main, command, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    (ideal,) = result["engines"]
    figures = PUBLISHED[trace]
    assert round(100 * ideal["hit_rate"], 1) == pytest.approx(figures["prefix_hit_pct"], abs=1e-6)
    if "avg_tokens" in figures:
        assert round(ideal["prompt_tokens"] / ideal["requests"], 1) == pytest.approx(figures["avg_tokens"], abs=1e-6)
