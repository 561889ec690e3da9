"""What fixes give: nothing is deleted, the numbers are those of the log without the cause, and the log can be written."""

import json
import re
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

import plantedcauses
import planting
from logcases import RULES, conversation, tools

from prefixlint import logs, pipeline, whatif
from prefixlint.whatif import _edit, all_tools
from prefixlint.whatif._slots import Template, Templates, Wanted

WORDS = re.compile(r"\w+")


def said_otherwise(code, word, after):
    """Tell whether a word is an id of a call, a signature of an address, or stands for what a history holds again."""
    if code == "PFX401":
        return word in {"old", "tool", "result", "cleared"} or any(w.startswith(word) for w in words(after))
    return (code == "PFX405" and word.startswith("call_")) or (
        code == "PFX409" and re.fullmatch(r"[0-9a-f]{16}|20310101T\d{6}Z", word) is not None
    )


NO_REWRITE = {"PFX307"}
WAYS = [
    (code, number)
    for code, ways in sorted(plantedcauses.CAUSES.items())
    for number in range(len(ways))
    if code not in NO_REWRITE
]
ENOUGH = 9  # requests of a family that show its cause
UNCHANGED = {("PFX302", 1)}
"""Ways that change no prompt: JSON whose keys the template puts in order."""


@pytest.fixture(autouse=True)
def _first_ways(monkeypatch):
    """Plant each cause in the way that comes first, unless a test says otherwise."""
    monkeypatch.setattr(planting, "CAUSES", {code: plantedcauses.CAUSES[code][:1] for code, n in WAYS if n == 0})


def words(body):
    return {
        word for _, text in _edit.strings([body.get("tools"), body.get("messages")]) for word in WORDS.findall(text)
    }


def fixed(path, out, **options):
    with out.open("wb") as file:
        result = pipeline.analyze([str(path)], pipeline.Options(**options), watch=pipeline.Watch(on_fixed=file.write))
    return result, [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]


def rates(result):
    return {e.engine: e.hit_rate for e in result.engines}


def total(result, engine, *, rule=None):
    rows = [w for w in result.what_if if w.engine == engine and w.family is None]
    if rule is not None:
        return next(w for w in rows if not w.cumulative and w.rules == (rule,))
    return [w for w in rows if w.cumulative][-1]


@pytest.mark.parametrize("number", range(5))
def test_nothing_that_the_model_saw_is_deleted(number, tmp_path, monkeypatch):
    """All causes in one log, each in a family of its own and in one of its ways."""
    codes = tuple(code for code, n in WAYS if n == number)
    monkeypatch.setattr(planting, "CAUSES", {code: plantedcauses.CAUSES[code][number:][:1] for code in codes})
    planted = planting.Planted(5, codes, max(60, 20 * len(codes)), clean=0)
    bodies, owners = planted.bodies(), planted.owners()
    _, rewritten = fixed(planted.write(tmp_path / "log.jsonl"), tmp_path / "out.jsonl", why=float("inf"))
    assert len(rewritten) == len(bodies)
    changed = Counter()
    for code, before, after in zip(owners, bodies, rewritten, strict=True):
        assert {w for w in words(before) - words(after) if not said_otherwise(code, w, after)} == set(), code
        assert len(after["messages"]) >= len(before["messages"])
        changed[code] += before != after
    for code, count in Counter(owners).items():
        if count >= ENOUGH:
            assert (changed[code] > 1) == ((code, number) not in UNCHANGED), code
    assert sum(count >= ENOUGH for count in Counter(owners).values()) >= 0.7 * len(codes)


@pytest.mark.parametrize("code", ["PFX101", "PFX202", "PFX302", "PFX306", "PFX402", "PFX407"])
def test_a_fix_gives_what_the_log_without_the_cause_has(code, tmp_path):
    planted = planting.Planted(21, (code, "PFX101" if code != "PFX101" else "PFX304"), 300)
    result = pipeline.analyze([str(planted.write(tmp_path / "log.jsonl"))])
    clean = planted.without(code).write(tmp_path / "clean.jsonl")
    without = rates(pipeline.analyze([str(clean)], pipeline.Options(why=0)))
    for engine, rate in without.items():
        assert total(result, engine, rule=code).hit_rate == pytest.approx(rate, abs=0.005)


@pytest.mark.parametrize(("code", "way"), [("PFX306", 2), ("PFX404", 2)], ids=["list in a tool", "message behind"])
def test_a_fix_tried_alone_gives_what_the_log_without_the_cause_has(code, way, tmp_path, monkeypatch):
    monkeypatch.setattr(planting, "CAUSES", {code: [plantedcauses.CAUSES[code][way]]})
    planted = planting.Planted(21, (code,), 150)
    result = pipeline.analyze([str(planted.write(tmp_path / "log.jsonl"))], pipeline.Options(what_if=(code,)))
    clean = planted.without(code).write(tmp_path / "clean.jsonl")
    without = rates(pipeline.analyze([str(clean)], pipeline.Options(why=0)))
    for engine, rate in without.items():
        assert total(result, engine, rule=code).hit_rate == pytest.approx(rate, abs=0.005)


def test_text_that_is_moved_takes_neither_its_neighbours_nor_what_other_causes_are_about(tmp_path, monkeypatch):
    """Memories stand at the end of the system text, settings with changing order in the middle of it."""
    monkeypatch.setattr(planting, "CAUSES", {c: [plantedcauses.CAUSES[c][2]] for c in ("PFX202", "PFX302")})
    planted = planting.Planted(21, ("PFX202+PFX302",), 80, clean=0)
    path = planted.write(tmp_path / "log.jsonl")
    _, rewritten = fixed(path, tmp_path / "out.jsonl", what_if=("PFX202",))
    for before, after in zip(planted.bodies(), rewritten, strict=True):
        kept, told = before["messages"][0]["content"].split("\n\nRelevant memories:\n")
        assert after["messages"][0]["content"] == f"{kept}\n\nRelevant memories:\n(stated below)"
        assert told in after["messages"][-1]["content"]


def test_each_of_two_fixes_undoes_its_own_changes_of_a_history(tmp_path):
    """Results are cleared and a block moves in the same requests: mending one leaves the other as it is."""
    planted = planting.Planted(9104, ("PFX401+PFX203",), 120, clean=1)
    result = pipeline.analyze([str(planted.write(tmp_path / "log.jsonl"))], pipeline.Options(what_if=("all",)))
    for code in ("PFX401", "PFX203"):
        clean = planted.without(code).write(tmp_path / "clean.jsonl")
        without = rates(pipeline.analyze([str(clean)], pipeline.Options(why=0)))
        for engine, rate in without.items():
            assert total(result, engine, rule=code).hit_rate == pytest.approx(rate, abs=0.001)


@pytest.mark.parametrize("seed", range(2))
def test_the_written_log_has_the_rate_that_was_told_and_no_cause_any_more(seed, tmp_path):
    path = planting.planted(seed, 250, least=2).write(tmp_path / "log.jsonl")
    result, _ = fixed(path, tmp_path / "out.jsonl")
    again = pipeline.analyze([str(tmp_path / "out.jsonl")])
    for engine in again.engines:
        told = total(result, engine.engine)
        assert (told.prompt_tokens, told.cached_tokens) == (engine.prompt_tokens, engine.cached_tokens)
    assert [f.rule.code for f in again.findings] == []


def test_only_the_rules_that_are_named_are_tried(tmp_path):
    path = planting.Planted(3, ("PFX304", "PFX110"), 200).write(tmp_path / "log.jsonl")
    result, _ = fixed(path, tmp_path / "out.jsonl", what_if=("tool-order-unstable",))
    assert {rule for w in result.what_if for rule in w.rules} == {"PFX304"}
    again = pipeline.analyze([str(tmp_path / "out.jsonl")])
    assert [f.rule.code for f in again.findings] == ["PFX110"]
    assert rates(again)["sglang"] == total(result, "sglang").hit_rate


def test_nothing_is_tried_where_nothing_is_wanted_or_found(tmp_path):
    path = planting.Planted(3, ("PFX304",), 80).write(tmp_path / "log.jsonl")
    assert pipeline.analyze([str(path)], pipeline.Options(what_if=())).what_if == ()
    clean = planting.Planted(3, (), 80).write(tmp_path / "clean.jsonl")
    result, rewritten = fixed(clean, tmp_path / "out.jsonl")
    assert result.what_if == ()
    assert rewritten == planting.Planted(3, (), 80).bodies()


@pytest.mark.parametrize("kind", ["PFX303+PFX403+PFX408", "PFX201+PFX407", "PFX101+PFX402"])
def test_causes_of_the_same_requests_are_measured_apart_and_together(kind, tmp_path):
    planted = planting.Planted(31, (kind,), 250)
    result = pipeline.analyze([str(planted.write(tmp_path / "log.jsonl"))])
    for code in kind.split("+"):
        clean = pipeline.analyze([str(planted.without(code).write(tmp_path / "clean.jsonl"))], pipeline.Options(why=0))
        assert total(result, "sglang", rule=code).hit_rate == pytest.approx(rates(clean)["sglang"], abs=0.006)
    clean = pipeline.analyze([str(planted.mended().write(tmp_path / "clean.jsonl"))], pipeline.Options(why=0))
    assert total(result, "sglang").hit_rate == pytest.approx(rates(clean)["sglang"], abs=0.005)


def two_causes(bodies):
    """Put a clock and an unstable order of tools into the same requests: each hides the other."""
    import random

    rng = random.Random(1)
    for number, body in enumerate(bodies):
        body["messages"][0]["content"] = (
            f"Now: 09:{number // 60:02}:{number % 60:02}\n" + body["messages"][0]["content"]
        )
        rng.shuffle(body["tools"])
        yield body


def write(path, bodies):
    path.write_text("".join(json.dumps(body) + "\n" for body in bodies), encoding="utf-8")
    return path


def test_causes_that_hide_each_other_gain_together(tmp_path):
    clean = write(tmp_path / "clean.jsonl", planting.Planted(4, (), 150).bodies())
    result, rewritten = fixed(
        write(tmp_path / "log.jsonl", two_causes(planting.Planted(4, (), 150).bodies())), tmp_path / "o"
    )
    base = rates(result)["sglang"]
    steps = [w for w in result.what_if if w.engine == "sglang" and w.family is None and w.cumulative]
    assert [w.rules[0] for w in steps] in (["PFX304", "PFX101"], ["PFX101", "PFX304"])
    assert steps[0].hit_rate - base < 0.1 < steps[1].hit_rate - base
    assert steps[1].hit_rate == pytest.approx(rates(pipeline.analyze([str(clean)]))["sglang"], abs=0.01)
    assert all("Now: 09:" in str(body["messages"][-1]) or "Now" not in str(body) for body in rewritten)


def test_the_order_is_the_one_that_gains_most(tmp_path):
    result = pipeline.analyze(
        [str(planting.Planted(8, ("PFX402", "PFX306", "PFX303"), 400).write(tmp_path / "log.jsonl"))]
    )
    rows = [w for w in result.what_if if w.engine == "sglang" and w.family is None]
    alone = {w.rules: w.cached_tokens / w.prompt_tokens for w in rows if not w.cumulative}
    order = [w.rules for w in rows if w.cumulative]
    gains = [w.cached_tokens for w in rows if w.cumulative]
    assert gains == sorted(gains)
    assert order[0] == max(alone, key=alone.get)


def test_families_and_what_stays_lost(tmp_path):
    result = pipeline.analyze([str(planting.Planted(8, ("PFX101",), 200).write(tmp_path / "log.jsonl"))])
    (family,) = {w.family for w in result.what_if if w.family is not None}
    assert family in {f.id for f in result.families}
    for one in result.waterfalls:
        kinds = [step.kind for step in one.steps]
        assert kinds[0] == "logged"
        assert kinds[-1] == "ceiling"
        assert kinds.count("fix") == (one.family in (None, family))
        assert one.steps[-1].hit_rate >= one.steps[-2].hit_rate - 1e-9
        assert one.lost_tokens < 2_000
    whole = next(one for one in result.waterfalls if one.family is None and one.engine == "sglang")
    assert whole.steps[0].hit_rate == rates(result)["sglang"]


def test_a_cause_that_no_rewrite_cures_is_named_with_a_reason(tmp_path):
    planted = planting.Planted(2, ("PFX307",), 80)
    planting.CAUSES["PFX307"] = plantedcauses.CAUSES["PFX307"]
    result = pipeline.analyze([str(planted.write(tmp_path / "log.jsonl"))])
    assert {f.rule.code for f in result.findings} == {"PFX307"}
    assert [(one.rules, "schema" in one.reason) for one in result.not_tried] == [(("PFX307",), True)]
    assert result.what_if == ()


def test_a_setting_is_that_of_the_first_turn(tmp_path):
    bodies = planting.Planted(2, (), 60, clean=1).bodies()
    for number, body in enumerate(bodies):
        if number % 3:
            body["reasoning_effort"] = ("low", "high")[number % 2]
    _, rewritten = fixed(write(tmp_path / "log.jsonl", bodies), tmp_path / "out.jsonl")
    efforts = {}
    for body in rewritten:
        opening = body["messages"][1]["content"]
        assert body.get("reasoning_effort") == efforts.setdefault(opening, body.get("reasoning_effort"))
    assert len(efforts) > 5
    assert {None, "low", "high"} >= set(efforts.values())


def test_kinds_are_files_and_have_their_own_rules():
    found = whatif.kinds()
    assert [kind.ORDER for kind in found] == sorted(kind.ORDER for kind in found)
    assert len(found) >= 6
    assert all(kind.CODES and kind.__doc__ for kind in found)


TEXT = st.text(alphabet="ab \n0123.:-éß", max_size=30)


@given(st.lists(TEXT, min_size=2, max_size=5), st.lists(TEXT, min_size=1, max_size=4))
@settings(max_examples=150, deadline=None)
def test_a_text_is_taken_apart_without_loss(constants, values):
    texts = ["".join(s + v for s, v in zip(constants, values * 5, strict=False)) for values in ([v] for v in values)]
    template = Template(texts[0])
    for text in texts[1:]:
        template.learn(text, Wanted(frozenset({"text", "counter", "clock", "retrieval", "environment"})))
    for text in texts:
        filled = template.fill(text)
        if filled is not None:
            pieces = list(filled.pieces)
            again = pieces[0] + "".join(v + p for (_, v), p in zip(filled.values, pieces[1:], strict=True))
            assert again == text


def test_two_causes_in_one_line_are_told_apart():
    texts = [
        f"At 10:{n:02}:00 for request {n:08x}-aaaa-4bbb-8ccc-{n:012x}.\nRules follow, the same for all."
        for n in range(9)
    ]
    clock = Templates(Wanted(frozenset({"clock"})))
    clock.learn([(texts[0], text) for text in texts[1:]])
    template, filled = clock.fill(texts[5])
    assert [value for _, value in filled.values] == ["10:05:00"]
    assert "00000005-aaaa" in "".join(filled.pieces)
    assert template.slots == 1


def test_a_value_is_told_again_only_when_it_changes(tmp_path):
    def turns():
        history = []
        for number in range(4):
            history.append({"role": "user", "content": f"question {number} about the harbour"})
            where = "/srv/one/app" if number < 2 else "/srv/two/app"
            head = f"Working directory: {where}\n" + "Always answer in full sentences, and name your sources.\n" * 9
            yield {"model": "m", "messages": [{"role": "system", "content": head}, *history]}
            history.append({"role": "assistant", "content": f"answer {number}, a whole sentence of it"})

    bodies = [body for _ in range(3) for body in turns()]
    for number, body in enumerate(bodies):
        for message in body["messages"][1:]:
            message["content"] += f" (case {number // 4})"
    _, rewritten = fixed(write(tmp_path / "log.jsonl", bodies), tmp_path / "out.jsonl", what_if=("PFX106",))
    last = [m["content"] for m in rewritten[3]["messages"][1:]]
    assert ["/srv/one/app" in text for text in last] == [True, False, False, False, False, False, False]
    assert ["/srv/two/app" in text for text in last] == [False, False, False, False, True, False, False]
    heads = {body["messages"][0]["content"] for body in rewritten}
    assert len(heads) == 1


def test_a_corrected_message_stands_behind_the_stored_one(tmp_path):
    def turns(case):
        history = [{"role": "system", "content": "Answer in full sentences.\n" * 20}]
        for number, text in enumerate(("a parcel goes to Riga", "it weighs four kilos", "when does it arrive")):
            history.append({"role": "user", "content": f"case {case}: {text}, says the sender of number {case * 7}"})
            if number == 2:
                history[3] = {"role": "user", "content": history[3]["content"].replace("four", "seven")}
            yield list(history)
            history.append({"role": "assistant", "content": f"noted for case {case}, part {number} of three parts"})

    bodies = [{"model": "m", "messages": messages} for case in range(6) for messages in turns(case)]
    result, rewritten = fixed(write(tmp_path / "log.jsonl", bodies), tmp_path / "out.jsonl")
    assert {f.rule.code for f in result.findings} == {"PFX401"}
    for before, after in zip(rewritten[1::3], rewritten[2::3], strict=True):
        assert after["messages"][3] == before["messages"][3]
        assert "seven" in after["messages"][-1]["content"]


def test_a_hash_trace_has_a_waterfall_and_no_fixes(tmp_path):
    rows = [{"timestamp": n, "input_length": 1024, "output_length": 1, "hash_ids": [1, n]} for n in range(5)]
    result = pipeline.analyze([str(write(tmp_path / "trace.jsonl", rows))])
    assert result.what_if == ()
    assert {one.family for one in result.waterfalls} >= {None}


def test_limits_hold_for_what_fixes_give(tmp_path):
    from prefixlint.fleet import Limits

    path = planting.Planted(8, ("PFX101",), 150).write(tmp_path / "log.jsonl")
    result, _ = fixed(path, tmp_path / "out.jsonl", limits=Limits(capacity=20_000))
    again = pipeline.analyze([str(tmp_path / "out.jsonl")], pipeline.Options(limits=Limits(capacity=20_000)))
    for engine in again.engines:
        assert total(result, engine.engine).cached_tokens == engine.cached_tokens
    whole = next(one for one in result.waterfalls if one.family is None and one.engine == "sglang")
    assert whole.steps[0].hit_rate > rates(result)["sglang"]


def test_a_body_is_changed_by_copying():
    body = {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]}
    kept = json.loads(json.dumps(body))
    changed = _edit.put(body, "messages[0].content[0].text", "b")
    assert _edit.get(changed, "messages[0].content[0].text") == "b"
    assert body == kept
    with pytest.raises(KeyError):
        _edit.put(body, "messages[3].content", "b")
    assert _edit.get(body, "messages[3].content") is None


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("hi", "hi\n\nX"),
        ({"role": "user", "content": "hi"}, {"role": "user", "content": "hi\n\nX"}),
        ({"role": "user", "content": ""}, {"role": "user", "content": "X"}),
        (
            {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            {"role": "user", "content": [{"type": "input_text", "text": "hi"}, {"type": "input_text", "text": "X"}]},
        ),
        ({"role": "user", "content": [{"text": "hi"}]}, {"role": "user", "content": [{"text": "hi"}, {"text": "X"}]}),
        (
            {"role": "user", "parts": [{"text": "hi"}]},
            {"role": "user", "parts": [{"text": "hi"}, {"text": "X"}]},
        ),
        (
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "r"}]},
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "t", "content": "r\n\nX"},
                ],
            },
        ),
        (
            {"type": "function_call_output", "call_id": "c", "output": "r"},
            {"type": "function_call_output", "call_id": "c", "output": "r\n\nX"},
        ),
        ({"role": "user", "content": None}, None),
        (3, None),
    ],
)
def test_a_message_says_something_more(message, told):
    assert _edit.added(message, "X") == told


def test_a_request_with_another_body_loses_what_was_reported_of_it(tmp_path):
    line = {
        "request": {"model": "m", "messages": [{"role": "user", "content": "hi"}]},
        "response": {"usage": {"prompt_tokens": 9}},
    }
    (request,) = logs.read([str(write(tmp_path / "log.jsonl", [line]))])
    assert request.usage.prompt == 9
    assert logs.rewritable(request)
    other = logs.with_body(request, {"model": "m", "messages": [{"role": "user", "content": "ho"}]})
    assert other.usage is None
    assert other.content.messages == [{"role": "user", "content": "ho"}]
    assert (other.path, other.line, other.time) == (request.path, request.line, request.time)


def test_tools_that_requests_have_some_of_are_declared_in_an_order_that_all_of_them_have():
    every = all_tools._All()
    for names in ("ce", "abe", "bd", "acd"):
        every.see(0, [{"name": name} for name in names])
    assert [list(every.known[0]).index(name) for name in "abe"] == sorted(list(every.known[0]).index(n) for n in "abe")
    for names in ("ce", "abe", "bd", "acd"):
        places = [list(every.known[0]).index(name) for name in names]
        assert places == sorted(places)


def test_an_order_that_contradicts_itself_leaves_the_tools_as_they_were_first():
    every = all_tools._All()
    every.see(0, [{"name": name} for name in "abc"])
    every.see(0, [{"name": name} for name in "cad"])
    assert list(every.known[0]) == ["a", "b", "c", "d"]


def test_a_text_without_the_value_does_not_move_the_ends_of_its_place():
    rules = "\n".join(f"Rule {name}: never book the {name} without asking the guest first." for name in "abcdefgh")
    templates = Templates(Wanted(frozenset({"json", "order"})))
    told = [f'Settings:\n{{"a": {one}, "b": {two}}}\n{rules}' for one, two in ((1, 2), (1, 2))]
    told[1] = told[1].replace('"a": 1, "b": 2', '"b": 2, "a": 1')
    templates.learn([(told[0], told[1])])
    assert templates.fill(rules) is None
    for text in told:
        _, filled = templates.fill(text)
        assert [json.loads(value) for _, value in filled.values] == [{"a": 1, "b": 2}]


def test_tools_that_some_turns_may_not_call_are_told_on_every_turn(tmp_path):
    """An engine leaves the tools out of a prompt whose request may call none: with them in it, none is told less."""
    talk = conversation(lambda _: RULES, 4, lambda _: tools(["fare", "pier"]))
    bodies = [body | {"tool_choice": ("none", "auto")[turn % 2]} for turn, body in enumerate(talk)]
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(body) + "\n" for body in bodies), "utf-8")
    _, rewritten = fixed(path, tmp_path / "out.jsonl", what_if=("PFX504",))
    assert {body["tool_choice"] for body in rewritten} == {"auto"}
    assert all(body["tools"] for body in rewritten)


def test_a_text_that_taught_nothing_is_compared_once(monkeypatch):
    rules = "Answer in a friendly tone, and cite the manual. " * 4
    templates = Templates(Wanted(frozenset({"clock", "date"}), end=None))
    templates.learn([(f"Now: 2026-03-01 10:00:00\n{rules}", f"Now: 2026-03-01 10:07:31\n{rules}")])
    learnt = []
    learn = Template.learn
    monkeypatch.setattr(Template, "learn", lambda self, *args: learnt.append(args[0]) or learn(self, *args))
    other = f"(stated below)\n{rules}"
    assert [templates.fill(other) for _ in range(4)] == [None] * 4
    assert learnt == [other]
    assert templates.fill(f"Now: 2026-03-02 09:10:11\n{rules}") is not None


def test_a_line_that_comes_and_goes_is_taken_out_as_a_whole():
    rules = "".join(f"- Rule {n} of the desk.\n" for n in range(40))

    def text(mark):
        return (f"x-gw-billing: version=2.1.{mark}.f{mark}; entry=cli; sig={mark * 7:05x};\n" if mark else "") + rules

    templates = Templates(Wanted(frozenset({"header"})))
    templates.learn([(text(3), text(5)), (text(5), text(8))])
    template, filled = templates.fill(text(0))
    assert "".join(filled.pieces) == rules
    template, filled = templates.fill(text(6))
    assert ("".join(filled.pieces), template.may_be_empty()) == (rules, [True])
    assert filled.values[0][1] == text(6).removesuffix(rules)


def test_fixes_of_a_conversation_that_the_server_keeps_are_those_of_the_same_one_sent_whole(tmp_path):
    rules = " ".join(f"Rule {n}: weigh crate {n} and never guess." for n in range(40))
    kept, whole = [], []
    for talk in range(8):
        items = []
        for turn in range(3):
            name, clock = f"r{talk}-{turn}", f"It is 2026-03-01 09:{talk:02}:{turn * 7:02}. {rules}"
            asked = {"role": "user", "content": f"where is crate {talk}, step {turn}?"}
            told = {"role": "assistant", "content": f"crate {talk} stands at pier {turn}"}
            earlier = {"previous_response_id": f"r{talk}-{turn - 1}"} if turn else {}
            given = [asked] if talk % 2 else asked["content"]
            kept.append({
                "request": {"model": "m", "instructions": clock, "input": given, **earlier},
                "response": {"object": "response", "id": name, "output": [{"type": "message", **told}]},
            })  # fmt: skip
            body = {"model": "m", "messages": [{"role": "system", "content": clock}, *items, asked]}
            whole.append({"request": body, "response": {"choices": [{"message": told}]}})
            items += [asked, told]
    results = [
        pipeline.analyze([str(write(tmp_path / f"{len(rows)}{n}.jsonl", rows))]) for n, rows in enumerate((kept, whole))
    ]
    one, two = ([(w.engine, w.prompt_tokens, w.cached_tokens) for w in r.what_if] for r in results)
    assert one == two
    assert one[-1][2] > 3 * results[0].engines[-1].cached_tokens
    assert {f.where.at_path for f in results[0].findings} == {"instructions"}


def test_of_two_values_in_a_line_the_second_is_told_by_what_stands_between_them():
    rules = "\n".join(f"Rule {name}: never book the {name} without asking." for name in "abcdefgh")
    lines = [f"X-Edge-Trace: seq={one}; crc={two}\n{rules}" for one, two in ((730005, "50b6"), (781693, "cd9f"))]
    templates = Templates(Wanted(frozenset({"header"})))
    templates.learn([tuple(lines)])
    _, filled = templates.fill(f"X-Edge-Trace: seq=143660; crc=340b\n{rules}")
    assert filled.values == (("X-Edge-Trace: seq=", "143660"), ("crc=", "340b"))


def test_arguments_that_are_an_object_are_sent_in_the_order_in_which_the_model_wrote_them(tmp_path):
    talk, written = [], {}
    for number in range(4):
        ids = [f"toolu_{number}{k}" for k in range(2)]
        written |= {one: {"when": f"day {one}", "from": "Riga", "seats": number} for one in ids}
        uses = [{"type": "tool_use", "id": one, "name": "book", "input": written[one]} for one in ids]
        results = [{"type": "tool_result", "tool_use_id": one, "content": f"booked {one}"} for one in ids]
        talk += [{"role": "user", "content": f"Book {number}."}, {"role": "assistant", "content": uses}]
        talk += [{"role": "user", "content": results}, {"role": "assistant", "content": f"Booked for day {number}."}]

    def replayed(messages):
        whole = json.loads(json.dumps(messages))
        for message in whole[:-3]:
            for part in message["content"] if isinstance(message["content"], list) else ():
                if part["type"] == "tool_use":
                    part["input"] = dict(sorted(part["input"].items()))
        return whole

    bodies = [
        {"model": "claude-x", "max_tokens": 9, "system": RULES, "messages": replayed(talk[:end])}
        for end in range(3, len(talk), 4)
    ]
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(body) + "\n" for body in bodies), "utf-8")
    result, rewritten = fixed(path, tmp_path / "out.jsonl", what_if=("PFX303",))
    assert [f.rule.code for f in result.findings] == ["PFX303"]
    for body in rewritten:
        parts = [p for m in body["messages"] if isinstance(m["content"], list) for p in m["content"]]
        assert all([*p["input"]] == [*written[p["id"]]] for p in parts if p["type"] == "tool_use")


def test_a_list_in_a_line_that_some_requests_lack_is_written_in_one_order(tmp_path):
    rules = "\n".join(f"Rule {name}: never book the {name} without asking the guest first." for name in "abcdefgh")
    orders = ["seats, crew, lamps", "", "lamps, seats, crew", "crew, lamps, seats", "", "lamps, crew, seats"]
    heads = [f"You sell.\nTopics: {order}.\n{rules}" if order else f"You sell.\n{rules}" for order in orders * 2]
    path = tmp_path / "log.jsonl"
    bodies = [body for head in heads for body in conversation(lambda _, head=head: head, 2)]
    path.write_text("".join(json.dumps(body) + "\n" for body in bodies), "utf-8")
    _, rewritten = fixed(path, tmp_path / "out.jsonl", what_if=("PFX301",))
    assert {body["messages"][0]["content"] for body in rewritten} == {heads[0], heads[1]}
