"""Where a finding stands, in the terms of reports: paths from the repository, lines and columns from 1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from prefixlint.checkrun import position
from prefixlint.findings import At
from prefixlint.prompts import Span


@dataclass(frozen=True, slots=True)
class Region:
    """From a line and column to just before another; all from 1, columns in characters."""

    line: int
    column: int
    end_line: int
    end_column: int


def region(span: Span, files: Mapping[str, bytes], at: At | None = None) -> Region:
    """Give the region of a span; of a place in a log, which may be compressed, the line that it names."""
    if at is not None:
        return Region(at.line, 1, at.line, 1)
    data = files.get(span.path, b"")
    return Region(*position(data, span.start), *position(data, span.end))


def repository_of(root: Path) -> Path:
    """Give the folder of the git repository that `root` is in, `root` itself where there is none."""
    return next((folder for folder in (root, *root.parents) if (folder / ".git").exists()), root)


def from_base(path: str, root: Path, base: Path) -> str:
    """Give a path of a result (from `root`, or absolute) from `base`, absolute where it is not below it."""
    full = root / path
    try:
        return full.relative_to(base).as_posix()
    except ValueError:
        return full.as_posix()
