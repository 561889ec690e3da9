"""The causes that a log shows, as text: what costs most first, both values one below the other, and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator

from prefixlint.findings import Confidence, Severity
from prefixlint.logfindings import LogFinding
from prefixlint.model import MissCause
from prefixlint.reports import Look
from prefixlint.reports._terminal import Style, columns, count, shorten, table, visible, wrap
from prefixlint.results import Analysis, StaticFinding
from prefixlint.wording import many, percent

_SHOWN = 12  # findings in the source
_TOP = 5  # causes, the most costly ones
_FULL = 3  # of them, with both values and advice; the others in short
_HEAVY = 0.05  # of an engine's prompt tokens, below which a cause that is not the first is shown in short
_INDENT = "    "
# What the path says anyway: messages[0].content is the system text.
_HOLDER = re.compile(r"^the (?:system|prompt) text holds ", re.IGNORECASE)


def causes(result: Analysis, style: Style, look: Look) -> list[str]:
    """Give the section on causes; nothing where there are none."""
    if not result.findings:
        return []
    lines = [
        style.bold(line)
        for line in wrap("What breaks the prefix, by tokens computed again for its sake", look.width, first="")
    ]
    shown = result.findings if look.verbose else result.findings[:_TOP]
    for place, finding in enumerate(shown):
        lines += _cause(finding, result, style, look.width, full=look.verbose or _in_full(place, finding, result))
    if len(result.findings) > len(shown):
        lines.append(style.dim(f"  and {many(len(result.findings) - len(shown), 'more cause')}; -v shows them"))
    return lines + [style.dim(line) for text in _sums(result) for line in wrap(text, look.width)]


def _in_full(place: int, finding: LogFinding, result: Analysis) -> bool:
    """Tell whether both values are shown without -v: of the first cause, and of others that weigh or hide behind it."""
    shares = [(finding.tokens_lost or {}).get(e.engine, 0) / (e.prompt_tokens or 1) for e in result.engines]
    heavy = finding.masked_by is not None or max(shares, default=0.0) >= _HEAVY
    return place == 0 or (place < _FULL and heavy)


def _sums(result: Analysis) -> Iterator[str]:
    """Say for engines that what the causes cost, and what no cause explains, is what diverged."""
    alike: dict[str, list[str]] = {}
    for engine in result.engines:
        known = sum((finding.tokens_lost or {}).get(engine.engine, 0) for finding in result.findings)
        diverged, other = engine.misses.get(MissCause.DIVERGED, 0), "behind a difference"
        if known > diverged:
            diverged += engine.misses.get(MissCause.NAMESPACE, 0)
            other += " or in another namespace"
        if diverged:
            sum_of = f"these {count(known)} + {count(diverged - known)} unexplained = {count(diverged)}"
            alike.setdefault(f"{sum_of} {other}", []).append(engine.engine)
    yield from (f"{', '.join(engines)}: {text}." for text, engines in alike.items())


def _cause(finding: LogFinding, result: Analysis, style: Style, width: int, *, full: bool) -> list[str]:
    paint = style.red if finding.severity > Severity.INFO else style.dim
    head = f"{finding.rule.code} {finding.rule.name}: {_cost(finding, result)}"
    lines = [paint(line) for line in wrap(head, width, first="  ", indent=_INDENT)]
    where = finding.where
    place = visible(where.at_path) + (f", character {where.char}" if where.char else "")
    text = f"{visible(_without_values(finding))} at {place} ({visible(where.in_short())})"
    if finding.confidence is Confidence.LOW:
        text += "; low confidence, since the text is cut short there"
    lines += wrap(text, width, first=_INDENT, indent=_INDENT)
    for source in finding.sources:
        spot = f"{visible(source.path)}:{source.line}:{source.column}"
        written = "written at" if source.changes else "the text of"
        lines += wrap(f"{written} {spot}: {visible(source.expression)}", width, first=_INDENT, indent=_INDENT + "  ")
    if not full:
        return lines
    room = max(8, width - columns(_INDENT) - 10)
    for name, value in zip(("before", "then  "), finding.values or (), strict=False):
        lines.append(f"{_INDENT}  {name} {style.yellow(shorten(visible(value) or '(nothing)', room))}")
    return lines + wrap(finding.rule.help, width, first=_INDENT + "-> ", indent=_INDENT + "   ")


def _cost(finding: LogFinding, result: Analysis) -> str:
    if finding.masked_by is not None:
        return f"stands behind another cause in {many(finding.requests, 'request')}"
    alike: dict[str, list[str]] = {}
    for engine in result.engines:
        lost = (finding.tokens_lost or {}).get(engine.engine)
        if engine.prompt_tokens and lost is not None:
            cost = f"{many(lost, 'token')} ({percent(lost / engine.prompt_tokens)})"
            alike.setdefault(cost, []).append(engine.engine)
    if len(alike) == 1:
        return f"{next(iter(alike))} in {many(finding.requests, 'request')}"
    parts = [f"{cost} on {', '.join(engines)}" for cost, engines in alike.items()]
    return f"{'; '.join(parts) or 'unknown tokens'}, in {many(finding.requests, 'request')}"


def _without_values(finding: LogFinding) -> str:
    """Give what the finding says, without the values, which stand on lines of their own."""
    text = finding.message.split(" (", 1)[0] if finding.values is not None else finding.message.rsplit(", in ", 1)[0]
    said = _HOLDER.sub("", text)
    return said[:1].upper() + said[1:]


def in_source(result: Analysis, style: Style, look: Look) -> list[str]:
    """Give the findings of the source with what the log lost behind them; nothing where no source was named."""
    found = result.source_findings
    if found is None:
        return []
    if not found:
        return [style.bold("In the source"), "  no finding of prefixlint check"]
    rows = [("In the source", "finding", "requests", *(engine.engine for engine in result.engines))]
    shown = found if look.verbose else found[:_SHOWN]
    rows += [_static(static, result) for static in shown]
    lines = table(rows, align="<<>" + ">" * len(result.engines), width=look.width, grow=(0, 1), indent=0)
    lines[0] = style.bold(lines[0])
    if len(found) > len(shown):
        lines.append(style.dim(f"and {many(len(found) - len(shown), 'more finding')}; all are in --format json"))
    text = "tokens computed again behind each place, as far as this log shows; unseen: nothing of it is in this log."
    return lines + [style.dim(line) for line in wrap(text, look.width)]


def _static(static: StaticFinding, result: Analysis) -> tuple[str, ...]:
    finding = static.finding
    place = f"{visible(str(finding['path']))}:{finding['line']}:{finding['column']}"
    name = f"{finding['rule']} {visible(str(finding['excerpt']))}"
    if static.tokens_lost is None:
        return place, name, "unseen", *("" for _ in result.engines)
    lost = static.tokens_lost
    return place, name, count(static.requests), *(count(lost.get(engine.engine)) for engine in result.engines)
