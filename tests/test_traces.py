"""Public traces whose answers were published or computed independently; see fixtures/traces/README.md."""

from __future__ import annotations

import gzip
import json
from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from prefixlint import engines
from prefixlint.cli import main
from prefixlint.model import BlockHashes
from prefixlint.simulate import BlockArrival, after_warmup, lookup, misses, rates, run_blocks

TRACES = Path(__file__).parent.parent / "fixtures" / "traces"
ENGINES = [engines.load(name) for name in ("mooncake", "vllm", "sglang")]


def records(name):
    with gzip.open(TRACES / name, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def mooncake_blocks(record):
    hashes, length = record["hash_ids"], record["input_length"]
    return BlockHashes(hashes, [*[512] * (len(hashes) - 1), length - 512 * (len(hashes) - 1)], 512)


def ragpulse_blocks(record):
    hashes = [f"{group}:{block}" for group, blocks in record["hash_ids"].items() for block in blocks]
    size = min(512, int(record["input_length"] / len(hashes) + 0.5))
    return BlockHashes(hashes, [size] * len(hashes), 512, prefixed=False)


@pytest.fixture(scope="module")
def mooncake():
    trace = records("mooncake-conversation.jsonl.gz")
    return run_blocks((BlockArrival(i, None, mooncake_blocks(r)) for i, r in enumerate(trace)), ENGINES)


@pytest.fixture(scope="module")
def ragpulse():
    trace = sorted(records("ragpulse.jsonl.gz"), key=lambda r: float(r["timestamp"]))
    return run_blocks((BlockArrival(i, None, ragpulse_blocks(r)) for i, r in enumerate(trace)), ENGINES)


def test_mooncake_counts(mooncake):
    ideal = mooncake.engines["ideal"]
    assert mooncake.rows.size == 12_031
    assert ideal.blocks.sum() == 288_500
    assert ideal.blocks_hit.sum() == 105_710
    assert mooncake.distinct_blocks == 182_790


def test_mooncake_unlimited_cache(mooncake):
    ideal = mooncake.engines["ideal"]
    found = rates(ideal)
    assert found.hit_rate_blocks == pytest.approx(0.36641, abs=5e-6)
    assert found.hit_rate == pytest.approx(0.37362, abs=5e-6)
    assert found.hit_rate_mean == pytest.approx(0.40938, abs=5e-6)
    assert np.mean(ideal.blocks_hit / ideal.blocks) == pytest.approx(0.38426, abs=5e-6)
    assert ideal.blocks_hit.sum() / (mooncake.prompt // 512).sum() == pytest.approx(0.38233, abs=5e-6)
    assert mooncake.distinct == found.prompt_tokens - found.cached_tokens


def test_mooncake_last_half(mooncake):
    behind = after_warmup(mooncake.rows.size, 0.5)
    assert rates(mooncake.engines["ideal"], behind).hit_rate == pytest.approx(0.39811, abs=5e-6)


def test_mooncake_as_vllm_would_count(mooncake):
    vllm = mooncake.engines["vllm"]
    assert rates(vllm).hit_rate == pytest.approx(0.37338, abs=5e-6)
    assert vllm.blocks_hit.sum() / (mooncake.prompt // 512).sum() == pytest.approx(0.38190, abs=5e-6)
    assert (vllm.cached % 512 == 0).all()
    assert (vllm.cached < vllm.prompt).all()


def test_mooncake_as_the_hash_ids_say(mooncake):
    """Prefix hashes need no tree: a block hits when its id was seen before."""
    seen = set()
    for row, record in enumerate(records("mooncake-conversation.jsonl.gz")):
        ends = [0, *accumulate(mooncake_blocks(record).sizes)]
        hits = sum(h in seen for h in record["hash_ids"])
        seen.update(record["hash_ids"])
        assert mooncake.engines["ideal"].cached[row] == ends[hits]


def test_ragpulse_by_path(ragpulse):
    ideal = ragpulse.engines["ideal"]
    found = rates(ideal)
    assert (found.requests, found.prompt_tokens) == (7_106, 20_917_606)
    assert ideal.blocks.sum() == 71_583
    assert ragpulse.distinct_blocks == 58_727
    assert found.cached_tokens == 3_735_727


def test_ragpulse_last_half(ragpulse):
    found = rates(ragpulse.engines["ideal"], after_warmup(7_106, 0.5))
    assert (found.cached_tokens, found.prompt_tokens) == (1_877_444, 10_535_055)
    assert found.hit_rate == pytest.approx(0.178, abs=5e-4)


@pytest.mark.parametrize("engine", ["ideal", "vllm", "sglang"])
@pytest.mark.parametrize("trace", ["mooncake", "ragpulse"])
def test_every_request_adds_up(trace, engine, request):
    served = request.getfixturevalue(trace).engines[engine]
    why = misses(served)
    for index in range(served.prompt.size):
        assert lookup(served, index, why).cached == served.cached[index]


def through_the_command_line(name, *options):
    command = ["analyze", str(TRACES / name), *options, "--format", "json"]
    done = CliRunner().invoke(main, command, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_mooncake_through_the_command_line():
    result = through_the_command_line("mooncake-conversation.jsonl.gz", "--engine", "mooncake", "--engine", "vllm")
    ideal, vllm = result["engines"]
    assert ideal["engine"] == "ideal"
    assert (result["input"]["requests"], ideal["requests"]) == (12_031, 12_031)
    assert ideal["hit_rate_blocks"] == pytest.approx(0.36641, abs=5e-6)
    assert ideal["hit_rate"] == pytest.approx(0.37362, abs=5e-6)
    assert ideal["hit_rate_mean"] == pytest.approx(0.40938, abs=5e-6)
    assert result["tokens"]["distinct"] == ideal["prompt_tokens"] - ideal["cached_tokens"]
    assert ideal["misses"] == {"cold": result["tokens"]["distinct"]}
    assert vllm["hit_rate"] == pytest.approx(0.37338, abs=5e-6)
    half = through_the_command_line("mooncake-conversation.jsonl.gz", "--warmup", "50%")["engines"]
    assert [e["engine"] for e in half] == ["ideal"]
    assert half[0]["hit_rate"] == pytest.approx(0.39811, abs=5e-6)


def test_ragpulse_through_the_command_line():
    (ideal,) = (result := through_the_command_line("ragpulse.jsonl.gz"))["engines"]
    assert (ideal["prompt_tokens"], ideal["cached_tokens"]) == (20_917_606, 3_735_727)
    assert result["input"]["order"] == "time"
    # the ids name contents, so what other prompts had behind other blocks is known
    assert set(ideal["misses"]) == {"cold", "diverged"}
    assert sum(f["lost_tokens"] for f in result["families"]) == ideal["misses"]["diverged"]
    (half,) = through_the_command_line("ragpulse.jsonl.gz", "--warmup", "50%")["engines"]
    assert (half["cached_tokens"], half["prompt_tokens"]) == (1_877_444, 10_535_055)
