"""What looks like a fault and is none, beside the fault that it looks like."""

import pytest

from tests.linting import codes, findings

RULES = "You are a careful assistant of a small library. Answer in one sentence and name the shelf of each book."


def dated(pattern, setup=""):
    return (
        f"from datetime import datetime\n{setup}"
        f'def f(self):\n    day = datetime.now().strftime({pattern})\n    return [{{"role": "system", "content": f"{{day}} {RULES}"}}]\n'
    )


@pytest.mark.parametrize(
    ("pattern", "setup", "code"),
    [
        ('"%Y-%m-%d"', "", "PFX102"),
        ('"%H:%M:%S"', "", "PFX101"),
        ("FORMAT", 'FORMAT = "%Y-%m-%d"\n', "PFX102"),
        ("FORMAT", 'FORMAT = "%Y-%m-%d %H:%M"\n', "PFX101"),
        ('getattr(self, "form", "%Y-%m-%d")', "", "PFX102"),
        ('getattr(self, "form", "%d %H:%M:%S")', "", "PFX101"),
        ("self.date_format", "", "PFX102"),
        ("self.date_time_format", "", "PFX101"),
        ("self.datetime_format", "", "PFX101"),
        ("self.form", "", "PFX101"),
    ],
)
def test_a_date_is_told_from_a_time_by_its_format(pattern, setup, code):
    found = codes({"a.py": dated(pattern, setup)})
    assert found & {"PFX101", "PFX102"} == {code}


def test_a_window_over_messages_is_a_fault_one_over_text_is_not():
    window = f'SYSTEM = {{"role": "system", "content": "{RULES}"}}\ndef f(history):\n    return client.chat(messages=[SYSTEM, *history[-20:]])\n'
    assert "PFX402" in codes({"a.py": window})
    text = (
        f'SYSTEM = {{"role": "system", "content": "{RULES}"}}\ndef f(history):\n    history = history[-9000:].strip()\n'
        '    return client.chat(messages=[SYSTEM, {"role": "user", "content": f"History: {history}"}])\n'
    )
    assert "PFX402" not in codes({"a.py": text})


@pytest.mark.parametrize(
    ("name", "fires"), [("tool_calls", True), ("calls", True), ("api_call_limit", False), ("pages", False)]
)
def test_the_order_of_finished_calls_counts_for_tool_calls_only(name, fires):
    text = (
        f"import asyncio\nasync def run_all({name}):\n    out = []\n"
        f"    for done in asyncio.as_completed([run(x) for x in {name}]):\n        out.append(await done)\n    return out\n"
    )
    assert ("PFX408" in codes({"a.py": text})) is fires


@pytest.mark.parametrize(
    ("call", "fires"),
    [
        ("client.messages.create", True),
        ("client.beta.messages.stream", True),
        ("client.chat.completions.create", False),
        ("ChatCompletionRequest", False),
    ],
)
def test_the_choice_of_a_tool_is_in_the_prefix_of_one_provider(call, fires):
    text = f'def f(history, tools, hard):\n    return {call}(model="m", messages=history, tools=tools, tool_choice="any" if hard else "auto")\n'
    assert ("PFX504" in codes({"a.py": text})) is fires


def test_arguments_of_the_command_line_are_input():
    text = f'import sys\ndef f():\n    words = " ".join(sys.argv[1:])\n    return [{{"role": "system", "content": f"{{words}} {RULES}"}}]\n'
    found, _ = findings({"a.py": text})
    assert "PFX106" not in {each.rule.code for each in found}
    assert all(each.severity.word == "info" for each in found)


@pytest.mark.parametrize(
    ("name", "fires"), [("system_info", False), ("system_instructions", True), ("system_info_prompt", True)]
)
def test_facts_about_a_system_are_no_system_text(name, fires):
    text = f'import uuid\ndef report(body):\n    {name} = f"{{uuid.uuid4()}} runs Linux and Python, with a virtual environment of its own, and so on."\n    send({name})\n'
    assert ("PFX104" in codes({"a.py": text})) is fires


@pytest.mark.parametrize(
    ("call", "fires"), [("now()", True), ("utcnow()", True), ("company()", False), ("company", False)]
)
def test_a_call_in_double_braces_makes_a_text_of_a_data_file_a_template(call, fires):
    text = f"system_prompt: |\n  It is {{{{ {call} }}}}.\n  {RULES}\n"
    assert ("PFX101" in codes({"prompts/p.yaml": text})) is fires


@pytest.mark.parametrize(("value", "fires"), [("uuid.uuid4()", True), ('"a reader"', False)])
@pytest.mark.parametrize("made", ["Template(TEXT)", f'Template("$x {RULES}")'])
def test_a_template_held_by_a_constant_is_filled_by_its_substitute(made, value, fires):
    text = (
        f'import uuid\nfrom string import Template\nTEXT = "$x {RULES}"\nSYSTEM_PROMPT = {made}\n'
        f'def f():\n    return [{{"role": "system", "content": SYSTEM_PROMPT.substitute(x={value})}}]\n'
    )
    assert ("PFX104" in codes({"a.py": text})) is fires


def severities(files, code):
    """Give the severities of a rule's findings."""
    return {each.severity.word for each in findings(files)[0] if each.rule.code == code}


NOW = "from datetime import datetime\nimport os, random, uuid, json\n"


@pytest.mark.parametrize(
    ("built", "word"),
    [
        (
            'system_content = f"Now: {datetime.now()}, and so on for a line"\n    req.parts.append(system_content)',
            "info",
        ),
        (f'system_prompt = f"Now: {{datetime.now()}}. {RULES}"\n    go(system_prompt)', "error"),
        (f'system_content = f"Now: {{datetime.now()}}. {RULES}"\n    go(system_content)', "error"),
    ],
)
def test_a_text_that_only_its_name_calls_system_text_must_speak_like_one(built, word):
    assert severities({"a.py": f"{NOW}# messages\ndef f(req):\n    {built}\n"}, "PFX101") == {word}


@pytest.mark.parametrize(
    ("lead", "name", "word"),
    [
        ("It is", "current_time", "error"),
        ("Current time:", "_time", "error"),
        ("The meeting is at", "time", "info"),
        ("Look again every", "timestamp", "info"),
    ],
)
def test_the_name_of_a_time_says_now_or_the_text_before_it_does(lead, name, word):
    files = {"a.py": f'def f({name}):\n    return [{{"role": "system", "content": f"{lead} {{{name}}}. {RULES}"}}]\n'}
    assert severities(files, "PFX101") == {word}


@pytest.mark.parametrize(
    ("value", "word"),
    [("event.time", "info"), ("event.current_time", "info"), ("current_time", "error"), ("self.current_time", "error")],
)
def test_an_event_has_a_time_of_its_own(value, word):
    files = {
        "a.py": f'def f(self, event, current_time):\n    return Agent(instructions=f"Call at {{{value}}}. {RULES}")\n'
    }
    assert severities(files, "PFX101") == {word}


def test_whoever_wrote_the_posts_is_not_the_one_who_asks():
    body = (
        "def posts(found):\n    lines = []\n    for m in found:\n"
        '        name = m.get("user", {}).get("username")\n        lines.append(f"{name}: {m}")\n    return "\\n".join(lines)\n'
    )
    ask = f'def f(found):\n    return [{{"role": "system", "content": f"{{posts(found)}} {RULES}"}}, {{"role": "user", "content": "Go."}}]\n'
    assert severities({"a.py": body + ask}, "PFX105") <= {"info"}
    own = f'def f(request):\n    return [{{"role": "system", "content": f"{{request.username}} {RULES}"}}, {{"role": "user", "content": "Go."}}]\n'
    assert severities({"a.py": own}, "PFX105") == {"warning"}


@pytest.mark.parametrize(
    ("before", "word"),
    [("*history, ", "info"), ("", "error")],
)
def test_system_text_behind_a_conversation_is_its_newest_end(before, word):
    files = {
        "a.py": f'{NOW}def f(history):\n    return client.chat(messages=[{before}{{"role": "system", "content": f"Now {{datetime.now()}}. {RULES}"}}])\n'
    }
    assert severities(files, "PFX101") == {word}


def test_an_event_that_a_class_of_the_project_calls_a_system_message_begins_no_prompt():
    text = f'{NOW}def system_message(agent):\n    return Message(agent_id=agent, role="system", text=f"Event at {{datetime.now()}}")\n'
    assert severities({"a.py": text}, "PFX101") == {"info"}
    text = text.replace("Event at", "You are a careful assistant. Answer in one line, whatever the time is:")
    text = text.replace(
        "{datetime.now()}", "{datetime.now()}. " + "Name the shelf of each book that you were asked for. " * 3
    )
    assert severities({"a.py": text}, "PFX101") == {"error"}


@pytest.mark.parametrize(
    ("made", "word"),
    [
        ('f"You are agent number {i}."', "info"),
        (f'f"Step {{i}} of 20. {RULES}"', "info"),
        (f'f"Step {{i}} of 20. {RULES * 6}"', "error"),
    ],
)
def test_a_number_of_an_agent_is_no_counter_of_steps(made, word):
    files = {"a.py": f"def f():\n    for i in range(20):\n        Agent(system_prompt={made})\n"}
    assert severities(files, "PFX107") == {word}


@pytest.mark.parametrize(
    "made",
    [
        f'prompt = f"Round {{i}}. {RULES}"\n        agent.run(prompt)',
        f'prompt = f"Explore {{random.choice(places)}}. {RULES}"\n        agent.run(prompt)',
        f'prompt = f"Shelves: {{set(places)}}. {RULES}"\n        agent.run(prompt)',
    ],
)
def test_what_else_changes_in_a_message_of_the_user_is_what_the_request_is_about(made):
    found, _ = findings({"a.py": f"{NOW}def f(agent, places):\n    for i in range(9):\n        {made}\n"})
    assert {each.rule.code for each in found} & {"PFX107", "PFX108", "PFX301"}
    assert {each.severity.word for each in found} == {"info"}


def test_a_whole_prompt_that_is_drawn_has_nothing_behind_it():
    text = f'{NOW}def f(texts, q):\n    return client.converse(system=[{{"text": random.choice(texts)}}], messages=[{{"role": "user", "content": q}}])\n'
    assert severities({"a.py": text}, "PFX108") == {"info"}


def test_what_a_command_printed_is_told_on_purpose():
    text = f'import subprocess\ndef f():\n    out = subprocess.run(["git", "status"]).stdout\n    return [{{"role": "system", "content": f"Status: {{out}} {RULES * 6}"}}, {{"role": "user", "content": "Go."}}]\n'
    assert severities({"a.py": text}, "PFX106") == {"info"}


class TestTools:
    """The order of tools is a fault where a model gets them."""

    @pytest.mark.parametrize(
        ("text", "word"),
        [
            ("tools = [x.stem for x in set(q)]\n    return tools", "info"),
            ("tools = [x.stem for x in set(q)]\n    return client.chat(messages=q, tools=tools)", "error"),
            ("tools = [load_tool(x) for x in set(q)]\n    return tools", "error"),
            ("tools = []\n    for x in set(q):\n        tools.append(self.search_tool())\n    return tools", "error"),
            ("tools = []\n    for x in set(q):\n        tools.append(tool_results(x))\n    return tools", "info"),
        ],
    )
    def test_a_list_called_tools(self, text, word):
        found, _ = findings({"a.py": f"def f(self, q):\n    {text}\n"})
        told = [each for each in found if each.rule.code == "PFX304"]
        assert {each.severity.word for each in told} == {word}
        assert word == "error" or all(each.fix is None for each in told)

    def test_something_with_a_name_a_description_and_more_is_no_tool(self):
        text = 'def f(found):\n    return [{{"name": 1, "description": 2, "parameters": 3{more}, "type": list({{x.type for x in found}})}}]\n'
        assert "PFX304" not in codes({"a.py": text.format(more=', "suffix": 4')})
        assert "PFX304" in codes({"a.py": text.format(more="")})


@pytest.mark.parametrize(
    ("kept", "word"),
    [
        ('[SYSTEM, *[{"role": "user", "content": h["user"]} for h in history[-8:]]]', {"error"}),
        ("[SYSTEM, *history[-8:]]", {"error"}),
        ("[SYSTEM, *self.history_images[-8:]]", set()),
        ('[SYSTEM, {"role": "user", "content": "\\n".join(history[-8:])}]', set()),
        ('[SYSTEM, ask(f"{history[-8:]} and more")]', set()),
    ],
)
def test_a_window_is_one_over_messages(kept, word):
    setup = f'SYSTEM = {{"role": "system", "content": "{RULES}"}}\n'
    files = {"a.py": f"{setup}def f(self, history):\n    return client.chat(messages={kept})\n"}
    assert severities(files, "PFX402") == word


def test_lines_of_a_text_about_a_conversation_are_no_messages():
    text = 'def f(chat_history, q):\n    conversation_history = "So far:"\n    for chat in chat_history[-4:]:\n        conversation_history += f"Q: {chat}"\n    return conversation_history\n'
    assert "PFX402" not in codes({"a.py": text})


@pytest.mark.parametrize(("content", "fires"), [("RULES", True), ("blocks", False), ('"\\n".join(lines)', False)])
def test_a_moving_block_is_constant(content, fires):
    text = f'RULES = "{RULES}"\ndef f(history, q, more):\n    blocks = ""\n    lines = []\n    for m in more:\n        blocks += f"{{m}} "\n        lines.append(m)\n    return history + [{{"role": "system", "content": {content}}}, {{"role": "user", "content": q}}]\n'
    assert ("PFX203" in codes({"a.py": text})) is fires


@pytest.mark.parametrize(
    ("head", "body", "word"),
    [
        ("def rebuild(rows):", '{"role": "assistant", "tool_calls": CALLS}', "error"),
        ("def parse_response(rows):", '{"role": "assistant", "tool_calls": CALLS}', "info"),
        ("def rebuild(rows):", '{"delta": {"tool_calls": CALLS}}', "info"),
    ],
)
def test_an_id_that_is_made_where_an_answer_is_read_is_its_first(head, body, word):
    calls = '[{"id": r.call_id or f"call_{uuid.uuid4()}", "type": "function", "function": {"name": r.fn}}]'
    files = {"a.py": f"import uuid  # of messages\n{head}\n    return [{body.replace('CALLS', calls)} for r in rows]\n"}
    assert severities(files, "PFX405") == {word}


@pytest.mark.parametrize(("role", "word"), [("user", "info"), ("system", "warning")])
def test_a_marked_document_of_the_user_is_shared_by_the_questions_about_it(role, word):
    block = '{"type": "text", "text": "Document: " + document, "cache_control": {"type": "ephemeral"}}'
    files = {"a.py": f'def f(document, q):\n    return [{{"role": "{role}", "content": [{block}, {{"text": q}}]}}]\n'}
    assert severities(files, "PFX501") == {word}


@pytest.mark.parametrize(
    ("value", "word"),
    [("persona_block", "info"), ("coach_name", "info"), ("json.dumps(state)", "info"), ("row.text()", "warning")],
)
def test_a_marked_block_may_hold_one_of_few(value, word):
    block = f'{{"type": "text", "text": f"{RULES} {{{value}}}", "cache_control": {{"type": "ephemeral"}}}}'
    text = f"import json\ndef f(q, row, persona_block, coach_name, state):\n    return ask(system=[{block}], messages=[{{'role': 'user', 'content': q}}])\n"
    assert severities({"a.py": text}, "PFX501") == {word}


def test_a_parameter_that_all_callers_give_a_constant_for_does_not_change():
    text = (
        'LONG = "[a prefix of one kind, the same for all requests]"\nOTHER = "[a prefix of another kind, the same for all]"\n'
        f'RULES = "{RULES}"\ndef block(prefix):\n    return [{{"type": "text", "text": prefix + RULES, "cache_control": {{"type": "ephemeral"}}}}]\n'
        "def f():\n    return block(LONG)\ndef g():\n    return block(OTHER)\n"
    )
    assert "PFX501" not in codes({"a.py": text})
    assert "PFX501" in codes({"a.py": text.replace("block(OTHER)", "block(read(OTHER))")})


@pytest.mark.parametrize(("name", "fires"), [("fields", True), ("response_schema", False)])
def test_a_schema_that_is_handed_over_is_not_built_for_each_request(name, fires):
    text = f'from pydantic import create_model\ndef ask({name}, msgs):\n    M = create_model("Out", **{{f: (str, ...) for f in {name}}})\n    return client.parse(model="m", messages=msgs, response_format=M)\n'
    assert ("PFX307" in codes({"a.py": text})) is fires


@pytest.mark.parametrize(("keyword", "fires"), [("exclude", False), ("values", True)])
def test_what_is_left_out_is_not_written(keyword, fires):
    text = f'SECRET = {{"a", "b"}}\ndef f(it):\n    return [{{"role": "system", "content": f"{{it.model_dump({keyword}=SECRET)}} {RULES}"}}]\n'
    assert ("PFX301" in codes({"a.py": text.replace("it.model_dump", "dump_text")})) is fires


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ('message["content"][:100]', "error"),
        ('"[cleared]"', "error"),
        ('message["content"] + "Answer as before."', "info"),
        ('self.with_images(message["content"], images)', "info"),
    ],
)
def test_content_with_more_around_it_is_how_a_message_is_first_sent(value, word):
    text = f'def f(self, history, images):\n    for message in history:\n        message["content"] = {value}\n'
    assert severities({"a.py": f"# messages\n{text}"}, "PFX401") == {word}


@pytest.mark.parametrize(
    ("text", "word"), [("{RULES} {RULES} For {user_name}. {RULES}", "info"), ("For {user_name}. {RULES}", "warning")]
)
def test_a_user_at_the_end_of_a_text_costs_little(text, word):
    files = {
        "a.py": f'def f(user_name):\n    return [{{"role": "system", "content": f"{text.replace("{RULES}", RULES)}"}}, {{"role": "user", "content": "Go."}}]\n'
    }
    assert severities(files, "PFX105") == {word}


@pytest.mark.parametrize(("key", "word"), [('"type": "function_call"', "error"), ('"pause_type": "denied"', "info")])
def test_a_call_in_a_record_for_people_is_no_item_of_an_api(key, word):
    text = (
        "import uuid  # of messages\ndef f(rows):\n    out = []\n    for row in rows:\n"
        f'        out.append({{{key}, "call_id": row.get("id") or str(uuid.uuid4()), "name": row["name"]}})\n'
    )
    assert severities({"a.py": text}, "PFX405") == {word}


@pytest.mark.parametrize(("role", "word"), [("system", "error"), ("user", "info")])
def test_an_id_in_a_single_question_marks_it(role, word):
    text = f'import uuid\nfrom openai import OpenAI\ndef f():\n    return OpenAI().chat.completions.create(messages=[{{"role": "{role}", "content": f"Mark {{uuid.uuid4()}}. {RULES} {RULES}"}}])\n'
    assert severities({"a.py": text}, "PFX104") == {word}


DRAWN = """import random

def search(root, llm, history):
    node = random.choice(root.children)
    return grow(node.state, llm, history)

def grow(state, llm, history):
    messages = [{"role": "system", "content": state.examples}, *history]
    return llm.chat.completions.create(model="m", messages=messages)
"""


@pytest.mark.parametrize(
    ("code", "word"),
    [
        (DRAWN, "info"),
        (
            DRAWN.replace(
                "def grow(state, llm, history):\n", "def grow(state, llm, history):\n    state = random.choice(state)\n"
            ),
            "error",
        ),
    ],
    ids=["drawn by a caller, and a part of it", "drawn here"],
)
def test_what_a_thing_that_was_drawn_elsewhere_carries_may_be_the_same_for_all(code, word):
    assert severities({"tree.py": code}, "PFX108") == {word}


@pytest.mark.parametrize(
    ("method", "word"),
    [("simulate_tool", set()), ("run", set()), ("make_tool", {"error"}), ("load", {"error"}), ("tool_result", set())],
)
def test_what_a_tool_gave_is_no_tool(method, word):
    code = (
        "from concurrent.futures import as_completed\n\nclass ToolBox:\n"
        f"    def {method}(self, call):\n        return call\n"
        "    def all_tools(self, calls, pool):\n        out = []\n        if len(calls) > 1:\n"
        f"            jobs = [pool.submit(self.{method}, call) for call in calls]\n"
        "            for job in as_completed(jobs):\n                out.append(job.result())\n"
        f"        else:\n            out.append(self.{method}(calls[0]))\n        return out\n"
    )
    assert severities({"tools.py": code}, "PFX304") - {"info"} == word


@pytest.mark.parametrize(
    ("call", "fires"),
    [
        ('page.render_text(RULES, skip_fields={"drafts", "notes", "photos"})', False),
        ('page.render_text(RULES, topics={"drafts", "notes", "photos"})', True),
    ],
)
def test_what_says_which_parts_are_written_is_not_written_itself(call, fires):
    text = f"""
import openai
from shop import page
RULES = {"Weigh each crate and write the weight on its label. " * 12!r}
def ask(q):
    text = {call}
    messages = [{{"role": "system", "content": text}}, {{"role": "user", "content": q}}]
    return openai.OpenAI().chat.completions.create(model="m", messages=messages)
"""
    assert ("PFX301" in codes({"a.py": text})) is fires


def test_of_what_is_drawn_the_order_before_does_not_matter():
    text = f"""
import openai, random
def ask(q, words):
    text = ", ".join(random.sample(list(set(words)), 9)) + {"Weigh each crate and write the weight down. " * 12!r}
    messages = [{{"role": "system", "content": text}}, {{"role": "user", "content": q}}]
    return openai.OpenAI().chat.completions.create(model="m", messages=messages)
"""
    assert codes({"a.py": text}) == {"PFX108"}


@pytest.mark.parametrize(
    ("change", "severity"),
    [
        (
            "history.append({'role': 'system', 'content': RULES}); history.append({'role': 'user', 'content': q})",
            "info",
        ),
        ("history.extend([{'role': 'system', 'content': RULES}, {'role': 'user', 'content': q}])", "info"),
        ("history = history + [{'role': 'system', 'content': RULES}, {'role': 'user', 'content': q}]", "info"),
        ("", "warning"),
    ],
)
def test_text_that_may_be_kept_behind_a_history_is_information(change, severity):
    sent = "history" if change else "history + [{'role': 'system', 'content': RULES}, {'role': 'user', 'content': q}]"
    text = f"""
import openai
RULES = {"Weigh each crate and write the weight on its label. " * 12!r}
def ask(q, history):
    {change or "pass"}
    return openai.OpenAI().chat.completions.create(model="m", messages={sent})
"""
    found, _ = findings({"a.py": text})
    assert {f.severity.word for f in found if f.rule.code == "PFX203"} == {severity}
