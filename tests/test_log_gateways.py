"""Gateway, provider and tracer logs: their traps, and the same requests in other spellings, wrappings and encodings."""

import base64
import csv
import io
import json
from pathlib import Path

import pytest

from prefixlint.logs import read
from prefixlint.model import Messages, NoPrompt, Request, Skip, Text

SAMPLES = Path(__file__).parent.parent / "fixtures" / "logs" / "samples"
SYSTEM = "You are the desk clerk of the Harbour Street library. Answer briefly, name the shelf, and never guess a call number."
LICHENS = "Do you hold a field guide to coastal lichens?"


def lines(name):
    return [json.loads(line) for line in (SAMPLES / name).read_text("utf-8").splitlines()]


@pytest.fixture
def load(tmp_path):
    """Write values as JSON lines (or text as it is) and read them."""

    def load(*values, text=None, **options):
        path = tmp_path / "log"
        path.write_text("\n".join(json.dumps(v) for v in values) + "\n" if text is None else text, "utf-8")
        return list(read([str(path)], **options))

    return load


def same_prompts(found, name):
    """The requests hold the prompts that the sample holds."""
    canonical = [r.content for r in read([str(SAMPLES / name)]) if isinstance(r, Request)]
    assert all(isinstance(r, Request) for r in found), found
    assert [r.content for r in found] == canonical


def snake(value):
    """Spell keys as Python clients do: `systemInstruction` becomes `system_instruction`."""
    if isinstance(value, dict):
        return {"".join(f"_{c.lower()}" if c.isupper() else c for c in k): snake(v) for k, v in value.items()}
    return [snake(v) for v in value] if isinstance(value, list) else value


# --- Gemini


def test_gemini_in_snake_case(load):
    bodies = lines("gemini_bodies.jsonl")
    for body in bodies:  # the schema of a tool is data, its keys stay
        for tool in body["tools"]:
            tool["function_declarations"] = tool.pop("functionDeclarations")
        body["system_instruction"] = body.pop("systemInstruction")
        body["contents"] = snake(body["contents"])
        body["generation_config"] = body.pop("generationConfig")
    same_prompts(load(*bodies), "gemini_bodies.jsonl")


def test_gemini_as_the_python_client_calls_it(load):
    body = lines("gemini_bodies.jsonl")[0]
    call = {
        "model": "gemini-2.5-pro",
        "contents": LICHENS,
        "config": {"system_instruction": SYSTEM, "tools": body["tools"]},
    }
    (found,) = load(call)
    assert found.model == "gemini-2.5-pro"
    assert found.content.messages == [{"role": "system", "content": SYSTEM}, {"role": "user", "content": LICHENS}]
    assert [tool["function"]["name"] for tool in found.content.tools] == ["find_book"]


def test_gemini_calls_get_the_same_ids_in_every_turn(load):
    found = load(*lines("gemini_bodies.jsonl"))
    short, long = found[1].content.messages, found[3].content.messages
    assert long[: len(short)] == short
    assert short[2]["tool_calls"][0]["id"] == short[3]["tool_call_id"]


def test_gemini_parallel_calls_are_answered_by_name(load):
    turns = [
        {"role": "user", "parts": [{"text": "both"}]},
        {"role": "model", "parts": [{"functionCall": {"name": n, "args": {"n": n}}} for n in ("a", "b", "a")]},
        {"role": "user", "parts": [{"functionResponse": {"name": n, "response": {"r": n}}} for n in ("b", "a", "a")]},
    ]
    (found,) = load({"contents": turns})
    calls = [call["id"] for call in found.content.messages[1]["tool_calls"]]
    answered = [m["tool_call_id"] for m in found.content.messages[2:]]
    assert answered == [calls[1], calls[0], calls[2]]


def test_gemini_stream_is_merged(load):
    chunks = [
        {"candidates": [{"content": {"parts": [{"text": "It "}], "role": "model"}}], "modelVersion": "gemini-3-pro"},
        {
            "candidates": [{"content": {"parts": [{"text": "opens."}]}, "finishReason": "STOP"}],
            "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 2, "thoughtsTokenCount": 5},
        },
    ]
    (found,) = load({"request": {"contents": [{"parts": [{"text": "When?"}]}]}, "response": chunks})
    assert found.output.text == "It opens."
    assert (found.model, found.usage.prompt, found.usage.cached, found.usage.completion) == ("gemini-3-pro", 9, None, 7)


def test_gemini_thoughts_and_images(load):
    parts = [{"text": "hm", "thought": True}, {"text": "seen"}]
    image = {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}
    (found,) = load({"contents": [{"parts": [image, {"text": "what?"}]}, {"role": "model", "parts": parts}]})
    user, model = found.content.messages
    assert user["content"][0] == {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    assert (model["reasoning_content"], model["content"]) == ("hm", "seen")


def test_gemini_cached_content_is_named(load):
    (found,) = load({"contents": [{"parts": [{"text": "and?"}]}], "cachedContent": "cachedContents/abc"})
    assert found.content.missing == "cached-content"
    assert found.namespace == ("cached_content=cachedContents/abc",)


def test_gemini_batch_output_is_usage_only(load):
    answers = [{"key": p["response"]["responseId"], "response": p["response"]} for p in lines("gemini_pairs.jsonl")]
    found = load(*answers)
    assert [r.id for r in found] == ["r1", "r2", "r3", "r4"]
    assert {r.content for r in found} == {NoPrompt("no-body")}
    assert [r.usage.cached for r in found] == [0, 208, 160, 272]


def test_vertex_request_response_logging(load):
    rows = [
        {
            "logging_time": pair["timestamp"],
            "model": pair["model"],
            "full_request": json.dumps(pair["request"]),
            "full_response": json.dumps(pair["response"]),
        }
        for pair in lines("gemini_pairs.jsonl")
    ]
    found = load(*rows)
    same_prompts(found, "gemini_pairs.jsonl")
    assert [r.time for r in found] == [r.time for r in read([str(SAMPLES / "gemini_pairs.jsonl")])]
    assert [r.usage.prompt for r in found] == [212, 268, 209, 301]


# --- Bedrock


def converse_pair(body, answer):
    return {"timestamp": "2025-03-03T09:00:00Z", "request": body, "response": answer}


def test_converse_pair_with_stream(load):
    events = [
        {"messageStart": {"role": "assistant"}},
        {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": "One "}}},
        {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": "moment."}}},
        {"contentBlockStart": {"contentBlockIndex": 1, "start": {"toolUse": {"toolUseId": "t1", "name": "find_book"}}}},
        {"contentBlockDelta": {"contentBlockIndex": 1, "delta": {"toolUse": {"input": '{"title":'}}}},
        {"contentBlockDelta": {"contentBlockIndex": 1, "delta": {"toolUse": {"input": ' "x"}'}}}},
        {"messageStop": {"stopReason": "tool_use"}},
        {
            "metadata": {
                "usage": {"inputTokens": 10, "outputTokens": 4, "cacheReadInputTokens": 90},
                "metrics": {"latencyMs": 321},
            }
        },
    ]
    (found,) = load(converse_pair(lines("bedrock_converse_bodies.jsonl")[0], events))
    assert found.output.text == "One moment."
    assert found.output.tool_calls[0]["function"] == {"name": "find_book", "arguments": {"title": "x"}}
    assert (found.usage.prompt, found.usage.cached, found.usage.completion) == (100, 90, 4)
    assert found.latency.total == pytest.approx(0.321)
    assert found.output.finish == "tool_use"


def test_converse_with_strings_for_blocks(load):
    body = {"modelId": "amazon.nova-lite-v1:0", "system": SYSTEM, "messages": [{"role": "user", "content": LICHENS}]}
    (found,) = load(body | {"inferenceConfig": {"maxTokens": 9}})
    assert found.format == "bedrock-converse"
    assert found.content.messages == [{"role": "system", "content": SYSTEM}, {"role": "user", "content": LICHENS}]


def test_converse_in_snake_case(load):
    def respell(value):
        if isinstance(value, dict):
            return {
                k if k in ("input", "json") else next(iter(snake({k: 0}))): v if k in ("input", "json") else respell(v)
                for k, v in value.items()
            }
        return [respell(v) for v in value] if isinstance(value, list) else value

    same_prompts(load(*map(respell, lines("bedrock_converse_bodies.jsonl"))), "bedrock_converse_bodies.jsonl")


def test_converse_cache_points_are_no_content(load):
    found = load(*lines("bedrock_converse_bodies.jsonl"))
    assert all("cachePoint" not in json.dumps([r.content.messages, r.content.tools]) for r in found)


@pytest.mark.parametrize("wrap", ["string", "message", "@message", "events", "arn"])
def test_invocation_log_wrappings(load, wrap):
    logs = lines("bedrock_invocation_log_converse.jsonl")
    for log in logs:
        if wrap == "string":
            log["input"]["inputBodyJson"] = json.dumps(log["input"]["inputBodyJson"])
            log["output"]["outputBodyJson"] = json.dumps(log["output"]["outputBodyJson"])
        if wrap == "arn":
            log["modelId"] = f"arn:aws:bedrock:eu-west-1:111122223333:inference-profile/{log['modelId']}"
    if wrap in ("message", "@message"):
        logs = [{"@timestamp": "x", wrap: json.dumps(log)} for log in logs]
    if wrap == "events":
        logs = [
            {"logGroup": "g", "logEvents": [{"id": "1", "timestamp": 1, "message": json.dumps(log)} for log in logs]}
        ]
    found = load(*logs)
    same_prompts(found, "bedrock_invocation_log_converse.jsonl")
    assert [r.usage.prompt for r in found] == [212, 268, 209, 301]
    assert {r.model for r in found} == {"us.anthropic.claude-sonnet-4-5-20250929-v1:0"}
    assert {r.user for r in found} == {"u-17", "u-22"}


def invocation(operation, body, answer, **given):
    return {
        "schemaType": "ModelInvocationLog",
        "timestamp": "2025-03-03T09:00:00Z",
        "operation": operation,
        "modelId": "anthropic.claude-sonnet-4",
        "requestId": "q",
        "input": {"inputBodyJson": body, **given},
        "output": {"outputBodyJson": answer, "outputTokenCount": 5},
    }


def test_invoke_model_with_an_anthropic_body_and_a_stream(load):
    body = {k: v for k, v in lines("anthropic_batch_requests.jsonl")[1]["params"].items() if k != "model"}
    chunks = [
        {
            "type": "message_start",
            "message": {"id": "m", "role": "assistant", "usage": {"input_tokens": 60, "cache_read_input_tokens": 208}},
        },
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Yes."}},
        {
            "type": "message_stop",
            "amazon-bedrock-invocationMetrics": {"invocationLatency": 660, "firstByteLatency": 120},
        },
    ]
    (found,) = load(
        invocation("InvokeModelWithResponseStream", body | {"anthropic_version": "bedrock-2023-05-31"}, chunks)
    )
    assert found.format == "bedrock-invocation"
    assert [m["role"] for m in found.content.messages] == ["system", "user", "assistant", "tool"]
    assert found.output.text == "Yes."
    assert (found.usage.prompt, found.usage.cached) == (268, 208)
    assert (found.latency.total, found.latency.ttft) == (0.66, 0.12)


@pytest.mark.parametrize(
    ("body", "prompt"), [({"prompt": "<s>hi"}, "<s>hi"), ({"inputText": "hi", "textGenerationConfig": {}}, "hi")]
)
def test_invoke_model_with_plain_text(load, body, prompt):
    (found,) = load(invocation("InvokeModel", body, {"generation": "x"}, inputTokenCount=3))
    assert isinstance(found.content, Text)
    assert found.content.text == prompt


def test_invoke_model_counters_stand_in_for_an_answer_without_usage(load):
    (found,) = load(invocation("InvokeModel", {"prompt": "hi"}, {"generation": "x"}, inputTokenCount=3))
    assert (found.usage.prompt, found.usage.cached, found.usage.completion) == (3, None, 5)


def test_invocation_log_without_a_body_keeps_its_counters(load):
    log = invocation(
        "Converse", None, None, inputTokenCount=10, cacheReadInputTokenCount=80, cacheWriteInputTokenCount=10
    )
    log["input"].pop("inputBodyJson")
    (found,) = load(log)
    assert found.content == NoPrompt("bedrock-no-body")
    assert (found.usage.prompt, found.usage.cached, found.usage.written, found.usage.completion) == (100, 80, 10, 5)
    log["input"]["inputBodyS3Path"] = "s3://bucket/key"
    assert load(log)[0].content == NoPrompt("bedrock-body-in-s3")


def test_embeddings_are_no_requests(load):
    log = invocation("InvokeModel", {"inputText": "embed me"}, {"embedding": [0.1]}) | {
        "modelId": "amazon.titan-embed-text-v2:0"
    }
    found = load(invocation("InvokeModel", {"prompt": "hi"}, None), log)
    assert [type(r) for r in found] == [Request, Skip]
    assert found[1].slug == "not-a-request"


# --- Anthropic batches


def test_batch_creation_body_is_taken_apart(load):
    same_prompts(load({"requests": lines("anthropic_batch_requests.jsonl")}), "anthropic_batch_requests.jsonl")


def test_failed_batch_results_are_named(load):
    failed = {"custom_id": "x", "result": {"type": "errored", "error": {"type": "invalid_request"}}}
    found = load(failed, *lines("anthropic_batch_results.jsonl"))
    assert found[0].slug == "failed-request"
    assert len(found) == 5


# --- LiteLLM


def payload(**changes):
    return lines("litellm_standard_logging.jsonl")[1] | changes


def test_litellm_messages_as_a_json_string(load):
    rows = [
        row | {"messages": json.dumps(row["messages"]), "model_parameters": json.dumps(row["model_parameters"])}
        for row in lines("litellm_standard_logging.jsonl")
    ]
    same_prompts(load(*rows), "litellm_standard_logging.jsonl")


def test_litellm_payload_inside_callback_arguments(load):
    same_prompts(
        load(*({"model": "m", "standard_logging_object": row} for row in lines("litellm_standard_logging.jsonl"))),
        "litellm_standard_logging.jsonl",
    )


@pytest.mark.parametrize("messages", ["redacted-by-litellm", [{"role": "user", "content": "redacted-by-litellm"}]])
def test_litellm_redacted_messages_leave_the_usage(load, messages):
    (found,) = load(payload(messages=messages))
    assert found.content == NoPrompt("litellm-redacted")
    assert found.usage.cached == 208


@pytest.mark.parametrize(
    ("changes", "slug"),
    [
        ({"cache_hit": True}, "gateway-cache"),
        ({"call_type": "aembedding"}, "not-a-request"),
        ({"status": "failure"}, "failed-request"),
    ],
)
def test_litellm_calls_that_met_no_prompt(load, changes, slug):
    found = load(payload(), payload(**changes))
    assert (type(found[0]), found[1].slug) == (Request, slug)


def test_litellm_without_cache_details_does_not_invent_zero(load):
    row = payload()
    row["response"] = {"id": "x", "choices": []}
    (found,) = load(row)
    assert found.usage is None or found.usage.cached is None


def test_litellm_unstreamed_first_token_time_is_no_ttft(load):
    row = payload()
    (found,) = load(row | {"completionStartTime": row["endTime"]})
    assert found.latency.ttft is None


def test_litellm_anthropic_usage_includes_the_cache(load):
    usage = {
        "prompt_tokens": 268,
        "completion_tokens": 19,
        "cache_read_input_tokens": 208,
        "cache_creation_input_tokens": 40,
    }
    row = payload(custom_llm_provider="anthropic")
    row["response"]["usage"] = usage
    (found,) = load(row)
    assert (found.usage.prompt, found.usage.cached, found.usage.written) == (268, 208, 40)


def spend(row, **changes):
    """The row of the spend table for a call in the sample."""
    body = {"model": row["model_group"], "messages": row["messages"], **row["model_parameters"]}
    made = {
        "request_id": row["id"],
        "call_type": row["call_type"],
        "api_key": "88dc28d0f030c55ed4ab77ed8faf098196cb1c05df778539800c9f1243fe6b4b",
        "spend": 0.0001,
        "total_tokens": row["total_tokens"],
        "prompt_tokens": row["prompt_tokens"],
        "completion_tokens": row["completion_tokens"],
        "startTime": {1740992400.0: "2025-03-03T09:00:00.000Z"}.get(row["startTime"], "2025-03-03T09:00:04.200Z"),
        "request_duration_ms": round(row["response_time"] * 1000),
        "model": row["model"],
        "metadata": json.dumps({"usage_object": row["response"]["usage"], "user_api_key_alias": "desk"}),
        "cache_hit": "False",
        "end_user": row["end_user"],
        "session_id": row["session_id"],
        "messages": {},
        "response": {},
        "proxy_server_request": json.dumps(body),
    }
    return made | changes


def test_spend_logs_with_prompts(load):
    rows = lines("litellm_standard_logging.jsonl")
    found = load(*map(spend, rows))
    assert {r.format for r in found} == {"litellm-spend"}
    same_prompts(found, "litellm_standard_logging.jsonl")
    assert [(r.usage.prompt, r.usage.cached) for r in found] == [(212, 0), (268, 208), (209, 160), (301, 272)]
    assert (found[0].time, found[0].session, found[0].user) == (1740992400.0, "s-alder", "u-17")
    assert found[0].latency.total == 0.84
    assert found[0].fields["key"] == "desk"


@pytest.mark.parametrize("page", [False, True])
def test_spend_logs_without_prompts(load, page):
    rows = [spend(row, proxy_server_request="{}") for row in lines("litellm_standard_logging.jsonl")]
    found = load({"data": rows, "total": 4}) if page else load(*rows)
    assert {r.content for r in found} == {NoPrompt("litellm-spend-without-prompts")}
    assert [r.usage.cached for r in found] == [0, 208, 160, 272]


def test_spend_logs_as_one_document(load):
    rows = [spend(row) for row in lines("litellm_standard_logging.jsonl")]
    found = load(text=json.dumps(rows, indent=1))
    assert [r.line for r in found] == [1, 2, 3, 4]
    same_prompts(found, "litellm_standard_logging.jsonl")


def test_spend_logs_without_the_caches_part_say_unknown(load):
    (found,) = load(spend(payload(), metadata="{}", proxy_server_request="{}"))
    assert (found.usage.prompt, found.usage.cached) == (268, None)


# --- Langfuse


def observations():
    return json.loads((SAMPLES / "langfuse_observations_api.json").read_text("utf-8"))["data"]


def blob(row):
    """The same observation as the blob-storage export writes it."""
    return {
        "id": row["id"],
        "trace_id": row["traceId"],
        "type": row["type"],
        "start_time": row["startTime"].replace("T", " ").replace("Z", "000"),
        "end_time": row["endTime"].replace("T", " ").replace("Z", "000"),
        "completion_start_time": row["completionStartTime"].replace("T", " ").replace("Z", "000"),
        "provided_model_name": row["model"],
        "session_id": row["sessionId"],
        "user_id": row["userId"],
        "input": json.dumps(row["input"]),
        "output": json.dumps(row["output"]),
        "usage_details": row["usageDetails"],
        "latency": row["latency"],
    }


@pytest.mark.parametrize("form", ["lines", "blob", "trace", "list", "milliseconds"])
def test_langfuse_exports(load, form):
    rows = observations()
    if form == "blob":
        rows = [blob(row) for row in rows]
    if form == "milliseconds":
        rows = [row | {"latency": row["latency"] * 1000} for row in rows]
    if form == "list":
        found = load(text=json.dumps(rows, indent=2))
    elif form == "trace":
        bare = [{k: v for k, v in row.items() if k not in ("sessionId", "userId")} for row in rows]
        found = load(
            *(
                {"id": r["traceId"], "sessionId": r["sessionId"], "userId": r["userId"], "observations": [b]}
                for r, b in zip(rows, bare, strict=True)
            )
        )
    else:
        found = load(*rows)
    same_prompts(found, "langfuse_observations_api.json")
    assert [r.time for r in found] == [1740992400.0, 1740992404.2, 1740992431.0, 1740992475.5]
    assert [r.session for r in found] == ["s-alder", "s-alder", "s-birch", "s-alder"]
    assert [r.latency.total for r in found] == pytest.approx([0.84, 0.66, 0.55, 0.49])
    assert [r.latency.ttft for r in found] == pytest.approx([0.31, 0.12, 0.15, 0.1])
    assert [(r.usage.prompt, r.usage.cached) for r in found] == [(212, 0), (268, 208), (209, 160), (301, 272)]


@pytest.mark.parametrize(
    ("details", "prompt", "cached"),
    [
        ({"input": 60, "input_cached_tokens": 208, "output": 19, "total": 287}, 268, 208),
        ({"input": 268, "input_cached_tokens": 208, "output": 19, "total": 287}, 268, 208),
        ({"input": 60, "cache_read_input_tokens": 208, "output": 19}, 268, 208),
        ({"input": 268, "cache_read_input_tokens": 208, "output": 19}, None, 208),
        ({"input": 268, "output": 19}, 268, None),
        ({"input": 268, "output": 19, "output_reasoning_tokens": 7, "total": 294}, 268, None),
        ({"output": 19}, None, None),
    ],
)
def test_langfuse_prompt_is_what_the_total_confirms(load, details, prompt, cached):
    (found,) = load(observations()[1] | {"usageDetails": details})
    assert (found.usage.prompt, found.usage.cached) == (prompt, cached)


def test_langfuse_tools_among_the_messages(load):
    row = observations()[0]
    row["input"] = [*row["input"]["messages"], {"role": "tool", "content": row["input"]["tools"][0]}]
    (found,) = load(row)
    assert [m["role"] for m in found.content.messages] == ["system", "user"]
    assert [tool["function"]["name"] for tool in found.content.tools] == ["find_book"]


def test_langfuse_other_observations_and_empty_inputs(load):
    span = observations()[0] | {"type": "SPAN"}
    empty = observations()[1] | {"input": None}
    found = load(span, empty)
    assert found[0].slug == "not-a-request"
    assert (found[1].content, found[1].usage.cached) == (NoPrompt("langfuse-no-input"), 208)


# --- LangSmith


def langchain(message):
    """An OpenAI message in LangChain's constructor form."""
    name = {"system": "SystemMessage", "user": "HumanMessage", "assistant": "AIMessage", "tool": "ToolMessage"}
    kwargs = {"content": message.get("content") or "", "type": message["role"]}
    if "tool_calls" in message:
        kwargs["tool_calls"] = [
            {
                "name": c["function"]["name"],
                "args": json.loads(c["function"]["arguments"]),
                "id": c["id"],
                "type": "tool_call",
            }
            for c in message["tool_calls"]
        ]
    if "tool_call_id" in message:
        kwargs["tool_call_id"] = message["tool_call_id"]
    return {
        "lc": 1,
        "type": "constructor",
        "id": ["langchain", "schema", "messages", name[message["role"]]],
        "kwargs": kwargs,
    }


def chain_run(run, form):
    messages = run["inputs"]["messages"]
    kinds = {"user": "human", "assistant": "ai"}
    made = [langchain(m) for m in messages]
    if form == "dict":
        made = [
            {"type": kinds.get(m["role"], m["role"]), "data": c["kwargs"] | {"type": None}}
            for m, c in zip(messages, made, strict=True)
        ]
    if form == "flat":
        made = [c["kwargs"] | {"type": kinds.get(m["role"], m["role"])} for m, c in zip(messages, made, strict=True)]
    answer = {"text": "x", "message": {"kwargs": {"content": "x", "usage_metadata": run["outputs"]["usage_metadata"]}}}
    return run | {"inputs": {"messages": [made]}, "outputs": {"generations": [[answer]]}}


@pytest.mark.parametrize("form", ["constructor", "dict", "flat"])
def test_langsmith_with_langchain_messages(load, form):
    found = load(*(chain_run(run, form) for run in lines("langsmith_runs_openai.jsonl")))
    plain = list(read([str(SAMPLES / "langsmith_runs_openai.jsonl")]))
    for one, other in zip(found, plain, strict=True):
        assert [(m["role"], m["content"]) for m in one.content.messages] == [
            (m["role"], m["content"]) for m in other.content.messages
        ]
        calls = [m["tool_calls"][0]["function"]["arguments"] for m in one.content.messages if "tool_calls" in m]
        assert calls == [
            json.loads(m["tool_calls"][0]["function"]["arguments"]) for m in other.content.messages if "tool_calls" in m
        ]
        assert one.content.tools == other.content.tools
        assert (one.usage, one.session, one.latency) == (other.usage, other.session, other.latency)


def test_langsmith_bulk_export_has_json_in_strings(load):
    runs = [
        run | {name: json.dumps(run[name]) for name in ("inputs", "outputs", "extra", "prompt_token_details", "tags")}
        for run in lines("langsmith_runs_openai.jsonl")
    ]
    found = load(*runs)
    same_prompts(found, "langsmith_runs_openai.jsonl")
    assert [r.usage.cached for r in found] == [0, 208, 160, 272]


def test_langsmith_chains_are_left_out_and_prompts_are_text(load):
    run = lines("langsmith_runs_openai.jsonl")[0]
    found = load(run | {"run_type": "chain"}, run | {"inputs": {"prompts": ["Once upon"]}}, run | {"inputs": {}})
    assert found[0].slug == "not-a-request"
    assert found[1].content == Text("Once upon")
    assert found[2].content == NoPrompt("langsmith-no-inputs")


def test_langsmith_project_is_no_session(load):
    run = lines("langsmith_runs_openai.jsonl")[0]
    run["extra"]["metadata"].pop("thread_id")
    assert load(run)[0].session is None


# --- Helicone


@pytest.mark.parametrize("form", ["strings", "page"])
def test_helicone_forms(load, form):
    rows = lines("helicone_export.jsonl")
    if form == "strings":
        names = ("request_body", "response_body", "request_properties")
        found = load(*(row | {name: json.dumps(row[name]) for name in names} for row in rows))
    else:
        found = load({"data": rows, "error": None})
    same_prompts(found, "helicone_export.jsonl")
    assert [r.session for r in found] == ["s-alder", "s-alder", "s-birch", "s-alder"]


def test_helicone_without_bodies(load):
    row = {k: v for k, v in lines("helicone_export.jsonl")[1].items() if k not in ("request_body", "response_body")}
    found = load(
        row | {"signed_body_url": "https://x", "delay_ms": 660.5},
        row | {"provider": "ANTHROPIC", "prompt_tokens": 60},
        row | {"response_status": 429},
    )
    assert found[0].content == NoPrompt("helicone-no-body")
    assert (found[0].usage.prompt, found[0].usage.cached, found[0].latency.total) == (268, 208, 0.6605)
    assert found[1].usage.prompt == 268
    assert found[2].slug == "failed-request"


# --- HAR


def har():
    return json.loads((SAMPLES / "proxy.har").read_text("utf-8"))


def test_har_sample():
    found = list(read([str(SAMPLES / "proxy.har")]))
    assert [type(r) for r in found] == [Request, Skip, Request, Request]
    assert [r.line for r in found] == [1, 2, 3, 4]
    openai, _, claude, gemini = found
    assert [r.model for r in (openai, claude, gemini)] == [
        "gpt-4.1-mini",
        "claude-sonnet-4-5-20250929",
        "gemini-2.5-flash",
    ]
    assert [(r.usage.prompt, r.usage.cached, r.usage.completion) for r in (openai, claude, gemini)] == [
        (212, 0, 24),
        (209, 160, 14),
        (301, 272, 12),
    ]
    assert [(r.latency.total, r.latency.ttft) for r in (openai, claude, gemini)] == [
        (0.84, 0.31),
        (0.55, 0.15),
        (0.49, 0.1),
    ]
    assert claude.output.text == "The hill branch opens at eleven on Sundays."
    assert all(r.content.messages[0]["content"] == SYSTEM for r in (openai, claude, gemini))


@pytest.mark.parametrize("form", ["lines", "base64", "posted base64"])
def test_har_entries_in_other_forms(load, form):
    log = har()
    calls = [entry for entry in log["log"]["entries"] if "postData" in entry["request"]]
    for entry in calls:
        content, posted = entry["response"]["content"], entry["request"]["postData"]
        if form == "base64":
            content |= {"text": base64.b64encode(content["text"].encode()).decode(), "encoding": "base64"}
        if form == "posted base64":
            posted |= {"text": base64.b64encode(posted["text"].encode()).decode(), "encoding": "base64"}
    found = load(*calls) if form == "lines" else [r for r in load(text=json.dumps(log)) if isinstance(r, Request)]
    same_prompts(found, "proxy.har")
    assert [r.usage.cached for r in found] == [0, 160, 272]


def sse(*payloads):
    return "".join(f"data: {json.dumps(p)}\r\n\r\n" for p in payloads) + "data: [DONE]\r\n\r\n"


def test_har_openai_stream_with_usage_in_the_last_chunk(load):
    log = har()
    chunks = [
        {"id": "c", "choices": [{"index": 0, "delta": {"role": "assistant", "content": "Half\u2028way"}}]},
        {"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        {
            "id": "c",
            "choices": [],
            "usage": {"prompt_tokens": 212, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 128}},
        },
    ]
    entry = log["log"]["entries"][0]
    entry["response"]["content"]["text"] = sse(*chunks)
    (found,) = load(entry)
    assert (found.output.text, found.usage.cached, found.usage.prompt) == ("Half\u2028way", 128, 212)


def test_har_takes_over_no_credential(load):
    entry = har()["log"]["entries"][0]
    secret = "sk-proj-Zm9yZ2V0IG1lIG5vdA"
    entry["request"]["url"] = f"https://user:{secret}@api.openai.com/v1/chat/completions?key={secret}"
    entry["request"]["headers"] += [
        {"name": "Authorization", "value": f"Bearer {secret}"},
        {"name": "x-api-key", "value": secret},
        {"name": "OpenAI-Organization", "value": "org-desk"},
        {"name": "X-Session-Id", "value": "s-alder"},
    ]
    (found,) = load(entry)
    assert secret not in repr((found.fields, found.params, found.namespace, found.session, found.id, found.user))
    assert (found.namespace, found.session) == (("openai-organization=org-desk",), "s-alder")
    assert found.fields["host"] == "api.openai.com"


def test_har_leaves_out_what_is_no_model_call(load):
    entries = har()["log"]["entries"]
    other = json.loads(json.dumps(entries[0]))
    other["request"]["url"] = "https://api.openai.com/v1/embeddings"
    telemetry = json.loads(json.dumps(entries[0]))
    telemetry["request"]["postData"]["text"] = '{"events": [1]}'
    failed = json.loads(json.dumps(entries[0]))
    failed["response"]["status"] = 429
    found = load(entries[0], other, telemetry, failed)
    assert [getattr(r, "slug", None) for r in found] == [None, "not-a-request", "not-a-request", "failed-request"]


def test_har_bedrock_model_from_the_path(load):
    entry = har()["log"]["entries"][0]
    body = {k: v for k, v in lines("bedrock_converse_bodies.jsonl")[0].items() if k != "modelId"}
    entry["request"]["url"] = (
        "https://bedrock-runtime.eu-west-1.amazonaws.com/model/us.anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse"
    )
    entry["request"]["postData"]["text"] = json.dumps(body)
    (found,) = load(entry)
    assert found.model == "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
    assert found.format == "har"


# --- SageMaker


@pytest.mark.parametrize("form", ["base64 both", "plain", "object"])
def test_sagemaker_encodings(load, form):
    rows = lines("sagemaker_data_capture.jsonl")
    for row in rows:
        given, made = row["captureData"]["endpointInput"], row["captureData"]["endpointOutput"]
        if form == "base64 both":
            made |= {"data": base64.b64encode(made["data"].encode()).decode(), "encoding": "BASE64"}
        else:
            plain = base64.b64decode(given["data"]).decode()
            given |= {"data": plain if form == "plain" else json.loads(plain), "encoding": "JSON"}
    found = load(*rows)
    same_prompts(found, "sagemaker_data_capture.jsonl")
    assert [r.usage.cached for r in found] == [0, 208, 160, 272]


def test_sagemaker_csv_and_broken_base64(load):
    row = lines("sagemaker_data_capture.jsonl")[0]
    csv = json.loads(json.dumps(row))
    csv["captureData"]["endpointInput"] = {"data": "1,2,3", "encoding": "CSV", "observedContentType": "text/csv"}
    broken = json.loads(json.dumps(row))
    broken["captureData"]["endpointInput"]["data"] = "%%%"
    found = load(row, csv, broken)
    assert [type(r) for r in found] == [Request, Skip, Request]
    assert found[2].content == NoPrompt("sagemaker-no-input")


# --- CSV


def test_csv_sample():
    found = list(read([str(SAMPLES / "csv_gateway_request_json.csv")]))
    assert {r.format for r in found} == {"gateway-csv"}
    assert [r.line for r in found] == [2, 3, 4, 5]
    assert [r.time for r in found] == [1740992400.0, 1740992404.2, 1740992431.0, 1740992475.5]
    assert [r.user for r in found] == ["u-17", "u-17", "u-22", "u-17"]
    assert [[m["role"] for m in r.content.messages] for r in found][1] == ["system", "user", "assistant", "tool"]
    assert all(len(r.content.tools) == 1 for r in found)


def test_csv_with_other_columns(load):
    body = json.dumps(lines("litellm_standard_logging.jsonl")[0]["messages"]).replace('"', '""')
    answer = json.dumps(lines("litellm_standard_logging.jsonl")[1]["response"]).replace('"', '""')
    text = f'Timestamp,Request_Body,Response_Body,Latency_ms,API_Key,Session_Id,team\r\n2025-03-03T09:00:00Z,"{body}","{answer}",840,sk-abc,s-1,blue\r\n'
    (found,) = load(text=text)
    assert (found.session, found.latency.total, found.usage.cached) == ("s-1", 0.84, 208)
    assert found.fields["team"] == "blue"
    assert "sk-abc" not in repr(dict(found.fields))


def test_csv_row_without_a_body_is_named(load):
    found = load(
        text='created_at,request_json\n2025-03-03,"{""messages"":[{""role"":""user"",""content"":""hi""}]}"\n2025-03-03,broken\n'
    )
    assert [type(r) for r in found] == [Request, Skip]
    assert found[1].slug == "no-body"


def as_csv(rows):
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]))
    writer.writeheader()
    for row in rows:
        writer.writerow({k: json.dumps(v) if isinstance(v, dict | list) else v for k, v in row.items()})
    return out.getvalue()


@pytest.mark.parametrize("name", ["langfuse", "helicone", "litellm-spend", "langsmith", "phoenix"])
def test_csv_exports_are_read_as_the_json_exports(load, name):
    sample = {
        "langfuse": [blob(row) for row in observations()],
        "helicone": lines("helicone_export.jsonl"),
        "litellm-spend": [spend(row) for row in lines("litellm_standard_logging.jsonl")],
        "langsmith": lines("langsmith_runs_openai.jsonl"),
        "phoenix": lines("phoenix_spans_dataframe.jsonl"),
    }[name]
    found, from_json = load(text=as_csv(sample)), load(*sample)
    assert {r.format for r in found} == {name}
    for one, other in zip(found, from_json, strict=True):
        for fact in ("content", "time", "model", "session", "user", "usage", "latency"):
            assert getattr(one, fact) == getattr(other, fact), fact


def test_csv_of_cloudwatch_insights(load):
    rows = [
        {"@timestamp": "2025-03-03 09:00:00.000", "@message": json.dumps(log)}
        for log in lines("bedrock_invocation_log_converse.jsonl")
    ]
    found = load(text=as_csv(rows))
    same_prompts(found, "bedrock_invocation_log_converse.jsonl")
    assert {r.format for r in found} == {"bedrock-invocation"}


def test_envelopes_give_no_credential_as_a_label(load):
    pair = {
        **lines("gemini_pairs.jsonl")[0],
        "api_key": "AIzaSy-abc",
        "token": "abc",
        "team": "blue",
        "metadata": {"auth": "abc"},
    }
    (found,) = load(pair)
    assert found.fields["team"] == "blue"
    assert "abc" not in repr(dict(found.fields))


# --- Claude Code


def claude():
    return lines("claude_code_session.jsonl")


def test_claude_code_sample():
    found = list(read([str(SAMPLES / "claude_code_session.jsonl")]))
    assert [(r.id, r.line, r.session, r.model) for r in found] == [
        ("msg_r1", 4, "s-alder", "claude-opus-4-8"),
        ("msg_r2", 7, "s-alder", "claude-opus-4-8"),
        ("msg_r4", 9, "s-alder", "claude-opus-4-8"),
    ]
    assert [r.time for r in found] == [1740992400.0, 1740992404.2, 1740992475.5]
    assert [r.latency.total for r in found] == pytest.approx([0.84, 0.66, 0.49])
    assert [(r.usage.prompt, r.usage.cached, r.usage.completion) for r in found] == [
        (212, 0, 24),
        (268, 208, 19),
        (301, 272, 12),
    ]
    assert {r.content.missing for r in found} == {"claude-code-head"}
    long = found[2].content.messages
    assert [m["role"] for m in long] == ["user", "assistant", "tool", "assistant", "user"]
    assert (long[1]["content"], long[1]["tool_calls"][0]["function"]["name"]) == (
        "Let me check the catalogue.",
        "find_book",
    )
    assert all(long[: len(r.content.messages)] == r.content.messages for r in found)


def test_claude_code_results_of_parallel_calls_stand_side_by_side(load):
    rows = claude()
    second = json.loads(json.dumps(rows[4]))
    second |= {"uuid": "a2b", "parentUuid": "a2"}
    second["message"]["content"][0] |= {"id": "toolu_2"}
    other = json.loads(json.dumps(rows[5]))
    other |= {"uuid": "u2b", "parentUuid": "a2b"}
    other["message"]["content"][0] |= {"tool_use_id": "toolu_2", "content": "second"}
    after = rows[6] | {"parentUuid": "u2b"}
    found = load(*rows[:5], second, rows[5], other, after, *rows[7:])
    prompt = found[1].content.messages
    assert [m["role"] for m in prompt] == ["user", "assistant", "tool", "tool"]
    assert [call["id"] for call in prompt[1]["tool_calls"]] == ["toolu_lichen01", "toolu_2"]
    assert prompt[3]["content"] == "second"


def test_claude_code_going_back_starts_from_the_earlier_step(load):
    rows = claude()
    again = json.loads(json.dumps(rows[7])) | {"uuid": "u9", "parentUuid": "a2"}
    again["message"]["content"] = "No, the other one."
    answer = json.loads(json.dumps(rows[8])) | {"uuid": "a9", "parentUuid": "u9"}
    answer["message"]["id"] = "msg_r9"
    found = load(*rows[:9], again, answer)
    contents = [m["content"] for m in found[-1].content.messages]
    assert contents[-1] == "No, the other one."
    assert "Please hold one copy for me until Thursday." not in contents
    assert "Please hold one copy for me until Thursday." in [m["content"] for m in found[2].content.messages]


def test_claude_code_compaction_and_sidechains_start_over(load):
    rows = claude()
    summary = {
        "type": "user",
        "uuid": "c1",
        "parentUuid": None,
        "sessionId": "s-alder",
        "isCompactSummary": True,
        "message": {"role": "user", "content": "Summary."},
        "timestamp": "2025-03-03T10:00:00Z",
    }
    answer = json.loads(json.dumps(rows[8])) | {"uuid": "c2", "parentUuid": "c1", "isSidechain": True, "agentId": "ag1"}
    answer["message"]["id"] = "msg_c"
    found = load(*rows, summary, answer)
    assert found[-1].content.messages == [{"role": "user", "content": "Summary."}]
    assert found[-1].session == "s-alder/ag1"


def test_claude_code_links_run_through_lines_that_say_nothing(load):
    rows = claude()
    progress = {"type": "progress", "uuid": "p1", "parentUuid": "u2", "sessionId": "s-alder"}
    found = load(*rows[:6], progress, rows[6] | {"parentUuid": "p1"}, *rows[7:])
    assert [len(r.content.messages) for r in found] == [1, 3, 5]


@pytest.mark.parametrize("lost", [("parentUuid",), ("parentUuid", "uuid")])
def test_claude_code_without_links_follows_the_lines(load, lost):
    rows = [{k: v for k, v in row.items() if k not in lost} for row in claude()]
    found = load(*rows)
    same_prompts(found, "claude_code_session.jsonl")
    assert [r.usage.cached for r in found] == [0, 208, 272]


def test_claude_code_shown_errors_are_no_calls(load):
    rows = claude()
    error = json.loads(json.dumps(rows[8])) | {"uuid": "e", "parentUuid": "a4", "isApiErrorMessage": True}
    error["message"] |= {"model": "<synthetic>", "id": "err"}
    assert [r.id for r in load(*rows, error)] == ["msg_r1", "msg_r2", "msg_r4"]


# --- Codex


def codex():
    return lines("codex_rollout.jsonl")


def test_codex_sample():
    found = list(read([str(SAMPLES / "codex_rollout.jsonl")]))
    assert [r.line for r in found] == [6, 9, 12]
    assert [r.time for r in found] == [1740992400.0, 1740992404.2, 1740992475.5]
    assert [r.latency.total for r in found] == pytest.approx([0.84, 0.66, 0.49])
    assert [(r.usage.prompt, r.usage.cached, r.usage.completion) for r in found] == [
        (212, 0, 24),
        (268, 208, 19),
        (301, 272, 12),
    ]
    assert {(r.model, r.session) for r in found} == {("gpt-5.4", "01a7c9e4-6d12-7b3a-9f42-0000000000aa")}
    long = found[2].content.messages
    assert long[0] == {"role": "system", "content": SYSTEM}
    assert [m["role"] for m in long] == ["system", "user", "assistant", "tool", "assistant", "user"]
    assert all(long[: len(r.content.messages)] == r.content.messages for r in found)
    assert found[0].output.tool_calls[0]["function"]["name"] == "find_book"
    assert found[0].params == {"reasoning_effort": "high"}


def test_codex_repeated_counters_are_one_call(load):
    rows = codex()
    assert len(load(*rows[:6], rows[5], *rows[6:])) == 3


def test_codex_results_logged_before_the_counters(load):
    rows = codex()
    found = load(*rows[:5], rows[6], rows[5], *rows[7:])
    assert [len(r.content.messages) for r in found] == [2, 4, 6]


def test_codex_compaction_replaces_the_history(load):
    rows = codex()
    history = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Summary."}]}]
    compacted = {
        "timestamp": "2025-03-03T09:01:00Z",
        "type": "compacted",
        "payload": {"message": "", "replacement_history": history},
    }
    found = load(*rows[:9], compacted, *rows[9:])
    assert [m["content"] for m in found[2].content.messages] == [
        SYSTEM,
        "Summary.",
        "Please hold one copy for me until Thursday.",
    ]


def test_codex_going_back_forgets_turns(load):
    rows = codex()
    back = {
        "timestamp": "2025-03-03T09:01:00Z",
        "type": "event_msg",
        "payload": {"type": "thread_rolled_back", "num_turns": 1},
    }
    found = load(*rows[:9], back, *rows[9:])
    assert [m["content"] for m in found[2].content.messages] == [SYSTEM, "Please hold one copy for me until Thursday."]


def test_codex_sessions_one_after_the_other(load):
    rows = codex()
    other = json.loads(json.dumps(rows))
    other[0]["payload"]["id"] = "other"
    found = load(*rows, *other)
    assert [(r.session == "other", len(r.content.messages)) for r in found[3:]] == [(True, 2), (True, 4), (True, 6)]


def test_content_is_messages_everywhere(load):
    assert all(isinstance(r.content, Messages) for r in load(*codex()))
