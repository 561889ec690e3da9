"""What became of a conversation's messages from one turn to the next: kept, edited, moved, dropped, or written anew."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import takewhile
from typing import Any

from prefixlint.bodies import common_prefix, is_cut
from prefixlint.logrules import _alike, _spans, _values
from prefixlint.logrules._hits import At, Hit, at, short
from prefixlint.logrules._message import Call, Message, dumps
from prefixlint.logrules._view import View
from prefixlint.wording import many

_WINDOW_SLACK = 2  # messages that a window may drop besides those that were added, and results that follow their calls
_LONG = 600  # messages; longer histories are aligned from the first difference on, this many
_MARK = 40  # characters, at most, of a mark that says that a text was cut
_CLEARED = re.compile(r"clear|remov|omit|elid|trunc|compact|prun|redact|expired|\.\.\.|…|\[\d", re.IGNORECASE)
_OF_HISTORY = frozenset({"PFX203", "PFX401", "PFX404"})
_GOES_ON = {"append": "edited", "repeat": "edited", "edited": "edited", "window": "window"}
"""What becomes of relations with thoughts that are gone."""
_THINK = re.compile(r"<(?:think|thinking|reasoning|thought)\b|</think", re.IGNORECASE)

_THOUGHT = re.compile(r"<(think|thinking|reasoning|thought)\b[^<>]*>.*?</\1\s*>\s*", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Compared:
    """`relation` is append, repeat, rewind, branch, edited, window or compaction; only some of them are findings."""

    relation: str
    hits: tuple[Hit, ...] = ()


def compare(earlier: View, later: View) -> Compared:
    """Compare the messages of two turns."""
    first = None if earlier.keys <= later.keys else _first_thought_gone(earlier.messages, later)
    if first is not None:
        gone = earlier.messages[first]
        others = [m for m in earlier.messages if m.key in later.keys or not _alike.is_thought(m)]
        rest = _compare(replace(earlier, messages=tuple(others)), later)
        if rest.relation in _GOES_ON:
            instead = later.messages[first].raw if first < len(later.messages) else None
            where = at(later_path(later, first), gone.raw, instead)
            return Compared(_GOES_ON[rest.relation], (_thought(gone, where, (2, first, where.char)), *rest.hits))
    return _compare(earlier, later)


def _first_thought_gone(messages: Sequence[Message], later: View) -> int | None:
    """Give the first message that was a thought and nothing else, and is gone from between others that are not."""
    kept = [message.key in later.keys for message in messages]
    spoken = (n for n, m in enumerate(messages) if kept[n] and m.said.role not in ("system", "developer"))
    for i in range(next(spoken, len(messages)), len(messages)):
        behind = () if kept[i] or not _alike.is_thought(messages[i]) else range(i + 1, len(messages))
        if any(kept[n] for n in takewhile(lambda n: not _alike.is_thought(messages[n]), behind)):
            return i
    return None


def _thought(message: Message, where: At, rank: tuple[int, int, int]) -> Hit:
    what, key = "the reasoning of an assistant message is left out", ("PFX403", "reasoning")
    return Hit("PFX403", "thought", rank, where, key, what, message.said.reasoning, "", same=True, tail=1)


def _compare(earlier: View, later: View) -> Compared:
    e, l = earlier.messages, later.messages  # noqa: E741 - e and l, as in earlier and later
    n = _equal(e, l)
    if n == len(e):
        return Compared("append" if len(l) > n else "repeat")
    if n == len(l):
        return Compared("rewind")
    e_keys, l_keys = _alike.keys(e[n : n + _LONG], l[n : n + _LONG])
    blocks = SequenceMatcher(None, e_keys, l_keys, autojunk=False).get_matching_blocks()
    shifted = sum(b.size for b in blocks if b.a != b.b)
    in_place = sum(1 for x, y in zip(e_keys, l_keys, strict=False) if x == y)
    slid = shifted == in_place and l_keys[0] in e_keys and e_keys[0] not in l_keys  # a message may stand at each end
    if (shifted > in_place or slid) and not any(_alike.swapped_results(e, l, n)):
        return _moved(earlier, later, n, blocks)
    return _edited(earlier, later, n)


def _equal(e: Sequence[Message], l: Sequence[Message]) -> int:  # noqa: E741
    n = 0
    for x, y in zip(e, l, strict=False):
        if x.key != y.key:
            break
        n += 1
    return n


def _moved(earlier: View, later: View, n: int, blocks: Sequence[Any]) -> Compared:
    """Messages stand at other places: a window that moved, a summary, or a message that went elsewhere."""
    e, l = earlier.messages, later.messages  # noqa: E741
    first = next(b for b in blocks if b.a != b.b)
    dropped, put = first.a - _before(blocks, first)[0], first.b - _before(blocks, first)[1]
    added = len(l) - (len(e) - dropped + put)
    where = at(later_path(later, n), e[n].raw, l[n].raw if n < len(l) else None)
    rank = (2, n, where.char)
    gone = e[n : n + first.a]
    begins = n <= 1 and dropped > put and put <= 1
    if begins and not _comes_again(gone, l[n + first.b :], e[n + first.a]):
        results = sum(1 for _ in takewhile(lambda m: m.said.results, reversed(gone)))
        if dropped - put - results <= max(0, added) + _WINDOW_SLACK or (
            not (n or first.b) and _alike.begins_later(e, l, first.a)
        ):
            what = f"the history begins {many(dropped, 'message')} later than one turn before"
            before, after = _head_line(e[n]), _head_line(l[n])
            hit = Hit("PFX402", "window", rank, where, ("PFX402",), what, before, after, same=True, tail=1)
            return Compared("window", (hit, *_edits_of_kept(earlier, later, n, first)))
        return Compared("compaction")
    if dropped > put and dropped * 2 > len(e) and dropped > added + _WINDOW_SLACK:
        return Compared("compaction")
    hits = list(_displaced(earlier, later, n, _before(blocks, first), first, where=where))
    return Compared("edited", tuple(hits)) if hits else Compared("branch")


def _edits_of_kept(earlier: View, later: View, n: int, first: Any) -> Iterator[Hit]:
    """Say what became of the messages that a window keeps."""
    i, j = n + first.a, n + first.b
    e, l = earlier.messages[i:], later.messages[j:]  # noqa: E741
    swapped, done = _swapped(earlier, later, 0, (i, j))
    yield from swapped
    for k, (x, y) in enumerate(zip(e, l, strict=False)):
        if x.key != y.key and k not in done:
            yield from _edit(earlier, later, i + k, j + k)


def _swapped(earlier: View, later: View, n: int, begin: tuple[int, int] = (0, 0)) -> tuple[list[Hit], set[int]]:
    """Give hits of results in another order from place `n` on, and their places; both counted from `begin`."""
    hits, done = [], set[int]()
    e, l = (view.messages[at:] for view, at in zip((earlier, later), begin, strict=True))  # noqa: E741
    for first, end in _alike.swapped_results(e, l, n):
        done.update(range(first, end))
        where, rank = at(l[first].path, e[first].raw, l[first].raw), (2, begin[1] + first, 0)
        what = "results of parallel tool calls stand in another order"
        before, after = (", ".join(r.id or "?" for m in x[first:end] for r in m.said.results) for x in (e, l))
        hits.append(Hit("PFX408", "order", rank, where, ("PFX408",), what, before, after, same=True, tail=1))
        held = {r.id: (k, r.text) for k in range(first, end) for r in e[k].said.results}
        for k in range(first, end):
            for result in l[k].said.results:
                number, text = held.get(result.id, (k, result.text))
                if text != result.text:
                    changes = _text(earlier, later, begin[0] + number, text, result.text)
                    hits += _told(changes, at(l[k].path, e[number].raw, l[k].raw), begin[1] + k)
    return hits, done


def _comes_again(gone: Sequence[Message], rest: Sequence[Message], stays: Message) -> bool:
    """Tell whether what is gone from the beginning is no part of the history, but stands with the newest message."""
    if stays.said.role == "assistant" or any(m.said.role not in ("system", "user") for m in gone):
        return False
    return all(any(m.said.role == x.said.role and _alike.akin(x.said.text, m.said.text) for m in rest) for x in gone)


def _before(blocks: Sequence[Any], block: Any) -> tuple[int, int]:
    """Give where the gap before a matching block begins, in both lists."""
    a = b = 0
    for other in blocks:
        if other is block:
            break
        a, b = other.a + other.size, other.b + other.size
    return a, b


def _displaced(earlier: View, later: View, n: int, gap: tuple[int, int], first: Any, *, where: At) -> Iterator[Hit]:
    e, l = earlier.messages, later.messages  # noqa: E741
    gone, come = e[n + gap[0] : n + first.a], l[n + gap[1] : n + first.b]
    rank = (2, n + gap[0], 0)
    stays = e[n + first.a]
    behind = {message.key for message in e[n + first.a + 1 :]}
    passed = any(m.said.role == "assistant" or m.key in behind for m in come)
    if passed and stays.said.role in ("system", "user"):
        yield _removed(stays, l[n + first.b :], where, rank)
        return
    paired = min(len(gone), len(come))
    for index in range(paired):
        yield from _edit(earlier, later, n + gap[0] + index, n + gap[1] + index)
    for message in gone[paired:]:
        yield _removed(message, l[n + first.b :], where, rank)
    for message in come[paired:]:
        what = f"a {message.said.role} message was put into the history"
        key = ("PFX401", "inserted", message.said.role)
        yield Hit("PFX401", "inserted", rank, where, key, what, "", _head_line(message), same=True, tail=1)


def _removed(message: Message, rest: Sequence[Message], where: At, rank: tuple[int, int, int]) -> Hit:
    role, text = message.said.role, message.said.text
    again = next((m for m in rest if m.key == message.key), None)
    if again is not None:
        what = f"the same {role} message is moved behind the history on each turn"
        return Hit("PFX203", "moves", rank, where, ("PFX203", role), what, _head_line(message), "", same=True, tail=1)
    similar = next((m for m in reversed(rest) if m.said.role == role and _alike.akin(text, m.said.text)), None)
    if similar is not None and role in ("system", "user"):
        what = f"a {role} message stands near the end only, and is taken away on the next turn"
        key: tuple[str, ...] = ("PFX404", role)
        return Hit("PFX404", "moves", rank, where, key, what, _head_line(message), "", same=True, tail=1)
    what = f"a {role} message was taken out of the history"
    key = ("PFX401", "removed", role)
    return Hit("PFX401", "removed", rank, where, key, what, _head_line(message), "", same=True, tail=1)


def later_path(later: View, index: int) -> str:
    """Give the path of a message, or of the one that would follow the last."""
    if index < len(later.messages):
        return later.messages[index].path
    last = later.messages[-1].path
    stem, _, number = last.rpartition("[")
    return f"{stem}[{int(number[:-1]) + 1 + index - len(later.messages)}]"


def _edited(earlier: View, later: View, n: int) -> Compared:
    """Messages stand where they stood, and some say something else."""
    e, l = earlier.messages, later.messages  # noqa: E741
    hits, done = _swapped(earlier, later, n)
    edits = [i for i in range(n, min(len(e), len(l))) if i not in done and e[i].key != l[i].key]
    unrelated = 0
    for index in edits:
        if _alike.forks(e, l, index):
            unrelated = len(edits) if not hits else 0
            break
        found = list(_edit(earlier, later, index, index)) or list(_taken(earlier, later, index))
        if index == len(l) - 1:  # a user, or a tool, was asked again: this is no history yet
            found = [hit for hit in found if hit.code not in _OF_HISTORY]
        unrelated += not found
        hits += found
    if not hits or (unrelated and unrelated == len(edits)):
        return Compared("edited" if hits else "branch", tuple(hits))
    return Compared("edited", tuple(sorted(hits, key=lambda h: h.rank)))


def _taken(earlier: View, later: View, index: int) -> Iterator[Hit]:
    """Find a message at the end of a turn that is replaced by the answer, and comes again behind it."""
    gone, here = earlier.messages[index], later.messages[index]
    if here.said.role != "assistant" or gone.said.role not in ("system", "user"):
        return
    where = at(here.path, gone.raw, here.raw)
    hit = _removed(gone, later.messages[index + 1 :], where, (2, index, where.char))
    if hit.code != "PFX401":
        yield hit


def _edit(earlier: View, later: View, i: int, j: int) -> Iterator[Hit]:
    """Say what became of one message; nothing where the two have nothing to do with each other."""
    x, y = earlier.messages[i], later.messages[j]
    a, b = x.said, y.said
    where = at(y.path, x.raw, y.raw)
    if where.before is None and where.after is None:
        return  # only what never reaches the prompt differs
    rank = (2, j, where.char)
    hits = _told(_changes(earlier, later, i, j), where, j)
    if not hits and a == b:
        what = "the same message is written in another shape"
        code, kind = ("PFX405", "ids") if re.search(r"\.(?:\w*_)?id\Z", where.path) else ("PFX406", "shape")
        what = "an id of the message is a new one" if code == "PFX405" else what
        key = (code, kind)
        hits = [Hit(code, kind, rank, where, key, what, _shape(x.raw), _shape(y.raw), same=True, tail=1)]
    if any(is_cut(text) for said in (a, b) for text in (said.text, *(r.text for r in said.results))):
        hits = [replace(hit, sure=1) for hit in hits]
    yield from hits


def _told(changes: Iterable[_Change], where: At, number: int) -> list[Hit]:
    """Give the hits of what was changed in one message."""
    rank = (2, number, where.char)
    return [
        Hit(code, kind, rank, where, (code, kind, *key), what, before, after, same=True, tail=1, sure=sure)
        for code, kind, key, what, before, after, sure in changes
    ]


_Change = tuple[str, str, tuple[str, ...], str, str, str, int]


def _changes(earlier: View, later: View, i: int, j: int) -> Iterator[_Change]:
    a, b = earlier.messages[i].said, later.messages[j].said
    if a.role != b.role:
        if a.text and a.text.strip() == b.text.strip():
            yield "PFX401", "role", (), "the same text is sent under another role", a.role, b.role, 3
        return
    if a.reasoning != b.reasoning and (a.text == b.text or a.calls or not b.reasoning):
        verb = "is left out" if not b.reasoning else "is sent only later" if not a.reasoning else "is changed"
        yield "PFX403", "reasoning", (), f"the reasoning of an assistant message {verb}", a.reasoning, b.reasoning, 3
    yield from _calls(a.calls, b.calls)
    if [r.id for r in a.results] != [r.id for r in b.results] and len(a.results) == len(b.results):
        yield "PFX405", "ids", (), "tool results refer to new ids", _ids(a.results), _ids(b.results), 3
    if a.media != b.media and len(a.media) == len(b.media):
        one, two = next((m, k) for m, k in zip(a.media, b.media, strict=True) if m != k)
        cut = max(0, common_prefix(one, two) - 20)
        yield "PFX409", "attachment", (), "the same attachment is sent in another form", one[cut:], two[cut:], 3
    elif a.media and not b.media:
        yield "PFX401", "removed", ("attachment",), "an attachment was taken out of the history", a.media[0], "", 3
    texts = [(a.text, b.text), *((r.text, s.text) for r, s in zip(a.results, b.results, strict=False))]
    for one, two in texts:
        if one != two:
            yield from _text(earlier, later, i, one, two)
            return


def _calls(ours: Sequence[Call], theirs: Sequence[Call]) -> Iterator[_Change]:
    if repr(ours) == repr(theirs):
        return
    if ours != theirs and len(ours) == len(theirs) and sorted(map(repr, ours)) == sorted(map(repr, theirs)):
        yield "PFX408", "order", (), "parallel tool calls stand in another order", _names(ours), _names(theirs), 3
        return
    if len(ours) != len(theirs):
        yield "PFX401", "calls", (), "tool calls of an assistant message were changed", _names(ours), _names(theirs), 3
        return
    for one, two in zip(ours, theirs, strict=True):
        if one.name != two.name:
            yield "PFX401", "calls", (), "tool calls of an assistant message were changed", one.name, two.name, 3
            return
        if one.arguments == two.arguments and dumps(one.arguments) == dumps(two.arguments):
            continue
        before, after = _written(one.arguments), _written(two.arguments)
        if _decoded(one.arguments) == _decoded(two.arguments):
            what = "arguments that the model wrote are written in another way"
            yield "PFX303", "json", (), what, before, after, 3
        else:
            yield "PFX401", "calls", (), "arguments of an earlier tool call were changed", before, after, 3
        break
    if [c.id for c in ours] != [c.id for c in theirs]:
        yield "PFX405", "ids", (), "tool calls get new ids when the history is built", _ids(ours), _ids(theirs), 3


def _ids(items: Sequence[Any]) -> str:
    return ", ".join(item.id or "(none)" for item in items)


def _names(calls: Sequence[Call]) -> str:
    return ", ".join(f"{call.name}({_written(call.arguments)[:30]})" for call in calls)


def _written(value: Any) -> str:
    return value if isinstance(value, str) else dumps(value).decode("utf-8", "replace")


def _decoded(value: Any) -> Any:
    if isinstance(value, str):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value.strip()
    return value


def _text(earlier: View, later: View, i: int, one: str, two: str) -> Iterator[_Change]:
    """Say how the text of a message was changed."""
    role = earlier.messages[i].said.role
    if one.split() == two.split():
        yield "PFX406", "space", (), "the same text is sent with other white space", one[-60:], two[-60:], 3
        return
    if _decoded(one) == _decoded(two):
        code = "PFX303" if role == "assistant" else "PFX302"
        yield code, "json", (), "the same JSON is written in another way", one, two, 3
        return
    block = _block_gone(one, two) if two.strip() else one
    if block is not None and role == "assistant" and _THINK.search(block):
        yield "PFX403", "reasoning", (), "the reasoning in an assistant message is left out", block, "", 3
        return
    thought = _THOUGHT.search(one) if role == "assistant" and two.strip() and not _THINK.search(two) else None
    if thought is not None:
        yield "PFX403", "reasoning", (), "the reasoning in an assistant message is left out", thought[0], "", 3
        yield from _text(earlier, later, i, one[: thought.start()] + one[thought.end() :], two)
        return
    words = " ".join(one.split()), " ".join(two.split())
    if block is None and words != (one, two) and two.strip() and _block_gone(*words) is not None:
        yield "PFX406", "space", (), "the same text is sent with other white space", one[-60:], two[-60:], 3
        yield from _text(earlier, later, i, *words)
        return
    if block is not None and two.strip() and role in ("user", "system", "tool"):
        found = _block_moved(earlier, later, i, block)
        if found is not None:
            yield found
            return
    places = _spans.places(one, two)
    if places and all(p.kind == "age" for p in places):
        yield "PFX103", "age", (), "an age in the history is counted anew", places[0].before, places[0].after, 3
        return
    again = bool(places) and any(
        m.said.role == role and places[0].after in m.said.text for m in later.messages[i + 1 :]
    )
    if i == 0 and role == "user" and places and places[0].kind in _OPENING and not again:
        code = _OPENING[places[0].kind]
        what = "a value in the first message is another one on each turn"
        yield code, places[0].kind, ("first",), what, places[0].before, places[0].after, 2
        return
    if places and places[0].kind == "json" and len(places) == 1:
        yield "PFX302", "json", (), "the same JSON is written in another way", places[0].before, places[0].after, 3
        return
    yield from _mutated(earlier, later, i, (one, two), places)


_OPENING = {
    "clock": "PFX101",
    "date": "PFX102",
    "random": "PFX104",
    "environment": "PFX106",
    "counter": "PFX107",
    "address": "PFX109",
    "header": "PFX110",
}


def _mutated(
    earlier: View, later: View, i: int, texts: tuple[str, str], places: Sequence[_values.Place]
) -> Iterator[_Change]:
    one, two = texts
    role = earlier.messages[i].said.role
    before, after = (places[0].before, places[0].after) if places else (one, two)
    more = two[common_prefix(one, two) :]  # what is short may be longer with the mark
    marked = 0 < len(more) < len(two) and len(more) <= _MARK and _CLEARED.search(more) is not None
    if marked or (len(two) < len(one) and (_CLEARED.search(two) or one.startswith(two) or role == "tool")):
        verb = "cleared" if len(two) < 120 else "cut short"
        yield "PFX401", "cleared", (role,), f"a {role} message of the history was {verb}", one, two, 3
        return
    front, size = common_prefix(one, two), min(len(one), len(two))
    close = (front + min(common_prefix(one[::-1], two[::-1]), size - front)) * 2 >= size
    rest = any(x.key == y.key for x, y in zip(earlier.messages[i + 1 :], later.messages[i + 1 :], strict=False))
    if not close and not rest and role != "tool":
        return  # another message altogether: a branch
    if places and places[0].kind == "clock" and close:
        yield "PFX401", "stamped", (role,), f"a {role} message of the history got a new time stamp", before, after, 3
        return
    yield "PFX401", "edited", (role,), f"a {role} message of the history was edited", before, after, 3 if rest else 2


def _block_gone(one: str, two: str) -> str | None:
    """Give what one contiguous cut took out of a text; None where more was changed, or nothing is left."""
    if len(two) >= len(one) or not two.strip():
        return None
    front = common_prefix(one, two)
    back = min(common_prefix(one[::-1], two[::-1]), len(two) - front)
    slack = len(two) - front - back
    if slack > 0:
        return _block_gone_trimmed(one, two)
    gone = one[front : len(one) - back]
    return gone if len(gone.strip()) >= 3 else None


def _block_gone_trimmed(one: str, two: str) -> str | None:
    kept = two.strip()
    if one.rstrip().endswith(kept):
        return one.rstrip()[: -len(kept)]
    if one.lstrip().startswith(kept):
        return one.lstrip()[len(kept) :]
    return None


def _block_moved(earlier: View, later: View, i: int, block: str) -> _Change | None:
    """Tell whether a block that is gone from a message stands in a newer one, as it was or with other values."""
    text = block.strip()
    tag = re.match(r"\s*<([\w-]+)", block)
    key = (tag[1],) if tag else ()
    newest = [m.said for m in later.messages[len(earlier.messages) :] if m.said.role != "assistant"]
    texts = [part for said in newest for part in (said.text, *(result.text for result in said.results))]
    if any(text in other for other in texts) and not (tag and _EPHEMERAL & set(re.split(r"[_-]", tag[1].lower()))):
        what = "a block that never changes is moved to the newest message on each turn"
        return "PFX203", "moves", key, what, text, "", 3
    last_user = max((k for k, m in enumerate(earlier.messages) if m.said.role == "user"), default=-1)
    if i != last_user and not any(_akin_block(text, other) for other in texts):
        return None
    what = "a block stands on the newest message only, and is gone from it on the next turn"
    return "PFX404", "moves", key, what, text, "", 3


_EPHEMERAL = frozenset(["reminder", "environment", "env", "status", "state"])
"""Words of tags whose text is made for one turn, though it may be the same as last time."""


def _akin_block(block: str, text: str) -> bool:
    opening = block.split("\n", 1)[0][:12]
    return len(opening) >= 4 and opening in text


def _head_line(message: Message) -> str:
    said = message.said
    text = said.text or said.reasoning or (said.results[0].text if said.results else "") or _names(said.calls)
    return f"{said.role}: {' '.join(text[:200].split())}"


def _shape(raw: Any) -> str:
    if isinstance(raw, dict):
        content = raw.get("content", raw.get("parts"))
        return short(content) if isinstance(content, str) else dumps(content).decode("utf-8", "replace")
    return short(raw)
