"""A whole check: configuration, files, findings, what silences them, fixes. The command line shows what this gives."""

from __future__ import annotations

import contextlib
import stat
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from prefixlint import discover, fix, lint, logchecks, moves, outcomecache, rulebook, sinkcheck, sources, suppress
from prefixlint.callers import Callers
from prefixlint.declared import NOTHING, Declared
from prefixlint.discover import Found
from prefixlint.errors import NoInputError
from prefixlint.fillers import fillers
from prefixlint.findings import At, Finding, Fix, Rule
from prefixlint.link import Linked, link
from prefixlint.lintconfig import LintConfig
from prefixlint.outcomecache import Kept
from prefixlint.project import Project
from prefixlint.prompts import Span
from prefixlint.sources import Diagnostic, SourceFile, Summary, notebook
from prefixlint.summarycache import SummaryCache


@dataclass(frozen=True, slots=True)
class Base:
    """What a change is held against: a revision, and the findings there that are no more, with their files' bytes."""

    ref: str
    gone: tuple[Finding, ...]
    files: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What a check found. `files` holds the bytes of each file that a finding names, as they were linted.

    `base` is None unless only what a change brought was asked for.
    """

    findings: tuple[Finding, ...]
    suppressed: tuple[Finding, ...]
    errors: tuple[Diagnostic, ...]
    files: Mapping[str, bytes]
    scanned: int
    with_prompts: int
    skipped: int
    root: Path
    base: Base | None = None


@dataclass(slots=True)
class _Files:
    """Bytes of a project's files, read once."""

    root: Path
    data: dict[str, bytes] = field(default_factory=dict)
    declared: Declared = NOTHING
    errors: list[Diagnostic] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)

    def source(self, path: str) -> SourceFile | None:
        data = self.read(path)
        return None if data is None else SourceFile(path, data, self.declared)

    def read(self, path: str) -> bytes | None:
        if path not in self.data and path not in self.refused:
            try:
                self.data[path] = self._bytes(path)
            except _RefusedError as error:
                self.refused.add(path)
                self.errors.append(Diagnostic(path, 0, error.slug, str(error)))
            except OSError as error:
                self.refused.add(path)
                message = f"cannot be read: {error.strerror or error}"
                self.errors.append(Diagnostic(path, 0, "unreadable", message))
        return self.data.get(path)

    def _bytes(self, path: str) -> bytes:
        full = self.root / path
        status = full.stat()
        if not stat.S_ISREG(status.st_mode):
            raise _RefusedError("not-a-file", "no file but a pipe or a device: not read")
        if status.st_size > discover.MAX_BYTES:
            raise _RefusedError("too-large", f"larger than {discover.MAX_BYTES:,} bytes: not read")
        return full.read_bytes()


class _RefusedError(Exception):
    """A file that is not read, and why."""

    def __init__(self, slug: str, message: str) -> None:
        super().__init__(message)
        self.slug = slug


def enabled(config: LintConfig, known: Mapping[str, Rule]) -> dict[str, Rule]:
    """Give the rules that a configuration switches on."""
    on = rulebook.matching(config.select, known) - rulebook.matching(config.ignore, known)
    return {code: rule for code, rule in known.items() if code in on}


def check(
    paths: Sequence[str],
    config: LintConfig,
    *,
    root: Path,
    force_exclude: bool = False,
    cache: bool = True,
    known: Mapping[str, Rule] | None = None,
    overrides: Mapping[str, bytes] | None = None,
    moves_: bool = False,
) -> CheckResult:
    """Check files and folders; `overrides` are bytes to read instead of those on disk.

    With `moves_`, findings carry moves of text as fixes: they take a second reading of each file.
    """
    rules = rulebook.rules() if known is None else known
    chosen = enabled(config, rules)
    exclude = (*config.exclude, *config.extend_exclude)
    found = discover.find(root, paths, exclude, force=force_exclude)
    if not found.paths and not found.skipped:
        what = f"{found.missing[0]}: no such file or folder" if found.missing else "no files to check"
        raise NoInputError(what, slug="no-input")
    files = _Files(root, dict(overrides or {}), config.declared)
    store = SummaryCache(root if cache else None)
    try:
        logged, troubles = _logs(found, chosen)
        kept = _kept(found, files, store, chosen, config.min_tokens, changed=bool(overrides))
    finally:
        store.close()
    wanted, outcome = kept.wanted, kept.outcome
    missing = [Diagnostic(path, 0, "no-such-file", "no such file or folder") for path in found.missing]
    touched = {path: data for path in wanted if (data := files.read(path)) is not None}
    for finding in outcome.findings:
        for span in (finding.span, *(related.span for related in finding.related)):
            data = files.read(span.path)
            if data is not None:
                touched[span.path] = data
    only = _below([*outcome.findings, *logged], found.paths)
    only = [f if f.fix is None or fix.valid(f.fix, touched) else replace(f, fix=None) for f in only]
    if moves_:
        only = [replace(f, fix=f.fix or moves.offer(f, touched.get(f.group.path, b""))) if f.group else f for f in only]
    left, silenced = suppress.apply(only, {p: touched[p] for p in touched if p in set(found.paths)}, rules, chosen)
    left, patterned = _per_file(left, config, rules)
    left = _numbered(left, touched)
    silenced = _numbered([*silenced, *patterned], touched)
    if config.baseline is not None:
        known_prints = suppress.read_baseline((root / config.baseline).read_text(encoding="utf-8"), config.baseline)
        left, old = suppress.by_baseline(left, known_prints)
        silenced = [*silenced, *old]
    errors = tuple(
        sorted(
            (*outcome.errors, *_of(found.paths, files.errors), *missing, *troubles),
            key=lambda d: (d.path, d.line, d.slug),
        )
    )
    return CheckResult(
        findings=tuple(left),
        suppressed=tuple(silenced),
        errors=errors,
        files=touched,
        scanned=len(found.paths),
        with_prompts=outcome.with_prompts,
        skipped=len(found.skipped),
        root=root,
    )


def _kept(
    found: Found, files: _Files, store: SummaryCache, rules: Mapping[str, Rule], tokens: int, *, changed: bool
) -> Kept:
    """Give the outcome of the run before if no file has changed since, else run; `changed` files are never kept."""
    everything = {*found.project, *found.paths}
    keeps = store.open and not changed
    key = outcomecache.key(found.root, everything, found.paths, rules, (tokens, files.declared)) if keeps else None
    row = None if key is None else store.outcome(key)
    if row is not None:
        with contextlib.suppress(KeyError, TypeError, ValueError):
            kept = outcomecache.decode(row, rules)
            files.errors.extend(kept.troubles)
            return kept
    wanted, project = _project(found, everything, files, store)
    outcome = lint.run(project, wanted, rules, tokens, Callers(everything, files.read))
    outcome = replace(outcome, errors=(*outcome.errors, *sinkcheck.problems(files.declared, project)))
    kept = Kept(outcome, tuple(wanted), tuple(files.errors))
    if key is not None and not any(error.slug == "check-crashed" for error in kept.outcome.errors):
        with contextlib.suppress(TypeError):  # a path that is not UTF-8 cannot be kept
            store.keep(key, outcomecache.encode(kept))
    return kept


def linked(paths: Sequence[str], config: LintConfig, *, root: Path, cache: bool = True) -> Linked:
    """Give the prompts that files and folders hold, as a check sees them, without judging them."""
    found = discover.find(root, paths, (*config.exclude, *config.extend_exclude))
    files = _Files(root, declared=config.declared)
    store = SummaryCache(root if cache else None)
    try:
        wanted, project = _project(found, {*found.project, *found.paths}, files, store)
        return link(project, wanted)
    finally:
        store.close()


def since(result: CheckResult, before: CheckResult, ref: str) -> CheckResult:
    """Silence the findings that a revision had already, and say which of its findings are no more."""
    left, old = suppress.by_baseline(result.findings, frozenset(finding.fingerprint for finding in before.findings))
    silenced = (*result.suppressed, *(replace(finding, reason=f"not new since {ref}") for finding in old))
    now = {finding.fingerprint for finding in (*result.findings, *result.suppressed)}
    gone = tuple(finding for finding in before.findings if finding.fingerprint not in now)
    return replace(result, findings=tuple(left), suppressed=silenced, base=Base(ref, gone, before.files))


def _project(found: Found, everything: set[str], files: _Files, store: SummaryCache) -> tuple[list[str], Project]:
    """Give the files that can hold prompts, and the project around them, its callers read."""

    def load(path: str) -> Summary | None:
        file = files.source(path)
        return None if file is None else store.summary(file)

    wanted = []
    for path in found.paths:
        if path.lower().endswith(logchecks.ENDINGS):
            continue
        file = files.source(path)
        if file is None:
            continue
        kind = sources.kind_of(file)
        if kind is not None and kind.wanted(file):
            wanted.append(path)
    project = Project(everything, load)
    sources_ = [path for path, left_out in found.project.items() if not left_out]
    for path in fillers(sources_, found.paths, wanted, files.read):
        project.summary(path)
    return wanted, project


def _logs(found: Found, rules: Mapping[str, Rule]) -> tuple[list[Finding], list[Diagnostic]]:
    """Give what the rules find in request logs, and the lines of them that cannot be read."""
    findings: list[Finding] = []
    troubles: list[Diagnostic] = []
    for path in found.paths:
        if not logchecks.is_log(found.root / path):
            continue
        for item in logchecks.examine(found.root / path, path, rules):
            if isinstance(item, Finding):
                findings.append(item)
            else:
                troubles.append(Diagnostic(path, item.line, item.slug, item.reason))
    return findings, troubles


def _of(paths: Iterable[str], errors: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Leave out what could not be read of files that were only looked at for what they say about the asked ones."""
    asked = set(paths)
    return [error for error in errors if error.path in asked]


def _below(findings: Iterable[Finding], paths: Sequence[str]) -> list[Finding]:
    """Keep findings that touch a file that was asked for: at their own place, or at a related one."""
    asked = set(paths)
    return [f for f in findings if f.span.path in asked or any(r.span.path in asked for r in f.related)]


def _per_file(
    findings: Iterable[Finding], config: LintConfig, rules: Mapping[str, Rule]
) -> tuple[list[Finding], list[Finding]]:
    if not config.per_file_ignores:
        return list(findings), []
    import pathspec

    patterns = [
        (pathspec.GitIgnoreSpec.from_lines([pattern]), rulebook.matching(codes, rules), pattern)
        for pattern, codes in sorted(config.per_file_ignores.items())
    ]
    left, silenced = [], []
    for finding in findings:
        hit = next(
            (p for spec, codes, p in patterns if finding.rule.code in codes and spec.match_file(finding.span.path)),
            None,
        )
        if hit is None:
            left.append(finding)
        else:
            silenced.append(replace(finding, reason=f"per-file-ignores: {hit}"))
    return left, silenced


def _numbered(findings: Iterable[Finding], files: Mapping[str, bytes]) -> list[Finding]:
    """Give findings in order with fingerprints, and the fingerprint of what masks them."""
    ordered = sorted(findings, key=_place)
    seen: Counter[str] = Counter()
    prints = [f.fingerprint or suppress.fingerprint(f, files.get(f.span.path, b""), seen) for f in ordered]
    by_group: dict[Span, str] = {}
    for finding, digest in zip(ordered, prints, strict=True):
        by_group.setdefault(finding.group or finding.span, digest)
    return [
        replace(finding, fingerprint=digest, masked_by=finding.masked_by or _masked_by(finding, by_group))
        for finding, digest in zip(ordered, prints, strict=True)
    ]


def _place(finding: Finding) -> tuple[str, int, int, str, int]:
    at = finding.at
    return finding.span.path, finding.span.start, at.line if at is not None else 0, finding.rule.code, finding.span.end


def _masked_by(finding: Finding, by_group: Mapping[Span, str]) -> str | None:
    return by_group.get(finding.masker) if finding.masker else None


def as_json(result: CheckResult) -> dict[str, Any]:
    """Give the result as the documented JSON."""
    return {
        "schema": "prefixlint.check/1",
        "findings": [finding_json(finding, result.files) for finding in result.findings],
        "suppressed": [
            {**finding_json(finding, result.files), "reason": finding.reason} for finding in result.suppressed
        ],
        "errors": [
            {"path": error.path, "line": error.line, "slug": error.slug, "message": error.message}
            for error in result.errors
        ],
        "files": {"scanned": result.scanned, "with_prompts": result.with_prompts, "skipped": result.skipped},
        "base": None if result.base is None else _base_json(result.base),
    }


def _base_json(base: Base) -> dict[str, Any]:
    return {"ref": base.ref, "gone": [finding_json(finding, base.files) for finding in base.gone]}


def position(data: bytes, offset: int) -> tuple[int, int]:
    """Give the 1-based line and column (in characters) of a byte."""
    start = data.rfind(b"\n", 0, offset) + 1
    return data.count(b"\n", 0, offset) + 1, len(data[start:offset].decode("utf-8", "replace")) + 1


def finding_json(finding: Finding, files: Mapping[str, bytes]) -> dict[str, Any]:
    """Give a finding as the documented JSON."""
    data = files.get(finding.span.path, b"")
    line, column = position(data, finding.span.start)
    end_line, end_column = position(data, finding.span.end)
    offered, at = finding.fix, finding.at
    if at is not None:
        line = end_line = at.line
    cell = notebook.cell_of(data, finding.span.start) if finding.span.path.endswith(".ipynb") else None
    return {
        "rule": finding.rule.code,
        "name": finding.rule.name,
        "severity": finding.severity.word,
        "confidence": finding.confidence.word,
        "path": finding.span.path,
        "line": line,
        "column": column,
        "end_line": end_line,
        "end_column": end_column,
        "message": finding.message,
        "excerpt": _excerpt(finding, data),
        "tokens_at_risk": finding.tokens_at_risk,
        "masked_by": finding.masked_by,
        "fingerprint": finding.fingerprint,
        "related": [
            *(_related(related.span, related.message, files) for related in finding.related),
            *(_also(finding.span.path, other) for other in finding.also),
        ],
        "fix": None if offered is None else _fix_json(offered),
        "at": None if at is None else {"line": at.line, "other_line": at.other_line, "path": at.path, "char": at.char},
        "values": list(finding.values) or None,
        "requests": finding.requests,
        "tokens_lost": None,
        **({"cell": {"number": cell[0], "line": cell[1]}} if cell else {}),
    }


def _excerpt(finding: Finding, data: bytes) -> str:
    if finding.at is not None:
        return next((value for value in reversed(finding.values) if value), "")
    return data[finding.span.start : finding.span.end].decode("utf-8", "replace")[:200]


def _also(path: str, at: At) -> dict[str, Any]:
    message = f"also here, compared with line {at.other_line}: {at.path}, character {at.char}"
    return {"path": path, "line": at.line, "column": 1, "message": message}


def _fix_json(offered: Fix) -> dict[str, Any]:
    edits = [{"path": e.span.path, "start": e.span.start, "end": e.span.end, "text": e.text} for e in offered.edits]
    return {"title": offered.title, "applicability": offered.applicability.value, "edits": edits}


def _related(span: Span, message: str, files: Mapping[str, bytes]) -> dict[str, Any]:
    data = files.get(span.path, b"")
    (line, column), (end_line, end_column) = position(data, span.start), position(data, span.end)
    place = {"line": line, "column": column, "end_line": end_line, "end_column": end_column}
    return {"path": span.path, **place, "message": message}
