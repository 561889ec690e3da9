"""Requests in the order of use in, rewritten bodies out: for each choice of fixes that is asked for."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from prefixlint.logrules import _heads
from prefixlint.logrules._tracks import Track, Tracks
from prefixlint.logrules._view import View, view
from prefixlint.model import Request
from prefixlint.whatif import Fix, Part, _edit
from prefixlint.whatif._stored import follow
from prefixlint.whatif._turn import Talk, Turn

_MEMORY = 16_000_000  # characters of the latest turns of conversations that are kept
_TALKS = 8_192  # conversations whose sent messages are kept

Choice = frozenset[int]
"""Fixes, by their numbers in a plan."""


@dataclass(slots=True)
class _Choice:
    """One choice of fixes: what applies to each family, and the conversations as it has them."""

    fixes: Sequence[Fix]
    talks: dict[int, Talk] = field(default_factory=dict)
    """The latest are the last."""
    _chars: int = 0
    _parts: dict[int, tuple[list[tuple[Part, frozenset[int]]], frozenset[str]]] = field(default_factory=dict)

    def parts(self, family: int) -> tuple[list[tuple[Part, frozenset[int]]], frozenset[str]]:
        """Give what is done to the requests of a family, with those that show why, and the rules to undo in history."""
        if family not in self._parts:
            found = [(part, fix.rows) for fix in self.fixes if family in fix.families for part in fix.parts]
            codes = frozenset[str]().union(*(part.HISTORY for part, _ in found))
            self._parts[family] = found, codes
        return self._parts[family]

    def keep(self, number: int, talk: Talk) -> None:
        self._drop(number)
        self.talks[number] = talk
        self._chars += _begun(talk)
        while len(self.talks) > _TALKS or (self._chars > _MEMORY and len(self.talks) > 1):
            self._drop(next(iter(self.talks)))

    def _drop(self, number: int) -> None:
        talk = self.talks.pop(number, None)
        self._chars -= _begun(talk) if talk is not None else 0


@dataclass(slots=True)
class Rewriter:
    """Rewrites the requests of a log in the order of use.

    `choices` are the sets of fixes that are tried; each has its own conversations, so one pass serves them all.
    """

    fixes: Sequence[Fix]
    choices: Iterable[Choice]
    _tracks: Tracks = field(default_factory=lambda: Tracks(_MEMORY, related=False, compact=False))
    _made: dict[Choice, _Choice] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for choice in self.choices:
            chosen = [copy.deepcopy(self.fixes[n].parts) for n in sorted(choice)]
            fixes = [
                Fix(f.name, f.advice, f.codes, f.families, parts, (), f.rows)
                for f, parts in zip((self.fixes[n] for n in sorted(choice)), chosen, strict=True)
            ]
            self._made[choice] = _Choice(fixes)

    def rewrite(
        self, request: Request, row: int, family: int, choices: Iterable[Choice]
    ) -> Iterator[tuple[Choice, Any]]:
        """Give the body of a request as each of some choices of fixes has it; nothing where it cannot be rewritten."""
        here = view(request, row)
        if here is None or here.body is not request.body:
            return
        match, _ = self._tracks.add(here, family)
        if match is not None and not here.messages:
            yield from self._grown(here, match.track, choices)
            self._tracks.pack()
            return
        number = self._tracks.latest
        earlier = match.track.view if match is not None and _goes_on(match.track.view, here) else None
        before = match.track.number if match is not None else None
        for choice in choices:
            made = self._made[choice]
            past = self._past(made, choice, before, earlier) if earlier is not None and before is not None else None
            talk = Talk() if past is None else Talk(shown=dict(past.shown), kept=dict(past.kept), opening=past.opening)
            parts, codes = made.parts(family)
            turn = Turn(here, earlier if past is not None else None, past, family, request.body, [], talk=talk)
            follow(turn, codes)
            for part, rows in parts:
                turn.shows = row in rows
                part.apply(turn)
            body = turn.finish()
            made.keep(number, talk)
            yield choice, body if turn.changed else request.body
        self._tracks.pack()

    def _grown(self, here: View, track: Track, choices: Iterable[Choice]) -> Iterator[tuple[Choice, Any]]:
        """Give a prompt that goes on with the one before: that is sent as it was, and the rest as logged."""
        for choice in choices:
            made = self._made[choice]
            past = self._past(made, choice, track.number, track.view)
            if past is None or past.begun is None:
                continue
            size, sent = past.begun
            unit = here.head[0]
            made.keep(self._tracks.latest, replace(past, row=here.row))
            yield choice, _edit.put(here.body, unit.path, sent + unit.text[size:])

    def _past(self, made: _Choice, choice: Choice, number: int, earlier: View) -> Talk | None:
        """Give how a conversation's last turn was sent; of a family without such a one as the nearest choice has it."""
        past = made.talks.get(number)
        if past is None or past.row == earlier.row:
            return past
        able = [(len(choice ^ other), n) for n, other in enumerate(self._made) if self._sent(other, number, earlier)]
        return self._made[[*self._made][min(able)[1]]].talks[number] if able else None

    def _sent(self, choice: Choice, number: int, earlier: View) -> bool:
        talk = self._made[choice].talks.get(number)
        return talk is not None and talk.row == earlier.row


def _goes_on(earlier: View, later: View) -> bool:
    """Tell whether a request may be the next turn of another, and no call on the side."""
    return _heads.alike(earlier, later) and bool(earlier.tools) <= bool(later.tools)


def _begun(talk: Talk) -> int:
    return len(talk.begun[1]) if talk.begun is not None else 0
