"""Edits -> bytes: which fixes apply together, and the proof that they helped.

A fix is kept only if the file still parses, its finding is gone, nothing new is found, and a second run changes
nothing. Edits are insertions and replacements of byte ranges, so every other byte stays.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from prefixlint import pysyntax
from prefixlint.findings import Applicability, Edit, Finding, Fix
from prefixlint.pysyntax import NotPythonError

Recheck = Callable[[Mapping[str, bytes]], Iterable[Finding]]


@dataclass(frozen=True, slots=True)
class Fixed:
    """Files as they would be, by path, and the findings whose fixes were applied."""

    files: Mapping[str, bytes]
    applied: tuple[Finding, ...]


def valid(fix: Fix, files: Mapping[str, bytes]) -> bool:
    """Tell whether a fix leaves each Python file it touches a program; what it wraps must be an expression."""
    for path, edits in _by_path(fix.edits).items():
        data = files.get(path)
        if data is None or (path.endswith(".py") and not _parses(new := splice(data, edits))):
            return False
        if path.endswith(".py") and len(_AWAITED.findall(new)) > len(_AWAITED.findall(data)):
            return False
    return True


_AWAITED = re.compile(rb"\bawait\s+sorted\(")
"""What becomes of a wrapped coroutine: it parses, and fails when it runs."""


def _parses(data: bytes) -> bool:
    try:
        pysyntax.parse(data)
    except NotPythonError:
        return False
    return True


def _by_path(edits: Iterable[Edit]) -> dict[str, list[Edit]]:
    out: dict[str, list[Edit]] = defaultdict(list)
    for edit in edits:
        out[edit.span.path].append(edit)
    return out


def splice(data: bytes, edits: Iterable[Edit]) -> bytes:
    """Apply edits that do not overlap."""
    out = data
    for edit in reversed(sorted(edits, key=lambda e: (e.span.start, e.span.end))):  # noqa: C413 (keeps equal ones in order)
        out = out[: edit.span.start] + edit.text.encode() + out[edit.span.end :]
    return out


def apply(findings: Iterable[Finding], files: Mapping[str, bytes], recheck: Recheck, *, unsafe: bool) -> Fixed:
    """Apply the fixes of findings that do not overlap.

    Of those that do not prove themselves, the ones of the rules concerned are left out, file by file.
    """
    before = list(findings)
    chosen = _chosen(before, unsafe=unsafe)
    changed: dict[str, bytes] = {}
    while chosen:
        edits = _by_path(edit for finding in chosen for edit in _fix(finding).edits)
        changed = {path: splice(files[path], own) for path, own in edits.items() if path in files}
        refused = _refused(before, chosen, recheck(changed))
        if not refused:
            break
        left = [finding for finding in chosen if not _concerned(finding, refused)]
        chosen = left if len(left) < len(chosen) else []
    return Fixed(changed if chosen else {}, tuple(sorted(chosen, key=lambda f: (f.span.path, f.span.start))))


def _fix(finding: Finding) -> Fix:
    assert finding.fix is not None, "only findings with a fix are chosen"
    return finding.fix


def _chosen(findings: Iterable[Finding], *, unsafe: bool) -> list[Finding]:
    """Give the findings whose fixes can be applied together."""
    chosen: list[Finding] = []
    edits: dict[str, list[Edit]] = defaultdict(list)
    for finding in findings:
        fix = finding.fix
        if fix is None or (fix.applicability is Applicability.UNSAFE and not unsafe):
            continue
        paths = _by_path(fix.edits)
        if any(_overlap(edit, other) for path, own in paths.items() for edit in own for other in edits[path]):
            continue
        for path, own in paths.items():
            edits[path].extend(own)
        chosen.append(finding)
    return chosen


def _overlap(one: Edit, two: Edit) -> bool:
    """Tell whether edits get into each other's way; texts that differ and are put in at one place follow in order."""
    if one.span == two.span:
        return one.span.start < one.span.end or one.text == two.text
    return one.span.start < two.span.end and two.span.start < one.span.end


def _concerned(finding: Finding, refused: set[tuple[str, str]]) -> bool:
    """Tell whether a fix belongs to a rule and a file in which something is wrong; `*` are all rules."""
    paths = {finding.span.path, *(edit.span.path for edit in _fix(finding).edits)}
    return any((path, code) in refused for path in paths for code in (finding.rule.code, "*"))


def _refused(before: Iterable[Finding], chosen: Iterable[Finding], after: Iterable[Finding]) -> set[tuple[str, str]]:
    """Give (path, rule) where fixes did not remove their findings, and (path, `*`) where they brought a new one.

    A moved line may still be reported (a clock behind all static text, a conversation following): then the static
    tokens behind it must be gone.
    """
    before, after = list(before), list(after)
    old, new = _counted(before), _counted(after)
    refused = {(path, "*") for (path, code), count in new.items() if count > old[path, code]}
    gone = _counted(finding for finding in chosen if _fix(finding).applicability is Applicability.SAFE)
    refused |= {key for key, count in gone.items() if new[key] > old[key] - count}
    moved = _tokens(finding for finding in chosen if _fix(finding).applicability is Applicability.UNSAFE)
    had, have = _tokens(before), _tokens(after)
    return refused | {key for key, tokens in moved.items() if have[key] > had[key] - _MOST * tokens}


_MOST = 0.9
"""Share of the static tokens behind a moved line that must no longer be behind it."""


def _counted(findings: Iterable[Finding]) -> Counter[tuple[str, str]]:
    return Counter((finding.span.path, finding.rule.code) for finding in findings)


def _tokens(findings: Iterable[Finding]) -> Counter[tuple[str, str]]:
    out: Counter[tuple[str, str]] = Counter()
    for finding in findings:
        out[finding.span.path, finding.rule.code] += finding.tokens_at_risk or 0
    return out


def diff(files: Mapping[str, bytes], fixed: Mapping[str, bytes]) -> str:
    """Give the changes as a unified diff."""
    out: list[str] = []
    for path in sorted(fixed):
        old = files[path].decode("utf-8", "replace").splitlines(keepends=True)
        new = fixed[path].decode("utf-8", "replace").splitlines(keepends=True)
        lines = difflib.unified_diff(old, new, f"a/{path}", f"b/{path}")
        out.extend(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
    return "".join(out)


def ignore_comments(findings: Iterable[Finding], files: Mapping[str, bytes], reason: str) -> dict[str, bytes]:
    """Give files with an ignore comment at the end of each finding's line (before the line where that is inside text).

    Give files with an ignore comment at the end of each finding's line (before the line where that is inside
    text).
    """
    wanted: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for finding in findings:
        data = files[finding.span.path]
        wanted[finding.span.path][data.count(b"\n", 0, finding.span.start)].add(finding.rule.code)
    out = {}
    for path, lines in wanted.items():
        rows = files[path].splitlines(keepends=True)
        for number, codes in lines.items():
            rows[number] = _commented(rows[number], path, sorted(codes), reason)
        new = b"".join(rows)
        if path.endswith(".ipynb"):  # its lines are JSON, which has no comments
            continue
        if not path.endswith(".py") or _parses(new):
            out[path] = new
    return out


def _commented(row: bytes, path: str, codes: list[str], reason: str) -> bytes:
    body = row.rstrip(b"\r\n")
    ending = row[len(body) :]
    note = f"prefixlint: ignore[{', '.join(codes)}] {reason}"
    if path.endswith((".md", ".mdx", ".html")):
        comment = f" <!-- {note} -->"
    elif path.endswith((".j2", ".jinja", ".jinja2", ".prompty", ".txt")):
        comment = f" {{# {note} #}}"
    else:
        comment = f"  # {note}"
    return body + comment.encode() + ending
