"""Edits -> bytes: which fixes apply together, and the proof that they helped.

A fix is kept only if the file still parses, its finding is gone, nothing new is found, and a second run changes
nothing. Edits are insertions and replacements of byte ranges, so every other byte stays.
"""

from __future__ import annotations

import ast
import difflib
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from prefixlint.findings import Applicability, Edit, Finding, Fix

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
        if data is None or (path.endswith(".py") and not _parses(splice(data, edits))):
            return False
    return True


def _parses(data: bytes) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
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
    for edit in sorted(edits, key=lambda e: (e.span.start, e.span.end), reverse=True):
        out = out[: edit.span.start] + edit.text.encode() + out[edit.span.end :]
    return out


def apply(findings: Iterable[Finding], files: Mapping[str, bytes], recheck: Recheck, *, unsafe: bool) -> Fixed:
    """Apply the fixes of findings that do not overlap.

    Those of a file that do not prove themselves are all left out.
    """
    chosen: dict[str, list[Finding]] = defaultdict(list)
    edits: dict[str, list[Edit]] = defaultdict(list)
    before = list(findings)
    for finding in before:
        fix = finding.fix
        if fix is None or (fix.applicability is Applicability.UNSAFE and not unsafe):
            continue
        paths = _by_path(fix.edits)
        if any(_overlap(edit, other) for path, own in paths.items() for edit in own for other in edits[path]):
            continue
        for path, own in paths.items():
            edits[path].extend(own)
        chosen[finding.span.path].append(finding)
    changed = {path: splice(files[path], own) for path, own in edits.items() if own and path in files}
    while changed:
        refused = _refused(before, chosen, recheck(changed))
        if not refused:
            break
        changed = {path: data for path, data in changed.items() if path not in refused}
        for path in refused:
            chosen.pop(path, None)
    applied = tuple(finding for path in sorted(chosen) if path in changed for finding in chosen[path])
    return Fixed(changed, applied)


def _overlap(one: Edit, two: Edit) -> bool:
    return (one.span.start < two.span.end and two.span.start < one.span.end) or one.span == two.span


def _refused(before: Iterable[Finding], chosen: Mapping[str, list[Finding]], after: Iterable[Finding]) -> set[str]:
    """Give the files in which a fix did not remove its finding, or brought a new one."""
    old = Counter((finding.span.path, finding.rule.code) for finding in before)
    new = Counter((finding.span.path, finding.rule.code) for finding in after)
    refused = {path for (path, code), count in new.items() if count > old[path, code] and path in chosen}
    for path, fixed in chosen.items():
        gone = Counter(finding.rule.code for finding in fixed)
        if any(new[path, code] > old[path, code] - count for code, count in gone.items()):
            refused.add(path)
    return refused


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
