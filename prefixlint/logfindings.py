"""What a request log shows, as findings: one cause is one finding, with an example pair of requests. Values only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from prefixlint.findings import Confidence, Rule, Severity


@dataclass(frozen=True, slots=True)
class Where:
    """An example: the later request's file and line, and the line of the request that it is compared with.

    `other_path` is that request's file, where it is another one.
    """

    path: str
    line: int
    other_line: int
    at_path: str
    char: int
    other_path: str | None = None

    def in_short(self) -> str:
        """Name the lines that are compared, the earlier request's first."""
        if self.other_path is not None or self.other_line == self.line:
            return self.lines()
        return f"lines {self.other_line} and {self.line}"

    def lines(self) -> str:
        """Say which lines are compared, and of which files where these are two."""
        if self.other_path is not None:
            here, there = (path.rpartition("/")[2] for path in (self.path, self.other_path))
            return f"line {self.line} of {here}, compared with line {self.other_line} of {there}"
        if self.other_line != self.line:
            return f"line {self.line}, compared with line {self.other_line}"
        return f"line {self.line}"


@dataclass(frozen=True, slots=True)
class Sighting:
    """One request that shows a cause, and what it is compared with. `row` and `partner` are numbers of requests.

    `partner` is None where a request shows the cause by itself. `first` says that nothing that the model reads before
    differs, so that this is where the shared prefix ends; other sightings stand behind another cause. `turn` tells an
    earlier turn of the conversation from a sibling of the template. `path` and `char` are the place in the later body:
    what stands there in both, and the kind of value, is told by the hit of `logrules.compare` with the same place.

    `opening` is the beginning of the later one's first message where nothing in the messages differs for a cause: up to
    it siblings may share their text. Where siblings have no messages, `tail` are the characters that they share behind
    the place. `lead` is the text before the place, where the request shows other causes as well. `asked` says
    of a turn that lacks thoughts of the one before, which were in a field of their own, that a user has spoken since.
    `head` says that the place is ahead of all messages, and `begins` is what the first one begins with where something
    in the messages differs for a cause as well.
    """

    row: int
    partner: int | None
    first: bool
    turn: bool
    path: str
    char: int
    opening: str = ""
    tail: int | None = None
    lead: str = ""
    asked: bool = False
    head: bool = False
    begins: str = ""


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """The place in a source that wrote what breaks a prefix; line and column are 1-based, columns in characters.

    `expression` is what stands there, `changes` tells a value from text that was edited. `rule` and `fingerprint` are
    those of the finding that `check` has at this place, None where it has none.
    """

    path: str
    line: int
    column: int
    expression: str
    changes: bool
    rule: str | None = None
    fingerprint: str | None = None

    def said(self) -> str:
        """Say what the place has to do with the cause."""
        return f"{'written' if self.changes else 'this text was written'} by {self.expression}"


@dataclass(frozen=True, slots=True)
class LogFinding:
    """One cause that a log shows. The fields are those of the documented finding; `at` is where the example parts.

    `sightings` are the requests that show it, in the order in which they were seen. `families` are the templates
    concerned.
    `tokens_at_risk` is estimated from the characters of the example.
    """

    rule: Rule
    severity: Severity
    confidence: Confidence
    message: str
    where: Where
    values: tuple[str, str] | None
    excerpt: str
    requests: int
    kind: str
    examples: tuple[Where, ...] = ()
    families: tuple[int, ...] = ()
    sightings: Sequence[Sighting] = ()
    tokens_at_risk: int | None = None
    tokens_lost: Mapping[str, int] | None = None
    masked_by: str | None = None
    fingerprint: str = ""
    sources: tuple[SourcePlace, ...] = ()


def told(finding: LogFinding) -> list[str]:
    """Say in a few lines what differs and in how many requests, at which place of the log, and what it costs."""
    where = finding.where
    lost = ", ".join(f"{tokens:,} on {engine}" for engine, tokens in (finding.tokens_lost or {}).items())
    place = f"at {where.at_path}, character {where.char}, of {where.path} ({where.lines()})"
    return [finding.message, place, *([f"tokens computed again: {lost}"] if lost else [])]


def as_json(finding: LogFinding) -> dict[str, Any]:
    """Give a finding as the documented JSON."""
    where = finding.where
    return {
        "rule": finding.rule.code,
        "name": finding.rule.name,
        "severity": finding.severity.word,
        "confidence": finding.confidence.word,
        "path": where.path,
        "line": where.line,
        "column": 1,
        "end_line": where.line,
        "end_column": 1,
        "message": finding.message,
        "excerpt": finding.excerpt,
        "tokens_at_risk": finding.tokens_at_risk,
        "masked_by": finding.masked_by,
        "fingerprint": finding.fingerprint,
        "related": [
            *(_source(place) for place in finding.sources),
            *(_example(other) for other in finding.examples),
        ],
        "fix": None,
        "at": {
            "line": where.line,
            "other_line": where.other_line,
            "other_file": where.other_path or where.path,
            "path": where.at_path,
            "char": where.char,
        },
        "values": list(finding.values) if finding.values is not None else None,
        "requests": finding.requests,
        "tokens_lost": dict(finding.tokens_lost) if finding.tokens_lost is not None else None,
    }


def with_masked_paths(finding: LogFinding, mask: Callable[[str], str]) -> LogFinding:
    """Give a finding whose paths are masked: the keys of a body may be what somebody called somebody."""
    where, *examples = (replace(w, at_path=mask(w.at_path)) for w in (finding.where, *finding.examples))
    return replace(finding, where=where, examples=tuple(examples))


def _source(place: SourcePlace) -> dict[str, Any]:
    return {
        "path": place.path,
        "line": place.line,
        "column": place.column,
        "message": place.said(),
        "expression": place.expression,
        "rule": place.rule,
        "fingerprint": place.fingerprint,
    }


def _example(other: Where) -> dict[str, Any]:
    return {
        "path": other.path,
        "line": other.line,
        "column": 1,
        "message": f"also here ({other.lines()}): {other.at_path}, character {other.char}",
    }


def with_losses(finding: LogFinding, losses: Mapping[str, int]) -> LogFinding:
    """Give a finding with the tokens that each engine computes again for its sake; what costs stands behind none."""
    masked = None if any(losses.values()) else finding.masked_by
    return replace(finding, tokens_lost=dict(losses), masked_by=masked)
