"""What a check reports: rules, findings and the edits that repair them. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prefixlint.prompts import Span


class Severity(IntEnum):
    """How much a finding matters; ordered."""

    INFO = 1
    WARNING = 2
    ERROR = 3

    @property
    def word(self) -> str:
        """The word that users read and type."""
        return self.name.lower()


class Confidence(IntEnum):
    """How sure a finding is: LOW rests on a common word, MEDIUM on a telling name, HIGH on a followed value."""

    LOW = 1
    MEDIUM = 2
    HIGH = 3

    @property
    def word(self) -> str:
        """The word that users read and type."""
        return self.name.lower()


class Applicability(StrEnum):
    """SAFE fixes keep what the program means; UNSAFE ones change the text that a model reads."""

    SAFE = "safe"
    UNSAFE = "unsafe"


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace the bytes of `span` by `text`; an insertion has an empty span."""

    span: Span
    text: str


@dataclass(frozen=True, slots=True)
class Fix:
    """Edits that belong together."""

    title: str
    edits: tuple[Edit, ...]
    applicability: Applicability = Applicability.SAFE


@dataclass(frozen=True, slots=True)
class Related:
    """A second place that explains a finding."""

    span: Span
    message: str


USED = "the text is used here"
"""What is said of a second place that hands a text on."""


@dataclass(frozen=True, slots=True)
class Example:
    """A fenced block of a rule's page. `lines` are the 1-based lines that must fire.

    `fixed` is what a fix must give.
    """

    section: str
    language: str
    name: str
    text: str
    lines: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule as its page declares it.

    `check` names one check or several, with spaces; `params` are for all of them. `severity` is the ceiling.
    """

    code: str
    name: str
    check: str
    severity: Severity
    since: str
    params: Mapping[str, Any] = field(default_factory=dict)
    summary: str = ""
    help: str = ""
    page: str = ""
    examples: tuple[Example, ...] = ()


@dataclass(frozen=True, slots=True)
class At:
    """Where two requests of a log differ: their lines (1-based), the path in the later body, the equal characters."""

    line: int
    other_line: int
    path: str
    char: int


@dataclass(frozen=True, slots=True)
class Finding:
    """One place that a rule objects to.

    `tokens_at_risk` are the static tokens behind the place (estimated), None where unknown. `group` is the place that
    findings of several prompts share: of two findings with the same rule and group the graver is kept. `masker` is the
    group of the earlier place that hides this one. `masked_by` and `fingerprint` are filled in when all are known.
    In a log, `at` is the place, `also` are more such places, `values` the two texts; `requests` counts those concerned.
    """

    rule: Rule
    message: str
    span: Span
    severity: Severity
    confidence: Confidence = Confidence.HIGH
    tokens_at_risk: int | None = None
    related: tuple[Related, ...] = ()
    help: str = ""
    fix: Fix | None = None
    group: Span | None = None
    masker: Span | None = None
    masked_by: str | None = None
    fingerprint: str = ""
    reason: str | None = None
    at: At | None = None
    also: tuple[At, ...] = ()
    values: tuple[str, ...] = ()
    requests: int | None = None
