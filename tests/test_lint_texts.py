"""Templates, prompt files and data files: what is read as a prompt, where its places are, what ends in a diagnostic."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixlint import placeholders
from prefixlint.sources import SourceFile, jinja, kind_of, kinds
from prefixlint.textmap import offset
from prefixlint.values import Lit
from tests.linting import codes, findings, places

LONG = "You are a careful assistant of a small library. Answer in one sentence and name the shelf of each book."


def test_kinds_are_found_and_the_specific_come_first():
    assert [kind.NAME for kind in kinds()][:3] == ["chat_template", "deploy", "jinja"]
    assert kind_of(SourceFile("a.j2", b"")).NAME == "jinja"
    assert kind_of(SourceFile("a.exe", b"")) is None


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("p.j2", f"{LONG}\n{{% if a %}}\n{{{{ now() }}}}\n{{% endif %}}\n{LONG}\n", 3),
        ("p.j2", f"{{# ignore #}}\n{{%- set t = now() -%}}\né {{{{ t }}}}\n{LONG}\n", 3),
        ("prompts/system.md", f"Now: {{{{ current_time }}}}\n{LONG}\n", 1),
        ("prompts/system.txt", f"Now: {{current_time}}\n{LONG}\n", 1),
        ("prompts/a.hbs", f"Now: {{{{current_time}}}}\n{LONG}\n", 1),
        ("agent.yaml", f"name: x\nsystem_prompt: |\n  Now: {{current_time}}\n  {LONG}\n", 3),
        ("agent.json", f'{{"system_prompt": "Now: {{{{current_time}}}} {LONG}"}}\n', 1),
        ("agent.toml", f'[a]\nsystem_prompt = "Now: {{current_time}} {LONG}"\n', 2),
        ("chat.yaml", f"messages:\n- role: system\n  content: >\n    Now: {{current_time}}\n    {LONG}\n", 4),
        (
            "p.prompty",
            f"---\nname: x\n---\nsystem:\nNow: {{{{ current_time }}}}\n{LONG}\nuser:\n{{{{ question }}}}\n",
            5,
        ),
    ],
)
def test_a_clock_is_found_at_its_line_in_every_syntax(name, text, line):
    assert ("PFX101", name, line) in places({name: text})


def test_included_and_extended_templates_are_read_together():
    files = {
        "prompts/base.j2": f"{{% block head %}}{{% endblock %}}\n{LONG}\n",
        "prompts/child.j2": '{% extends "base.j2" %}\n{% block head %}{{ now() }}{% endblock %}\n',
        "prompts/whole.j2": f'{{% include "part.j2" %}}\n{LONG}\n',
        "prompts/part.j2": "Now: {{ utcnow() }}\n",
    }
    found = places(files)
    assert ("PFX101", "prompts/child.j2", 2) in found
    assert ("PFX101", "prompts/part.j2", 1) in found


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("deploy.yml.j2", "time: {{ now() }}\nkind: x\n"),
        ("Dockerfile.j2", "FROM x\nENV T={{ now() }}\n"),
        ("page.j2", "<!DOCTYPE html><p>{{ now() }}</p>You are here."),
        ("README.md", "Set {current_time} in the prompt. " * 9),
        ("ci.yaml", "jobs:\n  a:\n    prompt: '{{ current_time }} and more'\n"),
        ("schema.txt", '{"timestamp": "ISO", "user_id": 3}'),
    ],
)
def test_templates_of_other_things_stay_quiet(name, text):
    assert not codes({name: text})


@pytest.mark.parametrize(
    ("name", "data", "slug"),
    [
        ("prompts/a.md", b"\xff\xfe{current_time}", "wrong-encoding"),
        ("prompts/a.txt", b"a\0b {current_time}", "not-text"),
        ("a.j2", b"{% if %}{{ now( }}", None),
        ("a.j2", b"{{ 'open", "template-syntax"),
        ("a.yaml", b"prompt: [You are {x}\n", "data-syntax"),
        ("a.toml", b"prompt = You are {x}\n", "data-syntax"),
        ("a.yaml", b"prompt: &a [*a, 'You are {current_time} now']\n", None),
        ("a.json", b'{"prompt": "{x}' + b"[" * 5000, None),
        ("a.j2", b"{% for x in y %}" * 400 + b"{{ now() }}", None),
        ("a.j2", b'{% include "a.j2" %}{{ now() }}', None),
        ("a.j2", b'{% extends "missing.j2" %}', None),
    ],
)
def test_hostile_files_end_in_a_diagnostic_or_nothing(name, data, slug):
    _, errors = findings({name: data})
    assert all(error.path == name for error in errors)
    if slug:
        assert slug in {error.slug for error in errors}


@pytest.mark.parametrize(
    ("style", "text", "names"),
    [
        ("brace", 'a {b} {{c}} {d.e!r:>3} {} {0} {"json": 1} { }', ["b", "d.e", "", "0"]),
        ("percent", "a %s %(b)s 100%% %d", ["", "b", ""]),
        ("dollar", "$a ${b} $$c $1", ["a", "b"]),
        (
            "mustache",
            "{{a}} {{#each items}}{{this}}{{/each}} {{{raw}}} {{$input}}",
            ["a", "items", "this", "raw", "input"],
        ),
        ("state", "{a} {user:b?} {{c}}", ["a", "user:b", "c"]),
    ],
)
def test_placeholders(style, text, names):
    assert placeholders.names(text, style) == names


@given(st.text(max_size=80), st.sampled_from(placeholders.STYLES))
def test_parts_cover_a_text_without_gaps(text, style):
    position = 0
    for part in placeholders.parts(text, style):
        assert part.start == position
        position = part.end
    assert position == len(text)


@settings(max_examples=200)
@given(st.text(alphabet=st.sampled_from("a{}%#-+é\n 'x|.()"), max_size=60))
def test_any_template_is_read(text):
    summary = jinja.summarize(SourceFile("prompts/a.j2", text.encode()))
    assert summary.text is not None
    assert all(0 <= sink.start <= sink.end <= len(text.encode()) for sink in summary.sinks)


@given(st.text(max_size=60), st.data())
def test_characters_are_found_as_bytes(text, data):
    lit = Lit(text, 0, len(text.encode("utf-8", "surrogatepass")), ((0, 0),))
    index = data.draw(st.integers(0, len(text)))
    assert offset(lit, index) == len(text[:index].encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize(
    ("prompt", "lines"),
    [
        ("The time is {{current_time}}. " + "You are a careful assistant of a library. " * 9, [3]),
        ("file://prompts/{{current_time}}.txt", []),
        ("You are a careful assistant of a library. " * 9 + "The time is {{current_time}}.", []),
    ],
)
def test_the_prompts_of_a_promptfoo_file_are_read(prompt, lines):
    text = f"description: an evaluation\nprompts:\n  - '{prompt}'\nproviders: [a]\n"
    assert [line for _, _, line in places({"promptfooconfig.yaml": text}, 32)] == lines
