"""Values that reach a prompt by the ways of real programs: chains, registries, files, helpers, other languages."""

import pytest

from prefixlint import speech
from tests.linting import codes, findings, places

RULES = "\n".join(f"{n}. Never reveal internal notes, and cite the page of statement {n}." for n in range(1, 9))
LONG = f"You are a helper. Now: {{now_is}}\n{RULES}"
LC = (
    "from datetime import datetime\n"
    "from langchain_core.prompts import ChatPromptTemplate, PromptTemplate\n"
    f'TEXT = """{LONG}\n{{q}}"""\n'
    f'chat = ChatPromptTemplate.from_messages([("system", """{LONG}"""), ("human", "{{q}}")])\n'
    "def stamp():\n    return datetime.now().isoformat()\n"
)


@pytest.mark.parametrize(
    "code",
    [
        'chain = chat | llm\ndef ask(q):\n    return chain.invoke({"now_is": datetime.now(), "q": q})',
        'async def ask(q):\n    return await (chat | llm | parser).ainvoke({"now_is": datetime.now(), "q": q})',
        'def ask(q):\n    yield from (chat | llm).stream({"now_is": datetime.now(), "q": q})',
        'def ask(qs):\n    return (chat | llm).batch([{"now_is": datetime.now(), "q": q} for q in qs])',
        "fixed = chat.partial(now_is=stamp)\ndef ask(q):\n    return (fixed | llm).invoke({'q': q})",
        "fixed = chat.partial(now_is=lambda: datetime.now())",
        "def ask(q):\n    return llm(chat.format_messages(now_is=datetime.now(), q=q))",
        'chain = {"now_is": lambda _: datetime.now(), "q": take} | PromptTemplate.from_template(TEXT) | llm',
        "def ask(q):\n    return LLMChain(llm=llm, prompt=PromptTemplate.from_template(TEXT)).run(now_is=stamp(), q=q)",
        'def ask(q):\n    return (PromptTemplate.from_template(TEXT) | llm).invoke({"now_is": stamp(), "q": q})',
        'one = PromptTemplate(template=TEXT, input_variables=["q"], partial_variables={"now_is": stamp})',
    ],
)
def test_what_a_chain_puts_into_its_template(code):
    found = places({"app.py": LC + code + "\n"})
    assert any(code == "PFX101" for code, _, _ in found), found


def test_a_function_that_a_template_calls_is_no_frozen_value():
    found = codes({"app.py": LC + "fixed = chat.partial(now_is='noon')\n"})
    assert "PFX101" not in found


REGISTRY = "import uuid\n"


@pytest.mark.parametrize(
    ("table", "chosen"),
    [
        ('PROMPTS = {"grade": """@""", "sum": "Sum up."}', 'PROMPTS["grade"]'),
        ('PROMPTS = {"grade": """@""", "sum": "Sum up."}', 'PROMPTS.get("grade")'),
        ('PROMPTS = {}\nPROMPTS["grade"] = """@"""', 'PROMPTS["grade"]'),
        ('class Prompts(Enum):\n    GRADE = """@"""', "Prompts.GRADE.value"),
        ('PROMPTS = {"grade": """@"""}\ndef get_prompt(name):\n    return PROMPTS[name]', 'get_prompt("grade")'),
    ],
)
def test_a_registry_of_prompts(table, chosen):
    text = f"Case {{cid}}. You grade essays.\n{RULES}"
    code = REGISTRY + table.replace("@", text) + f"\ndef run(llm):\n    text = {chosen}.format(cid=uuid.uuid4())\n"
    code += '    return llm.chat(messages=[{"role": "system", "content": text}])\n'
    assert ("PFX104", "app.py") in {found[:2] for found in places({"app.py": code})}


def test_any_text_of_a_registry_may_be_meant_by_an_unknown_key():
    code = REGISTRY + 'PROMPTS = {"a": """Case {cid}. You grade.\n@""", "b": """Case {cid}. You sum up.\n@"""}\n'
    code = code.replace("@", RULES) + (
        "def run(llm, key):\n"
        '    return llm.chat(messages=[{"role": "system", "content": PROMPTS[key].format(cid=uuid.uuid4())}])\n'
    )
    assert "PFX104" in codes({"app.py": code})


def test_an_empty_table_or_one_of_words_gives_no_text():
    code = REGISTRY + 'NAMES = {}\nWORDS = {"a": "b"}\ndef prompt(x):\n    return f"You are {NAMES[x]} {WORDS[x]}. @"\n'
    assert codes({"app.py": code.replace("@", "Answer. " * 40)}) <= {"PFX201"}


@pytest.mark.parametrize(
    "read",
    [
        'Path("app/grade.txt").read_text()',
        '(Path(__file__).parent / "grade.txt").read_text(encoding="utf-8")',
        'open(os.path.join(os.path.dirname(__file__), "grade.txt")).read()',
        'resources.files("app").joinpath("grade.txt").read_text()',
        'pkgutil.get_data("app", "grade.txt").decode()',
        '(ROOT / f"{NAME}.txt").read_text()',
    ],
)
def test_a_file_that_is_read_and_filled(read):
    code = (
        "import os, uuid, pkgutil\nfrom importlib import resources\nfrom pathlib import Path\n"
        f'ROOT = Path(__file__).parent\nNAME = "grade"\nTEXT = {read}\n'
        "def run(llm):\n"
        '    return llm.chat(messages=[{"role": "system", "content": TEXT.format(cid=uuid.uuid4())}])\n'
    )
    files = {"app/grade.txt": f"Case {{cid}}. You grade essays.\n{RULES}", "app/main.py": code}
    assert ("PFX104", "app/main.py", 8) in places(files)


def test_a_file_that_is_not_at_hand_may_hold_the_value_anywhere():
    code = (
        "import uuid\nfrom pathlib import Path\ndef run(llm):\n"
        '    text = Path("missing.txt").read_text().format(cid=uuid.uuid4())\n'
        '    return llm.chat(messages=[{"role": "system", "content": text}, {"role": "user", "content": "hi"}])\n'
    )
    assert "PFX104" in codes({"main.py": code})


def test_what_replace_puts_into_a_template_file():
    code = (
        "import uuid\nfrom pathlib import Path\ndef run(llm):\n"
        '    text = Path("grade.txt").read_text().replace("{{CID}}", uuid.uuid4().hex)\n'
        '    return llm.chat(messages=[{"role": "system", "content": text}])\n'
    )
    assert "PFX104" in codes({"grade.txt": f"Case {{{{CID}}}}. You grade.\n{RULES}", "main.py": code})


@pytest.mark.parametrize(
    "constant",
    [
        'A_PROMPT = """@""".strip()',
        'A_PROMPT = textwrap.dedent("""@""")',
        'class A:\n    A_PROMPT: TextPrompt = TextPrompt("""@""")',
        'class A(BaseModel):\n    system_prompt: str = Field(default="""@""", description="x")',
        'N = 3\nA_PROMPT = f"""@{N}"""',
    ],
)
def test_places_of_a_constant_that_no_call_fills(constant):
    text = f"It is {{current_time}}. You help.\n{RULES}"
    text = text.replace("{", "{{").replace("}", "}}") if 'f"""' in constant else text
    found = places({"app.py": "import textwrap\n" + constant.replace("@", text) + "\n"})
    line = 1 + constant.count("\n") + 1
    assert ("PFX101", "app.py", line) in found


def test_a_constant_of_another_module_is_filled_in_place():
    files = {
        "app/texts.py": f'SYSTEM = """Clock {{c}}. You help.\n{RULES}"""\n',
        "app/main.py": (
            "import time\nfrom app.texts import SYSTEM\n"
            "def run(client):\n"
            '    return client.messages.create(model="m", system="Hi. " + SYSTEM.format(c=time.ctime()), messages=[])\n'
        ),
    }
    assert ("PFX101", "app/main.py", 4) in places(files)


def test_a_helper_fills_the_text_that_its_callers_hand_over():
    code = (
        f'import time\nGRADE_PROMPT = """Clock {{c}}. You grade.\n{RULES}"""\n'
        "def compiled(text):\n    prompt = text.format(c=time.ctime())\n    return prompt\n"
        "def run():\n    return compiled(GRADE_PROMPT)\n"
    )
    assert "PFX101" in codes({"app.py": code})


@pytest.mark.parametrize(
    "how", ['ctx = {}\n    ctx["c"] = time.ctime()', "ctx = dict(a=1)\n    ctx.update(c=time.ctime())"]
)
def test_a_mapping_that_grows_before_it_fills(how):
    code = (
        f'import time\nSYS = """Clock {{c}}. You help.\n{RULES}"""\ndef run(client):\n    {how}\n'
        '    return client.messages.create(model="m", system=SYS.format(**ctx), messages=[])\n'
    )
    assert "PFX101" in codes({"app.py": code})


@pytest.mark.parametrize("given", ["how", "lambda ctx, agent: how(ctx, agent)"])
def test_instructions_that_a_function_writes(given):
    code = (
        "import time\nfrom agents import Agent\n"
        f'def how(ctx, agent):\n    return f"""Clock {{time.ctime()}}. You help.\n{RULES}"""\n'
        f'a = Agent(name="a", instructions={given})\n'
    )
    assert "PFX101" in codes({"app.py": code})


def test_instructions_that_are_appended_as_a_list():
    code = (
        f'import time\ndef go(request):\n    request.append_instructions([f"""Clock {{time.ctime()}}.\n{RULES}"""])\n'
    )
    assert "PFX101" in codes({"app.py": code})


@pytest.mark.parametrize("target", ["messages[0].content", 'messages[0]["content"]'])
def test_the_first_message_of_a_list_is_written_anew(target):
    code = f'import time\ndef go(messages):\n    {target} = f"""Clock {{time.ctime()}}.\n{RULES}"""\n'
    assert "PFX101" in codes({"app.py": code})


@pytest.mark.parametrize(
    "said",
    [
        "你是一名客服助手，请根据以下规则回答用户的问题。",
        "あなたは親切なアシスタントです。以下の規則に従って回答してください。",
        "당신은 도움이 되는 조수입니다. 다음 규칙에 따라 답하세요.",
        "Ты — полезный помощник. Отвечай на вопросы пользователя по правилам.",
        "Du bist ein hilfreicher Assistent. Beantworte die Fragen nach den Regeln.",
        "Vous êtes un assistant utile. Répondez aux questions selon les règles.",
        "Eres un asistente útil. Responde a las preguntas según las reglas.",
    ],
)
def test_prompts_speak_many_languages(said):
    assert speech.IMPERATIVE.search(said)
    code = f'import time\n# messages\ndef go(llm, q):\n    text = f"""{{time.ctime()}} {said * 6}\n{{q}}"""\n    return llm(text)\n'
    assert "PFX101" in codes({"app.py": code})


@pytest.mark.parametrize(
    "said", ["感谢您的订购。", "ご注文ありがとうございます。", "Ihre Bestellung ist da.", "Votre commande est arrivée."]
)
def test_a_letter_to_people_is_no_prompt(said):
    assert not speech.IMPERATIVE.search(said)


def test_a_character_of_chinese_weighs_more_than_a_letter():
    assert speech.weight("a" * 100) == 100
    assert speech.weight("é" * 100) == 100
    assert speech.weight("规" * 100) == 240


CHANCE = 'import random\nTEXT = """You weigh two answers to one question.\n{one}\n{two}\n' + RULES + '"""\n'


@pytest.mark.parametrize(
    "code",
    [
        "    if random.random() < 0.5:\n        one, two = two, one\n        turned = True\n    else:\n        turned = False\n",
        "    one, two = (two, one) if random.random() < 0.5 else (one, two)\n",
        "    if not random.getrandbits(1):\n        one, two = two, one\n",
        "    first = one if random.randint(0, 1) == 0 else two\n    one = first\n",
    ],
)
def test_a_coin_decides_what_stands_first(code):
    ask = "    return llm.chat.completions.create(model='m', messages=[{'role': 'user', 'content': TEXT.format(one=one, two=two)}])\n"
    assert "PFX108" in codes({"app.py": CHANCE + "def weigh(llm, one, two):\n" + code + ask})


def test_a_condition_is_no_coin():
    code = "def weigh(llm, one, two, swap):\n    if swap < 0.5:\n        one, two = two, one\n"
    ask = "    return llm.chat.completions.create(model='m', messages=[{'role': 'user', 'content': TEXT.format(one=one, two=two)}])\n"
    assert "PFX108" not in codes({"app.py": CHANCE + code + ask})


@pytest.mark.parametrize(
    "stored",
    ["extra['now'] = datetime.now()", "extra.update(now=datetime.now())", "extra.update({'now': datetime.now()})"],
)
def test_a_keyword_that_is_added_to_those_of_the_caller(stored):
    code = (
        "from datetime import datetime\n\ndef turn(llm, settings, past, **extra):\n"
        f"    {stored}\n    system = settings['system'].format(**extra)\n"
        "    return llm.chat.completions.create(model='m', messages=[{'role': 'system', 'content': system}, *past])\n"
    )
    found, _ = findings({"app.py": code})
    clock = {f.severity.word for f in found if f.rule.code == "PFX101"}
    assert clock == {"info"}, "whether the text has a place for it is not known"


LOADER = """from pathlib import Path

HERE = Path(__file__).parent
_kept = {}


def load_text(name):
    if name in _kept:
        return _kept[name]
    with open(HERE / "texts" / f"{name}.md") as file:
        text = file.read().strip()
        _kept[name] = text
        return text
"""


def test_a_loader_that_keeps_what_it_read():
    code = (
        "import time\nfrom jinja2 import Environment\nfrom loading import load_text\n\nENV = Environment()\n"
        'RULES = load_text("rules")\n\ndef ask(llm, q):\n'
        "    system = ENV.from_string(RULES).render(now=time.ctime())\n"
        "    return llm.chat.completions.create(model='m', messages=[{'role': 'system', 'content': system}, q])\n"
    )
    files = {"app.py": code, "loading.py": LOADER, "texts/rules.md": f"You help. It is {{{{ now }}}}.\n{RULES}\n"}
    found, _ = findings(files)
    clock = [f for f in found if f.rule.code == "PFX101"]
    assert [(f.span.path, f.severity.word) for f in clock] == [("app.py", "error")]
    assert clock[0].tokens_at_risk > 100, "the file is read, so what stands behind the time is known"


HANDED = 'import io\nimport time\nRULES = """' + RULES + '"""\n'


@pytest.mark.parametrize(
    "code",
    [
        (
            "def stamp(lines):\n    lines.append(f'Now: {time.ctime()}')\n"
            "def system_prompt():\n    parts = ['You help readers.']\n    stamp(parts)\n    parts.append(RULES)\n    return '\\n'.join(parts)\n"
        ),
        (
            "class Prompt:\n    def system_prompt(self):\n        parts = []\n        self._stamp(to=parts)\n        parts.append(RULES)\n"
            "        return 'You help readers.\\n' + '\\n'.join(parts)\n    def _stamp(self, to):\n        if self.on:\n            to.append(time.ctime())\n"
        ),
        (
            "def stamp(out, name):\n    out.write('Hello ' + name)\n    out.write(time.ctime())\n"
            "def system_prompt(name):\n    out = io.StringIO()\n    stamp(out, name)\n    out.write('You help readers.' + RULES)\n    return out.getvalue()\n"
        ),
        (
            "def stamp(out):\n    day(out)\ndef day(out):\n    out += [time.ctime()]\n    out.append('!')\n"
            "def system_prompt():\n    parts = ['You help readers.']\n    day(parts)\n    parts.append(RULES)\n    return '\\n'.join(parts)\n"
        ),
    ],
)
def test_a_helper_adds_to_what_it_is_handed(code):
    found, _ = findings({"app.py": HANDED + code})
    clock = [f for f in found if f.rule.code == "PFX101"]
    assert [f.severity.word for f in clock] == ["error"]
    assert clock[0].tokens_at_risk > 100


def test_a_helper_that_calls_itself_ends():
    code = "def walk(lines, n):\n    lines.append(f'{n}: {time.ctime()}')\n    walk(lines, n - 1)\n"
    ask = "def system_prompt():\n    parts = ['You help readers.']\n    walk(parts, 3)\n    parts.append(RULES)\n    return '\\n'.join(parts)\n"
    assert "PFX101" in codes({"app.py": HANDED + code + ask})


def test_messages_that_are_handed_on_stay_messages():
    code = (
        "def add(messages):\n    messages.append({'role': 'user', 'content': 'Go on.'})\n"
        "def ask(llm):\n    messages = [{'role': 'system', 'content': f'You help. {time.ctime()}' + RULES}]\n"
        "    add(messages)\n    return llm.chat.completions.create(model='m', messages=messages)\n"
    )
    found, _ = findings({"app.py": HANDED + code})
    assert [(f.rule.code, "system message" in f.message) for f in found] == [("PFX101", True)]


def test_a_system_text_that_is_handed_over_hides_nothing():
    code = (
        "import time\n\ndef ask(llm, prompt, past):\n"
        "    messages = [{'role': 'system', 'content': prompt}, {'role': 'system', 'content': f'It is {time.ctime()}.'}]\n"
        "    messages += past\n    return llm.chat.completions.create(model='m', messages=messages)\n"
    )
    found, _ = findings({"app.py": code})
    assert [(f.severity.word, f.masker) for f in found if f.rule.code == "PFX101"] == [("error", None)]


STAMP = "f'It is {datetime.now()}. You help readers. {RULES}'"
FRAMEWORKS = {
    "haystack's messages": (
        "from haystack.dataclasses import ChatMessage\ndef ask(model, q):\n"
        f"    return model.run(messages=[ChatMessage.from_system({STAMP}), ChatMessage.from_user(q)])\n"
    ),
    "an agent of langgraph": (
        "from langgraph.prebuilt import create_react_agent\ndef make(model):\n"
        f"    return create_react_agent(model, [], prompt={STAMP})\n"
    ),
    "an older agent of langgraph": f"def make(model):  # messages\n    return create_react_agent(model, [], state_modifier={STAMP})\n",
    "a signature of dspy": (
        f"import dspy\ndef ask(q):  # history\n    return dspy.Predict(Answer.with_instructions({STAMP}))(question=q)\n"
    ),
    "a signature of dspy that is made": (
        f"import dspy\ndef ask(q):\n    return dspy.Predict(dspy.Signature('question -> answer', {STAMP}))(question=q)\n"
    ),
    "a message of SGLang's language": (
        "import sglang as sgl\n@sgl.function\ndef ask(s, q):\n"
        f"    s += sgl.system({STAMP})\n    s += sgl.user(q)\n    s += sgl.assistant(sgl.gen('a'))\n"
    ),
    "a template of mirascope": (
        "from mirascope import llm, prompt_template\n@llm.call(provider='any', model='m')\n"
        "@prompt_template('SYSTEM: You help readers. It is {moment}. Never guess, never say what no book says.\\nUSER: {q}')\n"
        "def answer(q, moment): ...\ndef ask(q):\n    return answer(q, moment=datetime.now())\n"
    ),
    "a template with functions": (
        "from beeai.template import PromptTemplate\n"
        "TEXT = PromptTemplate(functions={'moment': lambda _: datetime.now().isoformat()},\n"
        "    template='You are a librarian. It is {{moment}}. ' + RULES + '{{question}}')\n"
    ),
    "instructions that are called": (
        "from agents import Agent\ndef instructions(context, agent):\n"
        f"    return {STAMP}\nAGENT = Agent(name='a', instructions=instructions)\n"
    ),
    "settings and a time behind them": (
        "import autogen\ndef make(settings):\n"
        "    system_message = settings['prompt'] + f' It is {datetime.now()}. ' + RULES\n"
        "    return autogen.AssistantAgent(name='a', system_message=system_message)\n"
    ),
}


@pytest.mark.parametrize(
    "call", ["generate([{} + q for q in qs], SamplingParams())", "generate({} + qs, sampling_params={{'n': 1}})"]
)
def test_prompts_for_an_engine_in_the_program(call):
    text = STAMP.replace("You help", "You are to help").replace("{RULES}", RULES.replace("\n", "\\n") * 20)
    found, _ = findings(
        {"app.py": f"from datetime import datetime\ndef ask(llm, qs):\n    return llm.{call.format(text)}\n"}
    )
    assert [f.severity.word for f in found if f.rule.code == "PFX101"] == ["error"]


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_the_ways_of_frameworks_into_system_text(name):
    rules = RULES.replace("\n", "\\n")
    found, errors = findings({"app.py": f"from datetime import datetime\nRULES = '{rules}'\n{FRAMEWORKS[name]}"})
    assert not errors
    assert [f.severity.word for f in found if f.rule.code == "PFX101"] == ["error"]


@pytest.mark.parametrize("made", ["PromptBuilder(template='''@''')", "PromptBuilder('''@''')"])
def test_a_builder_of_haystack_is_filled_where_it_runs(made):
    text = "You help readers. It is {{ moment }}. " + RULES + " {{ q }}"
    code = (
        "from datetime import datetime\nfrom haystack.components.builders import PromptBuilder\n"
        f"builder = {made.replace('@', text)}\ndef ask(q):\n    return builder.run(moment=datetime.now(), q=q)\n"
    )
    assert "PFX101" in codes({"app.py": code})


def test_the_user_text_of_ell():
    code = (
        "import ell\nimport time\n@ell.simple(model='m')\ndef answer(q):\n    'Help readers.'\n"
        f"    return f'It is {{time.ctime()}}. {RULES.splitlines()[0]} {{q}}'\n"
    )
    assert "PFX101" in codes({"app.py": code})


MANAGER = """from datetime import datetime
from jinja2 import Environment, FileSystemLoader


class Prompts:
    env = Environment(loader=FileSystemLoader("texts"))

    @classmethod
    def get_prompt(cls, name, **variables):
        return cls.env.get_template(f"{name}.j2").render(**variables)


def ask(llm, q):
    system = Prompts.get_prompt("helper", moment=datetime.now(), tone="calm")
    return llm.chat.completions.create(model="m", messages=[{"role": "system", "content": system}, q])
"""


def test_keywords_that_a_function_passes_on():
    text = f"You help readers, {{{{ tone }}}}. It is {{{{ moment }}}}.\n{RULES}\n"
    found, _ = findings({"app.py": MANAGER, "texts/helper.j2": text})
    assert [(f.rule.code, f.severity.word) for f in found] == [("PFX101", "error")], "`tone` is a constant"


def test_a_macro_is_written_out_with_what_a_call_hands_it():
    text = (
        "{% macro row(label, value='', n=2) %}{% if value %}- {{ label }}: {{ value }}\n{% endif %}{% endmacro %}"
        "You help readers of a library.\n{{ row('House', 'North') }}{{ row(label='Time', value=now()) }}" + RULES
    )
    found, _ = findings({"a.j2": text})
    assert [f.severity.word for f in found if f.rule.code == "PFX101"] == ["error"]
    fixed, _ = findings({"a.j2": text.replace("now()", "'noon'")})
    assert not [f for f in fixed if f.rule.code == "PFX101"]


def test_macros_that_call_themselves_and_each_other_end():
    text = (
        "{% macro a(n) %}{{ n }}{{ b(n) }}{{ b(n) }}{% endmacro %}"
        "{% macro b(n) %}{{ a(n) }}{{ a(now()) }}{% endmacro %}"
        "You help.\n{{ a(1) }}{{ b(2) }}" + RULES
    )
    found, errors = findings({"a.j2": text})
    assert found
    assert not errors


def test_the_two_halves_of_a_request_are_prompts_by_their_names():
    table = "The table below has one row for each shelf of the house and one column for each day. " * 6
    code = (
        "CHECK_SYSTEM = 'Say whether a passage shows a claim.'\n"
        f"CHECK_USER = '''Claim: {{claim}}\n{table}'''\nNOTE_USER = '''Hello {{claim}}!\n{table}'''\n"
        "def render(claim):\n    return CHECK_USER.format(claim=claim), NOTE_USER.format(claim=claim)  # prompt\n"
    )
    lines = {line for _, _, line in places({"app.py": code})}
    assert 2 in lines or 7 in lines
    assert 4 not in lines


def test_a_time_of_the_import_is_shown_and_is_the_same_for_all_requests_of_a_process():
    text = "You are a careful coder.\n" + RULES * 5
    code = f'import time\nCODER_INSTRUCTION = """Folder: app_{{now}}.\n{text}""".format(now=int(time.time()))\n'
    found, _ = findings({"app.py": code})
    assert [f.severity.word for f in found if f.rule.code == "PFX101"] == ["info"]


@pytest.mark.parametrize(
    ("known", "word"),
    [("self.description", "error"), ('settings["prompt"]', "error"), ("question", "info"), ("request.body", "info")],
)
def test_what_belongs_to_the_agent_hides_no_time(known, word):
    code = (
        "import time\nclass Agent:\n    def __init__(self, description):\n        self.description = description\n"
        "    def send(self, llm, settings, request, question, history):\n"
        f"        head = {{'role': 'system', 'content': f'You help. {{{known}}}'}}\n"
        "        when = {'role': 'system', 'content': f'It is {time.ctime()}.'}\n"
        "        return llm.chat.completions.create(model='m', messages=[head, when, *history])\n"
    )
    found, _ = findings({"app.py": code})
    assert [f.severity.word for f in found if f.rule.code == "PFX101"] == [word]
