"""What becomes of a log's requests when the advice of a rule is followed: one module per kind of rewrite.

Nothing is deleted: a value that is taken out of a prefix is told in the newest message, and from then on stays there;
history is sent as it was stored. Data that is only written in another way (key order, order of tools, ids of calls)
is written in one way.

A module satisfies `Kind`; adding one is adding a file. Modules whose name begins with an underscore are none:

`_turn`      one request while it is rewritten, and what its conversation was told
`_stored`    which logged message is which sent one
`_slots`     which parts of a text are values
`_examples`  pairs of requests that show a cause
`_edit`      changes to bodies of any dialect
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Protocol

from prefixlint.logfindings import LogFinding
from prefixlint.whatif._examples import Example, examples
from prefixlint.whatif._turn import Talk, Turn

__all__ = ["Example", "Fix", "Kind", "NotSimulated", "Part", "Talk", "Turn", "examples", "kinds", "plan"]


class Part(Protocol):
    """What one kind of rewrite does for one fix."""

    HISTORY: frozenset[str]
    """Rules whose changes of the history are to be undone before `apply` is called."""

    def apply(self, turn: Turn) -> None:
        """Rewrite a request."""
        ...


class Kind(Protocol):
    """What a module in this folder provides. Its docstring says what is done, and what the model still sees.

    `CODES` are the rules whose advice it carries out. `ORDER` sorts the kinds that apply to one request.
    `learn` gives what to do, or None where the examples show nothing that this kind of rewrite can change. `others` are
    the kinds of value that other fixes of the same requests are about.
    """

    CODES: frozenset[str]
    ORDER: int

    def learn(self, codes: frozenset[str], pairs: Sequence[Example], others: frozenset[str]) -> Part | None: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Fix:
    """Following the advice of a rule for the families that show its cause, in the requests `rows`."""

    name: str
    advice: str
    codes: frozenset[str]
    families: frozenset[int]
    parts: Sequence[Part]
    findings: Sequence[LogFinding]
    rows: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class NotSimulated:
    """A cause whose fix cannot be tried on the log alone, and why."""

    codes: frozenset[str]
    families: frozenset[int]
    reason: str


_REASONS: Mapping[str, str] = {
    "PFX307": "the schema is chosen for the answer that is wanted, and no other one is known to give it",
    "PFX410": "what a call on the side would say behind the conversation's own head is its author's choice",
    "PFX501": "where markers belong depends on the provider's rules; text does not change",
    "PFX502": "a prompt below the minimum has nothing to gain",
    "PFX503": "the key is set outside the prompt, by what routes the requests",
    "PFX504": "another model is not asked for in a log",
    "PFX701": "it is a setting of the server",
    "PFX703": "routing is the fleet's; --replicas and --route try it",
}
_UNKNOWN = "nothing in the logged requests shows what to change"


@cache
def kinds() -> tuple[Kind, ...]:
    """Give every kind of rewrite, in the order in which they apply."""
    names = sorted(info.name for info in pkgutil.iter_modules(__path__) if not info.name.startswith("_"))
    found: list[Any] = [import_module(f"{__name__}.{name}") for name in names]
    return tuple(sorted(found, key=lambda kind: kind.ORDER))


def plan(
    findings: Iterable[LogFinding],
    pairs: Callable[[Sequence[LogFinding], frozenset[str]], Iterable[Example]],
    every: Sequence[LogFinding] = (),
) -> tuple[list[Fix], list[NotSimulated]]:
    """Make a fix of the findings of each rule, and say of which rules none can be tried.

    `every` are all findings of the log: what the others are about is left as it is.
    """
    by_code: dict[str, list[LogFinding]] = {}
    for finding in findings:
        by_code.setdefault(finding.rule.code, []).append(finding)
    fixes: list[Fix] = []
    refused: list[NotSimulated] = []
    for code, members in by_code.items():
        codes = frozenset((code,))
        families = frozenset(number for finding in members for number in finding.families)
        others = {f.kind for f in every if f.rule.code != code and not families.isdisjoint(f.families)}
        try:
            parts = _parts(codes, members, frozenset(others), pairs)
        except Exception as error:  # noqa: BLE001  # it reads what strangers wrote; other fixes are tried all the same
            refused.append(NotSimulated(codes, families, f"a rewrite has a fault ({type(error).__name__})"))
            continue
        if parts:
            rule = members[0].rule
            rows = frozenset(sighting.row for finding in members for sighting in finding.sightings)
            fixes.append(Fix(rule.name, rule.help, codes, families, parts, members, rows))
        else:
            refused.append(NotSimulated(codes, families, _REASONS.get(code, _UNKNOWN)))
    return fixes, refused


def _parts(
    codes: frozenset[str],
    members: Sequence[LogFinding],
    others: frozenset[str],
    pairs: Callable[[Sequence[LogFinding], frozenset[str]], Iterable[Example]],
) -> list[Part]:
    able = [kind for kind in kinds() if kind.CODES & codes]
    if not able:
        return []
    seen = list(pairs(members, codes))
    return [part for kind in able if (part := kind.learn(codes, seen, others)) is not None]
