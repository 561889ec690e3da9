"""The `record` command, and the parts of the recorder: lines, masks, samples, files, loss."""

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixlint import logs, redact
from prefixlint.capture import how, recorder
from prefixlint.capture.config import RecordConfig
from prefixlint.capture.exchange import TAIL_BYTES, Body, Exchange
from prefixlint.capture.lines import LineMaker
from prefixlint.capture.logfile import LogFile
from prefixlint.capture.recorder import Recorder
from prefixlint.capture.responses import decoded, read_reply
from prefixlint.capture.sample import Sampler
from prefixlint.cli import main
from prefixlint.errors import PrefixlintError, UsageError
from prefixlint.model import Request, Skip

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello there"}]}


def exchange(body=CHAT, **changes):
    made = Exchange(0.0, "POST", "/v1/chat/completions", Body(1 << 20), Body(1 << 20), status=200, total=0.1)
    made.request.feed(body if isinstance(body, bytes) else json.dumps(body).encode())
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def config(path="-", **options):
    return RecordConfig(output=str(path), salt=b"salt", run="t", **options)


def line(body=CHAT, **options):
    changes = options.pop("exchange", {})
    return json.loads(LineMaker(config(**options)).make(exchange(body, **changes)))


# --- the command ---


def invoke(*arguments):
    return CliRunner().invoke(main, ["record", *arguments])


@pytest.mark.parametrize("name", how.names())
def test_how_prints_a_recipe_with_its_costs(name):
    result = invoke("--how", name)
    assert result.exit_code == 0
    for part in ("gives:", "privacy:", "cost:", "source:"):
        assert part in result.stdout
    assert max(map(len, result.stdout.splitlines())) < 140


def test_how_names_the_nearest_recipe():
    result = invoke("--how", "vlm")
    assert result.exit_code == 2
    assert "did you mean vllm?" in result.stderr
    assert "sglang" in invoke("--how", "SGLang").stdout.lower()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "--upstream URL is missing"),
        (["--upstream", "http://x"], "-o FILE is missing"),
        (["--upstream", "x", "-o", "log"], "must be a URL"),
        (["--upstream", "http://x", "-o", "log", "--rotate", "big"], "no size"),
        (["--upstream", "http://x", "-o", "log", "--sample", "0"], "no share"),
        (["--upstream", "http://x", "-o", "log", "--sample", "150%"], "no share"),
        (["--upstream", "http://x", "-o", "log", "--log-header", "Authorization"], "credential"),
        (["--upstream", "http://x", "-o", "log", "--fingerprint", "--redact"], "exclude each other"),
        (["--upstream", "http://127.0.0.1:1", "-o", "no/such/folder/log"], "cannot write the log"),
    ],
)
def test_wrong_options_say_what_to_do(arguments, says, tmp_path, monkeypatch):
    if says == "cannot write the log":
        pytest.importorskip("httptools")
    monkeypatch.chdir(tmp_path)
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert says in result.stderr
    assert "help" in result.stderr
    assert "Traceback" not in result.output


def test_a_salt_file_is_made_once_and_kept(tmp_path):
    from prefixlint.cli_record import _salt

    path = tmp_path / "salt"
    salt = _salt(str(path))
    assert salt == _salt(str(path))
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text("short")
    with pytest.raises(UsageError):
        _salt(str(path))
    assert _salt(None) != _salt(None)


def test_the_command_serves_until_it_is_stopped(tmp_path):
    pytest.importorskip("httptools")
    upstream = socket.create_server(("127.0.0.1", 0))
    body = b'{"choices": [], "usage": {"prompt_tokens": 3}}'

    def answer():
        connection, _ = upstream.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    thread = threading.Thread(target=answer)
    thread.start()
    command = [sys.executable, "-m", "prefixlint", "record", "--port", "0", "-o", str(tmp_path / "log.jsonl")]
    command += ["--upstream", f"http://127.0.0.1:{upstream.getsockname()[1]}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    said = process.stderr.readline()
    port = int(said.split("http://127.0.0.1:")[1].split()[0])
    with socket.create_connection(("127.0.0.1", port)) as client:
        data = json.dumps(CHAT).encode()
        client.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(data) + data
        )
        assert client.recv(65536).startswith(b"HTTP/1.1 200 OK")
    thread.join()
    upstream.close()
    process.terminate()
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (0, "")
    assert "1 requests written, 0 lost" in err
    (request,) = logs.read([str(tmp_path / "log.jsonl")])
    assert request.content.messages == CHAT["messages"]
    assert request.usage.prompt == 3


# --- masks ---


def test_credentials_are_never_written():
    body = {
        **CHAT,
        "api_key": "abc",
        "extra": {"Authorization": "Bearer xyz", "clientSecret": "s", "password": "hunter2", "max_tokens": 5},
        "bos_token": "<s>",
        "tools": [{"function": {"parameters": {"properties": {"password": {"type": "string"}}}}}],
    }
    body["messages"] = [
        {
            "role": "user",
            "content": "my key is sk-abcdefghijklmnopqrstuvwx and ghp_abcdefghijklmnopqrstuvwxyz0123456789",
        },
        {"role": "assistant", "tool_calls": [{"function": {"arguments": '{"password": "hunter3", "q": "sun"}'}}]},
    ]
    made = line(body, exchange={"request_headers": {"authorization": "Bearer hidden", "x-api-key": "hidden2"}})
    text = json.dumps(made)
    for secret in ('abc"', "xyz", '"s"', "hunter2", "hunter3", "sk-abc", "ghp_", "hidden"):
        assert secret not in text
    assert made["request"]["extra"]["max_tokens"] == 5
    assert made["request"]["bos_token"] == "<s>"
    assert made["request"]["tools"] == body["tools"]
    assert '"q": "sun"' in made["request"]["messages"][1]["tool_calls"][0]["function"]["arguments"]


@pytest.mark.parametrize(
    "name",
    [
        "Authorization",
        "Cookie",
        "Set-Cookie",
        "X-Api-Key",
        "api-key",
        "x-goog-api-key",
        "Proxy-Authorization",
        "X-Auth-Token",
        "apiKey",
        "openai_api_key",
        "AWS-Secret-Access-Key",
        "X-Amz-Security-Token",
    ],
)
def test_names_of_credentials(name):
    assert redact.is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    ["Content-Type", "max_tokens", "tokenizer", "x-session-id", "monkey", "author", "User-Agent", "stop_token_ids"],
)
def test_names_of_others(name):
    assert not redact.is_secret_name(name)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("2026-03-01T09:12:44.123Z", "timestamp"),
        ("2026-03-01 09:12", "timestamp"),
        ("2026-03-01", "timestamp"),
        ("March 1, 2026", "timestamp"),
        ("1 March 2026", "timestamp"),
        ("09:12:44", "timestamp"),
        ("1772356364", "timestamp"),
        ("1772356364123", "timestamp"),
        ("ada.lovelace+x@mail.example.org", "email"),
        ("6f1d2c3b-0a9e-4b7c-8d6f-123456789abc", "id"),
        ("9f86d081884c7d659a2feaa0c55ad015", "id"),
        ("call_Ab12Cd34Ef56Gh78", "id"),
        ("192.168.10.7", "ip"),
        ("4111 1111 1111 1111", "card"),
        ("+49 30 1234567", "phone"),
    ],
)
def test_personal_values_become_labels_by_kind(value, kind):
    maker = redact.Redactor(b"salt", personal=True)
    text = maker.text(f"It is {value} now; again {value}.")
    assert value not in text
    first, second = [part.split(">")[0] for part in text.split("<")[1:]]
    assert first == second
    assert first.startswith(f"{kind}:")
    assert maker.text(f"It is {value} now; again {value}.") == text
    assert redact.Redactor(b"other", personal=True).text(value) != maker.text(value)
    assert redact.Redactor(b"salt", personal=False).text(value) == value


def test_labels_differ_where_the_values_do():
    maker = redact.Redactor(b"salt", personal=True)
    assert maker.text("at 09:12:44") != maker.text("at 09:12:45")


@pytest.mark.parametrize(
    "text", ["version 1.2.3", "the 3 of 12", "a ratio of 16:9x", "1234 5678", "hello", "10.000.000", ""]
)
def test_ordinary_text_is_left_alone(text):
    assert redact.Redactor(b"salt", personal=True).text(text) == text


@given(st.text(max_size=300))
@settings(max_examples=100, deadline=1000)
def test_masking_twice_changes_nothing_more(text):
    maker = redact.Redactor(b"salt", personal=True)
    once = maker.text(text)
    assert maker.text(once) == once or "<" in text


def test_fields_keep_only_what_is_named():
    body = {**CHAT, "tools": [1], "user": "me", "metadata": {"a": 1, "b": 2}}
    kept = line(body, fields=("model", "messages.role", "metadata.a"))["request"]
    assert kept == {"model": "m", "messages": [{"role": "user"}], "metadata": {"a": 1}}


def test_a_hostile_body_is_masked_without_recursion():
    deep = b'{"a":' * 900 + b'"x@example.org"' + b"}" * 900
    made = line(deep, redact=True)
    assert "x@example" not in json.dumps(made["request"])


def test_headers_are_written_only_when_they_are_asked_for():
    headers = {"x-session-id": "s1", "x-tenant": "acme", "authorization": "Bearer hidden"}
    assert "headers" not in line(exchange={"request_headers": headers})
    made = line(log_headers=("x-tenant", "authorization"), exchange={"request_headers": headers})
    assert made["headers"] == {"x-tenant": "acme"}
    assert made["session"] == "s1"


# --- samples ---


def turns(n, name):
    messages = [{"role": "system", "content": f"It is {n}."}, {"role": "user", "content": f"First words of {name}"}]
    return {"messages": messages + [{"role": "assistant", "content": "yes"}, {"role": "user", "content": "more"}] * n}


def test_all_turns_of_a_conversation_share_one_fate():
    sampler = Sampler(0.3, 5)
    kept = 0
    for name in range(400):
        fates = {sampler.keeps(sampler.conversation(turns(n, name), {})) for n in range(4)}
        assert len(fates) == 1
        kept += fates.pop()
    assert 80 < kept < 160
    other = Sampler(0.3, 6)
    assert [sampler.keeps(sampler.conversation(turns(0, n), {})) for n in range(50)] != [
        other.keeps(other.conversation(turns(0, n), {})) for n in range(50)
    ]


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (
            {"prompt": "<|im_start|>user\nA<|im_end|>\n<|im_start|>assistant\n"},
            {"prompt": "<|im_start|>user\nA<|im_end|>\n<|im_start|>assistant\nhi<|im_end|>\n<|im_start|>user\nB"},
        ),
        (
            {"input": [{"role": "user", "content": "A"}]},
            {
                "input": [
                    {"role": "user", "content": [{"type": "input_text", "text": "A"}]},
                    {"role": "user", "content": "B"},
                ]
            },
        ),
        (
            {"contents": [{"role": "user", "parts": [{"text": "A"}]}]},
            {"contents": [{"role": "user", "parts": [{"text": "A"}]}, {"role": "model", "parts": []}]},
        ),
        ({"metadata": {"session_id": "s"}, "messages": [1]}, {"metadata": {"session_id": "s"}, "messages": [2]}),
        ({"conversation": "c", "input": "x"}, {"conversation": {"id": "c"}, "input": "y"}),
    ],
)
def test_what_makes_one_conversation(a, b):
    sampler = Sampler(0.5, 0)
    assert sampler.conversation(a, {}) == sampler.conversation(b, {})
    assert sampler.conversation(a, {}) != sampler.conversation({"prompt": "other"}, {})


def test_responses_follow_their_chain():
    sampler = Sampler(0.5, 0)
    first = sampler.conversation({"input": "start"}, {})
    sampler.answered("resp_1", first)
    assert sampler.conversation({"input": "go on", "previous_response_id": "resp_1"}, {}) == first


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda v: (
            st.lists(v)
            | st.dictionaries(
                st.sampled_from(["messages", "role", "content", "metadata", "prompt", "session_id", "x"]), v
            )
        ),
        max_leaves=20,
    )
)
@settings(max_examples=150, deadline=None)
def test_any_json_gives_a_line(body):
    for options in ({}, {"redact": True, "sample": 0.5, "fields": ("messages.content",)}, {"with_output": True}):
        made = LineMaker(config(**options)).make(exchange(body))
        if made is not None:
            assert made.endswith(b"\n")
            assert made.count(b"\n") == 1
            json.loads(made)


# --- responses ---


def reply(*events, kind="text/event-stream", tail=b""):
    data = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)
    return read_reply(data, tail, kind, everything=True)


def test_anthropic_streams():
    found = reply(
        {"type": "message_start", "message": {"id": "m1", "model": "c", "usage": {"input_tokens": 5, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 20, "output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Hel"}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "lo"}},
        {"type": "content_block_start", "index": 2, "content_block": {"type": "tool_use", "id": "t1", "name": "look", "input": {}}},
        {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": '{"q":'}},
        {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": " 1}"}},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}},
    )  # fmt: skip
    assert ("".join(found.text), "".join(found.reasoning), found.finish, found.id) == ("Hello", "hm", "tool_use", "m1")
    assert found.tool_calls[0]["function"] == {"name": "look", "arguments": '{"q": 1}'}
    assert found.usage == {"prompt": 125, "cached": 100, "written": 20, "completion": 9}


def test_responses_streams():
    found = reply(
        {"type": "response.created", "response": {"id": "resp_1", "model": "g", "status": "in_progress"}},
        {"type": "response.output_text.delta", "delta": "Hi"},
        {"type": "response.output_item.done", "item": {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}},
        {"type": "response.completed", "response": {"id": "resp_1", "status": "completed", "output": [], "usage": {"input_tokens": 50, "input_tokens_details": {"cached_tokens": 40}, "output_tokens": 2}}},
    )  # fmt: skip
    assert ("".join(found.text), found.id, found.finish) == ("Hi", "resp_1", "completed")
    assert found.usage == {"prompt": 50, "cached": 40, "completion": 2}
    assert found.tool_calls[0]["function"]["name"] == "f"


def test_sglang_streams_repeat_the_whole_text():
    found = reply(
        {"text": "a", "meta_info": {"id": "g1", "prompt_tokens": 8, "cached_tokens": 4, "completion_tokens": 1, "finish_reason": None}},
        {"text": "a b", "meta_info": {"id": "g1", "prompt_tokens": 8, "cached_tokens": 4, "completion_tokens": 2, "finish_reason": {"type": "stop"}}},
    )  # fmt: skip
    assert ("".join(found.text), found.finish) == ("a b", "stop")
    assert found.usage == {"prompt": 8, "cached": 4, "completion": 2}
    assert found.first_at is not None


def test_tool_calls_in_pieces():
    def chunk(calls):
        return {"choices": [{"index": 0, "delta": {"tool_calls": calls}}]}

    found = reply(
        chunk([{"index": 0, "id": "c1", "function": {"name": "look", "arguments": ""}}]),
        chunk([{"index": 0, "function": {"arguments": '{"q"'}}]),
        chunk([{"index": 1, "id": "c2", "function": {"name": "see", "arguments": "{}"}}]),
        chunk([{"index": 0, "function": {"arguments": ": 1}"}}]),
    )
    assert [call["function"]["arguments"] for call in found.tool_calls] == ['{"q": 1}', "{}"]


def test_other_documents():
    ollama = read_reply(
        b'{"message": {"content": "a"}, "done": false, "created_at": "x"}\n{"message": {"content": "b"}, "done": true, "created_at": "x", "prompt_eval_count": 7, "eval_count": 2, "done_reason": "stop"}\n',
        b"",
        "application/x-ndjson",
        everything=True,
    )
    assert ("".join(ollama.text), ollama.usage) == ("ab", {"prompt": 7, "completion": 2})
    gemini = read_reply(
        json.dumps(
            {
                "candidates": [{"content": {"parts": [{"text": "hi"}]}, "finishReason": "STOP"}],
                "usageMetadata": {"promptTokenCount": 9, "cachedContentTokenCount": 4, "candidatesTokenCount": 1},
            }
        ).encode(),
        b"",
        "application/json",
        everything=True,
    )
    assert ("".join(gemini.text), gemini.usage) == ("hi", {"prompt": 9, "cached": 4, "completion": 1})
    batch = read_reply(
        json.dumps(
            [
                {"text": "a", "meta_info": {"prompt_tokens": 3, "cached_tokens": 1}},
                {"text": "b", "meta_info": {"prompt_tokens": 4, "cached_tokens": 2}},
            ]
        ).encode(),
        b"",
        "application/json",
        everything=True,
    )
    assert batch.usage == {"prompt": 7, "cached": 3}
    assert read_reply(b"<html>", b"", "text/html", everything=True).notes == ["response is no JSON"]
    cut = read_reply(
        b'{"choices": [', b'..."}], "usage": {"prompt_tokens": 5, "x": {}}}', "application/json", everything=False
    )
    assert cut.usage == {"prompt": 5}


def test_usage_is_found_in_the_end_of_a_stream_too_long_to_keep():
    body = Body(1000)
    for _ in range(4000):
        body.feed(b'data: {"choices":[{"index":0,"delta":{"content":"word"}}]}\n\n')
    body.feed(b'data: {"choices":[],"usage":{"prompt_tokens":5}}\n\ndata: [DONE]\n\n')
    assert body.held <= 1000 + TAIL_BYTES
    found = read_reply(body.start(), body.tail(), "text/event-stream", everything=False)
    assert found.usage == {"prompt": 5}
    assert found.notes == ["response cut"]


@given(st.binary(max_size=400), st.sampled_from(["gzip", "deflate", "zstd", "br", "nonsense", "gzip, deflate"]))
def test_broken_encodings_are_noted(data, encoding):
    _, note = decoded(data, encoding)
    assert note is None or encoding.split(",")[0] in note or "deflate" in note


@given(
    st.binary(max_size=300),
    st.binary(max_size=300),
    st.sampled_from(["text/event-stream", "application/json", "application/x-ndjson", ""]),
)
def test_any_bytes_are_a_reply(data, tail, kind):
    read_reply(data, tail, kind, everything=True)
    read_reply(b"data: " + data, tail, kind, everything=False)


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=5),
        lambda v: (
            st.lists(v, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "choices",
                        "delta",
                        "message",
                        "content",
                        "tool_calls",
                        "function",
                        "type",
                        "usage",
                        "meta_info",
                        "candidates",
                        "parts",
                        "output",
                        "index",
                        "response",
                        "arguments",
                    ]
                ),
                v,
                max_size=5,
            )
        ),
        max_leaves=25,
    )
)
@settings(max_examples=300, deadline=None)
def test_hostile_replies_lose_no_line(value):
    for document in (
        value,
        {"choices": value},
        {"choices": [value]},
        {"type": "response.completed", "response": value},
        {"candidates": [value]},
        {"meta_info": {}, "text": value},
        {"type": "message", "content": [value]},
        {"object": "response", "output": [value]},
    ):
        made = exchange()
        made.response.feed(json.dumps(document).encode())
        assert LineMaker(config(with_output=True)).make(made)


# --- the file ---


def test_rotation_keeps_whole_lines_and_their_order(tmp_path):
    path = tmp_path / "log.jsonl"
    file = LogFile(str(path), lambda _event: None, rotate_bytes=100, keep=3)
    for number in range(100):
        file.append([b'{"n": %d}\n' % number])
    file.close()
    names = sorted(entry.name for entry in tmp_path.iterdir())
    assert len(names) == 4
    assert names[-1] == "log.jsonl"
    numbers = [json.loads(text)["n"] for name in names for text in (tmp_path / name).read_text().splitlines()]
    assert numbers == list(range(numbers[0], 100))
    assert all((tmp_path / name).stat().st_size <= 100 for name in names)


def test_two_recorders_on_one_file_are_said_and_tear_no_line(tmp_path):
    path = tmp_path / "log.jsonl"
    events = []
    files = [LogFile(str(path), events.append, rotate_bytes=20_000) for _ in range(2)]
    assert [event.kind for event in events] == ["shared-file"]

    def write(file, name):
        for number in range(500):
            file.append([json.dumps({"who": name, "n": number, "pad": "x" * 100}).encode() + b"\n"])

    threads = [threading.Thread(target=write, args=(file, name)) for name, file in enumerate(files)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for file in files:
        file.close()
    lines = [json.loads(text) for name in sorted(tmp_path.iterdir()) for text in name.read_text().splitlines()]
    assert sorted((entry["who"], entry["n"]) for entry in lines) == [(w, n) for w in range(2) for n in range(500)]


def test_a_file_that_is_moved_away_is_begun_anew(tmp_path):
    path = tmp_path / "log.jsonl"
    file = LogFile(str(path), lambda _event: None)
    file.append([b"1\n"])
    path.rename(tmp_path / "moved")
    file.append([b"2\n"])
    path.unlink()
    file.append([b"3\n"])
    file.close()
    assert (tmp_path / "moved").read_bytes() == b"1\n"
    assert path.read_bytes() == b"3\n"


def test_a_torn_last_line_is_closed_first(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"whole": 1}\n{"torn": ')
    file = LogFile(str(path), lambda _event: None)
    file.append([b'{"next": 2}\n'])
    file.close()
    assert path.read_bytes() == b'{"whole": 1}\n{"torn": \n{"next": 2}\n'


def test_a_write_that_stops_half_way_is_cut_back(tmp_path, monkeypatch):
    path = tmp_path / "log.jsonl"
    file = LogFile(str(path), lambda _event: None)
    file.append([b"first\n"])
    real = os.write
    calls = []

    def half(fd, data):
        calls.append(len(data))
        if len(calls) == 1:
            return real(fd, data[:4])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(OSError):
        file.append([b"second\n"])
    monkeypatch.undo()
    file.append([b"third\n"])
    file.close()
    assert path.read_bytes() == b"first\nthird\n"


def test_a_log_is_for_its_owner_only(tmp_path):
    path = tmp_path / "log.jsonl"
    LogFile(str(path), lambda _event: None).close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_no_permission_is_said(tmp_path):
    with pytest.raises(PrefixlintError) as error:
        LogFile(str(tmp_path), lambda _event: None)
    assert error.value.slug == "record-output"


# --- the thread ---


def test_what_comes_too_fast_is_counted(tmp_path, monkeypatch):
    gate = threading.Event()
    real = LineMaker.make

    def slow(self, made):
        gate.wait(10)
        return real(self, made)

    monkeypatch.setattr(recorder.LineMaker, "make", slow)
    events = []
    made = Recorder(config(tmp_path / "log.jsonl", pending_lines=10), events.append)
    for _ in range(30):
        made.submit(exchange())
    gate.set()
    totals = made.close()
    assert totals.written + totals.lost_queue == 30
    assert totals.lost_queue == 20
    assert "20 requests passed but are missing" in events[-1].message
    assert made.close() == totals


def test_an_exchange_that_cannot_be_written_as_a_line_is_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(recorder.LineMaker, "make", lambda _self, _made: 1 / 0)
    made = Recorder(config(tmp_path / "log.jsonl"), lambda _event: None)
    made.submit(exchange())
    totals = made.close()
    assert (totals.lost_error, totals.written) == (1, 0)
    assert "ZeroDivisionError" in totals.reason


def test_the_disk_may_recover(tmp_path, monkeypatch):
    made = Recorder(config(tmp_path / "log.jsonl"), lambda _event: None)
    real = LogFile.append

    def full(_self, _lines):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(LogFile, "append", full)
    made.submit(exchange())
    assert made.flush()
    monkeypatch.setattr(LogFile, "append", real)
    made.submit(exchange())
    totals = made.close()
    assert (totals.written, totals.lost_disk) == (1, 1)


# --- the reader ---


def test_what_the_reader_gives(tmp_path):
    path = tmp_path / "log.jsonl"
    lines = [
        exchange(),
        exchange(b"{broken"),
        exchange(status=500),
        exchange(b"", method="GET", target="/v1/models"),
        exchange({"model": "c", "max_tokens": 5, "system": "Be kind.", "messages": CHAT["messages"]}),
        exchange({"model": "m", "prompt": [[1, 2, 3], [1, 2, 4]]}),
        exchange({"text": "raw text", "sampling_params": {}}, target="/generate"),
    ]
    maker = LineMaker(config())
    path.write_bytes(b"".join(maker.make(item) for item in lines))
    found = list(logs.read([str(path)]))
    assert [(type(item), item.line) for item in found] == [
        (Request, 1),
        (Skip, 2),
        (Skip, 3),
        (Request, 5),
        (Request, 6),
        (Request, 6),
        (Request, 7),
    ]
    assert {item.format for item in found if isinstance(item, Request)} == {"prefixlint-record"}
    assert [item.slug for item in found if isinstance(item, Skip)] == ["malformed-body", "failed-request"]
    first = found[0]
    assert (first.id, first.time, first.latency.total, first.fields["route"]) == (
        "t-1",
        0.0,
        0.1,
        "/v1/chat/completions",
    )
    assert first.session
    assert Path(first.path) == path
