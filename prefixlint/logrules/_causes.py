"""From hits to findings: one cause is one finding, however many requests show it; what is expected is left out."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from prefixlint.bodies import common_prefix
from prefixlint.findings import Confidence, Rule, Severity
from prefixlint.logfindings import LogFinding, Where
from prefixlint.logrules import _alike, _kin
from prefixlint.logrules._hits import MESSAGES, Hit
from prefixlint.logrules._pieces import shown
from prefixlint.logrules._sightings import Sightings
from prefixlint.logrules._view import View
from prefixlint.redact import SECRET, Redactor, is_secret_name
from prefixlint.wording import many

_EXAMPLES = 8  # pairs of lines that a finding names besides the first
_VALUES = 64  # distinct values that are counted
_SHOWN = 80  # characters of a value that are shown
_MASKED = 400  # characters of a value that are looked at for it
_CHARS = 4  # characters of a token, roughly, where nothing was counted
_FEW = 3  # requests; fewer say nothing about how often a value changes
_PAIRS = 10  # compared pairs from which on a single change is a new version and not a habit
_RARE = 0.05
_LEADS = 4  # words before values of one kind that are told apart
_OPENING = 24  # characters by which a first message is found in a prompt
_LEAD = 24  # characters by which the place of one of several hits is found in a prompt
_SHORT = 8  # characters that a message begins with, which many do
_SETTINGS = frozenset({"PFX307", "PFX503", "PFX504"})
_OF_TURNS = frozenset({"PFX203", "PFX305"})
"""Rules that turns show, and siblings only where turns of their family do."""
_APART = 256  # causes that others may name, as many as are kept apart
_OFTEN = 4  # requests per output schema from which on it is one of a few tasks


Key = tuple[Any, ...]

_PASSAGES = frozenset({"retrieval", "text"})
_PROVEN = {"PFX403": Severity.WARNING}
"""Rules that are a guess about sources and certain about a log."""


@dataclass(slots=True)
class _Cause:
    hit: Hit
    where: Where
    risk: int
    first_row: int
    requests: int = 0
    turns: int = 0
    siblings: int = 0
    paired: bool = False
    pairs: int = 0
    sure: int = 0
    mild: bool = True
    sightings: Sightings = field(default_factory=Sightings)
    values: set[int] = field(default_factory=set)
    states: set[int] = field(default_factory=set)
    families: dict[int, int] = field(default_factory=dict)
    tracks: Counter[int] = field(default_factory=Counter)
    examples: list[Where] = field(default_factory=list)
    behind: Counter[Key] = field(default_factory=Counter)
    around: dict[int, str] = field(default_factory=dict)
    """What stands around the place in the first request of each family that shows it."""

    def with_kin(self, others: Sequence[_Cause]) -> _Cause:
        """Give the cause with what others showed, which are the same."""
        if not others:
            return self
        found, rows = self, set(self.sightings.rows)
        for other in others:
            more = sum(row not in rows for row in other.sightings.rows)
            rows.update(other.sightings.rows)
            found = replace(
                found,
                requests=found.requests + more,
                turns=found.turns + min(other.turns, more),
                siblings=found.siblings + min(other.siblings, more),
                first_row=min(found.first_row, other.first_row),
                risk=max(found.risk, other.risk),
                states=found.states | other.states,
                families={**other.families, **found.families},
                tracks=found.tracks + other.tracks,
                examples=[*found.examples, other.where, *other.examples][:_EXAMPLES],
                behind=found.behind + other.behind,
            )
        return replace(found, sightings=self.sightings.joined(other.sightings for other in others))


@dataclass(slots=True)
class Causes:
    """Collects the hits of a log."""

    _causes: dict[Key, _Cause] = field(default_factory=dict)
    _pairs: Counter[tuple[int, bool]] = field(default_factory=Counter)
    _last: dict[int, int] = field(default_factory=dict)
    _turns: Counter[int] = field(default_factory=Counter)
    _leads: dict[Key, dict[Any, Key]] = field(default_factory=dict)
    _apart: dict[Key, tuple[Key, int, _kin.Label]] = field(default_factory=dict)
    """Causes that others may name, by their keys: the key they have otherwise, their family and their label."""

    def seen(self, view: View, row: int) -> None:
        """Remember when each model, set of tools and system text was last used."""
        for state in _states(view):
            self._last[state] = row

    def pair(self, family: int, track: int | None, *, same: bool) -> None:
        """Count a comparison, whatever it shows."""
        self._pairs[family, same] += 1
        if track is not None:
            self._turns[track] += 1

    def add(
        self,
        earlier: View | None,
        later: View,
        hits: Iterable[Hit],
        *,
        row: int,
        family: int,
        track: int | None = None,
    ) -> None:
        """Take in what one request shows, in the order in which the model reads it."""
        ordered = sorted((hit for hit in hits if self._is_shown(hit, family, later)), key=lambda hit: hit.rank)
        known: set[Key] = set()
        first = None if earlier is None else _first(ordered, earlier, later)
        forgotten = any(hit.code == "PFX403" or hit.kind in ("window", "removed") for hit in ordered)
        asked = earlier is not None and forgotten and _is_asked(earlier, later)
        for hit in ordered:
            key = self._key_in(family, hit, later)
            if key in known:
                continue
            known.add(key)
            line = earlier.line if earlier is not None else later.line
            other = None if earlier is None or earlier.path == later.path else earlier.path
            where = Where(later.path, later.line, line, *later.placed(hit.at.path, hit.at.char), other)
            cause = self._causes.get(key)
            if cause is None:
                cause = self._causes[key] = _Cause(hit, where, _risk(hit, earlier), row)
            elif len(cause.examples) < _EXAMPLES:
                cause.examples.append(where)
            if family not in cause.families:
                cause.around[family] = _kin.around(hit, later)
            self._count(cause, hit, earlier, family=family, track=track)
            partner = None if earlier is None else earlier.row
            ends, place = hit is first, hit.at
            behind, told = _behind(later, ordered) if ends else (None, False)
            lead = _lead(hit, later) if earlier is not None and len(ordered) > 1 else ""
            cause.sightings.add(
                row,
                partner,
                first=ends,
                turn=hit.same,
                path=place.path,
                char=place.char,
                behind=behind,
                lead=lead,
                asked=asked,
                head=hit.rank[0] < MESSAGES,
                told=told,
            )
            if first is not None and not ends:
                cause.behind[self._key_in(family, first, later)] += 1

    def _is_shown(self, hit: Hit, family: int, view: View) -> bool:
        """Tell whether a hit counts: what may be right for a sibling, as other tools or a line, until others show."""
        if hit.code in _OF_TURNS and not hit.same:
            known = self._causes.get(self._key_in(family, hit, view))
            return known is not None and family in known.families
        return not _kin.comes(hit) or self._named(family, _kin.label(hit, view)) is not None

    def _key_in(self, family: int, hit: Hit, view: View) -> Key:
        """Give the key of a hit's cause; one that others of the family may name stands apart until all are known."""
        label, key = _kin.label(hit, view), self._key(hit)
        if label is None:
            return key
        apart = (key, family, label)
        if not hit.same:
            return apart if apart in self._apart else self._named(family, label) or key
        if apart not in self._apart and len(self._apart) >= _APART:
            return key
        self._apart[apart] = apart
        return apart

    def _named(self, family: int, label: _kin.Label | None, least: int = 0) -> Key | None:
        """Give the key of the cause of a family that a label names, of those that at least `least` requests show."""
        if label is None:
            return None
        able = [
            (cause.requests, key)
            for key, cause in self._causes.items()
            if family in cause.around
            and key not in self._apart
            and cause.requests >= least
            and _kin.names(cause.hit, cause.around[family], label)
            and not self._expected(cause)
        ]
        return max(able, key=lambda one: one[0])[1] if able else None

    def _key(self, hit: Hit) -> Key:
        """Give the key of a hit's cause; values before which ever other words stand are one cause."""
        if len(hit.key) != 3:
            return hit.key
        known = self._leads.setdefault((*hit.key[:2], hit.at.path.partition("[")[0]), {})
        if hit.key[2] not in known and len(known) >= _LEADS:
            return next(iter(known.values()))
        return known.setdefault(hit.key[2], hit.key)

    def _count(self, cause: _Cause, hit: Hit, earlier: View | None, *, family: int, track: int | None) -> None:
        cause.requests += 1
        cause.turns += hit.same
        cause.paired = cause.paired or earlier is not None
        cause.siblings += not hit.same
        cause.sure = max(cause.sure, hit.sure)
        cause.mild = cause.mild and hit.mild
        cause.families[family] = cause.families.get(family, 0) + 1
        if track is not None:
            cause.tracks[track] += 1
        if len(cause.values) < _VALUES:
            cause.values.add(hash(hit.after))
        if earlier is not None and len(cause.states) < _FEW:
            cause.states.add(_states(earlier)[0 if hit.rank[0] < 0 else 1 if hit.rank[0] == 0 else 2])

    def findings(self, rules: Mapping[str, Rule], redactor: Redactor) -> list[LogFinding]:
        """Give the findings in order of their lines, without what is expected."""
        causes, named = self._united()
        kept = {k: cause for k, cause in causes.items() if cause.hit.code in rules and not self._expected(cause)}
        prints = {key: _fingerprint(cause) for key, cause in kept.items()}
        prints |= {key: prints[name] for key, name in named.items() if name in prints}
        found = [
            _finding(cause, rules[cause.hit.code], prints, prints[key], redactor=redactor, turns=self._turns)
            for key, cause in kept.items()
        ]
        return sorted(found, key=lambda f: (f.where.path, f.where.line, f.rule.code, f.where.at_path))

    def _united(self) -> tuple[dict[Key, _Cause], dict[Key, Key]]:
        """Give the causes by their keys, and the names of those that became part of others."""
        for cause in self._causes.values():
            cause.pairs = self._compared(cause)
        found = {key: cause for key, cause in self._causes.items() if key not in self._apart}
        named: dict[Key, Key] = {}
        for key, (own, family, label) in self._apart.items():
            named[key] = self._named(family, label, _kin.least(label) * self._causes[key].requests) or own
        for key, cause in [*found.items()]:
            name = self._passage(cause)
            if name in found and found[name].hit.kind in _PASSAGES:
                named[key] = name
                del found[key]
        kin: dict[Key, list[_Cause]] = {}
        for key, name in named.items():
            kin.setdefault(name, [found[name]] if name in found else []).append(self._causes[key])
        for name, (first, *others) in kin.items():
            whole = first.with_kin(others)
            found[name] = replace(whole, pairs=self._compared(whole))
        return found, named

    def _passage(self, cause: _Cause) -> Key | None:
        """Give the key of the cause of one family of which a value is part that few requests show for itself."""
        if len(cause.around) != 1:
            return None
        ((family, text),) = cause.around.items()
        return self._named(family, _kin.within(cause.hit, text), _kin.OFTEN * cause.requests)

    def _compared(self, cause: _Cause) -> int:
        return sum(self._pairs[f, True] + self._pairs[f, False] for f in cause.families)

    def _expected(self, cause: _Cause) -> bool:
        """Tell whether a cause is no fault: a constant, a new version, one of a few tasks."""
        hit = cause.hit
        if hit.code in ("PFX109", "PFX110") and not cause.paired:
            others = any(other.hit.code == hit.code and other is not cause for other in self._pairwise())
            return others or (cause.requests > 1 and len(cause.values) == 1 and hit.code == "PFX110")
        if hit.code == "PFX307" and not cause.turns:
            return cause.siblings > _OFTEN * len(cause.values) or (cause.siblings * 2 < cause.pairs)
        if self._new_version(cause):
            return True
        if not cause.turns and hit.kind in ("text", "retrieval", "environment", "value", "counter"):
            often = cause.siblings >= sum(self._pairs[family, False] for family in cause.families) * _RARE
            return cause.pairs >= _PAIRS and not (often and len(cause.values) > 2)
        return False

    def _pairwise(self) -> Iterator[_Cause]:
        return (c for c in self._causes.values() if c.paired)

    def _new_version(self, cause: _Cause) -> bool:
        """Tell whether all requests before had one state and none has it again: a deployment, not a habit."""
        if cause.hit.code == "PFX102" or cause.hit.rank[0] >= MESSAGES or len(cause.states) != 1:
            return False
        if cause.hit.rank[0] < 0 and cause.hit.code != "PFX504":
            return False
        gone = self._last.get(next(iter(cause.states)), -1) < cause.first_row
        return gone and (cause.requests >= _FEW or cause.pairs >= _PAIRS)


def _first(ordered: Sequence[Hit], earlier: View, later: View) -> Hit | None:
    """Give the hit that ends the prefix; settings do where caches are told apart by them, or where nothing else does.

    No chat template in use writes an output schema or a `tool_choice` into the prompt, and few write an effort.
    """
    able = [hit for hit in ordered if hit.code != "PFX502"]
    apart = earlier.namespace != later.namespace or earlier.model != later.model
    return next((hit for hit in able if apart or hit.code not in _SETTINGS), next(iter(able), None))


def _is_asked(earlier: View, later: View) -> bool:
    """Tell whether a user has spoken since a turn whose messages have thoughts in a field of their own."""
    new = later.messages[len(earlier.messages) :]
    ours, theirs = _alike.keys(later.messages, earlier.messages)
    if theirs and theirs[-1] in ours:  # of a history that begins later, fewer stand before what is new
        new = later.messages[len(ours) - ours[::-1].index(theirs[-1]) :]
    spoken = any(message.said.role == "user" and message.said.text for message in new)
    return spoken and any(message.said.reasoning for message in earlier.messages)


def _behind(view: View, hits: Sequence[Hit]) -> tuple[str | int | None, bool]:
    """Say up to where two requests may be alike behind their first difference: up to the messages, or for characters.

    True where messages differ for a cause: then they may be alike further on.
    """
    if not view.messages:
        return None if hits[0].same else sum(hit.tail for hit in hits if hit.rank[0] == 1), False
    said = view.messages[0].said
    told = any(hit.rank[0] == MESSAGES and (hit.same or hit.code != "PFX203") for hit in hits)
    return (said.text or said.reasoning).lstrip()[:_OPENING], told


def _lead(hit: Hit, view: View) -> str:
    """Give the end of the text that a model reads before the value that differs: of its line, where that tells enough.

    In front of what differs at the beginning of a message it is the end of the message before.
    """
    part, number, _ = hit.rank
    place = hit.at
    if part == 1:
        text = next((unit.text for unit in view.head if unit.path == place.path), "")
    elif part == 2 and not hit.same:
        text = view.messages[0].said.text
    else:
        text = place.after if isinstance(place.after, str) else ""
    if part == 2 and hit.same:
        text = text[: place.char]
        if len(text) < _SHORT:
            before = view.messages[number - 1].said if 0 < number <= len(view.messages) else None
            text = view.head_text if before is None else before.results[-1].text if before.results else before.text
    else:
        text = text[: max(0, place.char - common_prefix(hit.before, hit.after))]
    text = text.rstrip("\n")[-_LEAD:]
    line = text.rpartition("\n")[2]
    return line if len(line) >= _SHORT else text


def _states(view: View) -> tuple[int, int, int]:
    return hash(("model", view.model)), hash(("tools", view.tools_key)), hash(("head", view.head_text))


def _risk(hit: Hit, earlier: View | None) -> int:
    """Estimate the tokens behind a place that both requests have."""
    if earlier is None or not hit.same:
        return hit.tail // _CHARS
    part, position, _ = hit.rank
    if part < 1:
        chars = earlier.size
    elif part == 1:
        chars = max(0, earlier.size - position)
    else:
        chars = sum(message.size for message in earlier.messages[position:])
    return chars // _CHARS


def _fingerprint(cause: _Cause) -> str:
    """Give a hash that stays when lines move: rule, kind and place."""
    place = repr((cause.hit.key, cause.where.path)).encode("utf-8", "replace")
    return hashlib.blake2b(place, digest_size=8).hexdigest()


def _finding(
    cause: _Cause,
    rule: Rule,
    prints: Mapping[Key, str],
    fingerprint: str,
    *,
    redactor: Redactor,
    turns: Mapping[int, int],
) -> LogFinding:
    hit = cause.hit
    values = _values(hit, redactor)
    severity = max(rule.severity, _PROVEN.get(rule.code, rule.severity))
    if cause.mild or cause.sure < 2 or _is_rare(cause, turns):
        severity = Severity.INFO
    masked = None
    if cause.behind and not cause.sightings.firsts:
        masked = next((prints[k] for k, _ in cause.behind.most_common() if k in prints), None)
    message = f"{hit.what}{_shown(values)}, in {many(cause.requests, 'request')}"
    return LogFinding(
        rule=rule,
        severity=severity,
        confidence=Confidence(max(1, cause.sure)),
        message=message if "_" in message.split(None, 1)[0] else message[:1].upper() + message[1:],
        where=cause.where,
        values=values,
        excerpt="" if values is None else values[1] or values[0],
        requests=cause.requests,
        kind=hit.kind,
        examples=tuple(cause.examples),
        families=tuple(cause.families),
        sightings=cause.sightings,
        tokens_at_risk=cause.risk,
        masked_by=masked,
        fingerprint=fingerprint,
    )


def _is_rare(cause: _Cause, turns: Mapping[int, int]) -> bool:
    """Tell whether a history was shortened once in long conversations: that is how it should be done."""
    if cause.hit.code != "PFX401" or cause.hit.kind not in ("cleared", "removed"):
        return False
    return bool(cause.tracks) and all(n == 1 and turns.get(track, 0) >= _PAIRS for track, n in cause.tracks.items())


def _values(hit: Hit, redactor: Redactor) -> tuple[str, str] | None:
    if not hit.before and not hit.after:
        return None
    words = str(hit.key[-1]).rstrip(" :=\"'").split()
    if words and is_secret_name(words[-1]):
        return SECRET, SECRET
    begin = _begin(hit.before, hit.after) if min(len(hit.before), len(hit.after)) > _SHOWN else 0
    before, after = (shown(value, hit.at.path, redactor, begin, _MASKED) for value in (hit.before, hit.after))
    if hit.kind == "identity":
        before, after = redactor.person(str(hit.before), before), redactor.person(str(hit.after), after)
    return _cut(f"{'…' if begin else ''}{before}"), _cut(f"{'…' if begin else ''}{after}")


def _begin(before: str, after: str) -> int:
    """Give where to begin to show two long values, so that the place at which they differ is seen."""
    same = common_prefix(before, after)
    return same - _SHOWN // 4 if same > _SHOWN // 2 else 0


def _cut(text: str) -> str:
    line = " ".join(text.split()) if "\n" in text else text
    return line if len(line) <= _SHOWN else line[: _SHOWN - 1] + "…"


def _shown(values: tuple[str, str] | None) -> str:
    if values is None:
        return ""
    before, after = values
    if before and after:
        return f" ({before!r}, then {after!r})"
    return f" ({(before or after)!r})"
