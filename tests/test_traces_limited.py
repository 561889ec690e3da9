"""A public trace through caches with limits: the rows of published and independently computed answers."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from click.testing import CliRunner

from prefixlint.caches.lru import LruCache
from prefixlint.cli import main
from prefixlint.fleet import Limits
from prefixlint.lives import Visit
from prefixlint.losses import Blocks, serve
from prefixlint.model import MissCause
from prefixlint.simulate import BlockArrival, lookup, misses, rates, run_blocks

from .test_traces import ENGINES, TRACES, mooncake_blocks, ragpulse_blocks, records


def unlimited(contents):
    return run_blocks((BlockArrival(i, None, content) for i, content in enumerate(contents)), ENGINES)


@pytest.fixture(scope="module")
def mooncake():
    return unlimited(map(mooncake_blocks, records("mooncake-conversation.jsonl.gz")))


@pytest.fixture(scope="module")
def conversation():
    trace = records("mooncake-conversation.jsonl.gz")
    numbers = {}
    ends = [np.cumsum(mooncake_blocks(r).sizes) for r in trace]
    visits = [
        Visit(
            None,
            np.array([numbers.setdefault(h, len(numbers)) for h in r["hash_ids"]], np.uint32),
            time=r["timestamp"] / 1000,
        )
        for r in trace
    ]
    return visits, Blocks(512, ends)


def limited(mooncake, conversation, limits, engine="ideal"):
    visits, blocks = conversation
    return serve(lambda: visits, [(mooncake.engines[engine], limits)], np.ones(len(visits)), blocks)[0]


@pytest.mark.parametrize(
    ("blocks", "rate"),
    [
        (1_000, 0.0445),
        (5_859, 0.1355),
        (10_000, 0.2112),
        (30_000, 0.3257),
        (50_000, 0.3546),
        (100_000, 0.3637),
        (int(182_790 * 0.01), 0.0523),
        (int(182_790 * 0.05), 0.1954),
        (int(182_790 * 0.10), 0.2784),
        (int(182_790 * 0.25), 0.3535),
        (int(182_790 * 0.50), 0.3631),
    ],
)
def test_mooncake_least_recently_used(mooncake, conversation, blocks, rate):
    outcome = limited(mooncake, conversation, Limits(capacity=512 * blocks))
    assert rates(outcome.served).hit_rate_blocks == pytest.approx(rate, abs=5e-5)
    assert outcome.refused == 0


@pytest.mark.parametrize(
    ("blocks", "tokens"),
    [(1_000, 3_173_822), (5_859, 9_286_131), (10_000, 14_910_149), (20_000, 20_586_572), (30_000, 23_347_784)],
)
def test_mooncake_where_a_head_outlives_its_tail(conversation, blocks, tokens):
    """Another simulator's figures for the last half: blocks are used from the tail on, as vLLM frees them."""
    visits, (_, ends) = conversation
    cache = LruCache(blocks, first="tail")
    hits = [cache.admit(None, visit.prompt).hit for visit in visits]
    half = len(hits) // 2
    assert sum(int(e[n - 1]) if n else 0 for e, n in zip(ends[half:], hits[half:], strict=True)) == tokens


@pytest.mark.parametrize(
    ("seconds", "after_use", "after_write"),
    [
        (10, 0.0428, 0.0418),
        (60, 0.1034, 0.0934),
        (300, 0.2877, 0.2484),
        (600, 0.3434, 0.3044),
        (1_800, 0.3635, 0.3555),
        (3_600, 0.3664, 0.3664),
    ],
)
def test_mooncake_lifetimes(mooncake, conversation, seconds, after_use, after_write):
    for from_write, rate in ((False, after_use), (True, after_write)):
        outcome = limited(mooncake, conversation, Limits(ttl=seconds, from_write=from_write))
        assert rates(outcome.served).hit_rate_blocks == pytest.approx(rate, abs=5e-5)


@pytest.mark.parametrize(("replicas", "rate"), [(1, 0.366), (2, 0.271), (4, 0.192), (8, 0.136), (16, 0.099)])
def test_mooncake_round_robin(mooncake, conversation, replicas, rate):
    outcome = limited(mooncake, conversation, Limits(replicas=replicas))
    assert rates(outcome.served).hit_rate_blocks == pytest.approx(rate, abs=5e-4)
    assert len(outcome.load) == replicas
    assert sum(outcome.load) == mooncake.prompt.sum()


@pytest.mark.parametrize("engine", ["ideal", "vllm", "sglang"])
def test_mooncake_adds_up_under_limits(mooncake, conversation, engine):
    base = mooncake.engines[engine]
    outcome = limited(mooncake, conversation, Limits(capacity=512 * 4_000, replicas=3, ttl=900, route="random"), engine)
    served, why = outcome.served, misses(outcome.served)
    assert (served.cached <= base.cached).all()
    assert {MissCause.EVICTED, MissCause.EXPIRED, MissCause.REPLICA} <= set(why)
    for index in range(0, served.prompt.size, 7):
        assert lookup(served, index, why).cached == served.cached[index]


def test_mooncake_optimum(mooncake, conversation):
    best = [
        rates(limited(mooncake, conversation, Limits(capacity=512 * n, eviction="opt")).served).hit_rate_blocks
        for n in (1_000, 5_859, 10_000)
    ]
    assert best == sorted(best)
    assert [rate > lru for rate, lru in zip(best, (0.0445, 0.1355, 0.2112), strict=True)] == [True] * 3
    assert best[-1] <= 0.36642


def test_ragpulse_with_room_for_all_is_by_path():
    """Enough memory changes nothing; matching by id and not by path would find four times as much."""
    trace = sorted(records("ragpulse.jsonl.gz"), key=lambda r: float(r["timestamp"]))
    contents = [ragpulse_blocks(r) for r in trace]
    ragpulse = unlimited(contents)
    numbers, ends = {}, [np.cumsum(c.sizes) for c in contents]
    visits = [
        Visit(None, np.array([numbers.setdefault(h, len(numbers)) for h in c.hashes], np.uint32)) for c in contents
    ]
    base, enough = ragpulse.engines["ideal"], Limits(capacity=512 * 100_000)
    fleets = [(base, enough), (base, dataclasses.replace(enough, eviction="opt"))]
    for outcome in serve(lambda: visits, fleets, np.ones(len(visits)), Blocks(512, ends)):
        assert rates(outcome.served).cached_tokens == 3_735_727


def test_mooncake_through_the_command_line():
    path = str(TRACES / "mooncake-conversation.jsonl.gz")
    options = ["--capacity", str(512 * 5_859 + 100), "--engine", "ideal", "--format", "json", "-q"]
    (found,) = json.loads(CliRunner().invoke(main, ["analyze", path, *options]).stdout)["engines"]
    assert found["capacity_tokens"] == 512 * 5_859
    assert found["hit_rate_blocks"] == pytest.approx(0.1355, abs=5e-5)
    assert found["cached_tokens"] + sum(found["misses"].values()) == found["prompt_tokens"]
    assert found["misses"]["evicted"] > 0
    (slow,) = json.loads(
        CliRunner()
        .invoke(main, ["analyze", path, "--ttl", "600:write", "--engine", "ideal", "--format", "json"])
        .stdout
    )["engines"]
    assert slow["hit_rate_blocks"] == pytest.approx(0.3044, abs=5e-5)
