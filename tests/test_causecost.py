"""Losses of causes add up: with what is unexplained they are what diverged, and nothing is counted twice."""

import json
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import planting
from planting import Planted

from prefixlint import causecost, pipeline
from prefixlint.model import MissCause
from prefixlint.reports import Look
from prefixlint.reports import text as report


def analyse(folder, planted, **options):
    path = planted.write(folder / "log.jsonl")
    return pipeline.analyze([str(path)], pipeline.Options(what_if=(), **options))


@pytest.mark.parametrize("kind", [("PFX101", "PFX402"), ("PFX304+PFX101", "PFX401"), ("PFX503",)])
def test_each_request_belongs_to_one_cause_at_most(kind, tmp_path):
    result = analyse(tmp_path, Planted(6, kind, 150))
    ends = Counter(s.row for f in result.findings for s in f.sightings if s.first)
    assert max(ends.values()) == 1
    assert set(causecost.pairs(result.findings)) == set(ends)


@pytest.mark.parametrize("kind", [("PFX101", "PFX402"), ("PFX304+PFX101", "PFX401")])
def test_losses_and_what_is_unexplained_are_what_diverged(kind, tmp_path):
    result = analyse(tmp_path, Planted(6, kind, 150))
    text = report.analysis(result, Look(width=300))
    for engine in result.engines:
        known = sum(f.tokens_lost[engine.engine] for f in result.findings)
        diverged = engine.misses[MissCause.DIVERGED]
        assert 0.9 * diverged <= known <= diverged
        line = next(line for line in text.splitlines() if "unexplained" in line and engine.engine in line)
        numbers = [int(n.replace(",", "")) for n in re.findall(r"\d[\d,]*(?= )", line.partition(": ")[2])]
        assert numbers == [known, diverged - known, diverged]


@pytest.mark.parametrize("shape", ["message", "message and system text", "prompt"])
def test_a_value_in_the_text_of_a_single_message_costs_what_stands_behind_it(shape, tmp_path):
    rules = " ".join(f"Rule {n}: weigh crate {n} twice, and note the road that it takes." for n in range(40))
    rows: list[dict[str, object]] = []
    for n in range(12):
        text = f"It is 2026-03-0{1 + n % 9} 0{n % 9}:{10 + 3 * n}:07. {rules} Question: how heavy is crate {n * 7919}?"
        head = [{"role": "system", "content": "Be brief."}] if "system" in shape else []
        messages = [*head, {"role": "user", "content": text}]
        rows.append({"model": "m", "prompt": text} if shape == "prompt" else {"model": "m", "messages": messages})
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    result = pipeline.analyze([str(path)], pipeline.Options(what_if=()))
    (finding,) = result.findings
    assert finding.rule.code == "PFX101"
    prompt = result.engines[0].prompt_tokens
    assert 0.8 < finding.tokens_lost["sglang"] / prompt < 1


def test_what_another_namespace_holds_is_the_loss_of_a_changing_salt(monkeypatch, tmp_path):
    monkeypatch.setattr(planting, "CAUSES", {"PFX503": planting.CAUSES["PFX503"][1:]})
    result = analyse(tmp_path, Planted(6, ("PFX503",), 150))
    (finding,) = result.findings
    (engine,) = [e for e in result.engines if e.engine == "sglang"]
    assert finding.tokens_lost["sglang"] > engine.misses.get(MissCause.DIVERGED, 0)
    assert "behind a difference or in another namespace" in report.analysis(result, Look(width=300))


def test_a_warm_up_is_left_out_of_losses(tmp_path):
    planted = Planted(6, ("PFX101",), 150)
    whole, later = (analyse(tmp_path, planted, warmup=n) for n in (0, 100))
    lost = [result.findings[0].tokens_lost["sglang"] for result in (whole, later)]
    diverged = next(e for e in later.engines if e.engine == "sglang").misses[MissCause.DIVERGED]
    assert 0 < lost[1] <= diverged < lost[0]


def test_tenants_that_take_turns_lose_what_each_alone_would(tmp_path):
    """What another tenant sent in between serves nobody else: a cause costs what it does where tenants follow."""
    rules = " ".join(f"rule{n}" for n in range(400))
    lost = []
    for order in (lambda n: n % 3, lambda n: n // 8):
        log = tmp_path / "log.jsonl"
        bodies = [
            {
                "model": "m",
                "cache_salt": f"tenant{order(n)}",
                "messages": [
                    {"role": "system", "content": f"Now: 2026-03-03T09:{n:02}:00Z\n{rules}"},
                    {"role": "user", "content": f"question {n * 7919}"},
                ],
            }
            for n in range(24)
        ]
        log.write_text("".join(json.dumps(body) + "\n" for body in bodies))
        result = pipeline.analyze([str(log)], pipeline.Options(engines=("sglang",)))
        (finding,) = result.findings
        assert finding.rule.code == "PFX101"
        lost.append(finding.tokens_lost["sglang"])
        assert lost[-1] > 0.8 * result.engines[0].prompt_tokens
    assert lost[0] == pytest.approx(lost[1], rel=0.01)


@pytest.mark.parametrize("ahead", [True, False])
def test_a_fleeting_block_costs_what_stands_behind_it_and_not_the_lines_that_the_next_one_has_again(ahead, tmp_path):
    """The newest message has a reminder, and the next turn is sent without it and with one of its own."""

    def bodies(keeps):
        for talk in range(4):
            history = []
            for turn in range(4):
                text = f"Question {turn} of conversation {talk}: which rule is it about, and what does it say of that?"
                block = (
                    f"<system-reminder>\nLeft: {turn} items of {talk} are open.\nFile: a{turn}.py\n</system-reminder>"
                )
                history.append([text, block])
                said = [
                    "\n\n".join((words, note)[:: -1 if ahead else 1] if keeps or last else (words,))
                    for n, (words, note) in enumerate(history)
                    for last in [n == turn]
                ]
                answers = [f"Answer {n} to conversation {talk}, which is as long as it has to be." for n in range(turn)]
                messages = [{"role": "user", "content": said[0]}]
                for answer, question in zip(answers, said[1:], strict=True):
                    messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": question}]
                yield {"model": "m", "messages": [{"role": "system", "content": "Rules: " * 200}, *messages]}

    result, counts = planting.replayed(tmp_path / "log.jsonl", list(bodies(keeps=False)))
    _, stored = planting.replayed(tmp_path / "stored.jsonl", list(bodies(keeps=True)), why=0)
    lost = sum(planting._given_back(count, whole) for count, whole in zip(counts, stored, strict=True))
    (finding,) = result.findings
    assert (finding.rule.code, finding.tokens_lost["sglang"]) == ("PFX404", pytest.approx(lost, abs=4))
