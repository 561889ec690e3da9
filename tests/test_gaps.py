"""What lies between the reported hits and the possible ones is taken apart, and adds up."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from prefixlint import engines, gaps, pipeline
from prefixlint.errors import PrefixlintError
from prefixlint.model import Messages, MissCause, Request, Usage
from prefixlint.simulate import Served
from prefixlint.table import Table

SAMPLES = Path(__file__).parent.parent / "fixtures" / "logs" / "samples"


def table(count, *, cached, prompt=1_000, times=None, replicas=None, keys=None, missing=()):
    found = Table()
    for n in range(count):
        usage = None if cached[n] is None else Usage(prompt=prompt, cached=cached[n])
        request = Request(
            "log",
            n + 1,
            Messages([{"role": "user", "content": "x"}], missing="head" if n in missing else None),
            "openai-chat",
            time=None if times is None else times[n],
            replica=None if replicas is None else replicas[n],
            fields={} if keys is None else {"prompt_cache_key": keys[n]},
            usage=usage,
        )
        found.add(request, family=0, conversation=n, group=(), cut=False)
        found.set_none()
    return found


def served(count, *, cached, owner=None, new=100, prompt=1_000):
    """Give an unlimited cache's hits: each request goes on from the first one."""
    prompts = np.full(count, prompt, np.int64)
    shared = np.full(count, prompt - new, np.int64)
    shared[0] = 0
    owners = np.zeros(count, np.int64) if owner is None else np.asarray(owner, np.int64)
    owners[0] = -1
    hits = np.asarray(cached, np.int64)
    blocks = np.zeros(count, np.int64)
    return Served(engines.load("sglang"), prompts, shared, owners, owners < 0, hits, blocks, blocks)


def names(told):
    return {gap.name.partition(":")[0]: int(gap.tokens.sum()) for gap in told.gaps}


def rows(count):
    return np.arange(count)


def test_nothing_is_told_where_nothing_was_reported():
    free = served(4, cached=[0, 900, 900, 900])
    assert gaps.told(table(4, cached=[None] * 4), rows(4), free, None, timed=False) is None


def test_what_has_no_explanation_is_called_so():
    free = served(4, cached=[0, 900, 900, 900])
    told = gaps.told(table(4, cached=[0, 900, 300, None]), rows(4), free, None, timed=False)
    assert names(told) == {"unexplained": 600}
    assert told.known.tolist() == [True, True, True, False]


def test_hits_on_text_from_before_the_log():
    free = served(3, cached=[0, 900, 900])
    told = gaps.told(table(3, cached=[500, 900, 900]), rows(3), free, None, timed=False)
    assert names(told) == {"hits on text not in the log": -500}


def test_hits_on_what_the_model_had_generated_are_on_text_of_the_log():
    free = served(3, cached=[0, 900, 900])
    told = gaps.told(
        table(3, cached=[0, 980, 1_000]), rows(3), free, None, timed=False, held=np.array([0, 980, 980], np.int64)
    )
    assert names(told) == {
        "hits beyond the rules of sglang": -160,
        "hits on text not in the log": -20,
    }


def test_hits_that_a_minimum_length_would_refuse():
    free = served(3, cached=[0, 0, 0])  # 900 tokens of each prompt were there, and the engine takes none
    told = gaps.told(table(3, cached=[0, 640, 1_000]), rows(3), free, None, timed=False)
    assert names(told) == {
        "hits beyond the rules of sglang": -640 - 900,
        "hits on text not in the log": -100,
    }


def test_prompts_that_the_log_holds_in_part_are_not_compared():
    free = served(4, cached=[0, 90, 90, 90], prompt=100, new=10)
    told = gaps.told(table(4, cached=[0, 900, 300, 990], missing=(1, 3)), rows(4), free, None, timed=False)
    assert told.known.tolist() == [True, False, True, False]
    assert names(told) == {"unexplained": 600}
    everywhere = table(4, cached=[0, 900, 300, 990], missing=range(4))
    assert gaps.told(everywhere, rows(4), free, None, timed=False) is None


def test_blocks_of_the_server():
    free = served(31, cached=[0] + [917, 530, 391] * 10)
    told = gaps.told(table(31, cached=[0] + [896, 512, 384] * 10), rows(31), free, None, timed=False)
    assert names(told) == {"rounded down to blocks of 128 tokens": 10 * (21 + 18 + 7)}
    same = gaps.told(table(31, cached=[0] + [896] * 30), rows(31), free, None, timed=False)
    assert not any(gap.name.startswith("rounded") for gap in same.gaps)


def test_another_replica():
    cached = [0] + [900, 0] * 15
    replicas = ["a"] + ["a", "b"] * 15
    told = gaps.told(
        table(31, cached=cached, replicas=replicas), rows(31), served(31, cached=[0] + [900] * 30), None, timed=False
    )
    # the last use was on the other replica in every request but the first ones
    assert names(told)["on another replica than the prefix's last use"] == 15 * 900


def test_another_routing_key():
    cached = [0] + [900, 0] * 15
    keys = ["a"] + ["a", "b"] * 15
    told = gaps.told(
        table(31, cached=cached, keys=keys), rows(31), served(31, cached=[0] + [900] * 30), None, timed=False
    )
    assert names(told)["under another routing key than the prefix's last use"] == 15 * 900


def test_a_lifetime_is_told_from_the_times():
    steps = [10, 20, 400, 30, 500, 10] * 12
    times = np.cumsum([0, *steps]).tolist()
    cached = [0] + [900 if step < 300 else 0 for step in steps]
    count = len(times)
    told = gaps.told(
        table(count, cached=cached, times=times),
        rows(count),
        served(count, cached=[0] + [900] * (count - 1)),
        None,
        timed=True,
    )
    (gap,) = told.gaps
    assert gap.name == "lifetime: more than 30 s since the prefix was last used"
    assert int(gap.tokens.sum()) == 24 * 900


def test_a_capacity_is_told_from_the_new_text_between():
    """Two conversations: one that is gone on with at once, and one that comes again after much new text."""
    owner, cached = [], []
    for n in range(120):
        often = n % 4 != 3
        owner.append(0 if often else 3)
        cached.append(900 if often else 0)
    cached[0] = cached[3] = 0
    free = served(120, cached=[0] + [900] * 119, owner=owner)
    free.shared[3] = 0
    free.cached[3] = 0
    told = gaps.told(table(120, cached=cached), rows(120), free, None, timed=False)
    (gap,) = told.gaps
    assert gap.name.startswith("capacity: more than ")
    assert int(gap.tokens.sum()) == 29 * 900


def test_misses_at_random_are_no_lifetime_and_no_capacity():
    rng = np.random.default_rng(3)
    cached = [0, *np.where(rng.random(200) < 0.4, 0, 900).tolist()]
    times = np.cumsum(rng.integers(1, 900, 201)).astype(float).tolist()
    free = served(201, cached=[0] + [900] * 200)
    told = gaps.told(table(201, cached=cached, times=times), rows(201), free, None, timed=True)
    assert set(names(told)) == {"unexplained"}


def test_what_limits_cost_comes_first():
    free = served(3, cached=[0, 900, 900])
    losses = {MissCause.EVICTED: np.array([0, 0, 700])}
    told = gaps.told(table(3, cached=[0, 900, 100]), rows(3), free, losses, timed=False)
    assert names(told) == {"evicted (capacity), as simulated": 700, "unexplained": 100}


@given(
    st.lists(
        st.tuples(st.one_of(st.none(), st.integers(0, 1_000)), st.integers(0, 900), st.sampled_from(["a", "b", None])),
        min_size=1,
        max_size=60,
    )
)
@settings(max_examples=100, deadline=None)
def test_the_gaps_always_add_up(requests):
    count = len(requests)
    free = served(count, cached=[cached for _, cached, _ in requests])
    log = table(
        count,
        cached=[said for said, _, _ in requests],
        times=[float(n * n) for n in range(count)],
        replicas=[replica for _, _, replica in requests],
    )
    told = gaps.told(log, rows(count), free, None, timed=True)
    if told is None:
        assert all(said is None for said, _, _ in requests)
        return
    total = sum((gap.tokens for gap in told.gaps), np.zeros(count, np.int64))
    expected = np.where(told.known, free.cached - told.cached, 0)
    assert total.tolist() == expected.tolist()
    assert all((gap.tokens >= 0).all() or gap.name.startswith("hits") for gap in told.gaps)


@pytest.mark.parametrize("missed", [0, 5])
def test_few_misses_tell_nothing(missed):
    values = np.arange(50, dtype=float)
    lost = values >= 50 - missed
    assert gaps._fit(values, lost, ~lost)[1] == 0


@example(2_195, [0.0] * 4)  # 0.9 of it ends in a half, which no rounding on the way may move
@given(st.integers(1, 3_000), st.lists(st.floats(0, 1), min_size=4, max_size=4))
def test_a_server_that_counts_otherwise_is_compared_by_its_own_count(prompt, shares):
    """The gap is a share of what the server counted, so that a rate never leaves 0 to 1."""
    free = served(4, cached=[0, 900, 900, 900])
    reported = [int(share * prompt) for share in shares]
    told = gaps.told(table(4, cached=reported, prompt=prompt), rows(4), free, None, timed=False)
    reached = told.cached + sum(gap.tokens for gap in told.gaps)
    assert reached.tolist() == [0, *[round(900 * prompt / 1_000)] * 3]
    assert (reached <= told.prompt).all()


def steps_of(result):
    return [one.steps for one in result.waterfalls if one.steps[0].kind == "reported"]


def meets(steps):
    """Tell whether the steps from what was reported lead to the rate of the log as it is, to a tenth of a point."""
    logged = next(step for step in steps if step.kind == "logged")
    last = steps[steps.index(logged) - 1]
    return last.hit_rate == pytest.approx(logged.hit_rate, abs=0.0006)


@pytest.mark.parametrize("log", sorted(path.name for path in SAMPLES.iterdir() if path.suffix in (".jsonl", ".log")))
def test_the_steps_lead_to_the_rate_of_the_log_in_every_format(log):
    try:
        result = pipeline.analyze([str(SAMPLES / log)])
    except PrefixlintError:
        return  # a log without prefix information is refused
    assert all(map(meets, steps_of(result)))


def test_the_steps_lead_to_the_rate_where_some_requests_report_nothing(tmp_path):
    path = tmp_path / "log.jsonl"
    lines = []
    for n in range(8):
        content = "You are the clerk of a small library by the sea. " * 20 + f"Question {n}, with words of its own."
        usage = {"prompt_tokens": 400 + 9 * n, "prompt_tokens_details": {"cached_tokens": 128}} if n % 3 else None
        body = {"model": "m", "messages": [{"role": "user", "content": content}]}
        lines.append({"request": body, "response": {"usage": usage}} if usage else {"request": body, "response": {}})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = steps_of(pipeline.analyze([str(path)]))
    assert found
    assert all(map(meets, found))
    assert "requests that are not compared" in {step.name for steps in found for step in steps}
