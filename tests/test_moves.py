"""Moves of text: what is moved, to where, and what stays because it would not be the same text."""

import ast
from collections import Counter

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from prefixlint import fix, moves, pymoves, rulebook
from prefixlint.cli import main
from prefixlint.findings import Applicability, Edit, Finding, Fix, Severity
from prefixlint.prompts import Span

RULES = "Answer in two sentences. Name the shelf of each book, and the day on which it is due.\n" * 4
HEAD = "from datetime import datetime\n\n\n"


def finding(path, data, hole, code="PFX101", **more):
    start = data.index(hole)
    span = Span(path, start, start + len(hole))
    fields = {"tokens_at_risk": 100, "group": span, **more}
    return Finding(rulebook.rules()[code], "said", span, Severity.WARNING, **fields)


def moved(path, text, hole, code="PFX101", **more):
    """Give the file with the line of a hole moved, None where it is not offered."""
    data = text.encode()
    offered = moves.offer(finding(path, data, hole.encode(), code, **more), data)
    return None if offered is None else fix.splice(data, offered.edits).decode()


# ---------------------------------------------------------------------- templates


def test_a_line_of_a_template_goes_to_its_end():
    text = "You run a library.\nToday is {{ date }}.\nAnswer briefly.\n"
    assert moved("a.j2", text, "{{ date }}") == "You run a library.\nAnswer briefly.\nToday is {{ date }}.\n"


def test_a_text_without_a_last_newline_still_has_none():
    assert moved("a.txt", "Date: {date}\nAnswer briefly.", "{date}") == "Answer briefly.\nDate: {date}"


def test_blank_lines_at_the_end_stay_there():
    assert moved("a.md", "Date: {date}\nAnswer briefly.\n\n\n", "{date}") == "Answer briefly.\nDate: {date}\n\n\n"


def test_windows_line_ends_are_kept():
    assert moved("a.j2", "Date: {{ d }}\r\nAnswer.\r\n", "{{ d }}") == "Answer.\r\nDate: {{ d }}\r\n"


def test_a_message_is_not_left():
    text = "---\nname: x\n---\nsystem:\nDate: {{ date }}\nAnswer briefly.\n\nuser:\n{{ question }}\n"
    expected = "---\nname: x\n---\nsystem:\nAnswer briefly.\nDate: {{ date }}\n\nuser:\n{{ question }}\n"
    assert moved("a.prompty", text, "{{ date }}") == expected


@pytest.mark.parametrize("heading", ["# system:", "## user:", "assistant:", '{{role "user"}}', "<|im_start|>"])
def test_headings_end_a_message(heading):
    text = f"Date: {{{{ date }}}}\nAnswer briefly.\n{heading}\nMore text.\n"
    assert moved("a.prompt", text, "{{ date }}") == f"Answer briefly.\nDate: {{{{ date }}}}\n{heading}\nMore text.\n"


def test_a_block_in_between_is_passed_over():
    text = "Date: {{ date }}\nAnswer.\n{% if brief %}\nBe brief.\n{% endif %}\nBe kind.\n"
    assert moved("a.j2", text, "{{ date }}") == text.replace("Date: {{ date }}\n", "") + "Date: {{ date }}\n"


@pytest.mark.parametrize(
    ("text", "hole"),
    [
        ("{% if x %}\nDate: {{ d }}\n{% endif %}\nAnswer.\n", "{{ d }}"),
        ("{% for x in y %}\nDate: {{ d }}\nMore.\n{% endfor %}\nAnswer.\n", "{{ d }}"),
        ("{{#each x}}\nDate: {{ d }}\nMore.\n{{/each}}\nAnswer.\n", "{{ d }}"),
        ("Date: {{ d }}\nAnswer.\n{% if x %}Brief.{% endif %}\n", "{{ d }}"),
        ("Date: {{- d }}\nAnswer.\n", "{{- d }}"),
        ("Date: {{ d }}\n{%- set x = 1 %}\nAnswer.\n", "{{ d }}"),
        ("{% set x = d %}\nDate: {{\nd }}\nAnswer.\n", "{{\nd }}"),
        ("---\ndate: {{ d }}\n---\nAnswer.\n", "{{ d }}"),
    ],
)
def test_what_depends_on_its_place_in_a_template_stays(text, hole):
    assert moved("a.j2", text, hole) is None


@pytest.mark.parametrize(
    "text",
    [
        "{d}\nAnswer.\n",
        "## Date\n{d}\nAnswer.\n",
        "- Date: {d}\n- Place: Rome.\nAnswer.\n",
        "1. Date: {d}\n2. More.\n",
        "| Date | {d} |\n| More | text |\n",
        "You know that it is\nMonday {d}.\nAnswer.\n",
        "It is {d}, and therefore you\nanswer briefly.\nMore.\n",
        "These are facts:\nDate: {d}\nAnswer.\n",
        "Date: {d}, and:\nAnswer.\n",
        "<facts>\nDate: {d}\n</facts>\nAnswer.\n",
        "```\nDate: {d}\n```\nAnswer.\n",
        "You are {d}.\nAnswer.\n",
        "Your task of {d}.\nAnswer.\n",
        "Answer.\nDate: {d}\n",
        "Answer.\nDate: {d}\n\n\n",
        "Date: {d}\nAnswer:\n",
        "Date: {d}\n",
    ],
)
def test_a_line_that_others_need_stays(text):
    assert moved("a.txt", text, "{d}") is None


def test_of_content_only_a_name_and_its_value_are_moved():
    assert moved("a.txt", "Question: {q}\nAnswer.\n", "{q}", "PFX201") == "Answer.\nQuestion: {q}\n"
    assert moved("a.txt", "The reader asks {q}.\nAnswer.\n", "{q}", "PFX201") is None
    assert moved("a.txt", "The reader asks {q}.\nAnswer.\n", "{q}", "PFX101") is not None


def test_what_another_place_hides_or_nothing_follows_stays():
    text = "Date: {d}\nAnswer.\n"
    assert moved("a.txt", text, "{d}", masker=Span("a.txt", 0, 1)) is None
    assert moved("a.txt", text, "{d}", tokens_at_risk=0) is None
    assert moved("a.txt", text, "{d}", group=None) is None
    assert moved("a.json", text, "{d}") is None


# ---------------------------------------------------------------------- YAML


def test_a_line_of_a_block_scalar_goes_to_its_end():
    text = "system: |\n  You run a library.\n  Date: {{ d }}\n  Answer briefly.\n\nuser: |\n  Hello.\n"
    expected = "system: |\n  You run a library.\n  Answer briefly.\n  Date: {{ d }}\n\nuser: |\n  Hello.\n"
    assert moved("a.yaml", text, "{{ d }}") == expected


@pytest.mark.parametrize(
    "text",
    [
        "system: >\n  Date: {{ d }}\n  Answer briefly.\n",
        "system: 'Date: {{ d }}'\nmore: Answer.\n",
        "Date: {{ d }}\nAnswer: x\n",
        "system: |\n  {% if x %}\n  Date: {{ d }}\n  {% endif %}\n  Answer.\n",
    ],
)
def test_other_scalars_stay(text):
    assert moved("a.yml", text, "{{ d }}") is None


# ---------------------------------------------------------------------- Python


def test_a_line_of_a_triple_quoted_text_goes_to_its_end():
    text = 'P = f"""You run a library.\nToday is {today}.\nAnswer briefly.\n"""\n'
    assert moved("a.py", text, "{today}") == 'P = f"""You run a library.\nAnswer briefly.\nToday is {today}.\n"""\n'


def test_a_line_that_an_escape_ends_is_a_line():
    text = r'P = f"Date: {d}\nAnswer briefly.\nBe kind."' + "\n"
    assert moved("a.py", text, "{d}") == r'P = f"Answer briefly.\nBe kind.\nDate: {d}"' + "\n"


def test_an_escaped_backslash_ends_no_line():
    assert moved("a.py", 'P = f"Date: {d} in C:\\\\\\\\new folders.\\\\\\\\n"\n', "{d}") is None


def test_a_raw_text_has_no_escapes():
    assert moved("a.py", r'P = rf"Date: {d}.\nAnswer briefly."' + "\n", "{d}") is None


def test_tokens_that_stand_one_a_line_change_places():
    text = 'P = (\n    "You run a library.\\n"\n    f"Today is {d}.\\n"\n    "Answer briefly.\\n"\n    "Be kind."\n)\n'
    expected = (
        'P = (\n    "You run a library.\\n"\n    "Answer briefly.\\n"\n    "Be kind.\\n"\n    f"Today is {d}."\n)\n'
    )
    assert moved("a.py", text, "{d}") == expected


def test_the_first_operand_of_a_sum_goes_behind_the_second():
    assert moved("a.py", 'P = f"It is {now}.\\n" + RULES\n', "{now}") == 'P = RULES + f"\\nIt is {now}."\n'


def test_an_element_of_a_joined_list_goes_to_its_end():
    text = 'P = "\\n".join([\n    f"Today is {d}.",\n    RULES,\n    "Be kind.",\n])\n'
    expected = 'P = "\\n".join([\n    RULES,\n    "Be kind.",\n    f"Today is {d}.",\n])\n'
    assert moved("a.py", text, "{d}") == expected


@pytest.mark.parametrize(
    "value", ["datetime.now()", "datetime.now():%H:%M", "user.name", "facts['date']", "time.strftime('%H')", "now!r"]
)
def test_values_that_are_only_read_are_moved(value):
    quoted = f'P = f"""Date: {{{value}}}\nAnswer briefly.\n"""\n'
    assert moved("a.py", quoted, "{" + value + "}") is not None


@pytest.mark.parametrize(
    "value", ["next(ids)", "take()", "(n := 1)", "await ask()", "[x for x in y]", "x + 1", "f'{x}'", "lambda: 1"]
)
def test_values_that_do_something_stay(value):
    line = f'    return f"""Date: {{({value})}}\nAnswer briefly.\n"""\n'
    text = f"async def p(y, ids):\n{line}"
    ast.parse(text)
    assert moved("a.py", text, "{(" + value + ")}") is None


@pytest.mark.parametrize(
    "text",
    [
        'P = """Date: {d}\nAnswer {} and {}.\n"""\n',
        'P = """Date: {d}\nAnswer %s.\n"""\n',
        'P = """Date: {d}\n    Answer briefly.\n    Be kind.\n    """\n',
        'P = f"Date: {d}\\n" + rules()\n',
        'P = f"Date: {d}\\n" + RULES + MORE\n',
        'P = f"Date: {d}" + RULES\n',
        'P = "\\n".join([f"Date: {d}", *RULES])\n',
        'P = "\\n".join([f"Date: {d}", rules()])\n',
        'P = [f"Date: {d}", RULES]\n',
        'P = (\n    f"Date: {d}\\n" "Answer."\n    "Be kind."\n)\n',
        'P = (\n    f"Date: {d}\\n"  # why\n    "Be kind."\n)\n',
        'P = f"Date: {d}\n',
    ],
)
def test_what_would_not_be_the_same_program_stays(text):
    assert moved("a.py", text, "{d}") is None


def test_numbered_and_named_placeholders_may_change_places():
    assert moved("a.py", 'P = """Date: {0}\nAnswer {1}.\n"""\n', "{0}") == 'P = """Answer {1}.\nDate: {0}\n"""\n'
    assert moved("a.py", 'P = """Date: %(d)s\nAnswer.\n"""\n', "%(d)s") == 'P = """Answer.\nDate: %(d)s\n"""\n'
    assert moved("a.py", 'P = """Date: $d\nAnswer.\n"""\n', "$d") == 'P = """Answer.\nDate: $d\n"""\n'


def test_text_beyond_ascii_moves_whole():
    text = 'P = f"""Ort: {ort}, Köln ☔.\nÄntwörten Sie knapp.\n"""\n'
    assert moved("a.py", text, "{ort}") == 'P = f"""Äntwörten Sie knapp.\nOrt: {ort}, Köln ☔.\n"""\n'


lines = st.lists(
    st.sampled_from(
        ["Answer briefly.", "Be kind.", "", "Name the shelf: 12.", "- an item", "<b>", "</b>", "é ß.", "Date: {x}"]
    ),
    min_size=1,
    max_size=7,
)


@given(before=lines, after=lines, quotes=st.sampled_from(['"""', "'''"]), tail=st.sampled_from(["", "\n", "\n    "]))
def test_every_move_in_python_keeps_all_lines_and_values(before, after, quotes, tail):
    text = f"P = f{quotes}" + "\n".join([*before, "Today is {now}.", *after]) + f"{tail}{quotes}\n"
    new = moved("a.py", text, "{now}")
    if new is None:
        return
    assert Counter(line for line in new.replace(quotes, "\n").split("\n") if line.strip()) == Counter(
        line for line in text.replace(quotes, "\n").split("\n") if line.strip()
    )
    old_values, new_values = (
        sorted(ast.unparse(n) for n in ast.walk(ast.parse(t)) if isinstance(n, ast.FormattedValue)) for t in (text, new)
    )
    assert old_values == new_values
    again = moved("a.py", new, "{now}")
    assert again is None or again == new, "a second run changes nothing"


@given(before=lines, after=lines, end=st.sampled_from(["", "\n"]))
def test_every_move_in_a_template_keeps_all_lines(before, after, end):
    text = "\n".join([*before, "Today is {{ now }}.", *after]) + end
    new = moved("a.j2", text, "{{ now }}")
    if new is not None:
        assert Counter(new.split("\n")) == Counter(text.split("\n"))
        assert moved("a.j2", new, "{{ now }}") is None


@given(st.binary(max_size=200), st.integers(0, 200), st.sampled_from(["a.py", "a.j2", "a.yaml", "a.md"]))
def test_no_bytes_make_it_fail(data, start, path):
    span = Span(path, min(start, len(data)), min(start + 3, len(data)))
    said = Finding(rulebook.rules()["PFX101"], "said", span, Severity.WARNING, tokens_at_risk=9, group=span)
    moves.offer(said, data)


def test_the_proof_sees_a_change_of_anything_else():
    before = ast.parse('f(f"""a\n{x}\n"""); g(1)')
    assert pymoves._same_values(before, ast.parse('f(f"""{x}\na\n"""); g(1)'))
    for other in (
        'f(f"""{y}\na\n"""); g(1)',
        'f(f"""{x}\nb\n"""); g(1)',
        'f(f"""{x}\na\n"""); g(2)',
        'f(f"""{x!r}\na\n"""); g(1)',
    ):
        assert not pymoves._same_values(before, ast.parse(other)), other


# ---------------------------------------------------------------------- as users meet it


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    return tmp_path


def run(*args):
    return CliRunner().invoke(main, ["check", *args])


PROGRAM = f'''{HEAD}def messages(question, user):
    system = f"""You run a library.
Today is {{datetime.now():%Y-%m-%d}}.
The reader is called {{user.name}}.
{RULES}"""
    return [{{"role": "system", "content": system}}, {{"role": "user", "content": question}}]
'''


def test_moves_apply_with_unsafe_fixes_only_and_once(project):
    path = project / "a.py"
    path.write_text(PROGRAM)
    assert run("--fix").exit_code in (0, 1)
    assert path.read_text() == PROGRAM, "a move is not safe"
    shown = run("--unsafe-fixes", "--diff").stdout
    assert "-Today is {datetime.now():%Y-%m-%d}." in shown
    assert path.read_text() == PROGRAM, "--diff changes nothing"
    run("--unsafe-fixes")
    fixed = path.read_text()
    assert fixed.index("Today is") > fixed.index("Answer in two")
    assert fixed.index("Today is") < fixed.index("The reader is called"), "the lines keep their order"
    assert Counter(fixed.splitlines()) == Counter(PROGRAM.splitlines())
    run("--unsafe-fixes")
    assert path.read_text() == fixed
    assert run("--unsafe-fixes", "--diff").stdout == ""


def test_a_clock_before_a_conversation_loses_the_static_text_behind_it(project):
    (project / "a.j2").write_text(f"It is {{{{ now().strftime('%H:%M') }}}}.\nYou run a library.\n{RULES}")
    run("--unsafe-fixes")
    assert (project / "a.j2").read_text().splitlines()[-1] == "It is {{ now().strftime('%H:%M') }}."


def test_of_two_fixes_in_a_file_one_that_does_not_help_takes_only_its_rule_with_it():
    rules = rulebook.rules()
    data = b"0123456789"
    one = Finding(
        rules["PFX101"], "x", Span("a.txt", 0, 1), Severity.ERROR, fix=Fix("a", (Edit(Span("a.txt", 0, 1), "A"),))
    )
    two = Finding(
        rules["PFX105"], "x", Span("a.txt", 5, 6), Severity.ERROR, fix=Fix("b", (Edit(Span("a.txt", 5, 6), "B"),))
    )

    def recheck(files):
        return [] if files["a.txt"][:1] == b"0" else [one]

    done = fix.apply([one, two], {"a.txt": data}, recheck, unsafe=False)
    assert done.files == {"a.txt": b"01234B6789"}
    assert done.applied == (two,)


def test_a_fix_that_brings_a_finding_in_another_file_is_left_out():
    rules = rulebook.rules()
    one = Finding(
        rules["PFX101"], "x", Span("a.txt", 0, 1), Severity.ERROR, fix=Fix("a", (Edit(Span("a.txt", 0, 1), "A"),))
    )
    new = Finding(rules["PFX105"], "x", Span("b.txt", 0, 1), Severity.ERROR)
    done = fix.apply([one], {"a.txt": b"0"}, lambda files: [new], unsafe=False)
    assert (done.files, done.applied) == ({}, ())


def test_a_move_must_take_the_static_text_away_from_behind_the_place():
    edit = Edit(Span("a.txt", 0, 1), "A")
    said = finding("a.txt", b"0123", b"0", fix=Fix("a", (edit,), Applicability.UNSAFE))
    less = finding("a.txt", b"0123", b"0", tokens_at_risk=5)
    assert fix.apply([said], {"a.txt": b"0123"}, lambda files: [less], unsafe=True).applied == (said,)
    same = finding("a.txt", b"0123", b"0", tokens_at_risk=50)
    assert fix.apply([said], {"a.txt": b"0123"}, lambda files: [same], unsafe=True).applied == ()


def test_a_coroutine_is_not_wrapped_where_it_is_awaited():
    data = b"async def f():\n    x = await g()\n"
    start = data.index(b"g()")
    edits = (Edit(Span("a.py", start, start), "sorted("), Edit(Span("a.py", start + 3, start + 3), ")"))
    assert not fix.valid(Fix("sort", edits), {"a.py": data})
    assert fix.valid(Fix("sort", edits), {"a.py": data.replace(b"await", b"     ")})
