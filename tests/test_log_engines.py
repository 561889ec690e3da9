"""Engine server logs: what real servers wrote, every variant of their lines, and what stands around them."""

import json
import re
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from growth import work

from prefixlint.errors import LogRefusedError
from prefixlint.logs import _pyrepr, read
from prefixlint.model import Latency, Messages, NoPrompt, Output, Request, Skip, Text, TokenIds, Usage

LOGS = Path(__file__).parent.parent / "fixtures" / "logs"
SERVERS = LOGS / "servers"
SAMPLES = LOGS / "samples"
CHAT_IDS = [1, 9690, 198, 2683, 359, 253, 5356, 11173, 30, 2, 198, 1, 4093, 198, 5820, 582, 2240, 281, 4649, 30, 2]
CHAT_IDS += [198, 1, 520, 9531, 198]


def results(path, **options):
    try:
        return list(read([str(path)], **options))
    except LogRefusedError as refused:
        return [refused]


def requests_of(path, **options):
    found = results(path, **options)
    assert all(isinstance(item, Request) for item in found), found
    return found


@pytest.fixture
def log(tmp_path):
    """Write lines to a file and read it."""

    def read_lines(*lines, end="\n"):
        path = tmp_path / "server.log"
        path.write_text("\n".join(lines) + end, "utf-8", "surrogatepass")
        return results(path)

    return read_lines


# --- SGLang ---


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("level", [2, 3])
def test_sglang_lines_of_a_real_server_with_prompts(form, level):
    chat, text, ids = requests_of(SERVERS / f"sglang_0.5.23_log_requests_{form}_level{level}.txt")
    assert {r.format for r in (chat, text, ids)} == {"sglang"}
    assert chat.content == TokenIds(CHAT_IDS)
    assert (chat.model, chat.user) == ("tiny", "u1")
    assert chat.output == Output(text="\n\n\n", ids=[198, 198, 198], finish="length")
    assert chat.usage == Usage(prompt=26, cached=25, completion=3)
    assert chat.latency.total < 0.1
    assert 0 < chat.latency.ttft < chat.latency.total
    assert chat.body["messages"][1]["content"] == "Name one city in France."
    assert text.content == Text("The capital of France is", rendered=False)
    assert text.output == Output(text=" is is is", ids=[314, 314, 314], finish="length")
    assert (text.model, text.user) == (None, None)
    assert ids.content == TokenIds([504, 3575, 282, 4649, 314, 30])
    assert ids.id.startswith("my-rid-")
    assert ids.usage == Usage(prompt=6, cached=5, completion=3)
    times = [r.time for r in (chat, text, ids)]
    assert times == sorted(times)
    assert 1795957652 < times[0] < 1795957659


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize(("level", "number"), [(0, 6), (1, 3)])
def test_sglang_levels_without_prompts_give_usage_only(form, level, number):
    found = requests_of(SERVERS / f"sglang_0.5.23_log_requests_{form}_level{level}.txt")
    assert [r.content for r in found] == [NoPrompt("sglang-log-level")] * number
    assert [(r.usage.prompt, r.usage.cached) for r in found[:3]] == [(26, 25), (5, 4), (6, 5)]
    assert all(r.time and r.latency.total and r.latency.queue for r in found)


def test_sglang_text_and_json_forms_agree():
    text = requests_of(SERVERS / "sglang_0.5.23_log_requests_text_level3.txt")
    json_ = requests_of(SERVERS / "sglang_0.5.23_log_requests_json_level3.txt")
    facts = [[(r.content, r.output, r.usage, r.model, r.user, r.line) for r in found] for found in (text, json_)]
    assert facts[0] == facts[1]


def test_sglang_metrics_export_of_a_real_server():
    found = requests_of(SERVERS / "sglang_0.5.23_metrics_export.log")
    assert len(found) == 37
    assert found[0].content == Text("The capital city of France is")
    assert found[0].usage == Usage(prompt=6, cached=0, completion=8)
    assert found[1].content == TokenIds(CHAT_IDS)
    rows = [json.loads(line) for line in (SERVERS / "sglang_0.5.23_metrics_export.log").read_text("utf-8").splitlines()]
    assert [r.usage.cached for r in found] == [row["cached_tokens"] for row in rows]
    assert [r.time for r in found] == [row["request_received_ts"] for row in rows]
    assert all(r.format == "sglang-metrics" for r in found)


def test_sglang_json_lines_cut_out_of_their_log_are_read(log):
    path = SERVERS / "sglang_0.5.23_log_requests_json_level3.txt"
    lines = path.read_text("utf-8").splitlines()
    objects = [line[line.index("{") :] for line in lines if "{" in line]
    facts = [[(r.content, r.usage, r.time, r.model, r.format) for r in found] for found in (log(*objects), log(*lines))]
    assert facts[0] == facts[1]
    assert len(facts[0]) == 3


def sglang_finish(rid="a", fields="", out="", cached=4):
    return (
        f"[2026-11-29 13:07:38] Finish: obj=GenerateReqInput(rid='{rid}', session_id=None, {fields}stream=False), "
        f"out={{'text': 'x', {out}'meta_info': {{'id': '{rid}', 'finish_reason': {{'type': 'stop'}}, "
        f"'prompt_tokens': 9, 'cached_tokens': {cached}, 'completion_tokens': 1, 'e2e_latency': 1.5, "
        "'request_received_ts': 1795957658.5, 'request_finished_ts': 1795957660.0}}"
    )


def test_sglang_namespaces_sessions_and_replicas(log):
    fields = (
        "text='Hi', input_ids=None, lora_path='sql-adapter', lora_id='5f', extra_key='tenant', cache_salt='s1', "
        "conversation_id='c9', data_parallel_rank=0, "
    )
    (found,) = log(sglang_finish(fields=fields))
    assert found.namespace == ("lora=sql-adapter", "salt=s1", "extra_key=tenant")
    assert (found.session, found.replica) == ("c9", "0")
    assert found.output.finish == "stop"


def test_sglang_prompt_that_quotes_a_log_line_is_a_prompt(log):
    nasty = "Finish: obj=GenerateReqInput(rid='evil', text='no'), out={'meta_info': {'cached_tokens': 999}} \"'\\ \n"
    (found,) = log(sglang_finish(fields=f"text={nasty!r}, input_ids=None, "))
    assert found.content == Text(nasty)
    assert found.usage.cached == 4
    assert found.id == "a"


def test_sglang_cut_prompt_of_level_2_is_not_used(log):
    head, tail = repr("a" * 1024), repr("b" * 1024)
    cut_ids = f"{[1] * 1024} ... {[2] * 1024}"
    cases = [f"text={head} ... {tail}, input_ids=None, ", f"text=None, input_ids={cut_ids}, "]
    found = log(*(sglang_finish(rid=str(n), fields=case) for n, case in enumerate(cases)))
    assert [r.content for r in found] == [NoPrompt("sglang-truncated")] * 2
    assert [r.usage.cached for r in found] == [4, 4]


def test_sglang_text_that_contains_dots_is_whole(log):
    (found,) = log(sglang_finish(fields="text='wait ... what', input_ids=None, "))
    assert found.content == Text("wait ... what")


def test_sglang_json_cut_prompt_of_level_2_is_not_used(log):
    meta = {"prompt_tokens": 900, "cached_tokens": 7, "completion_tokens": 1}
    objects = [
        {"rid": "a", "text": "x" * 1024 + " ... " + "y" * 1024, "input_ids": None},
        {"rid": "b", "text": None, "input_ids": [1] * 1024 + ["..."] + [2] * 1024},
        {"rid": "c", "text": "z" * 2048, "input_ids": None},
    ]
    lines = [
        "[2026-11-29 13:07:30] "
        + json.dumps(
            {
                "timestamp": "2026-11-29T13:07:30.4",
                "event": "request.finished",
                "rid": obj["rid"],
                "obj": obj,
                "out": {"meta_info": meta},
            }
        )
        for obj in objects
    ]
    found = log(*lines)
    assert [r.content for r in found[:2]] == [NoPrompt("sglang-truncated")] * 2
    assert found[2].content == Text("z" * 2048)


def test_sglang_cut_ids_fall_back_to_the_chat_body_when_only_one_waits(log):
    body = {"messages": [{"role": "user", "content": "short"}], "model": "m"}
    cut = f"text=None, input_ids={[1] * 1024} ... {[2] * 1024}, "
    receive = f"[2026-11-29 13:07:38] Receive: obj=GenerateReqInput(rid='a', session_id=None, {cut}stream=False)"
    openai = f"[2026-11-29 13:07:38] Receive OpenAI: obj={body!r}"
    (found,) = log(openai, receive, sglang_finish(fields=cut))
    assert isinstance(found.content, Messages)
    assert found.content.messages[0]["content"] == "short"
    two = log(openai, openai, receive, sglang_finish(fields=cut))
    assert two[0].content == NoPrompt("sglang-truncated")
    assert two[0].model == "m"


def test_sglang_cut_chat_body_still_names_the_model(log):
    cut = f"{'a' * 1024!r} ... {'b' * 1024!r}"
    openai = (
        "[2026-11-29 13:07:38] Receive OpenAI: obj={'messages': "
        f"[{{'role': 'user', 'content': {cut}}}], 'model': 'big', 'user': 'u'}}"
    )
    receive = "[2026-11-29 13:07:38] Receive: obj=GenerateReqInput(rid='a', text=None, input_ids=[1, 2], stream=False)"
    (found,) = log(openai, receive, sglang_finish(fields="text=None, input_ids=[1, 2], "))
    assert (found.model, found.user, found.content) == ("big", "u", TokenIds([1, 2]))


def test_sglang_unfinished_requests_come_at_the_end_with_corrected_time(log):
    receive = "[2026-11-29 15:07:39] Receive: obj=GenerateReqInput(rid='{}', text='Hi', input_ids=None, stream=False)"
    finish = sglang_finish(fields="text='Ho', input_ids=None, ").replace("13:07:38", "15:07:40")
    found = log(receive.format("lost"), finish)
    assert [(r.id, r.usage is None) for r in found] == [("a", False), ("lost", True)]
    # the log's clock is two hours ahead of the epoch times of its meta_info
    assert found[1].time == datetime(2026, 11, 29, 13, 7, 39, tzinfo=UTC).timestamp()


def test_sglang_receive_without_a_prompt_or_an_end_is_refused(log):
    (refused,) = log("[2026-11-29 13:07:39] Receive: obj=GenerateReqInput(rid='a', stream=False, lora_id=None)")
    assert isinstance(refused, LogRefusedError)
    assert refused.slug == "sglang-log-level"
    assert "--log-requests-level 3" in refused.hint


def test_sglang_health_checks_and_batches_are_stepped_over(log):
    batch = "[2026-11-29 13:07:39] Receive: obj=GenerateReqInput(rid=['x', 'y'], text=['p', 'q'], stream=False)"
    found = log(
        "[2026-11-29 13:07:39] Receive: obj=GenerateReqInput(rid='HEALTH_CHECK_1', text='x', stream=False)",
        sglang_finish(rid="HEALTH_CHECK_1", fields="text='x', input_ids=None, "),
        batch,
        sglang_finish(rid="x", fields="text='p', input_ids=None, "),
        sglang_finish(rid="y", fields="text='q', input_ids=None, "),
    )
    assert [(r.id, r.content) for r in found] == [("x", Text("p")), ("y", Text("q"))]


def test_sglang_older_finish_lines(log):
    line = (
        "[2025-05-01 10:00:00] Finish: input_ids_len=4 input_ids=[5, 6, 7, 8] out={'meta_info': {'id': 'old1', "
        "'prompt_tokens': 4, 'cached_tokens': 2, 'completion_tokens': 9, 'e2e_latency': 0.5, "
        "'request_received_ts': 1746093600.25}}"
    )
    (found,) = log(line)
    assert found.content == TokenIds([5, 6, 7, 8])
    assert found.usage == Usage(prompt=4, cached=2, completion=9)
    assert (found.id, found.time, found.latency.total) == ("old1", 1746093600.25, 0.5)


def test_sglang_field_order_of_older_versions(log):
    line = "[2025-05-01 10:00:00] Finish: obj=GenerateReqInput(text=\"it's rid='b'\", input_ids=None, rid='a'), out={"
    (found,) = log(line + "'text': 'y', 'meta_info': {'prompt_tokens': 3, 'cached_tokens': 0}}")
    assert (found.id, found.content) == ("a", Text("it's rid='b'"))
    assert found.usage.cached == 0


# --- vLLM ---

CHAT_PROMPT = '<|im_start|>user\nIt\'s "one" \\ two\t\u00e9\u4e2d\U0001f9ca\x1b\ud800<|im_end|>\n'
SAMPLING = "SamplingParams(n=1, stop=['a, b'], guided=None, structured_outputs=None, extra_args={'k': 'v, w'})"


@pytest.mark.parametrize(
    "line",
    [
        # 0.4 and older
        (
            "INFO 03-03 09:00:00 async_llm_engine.py:508] Received request cmpl-1: prompt: {text}, sampling_params: "
            "{params}, prompt_token_ids: None, lora_request: {lora}."
        ),
        # 0.5 .. 0.6
        (
            "INFO 03-03 09:00:00 logger.py:36] Received request cmpl-1: prompt: {text}, params: {params}, "
            "prompt_token_ids: None, lora_request: {lora}, prompt_adapter_request: None."
        ),
        # 0.8 .. 0.10
        (
            "INFO 03-03 09:00:00 [logger.py:43] Received request cmpl-1: prompt: {text}, params: {params}, "
            "prompt_token_ids: None, prompt_embeds shape: None, lora_request: {lora}, prompt_adapter_request: None."
        ),
        (
            "(APIServer pid=7) INFO 03-03 09:00:00 [logger.py:40] Received request cmpl-1: prompt: {text}, params: "
            "{params}, prompt_token_ids: None, prompt_embeds shape: None, lora_request: {lora}."
        ),
    ],
)
def test_vllm_lines_with_text_in_every_version(log, line):
    lora = "LoRARequest(lora_name='sql', lora_int_id=1, lora_path='/models/sql', base_model_name=None)"
    (found,) = log(line.format(text=repr(CHAT_PROMPT), params=SAMPLING, lora=lora))
    assert found.content == Text(CHAT_PROMPT, rendered=False)
    assert found.namespace == ("lora=sql",)
    assert (found.format, found.id) == ("vllm", "cmpl-1")
    moment = datetime.fromtimestamp(found.time, UTC)
    assert (moment.month, moment.day, moment.hour, moment.minute) == (3, 3, 9, 0)


def test_vllm_chat_text_is_rendered_and_ids_win_over_text(log):
    line = "INFO 03-03 09:00:00 [logger.py:43] Received request chatcmpl-{}: prompt: 'Hi', params: {}, "
    rest = "prompt_token_ids: {}, lora_request: None, prompt_adapter_request: None."
    found = log(*(line.format(n, SAMPLING) + rest.format(ids) for n, ids in enumerate(["None", "[1, 2, 3]"])))
    assert [r.content for r in found] == [Text("Hi", rendered=True), TokenIds([1, 2, 3])]
    assert [r.namespace for r in found] == [(), ()]


def test_vllm_debug_lines_of_a_real_server():
    found = requests_of(SERVERS / "vllm_0.32_debug.txt")
    assert [r.id for r in found] == ["chatcmpl-my-req-1", "chatcmpl-my-req-2"]
    assert [len(r.content.ids) for r in found] == [41, 41]
    assert found[0].content.ids[:4] == [1, 9690, 198, 2683]
    # the body's id is not the engine's; it is joined by what it says
    assert [r.body["messages"][1]["content"] for r in found] == ["hi 1", "hi 2"]
    assert [r.model for r in found] == ["smol", "smol"]
    assert found[0].output == Output(text="\n\n\n\n", ids=[198, 198, 198, 198], finish="length")
    assert found[1].output is None


@pytest.mark.parametrize("path", [SERVERS / "vllm_0.32_info.txt", SAMPLES / "vllm_request_log_v0.33_info.log"])
def test_vllm_info_lines_are_refused_with_what_to_switch_on(path):
    (refused,) = results(path)
    assert isinstance(refused, LogRefusedError)
    assert refused.slug == "vllm-no-prompt"
    assert "VLLM_LOGGING_LEVEL=DEBUG" in refused.hint


def body_line(rid, text, second=0):
    body = {"model": "m", "messages": [{"role": "user", "content": text}], "user": f"u-{text}"}
    return f"INFO 03-03 09:00:{second:02} [request_logger.py:84] Request {rid} JSON body: {json.dumps(body)}"


def details_line(rid, text, ids="[1, 2]"):
    return (
        f"DEBUG 03-03 09:00:00 [request_logger.py:54] Request {rid} details: prompt: {text!r}, "
        f"prompt_token_ids: {ids}, prompt_embeds shape: None."
    )


def received_line(rid):
    return f"INFO 03-03 09:00:00 [r.py:64] Received request {rid}: params: {SAMPLING}, lora_request: None."


def test_vllm_bodies_are_joined_and_counted_once(log):
    found = log(
        body_line("aaa", "first"),
        body_line("bbb", "second"),
        details_line("chatcmpl-2", "<user>second</user>"),
        details_line("chatcmpl-1", "<user>first</user>"),
        received_line("chatcmpl-2"),
        received_line("chatcmpl-1"),
    )
    assert [(r.id, r.user, type(r.content)) for r in found] == [
        ("chatcmpl-2", "u-second", TokenIds),
        ("chatcmpl-1", "u-first", TokenIds),
    ]


def test_vllm_info_lines_take_their_prompt_from_the_body(log):
    found = log(body_line("abc", "hello"), received_line("chatcmpl-abc"), received_line("chatcmpl-other"))
    assert isinstance(found[0].content, Messages)
    assert found[0].id == "chatcmpl-abc"
    assert isinstance(found[1], Skip)
    assert found[1].slug == "vllm-no-prompt"


def test_vllm_prompts_of_one_body_are_told_apart(log):
    body = {"model": "m", "prompt": ["one", "two"]}
    found = log(
        f"INFO 03-03 09:00:00 [r.py:84] Request cmpl-7 JSON body: {json.dumps(body)}",
        received_line("cmpl-7-0"),
        received_line("cmpl-7-1"),
    )
    assert [r.content.text for r in found] == ["one", "two"]


def test_vllm_bodies_alone_stream_out(log):
    found = log(*(body_line(f"r{n}", f"text {n}", n % 60) for n in range(200)))
    assert [r.id for r in found] == [f"r{n}" for n in range(200)]
    assert found[5].content.messages[0]["content"] == "text 5"
    assert found[199].time - found[180].time == 19


def test_vllm_outputs_in_all_versions(log):
    found = log(
        details_line("chatcmpl-1", "a"),
        details_line("chatcmpl-2", "b"),
        details_line("chatcmpl-3", "c"),
        "INFO 03-03 09:00:01 [l.py:1] Generated response chatcmpl-2 (streaming delta): output: 'O', "
        "output_token_ids: [7], finish_reason: None",
        "INFO 03-03 09:00:01 [l.py:1] Generated response chatcmpl-2 (streaming complete): output: 'OK, go', "
        "output_token_ids: [7, 8], finish_reason: stop",
        "DEBUG 03-03 09:00:01 [l.py:1] Generated response chatcmpl-1 details: output_token_ids: [9]",
        'INFO 03-03 09:00:01 [l.py:1] Generated response chatcmpl-1: output: "it\'s", finish_reason: length',
        "INFO 03-03 09:00:01 [l.py:1] Generated response chatcmpl-unknown: output: 'x', finish_reason: length",
    )
    assert [(r.id, r.output) for r in found] == [
        ("chatcmpl-1", Output(text="it's", ids=[9], finish="length")),
        ("chatcmpl-2", Output(text="OK, go", ids=[7, 8], finish="stop")),
        ("chatcmpl-3", None),
    ]


def test_vllm_prompts_cut_by_max_log_len_are_not_used(log):
    args = "INFO 03-03 08:59:00 [api_server.py:1] non-default args: {'model': 'm', 'max_log_len': 4}"
    found = log(args, details_line("chatcmpl-1", "abcd", "[1, 2, 3, 4]"), details_line("chatcmpl-2", "ab", "[1, 2]"))
    assert isinstance(found[0], Skip)
    assert found[0].slug == "vllm-max-log-len"
    assert found[1].content == TokenIds([1, 2])


def test_vllm_embedded_prompts_are_named(log):
    line = (
        details_line("cmpl-1", "x", "None").replace("'x'", "None").replace("shape: None", "shape: torch.Size([3, 8])")
    )
    (refused,) = log(line)
    assert refused.slug == "prompt-embeds"


def test_vllm_model_comes_from_the_start_of_the_engine(log):
    start = "INFO 03-03 08:59:00 [core.py:93] Initializing a V1 LLM engine (v0.10) with config: model='org/name', x=1"
    (found,) = log(start, details_line("chatcmpl-1", "a"))
    assert found.model == "org/name"


def test_vllm_year_passes_over_new_year_and_comes_from_a_prefix(log):
    line = details_line("chatcmpl-1", "a")
    found = log(
        line.replace("03-03 09:00:00", "12-31 23:59:59"),
        line.replace("chatcmpl-1", "chatcmpl-2").replace("03-03 09:00:00", "01-01 00:00:01"),
    )
    assert found[1].time - found[0].time == 2
    (found,) = log("2019-12-31T23:59:58.5Z stderr F " + line.replace("03-03 09:00:00", "12-31 23:59:59"))
    assert found.time == datetime(2019, 12, 31, 23, 59, 58, 500000, tzinfo=UTC).timestamp()


def test_vllm_metrics_in_a_response_are_latencies(log):
    response = json.loads((SERVERS / "vllm_0.32_chat_response.json").read_text("utf-8"))
    (found,) = log(json.dumps({"request": {"messages": [{"role": "user", "content": "hi"}]}, "response": response}))
    assert found.usage == Usage(prompt=1516, cached=1504, written=0, completion=4)
    assert found.latency == Latency(
        total=pytest.approx(0.126131576), ttft=pytest.approx(0.042284184), queue=pytest.approx(2.4395999844e-05)
    )


# --- what stands around the lines ---

NOISE = [
    'INFO:     127.0.0.1:60342 - "GET /health HTTP/1.1" 200 OK',
    "Loading safetensors checkpoint shards:  50% Completed | 1/2 [00:01<00:01,  1.20s/it]",
    "Traceback (most recent call last):",
    '  File "/app/server.py", line 3, in <module>',
    "ValueError: Received request is too long",
    "{'not': 'a request'}",
    "",
    "\x1b[32mINFO\x1b[0m ready",
]


@pytest.mark.parametrize(
    "wrap",
    [
        lambda line: line,
        lambda line: f"\x1b[0;36m(APIServer pid=1)\x1b[0;0m {line}\x1b[0m",
        lambda line: f"2026-11-29T13:07:38.123456789Z stdout F {line}",
        lambda line: f"engine-1  | {line}",
        lambda line: f"Nov 29 13:07:38 host vllm[71]: {line}",
        lambda line: json.dumps({"log": line + "\n", "stream": "stderr", "time": "2026-11-29T13:07:38.1Z"}),
        lambda line: json.dumps({"MESSAGE": line, "_SYSTEMD_UNIT": "engine.service", "PRIORITY": "6"}),
        lambda line: json.dumps({"asctime": "2026-11-29 13:07:38,1", "levelname": "INFO", "message": line}),
        lambda line: json.dumps({"severity": "INFO", "textPayload": line, "timestamp": "2026-11-29T13:07:38Z"}),
    ],
    ids=["bare", "colours", "kubernetes", "compose", "syslog", "docker", "journald", "python-json", "cloud"],
)
@pytest.mark.parametrize(
    "file",
    [
        "servers/vllm_0.32_debug.txt",
        "servers/sglang_0.5.23_log_requests_text_level3.txt",
        "servers/sglang_0.5.23_log_requests_json_level3.txt",
        "samples/llamacpp_server_verbose.log",
        "samples/ollama_server_debug.log",
        "samples/tgi_router.log",
    ],
)
def test_collectors_and_other_lines_do_not_disturb(log, file, wrap):
    lines = (LOGS / file).read_text("utf-8").splitlines()
    noisy = [line for number, line in enumerate(lines) for line in (NOISE[number % len(NOISE)], line)]
    found = log(*(wrap(line) for line in noisy))
    plain = requests_of(LOGS / file)
    assert [(r.content, r.usage, r.output, r.id, r.model, r.format) for r in found] == [
        (r.content, r.usage, r.output, r.id, r.model, r.format) for r in plain
    ]


def test_two_engines_in_one_file_are_both_read(log):
    found = log(
        sglang_finish(fields="text='Hi', input_ids=None, "),
        details_line("chatcmpl-1", "a"),
        sglang_finish(rid="b", fields="text='Ho', input_ids=None, "),
    )
    assert sorted(r.format for r in found) == ["sglang", "sglang", "vllm"]


FILES = [*sorted(SERVERS.glob("*_log_requests_*")), SERVERS / "vllm_0.32_debug.txt", *sorted(SAMPLES.glob("*.log"))]


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.name)
@pytest.mark.parametrize("cut", [1, 7, 60, 333, 0.4, 0.9])
def test_truncated_lines_give_only_requests_and_skips(log, file, cut):
    lines = file.read_text("utf-8").splitlines()
    for found in log(*(line[: cut if cut >= 1 else int(len(line) * cut)] for line in lines if line)):
        assert isinstance(found, (Request, Skip, LogRefusedError))
        if isinstance(found, Request):
            assert isinstance(found.content, (Text, TokenIds, Messages, NoPrompt))


@pytest.mark.parametrize(
    "line", [details_line("chatcmpl-1", "abc"), sglang_finish(fields="text='abc', input_ids=None, ")]
)
def test_a_line_cut_inside_its_prompt_is_a_skip_with_its_place(log, line):
    good = line.replace("chatcmpl-1", "chatcmpl-2").replace("'a'", "'good'")
    found = log(good, line[: line.index("abc") + 1], "INFO: something else")
    skips = [one for one in found if isinstance(one, Skip)]
    assert [(one.line, one.slug) for one in skips] == [(2, "truncated-line")]
    assert len(found) == 2


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("mutants") / "some.log"


LINES = [line for file in FILES for line in file.read_text("utf-8").splitlines() if re.search("prompt|rid|time", line)]


@given(data=st.data())
def test_mutated_logs_never_raise(scratch, data):
    lines = data.draw(st.lists(st.sampled_from(LINES), min_size=1, max_size=5))
    mutated = []
    for line in lines:
        at = data.draw(st.integers(0, len(line)))
        to = data.draw(st.integers(at, min(len(line), at + 40)))
        new = data.draw(st.text(alphabet="'\"\\[]{}(), :=\x1b019aé\n", max_size=8))
        mutated.append(line[:at] + new + line[to:])
    scratch.write_text("\n".join(mutated), "utf-8")
    for found in results(scratch):
        assert isinstance(found, (Request, Skip, LogRefusedError))


@pytest.mark.parametrize(
    "tail",
    [
        "'" * 400_000,
        "\\" * 400_000,
        "'\\" * 200_000,
        "{'a': " * 100_000,
        "[" * 400_000,
        "1, " * 200_000,
        "'a': 'b', " * 50_000,
        "x=None, " * 60_000,
        "-" * 400_000,
        "(1, [2, {'a': 'b'}]), " * 20_000,
        '"' + "a\\" * 100_000,
    ],
    ids=lambda tail: tail[:6],
)
def test_long_hostile_lines_take_linear_time(log, tail):
    heads = [
        "INFO 03-03 09:00:00 [l.py:1] Received request a: prompt: ",
        "INFO 03-03 09:00:00 [l.py:1] Request a details: prompt: 'x', prompt_token_ids: ",
        "[2026-11-29 13:07:38] Receive OpenAI: obj={'messages': ",
        "[2026-11-29 13:07:38] Finish: obj=GenerateReqInput(rid='a', text=",
        "[2026-11-29 13:07:38] Finish: obj=GenerateReqInput(rid='a', text='t', stream=False), out={'meta_info': ",
        "[2026-11-29 13:07:38] Finish: input_ids_len=3 input_ids=",
        "srv  log_server_r: request:  ",
        'time=2025-03-03T09:00:00Z level=DEBUG source=routes.go:1 msg="chat request" images=0 prompt="',
        '2025-03-03T09:00:00Z  INFO generate{total_time="1ms"}: text_generation_router::server: ',
    ]
    log(*(head + tail for head in heads))
    small, large = ([head + tail[: len(tail) // part] for head in heads] for part in (40, 20))
    assert work(log, *large) < 2.5 * work(log, *small)


@given(st.text(), st.text())
def test_reprs_are_decoded_as_python_does(prompt, other):
    line = f"prompt: {prompt!r}, params: P(a={other!r}, b=[1, {{'k': {other!r}}}]), ids: [1, 2]"
    found, end = _pyrepr.wanted(line, 0, _pyrepr.COLON, frozenset({"prompt", "ids", "params"}))
    assert _pyrepr.string(found["prompt"]) == prompt
    assert _pyrepr.value(found["ids"]) == [1, 2]
    assert end == len(line)


@pytest.mark.parametrize(
    "raw", ["None", "", "Mode.X", "<Mode.X: 1>", "'a' + 'b'", "f(1)", "[1, f()]", "'open", "1" * 5000]
)
def test_values_that_are_no_literals_are_none(raw):
    assert _pyrepr.value(raw) is None


# --- llama.cpp ---


def slot(task, text):
    return f"slot update_slots: id  2 | task {task} | {text}"


def test_llamacpp_slots_without_bodies_give_usage_and_latency(log):
    found = log(
        slot(5, "new prompt, n_ctx_slot = 8192, n_keep = 0, task.n_tokens = 268"),
        slot(5, "cached n_tokens = 208, memory_seq_rm [208, end)"),
        slot(5, "cached n_tokens = 250, memory_seq_rm [250, end)"),
        slot(5, "prompt eval time =     120.00 ms /    60 tokens (    2.00 ms per token,   500.00 tokens per second)"),
        slot(5, "       eval time =     540.00 ms /    19 tokens (    1.00 ms per token,    99.00 tokens per second)"),
        slot(5, "      total time =     660.00 ms /    79 tokens"),
        "slot      release: id  2 | task 5 | stop processing: n_tokens = 287, truncated = 0",
        slot(6, "new prompt, n_ctx_slot = 8192, n_keep = 0, n_prompt_tokens = 10"),
        slot(6, "kv cache rm [4, end)"),
    )
    assert [r.content for r in found] == [NoPrompt("llamacpp-no-prompt")] * 2
    assert found[0].usage == Usage(prompt=268, cached=208, completion=19)
    assert found[0].latency == Latency(total=0.66, ttft=0.12, prefill=0.12)
    assert found[0].fields == {"slot": "2"}
    assert found[1].usage == Usage(prompt=10, cached=4)


@pytest.mark.parametrize(
    ("body", "content"),
    [
        ({"prompt": "once upon", "n_predict": 5}, Text("once upon")),
        ({"prompt": [1, 2, 3], "n_predict": 5}, TokenIds([1, 2, 3])),
    ],
)
def test_llamacpp_completion_bodies(log, body, content):
    response = {"content": " a time", "tokens_evaluated": 2, "timings": {"cache_n": 1, "prompt_n": 1, "prompt_ms": 5.0}}
    (found,) = log(
        f"srv  log_server_r: request:  {json.dumps(body)}",
        f"srv  log_server_r: response: {json.dumps(response)}",
    )
    assert found.content == content
    assert found.usage == Usage(prompt=2, cached=1)
    assert found.latency.prefill == 0.005


def test_llamacpp_bodies_without_responses_are_kept(log):
    body = json.dumps({"messages": [{"role": "user", "content": "hi"}]})
    found = log(f"srv  log_server_r: request:  {body}", f"srv  log_server_r: request:  {body}", "srv  x: request: {")
    assert [r.content.messages[0]["content"] for r in found] == ["hi", "hi"]


# --- Ollama and TGI ---


def test_ollama_pairs_have_times_usage_and_answers():
    found = requests_of(SAMPLES / "ollama_pairs.jsonl")
    assert [r.time for r in found] == pytest.approx([1740992400.0, 1740992404.2, 1740992431.0, 1740992475.5], abs=1e-3)
    assert [(r.usage.prompt, r.usage.cached, r.usage.completion) for r in found][1] == (268, None, 19)
    assert found[1].latency == Latency(total=pytest.approx(0.66), prefill=pytest.approx(0.12))
    assert found[1].output.text.startswith("Yes: Lichens")
    assert {r.format for r in found} == {"ollama"}


def test_ollama_generate_bodies_go_through_the_template_unless_raw(log):
    found = requests_of(SAMPLES / "ollama_generate_bodies.jsonl")
    assert [m["role"] for m in found[0].content.messages] == ["system", "user"]
    assert found[2].content.messages[1]["content"] == "When does the hill branch open on Sundays?"
    (raw,) = log(json.dumps({"model": "m", "prompt": "<s>hi", "raw": True, "keep_alive": 0}))
    assert raw.content == Text("<s>hi", rendered=True)


def test_ollama_images_thinking_and_tools_become_the_openai_form(log):
    messages = [
        {"role": "user", "content": "what is this?", "images": ["aGk="]},
        {
            "role": "assistant",
            "content": "",
            "thinking": "hm",
            "tool_calls": [{"function": {"name": "f", "arguments": {}}}],
        },
        {"role": "tool", "tool_name": "f", "content": "42"},
    ]
    (found,) = log(json.dumps({"model": "m", "messages": messages, "options": {"num_ctx": 8}, "think": True}))
    first, second, third = found.content.messages
    assert [part["type"] for part in first["content"]] == ["image_url", "text"]
    assert second["reasoning_content"] == "hm"
    assert second["tool_calls"] == [{"id": "call_0", "type": "function", "function": {"name": "f", "arguments": {}}}]
    assert (third["name"], third["content"]) == ("f", "42")
    assert found.params == {"think": True}


def test_ollama_debug_log_has_cached_tokens_of_each_prompt():
    found = requests_of(SAMPLES / "ollama_server_debug.log")
    assert [(r.usage.prompt, r.usage.cached) for r in found] == [(212, 0), (268, 208), (209, 160), (301, 272)]
    assert [r.latency.total for r in found] == pytest.approx([0.84, 0.66, 0.55, 0.49])
    assert [r.time for r in found] == [1740992400.0, 1740992404.2, 1740992431.0, 1740992475.5]
    assert all(r.content.rendered for r in found)
    assert '{"type": "function"' in found[0].content.text


def test_ollama_go_strings_and_slots_without_prompts(log):
    found = log(
        'time=2025-03-03T09:00:00+02:00 level=DEBUG source=routes.go:1 msg="generate request" images=0 prompt="a\\x1b\\u00e9"',
        'time=2025-03-03T09:00:00Z level=DEBUG source=cache.go:1 msg="loading cache slot" id=1 cache=0 prompt=3 used=1 remaining=2',
        'time=2025-03-03T09:00:09Z level=DEBUG source=cache.go:1 msg="loading cache slot" id=2 cache=0 prompt=5 used=4 remaining=1',
        'time=2025-03-03T09:00:00Z level=DEBUG source=routes.go:1 msg="chat request" images=0 prompt=bare',
    )
    assert [r.content for r in found] == [Text("a\x1b\u00e9", True), NoPrompt("ollama-no-prompt"), Text("bare", True)]
    assert [r.usage and r.usage.cached for r in found] == [1, 4, None]
    assert found[0].time == datetime(2025, 3, 3, 7, tzinfo=UTC).timestamp()


def test_ollama_latency_is_only_given_where_one_request_ran(log):
    ask = 'time=2025-03-03T09:00:00Z level=DEBUG source=routes.go:1 msg="chat request" images=0 prompt="a"'
    gin = '[GIN] 2025/03/03 - 09:00:00 | 200 | 1m2.5s |       127.0.0.1 | POST     "/api/chat"'
    tags = '[GIN] 2025/03/03 - 09:00:00 | 200 | 1ms |       127.0.0.1 | GET     "/api/tags"'
    assert [r.latency for r in log(ask, tags, gin)] == [Latency(total=62.5)]
    assert [r.latency for r in log(ask, ask, gin, gin)] == [None, Latency(total=62.5)]


def test_tgi_pairs_have_counts_ids_and_adapters(log):
    pair = {
        "timestamp": 1740992400,
        "request": {"inputs": "hi there", "parameters": {"max_new_tokens": 2, "adapter_id": "sql"}},
        "response": {
            "generated_text": " you",
            "details": {
                "finish_reason": "length",
                "generated_tokens": 1,
                "prefill": [{"id": 1, "text": "hi"}, {"id": 2, "text": " there"}],
                "tokens": [{"id": 9, "text": " you"}],
            },
        },
    }
    (found,) = log(json.dumps(pair))
    assert found.content == Text("hi there")
    assert found.usage == Usage(prompt=2, completion=1)
    assert found.output == Output(text=" you", ids=[9], finish="length")
    assert (found.namespace, found.time) == (("lora=sql",), 1740992400.0)


def test_tgi_json_log_gives_times(log):
    line = {
        "timestamp": "2025-03-03T09:00:00.840000Z",
        "level": "INFO",
        "message": "Success",
        "target": "text_generation_router::server",
        "span": {"total_time": "840ms", "queue_time": "80.1µs", "validation_time": "1ms", "name": "generate"},
    }
    (found,) = log(json.dumps(line))
    assert found.content == NoPrompt("tgi-no-prompt")
    assert found.time == pytest.approx(1740992400.0)
    assert found.latency == Latency(total=0.84, queue=pytest.approx(0.0010801))
