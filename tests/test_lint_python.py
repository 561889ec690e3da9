"""How values of Python code are followed to the prompt, and what is not mistaken for one."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixlint.sources import SourceFile, decode, encode, python
from tests.linting import codes, findings, places

RULES = "You are a careful assistant of a small library. Answer in one sentence and name the shelf.\\n"
HEAD = "from datetime import datetime\n"


def system(expression, before=""):
    return f'{HEAD}{before}RULES = "{RULES}"\n\ndef build(x):\n    return [{{"role": "system", "content": {expression}}}]\n'


@pytest.mark.parametrize(
    "expression",
    [
        'f"{datetime.now()} {RULES}"',
        '"Now: " + str(datetime.now()) + RULES',
        '"Now: {} {}".format(datetime.now(), RULES)',
        '"Now: {now} {rules}".format(now=datetime.now(), rules=RULES)',
        '"Now: %s %s" % (datetime.now(), RULES)',
        '"Now: {now} ".replace("{now}", datetime.now().isoformat()) + RULES',
        '" ".join([datetime.now().isoformat(), RULES])',
        '("Now: " f"{datetime.now():%H:%M}" " " + RULES).strip()',
    ],
)
def test_all_ways_to_build_a_text(expression):
    assert "PFX101" in codes({"a.py": system(expression)})


@pytest.mark.parametrize(
    ("expression", "code"),
    [
        ("datetime.now().isoformat()", "PFX101"),
        ('datetime.now().strftime("%H:%M")', "PFX101"),
        ('datetime.now().strftime("%Y-%m-%d")', "PFX102"),
        ("datetime.now().date()", "PFX102"),
        ("datetime.now().year", None),
        ('datetime.now().strftime("%Y")', None),
    ],
)
def test_a_clock_is_as_fine_as_its_format(expression, code):
    found = codes({"a.py": system(f'f"{{{expression}}} {{RULES}}"'.replace('"%', "'%").replace('")', "')"))})
    assert found == ({code} if code else set())


def test_an_accumulator_keeps_its_order():
    text = HEAD + (
        "def system_prompt(user, tools):\n"
        "    parts = []\n"
        f'    parts.append("{RULES}" * 1)\n'
        "    if user:\n"
        '        parts.append(f"It is {datetime.now()}.")\n'
        "    for tool in sorted(tools):\n"
        '        parts.append(f"- {tool}")\n'
        f'    parts.append("{RULES}")\n'
        '    return "\\n".join(parts)\n'
    )
    assert ("PFX101", "a.py", 6) in places({"a.py": text})


def test_a_value_is_followed_across_files_and_functions():
    files = {
        "app/clock.py": HEAD + "def stamp():\n    return datetime.now().isoformat()\n",
        "app/prompts.py": f'SYSTEM = "Time: {{time}}\\n{RULES}"\n',
        "app/main.py": (
            "from app.clock import stamp\nfrom .prompts import SYSTEM\n\n"
            'def build():\n    return [{"role": "system", "content": SYSTEM.format(time=stamp())}]\n'
        ),
    }
    assert ("PFX101", "app/main.py", 5) in places(files)


def test_a_parameter_is_judged_by_its_callers():
    text = HEAD + (
        'def prompt(when):\n    return f"At {when}: " + "' + RULES + '"\n\n'
        "def ask():\n    return prompt(datetime.now())\n"
    )
    assert "PFX101" in codes({"a.py": text})
    assert not codes({"a.py": text.replace("prompt(datetime.now())", 'prompt("noon")')})


def test_a_template_file_is_judged_by_its_render_call():
    files = {
        "greet.j2": "Day: {{ value }}\nYou are a careful assistant of a small library. Answer in one sentence.\n",
        "main.py": 'import uuid\ndef make_prompt(env):\n    return env.get_template("greet.j2").render(value=uuid.uuid4())\n',
    }
    assert ("PFX104", "main.py", 3) in places(files)
    files["main.py"] = files["main.py"].replace("uuid.uuid4()", '"Monday"')
    assert not places(files)


@pytest.mark.parametrize(
    "text",
    [
        HEAD + 'def f():\n    """You are a bot. It is now."""\n    print(f"You are late: {datetime.now()}")\n',
        HEAD + 'import logging\nlogging.info("prompt sent at %s", datetime.now())\n',
        'def f(user):\n    raise ValueError(f"You must name a user, not {user.name}, in the prompt of this system")\n',
        'SYSTEM_PROMPT = "You write dates as {\\"date\\": \\"2024-01-01\\"} and nothing else, always and everywhere."\n',
    ],
)
def test_what_is_no_prompt_stays_quiet(text):
    assert not codes({"a.py": text})


def test_a_masked_place_names_its_masker():
    found, _ = findings({"a.py": system('f"{datetime.now()} {x.user_id} {RULES}"')})
    clock = next(f for f in found if f.rule.code == "PFX101")
    identity = next((f for f in found if f.rule.code == "PFX105"), None)
    assert clock.masker is None
    assert identity is not None
    assert identity.masker is None, "a clock does not hide a value that differs between users"


def test_module_level_values_are_per_process():
    found, _ = findings({"a.py": HEAD + f'SYSTEM_PROMPT = f"It is {{datetime.now()}}. {RULES} {RULES}"\n'})
    assert [f.severity.word for f in found] == ["info"]
    assert "at import" in found[0].message


HOSTILE = {
    "python 2": "print 'hello'\nexec code\n",
    "syntax": "def f(:\n",
    "nul": b"x = 1\0\n",
    "latin": "# -*- coding: latin-1 -*-\nSYSTEM = 'caf\xe9 {x} You are nice and friendly today.'\n".encode("latin-1"),
    "not utf-8": b"SYSTEM = '\xff\xfe prompt'\n",
    "deep": "x = " + "(" * 3000 + ")" * 3000,
    "deep list": "prompt = " + "[" * 150 + "]" * 150 + "\n",
    "long sum": "prompt = " + " + ".join(['"You are {x}"'] * 3000) + "\n",
    "recursion": "def prompt(x):\n    return prompt(x) + f'You are {prompt(prompt(x))}'\n",
    "self": "class A:\n    def f(self):\n        self.prompt = self.prompt + f'You are {self.prompt}'\n        return self.prompt\n",
    "empty": "",
    "bom": "\ufeffSYSTEM_PROMPT = f'You are {name} and you answer everything that people ask.'\n",
    "cr": "prompt = f'You are {x}'\rprompt += 'a'\r",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_end_in_a_diagnostic_or_nothing(name):
    _, errors = findings({"a.py": HOSTILE[name]})
    assert all(error.path == "a.py" and error.slug and error.message for error in errors)


def test_import_cycles_end():
    files = {
        "a.py": "from b import X as Y\nX = Y\nSYSTEM_PROMPT = f'You are {X} and you answer everything.'\n",
        "b.py": "from a import X as Y\nX = Y\nPROMPT = f'You are {X} and you answer everything.'\n",
    }
    assert findings(files)[1] == ()


NAMES = st.sampled_from(["prompt", "system", "x", "datetime", "history", "tools"])
EXPRESSIONS = st.recursive(
    st.one_of(NAMES, st.sampled_from(['"a {x} b"', "1", "None", "datetime.now()", 'f"{x!r:>3} {{"', "[*x]", "{**x}"])),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda p: f"({p[0]} + {p[1]})"),
        inner.map(lambda e: f'", ".join([{e}])'),
        inner.map(lambda e: f"f'''{{{e}}} text'''" if "'" not in e and "\\" not in e else e),
        st.tuples(NAMES, inner).map(lambda p: f"{p[0]}({p[1]})"),
        st.tuples(inner, inner).map(lambda p: f"({p[0]} if x else {p[1]})"),
        inner.map(lambda e: f"[y for y in {e} if y]"),
        inner.map(lambda e: f"({e}).format(x={e})"),
        st.tuples(inner, inner).map(lambda p: '{"role": ' + p[0] + ', "content": ' + p[1] + "}"),
    ),
    max_leaves=8,
)
STATEMENTS = st.one_of(
    st.tuples(NAMES, EXPRESSIONS).map(lambda p: f"{p[0]} = {p[1]}"),
    st.tuples(NAMES, EXPRESSIONS).map(lambda p: f"{p[0]} += {p[1]}"),
    st.tuples(NAMES, EXPRESSIONS).map(lambda p: f"{p[0]}.append({p[1]})"),
    st.tuples(NAMES, EXPRESSIONS).map(lambda p: f"for {p[0]} in {p[1]}:\n    prompt += x"),
    EXPRESSIONS.map(lambda e: f"if x:\n    prompt = {e}\nelse:\n    system = {e}"),
    EXPRESSIONS.map(lambda e: f"def build_prompt(x):\n    return {e}"),
    EXPRESSIONS.map(lambda e: f"call(messages={e}, tools={e})"),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(STATEMENTS, max_size=6).map("\n".join))
def test_any_program_is_read_and_its_summary_survives_the_cache(text):
    file = SourceFile("a.py", text.encode())
    summary = python.summarize(file)
    assert decode("a.py", encode(summary)) == summary
    found, errors = findings({"a.py": text})
    assert all(error.slug in ("syntax-error", "too-deep") for error in errors)
    for finding in found:
        assert 0 <= finding.span.start <= finding.span.end <= len(text.encode())


@pytest.mark.parametrize(
    ("static", "tokens"),
    [
        ('"Name the shelf. " * 20', 80),
        ('20 * "Name the shelf. "', 80),
        ("RULE * 20", 80),
        ('("Name " "the shelf. ") * 20', 80),
        ('"Name the shelf. " * count', 4),
        ('"Name the shelf. " * 0', 0),
        ('"Name the shelf. " * -1', 0),
        ('"{not filled} and so on " * 20', 115),
    ],
)
def test_repeated_text_counts_as_often_as_it_is_repeated(static, tokens):
    code = f'from datetime import datetime\n\ndef system_prompt(count):\n    RULE = "Name the shelf. "\n    return f"{{datetime.now()}} " + {static}\n'
    found, _ = findings({"a.py": code})
    (clock,) = [each for each in found if each.rule.code == "PFX101"]
    assert clock.tokens_at_risk == pytest.approx(tokens, abs=1)


def test_a_text_repeated_very_often_is_kept_short():
    code = 'from datetime import datetime\n\ndef system_prompt():\n    return f"{datetime.now()} " + "Name. " * 10**9 + "{a} b " * 1_000_000\n'
    found, errors = findings({"a.py": code})
    assert not errors
    assert max(each.tokens_at_risk for each in found) < 100_000


@pytest.mark.parametrize(
    "fill",
    [
        'TEMPLATE.replace("{clock}", time.strftime("%H:%M:%S"))',
        'TEMPLATE.format(clock=time.strftime("%H:%M:%S"))',
        'TEMPLATE.format_map({"clock": time.strftime("%H:%M:%S")})',
    ],
)
@pytest.mark.parametrize("where", ["here", "elsewhere"])
def test_a_constant_that_is_filled_is_read_whatever_its_name(fill, where):
    constant = 'TEMPLATE = "Clock: {clock}\\nYou translate ship manifests. Keep the codes."\n'
    code = f'def ask(client, text):\n    text = {fill}\n    return client.chat(messages=[{{"role": "system", "content": text}}])\n'
    if where == "here":
        files = {"ask.py": "import time\n" + constant + code}
    else:
        files = {"texts.py": constant, "ask.py": "import time\nfrom texts import TEMPLATE\n\n" + code}
    (found,) = [each for each in findings(files)[0] if each.rule.code == "PFX101"]
    assert found.severity.word == "error"
    assert "of the system message; the" in found.message


@pytest.mark.parametrize("change", ["names |= group.tools", "names &= group.tools", "names -= group.off"])
def test_a_set_that_is_changed_in_place_stays_a_set(change):
    code = (
        "def available(groups):\n    names = set(DEFAULT)\n    for group in groups:\n        "
        f"{change}\n    return [TOOLS[name].schema for name in names]\n\n"
        "def step(client, messages, groups):\n"
        "    return client.chat.completions.create(messages=messages, tools=available(groups))\n"
    )
    assert ("PFX304", "a.py", 5) in places({"a.py": code})
    assert not places({"a.py": code.replace("in names]", "in sorted(names)]")})


@pytest.mark.parametrize("made", ["{s.country for s in stamps}", "set(stamps)", "{'fi', 'pl'}"])
def test_a_set_is_sorted_where_it_is_read(made):
    code = (
        'RULES = "You label stamps. One label a stamp. Keep the order. Name the land. Give the year if it is printed."\n'
        f"def build(stamps):\n    lands = {made}\n    text = ', '.join(lands)\n"
        "    return [{'role': 'system', 'content': f'Lands: {text} {RULES}'}]\n"
    )
    (found,) = findings({"a.py": code})[0]
    assert (found.rule.code, code[found.span.start : found.span.end]) == ("PFX301", "lands")
    assert found.fix is not None
    assert [code[e.span.start : e.span.end] + e.text for e in found.fix.edits] == ["sorted(", ")"]


@pytest.mark.parametrize(
    ("first", "grows", "fires"),
    [
        ("0", "r.usage.total_tokens", True),
        ("0.0", "price(r)", True),
        ("1", "1", True),
        ("''", "r.text", False),
        ("[]", "[r]", False),
    ],
)
def test_a_number_that_grows_from_call_to_call_is_a_counter(first, grows, fires):
    code = (
        "class Bot:\n"
        f"    def __init__(self):\n        self.kept = {first}\n"
        "    def system(self):\n"
        "        return f'So far: {self.kept}\\nYou mend accordions by mail. Ask for photos. Quote prices in euro.'\n"
        "    def turn(self, history):\n"
        "        r = self.client.chat(messages=[{'role': 'system', 'content': self.system()}, *history])\n"
        f"        self.kept += {grows}\n"
    )
    assert (("PFX107", "a.py", 5) in places({"a.py": code})) is fires


SERVICE = (
    f"{HEAD}class Clock:\n"
    "    async def describe(self, user):\n        found = self.read(user)\n        if found:\n            return found\n"
    '        return f"Now {datetime.now()}, in the house of the user, and so on for a line."\n'
    "    def label(self, user):\n        return 'The house of the user, which has no clock, and so on for a line.'\n"
    "clock = Clock()\n"
)


@pytest.mark.parametrize("imported", ["from service import clock", "import service\nclock = service.clock"])
@pytest.mark.parametrize(("method", "fires"), [("describe", True), ("label", False)])
def test_a_method_of_an_object_that_another_module_made(imported, method, fires):
    code = (
        f"{imported}\nasync def build(x):\n    said = await clock.{method}(x)\n"
        f'    return [{{"role": "system", "content": "{RULES}" + said}}]\n'
    )
    assert (("PFX101", "service.py", 7) in places({"service.py": SERVICE, "a.py": code})) is fires


def test_what_callers_hand_to_a_method_of_an_object_of_another_module():
    made = f'class Maker:\n    def make(self, when):\n        return [{{"role": "system", "content": f"{{when}} {RULES}"}}]\nmaker = Maker()\n'
    call = f"{HEAD}from maker import maker\ndef run():  # makes a prompt\n    return maker.make({{}})\n"
    assert "PFX101" in codes({"maker.py": made, "run.py": call.format("datetime.now()")})
    assert "PFX101" not in codes({"maker.py": made, "run.py": call.format("'noon'")})


@pytest.mark.parametrize(
    ("helpers", "used", "fires"),
    [
        ("def opening():\n    return f'Now {datetime.now()}, and so on for a line of text.'\n", "opening()", True),
        ("OPENING = 'Now {now}, and so on for a line of text.'\n", "OPENING.format(now=datetime.now())", True),
        ("OPENING = 'Never {now}, and so on for a line of text.'\n", "OPENING.format(now='noon')", False),
        ("from other import *\n", "opening()", False),
    ],
)
def test_names_that_an_import_of_all_names_brings(helpers, used, fires):
    files = {
        "a.py": f'{HEAD}from helpers import *\ndef build(x):\n    return [{{"role": "system", "content": {used} + "{RULES}"}}]\n',
        "helpers.py": HEAD + helpers,
        "other.py": "from helpers import *\nfrom a import *\n",
    }
    assert ("PFX101" in codes(files)) is fires


@pytest.mark.parametrize(
    ("joined", "fires"),
    [
        ("parts", True),
        ("part for part in parts if part", True),
        ("[part.strip() for part in parts if part.strip()]", True),
        ("filter(None, parts)", True),
        ("len(part) for part in parts", False),
        ("other for part in parts", False),
    ],
)
def test_parts_that_are_joined_one_by_one_stand_where_they_are_listed(joined, fires):
    code = (
        f"{HEAD}RULES = '{RULES}'\ndef system_prompt(other):\n    clock = f'Now: {{datetime.now()}}, and so on.'\n"
        f"    parts = [RULES, clock, RULES]\n    return ' '.join({joined})\n"
    )
    assert (("PFX101", "a.py", 4) in places({"a.py": code})) is fires


@pytest.mark.parametrize(
    ("taken", "code"),
    [
        ("2 * timedelta(1)", "PFX101"),
        ("timedelta(1)", "PFX101"),
        ("timedelta(1) * 3 / 2", "PFX101"),
        ("begun", "PFX103"),
    ],
)
def test_a_time_before_now_is_no_age(taken, code):
    before = "from datetime import timedelta\n"
    assert codes({"a.py": system(f'f"{{datetime.now() - ({taken})}} {{RULES}}"', before)}) & {"PFX101", "PFX103"} == {
        code
    }


@pytest.mark.parametrize(("taken", "fires"), [("text, rest = parts(x)", True), ("rest, text = parts(x)", False)])
def test_of_several_results_that_returns_give_each_is_told_from_the_others(taken, fires):
    code = (
        f"{HEAD}def parts(x):\n    if x:\n        return 'Be kind, and so on for a line of text.', x\n"
        f"    return f'Now {{datetime.now()}}, and so on for a line.', 'Be kind, and so on for a line of text.'\n"
        f'def build(x):\n    {taken}\n    return [{{"role": "system", "content": text + "{RULES}"}}]\n'
    )
    assert (("PFX101", "a.py", 5) in places({"a.py": code})) is fires
