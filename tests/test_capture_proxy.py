"""The recording proxy against a scripted upstream: bytes, faults, ends, loss."""

import asyncio
import contextlib
import gzip
import hashlib
import json
import os
import random
import resource
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
import zlib
from pathlib import Path

import pytest

pytest.importorskip("httptools", reason="the extra `record` is not installed")

from prefixlint.capture.config import RecordConfig, ServeConfig
from prefixlint.capture.proxy import check_upstream, serve
from prefixlint.capture.upstream import Upstream
from prefixlint.errors import PrefixlintError, UsageError

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello there"}]}
REPLY = {
    "id": "r1",
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 8}},
}


async def read_message(reader):
    """Read one HTTP message: first line, headers (lower case), body as it is framed and as it is meant."""
    head = (await reader.readuntil(b"\r\n\r\n"))[:-4].split(b"\r\n")
    headers = {}
    for line in head[1:]:
        name, _, value = line.partition(b":")
        headers[name.decode().lower()] = value.strip().decode("latin-1")
    body = b""
    if "chunked" in headers.get("transfer-encoding", ""):
        pieces = []
        while size := int(await reader.readline(), 16):
            pieces.append((await reader.readexactly(size + 2))[:-2])
        await reader.readline()
        body = b"".join(pieces)
    elif "content-length" in headers and b" 204 " not in head[0] and b" 304 " not in head[0]:
        body = await reader.readexactly(int(headers["content-length"]))
    elif (
        head[0].startswith(b"HTTP/")
        and b" 1" not in head[0][8:10]
        and b" 204 " not in head[0]
        and b" 304 " not in head[0]
    ):
        body = await reader.read()
    return head[0], headers, body


def reply(body=None, *, status="200 OK", kind="application/json", extra=""):
    data = json.dumps(REPLY).encode() if body is None else body
    return f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n{extra}\r\n".encode() + data


class Rig:
    """A scripted upstream, the proxy before it, and a client."""

    def __init__(self, folder, script=None, **record):
        self.log = folder / "log.jsonl"
        self.script = script or self.plain
        self.record = record
        self.seen = []
        self.events = []
        self.connections = 0
        self.served = {}
        self.totals = None

    @staticmethod
    async def plain(_message, _reader, writer):
        writer.write(reply())

    async def _handle(self, reader, writer):
        self.connections += 1
        try:
            while True:
                message = await read_message(reader)
                self.seen.append(message)
                await self.script(message, reader, writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def __aenter__(self):
        self.server = await asyncio.start_server(self._handle, "127.0.0.1", 0, limit=1 << 24)
        port = self.server.sockets[0].getsockname()[1]
        config = RecordConfig(output=str(self.log), salt=b"salt", run="t", **self.record)
        upstream = self.served.get("upstream", f"http://127.0.0.1:{port}")
        self.stop = asyncio.Event()
        started = asyncio.get_running_loop().create_future()
        self.config = ServeConfig(
            upstream=upstream, record=config, port=0, drain=0.2, verify_tls=self.served.get("verify_tls", True)
        )
        self.task = asyncio.create_task(
            serve(self.config, self.events.append, stop=self.stop, ready=lambda _h, p: started.set_result(p))
        )
        await asyncio.wait({self.task, started}, return_when=asyncio.FIRST_COMPLETED)
        if self.task.done():
            started.cancel()
            self.server.close()
            await self.task
        self.port = started.result()
        return self

    async def __aexit__(self, *_):
        self.stop.set()
        self.totals = await self.task
        self.server.close()
        await asyncio.sleep(0.01)

    async def connect(self):
        return await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 24)

    async def ask(self, body=CHAT, *, headers="", method="POST", target="/v1/chat/completions", version="1.1"):
        reader, writer = await self.connect()
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        length = f"Content-Length: {len(data)}\r\n" if method == "POST" else ""
        writer.write(f"{method} {target} HTTP/{version}\r\nHost: proxy\r\n{length}{headers}\r\n".encode() + data)
        try:
            return await asyncio.wait_for(read_message(reader), 20)
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    def lines(self):
        return [json.loads(line) for line in self.log.read_bytes().splitlines()]


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 50))


def test_a_request_passes_and_is_logged(tmp_path):
    async def main():
        async with Rig(tmp_path, with_output=True) as rig:
            head, headers, body = await rig.ask(headers="Authorization: Bearer sk-hidden\r\nX-Mine: 1\r\n")
        assert head == b"HTTP/1.1 200 OK"
        assert headers["content-type"] == "application/json"
        assert set(headers) == {"content-type", "content-length"}
        assert json.loads(body) == REPLY
        got_head, got_headers, got_body = rig.seen[0]
        assert got_head == b"POST /v1/chat/completions HTTP/1.1"
        assert got_headers["authorization"] == "Bearer sk-hidden"
        assert got_headers["x-mine"] == "1"
        assert got_headers["host"] == f"127.0.0.1:{rig.config.upstream.rpartition(':')[2]}"
        assert json.loads(got_body) == CHAT
        (line,) = rig.lines()
        assert b"sk-hidden" not in rig.log.read_bytes()
        assert line["prefixlint_record"] == 1
        assert line["request"] == CHAT
        assert line["status"] == 200
        assert line["response"] == {
            "id": "r1",
            "model": "m",
            "finish": "stop",
            "text": "hi",
            "reasoning": "",
            "tool_calls": [],
        }
        assert line["usage"] == {"prompt": 9, "cached": 8, "completion": 1}
        assert line["ttft_s"] is None
        assert 0 < line["total_s"] < 5
        assert abs(line["time"] - time.time()) < 20
        assert "outcome" not in line
        assert rig.totals.written == 1
        assert rig.totals.lost == 0

    run(main())


def test_the_path_of_the_upstream_is_put_before_and_queries_are_kept(tmp_path):
    async def main():
        rig = Rig(tmp_path)
        server = socket.create_server(("127.0.0.1", 0))
        port = server.getsockname()[1]
        server.close()
        rig.served["upstream"] = f"http://127.0.0.1:{port}/api/"
        async with rig:
            inner = await asyncio.start_server(rig._handle, "127.0.0.1", port)
            await rig.ask(target="/v1/x?key=AIzaSECRET&alt=sse%20x")
            await rig.ask(target="http://elsewhere/v1/y?z=1")
            inner.close()
        assert [seen[0] for seen in rig.seen] == [
            b"POST /api/v1/x?key=AIzaSECRET&alt=sse%20x HTTP/1.1",
            b"POST /api/v1/y?z=1 HTTP/1.1",
        ]
        assert "AIzaSECRET" not in rig.log.read_text()
        assert rig.lines()[0]["target"] == "/v1/x?key=<secret>&alt=sse%20x"

    run(main())


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "identity"])
def test_compressed_bodies_pass_both_ways_as_they_are(tmp_path, encoding):
    pack = {"gzip": gzip.compress, "deflate": zlib.compress, "identity": bytes}[encoding]
    answer, question = pack(json.dumps(REPLY).encode()), pack(json.dumps(CHAT).encode())

    async def script(_message, _reader, writer):
        writer.write(reply(answer, extra=f"Content-Encoding: {encoding}\r\n"))

    async def main():
        async with Rig(tmp_path, script) as rig:
            _, headers, body = await rig.ask(question, headers=f"Content-Encoding: {encoding}\r\n")
        assert headers["content-encoding"] == encoding
        assert body == answer
        assert rig.seen[0][2] == question
        (line,) = rig.lines()
        assert line["request"] == CHAT
        assert line["usage"]["cached"] == 8
        assert "notes" not in line

    run(main())


def test_a_stream_arrives_piece_by_piece(tmp_path):
    go = asyncio.Event()

    async def script(_message, _reader, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        first = b'data: {"id":"s","choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n'
        second = b'data: {"id":"s","choices":[{"index":0,"delta":{"content":"word"}}]}\n\n'
        last = b'data: {"id":"s","choices":[],"usage":{"prompt_tokens":5,"completion_tokens":1}}\n\ndata: [DONE]\n\n'
        writer.write(b"%x\r\n%b\r\n" % (len(first), first))
        await go.wait()
        await asyncio.sleep(0.05)
        for piece in (second, last):
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        writer.write(b"0\r\n\r\n")

    async def main():
        async with Rig(tmp_path, script, with_output=True) as rig:
            reader, writer = await rig.connect()
            writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
            await reader.readuntil(b"\r\n\r\n")
            size = int(await asyncio.wait_for(reader.readline(), 5), 16)
            assert b'"role":"assistant"' in await reader.readexactly(size)
            go.set()
            rest = await asyncio.wait_for(reader.readuntil(b"0\r\n\r\n"), 5)
            assert b"[DONE]" in rest
            writer.close()
        (line,) = rig.lines()
        assert line["response"]["text"] == "word"
        assert line["usage"] == {"prompt": 5, "completion": 1}
        # the first piece said nothing yet: the first token came with the second
        assert 0.05 <= line["ttft_s"] <= line["total_s"]

    run(main())


def test_pipelined_requests_are_answered_in_order(tmp_path):
    async def script(message, _reader, writer):
        number = int(message[2])
        await asyncio.sleep(0.02 if number % 2 else 0)
        writer.write(reply(b"answer %d" % number))

    async def main():
        async with Rig(tmp_path, script) as rig:
            reader, writer = await rig.connect()
            writer.write(
                b"".join(b"POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n%02d" % i for i in range(30))
            )
            answers = [(await asyncio.wait_for(read_message(reader), 5))[2] for _ in range(30)]
            assert answers == [b"answer %d" % i for i in range(30)]
            writer.close()
        assert len(rig.lines()) == 30
        assert rig.connections == 1

    run(main())


@pytest.mark.parametrize("chunked", [False, True])
def test_fifty_megabytes_pass_both_ways(tmp_path, chunked):
    big = os.urandom(1 << 20) * 50

    async def script(message, _reader, writer):
        assert hashlib.sha256(message[2]).digest() == hashlib.sha256(big).digest()
        if chunked:
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n" % len(big))
            writer.write(big + b"\r\n0\r\n\r\n")
        else:
            writer.write(reply(big))

    async def main():
        async with Rig(tmp_path, script, body_limit=1 << 20) as rig:
            reader, writer = await rig.connect()
            head = b"POST /big HTTP/1.1\r\nHost: x\r\n"
            if chunked:
                writer.write(head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(big) + big + b"\r\n0\r\n\r\n")
            else:
                writer.write(head + b"Content-Length: %d\r\n\r\n" % len(big) + big)
            _, headers, body = await asyncio.wait_for(read_message(reader), 40)
            assert hashlib.sha256(body).digest() == hashlib.sha256(big).digest()
            assert ("transfer-encoding" in headers) == chunked
            writer.close()
        (line,) = rig.lines()
        assert line["sent_bytes"] == line["received_bytes"] == len(big)
        assert "longer than" in line["malformed"]

    run(main())


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_response_without_a_length_ends_with_its_connection(tmp_path, version):
    async def script(_message, _reader, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n" + json.dumps(REPLY).encode())
        await writer.drain()
        writer.close()

    async def main():
        async with Rig(tmp_path, script) as rig:
            _, headers, body = await rig.ask(version=version)
        assert json.loads(body) == REPLY
        assert headers.get("transfer-encoding") == (None if version == "1.0" else "chunked")
        assert "outcome" not in rig.lines()[0]

    run(main())


def test_head_no_content_and_interim_responses(tmp_path):
    async def script(message, _reader, writer):
        if message[0].startswith(b"HEAD"):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        elif b"/empty" in message[0]:
            writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        else:
            writer.write(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + reply())

    async def main():
        async with Rig(tmp_path, script) as rig:
            reader, writer = await rig.connect()
            writer.write(b"HEAD /x HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b"Content-Length: 1000" in await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
            writer.write(b"GET /empty HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await asyncio.wait_for(read_message(reader), 5))[0] == b"HTTP/1.1 204 No Content"
            writer.write(b"GET /y HTTP/1.1\r\nHost: x\r\n\r\n")
            assert json.loads((await asyncio.wait_for(read_message(reader), 5))[2]) == REPLY
            writer.close()
        assert [line["status"] for line in rig.lines()] == [200, 204, 200]

    run(main())


def test_expect_continue_is_answered(tmp_path):
    async def main():
        async with Rig(tmp_path) as rig:
            reader, writer = await rig.connect()
            writer.write(b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
            assert await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5) == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(b"{}")
            assert b"200" in (await asyncio.wait_for(read_message(reader), 5))[0]
            writer.close()
        assert "expect" not in rig.seen[0][1]

    run(main())


def test_headers_of_one_hop_are_not_passed_on(tmp_path):
    async def script(_message, _reader, writer):
        writer.write(
            reply(
                extra="Connection: keep-alive, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\nX-End: 2\r\nX-End: 3\r\n"
            )
        )

    async def main():
        async with Rig(tmp_path, script) as rig:
            _, headers, _ = await rig.ask(
                headers="Connection: x-mine, close\r\nX-Mine: 1\r\nTE: trailers\r\nX-Yours: 2\r\n"
            )
        assert not {"x-hop", "keep-alive"} & set(headers)
        assert headers["x-end"] == "3"
        assert headers["connection"] == "close"
        assert not {"x-mine", "te", "connection"} & set(rig.seen[0][1])
        assert rig.seen[0][1]["x-yours"] == "2"

    run(main())


def test_an_upstream_that_is_down_gives_502_with_a_clear_body(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

    async def main():
        rig = Rig(tmp_path)
        rig.served["upstream"] = f"http://127.0.0.1:{port}"
        async with rig:
            head, headers, body = await rig.ask()
        assert head.startswith(b"HTTP/1.1 502")
        assert headers["content-type"] == "application/json"
        error = json.loads(body)["error"]
        assert error["type"] == "upstream_failed"
        assert f"127.0.0.1:{port}" in error["message"]
        (line,) = rig.lines()
        assert line["outcome"] == "upstream-failed"
        assert line["status"] == 502
        assert line["request"] == CHAT

    run(main())


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200", b"SSH-2.0-OpenSSH_9\r\n", b"\0\1\2\3" * 10])
def test_an_upstream_that_answers_nonsense_gives_502(tmp_path, answer):
    async def script(_message, _reader, writer):
        writer.write(answer)
        await writer.drain()
        writer.close()

    async def main():
        async with Rig(tmp_path, script) as rig:
            head, _, body = await rig.ask()
        assert head.startswith(b"HTTP/1.1 502")
        assert json.loads(body)["error"]["message"].startswith("prefixlint record: no response from the upstream")
        assert rig.lines()[0]["outcome"] == "upstream-failed"
        assert len(rig.seen) == 1

    run(main())


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\nnonsense\r\n",
    ],
)
def test_half_a_response_is_not_made_a_whole_one(tmp_path, answer):
    async def script(_message, _reader, writer):
        writer.write(answer)
        await writer.drain()
        writer.close()

    async def main():
        async with Rig(tmp_path, script) as rig:
            with pytest.raises((asyncio.IncompleteReadError, ValueError)) as broken:
                await rig.ask()
            if isinstance(broken.value, asyncio.IncompleteReadError):
                assert broken.value.partial in (b"short", b"")
        (line,) = rig.lines()
        assert line["outcome"] == "upstream-broke-off"
        assert line["received_bytes"] == 5

    run(main())


def test_more_than_the_promised_length_is_cut_and_the_connection_not_used_again(tmp_path):
    async def script(_message, _reader, writer):
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nshortHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"
        )

    async def main():
        async with Rig(tmp_path, script) as rig:
            assert (await rig.ask())[2] == b"short"
            assert (await rig.ask())[2] == b"short"
        assert rig.connections == 2

    run(main())


def test_a_kept_connection_that_the_upstream_closed_is_not_an_error(tmp_path):
    closing = asyncio.Event()

    async def script(_message, _reader, writer):
        writer.write(reply())
        await writer.drain()
        if not closing.is_set():
            closing.set()
            # closes without a word, at the moment when the next request is on its way
            sock = writer.get_extra_info("socket")
            sock.shutdown(socket.SHUT_RD)

    async def main():
        async with Rig(tmp_path, script) as rig:
            for _ in range(5):
                assert b"200" in (await rig.ask())[0]
        assert [line["status"] for line in rig.lines()] == [200] * 5

    run(main())


def test_a_slow_upstream_is_waited_for(tmp_path):
    async def script(_message, _reader, writer):
        await asyncio.sleep(0.5)
        for byte in reply():
            writer.write(bytes([byte]))
            if byte == 10:
                await asyncio.sleep(0.01)

    async def main():
        async with Rig(tmp_path, script) as rig:
            assert json.loads((await rig.ask())[2]) == REPLY
        assert rig.lines()[0]["total_s"] > 0.5

    run(main())


def test_a_client_that_leaves_an_endless_response_ends_it_upstream(tmp_path):
    ended = asyncio.Event()

    async def script(_message, _reader, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        try:
            while True:
                writer.write(b'data: {"choices":[{"index":0,"delta":{"content":"x"}}]}\n\n' * 50)
                await writer.drain()
                await asyncio.sleep(0)
        except ConnectionError:
            ended.set()
            raise

    async def main():
        async with Rig(tmp_path, script, body_limit=10_000) as rig:
            reader, writer = await rig.connect()
            writer.write(b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
            await reader.readexactly(3_000_000)
            writer.transport.abort()
            await asyncio.wait_for(ended.wait(), 10)
        (line,) = rig.lines()
        assert line["outcome"] == "client-gone"
        assert line["received_bytes"] >= 2_900_000
        assert "response cut" in line["notes"]

    run(main())


def test_a_client_that_does_not_read_slows_the_upstream_down(tmp_path):
    sent = 0

    async def script(_message, _reader, writer):
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 65536)
            sent += 65536
            await writer.drain()

    async def main():
        async with Rig(tmp_path, script, body_limit=1000) as rig:
            _reader, writer = await asyncio.open_connection("127.0.0.1", rig.port, limit=1024)
            writer.write(b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
            await asyncio.sleep(0.5)
            before = sent
            await asyncio.sleep(0.3)
            assert sent == before, "socket buffers are full: nothing more is taken"
            assert sent < 64 << 20
            writer.transport.abort()

    run(main())


def test_a_client_that_breaks_off_its_request(tmp_path):
    async def main():
        async with Rig(tmp_path) as rig:
            _reader, writer = await rig.connect()
            writer.write(b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nhalf")
            await asyncio.sleep(0.1)
            writer.transport.abort()
            await asyncio.sleep(0.1)
            assert b"200" in (await rig.ask())[0]
        first, second = rig.lines()
        assert first["outcome"] == "client-gone"
        assert first["sent_bytes"] == 4
        assert second["status"] == 200

    run(main())


@pytest.mark.parametrize("garbage", [b"\x16\x03\x01\x02\x00\x01\x00", b"hello\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"])
def test_what_is_no_http_is_refused(tmp_path, garbage):
    async def main():
        async with Rig(tmp_path) as rig:
            reader, writer = await rig.connect()
            writer.write(garbage)
            assert (await asyncio.wait_for(read_message(reader), 5))[0].startswith(b"HTTP/1.1 400")
            writer.close()
            assert b"200" in (await rig.ask())[0]

    run(main())


def test_an_upgrade_is_refused_and_said(tmp_path):
    async def main():
        async with Rig(tmp_path) as rig:
            head, _, body = await rig.ask(method="GET", headers="Connection: Upgrade\r\nUpgrade: websocket\r\n")
            assert b"200" in (await rig.ask())[0]
        assert head.split()[1] in (b"400", b"501")
        assert "plain HTTP only" in json.loads(body)["error"]["message"]

    run(main())


@pytest.mark.parametrize("body", [b"{not json", b"\xff\xfe\x00", b"[" * 5000, b'{"a": "\\ud800"}', b"null", b"[1,2]"])
def test_malformed_bodies_pass_through_and_are_logged_as_such(tmp_path, body):
    async def main():
        async with Rig(tmp_path) as rig:
            assert b"200" in (await rig.ask(body))[0]
        assert rig.seen[0][2] == body
        (line,) = rig.lines()
        try:
            assert line["request"] == json.loads(body)
        except (ValueError, RecursionError):
            assert line["request"] is None
            assert line["malformed"].startswith("not JSON")

    run(main())


def test_running_exchanges_are_logged_when_the_proxy_stops(tmp_path):
    async def script(_message, _reader, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {}\n\n")
        await asyncio.sleep(60)

    async def main():
        async with Rig(tmp_path, script) as rig:
            reader, writer = await rig.connect()
            writer.write(b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
            await reader.readuntil(b"data: {}\n\n")
            task = asyncio.create_task(asyncio.sleep(0))
            await task
            writer.close()
            rig.stop.set()
        (line,) = rig.lines()
        assert line["outcome"] in ("stopped", "client-gone")

    with contextlib.suppress(asyncio.CancelledError):
        run(main())


def test_hundreds_of_concurrent_streams_lose_nothing(tmp_path):
    async def script(message, _reader, writer):
        number = int(message[1]["x-number"])
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        random_ = random.Random(number)
        data = stream(number)
        while data:
            size = random_.randint(1, 200)
            piece, data = data[:size], data[size:]
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            if random_.random() < 0.2:
                await asyncio.sleep(0)
        writer.write(b"0\r\n\r\n")

    def stream(number):
        pieces = "".join(
            f'data: {{"id":"r{number}","choices":[{{"index":0,"delta":{{"content":"w{i}ü "}}}}]}}\n\n' for i in range(8)
        )
        return f'{pieces}data: {{"choices":[],"usage":{{"prompt_tokens":{number + 100},"completion_tokens":8,"prompt_tokens_details":{{"cached_tokens":{number}}}}}}}\n\ndata: [DONE]\n\n'.encode()

    async def main():
        async with Rig(tmp_path, script, with_output=True) as rig:
            waiting = iter(range(400))

            async def work():
                reader, writer = await rig.connect()
                for number in waiting:
                    body = json.dumps({**CHAT, "n": number}).encode()
                    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Number: {number}\r\nContent-Length: {len(body)}\r\n\r\n"
                    writer.write(head.encode() + body)
                    assert (await read_message(reader))[2] == stream(number)
                writer.close()

            await asyncio.gather(*(work() for _ in range(32)))
        lines = sorted(rig.lines(), key=lambda line: line["request"]["n"])
        assert [line["request"]["n"] for line in lines] == list(range(400))
        assert [line["usage"]["cached"] for line in lines] == list(range(400))
        assert all(line["response"]["text"] == "".join(f"w{i}ü " for i in range(8)) for line in lines)
        assert rig.totals.written == 400
        assert rig.totals.lost == 0

    run(main())


def test_requests_pass_on_a_full_disk_and_the_loss_is_said(tmp_path):
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")

    async def main():
        rig = Rig(tmp_path)
        rig.log = Path("/dev/full")
        async with rig:
            for _ in range(5):
                assert b"200" in (await rig.ask())[0]
        assert rig.totals.lost_disk == 5
        assert rig.totals.written == 0
        said = [event.message for event in rig.events if event.kind == "loss"]
        assert said[-1].startswith("5 requests passed but are missing")
        assert "No space left" in said[-1]

    run(main())


def test_no_permission_is_an_error_before_anything_is_served(tmp_path):
    async def main():
        rig = Rig(tmp_path)
        rig.log = tmp_path / "not-there" / "log.jsonl"
        with pytest.raises(PrefixlintError, match="cannot write the log"):
            await rig.__aenter__()

    run(main())


def test_a_taken_port_is_an_error(tmp_path):
    async def main():
        with socket.create_server(("127.0.0.1", 0)) as taken:
            record = RecordConfig(output=str(tmp_path / "log"), salt=b"s", run="t")
            config = ServeConfig(upstream="http://127.0.0.1:1", record=record, port=taken.getsockname()[1])
            with pytest.raises(PrefixlintError, match="cannot listen") as error:
                await serve(config, lambda _event: None, stop=asyncio.Event())
            assert error.value.hint

    run(main())


@pytest.mark.parametrize("verify", [False, True])
def test_an_upstream_with_tls(tmp_path, verify):
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs openssl to make a certificate")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        [
            openssl,
            *["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "2", "-keyout"],
            key,
            "-out",
            certificate,
        ],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    async def main():
        rig = Rig(tmp_path)
        secure = await asyncio.start_server(rig._handle, "127.0.0.1", 0, ssl=context)
        rig.served.update(upstream=f"https://127.0.0.1:{secure.sockets[0].getsockname()[1]}", verify_tls=verify)
        async with rig:
            answers = [await rig.ask() for _ in range(3)]
        secure.close()
        if verify:
            assert all(head.startswith(b"HTTP/1.1 502") for head, _, _ in answers)
            assert "certificate" in json.loads(answers[0][2])["error"]["message"].lower()
        else:
            assert [json.loads(body) for _, _, body in answers] == [REPLY] * 3
            assert rig.connections == 1
            assert rig.totals.written == 3

    run(main())


@pytest.mark.parametrize(
    "url", ["", "localhost:8000", "ftp://x", "http://", "http://x/?a=1", "http://x:0", "http://[::1"]
)
def test_an_upstream_must_be_a_url(url):
    with pytest.raises(UsageError):
        check_upstream(url)


def test_the_upstream_of_a_url():
    upstream = Upstream("https://user@api.example:8443/v1/", 1, lambda _exchange: None)
    assert (upstream.host, upstream.base) == (b"api.example:8443", b"/v1")


def start_process(tmp_path, upstream_port, **limits):
    program = f"""
import sys
from prefixlint.capture.config import RecordConfig, ServeConfig
from prefixlint.capture.proxy import run
record = RecordConfig(output={str(tmp_path / "log.jsonl")!r}, salt=b"s", run="p")
config = ServeConfig(upstream="http://127.0.0.1:{upstream_port}", record=record, port=0, drain=0.5)
totals = run(config, lambda event: print(event.message, file=sys.stderr, flush=True), ready=lambda h, p: print(p, flush=True))
print(totals.written, totals.lost, flush=True)
"""
    return subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **limits
    )


async def hammer(port, count, on_answer=lambda: None):
    done = 0
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.closing(writer):
            for number in range(count):
                body = json.dumps({**CHAT, "n": number, "pad": "x" * 500}).encode()
                writer.write(b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                await read_message(reader)
                done += 1
                on_answer()
    return done


def test_killed_in_the_middle_the_log_is_valid_to_its_last_whole_line(tmp_path):
    async def main():
        server = await asyncio.start_server(Rig(tmp_path)._handle, "127.0.0.1", 0)
        process = start_process(tmp_path, server.sockets[0].getsockname()[1])
        port = int(await asyncio.to_thread(process.stdout.readline))
        enough = asyncio.Semaphore(0)
        tasks = [asyncio.create_task(hammer(port, 100_000, enough.release)) for _ in range(4)]
        for _ in range(300):
            await enough.acquire()
        os.kill(process.pid, signal.SIGKILL)
        done = sum(await asyncio.gather(*tasks))
        await asyncio.to_thread(process.communicate)
        server.close()
        return done

    done = run(main())
    data = (tmp_path / "log.jsonl").read_bytes()
    whole = data[: data.rfind(b"\n") + 1].splitlines()
    assert done >= 300
    assert all(json.loads(line)["request"]["pad"] for line in whole)
    # what waited in memory for the thread that writes is lost, and no more
    assert 100 < len(whole) <= done + 4


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_in_order(tmp_path, number):
    async def main():
        server = await asyncio.start_server(Rig(tmp_path)._handle, "127.0.0.1", 0)
        process = start_process(tmp_path, server.sockets[0].getsockname()[1])
        port = int(await asyncio.to_thread(process.stdout.readline))
        done = await hammer(port, 20)
        process.send_signal(number)
        out, err = await asyncio.to_thread(process.communicate)
        server.close()
        assert (process.returncode, out) == (0, f"{done} 0\n")
        assert "recording http://127.0.0.1:" in err

    run(main())


def test_a_file_that_may_not_grow_loses_lines_and_no_request(tmp_path):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    async def main():
        server = await asyncio.start_server(Rig(tmp_path)._handle, "127.0.0.1", 0)
        process = start_process(tmp_path, server.sockets[0].getsockname()[1], preexec_fn=limit)
        port = int(await asyncio.to_thread(process.stdout.readline))
        assert await hammer(port, 100) == 100
        process.send_signal(signal.SIGTERM)
        out, err = await asyncio.to_thread(process.communicate)
        server.close()
        written, lost = map(int, out.split())
        assert written + lost == 100
        assert written > 5
        assert lost > 5
        assert f"{lost} requests passed but are missing" in err
        lines = (tmp_path / "log.jsonl").read_bytes().split(b"\n")
        assert lines[-1] == b""
        assert len([json.loads(line) for line in lines[:-1]]) == written

    run(main())
