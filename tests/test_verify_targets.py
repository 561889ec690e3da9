"""Kinds of servers: how each is told apart and asked, and what its answers and metrics tell."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from prefixlint.errors import ServerError, UsageError
from prefixlint.verify import metrics, targets
from prefixlint.verify.targets import Ask, Counters
from prefixlint.verify.wire import Server, Streamed

from .fakeserver import CLOSE, FakeServer, reply

FOLDER = Path(__file__).parent.parent / "fixtures" / "metrics"
CHAT = {
    "model": "logged-name", "messages": [{"role": "user", "content": "hi"}], "tools": [{"type": "function"}],
    "chat_template_kwargs": {"enable_thinking": False}, "stream": False, "max_tokens": 500, "max_completion_tokens": 500,
    "n": 4, "logprobs": True, "user": "somebody", "stop": ["x"], "metadata": {"a": "b"},
}  # fmt: skip


def scrape(name: str) -> metrics.Metrics:
    return metrics.parse((FOLDER / f"{name}.txt").read_text())


def pages(**routes: object) -> FakeServer:
    """A server with these JSON answers by path (`_` for `/`), and 404 for all other paths."""
    known = {"/" + path.replace("__", "/"): answer for path, answer in routes.items()}

    def answer(_method: str, path: str, _body: bytes) -> bytes:
        found = known.get(path)
        if found is None:
            return reply(404, {"error": "nothing here"})
        return reply(200, found, kind="text/plain") if isinstance(found, bytes) else reply(200, found)

    return FakeServer(answer)


def models(owner: str, **more: object) -> dict[str, object]:
    return {"object": "list", "data": [{"id": "m", "object": "model", "owned_by": owner, **more}]}


SGLANG_INFO = {
    "version": "0.5.23", "page_size": 16, "max_total_num_tokens": 20000, "enable_cache_report": False, "device": "cuda",
    "enable_metrics": True, "disable_radix_cache": False, "api_key": "secret", "launch_command": "x", "tp_size": 1,
}  # fmt: skip


def test_sglang_is_known_by_its_models_and_tells_its_settings():
    with pages(v1__models=models("sglang", max_model_len=8192), server_info=SGLANG_INFO) as server:
        client = Server(server.url)
        kind = targets.detect(client)
        about = kind.about(client)
        client.close()
    assert kind.NAME == "sglang"
    assert (about.version, about.model, about.device) == ("0.5.23", "m", "cuda")
    assert (about.block_size, about.capacity_tokens, about.context) == (16, 20000, 8192)
    assert about.reports_cached is False
    assert about.caches is True
    assert "--enable-cache-report" in about.notes[0]
    assert "secret" not in repr(about)


def test_an_older_sglang_behind_other_names():
    info = {"model_path": "/models/m", "is_generation": True}
    with pages(v1__models=models("somebody"), get_model_info=info, get_server_info=SGLANG_INFO) as server:
        client = Server(server.url)
        kind = targets.detect(client)
        assert kind.NAME == "sglang"
        assert kind.about(client).block_size == 16
        client.close()


def test_vllm_is_known_by_its_models_and_its_cache_by_its_metrics():
    text = (FOLDER / "vllm.txt").read_bytes()
    with pages(v1__models=models("vllm", max_model_len=4096), version={"version": "0.33.0"}, metrics=text) as server:
        client = Server(server.url)
        kind = targets.detect(client)
        about = kind.about(client)
        client.close()
    assert kind.NAME == "vllm"
    assert (about.version, about.block_size, about.context, about.caches) == ("0.33.0", 32, 4096, True)
    assert about.capacity_tokens == 1456 * 32  # the null block too, which simulations set aside themselves
    assert about.reports_cached is None  # only an answer shows it


def test_vllm_that_names_another_owner():
    text = (FOLDER / "vllm.txt").read_bytes()
    with pages(v1__models=models("acme"), version={"version": "0.33.0"}, metrics=text) as server:
        client = Server(server.url)
        assert targets.detect(client).NAME == "vllm"
        client.close()


def test_llamacpp_is_known_by_its_models_or_its_settings():
    props = {
        "default_generation_settings": {"n_ctx": 2048},
        "total_slots": 4,
        "build_info": "b7000",
        "model_alias": "a",
    }
    for owner in ("llamacpp", "somebody"):
        with pages(v1__models=models(owner), props=props) as server:
            client = Server(server.url)
            kind = targets.detect(client)
            about = kind.about(client)
            client.close()
        assert kind.NAME == "llama.cpp"
        assert (about.context, about.version, about.flags["slots"], about.metrics) == (2048, "b7000", 4, False)


def test_any_other_is_openai_compatible_and_knows_nothing_of_itself():
    with pages(v1__models=models("acme")) as server:
        client = Server(server.url)
        kind = targets.detect(client)
        about = kind.about(client)
        client.close()
    assert kind.NAME == "openai"
    assert about.model == "m"
    unknown = (about.engine, about.version, about.block_size, about.capacity_tokens, about.reports_cached, about.caches)
    assert set(unknown) == {None}


def test_of_several_models_none_is_the_model():
    both = {"data": [{"id": "a"}, {"id": "b"}, "nonsense"]}
    with pages(v1__models=both) as server:
        client = Server(server.url)
        assert targets.detect(client).about(client).model is None
        client.close()


@pytest.mark.parametrize(
    "answer",
    [
        reply(404, b"not found"), reply(200, b"<html>Grafana</html>", kind="text/html"), reply(200, [1, 2]),
        reply(200, {"status": "ok"}), reply(500, b"oops"), reply(200, b"null"),
    ],
)  # fmt: skip
def test_what_is_no_inference_server(answer):
    with FakeServer(lambda *_: answer) as server, Server(server.url) as client, pytest.raises(ServerError) as error:
        targets.detect(client)
    assert error.value.slug == "not-an-inference-server"
    assert error.value.hint


@pytest.mark.parametrize(("status", "slug"), [(401, "server-denied"), (403, "server-denied"), (503, "server-busy")])
def test_servers_that_want_a_token_or_are_loading(status, slug):
    loading = reply(status, {"error": {"message": "Loading model"}})
    with FakeServer(lambda *_: loading) as server, Server(server.url) as client, pytest.raises(ServerError) as error:
        targets.detect(client, "vllm")
    assert error.value.slug == slug


def test_a_wanted_kind_is_taken_where_the_server_answers_at_all():
    with pages() as server, Server(server.url) as client:
        assert targets.detect(client, "openai").NAME == "openai"
        assert targets.detect(client, "llamacpp").NAME == "llama.cpp"
        with pytest.raises(UsageError):
            targets.detect(client, "nonsense")


def test_one_route_that_breaks_off_does_not_hide_what_the_server_is():
    def answer(_method: str, path: str, _body: bytes) -> object:
        return reply(200, models("sglang")) if path == "/v1/models" else CLOSE

    with FakeServer(answer) as server, Server(server.url, timeout=2) as client:
        kind = targets.detect(client)
        about = kind.about(client)
    assert kind.NAME == "sglang"
    assert about.model == "m"
    assert about.block_size is None
    assert about.reports_cached is None


def test_the_kinds_and_their_order():
    assert targets.names() == ["sglang", "vllm", "llama.cpp", "openai"]


@pytest.mark.parametrize("name", targets.names())
def test_a_chat_request_holds_what_the_prompt_is_made_of_and_nothing_that_changes_its_answer(name):
    path, sent = targets.named(name).chat(CHAT, Ask(max_tokens=3, model="served"))
    assert path == "/v1/chat/completions"
    assert sent["messages"] == CHAT["messages"]
    assert sent["tools"] == CHAT["tools"]
    assert sent["model"] == "served"
    assert sent["stream"] is True
    assert sent["stream_options"] == {"include_usage": True}
    assert sent["max_tokens"] == 3
    assert sent["temperature"] == 0
    assert not {"n", "logprobs", "user", "stop", "metadata", "max_completion_tokens"} & sent.keys()
    assert ("chat_template_kwargs" in sent) == (name != "openai")
    assert CHAT["max_tokens"] == 500  # the logged body is left as it was


@pytest.mark.parametrize(
    ("name", "field"), [("sglang", "extra_key"), ("vllm", "cache_salt"), ("llama.cpp", None), ("openai", None)]
)
def test_namespaces(name, field):
    kind = targets.named(name)
    assert kind.salted() == field
    _, plain = kind.chat(CHAT, Ask())
    assert not {"extra_key", "cache_salt"} & plain.keys()
    _, salted = kind.chat({**CHAT, "cache_salt": "tenant"}, Ask(salt="run"))
    assert salted.get(field or "cache_salt") == ("run:tenant" if field else None)
    _, logged = kind.chat({**CHAT, "cache_salt": "tenant"}, Ask())
    assert logged.get(field or "cache_salt") == ("tenant" if field else None)
    by_ids = kind.by_ids([1, 2], Ask(salt="run", model="m"))
    assert by_ids is None or by_ids[1].get(field or "cache_salt") == ("run" if field else None)


def test_models_that_reason_are_asked_as_they_want_it():
    _, sent = targets.named("openai").chat({"messages": []}, Ask(max_tokens=1, model="gpt-5.5"))
    assert sent["max_completion_tokens"] == 1
    assert not {"max_tokens", "temperature"} & sent.keys()
    _, sent = targets.named("openai").chat({"messages": []}, Ask(max_tokens=1, model="gpt-4o"))
    assert sent["max_tokens"] == 1


@pytest.mark.parametrize(
    ("name", "path", "prompt", "most"),
    [
        ("sglang", "/generate", "input_ids", None),
        ("vllm", "/v1/completions", "prompt", "max_tokens"),
        ("llama.cpp", "/completion", "prompt", "n_predict"),
    ],
)
def test_prompts_of_token_ids(name, path, prompt, most):
    found = targets.named(name).by_ids([5, 6, 7], Ask(max_tokens=9, model="m", ignore_eos=True, sampling={"seed": 4}))
    assert found is not None
    assert found[0] == path
    assert found[1][prompt] == [5, 6, 7]
    inner = found[1]["sampling_params"] if most is None else found[1]
    assert inner[most or "max_new_tokens"] == 9
    assert inner["ignore_eos"] is True
    assert inner["seed"] == 4
    assert targets.named("openai").by_ids([1], Ask()) is None


def streamed(*payloads: object, sent: float = 10.0) -> Streamed:
    events = [(sent + 0.5 * (i + 1), p if isinstance(p, bytes) else orjson.dumps(p)) for i, p in enumerate(payloads)]
    return Streamed(200, sent, events, sent + 9, 0.0)


def delta(content: str | None = None, **more: object) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": {} if content is None else {"content": content}, **more}]}


USAGE = {"prompt_tokens": 35, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 34}}


@pytest.mark.parametrize("name", targets.names())
def test_a_chat_stream(name):
    role = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}
    got = targets.named(name).reading(
        streamed(role, delta("Hel"), delta("lo"), delta(finish_reason="length"), {"choices": [], "usage": USAGE})
    )
    assert (got.prompt_tokens, got.cached_tokens, got.output_tokens) == (35, 34, 2)
    assert got.output_text == "Hello"
    assert got.finish == "length"
    assert got.ttft_s == 1.0  # the second event is the first that carries output


@pytest.mark.parametrize("name", targets.names())
@pytest.mark.parametrize(
    "usage",
    [
        None,
        {},
        {"prompt_tokens": 35, "prompt_tokens_details": None},
        {"prompt_tokens_details": {"cached_tokens": None}},
        {"prompt_tokens": "35"},
    ],
)
def test_what_a_server_does_not_report_is_not_known(name, usage):
    got = targets.named(name).reading(streamed(delta("x"), {"choices": [], "usage": usage}))
    assert got.cached_tokens is None
    assert got.prompt_tokens in (None, 35)
    assert got.output_tokens is None
    assert got.queue_s is None


@pytest.mark.parametrize("name", targets.names())
def test_streams_of_nonsense_and_those_that_broke_off(name):
    odd = streamed(
        b"\xff",
        b"[]",
        b"7",
        {"choices": "x"},
        {"choices": [None, {"index": 0, "delta": 5}]},
        {"usage": [1]},
        {"timings": 3},
        {"meta_info": 3},
        {"sglext": 3},
    )
    got = targets.named(name).reading(odd)
    assert got.cached_tokens is None
    assert got.output_text == ""
    nothing = targets.named(name).reading(Streamed(0, 1.0, [], 2.0, 0.0))
    assert nothing.ttft_s is None


def test_output_that_is_no_text_ends_the_wait_too():
    for event in (
        delta(None, finish_reason="length"),
        {"choices": [{"index": 0, "delta": {"tool_calls": [{"id": "x"}]}}]},
        {"choices": [{"index": 0, "delta": {"reasoning_content": "hm"}}]},
    ):
        assert targets.named("openai").reading(streamed(event)).ttft_s == 0.5


def test_sglang_gives_ids_beside_the_stream():
    got = targets.named("sglang").reading(
        streamed(
            delta("x"),
            {"choices": [], "sglext": {"input_ids": [1, 2], "output_ids": [[3]]}},
            {"choices": [], "usage": USAGE},
        )
    )
    assert got.prompt_ids == (1, 2)
    assert got.output_ids == (3,)
    assert got.cached_tokens == 34


def test_sglang_generates_with_its_own_times():
    meta = {
        "prompt_tokens": 100, "completion_tokens": 2, "cached_tokens": 0, "queue_time": 0.25, "forward_entry_time": 7.0,
        "prefill_finished_time": 7.5, "finish_reason": {"type": "length", "length": 2},
    }  # fmt: skip
    first = {"text": "a", "output_ids": [1], "meta_info": {"prompt_tokens": 100, "finish_reason": None}}
    got = targets.named("sglang").reading(streamed(first, {"text": "ab", "output_ids": [1, 2], "meta_info": meta}))
    assert (got.prompt_tokens, got.cached_tokens, got.output_tokens) == (100, 0, 2)
    assert (got.queue_s, got.prefill_s, got.ttft_s) == (0.25, 0.5, 0.5)
    assert (got.output_text, got.output_ids, got.finish) == ("ab", (1, 2), "length")
    without = {k: v for k, v in meta.items() if "time" not in k}
    got = targets.named("sglang").reading(streamed({"text": "ab", "meta_info": without}))
    assert (got.queue_s, got.prefill_s) == (None, None)


def test_vllm_gives_ids_and_times_where_it_was_asked_to():
    own = {"time_to_first_token_ms": 42.0, "queue_time_ms": 2.0}
    got = targets.named("vllm").reading(
        streamed(
            {"prompt_token_ids": [1, 2], **delta("a", token_ids=[7])}, delta("b", token_ids=[8]),
            {"choices": [], "usage": USAGE, "metrics": own},
        )
    )  # fmt: skip
    assert (got.prompt_ids, got.output_ids) == ((1, 2), (7, 8))
    assert got.queue_s == pytest.approx(0.002)
    assert got.prefill_s == pytest.approx(0.04)


def test_llamacpp_gives_its_times_and_counts_also_without_usage():
    timings = {"cache_n": 34, "prompt_n": 1, "prompt_ms": 95.5}
    got = targets.named("llama.cpp").reading(
        streamed(delta(None, finish_reason="length"), {"choices": [], "timings": timings})
    )
    assert (got.prompt_tokens, got.cached_tokens) == (35, 34)
    assert got.prefill_s == pytest.approx(0.0955)
    end = {
        "content": "",
        "tokens": [],
        "stop": True,
        "tokens_evaluated": 8,
        "tokens_predicted": 1,
        "timings": {"cache_n": 1, "prompt_n": 7, "prompt_ms": 5},
    }
    got = targets.named("llama.cpp").reading(streamed({"content": " the", "tokens": [260], "stop": False}, end))
    assert (got.prompt_tokens, got.cached_tokens, got.output_ids, got.output_text) == (8, 1, (260,), " the")


def test_counters_of_sglang_are_those_of_all_requests_and_not_of_the_last_batch():
    counted = targets.named("sglang").counters(scrape("sglang"))
    assert counted is not None
    assert (counted.prompt_tokens, counted.cached_tokens) == (18340, 10188)
    assert counted.hit_rate == pytest.approx(10188 / 18340)  # the gauge of the same scrape says 0
    assert (counted.evicted, counted.retractions, counted.preemptions) == (0, 0, None)
    assert counted.kv_filled == pytest.approx(1 - 18754 / 20000)
    assert counted.kv_usage == 0
    assert {name: part.count for name, part in counted.parts.items()} == {
        "ttft": 46,
        "queue": 47,
        "prefill": 47,
        "e2e": 46,
    }


def test_counters_of_vllm():
    counted = targets.named("vllm").counters(scrape("vllm"))
    assert counted is not None
    assert (counted.queries, counted.hits, counted.prompt_tokens, counted.cached_tokens) == (22793, 10944, 22793, 10944)
    assert (counted.preemptions, counted.retractions, counted.evicted, counted.kv_filled) == (0, None, None, None)
    assert counted.parts["prefill"].sum == pytest.approx(14.670905)


def test_counters_of_llamacpp_have_all_prompt_tokens():
    text = (
        "llamacpp:prompt_tokens_total 202\nllamacpp:prompt_tokens_cached_total 4185\nllamacpp:requests_processing 1\n"
    )
    counted = targets.named("llama.cpp").counters(metrics.parse(text))
    assert counted is not None
    assert (counted.prompt_tokens, counted.cached_tokens, counted.running) == (4387, 4185, 1)
    assert counted.parts == {}
    assert targets.named("llama.cpp").counters(scrape("llamacpp")) is not None


def test_a_scrape_tells_whose_it_is():
    for name in ("sglang", "vllm", "llamacpp"):
        found = targets.of_metrics(scrape(name))
        assert found is not None
        assert found[0].replace(".", "") == name
    assert targets.of_metrics(metrics.parse("node_cpu_seconds_total 3\n")) is None
    assert targets.of_metrics(metrics.parse("")) is None


def test_a_sglang_without_hits_has_a_hit_rate_of_zero_and_one_without_requests_none():
    kind = targets.named("sglang")
    served = kind.counters(metrics.parse("sglang:prompt_tokens_total 50\n"))
    assert served is not None
    assert served.hit_rate == 0
    assert served.evicted is None  # an old release, which may not count them
    idle = kind.counters(metrics.parse("sglang:num_running_reqs 0\n"))
    assert idle is not None
    assert idle.hit_rate is None
    assert Counters(queries=0, hits=0).hit_rate is None


@pytest.mark.parametrize(
    ("name", "path", "status", "reason"),
    [
        ("sglang", "/flush_cache", 200, None), ("sglang", "/flush_cache", 400, "while requests run"),
        ("vllm", "/reset_prefix_cache", 200, None), ("vllm", "/reset_prefix_cache", 404, "VLLM_SERVER_DEV_MODE=1"),
        ("vllm", "/reset_prefix_cache", 500, "500"), ("llama.cpp", None, 200, "start it anew"), ("openai", None, 200, "no call"),
    ],
)  # fmt: skip
def test_emptying_the_cache(name, path, status, reason):
    with FakeServer(lambda *_: reply(status)) as server, Server(server.url) as client:
        said = targets.named(name).flush(client)
        assert [request[:2] for request in server.requests] == ([("POST", path)] if path else [])
    assert (said is None) if reason is None else reason in (said or "")


def test_ids_of_a_chat_body():
    with pages(tokenize={"count": 3, "tokens": [1, 2, 3]}) as server, Server(server.url) as client:
        assert targets.named("vllm").tokens(client, CHAT, "m") == [1, 2, 3]
        sent = orjson.loads(server.requests[0][3])
        assert sent["messages"] == CHAT["messages"]
        assert sent["add_generation_prompt"] is True
        assert sent["chat_template_kwargs"] == CHAT["chat_template_kwargs"]
        assert targets.named("openai").tokens(client, CHAT, "m") is None
    routes = {"apply-template": {"prompt": "<user>hi"}, "tokenize": {"tokens": [9]}}
    with pages(**routes) as server, Server(server.url) as client:
        assert targets.named("llama.cpp").tokens(client, CHAT, None) == [9]
    with pages() as server, Server(server.url) as client:
        assert targets.named("sglang").tokens(client, CHAT, None) is None
        assert targets.named("llama.cpp").tokens(client, CHAT, None) is None
