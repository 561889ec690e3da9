"""Code that looks like a changing prompt and is none, each beside the code that is one."""

import pytest

from prefixlint import placeholders, verdicts, volatility
from tests.linting import codes, findings

RULES = "You are a careful assistant of a small library. Answer in one sentence and name the shelf of each book."


def shown(files):
    """Give the codes of warnings and errors."""
    return {each.rule.code for each in findings(files)[0] if each.severity.word != "info"}


def function(body, setup="", head="def f(q, items, session, op):"):
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return {"a.py": f"{setup}\n{head}\n{lines}\n"}


PAIRS = {
    "numbers of a list, and of rounds": (
        "PFX107",
        f'prompt = "{RULES}"\nfor i, item in enumerate(items):\n    if not item:\n        continue\n    prompt += f"Book {{i}}: a book"\n    prompt += "{RULES}"\nreturn ask(prompt)',
        f'for i, item in enumerate(items):\n    prompt = f"Round {{i}} of the search. {RULES * 6}"\n    ask(prompt)\nreturn None',
    ),
    "the name of a counter, and one that counts": (
        "PFX107",
        f'prompt = f"This is step {{step_number}}. {RULES}"\nreturn ask(prompt)',
        f'for number, item in enumerate(items):\n    prompt = f"This is step {{number}}. {RULES * 6}"\n    ask(prompt)',
    ),
    "the name of a thing, and of a person": (
        "PFX105",
        f'repo = (q.get("repository") or {{}}).get("full_name")\nprompt = f"Work on {{repo}}. {RULES}"\nreturn ask(prompt)',
        f'who = (q.get("caller") or {{}}).get("full_name")\nprompt = f"Work for {{who}}. {RULES}"\nreturn ask(prompt)',
    ),
    "where the skills lie, and where the reader lives": (
        "PFX105",
        f'listed = "\\n".join(f"{{name}} in {{location}}" for name, location in items)\nprompt = f"Skills: {{listed}} {RULES}"\nreturn ask(prompt)',
        f'name, user_location = items\nprompt = f"Reader: {{user_location}} {RULES}"\nreturn ask(prompt)',
    ),
    "what is taken out of a session, and the session": (
        "PFX105",
        f'said = session.read_all()\nprompt = f"So far: {{said}} {RULES}"\nreturn ask(prompt)',
        f'said = session.session_id\nprompt = f"So far: {{said}} {RULES}"\nreturn ask(prompt)',
    ),
    "the only element of a set, and all of them": (
        "PFX301",
        f'kinds = set(items)\nif len(kinds) > 1:\n    raise ValueError\nkind = kinds.pop()\nprompt = f"Kind {{kind}}. {RULES}"\nreturn ask(prompt)',
        f'kinds = set(items)\nprompt = f"Kinds {{kinds}}. {RULES}"\nreturn ask(prompt)',
    ),
    "the next of a set, and a set": (
        "PFX301",
        f'kind = next(iter(set(items)))\nprompt = f"Kind {{kind}}. {RULES}"\nreturn ask(prompt)',
        f'kinds = list(set(items))\nprompt = f"Kinds {{kinds}}. {RULES}"\nreturn ask(prompt)',
    ),
    "names of tools in a set, and tools from a set": (
        "PFX304",
        "tools = {tool.name for tool in items}\nreturn tools",
        "tools = [load(name) for name in set(items)]\nreturn client.chat(messages=q, tools=tools)",
    ),
    "tools that are sorted at the end, and tools that are not": (
        "PFX304",
        "tools = []\nfor folder in set(q):\n    tools.append(load(folder))\ntools.sort()\nreturn client.chat(messages=q, tools=tools)",
        "tools = []\nfor folder in set(q):\n    tools.append(load(folder))\nreturn client.chat(messages=q, tools=tools)",
    ),
    "what the filter says of the tools, and of the call": (
        "PFX305",
        'tools = [tool for tool in items if tool.name in ("search", "open")]\nreturn client.chat(messages=q, tools=tools)',
        "tools = [tool for tool in items if fits(tool, q)]\nreturn client.chat(messages=q, tools=tools)",
    ),
    "all messages as blocks, and the last as blocks": (
        "PFX406",
        'out = []\nfor m in items:\n    out.append({"role": m["role"], "content": [{"type": "text", "text": m["content"]}]})\nreturn out',
        'm = items[-1]\nreturn items[:-1] + [{"role": m["role"], "content": [{"type": "text", "text": m["content"]}]}]',
    ),
    "text put between two parts of a history, and behind it": (
        "PFX203",
        'return [*items[:q], {"role": "system", "content": RULES}, *items[q:]]',
        'return items + [{"role": "system", "content": RULES}, {"role": "user", "content": q}]',
    ),
    "a history that is split, and one that is cut": (
        "PFX402",
        "messages = [*items[:-3], *messages[:-9], note(q), *messages[-9:]]\nreturn client.chat(messages=messages)",
        'return client.chat(messages=[{"role": "system", "content": RULES}, *messages[-9:]])',
    ),
    "a message at the end of a conversation, and a whole conversation": (
        "PFX101",
        f'history.append({{"role": "user", "content": f"It is {{time.time()}}. {RULES}"}})',
        f'return client.chat(messages=[{{"role": "user", "content": f"It is {{time.time()}}. {RULES * 6}"}}])',
    ),
    "a notice to people, and instructions of an agent": (
        "PFX104",
        'code = secrets.token_hex()\nreturn ConnectResponse(url=q, instruction=f"Send {code} to the bot.")',
        f'code = secrets.token_hex()\nreturn Agent(name=q, instruction=f"Send {{code}} to the bot. {RULES}")',
    ),
    "a notice to people, and a long instruction": (
        "PFX104",
        'code = secrets.token_hex()\nreturn ConnectResponse(url=q, instruction=f"Send {code} to the bot.")',
        f'code = secrets.token_hex()\nreturn ConnectResponse(url=q, instruction=f"Send {{code}} to the bot. {RULES}")',
    ),
    "a query, and a question": (
        "PFX101",
        f"prompt = f\"SELECT name, shelf FROM books WHERE due < {{time.time()}} AND name != '{RULES * 6}'\"\nreturn ask(prompt)",
        f'prompt = f"Which books were due at {{time.time()}}? {RULES * 6}"\nreturn ask(prompt)',
    ),
    "a program that is written, and a prompt": (
        "PFX101",
        f"prompt = f\"import run_{{time.time()}}.prompt as books\\nTEXT = '{RULES * 6}'\"\nreturn ask(prompt)",
        f'prompt = f"Report {{time.time()}} of prompts. {RULES * 6}"\nreturn ask(prompt)',
    ),
    "a list that others sort, in another thread, and one that they do not": (
        "PFX301",
        f'text = asyncio.to_thread(ordered, set(items))\nprompt = f"Kinds: {{text}}. {RULES}"\nreturn ask(prompt)',
        f'text = asyncio.to_thread(joined, set(items))\nprompt = f"Kinds: {{text}}. {RULES}"\nreturn ask(prompt)',
    ),
    "the folder of a listing, and its user": (
        "PFX105",
        f'names = sorted(glob.glob(f"/data/{{session.session_id}}/*"))\nprompt = f"Files: {{names}}. {RULES}"\nreturn ask(prompt)',
        f'names = f"/data/{{session.session_id}}/*"\nprompt = f"Files: {{names}}. {RULES}"\nreturn ask(prompt)',
    ),
}
SETUP = (
    f'import asyncio, collections, glob, os, secrets, subprocess, time, uuid\nfrom mylib import tools\nRULES = "{RULES}"\nLONG = "{RULES * 6}"\n'
    'def ordered(xs):\n    return ", ".join(sorted(xs))\n'
    'def joined(xs):\n    return ", ".join(xs)\n'
)


def sent(body):
    """Let a text that is sent stand where a system message does, in which a name alone is worth a warning."""
    return body.replace("ask(prompt)", 'ask([{"role": "system", "content": prompt}, {"role": "user", "content": q}])')


@pytest.mark.parametrize("name", PAIRS)
def test_the_look_alike_is_quiet_and_the_fault_is_not(name):
    code, quiet, loud = PAIRS[name]
    assert code in shown(function(sent(loud), SETUP)), "the fault is not seen"
    assert code not in shown(function(quiet, SETUP))
    if code not in shown(function(loud, SETUP)):
        assert code not in shown(function(sent(quiet), SETUP))


def levels(files, code):
    return {each.severity.word for each in findings(files)[0] if each.rule.code == code}


def test_a_name_alone_is_information_where_nothing_says_that_the_text_stands_first():
    body = f'prompt = f"Work for {{user_name}}. {RULES}"\nreturn ask(prompt)'
    assert levels(function(body, SETUP), "PFX105") == {"info"}
    assert levels(function(sent(body), SETUP), "PFX105") == {"warning"}
    clock = f'prompt = f"It is {{time.time()}}. {RULES * 6}"\nreturn ask(prompt)'
    assert levels(function(clock, SETUP), "PFX101") == {"error"}


def test_a_bounded_queue_of_messages_is_information_since_it_may_be_for_people():
    queue = {"a.py": "from collections import deque\nmessages = deque(maxlen=20)\n"}
    window = function('return create(messages=[{"role": "system", "content": RULES}] + q.history[-20:])', SETUP)
    assert levels(queue, "PFX402") == {"info"}
    assert levels(window, "PFX402") == {"error"}


@pytest.mark.parametrize(
    ("text", "style"),
    [
        ("<step_{{number}}> up to {limit} actions </step_{{number}}>", "brace"),
        ("Give {limit} books.", "brace"),
        ("<step_{{ number }}> up to {limit} actions", "jinja"),
        ("{{one}} {{two}} {{three}} {{four}} and a set {a}", "jinja"),
        ("{{one}} and {{two}}", "jinja"),
    ],
)
def test_doubled_braces_beside_single_ones_are_escapes(text, style):
    assert placeholders.guess(text) == style


def test_a_fragment_of_a_named_description_is_no_recalled_memory_of_a_tool():
    tool = {
        "a.py": 'def f(op):\n    return {"type": "function", "function": {"name": "x", "description": op.get("summary"), "parameters": {}}}\n'
    }
    assert "PFX306" not in codes(tool)
    dated = {
        "a.py": 'import time\ndef f(op):\n    return {"type": "function", "function": {"name": "x", "description": f"at {time.time()}", "parameters": {}}}\n'
    }
    assert "PFX306" in codes(dated)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("repository.full_name", None),
        ("caller.full_name", "identity"),
        ("config.user_name", "identity"),
        ("user.name", "identity"),
        ("package.email", None),
        ("agent.id", "identity"),
    ],
)
def test_things_have_names_that_identify_nobody(path, kind):
    assert {origin.kind for origin in verdicts.path_named(path).origins} == ({kind} if kind else set())


def test_names_that_say_little_are_marked():
    assert volatility.of_name("step").weak
    assert not volatility.of_name("step_number").weak
    assert not volatility.of_name("timestamp").weak


@pytest.mark.parametrize(
    "body",
    [
        'prompt = f"It is {time.time()}. " + LONG\nreturn ask(prompt)',
        'prompt = f"It is {time.time()}. " + LONG\nraise Wrong(prompt)',
        'if q:\n    prompt = f"It is {time.time()}. " + LONG\n    return ask(prompt)\nelse:\n    return None',
        'return Note(role="system", content=f"It is {time.time()}. " + RULES)',
        'return [Note(role="system", content=f"It is {time.time()}. " + RULES), Note(role="user", content=q)]',
        'return Note(role=Role.SYSTEM, content=f"It is {time.time()}. " + RULES)',
        'text = RULES\nfor each in [f"It is {time.time()}."]:\n    text += each\ntext += RULES\nreturn Note(role="system", content=text.strip())',
    ],
)
def test_prompts_of_functions_that_end_with_a_return_and_of_classes_of_messages_are_seen(body):
    assert "PFX101" in shown(function(body, SETUP))


def test_a_loop_is_blamed_for_its_order_and_its_elements_for_what_they_say():
    text = function(
        'text = RULES\nfor each in [f"It is {time.time()}."]:\n    text += f"- {each}"\ntext += RULES\nreturn Note(role="system", content=text)',
        SETUP,
    )
    assert len([each for each in findings(text)[0] if each.rule.code == "PFX101"]) == 1


MORE = {
    "what a tool reports as the system, and a system prompt": (
        "PFX101",
        'yield Note("system", f"It is {time.time()}. The command ended and wrote nothing, so there is nothing to show here at all.")',
        'yield Note("system", f"It is {time.time()}. " + RULES)',
    ),
    "a history that is written into one message, and one that is sent": (
        "PFX402",
        'text = ""\nfor m in messages[-9:]:\n    text += m.content\nreturn client.chat(messages=[Note("system", RULES), Note("user", text)])',
        'return client.chat(messages=[Note("system", RULES), *messages[-9:]])',
    ),
    "text behind other system text, and behind a history": (
        "PFX203",
        'return first_system_messages + [Note("system", RULES), Note("user", q)]',
        'return first_messages + [Note("system", RULES), Note("user", q)]',
    ),
    "what a log says, and what a model is told": (
        "PFX101",
        f'logger.info(f"At {{time.time()}}: {RULES * 6}")',
        f'teller.tell(f"At {{time.time()}}: {RULES * 6}")',
    ),
    "what describes a field, and what is a task": (
        "PFX101",
        f'return Piece(description=f"At {{time.time()}}: {RULES * 6}")',
        f'return Piece(task=f"At {{time.time()}}: {RULES * 6}")',
    ),
    "a role that is no role, and one that is": (
        "PFX101",
        'return say("door", f"At {time.time()}: open the left door of the library at once, then the right one, then all.")',
        'return chat_message(role="system", message=f"At {time.time()}: " + RULES)',
    ),
}


@pytest.mark.parametrize("name", MORE)
def test_what_people_or_tools_say_is_no_prompt(name):
    code, quiet, loud = MORE[name]
    head = "def f(q, messages, first_messages, first_system_messages):"
    assert code in shown(function(loud, SETUP, head)), "the fault is not seen"
    assert code not in shown(function(quiet, SETUP, head))


@pytest.mark.parametrize(
    ("name", "kind"), [("curr_time", "clock"), ("cur_date", "date"), ("usr_name", "identity"), ("currency", None)]
)
def test_short_words_are_read_as_the_long_ones(name, kind):
    found = volatility.of_name(name)
    assert (found.kind if found else None) == kind


def test_text_that_a_library_makes_of_constants_stands_behind_a_date():
    text = (
        "import datetime\nfrom lib import format_as_xml\nEXAMPLES = [{'q': 'a'}]\n"
        '@agent.system_prompt\ndef system_prompt() -> str:\n    return f"Today is {datetime.date.today()}\\n{format_as_xml(EXAMPLES)}"\n'
    )
    assert [each.tokens_at_risk for each in findings({"a.py": text}, 32)[0] if each.rule.code == "PFX102"]
    assert not findings({"a.py": text.replace("format_as_xml(EXAMPLES)", "format_as_xml(read())")}, 32)[0]


def test_templates_beside_the_system_template_of_a_class_are_prompts():
    rest = "Say which of the two is better for the readers of a small library, and why, in two sentences that all can read."
    body = f'class Judge:\n    {{name}}: str = """{RULES}"""\n    task_template: str = """{{{{question}}}} {rest}"""\n'
    assert "PFX201" in codes({"prompt.py": body.format(name="system_prompt")})
    assert "PFX201" not in codes({"a.py": body.format(name="title")})


@pytest.mark.parametrize(
    ("result", "fires"),
    [
        ("[tool(n) for n in set(names)]", True),
        ("[tool(n) for n in set(names)], len(names)", True),
        ("[tool(n) for n in names], set(names)", False),
        ("[tool(n) for n in names], [1, 2]", False),
    ],
)
def test_of_several_results_of_a_function_the_lists_are_its_tools(result, fires):
    made = (
        'def tool(n):\n    return {"type": "function", "function": {"name": n, "description": "d", "parameters": {}}}\n'
    )
    assert ("PFX304" in codes({"a.py": f"{made}def agent_tools(names):\n    return {result}\n"})) is fires


@pytest.mark.parametrize(("name", "fires"), [("memory", True), ("handbook", False)])
def test_a_file_of_memory_is_written_while_the_program_runs(name, fires):
    code = (
        "from pathlib import Path\ndef read(folder):\n    try:\n"
        '        return Path(folder, "KEPT.md").read_text()\n    except OSError:\n        return ""\n'
        f'def system_prompt(folder):\n    {name} = read(folder)\n    return f"You help.\\n{{{name}}}\\n{RULES}"\n'
    )
    files = {"a.py": code, "templates/KEPT.md": "Nothing is kept yet, and this is only how it begins."}
    assert ("PFX202" in codes(files)) is fires
