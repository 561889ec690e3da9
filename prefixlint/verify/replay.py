"""The requests of a log again, in their order and rhythm: who is sent when, and what is not sent at all.

How one request is sent is the caller's; here is only the schedule. A later turn of a conversation is never sent before
the turn that it continues has ended, whatever the concurrency.
"""

from __future__ import annotations

import heapq
import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import orjson

from prefixlint.errors import LogRefusedError, PrefixlintError, UsageError
from prefixlint.model import Fingerprint, Messages, NoPrompt, Request, Text, TokenIds
from prefixlint.runs import Left, leave

if TYPE_CHECKING:
    from prefixlint.verify.faults import Failure
    from prefixlint.verify.targets import Measured

_MOST_AT_ONCE = 256  # requests that an open load may have running: a thread each
_ROLES = frozenset(("system", "developer", "user", "assistant", "tool", "function"))
_SEEN = ("image_url", "image", "input_image", "input_audio", "audio", "audio_url", "video", "video_url", "file")
_LOST = 3  # requests in a row that find no server, after which the others are not tried
GONE = ("server-refused", "server-gone", "server-hung")
"""Failures of requests that find no server."""

_POLL = 0.2  # seconds between two looks at whether a run was stopped


@dataclass(frozen=True, slots=True)
class Call:
    """One request to send. `after` is the number of the call whose turn it continues, None where there is none.

    `time` is in seconds from the first request's; `output_tokens` how many the log says were generated.
    """

    number: int
    request: Request
    after: int | None = None
    time: float | None = None
    output_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """How requests are sent.

    `closed` keeps `concurrency` running; `logged` sends each at its logged time over `speed`; `poisson` at random
    moments, `rate` a second, drawn from `seed`. After `duration` seconds nothing more is sent. `output` one: each
    request generates `max_tokens`; logged: as many as the log says it did.
    """

    arrival: str = "closed"
    concurrency: int = 1
    rate: float | None = None
    speed: float = 1.0
    duration: float | None = None
    output: str = "one"
    max_tokens: int = 1
    seed: int = 0

    def check(self, calls: Sequence[Call]) -> None:
        """Raise UsageError where the load cannot be, or the log lacks what it needs."""
        if self.arrival == "poisson" and not self.rate:
            raise UsageError("--arrival poisson needs a rate", slug="bad-load", hint="--rate 2 (requests a second)")
        if self.arrival == "logged" and any(call.time is None for call in calls):
            raise UsageError(
                "--arrival logged needs the times of the requests, and not all of them have one",
                slug="no-times",
                hint="--arrival closed or --arrival poisson do without",
            )

    @property
    def one_by_one(self) -> bool:
        """Whether a request is sent only when the one before it has ended."""
        return self.arrival == "closed" and self.concurrency == 1

    def tokens(self, call: Call, usual: int) -> int:
        """Give how many tokens a call is to generate, `usual` where the log does not say."""
        return self.max_tokens if self.output == "one" else call.output_tokens or usual


@dataclass(frozen=True, slots=True)
class Exchange:
    """What became of a call. Times are of `time.perf_counter`; `due` is when it should have been sent.

    `overhead` are the processor's seconds that the client itself took: neither waiting for the server is in it, nor for
    a core that others have. `failure` is why there is no whole answer.
    """

    call: Call
    due: float
    sent: float
    done: float
    overhead: float
    measured: Measured | None
    failure: Failure | PrefixlintError | None = None
    retries: int = 0

    @property
    def first(self) -> float | None:
        """When the first output came."""
        if self.measured is None or self.measured.ttft_s is None:
            return None
        return self.sent + self.measured.ttft_s


@dataclass(slots=True)
class Replayed:
    """A pass over the calls, in the order in which they were sent. `ended` says why it is not complete."""

    exchanges: list[Exchange] = field(default_factory=list)
    began: float = 0.0
    lasted: float = 0.0
    ended: Failure | PrefixlintError | None = None
    stopped: bool = False
    """Whether its duration was over before all calls were sent."""


@dataclass(slots=True)
class Calls:
    """What a log gives to replay, and what of it cannot be, by reason."""

    calls: list[Call] = field(default_factory=list)
    left: dict[str, Left] = field(default_factory=dict)

    def leave(self, request: Request, slug: str, message: str) -> None:
        """Count a request that cannot be sent."""
        leave(self.left, slug, message, (request.path, request.line))

    def without(self, numbers: set[int], slug: str, message: str) -> None:
        """Leave out some calls; the turns that continued them stand alone then."""
        for call in self.calls:
            if call.number in numbers:
                self.leave(call.request, slug, message)
        self.calls = [call for call in self.calls if call.number not in numbers]

    def check(self) -> None:
        """Raise LogRefusedError where nothing is left to send, with why."""
        if self.calls:
            return
        left = max(self.left.values(), key=lambda one: one.requests, default=None)
        raise LogRefusedError(
            f"nothing to replay: {left.message} ({left.path}, line {left.line})" if left else "nothing to replay",
            slug="nothing-to-replay",
            hint="prefixlint analyze LOG says what the log holds",
        )


def calls(requests: Iterable[Request]) -> Calls:
    """Choose what can be sent of a log, in order, and find which requests continue which."""
    found = Calls()
    turns = _Turns()
    start: float | None = None
    for request in requests:
        refused = _refused(request)
        if refused is not None:
            found.leave(request, *refused)
            continue
        start = request.time if start is None else start
        number = len(found.calls)
        output = request.output
        known = request.usage.completion if request.usage is not None else None
        length = len(output.ids) if output is not None and output.ids else known
        after = turns.add(number, request)
        since = None if request.time is None or start is None else max(0.0, request.time - start)
        found.calls.append(Call(number, request, after, since, length))
    return found


def _refused(request: Request) -> tuple[str, str] | None:
    """Give slug and message of why a request cannot be sent; None where it can."""
    content = request.content
    if isinstance(content, Messages):
        return _refused_messages(content)
    if isinstance(content, Text):
        return None if content.text else ("empty-prompt", "the prompt is empty")
    if isinstance(content, TokenIds):
        return None if len(content.ids) else ("empty-prompt", "the prompt is empty")
    if isinstance(content, NoPrompt):
        return "no-prompt", "the log does not hold the prompt"
    what = "hashes of the text" if isinstance(content, Fingerprint) else "hashes of its blocks"
    return "no-text", f"the log holds only {what}"


def _refused_messages(content: Messages) -> tuple[str, str] | None:
    if content.missing is not None:
        return "partial-prompt", "the log leaves a part of the prompt out"
    if not content.messages:
        return "empty-messages", "there is no message"
    for message in content.messages:
        if message.get("role") not in _ROLES:
            return "unknown-role", "a message has a role that servers do not know"
        parts = message.get("content")
        if isinstance(parts, list) and any(isinstance(part, dict) and part.get("type") in _SEEN for part in parts):
            return "not-text", "a message holds an image, sound or file, whose tokens cannot be predicted"
    if all(not m.get("content") and not m.get("tool_calls") for m in content.messages):
        return "empty-messages", "all messages are empty"
    return None


class _Turns:
    """Finds for each conversation the request that holds its last turn but one."""

    def __init__(self) -> None:
        self._last: dict[Any, int] = {}

    def add(self, number: int, request: Request) -> int | None:
        """Give the newest earlier request that this one continues, and note it for later ones."""
        content = request.content
        if not isinstance(content, Messages):
            key = ("session", request.session)
            before = self._last.get(key) if request.session is not None else None
            self._last[key] = number
            return before
        state = hash(tuple(request.namespace))
        after = None
        for position, message in enumerate(content.messages):
            # a turn ends where the model is to speak: what follows is its answer, and the next turn
            if position and message.get("role") == "assistant" and state in self._last:
                after = self._last[state]
            state = hash((state, _key(message)))
        self._last[state] = number
        return after


def _key(message: dict[str, Any]) -> bytes:
    kept = {key: value for key, value in message.items() if value is not None}
    try:
        return orjson.dumps(kept, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # lone surrogates, or integers beyond 64 bits
        return repr(sorted(kept.items())).encode("utf-8", "replace")


Send = Callable[[Call], Exchange]


def run(
    wanted: Sequence[Call],
    send: Send,
    load: Load,
    *,
    dead: Callable[[], PrefixlintError | None] = lambda: None,
    on_done: Callable[[Exchange], None] = lambda _: None,
    into: Replayed | None = None,
) -> Replayed:
    """Send all calls as the load has it, and wait for their answers.

    `dead` says that the server is known to have ended. What has come is in `into` also where this is left by an
    exception (Ctrl-C): then calls under way are given up. `on_done` is told each exchange, by the thread that had it.
    """
    out = into if into is not None else Replayed()
    out.began = time.perf_counter()
    schedule = _Schedule(wanted, load, out, dead, on_done)
    limit = load.concurrency if load.arrival == "closed" else _MOST_AT_ONCE
    workers = [
        threading.Thread(target=schedule.work, args=(send,), daemon=True, name=f"replay-{number}")
        for number in range(max(1, min(limit, len(wanted))))
    ]
    try:
        for worker in workers:
            worker.start()
        while any(worker.is_alive() for worker in workers):
            for worker in workers:
                worker.join(_POLL)
    finally:
        schedule.stop()
        out.lasted = time.perf_counter() - out.began
        with schedule.lock:
            out.exchanges.sort(key=lambda exchange: exchange.sent)
    if schedule.fault is not None:
        raise schedule.fault
    return out


class _Schedule:
    """What is still to be sent, and when; shared by the threads that send."""

    def __init__(
        self,
        wanted: Sequence[Call],
        load: Load,
        out: Replayed,
        dead: Callable[[], PrefixlintError | None],
        on_done: Callable[[Exchange], None],
    ) -> None:
        self.lock = threading.Condition()
        self.fault: BaseException | None = None
        self._out = out
        self._dead = dead
        self._on_done = on_done
        self._end = out.began + load.duration if load.duration is not None else None
        present = {call.number for call in wanted}
        self._ready: list[tuple[float, int, Call]] = []  # when due, position
        self._waiting: dict[int, list[tuple[float, int, Call]]] = {}
        for position, (call, offset) in enumerate(zip(wanted, _offsets(wanted, load), strict=True)):
            entry = (out.began + offset, position, call)
            if call.after is not None and call.after in present:
                self._waiting.setdefault(call.after, []).append(entry)
            else:
                self._ready.append(entry)
        heapq.heapify(self._ready)
        self._running = 0
        self._lost = 0
        self._over = False

    def stop(self) -> None:
        """Let nothing more be sent."""
        with self.lock:
            self._over = True
            self.lock.notify_all()

    def work(self, send: Send) -> None:
        """Send what is due until nothing is left."""
        try:
            while (entry := self._next()) is not None:
                due, call = entry
                self._done(replace(send(call), due=due))
        except BaseException as error:  # noqa: BLE001 - raised again where the threads are waited for
            self.fault = error
            self.stop()

    def _next(self) -> tuple[float, Call] | None:
        """Wait for the next call that is due; None where there is none any more."""
        with self.lock:
            while not self._over:
                now = time.perf_counter()
                if self._end is not None and now >= self._end and (self._ready or self._waiting):
                    self._out.stopped = self._over = True
                    break
                if self._ready and self._ready[0][0] <= now:
                    due, _, call = heapq.heappop(self._ready)
                    self._running += 1
                    return due, call
                if not self._ready and not self._running:
                    break
                pause = self._ready[0][0] - now if self._ready else None
                if self._end is not None:
                    pause = self._end - now if pause is None else min(pause, self._end - now)
                self.lock.wait(pause)
            self.lock.notify_all()
            return None

    def _done(self, exchange: Exchange) -> None:
        self._on_done(exchange)
        ended = self._ended(exchange)
        with self.lock:
            self._running -= 1
            if not self._over or exchange.failure is None:
                self._out.exchanges.append(exchange)
            for entry in self._waiting.pop(exchange.call.number, ()):
                heapq.heappush(self._ready, entry)
            if ended is not None and not self._over:
                self._out.ended = ended
                self._over = True
            self.lock.notify_all()

    def _ended(self, exchange: Exchange) -> Failure | PrefixlintError | None:
        """Tell whether the server is gone for good, and why."""
        if exchange.failure is None or exchange.failure.slug not in GONE:
            self._lost = 0
            return None
        self._lost += 1
        return self._dead() or (exchange.failure if self._lost >= _LOST else None)


def _offsets(wanted: Sequence[Call], load: Load) -> list[float]:
    """Give when each call is due, in seconds from the beginning."""
    if load.arrival == "logged":
        return [(call.time or 0.0) / load.speed for call in wanted]
    if load.arrival == "poisson":
        assert load.rate
        draw = random.Random(load.seed)  # noqa: S311 - a load, and no secret
        found, now = [], 0.0
        for _ in wanted:
            found.append(now)
            now += draw.expovariate(load.rate)
        return found
    return [0.0] * len(wanted)
