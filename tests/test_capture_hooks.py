"""The hooks with the real libraries against a local server, and LiteLLM's callback with its real payload."""

import asyncio
import json
import logging
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from prefixlint import logs
from prefixlint.capture.hooks import open_log
from prefixlint.capture.httpx import AsyncRecordingTransport, RecordingTransport
from prefixlint.capture.litellm import callback

CHUNKS = [
    {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [{"index": 0, "delta": {"role": "assistant", "content": word}, "finish_reason": None}]}
    for word in ("Three ", "lichens.")
]  # fmt: skip
CHUNKS.append({"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [], "usage": {"prompt_tokens": 20, "completion_tokens": 2, "total_tokens": 22, "prompt_tokens_details": {"cached_tokens": 16}}})  # fmt: skip
MESSAGE = {
    "id": "m1", "type": "message", "role": "assistant", "model": "claude-x", "stop_reason": "end_turn", "stop_sequence": None,
    "content": [{"type": "text", "text": "Shelf nine."}],
    "usage": {"input_tokens": 3, "output_tokens": 4, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 7},
}  # fmt: skip


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.path.endswith("/messages"):
            data, kind = json.dumps(MESSAGE).encode(), "application/json"
        elif "fail" in self.path:
            self.send_error(500)
            return
        else:
            data = b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in CHUNKS) + b"data: [DONE]\n\n"
            kind = "text/event-stream"
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{httpd.server_address[1]}"
    httpd.shutdown()
    thread.join()
    httpd.server_close()


@pytest.fixture
def log(tmp_path):
    recorder = open_log(str(tmp_path / "log.jsonl"), with_output=True)
    recorder.path = tmp_path / "log.jsonl"
    yield recorder
    recorder.close()


def lines(log):
    log.close()
    return [json.loads(line) for line in log.path.read_bytes().splitlines()]


ASK = {"model": "m", "messages": [{"role": "user", "content": "How many lichens?"}]}


def test_the_openai_client(server, log):
    openai = pytest.importorskip("openai")
    with openai.DefaultHttpxClient(transport=RecordingTransport(log)) as http:
        client = openai.OpenAI(api_key="sk-not-to-be-seen", base_url=f"{server}/v1", http_client=http, max_retries=0)
        text = "".join(
            chunk.choices[0].delta.content
            for chunk in client.chat.completions.create(stream=True, **ASK)
            if chunk.choices
        )
    (line,) = lines(log)
    assert text == "Three lichens."
    assert line["request"] == {**ASK, "stream": True}
    assert line["response"]["text"] == text
    assert line["usage"] == {"prompt": 20, "cached": 16, "completion": 2}
    assert line["status"] == 200
    assert 0 < line["ttft_s"] <= line["total_s"]
    assert "outcome" not in line
    assert "not-to-be-seen" not in json.dumps(line)
    (request,) = logs.read([str(log.path)])
    assert request.content.messages == ASK["messages"]


def test_the_asynchronous_openai_client(server, log):
    openai = pytest.importorskip("openai")

    async def main():
        async with openai.DefaultAsyncHttpxClient(transport=AsyncRecordingTransport(log)) as http:
            client = openai.AsyncOpenAI(api_key="k", base_url=f"{server}/v1", http_client=http, max_retries=0)
            stream = await client.chat.completions.create(stream=True, **ASK)
            return [chunk async for chunk in stream]

    assert len(asyncio.run(main())) == 3
    (line,) = lines(log)
    assert line["usage"]["cached"] == 16
    assert "outcome" not in line


def test_the_anthropic_client(server, log):
    anthropic = pytest.importorskip("anthropic")
    with anthropic.DefaultHttpxClient(transport=RecordingTransport(log)) as http:
        client = anthropic.Anthropic(api_key="k", base_url=server, http_client=http, max_retries=0)
        message = client.messages.create(
            model="claude-x", max_tokens=50, system="Be brief.", messages=[{"role": "user", "content": "Where?"}]
        )
    assert message.content[0].text == "Shelf nine."
    (line,) = lines(log)
    assert line["usage"] == {"prompt": 100, "cached": 90, "written": 7, "completion": 4}
    assert line["response"]["text"] == "Shelf nine."
    assert line["ttft_s"] is None


@pytest.mark.parametrize("name", ["httpx2", "httpx"])
def test_the_transport_passes_on_what_goes_wrong(server, log, name):
    httpx = pytest.importorskip(name)
    inner = httpx.HTTPTransport()
    with httpx.Client(transport=RecordingTransport(log, inner)) as client:
        assert client.post(f"{server}/fail", json=ASK).status_code == 500
        with pytest.raises(httpx.ConnectError):
            client.post("http://127.0.0.1:1/x", json=ASK)
        with client.stream("POST", f"{server}/v1/chat/completions", json=ASK) as response:
            assert next(response.iter_bytes(10))
    failed, refused, left = lines(log)
    assert failed["status"] == 500
    assert refused["status"] is None
    assert refused["outcome"] == "upstream-failed"
    assert left["received_bytes"] > 0


PAYLOAD = {
    "id": "chatcmpl-r1", "session_id": "s-alder", "call_type": "acompletion", "stream": True, "status": "success",
    "startTime": 1740992400.0, "endTime": 1740992400.84, "completionStartTime": 1740992400.31, "model": "gpt-4.1-mini",
    "messages": [{"role": "system", "content": "You are the desk clerk."}, {"role": "user", "content": "Lichens?"}],
    "response": {
        "id": "chatcmpl-r1", "object": "chat.completion", "model": "gpt-4.1-mini-2025-04-14",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Nine."}}],
        "usage": {"prompt_tokens": 212, "completion_tokens": 24, "prompt_tokens_details": {"cached_tokens": 128}},
    },
    "model_parameters": {"temperature": 0.2, "api_key": "k", "tools": [{"type": "function", "function": {"name": "find"}}]},
    "end_user": "u-17", "hidden_params": {}, "metadata": {},
}  # fmt: skip


@pytest.mark.parametrize("asynchronous", [False, True])
def test_the_litellm_callback(log, asynchronous):
    hook = callback(log)
    start = 1740992400.0
    if asynchronous:
        asyncio.run(hook.async_log_success_event({"standard_logging_object": PAYLOAD}, None, start, start))
    else:
        hook.log_success_event({"standard_logging_object": PAYLOAD}, None, start, start)
    (line,) = lines(log)
    assert line["request"]["messages"] == PAYLOAD["messages"]
    assert line["request"]["tools"] == PAYLOAD["model_parameters"]["tools"]
    assert line["usage"] == {"prompt": 212, "cached": 128, "completion": 24}
    assert (line["time"], line["ttft_s"], line["total_s"]) == (1740992400.0, 0.31, 0.84)
    assert line["session"] == "s-alder"
    assert line["response"]["text"] == "Nine."
    (request,) = logs.read([str(log.path)])
    assert (request.model, request.session, request.user) == ("gpt-4.1-mini", "s-alder", "u-17")
    assert len(request.content.tools) == 1


def test_the_litellm_callback_survives_what_it_gets(log):
    hook = callback(log)
    failed = {**PAYLOAD, "status": "failure", "error_str": "rate limit", "response": None}
    for kwargs in (
        {},
        {"standard_logging_object": None},
        {"standard_logging_object": {"startTime": "x"}},
        {"standard_logging_object": failed},
    ):
        hook.log_failure_event(kwargs, None, None, None)
    (line,) = lines(log)
    assert (line["outcome"], line["error"], line["status"]) == ("upstream-failed", "rate limit", None)


def test_the_span_processor(log):
    pytest.importorskip("opentelemetry.sdk.trace")
    from opentelemetry.sdk.trace import TracerProvider

    from prefixlint.capture.otel import RecordingSpanProcessor

    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(RecordingSpanProcessor(log))
    tracer = provider.get_tracer("test")
    with tracer.start_as_current_span("outer"):
        with tracer.start_as_current_span("chat m") as span:
            span.set_attribute("gen_ai.operation.name", "chat")
            span.set_attribute("gen_ai.request.model", "m")
            span.set_attribute("gen_ai.conversation.id", "talk-1")
            parts = [{"type": "text", "content": "How many lichens?"}]
            span.set_attribute("gen_ai.input.messages", json.dumps([{"role": "user", "parts": parts}]))
            span.set_attribute("gen_ai.system_instructions", json.dumps([{"type": "text", "content": "Be brief."}]))
            span.set_attribute("gen_ai.usage.input_tokens", 40)
            span.set_attribute("gen_ai.usage.cache_read.input_tokens", 32)
            span.set_attribute("gen_ai.usage.output_tokens", 5)
        with tracer.start_as_current_span("chat without content") as span:
            span.set_attribute("gen_ai.operation.name", "chat")
    assert provider.force_flush()
    provider.shutdown()
    (line,) = lines(log)
    assert [message["role"] for message in line["request"]["messages"]] == ["system", "user"]
    assert line["usage"] == {"prompt": 40, "cached": 32, "completion": 5}
    assert line["session"] == "talk-1"
    (request,) = logs.read([str(log.path)])
    assert request.content.messages[1]["content"] == "How many lichens?"


def test_loss_is_a_warning_of_the_logger(tmp_path, caplog):
    recorder = open_log(str(tmp_path / "log.jsonl"), pending_lines=0)
    callback(recorder).log_success_event({"standard_logging_object": PAYLOAD}, None, None, None)
    with caplog.at_level(logging.WARNING, "prefixlint"):
        recorder.close()
    assert "1 requests passed but are missing" in caplog.text
