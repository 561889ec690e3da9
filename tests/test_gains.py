"""What is replayed to tell what a fix gives: no more than what changes, and by default no more than a log is worth."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

import planting

from prefixlint import accounts, gains, logs, pipeline, resimulate
from prefixlint.model import Request, Text
from prefixlint.table import Table
from prefixlint.whatif import _rewriter

KINDS = ("PFX101+PFX304", "PFX105", "PFX401+PFX104")


def replayed_requests(monkeypatch):
    """Note how many requests each replay takes in."""
    sizes = []
    arrivals = accounts.arrivals

    def noted(table, encoder, rows):
        sizes.append(rows.size)
        return arrivals(table, encoder, rows)

    monkeypatch.setattr(accounts, "arrivals", noted)
    return sizes


def analysed(path, monkeypatch, *, whole):
    """Analyse a log; `whole` replays all requests for each trial."""
    replayed = replayed_requests(monkeypatch)
    if whole:
        monkeypatch.setattr(resimulate, "_concerned", lambda known, encoder, before, after, changed: changed | True)
    result = pipeline.analyze([str(path)], pipeline.Options(what_if=("all",)))
    monkeypatch.undo()
    return result, replayed


@pytest.mark.parametrize("seed", [3, 8])
def test_a_trial_of_the_families_that_change_gives_what_one_of_the_whole_log_gives(seed, tmp_path, monkeypatch):
    path = planting.Planted(seed, KINDS, 260).write(tmp_path / "log.jsonl")
    (some, few), (every, all_of_them) = (analysed(path, monkeypatch, whole=whole) for whole in (False, True))
    assert sum(few) < sum(all_of_them)
    assert len(some.what_if) > 10
    assert some.what_if == every.what_if
    assert some.waterfalls == every.waterfalls


def test_families_find_what_they_found_in_others(tmp_path, monkeypatch):
    """All families share one long system text here, which only the first request of the log has to compute."""
    bodies = planting.Planted(4, KINDS, 120).bodies()
    shared = "\n".join(f"- Rule {n} of the house holds for all that is said and done here." for n in range(400))
    for body in bodies:
        body["messages"][0]["content"] = f"{shared}\n{body['messages'][0]['content']}"
        body["tools"] = []
    path = tmp_path / "log.jsonl"
    planting.replayed(path, bodies)
    (some, _), (every, _) = (analysed(path, monkeypatch, whole=whole) for whole in (False, True))
    assert some.what_if == every.what_if


def test_with_limits_every_request_is_replayed(tmp_path, monkeypatch):
    path = planting.Planted(5, KINDS[:2], 80).write(tmp_path / "log.jsonl")
    limited = pipeline.Options(what_if=("all",), limits=pipeline.Limits(capacity=20_000))
    sizes = replayed_requests(monkeypatch)
    pipeline.analyze([str(path)], limited)
    assert len(sizes) > 1
    assert set(sizes) == {80}


def tried(result):
    return {code for row in result.what_if for code in row.rules}


def note(result):
    return [n.message for n in result.notes if n.slug == "what-if-many"]


def test_by_default_the_most_costly_causes_are_tried_with_as_many_prompts_as_the_log_has(tmp_path, monkeypatch):
    path = planting.Planted(6, ("PFX101+PFX304",), 120, clean=1).write(tmp_path / "log.jsonl")
    every = pipeline.analyze([str(path)])
    assert tried(every) == {"PFX101", "PFX304"}  # no more than what is always tried
    assert note(every) == []
    monkeypatch.setattr(gains, "FEW", 1)
    few = pipeline.analyze([str(path)])
    costly = max(few.findings, key=lambda f: max(f.tokens_lost.values())).rule.code
    assert tried(few) == {costly}
    left = ({"PFX101", "PFX304"} - {costly}).pop()
    assert note(few) == [
        f"{left}: fixes not tried, since they meet others in many requests; --what-if all takes longer"
    ]
    asked = pipeline.analyze([str(path)], pipeline.Options(what_if=("all",)))
    assert tried(asked) == {"PFX101", "PFX304"}
    assert note(asked) == []


@pytest.mark.parametrize(("fixes", "choices"), [(1, 1), (2, 3), (3, 6), (4, 10), (5, 9), (9, 17)])
def test_the_choices_that_are_counted_are_those_that_are_tried(fixes, choices):
    """Fixes of one family, each giving more than the one after it, as `Study.run` tries them."""
    families = {0: frozenset(range(fixes))}
    seen = {layer[0] for layer in gains._layers(families)}
    for done in range(1, fixes):
        left = range(done, fixes) if fixes <= gains._STEPWISE else [done]
        seen |= {frozenset(range(done)) | {n} for n in left}
    assert gains._choices(fixes) == len(seen) == choices


def test_of_conversations_only_messages_are_kept(tmp_path):
    """Of the turns that later ones are compared with no body is kept, and of what was sent only what is not logged."""
    path = planting.Planted(7, ("PFX101",), 60, clean=0).write(tmp_path / "log.jsonl")
    requests = list(logs.read([str(path)], index=logs.new_index()))
    material = []
    watch = pipeline.Watch(on_account=lambda found, account: material.append((found, account)))
    pipeline.analyze([str(path)], pipeline.Options(what_if=()), watch=watch)
    ((found, account),) = material
    study = gains.Study(found, account, None, None, found.findings)
    fixes, _ = study.plan(lambda _finding: True)
    choice = frozenset(range(len(fixes)))
    rewriter = _rewriter.Rewriter(fixes, [choice])
    for row, request in enumerate(requests):
        assert [body is not request.body for _, body in rewriter.rewrite(request, row, 0, [choice])] == [True]
    views = [track.view for track in rewriter._tracks._tracks.values()]
    assert any(len(view.messages) > 3 for view in views)
    assert all(view.body is None for view in views)
    talks = rewriter._made[choice].talks.values()
    assert all(len(talk.own) < talk.sent for talk in talks if talk.sent > 3)


def test_rewritten_prompts_stand_where_logged_ones_stood():
    own, others = Table(), Table()
    for number in range(5):
        own.add_prompt(Request("x", number + 1, Text("a"), "f"), cut=False)
        own.family.append(number % 2)
        own.set_tokens([10 * number + part for part in range(number)], [number])
    for number in range(3):
        others.add_prompt(Request("x", number + 1, Text("b"), "f", namespace=("salt=s",)), cut=True)
        others.set_tokens([100 + number] * (3 - number), [7, 8][: number % 2])
    variants = {frozenset({0}): np.array([-1, 2, -1, 0, -1], np.int32)}
    merged = gains._merged(own, others, gains._held(own, variants, {0: frozenset(), 1: frozenset({0})}))
    expected = [others if row in (1, 3) else own for row in range(5)]
    numbers = [0, 2, 2, 0, 4]
    for row, (table, number) in enumerate(zip(expected, numbers, strict=True)):
        assert merged.prompt_segments(row).tolist() == table.prompt_segments(number).tolist()
        assert merged.output_segments(row).tolist() == table.output_segments(number).tolist()
        assert bool(merged.cut[row]) == (table is others)
        assert merged.namespaces.values[merged.namespace[row]] == (None, *(("salt=s",) if table is others else ()))
    assert len(merged.ends) == len(merged.output_ends) == 5
    assert gains._merged(own, others, gains._held(own, {}, {0: frozenset(), 1: frozenset()})).segments == own.segments


def spoken(number, dated):
    """Give the requests of a desk whose user messages all get the time of each request, if `dated`."""
    rules = "\n".join(f"- Rule {n} of the desk holds for all that is said and done here." for n in range(12))
    for talk in range(number):
        noun = planting.NOUNS[talk]
        history = [
            {"role": role, "content": f"{role} {n} on the {noun} desk and what was written of it there. " * 4}
            for n, role in enumerate(["user", "assistant", "tool", "assistant", "user", "assistant", "user"])
        ]
        for turn, length in enumerate((1, 3, 5, 7)):
            clock = f"[10:{talk:02}:{7 * turn:02}] " if dated else ""
            messages = [{**m, "content": clock * (m["role"] == "user") + m["content"]} for m in history[:length]]
            yield {"model": "m", "messages": [{"role": "system", "content": rules}, *messages]}


def test_stamps_are_mended_on_every_message_that_gets_them(tmp_path):
    """The first message's stamp alone looks like a clock in a prompt; the fix of the one cause mends it as well."""
    result, counts = planting.replayed(tmp_path / "log.jsonl", spoken(9, dated=True), what_if=("all",))
    _, without = planting.replayed(tmp_path / "without.jsonl", spoken(9, dated=False), what_if=())
    assert [finding.rule.code for finding in result.findings] == ["PFX401"]
    (fixed,) = {what.hit_rate for what in result.what_if if what.engine == "sglang" and what.family is None}
    rates = [sum(cached for _, cached in found) / sum(prompt for prompt, _ in found) for found in (counts, without)]
    assert rates[0] + 0.1 < fixed == pytest.approx(rates[1], abs=0.02)
