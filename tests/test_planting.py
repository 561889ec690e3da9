"""Planted causes are found, no others are, and their cost is what the log without them saves."""

import itertools
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import planting
from plantedcauses import CAUSES
from planting import Planted, replayed, true_losses, true_shares

from prefixlint import logrules, logs, rulebook

QWEN = Path(__file__).parents[1] / "fixtures" / "templates" / "qwen3.jinja"
NEAR, FEW = 0.05, 60
"""What a measured loss may differ from the true one: a share, or so many tokens where the loss is nothing."""

WAYS = [(code, number) for code, ways in CAUSES.items() for number in range(len(ways))]
TOGETHER = [tuple(WAYS[start :: len(WAYS) // 5]) for start in range(len(WAYS) // 5)]
"""Every way of every cause, some five in a log: neighbours in the list are ways of one cause."""


def found(planted, folder):
    path = planted.write(folder / "planted.jsonl")
    return sorted(f.rule.code for f in logrules.check(logs.read([str(path)]), rulebook.rules()))


def right(planted, folder, **options):
    """Check that exactly the planted causes are found, each once, and that each costs what it truly costs."""
    result, counts = replayed(folder / "log.jsonl", planted.bodies(), **options)
    assert sorted(f.rule.code for f in result.findings) == sorted(planted.codes)
    truth = true_losses(planted, counts, folder, **options)
    assert truth[None] == 0
    for finding in result.findings:
        assert finding.tokens_lost["sglang"] == pytest.approx(truth[finding.rule.code], rel=NEAR, abs=FEW)


@pytest.mark.parametrize("ways", TOGETHER, ids=lambda ways: "+".join(f"{code}.{n}" for code, n in ways))
def test_each_way_of_each_cause_is_found_and_costs_what_the_log_without_it_saves(ways, monkeypatch, tmp_path):
    assert len({code for code, _ in ways}) == len(ways)
    monkeypatch.setattr(planting, "CAUSES", {code: [CAUSES[code][number]] for code, number in ways})
    right(Planted(4, tuple(code for code, _ in ways), 70 * len(ways), clean=1), tmp_path)


@pytest.mark.parametrize("codes", [("PFX101", "PFX302", "PFX402", "PFX408"), ("PFX303", "PFX304", "PFX404", "PFX403")])
def test_losses_hold_for_another_chat_template(codes, tmp_path):
    right(Planted(5, codes, 240, clean=1), tmp_path, chat_template=str(QWEN))


@pytest.mark.parametrize("seed", range(2))
def test_some_causes_of_random_kinds_in_one_file(seed, tmp_path):
    right(planting.planted(seed, 300), tmp_path)


PARTLY = [
    (("PFX101", "PFX202", "PFX304", "PFX404"), {"begins": 120}),
    (("PFX101", "PFX202", "PFX304", "PFX404"), {"spared": 3}),
    (("PFX105", "PFX110", "PFX302", "PFX402"), {"begins": 120}),
    (("PFX105", "PFX110", "PFX303", "PFX402"), {"spared": 3}),
]


@pytest.mark.parametrize(("codes", "where"), PARTLY, ids="+".join)
def test_causes_of_some_requests_are_found_and_cost_what_they_cost(codes, where, tmp_path):
    """They begin late, or spare some conversations."""
    right(Planted(11, codes, 260, clean=1, **where), tmp_path)


PAIRS = [
    ("PFX304", "PFX101"),  # of five orders of tools the cache soon holds all, and prefixes end at the clock
    ("PFX104", "PFX402"),
    ("PFX106", "PFX303"),
    ("PFX302", "PFX107"),
    ("PFX302", "PFX202"),
    ("PFX304", "PFX107"),
]


@pytest.mark.parametrize("pair", PAIRS, ids="+".join)
def test_of_two_causes_the_one_at_which_the_served_prefix_ends_takes_the_loss_of_a_request(pair, tmp_path):
    planted = Planted(2, ("+".join(pair),), 120, clean=1)
    result, counts = replayed(tmp_path / "log.jsonl", planted.bodies())
    lost = {f.rule.code: f.tokens_lost["sglang"] for f in result.findings}
    assert set(lost) == set(pair)
    truth = true_shares(planted, counts, tmp_path)
    for code in pair:
        assert lost[code] == pytest.approx(truth[code], rel=NEAR, abs=FEW), code


MEETING = [
    (9104, ("PFX401", "PFX203")),  # an old result is cleared, and behind it a block moves
    (6, ("PFX203", "PFX303")),  # calls are written anew before the block that moves
]


@pytest.mark.parametrize(("seed", "codes"), MEETING, ids=lambda v: "+".join(v) if isinstance(v, tuple) else str(v))
def test_causes_that_meet_in_one_request_are_all_found_and_cost_no_more_than_they_do(seed, codes, tmp_path):
    planted = Planted(seed, ("+".join(codes),), 120, clean=1)
    result, counts = replayed(tmp_path / "log.jsonl", planted.bodies())
    assert sorted(f.rule.code for f in result.findings) == sorted(codes)
    truth = true_losses(planted, counts, tmp_path)
    assert sum(f.tokens_lost["sglang"] for f in result.findings) == pytest.approx(truth["+".join(codes)], rel=NEAR)


@pytest.mark.parametrize("seed", range(3))
def test_without_causes_nothing_is_found(seed, tmp_path):
    assert found(planting.planted(seed, 300).mended(), tmp_path) == []


def test_the_generator_gives_the_same_log_again():
    log, again = (planting.planted(5, 60).bodies() for _ in range(2))
    assert log == again
    assert len(log) == 60
    assert all(a is not b for a, b in itertools.pairwise(log))
