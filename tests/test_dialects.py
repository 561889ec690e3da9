"""A cause is the same one in every dialect: found as such, and mended by the same fix."""

import json
import sys
from functools import lru_cache
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import planting
from logcases import RULES, assistant, user
from test_write_fixed import as_anthropic, as_gemini, as_responses

from prefixlint import logs, pipeline
from prefixlint.logrules import _view


def as_ollama(body):
    """Write a body as Ollama has it: no ids of calls, and arguments as objects."""
    messages = []
    for message in body["messages"]:
        kept = {key: value for key, value in message.items() if key not in ("tool_call_id", "tool_calls")}
        functions = [call["function"] for call in message.get("tool_calls") or ()]
        calls = [{"function": {**one, "arguments": json.loads(one["arguments"])}} for one in functions]
        messages.append({**kept, **({"tool_calls": calls} if calls else {})})
    return {**body, "messages": messages, "stream": False, "options": {"num_ctx": 8192}}


DIALECTS = {"anthropic": as_anthropic, "responses": as_responses, "gemini": as_gemini, "ollama": as_ollama}


@lru_cache(maxsize=1)
def chat(code):
    return planting.Planted(11, (code,), 60).bodies()


def analyzed(path, bodies):
    path.write_text("".join(json.dumps(body) + "\n" for body in bodies))
    result = pipeline.analyze([str(path)], pipeline.Options(engines=("sglang",)))
    gained = [w for w in result.what_if if w.family is None]
    return {f.rule.code for f in result.findings}, gained[-1].cached_tokens / gained[-1].prompt_tokens


@pytest.mark.parametrize(
    ("code", "dialect"),
    [
        ("PFX101", "anthropic"),
        ("PFX201", "anthropic"),
        ("PFX303", "anthropic"),
        ("PFX303", "responses"),
        ("PFX303", "ollama"),
        ("PFX304", "responses"),
        ("PFX304", "gemini"),
        ("PFX305", "gemini"),
        ("PFX306", "gemini"),
    ],
)
def test_a_cause_is_found_and_mended_in_each_dialect_as_in_a_chat(code, dialect, tmp_path):
    codes, rate = analyzed(tmp_path / "chat.jsonl", chat(code))
    others, other = analyzed(tmp_path / "other.jsonl", map(DIALECTS[dialect], chat(code)))
    assert codes == others == {code}
    assert other > rate - 0.005


def seen(tmp_path, body):
    (tmp_path / "one.jsonl").write_text(json.dumps(body))
    (request,) = logs.read([str(tmp_path / "one.jsonl")])
    return _view.view(request, 0)


def test_a_question_that_is_a_text_is_a_message_where_it_stands(tmp_path):
    view = seen(tmp_path, {"model": "m", "instructions": RULES, "input": "where is the ferry?"})
    assert [unit.path for unit in view.head] == ["instructions"]
    assert [(message.path, message.said.text) for message in view.messages] == [("input", "where is the ferry?")]
    listed = seen(tmp_path, {"model": "m", "instructions": RULES, "input": [user("where is the ferry?")]})
    assert [message.key for message in listed.messages] == [message.key for message in view.messages]


def test_a_picture_beside_a_text_stays_a_part_of_its_message(tmp_path):
    view = seen(tmp_path, {"model": "m", "prompt": "what is it?", "images": ["aGk="], "stream": False, "options": {}})
    assert [len(message.said.media) for message in view.messages] == [1]


def test_declarations_of_one_element_are_tools_and_those_of_two_are_not_mixed(tmp_path):
    functions = [{"name": name, "description": "does it", "parameters": {"type": "object"}} for name in "abc"]
    asked = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
    view = seen(tmp_path, {**asked, "tools": [{"googleSearch": {}}, {"functionDeclarations": functions}]})
    assert (view.tools_path, view.tool_names) == ("tools[1].functionDeclarations", ("a", "b", "c"))
    view = seen(
        tmp_path, {**asked, "tools": [{"functionDeclarations": functions[:2]}, {"functionDeclarations": functions[2:]}]}
    )
    assert view.tools_path == "tools"


def test_a_message_among_others_gets_its_role_when_its_text_stood_alone(tmp_path):
    rows = []
    for talk in range(6):
        clock = f"It is 2026-03-01 09:{talk:02}:00. " + RULES * 4
        rows.append({"model": "m", "instructions": clock, "input": f"where is ferry {talk}?"})
        items = [user(f"where is ferry {talk}?"), assistant("at sea"), user("and now?")]
        rows.append({"model": "m", "instructions": clock.replace(":00.", ":30."), "input": items})
    path, out = tmp_path / "log.jsonl", tmp_path / "out.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with out.open("wb") as file:
        pipeline.analyze([str(path)], watch=pipeline.Watch(on_fixed=file.write))
    written = [json.loads(line) for line in out.read_text().splitlines()]
    assert written[2]["input"] == "where is ferry 1?\n\nIt is 2026-03-01 09:01:00"
    assert written[3]["input"][0] == user("where is ferry 1?\n\nIt is 2026-03-01 09:01:00")
    assert [item["role"] for item in written[3]["input"]] == ["user", "assistant", "user"]


def test_fixes_are_tried_on_messages_that_a_span_holds_key_by_key(tmp_path):
    rows = []
    for number in range(12):
        said = [("system", f"It is 2026-03-01 09:{number:02}:00. " + RULES * 8), ("user", f"where is ferry {number}?")]
        held = {
            f"llm.input_messages.{n}.message.{key}": value
            for n, pair in enumerate(said)
            for key, value in zip(("role", "content"), pair, strict=True)
        }
        rows.append({
            "name": "ChatCompletion",
            "context": {"trace_id": "0x" + "1" * 32, "span_id": f"0x{number:016x}"},
            "start_time": f"2026-03-01T09:{number:02}:00Z",
            "attributes": {"openinference.span.kind": "LLM", "llm.model_name": "m", **held},
        })  # fmt: skip
    codes, rate = analyzed(tmp_path / "spans.jsonl", rows)
    assert codes == {"PFX101"}
    assert rate > 0.8
