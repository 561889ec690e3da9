"""What a whole run found, on disk, for as long as no file of the project has changed.

The key covers the rules, what was asked for, and the size, inode and times of every file that a run may read; the
change time cannot be set back by a program. A run whose files are younger than the clock can tell apart is not kept.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from prefixlint.declared import Declared
from prefixlint.findings import Applicability, Confidence, Edit, Finding, Fix, Related, Rule, Severity
from prefixlint.lint import Outcome
from prefixlint.prompts import Span
from prefixlint.sources import Diagnostic

SETTLED_NS = 100_000_000
"""Age in nanoseconds from which a file's change time tells any later change: file systems tick every few ms."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A run's outcome, the files that can hold prompts, and what could not be read."""

    outcome: Outcome
    wanted: tuple[str, ...]
    troubles: tuple[Diagnostic, ...]


def key(
    root: Path, paths: Iterable[str], asked: Iterable[str], rules: Mapping[str, Rule], settings: tuple[int, Declared]
) -> bytes | None:
    """Give the key of a run over the project's `paths`, None if one of them is too young to be sure of.

    `settings` are the static tokens that must follow a place, and what the project declares.
    """
    digest = hashlib.blake2b(digest_size=16)
    told = [[r.code, r.name, r.check, int(r.severity), repr(sorted(r.params.items())), r.help] for r in rules.values()]
    digest.update(orjson.dumps([_program(), repr(settings), told]))
    digest.update("\0".join(sorted(asked)).encode(errors="surrogateescape"))
    newest = 0
    for path in sorted(paths):
        try:
            stat = os.stat(f"{root}/{path}" if not path.startswith("/") else path)  # noqa: PTH116 (a stat per file)
        except OSError:
            digest.update(f"{path}\0-\n".encode(errors="surrogateescape"))
            continue
        newest = max(newest, stat.st_ctime_ns, stat.st_mtime_ns)
        line = f"{path}\0{stat.st_size}:{stat.st_ino}:{stat.st_mtime_ns}:{stat.st_ctime_ns}\n"
        digest.update(line.encode(errors="surrogateescape"))
    return digest.digest() if newest < time.time_ns() - SETTLED_NS else None


def _program() -> list[list[int]]:
    """Give size and time of the modules that make findings, so that a changed program finds anew."""
    here = Path(__file__).parent
    folders = (here, here / "checks", here / "sources")
    stats = [entry.stat() for folder in folders for entry in sorted(os.scandir(folder), key=lambda e: e.name)]
    return [[stat.st_size, stat.st_mtime_ns] for stat in stats]


def encode(kept: Kept) -> bytes:
    """Give a run's outcome as JSON."""
    outcome = kept.outcome
    return orjson.dumps(
        {
            "findings": [_finding(each) for each in outcome.findings],
            "errors": outcome.errors,
            "with_prompts": outcome.with_prompts,
            "wanted": kept.wanted,
            "troubles": kept.troubles,
        }
    )


def _finding(found: Finding) -> list[Any]:
    rest = [found.related, found.help, found.fix, found.group, found.masker]
    return [
        *(found.rule.code, found.message, found.span, int(found.severity), int(found.confidence)),
        *(found.tokens_at_risk, *rest),
    ]


def decode(data: bytes, rules: Mapping[str, Rule]) -> Kept:
    """Give what `encode` wrote; KeyError, TypeError or ValueError where it is not that."""
    row = orjson.loads(data)
    outcome = Outcome(
        tuple(_read_finding(each, rules) for each in row["findings"]),
        tuple(Diagnostic(**each) for each in row["errors"]),
        row["with_prompts"],
    )
    return Kept(outcome, tuple(row["wanted"]), tuple(Diagnostic(**each) for each in row["troubles"]))


def _read_finding(row: list[Any], rules: Mapping[str, Rule]) -> Finding:
    code, message, span, severity, confidence, tokens, related, help_, offered, group, masker = row
    return Finding(
        rules[code],
        message,
        Span(**span),
        Severity(severity),
        Confidence(confidence),
        tokens,
        tuple(Related(Span(**each["span"]), each["message"]) for each in related),
        help_,
        None if offered is None else _read_fix(offered),
        None if group is None else Span(**group),
        None if masker is None else Span(**masker),
    )


def _read_fix(row: Mapping[str, Any]) -> Fix:
    edits = tuple(Edit(Span(**edit["span"]), edit["text"]) for edit in row["edits"])
    return Fix(row["title"], edits, Applicability(row["applicability"]))
