"""Advice: what it says is what its command shows, and where nothing is to be gained nothing is said."""

from __future__ import annotations

import itertools
import json
import random
import shlex

import pytest
from click.testing import CliRunner

from prefixlint.advice import _marking
from prefixlint.advice._case import Case
from prefixlint.cli import main

from .toy import model_folder, write_log

WORDS = " ".join(f"w{i}" for i in range(400))
TEMPLATE = (
    "{% for t in tools or [] %}<tool>{{ t.function.description }}<end>{% endfor %}"
    "{% for m in messages %}<{{ m.role }>{{ m.content }}<end>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
).replace("{{ m.role }>", "{{ m.role }}>")
PRICES = """
as_of = 2026-11-01
[[price]]
model = "*"
input = 10.0
cached = 1.0
write = 12.5
write_1h = 20.0
"""


def words(size, seed):
    rng = random.Random(repr(seed))
    return " ".join(rng.choice(WORDS.split()) for _ in range(size))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(model_folder(tmp_path_factory.mktemp("model") / "model", WORDS, TEMPLATE))


def analyze(*arguments):
    run = CliRunner().invoke(main, ["analyze", *map(str, arguments), "--format", "json", "-q"])
    assert run.exit_code == 0, run.output
    return json.loads(run.stdout)


def proven(advice):
    """Run the command of a piece of advice, and give what its engine serves then."""
    program, _, *arguments = shlex.split(advice["command"])
    assert program == "prefixlint"
    (engine,) = analyze(*arguments)["engines"]
    assert engine["engine"] == advice["engine"]
    return engine


def advice(result, kind, engine=None):
    return [one for one in result["advice"] if one["kind"] == kind and engine in (None, one["engine"])]


def claude(system, messages, second, **rest):
    return {
        "timestamp": 1_772_000_000 + second,
        "model": "claude-sonnet-4-5",
        "system": system,
        "messages": messages,
    } | rest


def text(content, **rest):
    return {"type": "text", "text": content} | rest


def conversations(count, *, clock, turns=4, gap=17, marked=()):
    """Conversations under one system text; with a clock, its last block changes with each request."""
    rows = []
    for number, turn in itertools.product(range(count), range(turns)):
        second = number * 60 + turn * gap
        system = [
            text(words(1500, "rules"), **({"cache_control": {"type": "ephemeral"}} if "system" in marked else {}))
        ]
        if clock:
            system.append(text(words(6, second)))
        messages = []
        for i in range(turn):
            messages += [
                {"role": "user", "content": words(200, (number, i))},
                {"role": "assistant", "content": words(90, (number, i, "a"))},
            ]
        messages.append({"role": "user", "content": words(200, (number, turn))})
        rows.append(claude(system, messages, second))
    return sorted(rows, key=lambda row: row["timestamp"])


def test_marks_stand_before_what_changes(tmp_path, model):
    log = write_log(tmp_path / "log.jsonl", conversations(12, clock=True))
    result = analyze(log, "--model", model, "--engine", "anthropic")
    (found,) = advice(result, "marks")
    assert found["command"].endswith("--marks 'system[0]'")
    assert [mark["place"] for mark in found["marks"]] == ["system[0]"]
    assert found["hit_rate"] == 0
    assert found["cost"] == 1
    shown = proven(found)
    assert shown["hit_rate"] == found["new_hit_rate"] > 0.5
    # read at 0.1, written at 1.25 of the price of input, the rest at that price
    prompt, read, written = shown["prompt_tokens"], shown["cached_tokens"], shown["written_tokens"]
    assert found["new_cost"] == pytest.approx((prompt - read - written + 0.1 * read + 1.25 * written) / prompt)
    (mark,) = found["marks"]
    assert (mark["read_tokens"], mark["written_tokens"]) == (read, written)
    assert mark["gain"] == pytest.approx(found["cost"] - found["new_cost"])
    assert mark["break_even_reads"] == 1
    assert mark["reads_per_write"] == pytest.approx(read / written)


@pytest.mark.parametrize(("cached", "advised"), [(0, True), (900, False)])
def test_marks_that_a_log_does_not_show_are_not_advised_anew(cached, advised, tmp_path, model):
    used = {"input_tokens": 700, "cache_read_input_tokens": cached, "output_tokens": 1}
    rows = [
        {"request": row, "response": {"type": "message", "role": "assistant", "content": [], "usage": used}}
        for row in conversations(12, clock=True)
    ]
    result = analyze(write_log(tmp_path / "log.jsonl", rows), "--model", model, "--engine", "anthropic")
    assert result["reported"]["cached_tokens"] == 48 * cached
    assert bool(advice(result, "marks")) == advised


def test_growing_conversations_are_marked_at_their_ends(tmp_path, model):
    log = write_log(tmp_path / "log.jsonl", conversations(12, clock=False, marked=["system"]))
    result = analyze(log, "--model", model, "--engine", "anthropic")
    (found,) = advice(result, "marks")
    assert [mark["place"] for mark in found["marks"]] == ["system", "messages[-1]"]
    assert proven(found)["hit_rate"] == found["new_hit_rate"] > found["hit_rate"] > 0.3
    # the command's own result has nothing better to offer
    _, _, *arguments = shlex.split(found["command"])
    assert not advice(analyze(*arguments), "marks")


@pytest.mark.parametrize("marked", [["system"], ["system", "last"]])
def test_the_whole_log_is_replayed_only_where_marks_may_gain(marked, tmp_path, model, monkeypatch):
    rows = conversations(12, clock=False, marked=["system"])
    if "last" in marked:
        for row in rows:
            row["messages"][-1] = row["messages"][-1] | {
                "content": [text(row["messages"][-1]["content"], cache_control={"type": "ephemeral"})]
            }
    seen, looked = [], []
    replay, of = Case.replay_of, _marking.Marking.of

    def replay_of(self, fleets, limits):
        if limits.marks is not None:
            seen.append(limits)
        return replay(self, fleets, limits)

    def marking_of(case, name):
        looked.append(name)
        return of(case, name)

    monkeypatch.setattr(Case, "replay_of", replay_of)
    monkeypatch.setattr(_marking.Marking, "of", marking_of)
    log = write_log(tmp_path / "log.jsonl", rows)
    result = analyze(log, "--model", model, "--engine", "anthropic", "--engine", "sglang")
    assert looked == ["anthropic"]  # nothing goes by marks in SGLang
    assert bool(advice(result, "marks")) == bool(seen) == ("last" not in marked)


def test_places_chosen_by_few_requests_are_those_of_all(tmp_path, model, monkeypatch):
    log = write_log(tmp_path / "log.jsonl", conversations(12, clock=False, marked=["system"]))
    (whole,) = advice(analyze(log, "--model", model, "--engine", "anthropic"), "marks")
    monkeypatch.setattr(_marking, "_PLACED_BY", 20)
    (few,) = advice(analyze(log, "--model", model, "--engine", "anthropic"), "marks")
    assert few == whole


def test_hours_between_requests_ask_for_longer_lives(tmp_path, model):
    rows = [
        claude([text(words(3000, "rules"))], [{"role": "user", "content": words(20, i)}], 1500 * i) for i in range(20)
    ]
    log = write_log(tmp_path / "log.jsonl", rows)
    (found,) = advice(analyze(log, "--model", model, "--engine", "anthropic"), "marks")
    assert [(mark["place"], mark["ttl_s"]) for mark in found["marks"]] == [("system", 3600)]
    assert found["marks"][0]["break_even_reads"] == 2
    assert "--marks system:1h" in found["command"]
    assert proven(found)["hit_rate"] == found["new_hit_rate"]


def test_what_is_never_read_again_is_not_to_be_marked(tmp_path, model):
    rows = [
        claude(
            [text(words(1500, i))],
            [{"role": "user", "content": words(20, (i, "u"))}],
            60 * i,
            cache_control={"type": "ephemeral"},
        )
        for i in range(20)
    ]
    log = write_log(tmp_path / "log.jsonl", rows)
    (found,) = advice(analyze(log, "--model", model, "--engine", "anthropic"), "marks")
    assert found["cost"] > 1.2
    assert found["new_cost"] == 1
    assert found["marks"] == []
    assert found["command"].endswith("--marks none")
    assert "mark nothing" in found["advice"]


def test_the_implicit_mark_is_a_mark_like_others(tmp_path, model):
    rows = [
        {
            "timestamp": 1_772_000_000 + 10 * i,
            "model": "gpt-5.6",
            "messages": [
                {"role": "system", "content": words(1500, "rules")},
                {"role": "user", "content": words(800, i)},
            ],
        }
        for i in range(20)
    ]
    log = write_log(tmp_path / "log.jsonl", rows)
    result = analyze(log, "--model", model, "--engine", "openai")
    (found,) = advice(result, "marks")
    assert [mark["place"] for mark in found["marks"]] == ["system"]
    assert "explicit" in found["advice"]
    assert proven(found)["hit_rate"] == found["new_hit_rate"]


def test_money_where_prices_are_known(tmp_path, model):
    (tmp_path / "prices.toml").write_text(PRICES)
    log = write_log(tmp_path / "log.jsonl", conversations(12, clock=True))
    result = analyze(log, "--model", model, "--engine", "anthropic", "--prices", tmp_path / "prices.toml")
    (found,) = advice(result, "marks")
    prompt = result["tokens"]["prompt"]
    assert found["money_saved"] == pytest.approx((found["cost"] - found["new_cost"]) * prompt * 10 / 1e6)
    assert found["currency"] == "USD"
    assert "--prices" in found["command"]
    # what marks write is charged for in what hits are worth, too
    _, _, *arguments = shlex.split(found["command"])
    (saving,) = [one for one in analyze(*arguments)["savings"] if one["engine"] == "anthropic"]
    assert saving["money"] == pytest.approx(found["money_saved"])
    assert saving["write_premium"] == pytest.approx(found["marks"][0]["written_tokens"] * 2.5 / 1e6)
    assert saving["break_even_reads"] == 1


def gpt(second, number, size=1200):
    return {
        "timestamp": 1_772_000_000 + second,
        "model": "gpt-4.1",
        "session_id": f"s{number % 12}",
        "messages": [
            {"role": "system", "content": words(size, "rules")},
            {"role": "user", "content": words(30, number)},
        ],
    }


def test_keys_are_spread_where_one_would_be_too_fast(tmp_path, model):
    rows = []
    for number in range(120):
        history = [{"role": "user", "content": words(300, ("h", number % 12, i))} for i in range(number // 12 + 1)]
        row = gpt(number * 1.5, number)
        rows.append(row | {"messages": row["messages"][:1] + history})
    log = write_log(tmp_path / "log.jsonl", rows)
    result = analyze(log, "--model", model, "--engine", "openai")
    assert "spilled" in [note["slug"] for note in result["notes"]]
    assert result["engines"][0]["misses"]["replica"] > 0
    (found,) = advice(result, "cache_key")
    assert "--cache-key" in found["command"]
    assert proven(found)["hit_rate"] == found["new_hit_rate"] > found["hit_rate"] + 0.005


def test_keys_that_part_what_could_be_shared(tmp_path, model):
    rows = [gpt(30 * i, i) | {"prompt_cache_key": f"user-{i}"} for i in range(20)]
    log = write_log(tmp_path / "log.jsonl", rows)
    result = analyze(log, "--model", model, "--engine", "openai")
    assert result["engines"][0]["cached_tokens"] == 0
    (found,) = advice(result, "cache_key")
    assert proven(found)["hit_rate"] == found["new_hit_rate"] > 0.8


def test_slow_requests_without_keys_need_none(tmp_path, model):
    log = write_log(tmp_path / "log.jsonl", [gpt(30 * i, i) for i in range(20)])
    result = analyze(log, "--model", model, "--engine", "openai")
    assert "replica" not in result["engines"][0]["misses"]
    assert not advice(result, "cache_key")


@pytest.fixture
def rounds(tmp_path):
    """Five prompts in turn, four times, with a little of their own at the end."""
    rows = [
        {
            "timestamp": 1_772_000_000 + 10 * i,
            "model": "toy",
            "session_id": f"s{i % 5}",
            "messages": [{"role": "system", "content": words(400, i % 5)}, {"role": "user", "content": words(15, i)}],
        }
        for i in range(20)
    ]
    return write_log(tmp_path / "rounds.jsonl", rows)


def test_a_larger_pool_or_a_second_tier(rounds, model):
    result = analyze(rounds, "--model", model, "--engine", "vllm", "--capacity", 1600)
    (pool,), (tier,) = advice(result, "pool"), advice(result, "host_tier")
    assert pool["tokens"] > 1600
    # the pool has room for the largest prompt besides, which others use while it does not run
    assert pool["new_hit_rate"] - 0.01 <= proven(pool)["hit_rate"] <= pool["new_hit_rate"] + 0.05
    assert pool["new_hit_rate"] > pool["hit_rate"] + 0.3
    assert "--kv-offloading-size" in tier["advice"]
    shown = proven(tier)
    assert shown["hit_rate"] == pytest.approx(tier["new_hit_rate"], abs=0.02)
    assert shown["host_capacity_tokens"] == tier["tokens"]
    assert shown["host_cached_tokens"] > 0
    # one type of KV is known only with the model
    assert not advice(result, "kv_dtype")


CONFIG = {
    "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 14336,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128_256,
}  # fmt: skip


def test_smaller_kv(rounds, model, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    options = ("--model", model, "--engine", "vllm", "--model-config", tmp_path / "config.json")
    result = analyze(rounds, *options, "--capacity", 1600)
    (found,) = advice(result, "kv_dtype")
    assert found["tokens"] == 3200
    assert found["gib"] == pytest.approx(3200 * 65_536 / 2**30)
    assert proven(found)["hit_rate"] == pytest.approx(found["new_hit_rate"], abs=0.02)
    assert not advice(analyze(rounds, *options, "--capacity", 1600, "--kv-dtype", "fp8"), "kv_dtype")


def test_without_a_pool_the_size_to_ask_for(rounds, model):
    result = analyze(rounds, "--model", model)
    (found,) = advice(result, "pool")
    assert found["hit_rate"] is None
    (size,) = [s for s in result["curves"]["pools"] if s["engine"] == found["engine"]]
    assert found["tokens"] == size["reach"]["0.95"] + 420  # and room for a request
    assert found["new_hit_rate"] >= 0.95 * size["ceiling"]
    assert found["new_hit_rate"] - 0.01 <= proven(found)["hit_rate"] <= size["ceiling"]


def test_enough_memory_needs_no_more(rounds, model):
    result = analyze(rounds, "--model", model, "--engine", "vllm", "--capacity", 100_000)
    assert result["advice"] == []


def test_routes(rounds, model):
    result = analyze(rounds, "--model", model, "--engine", "sglang", "--replicas", 4, "--capacity", 3000)
    (found,) = advice(result, "route")
    assert "--route" in found["command"]
    shown = proven(found)
    assert shown["hit_rate"] == found["new_hit_rate"] > found["hit_rate"] + 0.2
    assert shown["replicas"] == 4
    _, _, *arguments = shlex.split(found["command"])
    assert not advice(analyze(*arguments), "route")


@pytest.mark.parametrize("limits", [(), ("--capacity", 3000)])
def test_blocks(rounds, model, limits):
    result = analyze(rounds, "--model", model, "--engine", "vllm", "--block-size", 128, *limits)
    (found,) = advice(result, "block_size")
    assert proven(found)["hit_rate"] == found["new_hit_rate"] > found["hit_rate"]
    assert "--block-size 16" in found["command"]
    result = analyze(rounds, "--model", model, "--engine", "vllm", "--block-size", 16, *limits)
    assert not advice(result, "block_size")


def test_the_report_shows_gain_and_command(rounds, model):
    options = ["--model", model, "--engine", "vllm", "--capacity", "1600", "-q"]
    run = CliRunner().invoke(main, ["analyze", str(rounds), *options], env={"COLUMNS": "120"})
    section = run.stdout.split("Advice, from what this log shows\n")[1].split("\n\n")[0]
    assert "give the pool" in section
    commands = section.replace(" \\\n", " ").split("$ ")[1:]
    assert shlex.split(commands[0].splitlines()[0])[:6] == [
        "prefixlint",
        "analyze",
        str(rounds),
        "--model",
        model,
        "--engine",
    ]
    assert " -> " in section


def test_a_log_without_anything_shared_gets_no_advice(tmp_path, model):
    rows = [
        claude([text(words(1500, i))], [{"role": "user", "content": words(20, (i, "u"))}], 60 * i) for i in range(8)
    ]
    log = write_log(tmp_path / "log.jsonl", rows)
    assert analyze(log, "--model", model)["advice"] == []
