"""The rules of providers, and of engines without an oracle, against answers computed by hand; see the fixtures."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest

from prefixlint import engines
from prefixlint.caches.marks import Marks
from prefixlint.fleet import Limits
from prefixlint.lives import Visit
from prefixlint.losses import serve
from prefixlint.model import MissCause
from prefixlint.simulate import Arrival, lookup, misses, run

FOLDER = Path(__file__).parent.parent / "fixtures" / "traces" / "providers"
CASES = [case for path in sorted(FOLDER.glob("*.toml")) for case in tomllib.loads(path.read_text())["case"]]


def tokens(pieces):
    """Each name stands for its own series of tokens, of which a piece takes the first ones."""
    parts = [ord(name) * 1_000_000 + np.arange(size, dtype=np.uint32) for name, size in pieces]
    return np.concatenate(parts).astype(np.uint32) if parts else np.empty(0, np.uint32)


def visit(request, model):
    marks = None
    if "ends" in request:
        lifetimes = {int(i): seconds for i, seconds in request.get("ttl", {}).items()}
        marks = Marks(request["ends"], {i: lifetimes.get(i) for i in request.get("marks", ())})
    model = request.get("model", model)
    return Visit(
        model,
        tokens(request["prompt"]),
        tokens(request.get("output", ())),
        float(request["at"]),
        request.get("first"),
        request.get("total"),
        model=model,
        marks=marks,
    )


def test_every_simulated_provider_has_a_case():
    simulated = {n for n in engines.names() if not engines.load(n).usage_only} - {"ideal", "tensorrt-llm"}
    assert {case["engine"] for case in CASES} == simulated


@pytest.mark.parametrize("case", CASES, ids=[f"{c['engine']}: {c['name']}" for c in CASES])
def test_the_answer_is_the_one_computed_by_hand(case):
    visits = [visit(request, case.get("model")) for request in case["requests"]]
    engine = engines.load(case["engine"])
    arrivals = [Arrival(i, v.namespace, v.prompt, v.output) for i, v in enumerate(visits)]
    base = run(arrivals, [engine]).engines[engine.name]
    # limits that limit nothing: an engine then follows the times of the log like a provider
    served = serve(lambda: visits, [(base, Limits())], np.ones(len(visits)))[0].served
    for index, request in enumerate(case["requests"]):
        account = lookup(served, index, misses(served))
        assert account.cached == request["cached"], request["because"]
        for cause, expected in request.get("causes", {}).items():
            if cause != "cold":
                assert account.misses.get(MissCause(cause), 0) == expected, (cause, request["because"])
