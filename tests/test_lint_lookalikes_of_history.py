"""What looks like a fault of a conversation or a request, and is none: each is close to a shape that the checks know."""

import pytest

from tests.linting import codes, findings

SEND = "\n\ndef send(client, messages):\n    return client.chat.completions.create(model='m', messages=messages)\n"
QUIET = {
    "the newest message is taken back": "def undo(messages):\n    while messages:\n        messages.pop()\n" + SEND,
    "one message is taken out, once": "def reset(messages):\n    messages.pop(0)\n" + SEND,
    "a queue of jobs": "def work(jobs, messages):\n    while jobs:\n        jobs.pop(0)\n" + SEND,
    "a message is made, by index": (
        "def fill(messages, texts):\n    for i, text in enumerate(texts):\n"
        "        messages[i]['content'] = text + SUFFIX\n" + SEND
    ),
    "a deque of numbers": "from collections import deque\n\nscores = deque(maxlen=9)\nmessages = []\n" + SEND,
    "the first messages are kept": (
        "def cut(messages):\n    return trim_messages(messages, max_tokens=9, strategy='first')\n" + SEND
    ),
    "an answer that is cleaned for people": (
        "import re\n\ndef show(history, text):\n    history.append({'role': 'assistant', 'content': text})\n"
        "    return re.sub('<think>.*?</think>', '', text)\n"
    ),
    "other blocks are left out": (
        "def keep(history, response):\n    blocks = [b for b in response.content if b.type != 'citation']\n"
        "    history.append({'role': 'assistant', 'content': blocks})\n"
    ),
    "each message becomes a list of blocks": (
        "def blocks(messages):\n    for message in messages:\n"
        "        message['content'] = [{'type': 'text', 'text': message['content']}]\n    return messages\n"
    ),
    "the newest message is replaced, and stored so": (
        "def send(client, history, text):\n    history.append({'role': 'user', 'content': text})\n"
        "    history[-1] = {'role': 'user', 'content': text}\n"
        "    return client.chat.completions.create(model='m', messages=history)\n"
    ),
    "only the first system message is read": (
        "def convert(messages):\n    system, rest = '', []\n    for i, m in enumerate(messages):\n"
        "        if m['role'] == 'system' and i == 0:\n            system += m['content']\n"
        "        else:\n            rest.append(m)\n    return {'system': system, 'messages': rest}\n"
    ),
    "pages as they come, for no model": (
        "from concurrent.futures import as_completed\n\ndef pages(futures, messages):\n    out = []\n"
        "    for future in as_completed(futures):\n        out.append({'role': 'page', 'content': future.result()})\n"
    ),
    "a tool that the start of the program chooses": (
        "TOOLS = [READ]\nif MODE == 'edit':\n    TOOLS.append(WRITE)\n\ndef step(client, messages):\n"
        "    return client.chat.completions.create(model='m', messages=messages, tools=TOOLS)\n"
    ),
    "tools in the order of their names": (
        "def step(client, messages):\n    tools = sorted(ALL, key=lambda t: t.name)[:128]\n"
        "    return client.chat.completions.create(model='m', messages=messages, tools=tools)\n"
    ),
    "an enum of constants": (
        "KINDS = ['a', 'b']\nTOOLS = [{'name': 'n', 'description': 'Does it.', 'input_schema': "
        "{'type': 'object', 'properties': {'kind': {'enum': sorted(KINDS)}}}}]\n"
    ),
    "a schema that is handed over": (
        "def ask(client, messages, schema):\n    form = {'type': 'json_schema', 'json_schema': {'schema': schema}}\n"
        "    return client.chat.completions.create(model='m', messages=messages, response_format=form)\n"
    ),
    "a header that tells a request": (
        "import uuid\n\ndef ask(client, messages):\n    return client.chat.completions.create(\n"
        "        model='m', messages=messages, extra_headers={'X-Request-Id': str(uuid.uuid4())})\n"
    ),
    "a session's own header": (
        "def ask(client, messages, session):\n    return client.chat.completions.create(\n"
        "        model='m', messages=messages, extra_headers={'x-session-id': session.key})\n"
    ),
    "a model for a new conversation": (
        "def ask(client, question):\n    model = 'large' if len(question) > 400 else 'small'\n"
        "    return client.chat.completions.create(model=model, messages=[{'role': 'user', 'content': question}])\n"
    ),
    "one kind of thinking with another budget": (
        "def ask(client, history, budget):\n    thinking = {'type': 'enabled', 'budget_tokens': budget}\n"
        "    return client.messages.create(model='m', max_tokens=9, messages=history, thinking=thinking)\n"
    ),
    "four marks": (
        "CC = {'type': 'ephemeral'}\nMESSAGES = [{'role': 'user', 'content': ["
        + ", ".join(f"{{'type': 'text', 'text': PART_{n}, 'cache_control': CC}}" for n in range(4))
        + "]}]\n"
    ),
    "a cache point behind what stays": (
        "def ask(client, messages):\n    system = [{'text': RULES}, {'cachePoint': {'type': 'default'}}]\n"
        "    return client.converse(modelId='m', system=system, messages=messages)\n"
    ),
    "keywords with their keys in order": (
        "import json\n\ndef system_prompt(**settings):\n"
        "    return 'Settings: ' + json.dumps(settings, sort_keys=True) + '\\nYou tune pianos by letter.'\n"
    ),
    "positional dict, as its only caller makes it": (
        "import json\n\ndef system_prompt():\n    settings = {'a': 1, 'b': 2}\n"
        "    return 'Settings: ' + json.dumps(settings) + '\\nYou tune pianos by letter.'\n"
    ),
    "a compaction that adds to the conversation": (
        "def compact(client, messages, tools):\n    return client.chat.completions.create(\n"
        "        model='m', tools=tools, messages=[*messages, {'role': 'user', 'content': 'Summarise.'}])\n"
    ),
    "an id for calls, made when they are made": (
        "import uuid\n\ndef parse_calls(texts):\n    out = []\n    for text in texts:\n"
        "        out.append({'role': 'tool', 'tool_call_id': text.id, 'content': text.value})\n    return out\n"
    ),
}


@pytest.mark.parametrize("name", QUIET)
def test_lookalikes_stay_quiet(name):
    assert codes({"app.py": QUIET[name]}) == set()


MINOR = {
    "an id where a call has none": (
        "import uuid\n\ndef id_of(turn):\n    return turn.id or uuid.uuid4().hex\n\ndef rebuild(turns):\n    out = []\n    for turn in turns:\n"
        "        out.append({'role': 'tool', 'tool_call_id': id_of(turn), 'content': turn.text})\n    return out\n"
    ),
    "thinking by what the model can": (
        "def ask(client, history, model):\n    thinking = {'type': 'disabled'}\n    if can_think(model):\n"
        "        thinking = {'type': 'enabled', 'budget_tokens': 900}\n"
        "    return client.messages.create(model=model, messages=history, thinking=thinking)\n"
    ),
    "thinking by settings": (
        "def thinking_of(settings):\n    if settings.off:\n        return {'type': 'disabled'}\n    return {'type': 'enabled'}\n"
        "def ask(client, history, settings):\n"
        "    return client.messages.create(model='m', messages=history, thinking=thinking_of(settings))\n"
    ),
    "blocks that Anthropic reads as the string": (
        "from anthropic import Anthropic\n\ndef mark(messages):\n"
        "    messages[-1]['content'] = [{'type': 'text', 'text': messages[-1]['content'], 'cache_control': CC}]\n"
        "    return Anthropic().messages.create(model='m', messages=messages)\n"
    ),
    "one text that is cut": (
        "def shorten(text, count):\n    return trim_messages([HumanMessage(content=text)], max_tokens=90, token_counter=count)\n"
    ),
    "a conversation that is written out": (
        "SAMPLE = [HumanMessage(content='I am Ann.'), AIMessage(content='Good.'), HumanMessage(content='Who am I?')]\n"
        "def show(llm, count):\n    kept = trim_messages(SAMPLE, max_tokens=90, token_counter=count)\n    return llm.invoke(kept)\n"
    ),
    "a conversation that is cut where a file is read": (
        "messages = load()\nkept = trim_messages(messages, max_tokens=90, token_counter=len)\nprint(llm.invoke(kept))\n"
    ),
    "an object that holds the last messages beside a text": (
        "SYSTEM = 'You are a careful assistant of a library.'\n"
        "def working_memory(history):\n    return Memory(messages=history[-20:], system_prompt=SYSTEM)\n"
    ),
    "a helper that cuts for others": (
        "def shorten(messages, count):\n    return trim_messages(messages, max_tokens=90, token_counter=count)\n"
    ),
    "a state that is given what was cut": (
        "def before(state, count):\n    kept = trim_messages(state['messages'], max_tokens=90, token_counter=count)\n    return {'messages': kept}\n"
    ),
    "a conversation that is cut for its summary": (
        "def summarize(llm, messages, count):\n    kept = trim_messages(messages, max_tokens=90, token_counter=count)\n    return llm.invoke(kept)\n"
    ),
    "a judge behind a copy of the conversation": (
        "def rate(client, messages, answers):\n    judged = messages.copy()\n"
        "    judged.append({'role': 'system', 'content': 'Rate the answer from one to ten, and say the number only.'})\n"
        "    for answer in answers:\n        judged.append({'role': 'assistant', 'content': answer})\n"
        "    return client.chat.completions.create(model='m', messages=judged)\n"
    ),
}


@pytest.mark.parametrize("name", MINOR)
def test_what_is_no_fault_of_most_programs_is_not_shown(name):
    found, errors = findings({"app.py": MINOR[name]})
    assert not errors
    assert {f.severity.word for f in found} <= {"info"}, [(f.rule.code, f.severity.word) for f in found]


GRAVE = {
    "a request with the last messages beside a text": (
        "SYSTEM = 'You are a careful assistant of a library.'\n"
        "def ask(client, history):\n    return client.create(messages=history[-20:], system=SYSTEM)\n"
    ),
    "an id made anew": MINOR["an id where a call has none"].replace("turn.id or ", ""),
    "thinking by the question": (
        "def ask(client, history, hard):\n    thinking = {'type': 'enabled'} if hard else {'type': 'disabled'}\n"
        "    return client.messages.create(model='m', messages=history, thinking=thinking)\n"
    ),
    "blocks for any server": MINOR["blocks that Anthropic reads as the string"]
    .replace("from anthropic import Anthropic", "import openai")
    .replace("Anthropic().messages", "openai.OpenAI().chat.completions"),
    "a conversation that is cut": (
        "def ask(llm, messages, count):\n    kept = trim_messages(messages, max_tokens=90, token_counter=count)\n    return llm.invoke(kept)\n"
    ),
}


@pytest.mark.parametrize("name", GRAVE)
def test_the_fault_beside_it_is_shown(name):
    found, errors = findings({"app.py": GRAVE[name]})
    assert not errors
    assert {f.severity.word for f in found} & {"warning", "error"}


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (
            'messages = [{"role": m.role, "content": m.content} for m in history[-20:]]\n    return ask(SYSTEM, messages)',
            {"info"},
        ),
        ("recent = chat.messages[-9:]\n    return [Message(role=m.role, content=m.text) for m in recent]", {"info"}),
        ("recent = chat.messages[-9:]\n    return [m.text for m in recent]", set()),
        (
            'messages = [{"role": m.role, "content": m.content} for m in history]\n    return ask(SYSTEM, messages)',
            set(),
        ),
    ],
)
def test_a_window_whose_messages_are_made_anew_is_worth_a_remark(body, found):
    text = f"def f(chat, history):\n    {body}\n"
    assert {each.severity.word for each in findings({"a.py": text})[0] if each.rule.code == "PFX402"} == found


@pytest.mark.parametrize(("kept", "word"), [(4, "info"), (6, "info"), (7, "error"), (20, "error")])
def test_three_exchanges_are_no_window_over_a_conversation(kept, word):
    system = '{"role": "system", "content": "Be brief."}'
    text = f"def f(client, history):\n    return client.chat.completions.create(model='m', messages=[{system}, *history[-{kept}:]])\n"
    assert [each.severity.word for each in findings({"a.py": text})[0] if each.rule.code == "PFX402"] == [word]


SENT = 'client.chat.completions.create(model="m", messages=messages)'


@pytest.mark.parametrize(
    ("cut", "use", "word"),
    [
        ("messages = [messages[0]] + messages[-20:]", SENT, "error"),
        ("messages = messages[:1] + messages[-LIMIT:]", SENT, "error"),
        ("messages[:] = [messages[0], *messages[-20:]]", SENT, "info"),
        ("chats[who] = [messages[0]] + messages[-20:]", SENT, "error"),
        ("messages = [messages[0]] + messages[-4:]", SENT, "info"),
        ("messages = [other[0]] + messages[-20:]", SENT, "info"),
        ("messages = [messages[1]] + messages[-20:]", SENT, "info"),
        ("messages = [messages[0]] + messages[-20:]", "show(messages)", "info"),
    ],
)
def test_a_window_that_keeps_the_first_message_keeps_the_system_text(cut, use, word):
    text = (
        f"def f(client, chats, who, messages, other):\n    if len(messages) > LIMIT:\n        {cut}\n    return {use}\n"
    )
    assert {each.severity.word for each in findings({"a.py": text})[0] if each.rule.code == "PFX402"} <= {word}
    assert word == "info" or "PFX402" in codes({"a.py": text})


@pytest.mark.parametrize(
    ("system", "kept", "word"),
    [
        ('"Be brief."', "history[-20:]", "error"),
        ('"Be brief."', "history[-4:]", "info"),
        ('f"Be brief about {question}."', "history[-20:]", "info"),
        ("RULES", "[*history[-20:], {'role': 'user', 'content': question}]", "error"),
    ],
)
def test_a_window_beside_a_system_text_costs_what_one_behind_it_does(system, kept, word):
    call = f"client.messages.create(model='m', system={system}, messages={kept})"
    text = f"RULES = 'Answer in one sentence.'\ndef f(client, history, question):\n    return {call}\n"
    assert {each.severity.word for each in findings({"a.py": text})[0] if each.rule.code == "PFX402"} == {word}


@pytest.mark.parametrize(("sent", "fires"), [("asked", False), ("note + asked", True)])
def test_one_name_in_two_branches_holds_what_is_stored(sent, fires):
    text = (
        "def f(client, messages, asked, note, short):\n    if short:\n        asked = asked + ' Be brief.'\n"
        "    messages.append({'role': 'user', 'content': asked})\n"
        f"    return client.chat(messages=[*messages, {{'role': 'user', 'content': {sent}}}])\n"
    )
    assert ("PFX404" in codes({"a.py": text})) is fires


@pytest.mark.parametrize(
    ("now", "asked", "word"),
    [("{_time}", "", "info"), ("{_time}", ".format(_time=datetime.now())", "error")],
)
def test_a_time_in_the_state_of_a_session_stays(now, asked, word):
    text = f'from datetime import datetime\nfrom google.adk.agents import Agent\nRULES = """Now: {now}. {"Be brief and kind. " * 40}"""\n'
    text += f"def agent():\n    return Agent(model='m', name='a', instruction=RULES{asked})\n"
    found = [each for each in findings({"a.py": text})[0] if each.rule.code in ("PFX101", "PFX105")]
    assert max(each.severity for each in found).word == word


@pytest.mark.parametrize(("put", "word"), [('""', "info"), ('"[cleared]"', "error"), ('m["content"][:90]', "error")])
def test_an_empty_text_is_put_where_there_was_none(put, word):
    text = f'def f(history):\n    for m in history:\n        if "content" not in m:\n            m["content"] = {put}\n'
    assert {each.severity.word for each in findings({"a.py": text})[0] if each.rule.code == "PFX401"} == {word}


@pytest.mark.parametrize(("read", "fires"), [("next({})", False), ("''.join({})", True)])
def test_the_first_system_message_alone_is_where_it_was(read, fires):
    system = read.format("m['content'] for m in history if m['role'] == 'system'")
    rest = "[m for m in history if m['role'] != 'system']"
    text = f"def f(history):\n    return [{{'role': 'system', 'content': {system}}}, *{rest}]\n"
    assert ("PFX407" in codes({"a.py": text})) is fires
