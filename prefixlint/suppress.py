"""What silences a finding: a comment with a rule and a reason, a pattern of the configuration, a baseline.

    # prefixlint: ignore[PFX101] the clock is the point of this prompt

A comment stands on the line of the finding or alone on the line before it. It works in Python, Jinja (`{# … #}`), YAML,
TOML, Markdown and HTML (`<!-- … -->`). One without a reason silences nothing and is a finding, as is one that is
unused.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from prefixlint.errors import ConfigError
from prefixlint.findings import Finding, Rule, Severity
from prefixlint.prompts import Span
from prefixlint.rulebook import matching

_IGNORE = re.compile(
    rb"(?:#|//|\{#-?|<!--)[ \t]*prefixlint:[ \t]*ignore(?:\[(?P<codes>[^\]\r\n]*)\])?[ \t:]*"
    rb"(?P<reason>[^\r\n]*?)[ \t]*(?:-?#\}|-->)?[ \t]*(?:\r?\n|\Z)"
)
_MISSPELT = re.compile(
    rb"(?:#|//|\{#-?|<!--)[ \t]*prefixlint:[ \t]*(?!ignore)[A-Za-z]{1,20}[ \t]*(?:[\[(=:][ \t]*)*PFX\d"
)
_END_OF_STRING = re.compile(rb"(?:\\n.*|\",?)\Z")

BROKEN = Rule(
    "PFX001",
    "ignore-without-reason",
    "",
    Severity.WARNING,
    "0.1.0",
    summary="An ignore names no rule or gives no reason.",
)
UNUSED = Rule("PFX002", "unused-ignore", "", Severity.WARNING, "0.1.0", summary="An ignore silences nothing.")


@dataclass(frozen=True, slots=True)
class Ignore:
    """A comment: its place, the line it speaks of (1-based), the codes it names, its reason."""

    span: Span
    line: int
    codes: frozenset[str]
    reason: str


def line_of(data: bytes, offset: int) -> int:
    """Give the 1-based line of a byte."""
    return data.count(b"\n", 0, offset) + 1


def ignores(path: str, data: bytes, rules: Mapping[str, Rule]) -> tuple[list[Ignore], list[Finding]]:
    """Give a file's ignores, and findings for those that cannot be honoured."""
    if b"prefixlint:" not in data:
        return [], []
    found: list[Ignore] = []
    broken: list[Finding] = []
    for match in _IGNORE.finditer(data):
        span = Span(path, match.start(), match.end() - (1 if match[0].endswith(b"\n") else 0))
        if path.endswith(".py") and _in_string(data, match.start()):
            continue
        line = line_of(data, match.start())
        start = data.rfind(b"\n", 0, match.start()) + 1
        in_notebook = path.endswith(".ipynb")  # a line of code is a JSON string there
        if not data[start : match.start()].strip(b' \t\r"' if in_notebook else None):
            line += 1
        names = [word.strip() for word in (match["codes"] or b"").decode("utf-8", "replace").split(",") if word.strip()]
        text = _END_OF_STRING.sub(b"", match["reason"]) if in_notebook else match["reason"]
        reason = text.decode("utf-8", "replace").strip(" -:#")
        try:
            codes = matching(names, {**rules, BROKEN.code: BROKEN, UNUSED.code: UNUSED})
        except Exception as error:  # noqa: BLE001 (an unknown name is the user's finding, not a failure)
            broken.append(_complaint(BROKEN, span, str(getattr(error, "message", error))))
            continue
        if not codes or not reason:
            what = "name the rule: `prefixlint: ignore[PFX101] reason`" if not codes else "say why it is ignored"
            broken.append(_complaint(BROKEN, span, what))
        else:
            found.append(Ignore(span, line, frozenset(codes), reason))
    for match in _MISSPELT.finditer(data):
        if not (path.endswith(".py") and _in_string(data, match.start())):
            span = Span(path, match.start(), match.end() + 2)
            broken.append(_complaint(BROKEN, span, "write `prefixlint: ignore[PFX101] reason`; this silences nothing"))
    return found, broken


def _in_string(data: bytes, offset: int) -> bool:
    """Tell roughly whether a Python comment sign stands inside a string on its line."""
    start = data.rfind(b"\n", 0, offset) + 1
    before = data[start:offset]
    return before.count(b'"') % 2 == 1 or before.count(b"'") % 2 == 1


def _complaint(rule: Rule, span: Span, message: str) -> Finding:
    return Finding(rule=rule, message=message, span=span, severity=rule.severity, help="")


def apply(
    findings: Iterable[Finding], files: Mapping[str, bytes], rules: Mapping[str, Rule], checked: Iterable[str]
) -> tuple[list[Finding], list[Finding]]:
    """Give the findings left and those silenced (with their reasons); complaints about ignores join those left.

    `checked` are the codes that ran: an ignore of a rule that did not run is not unused.
    """
    ran = frozenset(checked)
    by_place: dict[tuple[str, int], list[Ignore]] = {}
    left: list[Finding] = []
    silenced: list[Finding] = []
    used: set[Span] = set()
    every: list[Ignore] = []
    for path in sorted(files):
        found, broken = ignores(path, files[path], rules)
        left.extend(broken)
        every.extend(found)
        for ignore in found:
            by_place.setdefault((path, ignore.line), []).append(ignore)
    for finding in findings:
        data = files.get(finding.span.path, b"")
        first, last = line_of(data, finding.span.start), line_of(data, max(finding.span.start, finding.span.end - 1))
        hit = next(
            (
                ignore
                for line in (first, last)
                for ignore in by_place.get((finding.span.path, line), ())
                if finding.rule.code in ignore.codes
            ),
            None,
        )
        if hit is None:
            left.append(finding)
        else:
            used.add(hit.span)
            silenced.append(replace(finding, reason=hit.reason))
    unused = [ignore for ignore in every if ignore.span not in used and ignore.codes <= ran]
    left.extend(
        _complaint(UNUSED, ignore.span, f"nothing here needs ignore[{', '.join(sorted(ignore.codes))}]")
        for ignore in unused
    )
    return left, silenced


def fingerprint(finding: Finding, data: bytes, seen: Counter[str]) -> str:
    """Give a short hash that stays when lines move: rule, file, the text of the line, and its number among equals."""
    start = data.rfind(b"\n", 0, finding.span.start) + 1
    stop = data.find(b"\n", finding.span.start)
    line = data[start : stop if stop >= 0 else None].strip()
    inner = data[finding.span.start : finding.span.end][:200]
    path = finding.span.path.encode(errors="surrogateescape")
    base = b"\0".join([finding.rule.code.encode(), path, line, inner])
    digest = hashlib.blake2b(base, digest_size=8).hexdigest()
    seen[digest] += 1
    if seen[digest] > 1:
        digest = hashlib.blake2b(f"{digest}:{seen[digest]}".encode(), digest_size=8).hexdigest()
    return digest


def read_baseline(text: str, path: str) -> frozenset[str]:
    """Give the fingerprints of a baseline file."""
    try:
        data = json.loads(text)
        return frozenset(str(item["fingerprint"]) for item in data["findings"])
    except (ValueError, KeyError, TypeError):
        raise ConfigError(
            f"{path}: not a baseline", slug="baseline", hint="write one with `prefixlint check --format json -o FILE`"
        ) from None


def by_baseline(findings: Sequence[Finding], known: frozenset[str]) -> tuple[list[Finding], list[Finding]]:
    """Split findings into new ones and those that a baseline knows."""
    left = [finding for finding in findings if finding.fingerprint not in known]
    old = [replace(finding, reason="in the baseline") for finding in findings if finding.fingerprint in known]
    return left, old
