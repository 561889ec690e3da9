"""Limits on the command line: what `analyze` makes of them, what it assumes, and what it refuses."""

from __future__ import annotations

import datetime as dt
import json

import pytest
from click.testing import CliRunner

from prefixlint import bounded, engines, pipeline
from prefixlint.cli import main
from prefixlint.errors import UsageError
from prefixlint.fleet import Limits
from prefixlint.pipeline import Options

from .toy import model_folder, write_log

WORDS = " ".join(f"w{i}" for i in range(400))


def chat(text, second=None, **rest):
    row = {"model": "toy", "messages": [{"role": "system", "content": "w0 w1 w2"}, {"role": "user", "content": text}]}
    return (
        row | ({} if second is None else {"timestamp": f"2026-03-01T08:{second // 60:02d}:{second % 60:02d}Z"}) | rest
    )


def many(start, size=40):
    return " ".join(f"w{(start + i) % 400}" for i in range(size))


@pytest.fixture
def model(tmp_path):
    return str(model_folder(tmp_path / "model", WORDS))


@pytest.fixture
def log(tmp_path):
    """Three prompts of 48 tokens in turn, twice, a minute apart, on two replicas."""
    rows = [chat(many(100 * (i % 3)), 60 * i, replica=f"gpu-{i % 2}") for i in range(6)]
    return str(write_log(tmp_path / "log.jsonl", rows))


def analyze(log, model, **limits):
    return pipeline.analyze([log], Options(model=model, engines=limits.pop("engines", ()), limits=Limits(**limits)))


def result(*arguments):
    run = CliRunner().invoke(main, ["analyze", *arguments, "--format", "json", "-q"])
    assert run.exit_code == 0, run.output
    return json.loads(run.stdout)


def slugs(analysis):
    return {note.slug for note in analysis.notes}


def test_capacity(log, model):
    free, bound = (result(log, "--model", model, *options) for options in ((), ("--capacity", "110")))
    assert [e["capacity_tokens"] for e in free["engines"]] == [None, None]
    assert {e["engine"]: e["capacity_tokens"] for e in bound["engines"]} == {"sglang": 110, "vllm": 96}
    for before, after in zip(free["engines"], bound["engines"], strict=True):
        assert after["cached_tokens"] < before["cached_tokens"]
        assert after["misses"]["evicted"] == before["cached_tokens"] - after["cached_tokens"]
        assert after["cached_tokens"] + sum(after["misses"].values()) == after["prompt_tokens"]
    again = result(log, "--model", model, "--capacity", "110")
    assert again == bound


@pytest.mark.parametrize(
    ("text", "tokens"), [("400000", 400_000), ("400k", 400_000), ("1.5M", 1_500_000), ("400,000", 400_000)]
)
def test_capacities_as_people_write_them(log, model, text, tokens):
    assert (
        result(log, "--model", model, "--engine", "sglang", "--capacity", text)["engines"][0]["capacity_tokens"]
        == tokens
    )


def test_enough_capacity_changes_no_rate(log, model):
    free, bound = (analyze(log, model, **limits) for limits in ({}, {"capacity": 10_000}))
    assert [e.cached_tokens for e in free.engines] == [e.cached_tokens for e in bound.engines]


def test_lifetimes(log, model):
    found = {ttl: result(log, "--model", model, "--ttl", ttl)["engines"][0] for ttl in ("180", "179", "179:write")}
    assert found["180"]["cached_tokens"] > found["179"]["cached_tokens"]
    assert "expired" not in found["180"]["misses"]
    assert found["179"]["misses"]["expired"] > 0
    assert found["179"]["ttl_s"] == 179


def test_replicas(log, model):
    options = ("--model", model, "--engine", "sglang")
    one = result(log, *options)["engines"][0]
    two = result(log, *options, "--replicas", "2")["engines"][0]
    logged = result(log, *options, "--route", "logged")["engines"][0]
    assert (one["replicas"], two["replicas"], logged["replicas"]) == (1, 2, 2)
    assert (one["route"], two["route"], logged["route"]) == (None, "round-robin", "logged")
    assert two["cached_tokens"] == logged["cached_tokens"] < one["cached_tokens"]
    assert two["misses"]["replica"] > 0


def test_a_missing_replica_is_told(tmp_path, model):
    rows = [chat(many(0), i, **({"replica": "a"} if i else {})) for i in range(3)]
    found = analyze(str(write_log(tmp_path / "some.jsonl", rows)), model, route="logged")
    assert "replicas-missing" in slugs(found)
    assert found.engines[0].replicas == 2


def test_an_uneven_load_is_told(tmp_path, model):
    rows = [chat(many(0), i, replica="a" if i else "b") for i in range(8)]
    assert "uneven-replicas" in slugs(analyze(str(write_log(tmp_path / "l.jsonl", rows)), model, route="logged"))


def test_too_large_for_the_pool_is_told(log, model):
    found = analyze(log, model, capacity=40, engines=("sglang",))
    assert "larger-than-pool" in slugs(found)
    assert found.engines[0].cached_tokens == 0


def test_the_optimum_is_not_below_least_recently_used(log, model):
    best = analyze(log, model, capacity=128, eviction="opt", engines=("vllm",)).engines[0]
    assert best.cached_tokens >= analyze(log, model, capacity=128, engines=("vllm",)).engines[0].cached_tokens


def test_an_engine_without_a_choice_says_so(log, model):
    found = analyze(log, model, capacity=1000, eviction="lfu")
    assert "one-eviction" in slugs(found)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--capacity", "0"), "--capacity"),
        (("--capacity", "-5"), "--capacity"),
        (("--capacity", "much"), "much"),
        (("--capacity", "nan"), "nan"),
        (("--capacity", "inf"), "inf"),
        (("--capacity", "17", "--engine", "vllm"), "too small"),
        (("--host-capacity", "100"), "needs --capacity"),
        (("--capacity", "100", "--host-capacity", "0"), "--host-capacity"),
        (("--eviction", "lru"), "needs --capacity"),
        (("--capacity", "100", "--eviction", "clock"), "clock"),
        (("--replicas", "0"), "--replicas"),
        (("--route", "session"), "needs --replicas"),
        (("--route", "nearest", "--replicas", "2"), "nearest"),
        (("--ttl", "0"), "--ttl"),
        (("--ttl", "-1"), "--ttl"),
        (("--ttl", "soon"), "soon"),
        (("--ttl", "5:read"), "5:read"),
        (("--ttl", "nan"), "nan"),
        (("--engine", "together"), "documented"),
        (("--engine", "vlm"), "vlm"),
    ],
)
def test_limits_that_are_not_possible(log, model, options, word):
    run = CliRunner().invoke(main, ["analyze", log, "--model", model, *options])
    assert run.exit_code == 2
    assert word in run.stderr
    assert "Traceback" not in run.output


def test_a_lifetime_needs_times(tmp_path, log, model):
    timeless = str(write_log(tmp_path / "timeless.jsonl", [chat(many(0)), chat(many(0))]))
    with pytest.raises(UsageError, match="times"):
        analyze(timeless, model, ttl=10)
    with pytest.raises(UsageError, match="times"):
        pipeline.analyze([log], Options(model=model, order="file", limits=Limits(ttl=10)))


def test_logged_replicas_need_a_logged_replica(tmp_path, model):
    log = str(write_log(tmp_path / "l.jsonl", [chat(many(0), 0), chat(many(0), 1)]))
    with pytest.raises(UsageError, match="which replica"):
        analyze(log, model, route="logged")


def test_times_that_run_backwards_are_sorted_first(tmp_path, model):
    rows = [chat(many(0), s) for s in (100, 50, 0)]
    found = analyze(str(write_log(tmp_path / "back.jsonl", rows)), model, ttl=60)
    assert found.engines[0].misses.get("expired", 0) == 0
    assert found.engines[0].cached_tokens > 0


def test_the_provider_that_the_log_shows(tmp_path, model):
    rows = [chat(many(0, 1500), i) | {"model": "gpt-4o"} for i in range(3)]
    found = analyze(str(write_log(tmp_path / "l.jsonl", rows)), model)
    assert [e.engine for e in found.engines] == ["sglang", "vllm", "openai"]
    openai = found.engines[-1]
    assert openai.granularity == 128
    assert openai.cached_tokens == 2 * (1508 // 128 * 128)
    assert openai.ttl_s == 86_400
    limited = analyze(str(tmp_path / "l.jsonl"), model, capacity=100_000)
    assert "provider-limits" in slugs(limited)
    assert (limited.engines[-1].cached_tokens, limited.engines[-1].capacity_tokens) == (openai.cached_tokens, None)


def test_a_providers_lifetime_without_times_is_told(tmp_path, model):
    rows = [chat(many(0, 1500)) | {"model": "gpt-4o"} for i in range(2)]
    found = analyze(str(write_log(tmp_path / "l.jsonl", rows)), model)
    assert "no-lifetime" in slugs(found)
    assert found.engines[-1].ttl_s is None
    assert found.engines[-1].cached_tokens > 0


def anthropic(text, second, marked=True):
    system = {"type": "text", "text": many(0, 1200)} | ({"cache_control": {"type": "ephemeral"}} if marked else {})
    return {
        "model": "claude-sonnet-4-5",
        "max_tokens": 10,
        "timestamp": f"2026-03-01T08:00:{second:02d}Z",
        "system": [system],
        "messages": [{"role": "user", "content": text}],
    }


def test_marks_are_read_from_the_log(tmp_path, model):
    rows = [anthropic(many(7 * i, 30), i) for i in range(3)]
    found = analyze(str(write_log(tmp_path / "l.jsonl", rows)), model)
    claude = next(e for e in found.engines if e.engine == "anthropic")
    assert claude.cached_tokens == 2 * 1201  # the system text and what stands before it
    bare = [anthropic(many(7 * i, 30), i, marked=False) for i in range(3)]
    claude = analyze(str(write_log(tmp_path / "bare.jsonl", bare)), model).engines[-1]
    assert (claude.engine, claude.cached_tokens) == ("anthropic", 0)
    assert claude.misses["not_written"] > 2400


def test_old_facts_are_told(log, model):
    far = engines.load("vllm").as_of + dt.timedelta(days=400)
    found = pipeline.analyze([log], Options(model=model, today=far))
    assert "old-facts" in slugs(found)
    assert "old-facts" not in slugs(pipeline.analyze([log], Options(model=model, today=engines.load("vllm").as_of)))


def test_another_namespace_of_the_same_model_is_told(tmp_path, model):
    rows = [chat(many(0), i, cache_salt=salt) for i, salt in enumerate("aab")]
    found = analyze(str(write_log(tmp_path / "l.jsonl", rows)), model).engines[0]
    assert found.misses["namespace"] == found.prompt_tokens // 3


def test_the_report_names_the_limits(log, model):
    run = CliRunner().invoke(
        main, ["analyze", log, "--model", model, "--capacity", "1000", "--replicas", "2", "--ttl", "90"]
    )
    text = " ".join(run.stdout.split())
    assert "sglang: 1,000 tokens a replica, 2 replicas, round-robin, entries live 1 min 30 s" in text
    assert "unlimited cache" not in text
    assert "unlimited cache" in " ".join(CliRunner().invoke(main, ["analyze", log, "--model", model]).stdout.split())


def test_requests_out_has_the_causes(tmp_path, log, model):
    out = tmp_path / "out.jsonl"
    result(log, "--model", model, "--capacity", "110", "--requests-out", str(out))
    for line in map(json.loads, out.read_text().splitlines()):
        for engine in line["engines"].values():
            assert engine["cached_tokens"] + sum(engine["misses"].values()) == line["prompt_tokens"]


def test_what_a_provider_does_not_store_is_told_from_new_text(tmp_path, model):
    """The second turn repeats the first answer, which OpenAI has computed but not stored."""
    answer = many(300, 60)
    turns = [{"role": "user", "content": many(0, 1500)}]
    first = {"model": "gpt-4o", "messages": turns, "timestamp": "2026-03-01T08:00:00Z"}
    more = [*turns, {"role": "assistant", "content": answer}, {"role": "user", "content": many(50, 5)}]
    second = {"model": "gpt-4o", "messages": more, "timestamp": "2026-03-01T08:00:09Z"}
    reply = {"choices": [{"message": {"role": "assistant", "content": answer}, "finish_reason": "stop"}]}
    rows = [{"request": first, "response": reply}, {"request": second, "response": reply}]
    log = str(write_log(tmp_path / "l.jsonl", rows))
    engines_ = {e.engine: e for e in analyze(log, model).engines}
    assert engines_["sglang"].cached_tokens >= 1500 + 60
    assert engines_["openai"].misses["not_written"] >= 60
    assert engines_["openai"].misses["cold"] == engines_["sglang"].misses["cold"]


def breakpoints(model, second):
    messages = [{"role": "user", "content": many(0, 1500)}, {"role": "user", "content": many(9 * second, 4)}]
    return {"model": model, "messages": messages[: 1 + (second > 0)], "timestamp": f"2026-03-01T08:00:0{second}Z"}


def test_the_regime_is_the_models(tmp_path, model):
    new = analyze(str(write_log(tmp_path / "new.jsonl", [breakpoints("gpt-5.6", s) for s in range(3)])), model).engines[
        -1
    ]
    assert (new.engine, new.granularity, new.ttl_s) == ("openai", 1, 1800)
    # both later requests go on behind the breakpoint that the first one wrote at its end
    assert new.cached_tokens == 2 * 1501
    old = analyze(str(write_log(tmp_path / "old.jsonl", [breakpoints("gpt-4o", s) for s in range(3)])), model).engines[
        -1
    ]
    assert (old.engine, old.granularity, old.cached_tokens) == ("openai", 128, 2 * 1408)
    both = [breakpoints(name, s) for s in range(3) for name in ("gpt-5.6", "gpt-4o")]
    mixed = analyze(str(write_log(tmp_path / "both.jsonl", both)), model).engines[-1]
    assert mixed.cached_tokens == new.cached_tokens + old.cached_tokens


def test_a_way_to_write_needs_a_host():
    with pytest.raises(UsageError, match="--host-write needs --host-capacity"):
        bounded.check(Limits(capacity=100, host_write="write_back"))
