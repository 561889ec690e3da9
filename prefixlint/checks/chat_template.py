"""What rendering a model's chat template showed (`prefixlint.chatprobe`).

Parameters: `seen` (the kind of observation), `severities` (by detail: a clock's period), `words` (only arguments whose
name has one of these words), `passed` (of arguments with a constant default, those that callers do not pass anyway).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from prefixlint.checks import Context
from prefixlint.findings import Finding, Related, Rule, Severity
from prefixlint.prompts import Span
from prefixlint.sources import Sink
from prefixlint.sources.chat_template import SINK
from prefixlint.values import Lit, Seq

NAME = "chat_template"


def check(context: Context, rule: Rule) -> Iterator[Finding]:
    """Report each observation of the rule's kind."""
    for path in context.paths:
        summary = context.linked.project.summary(path)
        for sink in summary.sinks if summary is not None else ():
            if sink.kind == SINK and sink.name == rule.params["seen"] and _applies(sink, rule):
                yield _report(path, sink, rule)


def _applies(sink: Sink, rule: Rule) -> bool:
    """Tell whether an argument is one that differs between requests."""
    if "words" not in rule.params:
        return True
    words = set(re.split(r"[^a-z0-9]+", sink.role.rstrip("=").lower()))
    if sink.role.endswith("=") and words & set(rule.params.get("passed", ())):
        return False
    return bool(words & set(rule.params["words"]))


def _report(path: str, sink: Sink, rule: Rule) -> Finding:
    items = [item for item in sink.value.items if isinstance(item, Lit)] if isinstance(sink.value, Seq) else []
    word = rule.params.get("severities", {}).get(sink.role)
    return Finding(
        rule=rule,
        message=items[0].text,
        span=Span(path, sink.start, sink.end),
        severity=min(rule.severity, Severity[word.upper()]) if word else rule.severity,
        related=tuple(Related(Span(path, item.start, item.end), item.text) for item in items[1:]),
        help=rule.help,
    )
