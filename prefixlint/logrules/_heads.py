"""What differs ahead of the messages: tools and system text. Compares turns of a conversation, and siblings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

from prefixlint import bodies
from prefixlint.logrules import _spans
from prefixlint.logrules._hits import At, Hit, at, short
from prefixlint.logrules._message import bare, bare_json, dumps, same_json
from prefixlint.logrules._values import Place, is_listing
from prefixlint.logrules._view import Unit, View

CODES = {
    "address": "PFX109",
    "header": "PFX110",
    "age": "PFX103",
    "clock": "PFX101",
    "date": "PFX102",
    "identity": "PFX105",
    "random": "PFX104",
    "environment": "PFX106",
    "counter": "PFX107",
    "json": "PFX302",
    "order": "PFX301",
    "retrieval": "PFX202",
}
WORDS = {
    "address": "a memory address",
    "header": "a line that a client or gateway adds",
    "age": "an age counted from the clock",
    "clock": "the time of day",
    "date": "the date",
    "identity": "who is asking",
    "random": "a random id",
    "environment": "the state of the machine",
    "counter": "a counter",
    "json": "the same JSON, written differently",
    "order": "the same list, in another order",
    "retrieval": "text found for the current question",
    "text": "text that changes from request to request",
    "schema": "the output schema",
}
_STRONG = frozenset({"address", "header", "age", "clock", "date", "random"})
_TELLING = _STRONG | {"identity", "counter", "json", "order"}
_MANY = 6  # differences of siblings from which on they are two texts and not one with values
_STATIC = 1_600  # characters of shared text behind a changing one that are worth to be moved ahead of it
_SHARED = 48  # characters; two texts that share so many at their ends come from one template, however long they are
_PASSAGES = 32  # of a text, of so many characters each, that are looked for in another
_ASKED = frozenset({"counter", "date", "environment", "identity", "random"})
"""Kinds of value that a user's question holds as well."""
_AUTHORED = 400  # characters shared behind such a value where an application wrote it; a question is shorter
_GROWN = 3  # characters more at the end of a text from which on it has grown
_LAST_LINE = 160  # characters of a line at the end of a system text that is there for a value
_ENDING = 80  # characters of a message that is worth to be moved ahead of others
_LITTLE = 48  # characters behind a value at the end of a long text that cost nothing worth telling
_REPEATED = 4  # characters of a value that does not come again by chance
_TOOLS = 5  # tools whose changed definitions are told apart
_FOUND = frozenset({"facts", "memories", "context", "retrieved", "sources", "documents", "passages", "knowledge"})
_DIGITS = re.compile(r"\d+")


def alike(earlier: View, later: View) -> bool:
    """Tell whether two system texts come from one template."""
    a, b = earlier.head_text, later.head_text
    if a == b or not a or not b:
        return a == b
    front = bodies.common_prefix(a, b)
    size = min(len(a), len(b))
    if front * 3 >= size or front >= _SHARED:
        return True
    back = bodies.common_prefix(a[::-1], b[::-1])
    shared = front + min(back, size - front)
    if shared * 3 >= size or shared >= _SHARED or _lines_of_both(a, b) * 3 >= size:
        return True
    passages, held = _passages_of_both(*sorted((a, b), key=len))
    return held * 3 >= max(1, passages)


def _lines_of_both(a: str, b: str) -> int:
    """Count the characters of lines that two texts share, wherever they stand: both ends may change."""
    known = set(a.split("\n"))
    return sum(len(line) for line in b.split("\n") if line in known)


def _passages_of_both(a: str, b: str) -> tuple[int, int]:
    """Count passages of a text, and those that stand in another: one line may hold a value at both its ends."""
    step = max(_SHARED, len(a) // _PASSAGES)
    passages = [a[at : at + _SHARED] for at in range(0, len(a) - _SHARED + 1, step)]
    return len(passages), sum([passage in b for passage in passages])


def tools(earlier: View, later: View, *, same: bool) -> Iterator[Hit]:
    """Compare tool definitions. A conversation's tools should stay; siblings with other tools may be other agents."""
    if earlier.tools_key == later.tools_key or not earlier.tools:
        if not earlier.tools and later.tools and same:
            yield _tool_set(earlier, later, same=True)
        return
    a, b = earlier.tool_names, later.tool_names
    if a == b:
        yield from _definitions(earlier, later, same=same)
    elif sorted(a) == sorted(b):
        where = _at_tools(earlier, later)
        what = "the same tools, in another order"
        rank = (0, _ahead(a, b), 0)
        yield Hit("PFX304", "order", rank, where, ("PFX304",), what, ", ".join(a), ", ".join(b), same, 1)
        yield from _definitions(earlier, later, same=same)
    else:
        yield _tool_set(earlier, later, same=same)
        yield from _definitions(earlier, later, same=True) if same else ()


def _ahead(a: Sequence[str], b: Sequence[str]) -> int:
    """Count the names with which two lists of tools begin alike."""
    return next((n for n, (one, two) in enumerate(zip(a, b, strict=False)) if one != two), min(len(a), len(b)))


def _at_tools(earlier: View, later: View) -> At:
    unmarked = not (earlier.marked or later.marked)
    return at(later.tools_path, list(earlier.tools), list(later.tools), unmarked=unmarked)


def _tool_set(earlier: View, later: View, *, same: bool) -> Hit:
    a, b = earlier.tool_names, later.tool_names
    gone, new = [n for n in a if n not in b], [n for n in b if n not in a]
    where = _at_tools(earlier, later) if same else At(later.tools_path, 0, None, None)
    what = " and ".join(
        f"{len(names)} {'tool was' if len(names) == 1 else 'tools were'} {verb}"
        for names, verb in ((gone, "removed"), (new, "added"))
        if names
    )
    before, after = (", ".join(n) for n in (a, b)) if not (gone or new) else (", ".join(gone), ", ".join(new))
    what = what or "tools changed"
    return Hit("PFX305", "tools", (0, _ahead(a, b), 0), where, ("PFX305",), what, before, after, same, 1)


def _definitions(earlier: View, later: View, *, same: bool) -> Iterator[Hit]:
    """Compare the definitions of tools that both have, by their names where these stand in another order."""
    found = 0
    pairs: Iterable[tuple[Any, Any]] = zip(earlier.tools, later.tools, strict=False)
    if earlier.tool_names != later.tool_names:
        known = dict(zip(earlier.tool_names, earlier.tools, strict=True))
        pairs = ((known.get(name), tool) for name, tool in zip(later.tool_names, later.tools, strict=True))
    for index, (a, b) in enumerate(pairs):
        if a is b or a is None or same_json(a, b):
            continue
        found += 1
        if found > _TOOLS:
            return
        path, name = f"{later.tools_path}[{index}]", later.tool_names[index]
        alike = same_data(bare(a), bare(b))
        again = b if alike else in_keys_of(b, a)
        if again is not a:
            yield _other_order(path, a, again, index, same=same)
        if alike:
            continue
        where = at(path, again, b)
        rank = (0, index, where.char)
        place = _in_string(where)
        what = f"the definition of the tool {name!r}" if name else "a tool's definition"
        what += f" holds {WORDS[place.kind]}" if place and place.kind in CODES else " changes"
        before, after = (place.before, place.after) if place else (short(where.before), short(where.after))
        key = ("PFX306", _general(where.path) if len(earlier.tools) < 2 else "", place.kind if place else "")
        yield Hit("PFX306", place.kind if place else "value", rank, where, key, what, before, after, same, 1)


def _other_order(path: str, a: Any, b: Any, index: int, *, same: bool) -> Hit:
    """Give the hit of a definition that is written in another order: `a` then, `b` now."""
    where = at(path, a, b)
    one, two = (bare_json(tool).decode("utf-8", "replace") for tool in (a, b))
    what = "tool definitions with the same content, written in another order"
    return Hit("PFX302", "json", (0, index, where.char), where, ("PFX302", "tools"), what, one, two, same, 1)


def in_keys_of(model: Any, value: Any) -> Any:
    """Give a value with the keys of its objects in the order of a model that has the same keys; itself if they are."""
    if isinstance(value, dict) and isinstance(model, dict):
        pairs = [(key, in_keys_of(model[key], item) if key in model else item) for key, item in value.items()]
        if value.keys() == model.keys() and list(value) != list(model):
            made = dict(pairs)
            return {key: made[key] for key in model}
        return dict(pairs) if any(new is not value[key] for key, new in pairs) else value
    if isinstance(value, list) and isinstance(model, list) and len(value) == len(model):
        items = [in_keys_of(one, item) for one, item in zip(model, value, strict=True)]
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    return value


def same_data(a: Any, b: Any) -> bool:
    """Tell whether two values hold the same data: key order, and the order of names in lists, do not count."""
    return bool(a == b) or _canonical(a) == _canonical(b)


def _canonical(value: Any) -> Any:
    if isinstance(value, dict):
        return ("{", tuple(sorted((key, _canonical(item)) for key, item in value.items())))
    if isinstance(value, list):
        items = [_canonical(item) for item in value]
        return ("[", *(sorted(items) if all(isinstance(item, str) for item in items) else items))
    return dumps(value)


def _in_string(where: At) -> Place | None:
    if isinstance(where.before, str) and isinstance(where.after, str):
        return next(iter(_spans.places(where.before, where.after)), None)
    return None


def _general(path: str) -> str:
    return _DIGITS.sub("#", path)


def system(earlier: View, later: View, *, same: bool) -> Iterator[Hit]:
    """Compare system texts: in a conversation every change counts, among siblings what stands ahead of shared text."""
    a, b = earlier.head_text, later.head_text
    if a == b:
        return
    spans = _spans.spans(a, b)
    found = [place for place, _, _ in spans]
    named = found[-1].kind in _STRONG or is_listing(found[-1].before or found[-1].after)
    grown = _grown(spans[-1], a, b) if same and not named else None
    if grown is not None:
        found.pop()
    elif same:  # a value in the last line may stand behind what has grown
        at = -1 - (found[-1].kind in _STRONG)
        grown = _put_before(spans[at], a, b) if len(spans) >= -at else None
        if grown is not None:
            del found[at]
    if not same and len(found) > _MANY:
        found = [place for place in found if place.kind in _STRONG]
    yield from _values_of(found, later, same=same)
    if grown is not None:
        yield _appended(earlier, later, *grown)


def _put_before(span: _spans.Span, a: str, b: str) -> tuple[int, int] | None:
    """Give where lines that only one of two texts has begin, in both, if a value in a last line is all behind them."""
    place, end_a, end_b = span
    begin_a, begin_b = end_a - len(place.before), end_b - len(place.after)
    lines = place.kind in ("text", "retrieval") and not (place.before and place.after)
    if not lines or a[begin_a - 1 : begin_a] != "\n" or not (is_last_line(a[end_a:]) and is_last_line(b[end_b:])):
        return None
    return begin_a, begin_b


def is_last_line(text: str) -> bool:
    """Tell whether a text is no more than a line at the end of a system text that is there for a value."""
    return len(text) <= _LAST_LINE and "\n" not in text.strip()


def _values_of(found: Sequence[Place], later: View, *, same: bool) -> Iterator[Hit]:
    """Give the values that differ, those of one kind in one line once."""
    b = later.head_text
    last: tuple[str, int] | None = None
    kinds = {(p.before, p.after): p.kind for p in reversed(found) if p.kind in CODES}
    seen: set[tuple[str, str]] = set()
    for number, one in enumerate(_joined(found)):
        values = one.before, one.after
        if any(_is_again(values, known) for known in seen):
            continue
        place = replace(one, kind=kinds[values]) if one.kind == "text" and values in kinds else one
        if not (same or later.messages) and place.kind in _ASKED and sum(p.tail for p in found[number:]) < _AUTHORED:
            continue
        marked = not same and _is_marked(later, place.char)
        behind = sum(other.tail for other in found if other.char >= place.char)
        hit = _system_hit(place, later, number, marked=marked, same=same, total=len(b), behind=behind)
        if hit is None and not (same or later.messages):
            return  # a text of one's own ends the prefix, and what stands behind it costs nothing
        if hit is None:
            continue
        if min(map(len, values)) >= _REPEATED:
            seen.add(values)
        if last is None or last[0] != hit.code or "\n" in b[last[1] : place.char]:
            yield hit  # values of one kind in one line are one cause
        last = hit.code, place.char


def _is_again(values: tuple[str, str], known: tuple[str, str]) -> bool:
    """Tell whether two values are those of an earlier place, with what both have behind them."""
    (a, b), (x, y) = values, known
    return a.startswith(x) and b.startswith(y) and a[len(x) :] == b[len(y) :]


def _joined(found: Sequence[Place]) -> Iterator[Place]:
    """Give places, free text once: one that is another one each time may share words and lines with the next."""
    free: Place | None = None
    for number, place in enumerate(found):
        if place.kind != "text" or free is None:
            free = place if place.kind in ("text", "retrieval") else free
            rest = takewhile(lambda other: other.kind == "text", found[number + 1 :] if free is place else ())
            yield replace(place, tail=max([place.tail, *(other.tail for other in rest)]))


def _grown(span: tuple[Place, int, int], a: str, b: str) -> tuple[int, int] | None:
    """Give where one of two texts goes on, in both, if their last difference is that it has more at its end."""
    place, end_a, end_b = span
    front = bodies.common_prefix(place.before, place.after)
    whole = min(len(place.before), len(place.after))
    if end_a < len(a) or end_b < len(b) or front < whole:
        return None
    begin_a, begin_b = len(a) - len(place.before) + front, len(b) - len(place.after) + front
    short, more = (a[:begin_a], b[begin_b:]) if len(a) - begin_a < len(b) - begin_b else (b[:begin_b], a[begin_a:])
    added = len(short) - len(short.rstrip()) + len(more)
    return (begin_a, begin_b) if short.strip() and added >= _GROWN else None


def _appended(earlier: View, later: View, begin_a: int, begin_b: int) -> Hit:
    before, after = earlier.head_text[begin_a:], later.head_text[begin_b:]
    if before and after:
        before, after = _without_last_line(before), _without_last_line(after)
    more, char = (after, begin_b) if len(after) > len(before) else (before, begin_a)
    words = set(re.findall(r"[a-z]+", (earlier.head_text[max(0, begin_a - 40) : begin_a] + more[:40]).lower()))
    where = _located(later if len(after) > len(before) else earlier, char, before, after)
    retrieval = bool(words & _FOUND)
    code, kind = ("PFX202", "retrieval") if retrieval else ("PFX407", "appended")
    what = "a later system text is joined to the first one"
    if retrieval:
        what = "the system text is followed by text found for the question"
    elif len(after) < len(before):
        what = "text is taken off the end of the system text"
    return Hit(code, kind, (1, char, 0), where, (code, kind), what, before, after, same=True, tail=1)


def _without_last_line(text: str) -> str:
    return text.rstrip().rpartition("\n")[0]


def _located(view: View, char: int, before: str, after: str) -> At:
    if not view.head:
        return At("messages", 0, before, after)
    unit, offset = _unit(view.head, char)
    return At(unit.path, offset, before, after)


def _unit(head: Sequence[Unit], char: int) -> tuple[Unit, int]:
    """Find the unit that holds a character of the joined text; between two units it is the beginning of the next."""
    start = 0
    for unit in head:
        if char < start + len(unit.text):
            return unit, max(0, char - start)
        start += len(unit.text) + 1
    last = head[-1]
    return last, len(last.text)


def _is_marked(view: View, char: int) -> bool:
    if not view.head:
        return False
    unit, _ = _unit(view.head, char)
    body, holder = view.body, unit.path.removesuffix(".text")
    found = re.fullmatch(r"(\w+)\[(\d+)\]", holder)
    if not found or not isinstance(body, dict):
        return False
    block = body[found[1]][int(found[2])]
    return isinstance(block, dict) and "cache_control" in block


def _system_hit(
    place: Place, later: View, number: int, *, marked: bool, same: bool, total: int, behind: int
) -> Hit | None:
    kind, sure, mild = place.kind, 3, False
    tail = place.tail + (1 if same and later.messages else 0)
    code = CODES.get(kind)
    if kind == "identity" and same and place.before and place.after:
        code, kind = "PFX104", "random"
    if code is None:
        whole = bool(place.before and place.after)
        # that some requests have it and others not does not show that it changes: other pairs have to
        comes = not (same or whole) and bool(later.messages)
        static, marked = not same and whole and behind >= _STATIC, marked and whole
        if not (same or comes or static or marked):
            return None
        # what ends a marked block may serve the turns of its conversation
        mild = marked and not static and place.tail < 1 and len(later.messages) > 1
        code, sure = "PFX201" if static else _unnamed(place, same=same, marked=marked), 2
    elif not same:
        little = tail < 1 or behind < min(_LITTLE, total // 8)
        if little and kind in ("identity", "environment", "retrieval"):
            return None
        mild = tail < 1 or kind == "environment"
        sure = 2 if kind in ("retrieval", "environment", "counter") else 3
    if bodies.in_cut_mark(later.head_text, place.char):
        sure = 1  # the log wrote it
    where = _located(later, place.char, place.before, place.after)
    key = (code, kind, _lead(place, later.head_text))
    what = f"the {'system' if later.messages else 'prompt'} text holds {WORDS.get(kind, WORDS['text'])}"
    if code == "PFX201":
        what = "text of each request stands ahead of text that all share"
    rank = (1, place.char, number)
    return Hit(code, kind, rank, where, key, what, place.before, place.after, same, min(tail, total), sure, mild)


def _lead(place: Place, text: str) -> str:
    """Give the words before a value that tell causes of one kind apart; none where they may be values themselves."""
    if place.kind in ("text", "retrieval", "environment", "order", "json"):
        return ""
    if place.kind == "header":
        return place.lead.partition(":")[0].strip()
    if place.kind == "identity":  # a line on somebody holds a name, a number, an address: one or all of them differ
        whole = not (place.before and place.after)  # a line that only one of the texts has
        line = place.lead if whole else text[text.rfind("\n", 0, place.char) + 1 : place.char]
        return line.split(None, 1)[0] if line.strip() else ""
    return " ".join(_DIGITS.sub("", place.lead).split())[-24:]


def _unnamed(place: Place, *, same: bool, marked: bool) -> str:
    if marked and not same:
        return "PFX501"
    value = place.after or place.before
    if len(value) <= 32 and "\n" not in value and place.lead.rstrip().endswith((":", "=", ">")):
        return "PFX106"
    return "PFX202"


def opening(earlier: View, later: View) -> Iterator[Hit]:
    """Compare siblings with the same system text, or without one: their first message may be a filled-in template."""
    if earlier.head_text != later.head_text or not earlier.messages or not later.messages:
        return
    led = bool(later.head)  # behind a system text, a first message is more likely a user's own
    one, two = earlier.messages[0], later.messages[0]
    a, b = one.said.text, two.said.text
    if a == b or one.said.role != two.said.role or one.key == two.key:
        return
    if led and not _passages_of_both(b, a)[1]:
        return  # most first messages are questions that have nothing in common
    found = _spans.places(a, b)
    if not found or len(found) > _MANY:
        return
    text_at = at(two.path, one.raw, two.raw)
    for number, place in enumerate(found):
        behind = sum(p.tail for p in found[number:])
        static = place.kind not in _TELLING and behind >= _STATIC
        if not static and (place.kind not in _TELLING or behind < 12 or behind * 3 < len(b)):
            continue
        if (led or place.kind in _ASKED) and behind < _AUTHORED:
            continue
        first = "first message" if led else "prompt's first text"
        what = f"the {first} holds {'text of its own' if static else WORDS[place.kind]}"
        where = At(text_at.path, place.char, place.before, place.after)
        code = "PFX201" if static else CODES[place.kind]
        rank = (2, 0, place.char)
        key = (code, place.kind, _lead(place, b))
        yield Hit(code, place.kind, rank, where, key, what, place.before, place.after, same=False, tail=behind, sure=2)


def end_alike(earlier: View, later: View) -> bool:
    """Tell whether two requests end with the same message."""
    one, two = earlier.messages[-1:], later.messages[-1:]
    return bool(one and two) and one[0].key == two[0].key


def ending(earlier: View, later: View) -> Iterator[Hit]:
    """Compare what siblings end with: a message that is the same in both could be had where both begin."""
    if len(later.messages) < 2 or len(earlier.messages) < 2 or not end_alike(earlier, later):
        return
    last = later.messages[-1]
    role, text = last.said.role, last.said.text
    if role == "assistant" or len(text) < _ENDING or earlier.messages[0].key == later.messages[0].key:
        return
    where = At(last.path, 0, None, None)
    what = f"the same {role} message is moved behind the history on each turn"
    rank, key = (2, len(later.messages) - 1, 0), ("PFX203", role)
    yield Hit("PFX203", "moves", rank, where, key, what, f"{role}: {text}", "", same=False, tail=len(text))


def side_call(earlier: View, later: View) -> Hit:
    """Describe a call that sends a history again behind another head."""
    if earlier.tools_key != later.tools_key and earlier.tools:
        where = _at_tools(earlier, later)
    else:
        a, b = earlier.head_text, later.head_text
        head = later if later.head else earlier
        where = _located(head, bodies.common_prefix(a, b), a, b) if head.head else At("messages", 0, None, None)
    what = "a call on the side sends the history again behind another head"
    before, after = (view.head_text or f"{len(view.tools)} tools" for view in (earlier, later))
    return Hit("PFX410", "side", (0, 0, 0), where, ("PFX410",), what, before, after, same=True, tail=1)
