"""Several causes in one application: each is told for itself, costs what it costs, and its fix leaves the others."""

import json
import sys
from itertools import pairwise
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from logcases import RULES, assistant, call, conversation, system, tool, user

from prefixlint import logrules, logs, pipeline, rulebook
from prefixlint.whatif._slots import Templates, Wanted

RULE = "\n".join(f"Rule {name}: never book the {name} without asking the guest first." for name in "abcdefgh")
SKILLS = [f"### skill {name}\n{RULES.replace('ferry', name)}" for name in ("aim", "bid", "cut", "dig")]


def log(folder, bodies):
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(body) + "\n" for body in bodies), "utf-8")
    return str(path)


def check(folder, bodies):
    return logrules.check(logs.read([log(folder, bodies)]), rulebook.rules())


def analyzed(folder, bodies, **options):
    written = []
    watch = pipeline.Watch(on_fixed=written.append)
    result = pipeline.analyze([log(folder, bodies)], pipeline.Options(**options), watch=watch)
    return result, [json.loads(line) for line in b"".join(written).splitlines()]


def lost(result):
    return {finding.rule.code: finding.tokens_lost["sglang"] for finding in result.findings}


def talks(heads, turns=3):
    """Give conversations, each with a head and questions of its own."""
    found = []
    for number, head in enumerate(heads):
        for body in conversation(lambda _, head=head: head, turns):
            for message in body["messages"][1:]:
                message["content"] += f" It is on {'ABCDEFGHIJKLMNOP'[number] * 90} of course."
            found.append(body)
    return found


def test_things_in_another_order_that_only_some_have_are_no_text_of_their_own(tmp_path):
    """The heading behind them begins as theirs do."""
    orders = [(0, 1, 2, 3), (), (2, 0, 3, 1), (), (3, 2, 1, 0), (1, 3, 0, 2), (), (2, 1, 3, 0), ()]
    heads = ["\n\n".join(["You sell.", *([*map(SKILLS.__getitem__, o)]), f"## Rules\n{RULE * 9}"]) for o in orders]
    (finding,) = check(tmp_path, talks(heads))
    assert (finding.rule.code, finding.kind) == ("PFX301", "order")
    assert {s.row // 3 for s in finding.sightings} == set(range(2, 9))  # from where a second order is seen


def test_a_block_at_the_end_that_begins_within_a_conversation_is_the_cause_of_those_behind(tmp_path):
    def files(step):
        return "\n\ngit status:\n" + "\n".join(f" M src/draft_{step * 7 + n}.py" for n in range(1 + step % 3))

    bodies = talks([RULES] * 6)
    for step, body in enumerate(bodies[7:]):
        body["messages"][0]["content"] += files(step)
    (finding,) = check(tmp_path, bodies)
    assert finding.rule.code == "PFX106"
    assert min(s.row for s in finding.sightings) == 7


@pytest.mark.parametrize("size", [85, 95, 140])
def test_a_result_that_is_cut_may_be_as_long_as_before(size, tmp_path):
    bodies, talk = [], []
    for turn in range(3):
        text = f'{{"rows": "{chr(97 + turn) * (size if turn == 1 else 400)}"}}'
        talk += [user(f"and {turn}?"), assistant("", tool_calls=[call(f"c{turn}")])]
        old = [
            m | {"content": f"{m['content'][:90]}... [{len(m['content'])} chars]"} if m["role"] == "tool" else m
            for m in talk
        ]
        talk.append(tool(f"c{turn}", text))
        bodies.append({"messages": [system(RULES), *old, talk[-1]]})
    (finding,) = check(tmp_path, bodies)
    assert (finding.rule.code, finding.kind) == ("PFX401", "cleared")


def test_data_that_some_requests_lack_is_written_in_one_way(tmp_path):
    orders = [("a", "b", "c"), None, ("c", "a", "b"), ("b", "c", "a"), None, ("c", "b", "a"), ("b", "a", "c")] * 2
    heads = [
        f"You sell.\n\n{(order and f'Configuration: {json.dumps({k: [k, 1] for k in order})}' + chr(10) * 2) or ''}{RULE}"
        for order in orders
    ]
    _, rewritten = analyzed(tmp_path, talks(heads), what_if=("PFX302",))
    assert {body["messages"][0]["content"] for body in rewritten} == {heads[0], heads[1]}


def test_a_paragraph_that_comes_and_goes_with_its_values_is_told_as_a_whole():
    def text(number):
        told = f"Tenant: t-{1000 + number}\nConversation: conv-{number * 7919}\n\n" if number else ""
        return f"You sell.\n\n{told}{RULE}"

    templates = Templates(Wanted(frozenset({"identity"})))
    templates.learn([(text(3), text(5)), (text(5), text(8))])
    for number in (0, 4):
        _, filled = templates.fill(text(number))
        assert "".join(filled.pieces) == text(0)


@pytest.mark.parametrize("ahead", [True, False])
def test_a_value_of_another_fix_stays_beside_the_passage_that_is_moved(ahead):
    marks = [None, "6f1e0b5c-0d51-4a8e-9b3e-0a1b2c3d4e51", "0c7d1f6a-5e42-4b0d-8f53-d1e6c07b9a24"]

    def text(number, mark):
        case = f"Case file:\nThe {['rudder', 'winch', 'anchor'][number]} is {['worn', 'lost', 'bent'][number]}, ask the dock."
        trace = [f"trace_id: {mark}"] if mark else []
        return "\n".join([*trace, case, RULE] if ahead else [case, *trace, RULE])

    templates = Templates(Wanted(frozenset({"text", "retrieval"}), others=frozenset({"random"})))
    templates.learn([(text(0, None), text(1, marks[1])), (text(1, marks[1]), text(2, marks[2]))])
    for mark in marks:
        left = {"".join(templates.fill(text(number, mark))[1].pieces) for number in range(3)}
        assert len(left) == 1
        assert (mark in left.pop()) if mark else True


def test_a_sentence_behind_a_guest_is_nobodys_name():
    heads = [f"You sell.\nTell the guest {what}\n{RULE}" for what in ("dossier. Ask one crew for it then.", "ledger.")]
    assert "identity" not in {place.kind for place, _ in logrules.differences(*heads)}


def _thinking(turn, number):
    """Give the items of a request of which the latest thought alone is kept."""
    items = []
    for n in range(turn):
        items += [{"role": "user", "content": f"question {n} of {number}?"}]
        if n == turn - 1:
            items.append(
                {
                    "type": "reasoning",
                    "id": f"r{n}",
                    "summary": [{"type": "summary_text", "text": f"thought {n} of {number}"}],
                }
            )
        items.append(
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": f"answer {n} of {number}"}],
            }
        )
    return [*items, {"role": "user", "content": f"question {turn} of {number}?"}]


def test_a_thought_that_is_an_item_of_its_own_is_reasoning_that_is_left_out(tmp_path):
    bodies = [{"model": "m", "instructions": RULES, "input": _thinking(turn, n)} for n in range(3) for turn in range(4)]
    (finding,) = check(tmp_path, bodies)
    assert (finding.rule.code, finding.requests) == ("PFX403", 6)


def test_another_model_costs_what_its_cache_lacks_where_thoughts_go_too(tmp_path):
    """The chat template leaves them out by itself: what stands before them is lost to the other model."""
    bodies = []
    for number in range(4):
        said = assistant("", tool_calls=[call("c")], reasoning_content=f"thought of {number}")
        asked = [system(f"{RULES} {number}"), user("when does it sail?"), said, tool("c", "at nine")]
        bodies += [{"model": "one", "messages": asked[:2]}, {"model": "one", "messages": asked}]
        bodies.append({"model": "two", "messages": [*asked, assistant("At nine."), user("and then?")]})
    result, _ = analyzed(tmp_path, bodies, what_if=(), engines=("sglang",))
    assert lost(result)["PFX504"] > 4 * 12


def test_what_differs_without_being_seen_in_the_prompt_takes_no_loss(tmp_path):
    """The cache got past the age with what it had of another conversation, and ends at the first message."""
    bodies = []
    for number in range(8):
        history = []
        for turn in range(3):
            head = f"Inventory snapshot taken {(3, 8, 5, 9)[(3 * number + turn * 5) % 4]} minutes ago.\n{RULE * 4}"
            asked = f"Question {turn} of {'ABCDEFGH'[number] * 30}: which rule is it about, and what does it say?"
            newest = {"role": "user", "content": [{"type": "text", "text": asked}]}
            bodies.append(
                {
                    "model": "claude-sonnet-4-5",
                    "max_tokens": 9,
                    "system": [{"type": "text", "text": head}],
                    "messages": [*history, newest],
                }
            )
            history += [user(asked), assistant(f"Answer {turn} of {'ABCDEFGH'[number] * 30}.")]
    result, _ = analyzed(tmp_path, bodies, what_if=())
    found = lost(result)
    assert found["PFX103"] > 0 == found["PFX406"]


def test_a_message_that_ends_every_request_could_be_had_by_the_first_of_a_conversation_too(tmp_path):
    bodies = talks([RULES] * 5)
    for body in bodies:
        body["messages"].append(system(f"Keep to this at all times. {RULE}"))
    (finding,) = check(tmp_path, bodies)
    assert (finding.rule.code, finding.requests) == ("PFX203", 14)
    assert {s.row for s in finding.sightings if not s.turn} == {3, 6, 9, 12}
    result, _ = analyzed(tmp_path, bodies, what_if=())
    each = lost(result)["PFX203"] / 14
    assert each == pytest.approx(len(RULE) / 5, rel=0.4)


def test_a_message_that_ends_requests_of_one_turn_is_where_it_belongs(tmp_path):
    bodies = [body for body in talks([RULES] * 5) if len(body["messages"]) == 2]
    for body in bodies:
        body["messages"].append(system(f"Keep to this at all times. {RULE}"))
    assert check(tmp_path, bodies) == []


def test_a_value_that_some_have_beside_a_passage_that_some_have_is_taken_alone():
    marks = [f"{n}f1e0b5c-0d51-4a8e-9b3e-0a1b2c3d4e5{n}" for n in range(4)]

    def text(mark, case):
        told = [f"trace_id: {marks[mark]}"] if mark else []
        told += [f"Case file:\nThe {['rudder', 'winch', 'anchor'][case - 1]} is lost, ask the dock."] if case else []
        return "\n".join([*told, RULE])

    templates = Templates(Wanted(frozenset({"random"}), others=frozenset({"text"})))
    shown = [text(mark, case) for mark, case in ((0, 0), (1, 0), (2, 1), (3, 2), (1, 3), (0, 1))]
    templates.learn(list(pairwise(shown)))
    for mark, case in ((2, 3), (3, 1)):
        _, filled = templates.fill(text(mark, case))
        assert [value for _, value in filled.values] == [f"trace_id: {marks[mark]}\n"]
        assert "".join(filled.pieces) == text(0, case)


def test_a_stamp_that_the_newest_message_has_is_not_told_once_more(tmp_path):
    bodies = talks([RULES] * 4, 4)
    for number, body in enumerate(bodies):
        for message in body["messages"][1::2]:
            message["content"] = f"(10:{number:02}:07) {message['content']}"
    _, rewritten = analyzed(tmp_path, bodies, what_if=("PFX401",))
    for body, now in zip(bodies, rewritten, strict=True):
        assert now["messages"][-1] == body["messages"][-1]
    last = rewritten[3]["messages"][1::2]
    assert [message["content"][:10] for message in last] == [f"(10:0{turn}:07)" for turn in range(4)]


def test_keys_of_a_tool_are_put_in_one_order_beside_a_value_in_it_that_changes(tmp_path):
    def book(step):
        told = [("name", "book"), ("description", f"Books a berth{f' (as of 10:{step:02}:07)' * (step > 5)}")]
        asked = {"port": {"type": "string", "description": "where to"}, "day": {"type": "integer"}}
        more = [("parameters", {"type": "object", "properties": dict(list(asked.items())[:: (1, -1)[step % 2]])})]
        return [{"type": "function", "function": dict((told + more)[:: (-1, 1, 1)[step % 3]])}]

    bodies = talks([RULES] * 4)
    for step, body in enumerate(bodies):
        body["tools"] = book(step)
    result, rewritten = analyzed(tmp_path, bodies, what_if=("all",))
    assert set(lost(result)) == {"PFX302", "PFX306"}
    tools = [body["tools"][0]["function"] for body in rewritten]
    assert len({(*tool, *tool["parameters"]["properties"]) for tool in tools}) == 1


@pytest.mark.parametrize("ahead", [True, False])
def test_keys_in_another_order_are_told_beside_a_value_that_is_in_the_way(ahead, tmp_path):
    bodies = []
    for n in range(24):
        fields = [("order_id", {"type": "string"}), ("region", {"type": "string", "description": RULE})]
        held = {"properties": dict(fields[:: 1 if n % 2 else -1])}
        said = f"Looks an order up. It is 10:{n:02}:07."
        parts = (
            [("parameters", held), ("description", said)] if ahead else [("description", said), ("parameters", held)]
        )
        tools = [{"type": "function", "function": {"name": "look_up", **dict(parts)}}]
        bodies.append({"model": "m", "tools": tools, "messages": [system(RULES), user(f"question {n}")]})
    result, fixed = analyzed(tmp_path, bodies)
    assert set(lost(result)) == {"PFX302", "PFX306"}
    assert len({json.dumps(body["tools"]) for body in fixed}) == 1


@pytest.mark.parametrize("last", ["On board the time is now 10:{0:02}:07.", "Be brief."])
def test_notes_that_grow_ahead_of_a_last_line_are_joined_to_the_system_text(last, tmp_path):
    bodies = []
    for talk in range(4):
        heads = [
            f"{RULE}\n{''.join(f'Note {n + 1}: {RULES}{talk}{chr(10)}' for n in range(turn))}\n{last}"
            for turn in range(4)
        ]
        bodies += [
            body | {"messages": [system(head.format(4 * talk + turn)), *body["messages"][1:]]}
            for turn, (head, body) in enumerate(zip(heads, talks([RULES] * (talk + 1), 4)[4 * talk :], strict=True))
        ]
    found = {finding.rule.code for finding in check(tmp_path, bodies)}
    assert found == ({"PFX407", "PFX101"} if "{" in last else {"PFX407"})
    _, rewritten = analyzed(tmp_path, bodies, what_if=("PFX407",))
    assert not any("Note" in body["messages"][0]["content"] for body in rewritten)


def test_a_number_that_two_applications_differ_in_once_is_no_counter(tmp_path):
    heads = [f"You are desk-{1 if number < 6 else 3}, an assistant.\n{RULE}" for number in range(12)]
    assert check(tmp_path, talks(heads)) == []


def test_thoughts_that_are_items_go_and_what_is_changed_behind_them_is_told_for_what_it_is(tmp_path):
    """Arguments are written anew as well, so that little stands where it stood, and as it was."""
    bodies = []
    for number in range(3):
        items = []
        for turn in range(4):
            items.append({"role": "user", "content": f"question {turn} of {number}?"})
            old = [
                item | {"arguments": json.dumps(json.loads(item["arguments"]), separators=(",", ":"))}
                if item.get("type") == "function_call"
                else item
                for item in items
                if item.get("type") != "reasoning"
            ]
            bodies.append({"model": "m", "instructions": RULES, "input": old})
            thought = [{"type": "summary_text", "text": f"thought {turn} of {number}"}]
            asked = {"port": f"port {turn}", "day": number}
            items += [
                {"type": "reasoning", "id": f"r{turn}", "summary": thought},
                {"type": "function_call", "call_id": f"c{turn}", "name": "book", "arguments": json.dumps(asked)},
                {"type": "function_call_output", "call_id": f"c{turn}", "output": f"berth {turn} of {number}"},
            ]
            bodies.append({"model": "m", "instructions": RULES, "input": [*old, *items[-3:]]})
    assert {finding.rule.code for finding in check(tmp_path, bodies)} == {"PFX303", "PFX403"}
    _, rewritten = analyzed(tmp_path, bodies, what_if=("PFX303",))
    kept = [item for body in rewritten[2::8] for item in body["input"]]
    assert not any(item.get("type") == "reasoning" for item in kept)
    assert all(": " in item["arguments"] for item in kept if item.get("type") == "function_call")


@pytest.mark.parametrize(
    "block", ["\n".join(SKILLS), "Topics: seats, crew, lamps, ports.", '{"a": [1], "b": {"c": 2}}']
)
def test_data_that_some_have_is_left_to_the_fix_of_its_order(block):
    def text(number, has):
        case = f"Case file:\nThe {['rudder', 'winch', 'anchor'][number]} is {['worn', 'lost', 'bent'][number]}."
        return "\n\n".join([case, RULES, *([block] if has else []), RULE])

    kind = {"#": "order", "T": "order", "{": "json"}[block[0]]
    templates = Templates(Wanted(frozenset({"text", "retrieval"}), others=frozenset({kind})))
    templates.learn([(text(0, has=False), text(1, has=True)), (text(1, has=True), text(2, has=False))])
    for has in (False, True):
        left = {"".join(templates.fill(text(number, has))[1].pieces) for number in range(3)}
        assert len(left) == 1
        assert (block in left.pop()) == has


@pytest.mark.parametrize("first", [0, 1])
def test_thoughts_that_a_window_drops_with_all_around_them_are_the_windows(first, tmp_path):
    """The first message may stay."""
    bodies = []
    for number in range(3):
        items = [{"role": "user", "content": f"question of {number}?"}]
        for turn in range(7):
            bodies.append({"model": "m", "instructions": RULES, "input": [*items[:first], *items[first:][-9:]]})
            thought = [{"type": "summary_text", "text": f"thought {turn} of {number}"}]
            items += [
                {"type": "reasoning", "id": f"r{turn}", "summary": thought},
                {"type": "function_call", "call_id": f"c{turn}", "name": "book", "arguments": f'{{"day": {turn}}}'},
                {"type": "function_call_output", "call_id": f"c{turn}", "output": f"berth {turn} of {number}"},
            ]
    assert {finding.rule.code for finding in check(tmp_path, bodies)} == {"PFX402"}
