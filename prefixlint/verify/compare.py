"""Two logs on one server in turns, A B A B: what the prompts of the second change. Drift of the machine hits both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from prefixlint.runs import Verification
from prefixlint.verify import changes, replay, verifying
from prefixlint.verify.changes import Side

if TYPE_CHECKING:
    from prefixlint.model import Request
    from prefixlint.verify.choose import Chosen
    from prefixlint.verify.replay import Call, Calls
    from prefixlint.verify.session import Outcome, Session
    from prefixlint.verify.verifying import Collected, Plan, Progress

BEFORE, AFTER = "before", "after"
ROUNDS = 2
"""How often each log is replayed unless told otherwise: once says nothing of how far two runs are apart."""


def compare(
    logs: tuple[Iterable[Request], Iterable[Request]],
    chosen: Chosen,
    plan: Plan,
    progress: Progress,
    into: Collected,
    *,
    names: tuple[str, str] = (BEFORE, AFTER),
) -> Verification:
    """Replay both logs, each cold and warm, in turns, and say what changed; raises as `verifying.verify` does.

    `names` are what the logs are called in the comparison.
    """
    sides = replay.calls(logs[0]), replay.calls(logs[1])

    def measure(session: Session) -> None:
        for number in range(1, plan.rounds + 1):
            for label, side in zip((BEFORE, AFTER), sides, strict=True):
                keep = into.outcomes.append
                verifying.run_through(session.measure(side.calls, plan.load, label=label, number=number, keep=keep))

    into.compared = lambda: comparison(into.outcomes, sides, names)
    return verifying.measured(sides, chosen, plan, progress, into, measure=measure)


def comparison(outcomes: Sequence[Outcome], sides: tuple[Calls, Calls], names: tuple[str, str]) -> dict[str, Any]:
    """Give what changed from the runs before to those after: of the cold runs, and under `warm` of the warm ones."""
    found: dict[str, Any] = {"kind": "logs", "baseline": names[0], "candidate": names[1]}
    for cache in ("cold", "warm"):
        old, new = (
            _side(outcomes, side.calls, label, cache) for label, side in zip((BEFORE, AFTER), sides, strict=True)
        )
        told = changes.as_json(changes.changes(old, new))
        told["predicted_hit_rate"] = changes.expected(old, new)
        found |= told if cache == "cold" else {cache: told}
    found["rounds"] = len({outcome.run.round for outcome in outcomes})
    return found


def _side(outcomes: Sequence[Outcome], calls: Sequence[Call], label: str, cache: str) -> Side:
    own = [outcome for outcome in outcomes if (outcome.run.label, outcome.run.cache) == (label, cache)]
    return Side(own, calls)
