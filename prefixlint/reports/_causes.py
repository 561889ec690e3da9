"""The causes that a log shows, as text: what costs most first, both values one below the other, and what to do."""

from __future__ import annotations

from prefixlint.findings import Severity
from prefixlint.logfindings import LogFinding
from prefixlint.reports._terminal import Style, columns, count, percent, shorten, visible, wrap
from prefixlint.results import Analysis
from prefixlint.wording import many

_SHOWN = 12
_INDENT = "    "


def causes(result: Analysis, style: Style, width: int) -> list[str]:
    """Give the section on causes; nothing where there are none."""
    if not result.findings:
        return []
    lines = [
        style.bold(line)
        for line in wrap("What breaks the prefix, by tokens computed again for its sake", width, first="")
    ]
    for finding in result.findings[:_SHOWN]:
        lines += _cause(finding, result, style, width)
    if len(result.findings) > _SHOWN:
        lines.append(style.dim(f"and {many(len(result.findings) - _SHOWN, 'more cause')}; all are in --format json"))
    return lines


def _cause(finding: LogFinding, result: Analysis, style: Style, width: int) -> list[str]:
    paint = style.red if finding.severity > Severity.INFO else style.dim
    head = f"{finding.rule.code} {finding.rule.name}: {_cost(finding, result)}"
    lines = [paint(line) for line in wrap(head, width, first="  ", indent=_INDENT)]
    where = finding.where
    place = f"{visible(where.at_path)}, character {where.char}"
    text = f"{visible(_without_values(finding))} at {place} (line {where.line}"
    text += f", compared with line {where.other_line})" if where.other_line != where.line else ")"
    lines += wrap(text, width, first=_INDENT, indent=_INDENT)
    room = max(8, width - columns(_INDENT) - 10)
    for name, value in zip(("before", "then  "), finding.values or (), strict=False):
        lines.append(f"{_INDENT}  {name} {style.yellow(shorten(visible(value) or '(nothing)', room))}")
    return lines + wrap(finding.rule.help, width, first=_INDENT + "-> ", indent=_INDENT + "   ")


def _cost(finding: LogFinding, result: Analysis) -> str:
    if finding.masked_by is not None:
        return f"stands behind another cause in {many(finding.requests, 'request')}"
    parts = [
        f"{count(lost)} tokens on {engine.engine} ({percent(lost / engine.prompt_tokens)})"
        for engine in result.engines
        if engine.prompt_tokens and (lost := (finding.tokens_lost or {}).get(engine.engine)) is not None
    ]
    return f"{', '.join(parts) or 'unknown tokens'}, in {many(finding.requests, 'request')}"


def _without_values(finding: LogFinding) -> str:
    """Give what the finding says, without the values, which stand on lines of their own."""
    return finding.message.split(" (", 1)[0] if finding.values is not None else finding.message.rsplit(", in ", 1)[0]
