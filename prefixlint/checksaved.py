"""A saved result of `check` as values again, from which every format is made as from a fresh one.

The JSON names places by lines and columns. Where a file still holds what was found, its own bytes are shown; of others
the excerpts are, and a fix, which is a matter of bytes, is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from prefixlint import rulebook
from prefixlint.checkrun import Base, CheckResult
from prefixlint.findings import Applicability, At, Confidence, Edit, Finding, Fix, Related, Severity
from prefixlint.paper import Paper, byte, stands
from prefixlint.prompts import Span
from prefixlint.sources import Diagnostic

Json = Mapping[str, Any]


def result(saved: Json, root: Path, read: Callable[[str], bytes | None]) -> CheckResult:
    """Give the result that `checkrun.as_json` wrote as `saved`; KeyError, TypeError and the like for another one.

    Paths are meant from `root`; `read` gives the bytes of a file there, None where there is none to be shown.
    """
    found, silent, base = saved["findings"], saved["suppressed"], saved.get("base")
    sheets = _Sheets([*found, *silent], read)
    return CheckResult(
        findings=tuple(sheets.finding(one) for one in found),
        suppressed=tuple(sheets.finding(one) for one in silent),
        errors=tuple(Diagnostic(e["path"], e["line"], e["slug"], e["message"]) for e in saved["errors"]),
        files=sheets.files,
        scanned=saved["files"]["scanned"],
        with_prompts=saved["files"]["with_prompts"],
        skipped=saved["files"]["skipped"],
        root=root,
        base=None if base is None else _base(base),
    )


def _base(saved: Json) -> Base:
    sheets = _Sheets(saved["gone"], lambda path: None)  # noqa: ARG005 - files of another revision
    return Base(saved["ref"], tuple(sheets.finding(one) for one in saved["gone"]), sheets.files)


class _Sheets:
    """The files of a result: their own bytes where these still hold every excerpt, else paper."""

    def __init__(self, findings: Iterable[Json], read: Callable[[str], bytes | None]) -> None:
        places = [one for one in findings if one["at"] is None]
        by_path: dict[str, list[Json]] = {}
        for one in places:
            by_path.setdefault(one["path"], []).append(one)
        self._real = {path: data for path in by_path if (data := _unchanged(by_path[path], read(path))) is not None}
        self._paper = Paper()
        for one in places:
            self._put(one["path"], one["line"], one["column"], one["excerpt"])
            self._put(one["path"], one["end_line"], one["end_column"])
            for related in one["related"]:
                for line, column in _ends(related):
                    self._put(related["path"], line, column)
        self.files = {**self._paper.files(), **self._real}

    def _put(self, path: str, line: int, column: int, text: str = "") -> None:
        if path not in self._real:
            self._paper.put(path, line, column, text)

    def _span(self, path: str, start: tuple[int, int], end: tuple[int, int]) -> Span:
        data = self._real.get(path)
        return self._paper.span(path, start, end) if data is None else Span(path, byte(data, *start), byte(data, *end))

    def finding(self, saved: Json) -> Finding:
        """Give a finding as it was; its own advice is its rule's."""
        severity, at = Severity[saved["severity"].upper()], saved["at"]
        rule = rulebook.named(str(saved["rule"]), str(saved["name"]), severity)
        path, start = saved["path"], (saved["line"], saved["column"])
        logged = at is not None
        return Finding(
            rule=rule,
            message=saved["message"],
            span=Span(path, 0, 0) if logged else self._span(path, start, (saved["end_line"], saved["end_column"])),
            severity=severity,
            confidence=Confidence[saved["confidence"].upper()],
            tokens_at_risk=saved["tokens_at_risk"],
            related=() if logged else tuple(self._related(one) for one in saved["related"]),
            help=rule.help,
            fix=self._fix(saved["fix"]),
            masked_by=saved["masked_by"],
            fingerprint=saved["fingerprint"],
            reason=saved.get("reason"),
            at=At(at["line"], at["other_line"], at["path"], at["char"]) if logged else None,
            values=tuple(saved["values"] or ()),
            requests=saved["requests"],
        )

    def _related(self, saved: Json) -> Related:
        return Related(self._span(saved["path"], *_ends(saved)), saved["message"])

    def _fix(self, saved: Json | None) -> Fix | None:
        if saved is None or not all(edit["path"] in self._real for edit in saved["edits"]):
            return None
        edits = (Edit(Span(e["path"], e["start"], e["end"]), e["text"]) for e in saved["edits"])
        return Fix(saved["title"], tuple(edits), Applicability(saved["applicability"]))


def _ends(related: Json) -> tuple[tuple[int, int], tuple[int, int]]:
    """Give where a related place begins and ends; older results say only where it begins."""
    start = (related["line"], related["column"])
    return start, (related.get("end_line", start[0]), related.get("end_column", start[1]))


def _unchanged(findings: Iterable[Json], data: bytes | None) -> bytes | None:
    """Give a file's bytes where all findings still stand in it."""
    if data is None:
        return None
    for one in findings:
        try:
            end = byte(data, one["end_line"], one["end_column"])
            span = Span(one["path"], byte(data, one["line"], one["column"]), end)
        except ValueError:  # it has fewer lines now
            return None
        if not one["excerpt"] or not stands(data, span, one["excerpt"]):
            return None
    return data
