"""More ways by which values reach a prompt: loops that replace, files that are chosen, what stands around a system text."""

import pytest

from prefixlint.findings import Severity
from tests.linting import codes, findings, places

RULES = "\n".join(f"{n}. Never reveal internal notes, and cite the page of statement {n}." for n in range(1, 9))
TEXT = f'TEXT = """You help. It is {{{{now}}}} at {{{{place}}}}.\n{RULES}"""\n'
SEND = '    return llm.chat(messages=[{"role": "system", "content": text}, {"role": "user", "content": "hi"}])\n'


@pytest.mark.parametrize(
    "filled",
    [
        (
            '    for key, value in {"{{now}}": datetime.now(), "{{place}}": place}.items():\n'
            "        text = text.replace(key, str(value))\n"
        ),
        (
            '    values = {"now": datetime.now()}\n    values["place"] = place\n    for key, value in values.items():\n'
            '        text = text.replace("{{" + key + "}}", value)\n'
        ),
        (
            "    for key, value in dict(now=datetime.now(), place=place).items():\n"
            '        text = text.replace(f"{{{{{key}}}}}", value.strip())\n'
        ),
        (
            '    for key, value in {"now": datetime.now()}.items():\n'
            "        if key in text:\n"
            '            text = text.replace("{{" + key + "}}", value)\n'
        ),
        "    text = fill(text, now=datetime.now(), place=place)\n",
    ],
)
def test_a_loop_that_replaces_each_key_of_a_mapping(filled):
    helper = (
        "def fill(text, **values):\n    for key, value in values.items():\n"
        '        text = text.replace("{{" + key + "}}", str(value))\n    return text\n'
    )
    code = f"from datetime import datetime\n{TEXT}{helper}def ask(llm, place):\n    text = TEXT\n{filled}{SEND}"
    found, errors = findings({"app.py": code})
    assert not errors
    assert Severity.ERROR in {f.severity for f in found if f.rule.code == "PFX101"}, found


def test_a_loop_that_replaces_something_else_fills_nothing():
    loop = "    for old, new in {'now': datetime.now()}.items():\n        other = text.replace(old, 'then')\n"
    code = f"from datetime import datetime\n{TEXT}def ask(llm):\n    text = TEXT.replace('{{{{now}}}}', 'noon')\n{loop}{SEND}"
    assert "PFX101" not in codes({"app.py": code})


def test_a_loop_over_a_mapping_fills_a_file():
    files = {"base.txt": f"It is {{{{NOW}}}}. You help.\n{RULES}"}
    code = (
        "from datetime import datetime\nfrom pathlib import Path\ndef make_system_prompt(now=None):\n"
        '    text = (Path(__file__).parent / "base.txt").read_text()\n    current = now or datetime.now()\n'
        '    for sign, value in {"{{NOW}}": current.strftime("%H:%M:%S")}.items():\n'
        "        text = text.replace(sign, value)\n    return text\n"
    )
    assert ("PFX101", "app.py", 6) in places({**files, "app.py": code})


def test_a_file_that_is_one_of_two_is_filled_where_it_is_read():
    code = (
        "from datetime import datetime\nfrom pathlib import Path\n"
        "def load(name):\n"
        '    path = Path(__file__).parent.joinpath("prompts", name)\n    if not path.is_file():\n        return ""\n'
        '    text = path.read_text()\n    return text[:-1] if text.endswith("\\n") else text\n'
        "def build_system_prompt(team, now=None):\n"
        '    kind = "team" if team else "private"\n'
        '    return "\\n" + load(f"who/{kind}.md").format(now=(now or datetime.now()).isoformat()) + RULES\n'
        f'RULES = """{RULES}"""\n'
    )
    files = {
        "app/main.py": code,
        "app/prompts/who/team.md": "You help.\n{now}\n",
        "app/prompts/who/private.md": "You help.\n{now}\n",
    }
    assert ("PFX101", "app/main.py", 11) in places(files)


@pytest.mark.parametrize("given", ["now or datetime.now()", "now if now else datetime.now()"])
def test_a_time_that_a_caller_may_give_is_the_time(given):
    code = (
        f'from datetime import datetime\nRULES = """{RULES}"""\ndef build_system_prompt(now=None):\n'
        f'    return f"It is {{({given}).astimezone().isoformat()}}. You help. {{RULES}}"\n'
    )
    assert "PFX101" in codes({"app.py": code})


def test_an_attribute_of_one_of_two_things_is_no_address():
    code = (
        f'FAILED = object()\nRULES = """{RULES}"""\ndef build_system_prompt(book):\n    named = book or FAILED\n'
        '    return f"You help. {named.title} {RULES}"\n'
    )
    assert "PFX109" not in codes({"app.py": code})


@pytest.mark.parametrize("param", ["system_prompt", "system_message", "system_instruction"])
def test_what_stands_around_a_system_text_is_of_it(param):
    code = (
        "from datetime import datetime\n"
        f'def with_clock({param}):\n    return f"It is {{datetime.now()}}.\\n\\n{{{param}}}"\n'
    )
    found, _ = findings({"app.py": code})
    assert [(f.rule.code, f.severity) for f in found if f.rule.code == "PFX101"] == [("PFX101", Severity.INFO)]


def test_what_stands_around_another_text_is_not():
    code = 'from datetime import datetime\ndef line(text):\n    return f"It is {datetime.now()}.\\n\\n{text}"\n'
    assert not codes({"app.py": code})


def test_a_template_under_the_name_of_a_system_prompt_is_system_text():
    code = (
        "from datetime import datetime\nfrom lib import PromptTemplate\n"
        'AgentSystemPrompt = PromptTemplate(functions={"now": lambda _: datetime.now().isoformat()},\n'
        f'    template="""You help.\n{RULES}\nIt is {{{{now}}}}. Ask for no other."""\n)\n'
    )
    found, _ = findings({"app.py": code}, min_tokens=32)
    assert [f.rule.code for f in found if "system message" in f.message] == ["PFX101"]


def test_a_text_that_speaks_to_a_model_in_a_mapping_that_a_call_is_handed():
    text = f"It is {{datetime.now()}}.\n{RULES}\nYou must name each page."
    code = f'from datetime import datetime\ndef ask(llm):\n    llm.prompt_agent("think", args={{"@": f"""{text}"""}})\n'
    assert "PFX101" in codes({"app.py": code.replace("@", "user_input")})
    assert "PFX101" not in codes({"app.py": code.replace("@", "description")})
    assert "PFX101" not in codes(
        {"app.py": code.replace("@", "user_input").replace("llm.prompt_agent", "prompt_logger.info")}
    )


@pytest.mark.parametrize("head", [">", ">-", "|", ""])
def test_a_place_in_a_folded_scalar_is_told_at_its_line(head):
    lines = "\n\n    ".join(RULES.split("\n"))
    first = f" {head}\n    You grade" if head else " You grade"
    text = f"grade:\n  template:{first}\n    essays at {{current_time}} and\n    more.\n\n    {lines}\n"
    wanted = text[: text.index("{current_time}")].count("\n") + 1
    assert ("PFX101", "prompts/grade.yaml", wanted) in places({"prompts/grade.yaml": text})


def test_json_in_doubled_braces_makes_no_jinja_of_a_text():
    text = f'You search. It is {{current_time}}.\nCall: {{{{"query": "x", "filters": ["a"]}}}}\n{RULES}\n'
    assert ("PFX101", "prompts/search.txt", 1) in places({"prompts/search.txt": text})
    assert ("PFX101", "prompts/search.txt", 1) in places(
        {"prompts/search.txt": "{{ names['a'] }}: {{ now() }}\n" + RULES}
    )


@pytest.mark.parametrize(("path", "fires"), [("app/prompts.py", True), ("app/letters.py", False)])
def test_a_long_text_in_a_file_of_prompts_is_one_whatever_it_is_called(path, fires):
    text = "\n".join(f"Binary score {n} for the context and the question." for n in range(9))
    found = places(
        {path: f'"""Texts of prompts."""\nrelevancy_checker = """Case {{user_id}}, {{current_time}}.\n{text}"""\n'}
    )
    assert (("PFX101", path, 2) in found) == fires


def test_a_text_that_a_helper_writes_for_two_prompts_is_told_with_both():
    code = (
        "from datetime import datetime\n"
        'def header():\n    return "For this query of the user, and for no other, the time is: %s" % datetime.now()\n'
        f'def one(llm):\n    prompt = f"""{{header()}} You help.\n{RULES}"""\n    return llm(system=prompt)\n'
        f'def two(llm):\n    prompt = f"""{{header()}} You grade.\n{RULES}"""\n    return llm(system=prompt)\n'
    )
    found, _ = findings({"app.py": code})
    (clock,) = [each for each in found if each.rule.code == "PFX101"]
    told = {code[: each.span.start].count("\n") + 1 for each in clock.related}
    assert {5, 5 + RULES.count("\n") + 4} <= told


@pytest.mark.parametrize(
    ("setting", "severity"),
    [
        ("add_datetime_to_context=True, add_history_to_context=True", Severity.ERROR),
        ("add_datetime_to_instructions=True, add_history_to_messages=True", Severity.ERROR),
        ("add_datetime_to_context=True", Severity.INFO),
        ("add_datetime_to_context=True, add_history_to_context=True, datetime_format='%Y-%m-%d'", None),
        ("add_datetime_to_context=False, add_history_to_context=True", None),
    ],
)
@pytest.mark.parametrize("frame", ["agent = @", "class Desk:\n    def __init__(self):\n        self.agent = @"])
def test_a_setting_by_which_a_framework_tells_the_time(frame, setting, severity):
    made = f'Agent(model=model, instructions=[RULES, "Be short."], {setting})'
    code = f'from agno.agent import Agent\nRULES = """You help.\n{RULES}"""\n{frame.replace("@", made)}\n'
    found, errors = findings({"app.py": code}, min_tokens=32)
    assert not errors
    assert [f.severity for f in found if f.rule.code == "PFX101"] == ([] if severity is None else [severity])
