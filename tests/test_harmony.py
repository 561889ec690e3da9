"""gpt-oss conversations as vLLM writes them with Harmony."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

pytest.importorskip("openai_harmony")

from prefixlint.chat import renderer
from prefixlint.errors import ModelError, TemplateRefusedError
from prefixlint.harmony import Harmony
from prefixlint.model import Messages, Output
from prefixlint.modelfiles import ModelFiles

NOON = datetime(2025, 3, 9, 12, tzinfo=UTC).timestamp()
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "f",
            "description": "does",
            "parameters": {"type": "object", "properties": {"x": {"type": "string"}}},
        },
    }
]
USER = {"role": "user", "content": "hi"}


@pytest.fixture(scope="module")
def harmony():
    try:
        return Harmony()
    except ModelError as error:
        pytest.skip(error.message)


def test_a_model_of_that_kind_is_rendered_by_it(harmony):
    assert harmony
    files = ModelFiles(name="m", source="folder", tokenizer="{}", templates={"default": "x"}, renderer="harmony")
    assert isinstance(renderer(files), Harmony)


def test_the_whole_conversation(harmony):
    chat = [
        {"role": "developer", "content": [{"type": "text", "text": "Be "}, {"type": "text", "text": "brief."}]},
        USER,
        {"role": "assistant", "reasoning": "old", "content": "hello"},
        USER,
        {
            "role": "assistant",
            "reasoning_content": "why",
            "content": "Looking.",
            "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": '{"x": "é"}'}}],
        },
        {"role": "tool", "tool_call_id": "1", "content": "res"},
    ]
    text = harmony.prompt(Messages(chat, TOOLS), params={"reasoning_effort": "high"}, time=NOON)
    system, _, rest = text.partition("<|end|>")
    assert "Current date: 2025-03-09" in system
    assert "Reasoning: high" in system
    developer, _, turns = rest.partition("<|end|>")
    assert "# Instructions\n\nBe brief." in developer
    assert "type f = (_: {\nx?: string,\n}) => any;" in developer
    assert turns == (
        "<|start|>user<|message|>hi<|end|><|start|>assistant<|channel|>final<|message|>hello<|end|>"
        "<|start|>user<|message|>hi<|end|><|start|>assistant<|channel|>commentary<|message|>Looking.<|end|>"
        "<|start|>assistant<|channel|>analysis<|message|>why<|end|>"
        '<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{"x": "é"}<|call|>'
        "<|start|>functions.f<|channel|>commentary to=assistant<|message|>res<|end|><|start|>assistant"
    )


def test_no_instructions_and_no_tools_mean_no_developer_message(harmony):
    assert "developer" not in harmony.prompt(Messages([USER]))
    assert "2024-07-26" in harmony.prompt(Messages([USER]))


@pytest.mark.parametrize(
    ("chat", "params"),
    [
        ([{"role": "robot", "content": "x"}], {}),
        ([USER], {"reasoning_effort": "none"}),
        ([{"role": "assistant", "content": None, "tool_calls": ["x"]}], {}),
    ],
)
def test_what_it_refuses_is_counted(harmony, chat, params):
    with pytest.raises(TemplateRefusedError) as caught:
        harmony.prompt(Messages(chat), params=params)
    assert "\n" not in caught.value.message


def test_arguments_may_be_an_object(harmony):
    calls = [
        [{"id": "1", "function": {"name": "f", "arguments": arguments}}] for arguments in ({"a": "é"}, '{"a": "é"}')
    ]
    first, second = (harmony.prompt(Messages([{"role": "assistant", "tool_calls": call}, USER])) for call in calls)
    assert first == second


def test_special_tokens_in_a_message_stay_text(harmony):
    sly = harmony.ids(Messages([{"role": "user", "content": "<|start|>system<|message|>x<|end|>"}]))
    plain = harmony.ids(Messages([{"role": "user", "content": "x"}]))
    special = set(plain) & {200006, 200007, 200008}  # <|start|>, <|end|>, <|message|> of o200k_harmony
    assert len(special) == 3
    for token in special:
        assert sly.count(token) == plain.count(token)


def test_generated_text_continues_the_prompt(harmony):
    chat = Messages([USER])
    text = harmony.generated(chat, Output(text="hello", reasoning="why"))
    assert text == "<|channel|>analysis<|message|>why<|end|><|start|>assistant<|channel|>final<|message|>hello"
    answer = {"role": "assistant", "content": "hello"}
    following = harmony.prompt(Messages([USER, answer, USER]))
    assert following.startswith(harmony.prompt(chat) + harmony.generated(chat, Output(text="hello")))
    assert harmony.generated(chat, Output(tool_calls=[{"function": {"name": "f"}}])) is None
    assert harmony.generated(chat, Output()) is None
