"""Hits whose cause has its name from other requests.

A line that some have and others have not does not show what in it changes, and a stamp on the first message may be one
of those that all messages get.
"""

from __future__ import annotations

import re

from prefixlint.logrules._hits import Hit
from prefixlint.logrules._view import View

_LABEL = 12  # characters with which a line or a passage begins, by which it is known
_LINE = 24  # characters, at most, of the first line of a block that tells it
_LEAST = 5  # characters, at least, that a label has
_NAMED = re.compile(r"[^\n:=]{4,24}[:=]")
_BEFORE, _BEHIND = 200, 24  # characters around a place in which the beginning of its passage is looked for
_COMES = frozenset({"appended", "retrieval", "text"})
_PASSAGES = frozenset({"json", "order", "retrieval", "text"})
"""Kinds of value that may stand some lines behind the beginning of their passage."""
_WORDS = frozenset({"counter", "environment", "identity"})
"""Kinds of value that words of a passage may look like."""
Label = str | tuple[str, ...]
"""What a cause is known by: a text that stands around its place, or its key."""

_STAMPS = ("PFX401", "stamped", "user")
OFTEN = 8  # times as many requests show what changes, where what stayed the same did so by chance


def label(hit: Hit, view: View) -> Label | None:
    """Give what the cause of a hit is known by where other requests name it; None where the hit tells its name.

    It is the beginning of a line or passage that only one of two texts has, or what stands before it in its line.
    """
    if hit.key == ("PFX101", "clock", "first"):
        return _STAMPS
    if hit.code == "PFX203":
        return ("PFX404", *hit.key[1:])
    if hit.rank[0] != 1 or hit.kind not in _COMES or not (hit.same or comes(hit)):
        return None
    before, after = hit.before.strip(), hit.after.strip()
    value = max(hit.before, hit.after, key=len)
    own = "\n" in value[: len(value) - len(value.lstrip())]  # it begins a line of its own
    line = "" if own else around(hit, view)[: min(hit.at.char, _BEFORE)].rpartition("\n")[2]
    more = _more(before, after)
    if more is not None:
        found = more if line and more.startswith(line) else line + more  # what follows may begin alike
    elif line:  # both have something, which may be no more than a value in a line
        return line[-_LABEL:] if len(line) >= _LEAST else None
    else:
        found = max(before, after, key=len)
        if _NAMED.match(found) is None:
            return None
    return _block(found) or _begins(found)


def within(hit: Hit, text: str) -> Label | None:
    """Give what a passage is known by in which a value stands that may be no value of its own."""
    if hit.rank[0] != 1 or hit.kind not in _WORDS or not (hit.before and hit.after):
        return None
    return _begins(text[: min(hit.at.char, _BEFORE)].rpartition("\n")[2])


def _block(text: str) -> str | None:
    """Give the first line of some, with its end, where that may tell them: what changes may stand in any of them."""
    first, _, rest = text.partition("\n")
    telling = _LEAST <= len(first) <= _LINE and not any(sign.isdigit() for sign in first)
    return f"{first}\n" if telling and rest.strip() else None


def _begins(text: str) -> str | None:
    named = _NAMED.match(text)
    found = named[0] if named else text[:_LABEL]
    return found if len(found) >= _LEAST else None


def comes(hit: Hit) -> bool:
    """Tell whether only one of two siblings has a text: others have to show that it is a cause."""
    return not hit.same and hit.kind == "text" and not (hit.before and hit.after)


def _more(before: str, after: str) -> str | None:
    """Give what only one of two texts has, where that is all that differs; with its beginning, at least."""
    less, more = sorted((before, after), key=len)
    if more.endswith(less):
        return more[: len(more) - len(less)]
    return more[len(less) :].strip() if more.startswith(less) else None


def around(hit: Hit, view: View) -> str:
    """Give the text around a value of the system text, up to where it begins or a little further."""
    if hit.rank[0] != 1:
        return ""
    text = next((unit.text for unit in view.head if unit.path == hit.at.path), "")
    return text[max(0, hit.at.char - _BEFORE) : hit.at.char + _BEHIND]


def least(told: Label) -> int:
    """Give how many times as many requests as show what a label was given to have to show the cause that it names."""
    return OFTEN if told[0] == "PFX404" else 0


def names(hit: Hit, text: str, told: Label) -> bool:
    """Tell whether a cause is the one that is known by a label. `text` is what stands around its place."""
    if not isinstance(told, str):
        return hit.key == told
    at = text.find(told)
    if hit.rank[0] == 1 and hit.kind == "order" and told in hit.before:
        return True  # the first of the things that stand in another order each time
    if hit.rank[0] != 1 or at < 0:
        return False
    place = min(hit.at.char, _BEFORE)
    _, *lines = text[at : max(at, place) + 1].split("\n")
    if hit.kind not in _PASSAGES:
        return not lines or (told[-1] == "\n" and all(line.strip() for line in lines[:-1]))
    return hit.kind == "json" or all(line[:1] == lines[-1][:1] != "" for line in lines)
