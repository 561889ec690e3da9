"""Curves, savings and exports of a whole analysis, through the pipeline and the command line."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixlint import pipeline, savings
from prefixlint.accesses import Recorder
from prefixlint.capacity import capacity_curve
from prefixlint.cli import main
from prefixlint.cost import flops
from prefixlint.curves import Setting, Tap
from prefixlint.engines import load
from prefixlint.errors import ModelError, UsageError
from prefixlint.fleet import Limits
from prefixlint.modelfiles import embedded
from prefixlint.reports._worth import _amount as amount
from prefixlint.reports._worth import sparkline
from prefixlint.results import CapacityPoint
from prefixlint.shapes import read_shape
from prefixlint.simulate import Arrival
from prefixlint.simulate import run as run_tokens
from tests.hybridconfigs import DENSE

FIXTURES = Path(__file__).parent.parent / "fixtures"
DEMO = str(FIXTURES / "logs" / "demo.jsonl")
TRACE = str(FIXTURES / "traces" / "mooncake-conversation.jsonl.gz")
LLAMA = {key: value for key, value in DENSE.items() if key not in ("model_type", "architectures")}


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "config.json"
    path.write_text(json.dumps(LLAMA))
    return str(path)


@pytest.fixture(scope="module")
def prices(tmp_path_factory):
    path = tmp_path_factory.mktemp("prices") / "prices.toml"
    path.write_text('as_of = 2026-11-01\n[[price]]\nmodel = "*"\ninput = 2\ncached = 0.5\nwrite = 3\n')
    return str(path)


@pytest.fixture(scope="module")
def demo(config, prices):
    server = savings.Settings(gpu="H100", model_config=config, prices=prices)
    return pipeline.analyze([DEMO], pipeline.Options(server=server))


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """The first requests of a public trace."""
    path = tmp_path_factory.mktemp("trace") / "short.jsonl"
    with gzip.open(TRACE, "rt", encoding="utf-8") as file:
        path.write_text("".join(line for line, _ in zip(file, range(1_500), strict=False)))
    return str(path)


@pytest.fixture(scope="module")
def trace(config, short):
    return pipeline.analyze([short], pipeline.Options(server=savings.Settings("H100", config)))


def run(*arguments):
    return CliRunner().invoke(main, ["analyze", *arguments])


def test_the_curve_ends_at_the_replays_own_hit_rate(demo, trace):
    for result in (demo, trace):
        for engine in result.engines:
            points = [p for p in result.curves.capacity if p.engine == engine.engine]
            assert [p.tokens for p in points] == sorted({p.tokens for p in points})
            rates = [p.hit_rate for p in points]
            assert rates == sorted(rates)
            assert rates[-1] == pytest.approx(engine.hit_rate)
            (size,) = [s for s in result.curves.sizes if s.engine == engine.engine]
            assert size.ceiling == pytest.approx(engine.hit_rate)
            assert size.reach[0.9] <= size.reach[0.95] <= size.reach[0.99] <= points[-1].tokens


def test_the_curve_ends_near_the_hit_rate_where_tokens_are_scaled(tmp_path):
    """Blocks hold tokens as the server counts them, of which the stand-in's are fewer."""
    words = [f"word{n}" for n in range(60)]
    log = tmp_path / "log.jsonl"
    rows = []
    for n in range(30):
        asked = {"model": "m", "messages": [{"role": "user", "content": " ".join(words[: 20 + n]) + f" end {n}"}]}
        rows.append({"request": asked, "response": {"usage": {"prompt_tokens": 12 * (20 + n), "completion_tokens": 1}}})
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = pipeline.analyze([str(log)], pipeline.Options(engines=("vllm",)))
    assert result.tokenizers[0].factor > 2
    (size,) = result.curves.sizes
    assert size.ceiling == pytest.approx(result.engines[0].hit_rate, abs=0.02)


def test_one_replica_and_a_long_life_are_no_limit(demo, trace):
    for result in (demo, trace):
        for engine in result.engines:
            ones = [p for p in result.curves.replicas if (p.engine, p.replicas) == (engine.engine, 1)]
            assert ones
            assert all(p.hit_rate == pytest.approx(engine.hit_rate) for p in ones)
            for since in ("use", "write"):
                mine = [p for p in result.curves.ttl if (p.engine, p.since) == (engine.engine, since)]
                assert mine[-1].hit_rate == pytest.approx(engine.hit_rate)


def test_gib_are_those_of_the_model(demo):
    for point in demo.curves.capacity:
        assert point.gib == pytest.approx(point.tokens * 131_072 / 2**30)
    assert all(p.gib is None for p in pipeline.analyze([DEMO]).curves.capacity)


def test_the_gpus_pool_is_on_the_curve(trace):
    (size,) = trace.curves.sizes
    assert size.have == pytest.approx(410_000, rel=0.03)
    below = max(p.hit_rate for p in trace.curves.capacity if p.tokens <= size.have)
    above = min(p.hit_rate for p in trace.curves.capacity if p.tokens >= size.have)
    assert below <= size.hit_rate <= above


def test_running_requests_take_their_part_of_the_pool(config, tmp_path):
    """Four requests at a time, each of which holds what it computed and half of its output."""
    log = tmp_path / "log.jsonl"
    rows = [
        {
            "timestamp": 100 + i / 2,
            "latency": 2.0,
            "request": {"model": "m", "messages": [{"role": "user", "content": f"{i} " + "word " * 400}]},
            "response": {"usage": {"prompt_tokens": 1000, "completion_tokens": 100}},
        }
        for i in range(40)
    ]
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    server = savings.Settings(gpu="H100", model_config=config)
    result = pipeline.analyze([str(log)], pipeline.Options(server=server))
    for size in result.curves.sizes:
        (engine,) = [e for e in result.engines if e.engine == size.engine]
        each = (engine.prompt_tokens - engine.cached_tokens) / 40 + 50
        assert size.running == pytest.approx(each * 2 * 40 / 21.5, rel=0.01)


def test_capacity_auto_is_each_engines_own_pool(config, short):
    server = savings.Settings(gpu="H100", model_config=config, capacity="auto")
    result = pipeline.analyze([short], pipeline.Options(server=server, engines=["vllm", "ideal"]))
    for engine, size in zip(result.engines, result.curves.sizes, strict=True):
        assert engine.capacity_tokens == pytest.approx(size.have, abs=512)
        # simulated request by request, and read off the curve
        assert engine.hit_rate == pytest.approx(size.hit_rate, abs=0.003)


def test_capacity_in_gib(config, short):
    result = run(short, "--capacity", "40GiB", "--model-config", config, "--format", "json")
    (engine,) = json.loads(result.output)["engines"]
    assert engine["capacity_tokens"] == pytest.approx(40 * 2**30 / 131_072, abs=512)


def test_the_curve_is_held_against_the_engines_own_simulation(short):
    options = pipeline.Options(limits=Limits(capacity=100_000), engines=["vllm"])
    result = pipeline.analyze([short], options)
    ((tokens, simulated, curve),) = [size.simulated for size in result.curves.sizes]
    assert (tokens, simulated) == (result.engines[0].capacity_tokens, result.engines[0].hit_rate)
    assert curve == pytest.approx(simulated, abs=0.002)
    assert result.curves.sizes[0].ceiling > simulated + 0.1
    text = run(DEMO, "--capacity", "4000").output
    assert "sglang with 4 k tokens:" in text
    assert "simulated" in text


def test_savings_are_those_of_the_limited_cache(config, short):
    server = savings.Settings(model_config=config)
    free = pipeline.analyze([short], pipeline.Options(server=server)).savings[0]
    tight = pipeline.analyze([short], pipeline.Options(server=server, limits=Limits(capacity=100_000))).savings[0]
    assert 0 < tight.prefill_flops < free.prefill_flops


@pytest.mark.parametrize("noise", [0.02, 1.5])
def test_times_are_fitted_to_the_logs_own(config, tmp_path, noise):
    """Prefill at 4e14 FLOP/s behind 20 ms; where the log's times scatter too much, the GPU's calibration counts."""
    model, rng = read_shape(Path(config)), np.random.default_rng(3)
    rows = []
    for i, words in enumerate(rng.integers(50, 3_000, 60).tolist()):
        text = f"{i} " + "word " * words
        prompt = words + 20
        seconds = (0.02 + float(flops(model, prompt)) / 4e14) * float(np.exp(rng.normal(0, noise)))
        rows.append(
            {
                "timestamp": 1000 + i,
                "ttft": seconds,
                "request": {"model": "m", "messages": [{"role": "user", "content": text}]},
                "response": {"usage": {"prompt_tokens": prompt, "completion_tokens": 9}},
            }
        )
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = pipeline.analyze([str(log)], pipeline.Options(server=savings.Settings("H100", config)))
    for saving in result.savings:
        assert ("fitted to the log's own" in saving.basis) == (noise < 1)
        assert ("calibrated on" in saving.basis) == (noise > 1)
        if noise < 1:
            assert saving.prefill_seconds == pytest.approx(saving.prefill_flops / 4e14, rel=0.05)


def test_sessions_stay_together(demo):
    for engine in ("sglang", "vllm"):
        by_route = {
            route: [p.hit_rate for p in demo.curves.replicas if (p.engine, p.route) == (engine, route)]
            for route in ("round-robin", "session")
        }
        assert all(a <= b for a, b in zip(by_route["round-robin"], by_route["session"], strict=True))


def test_savings_are_those_of_the_requests(demo, config):
    rows = []
    pipeline.analyze([DEMO], watch=pipeline.Watch(on_request=rows.append))
    model = read_shape(Path(config))
    for engine in ("sglang", "vllm"):
        (saving,) = [s for s in demo.savings if s.engine == engine]
        prompt, cached = np.array([(r.prompt_tokens, r.engines[engine][0]) for r in rows]).T
        assert saving.prefill_flops == pytest.approx(float((flops(model, prompt) - flops(model, prompt, cached)).sum()))
        assert saving.money == pytest.approx(1.5 * cached.sum() / 1e6)
        assert saving.currency == "USD"
        assert saving.calibrated
        assert saving.band == 0.1
        # short prompts cost what reading the weights costs: less is saved in time than in FLOPs
        assert 0 < saving.seconds_share < saving.flops_share
        assert "125 requests" in saving.basis  # the log's own times
        assert "2026-11-01" in saving.basis
        assert sorted(saving.queue.ttft) == pytest.approx([0.8, 1.0, 1.2])


def test_reported_hits_are_charged_too(demo):
    (saving,) = [s for s in demo.savings if s.engine == "reported"]
    assert saving.money == pytest.approx(1.5 * demo.reported.cached_tokens / 1e6)
    assert saving.break_even == 1
    assert saving.prefill_flops is None


def test_written_tokens_cost_their_premium(tmp_path, prices):
    usage = {"input_tokens": 100, "cache_creation_input_tokens": 1000, "cache_read_input_tokens": 400}
    log = tmp_path / "log.jsonl"
    bodies = [
        {
            "request": {"model": "claude-sonnet-4-5", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]},
            "response": {"type": "message", "role": "assistant", "content": [], "usage": usage},
        }
    ]
    log.write_text("".join(json.dumps(body) + "\n" for body in bodies))
    result = pipeline.analyze([str(log)], pipeline.Options(server=savings.Settings(prices=prices)))
    (saving,) = [s for s in result.savings if s.engine == "reported"]
    assert saving.premium == pytest.approx(1000 * 1 / 1e6)
    assert saving.money == pytest.approx((400 * 1.5 - 1000 * 1) / 1e6)


def test_what_is_written_for_an_hour_has_its_own_price(tmp_path):
    prices = tmp_path / "prices.toml"
    prices.write_text('[[price]]\nmodel = "*"\ninput = 2\ncached = 0.5\nwrite = 3\nwrite_1h = 6\n')
    usage = {"input_tokens": 1, "cache_creation_input_tokens": 1000, "cache_read_input_tokens": 400}
    usage["cache_creation"] = {"ephemeral_5m_input_tokens": 300, "ephemeral_1h_input_tokens": 700}
    asked = {"model": "claude-sonnet-4-5", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}
    answer = {"type": "message", "role": "assistant", "content": [], "usage": usage}
    log = tmp_path / "log.jsonl"
    log.write_text(json.dumps({"request": asked, "response": answer}) + "\n")
    result = pipeline.analyze([str(log)], pipeline.Options(server=savings.Settings(prices=str(prices))))
    (saving,) = [s for s in result.savings if s.engine == "reported"]
    assert saving.premium == pytest.approx((300 * 1 + 700 * 4) / 1e6)
    assert saving.money == pytest.approx(400 * 1.5 / 1e6 - saving.premium)
    assert saving.break_even == 3  # 4 for a token that lives an hour, 1.5 saved by each read of it


def test_nothing_is_invented_without_a_model_and_prices():
    result = pipeline.analyze([DEMO])
    assert [s.engine for s in result.savings if s.engine != "reported"] == []
    assert all(size.have is None for size in result.curves.sizes)


def test_warm_up_is_left_out_of_the_curve(short, trace):
    result = pipeline.analyze([short], pipeline.Options(warmup=0.5))
    (size,) = result.curves.sizes
    assert size.ceiling > trace.curves.sizes[0].ceiling + 0.01
    assert size.ceiling == pytest.approx(result.engines[0].hit_rate)


@pytest.mark.parametrize("name", ["lmcache", "tensorrt-llm", "ideal", "sglang", "vllm"])
def test_every_engine_with_a_pool_ends_at_its_own_hit_rate(name):
    result = pipeline.analyze([DEMO], pipeline.Options(engines=[name]))
    (size,) = result.curves.sizes
    assert size.ceiling == pytest.approx(result.engines[0].hit_rate, abs=1e-3)


def test_block_size_counts_for_the_curve():
    result = pipeline.analyze([DEMO], pipeline.Options(block_size=64, engines=["vllm"]))
    assert all(p.tokens % 64 == 0 for p in result.curves.capacity)
    assert result.curves.sizes[0].ceiling == pytest.approx(result.engines[0].hit_rate)


def test_the_result_is_the_same_every_time(config, prices):
    options = ["--gpu", "H100", "--model-config", config, "--prices", prices, "--format", "json"]
    one, two = (run(DEMO, *options).output for _ in range(2))
    assert one == two
    found = json.loads(one)
    assert set(found["curves"]) == {"capacity", "ttl", "replicas", "pools", "host"}
    for key in ("engine", "tokens", "gib", "hit_rate"):
        assert key in found["curves"]["capacity"][0]
    for key in ("engine", "prefill_flops", "prefill_seconds", "money", "basis"):
        assert key in found["savings"][0]


def test_the_curve_over_tiers_on_the_host():
    found = json.loads(run(DEMO, "--capacity", "2000", "--engine", "vllm", "--format", "json").output)
    points = found["curves"]["host"]
    (pool,) = found["curves"]["pools"]
    assert [p["host_tokens"] for p in points] == [2000 * times for times in (1, 2, 4, 8, 16)]
    rates = [p["hit_rate"] for p in points]
    assert rates == sorted(rates)
    assert rates[0] == points[0]["pool_hit_rate"] == pool["simulated"]["curve_hit_rate"]  # no larger than the pool
    assert 0.99 * pool["ceiling"] <= rates[-1] <= pool["ceiling"]
    tiers = run(DEMO, "--capacity", "2000", "--engine", "vllm", "--host-capacity", "8000", "--format", "json").output
    (engine,) = json.loads(tiers)["engines"]
    assert engine["hit_rate"] == pytest.approx(rates[2], abs=0.01)
    assert not json.loads(run(DEMO, "--engine", "vllm", "--format", "json").output)["curves"]["host"]


def test_the_curve_is_held_against_the_engine_that_evicts_leaves():
    found = json.loads(run(DEMO, "--format", "json").output)
    pools = {pool["engine"]: pool for pool in found["curves"]["pools"]}
    assert pools["vllm"]["deviations"] == []
    measured = pools["sglang"]["deviations"]
    reach = pools["sglang"]["reach"]
    assert [d["tokens"] for d in measured] == [pools["sglang"]["knee_tokens"], reach["0.9"], reach["0.99"]]
    for one in measured:
        direct = json.loads(
            run(DEMO, "--engine", "sglang", "--capacity", str(one["tokens"]), "--format", "json").output
        )
        assert direct["engines"][0]["hit_rate"] == one["hit_rate"]
        assert one["curve_hit_rate"] == pytest.approx(one["hit_rate"], abs=0.03)
    assert not json.loads(run(DEMO, "--replicas", "2", "--format", "json").output)["curves"]["pools"][0]["deviations"]


def test_the_text_report_says_where_numbers_come_from(config, short):
    text = run(DEMO, "-v", "--gpu", "H100", "--model-config", config).output
    for words in ("knee", "GiB", "block-LRU", "What hits are worth", "±10 %", "log's own to the first", "no promise"):
        assert words in text, words
    text = run(short, "--gpu", "H100", "--model-config", config).output
    for words in ("calibrated on Llama-3.1-8B", "one replica cannot serve this log"):
        assert words in text, words
    assert "uncalibrated" in run(short, "--gpu", "mi300x", "--model-config", config).output


def test_a_model_that_does_not_fit_is_a_note(config, tmp_path):
    big = tmp_path / "config.json"
    big.write_text(json.dumps(LLAMA | {"num_hidden_layers": 320}))
    found = json.loads(run(DEMO, "--gpu", "H100", "--model-config", str(big), "--format", "json").output)
    assert "no-pool" in [note["slug"] for note in found["notes"]]
    assert found["savings"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--gpu", "H100"], "--model-config"),
        (["--gpu", "H1000", "--model-config", "CONFIG"], "H100"),
        (["--gpu", "0xH100", "--model-config", "CONFIG"], "4xH100"),
        (["--gpu", "", "--model-config", "CONFIG"], "GPU"),
        (["--model-config", "/nowhere/config.json"], "/nowhere/config.json"),
        (["--model-config", "CONFIG", "--kv-dtype", "fp3"], "nvfp4"),
        (["--prices", "/nowhere/prices.toml"], "/nowhere/prices.toml"),
        (["--export-salt", "s"], "--export"),
        (["--capacity", "auto"], "--gpu"),
        (["--capacity", "40GiB"], "--model-config"),
        (["--capacity", "fortyGB", "--model-config", "CONFIG"], "40GiB"),
        (["--capacity", "0GiB", "--model-config", "CONFIG"], "holds no token"),
    ],
)
def test_bad_options(config, options, words):
    result = run(DEMO, *(config if o == "CONFIG" else o for o in options))
    assert result.exit_code == 2
    assert words in result.stderr
    assert "Traceback" not in result.output


def test_a_model_config_that_lacks_heads(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({k: v for k, v in LLAMA.items() if "heads" not in k}))
    result = run(DEMO, "--model-config", str(tmp_path))
    assert result.exit_code == 2
    assert "num_attention_heads" in result.stderr


def test_a_models_own_configuration_needs_no_option():
    files = replace(embedded(), stand_in=False, config=LLAMA)
    assert savings.machine(savings.Settings(), files).shape.layers == 32
    assert savings.machine(savings.Settings(), replace(files, config={"model_type": "x"})).shape is None
    assert savings.machine(savings.Settings(), embedded()).shape is None


def test_gpus_with_a_count(config):
    for text, tp in (("H100", 1), ("2xH100", 2), ("8 x h100", 8), ("4×H100", 4)):
        found = savings.machine(savings.Settings(text, config), embedded())
        assert (found.tp, found.gpu) == (tp, "H100")
    with pytest.raises(UsageError):
        savings.machine(savings.Settings("x", config), embedded())
    with pytest.raises(ModelError):
        savings.machine(savings.Settings(model_config="no/such-model"), embedded(), offline=True)


# ---- exports


def test_an_export_read_again_gives_the_same_hits(tmp_path, short):
    out = tmp_path / "trace.jsonl"
    first = json.loads(run(short, "--export", str(out), "--format", "json").output)
    again = json.loads(run(str(out), "--format", "json").output)
    for key in ("prompt_tokens", "cached_tokens", "hit_rate", "hit_rate_blocks", "requests"):
        assert again["engines"][0][key] == first["engines"][0][key]
    assert again["curves"] == first["curves"]


def test_an_export_of_text_holds_no_text(tmp_path):
    out = tmp_path / "trace.jsonl"
    assert run(DEMO, "--export", str(out)).exit_code == 0
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(lines) == 125
    assert lines[0]["timestamp"] == 0
    for line in lines:
        assert set(line) <= {"timestamp", "input_length", "output_length", "hash_ids"}
        assert len(line["hash_ids"]) == -(-line["input_length"] // 512)
        assert all(isinstance(x, int) for x in (*line["hash_ids"], line["input_length"], line["timestamp"]))
    again = json.loads(run(str(out), "--format", "json").output)
    assert again["input"]["formats"] == {"mooncake": 125}


def test_outputs_that_are_not_known_are_said_to_be_guessed(tmp_path):
    log, out = tmp_path / "log.jsonl", tmp_path / "trace.jsonl"
    bodies = [{"model": "m", "messages": [{"role": "user", "content": f"question {i}"}]} for i in range(3)]
    log.write_text("".join(json.dumps({"timestamp": i, "request": body}) + "\n" for i, body in enumerate(bodies)))
    found = json.loads(run(str(log), "--export", str(out), "--format", "json").output)
    assert [json.loads(line)["output_length"] for line in out.read_text().splitlines()] == [1, 1, 1]
    (note,) = [note["message"] for note in found["notes"] if note["slug"] == "export-outputs"]
    assert note.startswith("3 requests without a known output: 1 token")


def test_an_export_in_other_blocks_and_with_a_secret(tmp_path):
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    assert run(DEMO, "--export", str(one), "--block-size", "64", "--export-salt", "secret").exit_code == 0
    assert run(DEMO, "--export", str(two), "--block-size", "64").exit_code == 0
    salted, plain = ([json.loads(line) for line in path.read_text().splitlines()] for path in (one, two))
    for a, b in zip(salted, plain, strict=True):
        assert len(a["hash_ids"]) == len(b["hash_ids"]) == -(-a["input_length"] // 64)
        assert a["hash_ids"] != b["hash_ids"]


# ---- single pieces


def test_engines_with_a_minimum_have_no_curve():
    engine = replace(load("vllm"), minimum=1024)
    tap = Tap([engine])
    run_tokens([Arrival(0, 0, np.arange(9, dtype=np.uint32))], [engine], on_stored=tap.stored)
    found = tap.curves(Setting(counted=np.ones(1, bool)))
    assert (found.capacity, found.ttl, found.replicas) == ([], [], [])


tokens = st.lists(st.integers(0, 2), max_size=9)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), tokens, tokens), max_size=12), st.integers(1, 3))
def test_what_a_replay_finds_is_what_a_recorder_of_its_own_finds(requests, size):
    def ids(values):
        return np.array(values, np.uint32)

    # rows are the caller's numbers, in any order
    arrivals = [Arrival(90 - i, n, ids(prompt), ids(output)) for i, (n, prompt, output) in enumerate(requests)]
    shared, own = Recorder(), Recorder()

    def note(stored, *found):
        assert stored == ("prompt_and_output", True)
        shared.add_found(*found)

    run_tokens(arrivals, [load("vllm"), load("sglang")], on_stored=note)
    for _, namespace, prompt, output in arrivals:
        own.add(namespace, prompt, output)
    one, two = (capacity_curve(recorder.accesses(size)) for recorder in (shared, own))
    assert one.total == two.total
    assert (one.hit(np.arange(200)) == two.hit(np.arange(200))).all()
    assert (shared.outputs() == own.outputs()).all()


@pytest.mark.parametrize(
    ("money", "shown"),
    [(0.00461, "0.00461 EUR"), (0, "0.00 EUR"), (-0.5, "-0.5 EUR"), (1234.567, "1,234.57 EUR"), (None, "unknown")],
)
def test_small_amounts_keep_their_digits(money, shown):
    assert amount(money, "EUR") == shown


def test_sparkline():
    points = [CapacityPoint("e", 2**i, None, rate) for i, rate in enumerate([0.0, 0.1, 0.5, 0.9, 1.0])]
    drawn = sparkline(points)
    assert len(drawn) == 16
    assert drawn[-1] == "█"
    assert list(drawn) == sorted(drawn)
    assert sparkline([CapacityPoint("e", 16, None, 0.5)])[-1] == "█"
