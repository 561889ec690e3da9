"""Back to the source: which expression wrote what breaks the prefix in a log, and what each finding in a source cost.

The example of each cause is read again, the place at which it parts is matched to the prompts of the source, and the
findings that `prefixlint check` has there get the loss that was measured.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from prefixlint import bodies, checkrun, discover, lintconfig, spanmap
from prefixlint.checkrun import CheckResult
from prefixlint.findings import Finding
from prefixlint.logfindings import LogFinding, SourcePlace
from prefixlint.model import Request
from prefixlint.prompts import Hole, Prompt, Segment, Span, Text, flatten
from prefixlint.redact import Redactor
from prefixlint.results import Analysis, StaticFinding

_EXPRESSION = 80  # characters of an expression that are shown
_CODE = 240
_TOOLS = ("tools", "functions", "toolConfig", "tool_config")


def add(analysis: Analysis, paths: Sequence[str], again: Any, *, redactor: Redactor) -> Analysis:
    """Give the analysis with the places in the source of its findings, and the source's findings with their losses.

    `again` reads single requests of the log once more. NoInputError where the paths hold nothing.
    """
    root = discover.root_of(Path(paths[0]).absolute())
    config = lintconfig.find(root, None)
    checked = checkrun.check(paths, config, root=root)
    prompts = [prompt for found in checkrun.linked(paths, config, root=root).prompts.values() for prompt in found]
    matcher = _Matcher(prompts, checked, redactor)
    wanted = [(f.where.path, f.where.line, 0) for f in analysis.findings]
    requests = {(r.path, r.line): r for r in again(wanted)} if wanted else {}
    findings, losses = [], _Losses()
    for finding in analysis.findings:
        request = requests.get((finding.where.path, finding.where.line))
        node = None if request is None else matcher.node(finding, request)
        if node is None:
            findings.append(finding)
            continue
        static = matcher.static(node, finding.rule.code)
        findings.append(replace(finding, sources=(matcher.place(node, static),)))
        if static is not None:
            losses.add(static, finding)
    found = [f for f in checked.findings if f.at is None]
    return replace(
        analysis, findings=findings, source_findings=[matcher.measured(f, losses) for f in losses.ranked(found)]
    )


class _Losses:
    """What the log lost behind the findings of a source, by their fingerprints."""

    def __init__(self) -> None:
        self._tokens: dict[str, dict[str, int]] = {}
        self._requests: dict[str, int] = {}

    def add(self, static: Finding, finding: LogFinding) -> None:
        tokens = self._tokens.setdefault(static.fingerprint, {})
        for engine, lost in (finding.tokens_lost or {}).items():
            tokens[engine] = tokens.get(engine, 0) + lost
        self._requests[static.fingerprint] = self._requests.get(static.fingerprint, 0) + finding.requests

    def of(self, static: Finding) -> tuple[Mapping[str, int] | None, int | None]:
        return self._tokens.get(static.fingerprint), self._requests.get(static.fingerprint)

    def ranked(self, findings: Iterable[Finding]) -> list[Finding]:
        return sorted(findings, key=lambda f: -max((self.of(f)[0] or {}).values(), default=-1))


@dataclass(frozen=True, slots=True)
class _Written:
    """A prompt's segments that may have written a part of a body: its tools, or a message of a role, or all."""

    role: str
    segments: Sequence[Segment]


class _Matcher:
    """The prompts of a source, ready to be recognised in logs."""

    def __init__(self, prompts: Iterable[Prompt], checked: CheckResult, redactor: Redactor) -> None:
        self._parts = [part for prompt in prompts for part in _parts(prompt)]
        self._checked, self._redactor = checked, redactor

    def node(self, finding: LogFinding, request: Request) -> Hole | Text | None:
        """Find what wrote the place at which the example of a cause parts."""
        at = finding.where
        body = bodies.body_of(request)
        in_tools = at.at_path.startswith(_TOOLS)
        leaf = next((leaf for leaf in bodies.leaves(body) if leaf.path == at.at_path), None)
        if leaf is None or not isinstance(leaf.value, str) or finding.kind in ("order", "tools"):
            tools = (spanmap.of_order(part.segments) for part in self._parts if part.role == "tools" and in_tools)
            found = next((hole for hole in tools if hole is not None), None)
            if found is not None or leaf is None or not isinstance(leaf.value, str):
                return found
        role = "tools" if in_tools else _role(body, at.at_path)
        best: tuple[tuple[int, bool], Hole | Text] | None = None
        for part in self._parts:
            if (part.role == "tools") != in_tools:
                continue
            written = spanmap.written(part.segments, leaf.value, at.char, finding.kind)
            if written is not None and (best is None or (written.score, part.role == role) > best[0]):
                best = (written.score, part.role == role), written.node
        return None if best is None else best[1]

    def static(self, node: Hole | Text, code: str) -> Finding | None:
        """Give the finding that the check has at this place: of the same rule, else of another one."""
        spans = {node.span}
        if isinstance(node, Hole):
            spans |= {*node.bound, *(origin.span for origin in node.origins if origin.span is not None)}
            spans |= {node.argument} if node.argument is not None else set()
        here = [f for f in self._checked.findings if f.group == node.span or f.span in spans]
        return min(here, key=lambda f: (f.rule.code != code, -f.severity), default=None)

    def place(self, node: Hole | Text, static: Finding | None) -> SourcePlace:
        """Say where in the source a node stands, and with which expression."""
        span = node.span if static is None or not isinstance(node, Hole) else static.span
        data = self._data(span)
        line, column = checkrun.position(data, span.start)
        expression = " ".join(data[span.start : span.end][:_CODE].decode("utf-8", "replace").split())
        if not expression:  # the text between two placeholders has a beginning and no end of its own
            expression = node.text.strip().split("\n", 1)[0] if isinstance(node, Text) else node.names[0]
        return SourcePlace(
            path=self._shown(span.path),
            line=line,
            column=column,
            expression=self._redactor.text(expression)[:_EXPRESSION],
            changes=isinstance(node, Hole),
            rule=None if static is None else static.rule.code,
            fingerprint=None if static is None else static.fingerprint,
        )

    def measured(self, static: Finding, losses: _Losses) -> StaticFinding:
        """Give a finding of the check with what the log lost behind it."""
        tokens, requests = losses.of(static)
        shown = checkrun.finding_json(static, self._checked.files)
        for item in (shown, *shown["related"]):
            item["path"] = self._shown(item["path"])
        shown |= {name: self._redactor.text(shown[name]) for name in ("message", "excerpt")}
        return StaticFinding(shown | {"tokens_lost": tokens, "requests": requests}, tokens, requests)

    def _data(self, span: Span) -> bytes:
        data = self._checked.files.get(span.path)
        if data is not None:
            return data
        try:
            return (self._checked.root / span.path).read_bytes()
        except OSError:
            return b""

    def _shown(self, path: str) -> str:
        """Give a path from where the command runs; the whole one, where it lies elsewhere."""
        whole = self._checked.root / path
        relative = os.path.relpath(whole)
        return str(whole) if relative.startswith("..") else relative


def _parts(prompt: Prompt) -> Iterator[_Written]:
    segments = flatten(prompt)
    for index in sorted({segment.message for segment in segments}):
        mine = [segment for segment in segments if segment.message == index]
        yield _Written(mine[0].role if index >= 0 else "tools", mine)
    if len(prompt.messages) > 1:
        yield _Written("text", [segment for segment in segments if segment.message >= 0])


def _role(body: Any, path: str) -> str:
    """Give the role of the message that a path of a body lies in."""
    stem, bracket, rest = path.partition("[")
    number = rest.partition("]")[0]
    messages = body.get(stem) if isinstance(body, dict) else None
    if stem in ("system", "instructions", "systemInstruction", "system_instruction"):
        return "system"
    if bracket and number.isdigit() and isinstance(messages, list) and isinstance(messages[int(number)], dict):
        return str(messages[int(number)].get("role", "text"))
    return "text"
