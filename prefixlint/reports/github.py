"""Workflow commands of GitHub Actions for what `analyze` found: causes at the lines that wrote them, and failures.

A cause is shown where `--source` led it back to; log files are seldom files of the repository, so others have no place.
"""

from __future__ import annotations

from prefixlint.findings import Severity
from prefixlint.logfindings import LogFinding, told
from prefixlint.reports import Look
from prefixlint.results import Analysis
from prefixlint.workflow import command

OUTLINE = False

_NAMES = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}


def analysis(result: Analysis, look: Look) -> str:
    """Give one command a failure and a cause; information is left out unless `verbose`."""
    lines = [command("error", {"title": "prefixlint"}, failure) for failure in result.failures]
    shown = [finding for finding in result.findings if look.verbose or finding.severity > Severity.INFO]
    lines += [_cause(finding) for finding in shown]
    return "".join(f"{line}\n" for line in lines)


def _cause(finding: LogFinding) -> str:
    fields = {"title": f"{finding.rule.code} {finding.rule.name}"}
    source = finding.sources[0] if finding.sources else None
    if source is not None:
        fields = {"file": source.path, "line": str(source.line), "col": str(source.column), **fields}
    notes = [*told(finding), f"help: {finding.rule.help}"]
    return command(_NAMES[finding.severity], fields, "\n".join(notes))
