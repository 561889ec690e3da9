"""Several causes in one history: what was told stays, and what one cause hides of another is found all the same."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import pytest
from logcases import RULES, assistant, call, system, tool, user
from test_joined_causes import RULE, analyzed, check, log, lost, talks

from prefixlint import logrules, logs, whatif
from prefixlint.whatif._rewriter import Rewriter


def agent(number, turns, *, fresh=False):
    """Give the histories of an agent that calls a tool each turn; `fresh` ids are other ones in each request."""
    found = []
    for turn in range(turns):
        history = [user(f"Question of {'ABCDEFGH'[number] * 30}?")]
        for n in range(turn):
            one = f"c{number}{n}{turn if fresh else ''}"
            history += [
                assistant("", tool_calls=[call(one, arguments=f'{{"berth": {n}}}')]),
                tool(one, f"Berth {n} of {'ABCDEFGH'[number] * 60} is free."),
            ]
        found.append(history)
    return found


class _Stays:
    """A part of a fix that undoes new ids, and nothing else."""

    HISTORY = frozenset({"PFX405"})

    def apply(self, turn):
        pass


def test_a_conversation_of_two_families_goes_on_from_what_the_other_was_sent(tmp_path):
    """A request is rewritten for the choices of its family, and the next one may be of another family."""
    fixes = [whatif.Fix("ids", "", _Stays.HISTORY, frozenset({n}), [_Stays()], ()) for n in (0, 1)]
    choices = [frozenset({0}), frozenset({0, 1})]
    rewriter = Rewriter(fixes, choices)
    bodies = [{"model": "m", "messages": [system(RULE), *history]} for history in agent(0, 5, fresh=True)]
    last = None
    for row, request in enumerate(logs.read([log(tmp_path, bodies)])):
        ((_, last),) = rewriter.rewrite(request, row, row % 2, [choices[row % 2]])
    assert [m["tool_call_id"] for m in last["messages"] if m["role"] == "tool"] == ["c001", "c012", "c023", "c034"]


def test_what_the_newest_message_was_told_stays_where_ids_are_new(tmp_path):
    bodies = []
    for number in range(3):
        for turn, history in enumerate(agent(number, 4, fresh=True)):
            head = system(f"It is 10:{number * 5 + turn:02}:07.\n{RULE}")
            bodies.append({"model": "m", "messages": [head, *history]})
    _, rewritten = analyzed(tmp_path, bodies, what_if=("PFX101",))
    last = rewritten[3]["messages"]
    told = [m["content"].rpartition("10:")[2] for m in last[1:] if "10:" in m["content"]]
    assert [text[:5] for text in told] == ["00:07", "01:07", "02:07", "03:07"]


def test_a_window_is_one_where_all_that_it_keeps_has_new_ids(tmp_path):
    bodies = []
    for number in range(3):
        for history in agent(number, 7, fresh=True):
            bodies.append({"model": "m", "messages": [system(RULE), *history[-5:]]})
    found = {finding.rule.code: finding for finding in check(tmp_path, bodies)}
    assert set(found) == {"PFX402", "PFX405"}
    assert found["PFX402"].requests == 3 * 4
    _, rewritten = analyzed(tmp_path, bodies, what_if=("PFX402",))
    assert [len(body["messages"]) for body in rewritten[:7]] == [2, 4, 6, 8, 10, 12, 14]


@pytest.mark.parametrize("kept", [1, 2])
def test_a_history_of_the_latest_questions_is_a_window_however_much_an_agent_did_for_each(kept, tmp_path):
    bodies = []
    for number in range(3):
        told = []
        for turn in range(5):
            name = f"{'ABC'[number] * 20} {'uvxyz'[turn] * 20}"
            told.append([user(f"Where is {name}?")])
            for n in range(3):
                shown = [message for one in told[-kept:] for message in one]
                bodies.append({"model": "m", "messages": [system(RULE), *shown]})
                one = f"c{number}{turn}{n}"
                asked = assistant("", tool_calls=[call(one, arguments=f'{{"of": "{name}", "n": {n}}}')])
                told[-1] += [asked, tool(one, f"Page {n} of {name}.")]
            told[-1].append(assistant(f"It is at {name}."))
    assert {finding.rule.code for finding in check(tmp_path, bodies)} == ({"PFX402"} if kept > 1 else set())


def test_another_answer_from_which_only_one_branch_goes_on_is_no_change_of_the_history(tmp_path):
    """Each request of a tree of attempts goes on with one of the answers to the one before."""
    bodies, front = [], [agent(0, 2)[-1]]
    for depth in range(4):
        bodies += [{"model": "m", "messages": [system(RULE), *history]} for history in front]
        front = [
            [
                *history,
                assistant(
                    "", tool_calls=[call(f"c{depth}{n}{way}", arguments=f'{{"day": {depth * 9 + n * 3 + way}}}')]
                ),
                tool(f"c{depth}{n}{way}", f"{'rain' * (way + 1)} on day {n} of {depth}"),
            ]
            for n, history in enumerate(front[:3])
            for way in range(2)
        ]
    assert check(tmp_path, bodies) == []


@pytest.mark.parametrize("turn", [1, 3])
def test_a_question_that_the_user_asks_anew_is_no_history(turn, tmp_path):
    """The latest one, or an earlier one to which the user went back."""
    bodies = []
    for body in talks([RULES] * 4, 4):
        bodies.append(body)
        if len(body["messages"]) == 8:
            *before, asked = body["messages"][: 2 * turn]
            again = [*before, user(f"{asked['content']} Please say it in one line.")]
            bodies.append(body | {"messages": again})
            bodies.append(body | {"messages": [*again, assistant("It is so."), user(f"Thanks {len(bodies)}, why?")]})
    assert check(tmp_path, bodies) == []


def test_words_in_another_order_behind_a_passage_are_a_cause_of_their_own(tmp_path):
    topics = ["billing", "returns", "delivery", "trade-in"]
    bodies = []
    for step, body in enumerate(talks([RULES] * 5)):
        name = "ABCDEFGHIJKLMNO"[step]
        passages = "\n".join(f"[{n}] The {name * 9} of {n} is told, ask {name * 5} for it." for n in range(3))
        listed = ", ".join(topics[step % 4 :] + topics[: step % 4])
        head = f"You sell.\n\nRelevant passages:\n{passages}\n\nTopics you cover: {listed}.\n\n{RULE}"
        bodies.append(body | {"messages": [system(head), *body["messages"][1:]]})
    found = {finding.rule.code: finding.requests for finding in check(tmp_path, bodies)}
    assert set(found) == {"PFX202", "PFX301"}
    assert found["PFX301"] >= 10


def test_what_somebody_does_is_nobodys_name():
    heads = [
        f"You sell.\nThe driver {what}.\n{RULE}" for what in ("archives the late kiosk", "prices a spare canister")
    ]
    assert "identity" not in {place.kind for place, _ in logrules.differences(*heads)}


@pytest.mark.parametrize(("behind", "told"), [("Customer since: 2011", False), (RULE, True)])
def test_who_is_asking_costs_something_only_where_text_stands_behind(behind, told, tmp_path):
    names = ["Ann Lee", "Bo Haas", "Cy Ito", "Di Moreau"]
    bodies = talks([f"You sell.\n{RULE}\nName: {name}\n{behind}" for name in names])
    assert [finding.rule.code for finding in check(tmp_path, bodies)] == (["PFX105"] if told else [])


@pytest.mark.parametrize("fresh", [False, True])
def test_what_moves_is_lost_where_the_template_leaves_thoughts_out_ahead_of_it(fresh, tmp_path):
    """Where it belongs, it would have been served all the same, whatever ids the calls get each time."""
    bodies = []
    for number in range(4):
        history = []
        for turn in range(3):
            history.append(user(f"Question {turn} of {'ABCD'[number] * 30}?"))
            one = f"c{number}{turn}"
            asked = assistant("", tool_calls=[call(one)], reasoning_content=f"thought {turn} of {number}")
            history += [asked, tool(one, f"Page {turn} of {'ABCD'[number] * 30}.")]
            sent = json.loads(json.dumps(history).replace(f'"c{number}', f'"{turn if fresh else ""}c{number}'))
            bodies.append({"model": "m", "messages": [system(RULES), *sent, system(f"Keep to this. {RULE}")]})
            history.append(assistant(f"It is {'ABCD'[number] * turn}."))
    result, _ = analyzed(tmp_path, bodies, what_if=(), engines=("sglang",))
    turns = 4 * 2
    assert set(lost(result)) == ({"PFX203", "PFX405"} if fresh else {"PFX203"})
    assert lost(result)["PFX203"] / (turns + 3) == pytest.approx(len(RULE) / 5, rel=0.4)


def test_a_message_that_ends_every_request_is_sent_once_where_the_history_begins(tmp_path):
    bodies = [
        {"model": "m", "messages": [system(RULES), *history, system(f"Keep to this. {RULE}")]}
        for number in range(4)
        for history in agent(number, 4)
    ]
    _, rewritten = analyzed(tmp_path, bodies, what_if=("PFX203",))
    for body, now in zip(bodies, rewritten, strict=True):
        head, *history, rule = body["messages"]
        assert now["messages"] == [head, rule, *history]


def test_results_in_another_order_within_what_a_window_keeps_are_told_for_what_they_are(tmp_path):
    """They come as they were completed, and are sent in the order of their calls from the next turn on."""
    bodies = []
    for number in range(3):
        told = []
        for turn in range(6):
            ids = [f"c{number}{turn}{way}" for way in "ab"]
            asked = assistant("", tool_calls=[call(one, arguments=f'{{"page": {turn}}}') for one in ids])
            results = [tool(one, f"Page {turn} of {one * 9}.") for one in ids]
            told.append([user(f"Question {turn} of {'ABC'[number] * 30}?"), asked, *results])
            shown = [message for one in told[-3:] for message in one]
            bodies.append({"model": "m", "messages": [system(RULE), *shown[:-2], *shown[:-3:-1]]})
    assert {finding.rule.code for finding in check(tmp_path, bodies)} == {"PFX402", "PFX408"}


def test_passages_at_both_ends_of_a_system_text_are_moved_each_by_its_own_fix(tmp_path):
    """Both are text, the one of a conversation and the other of a turn."""
    rules = "\n".join(f"Rule {n}: never book {'abcdefgh'[n % 8] * (n + 3)} without asking first." for n in range(40))
    bodies = []
    for number in range(6):
        case = f"The {'ABCDEF'[number] * 40} is {'uvwxyz'[number] * 20}, ask the dock."
        for turn, history in enumerate(agent(number, 3)):
            known = f"The {'ghijkl'[number] * 30} of {'mno'[turn] * 20} was sold."
            head = f"Case file:\n{case}\n\nYou sell.\n{rules}\n\nKnown about the guest:\n{known}"
            bodies.append({"model": "m", "messages": [system(head), *history]})
    assert {finding.rule.code for finding in check(tmp_path, bodies)} == {"PFX201", "PFX202"}
    for code, left in (("PFX201", 18), ("PFX202", 6)):
        _, rewritten = analyzed(tmp_path, bodies, what_if=(code,))
        heads = {body["messages"][0]["content"] for body in rewritten}
        assert len(heads) == left
        assert len({head.partition("You sell")[0] for head in heads}) == (1 if code == "PFX201" else 6)


def test_the_newest_result_that_is_written_anew_on_the_next_turn_is_lost_as_a_whole(tmp_path):
    """What follows it is new, so that only the marks of the chat template say where it ends."""
    bodies = []
    for number in range(3):
        history = []
        for turn in range(4):
            bodies.append({"model": "m", "messages": [system(RULES), user(f"Which berths, {number}?"), *history]})
            history = [
                m | {"content": json.dumps(json.loads(m["content"]), sort_keys=True, indent=1)}
                if m["role"] == "tool"
                else m
                for m in history
            ]
            rows = {"rows": [f"berth {n} of {'ABC'[number] * 9} is {'uvwx'[turn] * 9}" for n in range(6)], "ok": True}
            one = f"c{number}{turn}"
            history = [dict(message) for message in history]
            history += [
                assistant("", tool_calls=[call(one, arguments=f'{{"n": {turn}}}')]),
                tool(one, json.dumps(rows)),
            ]
    result, _ = analyzed(tmp_path, bodies, what_if=(), engines=("sglang",))
    assert set(lost(result)) == {"PFX302"}
    assert lost(result)["PFX302"] / (3 * 2) > 60


def test_cleared_results_that_are_the_same_everywhere_make_no_conversation_of_two(tmp_path):
    bodies = []
    for histories in zip(*(agent(number, 8) for number in range(4)), strict=True):
        for history in histories:
            kept = [m | {"content": "[cleared]"} if m["role"] == "tool" else m for m in history[-6:-1]]
            bodies.append({"model": "m", "messages": [system(RULE), *kept, history[-1]]})
    found = {(finding.rule.code, finding.kind) for finding in check(tmp_path, bodies)}
    assert found == {("PFX401", "cleared"), ("PFX402", "window")}


@pytest.mark.parametrize("together", [False, True])
def test_results_in_another_order_are_told_where_their_texts_are_cleared_as_well(together, tmp_path):
    """Those of one message, as some dialects have them, and those of a message each."""
    bodies = []
    for number in range(3):
        done = []
        for turn in range(4):
            ids = [f"c{number}{turn}{way}" for way in "abc"]
            results = [(one, f"Page {turn} of {one * 90} is here.") for one in ids]
            done.append((ids, results))
            history = [user(f"Question of {'ABC'[number] * 30}?")]
            for k, (asked, answers) in enumerate(done):
                newest = k == turn
                shown = answers[::-1] if newest else answers
                kept = {one for one, _ in shown[-2:]} if newest else set()
                shown = [(one, text if one in kept else "[cleared]") for one, text in shown]
                if together:
                    uses = [{"type": "tool_use", "id": one, "name": "f", "input": {"page": k}} for one in asked]
                    parts = [{"type": "tool_result", "tool_use_id": one, "content": text} for one, text in shown]
                    history += [assistant(uses), user(parts)]
                else:
                    calls = [call(one, arguments=f'{{"page": {k}}}') for one in asked]
                    history += [assistant("", tool_calls=calls), *(tool(*one) for one in shown)]
            head = {"system": RULES} if together else {}
            bodies.append({"model": "m", "messages": history if together else [system(RULES), *history], **head})
    found = {(finding.rule.code, finding.kind): finding.requests for finding in check(tmp_path, bodies)}
    assert found == {("PFX408", "order"): 9, ("PFX401", "cleared"): 9}


def test_a_message_that_ends_the_requests_of_some_conversations_costs_their_first_turns_too(tmp_path):
    """The latest request of the template may be of a conversation that has no such message."""
    bodies = []
    for turn in range(3):
        for number in range(8):
            history = [
                message
                for n in range(turn + 1)
                for message in (user(f"{n}: {'ABCDEFGH'[number] * 40}?"), assistant(f"It is {'abcdefgh'[number] * 9}."))
            ]
            behind = [] if number % 2 else [system(f"Keep to this. {RULE}")]
            bodies.append({"model": "m", "messages": [system(RULES), *history[:-1], *behind]})
    bodies += [
        {**body, "messages": [body["messages"][0], user(f"{n * 40}?"), *body["messages"][2:]]}
        for body, n in zip(bodies[:8], "IJKLMNOP", strict=True)
    ]
    (finding,) = check(tmp_path, bodies)
    assert finding.rule.code == "PFX203"
    rows = [*range(8, 24), *range(24, 32)]
    assert sorted(s.row for s in finding.sightings if s.row >= 8) == [row for row in rows if row % 2 == 0]
    result, _ = analyzed(tmp_path, bodies, what_if=(), engines=("sglang",))
    assert lost(result)["PFX203"] / 12 == pytest.approx(len(RULE) / 5, rel=0.5)


def test_what_ends_before_the_same_words_as_another_place_is_not_taken_for_that(tmp_path):
    """The cache had the whole system text from another conversation, of the same second."""
    words = "at the northern depot of the lake"
    head = f"{RULE} Sell tickets {words}. Ask every guest for the number of the booking and for the day of travel."
    page = f"{'Page of the ferry, of which there are many and more. ' * 2}"[: 90 - len(words)] + words + " is late" * 60
    bodies = []
    for turn in range(4):
        for number in range(2):
            history = [user(f"Question of {'AB'[number] * 30}?")]
            for n in range(turn):
                text = page + f" {number}{n}"
                cut = text if n >= turn - 2 else f"{text[:90]}... [{len(text)} chars]"
                history += [assistant("", tool_calls=[call(f"c{number}{n}")]), tool(f"c{number}{n}", cut)]
            bodies.append({"model": "m", "messages": [system(f"It is 10:0{turn}:07.\n{head}"), *history]})
    result, _ = analyzed(tmp_path, bodies, what_if=(), engines=("sglang",))
    assert set(lost(result)) == {"PFX101", "PFX401"}
    assert lost(result)["PFX401"] == 0


def test_what_is_written_anew_ahead_of_the_messages_says_nothing_of_what_is_new_in_them(tmp_path):
    """Whether the newest message has a block that is gone on the next turn or not, what follows it is new."""
    found = []
    for noted in (False, True):
        bodies = []
        for number in range(3):
            history = []
            for turn in range(4):
                names = [f"dock{n}" for n in range(7)]
                names = names[turn + number :] + names[: turn + number]
                head = f"You sell.\nConfiguration: {json.dumps({name: f'at {name}' for name in names})}\n{RULE}"
                note = f"\n\n<system-reminder>\nThe {'klmn'[turn] * 40} is {number}.\n</system-reminder>"
                asked = f"{turn}: {'ABC'[number] * 60} of {'uvwx'[turn] * 60}?"
                newest = user(asked + note) if noted else user(asked)
                bodies.append({"model": "m", "messages": [system(head), *history, newest]})
                history = [*history, user(asked), assistant(f"It is {'efgh'[turn] * 200} {number}.")]
        result, _ = analyzed(tmp_path, bodies, what_if=(), engines=("sglang",))
        found.append(lost(result))
    plain, noted = found
    assert [set(plain), set(noted)] == [{"PFX302"}, {"PFX302", "PFX404"}]
    assert noted["PFX302"] == pytest.approx(plain["PFX302"], rel=0.05)


def test_first_turns_that_end_with_the_same_message_share_their_system_text_too(tmp_path):
    found = []
    for behind in ([], [system(f"Keep to this. {RULE}")]):
        bodies = []
        for number in range(6):
            head = f"Case: the {'abcdef'[number] * 40} of {'uvwxyz'[number] * 20}.\n{RULE * 9}"
            trace = f"\nrun {(number + 3) * 7919 * 104729:020x}\n{RULE}"
            for history in agent(number, 3):
                bodies.append({"model": "m", "messages": [system(head + trace), *history, *behind]})
        result, _ = analyzed(tmp_path, bodies, what_if=(), engines=("sglang",))
        found.append({finding.rule.code: finding.tokens_lost["sglang"] for finding in result.findings})
    plain, ended = found
    assert ended["PFX201"] >= plain["PFX201"] > 5 * len(RULE * 9) / 6
