from __future__ import annotations

import random
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from prefixlint import accounts, resimulate, simulate
from prefixlint.engines import load
from prefixlint.model import NoPrompt, Request
from prefixlint.modelfiles import resolve
from prefixlint.resimulate import SURE
from prefixlint.segments import CHUNK
from prefixlint.table import Table
from prefixlint.tokens import Encoder

ENGINES = [load(name) for name in ("sglang", "vllm", "openai")]
NAMESPACES = [(), ("salt=a",), ("org=b",)]


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return Encoder(resolve(None).tokenizer)


def sequence(draw: random.Random) -> list[int]:
    """A prompt that shares its beginning with others: a few tokens, about as many as tell groups apart, or more."""
    shared = draw.choice([3, SURE - 1, SURE, SURE + 1, CHUNK + 5])
    front = random.Random(f"front {draw.randrange(4)}")
    middle = random.Random(f"middle {draw.randrange(3)}")
    tokens = [front.randrange(50) for _ in range(shared)] + [middle.randrange(50) for _ in range(draw.randrange(90))]
    return tokens + [draw.randrange(50) for _ in range(draw.randrange(30))]


def log(draw: random.Random, count: int) -> list[tuple[Any, list[int], list[int]]]:
    return [(draw.choice(NAMESPACES), sequence(draw), sequence(draw)[: draw.choice([0, 40])]) for _ in range(count)]


def table(encoder: Encoder, requests: list[tuple[Any, list[int], list[int]]]) -> Table:
    made = Table()
    for line, (namespace, prompt, output) in enumerate(requests):
        request = Request("log", line, NoPrompt("none"), "test", namespace=namespace)
        made.add_prompt(request, cut=bool(line % 3))
        made.set_tokens(encoder.add_ids(prompt), encoder.add_ids(output))
    return made


def replay(encoder: Encoder, held: Table, rows: np.ndarray) -> simulate.Replay:
    return simulate.run(accounts.arrivals(held, encoder, rows), ENGINES, unsalted=held.unsalted())


def agree(encoder: Encoder, before: Table, after: Table, changed: np.ndarray) -> None:
    rows = np.arange(changed.size)
    found = resimulate.again(replay(encoder, before, rows), encoder, before, after, changed)
    wanted = resimulate.whole(replay(encoder, after, rows))
    assert np.array_equal(found.with_outputs, wanted.with_outputs)
    for name, one in wanted.engines.items():
        for each in fields(one):
            value, other = getattr(one, each.name), getattr(found.engines[name], each.name)
            same = np.array_equal(value, other) if isinstance(value, np.ndarray) else value == other
            assert same, (name, each.name)


@pytest.mark.parametrize("seed", range(60))
def test_what_is_left_out_gets_what_a_replay_of_all_would_give_it(seed, encoder):
    draw = random.Random(seed)
    logged = log(draw, 60)
    changed = np.array([draw.random() < draw.choice([0.02, 0.2, 0.8]) for _ in logged])
    mended = [other if new else one for one, other, new in zip(logged, log(draw, 60), changed, strict=True)]
    agree(encoder, table(encoder, logged), table(encoder, mended), changed)


def test_only_what_begins_like_a_changed_prompt_is_replayed(encoder, monkeypatch):
    fronts = [list(range(n, n + 2 * SURE)) for n in (0, 100)]
    logged = [((), [*fronts[n % 2], n], []) for n in range(40)]
    mended = [((), [*fronts[0], 7, n], []) if n % 2 == 0 else one for n, one in enumerate(logged)]
    changed = np.arange(40) % 2 == 0
    seen: list[int] = []
    arrivals = accounts.arrivals

    def counted(held, encoder, rows):
        seen.append(rows.size)
        return arrivals(held, encoder, rows)

    monkeypatch.setattr(accounts, "arrivals", counted)
    agree(encoder, table(encoder, logged), table(encoder, mended), changed)
    assert seen == [40, 21, 40]  # all, the twenty and the first of the others, and all
