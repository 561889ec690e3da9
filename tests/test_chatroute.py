"""Conversations reach the template as the engines' chat routes give them."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prefixlint.chat import ChatTemplate
from prefixlint.chatroute import content_format, normalise, normalise_tools
from prefixlint.errors import TemplateRefusedError
from prefixlint.model import Messages
from prefixlint.sandbox import Environment

USER = {"role": "user", "content": "hi"}
PARTS = [{"type": "text", "text": "a"}, "b", {"type": "input_text", "text": "c"}, {"type": "text", "text": None}]
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"z": 1, "a": "é"}'}}


def formats(source):
    tree = Environment().parse(source)
    return content_format(tree, source, "vllm"), content_format(tree, source, "sglang")


@pytest.mark.parametrize(
    ("source", "vllm", "sglang"),
    [
        ("{% for m in messages %}{{ m.content }}{% endfor %}", "string", "string"),
        ("{% for m in messages %}{% for c in m.content %}{% endfor %}{% endfor %}", "openai", "openai"),
        ("{% for turn in messages %}{% for c in turn['content'] %}{% endfor %}{% endfor %}", "openai", "string"),
        ("{% for m in messages[1:] %}{% for c in m['content'] | list %}{% endfor %}{% endfor %}", "openai", "openai"),
        (
            "{% set rest = messages[1:] %}{% for m in rest %}{% for c in m.content %}{% endfor %}{% endfor %}",
            "openai",
            "openai",
        ),
        (
            "{% set ns = namespace(rest=messages) %}{% for x in ns.rest %}{% for c in x.content %}{% endfor %}{% endfor %}",
            "openai",
            "string",
        ),
        (
            "{% for x in messages %}{% set content = x.content %}{% for c in content %}{% endfor %}{% endfor %}",
            "openai",
            "string",
        ),
        (
            "{% macro f(body) %}{% for c in body %}{% endfor %}{% endmacro %}{% for x in messages %}{{ f(x.content) }}{% endfor %}",
            "openai",
            "string",
        ),
        (
            "{% macro f(body) %}{% for c in body %}{% endfor %}{% endmacro %}{% for x in messages %}{{ f(x.role) }}{% endfor %}",
            "string",
            "string",
        ),
        (
            "{% macro f(content) %}{% for c in content %}{% endfor %}{% endmacro %}{% for x in messages %}{{ f(x.role) }}{% endfor %}",
            "string",
            "string",
        ),
        ("{# an image #}{% for x in messages %}{{ x.content }}{% endfor %}", "string", "openai"),
        ("{% for t in tools %}{% for c in t.content %}{% endfor %}{% endfor %}", "string", "string"),
    ],
)
def test_the_content_format_is_read_from_the_template(source, vllm, sglang):
    assert formats(source) == (vllm, sglang)


def test_what_needs_no_change_is_not_copied():
    chat = [{"role": "system", "content": "s"}, USER, {"role": "assistant", "content": "a"}]
    for route in ("vllm", "sglang"):
        assert all(a is b for a, b in zip(normalise(chat, route=route), chat, strict=True))


@pytest.mark.parametrize(
    ("route", "content", "expected"),
    [
        ("vllm", "string", "a\nb\nc"),
        ("sglang", "string", "a b c"),
        ("vllm", "openai", [{"type": "text", "text": text} for text in "abc"]),
        ("sglang", "openai", [{"type": "text", "text": text} for text in "abc"]),
    ],
)
def test_parts_are_joined_or_kept(route, content, expected):
    assert normalise([{"role": "user", "content": PARTS}], route=route, content=content)[0]["content"] == expected


def test_a_string_becomes_a_part_with_vllm_only():
    assert normalise([USER], route="vllm", content="openai")[0]["content"] == [{"type": "text", "text": "hi"}]
    assert normalise([USER], route="sglang", content="openai")[0]["content"] == "hi"


@pytest.mark.parametrize("route", ["vllm", "sglang"])
def test_missing_content_is_empty(route):
    for message in ({"role": "assistant", "content": None}, {"role": "assistant"}):
        assert normalise([message], route=route)[0]["content"] == ""


def test_tool_results_in_parts_become_one_text():
    message = {
        "role": "tool",
        "tool_call_id": "1",
        "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
    }
    assert normalise([message], route="vllm", content="openai")[0] == {
        "role": "tool",
        "content": "a\nb",
        "tool_call_id": "1",
    }
    assert normalise([message], route="sglang", content="openai")[0] == {
        "role": "tool",
        "content": "a b",
        "tool_call_id": "1",
    }


def test_different_images_are_different_and_equal_ones_equal():
    def shown(url, content):
        part = {"type": "image_url", "image_url": {"url": url}}
        return normalise([{"role": "user", "content": [part, {"type": "text", "text": "?"}]}], content=content)[0][
            "content"
        ]

    for content in ("string", "openai"):
        assert shown("a", content) == shown("a", content) != shown("b", content)
    assert shown("a", "openai")[0] == {"type": "image"}
    assert shown("a", "string").startswith("<image ")


@pytest.mark.parametrize("route", ["vllm", "sglang"])
def test_arguments_become_objects_in_their_order(route):
    message = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    before = json.dumps(message)
    function = normalise([message], route=route)[0]["tool_calls"][0]["function"]
    assert list(function["arguments"].items()) == [("z", 1), ("a", "é")]
    assert json.dumps(message) == before


@pytest.mark.parametrize("arguments", ["", "[]", "{broken", "3", None, [1], "[" * 100_000])
def test_arguments_that_are_no_object(arguments):
    message = {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": arguments}}]}
    assert normalise([message], route="vllm")[0]["tool_calls"][0]["function"]["arguments"] == {}
    if isinstance(arguments, str):
        with pytest.raises(TemplateRefusedError):
            normalise([message], route="sglang")


@pytest.mark.parametrize("call", [3, {}, {"function": None}, {"function": "f"}])
@pytest.mark.parametrize("route", ["vllm", "sglang"])
def test_calls_that_are_no_calls_refuse_the_conversation(call, route):
    with pytest.raises(TemplateRefusedError):
        normalise([{"role": "assistant", "tool_calls": [call]}], route=route)


def test_no_tool_calls_means_no_key():
    assert "tool_calls" not in normalise([{"role": "assistant", "content": "a", "tool_calls": []}])[0]


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content", "thinking"])
@pytest.mark.parametrize("route", ["vllm", "sglang"])
def test_reasoning_has_many_names(name, route):
    message = {"role": "assistant", "content": "a", name: "why"}
    assert (
        ChatTemplate.compile("{{ messages[0].reasoning_content }}").prompt(Messages([message, USER]), route=route)
        == "why"
    )


def test_vllm_drops_a_billing_line_that_changes_with_each_request():
    header = "x-anthropic-billing-header: cch=1;\nYou are"
    assert normalise([{"role": "system", "content": header}])[0]["content"] == "You are"
    parts = [{"type": "text", "text": "x-anthropic-billing-header: cch=1;"}, {"type": "text", "text": header}, "x"]
    assert normalise([{"role": "system", "content": parts}])[0]["content"] == "You are\nx"
    assert normalise([{"role": "system", "content": header}], route="sglang")[0]["content"] == header
    assert normalise([{"role": "user", "content": header}])[0]["content"] == header


def test_the_developer_is_the_system_where_the_template_does_not_know_one():
    plain = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    chat = [{"role": "developer", "content": "d", "tools": []}, USER]
    template = ChatTemplate.compile(plain)
    assert template.prompt(Messages(chat)) == "[system]d[user]hi"
    assert template.prompt(Messages(chat), route="sglang") == "[developer]d[user]hi"
    late = [{"role": "system", "content": "s"}, USER, {"role": "developer", "content": [{"type": "text", "text": "d"}]}]
    assert template.prompt(Messages(late)) == "[system]s\n\nd[user]hi"
    assert ChatTemplate.compile(plain + "{# 'developer' #}").prompt(Messages(late)).endswith("[developer]d")


def test_sglang_gives_a_final_assistant_message_to_the_user_or_continues_it():
    template = ChatTemplate.compile(
        "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}{% if add_generation_prompt %}>{% endif %}"
    )
    chat = Messages([USER, {"role": "assistant", "content": "It is"}])
    assert template.prompt(chat, route="sglang") == "[user]hi[user]It is>"
    assert template.prompt(chat, route="sglang", params={"continue_final_message": True}) == "[user]hi>It is"
    assert template.prompt(chat, route="vllm") == "[user]hi[assistant]It is>"
    assert template.prompt(chat, route="vllm", params={"continue_final_message": True}) == "[user]hi[assistant]It is"


TOOL = {"type": "function", "function": {"parameters": {}, "name": "f", "extra": 1, "strict": None}, "x": 1}


def test_tools_keep_what_each_engine_keeps():
    (vllm,) = normalise_tools([TOOL])
    assert json.dumps(vllm) == '{"type": "function", "function": {"name": "f", "description": null, "parameters": {}}}'
    (sglang,) = normalise_tools([TOOL], route="sglang")
    assert (
        json.dumps(sglang)
        == '{"type": "function", "function": {"parameters": {}, "name": "f", "description": null}, "defer_loading": null}'
    )
    assert normalise_tools([{"name": "g", "parameters": {}}])[0]["function"]["name"] == "g"


def test_tool_choice_drops_tools_with_sglang():
    other = {"type": "function", "function": {"name": "g"}}
    assert normalise_tools([TOOL, other], route="sglang", choice="none") == []
    named = {"type": "function", "function": {"name": "g"}}
    assert [tool["function"]["name"] for tool in normalise_tools([TOOL, other], route="sglang", choice=named)] == ["g"]
    assert len(normalise_tools([TOOL, other], route="vllm", choice="none")) == 2


def test_sglang_tries_tools_without_their_wrapper_when_the_template_refuses():
    template = ChatTemplate.compile("{{ tools[0].name ~ tools[0].parameters.a.b }}")
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"a": {"b": 1}}}}]
    assert template.prompt(Messages([USER], tools), route="sglang") == "f1"
    with pytest.raises(TemplateRefusedError):
        template.prompt(Messages([USER], tools), route="vllm")


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "text", "function", "name", "arguments", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["role", "content", "tool_calls", "name", "tool_call_id", "reasoning", "tools"]),
            junk,
            max_size=4,
        ),
        max_size=3,
    ),
    st.lists(st.dictionaries(st.sampled_from(["type", "function", "name"]), junk, max_size=3), max_size=2),
    st.sampled_from(["vllm", "sglang"]),
)
def test_any_json_gives_a_prompt_or_a_refusal(messages, tools, route):
    template = ChatTemplate.compile(
        "{% for m in messages %}{{ m.role }}{% for c in m.content %}{{ c.text }}{% endfor %}{% endfor %}{{ tools | tojson }}"
    )
    before = json.dumps([messages, tools])
    with contextlib.suppress(TemplateRefusedError):
        assert isinstance(template.prompt(Messages(messages, tools), route=route), str)
    assert json.dumps([messages, tools]) == before
