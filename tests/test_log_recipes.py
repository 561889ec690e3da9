"""What to switch on: complete for each name, and reachable from each refusal."""

import datetime as dt
import json
import pickle

import pytest

from prefixlint.errors import LogRefusedError
from prefixlint.logs import _recipes, read

NEEDED = [
    "vllm",
    "sglang",
    "litellm",
    "langfuse",
    "openai",
    "anthropic",
    "llama.cpp",
    "ollama",
    "tgi",
    "helicone",
    "langsmith",
    "otel",
    "bedrock",
]


def test_all_promised_recipes_exist():
    assert set(NEEDED) <= set(_recipes.names())


@pytest.mark.parametrize("name", _recipes.names())
def test_a_recipe_says_what_it_gives_and_what_it_costs(name):
    recipe = _recipes.load()["recipes"][name]
    assert set(recipe) == {"title", "settings", "gives", "privacy", "cost", "source", "as_of"}
    assert isinstance(recipe["as_of"], dt.date)
    assert recipe["source"].startswith("https://")
    assert all(recipe[key].strip() for key in ("title", "settings", "gives", "privacy", "cost"))


@pytest.mark.parametrize("slug", sorted(_recipes.load()["refusals"]))
def test_a_refusal_has_a_reason_a_hint_and_recipes_that_exist(slug):
    refusal = _recipes.load()["refusals"][slug]
    assert refusal["reason"]
    assert refusal["hint"]
    assert set(refusal["recipes"]) <= set(_recipes.names())
    assert _recipes.hint(slug) == refusal["hint"]
    assert _recipes.refusal("a.log", 3, slug).reason == refusal["reason"]


def test_what_is_no_refusal_has_no_hint():
    assert _recipes.hint("invalid-json") is None


def test_a_refusal_among_readable_files_is_a_skip(tmp_path):
    (tmp_path / "a.pkl").write_bytes(pickle.dumps([1]))
    with pytest.raises(LogRefusedError) as caught:
        list(read([str(tmp_path)]))
    assert caught.value.hint == _recipes.hint("pickle")
    (tmp_path / "b.jsonl").write_text(json.dumps({"model": "m", "messages": [{"role": "user", "content": "x"}]}))
    assert [getattr(item, "slug", "request") for item in read([str(tmp_path)])] == ["pickle", "request"]
