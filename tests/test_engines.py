from __future__ import annotations

import dataclasses
from importlib import resources

import pytest

from prefixlint import engines
from prefixlint.errors import ConfigError, UsageError

SGLANG = (resources.files("prefixlint.engines") / "sglang.toml").read_text(encoding="utf-8")


def test_the_engines():
    assert engines.names() == ("ideal", "sglang", "vllm")


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
    assert {field.name for field in dataclasses.fields(engine)} >= set(engine.facts)


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
    assert "ideal, mooncake, sglang, vllm" in (caught.value.hint or "")


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
