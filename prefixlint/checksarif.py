"""Findings as SARIF 2.1.0, which code scanning services read.

https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html; sections are named below where they decide.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from prefixlint import __version__
from prefixlint.checkplaces import Region, from_base, region, repository_of
from prefixlint.checkrun import CheckResult
from prefixlint.findings import Edit, Finding, Fix, Rule, Severity
from prefixlint.prompts import Span
from prefixlint.sources import Diagnostic

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
MOST_RESULTS = 25_000
"""Of a run; GitHub refuses files with more (docs.github.com, SARIF support for code scanning, read 2026-11)."""
_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
_PROBLEMS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "recommendation"}
FINGERPRINT = "prefixlint/v1"
"""The name of the fingerprint's algorithm (3.27.17); a change of `suppress.fingerprint` needs the next number."""


def sarif(result: CheckResult) -> dict[str, Any]:
    """Give the result as a SARIF log of one run; what is suppressed is in it, with its reason."""
    findings, left_out = _kept(result)
    rules = sorted({finding.rule.code: finding.rule for finding, _ in findings}.items())
    index = {code: number for number, (code, _) in enumerate(rules)}
    run = {
        "tool": {
            "driver": {
                "name": "prefixlint",
                "semanticVersion": __version__,
                "rules": [_rule(rule) for _, rule in rules],
            }
        },
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {
                # findings are no failure (3.20.14); what could not be read or crashed is
                "executionSuccessful": not any(error.slug == "check-crashed" for error in result.errors),
                "toolExecutionNotifications": [_notification(error, result) for error in (*result.errors, *left_out)],
            }
        ],
        "results": [_result(finding, index, result, suppressed=silent) for finding, silent in findings],
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _kept(result: CheckResult) -> tuple[list[tuple[Finding, bool]], list[Diagnostic]]:
    """Give the findings that go into the file, and whether each is suppressed; and a word on those left out.

    Where they are too many, the gravest are kept.
    """
    every = [*((finding, False) for finding in result.findings), *((finding, True) for finding in result.suppressed)]
    if len(every) <= MOST_RESULTS:
        return every, []
    worst = sorted(range(len(every)), key=lambda n: (every[n][1], -every[n][0].severity, n))
    kept = [every[number] for number in sorted(worst[:MOST_RESULTS])]
    text = f"{len(every) - len(kept):,} findings are left out: a file may hold {MOST_RESULTS:,}"
    return kept, [Diagnostic("", 0, "sarif-too-many", text)]


def _rule(rule: Rule) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "id": rule.code,
        "name": rule.name,
        "shortDescription": {"text": rule.summary or rule.name},
        "fullDescription": {"text": rule.summary or rule.name},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
        "help": {"text": rule.help or rule.summary or rule.name},
        "properties": {"tags": ["prefix-cache"], "problem.severity": _PROBLEMS[rule.severity]},
    }
    if rule.page:
        entry["help"]["markdown"] = rule.page
    return entry


def _result(finding: Finding, index: dict[str, int], result: CheckResult, *, suppressed: bool) -> dict[str, Any]:
    place = region(finding.span, result.files, finding.at)
    text = f"{finding.message}\n{finding.help}" if finding.help else finding.message
    entry: dict[str, Any] = {
        "ruleId": finding.rule.code,
        "ruleIndex": index[finding.rule.code],
        "level": _LEVELS[finding.severity],
        "message": {"text": _plain(text)},
        "locations": [{"physicalLocation": _physical(finding.span.path, place, result, whole=finding.at is not None)}],
        "partialFingerprints": {FINGERPRINT: finding.fingerprint},
        "properties": {
            "confidence": finding.confidence.word,
            "tokensAtRisk": finding.tokens_at_risk,
            "maskedBy": finding.masked_by,
        },
    }
    if finding.related:
        entry["relatedLocations"] = [
            {
                "id": number,
                "physicalLocation": _physical(related.span.path, region(related.span, result.files), result),
                "message": {"text": _plain(related.message)},
            }
            for number, related in enumerate(finding.related, 1)
        ]
    if finding.fix is not None:
        entry["fixes"] = [_fix(finding.fix, result)]
    if suppressed:
        entry["suppressions"] = [_suppression(finding.reason or "")]
    return entry


def _plain(text: str) -> str:
    """Make a message in which nothing is read as a link (3.11.6): it may quote a stranger's text."""
    return text.replace("](", "]\u200b(")


def _suppression(reason: str) -> dict[str, Any]:
    outside = reason == "in the baseline" or reason.startswith(("per-file-ignores:", "not new since "))
    return {"kind": "external" if outside else "inSource", "justification": reason}


def _physical(path: str, place: Region, result: CheckResult, *, whole: bool = False) -> dict[str, Any]:
    return {"artifactLocation": _artifact(path, result), "region": _region(place, whole=whole)}


def _region(place: Region, *, whole: bool = False) -> dict[str, int]:
    if whole:  # a line as a whole (3.30.2)
        return {"startLine": place.line}
    return {
        "startLine": place.line,
        "startColumn": place.column,
        "endLine": place.end_line,
        "endColumn": place.end_column,
    }


def _artifact(path: str, result: CheckResult) -> dict[str, str]:
    shown = from_base(path, result.root, repository_of(result.root))
    quoted = quote(shown, errors="surrogateescape")  # a name need not be UTF-8
    return {"uri": f"file://{quoted}" if shown.startswith("/") else quoted}


def _fix(fix: Fix, result: CheckResult) -> dict[str, Any]:
    by_path: dict[str, list[Edit]] = {}
    for edit in fix.edits:
        by_path.setdefault(edit.span.path, []).append(edit)
    return {
        "description": {"text": f"{fix.title} ({fix.applicability.value})"},
        "artifactChanges": [
            {
                "artifactLocation": _artifact(path, result),
                "replacements": [_replacement(edit.span, edit.text, result) for edit in edits],
            }
            for path, edits in sorted(by_path.items())
        ],
    }


def _replacement(span: Span, text: str, result: CheckResult) -> dict[str, Any]:
    return {"deletedRegion": _region(region(span, result.files)), "insertedContent": {"text": text}}


def _notification(error: Diagnostic, result: CheckResult) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "level": "error",
        "message": {"text": _plain(error.message)},
        "descriptor": {"id": error.slug},
    }
    if error.path:
        place: dict[str, Any] = {"artifactLocation": _artifact(error.path, result)}
        if error.line:
            place["region"] = {"startLine": error.line}
        entry["locations"] = [{"physicalLocation": place}]
    return entry
