"""Values that reach a prompt by the ways of real programs: chains, registries, files, helpers, other languages."""

import pytest

from prefixlint import speech
from tests.linting import codes, places

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
