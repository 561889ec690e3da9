"""Masks on the way in: what is secret never reaches the log, what is personal becomes a label.

A label keeps what the prefix analysis needs: equal values become equal labels within a run, different ones
different labels, and the kind stays readable: `<email:3f2a90>`, `<timestamp:90c1b2>`, `<id:ab12cd>`. So a clock in a
system prompt still breaks the prefix in the masked log, at its place. Lengths change, so counts of tokens do a little.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

SECRET = "<secret>"  # noqa: S105  (the mask, not a secret)

# Names under which people send credentials; `max_tokens`, `bos_token` and the like are none.
_SECRET_NAME = re.compile(
    r"(?:.*[-_.])?(?:api[-_]?keys?|authorization|auth|authentication|bearer|cookies?|credentials?|passw(?:or)?d|"
    r"passphrase|passcode|private[-_]?key|secrets?|secret[-_]?(?:access[-_]?)?key|access[-_]?key(?:[-_]?id)?|"
    r"(?:account|shared[-_]?access|subscription|signing|encryption|master)[-_]?key|"
    r"(?:access|auth|bearer|id|refresh|session|security|secret|api|csrf|hf|github)[-_]?token)|"
    r".*[-_.]pwd|x[-_]amz[-_].*|token|signature|sig|key",
    re.IGNORECASE,
)
# A `signature` in a body is Anthropic's seal on its thinking, `key` may name anything: secrets in URLs only.
_URL_ONLY = frozenset({"signature", "sig", "key"})
_NAME = re.compile(r"[A-Za-z][\w-]*")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

# Credentials that tell themselves by their form, wherever they stand: how they begin, and what follows.
_FORMS: tuple[tuple[str, str], ...] = (
    ("sk-", r"[A-Za-z0-9_-]{16,}"),
    *((f"gh{kind}_", r"[A-Za-z0-9]{20,}") for kind in "pousr"),
    ("github_pat_", r"[A-Za-z0-9_]{20,}"),
    ("glpat-", r"[\w-]{16,}"),
    *((begin, r"[0-9A-Z]{16}") for begin in ("AKIA", "ASIA")),
    ("AIza", r"[\w-]{35}"),
    ("ya29.", r"[\w-]{20,}"),
    ("hf_", r"[A-Za-z0-9]{20,}"),
    ("eyJ", r"[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,}"),
    # model services
    *((begin, r"[A-Za-z0-9_-]{20,}") for begin in ("gsk_", "xai-", "nvapi-", "pplx-", "tvly-", "lsv2_", "r8_", "fw_")),
    # payment, mail, chat, shops
    *((f"{kind}_{mode}_", r"[A-Za-z0-9]{16,}") for kind in ("sk", "rk") for mode in ("live", "test")),
    ("whsec_", r"[A-Za-z0-9+/=]{16,}"),
    ("SG.", r"[\w-]{16,}\.[\w-]{16,}"),
    *((begin, r"[A-Za-z0-9-]{10,}") for begin in ("xoxa-", "xoxb-", "xoxe-", "xoxp-", "xoxr-", "xoxs-", "xapp-")),
    ("hooks.slack.com/services/", r"[A-Za-z0-9/]{20,}"),
    ("discord.com/api/webhooks/", r"[\w/-]{20,}"),
    *((f"shp{kind}_", r"[0-9a-fA-F]{32}") for kind in ("at", "ca", "pa", "ss")),
    # registries, clouds, tools
    ("npm_", r"[A-Za-z0-9]{30,}"),
    ("pypi-", r"[\w-]{40,}"),
    *((f"do{kind}_v1_", r"[0-9a-f]{32,}") for kind in "por"),
    ("dapi", r"[0-9a-f]{32}"),
    *((begin, r"[\w-]{20,}") for begin in ("glsa_", "hvs.", "PMAK-", "ATATT3", "ntn_", "figd_", "sntrys_")),
)
# Expressions of many forms are made when they are first needed: most commands need none of them.


@cache
def _secret_value() -> re.Pattern[str]:
    return re.compile(
        rf"(?<![A-Za-z0-9])(?:{'|'.join(re.escape(begin) + rest for begin, rest in _FORMS)})"
        r"|\d{8,10}:AA[\w-]{33}"  # a bot's
        r"|(?<=Bearer )[\w.~+/=-]{8,}|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
        re.DOTALL,
    )


# In text that is shown, they are found behind other letters as well, as where a prompt was cut and joined; what is more
# than hexadecimal digits has to look random then.
_RANDOM = r"(?=[\w./+-]*\d)(?=[\w./+-]*[A-Z])"


@cache
def _glued() -> re.Pattern[str]:
    forms = (re.escape(begin) + ("" if "a-f" in rest else _RANDOM) + rest for begin, rest in _FORMS)
    return re.compile("|".join(forms))


# Every form above has one of these in it: looking for them first is a hundred times faster than the expression.
_SECRET_HINTS = (*(begin for begin, _ in _FORMS), ":AA", "Bearer ", "-----BEGIN ")
# The password that an address carries: `postgres://name:password@host`.
_IN_ADDRESS = re.compile(r"(?<=://)[^\s:/@'\"`<>]{0,64}:(?P<value>[^\s/@'\"`<>]{3,200})(?=@)")
# Characters of masked strings that are remembered: most of a request was in the request before it.
_REMEMBERED = 16 << 20
_QUOTED_SECRET = re.compile(r'("([A-Za-z][\w.-]{1,40})"\s*:\s*")((?:[^"\\]|\\.)+)(")')

# In text that is shown, a credential may also stand behind its name: `api_key=…`, `Password: …`, `API key is …`.
_ASSIGNED = re.compile(
    r"\b([A-Za-z][\w.-]{1,40}(?:[ ][Kk]eys?)?)\\{0,2}['\"`]?"
    r"(?:\s{0,3}[:=]\s{0,3}|\s{1,3}(?:is|was)\s{1,3}(?=\S{0,80}(?:\d|[a-z][A-Z])))\\{0,2}['\"`]?(?:(?:Bearer|Basic)\s+)?"
    r"(?P<value>[^\s'\"`,;<>{}()\\]{6,})"
)
_AROUND = 8_000  # characters around a part of a text in which values are looked for that the part cuts
_WHOLE = 4 * _AROUND  # characters of a text in which they are looked for at once, and
_TEXTS = 64  # such texts that are remembered

_APART = r"(?<![A-Za-z0-9])"  # begins a word; an underscore may stand before it, as in call_…
_YEAR = r"(?:19|20)\d\d"
_OF_MONTH = r"(?:0?[1-9]|[12]\d|3[01])"
_DATE = rf"{_YEAR}[-/.](?:0?[1-9]|1[0-2])[-/.]{_OF_MONTH}"
_CLOCK = (
    r"(?:[01]?\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:[.,]\d{1,9})?)?(?:\s?[AaPp]\.?[Mm]\.?)?"
    r"(?:\s?(?:Z|UTC|GMT|[+-]\d\d:?\d\d))?"
)
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
_DAY = r"\d{1,2}(?:st|nd|rd|th|\.)?"
_WEEKDAY = r"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)(?:day|sday|nesday|rsday|urday)?\.?,?\s+)?"
_HEX = "[0-9a-fA-F]"
_KINDS: tuple[tuple[str, str], ...] = (
    ("email", r"\b[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,8}\b"),
    ("timestamp", rf"{_APART}{_WEEKDAY}{_DATE}(?:[T ,]+{_CLOCK})?(?!\d)"),
    ("timestamp", rf"(?<![A-Za-z0-9.]){_OF_MONTH}[/.-]{_OF_MONTH}[/.-]{_YEAR}(?:[T ,]+{_CLOCK})?(?!\w|\.\d)"),
    ("timestamp", rf"{_APART}{_YEAR}(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])(?:T?[0-2]\d[0-5]\d(?:[0-5]\d)?Z?)?(?!\w)"),
    ("timestamp", rf"(?<!\d){_YEAR}\s?年\s?\d{{1,2}}\s?月\s?\d{{1,2}}\s?日(?:\s?{_CLOCK})?"),
    (
        "timestamp",
        rf"{_APART}{_WEEKDAY}(?:{_DAY}[\s-]+{_MONTH}|{_MONTH}\s+{_DAY}),?[\s-]+{_YEAR}\b(?:,?\s+(?:at\s+)?{_CLOCK})?",
    ),
    (
        "timestamp",
        rf"{_APART}{_WEEKDAY}(?:{_DAY}\s+{_MONTH}|{_MONTH}\s+{_DAY}),?\s+(?:at\s+)?{_CLOCK}(?:\s+{_YEAR}\b)?",
    ),
    ("id", rf"{_APART}{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}(?![A-Za-z0-9])"),
    ("mac", rf"(?<![\w:-])(?:{_HEX}{{2}}[:-]){{5}}{_HEX}{{2}}(?![\w:-])"),
    (
        "ip",
        rf"(?<![\w:.])(?=[0-9a-fA-F:]*\d)(?:(?={_HEX}*(?::{_HEX}+)*::)|(?=(?:{_HEX}{{1,4}}:){{7}}))[0-9a-fA-F:]{{3,39}}(?![\w:])",
    ),
    ("timestamp", rf"(?<![\d:.]){_CLOCK}(?![\d:])"),
    ("timestamp", r"(?<![A-Za-z0-9.])1[5-9]\d{8}(?:\d{3}|\d{6}|\.\d{1,9})?(?!\w|\.\d)"),
    ("ip", r"(?<![\d.])(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)(?!\d|\.\d)"),
    ("card", r"(?<![\d-])\d(?:[ -]?\d){12,18}(?![\d-])"),
    ("iban", r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){3,7}(?: ?[A-Z0-9]{1,3})?\b"),
    ("phone", r"(?<![A-Za-z0-9.])\+\d{1,3}(?:[ .-]?\(?\d{2,4}\)?){2,5}(?!\w)"),
    ("phone", r"(?<![\w.-])(?:\(\d{3}\)[ -]?|\d{3}[ .-])\d{3}[ .-]\d{4}(?![\w-])"),
    ("number", r"(?<![\w-])\d{3}-\d\d-\d{4}(?![\w-])"),
    ("user", r"(?:(?<=/home/)|(?<=/Users/)|(?<=\\Users\\))[A-Za-z0-9][\w.-]*"),
    (
        "id",
        _APART + r"(?=[0-9A-Za-z]*\d)(?=[0-9A-Za-z]*[A-Za-z])(?:[0-9a-f]{7,}|[0-9A-F]{12,}|[0-9A-HJKMNP-TV-Z]{26})\b",
    ),
    ("id", _APART + r"[A-Za-z]{2,12}[-_](?=[A-Za-z0-9]*\d)[A-Za-z0-9]{8,}(?![\w-]|:\d)"),
    ("id", _APART + r"(?=[\w-]*\d[\w-]*\d)(?=[\w-]*[a-z])(?=[\w-]*[A-Z])[A-Za-z0-9][\w-]{17,}(?![\w-]|:\d)"),
)


@cache
def _personal() -> re.Pattern[str]:
    return re.compile("|".join(f"(?P<k{i}_{name}>{pattern})" for i, (name, pattern) in enumerate(_KINDS)))


class Redactor:
    """Masks bodies under one salt. With `personal` false only credentials are masked.

    `assigned` masks what stands behind the name of a credential in any text, too: for what is shown and never sent.
    """

    def __init__(self, salt: bytes, *, personal: bool, fields: Iterable[str] = (), assigned: bool = False) -> None:
        self._key = hashlib.blake2b(salt, digest_size=32, person=b"redact").digest()
        self._personal = personal
        self._assigned = assigned
        self._fields = [tuple(path.split(".")) for path in fields]
        self._memo: dict[str, str] = {}
        self._memo_size = 0
        self._whole: dict[str, list[tuple[int, int, str]]] = {}

    def body(self, value: Any) -> Any:
        """Mask a request body: the fields that are kept, without credentials, with labels for personal values."""
        if self._fields and isinstance(value, dict):
            value = _kept(value, self._fields)
        return _mapped(value, self.text)

    def text(self, text: str) -> str:
        """Mask a string."""
        if len(text) < 24 and not self._personal:
            return self._masked(text)
        known = self._memo.get(text)
        if known is None:
            if self._memo_size > _REMEMBERED:
                self._memo.clear()
                self._memo_size = 0
            known = self._memo[text] = self._masked(text)
            self._memo_size += len(text)
        return known

    def part(self, text: str, start: int, end: int) -> str:
        """Mask the characters `start` to `end` of a text; a value that they cut is masked as a whole."""
        shown, at = [], start
        for first, behind, label in self._near(text, start, end):
            if behind <= start or first >= end:
                continue
            shown += [text[at : max(first, at)], label]
            at = behind
        return "".join([*shown, text[at:end]])

    def start(self, text: str, at: int) -> int:
        """Give where the masked value begins that the character at `at` is in; `at` itself outside of one."""
        span = self._around(text, at, at)
        return at if span is None else span[0]

    def end(self, text: str, at: int) -> int:
        """Give where the masked value ends that a cut before the character at `at` goes through; else `at` itself."""
        span = self._around(text, at, at - 1)
        return at if span is None else span[1]

    def _around(self, text: str, at: int, last: int) -> tuple[int, int] | None:
        """Find the masked value that begins at `last` or before it and goes on behind `at`."""
        for first, behind, _ in self._near(text, at, at):
            if first <= last and at < behind:
                return first, behind
        return None

    def _near(self, text: str, start: int, end: int) -> list[tuple[int, int, str]]:
        """Find what is to be masked in a part of a text and around it.

        Of a text that is not long that is all of it, found once: a place is shown in several parts.
        """
        if len(text) > _WHOLE:
            begin = max(0, start - _AROUND)
            return [(begin + a, begin + b, label) for a, b, label in self._spans(text[begin : end + _AROUND])]
        found = self._whole.get(text)
        if found is None:
            if len(self._whole) == _TEXTS:
                self._whole.clear()
            found = self._whole[text] = self._spans(text)
        return found

    def value(self, path: str, text: str, start: int = 0, end: int | None = None) -> str:
        """Mask a part of the string at a path of a body; all of it where the path names a credential."""
        if text and any(_body_secret(name) for name in _NAME.findall(path)):
            return SECRET
        return self.part(text, start, len(text) if end is None else end)

    def path(self, path: str) -> str:
        """Mask a path of a body: its keys may be what somebody called somebody."""
        return ".".join(self.text(name) for name in self.text(path).split("."))

    def identifier(self, value: str) -> str:
        """Mask what names a request, a user or a session: all of it, where personal values are masked."""
        return self._named("id", value) if self._personal else self.text(value)

    def person(self, value: str, masked: str) -> str:
        """Mask who somebody is: all of a value in which nothing was masked by its form, where personal values are."""
        return self._named("name", value) if self._personal and value.strip() and masked == value else masked

    def _named(self, kind: str, value: str) -> str:
        digest = hashlib.blake2b(value.encode("utf-8", "surrogatepass"), key=self._key, digest_size=3).hexdigest()
        return f"<{kind}:{digest}>"

    def _masked(self, text: str) -> str:
        spans = self._spans(text)
        if not spans:
            return text
        shown, at = [], 0
        for first, behind, label in spans:
            shown += [text[at:first], label]
            at = behind
        return "".join([*shown, text[at:]])

    def _spans(self, text: str) -> list[tuple[int, int, str]]:
        """Find what is to be masked: where it begins, where it ends, what is shown for it; in order, apart."""
        found: list[tuple[int, int, str]] = []
        if any(hint in text for hint in _SECRET_HINTS):
            found += [(*match.span(), SECRET) for match in _secret_value().finditer(text)]
            found += [(*match.span(), SECRET) for match in _glued().finditer(text) if self._assigned]
        if '"' in text:
            quoted = (match for match in _QUOTED_SECRET.finditer(text) if _body_secret(match[2]))
            found += [(match.end(1), match.start(4), SECRET) for match in quoted]
        if "://" in text:
            found += [(*match.span("value"), SECRET) for match in _IN_ADDRESS.finditer(text)]
        if self._assigned:
            named = (match for match in _ASSIGNED.finditer(text) if _body_secret(match[1].replace(" ", "_")))
            found += [(*match.span("value"), SECRET) for match in named]
        if self._personal:
            matches = _personal().finditer(text)
            found += [(*match.span(), label) for match in matches if (label := self._label(match)) != match[0]]
        return _apart(found)

    def _label(self, found: re.Match[str]) -> str:
        kind = (found.lastgroup or "_id").partition("_")[2]
        value = found[0]
        if kind == "card" and not _luhn(value):
            return value
        return self._named(kind, value)


def shown(*, personal: bool = False, salt: bytes = b"") -> Redactor:
    """Give what masks text that is shown: credentials always; with `personal` times, ids, addresses and the like.

    Labels are stable under one salt; who does not have it cannot test which value a label stands for.
    """
    return Redactor(salt, personal=personal, assigned=True)


def is_credential(value: str) -> bool:
    """Whether a value has the form of a credential in it."""
    return any(hint in value for hint in _SECRET_HINTS) and _secret_value().search(value) is not None


def is_secret_name(name: str) -> bool:
    """Whether a header, a key of a body or a parameter of a URL carries a credential by its name."""
    return _SECRET_NAME.fullmatch(_CAMEL.sub("_", name)) is not None


def target(text: str) -> str:
    """Mask credentials in the query of a request target."""
    if "?" not in text:
        return text
    parts = urlsplit(text)
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    shown = (f"{quote(k)}={SECRET if is_secret_name(k) else quote(v, safe='/:,')}" for k, v in pairs)
    return f"{parts.path}?{'&'.join(shown)}"


@lru_cache(maxsize=4096)
def _body_secret(name: str) -> bool:
    name = _CAMEL.sub("_", name)
    return name.lower() not in _URL_ONLY and _SECRET_NAME.fullmatch(name) is not None


def _apart(spans: list[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """Put spans in order; of those that overlap, a credential hides what it meets, else the first one stays."""
    kept: list[tuple[int, int, str]] = []
    for first, behind, label in sorted(spans):
        if not kept or first >= kept[-1][1]:
            kept.append((first, behind, label))
        elif SECRET in (label, kept[-1][2]):
            kept[-1] = (kept[-1][0], max(behind, kept[-1][1]), SECRET)
    return kept


def _mapped(value: Any, text: Callable[[str], str]) -> Any:
    """Rebuild a JSON value with masked strings, without recursion: a body may be nested deeper than Python's stack."""
    root: list[Any] = [value]
    stack: list[tuple[Any, Any]] = [(root, 0)]
    while stack:
        holder, key = stack.pop()
        item = holder[key]
        if isinstance(item, str):
            secret = isinstance(holder, dict) and item and _body_secret(key)
            holder[key] = SECRET if secret else text(item)
        elif isinstance(item, dict):
            holder[key] = copy = dict(item)
            stack.extend((copy, name) for name in copy)
        elif isinstance(item, list):
            holder[key] = row = list(item)
            stack.extend((row, index) for index in range(len(row)))
    return root[0]


def _kept(body: dict[str, Any], fields: list[tuple[str, ...]]) -> dict[str, Any]:
    """Keep the named fields of a body, in its own order; a path goes through every element of a list."""
    kept: dict[str, Any] = {}
    for name, value in body.items():
        below = [path[1:] for path in fields if path[0] == name]
        if not below:
            continue
        if () in below:
            kept[name] = value
        elif isinstance(value, dict):
            kept[name] = _kept(value, below)
        elif isinstance(value, list):
            kept[name] = [_kept(item, below) if isinstance(item, dict) else item for item in value]
    return kept


def _luhn(text: str) -> bool:
    digits = [int(sign) for sign in text if sign.isdigit()][::-1]
    return sum(digits[::2]) % 10 == -sum(sum(divmod(2 * digit, 10)) for digit in digits[1::2]) % 10
