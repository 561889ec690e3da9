"""The core readers beyond the samples: dialects, detection, chains, conversions, second passes."""

import gzip
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixlint.errors import LogRefusedError
from prefixlint.logs import Record, _detect, fetch, new_index, read
from prefixlint.logs import _convert as convert
from prefixlint.logs import _fields as fields
from prefixlint.logs import _items as items
from prefixlint.model import Messages, NoPrompt, Request, Skip, Text, TokenIds, Usage

USER = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
CLAUDE_TOOL = {"name": "f", "input_schema": {"type": "object"}}
TOOL_USE = {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}}]}
TOOL_RESULT = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "ok"}]}


@pytest.fixture
def rows(tmp_path):
    """Read rows, written one a line; gives what came out."""

    def run(*values, **options):
        path = tmp_path / "log"
        path.write_text("\n".join(map(json.dumps, values)) + "\n" + json.dumps(FILLER), "utf-8")
        return [item for item in read([str(path)], **options) if item.line <= len(values)]

    return run


# A last line of another kind, so that one row is never taken for a whole-file document.
FILLER = {"timestamp": 0, "input_length": 5, "hash_ids": [1]}


# -- which format -----------------------------------------------------------------------------------------------------

FORMATS = [
    ("openai-chat", {"model": "gpt-x", "messages": [USER]}),
    ("openai-chat", {"messages": [USER]}),
    ("openai-chat", {"messages": [{"role": "system", "content": "s"}, USER], "temperature": 0}),
    ("openai-chat", {"messages": [USER], "tools": [TOOL], "max_tokens": 5}),
    ("openai-chat", {"messages": [USER], "functions": [{"name": "f"}]}),
    ("openai-chat", {"model": "anthropic/claude-x", "messages": [USER], "max_tokens": 5}),
    ("openai-chat", {"model": "claude-x", "messages": [{"role": "system", "content": "s"}, USER], "max_tokens": 5}),
    ("openai-chat", {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}),
    ("openai-chat", {"messages": [USER, {"role": "assistant", "content": "pre"}], "continue_final_message": True}),
    ("openai-chat", {"model": "m", "messages": [USER, {"role": "assistant", "content": "pre"}]}),
    ("anthropic-messages", {"model": "claude-x", "max_tokens": 5, "messages": [USER]}),
    ("anthropic-messages", {"model": "claude-x", "messages": [USER]}),
    ("anthropic-messages", {"messages": [USER], "system": "s"}),
    ("anthropic-messages", {"messages": [USER], "system": [{"type": "text", "text": "s"}]}),
    ("anthropic-messages", {"messages": [USER], "tools": [CLAUDE_TOOL]}),
    ("anthropic-messages", {"messages": [USER, TOOL_USE, TOOL_RESULT]}),
    ("anthropic-messages", {"anthropic_version": "bedrock-2023-05-31", "messages": [USER], "max_tokens": 5}),
    (
        "anthropic-messages",
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "x", "cache_control": {}}]}]},
    ),
    ("openai-responses", {"model": "m", "input": "hi"}),
    ("openai-responses", {"model": "m", "input": [USER]}),
    (
        "openai-responses",
        {"input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}]},
    ),
    ("openai-responses", {"instructions": "s", "input": "hi"}),
    ("completions", {"model": "m", "prompt": "hi"}),
    ("completions", {"prompt": [1, 2, 3]}),
    ("completions", {"text": "hi", "sampling_params": {"max_new_tokens": 1}}),
    ("completions", {"input_ids": [[1], [2]], "sampling_params": {}}),
    ("hf-messages", {"messages": [USER, {"role": "assistant", "content": "yes"}]}),
    ("hf-messages", {"messages": [USER, {"role": "assistant", "content": "yes"}], "tools": [TOOL], "source": "x"}),
    ("hf-messages", {"prompt": "hi", "completion": "yes"}),
    ("sharegpt", {"conversations": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "yes"}]}),
    ("sharegpt", {"conversations": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}]}),
    ("mooncake", {"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": [1]}),
    ("kvcache-simulator", {"block_size": 16, "hash_ids": ["a"], "input_length": 5}),
    ("ragpulse", {"timestamp": "0", "input_length": 5, "hash_ids": {"sys_prompt": [1], "history": []}}),
    ("usage-rows", {"timestamp": 1740992400, "model": "m", "prompt_tokens": 5, "completion_tokens": 1}),
]


@pytest.mark.parametrize(("name", "body"), FORMATS)
def test_a_format_is_told_by_any_of_its_marks(rows, name, body):
    assert {item.format for item in rows(body)} == {name}


WRAPPED = [
    pair for pair in FORMATS if pair[0] in ("openai-chat", "anthropic-messages", "openai-responses", "completions")
]


@pytest.mark.parametrize("wrap", ["request", "body", "params", "payload", "request_body", "proxy_server_request"])
@pytest.mark.parametrize("as_text", [False, True])
@pytest.mark.parametrize(("name", "body"), WRAPPED[::3])
def test_an_envelope_is_undone_whatever_its_name_and_as_text_too(rows, name, body, wrap, as_text):
    row = {"timestamp": "2025-03-03T09:00:00Z", wrap: json.dumps(body) if as_text else body, "route": "/a", "team": 7}
    found = rows(row)
    assert {item.format for item in found} == {name}
    assert found[0].body == body
    assert found[0].time == 1740992400.0
    assert (found[0].fields["route"], found[0].fields["team"]) == ("/a", "7")


def test_nested_envelopes_and_headers(rows):
    row = {
        "request": {"url": "/v1", "headers": {"openai-organization": "acme"}, "body": json.dumps({"messages": [USER]})},
        "response": {
            "status": 200,
            "body": json.dumps({"choices": [{"message": {"role": "assistant", "content": "yes"}}]}),
        },
        "time": 1740992400123,
    }
    (request,) = rows(row)
    assert request.time == 1740992400.123
    assert request.namespace == ("org=acme",)
    assert request.output.text == "yes"


@pytest.mark.parametrize("flat", [True, False])
def test_what_stands_beside_the_body_is_read_like_what_stands_around_it(rows, flat):
    body = {"model": "m", "messages": [USER]}
    around = {
        "timestamp": 1740992400.25,
        "session_id": "s1",
        "latency_ms": 500,
        "response": {
            "choices": [{"message": {"content": "yes"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 9},
        },
    }
    (request,) = rows(around | body if flat else around | {"request": body})
    assert (request.format, request.time, request.session) == ("openai-chat", 1740992400.25, "s1")
    assert request.latency.total == 0.5
    assert (request.output.text, request.output.finish) == ("yes", "stop")
    assert request.usage == Usage(prompt=9)


@pytest.mark.parametrize("key", ["body", "messages"])
def test_the_response_decides_between_two_apis(rows, key):
    body = {"model": "some-model", "messages": [USER], "max_tokens": 9}
    openai = {"request": body, "response": {"object": "chat.completion", "choices": []}}
    claude = {
        "request": body,
        "response": {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "yes"}]},
    }
    assert [item.format for item in rows(openai, claude, openai)] == [
        "openai-chat",
        "anthropic-messages",
        "openai-chat",
    ]


def test_embeddings_are_no_prompts(rows):
    found = rows({"model": "text-embedding-3", "input": "hi"}, {"model": "m", "input": ["a", "b"]})
    assert [type(item) for item in found] == [Skip, Skip]


# -- what a request carries -------------------------------------------------------------------------------------------


def test_namespace_params_and_fields(rows):
    (request,) = rows(
        {
            "model": "m",
            "messages": [USER],
            "cache_salt": "pepper",
            "lora_request": {"lora_name": "adapter"},
            "chat_template_kwargs": {"enable_thinking": False},
            "extra_body": {"reasoning_effort": "low"},
            "tool_choice": "none",
            "prompt_cache_key": "k1",
            "metadata": {"team": "blue", "n": 3, "long": "x" * 1000, "list": []},
            "safety_identifier": "u9",
        }
    )
    assert request.namespace == ("salt=pepper", "lora=adapter")
    assert dict(request.params) == {
        "chat_template_kwargs": {"enable_thinking": False},
        "tool_choice": "none",
        "reasoning_effort": "low",
    }
    assert request.fields["prompt_cache_key"] == "k1"
    assert {k: v for k, v in request.fields.items() if k.startswith("metadata.")} == {
        "metadata.team": "blue",
        "metadata.n": "3",
    }
    assert request.user == "u9"


def test_the_body_is_given_as_it_was_logged(rows):
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "x", "cache_control": {"a": 1}}]}],
        "system": "s",
    }
    assert rows({"request": body})[0].body == body


# -- OpenAI chat ------------------------------------------------------------------------------------------------------


def test_older_forms_become_todays(rows):
    body = {
        "model": "m",
        "messages": [
            USER,
            {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
            {"role": "function", "name": "f", "content": "ok"},
            {"role": "assistant", "content": "yes", "reasoning": "because"},
            USER,
        ],
        "functions": [{"name": "f", "parameters": {}}],
    }
    (request,) = rows(body)
    messages = request.content.messages
    assert [m["role"] for m in messages] == ["user", "assistant", "tool", "assistant", "user"]
    assert messages[1]["tool_calls"][0]["function"] == {"name": "f", "arguments": "{}"}
    assert messages[3]["reasoning_content"] == "because"
    assert [t["function"]["name"] for t in request.content.tools] == ["f"]
    assert request.body == body


def test_canonical_messages_are_not_copied():
    body = {"messages": [USER], "tools": [TOOL]}
    content = convert.openai_chat(body)
    assert content.messages is body["messages"]
    assert content.tools is body["tools"]


# -- Anthropic --------------------------------------------------------------------------------------------------------


def test_anthropic_blocks_become_messages_in_their_order():
    image = {"type": "image", "source": {"type": "base64", "data": "AA"}}
    body = {
        "system": [
            {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}},
            {"type": "text", "text": "b"},
        ],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "look"}, image]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "x"},
                    {"type": "text", "text": "calling"},
                    {"type": "tool_use", "id": "t1", "name": "f", "input": {"b": 1, "a": 2}},
                    {"type": "tool_use", "id": "t2", "name": "g", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "one"}]},
                    {"type": "tool_result", "tool_use_id": "t2", "content": "two", "is_error": True},
                    {"type": "text", "text": "go on"},
                ],
            },
        ],
        "tools": [
            CLAUDE_TOOL | {"description": "d", "cache_control": {}},
            {"type": "web_search_20250305", "name": "web_search"},
        ],
    }
    content = convert.anthropic(body)
    assert content.messages == [
        {"role": "system", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "user", "content": [{"type": "text", "text": "look"}, image]},
        {
            "role": "assistant",
            "content": "calling",
            "reasoning_content": "hm",
            "tool_calls": [
                {"id": "t1", "type": "function", "function": {"name": "f", "arguments": {"b": 1, "a": 2}}},
                {"id": "t2", "type": "function", "function": {"name": "g", "arguments": {}}},
            ],
        },
        {"role": "tool", "tool_call_id": "t1", "content": "one"},
        {"role": "tool", "tool_call_id": "t2", "content": "two", "is_error": True},
        {"role": "user", "content": "go on"},
    ]
    assert content.tools == [
        {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}},
        {"type": "web_search_20250305", "name": "web_search"},
    ]


# -- Responses --------------------------------------------------------------------------------------------------------


def turn(own, given, said, previous=None, **more):
    request = {"model": "m", "input": given} | ({"previous_response_id": previous} if previous else {}) | more
    output = [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": said}]}]
    return {"request": request, "response": {"id": own, "object": "response", "output": output}}


def said(request):
    return [(m["role"], m["content"]) for m in request.content.messages]


CHAIN = [
    turn("resp_1", "one", "ONE", instructions="first"),
    turn("resp_2", "two", "TWO", previous="resp_1", instructions="second"),
    turn("resp_3", "three", "THREE", previous="resp_2"),
]
WHOLE = [
    [("system", "first"), ("user", "one")],
    [("system", "second"), ("user", "one"), ("assistant", "ONE"), ("user", "two")],
    [("user", "one"), ("assistant", "ONE"), ("user", "two"), ("assistant", "TWO"), ("user", "three")],
]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_a_chain_is_expanded_whatever_the_order_of_the_file(rows, order):
    found = rows(*[CHAIN[n] for n in order])
    assert {item.line: said(item) for item in found} == {place + 1: WHOLE[n] for place, n in enumerate(order)}


def test_two_continuations_of_one_response(rows):
    found = rows(
        CHAIN[0], turn("resp_a", "left", "L", previous="resp_1"), turn("resp_b", "right", "R", previous="resp_1")
    )
    assert said(found[1])[-1] == ("user", "left")
    assert said(found[2]) == [("user", "one"), ("assistant", "ONE"), ("user", "right")]


@pytest.mark.parametrize("conversation", ["conv_1", {"id": "conv_1"}])
def test_a_conversation_collects_its_turns(rows, conversation):
    found = rows(
        turn("r1", "one", "ONE", conversation=conversation), turn("r2", "two", "TWO", conversation=conversation)
    )
    assert said(found[1]) == [("user", "one"), ("assistant", "ONE"), ("user", "two")]
    assert found[1].session == "conv_1"


def test_a_missing_parent_leaves_the_prompt_unknown(rows):
    found = rows(CHAIN[2], CHAIN[1])
    assert [item.content for item in found] == [NoPrompt("missing-parent")] * 2


def test_chains_that_run_in_circles_end(rows):
    found = rows(turn("a", "x", "X", previous="b"), turn("b", "y", "Y", previous="a"))
    assert {item.content for item in found} == {NoPrompt("missing-parent")}


def test_a_template_of_the_provider_is_an_unknown_prompt(rows):
    (request,) = rows({"model": "m", "prompt": {"id": "pmpt_1"}, "input": "hi"})
    assert request.content == NoPrompt("server-side-prompt")


def test_items_of_one_answer_become_one_message():
    found = items.to_messages(
        [
            {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "calling"}]},
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
            {"type": "function_call", "call_id": "c2", "name": "g", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "one"},
            {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "two"}]},
            {"type": "message", "role": "assistant", "content": "done"},
        ]
    )
    assert [m["role"] for m in found] == ["user", "assistant", "tool", "tool", "assistant"]
    assert found[0]["content"] == "ab"
    assert (found[1]["content"], found[1]["reasoning_content"]) == ("calling", "hm")
    assert [call["id"] for call in found[1]["tool_calls"]] == ["c1", "c2"]
    assert [m["content"] for m in found[2:]] == ["one", "two", "done"]


def test_a_response_object_alone_gives_what_was_reported(rows):
    usage = {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 2}
    (request,) = rows({"id": "resp_9", "object": "response", "created_at": 1740992400, "output": [], "usage": usage})
    assert request.usage == Usage(9, 4, None, 2)
    assert isinstance(request.content, NoPrompt)


# -- completions, data sets, batches ----------------------------------------------------------------------------------


def test_parts_of_a_batch_of_prompts_have_their_own_answers(rows):
    response = {
        "choices": [{"index": 1, "text": "B", "finish_reason": "stop"}, {"index": 0, "text": "A"}],
        "usage": {"prompt_tokens": 99},
    }
    found = rows({"request": {"model": "m", "prompt": ["a", [7, 8]]}, "response": response})
    assert [(r.part, r.content, r.output.text, r.usage) for r in found] == [
        (0, Text("a"), "A", None),
        (1, TokenIds([7, 8]), "B", None),
    ]


@pytest.mark.parametrize("prompt", [[1, "a"], [1.5], [-1], [2**32], [[1, "a"]], {}, 5])
def test_prompts_of_no_known_kind_are_skipped(rows, prompt):
    assert isinstance(rows({"model": "m", "prompt": prompt})[0], Skip)


def test_tool_turns_of_data_set_rows(rows):
    call = {
        "role": "assistant",
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    }
    answer = {"role": "assistant", "content": "done"}
    found = rows(
        {
            "id": 5,
            "messages": [USER, call, {"role": "tool", "content": "ok"}, answer, USER],
            "tools": json.dumps([TOOL]),
        },
        log_format="hf-messages",
    )
    assert [len(r.content.messages) for r in found] == [1, 3, 5]
    assert [r.output and r.output.text for r in found] == [None, "done", None]
    assert {r.session for r in found} == {"5"}
    assert found[0].content.tools == [TOOL]


def test_batch_lines_of_every_kind(rows):
    def sent(name, url, body):
        return {"custom_id": name, "method": "POST", "url": url, "body": body}

    found = rows(
        sent("a", "/v1/chat/completions", {"model": "m", "messages": [USER]}),
        sent("b", "/v1/responses", {"model": "m", "input": "hi"}),
        sent("c", "/v1/completions", {"model": "m", "prompt": "hi"}),
        sent("d", "/v1/embeddings", {"model": "text-embedding-3", "input": ["hi"]}),
        {"custom_id": "e", "response": None, "error": {"message": "expired"}},
    )
    assert [getattr(r, "id", r.slug if isinstance(r, Skip) else None) for r in found] == [
        "a",
        "b",
        "c",
        "not-a-prompt",
        "failed-request",
    ]
    assert {r.format for r in found if isinstance(r, Request)} == {"openai-batch"}
    assert [type(r.content) for r in found[:3]] == [Messages, Messages, Text]


# -- usage only -------------------------------------------------------------------------------------------------------


def test_usage_apis_give_a_row_a_result(rows):
    page = {
        "object": "page",
        "data": [
            {
                "object": "bucket",
                "start_time": 1740992400,
                "results": [
                    {
                        "input_tokens": 100,
                        "input_cached_tokens": 60,
                        "output_tokens": 5,
                        "model": "m",
                        "project_id": "p",
                    },
                    {"input_tokens": 10, "input_cached_tokens": 0, "output_tokens": 1, "model": "n"},
                ],
            }
        ],
    }
    found = rows(page)
    assert [(r.usage, r.model, r.time) for r in found] == [
        (Usage(100, 60, None, 5), "m", 1740992400.0),
        (Usage(10, 0, None, 1), "n", 1740992400.0),
    ]
    assert [r.part for r in found] == [0, 1]
    assert found[0].fields["project_id"] == "p"


def test_usage_csv(tmp_path):
    (tmp_path / "u.csv").write_text(
        "usage_date_utc,model_version,usage_input_tokens_no_cache,usage_input_tokens_cache_write_5m,"
        "usage_input_tokens_cache_write_1h,usage_input_tokens_cache_read,usage_output_tokens\n"
        "2025-03-03,claude-x,10,20,0,70,5\n2025-03-04,claude-x,1,0,0,0,5\n"
    )
    found = list(read([str(tmp_path / "u.csv")]))
    assert [r.usage for r in found] == [Usage(100, 70, 20, 5, 0), Usage(1, 0, 0, 5, 0)]
    assert [(r.line, r.format) for r in found] == [(2, "usage-csv"), (3, "usage-csv")]


USAGES = [
    (
        {
            "prompt_tokens": 9,
            "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2},
            "completion_tokens": 1,
        },
        Usage(9, 4, 2, 1),
    ),
    ({"prompt_tokens": 9, "completion_tokens": 1}, Usage(9, None, None, 1)),
    ({"prompt_tokens": 9, "prompt_tokens_details": None}, Usage(9)),
    ({"input_tokens": 9, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 1}, Usage(9, 4, None, 1)),
    (
        {"input_tokens": 2, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 3, "output_tokens": 1},
        Usage(9, 4, 3, 1),
    ),
    (
        {
            "input_tokens": 2,
            "cache_read_input_tokens": 0,
            "cache_creation": {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 4},
        },
        Usage(9, 0, 7, long=4),
    ),
    ({"input_tokens": 2, "output_tokens": 1}, Usage(2, None, None, 1)),
    ({"inputTokens": 2, "cacheReadInputTokens": 4, "cacheWriteInputTokens": 3, "outputTokens": 1}, Usage(9, 4, 3, 1)),
    ({"inputTokenCount": 2, "cacheReadInputTokenCount": 7, "outputTokenCount": 1}, Usage(9, 7, None, 1)),
    (
        {"promptTokenCount": 9, "cachedContentTokenCount": 4, "candidatesTokenCount": 1, "thoughtsTokenCount": 5},
        Usage(9, 4, None, 6),
    ),
    ({"prompt_tokens": 9, "prompt_cache_hit_tokens": 4, "prompt_cache_miss_tokens": 5}, Usage(9, 4)),
    ({"prompt_cache_hit_tokens": 4, "prompt_cache_miss_tokens": 5}, Usage(9, 4)),
    ({"prompt_eval_count": 9, "eval_count": 1}, Usage(9, None, None, 1)),
    ({"prompt_tokens": 9, "cached_tokens": 4}, Usage(9, 4)),
    ({"prompt_tokens": 9, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 3}, Usage(9, 4, 3)),
    ('{"prompt_tokens": "9"}', Usage(9)),
    ({"total_tokens": 9}, None),
    ({"prompt_tokens": -1, "completion_tokens": True}, None),
    ([], None),
    ("nine", None),
]


@pytest.mark.parametrize(("usage", "expected"), USAGES)
def test_usage_of_every_provider(usage, expected):
    assert fields.usage_of(usage) == expected


# -- times ------------------------------------------------------------------------------------------------------------

MOMENT = 1740992400.5
TIMES = [
    MOMENT,
    1740992400500,
    1740992400500000,
    1740992400500000000,
    "1740992400.5",
    "1740992400500",
    "2025-03-03T09:00:00.5Z",
    "2025-03-03T09:00:00.5",
    "2025-03-03 09:00:00.500000 UTC",
    "2025-03-03T09:00:00.500000000Z",
    "2025-03-03 09:00:00.5000000",
    "2025-03-03T10:00:00.5+01:00",
    "2025-03-03T04:00:00.500-0500",
    " 2025-03-03T09:00:00,5Z ",
]


@pytest.mark.parametrize("value", TIMES)
def test_one_moment_in_many_forms(value):
    assert fields.seconds(value) == pytest.approx(MOMENT, abs=1e-5)


@pytest.mark.parametrize(
    "value", ["Mon, 03 Mar 2025 09:00:00 GMT", "03/Mar/2025:09:00:00 +0000", "2025/03/03 09:00:00"]
)
def test_times_to_the_second(value):
    assert fields.seconds(value) == 1740992400.0


@pytest.mark.parametrize(
    "value", [None, True, "", "soon", [], -1, float("nan"), float("inf"), 10**400, "9" * 63, "x" * 9999]
)
def test_what_is_no_time(value):
    assert fields.seconds(value) is None


@given(st.one_of(st.text(), st.integers(), st.floats(), st.dates(), st.datetimes().map(str)))
def test_a_time_is_a_number_of_this_era_or_unknown(value):
    found = fields.seconds(value)
    assert found is None or isinstance(found, float)


# -- answers ----------------------------------------------------------------------------------------------------------


def chunk(delta, **more):
    return {"object": "chat.completion.chunk", "id": "c", "choices": [{"index": 0, "delta": delta, **more}]}


CHUNKS = [
    chunk({"role": "assistant", "content": ""}),
    chunk({"reasoning_content": "h"}),
    chunk({"reasoning_content": "m"}),
    chunk({"content": "ye"}),
    chunk({"content": "s"}),
    chunk({"tool_calls": [{"index": 0, "id": "t", "function": {"name": "f", "arguments": "{"}}]}),
    chunk({"tool_calls": [{"index": 0, "function": {"arguments": "}"}}]}, finish_reason="tool_calls"),
    {"choices": [], "usage": {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 4}}},
]


@pytest.mark.parametrize("form", ["list", "events", "text of list"])
def test_streamed_chat_answers(rows, form):
    held = {
        "list": CHUNKS,
        "events": "".join(f"data: {json.dumps(one)}\n\n" for one in CHUNKS) + "data: [DONE]\n\n",
        "text of list": json.dumps(CHUNKS),
    }[form]
    (request,) = rows({"request": {"model": "m", "messages": [USER]}, "response": held})
    assert (request.output.text, request.output.reasoning, request.output.finish) == ("yes", "hm", "tool_calls")
    assert request.output.tool_calls[0]["function"] == {"name": "f", "arguments": "{}"}
    assert (request.usage.prompt, request.usage.cached) == (9, 4)


def test_streamed_anthropic_answers(rows):
    events = [
        {
            "type": "message_start",
            "message": {
                "id": "m",
                "role": "assistant",
                "content": [],
                "usage": {"input_tokens": 2, "cache_read_input_tokens": 7},
            },
        },
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "yes"}},
        {
            "type": "content_block_start",
            "index": 2,
            "content_block": {"type": "tool_use", "id": "t", "name": "f", "input": {}},
        },
        {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": '{"a":'}},
        {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": "1}"}},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 5}},
    ]
    text = "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events)
    (request,) = rows({"request": {"model": "claude-x", "max_tokens": 5, "messages": [USER]}, "response": text})
    assert request.output.text == "yes"
    assert request.output.reasoning == "hm"
    assert request.output.tool_calls[0]["function"] == {"name": "f", "arguments": {"a": 1}}
    assert request.usage == Usage(9, 7, None, 5)


def test_streamed_responses(rows):
    final = {"type": "response.completed", "response": CHAIN[0]["response"]}
    (request,) = rows({"request": {"model": "m", "input": "hi"}, "response": [{"type": "response.created"}, final]})
    assert request.output.text == "ONE"


# -- bodies inside other formats --------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [{"messages": [USER]}, json.dumps({"messages": [USER]}), [USER], json.dumps([USER])])
def test_guess_body_reads_any_form(body):
    record = Record("p", 3, "json", {}, {}, {"session_id": "s"}, 2)
    (request,) = _detect.guess_body(record, body, name="gateway", envelope={"session_id": "inner"})
    assert (request.format, request.line, request.part, request.session) == ("gateway", 3, 2, "inner")
    assert list(request.content.messages) == [USER]


def test_guess_body_gives_nothing_for_what_is_no_body():
    record = Record("p", 1, "json", {}, {}, {})
    assert [_detect.guess_body(record, body, name="x") for body in (None, "", "hi", 5, {}, {"a": 1}, [])] == [[]] * 7


# -- second passes ----------------------------------------------------------------------------------------------------


def places(found):
    return [(r.path, r.line, r.part) for r in found]


@pytest.fixture
def three_files(tmp_path):
    lines = [json.dumps({"model": "m", "messages": [{"role": "user", "content": f"é{n}"}]}) for n in range(50)]
    data = "\n".join(lines).encode()
    (tmp_path / "a.jsonl").write_bytes(b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n\r\n"))
    (tmp_path / "b.gz").write_bytes(gzip.compress(data))
    (tmp_path / "c.json").write_text(json.dumps([json.loads(line) for line in lines], indent=1))
    (tmp_path / "d.jsonl").write_text(
        json.dumps({"model": "m", "prompt": ["x", "y", "z"]}) + "\n" + json.dumps({"model": "m", "prompt": "w"})
    )
    return [str(tmp_path)]


@pytest.mark.parametrize("with_index", [True, False])
def test_requests_are_found_again(three_files, with_index):
    index = new_index() if with_index else None
    everything = list(read(three_files, index=index))
    wanted = everything[::7]
    again = list(fetch(three_files, places(wanted), index=index))
    assert again == wanted
    assert list(fetch(three_files, [("nowhere", 1, 0)], index=index)) == []


def test_plain_files_are_not_read_whole_a_second_time(tmp_path, monkeypatch):
    path = tmp_path / "log"
    path.write_text(
        "\n".join(json.dumps({"model": "m", "messages": [{"role": "user", "content": "x" * 9999}]}) for _ in range(500))
    )
    index = new_index()
    everything = list(read([str(path)], index=index))
    monkeypatch.setattr("prefixlint.logs._read._fetch_by_streaming", None)
    assert list(fetch([str(path)], [(str(path), 250, 0)], index=index)) == [everything[249]]


def test_standard_input_can_be_read_twice():
    data = b"\n".join(
        json.dumps({"model": "m", "messages": [{"role": "user", "content": str(n)}]}).encode() for n in range(9)
    )
    index = new_index()
    everything = list(read(["-"], stdin=io.BytesIO(data), index=index))
    assert list(fetch(["-"], [("-", 5, 0)], stdin=io.BytesIO(b""), index=index)) == [everything[4]]
    index.close()


def test_progress_counts_bytes_of_the_files(three_files, tmp_path):
    seen = []
    list(read(three_files, on_bytes=lambda done, total: seen.append((done, total))))
    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert {total for _, total in seen} == {size}
    assert seen[-1][0] == size
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_progress_of_a_pipe_has_no_total():
    seen = []
    list(
        read(
            ["-"],
            stdin=io.BytesIO(b'{"model": "m", "prompt": "x"}'),
            on_bytes=lambda done, total: seen.append((done, total)),
        )
    )
    assert seen == [(29, None)]


# -- plain prompts ----------------------------------------------------------------------------------------------------


def test_plain_prompts(tmp_path):
    (tmp_path / "p.txt").write_text('You are a bot.\\nHi\n"a JSON\\tstring \\u00e9"\n\n{not json\nC:\\\\new\n')
    found = list(read([str(tmp_path / "p.txt")]))
    assert [r.content.text for r in found] == ["You are a bot.\nHi", "a JSON\tstring é", "{not json", "C:\\new"]
    assert [r.line for r in found] == [1, 2, 4, 5]


@pytest.mark.parametrize(
    "line",
    [
        "# HELP vllm:x Number of things.",
        'vllm:x{engine="0"} 1.5e-3',
        "2025-03-03 09:00:00 started",
        '  "key": 5,',
        "}",
        "INFO: up",
    ],
)
def test_text_that_is_no_prompt_is_not_taken_for_one(tmp_path, line):
    (tmp_path / "p.txt").write_text((line + "\n") * 5 + "one other line\n")
    with pytest.raises(LogRefusedError):
        list(read([str(tmp_path / "p.txt")]))


def test_json_objects_among_plain_prompts_are_prompts_too(tmp_path):
    (tmp_path / "p.txt").write_text('Say hi.\nSay ho.\nSay hu.\n{"a":  1}\n')
    assert [r.content.text for r in read([str(tmp_path / "p.txt")])][-1] == '{"a":  1}'


def test_prompts_that_are_json_objects_can_be_forced(tmp_path):
    (tmp_path / "p.txt").write_text('{"a":  1}\n[1,\n{"b": 2\n')
    assert [r.content.text for r in read([str(tmp_path / "p.txt")], log_format="plain")] == [
        '{"a":  1}',
        "[1,",
        '{"b": 2',
    ]


# -- many different records -------------------------------------------------------------------------------------------


def test_keys_that_differ_from_line_to_line(rows):
    found = rows(*[{f"k{n}": n, "request": {"model": "m", "messages": [USER]}} for n in range(600)])
    assert {item.format for item in found} == {"openai-chat"}
    assert len(found) == 600


def test_records_that_nobody_reads_do_not_hide_those_of_the_same_file(rows):
    noise = {"height": 5, "colour": "green"}
    found = rows(*[noise] * 300, {"model": "m", "messages": [USER]}, *[noise] * 3)
    assert [item.line for item in found if isinstance(item, Request)] == [301]
    assert sum(isinstance(item, Skip) for item in found) == 303


def test_runs_of_agents_are_data_set_rows(rows):
    run = [{"role": "system", "content": "s"}, USER, {"role": "assistant", "content": "yes"}]
    (request,) = rows({"task_id": 0, "reward": 1.0, "traj": run})
    assert (request.format, request.output.text) == ("hf-messages", "yes")


@pytest.mark.parametrize("last", [USER, {"role": "tool", "tool_call_id": "c", "content": "done"}])
def test_runs_of_agents_may_end_with_any_turn(tmp_path, rows, last):
    run = [{"role": "system", "content": "s"}, USER, {"role": "assistant", "content": "yes"}, last]
    found = rows({"task_id": 0, "reward": 1.0, "info": {}, "traj": run, "trial": 0})
    assert [(len(r.content.messages), r.output and r.output.text) for r in found] == [(2, "yes"), (4, None)]
    # tau-bench writes all runs as one JSON list
    (tmp_path / "runs.json").write_text(json.dumps([{"task_id": n, "traj": run} for n in range(3)], indent=2))
    assert len(list(read([str(tmp_path / "runs.json")]))) == 6


# -- how exports write bodies -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", [None, "request", "input"])
def test_columns_of_tables_hold_json_as_text(rows, wrap):
    row = {"model": "m", "messages": json.dumps([USER]), "tools": json.dumps([TOOL])}
    (request,) = rows({wrap: row} if wrap else row)
    assert request.format == "openai-chat"
    assert list(request.content.messages) == [USER]
    assert list(request.content.tools) == [TOOL]


def test_the_time_of_the_request_wins_over_that_of_the_line(rows):
    row = {"timestamp": 1740992409, "start_time": 1740992400, "end_time": 1740992402, "request": {"messages": [USER]}}
    (request,) = rows(row)
    assert request.time == 1740992400.0
    assert request.latency.total == 2.0


@pytest.mark.parametrize("between", ["", " "])
def test_objects_without_line_ends(tmp_path, between):
    body = json.dumps({"model": "m", "messages": [USER]})
    (tmp_path / "one").write_text(between.join([body] * 3))
    assert [(r.line, r.part) for r in read([str(tmp_path / "one")])] == [(1, 0), (2, 0), (3, 0)]
    (tmp_path / "two").write_text(between.join([body] * 3) + "\n" + body * 2)
    assert [(r.line, r.part) for r in read([str(tmp_path / "two")])] == [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1)]


def test_lines_that_end_in_commas(tmp_path):
    body = json.dumps({"model": "m", "messages": [USER]})
    (tmp_path / "log").write_text(f"{body},\n{body},\n{body}\n")
    assert [r.line for r in read([str(tmp_path / "log")])] == [1, 2, 3]


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_delimiters_of_csv(tmp_path, delimiter):
    lines = [["timestamp", "prompt_tokens", "cached_tokens"], ["2025-03-03T09:00:00Z", "9", "4"]]
    (tmp_path / "log").write_text("\n".join(delimiter.join(line) for line in lines) + "\n")
    (request,) = read([str(tmp_path / "log")])
    assert (request.usage, request.time) == (Usage(9, 4), 1740992400.0)


def test_lists_and_joined_objects_are_found_again(tmp_path):
    bodies = [{"model": "m", "messages": [{"role": "user", "content": str(n)}]} for n in range(4)]
    (tmp_path / "list.json").write_text(json.dumps(bodies))
    (tmp_path / "lists.jsonl").write_text(json.dumps(bodies[:2]) + "\n" + json.dumps(bodies[2:]))
    (tmp_path / "joined.jsonl").write_text("".join(map(json.dumps, bodies[:2])) + "\n" + json.dumps(bodies[2]))
    index = new_index()
    everything = list(read([str(tmp_path)], index=index))
    assert len(everything) == 11
    for request in everything:
        assert list(fetch([str(tmp_path)], places([request]), index=index)) == [request]


@pytest.mark.parametrize(
    ("user", "session"),
    [
        ("user_abc_account__session_1f2e", "1f2e"),
        (json.dumps({"device_id": "abc", "session_id": "1f2e"}), "1f2e"),
        ("u-17", None),
        ("_session_", None),
        ('{"device_id": 5}', None),
    ],
)
def test_claude_codes_session_stands_in_the_user(rows, user, session):
    (request,) = rows({"model": "claude-x", "max_tokens": 5, "messages": [USER], "metadata": {"user_id": user}})
    assert (request.session, request.user) == (session, user)
