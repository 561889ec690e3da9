"""Findings of a check as the workflow commands of GitHub Actions, which show them at their lines in a pull request."""

from __future__ import annotations

from prefixlint.checkplaces import from_base, region, repository_of
from prefixlint.checkrun import CheckResult
from prefixlint.findings import Finding, Severity
from prefixlint.sources import Diagnostic
from prefixlint.workflow import command

_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}


def github(result: CheckResult, *, verbose: bool = False) -> str:
    """Give one command a finding. Information is left out unless `verbose`: GitHub shows few annotations a step."""
    shown = [finding for finding in result.findings if verbose or finding.severity > Severity.INFO]
    lines = [_finding(finding, result) for finding in shown] + [_error(error, result) for error in result.errors]
    return "".join(f"{line}\n" for line in lines)


def _finding(finding: Finding, result: CheckResult) -> str:
    place = region(finding.span, result.files, finding.at)
    fields = {"file": _path(finding.span.path, result), "line": str(place.line), "endLine": str(place.end_line)}
    if finding.at is None and place.line == place.end_line:  # columns are only taken within one line
        fields |= {"col": str(place.column), "endColumn": str(place.end_column)}
    fields["title"] = f"{finding.rule.code} {finding.rule.name}"
    notes = [finding.message]
    for related in finding.related:
        line = region(related.span, result.files).line
        notes.append(f"{_path(related.span.path, result)}:{line}: {related.message}")
    if finding.help:
        notes.append(f"help: {finding.help}")
    return command(_COMMANDS[finding.severity], fields, "\n".join(notes))


def _error(error: Diagnostic, result: CheckResult) -> str:
    fields = {"file": _path(error.path, result)} if error.path else {}
    if error.line:
        fields["line"] = str(error.line)
    return command("error", {**fields, "title": error.slug}, error.message)


def _path(path: str, result: CheckResult) -> str:
    return from_base(path, result.root, repository_of(result.root))
