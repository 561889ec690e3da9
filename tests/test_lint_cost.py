"""What a changing value must cost to be worth a warning, and what is done so rarely that it is none."""

import pytest

from tests.linting import codes, findings
from tests.test_lint_proof import ASK, LONG, NOW, RULES, levels


@pytest.mark.parametrize(
    ("function", "text", "rest", "word"),
    [
        ("__init__", f"{LONG} It is {{now}}.", "", "info"),
        ("__init__", f"It is {{now}}. {LONG}", "", "info"),
        ("__init__", f"{LONG} It is {{now}}. {RULES}", "", "info"),
        ("ask", f"{LONG} It is {{now}}.", "", "info"),
        ("ask", f"{LONG} It is {{now}}. {RULES}", "", "info"),
        ("ask", f"{RULES} It is {{now}}. {RULES}", "", "error"),
        ("ask", f"{LONG} It is {{now}}.", "*self.history, ", "error"),
        ("ask", f"{LONG} It is {{now}}, and you were asked {{q}}.", "*self.history, ", "info"),
    ],
)
def test_a_clock_costs_what_is_shown_to_stand_behind_it(function, text, rest, word):
    made = text.replace("{now}", "{datetime.now()}").replace("{q}", "{user_question}")
    text = f'{NOW}class Chat:\n    def {function}(self, q, user_question):\n        self.messages = [{{"role": "system", "content": f"{made}"}}, {rest}{ASK}]\n'
    assert levels({"a.py": text}, "PFX101") == {word}


@pytest.mark.parametrize(
    ("behind", "word"),
    [
        (f"{LONG} What they ask: {{question}}", "error"),
        ("Answer what they ask: {question} " + RULES, "info"),
        (f"{{question}} {RULES}", "info"),
        (f"{{search_results}} {RULES}", "info"),
        (f"{{self.description}} {RULES}", "error"),
        (f"{{language}} {RULES}", "error"),
    ],
)
def test_text_behind_what_the_request_brings_is_shared_with_nobody(behind, word):
    text = f'{NOW}def f(self, question, search_results, language):\n    return [{{"role": "system", "content": f"It is {{datetime.now()}}. {behind}"}}, {{"role": "user", "content": question}}]\n'
    assert levels({"a.py": text}, "PFX101") == {word}


@pytest.mark.parametrize(
    ("first", "rest", "word"), [(LONG, "", "info"), (LONG, "*history, ", "error"), ("Be kind.", "", "error")]
)
def test_what_changes_may_have_a_system_message_of_its_own(first, rest, word):
    second = f'{{"role": "system", "content": f"{RULES} It is {{datetime.now()}}. {RULES * 2}"}}'
    text = f'{NOW}def f(q, history):\n    return client.chat(messages=[{{"role": "system", "content": "{first}"}}, {second}, {rest}{ASK}])\n'
    assert levels({"a.py": text}, "PFX101") == {word}


def test_a_question_in_another_branch_cuts_nothing_off():
    body = f'    text = f"It is {{datetime.now()}}. {RULES[:30]}"\n    if question:\n        text += f"Asked: {{question}}. "\n    text += "{RULES}"\n'
    ask = f'    return [{{"role": "system", "content": text}}, {ASK}]\n'
    assert levels({"a.py": f"{NOW}def f(q, question):\n{body}{ask}"}, "PFX101") == {"error"}


@pytest.mark.parametrize(
    ("name", "word"), [("examples", "error"), ("few_shots", "error"), ("sample_answer", "error"), ("words", "info")]
)
def test_examples_that_are_drawn_are_an_accident_anything_else_may_be_the_point(name, word):
    text = f'{NOW}def f(q, pool):\n    {name} = random.sample(pool, 4)\n    return [{{"role": "system", "content": f"{{{name}}} {RULES}"}}, {ASK}]\n'
    assert levels({"a.py": text}, "PFX108") == {word}


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ('{"uptime": 1, "seen": str(datetime.now()), "note": RULES}', "info"),
        ('{"parts": [{"text": f"It is {datetime.now()}. " + RULES}]}', "error"),
        ('f"It is {datetime.now()}. {RULES}"', "error"),
    ],
)
def test_a_mapping_of_facts_is_no_system_text(value, word):
    text = f'{NOW}RULES = "{RULES}"\ndef status():\n    return {{"tasks": 3, "system": {value}}}\n'
    assert levels({"a.py": text}, "PFX101") <= {word}


def test_a_mapping_that_a_function_gives_is_no_system_text_either():
    text = f'{NOW}def stats():\n    return {{"uptime": str(datetime.now()), "about": "{RULES}"}}\ndef status():\n    return {{"tasks": 3, "system": stats()}}\n'
    assert levels({"a.py": text}, "PFX101") <= {"info"}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ("hour=9, minute=30", "PFX102"),
        ("hour=at.hour, minute=at.minute, second=0", "PFX102"),
        ("microsecond=0", "PFX101"),
    ],
)
def test_a_clock_whose_time_of_day_is_set_is_a_date(change, code):
    text = f'{NOW}def f(q, at):\n    when = datetime.now().replace({change}).strftime("%d %B %H:%M")\n    return [{{"role": "system", "content": f"From {{when}}. {RULES}"}}, {ASK}]\n'
    assert codes({"a.py": text}) & {"PFX101", "PFX102"} == {code}


@pytest.mark.parametrize(("owner", "word"), [("scope.display_name", "info"), ("user.display_name", "warning")])
def test_many_things_have_a_name_to_be_shown(owner, word):
    text = f'def f(scope, user, q):\n    return [{{"role": "system", "content": f"For {{{owner}}}. {RULES}"}}, {ASK}]\n'
    assert levels({"a.py": text}, "PFX105") <= {word}
    assert "PFX105" in codes({"a.py": text})


@pytest.mark.parametrize(
    ("system", "word"),
    [
        (f'"{RULES}"', "error"),
        (f'f"{RULES} Speak as {{self.persona}}."', "error"),
        (f'f"{RULES} You speak with {{self.user_name}}."', "error"),
        (f'f"{RULES} {{self.more(q)}}"', "info"),
        (f'f"{RULES} Found: {{search_results}}"', "info"),
        (f'f"{RULES} It is {{datetime.now()}}."', "info"),
    ],
)
def test_a_window_behind_a_system_text_that_moves_costs_nothing_more(system, word):
    text = f'{NOW}def f(self, history, search_results, q):\n    return [{{"role": "system", "content": {system}}}, *history[-20:], {ASK}]\n'
    assert levels({"a.py": text}, "PFX402") == {word}


@pytest.mark.parametrize(
    ("function", "kept", "word"), [("chat", 20, "error"), ("chat", 4, "info"), ("classify_intent", 20, "info")]
)
def test_a_window_of_a_side_call_is_meant_to_be_one(function, kept, word):
    text = f'def {function}(history, q):\n    return [{{"role": "system", "content": "{RULES}"}}, *history[-{kept}:], {ASK}]\n'
    assert levels({"a.py": text}, "PFX402") == {word}


@pytest.mark.parametrize("number", [4, 20])
@pytest.mark.parametrize(("given", "constant"), [("", "LAST = {}\n"), (", LAST={}", "")])
def test_a_window_keeps_what_its_constant_or_default_says(given, constant, number):
    text = f'{constant}def chat(history, q{given}):\n    return [{{{{"role": "system", "content": "{RULES}"}}}}, *history[-LAST:], {ASK.replace("{", "{{").replace("}", "}}")}]\n'
    assert levels({"a.py": text.format(number)}, "PFX402") == {"info" if number == 4 else "error"}


RESULTS = """from concurrent.futures import as_completed

def run(calls, pool, messages):
    found = {{}}
    futures = [pool.submit(go, call) for call in calls]
    for done in as_completed(futures):
        found[done.result().id] = done.result()
    for call in calls:
        messages.append({{"role": "tool", "tool_call_id": {id}, "content": str(found)}})
"""


def test_results_that_are_found_by_the_calls_stand_in_their_order():
    assert levels({"a.py": RESULTS.format(id="call.id")}, "PFX408") == set()


def test_the_names_of_a_text_are_those_of_its_own_file():
    files = {
        "texts.py": f'FIELDS = ("title", "why")\n\nSYSTEM = f"""Name these fields: {{", ".join(FIELDS)}}. {RULES}"""\n',
        "app.py": 'from texts import SYSTEM\nFIELDS = {{"title", "why", "refs"}}\ndef f(q):\n    return Agent(instructions=SYSTEM), FIELDS\n',
    }
    assert "PFX301" not in codes(files)
    files["texts.py"] = files["texts.py"].replace('("title", "why")', '{"title", "why"}')
    assert "PFX301" in codes(files)


def test_a_function_that_stands_for_a_text_is_read_in_its_own_file():
    files = {
        "texts.py": f'FIELDS = ("title", "why")\ndef system(context):\n    return f"Name these: {{FIELDS}}. {RULES}"\n',
        "app.py": "from texts import system\nFIELDS = {'title', 'why', 'refs'}\ndef f(q):\n    return Agent(instructions=system), FIELDS\n",
    }
    assert "PFX301" not in codes(files)


HANDLED = """import uuid  # of messages
def rebuild(rows):
    out = []
    for row in rows:
        try:
            out.append(dict(row))
        except ValueError:
            out.append({"role": "tool", "tool_call_id": f"x_{uuid.uuid4()}", "content": "It failed."})
    return out
"""


def test_what_is_done_when_something_fails_is_rare():
    assert levels({"a.py": HANDLED}, "PFX405") == {"info"}
    plain = HANDLED.replace("try:", "if row:").replace("except ValueError:", "else:")
    assert levels({"a.py": plain}, "PFX405") == {"error"}
    text = f'{NOW}def f(q):\n    try:\n        go(q)\n    except ValueError:\n        return ask(messages=[{{"role": "system", "content": f"It is {{datetime.now()}}. {RULES}"}}, {ASK}])\n'
    assert levels({"a.py": text}, "PFX101") == {"info"}


@pytest.mark.parametrize(
    ("call", "word"),
    [
        ("create_agent", "error"),
        ("client.responses.create", "error"),
        ("Persona", "error"),
        ("personas.create_persona", "info"),
        ("store.save", "info"),
        ("db.prompts.insert", "info"),
    ],
)
def test_what_a_store_is_given_is_written_once(call, word):
    text = f'{NOW}def f():\n    {call}(system_prompt=f"It is {{datetime.now()}}. {RULES}")\n'
    assert levels({"a.py": text}, "PFX101") == {word}


@pytest.mark.parametrize(
    ("owner", "fires"), [("chat", True), ("self.chat", True), ("console", False), ("renderer", False)]
)
def test_a_message_for_the_screen_is_no_system_text(owner, fires):
    text = f'{NOW}def f(chat, console, renderer, self):\n    {owner}.add_system_message(f"Done at {{datetime.now()}} by the one who began it.")\n'
    assert ("PFX101" in codes({"a.py": text})) is fires


@pytest.mark.parametrize(
    ("made", "word"),
    [
        ("tool_rename(t)", "info"),
        ("tool.strip()", "info"),
        ("find_tool(t)", "error"),
        ("registry.get_tool(t)", "error"),
    ],
)
def test_names_of_tools_are_no_tools(made, word):
    text = f"def f(q, registry, tool):\n    tools = [{made} for t in set(q)]\n    return tools\n"
    assert levels({"a.py": text}, "PFX304") == {word}


def test_a_call_that_has_no_id_yet_may_be_made_here():
    text = 'import uuid  # of messages\ndef confirm(steps):\n    for step in steps:\n        yield {"role": "assistant", "tool_calls": [{"id": ID, "type": "function"}]}\n'
    assert levels({"a.py": text.replace("ID", "str(uuid.uuid4())")}, "PFX405") == {"info"}
    assert levels({"a.py": text.replace("ID", "step.id or str(uuid.uuid4())")}, "PFX405") == {"error"}
    said = text.replace("steps", "tool_calls_acc").replace("ID", "step.get('id') or str(uuid.uuid4())")
    assert levels({"a.py": said}, "PFX405") == {"info"}  # what a stream has just brought


@pytest.mark.parametrize(("own", "word"), [("step.id or ", "info"), ("", "error")])
@pytest.mark.parametrize("read", ["(of(step))", "(split(of(step))[0])"])
def test_an_id_that_functions_hand_on_is_that_of_the_call(own, word, read):
    text = (
        f"import uuid  # of messages\ndef of(step):\n    return {own}str(uuid.uuid4())\ndef split(it):\n    return it, len(it)\n"
        f'def rebuild(steps):\n    out = []\n    for step in steps:\n        out.append({{"role": "tool", "tool_call_id": {read}, "content": "Done."}})\n    return out\n'
    )
    assert levels({"a.py": text}, "PFX405") == {word}


@pytest.mark.parametrize(("value", "code"), [("set(names)", "PFX301"), ("str(uuid.uuid4())", "PFX104")])
def test_what_a_caller_makes_may_have_been_made_once_or_be_sorted_on_the_way(value, code):
    ask = f'    return [{{"role": "system", "content": f"Of {{\', \'.join(given)}} speak. {RULES}"}}, {ASK}]\n'
    handed = f"{NOW}def build(given, q):\n{ask}def run(names, q):\n    return build({value}, q)\n"
    assert levels({"a.py": handed}, code) == {"info"}
    here = f"{NOW}def build(names, q):\n    given = {value}\n{ask}"
    assert levels({"a.py": here}, code) == {"error"}


@pytest.mark.parametrize(
    ("use", "word"),
    [
        ("return messages", "error"),
        ("return client.chat(messages)", "error"),
        ('return {"model": "m", "messages": messages}', "error"),
        ("return json.dumps([1])", "info"),
    ],
)
def test_a_list_of_messages_that_nobody_gets_has_no_window(use, word):
    text = f'{NOW}def f(client, history):\n    messages = [{{"role": "system", "content": "{RULES}"}}]\n    for m in history[-10:]:\n        messages.append({{"role": m.role, "content": m.content}})\n    {use}\n'
    assert levels({"a.py": text}, "PFX402") == {word}


@pytest.mark.parametrize(
    ("use", "word"),
    [
        ("ConversationChain(llm=llm, memory=kept)", "error"),
        ("AgentExecutor(agent=llm, memory=kept)", "error"),
        ("keep(kept)", "info"),
        ("ConversationChain(llm=llm, memory=ConversationBufferWindowMemory(k=2))", "info"),
    ],
)
def test_a_memory_that_keeps_the_last_turns_is_read_by_what_gets_it(use, word):
    text = f"def f(llm):\n    kept = ConversationBufferWindowMemory(k=5)\n    return {use}\n"
    assert levels({"a.py": text}, "PFX402") == {word}


@pytest.mark.parametrize("read", ["facts['{}']", "facts.get('{}')"])
@pytest.mark.parametrize(("key", "word"), [("now", {"error"}), ("level", set())])
def test_an_entry_of_a_mapping_is_not_what_another_entry_holds(read, key, word):
    text = (
        f'{NOW}def build(facts, q):\n    return [{{"role": "system", "content": f"Of {{{read.format(key)}}} speak. {RULES}"}}, {ASK}]\n'
        "def collect():\n    facts = {'now': datetime.now()}\n    facts['level'] = load()\n    return facts\n"
        "def run(q):\n    return build(collect(), q)\n"
    )
    assert levels({"a.py": text}, "PFX101") == word


@pytest.mark.parametrize(
    ("between", "word"),
    [("", "warning"), ("{LANGUAGE} ", "warning"), ("{feed} ", "info"), ("{' '.join(str(e) for e in feed)} ", "info")],
)
def test_what_fills_a_message_of_the_user_is_the_request(between, word):
    text = f'{NOW}LANGUAGE = "English"\ndef f(feed):\n    return client.chat(messages=[{{"role": "user", "content": f"Since {{datetime.now()}}: {between}{LONG}"}}])\n'
    assert levels({"a.py": text}, "PFX101") == {word}


@pytest.mark.parametrize(("default", "word"), [("", "warning"), ('="Me"', "info"), ("=None", "warning")])
def test_a_name_that_suits_all_callers_is_nobodys(default, word):
    text = f'def f(q, user_name{default}):\n    return [{{"role": "system", "content": f"For {{user_name}}. {RULES}"}}, {ASK}]\n'
    assert levels({"a.py": text}, "PFX105") == {word}


@pytest.mark.parametrize(
    ("function", "word"), [("normalise", "error"), ("maybe_compress", "info"), ("truncate_history", "info")]
)
def test_a_conversation_that_was_cut_may_have_system_messages_of_its_own(function, word):
    text = (
        f"def {function}(msgs):\n"
        '    first = "\\n".join(m["content"] for m in msgs if m["role"] == "system")\n'
        '    return [{"role": "system", "content": first}] + [m for m in msgs if m["role"] != "system"]\n'
    )
    assert levels({"a.py": text}, "PFX407") == {word}


@pytest.mark.parametrize(("kind", "word"), [("text", "warning"), ("output_text", "info")])
def test_what_a_model_has_said_is_told_in_blocks(kind, word):
    text = f'def f(m):\n    return {{"role": m["role"], "content": [{{"type": "{kind}", "text": m["content"]}}]}}\n'
    assert levels({"a.py": text}, "PFX406") == {word}


def test_a_set_in_an_entry_that_callers_write_out_is_a_hint_only():
    text = (
        f'def build(facts, q):\n    names = ", ".join(facts["names"])\n    return [{{"role": "system", "content": f"Of {{names}} speak. {RULES}"}}, {ASK}]\n'
        "def run(q, names):\n    return build({'names': list(set(names))}, q)\n"
    )
    assert levels({"a.py": text}, "PFX301") == {"info"}


@pytest.mark.parametrize(("sent", "word"), [('"messages": q', "error"), ('"name": "reader"', "info")])
def test_tools_of_a_configuration_are_sent_to_nobody_yet(sent, word):
    text = f'# messages\ndef f(q, names):\n    return {{"model": "m", {sent}, "tools": list(set(names))}}\n'
    assert levels({"a.py": text}, "PFX304") == {word}


@pytest.mark.parametrize("kinds", ["set(type(x) for x in found)", "{type(x) for x in found}"])
def test_a_set_of_types_is_made_to_ask_which_there_are(kinds):
    text = f'def f(found, q):\n    kinds = {kinds}\n    return [{{"role": "system", "content": f"Of {{kinds}} speak. {RULES}"}}, {ASK}]\n'
    assert levels({"a.py": text}, "PFX301") == set()
    assert levels({"a.py": text.replace("type(x)", "name(x)")}, "PFX301") == {"error"}


BUILT = (
    f"{NOW}class Chat:\n    def __init__(self, name, given=None):\n        self.name = name\n        self.text = given or self.build(name)\n"
    '    def build(self, name):\n        return "\\n".join([TEXT])\n{again}'
    '    def turn(self, history):\n        return client.chat(messages=[{{"role": "system", "content": {read}}}, *history])\n'
)
RENEW = "    def renew(self):\n        self.text = self.build('x')\n"
TIME = 'f"For {name}, it is {datetime.now()}, and so on."'


@pytest.mark.parametrize(
    ("text", "read", "again", "word"),
    [
        (f'"{LONG}", {TIME}', "self.text", "", "info"),
        (f'{TIME}, "{LONG}"', "self.text", "", "info"),
        (f'"{LONG}", {TIME}', "self.build('x')", "", "error"),
        (f'{TIME}, "{LONG}"', "self.text", RENEW, "info"),
        (f'{TIME}, "{LONG}"', "self.text", f"{RENEW}    def tick(self):\n        self.renew()\n", "error"),
    ],
)
def test_what_an_object_is_given_when_it_is_made_is_the_same_for_a_session(text, read, again, word):
    code = BUILT.replace("{{", "{").replace("}}", "}").replace("{again}", again).replace("{read}", read)
    assert levels({"a.py": code.replace("TEXT", text)}, "PFX101") == {word}


@pytest.mark.parametrize(("name", "word"), [("system_prompt", "info"), ("user_name", "warning")])
def test_a_name_that_stands_somewhere_in_a_text_is_not_at_its_place(name, word):
    text = (
        f'FIXED = "{RULES}"\ndef send(q, {name}=""):\n    return client.chat.completions.create(messages=[{{"role": "system", "content": {name} + FIXED}}, {ASK}])\n'
        "def talk(who, q):\n    return send(q, build(who.user_name))\ndef ask(who, q):\n    return send(q, who.user_name)\n"
    )
    assert levels({"a.py": text}, "PFX105") == {word}


@pytest.mark.parametrize(
    ("rest", "word"),
    [
        (f"{RULES}", "warning"),
        (f"{{who.town}} is where they live. {RULES}", "info"),
        (f"{{who.user_name}} is who asks. {RULES}", "warning"),
        ("{more}", "info"),
    ],
)
def test_a_users_name_costs_what_stands_behind_it_in_any_case(rest, word):
    text = (
        f'def f(who, q, long):\n    more = ""\n    if long:\n        more = f"{RULES}"\n'
        f'    return [{{"role": "system", "content": f"For {{who.user_name}}: {rest}"}}, {ASK}]\n'
    )
    assert max(levels({"a.py": text}, "PFX105")) == word


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ("who.user_name", "warning"),
        ('" ".join("".join(c for c in who.user_name if c != "|").split())', "warning"),
        ('"|".join([who.user_name, who.style]).split("|")', "info"),
    ],
)
def test_a_piece_of_a_text_is_not_what_is_in_the_text(given, word):
    text = f'def f(who, q):\n    part = {given}\n    return [{{"role": "system", "content": f"For {{part}}. {RULES}"}}, {ASK}]\n'
    assert levels({"a.py": text}, "PFX105") == {word}


@pytest.mark.parametrize(
    ("behind", "word"),
    [("Of {state} you know: ", "info"), ("Of the law you know: ", "error")],
)
def test_a_value_of_a_text_without_a_role_parts_requests(behind, word):
    text = f'{NOW}def f(state):\n    prompt = f"It is {{datetime.now()}}. {behind} {LONG}"\n    return prompt\n'
    assert levels({"a.py": text}, "PFX101") == {word}


@pytest.mark.parametrize(
    ("system", "asked", "word"),
    [
        (f"{LONG} It is {{datetime.now()}}.", f"{RULES[:60]} {{q}}", "info"),
        (f"{LONG} It is {{datetime.now()}}. {RULES}", f"{RULES[:60]} {{q}}", "error"),
        (f"It is {{datetime.now()}}. {LONG}", f"{RULES[:60]} {{q}}", "error"),
        (f"{LONG[:60]} It is {{datetime.now()}}.", f"{LONG} {{q}}", "error"),
    ],
)
def test_a_time_at_the_end_of_a_system_text_costs_what_the_question_shares(system, asked, word):
    text = f'{NOW}def f(q):\n    return [{{"role": "system", "content": f"{system}"}}, {{"role": "user", "content": f"{asked}"}}]\n'
    assert levels({"a.py": text}, "PFX101") == {word}


@pytest.mark.parametrize(
    "local", ["now + timedelta(hours=8)", "now + shift", "timedelta(hours=8) + now", "(now + shift).replace(second=0)"]
)
def test_a_time_in_another_zone_is_still_the_time(local):
    head = f"{NOW}from datetime import timedelta\ndef f(q, history, shift):\n    now = datetime.utcnow()\n    local = {local}\n"
    text = head + '    said = local.strftime("%A, %H:%M")\n    text = f"It is {said}. ' + RULES
    text += f'"\n    return [{{"role": "system", "content": text}}, *history, {ASK}]\n'
    assert levels({"a.py": text}, "PFX101") == {"error"}


def test_a_piece_of_two_texts_is_not_the_time_in_one_of_them():
    made = f'now = datetime.now().isoformat()\n    head = f"{RULES} It is {{now}}."\n    return head + tail\n'
    text = f"{NOW}def build_system_text(tail):\n    {made}def f(q, tail):\n    piece = build_system_text(tail)[:900].rsplit('.', 1)[0]\n"
    text += f'    return [{{"role": "system", "content": piece + "{RULES}"}}, {ASK}]\n'
    assert "error" not in {e.severity.word for e in findings({"a.py": text})[0] if "first token" in e.message}


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("compose_system_prompt", "error"),
        ("system_instructions_for", "error"),
        ("system_status_page", "info"),
        ("build_prompt", "info"),
    ],
)
def test_a_function_says_that_it_gives_system_text(name, word):
    text = f'{NOW}def {name}(topic):\n    return f"It is {{datetime.now()}}. {LONG[:300]}"\n'
    assert levels({"a.py": text}, "PFX101") == {word}


@pytest.mark.parametrize(
    ("lead", "word"),
    [("Current time: ", "error"), ("当前时间：", "error"), ("Current order, made at ", "info"), ("", "info")],
)
def test_an_attribute_is_the_present_time_where_the_text_says_so(lead, word):
    text = f'def f(q, facts):\n    return [{{"role": "system", "content": f"{lead}{{facts.time}}. {LONG}"}}, {ASK}]\n'
    assert levels({"a.py": text}, "PFX101") == {word}


def test_a_day_in_a_tool_is_information_a_time_is_not():
    tool = '{"name": "look", "description": f"Look. It is {%s}.", "parameters": {"type": "object", "properties": {}}}'
    for said, word in (("date.today()", "info"), ("datetime.now()", "error")):
        text = f"from datetime import date, datetime\ndef tools():\n    return [{tool % said}]\n"
        assert {e.severity.word for e in findings({"a.py": text})[0] if e.rule.code == "PFX306"} == {word}


def test_one_argument_that_fills_two_texts_is_told_once():
    text = f'{NOW}ONE = "It is {{now}}. {LONG}"\nTWO = "Son las {{now}}. {LONG} {RULES}"\n'
    text += (
        "def build_system_prompt(now, spanish):\n    base = TWO if spanish else ONE\n    return base.format(now=now)\n"
    )
    other = (
        f"{NOW}from a import build_system_prompt\ndef f(q, es):\n    system = build_system_prompt(datetime.now(), es)\n"
    )
    other += f'    return [{{"role": "system", "content": system}}, {ASK}]\n'
    found = [
        e for e in findings({"a.py": text, "b.py": other})[0] if e.rule.code == "PFX101" and e.severity.word == "error"
    ]
    assert len(found) == 1
