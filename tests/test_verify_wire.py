"""The wire: what comes of servers that answer, and of those that refuse, hang, lie, break off or speak otherwise."""

from __future__ import annotations

import random
import socket
import statistics
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixlint.errors import PrefixlintError, ServerError, UsageError
from prefixlint.verify.sse import Events
from prefixlint.verify.wire import Server

from .fakeserver import CLOSE, HANG, STREAM, FakeServer, chunk, events, refused_port, reply, stream

TOKEN = "sk-very-secret-0123456789"


def ask(server: FakeServer, **options: object):
    with Server(server.url, **{"timeout": 5.0, **options}) as client:
        return client.stream("/v1/chat/completions", b'{"stream":true}')


def answering(*answers: object, **options: object) -> FakeServer:
    """A server that gives these answers in turn, the last one again and again."""
    left = list(answers)
    return FakeServer(lambda *_: left.pop(0) if len(left) > 1 else left[0], **options)


def test_a_stream_gives_its_events_with_the_moments_at_which_they_came():
    gap = 0.05
    parts = [STREAM, lambda: time.sleep(gap), chunk(events({"n": 1}, done=False)), lambda: time.sleep(gap)]
    parts += [chunk(events({"n": 2}))]
    parts += [lambda: time.sleep(gap), b"0\r\n\r\n"]
    with answering(parts) as server:
        before = time.perf_counter()
        got = ask(server)
        after = time.perf_counter()
    assert got.status == 200
    assert got.failure is None
    assert [data for _, data in got.events] == [b'{"n": 1}', b'{"n": 2}']
    moments = [before, got.sent, got.events[0][0], got.events[1][0], got.done, after]
    assert moments == sorted(moments)
    assert got.events[0][0] - got.sent >= gap
    assert got.events[1][0] - got.sent >= 2 * gap
    # the end of the stream is not the end of its output: waiting for it is no time of the answer
    assert got.done == got.events[1][0]


def test_waiting_is_no_part_of_what_the_client_itself_takes():
    payload = events({"choices": [{"index": 0, "delta": {"content": "x"}}]}, {"usage": {"prompt_tokens": 1}})
    answer = [STREAM, lambda: time.sleep(0.01), chunk(payload), b"0\r\n\r\n"]
    body = b'{"messages":[{"role":"user","content":"%b"}]}' % (b"word " * 4000)
    with answering(answer) as server, Server(server.url) as client:
        taken = [client.stream("/v1/chat/completions", body) for _ in range(60)]
    assert all(got.failure is None for got in taken)
    assert all(got.done - got.sent >= 0.01 for got in taken)
    assert statistics.median(got.overhead / (got.done - got.sent) for got in taken) < 0.5
    assert min(got.overhead for got in taken) > 0


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_events_are_the_same_however_their_bytes_are_split(data):
    payloads = data.draw(
        st.lists(st.binary(max_size=30).map(lambda b: b.replace(b"\r", b"").replace(b"\n", b"")), max_size=6)
    )
    ending = data.draw(st.sampled_from([b"\n", b"\r\n", b"\r"]))
    text = b"".join(b": comment" + ending + b"data: " + p + ending + ending for p in payloads)
    parser, found, at = Events(), [], 0
    while at < len(text):
        size = data.draw(st.integers(1, 9))
        found += parser.feed(text[at : at + size])
        at += size
    # a CR at the very end may be half of a line's end; what follows tells
    found += parser.feed(b":\n") if ending == b"\r" else []
    assert found == payloads
    assert not parser.pending
    assert parser.held == 0


def test_data_lines_of_one_event_belong_together_and_a_space_is_taken_away_once():
    assert Events().feed(b"event: x\nid: 3\ndata:  a\ndata:b\nretry: 5\n\n") == [b" a\nb"]


def test_an_event_that_did_not_end_is_pending():
    parser = Events()
    assert parser.feed(b'data: {"n"') == []
    assert parser.pending
    assert parser.held == 10


def test_chunks_may_be_split_anywhere():
    whole = (
        STREAM
        + chunk(events({"n": 1}, done=False))
        + chunk(b"data: {")
        + chunk(b'"n": 2}\n')
        + chunk(b"\ndata: [DONE]\n\n")
    )
    whole += b"0\r\n\r\n"
    rng = random.Random(3)
    for _ in range(5):
        cuts = sorted(rng.sample(range(1, len(whole)), 12))
        parts = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
        slow = [part for piece in parts for part in (piece, lambda: time.sleep(0.001))]
        with answering(slow) as server:
            got = ask(server)
        assert got.failure is None
        assert [data for _, data in got.events] == [b'{"n": 1}', b'{"n": 2}']


def test_an_event_of_a_megabyte_comes_whole_and_in_linear_time():
    big = b'{"text":"%b"}' % (b"x" * 3_000_000)
    body = events(big)
    parts = [STREAM, *(chunk(body[i : i + 4096]) for i in range(0, len(body), 4096)), b"0\r\n\r\n"]
    with answering(parts) as server:
        began = time.perf_counter()
        got = ask(server)
    assert [data for _, data in got.events] == [big]
    assert time.perf_counter() - began < 5


def test_connections_are_used_again_and_opened_again_where_the_server_closed_them():
    with answering(stream({"n": 1})) as server, Server(server.url) as client:
        for _ in range(3):
            assert client.stream("/x", b"{}").failure is None
            assert client.get("/y").status == 200
        assert server.connections == 1
    with answering([stream({"n": 1}), CLOSE]) as server, Server(server.url) as client:
        for _ in range(3):
            time.sleep(0.02)  # the end of the connection has arrived when the next request is written
            got = client.stream("/x", b"{}")
            assert got.failure is None
            assert got.events
        assert server.connections == 3
        assert len(server.requests) == 3


def test_a_connection_is_not_used_again_after_an_answer_that_was_not_read_to_its_end():
    broken = STREAM + chunk(events({"n": 1}, done=False)) + b"zz\r\nnonsense"
    with answering(broken, stream({"n": 2})) as server, Server(server.url) as client:
        first = client.stream("/x", b"{}")
        assert first.failure is not None
        assert [data for _, data in client.stream("/x", b"{}").events] == [b'{"n": 2}']
        assert server.connections == 2


def test_each_thread_has_a_connection_of_its_own():
    with answering(stream({"n": 1})) as server, Server(server.url) as client:
        gate = threading.Barrier(4)
        failures = []

        def work():
            gate.wait(10)
            failures.extend(client.stream("/x", b"{}").failure for _ in range(5))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert failures == [None] * 20
        assert server.connections == 4


def test_a_port_where_nothing_listens():
    with Server(f"http://127.0.0.1:{refused_port()}") as client:
        got = client.stream("/x", b"{}")
        assert got.status == 0
        assert got.events == []
        assert got.failure is not None
        assert got.failure.slug == "server-refused"
        with pytest.raises(ServerError) as error:
            client.get("/v1/models")
    assert error.value.slug == "server-refused"
    assert "refused" in error.value.message.lower()
    assert error.value.hint


def test_a_host_that_does_not_exist():
    with Server("http://no-such-host.invalid:1") as client, pytest.raises(ServerError) as error:
        client.get("/")
    assert error.value.slug == "server-refused"


@pytest.mark.parametrize("parts", [[HANG], [STREAM, HANG], [STREAM, chunk(events({"n": 1}, done=False)), HANG]])
def test_a_server_that_hangs(parts):
    with answering(parts) as server:
        began = time.perf_counter()
        got = ask(server, timeout=0.2)
        assert time.perf_counter() - began < 5
    assert got.failure is not None
    assert got.failure.slug == "server-hung"
    assert "0.2 s" in got.failure.message
    assert len(got.events) == (len(parts) == 3)
    assert got.overhead < 0.15  # the silence is no overhead


def test_a_server_that_sends_a_byte_now_and_then_for_ever_is_hung_too():
    drip = [STREAM, *([lambda: time.sleep(0.02), chunk(b":\n")] * 500)]
    with answering(drip) as server:
        began = time.perf_counter()
        got = ask(server, longest=0.3)
        assert time.perf_counter() - began < 5
    assert got.failure is not None
    assert got.failure.slug == "server-hung"


def test_an_answer_without_an_end_after_its_last_event_is_whole():
    with answering([STREAM, chunk(events({"n": 1})), HANG]) as server, Server(server.url, timeout=0.2) as client:
        got = client.stream("/x", b"{}")
        assert got.failure is None
        assert len(got.events) == 1
        client.stream("/x", b"{}")
        assert server.connections == 2  # that connection is not clean


@pytest.mark.parametrize(
    "parts",
    [
        [STREAM, chunk(events({"n": 1}, done=False)), CLOSE],
        [STREAM, chunk(events({"n": 1}, done=False)), b"40\r\ndata: {", CLOSE],
        [b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + events({"n": 1}, done=False), CLOSE],
        [STREAM, chunk(events({"n": 1}, done=False) + b'data: {"n": 2'), b"0\r\n\r\n"],
    ],
)
def test_a_server_that_goes_in_the_middle_keeps_what_came(parts):
    with answering(parts) as server:
        got = ask(server)
    assert [data for _, data in got.events] == [b'{"n": 1}']
    assert got.failure is not None
    assert got.failure.slug == "server-gone"
    assert "before its answer was whole" in got.failure.message


def test_a_stream_without_chunks_ends_with_its_last_event():
    with answering([b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + events({"n": 1}), CLOSE]) as server:
        got = ask(server)
    assert got.failure is None
    assert len(got.events) == 1


def test_a_server_that_closes_without_an_answer():
    with answering(CLOSE) as server:
        got = ask(server)
    assert got.failure is not None
    assert got.failure.slug == "server-gone"
    assert "without an answer" in got.failure.message


def test_a_server_that_dies_between_two_requests():
    with answering(stream({"n": 1}), CLOSE) as server, Server(server.url) as client:
        assert client.stream("/x", b"{}").failure is None
        failure = client.stream("/x", b"{}").failure
        assert failure is not None
        assert failure.slug == "server-gone"
        assert len(server.requests) == 3  # once on the kept connection, once more on a fresh one, and no more


@pytest.mark.parametrize(
    ("status", "headers", "slug", "wait"),
    [
        (500, (), "server-failed", None),
        (503, ("Retry-After: 2",), "server-busy", 2.0),
        (429, ("Retry-After: 1.5",), "server-busy", 1.5),
        (429, ("Retry-After: Wed, 21 Oct 2026 07:28:00 GMT",), "server-busy", None),
        (429, ("Retry-After: -3",), "server-busy", None),
        (401, (), "server-denied", None),
        (400, (), "request-refused", None),
        (404, (), "request-refused", None),
        (302, ("Location: https://elsewhere/",), "not-an-inference-server", None),
    ],
)
def test_answers_that_are_no(status, headers, slug, wait):
    with answering(reply(status, {"error": {"message": "no \x1b[31mroom"}}, *headers)) as server:
        got = ask(server)
        with Server(server.url) as client:
            assert client.get("/x").status == status  # a whole answer is no error of the wire
    assert got.status == status
    assert got.events == []
    assert got.failure is not None
    assert (got.failure.slug, got.failure.retry_after, got.failure.status) == (slug, wait, status)
    assert got.failure.passing == (slug == "server-busy")
    assert "no [31mroom" in got.failure.message
    assert "\x1b" not in got.failure.message


def test_an_error_inside_a_stream():
    with answering(stream({"choices": []}, {"error": {"message": "out of memory", "code": 500}})) as server:
        got = ask(server)
    assert got.failure is not None
    assert got.failure.slug == "server-failed"
    assert "out of memory" in got.failure.message
    with answering(stream({"error": {"message": "prompt too long", "code": 400}})) as server:
        failure = ask(server).failure
    assert failure is not None
    assert failure.slug == "request-refused"


@pytest.mark.parametrize(
    ("answer", "slug"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "not-an-inference-server"),
        (b"+PONG\r\n-ERR unknown command\r\n", "not-an-inference-server"),
        (b"\x00\xff\xfe garbage \x1b[2J\r\n\r\n", "not-an-inference-server"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\nhello\r\n",
            "server-gone",
        ),
        (b"HTTP/1.1 banana OK\r\n\r\n", "not-an-inference-server"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 500 + b"\r\n", "server-garbled"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999\r\n\r\nx", "server-garbled"),
        (reply(200, b"<html><h1>Welcome to nginx!</h1>", kind="text/html"), "not-an-inference-server"),
        (reply(200, {"object": "chat.completion", "choices": []}), "not-an-inference-server"),
    ],
)
def test_what_is_no_stream(answer, slug):
    with answering([answer, CLOSE]) as server:
        got = ask(server)
    assert got.failure is not None
    assert got.failure.slug == slug
    assert got.failure.message.isprintable()


def test_events_that_are_garbage_come_as_they_are():
    with answering(stream(b"\xff\xfe", b"{not json")) as server:
        got = ask(server)
    assert got.failure is None
    assert [data for _, data in got.events] == [b"\xff\xfe", b"{not json"]


def test_tls_works_with_a_trusted_certificate(monkeypatch):
    from .fakeserver import TLS

    monkeypatch.setenv("SSL_CERT_FILE", str(TLS / "localhost.crt"))
    with answering(stream({"n": 1}), tls=True) as server:
        got = ask(server)
    assert got.failure is None
    assert len(got.events) == 1


def test_a_certificate_that_nobody_trusts(monkeypatch):
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with answering(stream({"n": 1}), tls=True) as server:
        got = ask(server)
    assert got.failure is not None
    assert got.failure.slug == "tls-mismatch"
    assert "not trusted" in got.failure.message
    assert "SSL_CERT_FILE" in (got.failure.hint or "")


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", b"", None])
def test_tls_against_a_plain_server_that_answers_closes_or_waits(answer):
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            sock, _ = listener.accept()
            with sock:
                sock.recv(1)
                if answer is None:
                    done.wait(10)
                sock.sendall(answer or b"")

        done = threading.Event()
        thread = threading.Thread(target=serve)
        thread.start()
        port = listener.getsockname()[1]
        with Server(f"https://127.0.0.1:{port}", timeout=0.5) as client, pytest.raises(ServerError) as error:
            client.get("/v1/models")
        done.set()
        thread.join(10)
    assert error.value.slug == "tls-mismatch"
    assert f"http://127.0.0.1:{port}" in f"{error.value.message} {error.value.hint}"


def test_plain_against_a_tls_server():
    with answering(stream({"n": 1}), tls=True) as server:
        with (
            Server(server.url.replace("https://", "http://"), timeout=5) as client,
            pytest.raises(ServerError) as error,
        ):
            client.get("/v1/models")
        assert server.requests == []
    assert error.value.slug == "tls-mismatch"
    assert error.value.hint == f"use {server.url}"


def test_plain_against_servers_that_answer_it_with_an_alert_or_a_page():
    page = reply(400, b"<title>400 The plain HTTP request was sent to HTTPS port</title>", kind="text/html")
    for answer in (b"\x15\x03\x03\x00\x02\x02\x46\r\n", page):
        with answering([answer, CLOSE]) as server:
            got = ask(server)
        assert got.failure is not None
        assert got.failure.slug == "tls-mismatch"


def test_the_token_is_sent_and_never_shown():
    leak = reply(401, {"error": {"message": f"bad key {TOKEN}, Bearer {TOKEN}"}})
    with answering(leak) as server, Server(server.url, token=f"  {TOKEN}\n") as client:
        got = client.stream("/x", b"{}")
        assert f"Authorization: Bearer {TOKEN}\r\n" in server.requests[0][2]
        assert got.failure is not None
        assert "bad key ***, Bearer ***" in got.failure.message
        assert TOKEN not in repr(client)
        assert TOKEN not in repr(got.failure)
        assert TOKEN not in str(vars(got.failure.error()))
    with answering([f"{TOKEN}\r\n".encode(), CLOSE]) as server, Server(server.url, token=TOKEN) as client:
        with pytest.raises(ServerError) as error:
            client.get("/x")
        assert TOKEN not in error.value.message


@pytest.mark.parametrize("token", ["a\r\nX-Evil: 1", "ключ", "a\x00b"])
def test_a_token_that_no_header_may_hold(token):
    with pytest.raises(UsageError) as error:
        Server("http://127.0.0.1:1", token=token)
    assert token not in error.value.message


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/", "/v1/chat/completions", "/v1/completions"])
def test_the_url_may_hold_what_people_paste(path):
    with answering(stream({"n": 1})) as server, Server(server.url + path) as client:
        client.stream("/v1/chat/completions", b"{}")
        assert client.url == server.url
        assert server.requests[0][1] == "/v1/chat/completions"


def test_a_server_may_live_below_a_path():
    with answering(stream({"n": 1})) as server, Server(f"{server.url}/openai/v1") as client:
        client.stream("/v1/chat/completions", b"{}")
        assert client.url == f"{server.url}/openai"
        assert server.requests[0][1] == "/openai/v1/chat/completions"
        assert f"Host: 127.0.0.1:{server.port}\r\n" in server.requests[0][2]


@pytest.mark.parametrize(
    "url",
    [
        "", "localhost:8000", "ftp://x/", "http://", "http:///v1", "http://x:99999999", "http://x:y/", "http://[::1",
        "http://a b/", "http://x/\r\nEvil: 1", "http://x/?key=1", "http://x/#y", f"http://user:{TOKEN}@x/", "file:///etc/passwd",
    ],
)  # fmt: skip
def test_what_is_no_url_of_a_server(url):
    with pytest.raises(UsageError) as error:
        Server(url)
    assert error.value.slug == "bad-url"
    assert TOKEN not in error.value.message
    assert error.value.hint


def test_an_ipv6_address():
    try:
        listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("no IPv6 on this machine")
    with listener:
        port = listener.getsockname()[1]
        client = Server(f"http://[::1]:{port}/v1", timeout=0.2)
        assert client.url == f"http://[::1]:{port}"
        with client, pytest.raises(ServerError) as error:
            client.get("/")
    assert error.value.slug == "server-hung"


def test_closing_wakes_a_call_that_waits():
    with answering([HANG]) as server:
        client = Server(server.url, timeout=30)
        got = []
        thread = threading.Thread(target=lambda: got.append(client.stream("/x", b"{}")))
        thread.start()
        while not server.requests:
            time.sleep(0.005)
        began = time.perf_counter()
        client.close()
        thread.join(10)
        assert not thread.is_alive()
        assert time.perf_counter() - began < 5
        assert got[0].failure is not None
        assert client.stream("/x", b"{}").failure is not None


def test_failures_are_errors_for_people():
    with answering(reply(500, b"boom")) as server:
        failure = ask(server).failure
    assert failure is not None
    error = failure.error()
    assert isinstance(error, PrefixlintError)
    assert error.exit_code == 2
    assert "500: boom" in error.message
