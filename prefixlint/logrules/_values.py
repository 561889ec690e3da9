"""Where two texts differ, and what kind of value differs there.

Kinds (a clock, an id, a counter, a name …) are told by form first, since a time of day looks like one, and by the words
before the value where the form says nothing (`Customer 1182`). A kind holds only where both texts have it at one place.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from prefixlint.bodies import common_prefix
from prefixlint.logrules._meeting import REACH, meeting, put_ahead
from prefixlint.logrules._orders import same_items, same_lines, shuffled, word_start
from prefixlint.logrules._pieces import piece
from prefixlint.logrules._prose import LABELLED, is_no_name, is_told

_BACK = 100  # characters before a difference in which its value may begin
_AHEAD = 160  # characters behind it in which the value must end
_JSON_STARTS = 40
_JSON_BACK = 4_000  # characters before a difference in which JSON may begin that holds it
_NAMED = 80  # characters of a name with an address
_HEADER_VALUE = 64  # characters of a value in a line of client metadata
_WHOSE = 8  # words before a name in which it says whose it is: `the company that you work for is`
_IS = (["is"], ["are"], ["named"], ["called"])
_TELLING = frozenset(["address", "clock", "email", "uuid"])
_LEAST = 12  # characters of a line that is no other one
_ALONE = 200  # characters of a line that only one of two texts has, in which a value is looked for
_LISTED = 60  # lines of a list of files

_FILE = re.compile(r"(?:\S{1,10} +){0,2}(?:[\w.@+~-]*[/\\])*[\w@+-]*\.[\w.-]+(?: +\S{1,10}){0,2}")
_STOPS = (".", "!", "?")


@dataclass(frozen=True, slots=True)
class Place:
    """One difference of two texts: kind, where it begins, the two values, each a `Piece` of its text.

    `char` is the first differing character in the later text, `lead` what stands before the value in its line. `tail`
    counts equal characters behind the value, up to the next difference or the end.
    """

    kind: str
    char: int
    before: str
    after: str
    lead: str
    tail: int = 0


_YEAR = r"(?:19|20)\d\d"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
_WEEKDAY = r"(?:Mon|Tues?|Wed(?:nes)?|Thu(?:rs)?|Fri|Sat(?:ur)?|Sun)(?:day)?"
_DATE = (
    rf"(?:(?:{_WEEKDAY},?\s+)?(?:{_YEAR}[-/.年년]\s?\d{{1,2}}[-/.月월]\s?\d{{1,2}}[日일]?|\d{{1,2}}[-/.]\d{{1,2}}[-/.]{_YEAR}"
    rf"|\d{{1,2}}(?:st|nd|rd|th)?\.?\s+(?:of\s+)?{_MONTH}\.?,?\s+{_YEAR}"
    rf"|{_MONTH}\.?\s+\d{{1,2}}(?:st|nd|rd|th)?(?:,?\s+{_YEAR})?|{_YEAR}\d{{4}}(?=T|\b))|\b{_WEEKDAY}\b)"
)
_TIME = (
    r"(?:[01]?\d|2[0-3])[:h.](?:[0-5]\d)(?:[:.][0-5]\d(?:[.,]\d{1,9})?)?(?:[^\S\n]?[AaPp]\.?[Mm]\b\.?)?"
    # a zone, and not what stands behind
    r"(?:[^\S\n]?(?:Z\b|\((?:UTC|GMT)[+-]\d\d?(?::?\d\d)?\)|(?:UTC|GMT)(?:[+-]\d\d?(?::?\d\d)?)?"
    r"|(?:[A-Z]{1,3}T|MSK|WIB)\b|[+-]\d\d:?\d\d))?"
)
_COLON_TIME = _TIME.replace("[:h.](", ":(", 1)
_UNIT = r"(?:s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|wks?|weeks?|months?|years?)"
# What is taken whole (`++`) could not match shorter either: long runs of digits are read once and not once a digit.
_AMOUNT = rf"(?:\d++(?:[.,]\d++)?\s?{_UNIT}\b[\s,]*(?:and\s+)?)+|(?:a|an|one|a few|several)\s+{_UNIT}\s"

_EMAIL = re.compile(r"[A-Za-z0-9._%+-]{1,64}+@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,8}")

_HOURS = ("h0", "h1", "h2", "h3", "h4", "h5", " h ", "\xa0h\xa0", "uhr")  # as French and German write times

# The order matters: the first kind that both texts have at the difference is taken. Each form has signs one of which
# its values hold, in lower case: where the text has none of them, it is not searched.
_FORMS: tuple[tuple[str, tuple[str, ...], re.Pattern[str]], ...] = (
    ("address", ("0x",), re.compile(r"\b0x[0-9a-fA-F]{6,16}\b")),
    (
        "age",
        ("now", "ago", "yesterday", "old", "earlier", "since", "idle"),
        re.compile(
            rf"(?:just now|moments? ago|yesterday|(?:{_AMOUNT})\s*(?:ago|old|earlier|since|idle)\b)", re.IGNORECASE
        ),
    ),
    (
        "age",
        ("age", "uptime", "elapsed", "idle", "updated", "modified", "seen", "active", "last", "since", "running"),
        re.compile(
            rf"(?:age|uptime|elapsed|idle|updated|modified|seen|active|last \w+|since|running)\b[\w ]{{0,12}}[:=(]?\s*"
            rf"(?:{_AMOUNT}|\d++(?:\.\d++)?\s?{_UNIT}\b)",
            re.IGNORECASE,
        ),
    ),
    ("clock", (":", ".", "h"), re.compile(rf"{_DATE}[T ,;_|-]{{1,3}}(?:at\s+|um\s+)?{_TIME}")),
    ("clock", ("datetime(",), re.compile(r"\bdatetime\((?:\d{1,6},\s){3,6}\d{1,6}\b")),
    ("clock", _HOURS, re.compile(r"(?<![\d.])(?:[01]?\d|2[0-3])(?:(?:([ \xa0]?)h\1| h)[0-5]\d|\.[0-5]\d ?Uhr)\b")),
    ("clock", ("19", "20"), re.compile(rf"{_YEAR}-?\d\d-?\d\dT?\d{{6}}Z?")),
    ("clock", (":",), re.compile(rf"(?<![\d:.]){_COLON_TIME}(?:,?[^\S\n]+(?:on\s+)?{_DATE})?(?![\d:])")),
    ("clock", ("1",), re.compile(r"(?<![\w.])1[5-9]\d{8}(?:\d{3}|\d{6}|\d{9}|\.\d{1,9})?(?!\w|\.\d)")),
    ("date", (), re.compile(_DATE)),
    ("email", ("@",), _EMAIL),
    ("uuid", ("-",), re.compile(r"\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b")),
    ("url", ("://",), re.compile(r"\bhttps?://[^\s\"'<>)\]]+")),
    (
        "path",
        ("/", "\\"),
        re.compile(
            r"(?:~|\.{1,2}|[A-Za-z]:)?(?:[\\/][\w.@+-]++){2,}[\\/]?|\b[\w.-]++(?:/[\w.-]++){2,}"
            r"|\b[\w.-]++/[\w-]++\.[a-z]\w{0,4}\b"
        ),
    ),
    ("ratio", ("%", "/", "of"), re.compile(r"\d[\d.,_]*+\s?%|\d[\d.,_]*+\s*(?:/|of|out of)\s*\d[\d.,_]*")),
    ("ip", (".",), re.compile(r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?(?![\d.])")),
    ("version", (".",), re.compile(r"\bv?\d+\.\d+\.\d+[\w.+-]*")),
    ("token", (), re.compile(r"(?<![A-Za-z0-9])(?=[A-Za-z_-]*\d)(?=[\d_-]*[A-Za-z])[A-Za-z0-9]+(?:[_-][A-Za-z0-9]+)*")),
    ("mixed", (), re.compile(r"\b(?=[A-Z\d]*[a-z])(?=[a-z\d]*[A-Z])[A-Za-z\d]{6,64}\b")),
    ("hex", (), re.compile(r"(?<![A-Za-z0-9])[0-9a-f]{4,}(?![A-Za-z0-9])")),
    ("number", (), re.compile(r"[-+]?[$€£]?\d++(?:[,_]\d++)*(?:\.\d++)?(?: ?[kKMG]?i?B\b| ?[kKMG]\b)?")),
)

_HEADER = re.compile(
    r"^\s*(?:<!--\s*|\[|#\s*|//\s*)?[A-Za-z]\w*(?:-\w+)+\s*[:=]\s*[\w-]{1,40}\s*=|"
    r"\b(?:sum|checksum|chksum|crc|cch|digest|sig|signature|hash|etag|seq)\s*[=:]\s*[\"']?[0-9a-fA-F]*\Z"
)
_PAIR = r"(?:[\w.-]+\s*=\s*(?:[^;,=\s]+(?:\s*[;,]\s*|\s+|\Z)|[;,]\s*|\Z))"
_HEADED = r"\s*(?:<!--\s*)?[A-Za-z]\w*(?:-\w+)+\s*:\s*"
_PSEUDO = re.compile(rf"{_HEADED}{_PAIR}+")
_CHECKSUM = re.compile(
    rf"{_HEADED}{_PAIR}*?(?:sum|checksum|crc|cch|digest|sig|hash|seq|nonce|trace)\s*=\s*(?P<value>[0-9a-fA-F]{{4,}})\b[^\n]*"
)
_HEX = re.compile(r"[0-9a-f]{4,}")
_PATH = re.compile(r"[^\s=:]*/[^\s=]*")  # names in a path or branch say nothing of a value behind them
_WORDS = re.compile(r"[A-Za-z][a-z]*|[A-Z]+(?![a-z])")


def _any_of(words: str) -> frozenset[str]:
    return frozenset(words.split())


_IDENTITY = _any_of(
    "customer user username tenant account member employee client company organisation organization org team name "
    "email mail session conversation chat thread patient student owner author person subscriber guest visitor caller "
    "workspace contact phone login nick persona buyer seller driver resident"
)
_RANDOM = _any_of(
    "request req trace run nonce correlation span invocation uuid guid rid tag fence boundary delimiter id"
)
_ENVIRONMENT = _any_of(
    "cwd dir directory folder path host hostname branch commit head git status repo repository build version os "
    "platform kernel tmp temp scratch workdir pid process port node pod machine uname shell file files tab cursor "
    "selection open opened modified untracked changes staged clipboard weather battery disk memory cpu load device "
    "terminal venv revision sha"
)
_COUNTER = _any_of(
    "step turn iteration round attempt budget left remaining used tokens token count total unread usage context "
    "progress percent messages items pending queue quota credits balance score level retries calls page number"
)
_RETRIEVAL = _any_of(
    "facts fact memory memories context retrieved search results result sources source documents document docs "
    "passages passage snippets snippet knowledge relevant notes recall background evidence references chunks articles "
    "related hints history summary"
)
_CLOCK = _any_of("now time timestamp clock epoch unix ts datetime")
_DAY = _any_of("date today day weekday")


def classify(earlier: str, i: int, later: str, j: int) -> tuple[Place, int, int]:
    """Say what differs at character `i` of the earlier and `j` of the later text, and where the values end."""
    embedded = _same_json(earlier, i, later, j)
    if embedded is not None:
        kind, start, end_a, end_b = embedded
        lead = _lead(later, j - (i - start))
        before, after = piece(earlier, start, end_a), piece(later, j - (i - start), end_b)
        return Place(kind, j, before, after, lead), end_a, end_b
    listed = same_lines(earlier, i, later, j)
    if listed is not None:
        start, end = listed
        shift = j - i
        lead = _lead(later, start + shift)
        before, after = piece(earlier, start, end), piece(later, start + shift, end + shift)
        return Place("order", j, before, after, lead), end, end + shift
    items = same_items(earlier, i, later, j)
    if items is not None:
        start, end_a, end_b = items
        lead = _lead(later, start + j - i)
        before, after = piece(earlier, start, end_a), piece(later, start + j - i, end_b)
        return Place("order", j, before, after, lead), end_a, end_b
    added = _added_line(earlier, i, later, j)
    if added is not None:
        return added
    ours, theirs = _Around(earlier, i), _Around(later, j)
    for kind, signs, form in _FORMS:
        a = ours.covering(form, signs)
        b = theirs.covering(form, signs) if a is not None else None
        if a is None or b is None or i - a[0] != j - b[0]:
            continue
        if earlier[a[0] : a[1]] == later[b[0] : b[1]]:
            continue
        before, after = piece(earlier, *a), piece(later, *b)
        told = _told(kind, before, after, ends=(earlier[a[1] :][:30], later[b[1] :][:30]), line=(later, b[0]))
        if told is not None:
            return Place(told, j, before, after, _lead(later, b[0])), a[1], b[1]
    return _free_text(earlier, i, later, j)


class _Around:
    """The text around a difference at a character, in which its value stands."""

    def __init__(self, text: str, at: int) -> None:
        self._begin = max(0, at - _BACK)
        self._window = text[self._begin : at + _AHEAD]
        self._lower = self._window.lower()
        self._at = at - self._begin

    def covering(self, form: re.Pattern[str], signs: tuple[str, ...]) -> tuple[int, int] | None:
        """Give where the value of a form begins and ends that holds the difference, in the whole text."""
        if signs and not any(sign in self._lower for sign in signs):
            return None
        for found in form.finditer(self._window):
            start, end = found.span()
            if start > self._at:
                return None
            if end >= self._at and end > start:
                return start + self._begin, end + self._begin
        return None


def _told(kind: str, before: str, after: str, *, ends: tuple[str, str], line: tuple[str, int]) -> str | None:
    """Refine a form by what stands around it: `ends` stand behind both values, `line` says where the later begins."""
    later, start = line
    ahead = _line_before(later, start)
    if kind in ("token", "hex", "number", "uuid", "version", "ip") and _is_header(later, ahead, start):
        return "header"
    words = [word.lower() for word in _WORDS.findall(_PATH.sub(" ", ahead))][-5:]
    near = set(words)
    behind = {word.lower() for word in _WORDS.findall(ends[1][:24].split("\n", 1)[0])[:2]}
    if kind == "date":
        return "clock" if all(re.match(rf".{{0,20}}?{_COLON_TIME}", end) for end in ends) else "date"
    if kind == "clock":
        return "age" if near & {"uptime", "elapsed"} else "clock"
    if kind in ("email", "ip"):
        return "identity" if kind == "email" or near & _IDENTITY else "environment"
    if kind == "url":
        return "identity" if near & _IDENTITY else "random" if _differs_by_id(before, after) else "environment"
    if kind == "path":
        return "environment"
    if kind == "ratio":
        return "counter"
    if kind == "version":
        return "environment"
    if kind == "uuid":
        return "identity" if _nearest(words, _IDENTITY, _RANDOM) == 0 else "random"
    if kind in ("token", "hex", "mixed"):
        return _told_token(before, after, words)
    if kind == "number":
        return _told_number(words, behind, day=_is_day(before) and _is_day(after))
    return kind


_COUNTS = 3  # a `token` is a number of them, or a value that was drawn


def _told_token(before: str, after: str, words: list[str]) -> str | None:
    nearest = _nearest(words, _IDENTITY, _RANDOM, _ENVIRONMENT, _COUNTER)
    drawn, mixed = (_random(before), _random(after)), (_is_mixed(before), _is_mixed(after))
    # of signs drawn from all letters and digits, some values have no digit
    if len(before) == len(after) and any(mixed) and (any(drawn) or all(mixed)) and nearest in (None, _COUNTS):
        return "random"
    if nearest is not None:
        return ("identity", "random", "environment", "counter")[nearest]
    if min(len(before), len(after)) < 4:
        return None
    if all(drawn) or (any(drawn) and _HEX.fullmatch(before) and _HEX.fullmatch(after)):
        return "random"
    return None


def _is_day(value: str) -> bool:
    """Tell whether a number may be a day: of a month, of a year written together, or a count of days."""
    return value.isdigit() and (len(value) <= 2 or len(value) in (5, 6, 8))


def _told_number(words: list[str], behind: set[str], *, day: bool) -> str:
    """Say what a number is by the words around it; `day` says that it may be one."""
    near = set(words)
    if near & _CLOCK:
        return "clock"
    if near & _DAY and day and not near & _COUNTER:
        return "date"
    nearest = _nearest(words, _IDENTITY, _COUNTER, _ENVIRONMENT, _any_of("request req trace nonce correlation"))
    if behind & _COUNTER or nearest == 1:
        return "counter"
    return ("identity", "counter", "environment", "random")[nearest] if nearest is not None else "counter"


def _random(token: str) -> bool:
    """Tell whether a token looks drawn and not written: digits and letters in turn, or hexadecimal with a digit."""
    if not any(sign.isdigit() for sign in token):
        return False
    turns = len(re.findall(r"\d+|[A-Za-z]+", token))
    return turns >= 3 or len(token) >= 12 or _HEX.fullmatch(token) is not None


def _is_mixed(token: str) -> bool:
    """Tell whether capitals stand in a token as no words written together have them."""
    return re.search(r"[A-Z]{2}[a-z]|[a-z][A-Z](?![a-z]{2})", token) is not None


def _differs_by_id(before: str, after: str) -> bool:
    same = common_prefix(before, after)
    return len(before) - same <= 64 and any(sign.isdigit() for sign in after[same:] + before[same:])


_NAMELESS = frozenset({"id", "number", "code"})
"""Words that say that a value follows, but not of what: the word before them does."""


def _nearest(words: list[str], *sets: frozenset[str]) -> int | None:
    """Give which set the last telling word belongs to; words of a name split by underscores count each."""
    for word in reversed(words):
        for number, known in enumerate(sets):
            if word in known or (word.endswith("s") and word[:-1] in known):
                if word in _NAMELESS and number > 0 and _nearest(words[: words.index(word)], sets[0]) == 0:
                    return 0
                return number
    return None


def _is_header(text: str, line: str, at: int) -> bool:
    """Tell whether a value stands in a line like `x-relay-meta: ver=3; sum=0a4f1` near the beginning of the text."""
    if at > 2000:
        return False
    return _PSEUDO.match(line) is not None or (
        _HEADER.search(line) is not None and ("-" in line or ";" in line or "=" in line) and text.count("\n", 0, at) < 4
    )


def pseudo_header(text: str) -> re.Match[str] | None:
    """Find a line of client metadata with a checksum or serial at the beginning of a text."""
    return _CHECKSUM.match(text)


def _line_before(text: str, at: int) -> str:
    start = text.rfind("\n", max(0, at - 200), at) + 1
    return text[max(start, at - 120) : at]


def _lead(text: str, at: int) -> str:
    line = _line_before(text, at)
    if not line.strip():
        previous = text[max(0, at - 120) : at].rstrip()
        line = previous[previous.rfind("\n") + 1 :]
    return line[-40:]


def _same_json(earlier: str, i: int, later: str, j: int) -> tuple[str, int, int, int] | None:
    """Find JSON around a difference that means the same in both texts: ("json", start, end, end)."""
    back = common_prefix(earlier[max(0, i - _JSON_BACK) : i][::-1], later[max(0, j - _JSON_BACK) : j][::-1])
    window = earlier[i - back : i + 1]
    if "{" not in window and "[" not in window:
        return None
    starts = [m.start() for m in re.finditer(r"[{\[]", window)]
    decoder = json.JSONDecoder()
    for offset in starts[:_JSON_STARTS]:
        start = i - back + offset
        try:
            one, end_a = decoder.raw_decode(earlier, start)
            two, end_b = decoder.raw_decode(later, start + j - i)
        except (ValueError, RecursionError):
            continue
        if end_a >= i and end_b >= j and one and one == two:
            return "json", start, end_a, end_b
    return None


def _added_line(earlier: str, i: int, later: str, j: int) -> tuple[Place, int, int] | None:
    """Find a line that only one text has and that begins as the next one does, which both have: (place, ends)."""
    back = i - (earlier.rfind("\n", 0, i) + 1)
    if not back or back > _ALONE or earlier[i - back : i] != later[j - back : j]:
        return None
    a, b = ((*text[at - back : at + REACH].split("\n", 2), "")[:2] for text, at in ((earlier, i), (later, j)))
    whole_a, whole_b = len(a[0]) >= _LEAST and a[0] == b[1], len(b[0]) >= _LEAST and b[0] == a[1]
    if a[0] == b[0] or whole_a == whole_b:
        return None
    text, start, line = (later, j - back, b[0]) if whole_a else (earlier, i - back, a[0])
    kind, lead = _alone(text, start, line) or (running_text(text, start), _lead(text, start))
    value = piece(text, start, start + len(line) + 1)
    before, after = ("", value) if whole_a else (value, "")
    end_a, end_b = (i - back, j - back + len(value)) if whole_a else (i - back + len(value), j - back)
    return Place(kind, j, before, after, lead), end_a, end_b


def _free_text(earlier: str, i: int, later: str, j: int) -> tuple[Place, int, int]:
    """Find where two texts meet again, and say from the words before whether what stands between has a name."""
    between = not earlier[i : i + 1].strip() and not later[j : j + 1].strip()  # words, or at the end of a text
    start = j if between else word_start(later, j)
    back = j - start
    end_a, end_b = meeting(earlier, i, later, j)
    begun = later[end_b - 1 : end_b].isalnum() or earlier[end_a - 1 : end_a].isalnum()
    most = j + _AHEAD if begun else end_b
    while later[end_b : end_b + 1].isalnum() and end_b < most and earlier[end_a : end_a + 1] == later[end_b]:
        end_a, end_b = end_a + 1, end_b + 1
    whole_lines = earlier[i - back - 1 : i - back] in ("", "\n")
    only = put_ahead(earlier[i - back : end_a], later[start:end_b]) if whole_lines else 0
    end_a, end_b = end_a - only, end_b - only
    before, after = piece(earlier, i - back, end_a), piece(later, start, end_b)
    if not before or not after:
        alone = _alone(earlier, i - back, before) if before else _alone(later, start, after)
        if alone is not None:
            return Place(alone[0], j, before, after, alone[1]), end_a, end_b
        if is_listing(before or after):
            return Place("environment", j, before, after, _lead(later, start)), end_a, end_b
        heading = (before or after).strip().partition("\n")
        if heading[2] and _RETRIEVAL.intersection(word.lower() for word in _WORDS.findall(heading[0])):
            return Place("retrieval", j, before, after, _lead(later, start)), end_a, end_b
    if "\n" not in before + after and len(after) <= _HEADER_VALUE and _is_header(later, _line_before(later, j), j):
        return Place("header", j, before, after, _lead(later, start)), end_a, end_b
    return Place(_free_kind(before, after, later, start), j, before, after, _lead(later, start)), end_a, end_b


def _alone(text: str, start: int, line: str) -> tuple[str, str] | None:
    """Say what kind of value stands in a line that only one text has, and what stands before the value."""
    if len(line.strip()) > _ALONE or "\n" in line.strip():
        return None
    lower = line.lower()
    labelled = len(line.strip()) <= LABELLED
    for kind, signs, form in _FORMS:
        if not labelled and kind not in _TELLING:
            continue
        found = form.search(line) if not signs or any(sign in lower for sign in signs) else None
        if found is None:
            continue
        begin, end, value = start + found.start(), start + found.end(), found[0]
        told = _told(kind, value, value, ends=(text[end:][:30], text[end:][:30]), line=(text, begin))
        if told == "counter" and kind != "ratio" and _is_of_line(line, found.end()):
            continue
        if told is not None:
            return told, _lead(text, begin)
    return None


def kind_of_line(line: str) -> str | None:
    """Say what kind of value a line is there for; None where it is no such line."""
    found = _alone(line, 0, line.rstrip("\n"))
    return None if found is None else found[0]


def _is_of_line(line: str, end: int) -> bool:
    """Tell whether a number that ends here may as well be that of its line, as in a list, and counts nothing."""
    return line[end : end + 1] in (":", ")") or _COUNTER.isdisjoint(map(str.lower, _WORDS.findall(line)))


def _free_kind(before: str, after: str, later: str, start: int) -> str:
    if shuffled(before, after):
        return "order"
    if _is_addressed(after, later[start : start + len(after) + _AHEAD]):
        return "identity"
    line = _line_before(later, start) or later[max(0, start - 120) : start]
    if line.endswith("\n") and line.rstrip().endswith(_STOPS):
        line = ""  # a sentence of its own says nothing of what stands behind it
    words = [word.lower() for word in _WORDS.findall(line)][-4:]
    nearest = _nearest(words, _RETRIEVAL, _IDENTITY, _ENVIRONMENT)
    if nearest == 1 and (is_no_name(before) or is_no_name(after)):
        nearest = None
    if nearest == 0 or (nearest is not None and not (is_told(before) or is_told(after))):
        return ("retrieval", "identity", "environment")[nearest]
    behind = [word.lower() for word in _WORDS.findall(later[start + len(after) : start + len(after) + 32])[:3]]
    named = after[:1].isupper() and before[:1].isupper() and max(len(before), len(after)) < 40
    whose = [word.lower() for word in _WORDS.findall(line)][-_WHOSE:]
    if nearest is None and named and whose[-1:] in _IS and _nearest(whose, _RETRIEVAL, _IDENTITY, _ENVIRONMENT) == 1:
        return "identity"
    # both may hold the word between a name and a number: "Ann Lee (customer 12"
    held = _IDENTITY.intersection(*([word.lower() for word in _WORDS.findall(value)[1:]] for value in (before, after)))
    if named and (held or _nearest(behind, _IDENTITY) == 0):
        return "identity"
    return running_text(later, start)


def is_listing(value: str) -> bool:
    """Tell whether each line of a value names a file and says little else."""
    lines = value.strip().split("\n")
    return len(lines) <= _LISTED and all(_FILE.fullmatch(line.strip()) for line in lines)


def running_text(text: str, start: int) -> str:
    """Say by the words before a passage whether it was found for the question."""
    lines = [line for line in text[max(0, start - 400) : start].split("\n") if line.strip(" -*•")]
    above = {word.lower() for line in lines[-2:] for word in _WORDS.findall(line)}
    return "retrieval" if above & _RETRIEVAL else "text"


def _is_addressed(value: str, text: str) -> bool:
    """Tell whether an email address begins in a short value, with which a text begins, as behind somebody's name."""
    if len(value) > _NAMED or "\n" in value:
        return False
    return any(found.start() < len(value) for found in _EMAIL.finditer(text))
