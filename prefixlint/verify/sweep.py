"""One server after another, each with another setting: what each setting moves, and which of them makes it slower.

The baseline comes first and last. How far its two turns are apart is how far any two servers are without a reason, so
that a setting counts as slower or faster only where its interval leaves zero out and the change is larger than that.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from prefixlint.errors import PrefixlintError, UsageError
from prefixlint.verify import changes, outputs, replay, settings, verifying
from prefixlint.verify.changes import Side
from prefixlint.verify.replay import Calls
from prefixlint.verify.settings import AGAIN, BASELINE, Variant

if TYPE_CHECKING:
    from prefixlint.model import Request
    from prefixlint.runs import Verification
    from prefixlint.verify.bootstrap import Change
    from prefixlint.verify.choose import Chosen
    from prefixlint.verify.session import Outcome, Session
    from prefixlint.verify.verifying import Collected, Plan, Progress

_JUDGED = ("ttft_p50", "ttft_p95", "token_p50")
"""By which a setting is slower or faster: one of these in cold or warm runs."""
_LEAST = 0.03  # of a change that is called one
Answers = list[Sequence[int] | None]


@dataclass(slots=True)
class Tried:
    """What became of a variant: its runs and answers, or the error for which it has none."""

    variant: Variant
    outcomes: list[Outcome] = field(default_factory=list)
    answers: Answers | None = None
    error: str | None = None


def sweep(
    requests: Iterable[Request],
    chosen: Chosen,
    plan: Plan,
    progress: Progress,
    into: Collected,
    *,
    wanted: settings.Plan,
) -> Verification:
    """Start each server of the plan, replay cold and warm, and say what moved.

    A setting with which the server does not start, or ends, costs its own row only; raises as `verifying.verify` does
    where the baseline fails. UsageError for a server that this run does not start.
    """
    if chosen.launch is None:
        raise UsageError(
            "settings can only be tried on a server that is started",
            slug="not-launched",
            hint='name it with --gpu, --cpu or --launch "COMMAND"',
        )
    calls = replay.calls(requests)
    compares = any(one.numerics for one in wanted.settings)
    rows: list[Tried] = []
    into.compared = lambda: comparison(rows, calls) if len(rows) > 1 else None
    result: Verification | None = None
    for variant in settings.variants(wanted, chosen.launch.command):
        progress.say(f"{variant.name}: {shlex.join(variant.command)}")
        tried = Tried(variant)
        rows.append(tried)
        environment = {**chosen.launch.environment, **variant.env}
        launch = replace(chosen.launch, command=list(variant.command), environment=environment, keep=False)
        own, side = into, calls
        if result is not None:  # what the first server cannot take, another one may
            own = verifying.Collected(plan, limit=into.limit)
            side = Calls(list(calls.calls))
        measure = _measure(tried, side, plan, own, compares=compares)
        try:
            found = verifying.measured((side,), replace(chosen, launch=launch), plan, progress, own, measure=measure)
        except PrefixlintError as error:
            if result is None:
                raise
            tried.error = error.message
            progress.say(f"{variant.name}: {error.message}")
        else:
            result = result or found
        if own is not into:
            into.outcomes += tried.outcomes
    whole = into.result()
    assert whole is not None
    assert result is not None
    return replace(whole, engine=result.engine)


def _measure(tried: Tried, calls: Calls, plan: Plan, into: Collected, *, compares: bool) -> verifying.Measure:
    def measure(session: Session) -> None:
        def keep(outcome: Outcome) -> None:
            tried.outcomes.append(outcome)
            into.outcomes.append(outcome)

        for number in range(1, plan.rounds + 1):
            name = tried.variant.name
            verifying.run_through(session.measure(calls.calls, plan.load, label=name, number=number, keep=keep))
        if compares and (tried.variant.numerics or not tried.variant.settings):
            tried.answers = session.answers(calls.calls[: outputs.SAMPLE], outputs.TOKENS)

    return measure


def comparison(rows: Sequence[Tried], calls: Calls) -> dict[str, Any]:
    """Give what each setting changed against the baseline, how far its two turns are apart, and what is to be said."""
    base = rows[0]
    lines = [call.request.line for call in calls.calls[: outputs.SAMPLE]]
    moved = {tried.variant.name: _changes(base, tried, calls) for tried in rows if tried.error is None}
    drift = _drift(moved.get(AGAIN, {}))
    last = next((tried for tried in reversed(rows) if tried.variant.settings), base)
    found: dict[str, Any] = {"kind": "settings", "baseline": BASELINE, "candidate": last.variant.name}
    found["variants"] = []
    for tried in rows:
        own = moved.get(tried.variant.name, {})
        row: dict[str, Any] = {
            "name": tried.variant.name,
            "command": list(tried.variant.command),
            "env": dict(tried.variant.env),
            "expect": "; ".join(one.expect for one in tried.variant.settings if one.expect) or None,
            "error": tried.error,
            **{cache: changes.as_json(told) for cache, told in own.items()},
            "verdict": _verdict(tried, own, drift),
            "outputs": None,
        }
        if base.answers is not None and tried.answers is not None and tried is not base:
            row["outputs"] = asdict(outputs.equality(base.answers, tried.answers, lines))
        found["variants"].append(row)
    candidate = moved.get(last.variant.name, {})
    found |= changes.as_json(candidate.get("cold", {}))
    found["warm"] = changes.as_json(candidate.get("warm", {}))
    found["drift"] = drift
    found["slower"] = [row["name"] for row in found["variants"] if row["verdict"] == "slower"]
    return found


def _changes(base: Tried, tried: Tried, calls: Calls) -> dict[str, dict[str, Change]]:
    found = {}
    for cache in ("cold", "warm"):
        old, new = (
            Side([outcome for outcome in one.outcomes if outcome.run.cache == cache], calls.calls)
            for one in (base, tried)
        )
        found[cache] = changes.changes(old, new)
    return found


def _drift(again: Mapping[str, Mapping[str, Change]]) -> dict[str, dict[str, float]]:
    """Give how much each number moved between the two turns of the baseline, whichever way."""
    return {
        cache: {name: abs(one.change) for name, one in told.items() if one.change is not None}
        for cache, told in again.items()
    }


def _verdict(tried: Tried, moved: Mapping[str, Mapping[str, Change]], drift: Mapping[str, Mapping[str, float]]) -> str:
    """Say in a word what a variant did: failed, slower, faster, mixed (both), or same."""
    if tried.error is not None:
        return "failed"
    if not tried.variant.settings:
        return "same"
    words = set()
    for cache, told in moved.items():
        for name in _JUDGED:
            one = told.get(name)
            if one is None or one.change is None or not one.sure:
                continue
            if abs(one.change) > max(_LEAST, drift.get(cache, {}).get(name, 0.0)):
                words.add("slower" if one.change > 0 else "faster")
    return "mixed" if len(words) == 2 else words.pop() if words else "same"
