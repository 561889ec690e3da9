"""The order of a verification: a log in, the server up, cold and warm runs, and a result that is never lost."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from prefixlint.errors import PrefixlintError, ServerError, UsageError
from prefixlint.model import Messages, Request
from prefixlint.runs import EngineUsed, Left, LoadUsed, Note, Residual, TokenDifference, Verification
from prefixlint.verify import (
    devices,
    embedded,
    predict,
    prompts,
    replay,
    resources,
    tally,
    targets,
    triage,
    watch,
    watchtext,
)
from prefixlint.verify.replay import Calls, Load
from prefixlint.verify.session import Outcome, Session, word
from prefixlint.wording import many

if TYPE_CHECKING:
    from prefixlint.chatroute import Route
    from prefixlint.verify.choose import Chosen, Wanted
    from prefixlint.verify.launch import Running
    from prefixlint.verify.prompts import Tokens

_DIFFERENCES = 5  # prompts of which it is looked up where they are counted otherwise
_AROUND = 6  # tokens shown on both sides of a difference
_SHOWN_IDS = 4
_EMBEDDED_SECONDS = 40.0  # of prefill without hits that the embedded engine is given unless the user says otherwise
_EMBEDDED_TOKENS = 20_000  # and prompt tokens at most, since requests have costs of their own
_EMBEDDED_LEAST_TOKENS = 1_500
_EMBEDDED_LEAST = 4  # requests, however long


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be measured on a server, and how. `tokenizer` and `chat_template` replace the served model's own."""

    load: Load
    rounds: int = 1
    flush: bool = False
    by_ids: bool = False
    tolerance: int = 0
    tokenizer: str | None = None
    chat_template: str | None = None
    offline: bool = False


Measure = Callable[["Session"], None]


@dataclass(slots=True)
class Progress:
    """What a run tells while it lasts: `say` gets sentences, `wait` the seconds and last line of a server that starts.

    `done` is called after each request.
    """

    say: Callable[[str], None] = lambda _: None
    wait: Callable[[float, str], None] | None = None
    done: Callable[[], None] = lambda: None


@dataclass(slots=True)
class Collected:
    """What is known so far of a verification; a result can be made of it at any time.

    `skipped` are lines of the log that gave no request. `limit` is how many requests the user asked for, None for no
    limit. `sides` are the logs that are replayed, one or several. `session` is None before the server is up.
    """

    plan: Plan
    files: Sequence[str] = ()
    skipped: Sequence[Left] = ()
    limit: int | None = None
    sides: Sequence[Calls] = ()
    session: Session | None = None
    outcomes: list[Outcome] = field(default_factory=list)
    differences: list[TokenDifference] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    compared: Callable[[], Mapping[str, Any] | None] = lambda: None
    """What changed between the runs so far, where several sides or servers are compared."""

    def result(self, error: BaseException | None = None) -> Verification | None:
        """Give the result; `error` is what ended it early. None where nothing was measured."""
        session = self.session
        if session is None or not (self.outcomes or error is None):
            return None
        rows = [row for outcome in self.outcomes for row in outcome.residuals]
        prediction = None
        if session.cache is not None and session.tokens is not None:
            prediction = tally.prediction(rows, session.cache, session.tokens.name, self.plan.tolerance)
        ended = error if error is not None else next((o.ended for o in self.outcomes if o.ended is not None), None)
        return Verification(
            engine=_engine(session),
            load=self._load(),
            runs=[outcome.run for outcome in self.outcomes],
            prediction=prediction,
            residuals=rows,
            comparison=self.compared(),
            status=_status(ended),
            ended=None if ended is None else word(ended),
            log_tail=session.running.log_tail() if isinstance(ended, PrefixlintError) else (),
            files=list(self.files),
            left=sorted(
                (*self.skipped, *(one for side in self.sides for one in side.left.values())),
                key=lambda one: -one.requests,
            ),
            token_differences=self.differences,
            notes=[*self.notes, *session.notes],
            machine=devices.machine(),
        )

    def _load(self) -> LoadUsed:
        load = self.plan.load
        return LoadUsed(
            requests=len(self.sides[0].calls) if self.sides else 0,
            concurrency=load.concurrency if load.arrival == "closed" else None,
            duration_s=load.duration,
            arrival=load.arrival,
            output=load.output,
            max_tokens=load.max_tokens,
            route="ids" if self.plan.by_ids else "chat",
            rounds=self.plan.rounds,
            rate=load.rate if load.arrival == "poisson" else None,
            speed=load.speed if load.arrival == "logged" else None,
            seed=load.seed if load.arrival == "poisson" else None,
        )


def _status(ended: BaseException | None) -> str:
    if ended is None:
        return "complete"
    return "failed" if isinstance(ended, Exception) else "interrupted"


def prepared(running: Running, wanted: Wanted, plan: Plan, progress: Progress) -> Session:
    """Find out what a running server is, and how its prompts are counted and its cache predicted."""
    target = targets.detect(running.server, wanted.engine)
    about = target.about(running.server)
    named = None if running.embedded else wanted.model  # the embedded engine tells the file that it runs
    source = prompts.Source(named, plan.tokenizer, plan.chat_template, about.model, plan.offline)
    route: Route = "sglang" if about.name == "sglang" else "vllm"
    tokens, why = prompts.choose(source, running.server, target, tokenizes=about.tokenizes, route=route)
    _check_template(tokens, about.title)
    cache = predict.cache_of(about)
    notes = []
    if tokens is None:
        notes.append(Note("not-predicted", f"nothing is predicted: {why}"))
    if cache is None:
        what = "its prefix cache is off" if about.caches is False else "the rules of its cache are not known"
        notes.append(Note("not-predicted", f"nothing is predicted: {what}"))
    return Session(
        running,
        target,
        about,
        tokens,
        cache,
        flush=plan.flush,
        by_ids=plan.by_ids,
        tolerance=plan.tolerance,
        sampler=resources.sampler(target, about),
        on_done=lambda _: progress.done(),
        notes=notes,
    )


def _check_template(tokens: Tokens | None, title: str) -> None:
    if isinstance(tokens, prompts.Files) and not tokens.renders:
        raise UsageError(
            f"{tokens.name} has no chat template, so that what {title} makes of messages is not known",
            slug="no-chat-template",
            hint="--chat-template FILE names one",
        )


def verify(
    requests: Iterable[Request], chosen: Chosen, plan: Plan, progress: Progress, into: Collected
) -> Verification:
    """Replay the requests and compare. What has been measured is in `into`, also where this raises.

    Raises ServerError, LogRefusedError, UsageError, ModelError.
    """
    calls = replay.calls(requests)

    def measure(session: Session) -> None:
        for number in range(1, plan.rounds + 1):
            run_through(session.measure(calls.calls, plan.load, number=number, keep=into.outcomes.append))

    return measured((calls,), chosen, plan, progress, into, measure=measure)


def run_through(outcomes: Sequence[Outcome]) -> None:
    """Raise what ended the last of these runs early."""
    if outcomes[-1].ended is not None:
        raise outcomes[-1].ended


def measured(
    sides: Sequence[Calls], chosen: Chosen, plan: Plan, progress: Progress, into: Collected, *, measure: Measure
) -> Verification:
    """Bring the server up, let `measure` replay on it what it can take of these calls, and give what came of it."""
    into.sides = sides
    for side in sides:
        side.check()  # before a server is started for nothing
    with chosen.opened(on_wait=progress.wait) as running:
        session = into.session = prepared(running, chosen.wanted, plan, progress)
        about = session.about
        _admit(session, into)
        name = f"{about.title}{' ' + about.version if about.version and not running.embedded else ''}"
        progress.say(f"{name} answers on {running.server.url}")
        _triage(session, into, progress)
        session.warm_up()
        _shorten_all(session, into)
        progress.say(_announced(session, into))
        measure(session)
        into.differences = differences(session, into)
        _tell(session, into)
        if chosen.launch is not None and chosen.launch.keep:
            progress.say(f"the server stays up on {running.server.url}")
    result = into.result()
    assert result is not None
    return result


def _triage(session: Session, into: Collected, progress: Progress) -> None:
    """Say first how a server that others use does now, and whether prefix work can help it at all."""
    if session.running.launched or session.about.metrics is False:
        return
    with contextlib.suppress(ServerError):  # without metrics there is nothing to say
        now = watch.sample(None, watch.scrape(session.running.server, time.time), session.running.server.url)
        if now.idle:
            return
        verdict = triage.judge(now, caches=session.about.caches)
        said = watchtext.sentence(now, verdict)
        progress.say(f"before the replay, {said}")
        if verdict.helps == "no":
            into.notes.append(Note("prefix-work-cannot-help", f"before the replay, {said}"))


def _admit(session: Session, into: Collected) -> None:
    """Leave out what the server cannot take."""
    for side in into.sides:
        session.admit(side, into.plan.load)


def _shorten_all(session: Session, into: Collected) -> None:
    """Replay on the embedded engine what takes about a minute, unless the user says how much; as much of each side."""
    if not session.running.embedded or into.limit is not None or into.plan.load.duration is not None:
        return
    budget = _EMBEDDED_TOKENS
    if session.speed is not None:
        budget = int(min(budget, max(_EMBEDDED_LEAST_TOKENS, _EMBEDDED_SECONDS * session.speed)))
    total = 0
    for count, size in enumerate(session.sizes(into.sides[0].calls)):
        total += size
        if total > budget and count >= _EMBEDDED_LEAST:
            text = f"the embedded engine replayed the first {many(count, 'request')}, for about a minute"
            into.notes.append(Note("embedded-limit", f"{text}; --limit {len(into.sides[0].calls)} replays all"))
            for side in into.sides:
                side.calls = side.calls[:count]
            return


def _announced(session: Session, into: Collected) -> str:
    """Say what is about to happen, and how long it takes at most: cold, without a hit."""
    count = sum(len(side.calls) for side in into.sides)
    said = f"{many(count, 'request')}, cold and then warm"
    total = sum(sum(session.sizes(side.calls)) for side in into.sides) * into.plan.rounds
    load = into.plan.load
    if session.speed is None or not total or not load.one_by_one or load.output != "one":
        return said
    longest = total / session.speed
    return f"{said}: at most {'a minute' if longest < 60 else f'{1 + longest // 60:.0f} minutes'}, and less with hits"


def _tell(session: Session, into: Collected) -> None:
    """Note what the server did not report; unknown is said to be so."""
    told = any(row.measured is not None for outcome in into.outcomes for row in outcome.residuals)
    session.about = replace(session.about, reports_cached=told)
    if not told:
        notes = [note for note in session.about.notes if "cached" in note]
        why = notes[0] if notes else "its answers hold no count of them"
        into.notes.append(
            Note("cached-unknown", f"the hit rate is unknown: the server reports no cached tokens ({why})")
        )


def differences(session: Session, into: Collected) -> list[TokenDifference]:
    """Find where prompts that were counted otherwise part from the server's, for the first few of them."""
    every = (call for side in into.sides for call in side.calls)
    by_place = {(call.request.path, call.request.line, call.request.part): call for call in every}
    wrong: dict[tuple[str, int, int], Residual] = {}
    for outcome in into.outcomes:
        for row in outcome.residuals:
            if None not in (row.counted_tokens, row.prompt_tokens) and row.counted_tokens != row.prompt_tokens:
                wrong.setdefault((row.path, row.line, row.part), row)
    found = []
    for place, row in list(wrong.items())[:_DIFFERENCES]:
        one = TokenDifference(row.path, row.line, row.counted_tokens or 0, row.prompt_tokens or 0, len(wrong))
        found.append(_located(session, by_place[place].request, one))
    return found


def _located(session: Session, request: Request, one: TokenDifference) -> TokenDifference:
    tokens = session.tokens
    if tokens is None or not tokens.own or not session.about.tokenizes or not isinstance(request.content, Messages):
        return one
    asked = prompts.Asked(session.running.server, session.target, session.about.model)
    ours, theirs = tokens.ids([request])[0], asked.ids([request])[0]
    if isinstance(ours, prompts.Refused) or isinstance(theirs, prompts.Refused):
        return one
    at = prompts.differing(ours, theirs)
    if at is None:
        return one
    return replace(
        one,
        token=at,
        ours=ours[at : at + _SHOWN_IDS].tolist(),
        theirs=theirs[at : at + _SHOWN_IDS].tolist(),
        before=tokens.text(ours[max(0, at - _AROUND) : at].tolist()),
        our_text=tokens.text(ours[at : at + _AROUND].tolist()),
        their_text=tokens.text(theirs[at : at + _AROUND].tolist()),
    )


def _engine(session: Session) -> EngineUsed:
    about, running = session.about, session.running
    return EngineUsed(
        name=about.name,
        version=embedded.version() if running.embedded else about.version,
        device=running.device or about.device,
        model=about.model,
        flags=dict(about.flags),
        launched=running.launched,
        title=about.title,
        embedded=running.embedded,
        url=None if running.launched else running.server.url,
        command=running.command,
        block_size=about.block_size,
        capacity_tokens=about.capacity_tokens,
        context=about.context,
        reports_cached=about.reports_cached,
        notes=list(about.notes),
    )
