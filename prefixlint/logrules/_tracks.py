"""Which earlier request one is compared with: the previous turn of its conversation, or a sibling of its template.

A conversation is recognised by what it holds: a request that repeats messages of an earlier one goes on with it, even
where some of them were changed, dropped or moved. A logged session only narrows the choice, since agents share sessions
with the calls that they make on the side. Memory is bounded: the least recently continued conversations are forgotten.
"""

from __future__ import annotations

import re
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from prefixlint.bodies import common_prefix
from prefixlint.logrules import _spans
from prefixlint.logrules._alike import content, is_question, longest
from prefixlint.logrules._message import Message, Said
from prefixlint.logrules._siblings import Siblings
from prefixlint.logrules._view import View

MEMORY = 96_000_000
"""Characters of request bodies that are kept: the latest turn of each conversation."""

_POOL = 256  # heads and lists of tools that conversations hold in common
_PER_KEY = 24  # conversations that are remembered for one message; `hi` opens thousands
_EDGES = (24, 6, 2)  # characters at both ends of a first message by which a changed one is found again
_CANDIDATES = 48
_MINE = 24  # characters of a text that two conversations do not share by accident, as `[cleared]` is
_CONTENTS = 65_536  # messages that are known by what they say
_SURE = 4  # conversations; among so few a shared message is no accident
_LAST = 80  # characters of a message that is not said twice by accident
_TELLING = 200  # characters of messages that two conversations do not share by accident
_SAME = 400  # characters of an opening by which it is found again as a whole
_SAMPLE = 40  # messages of two turns that are compared word by word
_STAMP = 16  # characters by which two writings of a time differ in length
_QUERY = re.compile(r'\?[^"]*')
_HEADS = 12  # heads of other templates that a new one is compared with
_ALIKE = 0.5  # of the shorter head


@dataclass(slots=True)
class Track:
    """The latest turn of one conversation; `end` stands for all its messages, in their order.

    `strain` is that of its head, see `Siblings`.
    """

    number: int
    view: View
    family: int
    turns: int = 1
    end: int = 0
    strain: int | None = None


@dataclass(frozen=True, slots=True)
class Match:
    """What a request is compared with. `same` says that it is one conversation, else the two share only a template."""

    track: Track
    same: bool


@dataclass(slots=True)
class Tracks:
    """The conversations seen so far; `latest` is the number of the one that the last request added is a turn of.

    `related` says that siblings are looked for as well, `compact` that messages are kept packed: that is less memory
    and takes time.
    """

    memory: int = MEMORY
    related: bool = True
    compact: bool = True
    latest: int = 0
    _tracks: OrderedDict[int, Track] = field(default_factory=OrderedDict)
    _by_message: dict[int, list[int]] = field(default_factory=dict)
    _by_content: OrderedDict[int, list[int]] | None = None
    """As `_by_message`, by what messages say whatever ids they have; from the first request on that needs it."""
    _sessions: Counter[str | None] = field(default_factory=Counter)
    _by_end: dict[int, list[int]] = field(default_factory=dict)
    _by_edge: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    _siblings: Siblings = field(default_factory=Siblings)
    _alias: dict[int, int] = field(default_factory=dict)
    _heads: dict[tuple[str, ...], OrderedDict[int, str]] = field(default_factory=dict)
    _pool: OrderedDict[tuple[str, Any], Any] = field(default_factory=OrderedDict)
    _newest: View | None = None
    _before: Sequence[Message] = ()
    _next: int = 0
    _kept: int = 0

    def add(self, view: View, family: int) -> tuple[Match | None, View | None]:
        """Give what a request continues (or None) and a sibling of its template, and remember it."""
        family = self._family(view, family)
        track = self._continued(view)
        sibling = strain = None
        if self.related:
            known = track.strain if track is not None and track.family == family else None
            sibling, strain = self._siblings.add(view, family, known)
        match = None
        if track is not None:
            match = Match(Track(track.number, track.view, track.family, track.turns), same=True)
        if track is not None and _goes_on(track.view, view):
            self._replace(track, view, family)
        else:
            self._open(view, family)
        self._tracks[self.latest].strain = strain
        self._newest = view
        return match, sibling

    def pack(self) -> None:
        """Let go of what nothing will need of the request added last: all but what later ones are compared with.

        It holds its tools and head in common with other requests that have the same ones.
        """
        view = self._newest
        assert view is not None
        tools = self._pool.setdefault(("tools", (view.tools_key, view.marked, view.tool_names)), view.tools)
        parts = tuple([(unit.path, len(unit.text)) for unit in view.head])
        head, text = self._pool.setdefault(("head", (view.head_text, parts)), (view.head, view.head_text))
        while len(self._pool) > _POOL:
            self._pool.popitem(last=False)
        view.pack(tools, head, text)
        if self.compact:
            view.pack_messages(self._before)
        self._before, self._newest = (), None

    def _family(self, view: View, family: int) -> int:
        """Join a family to one with nearly the same head: short heads with ids in them look like other templates."""
        known = self._alias.get(family)
        if known is not None:
            return known
        text = view.head_text or (view.messages[0].said.text if view.messages else "")
        key = (str(view.model), *sorted(view.tool_names))
        heads = self._heads.setdefault(key, OrderedDict())
        found = next((number for number, head in reversed(heads.items()) if _alike(head, text, view)), family)
        self._alias[family] = found
        if found == family:
            heads[family] = text
            if len(heads) > _HEADS:
                heads.popitem(last=False)
        return found

    def _continued(self, view: View) -> Track | None:
        """Find the conversation that shares most messages; of equals the nearest in setting, then the latest."""
        if not view.messages:
            return self._longer_text(view)
        if view.session is not None and not (self._sessions[view.session] or self._sessions[None]):
            return None  # as `_may_be_one` says of each
        return self._whole(view) or self._most(view) or self._changed_opening(view) or self._same_content(view)

    def _whole(self, view: View) -> Track | None:
        """Find the longest conversation that a request repeats as it was from its beginning, as most do."""
        ends = list(_ends(view.messages))
        for end in reversed(ends):
            best: tuple[tuple[int, ...], Track] | None = None
            for number in self._by_end.get(end, ()):
                track = self._tracks[number]
                if _continues(track.view, view, len(track.view.keys)):
                    rank = (*_nearness(track.view, view), number)
                    best = (rank, track) if best is None or rank > best[0] else best
            if best is not None:
                return best[1]
        return None

    def _most(self, view: View) -> Track | None:
        best: tuple[tuple[int, ...], Track] | None = None
        for track in self._candidates(view):
            other = track.view
            shared = len(other.keys & view.keys)
            if not _continues(other, view, shared) or not (
                other.messages[0].key == view.messages[0].key or self._much(other, view, shared)
            ):
                continue
            rank = (shared, -abs(len(other.messages) - shared), *_nearness(other, view), track.number)
            if best is None or rank > best[0]:
                best = rank, track
        return best[1] if best is not None else None

    def _longer_text(self, view: View) -> Track | None:
        """Find the text prompt that this one goes on from."""
        text = view.head_text
        found = [
            track
            for number in self._by_message.get(_beginning(text), ())
            if (track := self._tracks.get(number)) is not None and text.startswith(track.view.head_text)
        ]
        return max(found, key=lambda track: len(track.view.head_text), default=None)

    def _candidates(self, view: View) -> Iterator[Track]:
        """Give conversations that share a message; late messages first, since openings are shared by many."""
        seen: set[int] = set()
        for message in reversed(view.messages):
            for number in self._by_message.get(message.key, ()):
                if number not in seen and number in self._tracks:
                    seen.add(number)
                    yield self._tracks[number]
            if len(seen) >= _CANDIDATES:
                return

    def _much(self, earlier: View, later: View, shared: int) -> bool:
        """Tell whether two conversations with other openings share enough to be one; many share a short answer."""
        last = earlier.messages[-1]
        if shared < 2 and last.key == later.messages[-1].key:
            return False  # nothing was said behind it: an application's rule at the end of every request
        if last.key in later.keys and (last.size >= _LAST or len(self._tracks) <= _SURE):
            return True
        if shared * 2 < len(earlier.messages):
            return False
        if len(self._tracks) <= _SURE:
            return True
        return sum(m.size for m in later.messages if m.key in earlier.keys) >= _TELLING

    def _changed_opening(self, view: View) -> Track | None:
        """Find a conversation of which nothing stands as it was: a block has gone from its opening, or ids are new."""
        if len(view.messages) < 2:
            return None
        said = view.messages[0].said
        opening = _opening(said)
        for edge in _edges(opening):
            for number in reversed(self._by_edge.get((said.role, edge), ())):
                track = self._tracks.get(number)
                if track is not None and _may_be_one(track.view, view) and _rewritten(track.view, view, opening):
                    return track
        return None

    def _same_content(self, view: View) -> Track | None:
        """Find the conversation that says what a request begins with in the middle of one, under ids that are new."""
        if len(view.messages) < 2 or is_question(view.messages[0]):
            return None
        if self._by_content is None:
            self._by_content = OrderedDict()
            for number, track in self._tracks.items():
                self._index(number, track.view.messages)
        found = Counter(
            number
            for key in {content(m) for m in view.messages if longest(m) >= _MINE}
            for number in self._by_content.get(key, ())
        )
        able = [
            (shared, number)
            for number, shared in found.items()
            if shared > 1 and number in self._tracks and _may_be_one(self._tracks[number].view, view)
        ]
        return self._tracks[max(able)[1]] if able else None

    def _open(self, view: View, family: int) -> None:
        self._next += 1
        number = self.latest = self._next
        track = self._tracks[number] = Track(number, view, family)
        self._kept += view.weight
        self._sessions[view.session] += 1
        self._index(number, view.messages)
        if not view.messages:
            _push(self._by_message.setdefault(_beginning(view.head_text), []), number)
        if view.messages:
            self._ends_at(track, view)
            said = view.messages[0].said
            for edge in _edges(_opening(said)):
                _push(self._by_edge.setdefault((said.role, edge), []), number)
        self._forget()

    def _replace(self, track: Track, view: View, family: int) -> None:
        """Let a conversation go on. Its known messages stay in the index, new ones join them."""
        known = track.view.keys
        self._index(track.number, [message for message in view.messages if message.key not in known])
        self._kept += view.weight - track.view.weight
        self._sessions[view.session] += 1
        self._leave(track.view.session)
        if view.messages:
            _remove(self._by_end, track.end, track.number)
            self._ends_at(track, view)
        self._before = track.view.messages
        track.view, track.family, track.turns = view, family, track.turns + 1
        self.latest = track.number
        self._tracks.move_to_end(track.number)
        self._forget()

    def _leave(self, session: str | None) -> None:
        self._sessions[session] -= 1
        if not self._sessions[session]:
            del self._sessions[session]

    def _ends_at(self, track: Track, view: View) -> None:
        *_, track.end = _ends(view.messages)
        _push(self._by_end.setdefault(track.end, []), track.number)

    def _index(self, number: int, messages: Iterable[Message]) -> None:
        for message in messages:
            _push(self._by_message.setdefault(message.key, []), number)
            if self._by_content is not None:
                _push(self._by_content.setdefault(content(message), []), number)
                if len(self._by_content) > _CONTENTS:
                    self._by_content.popitem(last=False)

    def _forget(self) -> None:
        while self._kept > self.memory and len(self._tracks) > 1:
            number, track = self._tracks.popitem(last=False)
            self._kept -= track.view.weight
            self._leave(track.view.session)
            _remove(self._by_end, track.end, number)
            for message in track.view.messages:
                _remove(self._by_message, message.key, number)


def _remove(index: dict[int, list[int]], key: int, number: int) -> None:
    numbers = index.get(key)
    if numbers is not None and number in numbers:
        numbers.remove(number)
        if not numbers:
            del index[key]


def _push(numbers: list[int], number: int) -> None:
    if not numbers or numbers[-1] != number:
        numbers.append(number)
        if len(numbers) > _PER_KEY:
            del numbers[0]


def _may_be_one(earlier: View, later: View) -> bool:
    """Two requests with different sessions are two conversations, whatever they say."""
    return earlier.session is None or later.session is None or earlier.session == later.session


def _continues(earlier: View, later: View, shared: int) -> bool:
    if not _may_be_one(earlier, later):
        return False
    if shared < 2 and len(later.messages) <= len(earlier.messages):
        return len(later.messages) == len(earlier.messages) > 1 or _same_opening(earlier, later)
    return True


def _same_opening(earlier: View, later: View) -> bool:
    """Tell whether both are a single message of one logged session: a retry, or a call on the side."""
    return earlier.session is not None and len(earlier.messages) == len(later.messages)


def _goes_on(earlier: View, later: View) -> bool:
    """Tell whether a request takes the place of the one it shares messages with; else both live on, as branches."""
    return not later.messages or len(later.messages) > len(earlier.messages) or earlier.messages[-1].key in later.keys


def _nearness(earlier: View, later: View) -> tuple[int, int]:
    return (
        int(earlier.head_text == later.head_text and earlier.tools_key == later.tools_key),
        int(earlier.model == later.model) + int(earlier.tool_names == later.tool_names),
    )


def _edges(text: str) -> Iterator[str]:
    """Give the ends of a text by which it is found again: `<` marks its end, `>` its beginning."""
    stripped = text.strip()
    if stripped:
        yield "=" + stripped[:_SAME]
    for size in _EDGES:
        if len(stripped) >= size:
            yield "<" + stripped[-size:]
            yield ">" + stripped[:size]


def _beginning(text: str) -> int:
    return hash(("text", text[:_SAME]))


def _ends(messages: Iterable[Message]) -> Iterator[int]:
    """Give for each message what stands for it and all before it."""
    end = 0
    for message in messages:
        end = hash((end, message.key))
        yield end


def _rewritten(earlier: View, later: View, opening: str) -> bool:
    """Tell whether a turn is the next one of another, with each message written in another way."""
    other = _opening(earlier.messages[0].said)
    if not (_contained(other, opening) or _is_kept(other, opening)):
        return False
    if len(earlier.messages) == 1:
        return True
    if len(later.messages) <= len(earlier.messages):
        return False
    pairs = list(zip(earlier.messages, later.messages, strict=False))[:_SAMPLE]
    return sum(x.said.role == y.said.role and _is_kept(x.said.text, y.said.text) for x, y in pairs) * 2 >= len(pairs)


def _is_kept(earlier: str, later: str) -> bool:
    """Tell whether a text is the same but for its white space and what a clock writes."""
    return earlier == later or earlier.split() == later.split() or _restamped(earlier, later)


def _opening(said: Said) -> str:
    """Give the text of a first message; of one without text, its attachments without what signs their addresses."""
    return said.text.strip() or "\n".join(_QUERY.sub("", item) for item in said.media)


def _restamped(earlier: str, later: str) -> bool:
    """Tell whether two texts differ only in values that a clock writes."""
    if abs(len(earlier) - len(later)) > _STAMP:
        return False
    found = _spans.places(earlier, later)
    return 0 < len(found) <= 3 and all(place.kind in ("clock", "age", "header") for place in found)


def _contained(earlier: str, later: str) -> bool:
    """Tell whether one text is the other with a block before or behind it."""
    a, b = earlier.strip(), later.strip()
    short, long = (a, b) if len(a) < len(b) else (b, a)
    if not short or len(short) == len(long):
        return False
    if long.endswith(short):
        block = long[: -len(short)]
        return not block[-1].isalnum() and _is_block(block)
    if long.startswith(short):
        block = long[len(short) :]
        return not block[0].isalnum() and _is_block(block)
    return False


def _is_block(text: str) -> bool:
    return text.lstrip()[:1] in tuple("<[({#-*=") or "\n" in text or ":" in text


def _alike(known: str, text: str, view: View) -> bool:
    if known == text:
        return True
    if not known or not text:
        return False
    if view.tools and not view.head:
        return True
    size = min(len(known), len(text))
    front = common_prefix(known, text)
    back = 0
    if front / size < _ALIKE:
        back = common_prefix(known[::-1], text[::-1])
    return (front + min(back, size - front)) / size >= _ALIKE
