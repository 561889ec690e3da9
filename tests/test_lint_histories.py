"""Conversations that code keeps in other places than a list called history, and changes by other names."""

import pytest

from tests.linting import codes, findings

RULES = "You keep a hive diary. Weights are kilograms. Flag a swarm risk. Never guess what a keeper meant. " * 2


def words_of(text, code):
    return {each.severity.word for each in findings({"a.py": text})[0] if each.rule.code == code}


@pytest.mark.parametrize(
    ("note", "word"), [('CLEARED = "[cleared]"', {"error"}), ("CLEARED = load()", set()), ('CLEARED = ""', set())]
)
def test_a_note_in_place_of_a_result_may_be_a_constant(note, word):
    text = f"{note}\ndef f(messages, keep):\n    old = [i for i, m in enumerate(messages) if m['role'] == 'tool']\n"
    text += "    for i in old[:-keep]:\n        messages[i]['content'] = CLEARED\n    return messages\n"
    assert words_of(text, "PFX401") == word


@pytest.mark.parametrize(
    ("read", "fires"),
    [
        ("load_messages(user)[-10:]", True),
        ("self.db.get_history(user)[-10:]", True),
        ("load_messages(user)", False),
        ("get_message_ids(user)[-10:]", False),
        ("format_history(user)[-900:]", False),
    ],
)
def test_a_window_over_what_a_function_says_are_the_messages(read, fires):
    text = f"RULES = {RULES!r}\ndef f(self, user, client):\n    messages = [{{'role': 'system', 'content': RULES}}]\n"
    text += f"    messages += {read}\n    return client.chat(messages=messages)\n"
    assert ("PFX402" in codes({"a.py": text})) is fires


@pytest.mark.parametrize(
    ("answer", "fires"),
    [
        ("data['choices'][0]['message']['content']", True),
        ("data['message']['content']", True),
        ("reply.message.content", True),
        ("data['title']['content']", False),
        ("data['message']['summary']", False),
    ],
)
def test_an_answer_in_a_body_is_a_message_with_its_reasoning_too(answer, fires):
    text = f"def f(history, data, reply):\n    history.append({{'role': 'assistant', 'content': {answer}}})\n"
    assert ("PFX403" in codes({"a.py": text})) is fires


KEPT = "self.store.append(chat, {'role': 'user', 'content': @})"


@pytest.mark.parametrize(
    ("messages", "kept", "fires"),
    [
        ("history + [{'role': 'user', 'content': sent}]", "text", True),
        ("[*history, {'role': 'user', 'content': sent}]", "text", True),
        ("history + [{'role': 'user', 'content': sent}]", "sent", False),
        ("[{'role': 'user', 'content': sent}]", "text", False),  # no conversation goes on with it
    ],
)
def test_a_store_keeps_another_text_than_the_one_sent(messages, kept, fires):
    text = "def f(self, chat, text, history, client):\n    sent = f'It is {clock()}. {text}'\n"
    text += f"    reply = client.messages.create(messages={messages})\n    {KEPT.replace('@', kept)}\n"
    assert words_of(text, "PFX404") == ({"error"} if fires else set())


def test_what_the_model_said_may_be_quoted_in_what_it_is_asked_next():
    text = "def f(self, chat, text, history, client):\n    sent = f'It is {clock()}. Judge this answer: {text}'\n"
    text += "    client.messages.create(messages=history + [{'role': 'user', 'content': sent}])\n"
    text += f"    {KEPT.replace('user', 'assistant').replace('@', 'text')}\n"
    assert words_of(text, "PFX404") == set()


@pytest.mark.parametrize("kept", ["sorted(tools, key=lambda t: t['name'])", "sorted(tools, key=by_name)"])
def test_tools_that_a_function_gives_back_sorted_have_an_order(kept):
    text = "import asyncio\nasync def collect(tasks):\n    tools = []\n    done, _ = await asyncio.wait(tasks)\n"
    text += "    for task in done:\n        tools.append({'name': task.name, 'description': 'd', 'input_schema': {}})\n"
    assert words_of(f"{text}    return {kept}\n", "PFX304") == set()
    assert words_of(f"{text}    return tools\n", "PFX304") == {"error"}


@pytest.mark.parametrize("name", ["PromptBuilder", "PromptTemplate", "Writer"])
@pytest.mark.parametrize("sent", ["self.system()", "[{'type': 'text', 'text': self.system()}]", "self.blocks()"])
def test_a_class_of_the_project_is_not_that_of_a_framework(name, sent):
    text = f"from datetime import datetime\nRULES = {RULES!r}\nclass {name}:\n"
    text += "    def clock(self):\n        return f'It is {datetime.now()}.'\n"
    text += "    def system(self):\n        return self.clock() + RULES\n"
    text += "    def blocks(self):\n        return [{'type': 'text', 'text': self.system()}]\n"
    text += (
        f"    def request(self, messages):\n        return {{'model': 'm', 'system': {sent}, 'messages': messages}}\n"
    )
    assert words_of(text, "PFX101") == {"error"}


@pytest.mark.parametrize(
    ("head", "found"),
    [
        ("Step {step} of 9. Ticket {uuid.uuid4()}.", {"PFX107": "error", "PFX104": "info"}),
        ("Ticket {uuid.uuid4()}. Step {step} of 9.", {"PFX104": "error", "PFX107": "info"}),
        ("Budget {budget_left()} of 9. Ticket {uuid.uuid4()}.", {"PFX107": "info", "PFX104": "error"}),
        ("Asked: {question}. Ticket {uuid.uuid4()}.", {"PFX104": "info"}),
    ],
    ids=["a counter first", "an id first", "what only a name tells first", "what is asked first"],
)
def test_of_two_faults_side_by_side_one_is_told(head, found):
    text = f"import uuid\nRULES = {RULES!r}\ndef f(client, history, question):\n    for step in range(9):\n"
    text += f"        head = f'{head} ' + RULES\n        system = {{'role': 'system', 'content': head}}\n"
    text += "        client.chat(messages=[system, *history, {'role': 'user', 'content': question}])\n"
    assert {code: max(words_of(text, code)) for code in found} == found


@pytest.mark.parametrize(
    ("loop", "put", "word"),
    [
        ("messages[:-keep]", "m['content'][:400] + ' [cut]'", {"error"}),
        ("messages[:-6]", "f\"{m['content'][:400]} [cut]\"", {"error"}),
        ("messages[:-6]", "m['content'] + ' [seen]'", set()),
        ("messages", "m['content'][:400] + ' [cut]'", set()),  # they may be made here, and cut before they are sent
    ],
)
def test_older_messages_are_cut_with_a_note_behind_them(loop, put, word):
    text = f"def f(messages, keep):\n    for m in {loop}:\n        m['content'] = {put}\n    return messages\n"
    assert words_of(text, "PFX401") == word


@pytest.mark.parametrize("cut", ["self.history[-20:]", "self.history[-TURNS * 2:]", "self.window()", "self.all()"])
def test_a_window_that_a_method_gives_back(cut):
    text = f"RULES = {RULES!r}\nclass Chat:\n    def window(self):\n        return self.history[-20:]\n"
    text += "    def all(self):\n        return self.history\n    def ask(self, client):\n"
    text += f"        client.chat(messages=[{{'role': 'system', 'content': RULES}}, *{cut}])\n"
    assert words_of(text, "PFX402") - {"info"} == ({"error"} if cut != "self.all()" else set())


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ("            history.append(reply)\n", "error"),
        ("            history.extend(run(reply))\n", "error"),
        ("            other.append(reply)\n", "info"),
        ("        history.append(reply)\n", "info"),
    ],
)
def test_a_list_that_a_loop_adds_to_goes_on(more, word):
    text = "def f(client, task, other):\n    history = [{'role': 'user', 'content': task}]\n    step = 0\n"
    text += "    if task:\n        while step < 9:\n            step += 1\n"
    text += "            system = {'role': 'system', 'content': f'Step {step} of 9. You sort letters. Be brief.'}\n"
    text += f"            reply = client.chat(messages=[system] + history)\n{more}"
    assert words_of(text, "PFX107") == {word}


@pytest.mark.parametrize(
    ("block", "fires"),
    [
        ("{'type': 'tool_use', 'id': made, 'name': row.name, 'input': {}}", True),
        ("{'type': 'tool_result', 'tool_use_id': made, 'content': row.text}", True),
        ("{'type': 'tool_use', 'id': row.call, 'name': row.name, 'input': {}}", False),
        ("{'type': 'text', 'id': made, 'text': row.text}", False),
    ],
)
def test_ids_of_blocks_are_made_anew(block, fires):
    text = "import uuid\ndef to_messages(rows):\n    messages = []\n    for row in rows:\n        made = uuid.uuid4().hex\n"
    text += f"        messages.append({{'role': 'assistant', 'content': [{block}]}})\n    return messages\n"
    assert words_of(text, "PFX405") == ({"error"} if fires else set())


def test_a_proven_identity_behind_one_that_only_a_name_tells():
    text = f"RULES = {RULES!r}\ndef f(client, session, history):\n"
    text += "    system = f'session: {session.id}, user: {session.user_name}. ' + RULES\n"
    text += "    client.chat(messages=[{'role': 'system', 'content': system}, *history])\n"
    assert words_of(text, "PFX105") == {"info", "warning"}


@pytest.mark.parametrize(
    ("name", "fires"), [("CURRENT_TIME", True), ("NOW", True), ("BUILD_TIME", False), ("RULES", False)]
)
def test_the_present_time_is_no_constant_however_it_is_written(name, fires):
    text = f"You help at a rowing club. It is {{{{ {name} }}}}.\n{RULES}\n"
    assert ("PFX101" in codes({"prompts/system.j2": text})) is fires


BEHIND = "{'role': 'system', 'content': RULES}, {'role': 'user', 'content': asked}"


@pytest.mark.parametrize(
    ("made", "word"),
    [
        (f"[*history, {BEHIND}]", "warning"),
        (f"[*(messages or []), {BEHIND}]", "warning"),
        (f"[{BEHIND}, *history]", None),
    ],
)
def test_a_system_text_behind_the_history_that_a_function_puts_there(made, word):
    text = f"RULES = {RULES!r}\ndef make(asked, history, messages=None):\n    return {made}\n"
    text += "def ask(client, asked, history):\n    return client.chat(messages=make(asked, history))\n"
    assert words_of(text, "PFX203") == ({word} if word else set())


@pytest.mark.parametrize(
    ("call", "word"), [("calls[done]", {"warning"}), ("done.result().call", {"warning"}), ("calls[0]", set())]
)
def test_results_of_futures_stand_in_the_order_in_which_they_are_done(call, word):
    text = "from concurrent.futures import as_completed\ndef answers(pool, asked):\n"
    text += "    calls = {pool.submit(run, each): each for each in asked}\n    messages = []\n"
    text += f"    for done in as_completed(calls):\n        call = {call}\n"
    text += "        messages.append({'role': 'tool', 'tool_call_id': call.id, 'content': done.result()})\n"
    assert words_of(text + "    return messages\n", "PFX408") == word


@pytest.mark.parametrize(
    ("sent", "name", "word"),
    [
        ("[SYSTEM] + self.messages", "trim", "error"),
        ("[SYSTEM, *self.messages]", "trim", "error"),
        ("[SYSTEM, *self.messages]", "compact", "info"),  # it may happen once in a long while
        ("self.messages", "trim", "info"),
        ("[SYSTEM, *self.others]", "trim", "info"),
    ],
)
def test_the_oldest_message_goes_from_behind_a_system_text(sent, name, word):
    text = f"SYSTEM = {{'role': 'system', 'content': {RULES!r}}}\nclass Rover:\n    def {name}(self):\n"
    text += "        while len(self.messages) > 60:\n            self.messages.pop(0)\n"
    text += f"    def act(self, client):\n        return client.chat(messages={sent})\n"
    assert words_of(text, "PFX402") == {word}


@pytest.mark.parametrize(
    ("more", "word"), [("self.history.append(reply)", "error"), ("self.other.append(reply)", "info")]
)
@pytest.mark.parametrize("sent", ["[system, *self.history]", "[system] + self.history"])
def test_a_list_of_an_object_that_a_method_adds_to_goes_on(sent, more, word):
    text = "class Desk:\n    def __init__(self):\n        self.history = []\n        self.used = 0\n"
    text += "    def step(self, client):\n        text = f'Used: {self.used} tokens. You sort letters. Be brief.'\n"
    text += f"        system = {{'role': 'system', 'content': text}}\n        reply = client.chat(messages={sent})\n"
    text += f"        self.used += reply.tokens\n        {more}\n"
    assert words_of(text, "PFX107") == {word}
