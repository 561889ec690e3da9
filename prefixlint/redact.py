"""Masks on the way in: what is secret never reaches the log, what is personal becomes a label.

A label keeps what the prefix analysis needs: equal values become equal labels within a run, different ones
different labels, and the kind stays readable: `<email:3f2a90>`, `<timestamp:90c1b2>`, `<id:ab12cd>`. So a clock in a
system prompt still breaks the prefix in the masked log, at its place. Lengths change, so counts of tokens do a little.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

SECRET = "<secret>"  # noqa: S105  (the mask, not a secret)

# Names under which people send credentials; `max_tokens`, `bos_token` and the like are none.
_SECRET_NAME = re.compile(
    r"(?:.*[-_.])?(?:api[-_]?keys?|authorization|auth|authentication|bearer|cookies?|credentials?|passw(?:or)?d|"
    r"passphrase|private[-_]?key|secrets?|secret[-_]?(?:access[-_]?)?key|access[-_]?key(?:[-_]?id)?|"
    r"(?:access|auth|bearer|id|refresh|session|security|secret|api|csrf|hf|github)[-_]?token)|"
    r"x[-_]amz[-_].*|token|signature|sig|key",
    re.IGNORECASE,
)
# A `signature` in a body is Anthropic's seal on its thinking, `key` may name anything: secrets in URLs only.
_URL_ONLY = frozenset({"signature", "sig", "key"})
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

# Credentials that tell themselves by their form, wherever they stand.
_SECRET_VALUE = re.compile(
    r"\b(?:sk-[A-Za-z0-9_-]{16,}|(?:ghp|gho|ghu|ghs|ghr)_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|"
    r"glpat-[\w-]{16,}|"
    r"xox[abeprs]-[A-Za-z0-9-]{10,}|AKIA[0-9A-Z]{16}|ASIA[0-9A-Z]{16}|AIza[\w-]{35}|hf_[A-Za-z0-9]{20,}|"
    r"eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,})"
    r"|(?<=Bearer )[\w.~+/=-]{8,}|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    re.DOTALL,
)
# Every form above has one of these in it: looking for them first is a hundred times faster than the expression.
_SECRET_HINTS = (
    "sk-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox", "AKIA", "ASIA", "AIza", "hf_", "eyJ",
    "Bearer ", "-----BEGIN ",
)  # fmt: skip
# Characters of masked strings that are remembered: most of a request was in the request before it.
_REMEMBERED = 16 << 20
_QUOTED_SECRET = re.compile(r'("([A-Za-z][\w.-]{1,40})"\s*:\s*")((?:[^"\\]|\\.)+)(")')

_DATE = r"(?:19|20)\d\d[-/.](?:0?[1-9]|1[0-2])[-/.](?:0?[1-9]|[12]\d|3[01])"
_CLOCK = (
    r"(?:[01]?\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:[.,]\d{1,9})?)?(?:\s?[AaPp]\.?[Mm]\.?)?"
    r"(?:\s?(?:Z|UTC|GMT|[+-]\d\d:?\d\d))?"
)
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
_DAY = r"\d{1,2}(?:st|nd|rd|th)?"
_KINDS: tuple[tuple[str, str], ...] = (
    ("email", r"\b[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,8}\b"),
    ("timestamp", rf"\b{_DATE}(?:[T ,]+{_CLOCK})?(?!\d)"),
    (
        "timestamp",
        rf"\b(?:{_DAY}\s+{_MONTH}|{_MONTH}\s+{_DAY}),?\s+(?:19|20)\d\d\b(?:,?\s+(?:at\s+)?{_CLOCK})?",
    ),
    ("id", r"\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b"),
    ("timestamp", rf"(?<![\d:.]){_CLOCK}(?![\d:])"),
    ("timestamp", r"(?<![\w.])1[5-9]\d{8}(?:\d{3}|\d{6}|\.\d{1,9})?(?!\w|\.\d)"),
    ("ip", r"(?<![\d.])(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)(?!\d|\.\d)"),
    ("card", r"(?<![\d-])\d(?:[ -]?\d){12,18}(?![\d-])"),
    ("phone", r"(?<![\w.])\+\d{1,3}(?:[ .-]?\(?\d{2,4}\)?){2,5}(?!\w)"),
    ("id", r"\b(?=[0-9A-Za-z]*\d)(?=[0-9A-Za-z]*[A-Za-z])(?:[0-9a-f]{16,}|[0-9A-F]{16,}|[0-9A-HJKMNP-TV-Z]{26})\b"),
    ("id", r"\b[a-z]{2,12}_(?=[A-Za-z0-9]*\d)[A-Za-z0-9]{12,}\b"),
)
_PERSONAL = re.compile("|".join(f"(?P<k{i}_{name}>{pattern})" for i, (name, pattern) in enumerate(_KINDS)))


class Redactor:
    """Masks bodies under one salt. With `personal` false only credentials are masked."""

    def __init__(self, salt: bytes, *, personal: bool, fields: Iterable[str] = ()) -> None:
        self._key = hashlib.blake2b(salt, digest_size=32, person=b"redact").digest()
        self._personal = personal
        self._fields = [tuple(path.split(".")) for path in fields]
        self._memo: dict[str, str] = {}
        self._memo_size = 0

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

    def _masked(self, text: str) -> str:
        if any(hint in text for hint in _SECRET_HINTS):
            text = _SECRET_VALUE.sub(SECRET, text)
        if '"' in text:
            text = _QUOTED_SECRET.sub(_mask_quoted, text)
        return _PERSONAL.sub(self._label, text) if self._personal else text

    def _label(self, found: re.Match[str]) -> str:
        kind = (found.lastgroup or "_id").partition("_")[2]
        value = found[0]
        if kind == "card" and not _luhn(value):
            return value
        digest = hashlib.blake2b(value.encode("utf-8", "surrogatepass"), key=self._key, digest_size=3).hexdigest()
        return f"<{kind}:{digest}>"


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


def _mask_quoted(found: re.Match[str]) -> str:
    return f"{found[1]}{SECRET}{found[4]}" if _body_secret(found[2]) else found[0]


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
