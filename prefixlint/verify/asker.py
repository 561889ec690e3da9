"""Prompts made to measure, sent one by one: of token ids where a server takes them, else of words."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from prefixlint.errors import ServerError
from prefixlint.verify import metrics as prometheus
from prefixlint.verify.faults import Failure
from prefixlint.verify.targets import About, Ask, Measured, Target
from prefixlint.verify.wire import Server, Streamed

# Frequent words, each one token in the vocabularies in use where a blank stands before it.
_TEXT = """
time year people way day man thing woman life child world school state family student group country problem hand
part place case week company system program question work government number night point home water room mother area
money story fact month lot right study book eye job word business issue side kind head house service friend father
power hour game line end member law car city community name president team minute idea kid body information back
parent face others level office door health person art war history party result change morning reason research girl
guy moment air teacher force education foot boy age policy music market sense nation plan college interest death
experience effect use class control care field development role effort rate heart drug show leader light voice wife
police mind price report decision son view town road arm difference value building action season society tax
director position player record paper space ground form event matter center couple site project base film table
source court type model stage
"""
WORDS = tuple(_TEXT.split())
_SAFE_IDS = range(100, 300)  # where a server does not tell ids: below the size of any vocabulary in use
_RETRIES = 2
_LONGEST_WAIT = 20.0  # seconds that a busy server may ask for
_SETTLE = 0.5  # seconds that a server's counters may come late by
_TAIL = 16  # tokens behind the place where a prompt leaves another

Prompt = tuple[int, ...] | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of one prompt. `cached` is None where neither the answer nor the counters tell."""

    measured: Measured
    cached: int | None
    sent: float
    first: float | None
    done: float

    @property
    def tokens(self) -> int | None:
        """The tokens of the prompt, as the server counted them."""
        return self.measured.prompt_tokens


class RefusedError(Exception):
    """A request that got no whole answer, though the server is there: it ends an experiment, not the probe."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Asker:
    """Sends prompts to one server in a namespace of its own, and counts what that took.

    `salt` separates everything from other users of the server; where it has no namespaces, prompts differ from their
    first token on instead. Two askers with other salts share nothing.
    """

    def __init__(self, server: Server, kind: Target, about: About, *, rng: random.Random, salt: str) -> None:
        self._server, self._kind, self._about, self._rng = server, kind, about, rng
        self.salt: str | None = salt if kind.salted() is not None else None
        self._told = bool(about.reports_cached)  # whether answers tell cached tokens, so that no counters are needed
        self.requests = 0
        self.prompt_tokens = 0
        self._lock = threading.Lock()
        self._pool: Sequence[int] = ()
        if kind.by_ids([1], Ask()) is not None:
            self._pool = self._known_ids() or _SAFE_IDS
        self._heads: list[Any] = list(self._pool or WORDS)
        rng.shuffle(self._heads)

    @property
    def exact(self) -> bool:
        """Whether prompts are token ids, so that their length and where they part is known to the token."""
        return bool(self._pool)

    def _known_ids(self) -> list[int]:
        """Ask for ids that stand for ordinary words."""
        try:
            words = self._kind.tokens(self._server, _chat(WORDS), self._about.model)
            none = self._kind.tokens(self._server, _chat(("x",)), self._about.model)
        except ServerError:
            return []
        return sorted(set(words or ()) - set(none or ()))

    def fresh(self, length: int) -> Prompt:
        """Make a prompt of so many tokens (about, in words) whose very first one no other prompt of this asker has."""
        head = self._heads.pop() if self._heads else self._pick(1)[0]
        return (head, *self._pick(length - 1))

    def leaving(self, prompt: Prompt, at: int) -> Prompt:
        """Make a prompt that is another one for its first `at` tokens, and from there on not."""
        tail = self._pick(_TAIL)
        while at < len(prompt) and tail[0] == prompt[at]:
            tail = self._pick(_TAIL)
        return (*prompt[:at], *tail)

    def _pick(self, number: int) -> list[Any]:
        return self._rng.choices(self._pool or WORDS, k=max(0, number))

    def ask(self, prompt: Prompt, *, output: int = 1, salt: str | None = None, ids: bool = False) -> Answer:
        """Send a prompt and wait for its answer. Raises ServerError where the server has gone, RefusedError where not.

        `salt` is another namespace than the asker's; `ids` asks for the ids of the output.
        """
        return self.start(prompt, output=output, salt=salt, ids=ids)()

    def start(
        self,
        prompt: Prompt,
        *,
        output: int = 1,
        salt: str | None = None,
        ids: bool = False,
        begun: threading.Event | None = None,
    ) -> Callable[[], Answer]:
        """Prepare a prompt; the function sends it and waits for its answer. `begun` is set with the first event."""
        ask = Ask(output, salt or self.salt, self._about.model, ignore_eos=output > 1, ids=ids)
        made = self._kind.by_ids(list(prompt), ask) if self._pool else None  # type: ignore[arg-type]
        path, body = made if made is not None else self._kind.chat(_chat(prompt), ask)
        data = orjson.dumps(body)

        def send() -> Answer:
            before = self._counted() if begun is None else None
            return self._answer(self._sent(path, data, begun), before)

        return send

    def _sent(self, path: str, data: bytes, begun: threading.Event | None) -> Streamed:
        for attempt in range(_RETRIES + 1):
            streamed = self._server.stream(path, data, begun)
            failure = streamed.failure
            with self._lock:
                self.requests += 1
            if failure is None:
                return streamed
            if not failure.passing or attempt == _RETRIES:
                break
            time.sleep(min(_LONGEST_WAIT, failure.retry_after or 1.0))
        assert failure is not None
        if failure.slug in ("request-refused", "server-failed", "server-busy"):
            raise RefusedError(failure)
        raise failure.error()

    def _answer(self, streamed: Streamed, before: tuple[float, float] | None) -> Answer:
        found = self._kind.reading(streamed)
        with self._lock:
            self.prompt_tokens += found.prompt_tokens or 0
        cached = found.cached_tokens
        self._told = self._told or cached is not None
        if cached is None and before is not None and found.prompt_tokens:
            cached = self._by_counters(before, found.prompt_tokens)
        first = None if found.ttft_s is None else streamed.sent + found.ttft_s
        return Answer(found, cached, streamed.sent, first, streamed.done)

    def _by_counters(self, before: tuple[float, float], asked: int) -> int | None:
        """Give what a request found in the cache by the server's counters, if it alone moved them."""
        due = time.monotonic() + _SETTLE
        while (now := self._counted()) is not None:
            if now[0] - before[0] == asked:
                return round(now[1] - before[1])
            if now[0] - before[0] > asked or time.monotonic() > due:
                return None
            time.sleep(_SETTLE / 10)
        return None

    def _counted(self) -> tuple[float, float] | None:
        """Give the counters of asked and cached tokens, where answers do not tell and the server has such counters."""
        if self._told or not self._about.metrics:
            return None
        taken = prometheus.scraped(self._server)
        found = None if taken is None else self._kind.counters(taken)
        if found is None or found.queries is None or found.hits is None:
            return None
        return found.queries, found.hits

    def together(self, prompts: Sequence[Prompt]) -> list[Answer]:
        """Send prompts at the same moment, each over its own connection; RefusedError where one got no answer."""
        ready = [self.start(prompt) for prompt in prompts]
        gate = threading.Barrier(len(ready))
        answers: list[Answer | None] = [None] * len(ready)
        failed: list[Exception] = []

        def work(index: int) -> None:
            try:
                gate.wait()
                answers[index] = ready[index]()
            except (RefusedError, ServerError) as error:
                failed.append(error)

        threads = [threading.Thread(target=work, args=(index,), daemon=True) for index in range(len(ready))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failed:
            raise failed[0]
        return [answer for answer in answers if answer is not None]

    def during(self, prompt: Prompt, output: int) -> tuple[Answer, Answer]:
        """Send a prompt that generates `output` tokens, and the same once more as soon as the first token is there."""
        begun = threading.Event()
        answers: list[Answer] = []
        failed: list[Exception] = []
        send = self.start(prompt, output=output, begun=begun)

        def work() -> None:
            try:
                answers.append(send())
            except (RefusedError, ServerError) as error:
                failed.append(error)
            finally:
                begun.set()

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        begun.wait()
        second = self.ask(prompt) if not failed else None
        thread.join()
        if second is None or failed:
            raise failed[0]
        return answers[0], second


def _chat(words: Sequence[Any]) -> Mapping[str, Any]:
    return {"messages": [{"role": "user", "content": " ".join(map(str, words))}]}
