"""What makes a finding a warning: proof that requests differ there, at a cost. Each false alarm beside the fault."""

from pathlib import Path

import pytest

from prefixlint.reach import is_aside
from tests.linting import codes, findings

RULES = "You are a careful assistant of a small library. Answer in one sentence and name the shelf of each book."
LONG = " ".join([RULES] * 6)
NOW = "from datetime import datetime\nimport os, platform, random, uuid\n"
ASK = '{"role": "user", "content": q}'


def levels(files, code):
    """Give the severities of a rule's findings."""
    return {each.severity.word for each in findings(files)[0] if each.rule.code == code}


def system(expression, name="a.py"):
    """Give a file with a request whose system text begins with an expression."""
    text = f'{NOW}def f(self, q, names):\n    return [{{"role": "system", "content": f"{{{expression}}} {RULES}"}}, {ASK}]\n'
    return {name: text}


@pytest.mark.parametrize(
    ("path", "aside"),
    [
        ("app/prompts.py", False),
        ("latest/contest.py", False),
        ("src/evaluator.py", False),
        ("./app.py", False),
        ("demo.py", True),
        ("examples/rag/app.py", True),
        ("my-benchmarks/run.py", True),
        ("pkg/evals/_run.py", True),
        ("pkg/mock_test_scheduler.py", True),
        (".agents/skills/release/check.py", True),
        ("python/samples/memory/agent.py", True),
    ],
)
def test_what_stands_aside_is_told_by_whole_words(path, aside):
    assert is_aside(path) is aside
    assert levels(system("datetime.now()", path), "PFX101") == {"info" if aside else "error"}


def test_a_value_that_an_evaluation_brings_is_information():
    files = {
        "app.py": f'{NOW}def ask(q, when):\n    return [{{"role": "system", "content": f"It is {{when}}. {RULES}"}}, {ASK}]\n',
        "evals/run.py": f"# messages of a prompt\n{NOW}from app import ask\ndef run(q):\n    return ask(q, datetime.now())\n",
    }
    assert levels(files, "PFX101") == {"info"}
    assert levels({**files, "serve.py": files["evals/run.py"]} | {"evals/run.py": ""}, "PFX101") == {"error"}


@pytest.mark.parametrize("fact", ["os.getcwd()", "platform.system()", "os.environ['REGION_NAME']", "os.getpid()"])
def test_a_fact_that_stays_while_a_process_runs_is_information(fact):
    assert levels(system(fact), "PFX106") <= {"info"}
    assert "PFX106" in codes(system("os.getcwd()"))


@pytest.mark.parametrize(("source", "word"), [("os.listdir(q)", "info"), ("set(names)", "error")])
def test_the_order_of_a_folder_stays_until_somebody_writes_to_it(source, word):
    assert levels(system(f"' '.join({source})"), "PFX301") == {word}


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ("[*history[-2:], note]", "info"),
        ("[summary(q), *history[-9:]]", "info"),
        ("[SYSTEM, *history[-2:], note]", "info"),
        ("[SYSTEM, summary(q), *history[-9:]]", "info"),
        ("[SYSTEM, self.compact(history), *history[-9:]]", "info"),
        ("[SYSTEM, *history[-9:]]", "error"),
        ('[{"role": "system", "content": q}] + history[-9:]', "info"),
        ('[{"role": "system", "content": "Be brief."}] + history[-9:]', "error"),
        ('[SystemMessage("Be brief."), *history[-9:], HumanMessage(q)]', "error"),
        ('[ChatMessage(role="developer", content=RULES), *history[-9:]]', "error"),
        ("[self.system_message, *history[-9:]]", "info"),
    ],
)
def test_a_window_costs_what_stands_behind_the_system_text(body, word):
    assert levels(
        {"a.py": f"# messages\ndef f(self, history, q, note):\n    messages = {body}\n    return messages\n"}, "PFX402"
    ) == {word}


def test_of_two_readings_of_a_window_the_graver_counts():
    text = 'def f(history, q):\n    kept = history[-50:]\n    conversation = [m for m in kept if m]\n    messages = [{"role": "system", "content": "Be brief."}] + conversation\n    messages.append(extra(q))\n    return messages\n'
    assert levels({"a.py": text}, "PFX402") == {"error"}


@pytest.mark.parametrize("inserted", ["insert(1, {})", "insert(-1, {})", "insert(at, {})"])
def test_text_that_is_inserted_stands_where_it_is_put(inserted):
    note = f'{{"role": "system", "content": "{RULES}"}}'
    head = "# messages\ndef f(self, at, first_messages, q):\n    "
    body = f"messages = first_messages\n    messages.{inserted.format(note)}\n    return messages\n"
    assert "PFX203" not in codes({"a.py": head + body})
    assert "PFX203" in codes({"a.py": f"{head}return first_messages + [{note}, {ASK}]\n"})


def test_what_is_inserted_into_a_list_that_is_shown_stands_between_its_messages():
    text = f'{NOW}def f(q):\n    messages = [{{"role": "system", "content": "{RULES}"}}, {ASK}]\n    messages.insert(1, {{"role": "system", "content": f"It is {{datetime.now()}}."}})\n    return messages\n'
    found = [each for each in findings({"a.py": text})[0] if each.rule.code == "PFX101"]
    assert not [each for each in found if "first token" in each.message]


@pytest.mark.parametrize(
    ("sent", "fires"),
    [
        ('trajectory.append({"role": "user", "content": "<r>" + result})', False),
        ('self.send(messages=[*messages, {"role": "user", "content": clock() + result}])', True),
    ],
)
def test_what_is_kept_in_a_second_list_is_stored_as_well(sent, fires):
    text = f'def f(self, messages, trajectory, result):\n    messages.append({{"role": "user", "content": result}})\n    {sent}\n'
    assert ("PFX404" in codes({"a.py": text})) is fires


@pytest.mark.parametrize(
    ("message", "fires"),
    [
        ('{"id": old or f"m{uuid.uuid4()}", "role": "assistant", "tool_calls": calls}', False),
        ('{"role": "assistant", "tool_calls": [{"id": old or f"c{uuid.uuid4()}", "type": "function"}]}', True),
    ],
)
def test_a_message_may_have_an_id_of_its_own(message, fires):
    assert (
        "PFX405" in codes({"a.py": f"import uuid  # of messages\ndef rebuild(old, calls):\n    return [{message}]\n"})
    ) is fires


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ('"[cleared]"', "error"),
        ('message["content"][:80]', "error"),
        ("shown.group(1) + STEP", "info"),
        ("for_people(message)", "info"),
    ],
)
def test_what_becomes_of_a_message_that_is_changed_must_be_shown(value, word):
    text = f'# messages\ndef f(history, shown):\n    for message in history:\n        message["content"] = {value}\n'
    assert levels({"a.py": text}, "PFX401") == {word}


@pytest.mark.parametrize("read", ['message["content"]', 'message.get("content")', "message.content"])
def test_content_read_by_any_means_with_more_around_it_is_a_first_sending(read):
    text = f'# messages\ndef f(history):\n    for message in history:\n        content = {read}\n        message["content"] = f"[1] {{content}}"\n'
    assert levels({"a.py": text}, "PFX401") == {"info"}


@pytest.mark.parametrize(
    ("label", "word"), [("{user_name}", "warning"), ("{user}", "info"), ("{account.user_id}", "warning")]
)
def test_a_bare_user_stands_for_whoever_speaks(label, word):
    text = f'def f(user, user_name, account, q):\n    return [{{"role": "system", "content": f"For {label}. {RULES}"}}, {ASK}]\n'
    assert levels({"a.py": text}, "PFX105") <= {word}
    alone = f'def f(user, user_name, account):\n    return Agent(instructions=f"For {label}. {RULES}")\n'
    assert levels({"a.py": alone}, "PFX105") <= {"info"}


@pytest.mark.parametrize(
    ("made", "word"), [("for t in every_tools(q)", "info"), ("for t in make_tool(set(q))", "error")]
)
def test_a_listing_of_tools_for_people_is_no_list_that_is_sent(made, word):
    text = f"import os\ndef f(q):\n    tools = [t {made}]\n    for t in tools:\n        print(t)\ndef every_tools(q):\n    return list(set(q))\ndef make_tool(q):\n    return q\n"
    assert levels({"a.py": text}, "PFX304") <= {word}


def test_a_template_in_a_constant_is_rendered_later_than_it_is_made():
    text = f'DEFAULT_PROMPT = """{RULES}\n\nCurrent time: {{{{now()}}}}\n{LONG} {{% for e in entities %}}{{{{ e.name }}}}{{% endfor %}}"""\n'
    found = [each for each in findings({"a.py": text})[0] if each.rule.code == "PFX101"]
    assert found
    assert not any("at import" in each.message for each in found)


@pytest.mark.parametrize(
    ("rest", "word"),
    [
        (RULES, "info"),
        (LONG, "error"),
        ("Reported by the camera of the second floor, with all its settings. " * 12, "info"),
    ],
)
def test_a_text_of_unknown_role_must_be_long_and_speak_to_a_model(rest, word):
    text = f'{NOW}def f():\n    status_prompt = f"It is {{datetime.now()}}. {rest}"\n    return show(status_prompt)\n'
    assert levels({"a.py": text}, "PFX101") == {word}


def test_a_fresh_id_in_a_text_of_unknown_role_is_what_the_request_is_about():
    text = f'{NOW}def f(go):\n    prompt = f"Read the file {{uuid.uuid4()}}. {LONG}"\n    return go(prompt)\n'
    assert levels({"a.py": text}, "PFX104") == {"info"}
    assert levels(system("uuid.uuid4()"), "PFX104") == {"error"}


def test_one_reading_of_a_clock_is_told_once():
    text = (
        f'{NOW}TEXT = "{RULES} It is {{when}}. {RULES}"\n'
        f"def f(config, q):\n    now = datetime.now()\n    prompt = TEXT.format(when=now)\n    other = config.text.format(when=now)\n"
        f'    first = [{{"role": "system", "content": prompt}}, {ASK}]\n'
        f'    return first, [{{"role": "system", "content": other}}, {ASK}]\n'
    )
    found = [each for each in findings({"a.py": text})[0] if each.rule.code == "PFX101"]
    assert sorted(each.severity.word for each in found) == ["error", *["info"] * (len(found) - 1)]


@pytest.mark.parametrize(
    ("messages", "word"),
    [
        ("[{M}, *history]", "warning"),
        ('[{{"role": "system", "content": q}}, {M}, *history]', "info"),
        ('[{{"role": "system", "content": q}}, {M}]', "info"),
    ],
)
def test_a_clock_behind_a_system_text_says_when_something_happened(messages, word):
    made = f'{{"role": "user", "content": f"It is {{datetime.now()}}. {LONG}"}}'
    text = f"{NOW}def f(history, q):\n    return client.chat(messages={messages.format(M=made)})\n"
    assert levels({"a.py": text}, "PFX101") == {word}


def test_a_name_that_is_given_another_value_means_two_texts():
    text = (
        'def f(self, history, q):\n    text = f"Speak as {q}."\n    messages = [{"role": "system", "content": "Rules: " + text}, *history]\n'
        '{}    messages.append({"role": "system", "content": text})\n    return messages\n'
    )
    assert "PFX404" not in codes({"a.py": text.replace("{}", '    text = f"Remind of {q}."\n')})


def test_results_of_calls_to_tools_are_no_tool_definitions():
    text = "import concurrent.futures\ndef run_tools(self, calls, pool):\n    results = []\n    {}    return results\n"
    loop = "for done in concurrent.futures.as_completed([pool.submit(self.run_tool_task, c) for c in calls]):\n        results.append(done.result())\n"
    assert levels({"a.py": text.format(loop)}, "PFX304") <= {"info"}
    assert levels({"a.py": text.format(loop)}, "PFX408") == {"info"}


@pytest.mark.parametrize(("end", "fires"), [("\n", True), ("\\n", False)])
def test_a_chat_template_copied_out_of_json_is_not_judged(end, fires):
    turn = "{{ '<|' + message['role'] + '|> ' + message['content'] + eos_token }}"
    text = end.join(
        [
            "{% for message in messages %}",
            turn,
            "{% endfor %}",
            "{% if add_generation_prompt %}",
            "{{ '<|assistant|><think>' }}",
            "{% endif %}",
        ]
    )
    assert ("PFX603" in codes({"chat_template.jinja": text})) is fires


@pytest.mark.parametrize("name", ["TEXT", "texts.TEXT"])
def test_a_constant_is_filled_where_it_is_formatted(name):
    files = {
        "texts.py": f'TEXT = "{RULES} It is {{when}}. {RULES}"\n',
        "a.py": f'{NOW}import texts\nfrom texts import TEXT\ndef f(q):\n    return [{{"role": "system", "content": {name}.format(when=datetime.now())}}, {ASK}]\n',
    }
    (found,) = [each for each in findings(files)[0] if each.severity.word == "error"]
    assert "at token 28 of the system message" in found.message
    assert found.tokens_at_risk == 26


@pytest.mark.parametrize(("given", "word"), [("enriched_prompt = add(q)", "info"), ("now = clock()", "error")])
def test_a_value_that_stands_somewhere_in_a_text_of_another_file_has_no_position(given, word):
    name = given.partition(" ")[0]
    files = {
        "more.py": f"{NOW}def clock():\n    return datetime.now()\ndef add(text):\n    return apply(text, str(datetime.now())) + str(datetime.now())\n",
        "a.py": f'from more import add, clock\ndef f(q):\n    {given}\n    return [{{"role": "system", "content": f"{{{name}}} {RULES}"}}, {ASK}]\n',
    }
    assert levels(files, "PFX101") == {word}


STEPS = """import uuid

def to_messages(steps):
    out = []
    for step in steps:
        tid = str(uuid.uuid4())
        out.append(AIMessage(content="", {owner}tool_calls=[{{"name": step.tool, "args": step.args, "id": tid}}]))
    return out
"""


@pytest.mark.parametrize(("owner", "severity"), [("", "error"), ("agent_id=step.agent, ", "info")])
def test_call_ids_of_rows_that_are_stored_are_information(owner, severity):
    found, _ = findings({"steps.py": STEPS.format(owner=owner)})
    assert [(f.rule.code, f.severity.name.lower()) for f in found] == [("PFX405", severity)]


@pytest.mark.parametrize(
    ("limit", "word"), [("127000", "info"), ("127_000 and messages", "info"), ("20", "error"), ("LIMIT", "error")]
)
def test_what_is_cut_only_where_room_runs_out_is_seldom_cut(limit, word):
    text = f"def f(client, messages):\n    while size(messages) > {limit}:\n        messages.pop(1)\n    return client.chat.completions.create(messages=messages)\n"
    assert levels({"a.py": text}, "PFX402") == {word}


def test_a_loop_that_goes_on_until_the_room_is_used_is_no_guard():
    text = f'{NOW}def f(client, q, used):\n    while used < 127000:\n        used = client.chat.completions.create(messages=[{{"role": "system", "content": f"{{datetime.now()}} {RULES}"}}, {ASK}])\n'
    assert levels({"a.py": text}, "PFX101") == {"error"}


def test_a_history_that_a_function_gives_with_other_contents_may_be_for_a_store():
    text = 'def redact(messages):\n    return [{**m, "content": hide(m["content"])} for m in messages]\n'
    assert levels({"a.py": text}, "PFX401") == {"info"}


@pytest.mark.parametrize(
    ("name", "times", "word"),
    [("user_name", 24, "warning"), ("user_name", 2, "warning"), ("tenant.name", 24, "info"), ("org_name", 24, "info")],
)
def test_a_users_name_costs_what_all_users_share(name, times, word):
    rules = " ".join([RULES] * times)
    text = f'def f(tenant, user_name, org_name, q):\n    return [{{"role": "system", "content": f"For {{{name}}}. {rules}"}}, {ASK}]\n'
    found = findings({"a.py": text}, 32)[0]
    assert {each.severity.word for each in found if each.rule.code == "PFX105"} == {word}


@pytest.mark.parametrize(("ahead", "word"), [("", "warning"), ("{found(q)}", "info"), ("{NOTE}", "warning")])
def test_behind_what_may_be_another_text_each_time_a_users_name_costs_nothing(ahead, word):
    text = f'NOTE = "Be kind."\ndef f(user_name, q):\n    return [{{"role": "system", "content": f"{ahead} For {{user_name}}. {LONG}"}}, {ASK}]\n'
    assert levels({"a.py": text}, "PFX105") == {word}


def test_a_template_that_anybody_may_fill_with_a_users_name_proves_nothing():
    assert levels({"prompts/system.j2": f"For {{{{ user_name }}}}. {LONG}"}, "PFX105") <= {"info"}


CASES = Path(__file__).parent.parent / "fixtures" / "prompts" / "cases"


@pytest.mark.parametrize("name", sorted(path.name for path in CASES.iterdir()))
def test_small_prompts_are_judged_as_large_ones_are(name):
    files = {path.name: path.read_text("utf-8") for path in (CASES / name).iterdir() if path.suffix in (".py", ".j2")}
    small, large = (
        {(each.rule.code, each.span) for each in findings(files, floor)[0] if each.severity.word != "info"}
        for floor in (0, 32)
    )
    assert small == large


@pytest.mark.parametrize(("path", "word"), [("deploy/claude.sh", "warning"), ("scripts/claude.sh", "info")])
def test_a_script_that_stands_aside_starts_what_somebody_tries_by_hand(path, word):
    text = "export ANTHROPIC_BASE_URL=http://127.0.0.1:8000\nclaude\n"
    assert levels({path: text}, "PFX110") == {word}


@pytest.mark.parametrize(("ahead", "word"), [("", "error"), ("For {kind}, ", "info"), ("For {KIND}, ", "error")])
def test_what_a_text_is_filled_with_ahead_of_a_time_ends_the_prefix_before_it(ahead, word):
    text = f'{NOW}KIND = "books"\ndef librarian_prompt(kind, q):\n    return f"{ahead}it is {{datetime.now()}}. {LONG} You are asked: {{q}}"\n'
    assert levels({"a.py": text}, "PFX101") == {word}


@pytest.mark.parametrize(("kept", "word"), [(2, "info"), (3, "info"), (4, "error")])
def test_a_memory_of_a_framework_that_keeps_little_is_meant_to(kept, word):
    text = f"from langchain.memory import ConversationBufferWindowMemory\ndef f(model):\n    memory = ConversationBufferWindowMemory(k={kept})\n    return ConversationChain(llm=model, memory=memory)\n"
    assert levels({"a.py": text}, "PFX402") == {word}


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("It is {datetime.now()}. {LONG}", "error"),
        ("{RULES} It is {datetime.now()}. {LONG}", "error"),
        ("{LONG} It is {datetime.now()}. {RULES}", "info"),
        ("{LONG} You have waited for {time.time() - self.start} s. {RULES}", "error"),
    ],
)
def test_towards_the_end_of_a_system_text_that_stands_alone_little_is_lost(text, word):
    body = text.replace("{LONG}", LONG).replace("{RULES}", RULES)
    files = {"a.py": f'{NOW}import time\ndef f(self):\n    return [{{"role": "system", "content": f"{body}"}}]\n'}
    assert levels(files, "PFX101") | levels(files, "PFX103") == {word}
    shown = {"a.py": files["a.py"].replace("def f(self)", "def f(self, history)").replace("}]", "}, *history]")}
    assert levels(shown, "PFX101") | levels(shown, "PFX103") == {"error"}


@pytest.mark.parametrize(("times", "word"), [(2, "info"), (3, "error")])
def test_a_time_that_only_a_name_tells_has_more_behind_it(times, word):
    text = f"system: |\n  It is {{current_time}}. {' '.join([RULES] * times)}\n"
    found = findings({"prompts/chat.yaml": text}, 32)[0]
    assert {each.severity.word for each in found if each.rule.code == "PFX101"} == {word}
