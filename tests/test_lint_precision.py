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
