"""Cold and warm runs of the same requests against one server, each beside what the model of its cache predicts.

A session knows everything that it sent since the cache was last known to be empty: that series is what is predicted.
"""

from __future__ import annotations

import random
import secrets
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from prefixlint.errors import PrefixlintError, ServerError
from prefixlint.model import Messages, Request, TokenIds
from prefixlint.runs import Note, Residual, Run
from prefixlint.verify import metrics, replay, tally
from prefixlint.verify.predict import Cache, Circumstances, Predicted, Sent, generated, predict
from prefixlint.verify.prompts import Refused, Tokens
from prefixlint.verify.replay import Call, Calls, Exchange, Load, Replayed
from prefixlint.verify.sender import Apart, Sender, new_marker, new_salt
from prefixlint.verify.tally import Name
from prefixlint.verify.targets import Ask
from prefixlint.wording import percent

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from prefixlint.verify.faults import Failure
    from prefixlint.verify.launch import Running
    from prefixlint.verify.metrics import Metrics
    from prefixlint.verify.targets import About, Measured, Target

    Ids = NDArray[np.uint32]

_WARM_UP_WORDS = (40, 300)  # of the requests that take out compilation and first allocations
_TOKENS_OF_WORD = 8  # of drawn letters at most, so that a context has room for them
_SHOWN_WORDS = 160  # of the request by which a cache is shown to be empty: more than a block of any server
_EMPTY_SHARE = 0.5  # of a prompt: a flush after which more of it is still cached did not work
_FLUSH_TRIES = 5  # a server may still be putting the last request away
_FLUSH_PAUSE = 0.3  # seconds
_COUNTERS_APART = 0.01  # of the hit rate, from which on answers and the server's counters are said to differ

Sampler = Callable[["Running"], AbstractContextManager[Mapping[str, Any]]]


@dataclass(slots=True)
class Outcome:
    """A run with its exchanges and their `residuals`, in the order sent. `ended` is the error that ended it early."""

    run: Run
    exchanges: list[Exchange]
    residuals: list[Residual]
    ended: PrefixlintError | None = None


@dataclass(frozen=True, slots=True)
class _Pass:
    """One run as it is sent; `prompts` by the number of their call."""

    load: Load
    apart: Apart
    name: Name
    prompts: Mapping[int, Ids]


def _nothing(_: Any) -> None:
    """Take notice of nothing."""


@dataclass(slots=True)
class Session:
    """One server and how it is measured. `tokens` is None where no prompt can be counted, `cache` where none is known.

    `flush` allows to empty a server that this run did not start. `sampler` watches resources while a run lasts, and
    gives what it saw. `on_done` is told each exchange as it ends.
    """

    running: Running
    target: Target
    about: About
    tokens: Tokens | None
    cache: Cache | None
    flush: bool = False
    by_ids: bool = False
    tolerance: int = 0
    sampler: Sampler | None = None
    on_done: Callable[[Exchange], None] = _nothing
    notes: list[Note] = field(default_factory=list)
    speed: float | None = None
    """Prompt tokens a second, as the longest warm-up request had it; None before."""
    _history: list[Sent] = field(default_factory=list)
    _fresh: bool = True
    _sizes: dict[int, int] = field(default_factory=dict)
    _known: tuple[Request, Apart] | None = None
    """What was sent last aside: by it a flush is shown to have worked."""

    def admit(self, calls: Calls, load: Load) -> None:
        """Leave out of the calls those that the server cannot take.

        Raises LogRefusedError where nothing is left, UsageError where the log lacks what the load needs.
        """
        prompts = self._counted(calls)
        known = {call.number for call in calls.calls if call.number in prompts}
        if self.target.by_ids([1], Ask()) is None:
            plain = {c.number for c in calls.calls if not isinstance(c.request.content, Messages)}
            calls.without(plain, "no-route", f"{self.about.title} takes no token ids, and the log gives no messages")
            by_ids, why = self.by_ids, f"{self.about.title} takes no token ids"
        else:
            by_ids, why = self.by_ids, "the token ids of the prompt are not known: --model names their tokenizer"
        needs = {c.number for c in calls.calls if by_ids or not isinstance(c.request.content, Messages)}
        calls.without(needs - known, "no-ids", why)
        if (context := self.about.context) is not None:
            long = {c.number for c in calls.calls if c.number in known and _length(prompts, c, load) > context}
            calls.without(long, "longer-than-context", f"longer than the server's context of {context:,} tokens")
        calls.check()
        load.check(calls.calls)
        self._sizes = {number: int(prompt.size) for number, prompt in prompts.items()}

    def sizes(self, calls: Sequence[Call]) -> list[int]:
        """Give the prompt tokens of calls that were admitted, 0 where they are not known."""
        return [self._sizes.get(call.number, 0) for call in calls]

    def _counted(self, calls: Calls) -> dict[int, Ids]:
        """Count prompts, and leave out those that have none; give them by the number of their call."""
        if self.tokens is None:
            return {
                c.number: np.array(c.request.content.ids, np.uint32)
                for c in calls.calls
                if isinstance(c.request.content, TokenIds)
            }
        found: dict[int, Ids] = {}
        refused: dict[tuple[str, str], set[int]] = {}
        prompts = self.tokens.ids([call.request for call in calls.calls])
        for call, prompt in zip(calls.calls, prompts, strict=True):
            if isinstance(prompt, Refused):
                refused.setdefault((prompt.slug, prompt.message), set()).add(call.number)
            else:
                found[call.number] = prompt
        for (slug, message), numbers in refused.items():
            calls.without(numbers, slug, message)
        return found

    def warm_up(self) -> None:
        """Send a few requests that no measured prompt begins like, so that compilation is not measured.

        Raises ServerError where the server is gone; that it refuses one of them the measured ones will show.
        """
        apart = Apart(salt=new_salt() if self.target.salted() is not None else None)
        room = (self.about.context or sys.maxsize) // _TOKENS_OF_WORD
        for words in _WARM_UP_WORDS:
            try:
                began = time.perf_counter()
                found = self._aside(_filler(max(1, min(words, room))), apart)
                if found is not None and found.prompt_tokens:
                    self.speed = found.prompt_tokens / (time.perf_counter() - began)
            except ServerError as error:
                if error.slug in replay.GONE or self.running.died() is not None:
                    raise

    def measure(
        self,
        calls: Sequence[Call],
        load: Load,
        *,
        label: str = "baseline",
        number: int = 1,
        keep: Callable[[Outcome], None] = _nothing,
    ) -> list[Outcome]:
        """Run the calls cold, then warm; `number` is the round. A run that ends early is the last one.

        `keep` is handed each run as soon as it is there, complete or not, also where this is left by an exception.
        """
        apart, isolation = self._empty()
        outcomes = []
        for cache in ("cold", "warm"):
            outcome = self._run(calls, load, apart, Name(label, cache, isolation, number), keep)
            outcomes.append(outcome)
            if outcome.ended is not None:
                break
        return outcomes

    def _empty(self) -> tuple[Apart, str]:
        """Make sure that nothing of a run is cached before it; say how."""
        if self.running.launched or self.flush:
            why = self._flush()
            if why is None:
                return Apart(), "flush"
            if self.flush:
                self.notes.append(Note("not-flushed", f"the cache was not emptied: {why}"))
            if self.running.launched and self._fresh:
                self._fresh = False
                return Apart(), "fresh"
        if self.target.salted() is not None:
            return Apart(salt=new_salt()), "salt"
        # What earlier prompts begin with is not known; behind this one, it is.
        self._aside(_filler(_WARM_UP_WORDS[0]), self._marker())
        return self._marker(), "marker"

    def _marker(self) -> Apart:
        text = new_marker()
        ids = self.tokens.output(text).tolist() if self.tokens is not None else ()
        return Apart(marker=text, marker_ids=tuple(ids))

    def _flush(self) -> str | None:
        """Empty the cache and show that it is: a request that was cached before must not be any more."""
        for tried in range(_FLUSH_TRIES):
            if tried:
                time.sleep(_FLUSH_PAUSE)
            if (why := self.target.flush(self.running.server)) is None:
                break
        else:
            return why
        self._history.clear()
        if self._known is None:
            self._aside(_filler(_SHOWN_WORDS))
            return self._flush()
        seen = self._aside(*self._known)
        if seen is None or seen.cached_tokens is None or seen.prompt_tokens is None:
            return None
        if seen.cached_tokens > _EMPTY_SHARE * seen.prompt_tokens:
            return "the server says that it did, and still serves what was cached before"
        return None

    def _aside(self, request: Request, apart: Apart = Apart()) -> Measured | None:  # noqa: B008 - frozen
        """Send a request that is not measured; it is in the cache all the same. Raises where the server fails it."""
        marked = apart.request(request)
        ids = self.tokens.ids([marked]) if self.tokens is not None else []
        prompt = None if not ids or isinstance(ids[0], Refused) else ids[0]
        sender = Sender(self.running.server, self.target, self.about.model, _ONE, apart)
        if self.by_ids and prompt is not None:
            sender.ids = {0: prompt}
        exchange = sender(Call(0, request))
        if exchange.failure is not None:
            raise self._error(exchange.failure)
        if prompt is not None:
            self._history.append(self._sent(exchange, prompt, apart))
        self._known = request, apart
        return exchange.measured

    def _run(
        self, calls: Sequence[Call], load: Load, apart: Apart, name: Name, keep: Callable[[Outcome], None]
    ) -> Outcome:
        prompts = self._prompts(calls, apart)
        lengths = [call.output_tokens for call in calls if call.output_tokens]
        sender = Sender(self.running.server, self.target, self.about.model, load, apart)
        sender.usual = int(statistics.median(lengths)) if lengths else load.max_tokens
        sender.ids = {
            call.number: prompts[call.number]
            for call in calls
            if call.number in prompts and (self.by_ids or not isinstance(call.request.content, Messages))
        }
        pass_ = _Pass(load, apart, name, prompts)
        before, out = self._scrape(), Replayed()
        seen: Mapping[str, Any] = {}
        try:
            with self.sampler(self.running) if self.sampler is not None else nullcontext({}) as seen:
                replay.run(calls, sender, load, dead=lambda: self.running.died(2.0), on_done=self.on_done, into=out)
        except BaseException as error:
            sender.stopped.set()
            outcome = self._outcome(out, pass_, None, seen)
            outcome.run = replace(outcome.run, complete=False, ended=word(error))
            keep(outcome)
            raise
        outcome = self._outcome(out, pass_, before, seen)
        keep(outcome)
        return outcome

    def answers(self, calls: Sequence[Call], tokens: int) -> list[Sequence[int] | None]:
        """Give the first tokens of each call's answer, the most likely ones; None where there was none.

        Nothing of it is measured, and what it leaves in the cache is not predicted: this comes after the runs. An
        answer whose ids are not known is given as the characters of its text.
        """
        sender = Sender(self.running.server, self.target, self.about.model, Load(max_tokens=tokens), Apart())
        prompts = self._prompts(calls, Apart())
        sender.ids = {number: ids for number, ids in prompts.items() if self.by_ids}
        found: list[Sequence[int] | None] = []
        for call in calls:
            measured = sender(call).measured
            ids = None if measured is None else measured.output_ids
            found.append(ids if measured is None or ids is not None else [ord(c) for c in measured.output_text])
        return found

    def _prompts(self, calls: Sequence[Call], apart: Apart) -> dict[int, Ids]:
        """Give the prompts as they are sent, by the number of their call."""
        requests = [apart.request(call.request) for call in calls]
        if self.tokens is None:
            pairs = ((c, r.content) for c, r in zip(calls, requests, strict=True))
            return {c.number: np.array(held.ids, np.uint32) for c, held in pairs if isinstance(held, TokenIds)}
        found = zip(calls, self.tokens.ids(requests), strict=True)
        return {call.number: prompt for call, prompt in found if not isinstance(prompt, Refused)}

    def _outcome(self, out: Replayed, pass_: _Pass, before: Metrics | None, seen: Mapping[str, Any]) -> Outcome:
        """Put a run's numbers together, and what was predicted of it."""
        load, apart, name, prompts = pass_.load, pass_.apart, pass_.name, pass_.prompts
        exchanges = sorted(out.exchanges, key=lambda exchange: exchange.sent)
        ended = None if out.ended is None else self._error(out.ended)
        after = self._scrape() if before is not None and ended is None else None
        spent = metrics.delta(before, after) if before is not None and after is not None else None
        counters = self.target.counters(spent) if spent is not None else None
        sent = {
            place: self._sent(exchange, prompts[exchange.call.number], apart)
            for place, exchange in enumerate(exchanges)
            if exchange.call.number in prompts
        }
        around = Circumstances(
            concurrent=not load.one_by_one,
            evicts=bool(counters and (counters.evicted or counters.preemptions or counters.retractions)),
            shared_server=not self.running.launched,
        )
        sides = tally.Sides(sent, self._predict(sent, load), around, self.tolerance)
        rows = tally.residuals(exchanges, sides, name)
        self._history += sent.values()
        run = tally.run_of(exchanges, rows, name, out, timed=load.arrival != "closed")
        run = replace(run, server=tally.server_side(counters, seen), resources=dict(seen) or None)
        if counters is not None:
            run = tally.with_parts(run, counters)
            self._compare_rates(run)
        if ended is not None:
            run = replace(run, complete=False, ended=ended.message)
        elif out.stopped:
            run = replace(run, ended="its duration was over")
        return Outcome(run, exchanges, rows, ended)

    def _sent(self, exchange: Exchange, prompt: Ids, apart: Apart) -> Sent:
        measured = exchange.measured
        queue = 0.0 if measured is None or measured.queue_s is None else measured.queue_s
        first = exchange.first if exchange.first is not None else exchange.done
        return Sent(
            ids=prompt,
            output=generated(measured, self._output(measured)),
            namespace=(apart.salt, *exchange.call.request.namespace),
            start=min(exchange.sent + queue, first),
            first=first,
            done=exchange.done,
            prompt=measured.prompt_tokens if measured is not None else None,
            cached=measured.cached_tokens if measured is not None else None,
            failed=exchange.failure is not None,
            retried=exchange.retries > 0,
        )

    def _output(self, measured: Measured | None) -> Ids:
        """Give an answer's text in tokens, where the server does not tell them and they can matter."""
        if measured is None or self.tokens is None or measured.output_ids is not None or measured.output_tokens == 1:
            return np.empty(0, np.uint32)
        return self.tokens.output(measured.output_text)

    def _predict(self, sent: Mapping[int, Sent], load: Load) -> dict[int, Predicted]:
        """Predict a run behind everything that was sent before it, by the places of its requests."""
        if self.cache is None:
            return {}
        answered = [place for place, one in sent.items() if not one.failed]
        series = [*(one for one in self._history if not one.failed), *(sent[place] for place in answered)]
        found = predict(series, self.cache, one_by_one=load.one_by_one)
        return dict(zip(answered, found[len(series) - len(answered) :], strict=True))

    def _scrape(self) -> Metrics | None:
        return None if self.about.metrics is False else metrics.scraped(self.running.server, timeout=10.0)

    def _compare_rates(self, run: Run) -> None:
        """Say where the hit rate of the answers and that of the server's counters do not agree, as they must."""
        theirs = run.server.hit_rate if run.server is not None else None
        if theirs is None or run.hit_rate is None or abs(theirs - run.hit_rate) <= _COUNTERS_APART:
            return
        rates = f"answers give a hit rate of {percent(run.hit_rate)}, the server's counters {percent(theirs)}"
        why = "" if self.running.launched else "; it may have served others meanwhile"
        self.notes.append(Note("rates-differ", f"{run.cache} run: {rates}{why}"))

    def _error(self, failure: Failure | PrefixlintError) -> PrefixlintError:
        """Give what ended a run: that the server had died, with its last lines, where it had."""
        return self.running.died(1.0) or (failure if isinstance(failure, PrefixlintError) else failure.error())


_ONE = Load()


def _length(prompts: Mapping[int, Ids], call: Call, load: Load) -> int:
    return int(prompts[call.number].size) + load.tokens(call, load.max_tokens)


def word(error: BaseException) -> str:
    """Say what ended a run early."""
    return error.message if isinstance(error, PrefixlintError) else "interrupted"


def _filler(words: int) -> Request:
    """Make a request of drawn words, like no other."""
    draw = random.Random(secrets.token_bytes(8))  # noqa: S311 - only to be unlike other prompts
    text = " ".join("".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 7))) for _ in range(words))
    return Request("", 0, Messages([{"role": "user", "content": text}]), "filler")
