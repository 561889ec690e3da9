"""The schedule of a replay: who is sent when, and who waits for whom."""

from __future__ import annotations

import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixlint.errors import UsageError
from prefixlint.model import BlockHashes, Messages, NoPrompt, Output, Request, Text, TokenIds, Usage
from prefixlint.verify import replay
from prefixlint.verify.faults import Failure
from prefixlint.verify.replay import Call, Exchange, Load, Replayed
from prefixlint.verify.targets import Measured


def request(line: int, *words: str, **more: object) -> Request:
    """A conversation: user and assistant take turns."""
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": word} for i, word in enumerate(words)]
    return Request("log", line, Messages(messages), "test", **more)


class Served:
    """Answers after some seconds, and remembers what ran beside what."""

    def __init__(
        self, seconds: float = 0.0, failing: frozenset[int] = frozenset(), slug: str = "server-failed"
    ) -> None:
        self.seconds, self.failing, self.slug = seconds, failing, slug
        self.lock = threading.Lock()
        self.running: set[int] = set()
        self.most = 0
        self.order: list[int] = []
        self.ended: list[int] = []
        self.beside: dict[int, set[int]] = {}

    def __call__(self, call: Call) -> Exchange:
        with self.lock:
            self.order.append(call.number)
            self.running.add(call.number)
            self.beside[call.number] = set(self.running) - {call.number}
            self.most = max(self.most, len(self.running))
        began = time.perf_counter()
        time.sleep(self.seconds)
        with self.lock:
            self.running.discard(call.number)
            self.ended.append(call.number)
        failure = Failure(self.slug, "it said no") if call.number in self.failing else None
        measured = None if failure else Measured(prompt_tokens=1, ttft_s=0.0)
        return Exchange(call, began, began, time.perf_counter(), 0.0, measured, failure)


def sent(wanted, load, served=None, **more):
    served = served or Served()
    return replay.run(wanted, served, load, **more), served


def test_one_at_a_time_keeps_the_order():
    wanted = [Call(n, request(n)) for n in range(20)]
    out, served = sent(wanted, Load())
    assert served.order == list(range(20)) == [e.call.number for e in out.exchanges]
    assert served.most == 1


def test_concurrency_is_kept_and_never_exceeded():
    together = threading.Barrier(4)

    class Waiting(Served):
        def __call__(self, call):
            if call.number < 4:
                together.wait(30)
            return super().__call__(call)

    out, served = sent([Call(n, request(n)) for n in range(12)], Load(concurrency=4), Waiting(0.01))
    assert served.most <= 4
    assert sorted(served.order) == list(range(12))
    assert len(out.exchanges) == 12


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=14), st.integers(1, 6))
def test_no_turn_is_sent_before_the_one_that_it_continues(conversations, concurrency):
    last: dict[int, int] = {}
    wanted = []
    for number, conversation in enumerate(conversations):
        wanted.append(Call(number, request(number), last.get(conversation)))
        last[conversation] = number
    _, served = sent(wanted, Load(concurrency=concurrency), Served(0.001))
    assert sorted(served.order) == list(range(len(wanted)))
    for call in wanted:
        if call.after is not None:
            assert served.ended.index(call.after) < served.order.index(call.number) + concurrency
            assert call.after not in served.beside[call.number]


def test_logged_times_are_kept_and_scaled():
    wanted = [Call(n, request(n), time=n * 1.0) for n in range(4)]
    out, _ = sent(wanted, Load(arrival="logged", speed=20))
    assert out.lasted > 0.14
    gaps = [b.due - a.due for a, b in zip(out.exchanges, out.exchanges[1:], strict=False)]
    assert gaps == pytest.approx([0.05] * 3)
    assert all(e.sent >= e.due for e in out.exchanges)


def test_poisson_is_drawn_from_the_seed_and_has_its_rate():
    wanted = [Call(n, request(n)) for n in range(2000)]
    offsets = [replay._offsets(wanted, Load(arrival="poisson", rate=50, seed=seed)) for seed in (1, 1, 2)]
    assert offsets[0] == offsets[1] != offsets[2]
    assert offsets[0] == sorted(offsets[0])
    assert offsets[0][-1] == pytest.approx(40, rel=0.15)


def test_a_duration_ends_the_run_and_says_so():
    out, served = sent([Call(n, request(n)) for n in range(1000)], Load(duration=0.2), Served(0.02))
    assert out.stopped
    assert len(out.exchanges) < 100
    assert len(served.order) == len(out.exchanges)


def test_a_duration_that_suffices_does_not():
    out, _ = sent([Call(0, request(0))], Load(duration=30))
    assert not out.stopped


def test_failures_of_single_requests_do_not_end_a_run():
    out, _ = sent([Call(n, request(n)) for n in range(6)], Load(), Served(failing=frozenset({1, 2, 3, 4})))
    assert out.ended is None
    assert sum(e.failure is not None for e in out.exchanges) == 4


def test_a_server_that_is_gone_ends_a_run_after_three_requests():
    served = Served(failing=frozenset(range(2, 100)), slug="server-gone")
    out, _ = sent([Call(n, request(n)) for n in range(50)], Load(), served)
    assert out.ended is not None
    assert served.order == [0, 1, 2, 3, 4]


def test_a_server_that_is_known_to_be_dead_ends_it_at_once():
    from prefixlint.errors import ServerError

    death = ServerError("dead", slug="server-died")
    served = Served(failing=frozenset({2}), slug="server-gone")
    out, _ = sent([Call(n, request(n)) for n in range(50)], Load(), served, dead=lambda: death)
    assert out.ended is death
    assert served.order == [0, 1, 2]


def test_a_fault_in_a_thread_is_raised_where_it_is_waited_for():
    def broken(_call):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        replay.run([Call(0, request(0))], broken, Load(concurrency=3))


def test_what_came_before_an_interrupt_is_kept():
    out = Replayed()

    def interrupt(_exchange):
        if len(out.exchanges) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replay.run([Call(n, request(n)) for n in range(9)], Served(), Load(), on_done=interrupt, into=out)
    assert [e.call.number for e in out.exchanges] == [0, 1, 2]


def test_turns_find_what_they_continue():
    found = replay.calls([
        request(1, "a"), request(2, "b"), request(3, "a", "x", "c"), request(4, "a", "y", "d"),
        request(5, "a", "x", "c", "z", "e"), request(6, "a"), request(7, "b", "x", "c", namespace=("salt=1",)),
    ])  # fmt: skip
    assert [call.after for call in found.calls] == [None, None, 0, 0, 2, None, None]


def test_sessions_join_prompts_without_messages():
    rows = [Request("log", n, TokenIds([n, 2]), "test", session=s) for n, s in enumerate(["a", "b", "a", None, None])]
    assert [call.after for call in replay.calls(rows).calls] == [None, None, 0, None, None]


def test_output_lengths_come_from_ids_or_usage():
    rows = [
        Request("log", 1, Text("x"), "test", output=Output(ids=[1, 2, 3])),
        Request("log", 2, Text("x"), "test", usage=Usage(completion=7)),
        Request("log", 3, Text("x"), "test"),
    ]
    found = replay.calls(rows).calls
    load = Load(output="logged")
    assert [load.tokens(call, 5) for call in found] == [3, 7, 5]
    assert [Load(max_tokens=2).tokens(call, 5) for call in found] == [2, 2, 2]


@pytest.mark.parametrize(
    ("content", "slug"),
    [
        (Messages([]), "empty-messages"),
        (Messages([{"role": "user", "content": None}]), "empty-messages"),
        (Messages([{"role": "user", "content": ""}, {"role": "user", "content": []}]), "empty-messages"),
        (Messages([{"role": "narrator", "content": "x"}]), "unknown-role"),
        (Messages([{"content": "x"}]), "unknown-role"),
        (Messages([{"role": "user", "content": [{"type": "input_audio"}]}]), "not-text"),
        (Messages([{"role": "user", "content": "x"}], missing="system"), "partial-prompt"),
        (Text(""), "empty-prompt"),
        (TokenIds([]), "empty-prompt"),
        (NoPrompt("level"), "no-prompt"),
        (BlockHashes([1], [4], 4), "no-text"),
    ],
)
def test_what_cannot_be_sent_is_named(content, slug):
    found = replay.calls([Request("log", 5, content, "test"), Request("log", 6, Text("fine"), "test")])
    assert len(found.calls) == 1
    assert (found.left[slug].requests, found.left[slug].line) == (1, 5)


def test_loads_that_cannot_be_are_refused():
    with pytest.raises(UsageError, match="rate"):
        Load(arrival="poisson").check([])
    with pytest.raises(UsageError, match="times"):
        Load(arrival="logged").check([Call(0, request(0))])


def test_times_start_with_the_first_request():
    rows = [request(1, "a", time=100.0), request(2, "b", time=103.5), request(3, "c", time=99.0)]
    assert [call.time for call in replay.calls(rows).calls] == [0.0, 3.5, 0.0]
