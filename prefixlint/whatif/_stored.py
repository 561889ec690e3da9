"""The messages of a turn as they are sent if history is only appended to: which logged message is which sent one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from prefixlint.logrules import _alike, _history, _spans
from prefixlint.logrules._hits import Hit
from prefixlint.logrules._message import Message
from prefixlint.whatif import _edit
from prefixlint.whatif._turn import Turn

_WORDS = re.compile(r"\w+")
_SAME_DATA = frozenset({"PFX302", "PFX303", "PFX405", "PFX406", "PFX408", "PFX409"})
"""Changes that say the same in another way: there is nothing new in them to tell."""
_MOVES = "PFX203"
_WINDOW = "PFX402"
_PLACES_OF = frozenset({"window", "moves", "inserted", "removed", "thought"})
_ORDER = frozenset({"PFX408"})
"""Kinds and rules of changes of where messages stand; others are about what a message says where it stands."""
_REASONING = ("reasoning_content", "reasoning", "thinking")
_OWN_PART = frozenset({"PFX303", "PFX403", "PFX405", "PFX408"})
"""Changes of a part of a message that other changes leave alone."""
_TELLING = 6  # characters, at least, of a value that the newest message says already
_PLACES = 6  # changed places of a text that are told one by one; more are told as the whole text


@dataclass(frozen=True, slots=True)
class _Pair:
    """A logged message, and the one of the turn before that it is (None: a new one), unchanged or not."""

    later: int
    earlier: int | None
    same: bool = True


def follow(turn: Turn, codes: frozenset[str]) -> None:
    """Set the messages of a turn. Changes of the history that only these rules are about are undone."""
    later, earlier, past = turn.view.messages, turn.earlier, turn.past
    if earlier is None or past is None:
        turn.messages = [message.raw for message in later]
        turn.place = list(range(len(later)))
        return
    equal = _equal(earlier.messages, later)
    if equal == len(earlier.messages):
        _append(turn, equal)
        return
    compared = _history.compare(earlier, turn.view)
    found = {hit.code for hit in compared.hits}
    pairs = _pairs(turn, equal)
    where = {hit.code for hit in compared.hits if hit.kind in _PLACES_OF or hit.code in _ORDER}
    if found & codes and where <= codes and compared.relation in ("edited", "window"):
        _restore(turn, pairs, [hit for hit in compared.hits if hit.code != _WINDOW], codes)
    else:
        _take(turn, pairs, compared.hits, codes)


def _equal(earlier: Sequence[Message], later: Sequence[Message]) -> int:
    count = 0
    for a, b in zip(earlier, later, strict=False):
        if a.key != b.key:
            break
        count += 1
    return count


def _append(turn: Turn, equal: int) -> None:
    assert turn.past is not None
    later = turn.view.messages
    new = [message.raw for message in later[equal:]]
    sent = turn.before({j: later[j].raw for j in range(equal)})
    turn.fresh = len(sent)
    turn.talk.notes = dict(turn.past.notes)
    turn.messages = [*sent, *new]
    turn.place = [*turn.past.place, *range(len(sent), len(sent) + len(new))]


def _same(turn: Turn, pairs: Sequence[_Pair]) -> dict[int, Any]:
    """Give the messages of the turn before that this one repeats, by their numbers there."""
    later = turn.view.messages
    return {pair.earlier: later[pair.later].raw for pair in pairs if pair.same and pair.earlier is not None}


def _restore(turn: Turn, pairs: Sequence[_Pair], hits: Sequence[Hit], codes: frozenset[str]) -> None:
    """Send the history as it was sent, but for changes that other rules are about, and behind it what is new."""
    assert turn.past is not None
    later = turn.view.messages
    sent = turn.before(_same(turn, pairs))
    turn.messages, turn.fresh = list(sent), len(sent)
    turn.talk.notes = dict(turn.past.notes)
    turn.place = [0] * len(later)
    ids: dict[str, str] = {}
    blocks = [hit.before for hit in hits if hit.code == _MOVES]
    for pair in pairs:
        message = later[pair.later]
        if pair.earlier is None:
            continue
        at = turn.place[pair.later] = turn.past.place[pair.earlier]
        if not pair.same:
            changes = [hit for hit in hits if hit.rank[1] == pair.later]
            if any(hit.code not in codes for hit in changes):
                raw = mixed(message.raw, sent[at], {hit.code for hit in changes}, codes)
                turn.messages[at] = turn.noted(raw, at, at)
                turn.fresh = min(turn.fresh, at)
                continue
            ids |= _renamed(message, sent[at])
            _tell_lost(turn, message, sent[at], changes)
    for pair in pairs:
        if pair.earlier is None:
            raw = _edit.replaced(later[pair.later].raw, ids) if ids else later[pair.later].raw
            for block in blocks:
                raw = _edit.without(raw, block) or raw
            turn.place[pair.later] = len(turn.messages)
            turn.messages.append(raw)


def _take(turn: Turn, pairs: Sequence[_Pair], hits: Sequence[Hit], codes: frozenset[str]) -> None:
    """Send the messages as they were logged, but those whose every change is to be undone."""
    assert turn.past is not None
    later = turn.view.messages
    sent = turn.before(_same(turn, pairs))
    turn.fresh = len(later)
    for pair in pairs:
        message = later[pair.later]
        raw = message.raw
        if pair.earlier is None:
            turn.fresh = min(turn.fresh, pair.later)
        elif pair.same:
            raw = sent[turn.past.place[pair.earlier]]
        else:
            changes = [hit for hit in hits if hit.rank[1] == pair.later]
            stored = sent[turn.past.place[pair.earlier]]
            if changes and all(hit.code in codes for hit in changes):
                raw = stored
                _tell_lost(turn, message, raw, changes)
            elif any(hit.code in codes for hit in changes):
                raw = mixed(raw, stored, {hit.code for hit in changes}, codes)
        at = len(turn.messages)
        if pair.earlier is not None:
            raw = turn.noted(raw, turn.past.place[pair.earlier], at)
        turn.place.append(at)
        turn.messages.append(raw)
    if "PFX408" in codes:
        _in_order(turn, pairs)


def _in_order(turn: Turn, pairs: Sequence[_Pair]) -> None:
    """Put results that stand next to each other into the order in which they were sent before."""
    assert turn.past is not None
    place = turn.past.place
    begin = 0
    while begin < len(pairs):
        end = begin
        while end < len(pairs) and pairs[end].earlier is not None and turn.view.messages[end].said.results:
            end += 1
        run = sorted(range(begin, end), key=lambda k: place[pairs[k].earlier or 0])
        moved = [turn.messages[k] for k in run]
        turn.messages[begin:end] = moved
        for at, k in enumerate(run, begin):
            turn.place[k] = at
        begin = max(end, begin + 1)


def mixed(raw: Any, stored: Any, changes: set[str], codes: frozenset[str]) -> Any:
    """Give a message of which only some changes are undone: each part is the stored one where its rule is to hold."""
    if not isinstance(raw, dict) or not isinstance(stored, dict):
        return raw
    found = dict(raw)
    for key in {**stored, **raw}:
        if key in _REASONING:
            undone = "PFX403" in codes
        elif key == "tool_calls":
            found[key] = _mixed_calls(raw.get(key), stored.get(key), codes)
            continue
        elif key.endswith("id"):
            undone = "PFX405" in codes
        elif key == "arguments":
            undone = "PFX303" in codes
        else:
            undone = bool(rest := changes - _OWN_PART) and rest <= codes
        if undone and key in stored:
            found[key] = stored[key]
    return found


def _mixed_calls(calls: Any, stored: Any, codes: frozenset[str]) -> Any:
    if not isinstance(calls, list) or not isinstance(stored, list) or len(calls) != len(stored):
        return calls
    return [_mixed_call(call, old, codes) for call, old in zip(calls, stored, strict=True)]


def _mixed_call(call: Any, stored: Any, codes: frozenset[str]) -> Any:
    function, old = (_edit.get(one, "function") for one in (call, stored))
    if not isinstance(function, dict) or not isinstance(old, dict) or function.get("name") != old.get("name"):
        return call
    if "PFX405" in codes and "id" in stored:
        call = {**call, "id": stored["id"]}
    if "PFX303" in codes and "arguments" in old:
        call = {**call, "function": {**function, "arguments": old["arguments"]}}
    return call


def _pairs(turn: Turn, equal: int) -> list[_Pair]:
    """Find for each logged message the one of the turn before that it is."""
    assert turn.earlier is not None
    earlier, later = turn.earlier.messages, turn.view.messages
    found: dict[int, _Pair] = {j: _Pair(j, j) for j in range(equal)}
    blocks = SequenceMatcher(None, *_alike.keys(earlier[equal:], later[equal:]), autojunk=False).get_matching_blocks()
    at_earlier = at_later = equal
    gaps = []
    for block in blocks:
        gaps.append((range(at_earlier, equal + block.a), range(at_later, equal + block.b)))
        for k in range(block.size):
            ours, theirs = equal + block.a + k, equal + block.b + k
            found[theirs] = _Pair(theirs, ours, same=earlier[ours].key == later[theirs].key)
        at_earlier, at_later = equal + block.a + block.size, equal + block.b + block.size
    gone = {earlier[i].key: i for before, _ in gaps for i in before}
    taken: set[int] = set()
    for _, after in gaps:
        for j in after:
            i = gone.get(later[j].key)
            if i is not None and i not in taken:
                taken.add(i)
                found[j] = _Pair(j, i)
    for before, after in gaps:
        left = [i for i in before if i not in taken]
        for j in after:
            if j not in found:
                found[j] = _edited(turn, left, j)
                if found[j].earlier is None and later[j].said.role == "assistant":
                    left = []  # what stands behind a new answer is new
    return [found[j] for j in range(len(later))]


def _edited(turn: Turn, left: list[int], j: int) -> _Pair:
    """Find what a message that is not as it was has been, among those of its gap that are left; they stay in order."""
    assert turn.earlier is not None
    earlier, later = turn.earlier.messages, turn.view.messages
    for number, i in enumerate(left):
        if _alike.is_thought(earlier[i]) and not _alike.is_thought(later[j]):
            continue
        a, b = earlier[i].said, later[j].said
        if a.role == b.role and (a == b or any(_history._edit(turn.earlier, turn.view, i, j))):  # noqa: SLF001
            del left[: number + 1]
            return _Pair(j, i, same=False)
    return _Pair(j, None)


def _renamed(message: Message, sent: Any) -> dict[str, str]:
    """Give the ids that a message's calls have now, with those that they were sent with."""
    stored = Message("", sent).said.calls
    calls = message.said.calls
    if len(calls) != len(stored):
        return {}
    return {new.id: old.id for new, old in zip(calls, stored, strict=True) if new.id and old.id and new.id != old.id}


def _tell_lost(turn: Turn, message: Message, sent: Any, changes: Sequence[Hit]) -> None:
    """Have the newest message tell what a changed message says that the stored one does not."""
    if changes and all(hit.code in _SAME_DATA or hit.kind in ("cleared", "removed") for hit in changes):
        return
    stored = "\n".join(text for _, text in _edit.strings(sent))
    known = set(_WORDS.findall(stored))
    last = turn.view.messages[-1]
    newest = [] if last is message or last.said.role == "assistant" else [text for _, text in _edit.strings(last.raw)]
    for path, text in _edit.strings(message.raw):
        if path.endswith("id") or known.issuperset(_WORDS.findall(text)):
            continue
        old = _edit.get(sent, path)
        for number, (lead, value) in enumerate(_told(old if isinstance(old, str) else "", text)):
            if len(value) >= _TELLING and any(value in new for new in newest):
                continue
            turn.say(f"{message.path}.{path}.{number}", lead, value)


def _told(old: str, new: str) -> Iterator[tuple[str, str]]:
    places = _spans.spans(old, new, _PLACES + 1) if old else []
    if not places or len(places) > _PLACES:
        yield "", new
        return
    for place, _, _ in places:
        if place.after:
            yield place.lead.lstrip(), place.after
