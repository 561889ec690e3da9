"""Chat templates render as transformers renders them, and hostile ones end."""

from __future__ import annotations

import json
import resource
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixlint import jinja_limits
from prefixlint.chat import FIXED_TIME, ChatTemplate, renderer, template_arguments, why_not_exact
from prefixlint.errors import ModelError, TemplateError, TemplateRefusedError
from prefixlint.model import Messages, Output
from prefixlint.modelfiles import ModelFiles, embedded

TEMPLATES = Path(__file__).parent.parent / "fixtures" / "templates"
NAMES = sorted(path.stem for path in TEMPLATES.glob("*.jinja"))
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
NOON = datetime(2025, 3, 9, 12, 30, tzinfo=UTC).timestamp()

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": 'The "weather" of a <place> & its größe 🌤',
            "parameters": {
                "type": "object",
                "properties": {
                    "place": {"type": "string", "enum": ["Köln", "東京"]},
                    "days": {"type": "array", "items": {"type": "integer"}},
                    "unit": {"oneOf": [{"type": "string"}, {"type": "null"}]},
                    "deep": {"type": "object", "properties": {"x": {"type": ["number", "null"]}}},
                },
                "required": ["place"],
            },
        },
    },
    {
        "type": "function",
        "function": {"name": "now", "description": "The time", "parameters": {"type": "object", "properties": {}}},
    },
]


def call(name="weather", arguments=None, call_id="abcdefghi"):
    return {
        "id": call_id,
        "type": "function",
        "function": {
            "name": name,
            "arguments": arguments if arguments is not None else {"place": "Köln", "days": [1, 2]},
        },
    }


USER = {"role": "user", "content": "  Wie ist das Wetter?\n"}
SYSTEM = {"role": "system", "content": "Be brief. <|im_end|> {{ not jinja }}"}
CHATS = {
    "one": [USER],
    "system": [SYSTEM, USER],
    "turns": [SYSTEM, USER, {"role": "assistant", "content": " Gut. "}, {"role": "user", "content": "Und\tmorgen? 🌧️"}],
    "tools": [
        SYSTEM,
        USER,
        {"role": "assistant", "content": "", "tool_calls": [call()]},
        {"role": "tool", "tool_call_id": "abcdefghi", "content": '{"c": 21}'},
    ],
    "null": [
        SYSTEM,
        USER,
        {"role": "assistant", "content": None, "tool_calls": [call()], "name": None},
        {"role": "tool", "tool_call_id": "abcdefghi", "content": "21"},
    ],
    "two calls": [
        USER,
        {"role": "assistant", "content": "Both:", "tool_calls": [call(), call("now", {}, "bcdefghij")]},
        {"role": "tool", "tool_call_id": "abcdefghi", "content": "1"},
        {"role": "tool", "tool_call_id": "bcdefghij", "content": "2"},
        {"role": "assistant", "content": "Done"},
        USER,
    ],
    "reasoning": [
        USER,
        {"role": "assistant", "reasoning_content": "\nhm\n", "content": "\n\nJa"},
        USER,
        {"role": "assistant", "reasoning": "so", "content": "x", "tool_calls": [call()]},
        {"role": "tool", "tool_call_id": "abcdefghi", "content": "ok"},
    ],
    "think tags": [USER, {"role": "assistant", "content": "<think>\na\n</think>\n\nb"}, USER],
    "thinking": [USER, {"role": "assistant", "thinking": "hm", "content": "Ja"}],
    "developer": [{"role": "developer", "content": "d"}, USER],
    "odd order": [USER, USER],
    "unknown roles": [
        USER,
        {"role": "skip", "content": "x"},
        {"role": "stop", "content": "y"},
        {"role": "robot", "content": "z"},
    ],
    "parts": [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": " look "}]}],
    "no content": [{"role": "user"}],
    "number": [{"role": "user", "content": 3}],
}
PARAMS = [
    {},
    {"enable_thinking": False},
    {
        "reasoning_effort": "high",
        "tools_in_user_message": False,
        "date_string": "1 Jan 2001",
        "suffix": "ß",
        "undefined_thing": [None, {"a": 1}],
    },
    {"documents": [{"title": "größe", "text": "t"}], "missing": {}},
]


def source(name):
    return (TEMPLATES / f"{name}.jinja").read_text()


@pytest.fixture(scope="module")
def oracle():
    """`apply_chat_template(tokenize=False)` of transformers with a small tokenizer and a fixed clock."""
    pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    from transformers import PreTrainedTokenizerFast
    from transformers.utils import chat_template_utils

    class Clock(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.fromtimestamp(NOON, tz=UTC)

    backend = tokenizers.Tokenizer(tokenizers.models.BPE({"a": 0}, []))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, **SPECIAL)
    patch = pytest.MonkeyPatch()
    patch.setattr(chat_template_utils, "datetime", Clock)

    def render(template, messages, tools, params, *, generation, final=False):
        return tokenizer.apply_chat_template(
            messages,
            tools=tools,
            chat_template=template,
            tokenize=False,
            add_generation_prompt=generation,
            continue_final_message=final,
            **params,
        )

    yield render
    patch.undo()


def outcome(function, *args, **kwargs):
    """The text, or a word for the error: both sides must fail alike."""
    try:
        return function(*args, **kwargs)
    except TemplateRefusedError:
        return "<<refused>>"
    except Exception as error:
        if type(error).__module__.startswith("prefixlint"):
            raise
        return "<<refused>>"


def ours(template, messages, tools, params, *, generation, final=False):
    compiled = ChatTemplate.compile(template, special_tokens=SPECIAL)
    return compiled.render(
        messages, tools or (), params=params, time=NOON, add_generation_prompt=generation, continue_final_message=final
    )


@pytest.mark.oracle
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("chat", CHATS)
def test_equals_transformers(oracle, name, chat):
    rendered = 0
    for tools in (None, TOOLS):
        for params in PARAMS:
            for generation in (True, False):
                theirs = outcome(oracle, source(name), CHATS[chat], tools, params, generation=generation)
                assert outcome(ours, source(name), CHATS[chat], tools, params, generation=generation) == theirs
                rendered += theirs != "<<refused>>"
    if chat in {"one", "system", "turns"}:
        assert rendered == 16, "the usual conversations must not be refused by both sides"


@pytest.mark.oracle
@pytest.mark.parametrize("name", NAMES)
def test_equals_transformers_when_a_message_is_continued(oracle, name):
    for text in ("It is", " It is ", "", "a\n"):
        chat = [USER, {"role": "assistant", "content": text}]
        theirs = outcome(oracle, source(name), chat, None, {}, generation=False, final=True)
        assert outcome(ours, source(name), chat, None, {}, generation=False, final=True) == theirs


SNIPPETS = [
    "{{ messages }}",
    "{{ messages[0] | tojson }}|{{ messages | tojson(indent=2) }}|{{ {'b': 1, 'a': 'é<'} | tojson(sort_keys=true, ensure_ascii=true) }}",
    "{{ [1, 2] | tojson(separators=(',', ':')) }}",
    "{% for i in range(3) if i != 1 %}{{ loop.index }}/{{ loop.length }}{{ loop.cycle('a', 'b') }}{{ loop.previtem }}{% else %}none{% endfor %}",
    "{% for m in messages recursive %}{{ m.role }}{% if m.kids %}{{ loop(m.kids) }}{% endif %}{% endfor %}",
    "{{ 'x' | center(5) }}|{{ 'a\nb' | indent(3) }}|{{ 'a b c' | wordwrap(3) }}|{{ 'abc' | replace('b', 'xx') }}",
    "{{ 'héllo wörld' | title }}{{ 'abc' | upper | lower | capitalize }}{{ ' x ' | trim }}{{ 'a-b' | trim('a') }}",
    "{{ [3, 1, 2] | sort | join(', ') }}{{ ['b', 'A'] | sort(case_sensitive=true) }}{{ [1, 1, 2] | unique | list }}{{ {'b': 1, 'a': 2} | dictsort }}",
    "{{ [[1], [2]] | sum(start=[]) }}{{ [1, 2] | sum }}{{ messages | map(attribute='role') | join('+') }}",
    "{{ [{'g': 1, 'v': 2}, {'g': 1, 'v': 3}] | groupby('g') }}{{ [1, 2, 3] | batch(2, 'x') | list }}{{ [1, 2, 3] | slice(2) | list }}",
    "{{ '%s-%05.2f-%d' % ('a', 2.5, 7) }}{{ '%(a)s' % {'a': 1} }}{{ 'a%%' | format }}{{ '%s' | format('x') }}",
    "{{ '{} {:>4} {x!r} {m[role]}'.format(1, 2, x='y', m=messages[0]) }}{{ '{a}'.format_map({'a': 1}) }}",
    "{{ 'a' ~ 1 ~ none ~ [2] ~ undefined_thing }}{{ 'a' + 'b' + 'c' }}{{ 1 + 2 + 3 }}{{ [1] + [2] + [3] }}",
    "{{ 'a' + 1 }}",
    "{{ undefined_thing.x }}",
    "{{ undefined_thing }}{{ undefined_thing is defined }}{{ undefined_thing | default('d') }}{{ undefined_thing | length }}",
    "{{ messages[0].nothing }}{{ messages[0]['nothing'] is none }}{{ messages[7] is defined }}",
    "{{ ''.__class__ }}",
    "{{ ''.__class__.__mro__ }}",
    "{{ messages.append(1) }}",
    "{% set ns = namespace(a=1, _b=2) %}",
    "{% set ns = namespace(a=1) %}{% set ns.a = ns.a + 1 %}{{ ns.a }}{{ ns }}",
    "{% set ns = namespace() %}{% set ns.__x__ = 1 %}",
    "{{ dict(a=1).items() | list }}{{ dict.fromkeys(['a']) }}",
    "{{ raise_exception('no') }}",
    "{{ strftime_now('%d %b %Y %H:%M') }}",
    "{% macro f(a, b=2) %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1) }}{{ f(1, 3, 4, c=5) }}",
    "{% set x %}block {{ 1 }}{% endset %}{{ x }}{{ x | length }}",
    "  {% if true %}\n  a\n  {% endif %}\n{#- c -#}\n  b\n",
    "{{ 'a' in 'abc' }}{{ 'a' not in ['a'] }}{{ 1 < 2 <= 2 }}{{ 1 == 1.0 }}{{ 'x' is in ['x'] }}{{ 3 is divisibleby 3 }}",
    "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}{{ messages | rejectattr('role', 'in', ['user']) | list }}",
    "{{ ' a  b '.split() }}{{ 'a,b,c'.split(',', 1) }}{{ 'a\nb'.splitlines() }}{{ 'x'.join(['a', 'b']) }}{{ 'x'.join('ab' | map('upper')) }}",
    "{{ 'x'.zfill(3) }}{{ 'x'.ljust(3) }}|{{ 'a\tb'.expandtabs(4) }}{{ 'abc'.translate({97: 'zz'}) }}{{ 'ab'.replace('a', 'b', 1) }}",
    "{{ 'abcdef'[1:4] }}{{ 'abc'[-1] }}{{ [1, 2, 3][::2] }}{{ messages[1:] }}",
    "{{ 7 // 2 }}{{ 7 % 3 }}{{ 2 ** 10 }}{{ 3 * 'ab' }}{{ [0] * 3 }}{{ 1.5 * 2 }}{{ 3.14159 | round(2) }}{{ -3 | abs }}",
    "{{ '<b>' | escape }}{{ '<b>' | safe }}{{ ('<b>' | e) + '<i>' }}{{ ('<b>' | e) ~ '<i>' }}{{ 'a b' | urlencode }}",
    "{{ tools | tojson }}{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}",
    "{% for k, v in {'a': 1}.items() %}{{ k }}{{ v }}{% endfor %}{{ {'a': 1} | items | list }}{{ {'a': {'b': 1}}.a.b }}{{ {'items': 1}['items'] }}",
    "{% for i in range(10) %}{% if i == 2 %}{% continue %}{% elif i == 4 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% with a = 1 %}{{ a }}{% endwith %}{% filter replace('a', 'b') %}aa{% endfilter %}{{ 'yes' if 0 else 'no' }}{{ 'yes' if 0 }}",
    "{{ cycler('a', 'b').next() }}{% set j = joiner('-') %}{{ j() }}{{ j() }}{{ [1, 2] | first }}{{ [1, 2] | last }}{{ 'abc' | list }}",
    "{{ 9 | string | int + 1 }}{{ '0x1f' | int(base=16) }}{{ '1.5' | float }}{{ 123456 | filesizeformat }}{{ 'a b' | wordcount }}{{ 'ab' | reverse }}",
    "{{ [2, 1] | min }}{{ ['a', 'B'] | max }}{{ {'a': '<'} | xmlattr }}{{ '<p>x</p>' | striptags }}{{ 'a' * 300 | int }}{{ ('a' * 300) | truncate(9) }}",
    "{% generation %}{% for m in messages %}{{ m.role }}{% endfor %}{% endgeneration %}",
    "{{ {'a': 1, 2: 'b', messages[0].role: 3, (1, 2): 4} }}{{ {(1, 2): 'x'}[(1, 2)] }}{{ {} }}{{ {'a': {}}.a.get('b', 3) }}",
    "{{ 'ff' | int(base=16) }}{{ 'x' | int(7) }}{{ 'AB' is upper }}{{ 'x' is filter }}{{ messages[0] | attr('x') }}{{ (5).bit_length() }}",
    "{% set messages = messages[1:] %}{{ messages | length }}{{ self }}",
    "{{ range(200000) }}",
]


@pytest.mark.oracle
@pytest.mark.parametrize("snippet", SNIPPETS)
def test_each_feature_equals_transformers(oracle, snippet):
    chat = CHATS["tools"]
    theirs = outcome(oracle, snippet, chat, TOOLS, {}, generation=True)
    try:
        mine = outcome(ours, snippet, chat, TOOLS, {}, generation=True)
    except TemplateError:
        mine = "<<refused>>"
    assert mine == theirs or ("self" in snippet and "TemplateReference" in mine)


words = st.text(st.characters(exclude_categories=("Cs",)), max_size=30)
messages_of = st.lists(
    st.fixed_dictionaries(
        {
            "role": st.sampled_from(["system", "user", "assistant", "tool", "developer"]),
            "content": st.one_of(words, st.none()),
        },
        optional={
            "reasoning_content": words,
            "name": st.one_of(words, st.none()),
            "tool_call_id": words,
            "tool_calls": st.lists(
                st.builds(
                    call,
                    st.sampled_from(["weather", "x"]),
                    st.dictionaries(words, st.one_of(words, st.integers(-9, 9), st.booleans(), st.none())),
                    st.just("123456789"),
                ),
                max_size=2,
            ),
        },
    ),
    min_size=1,
    max_size=6,
)


@pytest.mark.oracle
@given(name=st.sampled_from(NAMES), chat=messages_of, tools=st.sampled_from([None, TOOLS]), generation=st.booleans())
@settings(max_examples=150, deadline=None)
def test_any_conversation_equals_transformers(oracle, name, chat, tools, generation):
    before = json.dumps(chat)
    theirs = outcome(oracle, source(name), chat, tools, {}, generation=generation)
    assert outcome(ours, source(name), chat, tools, {}, generation=generation) == theirs
    assert json.dumps(chat) == before, "rendering must not change the messages"


def test_rendering_is_the_same_each_time_and_uses_the_given_time():
    template = ChatTemplate.compile(source("llama31"), special_tokens=SPECIAL)
    assert "Today: 09 Mar 2025" in template.render([USER], time=NOON)
    assert "Today: 26 Jul 2024" in template.render([USER])
    assert datetime.fromtimestamp(FIXED_TIME, tz=UTC).isoformat() == "2024-07-26T00:00:00+00:00"
    assert template.render([USER], time=NOON) == template.render([USER], time=NOON)


def test_a_refusal_says_what_the_template_said_and_where():
    template = ChatTemplate.compile(source("llama31"))
    chat = [USER, {"role": "assistant", "content": "", "tool_calls": [call(), call()]}]
    with pytest.raises(TemplateRefusedError, match=r"\(line \d+\): This model makes one call at a time"):
        template.render(chat)
    with pytest.raises(TemplateRefusedError, match="empty"):
        template.render([])
    assert template.render([USER]), "a refusal leaves the template usable"


@pytest.mark.parametrize(
    "bad",
    [
        "{% if %}",
        "{{ x",
        "{% nosuchtag %}",
        "{% for %}{% endfor %}",
        "{{ x | nosuchfilter }}",
        "{% autoescape true %}{% endautoescape %}",
    ],
)
def test_what_is_no_template_says_so(bad):
    with pytest.raises(TemplateError, match="does not compile"):
        ChatTemplate.compile(bad)


HOSTILE = {
    "loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}",
    "filtered loops": "{% for a in range(99999) if (range(99999) | map('string') | list | length) == 0 %}{% endfor %}",
    "multiplied text": "{{ 'a' * 10 ** 10 }}",
    "multiplied constant": "{% set x = 'a' * 10000000000 %}",
    "multiplied list": "{% set x = [0] * 10000000000 %}",
    "power": "{{ 10 ** (10 ** 10) }}",
    "repeated squares": "{% set ns = namespace(x=99) %}{% for i in range(99) %}{% set ns.x = ns.x * ns.x %}{% endfor %}{{ ns.x }}",
    "doubled number": "{% set ns = namespace(x=99) %}{% for i in range(99999) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x }}",
    "printf": "{{ '%1000000000d' % 1 }}",
    "printf star": "{{ '%*d' % (1000000000, 1) }}",
    "printf precision": "{{ '%.1000000000f' % 1 }}",
    "printf names": "{% set x = 'a' * 60000000 %}{{ ('%(a)s' * 9999) % {'a': x} }}",
    "format filter": "{{ '%1000000000d' | format(1) }}",
    "str.format": "{{ '{:>1000000000}'.format(1) }}",
    "str.format nested": "{{ '{:>{w}}'.format(1, w=1000000000) }}",
    "str.format fields": "{% set x = 'a' * 60000000 %}{{ ('{0}' * 9999).format(x) }}",
    "center": "{{ 'a' | center(10000000000) }}",
    "str.center": "{{ 'a'.center(10000000000) }}",
    "str.ljust": "{{ 'a'.ljust(10000000000) }}",
    "str.zfill": "{{ 'a'.zfill(10000000000) }}",
    "bytes.ljust": "{{ 'a'.encode().ljust(10000000000) }}",
    "to_bytes": "{{ (1).to_bytes(10000000000, 'big') }}",
    "expandtabs": "{{ ('\t' * 1000000).expandtabs(1000000) }}",
    "indent": "{{ ('\n' * 1000000) | indent(1000000, true, true) }}",
    "indent text": "{{ ('\n' * 1000000) | indent('a' * 1000000, true, true) }}",
    "replace": "{{ ('a' * 1000000) | replace('a', 'b' * 1000000) }}",
    "str.replace": "{{ ('a' * 1000000).replace('a', 'b' * 1000000) }}",
    "replace empty": "{{ ('a' * 1000000).replace('', 'b' * 1000000) }}",
    "join": "{{ ([1] * 1000000) | join('b' * 1000000) }}",
    "str.join": "{{ ('b' * 1000000).join(['a'] * 1000000) }}",
    "join lazily": "{{ ('b' * 1000000).join(range(99999) | map('string')) }}",
    "translate": "{{ ('a' * 1000000).translate({97: 'b' * 1000000}) }}",
    "batch": "{{ [1] | batch(10000000000, 'x') | list }}",
    "slice": "{{ [1] | slice(10000000000) | list }}",
    "wordwrap": "{{ ('a ' * 1000000) | wordwrap(1, true, 'b' * 1000000) }}",
    "urlize": "{{ ('a.' * 10000000) | urlize }}",
    "striptags": "{{ ('<!--' * 10000000) | striptags }}",
    "round": "{{ 1.5 | round(1000000000, 'ceil') }}",
    "doubled text": "{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
    "doubled tilde": "{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
    "doubled block": "{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}{% endfor %}",
    "doubled list": "{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
    "nested lists": "{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
    "nested json": "{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x | tojson }}",
    "nested string": "{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = {'a': ns.x, 'b': ns.x} %}{% endfor %}{{ ns.x | string }}",
    "nested equal": "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
    "nested test": "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x is eq(ns.y) }}",
    "nested namespace": "{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns }}",
    "nested printf": "{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ '%s' % (ns.x,) }}",
    "nested conversion": "{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ '{!r}'.format(ns.x) }}",
    "json indent": "{{ [[1] * 100000] | tojson(indent=1000000) }}",
    "json separators": "{{ ([1] * 100000) | tojson(separators=('a' * 1000000, ':')) }}",
    "sum": "{% set big = [0] * 100000 %}{{ ([big] * 100000) | sum(start=[]) | length }}",
    "slices": "{% set x = 'a' * 60000000 %}{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = ns.l + [x[1:]] %}{% endfor %}",
    "copies": "{% set x = 'a' * 60000000 %}{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = ns.l + [x | upper] %}{% endfor %}",
    "method copies": "{% set x = 'a' * 60000000 %}{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = ns.l + [x.upper()] %}{% endfor %}",
    "split": "{{ ('a ' * 30000000).split() | length }}",
    "search": "{% set x = 'a' * 60000000 %}{% for i in range(99999) %}{% if 'ab' in x %}{% endif %}{% endfor %}",
    "recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "exponential recursion": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "recursive loop": "{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    "lazy chain": "{% set ns = namespace(g=range(99999)) %}{% for i in range(300) %}{% set ns.g = ns.g | map('string') %}{% endfor %}{{ ns.g | list | length }}",
    "lipsum": "{{ lipsum(n=100000000) }}",
    "random": "{{ [1, 2] | random }}",
    "strftime": "{{ strftime_now('%Y' * 1000) }}",
    "sort": "{{ (range(99999) | list * 9) | sort | length }}" + "{{ (range(99999) | list * 9) | sort | length }}" * 60,
    "escape": "{% set ns = namespace(x='&' * 1000) %}{% for i in range(99) %}{% set ns.x = ns.x | forceescape | replace('&', '&&&') %}{% endfor %}",
    "deep text": "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}",
    "deep data": "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
    "import": "{% include 'etc/passwd' %}",
    "sandbox": "{{ raise_exception.__globals__['json'] }}",
    "sandbox attr": "{{ (cycler | attr('__init__')).__globals__ }}",
    "sandbox format": "{{ '{0.__class__.__init__.__globals__}'.format(cycler) }}",
}


DOUBLED = "{% set ns = namespace(x=(1,)) %}{% for i in range(99) %}{% set ns.x = (ns.x, ns.x) %}{% endfor %}"
HOSTILE |= {
    "hashed key": DOUBLED + "{{ {}[ns.x] }}",
    "hashed pair": DOUBLED + "{{ {ns.x: 1} | length }}",
    "hashed get": DOUBLED + "{{ messages[0].get(ns.x) }}",
    "hashed search": DOUBLED + "{{ ns.x in {} }}",
    "hashed dict": DOUBLED + "{{ dict([[ns.x, 1]]) | length }}",
    "hashed test": DOUBLED + "{{ ns.x is filter }}",
    "hashed name": DOUBLED + "{{ [1] | map(ns.x) | list }}",
    "hashed json style": DOUBLED + "{{ tools | tojson(indent=ns.x) }}",
    "hashed arguments": "{% macro f() %}{% set ns.x = varargs %}{% endmacro %}{% set ns = namespace(x=(1,)) %}{% for i in range(99) %}{{ f(ns.x, ns.x) }}{% endfor %}{{ {}[ns.x] }}",
    "compared in a loop": DOUBLED + "{% for i in [1, 2] %}{{ loop.changed(ns.x) }}{% endfor %}",
    "named attribute": DOUBLED + "{{ messages | attr(ns.x) }}",
    "named undefined": DOUBLED + "{{ messages[ns.x].a }}",
    "refused with": DOUBLED + "{{ raise_exception(ns.x) }}",
    "replaced with": DOUBLED + "{{ 'a' | replace('a', ns.x) }}",
    "joined with": DOUBLED + "{{ ['a', 'b'] | join(ns.x) }}",
    "hexadecimal": "{% set a = ('f' * 60000000) | int(base=16) %}{% set b = ('f' * 30000000) | int(base=16) %}{{ a // b > 1 }}",
    "from_bytes": "{% set a = (1).from_bytes('f' * 60000000, 'big') %}{% set b = (1).from_bytes(('f' * 30000000).encode(), 'big') %}{{ a // b > 1 }}",
    "straight line": "{% set x = 'A' * 60000000 %}" + "{% if x is upper %}{% endif %}" * 3000,
    "straight search": "{% set x = 'A' * 60000000 %}" + "{% if 'b' in x %}{% endif %}" * 3000,
}


def ends(template):
    start, most = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises((TemplateError, TemplateRefusedError)):
        print(ChatTemplate.compile(template).render([USER])[:200])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - most < 1_500_000, "KiB more than ever before"
    return time.process_time() - start


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_templates_end(name, monkeypatch):
    monkeypatch.setattr(jinja_limits, "BUDGET", jinja_limits.BUDGET // 16)
    monkeypatch.setattr(jinja_limits, "SECONDS", 0.5)
    ends(HOSTILE[name])


@pytest.mark.parametrize("name", ["loops", "copies", "search"])
def test_hostile_templates_end_soon_with_the_whole_budget(name):
    assert ends(HOSTILE[name]) < 4, "seconds of CPU"


def test_limits_hold_outside_the_main_thread(monkeypatch):
    monkeypatch.setattr(jinja_limits, "BUDGET", jinja_limits.BUDGET // 16)
    caught = []

    def run():
        try:
            ChatTemplate.compile(HOSTILE["loops"]).render([USER])
        except TemplateRefusedError as error:
            caught.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(20)
    assert caught
    assert "too much work" in caught[0].message


def test_threads_that_share_a_template_do_not_share_its_budget_or_its_time():
    template = ChatTemplate.compile("{% for m in messages %}{{ strftime_now('%Y') }}{{ m.content }}{% endfor %}")
    messages = [USER] * 300
    years = list(range(2001, 2009))
    found = {}

    def run(year):
        moment = datetime(year, 6, 1, tzinfo=UTC).timestamp()
        found[year] = {template.render(messages, time=moment) for _ in range(20)}

    threads = [threading.Thread(target=run, args=(year,)) for year in years]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == {year: {f"{year}{USER['content']}" * 300} for year in years}


class Odd(dict):
    """What no log holds, and a caller may hand in: its keys are looked up by the environment."""

    def __getitem__(self, key):
        return f"odd {key}"


@pytest.mark.parametrize(
    ("source", "message", "text"),
    [
        ("{% for m in messages %}{{ m.role }}{{ m['content'] }}{% endfor %}", {}, "userHi"),
        ("{% for m in messages %}{{ m.gone }}{{ m['gone'] }}|{{ m.gone is defined }}{% endfor %}", {}, "|False"),
        ("{% for m in messages %}{{ m.items() | list | length }}{{ m['items'] }}{% endfor %}", {"items": "own"}, "3own"),
        ("{% for m in messages %}{% set m = {'role': 'new'} %}{{ m.role }}{% endfor %}", {}, "new"),
        ("{% macro f(m) %}{{ m.role if m is defined }}{% endmacro %}{{ f(messages[0]) }}{{ f() }}", {}, "user"),
        ("{% for m in messages %}{{ m.__class__ }}|{{ m['__class__'] }}{% endfor %}", {}, "|"),
        ("{% for k, v in messages[0].items() %}{{ k.role }}{{ v['role'] }}{% endfor %}", {}, ""),
        ("{% for type in messages %}{{ type.role }}{% for dict in [type] %}{{ dict.role }}{% endfor %}{% endfor %}", {}, "useruser"),
        ("{% for m in messages %}{{ m.role }}{% endfor %}", None, "odd role"),
    ],
)  # fmt: skip
def test_keys_are_looked_up_as_the_sandbox_does(source, message, text):
    first = Odd(role="user", content="Hi") if message is None else {"role": "user", "content": "Hi", **message}
    assert ChatTemplate.compile(source).render([first]) == text


def test_a_template_is_given_up_only_if_it_never_works(monkeypatch):
    monkeypatch.setattr(jinja_limits, "BUDGET", jinja_limits.BUDGET // 64)
    template = ChatTemplate.compile("{% for i in range(99999) %}{% for m in messages %}{% endfor %}{% endfor %}{# 1 #}")
    for _ in range(2):
        with pytest.raises(TemplateRefusedError) as caught:
            template.render([USER] * 9)
        assert caught.value.slug == "template-stopped"
    with pytest.raises(TemplateError):
        template.render([USER] * 9)
    good = ChatTemplate.compile(
        "{% for i in range(messages[0].n) %}{% for j in range(99999) %}{% endfor %}{% endfor %}ok"
    )
    assert good.render([{"n": 0}]) == "ok"
    for _ in range(5):
        with pytest.raises(TemplateRefusedError):
            good.render([{"n": 99999}])
    assert good.render([{"n": 0}]) == "ok"


def test_a_large_conversation_fits_the_limits():
    chat = [{"role": "user" if i % 2 == 0 else "assistant", "content": "word " * 2000} for i in range(2001)]
    text = ChatTemplate.compile(source("qwen3")).render(chat)
    assert len(text) > 20_000_000


def test_named_templates_are_chosen_by_tools():
    template = ChatTemplate.compile({"default": "d", "tool_use": "t"})
    assert template.render([USER]) == "d"
    assert template.render([USER], TOOLS) == "t"
    with pytest.raises(TemplateError, match="rag, tool_use"):
        ChatTemplate.compile({"rag": "r", "tool_use": "t"}).render([USER])
    assert ChatTemplate.compile({"only": "o"}).render([USER]) == "o"


def test_a_model_without_a_template_says_what_to_do():
    with pytest.raises(ModelError) as caught:
        ChatTemplate.compile(ModelFiles(name="m", source="folder", tokenizer="{}"))
    assert "--chat-template" in (caught.value.hint or "")


def test_the_same_tools_in_another_order_are_written_once(monkeypatch):
    written = []
    dumps = json.dumps
    monkeypatch.setattr(json, "dumps", lambda value, **style: written.append(value) or dumps(value, **style))
    source = "{% for tool in tools %}{{ tool | tojson }}{{ tool.function.parameters | tojson(indent=2) }}{% endfor %}"
    tools = [
        {"type": "function", "function": {"name": f"f{i}", "parameters": {"type": "object", "properties": {"n": i}}}}
        for i in range(6)
    ]
    template = ChatTemplate.compile(source)
    for turn in range(40):
        order = tools[turn % 6 :] + tools[: turn % 6]
        logged = json.loads(dumps(order))  # each request of a log has objects of its own
        fresh = ChatTemplate.compile(source).prompt(Messages([USER], order))
        before = len(written)
        assert template.prompt(Messages([USER], logged)) == fresh
        assert len(written) - before == (12 if turn == 0 else 0)


def test_equal_tools_are_written_once_and_stay_right():
    template = ChatTemplate.compile("{{ tools | tojson }}{{ tools[0] | tojson(indent=1) }}")
    first = template.prompt(Messages([USER], TOOLS))
    assert template.prompt(Messages([USER], json.loads(json.dumps(TOOLS)))) == first
    other = [{"type": "function", "function": {"name": f"f{i}", "parameters": {"b": 1, "a": 2}}} for i in range(2)]
    swapped = [{"type": "function", "function": {"name": f"f{i}", "parameters": {"a": 2, "b": 1}}} for i in range(2)]
    assert template.prompt(Messages([USER], other)) != template.prompt(Messages([USER], swapped))
    for i in range(600):
        tools = [{"type": "function", "function": {"name": f"g{i}"}}]
        assert f'"g{i}"' in template.prompt(Messages([USER], tools))
    assert template.prompt(Messages([USER], TOOLS)) == first


def test_arguments_of_a_request_reach_the_template():
    params = {
        "chat_template_kwargs": {"enable_thinking": False, "a": 1},
        "reasoning_effort": "low",
        "documents": [{"title": "t"}],
    }
    assert template_arguments(params) == {
        "enable_thinking": False,
        "a": 1,
        "reasoning_effort": "low",
        "documents": [{"title": "t"}],
    }
    assert template_arguments({"reasoning_effort": "none"}) == {"reasoning_effort": "none", "enable_thinking": False}
    assert template_arguments(params, route="sglang") == {"enable_thinking": False, "a": 1, "reasoning_effort": "low"}
    template = ChatTemplate.compile("{{ a }}{{ messages | length }}{{ add_generation_prompt }}")
    odd = {
        "chat_template_kwargs": {"a": "x", "messages": [], "add_generation_prompt": "no"},
        "add_generation_prompt": False,
    }
    assert template.prompt(Messages([USER]), params=odd) == "x1False"


TURN = Messages([SYSTEM, USER], TOOLS)


@pytest.mark.parametrize(
    ("name", "output", "expected"),
    [
        ("qwen3", Output(text="Sunny.", reasoning="hm"), "<think>\nhm\n</think>\n\nSunny."),
        ("qwen25", Output(text="Sunny."), "Sunny."),
        (
            "qwen25",
            Output(tool_calls=[call(arguments='{"place": "Köln"}')]),
            '<tool_call>\n{"name": "weather", "arguments": {"place": "Köln"}}\n</tool_call>',
        ),
        ("deepseek3", Output(text="Sunny."), "Sunny."),
        ("deepseek3", Output(text="Sunny.", reasoning="dropped"), None),
        ("llama31", Output(text="Sunny."), "Sunny."),
        (
            "llama31",
            Output(tool_calls=[call(arguments='{"place": "x"}')]),
            '{"name": "weather", "parameters": {"place": "x"}}',
        ),
        ("llama31", Output(tool_calls=[call(), call()]), None),
        (
            "gptoss",
            Output(text="Sunny.", reasoning="hm"),
            "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Sunny.",
        ),
        ("qwen3", Output(), None),
    ],
)
def test_generated_text_is_what_follows_the_prompt(name, output, expected):
    template = ChatTemplate.compile(source(name), special_tokens=SPECIAL)
    assert template.generated(TURN, output) == expected


def test_generated_text_continues_into_the_next_turn():
    template = ChatTemplate.compile(embedded())
    output = Output(text="Let me look.", reasoning="hm", tool_calls=[call(arguments='{"place": "Köln"}')])
    text = template.generated(TURN, output)
    answer = {
        "role": "assistant",
        "content": "Let me look.",
        "reasoning_content": "hm",
        "tool_calls": [call(arguments='{"place": "Köln"}')],
    }
    following = Messages(
        [*TURN.messages, answer, {"role": "tool", "tool_call_id": "abcdefghi", "content": "21"}], TOOLS
    )
    assert text is not None
    assert template.prompt(following).startswith(template.prompt(TURN) + text)


@pytest.mark.parametrize("kind", ["deepseek-v3.2", "deepseek-v4", "none"])
def test_what_engines_render_without_a_template_is_never_exact(kind):
    files = ModelFiles(name="m", source="folder", tokenizer="{}", templates={"default": "x"}, renderer=kind)
    assert why_not_exact(files)
    assert why_not_exact(embedded()), "a stand-in is never exact"
    assert why_not_exact(ModelFiles(name="m", source="folder", tokenizer="{}", templates={"default": "x"})) is None


def test_gpt_oss_is_rendered_by_harmony_or_not_exact(monkeypatch):
    files = ModelFiles(name="m", source="folder", tokenizer="{}", templates={"default": "x"}, renderer="harmony")
    assert isinstance(renderer(files, route="sglang"), ChatTemplate)
    assert why_not_exact(files, route="sglang") is None
    monkeypatch.setitem(sys.modules, "openai_harmony", None)
    assert isinstance(renderer(files), ChatTemplate)
    assert "prefixlint[harmony]" in (why_not_exact(files) or "")
    bare = ModelFiles(name="m", source="folder", tokenizer="{}", renderer="harmony")
    with pytest.raises(ModelError, match="Harmony"):
        renderer(bare)
