"""How much a finding says is lost: only what is lost for its sake."""

import pytest

from tests.linting import findings
from tests.test_lint_proof import ASK, LONG, NOW, RULES


def told(text):
    """Give the messages about a clock in a file, with their severities."""
    found, _ = findings({"a.py": NOW + text})
    return [(each.severity.word, each.message) for each in found if each.rule.code == "PFX101"]


def request(content, rest=""):
    return f'def f(q, question, history, notes):\n    return client.chat(messages=[{{"role": "system", "content": {content}}}, {rest}{ASK}])\n'


@pytest.mark.parametrize(
    ("content", "rest", "ending"),
    [
        (f'f"It is {{datetime.now()}}. {LONG}"', "*history, ", "after it, and the conversation, are recomputed"),
        (f'f"It is {{datetime.now()}}. {LONG}"', "", "after it are recomputed"),
        (
            f'f"It is {{datetime.now()}}. {LONG} Asked: {{question}} {LONG}"',
            "*history, ",
            "up to the next value that changes, are recomputed",
        ),
    ],
)
def test_a_conversation_is_lost_where_one_follows_and_nothing_else_changes_before_it(content, rest, ending):
    [(word, message)] = told(request(content, rest))
    assert word == "error"
    assert ending in message
    tokens = round(len(LONG) / 4)
    assert any(f"the {count} static tokens" in message for count in range(tokens - 4, tokens + 8))


def test_a_placeholder_that_is_still_to_be_filled_with_what_was_found_ends_what_requests_share():
    body = (
        f'BASE = "It is <now>. {RULES} %s {LONG}"\ndef base():\n    return BASE.replace("<now>", str(datetime.now()))\n'
    )
    ask = request("base()", "*history, ")
    assert "up to the next value" not in told(body % "{colours}" + ask)[0][1]
    assert "up to the next value" not in told(body % "{{memories}}" + ask)[0][1]
    assert "up to the next value" in told(body % f"{RULES} {{memories}}" + ask)[0][1]
    assert told(body.replace(RULES, "") % "{memories}" + ask)[0][0] == "info"


@pytest.mark.parametrize(("name", "cut"), [("memories", True), ("search_results", True), ("question", False)])
def test_what_was_found_cuts_off_what_follows_in_an_optional_part_too(name, cut):
    body = f'def f(q, history, {name}):\n    text = f"It is {{datetime.now()}}. {LONG}"\n    if {name}:\n        text += f"Known: {{{name}}}"\n'
    ask = f'    text += "{LONG}"\n    return client.chat(messages=[{{"role": "system", "content": text}}, *history, {ASK}])\n'
    [(word, message)] = told(body + ask)
    assert (word, "up to the next value" in message) == ("error", cut)


@pytest.mark.parametrize(
    ("made", "place"),
    [
        ("base.format(now=datetime.now())", "somewhere in the system message"),
        ("str(datetime.now())", "at the first token of the system message"),
    ],
)
def test_what_fills_a_text_that_is_not_at_hand_stands_somewhere_in_it(made, place):
    text = f'def f(q, history, base):\n    said = {made}\n    return client.chat(messages=[{{"role": "system", "content": said}}, *history, {ASK}])\n'
    assert place in told(text)[0][1]


def test_text_of_unknown_length_in_front_is_told():
    text = f'def f(self, q, history):\n    system = self.who.build_prompt(q) + f"It is {{datetime.now()}}. {LONG}"\n    return client.chat(messages=[{{"role": "system", "content": system}}, *history, {ASK}])\n'
    assert "at token 2 or later of the system message" in told(text)[0][1]
    assert "at token 2 of the system message" in told(text.replace("self.who.build_prompt(q) + ", ""))[0][1]


def test_an_age_behind_a_time_costs_nothing_of_its_own():
    made = f'    gap = datetime.now() - last\n    head = f"%sYou spoke {{int(gap.total_seconds() / 3600)}} hours ago. {LONG}"\n'
    ask = f'    return client.chat(messages=[{{"role": "system", "content": head}}, *history, {ASK}])\n'
    for lead, word in (("", "error"), ("It is {datetime.now()}. ", "info")):
        found, _ = findings({"a.py": NOW + "def f(q, last, history):\n" + made % lead + ask})
        assert {each.severity.word for each in found if each.rule.code == "PFX103"} == {word}


@pytest.mark.parametrize(("ahead", "word"), [("", "warning"), ("Time: {datetime.now()}. ", "info")])
def test_who_asks_costs_nothing_as_long_as_a_time_stands_ahead(ahead, word):
    text = f'{NOW}def f(q, user_name):\n    return client.chat(messages=[{{"role": "system", "content": f"{ahead}Name: {{user_name}}. {LONG}"}}, {ASK}])\n'
    found, _ = findings({"a.py": text})
    assert {each.severity.word for each in found if each.rule.code == "PFX105"} == {word}


def test_a_name_costs_its_users_own_conversation_nothing():
    text = f'def f(user_name, history, q):\n    return client.chat(messages=[{{"role": "system", "content": f"You serve {{user_name}}. {LONG}"}}, *history, {ASK}])\n'
    found, _ = findings({"a.py": text})
    (said,) = (each.message for each in found if each.rule.code == "PFX105")
    assert said.endswith("are recomputed for each user")
    assert "conversation" not in said


def test_what_an_object_holds_is_lost_once_for_each():
    made = f'        self.text = f"It is {{datetime.now()}}. {LONG}"\n'
    sent = f'        return client.chat(messages=[{{"role": "system", "content": self.text}}, *self.history, {ASK}])\n'
    kept = f"class Chat:\n    def __init__(self, history):\n        self.history = history\n{made}    def ask(self, q):\n{sent}"
    assert "after it are recomputed for each object that is made" in told(kept)[0][1]
    anew = f"class Chat:\n    def ask(self, q):\n{made}{sent}"
    assert "and the conversation, are recomputed each second" in told(anew)[0][1]


def test_what_stands_beside_a_format_leaves_it_as_fine_as_it_is():
    text = f'{NOW}def f(zone, q):\n    at = datetime.now().strftime(f"%A, %H:%M {{zone}}")\n    return client.chat(messages=[{{"role": "system", "content": f"It is {{at}}. {LONG}"}}, {ASK}])\n'
    assert told(text)[0][1].endswith("each minute")


@pytest.mark.parametrize(
    ("block", "rest", "word"),
    [
        ('{"type": "image_url", "image_url": {"url": q}}', "", "info"),
        ('{"type": "image_url", "image_url": {"url": q}}', "*history, ", "error"),
        ('{"type": "text", "text": q}', "", "error"),
    ],
)
def test_few_lines_about_a_picture_cost_little_beside_it(block, rest, word):
    asked = f'{{"role": "user", "content": [{block}, {{"type": "text", "text": "{LONG}"}}]}}'
    text = f'def f(q, history):\n    return client.chat(messages=[{{"role": "system", "content": f"It is {{datetime.now()}}. {RULES}"}}, {rest}{asked}])\n'
    assert {severity for severity, _ in told(text)} == {word}


@pytest.mark.parametrize(("held", "word"), [("retrieved_memories", "info"), ("settings", "error")])
def test_an_entry_of_what_was_remembered_was_remembered(held, word):
    content = f"f\"It is {{datetime.now()}}. Words: {{{held}['key_words']}} {LONG}\""
    text = request(content, "*history, ").replace("notes", f"notes, {held}")
    assert {severity for severity, _ in told(text)} == {word}
