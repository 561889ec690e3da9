"""SARIF of what `analyze` found: causes at the source lines that wrote them, or at the lines of the log that show them.

It is written as that of `check` is, so that both look the same where they are shown. Thresholds that were missed, which
have no place, are notifications.
"""

from __future__ import annotations

from pathlib import Path

from prefixlint.checkrun import CheckResult
from prefixlint.checksarif import sarif
from prefixlint.findings import At, Finding, Related
from prefixlint.logfindings import LogFinding, SourcePlace, told
from prefixlint.paper import Paper
from prefixlint.prompts import Span
from prefixlint.reports import Look
from prefixlint.reports.json import dump
from prefixlint.results import Analysis
from prefixlint.sources import Diagnostic

OUTLINE = False


def analysis(result: Analysis, look: Look) -> str:  # noqa: ARG001 - SARIF looks the same everywhere
    """Render what `analyze` found."""
    paper = Paper()
    for finding in result.findings:
        for source in finding.sources:
            paper.put(source.path, source.line, source.column, source.expression)
    files = paper.files()
    checked = CheckResult(
        findings=tuple(_finding(finding, paper) for finding in result.findings),
        suppressed=(),
        errors=tuple(Diagnostic("", 0, "threshold", failure) for failure in result.failures),
        files=files,
        scanned=len(result.input.files),
        with_prompts=len(result.input.files),
        skipped=0,
        root=Path.cwd(),
    )
    return dump(sarif(checked))


def _finding(finding: LogFinding, paper: Paper) -> Finding:
    where = finding.where
    source, *others = finding.sources or (None,)
    return Finding(
        rule=finding.rule,
        message="\n".join(told(finding)),
        span=Span(where.path, 0, 0) if source is None else _span(source, paper),
        severity=finding.severity,
        confidence=finding.confidence,
        tokens_at_risk=finding.tokens_at_risk,
        related=tuple(Related(_span(one, paper), one.said()) for one in others if one is not None),
        help=finding.rule.help,
        masked_by=finding.masked_by,
        fingerprint=(source.fingerprint if source is not None else None) or finding.fingerprint,
        at=At(where.line, where.other_line, where.at_path, where.char) if source is None else None,
        requests=finding.requests,
    )


def _span(source: SourcePlace, paper: Paper) -> Span:
    lines = source.expression.split("\n")
    end = (source.line + len(lines) - 1, len(lines[-1]) + (source.column if len(lines) == 1 else 1))
    return paper.span(source.path, (source.line, source.column), end)
