from __future__ import annotations

import dataclasses
import datetime as dt
import json
from importlib import resources

import pytest
from click.testing import CliRunner

from prefixlint import engines
from prefixlint.cli import main
from prefixlint.engines import _page
from prefixlint.errors import ConfigError, UsageError

SGLANG = (resources.files("prefixlint.engines") / "sglang.toml").read_text(encoding="utf-8")


def test_the_engines():
    own = ("ideal", "llama.cpp", "lmcache", "sglang", "tensorrt-llm", "vllm")
    providers = ("alibaba", "anthropic", "azure", "bedrock", "deepseek", "gemini", "openai", "openai-5.6", "xai")
    assert set(engines.names()) >= {*own, *providers}
    assert [n for n in engines.names() if engines.load(n).kind != "provider"] == list(own)


@pytest.mark.parametrize("name", engines.names())
def test_every_file_is_whole(name):
    engine = engines.load(name)
    assert engine.name == name
    assert engine.kind in ("engine", "provider", "convention")
    assert not engine.usage_only or engine.kind == "provider"
    assert (engine.lookback is not None) == (engine.marks is not None) == (engine.match == "marked_breakpoint")
    assert (engine.stored == "marked") == (engine.match == "marked_breakpoint")
    assert engine.ttl is None or engine.lifetime in ("sliding", "from_write")
    for fact in engine.facts.values():
        assert fact.source.strip()
    if engine.kind == "provider":
        assert {"read_ratio", "write_ratio", "usage"} <= set(engine.facts)
    for other in engine.instead.values():
        assert engines.load(other).match == "marked_breakpoint"


@pytest.mark.parametrize(
    ("name", "granularity", "cap", "stored", "visible"),
    [
        ("sglang", 1, "length_minus_one", "prompt_and_output", "prefill_end"),
        ("vllm", 16, "length_minus_one", "prompt_and_output", "scheduling"),
        ("ideal", 1, "none", "prompt", "at_once"),
    ],
)
def test_what_the_files_say(name, granularity, cap, stored, visible):
    engine = engines.load(name)
    assert (engine.granularity, engine.cap, engine.stored, engine.visible) == (granularity, cap, stored, visible)
    assert engine.name == name
    assert all(fact.source for fact in engine.facts.values())
    rest = {"usage", "order", "read_ratio", "write_ratio"}
    assert {field.name for field in dataclasses.fields(engine)} >= set(engine.facts) - rest


@pytest.mark.parametrize("name", ["mooncake", "Mooncake", " IDEAL "])
def test_an_alias_is_the_engine(name):
    assert engines.load(name) is engines.load("ideal")


def test_an_unknown_name_gets_the_nearest():
    with pytest.raises(UsageError) as caught:
        engines.load("sglng")
    assert "sglng" in caught.value.message
    assert "sglang" in (caught.value.hint or "")


def test_a_name_like_no_other_gets_the_list():
    with pytest.raises(UsageError) as caught:
        engines.load("zzzzzz")
    known = (caught.value.hint or "").removesuffix(".").removeprefix("Known engines: ").split(", ")
    assert known == sorted(known)
    assert {"ideal", "mooncake", "sglang", "vllm", "anthropic", "claude"} <= set(known)


def test_another_page_size():
    engine = engines.load("sglang")
    assert engine.with_granularity(64).granularity == 64
    assert engine.with_granularity(None) is engine
    for size in (0, -1):
        with pytest.raises(UsageError):
            engine.with_granularity(size)


def test_engines_do_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        engines.load("vllm").granularity = 1
    with pytest.raises(TypeError):
        engines.load("vllm").facts["cap"] = None


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ('name = "sglang"', "", "name"),
        ('name = "sglang"', "name = 3", "name"),
        ("as_of = 2026-11-29", "", "as_of"),
        ("as_of = 2026-11-29", 'as_of = "2026"', "as_of"),
        ("as_of = 2026-11-29", "as_of = 2026-11-29T10:00:00Z", "as_of"),
        ("[granularity]\nvalue = 1", "[granularity]\nvalue = 0", "granularity"),
        ("[granularity]\nvalue = 1", "[granularity]\nvalue = true", "granularity"),
        ("[granularity]\nvalue = 1", '[granularity]\nvalue = "1"', "granularity"),
        ("[minimum]\nvalue = 0", "[minimum]\nvalue = -1", "minimum"),
        ("length_minus_one", "length", "cap"),
        ("[cap]", "[caps]", "caps"),
        ("[cap]\nvalue", "[cap]\nvalu", "cap"),
        ('confidence = "source"', 'confidence = "gossip"', "confidence"),
        ('value = ["lora", "extra_key", "cache_salt"]', 'value = "lora"', "isolation"),
        ("[match]", "[match", "TOML"),
    ],
)
def test_a_wrong_file_is_an_error_that_names_the_place(old, new, word):
    assert old in SGLANG
    with pytest.raises(ConfigError) as caught:
        engines.parse(SGLANG.replace(old, new), "mine.toml")
    assert "mine.toml" in caught.value.message
    assert word in caught.value.message


@pytest.mark.parametrize(
    ("old", "new", "near"),
    [
        ("[granularity]", "[granularty]", "granularity"),
        ("[cap]\nvalue", "[cap]\nvalu", "value"),
        ("as_of = 2026-11-29", "as_off = 2026-11-29", "as_of"),
        ("length_minus_one", "length_minus_on", "length_minus_one"),
    ],
)
def test_a_typing_error_gets_the_nearest_key(old, new, near):
    with pytest.raises(ConfigError) as caught:
        engines.parse(SGLANG.replace(old, new), "mine.toml")
    assert f"Did you mean {near!r}?" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("added", "word"),
    [
        ("[ttl]\nvalue = -1\nsource = 's'\nconfidence = 'source'", "ttl"),
        ("[ttl]\nvalue = 1.5\nsource = 's'\nconfidence = 'source'", "ttl"),
        ("[read_ratio]\nvalue = 'cheap'\nsource = 's'\nconfidence = 'source'", "read_ratio"),
        ("[read_ratio]\nvalue = inf\nsource = 's'\nconfidence = 'source'", "read_ratio"),
        ("[read_ratio]\nvalue = 0.1\nmodels = 3\nsource = 's'\nconfidence = 'source'", "models"),
        ("[read_ratio]\nvalue = 0.1\nmodels = { 'a*' = -1 }\nsource = 's'\nconfidence = 'source'", "read_ratio"),
        ("[ttl]\nvalue = 1\nsource = 's'\nconfidence = 'source'\nas_of = 'May'", "as_of"),
        ("[ttl]\nvalue = 1\nsource = 's'\nconfidence = 'source'\nnote = 3", "note"),
    ],
)
def test_optional_facts_are_checked_too(added, word):
    with pytest.raises(ConfigError) as caught:
        engines.parse(f"{SGLANG}\n{added}", "mine.toml")
    assert word in caught.value.message


def test_a_file_of_ones_own(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(SGLANG.replace('name = "sglang"', 'name = "mine"').replace("value = 1\n", "value = 64\n", 1))
    mine = engines.load(str(path))
    assert (mine.name, mine.granularity) == ("mine", 64)
    assert "mine" not in engines.names()


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_a_file_that_cannot_be_read(tmp_path, content):
    path = tmp_path / "mine.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"mine\.toml"):
        engines.load(str(path))


@pytest.mark.parametrize(
    ("model", "minimum"),
    [
        ("claude-opus-4-5-20251101", 4096),
        ("claude-opus-4-1-20250805", 1024),
        ("claude-opus-4-20250514", 1024),
        ("claude-opus-4-7", 2048),
        ("anthropic/claude-haiku-4-5", 4096),
        ("Claude-Sonnet-5-5", 512),
        ("claude-sonnet-5", 1024),
        ("claude-3-haiku-20240307", 2048),
        ("something-else", 1024),
        (None, 1024),
    ],
)
def test_the_minimum_is_the_models_own(model, minimum):
    assert engines.load("anthropic").for_model(model).minimum == minimum


@pytest.mark.parametrize(
    ("model", "match"),
    [
        ("gpt-4o", "longest_prefix"),
        ("gpt-5.5", "longest_prefix"),
        ("gpt-5", "longest_prefix"),
        ("gpt-5.6", "marked_breakpoint"),
        ("gpt-5.6-mini", "marked_breakpoint"),
        ("gpt-6", "marked_breakpoint"),
        ("gpt-6.1-sol", "marked_breakpoint"),
        ("openai/gpt-6.1-sol", "marked_breakpoint"),
        (None, "longest_prefix"),
    ],
)
def test_openai_has_two_regimes(model, match):
    engine = engines.load("openai").for_model(model)
    assert (engine.match, engine.name) == (match, "openai")


def test_what_a_log_shows():
    pairs = [("openai-chat", "meta-llama/Llama-3.1-8B"), ("openai-chat", "gpt-4o-mini"), ("bedrock-converse", "x")]
    assert [e.name for e in engines.shown_by(pairs)] == ["openai", "bedrock"]
    assert [e.name for e in engines.shown_by([("anthropic-messages", "claude-opus-5")])] == ["anthropic"]
    assert engines.shown_by([("mooncake", None), ("openai-chat", "Qwen/Qwen3-8B")]) == []


def test_old_facts():
    engine = engines.load("sglang")
    assert engines.old(engine, engine.as_of + dt.timedelta(days=180)) == []
    late = dict(engines.old(engine, engine.as_of + dt.timedelta(days=181)))
    assert set(late) == set(engine.facts)
    assert set(late.values()) == {181}
    assert engines.old(engine, dt.date(2020, 1, 1)) == []


def test_a_fact_has_a_date_of_its_own():
    text = SGLANG.replace("[cap]\n", "[cap]\nas_of = 2020-01-01\n")
    engine = engines.parse(text, "mine.toml")
    assert [key for key, _ in engines.old(engine, engine.as_of)] == ["cap"]


def test_the_page_shows_every_fact():
    for name in engines.names():
        engine = engines.load(name)
        text = _page.page(engine, engine.as_of)
        assert all(key in text for key in engine.facts)
        joined = " ".join(text.split())
        assert all(" ".join(fact.source.split()) in joined for fact in engine.facts.values())
        assert all(pattern in text for fact in engine.facts.values() for pattern in fact.models)
        assert "days old" not in text
        assert max(map(len, text.splitlines())) <= 110
    assert "200 days old" in _page.page(engine, engine.as_of + dt.timedelta(days=200))


def test_the_list_names_all():
    today = engines.load("vllm").as_of
    lines = _page.listing(today).splitlines()
    assert [n for n in engines.names() if not any(line.startswith(n + " ") for line in lines)] == []
    assert "older than 180 days" in _page.listing(today + dt.timedelta(days=500))


def test_the_command():
    run = CliRunner().invoke(main, ["engine", "vllm"])
    assert run.exit_code == 0
    assert "vLLM automatic prefix caching" in run.output
    assert "deepseek" in CliRunner().invoke(main, ["engine"]).output
    shown = json.loads(CliRunner().invoke(main, ["engine", "claude", "--format", "json"]).output)["engines"]
    assert [e["name"] for e in shown] == ["anthropic"]
    assert shown[0]["facts"]["minimum"]["models"]["claude-opus-4-5*"] == 4096
    assert CliRunner().invoke(main, ["engine", "vlm"]).exit_code == 2


def test_names_of_fields_are_shown_as_they_are_written():
    page = CliRunner().invoke(main, ["engine", "vllm"]).stdout
    assert "usage.prompt_tokens_details.cached_tokens" in page
    assert "longest prefix" in page
