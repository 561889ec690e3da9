"""What a request log shows about prompts: which value, block or habit ends the prefix that requests could share.

Requests are compared in pairs: with the previous turn of their conversation where there is one, and with the latest
request of their template. Needs neither a tokenizer nor an engine. What is expected is no finding: a new conversation,
a new version, a summary, a call on the side that does not repeat the history.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from prefixlint import redact
from prefixlint.families import Grouper
from prefixlint.findings import Rule
from prefixlint.logfindings import LogFinding, Sighting, as_json
from prefixlint.logrules import _heads, _history, _settings, _single, _spans, _values
from prefixlint.logrules._causes import Causes
from prefixlint.logrules._hits import MESSAGES, At, Hit
from prefixlint.logrules._known import Known
from prefixlint.logrules._pieces import shown
from prefixlint.logrules._tracks import MEMORY, Match, Tracks
from prefixlint.logrules._view import View, view
from prefixlint.model import Request, Skip
from prefixlint.redact import Redactor

__all__ = [
    "At",
    "Fault",
    "Hit",
    "LogFinding",
    "Observer",
    "Sighting",
    "Taken",
    "as_json",
    "check",
    "compare",
    "differences",
    "observed",
    "shown",
]

_CONTINUES = frozenset({"append", "edited", "window"})


def check(
    requests: Iterable[Request | Skip],
    rules: Mapping[str, Rule],
    *,
    masked: Redactor | None = None,
) -> list[LogFinding]:
    """Give the findings of a log whose requests come in order; `masked` hides what must not be shown."""
    return observed(requests).findings(rules, masked)


def observed(requests: Iterable[Request | Skip]) -> Observer:
    """Give what has seen a log whose requests come in order."""
    observer = Observer()
    for row, request in enumerate(item for item in requests if isinstance(item, Request)):
        observer.see(request, row)
    return observer


def compare(earlier: Request, later: Request, *, turn: bool | None = True) -> list[Hit]:
    """Say what differs between two requests, in the order of the prompt.

    They are taken as two turns of one conversation, or without `turn` as siblings of a template, as `Sighting.turn`;
    with None as turns where that finds anything, but for what two conversations of a single message begin with.
    """
    one, two = view(earlier, 0), view(later, 1)
    if one is None or two is None:
        return []
    hits = [] if turn is False else _turn(one, two)[0]
    if turn is None and max(len(one.messages), len(two.messages)) == 1:
        hits = [hit for hit in hits if hit.rank[0] < MESSAGES]
    if turn is False or (turn is None and not hits):
        hits = _sibling(one, two)
    return [_placed(hit, two) for hit in sorted(hits, key=lambda hit: hit.rank)]


def differences(earlier: str, later: str) -> list[tuple[_values.Place, str]]:
    """Give the places at which two texts differ, at most twelve, each with what changes there in words."""
    return [(place, _heads.WORDS.get(place.kind, _heads.WORDS["text"])) for place in _spans.places(earlier, later)]


@dataclass(frozen=True, slots=True)
class Fault:
    """The request over which a rule stumbled, and the kind of error."""

    path: str
    line: int
    error: str

    def told(self, masked: Redactor | None = None) -> str:
        """Say what happened where, with paths as `masked` shows them."""
        return f"{self.error} at {self.path if masked is None else masked.path(self.path)}:{self.line}"


@dataclass(frozen=True, slots=True)
class Taken:
    """A request that was taken apart (None: nothing to compare), its template, and what the rules stumbled over."""

    view: View | None
    family: int
    fault: Fault | None = None


@dataclass(slots=True)
class Observer:
    """Sees the requests of a log one by one; keeps the latest turn of each conversation and the causes found.

    A request over which a rule stumbles is left out, as if the log did not hold it: `left_out` counts those, and
    `fault` names the first.
    """

    memory: int = MEMORY
    left_out: int = 0
    fault: Fault | None = None
    _tracks: Tracks = field(init=False)
    _causes: Causes = field(default_factory=Causes)
    _grouper: Grouper = field(default_factory=Grouper)
    _known: Known = field(default_factory=Known)
    _ended: dict[int, View] = field(default_factory=dict)
    """The latest request of each family that ends with a message that every turn has behind its history."""

    def __post_init__(self) -> None:
        self._tracks = Tracks(self.memory)

    def see(self, request: Request, row: int, family: int | None = None) -> None:
        """Compare a request with those before it. `row` names it in the findings; `family` is its template if known."""
        self.see_taken(self.taken(request, row, self._grouper.add(request) if family is None else family))

    def _taken_apart(self, request: Request, row: int) -> View | None:
        """Give a request as the rules compare it; of its body only what they look at, since it may have to wait."""
        here = view(request, row, self._known.message)
        if here is not None and not here.marked:
            here.body = None
        return here

    def _see(self, here: View, family: int) -> None:
        row = here.row
        match, sibling = self._tracks.add(here, family)
        single: list[Hit] = []
        with suppress(RecursionError):  # values that are nested too deep to be compared are no cause
            single = list(_single.hits(here))
        if single:
            self._causes.add(None, here, single, row=row, family=family)
        earlier: View | None = None
        hits: list[Hit] = []
        track: int | None = None
        with suppress(RecursionError):
            earlier, hits, track = _hits(match, self._like(sibling, here, family), here)
        if earlier is not None:
            self._causes.pair(family, track, same=track is not None)
            if hits:
                self._causes.add(earlier, here, hits, row=row, family=family, track=track)
            if any(hit.code == "PFX203" for hit in hits) and _heads.end_alike(earlier, here):
                self._ended[family] = here
        self._causes.seen(here, row)
        self._tracks.pack()

    def _like(self, sibling: View | None, here: View, family: int) -> View | None:
        """Give another sibling where only that one ends as a request does: some conversations end so, and some not."""
        ended = self._ended.get(family)
        if ended is None or ended.namespace != here.namespace or not _heads.end_alike(ended, here):
            return sibling
        return sibling if sibling is not None and _heads.end_alike(sibling, here) else ended

    def taken(self, request: Request, row: int, family: int) -> Taken:
        """Take a request apart, to be seen later by `see_taken`: while it is new this is quicker, and it keeps less."""
        try:
            return Taken(self._taken_apart(request, row), family)
        except Exception as error:  # noqa: BLE001  # the rules read what strangers wrote
            return Taken(None, family, Fault(request.path, request.line, type(error).__name__))

    def see_taken(self, taken: Taken) -> None:
        """See a request that was taken apart before."""
        here, fault = taken.view, taken.fault
        if here is not None:
            try:
                self._see(here, taken.family)
            except Exception as error:  # noqa: BLE001  # the rules read what strangers wrote
                fault = Fault(here.path, here.line, type(error).__name__)
        if fault is not None:
            self.left_out += 1
            self.fault = self.fault or fault

    def findings(self, rules: Mapping[str, Rule], masked: Redactor | None = None) -> list[LogFinding]:
        """Give what the requests seen so far show, for the rules that are wanted."""
        return self._causes.findings(rules, redact.shown() if masked is None else masked)


def _placed(hit: Hit, view: View) -> Hit:
    """Give a hit with its place in the logged body."""
    if not view.starts:
        return hit
    path, char = view.placed(hit.at.path, hit.at.char)
    return replace(hit, at=replace(hit.at, path=path, char=char))


def _hits(match: Match | None, sibling: View | None, here: View) -> tuple[View | None, list[Hit], int | None]:
    """Compare with the previous turn; without one, with the latest request of the template."""
    if match is not None:
        earlier = match.track.view
        hits, relation = _turn(earlier, here)
        if relation in _CONTINUES or hits:
            return earlier, hits, match.track.number
    if sibling is None or (sibling.session is not None and sibling.session == here.session and match is not None):
        return None, [], None
    return sibling, _sibling(sibling, here), None


def _turn(earlier: View, later: View) -> tuple[list[Hit], str]:
    if not _heads.alike(earlier, later) or (earlier.tools and not later.tools):
        return _side_call(earlier, later)
    compared = _history.compare(earlier, later)
    if compared.relation not in _CONTINUES:
        return [], compared.relation
    hits = [
        *_settings.changes(earlier, later),
        *_settings.schema(earlier, later, same=True),
        *_heads.tools(earlier, later, same=True),
        *_heads.system(earlier, later, same=True),
        *compared.hits,
    ]
    if not hits:
        hits += _single.jumped(earlier, later)
    return hits, compared.relation


def _side_call(earlier: View, later: View) -> tuple[list[Hit], str]:
    """Report a call that sends most of a history again behind another head; shorter ones are as they should be."""
    shared = len(earlier.keys & later.keys)
    if shared < 2 or shared * 2 < len(earlier.messages):
        return [], "side"
    return [_heads.side_call(earlier, later)], "side"


def _sibling(earlier: View, later: View) -> list[Hit]:
    if earlier.model != later.model:
        return []
    return [
        *_settings.schema(earlier, later, same=False),
        *_heads.tools(earlier, later, same=False),
        *_heads.system(earlier, later, same=False),
        *_heads.opening(earlier, later),
        *_heads.ending(earlier, later),
    ]
