"""What the log rules find in small logs, at which place, and what they must leave alone."""

import copy
import itertools
import json
import random
import sys
from difflib import SequenceMatcher
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

import logcases
from growth import work
from logcases import RULES, assistant, call, claude, conversation, siblings, system, tool, tools, user

from prefixlint import logrules, logs, redact, rulebook
from prefixlint.logrules import _history, _meeting, _spans, _values
from prefixlint.logrules._known import Known
from prefixlint.logrules._message import Message, unmarked
from prefixlint.logrules._view import view
from prefixlint.model import Messages, Request, TokenIds

FIXTURES = Path(__file__).parents[1] / "fixtures" / "logrules"
SNIPPETS = [json.loads(line) for line in (FIXTURES / "snippets.jsonl").read_text(encoding="utf-8").splitlines()]


def check(folder, bodies, **options):
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(body, ensure_ascii=False) + "\n" for body in bodies), encoding="utf-8")
    return logrules.check(logs.read([str(path)]), rulebook.rules(), **options)


def codes(findings):
    return sorted({finding.rule.code for finding in findings})


def one(findings):
    assert len(findings) == 1, [(f.rule.code, f.message) for f in findings]
    return findings[0]


@pytest.mark.parametrize("snippet", SNIPPETS, ids=lambda s: f"{s['rule']}-{s['verdict']}")
def test_snippets(snippet, tmp_path):
    found = check(tmp_path, snippet["requests"])
    assert [f.rule.code for f in found] == ([snippet["rule"]] if snippet["verdict"] == "fire" else [])


@pytest.mark.parametrize("name", ["checksum-line", "environment-block", "parallel-results"])
def test_handed_cases(name):
    folder = FIXTURES / name
    expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    finding = one(logrules.check(logs.read([str(folder / "requests.jsonl")]), rulebook.rules()))
    assert finding.rule.code == expected["verdict"]
    assert finding.severity.word == expected["severity"]
    assert finding.where.line == expected["line"]
    places = [(w.other_line, w.line, w.at_path, w.char) for w in (finding.where, *finding.examples)]
    assert places == [(*d["pair"], d["path"], d["char"]) for d in expected["divergence"]]
    assert finding.requests == len(expected["divergence"])
    assert logrules.check(logs.read([str(folder / "fixed.jsonl")]), rulebook.rules()) == []


@pytest.mark.parametrize(("want", "bodies"), [c[1:] for c in logcases.CASES], ids=[c[0] for c in logcases.CASES])
def test_cases(want, bodies, tmp_path):
    assert codes(check(tmp_path, bodies)) == sorted(want)


def test_one_cause_is_one_finding(tmp_path):
    bodies = [b for k in range(60) for b in conversation(lambda t, k=k: f"Now: 10:{k:02}:{t:02}\n{RULES}")]
    finding = one(check(tmp_path, bodies))
    assert finding.requests == len(bodies) - 1
    assert len(finding.examples) <= 8
    assert finding.values == ("10:00:00", "10:00:01")


def test_lines_and_characters_are_those_of_the_file(tmp_path):
    finding = one(check(tmp_path, siblings([f"Now: 10:0{i}.\n{RULES}" for i in range(3)])))
    assert (finding.where.line, finding.where.other_line) == (2, 1)
    assert (finding.where.at_path, finding.where.char) == ("messages[0].content", len("Now: 10:0"))


def test_the_second_block_of_a_system_prompt_is_named(tmp_path):
    def head(i):
        return [{"type": "text", "text": RULES}, {"type": "text", "text": f"Step {i} of 9. Go on as before."}]

    history = [user("a"), assistant("b"), user("c"), assistant("d"), user("e")]
    finding = one(check(tmp_path, [claude(history[: 2 * i + 1], head(i)) for i in range(3)]))
    assert (finding.rule.code, finding.where.at_path, finding.where.char) == ("PFX107", "system[1].text", 5)


def test_a_later_cause_is_masked_by_the_first(tmp_path):
    order = list(itertools.permutations("abc"))
    found = check(
        tmp_path,
        conversation(lambda t: f"Now: 10:0{t}\n{RULES}", tools=lambda t: tools([f"t{x}" for x in order[t]])),
    )
    first, second = sorted(found, key=lambda f: f.masked_by is not None)
    assert (first.rule.code, second.rule.code) == ("PFX304", "PFX101")
    assert second.masked_by == first.fingerprint
    assert [s.first for s in second.sightings] == [False, False]


def test_each_request_that_shows_a_cause_is_named_with_its_partner_and_place(tmp_path):
    bodies = conversation(lambda t: f"Now: 10:0{t}\n{RULES}")
    finding = one(check(tmp_path, bodies))
    place = "messages[0].content", len("Now: 10:0")
    opening = bodies[0]["messages"][1]["content"]
    told = [logrules.Sighting(n, n - 1, True, True, *place, opening, head=True) for n in (1, 2)]
    assert list(finding.sightings) == told
    assert finding.sightings[-1:] == [finding.sightings[1]]


def test_a_place_leads_to_the_values_that_stand_there(tmp_path):
    bodies = [[{"role": "system", "content": f"Now: 10:0{n}\n{RULES}"}, user(f"question {n}")] for n in range(3)]
    finding = one(check(tmp_path, [{"model": "m", "messages": m} for m in bodies]))
    requests = list(logs.read([str(tmp_path / "log.jsonl")]))
    seen = finding.sightings[0]
    assert not seen.turn
    hits = logrules.compare(requests[seen.partner], requests[seen.row], turn=seen.turn)
    assert [(h.before, h.after) for h in hits if (h.at.path, h.at.char) == (seen.path, seen.char)] == [
        ("10:00", "10:01")
    ]


def test_the_previous_turn_is_preferred_to_a_longer_accidental_prefix(tmp_path):
    """Two conversations of one template: each turn is compared with its own conversation."""
    a = conversation(lambda _: RULES)
    b = copy.deepcopy(a)
    for body in b:
        body["messages"][1]["content"] = "something else altogether?"
    mixed = [body for pair in zip(a, b, strict=True) for body in pair]
    assert check(tmp_path, mixed) == []


def test_interleaved_conversations_keep_their_own_history(tmp_path):
    talks = []
    for k in range(12):
        talk = conversation(lambda _: RULES, turns=3)
        for body in talk:
            for message in body["messages"][1:]:
                message["content"] += f" {k}"
        talk[2]["messages"][2]["content"] = "[removed]"
        talks.append(talk)
    mixed = [talk[turn] for turn in range(3) for talk in talks]
    finding = one(check(tmp_path, mixed))
    assert (finding.rule.code, finding.requests) == ("PFX401", 12)
    assert (finding.where.line, finding.where.other_line) == (25, 13)


def test_sessions_separate_equal_texts(tmp_path):
    bodies = [
        {"session_id": "s1", "request": {"model": "m", "messages": [system(RULES), user("hello there")]}},
        {
            "session_id": "s2",
            "request": {"model": "n", "messages": [system(RULES), user("hello there"), assistant("x"), user("y")]},
        },
    ]
    assert check(tmp_path, bodies) == []
    bodies[1]["session_id"] = "s1"
    assert codes(check(tmp_path, bodies)) == ["PFX504"]


def test_a_new_model_for_everybody_is_no_finding(tmp_path):
    talks = [conversation(lambda _: RULES) for _ in range(6)]
    for k, talk in enumerate(talks):
        for turn, body in enumerate(talk):
            body["messages"][1]["content"] += f" {k}"
            body["model"] = "old" if turn == 0 else "new"
    assert check(tmp_path, [talk[turn] for turn in range(3) for talk in talks]) == []
    for body in talks[0]:
        body["model"] = "old"
    assert codes(check(tmp_path, [body for talk in talks for body in talk])) == ["PFX504"]


def test_a_history_shortened_once_in_a_long_conversation_is_a_note(tmp_path):
    history, bodies = [], []
    for turn in range(16):
        history = [
            *history,
            user(f"u{turn} asks for something"),
            assistant(None, tool_calls=[call(f"c{turn}")]),
            tool(f"c{turn}", "long result " * 30),
        ]
        if turn == 13:
            history = [*history[:2], tool("c0", "[cleared]"), *history[3:]]
        bodies.append({"messages": [system("x"), *history]})
        history = [*history, assistant(f"a{turn}")]
    finding = one(check(tmp_path, bodies))
    assert (finding.rule.code, finding.severity.word) == ("PFX401", "info")


@pytest.mark.parametrize("secret", ["sk-abcdefghijklmnop1234", "ghp_abcdefghijklmnopqrst1234"])
def test_credentials_are_never_shown(secret, tmp_path):
    bodies = conversation(lambda t: f"api_key: {secret[:-1]}{t}\n{RULES}")
    shown = json.dumps([logrules.as_json(f) for f in check(tmp_path, bodies)])
    assert secret[:-1] not in shown
    assert "<secret>" in shown


def test_redact_masks_values_by_kind(tmp_path):
    bodies = siblings([f"User: {n}@corp.example\n{RULES}" for n in ("ann", "bob")])
    masked = one(check(tmp_path, bodies, masked=redact.shown(personal=True)))
    assert all(value.startswith("<email:") for value in masked.values)
    assert masked.values[0] != masked.values[1]
    assert "corp.example" not in json.dumps(logrules.as_json(masked))


def test_redact_masks_who_is_asking(tmp_path):
    bodies = siblings([f"You are talking to {name}, a customer.\n{RULES}" for name in ("Ann Meyer", "Bob Stone")])
    assert "Ann Meyer" in one(check(tmp_path, bodies)).message
    masked = one(check(tmp_path, bodies, masked=redact.shown(personal=True)))
    assert all(value.startswith("<name:") for value in masked.values)
    assert masked.values[0] != masked.values[1]
    assert not any(part in json.dumps(logrules.as_json(masked)) for part in ("Ann", "Meyer", "Bob", "Stone"))


def test_values_are_short(tmp_path):
    bodies = conversation(lambda t: f"Known facts: {'abc'[t] * 5000}\n{RULES}")
    finding = one(check(tmp_path, bodies))
    assert all(len(value) <= 80 for value in finding.values)
    assert len(finding.message) < 400


def test_a_fingerprint_stays_when_lines_move(tmp_path):
    bodies = conversation(lambda t: f"Now: 10:0{t}\n{RULES}")
    clean = [{"messages": [system("Another agent."), user("hi")]}] * 3
    assert one(check(tmp_path, bodies)).fingerprint == one(check(tmp_path, [*clean, *bodies])).fingerprint


def test_truncated_texts_lower_confidence(tmp_path):
    first = [system("x"), user("a"), tool("1", "result " * 20 + "…[truncated]"), user("b")]
    later = [system("x"), user("a"), tool("1", "result " * 22 + "…[truncated]"), user("b"), assistant("c"), user("d")]
    finding = one(check(tmp_path, [{"messages": first}, {"messages": later}]))
    assert (finding.confidence.word, finding.severity.word) == ("low", "info")


@pytest.mark.parametrize(
    "bodies",
    [
        [],
        [{"messages": [user("a")]}],
        [{"messages": [user("a")]}] * 50,
        [{"messages": [user(" ".join(random.Random(i).sample(RULES.split(), 9)))]} for i in range(50)],
        [{"messages": []}, {"messages": [{"role": "user"}]}, {"messages": [{"role": "user", "content": None}]}],
        [{"messages": [{"role": "user", "content": [None, 3, {"type": "text"}, {"text": 5}]}]}] * 3,
        [{"messages": [{"role": "assistant", "tool_calls": [None, {}, {"function": None}]}, user("x")]}] * 3,
        [
            {"tools": [None, {}, {"function": 3}, "x"], "messages": [user("x")]},
            {"tools": [{}], "messages": [user("x")]},
        ],
    ],
    ids=["empty", "one", "identical", "unrelated", "bare", "parts", "calls", "tools"],
)
def test_nothing_is_invented(bodies, tmp_path):
    requests = [
        Request("x", i, Messages(body.get("messages", ()), body.get("tools", ())), "openai-chat", body=body)
        for i, body in enumerate(bodies, 1)
    ]
    assert logrules.check(requests, rulebook.rules()) == []


def test_requests_without_text_are_passed_over():
    assert logrules.check([Request("x", 1, TokenIds([1, 2]), "vllm")] * 3, rulebook.rules()) == []


@pytest.mark.parametrize("seed", range(5))
def test_shuffled_order_invents_nothing(seed, tmp_path):
    bodies = [b for k in range(8) for b in conversation(lambda _: RULES, turns=4)]
    for number, body in enumerate(bodies):
        for message in body["messages"][1:]:
            message["content"] += f" ({number // 4})"
    random.Random(seed).shuffle(bodies)
    assert check(tmp_path, bodies) == []


def test_memory_is_bounded():
    observer = logrules.Observer(memory=50_000)
    for number in range(200):
        body = {"messages": [system(RULES), user(f"{number} " + "word " * 400)]}
        observer.see(Request("x", number, Messages(body["messages"]), "openai-chat", body=body), number)
    assert observer._tracks._kept <= 50_000
    assert len(observer._tracks._tracks) < 40
    assert len(observer._tracks._by_message) < 60


def test_what_is_forgotten_leaves_nothing_behind():
    observer = logrules.Observer(memory=20_000)
    for number in range(60):
        messages = [user(f"{number // 3} " + "word " * 200), *(assistant(f"{number} {k}") for k in range(number % 3))]
        body = {"messages": messages, "session_id": f"s{number // 3}"}
        request = Request("x", number, Messages(messages), "openai-chat", body=body, session=f"s{number // 3}")
        observer.see(request, number)
    tracks = observer._tracks
    assert sum(tracks._sessions.values()) == len(tracks._tracks) == sum(map(len, tracks._by_end.values()))
    assert all(n in tracks._tracks for numbers in tracks._by_end.values() for n in numbers)
    held = {id(message) for track in tracks._tracks.values() for message in track.view.messages}
    siblings = (*tracks._siblings.latest.values(), *tracks._siblings._kept.values())
    held |= {id(message) for here in siblings for message in here.messages}
    assert {id(one()) for one in observer._known._held.values() if one() is not None} <= held


def test_each_of_many_conversations_with_one_opening_goes_on_from_its_own_turn():
    """More conversations share their first messages than candidates are looked at, and each changes no word."""
    opening = [system(RULES), user("hi"), assistant("hello, how can I help?")]
    rng = random.Random(2)
    histories = [[*opening, user(" ".join(rng.choices(RULES.split(), k=12)))] for _ in range(120)]
    bodies = []
    for turn in range(3):
        for number, history in enumerate(histories):
            bodies.append({"messages": list(history)})
            history += [assistant(f"answer {turn} to {number}"), user("and then?")]
    observer = logrules.Observer()
    for row, body in enumerate(bodies):
        observer.see(Request("x", row, Messages(body["messages"]), "openai-chat", body=body), row)
    assert {track.turns for track in observer._tracks._tracks.values()} == {3}


def test_a_repeated_message_is_read_once():
    known = Known().message
    messages = [user("one"), {"role": "assistant", "content": [{"type": "text", "text": "two"}]}]
    first = _view(messages, 0, known).messages
    again = _view([*copy.deepcopy(messages), user("three")], 1, known).messages
    assert [a is b for a, b in zip(first, again, strict=False)] == [True, True]
    first[0].pack()
    first[1].pack()
    assert [m.raw for m in again] == [*messages, user("three")]
    moved = _view([user("two"), user("one")], 2, known).messages
    assert moved[1].path == "messages[1]"
    assert moved[1].key == first[0].key


def test_messages_that_nothing_holds_are_forgotten():
    known = Known()
    kept = [known.message("messages[0]", user(f"kept {number}")) for number in range(10)]
    for number in range(5_000):
        known.message("messages[0]", user(f"gone {number}"))
    assert len(known._held) < 1_100
    assert [known.message("messages[0]", user(f"kept {number}")) for number in range(10)] == kept


def test_markers_of_a_repeated_message_are_its_own():
    known = Known().message
    plain, marked = user("one"), {**user("one"), "cache_control": {"type": "ephemeral"}}
    longer = {**user("one"), "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    found = [_view([message], row, known).messages[0] for row, message in enumerate((plain, marked, longer, plain))]
    assert [m.raw for m in found] == [plain, marked, longer, plain]
    assert [m.marked for m in found] == [False, True, True, False]
    assert len({m.key for m in found}) == 1


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ({"role": "user", "content": "a"}, {"content": "a", "role": "user"}),
        ({"role": "user", "content": 1}, {"role": "user", "content": True}),
        ({"role": "user", "content": "1"}, {"role": "user", "content": 1}),
        ({"role": "user", "content": "None"}, {"role": "user", "content": None}),
        ({"role": "user", "content": "a"}, {"role": "user", "name": "content", "a": ""}),
    ],
)
def test_messages_written_in_another_way_have_other_keys(one, two):
    a, b = (_view([message], 0).messages[0] for message in (one, two))
    assert a.key != b.key


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=4),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["role", "content", "cache_control"]), inner, max_size=3)
        ),
        max_leaves=6,
    )
    | st.fixed_dictionaries({"role": st.text(max_size=3), "content": st.text(max_size=3)})
)
@settings(deadline=None)
def test_a_packed_message_is_as_it_was_logged(raw):
    one, two = (_view([user("first"), copy.deepcopy(raw)], row).messages[1] for row in (0, 1))
    two.pack()
    assert two.raw == raw
    assert (one.key, one.size, one.said) == (two.key, two.size, two.said)


@pytest.mark.parametrize("unit", ["10", "0.5, ", "1,", "A", "ab", "0.123456789,", "1 m, ", "/a", "a@", "x1-"])
def test_texts_of_few_signs_are_compared_in_linear_time(unit):
    """Runs that fit anywhere are no reason to try every place; a hostile log must not take minutes."""
    rng = random.Random(1)
    earlier = unit * (6000 // len(unit))
    later = "".join(rng.choice(unit + "7") if rng.random() < 0.1 else sign for sign in earlier)
    half = len(earlier) // 2
    assert _spans.places(earlier, later)
    assert work(_spans.places, earlier, later) < 2.5 * work(_spans.places, earlier[:half], later[:half])


def test_two_long_lines_of_few_signs_meet_again():
    earlier, later = "ab" * 150 + "END of it, here " + "ba" * 120, "ba" * 140 + "x" + "END of it, here " + "ba" * 120
    end_a, end_b = _meeting.near(earlier, later)
    assert earlier[end_a : end_a + 12] == later[end_b : end_b + 12]
    assert _meeting.near("a" * 300, "b" * 300 + "a" * 5) is None


def test_texts_meet_again_where_the_first_long_block_of_difflib_begins():
    rng = random.Random(7)
    words = ("of the ", "quick brown ", "fox", "x", "1182", "jumps over the lazy dog ")
    met = 0
    for _ in range(300):
        earlier, later = ("".join(rng.choices(words, k=rng.randint(0, 8))) for _ in range(2))
        blocks = SequenceMatcher(None, earlier, later, autojunk=False).get_matching_blocks()
        first = next(((block.a, block.b) for block in blocks if block.size >= 12), None)
        assert _meeting._aligned(earlier, later) == first
        met += first is not None
    assert 50 < met < 290


def test_only_the_rules_that_are_wanted(tmp_path):
    path = tmp_path / "log.jsonl"
    bodies = conversation(lambda t: f"Now: 10:0{t}\n{RULES}")
    path.write_text("".join(json.dumps(body) + "\n" for body in bodies))
    rules = {code: rule for code, rule in rulebook.rules().items() if code != "PFX101"}
    assert logrules.check(logs.read([str(path)]), rules) == []


def test_output_does_not_depend_on_hashing(tmp_path):
    bodies = [body for _, _, some in logcases.CASES for body in some]
    shown = [logrules.as_json(f) for f in check(tmp_path, bodies)]
    assert shown == [logrules.as_json(f) for f in check(tmp_path, bodies)]


@pytest.mark.parametrize(
    ("earlier", "later", "kind"),
    [
        ("at 09:59 sharp", "at 10:00 sharp", "clock"),
        ("on 2031-03-04 we", "on 2031-03-05 we", "date"),
        ("on 2031-03-04 23:59 we", "on 2031-03-05 00:01 we", "clock"),
        ("Tuesday, March 4, 2031", "Wednesday, March 5, 2031", "date"),
        ("2031年3月4日", "2031年3月5日", "date"),
        ("2031년 3월 4일 09:12", "2031년 3월 5일 09:14", "clock"),
        ("seen 59 seconds ago", "seen 1 minute ago", "age"),
        ("9 of 10 done", "10 of 10 done", "counter"),
        ("used 99% of it", "used 100% of it", "counter"),
        ("req_id=a8f3k2j4 go", "req_id=b7d1m9x2 go", "random"),
        ("user id: 81", "user id: 94", "identity"),
        ("mail ann@x.example now", "mail bob@x.example now", "identity"),
        ("cwd: /srv/a/b", "cwd: /srv/a/c", "environment"),
        ('x {"a": 1, "b": 2} y', 'x {"b": 2, "a": 1} y', "json"),
        ("tags: red, green, blue.", "tags: blue, red, green.", "order"),
        ("<A object at 0x7f00aa11bb22>", "<A object at 0x7f00aa11cc33>", "address"),
        ("Messages remaining today: 895", "Messages remaining today: 878", "counter"),
        ("Today is the 4 of the month", "Today is the 5 of the month", "date"),
        ("between <<mkCbRY8Ej2>> marks", "between <<kBTnQdxSfM>> marks", "random"),
        ("token: b7Kd8dkE8a9dKf.", "token: bkdFcdkExawdKf.", "random"),
        ("use getUserName here now", "use getAllThings here now", "text"),
        ("ask Maria Keller (u7@c.example), please", "ask Tom Okafor (u15@c.example), please", "identity"),
        ("Git: branch fix/budget-43, next", "Git: branch fix/budget-9, next", "environment"),
        ("x-relay-info: build=2.1.7.111; sum=0a4f1", "x-relay-info: build=2.1.6.58c; sum=9be02", "header"),
        ('n 12\n{"a": 1,\n "b": {"c": 2}}\n', 'n 12\n{"b": {"c": 2},\n "a": 1}\n', "json"),
        (f"You sell ferries.\n{RULES}", f"You sell ferries.\nNow: 10:04:11\n{RULES}", "clock"),
        (f"You sell ferries.\nBudget left: 9,000 tokens\n{RULES}", f"You sell ferries.\n{RULES}", "counter"),
        (f"You sell ferries.\n{RULES}", f"You sell ferries.\nThe guest is ann@x.example.\n{RULES}", "identity"),
    ],
)
def test_kinds_of_values(earlier, later, kind):
    place = _spans.places(earlier, later)[0]
    assert place.kind == kind
    assert earlier[: place.char] == later[: place.char]


LONG = "\n".join(f"{RULES} Look at page {page} of the book first." for page in ("two", "six", "nine", "ten", "one"))


def passages(rng, count):
    """Give texts that were found for a question, with numbers, ids and marks in them."""
    nouns = ["ferry", "pier", "sail", "rope", "crate", "ledger", "buoy", "hull", "deck", "quay"]
    line = '<doc id="{}">Before the {} leaves the {}, weigh the {} by rule {} and tell the {} of {}.</doc>'
    found = (
        (rng.randrange(9999), *rng.sample(nouns, 3), rng.randrange(99), *rng.sample(nouns, 2)) for _ in range(count)
    )
    return "\n".join(line.format(*each) for each in found)


def test_what_stands_in_a_passage_is_no_value_of_its_own(tmp_path):
    rng = random.Random(5)
    bodies = siblings([f"You sell ferries.\nContext:\n{passages(rng, 4)}\n{LONG}" for _ in range(6)])
    finding = one(check(tmp_path, bodies * 3))
    assert finding.rule.code == "PFX202"


def test_a_clock_beside_a_passage_is_a_cause_of_its_own(tmp_path):
    rng = random.Random(5)
    bodies = siblings([f"Now: 10:{k:02}:07\nContext:\n{passages(rng, 4)}\n{LONG}" for k in range(6)])
    assert codes(check(tmp_path, bodies * 3)) == ["PFX101", "PFX202"]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("2026-11-03 09:1{}:40\nAPI docs follow.", "2026-11-03 09:10:40"),
        ("2026-11-03 09:1{}:40 API docs follow.", "2026-11-03 09:10:40"),
        ("09:1{}\nMonday is a holiday.", "09:10"),
        ("09:1{} Zebra crossings are closed.", "09:10"),
        ("2026-11-03 09:1{}:40 CEST, docs follow.", "2026-11-03 09:10:40 CEST"),
        ("09:1{} AM UTC on Monday.", "09:10 AM UTC on Monday"),
    ],
)
def test_a_time_ends_where_the_next_word_begins(written, value, tmp_path):
    found = one(check(tmp_path, siblings([f"It is {written.format(n)} {LONG}" for n in range(4)])))
    assert (found.rule.code, found.values[0]) == ("PFX101", value)


@pytest.mark.parametrize("mark", ["...[truncated]", "… ({} more characters)", " [+{} chars]"])
def test_what_a_log_writes_for_the_rest_of_a_text_is_hardly_a_cause(mark, tmp_path):
    found = check(tmp_path, siblings([f"{LONG} {LONG}"[:700] + mark.format(2010 + 7 * n) for n in range(5)]))
    assert [(f.confidence.word, f.severity.word) for f in found] in ([], [("low", "info")])


def test_one_long_line_with_a_value_at_both_its_ends_is_the_head_of_one_conversation(tmp_path):
    text = " ".join(LONG.split())
    bodies = conversation(lambda n: f"It is {9 + n}:17:{n}5. {text} Tokens used so far: {1000 + 37 * n}.", turns=6)
    assert codes(check(tmp_path, bodies)) == ["PFX101", "PFX107"]


ASKED = [
    lambda n: f"What is the status of invoice {41_000 + n * 377}? Answer in two sentences and cite the ledger entry.",
    lambda n: f"Please open /srv/files/d{n}/report.pdf and summarise it for me in three short sentences.",
    lambda n: f"My order {700_000 + n * 9_113} has not come since {n + 1} March, can you say where it is at last?",
]


@pytest.mark.parametrize("question", ASKED, ids=["number", "path", "order"])
@pytest.mark.parametrize("shape", ["messages", "prompt", "behind rules"])
def test_what_a_user_asks_about_is_no_cause(shape, question, tmp_path):
    if shape == "messages":
        bodies = [{"model": "m", "messages": [user(question(n))]} for n in range(14)]
    else:
        rules = f"{RULES}\n\n" if shape == "behind rules" else ""
        bodies = [{"model": "m", "prompt": f"{rules}User: {question(n)}\nAssistant:"} for n in range(14)]
    assert check(tmp_path, bodies) == []


def test_a_number_that_an_application_writes_into_a_prompt_is_one(tmp_path):
    bodies = [{"model": "m", "prompt": f"Order {700_000 + n * 9_113}\n{LONG}\nAnswer:"} for n in range(14)]
    assert len(one(check(tmp_path, bodies)).sightings) == 13


def test_a_setting_that_no_prompt_shows_is_not_what_ends_the_prefix(tmp_path):
    bodies = conversation(lambda t: f"Now: 10:0{t}\n{RULES}")
    for number, body in enumerate(bodies):
        body["reasoning_effort"] = ("low", "high")[number % 2]
    first = {f.rule.code: sum(s.first for s in f.sightings) for f in check(tmp_path, bodies)}
    assert first == {"PFX101": 2, "PFX504": 0}


@pytest.mark.parametrize("name", ["prompt_cache_key", "cache_salt"])
def test_a_key_that_only_some_turns_have_is_one_cause(name, tmp_path):
    bodies = conversation(lambda t: RULES, turns=7)
    for number, body in enumerate(bodies):
        if number % 3:
            body[name] = f"{number * 7919:08x}"
    finding = one(check(tmp_path, bodies))
    assert (finding.rule.code, finding.requests) == ("PFX503", 6)


def test_a_model_that_is_changed_there_and_back_is_one_cause(tmp_path):
    bodies = conversation(lambda t: RULES, turns=6)
    for number, body in enumerate(bodies):
        body["model"] = ("m-large", "m-small")[number % 2]
    finding = one(check(tmp_path, bodies))
    assert (finding.rule.code, finding.requests) == ("PFX504", 5)


def test_a_thought_that_was_all_of_a_message_is_reasoning_that_is_left_out(tmp_path):
    thought = assistant("<think>the ferry leaves at nine, so it is better to ask</think>", tool_calls=[call("c1")])
    start = [system(RULES), user("when does it leave?")]
    turns = [start, [*start, thought, tool("c1", "at nine")]]
    turns.append([*start, {**thought, "content": ""}, tool("c1", "at nine"), assistant("At nine."), user("thanks")])
    assert codes(check(tmp_path, [{"model": "m", "messages": messages} for messages in turns])) == ["PFX403"]


@given(st.text(max_size=200), st.text(max_size=200))
@settings(deadline=None)
def test_places_are_where_texts_differ(earlier, later):
    found = _spans.places(earlier, later)
    assert bool(found) == (earlier != later)
    if found:
        char = found[0].char
        assert earlier[:char] == later[:char]
        assert earlier[char : char + 1] != later[char : char + 1]


_MESSAGES = st.lists(
    st.builds(
        lambda role, text: {"role": role, "content": text}, st.sampled_from(["user", "assistant"]), st.text(max_size=6)
    ),
    max_size=7,
)


def _view(messages, row, message=Message):
    return view(Request("x", row, Messages(messages), "openai-chat", body={"messages": messages}), row, message)


@given(_MESSAGES, _MESSAGES)
@settings(deadline=None)
def test_any_two_histories_can_be_compared(first, second):
    compared = _history.compare(_view(first, 0), _view(second, 1))
    if first == second[: len(first)]:
        assert compared.relation in ("append", "repeat")
        assert not compared.hits
    if compared.relation in ("branch", "compaction", "rewind"):
        assert not compared.hits


@given(_MESSAGES, _MESSAGES)
@settings(deadline=None)
def test_appending_is_never_a_finding(history, more):
    requests = [
        Request("x", line, Messages(m), "openai-chat", body={"messages": m})
        for line, m in enumerate((history, history + more, history + more + history), 1)
    ]
    found = logrules.check(requests, rulebook.rules())
    assert not [f for f in found if f.rule.code.startswith("PFX4")]


@pytest.mark.parametrize("seed", [3, 8])
def test_hostile_nesting_is_no_danger(seed):
    deep = {"type": "text", "text": "x"}
    for _ in range(300):
        deep = {"a": [deep]}
    body = {"messages": [{"role": "user", "content": [deep]}, user("b" * seed)]}
    requests = [Request("x", i, Messages(body["messages"]), "openai-chat", body=body) for i in (1, 2)]
    assert logrules.check(requests, rulebook.rules()) == []


def test_markers_are_no_text():
    block = {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}
    assert unmarked([block, {"cachePoint": {"type": "default"}}]) == [{"type": "text", "text": "a"}]
    plain = [{"type": "text", "text": "a"}]
    assert unmarked(plain) is plain


def test_a_marker_too_far_from_the_last_one(tmp_path):
    mark = {"cache_control": {"type": "ephemeral"}}

    def text(value, **more):
        return {"role": "user", "content": [{"type": "text", "text": value, **more}]}

    history = [text("word " * 400, **mark)]
    filler = [m for i in range(15) for m in (assistant(f"a{i}"), user(f"u{i}"))]
    far = one(check(tmp_path, [claude(history), claude([text("word " * 400), *filler, text("end", **mark)])]))
    assert (far.rule.code, far.where.line) == ("PFX501", 2)
    assert check(tmp_path, [claude(history), claude([text("word " * 400), *filler[:8], text("end", **mark)])]) == []


@pytest.mark.parametrize(
    "text",
    [
        "x-a: " + "a=" * 4000,
        "x-a: " + "a-" * 4000,
        "1 m " * 3000,
        "[" * 5000,
        "a@" * 4000,
        "/a" * 4000,
        "x-a-" * 3000 + ":",
        "9" * 9000,
    ],
    ids=["pairs", "dashes", "ages", "brackets", "mails", "paths", "names", "digits"],
)
def test_hostile_texts_take_linear_time(text):
    def compared(text):
        half = len(text) // 2
        for other in (text + "1", text[:-2] + "zz", "q" + text, text[:half] + "é" + text[half:]):
            assert _spans.places(text, other)
            _values.pseudo_header(other)

    assert work(compared, text) < 2.5 * work(compared, text[: len(text) // 2])


FORMED = st.one_of(*(st.from_regex(form) for _, signs, form in _values._FORMS if signs))


@settings(deadline=None)
@given(FORMED)
def test_no_value_of_a_form_is_without_the_signs_of_the_form(text):
    for kind, signs, form in _values._FORMS:
        for found in form.finditer(text):
            assert not signs or any(sign in found[0].lower() for sign in signs), kind


def test_a_message_that_is_repeated_is_kept_once():
    said = [user("one"), assistant("zwölf")]
    earlier, later = (_view([dict(m) for m in said], row) for row in range(2))
    earlier.pack(earlier.tools, earlier.head, earlier.head_text)
    earlier.pack_messages(())
    later.pack(later.tools, later.head, later.head_text)
    later.pack_messages(earlier.messages)
    assert [m.raw for m in later.messages] == said
    assert all(a._json is b._json for a, b in zip(earlier.messages, later.messages, strict=True))
    assert all(a._plain is b._plain for a, b in zip(earlier.messages, later.messages, strict=True))
    assert [m._json is None for m in later.messages] == [m._plain is not None for m in later.messages] == [True, False]


def test_a_request_over_which_a_rule_stumbles_is_left_out_and_others_are_judged(monkeypatch):
    def clocked(n):
        head = {"role": "system", "content": f"It is 10:{n:02}:07.\nYou are the clerk of the harbour.\n{RULES}"}
        body = {"messages": [head, user(f"where is crate {n}?")]}
        return Request("x", n + 1, Messages(body["messages"]), "openai-chat", body=body)

    expected = [(f.rule.code, f.requests) for f in logrules.check(map(clocked, range(4)), rulebook.rules())]
    assert expected == [("PFX101", 3)]
    observer = logrules.Observer()
    view = logrules.view
    monkeypatch.setattr(logrules, "view", lambda request, *rest: 1 // (request.line - 3) and view(request, *rest))
    faulty = observer.taken(clocked(2), 2, 0)
    assert observer.fault is None
    monkeypatch.setattr(logrules, "view", view)
    for row in (0, 1, 2, 3, 4):
        observer.see_taken(faulty if row == 2 else observer.taken(clocked(row), row, 0))
    assert (observer.left_out, observer.fault.told()) == (1, "ZeroDivisionError at x:3")
    assert [(f.rule.code, f.requests) for f in observer.findings(rulebook.rules())] == expected


@pytest.mark.parametrize(
    "odd",
    [
        {"role": ["user"], "content": "x"},
        {"role": {"a": 1}, "content": "x"},
        {"role": "user", "parts": [{"functionResponse": "x"}]},
        {"role": "model", "parts": [{"functionCall": 7}]},
        {"role": "assistant", "content": [{"type": "tool_use", "toolUse": "x"}]},
        {"role": "assistant", "content": "x", "tool_calls": True},
        {"content": {"text": []}},
        7,
        None,
        [],
    ],
)
@pytest.mark.parametrize("key", ["messages", "contents", "input"])
def test_a_message_of_odd_types_is_no_fault(odd, key):
    observer = logrules.Observer()
    for row in range(6):
        body = {key: [{"role": "system", "content": RULES}, odd, user(f"question {row}"), odd][: 4 - row % 4 % 3]}
        said = Messages([message for message in body[key] if isinstance(message, dict)])
        observer.see(Request("x", row + 1, said, "openai-chat", body=body), row)
    observer.findings(rulebook.rules())
    assert observer.fault is None


def test_a_text_of_which_both_ends_change_is_still_that_of_the_conversation(tmp_path):
    def head(turn):
        return f"x-relay-meta: build={turn}.2; sum={turn:05x};\n{RULES}" + "\nReminder: use the list." * turn

    found = check(tmp_path, conversation(head, turns=4))
    assert codes(found) == ["PFX110", "PFX407"]
    grown = next(f for f in found if f.rule.code == "PFX407")
    assert grown.values == ("", "Reminder: use the list.")


def test_what_is_changed_in_messages_that_a_window_keeps():
    history = [m for k in range(6) for m in (user(f"question {k} " + "word " * 20), assistant(f"answer {k} " * 9))]
    bodies = []
    for turn in range(2):
        kept = [dict(m) for m in history[2 * turn : 2 * turn + 6]]
        for message in kept[1:4:2]:
            message["content"] += " (read)" * turn
        bodies.append({"messages": [system(RULES), *kept, user(f"new {turn}")]})
    found = _history.compare(*(_view(body["messages"], row) for row, body in enumerate(bodies)))
    assert found.relation == "window"
    assert found.hits[0].code == "PFX402"
    assert [(hit.code, hit.at.path) for hit in found.hits[1:]] == [("PFX401", f"messages[{n}].content") for n in (2, 4)]


def test_a_window_drops_all_results_of_the_calls_that_it_drops():
    history = [user("plan the crossing"), assistant("", tool_calls=[call(f"c{n}") for n in range(4)])]
    history += [tool(f"c{n}", f"pier {n} is open and the sea is calm") for n in range(4)]
    later = [m for n in (7, 8, 9) for m in (assistant("", tool_calls=[call(f"c{n}")]), tool(f"c{n}", f"{n} boats"))]
    turns = [history[1:] + later[:4], later]
    found = _history.compare(*(_view([system(RULES), *turn], row) for row, turn in enumerate(turns)))
    assert (found.relation, [hit.code for hit in found.hits]) == ("window", ["PFX402"])


@pytest.mark.parametrize(
    ("asked", "fires"),
    [
        ({"prompt_logprobs": 1}, True),
        ({"prompt_logprobs": 0}, True),
        ({"prompt_logprobs": None}, False),
        ({"prompt_logprobs": False}, False),
        ({"logprobs": True, "top_logprobs": 3}, False),
        ({"return_logprob": True, "logprob_start_len": 0}, True),
        ({"return_logprob": True, "logprob_start_len": -1}, False),
        ({"logprob_start_len": 0}, False),
    ],
)
def test_a_request_that_asks_for_its_prompts_logprobs_reads_no_cache(asked, fires, tmp_path):
    found = check(tmp_path, [{"model": "m", **asked, "messages": [system(RULES), user("a")]}])
    assert codes(found) == (["PFX701"] if fires else [])
    assert [f.where.at_path for f in found] == (
        [next(n for n in asked if n.endswith(("logprobs", "len")))] if fires else []
    )


def _rows(texts, more=()):
    mark = {"cache_control": {"type": "ephemeral"}}
    block = {"type": "text", "text": (RULES + " ") * 120, **mark}
    return [claude([user("Classify."), *more], [{**block, "text": block["text"] + text}]) for text in texts]


@pytest.mark.parametrize("more", [(), (assistant("Quartz."), user("Sure?"))])
def test_a_row_at_the_end_of_a_marked_block_makes_each_write_unique(more, tmp_path):
    rows = ["Row: quartz, Uri", "Row: beryl, Valais", "Row: garnet, Ticino"]
    found = one(check(tmp_path, _rows(rows, more)))
    assert (found.rule.code, found.where.at_path, found.severity.word) == (
        "PFX501",
        "system[0].text",
        "info" if more else "warning",
    )
    behind = [claude([user(row)], bodies["system"]) for row, bodies in zip(rows, _rows([""] * 3), strict=True)]
    assert check(tmp_path, behind) == []


@pytest.mark.parametrize(("tag", "code"), [("system-reminder", "PFX404"), ("env", "PFX404"), ("manual", "PFX203")])
def test_a_reminder_that_stays_the_same_is_no_document(tag, code, tmp_path):
    block = f"\n<{tag}>Use the seat tool, never the map.</{tag}>"
    turns = [user("fare?"), assistant("14."), user("dog?"), assistant("half."), user("cat?")]
    sent = [[*turns[:n], user(turns[n]["content"] + block)] for n in (0, 2, 4)]
    found = one(check(tmp_path, [{"model": "m", "messages": [system(RULES), *messages]} for messages in sent]))
    assert (found.rule.code, found.where.at_path, found.where.char) == (code, "messages[1].content", len("fare?"))


LISTS = ["Open: " + ", ".join(names) for names in itertools.permutations(["quay", "ferry", "depot"])]
FOUND = "## Found pages\n[1] {0} sails at nine on working days.\n[2] Ask for {0} at the quay.\n"


def talks(number, head, **more):
    """Give conversations whose questions are their own; `head` and others are functions of conversation and turn."""
    found = []
    for talk in range(number):
        of_turn = {name: lambda turn, talk=talk, value=value: value(talk, turn) for name, value in more.items()}
        bodies = conversation(lambda turn, talk=talk: head(talk, turn), **of_turn)
        for body in bodies:
            for message in body["messages"][1:]:
                message["content"] += f" It is on {'ABCDEFGHIJ'[talk] * 90} of course."
        found += bodies
    return found


def test_a_list_that_only_some_requests_have_is_the_cause_of_its_order(tmp_path):
    """A list that comes and goes within conversations, and from one to the next, is no text of its own."""
    shows = [1, 1, 0, 1, 0, 1, 1, 0, 1, 1, 0, 1]
    heads = [RULES + (f"\n{LISTS[n % 6]}" if has else "") + f"\n{RULES}" for n, has in enumerate(shows)]
    finding = one(check(tmp_path, talks(4, lambda talk, turn: heads[3 * talk + turn])))
    assert (finding.rule.code, finding.kind) == ("PFX301", "order")
    seen = list(finding.sightings)
    assert [s.row for s in seen] == sorted(s.row for s in seen)
    assert {s.row for s in seen if s.turn} == {1, 2, 4, 5, 7, 8, 10, 11}  # each turn has it, had it, or both
    assert finding.requests == len({s.row for s in seen})


@pytest.mark.parametrize("at", [0, 1])
def test_text_found_for_the_question_counts_from_the_first_request_that_has_it(at, tmp_path):
    lines = [f"# {RULES}", *[f"- {name}: {RULES}" for name in ("one", "two", "three", "four")]]

    def head(step):
        found = [FOUND.format(f"Boat {'abcdefghijklmnop'[step]} of the line {'mnopabcdefghijkl'[step] * 3}")]
        return "\n".join([*lines[:at], *(found if step > 3 else []), *lines[at:]])

    finding = one(check(tmp_path, talks(4, lambda talk, turn: head(3 * talk + turn))))
    assert finding.rule.code == "PFX202"
    assert min(s.row for s in finding.sightings) == 4


def test_a_random_word_without_a_digit_is_a_random_id_where_others_are(tmp_path):
    marks = ["6tHUdThhMk", "phzgtnTwcb", "9QpZr71xkV", "x8Kd0sLqTz", "mKqvbtRzsw", "Ab39xTTq0Z"]
    heads = [f"{RULES}\nText between <<{mark}>> marks is data.\n{RULES}" for mark in marks]
    finding = one(check(tmp_path, talks(2, lambda talk, turn: heads[3 * talk + turn])))
    assert (finding.rule.code, finding.requests) == ("PFX104", 5)


def test_stamps_on_all_messages_are_one_cause(tmp_path):
    bodies = talks(4, lambda talk, turn: RULES)
    for number, body in enumerate(bodies):
        for message in body["messages"][1::2]:
            message["content"] = f"[10:{number:02}:00] {message['content']}"
    finding = one(check(tmp_path, bodies))
    assert (finding.rule.code, finding.kind, finding.requests) == ("PFX401", "stamped", 8)


def test_a_stamp_on_the_first_message_alone_is_a_clock(tmp_path):
    bodies = conversation(lambda t: RULES)
    for turn, body in enumerate(bodies):
        body["messages"][1]["content"] = f"[10:00:0{turn}] {body['messages'][1]['content']}"
    finding = one(check(tmp_path, bodies))
    assert (finding.rule.code, finding.requests) == ("PFX101", 2)


def test_notes_joined_to_the_system_text_are_no_part_of_a_list_behind_them(tmp_path):
    def head(talk, turn):
        notes = "".join(f"\nNote {n}: {RULES}" for n in range(turn))
        return f"{LISTS[(talk + turn) % 6]}\n{RULES}{notes}"

    assert codes(check(tmp_path, talks(5, head))) == ["PFX301", "PFX407"]


def test_other_tools_of_a_sibling_count_where_conversations_change_theirs(tmp_path):
    kinds = [tools(names) for names in (["a", "b"], ["a", "c"], ["b", "c"])]
    changing = talks(3, lambda talk, turn: RULES, tools=lambda talk, turn: kinds[(2 * talk + (talk > 1) + turn) % 3])
    finding = one(check(tmp_path, changing))
    assert finding.rule.code == "PFX305"
    assert [s.row for s in finding.sightings if not s.turn] == [6]  # row 3 has the tools of the request before it
    assert check(tmp_path, talks(3, lambda talk, turn: RULES, tools=lambda talk, turn: kinds[talk])) == []


def test_a_list_at_the_end_of_the_system_text_is_lost_itself(tmp_path):
    finding = one(check(tmp_path, siblings([f"{RULES}\n{text}" for text in LISTS[:4]])))
    assert (finding.rule.code, finding.requests, finding.severity.word) == ("PFX301", 3, "info")


TASK = "Task at hand: when the {0} harbor is {0}, mark the {0} draft and check each {0} pump by rule {1}."


def test_text_of_each_conversation_is_found_ahead_of_other_values(tmp_path):
    """What stands behind it is shared for the most part, though a value follows it at once."""

    def head(talk, turn):
        task = TASK.format(["northern", "spare", "paid", "wet", "formal"][talk], 17 * talk + 3)
        return f"{task}\nRun {9_000_000_017 - 7_919 * (3 * talk + turn):x}f{'abc'[turn]}e\n{(RULES + chr(10)) * 20}"

    found = check(tmp_path, talks(5, head))
    assert "PFX201" in codes(found)
    assert not {"PFX106", "PFX202"} & set(codes(found))


def test_text_that_begins_midway_ahead_of_another_value_is_one_cause(tmp_path):
    runs = ["vrrYJy6gkq", "SzKqaL5P7V", "HxcMpdGDNa", "Bj7yLq0ZtR"] * 4

    def head(talk, turn):
        step = 3 * talk + turn
        task = TASK.format(["northern", "spare", "paid", "wet", "formal"][talk], 17 * talk + 3)
        return f"{task + chr(10) if step > 3 else ''}You are Eva (run {runs[step]}{step}).\n{(RULES + chr(10)) * 20}"

    assert codes(check(tmp_path, talks(5, head))) == ["PFX104", "PFX201"]


def test_a_state_that_is_the_same_by_chance_is_no_constant_that_moves(tmp_path):
    bodies = talks(8, lambda talk, turn: RULES)
    for number, body in enumerate(bodies):
        step = min(number, len(bodies) - 5 + number % 3 // 2)  # the last two but one are the same
        place = ["harbor", "quay", "ferry"][step % 3]
        body["messages"].append(user(f"[Current screen]\nview={place} cursor={step * 13 % 80}\n[End of screen]"))
    finding = one(check(tmp_path, bodies))
    assert (finding.rule.code, finding.requests) == ("PFX404", 16)


@pytest.mark.parametrize("spoken", [True, False])
def test_a_window_behind_which_the_user_has_spoken_is_told(spoken, tmp_path):
    """A chat template then leaves out thoughts, and with them all that stands behind the first one."""
    turns = [user(f"{name} {RULES}") if n % 2 == 0 else {**assistant(f"{name} {RULES}"), "reasoning_content": name * 9}
             for n, name in enumerate(["one", "two", "three", "four", "five"])]  # fmt: skip
    if not spoken:
        turns[-1] = tool("c", "five")
    finding = one(check(tmp_path, [{"messages": [system(RULES), *turns[n : n + 4]]} for n in range(2)]))
    assert (finding.rule.code, [s.asked for s in finding.sightings]) == ("PFX402", [spoken])


def test_words_of_a_passage_that_look_like_a_name_are_no_cause_beside_it(tmp_path):
    names = ["Unless the ledger", "Before a clause", "After every draft", "If one grain", "Since the pump"]

    def head(talk, turn):
        name = names[talk % 5] if talk not in (7, 8) else "When the tenant"
        then = names[(talk * 3) % 5 if talk not in (7, 8) else 0].lower()
        task = f"{name} is {['late', 'paid', 'plain', 'wet'][talk % 4]}, reject it and go on as {then} is."
        return f"Task at hand: {task}\n{(RULES + chr(10)) * 20}"

    finding = one(check(tmp_path, talks(10, head)))
    assert (finding.rule.code, finding.requests) == ("PFX201", 9)


def test_a_block_that_goes_from_a_message_whose_white_space_changes_is_known(tmp_path):
    """On each turn the newest message has other line ends and a reminder, and both are gone on the next one."""
    bodies = talks(5, lambda talk, turn: RULES)
    for body in bodies:
        newest = body["messages"][-1]
        text = newest["content"].replace(". ", ".\r\n").replace("? ", "?\r\n")
        newest["content"] = f"{text}\n\n<system-reminder>\nLeft: {len(body['messages'])} items.\n</system-reminder>"
    assert codes(check(tmp_path, bodies)) == ["PFX404", "PFX406"]


def test_a_conversation_is_known_whose_opening_gets_other_line_ends(tmp_path):
    bodies = talks(6, lambda talk, turn: RULES)
    for body in bodies:
        newest = body["messages"][-1]
        newest["content"] = newest["content"].replace("? ", "?\r\n")
    finding = one(check(tmp_path, bodies))
    assert (finding.rule.code, finding.kind, finding.requests) == ("PFX406", "space", 12)


PASSAGES = [
    (
        "Case file:",
        "The tenant opens the gate at noon. A clerk weighs the crate first.",
        "Nobody answers the bell. The crew then counts the lamps twice.",
    ),
    (
        "You help the customer.",
        "Seal every crate before the ferry leaves. Ask the pilot which lamp is broken.",
        "Never fold a towel on deck. Count the lamps and the ropes together.",
    ),
]


@pytest.mark.parametrize(("ahead", "one", "two"), PASSAGES, ids=lambda text: text[:9])
def test_a_passage_is_neither_who_asks_nor_the_state_of_a_machine(ahead, one, two):
    for gap in ("\n", " "):
        texts = [f"{ahead}{gap}{text}\n{LONG}" for text in (one, two)]
        assert {place.kind for place in _spans.places(*texts)} <= {"text", "retrieval"}


def test_changed_files_are_the_state_of_a_machine_however_many_there_are(tmp_path):
    changed = ["src/order_3.py", "src/route_17.py", "lib/crew.ts"]
    heads = [f"{RULES}\ngit status:\n" + "\n".join(f" M {name}" for name in changed[:k]) for k in (1, 2, 3, 1)]
    heads.append(heads[1].replace("order_3", "shift_8"))
    assert one(check(tmp_path, conversation(lambda t: heads[t], 5))).rule.code == "PFX106"


def test_the_number_of_a_line_that_comes_is_no_counter():
    for rule in ("never quote a frozen lamp on Sundays", "a quota holds for all messages"):
        text = f"\nNote 1: {rule}."
        assert [place.kind for place in _spans.places(f"{LONG}{RULES}", f"{LONG}{RULES}{text}")] == ["text"]
    step = "\nMessages left: 12."
    assert [place.kind for place in _spans.places(f"{LONG}{RULES}", f"{LONG}{RULES}{step}")] == ["counter"]


def test_a_block_with_a_clock_that_comes_within_a_conversation_is_the_clock(tmp_path):
    def head(minute):
        block = f"<env>\nplatform: linux\nnow: 10:{minute}:07\n</env>\n\n" if minute else ""
        return f"You answer customers.\n\n{block}{LONG}"

    bodies = [*conversation(lambda t: head([0, 21, 25][t])), *conversation(lambda t: head(31 + t))]
    finding = one(check(tmp_path, bodies))
    assert (finding.rule.code, finding.requests) == ("PFX101", 5)


def test_short_results_that_get_the_mark_of_cut_ones_are_the_same_cause(tmp_path):
    talk, bodies = [], []
    for turn, result in enumerate(
        [LONG[:300], "three lamps are left", LONG[300:600], "no lamp is left", LONG[600:900]]
    ):
        talk += [user(f"and {turn}?"), assistant("", tool_calls=[call(f"c{turn}")]), tool(f"c{turn}", result)]
        cut = [
            m | {"content": m["content"][:90] + f"... [{len(m['content'])} chars]"} for m in talk if m["role"] == "tool"
        ]
        old = iter(cut[:-1])
        shown = [next(old, m) if m["role"] == "tool" else m for m in talk]
        bodies.append({"messages": [system(RULES), *copy.deepcopy(shown)]})
        talk.append(assistant(f"answer {turn}"))
    finding = one(check(tmp_path, bodies))
    assert (finding.rule.code, finding.kind, finding.requests) == ("PFX401", "cleared", 4)
