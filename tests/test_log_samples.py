"""Every sample log against the canonical requests of expected.json. A new format: drop its file, add a line below."""

import gzip
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from prefixlint.logs import format_names, read
from prefixlint.model import BlockHashes, Messages, NoPrompt, Request, Text, TokenIds

SAMPLES = Path(__file__).parent.parent / "fixtures" / "logs" / "samples"
EXPECTED = {row["id"]: row for row in json.loads((SAMPLES / "expected.json").read_text("utf-8"))}
ALL = ("r1", "r2", "r3", "r4")


@dataclass(frozen=True)
class Sample:
    """One file: the format that must be found, and which facts it carries (facts it does not carry must be None)."""

    file: str
    format: str
    # of: time (exact), second (time to the second), yearless (the same without a year), session, user, usage, latency,
    # ttft, answer
    carries: str = ""
    # of: messages (system, turns and tools), text (a rendered prompt), none (no prompt)
    prompt: str = "messages"
    ids: tuple[str, ...] = ALL
    lines: tuple[int, ...] = (1, 2, 3, 4)


TABLE = [
    Sample("openai_chat_bodies.jsonl", "openai-chat", "user"),
    Sample("openai_chat_pairs.jsonl", "openai-chat", "time session user usage latency ttft answer"),
    Sample("openai_chat_pairs.jsonl.gz", "openai-chat", "time session user usage latency ttft answer"),
    Sample("anthropic_bodies_system_string.jsonl", "anthropic-messages", "user"),
    Sample("anthropic_pairs.jsonl", "anthropic-messages", "time user usage latency answer"),
    Sample("openai_responses_bodies.jsonl", "openai-responses"),
    Sample("openai_responses_full.jsonl", "openai-responses", "time usage answer"),
    Sample("openai_batch_input.jsonl", "openai-batch", "user"),
    Sample("openai_batch_output.jsonl", "openai-batch", "second usage answer", prompt="none"),
    Sample("completions_text.jsonl", "completions", prompt="text"),
    Sample("completions_token_ids.jsonl", "completions", prompt="ids"),
    Sample("plain_prompts.txt", "plain", prompt="text"),
    Sample("gemini_bodies.jsonl", "gemini"),
    Sample("gemini_batch.jsonl", "gemini"),
    Sample("gemini_pairs.jsonl", "gemini", "time usage answer"),
    Sample("bedrock_converse_bodies.jsonl", "bedrock-converse"),
    Sample("bedrock_invocation_log_converse.jsonl", "bedrock-invocation", "second session user usage latency answer"),
    Sample("anthropic_batch_requests.jsonl", "anthropic-batch", "user"),
    Sample("anthropic_batch_results.jsonl", "anthropic-batch", "usage answer", prompt="none"),
    Sample("litellm_standard_logging.jsonl", "litellm", "time session user usage latency ttft answer"),
    Sample("helicone_export.jsonl", "helicone", "time session user usage latency ttft answer"),
    Sample("langfuse_observations_api.json", "langfuse", "time session user usage latency ttft answer"),
    Sample("litellm_spend_logs.jsonl", "litellm-spend", "time session user usage latency"),
    Sample("langfuse_blob_observations_v2.jsonl", "langfuse", "time session user usage latency ttft answer"),
    Sample("langsmith_runs_langchain.jsonl", "langsmith", "time session user usage latency ttft"),
    Sample("langsmith_runs_openai.jsonl", "langsmith", "time session user usage latency ttft answer"),
    Sample("otel_genai_spans_v1_37.json", "otel-genai", "time session usage latency answer"),
    Sample("otel_openllmetry_spans.json", "openllmetry", "time session user usage latency"),
    Sample("openinference_otlp_spans.json", "openinference", "time session user usage latency"),
    Sample("phoenix_spans_dataframe.jsonl", "phoenix", "time session user usage latency"),
    Sample("vllm_request_log_v0.8.log", "vllm", "yearless", prompt="text", lines=(2, 5, 8, 11)),
    Sample("vllm_request_log_v0.33_debug.log", "vllm", "yearless", prompt="ids", lines=(1, 3, 5, 7)),
    Sample("vllm_request_log_v0.33_json_body.log", "vllm", "yearless user"),
    Sample("sglang_requests_json.log", "sglang", "time usage latency", prompt="ids", lines=(1, 3, 5, 7)),
    Sample("sglang_request_metrics_export.log", "sglang-metrics", "time usage latency", prompt="text"),
    Sample(
        "llamacpp_server_verbose.log",
        "llamacpp",
        "second user usage latency ttft answer",
        lines=(11, 22, 33, 44),
    ),
    Sample("tgi_generate_bodies.jsonl", "tgi", prompt="text"),
    Sample("tgi_router.log", "tgi-log", "time latency", prompt="none"),
    Sample("ollama_chat_bodies.jsonl", "ollama"),
    Sample("lmcache_agent_trace.jsonl", "lmcache-agent", "time session", prompt="text"),
    Sample("langsmith_bulk_export.parquet", "langsmith", "time session user usage latency ttft answer"),
    Sample("sagemaker_data_capture.jsonl", "sagemaker", "time user usage answer"),
]


def requests_of(path, **options):
    if Path(path).read_bytes()[:4] == b"PAR1":
        pytest.importorskip("pyarrow")
    found = list(read([str(path)], **options))
    assert all(isinstance(item, Request) for item in found), found
    return found


def words(content):
    """The text of a message content, whatever its parts."""
    if isinstance(content, str) or content is None:
        return content
    return "".join(part.get("text", "") for part in content)


def parsed(arguments):
    return json.loads(arguments) if isinstance(arguments, str) else arguments


def turns_of(messages):
    """Messages as expected.json writes them; call ids are compared by their ending, since APIs prefix them."""
    turns = []
    for message in messages:
        role, content = message["role"], words(message.get("content"))
        if role in ("system", "developer"):
            continue
        if role == "tool":
            turns.append(["result", content])
            continue
        if content:
            turns.append([role, content])
        for call in message.get("tool_calls", ()):
            function = call["function"]
            turns.append(["call", {"name": function["name"], "arguments": parsed(function["arguments"])}])
    return turns


def expected_turns(row):
    return [
        [kind, {k: v for k, v in what.items() if k != "id"} if kind == "call" else what] for kind, what in row["turns"]
    ]


def expected_answer(row_id):
    return {
        "r1": ("call", "find_book"),
        "r2": ("text", "Yes: Lichens of the Tide Line, shelf N-14, two copies in."),
    }.get(row_id)


def check_prompt(request, row, kind):
    content = request.content
    if kind == "none":
        assert isinstance(content, NoPrompt)
    elif kind == "text":
        assert isinstance(content, Text)
        assert row["system"] in content.text
        for turn, what in row["turns"]:
            assert (what["name"] if turn == "call" else what) in content.text
        assert content.text.startswith("<|im_start|>system\nYou")
    elif kind == "ids":
        assert isinstance(content, TokenIds)
        text = "".join(chr(one - 1000) for one in content.ids)  # how the sample was made
        assert text.startswith("<|im_start|>system\nYou")
        assert row["system"] in text
        assert row["turns"][-1][1] in text
    else:
        assert isinstance(content, Messages)
        system = [words(m["content"]) for m in content.messages if m["role"] in ("system", "developer")]
        assert system == [row["system"]]
        assert turns_of(content.messages) == expected_turns(row)
        assert [tool["function"]["name"] for tool in content.tools] == row["tools"]
        assert all(tool["function"]["parameters"]["required"] == ["title"] for tool in content.tools)


def check_facts(request, row, carries):
    if "time" in carries or "second" in carries:
        assert request.time == pytest.approx(row["epoch"], abs=1e-6 if "time" in carries else 1.0)
    elif "yearless" in carries:
        moment, expected = (datetime.fromtimestamp(one, UTC) for one in (request.time, row["epoch"]))
        assert moment.replace(year=expected.year) == expected.replace(microsecond=0)
    else:
        assert request.time is None
    assert request.session == (row["session"] if "session" in carries else None)
    assert request.user == (row["user"] if "user" in carries else None)
    if "usage" in carries:
        usage = request.usage
        assert {"prompt": usage.prompt, "cached": usage.cached, "completion": usage.completion} == row["usage"]
    else:
        assert request.usage is None
    latency = request.latency
    assert (latency and latency.total) == (pytest.approx(row["latency_s"]) if "latency" in carries else None)
    assert (latency and latency.ttft) == (pytest.approx(row["ttft_s"]) if "ttft" in carries else None)
    check_answer(request, expected_answer(row["id"]) if "answer" in carries else None)


def check_answer(request, answer):
    if answer is None:
        return
    kind, what = answer
    if kind == "call":
        assert [call["function"]["name"] for call in request.output.tool_calls] == [what]
    else:
        assert request.output.text == what


@pytest.mark.parametrize("sample", TABLE, ids=lambda sample: sample.file)
def test_sample_gives_the_canonical_requests(sample):
    found = requests_of(SAMPLES / sample.file)
    assert {request.format for request in found} == {sample.format}
    assert len(found) == len(sample.ids)
    places = [(request.line, request.part) for request in found]
    assert places == [(line, 0) for line in sample.lines[: len(found)]]
    for request, row_id in zip(found, sample.ids, strict=True):
        check_prompt(request, EXPECTED[row_id], sample.prompt)
        check_facts(request, EXPECTED[row_id], sample.carries.split())
        assert request.body is not None


@pytest.mark.parametrize("sample", TABLE, ids=lambda sample: sample.file)
def test_sample_is_found_by_content_and_not_by_name(sample, tmp_path):
    data = (SAMPLES / sample.file).read_bytes()
    plain = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    renamed = tmp_path / "some.thing"
    binary = plain.startswith(b"PAR1")
    renamed.write_bytes(plain if binary else b"\xef\xbb\xbf" + plain.replace(b"\n", b"\r\n"))
    as_is = [(r.format, r.content, r.time, r.session, r.usage) for r in requests_of(SAMPLES / sample.file)]
    assert [(r.format, r.content, r.time, r.session, r.usage) for r in requests_of(renamed)] == as_is


@pytest.mark.parametrize("sample", TABLE, ids=lambda sample: sample.file)
def test_sample_is_read_when_its_format_is_forced(sample):
    found = requests_of(SAMPLES / sample.file, log_format=sample.format)
    assert [r.content for r in found] == [r.content for r in requests_of(SAMPLES / sample.file)]


def test_every_sample_has_a_line_in_the_table():
    present = {path.name for path in SAMPLES.iterdir()} - {"README.md", "expected.json"}
    assert present == {sample.file for sample in TABLE} | SPECIAL


def test_every_format_name_is_a_module_name():
    assert len(set(format_names())) == len(format_names())


# Files whose rows are not the four requests; each has a test of its own.
SPECIAL = {
    # tests/test_log_gateways.py and tests/test_log_telemetry.py
    "otel_genai_events_v1_28.jsonl",
    "otel_genai_span_events_v1_27.json",
    "proxy.har",
    "csv_gateway_request_json.csv",
    "claude_code_session.jsonl",
    "codex_rollout.jsonl",
    # tests/test_log_engines.py
    "ollama_generate_bodies.jsonl",
    "ollama_pairs.jsonl",
    "ollama_server_debug.log",
    "vllm_request_log_v0.33_info.log",
    # tests/test_log_traces.py
    "azure_llm_trace_2023.csv",
    "baseten_trace.parquet",
    "burstgpt.csv",
    "dynamo_request_trace_v1.jsonl",
    "lmcache_lookup_hashes.jsonl",
    "qwen_bailian_trace.jsonl",
    "tracelab_rounds.jsonl",
    "weka_trace.json",
    # tests/test_log_workloads.py
    "aibrix_workload.jsonl",
    "aiperf_inputs.json",
    "aiperf_mooncake_variants.jsonl",
    "aiperf_multi_turn.jsonl",
    "aiperf_single_turn.jsonl",
    "guidellm.jsonl",
    "sglang_bench_agentic_trace.json",
    "sglang_bench_openai.jsonl",
    "vllm_bench_custom.jsonl",
    # below
    "completions_text_list.jsonl",
    "hf_messages.jsonl",
    "hf_prompt_completion.jsonl",
    "kvcache_simulator_trace.jsonl",
    "mooncake_trace.jsonl",
    "ragpulse_trace.jsonl",
    "sharegpt.json",
}


def test_completions_with_several_prompts_are_several_requests():
    found = requests_of(SAMPLES / "completions_text_list.jsonl")
    assert [(r.line, r.part) for r in found] == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert [type(r.content) for r in found] == [Text, Text, TokenIds, TokenIds]
    check_prompt(found[0], EXPECTED["r1"], "text")
    check_prompt(found[1], EXPECTED["r3"], "text")


DIALOGUE = [
    ["user", "Do you hold a field guide to coastal lichens?"],
    ["assistant", "Yes: Lichens of the Tide Line, shelf N-14, two copies in."],
    ["user", "Please hold one copy for me until Thursday."],
]
SUNDAY = [["user", "When does the hill branch open on Sundays?"]]
TRAM = [["user", "Which tram stops outside?"]]


@pytest.mark.parametrize(
    ("file", "name", "turns", "places", "sessions"),
    [
        (
            "sharegpt.json",
            "sharegpt",
            [DIALOGUE[:1], DIALOGUE, SUNDAY, TRAM],
            [(1, 0), (1, 1), (2, 0), (3, 0)],
            ["s-alder_0", "s-alder_0", "s-birch_0", "s-cedar_0"],
        ),
        (
            "hf_messages.jsonl",
            "hf-messages",
            [DIALOGUE[:1], DIALOGUE, SUNDAY, TRAM],
            [(1, 0), (1, 1), (2, 0), (3, 0)],
            [None] * 4,
        ),
        ("hf_prompt_completion.jsonl", "hf-messages", [DIALOGUE, SUNDAY, TRAM], [(1, 0), (2, 0), (3, 0)], [None] * 3),
    ],
)
def test_data_set_rows_give_a_request_for_each_user_turn(file, name, turns, places, sessions):
    found = requests_of(SAMPLES / file)
    assert {r.format for r in found} == {name}
    assert [turns_of(r.content.messages) for r in found] == turns
    assert [(r.line, r.part) for r in found] == places
    assert [r.session for r in found] == sessions
    assert found[-1].output.text == "The number six."
    assert found[-2].output.text == "The hill branch opens at eleven on Sundays."
    assert [r.time for r in found] == [None] * len(found)


def test_mooncake_rows_are_blocks_of_512_tokens():
    found = requests_of(SAMPLES / "mooncake_trace.jsonl")
    assert {r.format for r in found} == {"mooncake"}
    assert [r.time for r in found] == [0.0, 4.2, 31.0, 75.5]
    assert found[0].content == BlockHashes([0, 1, 2], [512, 512, 476], 512)
    assert [sum(r.content.sizes) for r in found] == [1500, 1700, 1300, 2100]
    assert [r.usage.completion for r in found] == [24, 19, 14, 12]


def test_kvcache_simulator_rows_have_their_own_block_size():
    found = requests_of(SAMPLES / "kvcache_simulator_trace.jsonl")
    assert {r.format for r in found} == {"kvcache-simulator"}
    assert [list(r.content.sizes) for r in found] == [[64, 64], [64, 36], [64, 26]]
    assert found[2].content.hashes == ["a", "b"]
    assert [r.time for r in found] == [None, None, None]


def test_ragpulse_rows_are_blocks_by_group_and_path():
    found = requests_of(SAMPLES / "ragpulse_trace.jsonl")
    assert {r.format for r in found} == {"ragpulse"}
    first = found[0].content
    assert list(first.hashes) == [
        "sys_prompt:10",
        "sys_prompt:11",
        "passages_ids:20",
        "passages_ids:21",
        "passages_ids:22",
        "user_input:90",
    ]
    assert list(first.sizes) == [500] * 6
    assert not first.prefixed
    assert [r.time for r in found] == [0.0, 9.0, 30.0]
    assert [r.session for r in found] == ["a1", "a1", "b2"]
