"""Applications that share a long beginning of their system texts: what parts two of them is nobody's cause."""

import json
import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from logcases import assistant, system, tools, user
from plantedtext import sentence, words

from prefixlint import pipeline
from prefixlint.whatif import all_tools


def lines(name, count):
    rng = random.Random(name)
    return "".join(f"- {sentence(rng)}\n" for _ in range(count))


HOUSE = lines("house", 40)


def talks(name, head, count, *, turns=1, **more):
    """Give conversations of one application: `head` is what follows the house's rules, by conversation and turn."""
    rng = random.Random(name)
    found = []
    for number in range(count):
        history, talk = [], []
        for turn in range(turns):
            history = [*history, user(f"{words(rng, 2)} Question {rng.randrange(10**6)}?")]
            rules = system(HOUSE + head(number, turn))
            talk.append({"model": "m", "messages": [rules, *history], **more})
            history = [*history, assistant(words(rng, 2))]
        found.append(talk)
    return found


def in_turns(*applications):
    """Let conversations of several applications begin one after the other."""
    return [body for together in zip(*applications, strict=True) for talk in together for body in talk]


def analysed(folder, bodies, **options):
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(body) + "\n" for body in bodies), "utf-8")
    told = []
    watch = pipeline.Watch(on_request=told.append)
    return pipeline.analyze([str(path)], pipeline.Options(**options), watch=watch), told


@pytest.mark.parametrize("where", ["ahead", "behind"])
def test_a_clock_of_one_application_costs_what_stands_behind_it_in_its_own_requests(where, tmp_path):
    own, other = lines("freight", 60), lines("dental", 30)

    def clocked(number, turn):
        now = f"Now: 10:{number:02}:{turn:02}\n"
        return now + own if where == "ahead" else own[:1000] + now + own[1000:]

    bodies = in_turns(talks("a", clocked, 20), talks("b", lambda *_: other, 20))
    result, requests = analysed(tmp_path, bodies, what_if=("all",))
    (finding,) = result.findings
    assert finding.rule.code == "PFX101"
    mended = in_turns(talks("a", lambda *_: own, 20), talks("b", lambda *_: other, 20))
    _, clean = analysed(tmp_path, mended, why=0, what_if=())
    saved = sum(c.engines["sglang"][0] - r.engines["sglang"][0] for c, r in zip(clean, requests, strict=True))
    assert saved > 2_000
    assert finding.tokens_lost["sglang"] == pytest.approx(saved, rel=0.05)


def test_two_applications_without_a_cause_have_none(tmp_path):
    bodies = in_turns(*(talks(name, lambda *_, name=name: lines(name, 30), 8, turns=3) for name in ("x", "y", "z")))
    assert analysed(tmp_path, bodies, what_if=())[0].findings == []


def test_what_is_found_for_a_question_in_one_application_is_moved_there_and_in_no_other(tmp_path):
    own, other = lines("freight", 20), lines("dental", 20)

    def found(number, turn):
        rng = random.Random(f"{number} {turn}")
        return f"{own}\nRelevant memories:\n" + "\n".join(f"* {sentence(rng)}" for _ in range(5))

    bodies = in_turns(talks("a", found, 10, turns=3), talks("b", lambda *_: other, 10, turns=3))
    path, out = tmp_path / "log.jsonl", tmp_path / "fixed.jsonl"
    path.write_text("".join(json.dumps(body) + "\n" for body in bodies), "utf-8")
    with out.open("wb") as file:
        watch = pipeline.Watch(on_fixed=file.write)
        pipeline.analyze([str(path)], pipeline.Options(what_if=("PFX202",)), watch=watch)
    fixed = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    heads = {"freight": set(), "dental": set()}
    for before, after in zip(bodies, fixed, strict=True):
        whose = "dental" if other in before["messages"][0]["content"] else "freight"
        heads[whose].add(after["messages"][0]["content"])
    assert heads["dental"] == {HOUSE + other}
    assert len(heads["freight"]) == 1
    assert heads["freight"].pop().startswith(HOUSE + own)


def test_each_application_declares_the_tools_that_it_ever_had_and_no_other_ones(tmp_path):
    every = all_tools._All()
    ours, theirs = tools(["fare", "pier", "crew"]), tools(["lamp", "seat"])
    for some in (ours[:2], theirs, ours, theirs[:1]):
        every.see(3, some)
    assert [sorted(known) for known in every.known.values()] == [["crew", "fare", "pier"], ["lamp", "seat"]]
    assert every.number(3, tools(["hull", "mast"])) is None
    assert every.number(4, ours) is None


def test_text_of_each_conversation_counts_as_often_as_siblings_can_show_it(tmp_path):
    """Turns of a conversation have the same text, however many they are."""
    own, other = lines("freight", 40), lines("dental", 40)

    def case(number, _):
        return f"Case file:\n{words(random.Random(number), 3)}\n\n{own}"

    bodies = in_turns(talks("a", case, 12), talks("b", lambda *_: other, 12, turns=25))
    result, _ = analysed(tmp_path, bodies, what_if=())
    assert [f.rule.code for f in result.findings] == ["PFX201"]
