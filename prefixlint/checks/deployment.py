"""Settings with which engines and routers are started (`prefixlint.servers` holds the facts).

Parameters: `topic` (of the facts), `measured` (a comment with a measured number beside the flag silences it).
"""

from __future__ import annotations

from collections.abc import Iterator

from prefixlint import servers
from prefixlint.checks import Context
from prefixlint.findings import Finding, Rule, Severity
from prefixlint.prompts import Span
from prefixlint.reach import is_aside
from prefixlint.servers import Setting, Start
from prefixlint.sources.deploy import MEASURED, SINK, start_of

NAME = "deployment"

_ROUTERS = frozenset({"sglang-router", "dynamo-router"})


def check(context: Context, rule: Rule) -> Iterator[Finding]:
    """Report the settings of one topic in each start."""
    found = [(path, start) for path in context.paths for start in _starts(context, path)]
    routed = {_folder(path) for path, start in found if start.program in _ROUTERS}
    for path, start in found:
        excused = _measured(context, path) if rule.params.get("measured") else ()
        here = _with_router(start) if _folder(path) in routed else start
        for hit in servers.faults(here, rule.params["topic"]):
            if any(begin <= hit.start < end for begin, end in excused):
                continue
            yield Finding(
                rule=rule,
                message=hit.message,
                span=Span(path, hit.start, hit.end),
                severity=Severity.INFO if is_aside(path) else rule.severity,
                help=rule.help,
            )


def _starts(context: Context, path: str) -> Iterator[Start]:
    summary = context.linked.project.summary(path)
    for sink in summary.sinks if summary is not None else ():
        if sink.kind == SINK:
            yield start_of(sink)


def _measured(context: Context, path: str) -> tuple[tuple[int, int], ...]:
    """Give the lines whose settings have a measured reason beside them."""
    summary = context.linked.project.summary(path)
    return tuple((sink.start, sink.end) for sink in summary.sinks if sink.kind == MEASURED) if summary else ()


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _with_router(start: Start) -> Start:
    """Say that a router starts beside: it decides where requests go, and is judged on its own."""
    beside = Setting("@router", "router", "yes", 0, 0)
    return Start(start.program, start.start, start.end, (*start.settings, beside), start.complete)
