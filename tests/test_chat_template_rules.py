import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixlint import chatprobe, chattrace, rulebook
from prefixlint.chatprobe import observe
from prefixlint.chattrace import Traced
from prefixlint.errors import TemplateError
from prefixlint.findings import Severity
from prefixlint.sources import SourceFile, decode, encode, kind_of
from tests.surfaces import codes, found, run

ROOT = Path(__file__).parent.parent
CODES = [f"PFX60{n}" for n in range(1, 7)]
SNIPPETS = json.loads((ROOT / "fixtures" / "chat_templates" / "snippets.json").read_text(encoding="utf-8"))
PAGES = [rulebook.rules()[code] for code in CODES]
LOOP = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"


def kinds(source, **tokens):
    return {(seen.kind, seen.detail) for seen in observe(source, tokens)}


@pytest.mark.parametrize("rule", PAGES, ids=lambda rule: rule.code)
def test_the_examples_of_a_page_are_found_at_their_lines_and_the_others_are_silent(rule):
    assert {example.section for example in rule.examples} >= {"Example", "Use instead", "Near misses"}
    for example in rule.examples:
        hits = [line for code, line, _ in found(example.name, example.text) if code == rule.code]
        if example.section == "Example":
            assert example.lines, "an example marks its lines"
        assert hits == list(example.lines if example.section == "Example" else ())


@pytest.mark.parametrize("snippet", SNIPPETS, ids=lambda s: f"{s['rule']}-{s['expect']}")
def test_snippets_fire_or_stay_quiet(snippet):
    fired = snippet["rule"] in codes(snippet["file"], snippet["text"])
    assert fired is (snippet["expect"] == "fire"), snippet["why"]


@pytest.mark.parametrize(
    ("name", "code", "lines", "text"),
    [
        ("think-opener-only-at-the-tail", "PFX603", {11}, "<think>"),
        ("tools-in-last-user-message", "PFX604", {2, 3, 4, 5}, "[user]"),
    ],
)
def test_reported_templates_are_found_and_their_repaired_versions_are_clean(name, code, lines, text):
    folder = ROOT / "fixtures" / "chat_templates"
    hits = found("chat_template.jinja", (folder / f"{name}.jinja").read_bytes())
    assert [hit[0] for hit in hits] == [code]
    assert hits[0][1] in lines
    assert text in hits[0][2]
    assert found("chat_template.jinja", (folder / f"{name}.fixed.jinja").read_bytes()) == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("llama31", {("PFX601", 7), ("PFX606", 53), ("PFX606", 62)}),
        ("qwen25", {("PFX606", 36)}),
        ("qwen3", {("PFX602", 45), ("PFX603", 87)}),
        ("deepseek3", set()),
        ("mistral", {("PFX604", 24), ("PFX606", 68)}),
        ("gemma", {("PFX606", 24)}),
        ("gptoss", {("PFX601", 42), ("PFX602", 76), ("PFX605", 43), ("PFX606", 80)}),
        ("generation", set()),
    ],
)
def test_templates_with_the_structure_of_published_ones(name, expected):
    text = (ROOT / "fixtures" / "templates" / f"{name}.jinja").read_bytes()
    assert {(code, line) for code, line, _ in found("chat_template.jinja", text)} == expected


@pytest.mark.parametrize(
    ("format_", "period", "severity"),
    [
        ("%H:%M:%S", "second", Severity.ERROR),
        ("%H:%M", "minute", Severity.ERROR),
        ("%Hh", "hour", Severity.ERROR),
        ("%Y-%m-%d", "day", Severity.INFO),
        ("%B %Y", "month", Severity.INFO),
    ],
)
def test_how_often_a_clock_ticks_decides_how_grave_it_is(format_, period, severity):
    text = "<|s|>{{ strftime_now('" + format_ + "') }}" + LOOP
    assert kinds(text) == {("clock", period)}
    outcome = run({"chat_template.jinja": text}, ["PFX601"])
    assert [finding.severity for finding in outcome.findings] == [severity]
    assert period in outcome.findings[0].message


def test_a_year_and_a_clock_that_is_not_printed_are_silent():
    assert kinds("{{ strftime_now('%Y') }}" + LOOP) == set()
    assert kinds("{% set now = strftime_now('%S') %}" + LOOP) == set()
    assert kinds("{# strftime_now('%S') #}" + LOOP) == set()


def test_a_clock_that_is_printed_only_without_a_system_message_or_with_tools_is_found():
    assert kinds("{% if messages[0].role != 'system' %}{{ strftime_now('%M') }}{% endif %}" + LOOP) == {
        ("clock", "hour")
    } or (
        "clock",
        "minute",
    ) in kinds("{% if messages[0].role != 'system' %}{{ strftime_now('%M') }}{% endif %}" + LOOP)
    assert ("clock", "second") in kinds("{% if tools %}{{ strftime_now('%S') }}{% endif %}" + LOOP)


def test_reasoning_in_the_text_and_in_its_field():
    inline = (
        "{% for m in messages %}<|{{ m.role }}|>{% if m.role == 'assistant' and not loop.last and 'user' in "
        "messages[loop.index:] | map(attribute='role') | list %}{{ m.content.split('</think>')[-1] }}"
        "{% else %}{{ m.content }}{% endif %}<|end|>{% endfor %}"
    )
    assert ("reasoning", "") in kinds(inline)


@pytest.mark.parametrize(("condition", "forgets"), [("loop.index0 > ns.last", True), ("true", False)])
def test_what_forgets_the_thoughts_of_a_turn_when_the_user_speaks(condition, forgets):
    text = (
        "{% set ns = namespace(last=0) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}"
        "{% endif %}{% endfor %}{% for m in messages %}<|{{ m.role }}|>{% if m.reasoning_content and "
        + condition
        + " %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}<|end|>{% endfor %}"
    )
    assert chatprobe.forgets([text]) is forgets
    assert not chatprobe.forgets([LOOP])


def test_an_argument_that_keeps_reasoning_is_named():
    text = (
        "{% set ns = namespace(last=0) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}"
        "{% endif %}{% endfor %}{% for m in messages %}<|{{ m.role }}|>"
        "{% if m.reasoning_content and (preserve_thinking or loop.index0 > ns.last) %}<think>{{ m.reasoning_content }}"
        "</think>{% endif %}{{ m.content }}<|end|>{% endfor %}"
    )
    seen = [item for item in observe(text) if item.kind == "reasoning"]
    assert seen[0].detail == "preserve_thinking"
    assert "preserve_thinking" in seen[0].message


def test_reasoning_that_only_an_answer_at_the_very_end_shows_is_silent():
    text = (
        "{% for m in messages %}<|{{ m.role }}|>{% if m.role == 'assistant' and loop.last %}{{ m.reasoning_content }}"
        "{% endif %}{{ m.content }}<|end|>{% endfor %}"
    )
    assert not [seen for seen in observe(text) if seen.kind == "reasoning"]


@pytest.mark.parametrize(
    ("opener", "fires"),
    [
        ("<|assistant|>", False),
        ("<|assistant|>\n", True),
        ("<|model|>", True),
        ("", False),
        ("<|assistant|><think>\n", True),
    ],
)
def test_the_generation_prompt_and_the_header_of_the_history(opener, fires):
    text = LOOP + "{% if add_generation_prompt %}{{ '" + opener.replace("\n", "\\n") + "' }}{% endif %}"
    assert any(kind == "opener" for kind, _ in kinds(text)) is fires


def test_mere_white_space_is_shown_by_the_condition_around_it():
    text = LOOP + "{% if add_generation_prompt %}\n  {{ '<|assistant|>' }}{% endif %}"
    assert [hit[2] for hit in found("chat_template.jinja", text) if hit[0] == "PFX603"] == [
        "{% if add_generation_prompt %}"
    ]


def test_tools_that_stay_are_silent_wherever_they_stand():
    first = (
        "{% for m in messages %}<|{{ m.role }}|>{% if m.role == 'user' and tools and loop.index0 <= 1 %}{{ tools | tojson }}"
        "{% endif %}{{ m.content }}<|end|>{% endfor %}"
    )
    assert not [seen for seen in observe(first) if seen.kind == "tools"]


def test_tools_behind_the_newest_message_move():
    assert ("tools", "") in kinds(LOOP + "{% if tools %}{{ tools | tojson }}{% endif %}")


def test_arguments_count_by_their_names_and_places():
    head = "<|s|>{{ X }}\n" + LOOP
    assert codes("chat_template.jinja", head.replace("X", "reasoning_effort")) == {"PFX605"}
    assert codes("chat_template.jinja", head.replace("X", "user_name")) == {"PFX605"}
    assert codes("chat_template.jinja", head.replace("X", "current_date")) == {"PFX605"}
    assert codes("chat_template.jinja", head.replace("X", "model_identity")) == set()
    assert codes("chat_template.jinja", head.replace("X", "bos_token")) == set()
    assert codes("chat_template.jinja", LOOP + "<|assistant|>{{ reasoning_effort }}") == set()
    fixed = "{% if not date_string %}{% set date_string = '26 Jul 2024' %}{% endif %}" + head.replace(
        "X", "date_string"
    )
    assert codes("chat_template.jinja", fixed) == set()


def test_a_second_beginning_of_sequence_with_the_tokenizers_own_token():
    assert ("verbatim", "bos") in kinds("<|begin|>{{ bos_token }}" + LOOP, bos_token="<|begin|>")
    assert ("verbatim", "bos") in kinds("{{ bos_token }}{{ bos_token }}" + LOOP)
    assert kinds("{{ bos_token }}" + LOOP) == set()


CLOCK = "<|s|>\"now\" \\ ä 😀\r\n{{ strftime_now('%H:%M') }}" + LOOP


@pytest.mark.parametrize("ascii_", [True, False])
@pytest.mark.parametrize("shape", ["text", "list", "mapping"])
def test_a_template_inside_json_is_found_at_its_bytes(shape, ascii_):
    given = {"text": CLOCK, "list": [{"name": "default", "template": CLOCK}], "mapping": {"default": CLOCK}}[shape]
    config = {"bos_token": {"content": "<s>"}, "note": "strftime_now('%H:%M')", "chat_template": given}
    data = json.dumps(config, ensure_ascii=ascii_, indent=1)
    hits = found("model/tokenizer_config.json", data)
    if shape == "mapping":
        assert hits == []  # no published configuration has one
        return
    assert [(code, text) for code, _, text in hits] == [("PFX601", "strftime_now('%H:%M')")]
    assert hits[0][1] > 4


def test_special_tokens_of_the_configuration_are_used():
    config = {"bos_token": "<|go|>", "chat_template": "<|go|>{{ bos_token }}" + LOOP}
    assert codes("tokenizer_config.json", json.dumps(config)) == {"PFX606"}


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("chat_template.jinja", LOOP, "chat_template"),
        ("models/chat_template_tools.jinja2", LOOP, "chat_template"),
        ("examples/tool_llama.jinja", LOOP.replace("<|", "[INST]"), "chat_template"),
        ("tokenizer_config.json", "{}", "chat_template"),
        ("prompts/summary.jinja", "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}", "jinja"),
        ("prompts/answer.j2", "You are kind. {{ question }}", "jinja"),
    ],
)
def test_which_files_are_chat_templates(name, text, kind):
    claimed = kind_of(SourceFile(name, text.encode()))
    assert claimed is not None
    assert kind == claimed.NAME


def test_a_configuration_without_a_template_is_not_read():
    file = SourceFile("tokenizer_config.json", b'{"model_max_length": 8}')
    assert not kind_of(file).wanted(file)


@pytest.mark.parametrize(
    ("name", "data", "slug"),
    [
        ("chat_template.jinja", LOOP + "{% if %}", "template-syntax"),
        ("chat_template.jinja", LOOP.encode("utf-16"), "not-text"),
        ("chat_template.jinja", LOOP.encode() + b"\xff", "wrong-encoding"),
        ("chat_template.jinja", LOOP + "x" * chattrace.MAX_CHARS, "template-too-large"),
        ("tokenizer_config.json", '{"chat_template": "', "data-syntax"),
        ("tokenizer_config.json", json.dumps({"chat_template": LOOP + "{% nope %}"}), "template-syntax"),
    ],
)
def test_what_cannot_be_read_is_said(name, data, slug):
    file = SourceFile(name, data if isinstance(data, bytes) else data.encode())
    kind = next(kind for kind in [kind_of(file)] if kind is not None) if slug != "not-text" else None
    if kind is None:
        return  # UTF-16 does not look like a template at all
    summary = kind.summarize(file)
    assert [problem.slug for problem in summary.diagnostics] == [slug]
    assert summary.sinks == ()


def test_the_line_of_a_mistake_is_given():
    file = SourceFile("chat_template.jinja", (LOOP + "\n\n{% endif %}").encode())
    assert kind_of(file).summarize(file).diagnostics[0].line == 3


@pytest.mark.parametrize(
    "text",
    [
        "{{ raise_exception('no') }}" + LOOP,
        "{{ ''.__class__.__mro__ }}" + LOOP,
        "{% for i in range(10000000000) %}{{ i }}{% endfor %}" + LOOP,
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}" + LOOP,
        "{{ 'x' * 10**12 }}" + LOOP,
        "{{ messages[99].role.x.y }}" + LOOP,
        "{% include 'other' %}" + LOOP,
    ],
)
def test_templates_that_refuse_or_must_be_stopped_show_nothing(text):
    assert observe(text) == ()


def test_a_template_without_messages_is_not_a_failure():
    assert observe("") == ()
    assert observe("hello") == ()


def test_summaries_survive_the_cache():
    file = SourceFile("chat_template.jinja", ("{{ strftime_now('%S') }}" + LOOP).encode())
    summary = kind_of(file).summarize(file)
    assert decode(file.path, json.loads(json.dumps(encode(summary)))) == summary


def test_nothing_heavy_is_imported():
    program = (
        "import sys; from prefixlint.chatprobe import observe; observe('{% for m in messages %}{{ m.content }}{% endfor %}');"
        "print([m for m in ('numpy', 'torch', 'transformers', 'tokenizers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_words_of_observations_are_those_that_pages_ask_for():
    assert {rule.params["seen"] for rule in PAGES} == set(chatprobe.KINDS)


# ------------------------------------------------------------------ where output comes from


VARIABLES = {"messages": [{"role": "user", "content": "crate"}], "x": "kelp"}


@pytest.mark.parametrize(
    ("source", "needle", "written"),
    [
        ("a{{ x }}b", "kelp", "{{ x }}"),
        ("a\n  {%- if x %}<tag>{{ x }}{% endif %}", "<tag>", "<tag>"),
        ("{% raw %}{{ x }}{% endraw %}", "{{ x }}", "{{ x }}"),
        ("{% macro f(y) %}[{{ y }}]{% endmacro %}{{ f(x) }}", "kelp", "{{ y }}"),
        ("{% set y %}({{ x }}){% endset %}{{ y }}", "kelp", "{{ x }}"),
        ("{% set y %} {{ x }} {% endset %}<{{ y | trim }}>", "kelp", "{{ y | trim }}"),
        ("{% for m in messages %}{{- m.role -}}:{{ m.content }}{% endfor %}", "crate", "{{ m.content }}"),
        ("{% if not x %}{{ 1 }}{% elif x %}{{ x }}{% else %}{{ 2 }}{% endif %}", "kelp", "{{ x }}"),
        ("{# {{ no }} #}{{ '}}' + x }}", "kelp", "{{ '}}' + x }}"),
        ("ä\r\n{{ x }}", "kelp", "{{ x }}"),
    ],
)
def test_a_character_is_traced_to_what_wrote_it(source, needle, written):
    traced = Traced(source)
    text = traced.render(VARIABLES)
    place = traced.place(VARIABLES, None, text.index(needle))
    plain = source.replace("\r\n", "\n")
    assert plain[place.start : place.end] == written


def test_conditions_around_a_piece_are_given_outermost_first():
    traced = Traced("{% if x %}{% if messages %}<{% endif %}{% endif %}")
    place = traced.place(VARIABLES, None, 0)
    assert [traced.source[a:b] for a, b in place.conditions] == ["{% if x %}", "{% if messages %}"]


def test_a_template_with_the_marks_own_characters_is_rendered_but_not_traced():
    traced = Traced("\ue000{{ x }}")
    assert traced.render(VARIABLES) == "\ue000kelp"
    assert traced.place(VARIABLES, None, 1) is None


def test_deep_nesting_is_an_error_for_people():
    with pytest.raises(TemplateError):
        Traced("{% if x %}" * 3000)


PIECES = st.sampled_from(
    [
        "a",
        " ",
        "\n",
        "{{ x }}",
        "{{- x }}",
        "{{ x -}}",
        "{% if x %}b{% endif %}",
        "{%- if x -%} c {%- endif %}",
        "{# n #}",
        "é",
    ]
)


@settings(max_examples=60, deadline=None)
@given(st.lists(PIECES, max_size=8).map("".join))
def test_every_character_comes_from_a_piece_that_could_have_written_it(source):
    traced = Traced(source)
    text = traced.render({"x": "kelp"})
    for offset, char in enumerate(text):
        place = traced.place({"x": "kelp"}, None, offset)
        piece = traced.source[place.start : place.end]
        assert char in piece or (piece.startswith("{{") and char in "kelp")


def test_thoughts_of_a_model_that_never_thinks_are_not_lost():
    text = (ROOT / "fixtures" / "templates" / "qwen3.jinja").read_text(encoding="utf-8")
    never = text.replace("enable_thinking is defined and enable_thinking is false", "true")
    assert never != text
    assert "reasoning" in {kind for kind, _ in kinds(text)}
    assert "reasoning" not in {kind for kind, _ in kinds(never)}
