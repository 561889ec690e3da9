"""Which files a check reads: walks folders, honours `.gitignore`, leaves out what holds no prompts.

Links to folders are not followed, so a loop of links ends; a link to a file is read where it stands. Files named on the
command line are read even when a pattern excludes them, unless that is asked for (`force`), as pre-commit needs it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from prefixlint.wordset import word_set

ALWAYS = word_set(
    ".git .hg .svn .tox .nox .venv venv .eggs __pycache__ node_modules site-packages .mypy_cache "
    ".ruff_cache .pytest_cache .prefixlint_cache .idea .vscode .cache .direnv"
)
"""Folders that are never entered."""

EXCLUDE = (
    *("tests/", "test/", "testing/", "test_*.py", "*_test.py", "conftest.py", "cassettes/", "fixtures/", "snapshots/"),
    *("docs/", "doc/", "docs_src/", "CHANGELOG*", "locale/", "locales/", "build/", "dist/", "migrations/", "*.min.*"),
    *("*.lock", ".github/", ".gitlab/", ".circleci/", "third_party/", "vendor/"),
)
"""Patterns, in the language of `.gitignore`, that are left out unless the configuration says otherwise."""

SUFFIXES = word_set(
    ".py .pyw .j2 .jinja .jinja2 .prompty .prompt .md .mdx .txt .hbs .handlebars .mustache .yaml .yml "
    ".json .toml .sh .bash .zsh .ksh .service .container .ipynb .jsonl .ndjson"
)
"""Endings that some source kind may claim; files without an ending are offered as well."""

_DOCKERFILE = re.compile(r"(?:docker|container)file", re.IGNORECASE)

MAX_BYTES = 5_000_000
"""Larger files are not prompts; they are counted as skipped."""


@dataclass(slots=True)
class Found:
    """The files to lint, as paths relative to `root` with forward slashes; those that were asked for and left out."""

    root: Path
    paths: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


def root_of(start: Path) -> Path:
    """Give the nearest folder above that holds `.git`, a prefixlint.toml, or a pyproject.toml.

    Else the folder itself.
    """
    here = start if start.is_dir() else start.parent
    for folder in (here, *here.parents):
        if any((folder / name).exists() for name in (".git", "prefixlint.toml", "pyproject.toml")):
            return folder
    return here


def find(root: Path, paths: Sequence[str], exclude: Iterable[str] = EXCLUDE, *, force: bool = False) -> Found:
    """Give the files to lint below `paths` (files or folders; relative ones from the current directory)."""
    found = Found(root)
    spec = _spec(tuple(exclude))
    seen: set[str] = set()
    for given in paths or [str(root)]:
        path = Path(os.path.abspath(given))  # noqa: PTH100 (links must stay links)
        relative = _relative(path, root)
        if path.is_dir():
            for each in walk(root, relative, spec):
                if each not in seen:
                    seen.add(each)
                    found.paths.append(each)
        elif not path.exists():
            found.missing.append(given)
        elif relative not in seen:
            seen.add(relative)
            left_out = force and spec.match_file(relative)
            (found.skipped if left_out else found.paths).append(relative)
    found.paths.sort()
    return found


def _relative(path: Path, root: Path) -> str:
    try:
        relative = path.relative_to(root).as_posix()
    except ValueError:
        return path.as_posix()
    return "" if relative == "." else relative


@cache
def _spec(patterns: tuple[str, ...]) -> Any:
    import pathspec

    return pathspec.GitIgnoreSpec.from_lines(patterns)


def walk(root: Path, below: str = "", exclude: Any = None) -> Iterator[str]:
    """Give the files below a folder in order, without what `.gitignore` files or `exclude` leave out."""
    stack = [(below, _ignores(root, below))]
    while stack:
        folder, ignores = stack.pop()
        try:
            entries = sorted(os.scandir(root / folder), key=lambda entry: entry.name)
        except OSError:
            continue
        if folder != below and any(entry.name == ".gitignore" for entry in entries):
            ignores = [*ignores, *_gitignore(root, folder)]
        inner: list[tuple[str, list[tuple[str, Any]]]] = []
        for entry in entries:
            path = f"{folder}/{entry.name}" if folder else entry.name
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in ALWAYS and not _ignored(path + "/", ignores, exclude):
                    inner.append((path, ignores))
            elif _claimable(entry.name) and not _ignored(path, ignores, exclude) and _is_file(entry):
                yield path
        stack.extend(reversed(inner))


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:
        return False


def _claimable(name: str) -> bool:
    dot = name.rfind(".")
    return dot < 0 or name[dot:].lower() in SUFFIXES or _DOCKERFILE.search(name) is not None


def _ignores(root: Path, below: str) -> list[tuple[str, Any]]:
    out: list[tuple[str, Any]] = []
    parts = below.split("/") if below else []
    for size in range(len(parts) + 1):
        out.extend(_gitignore(root, "/".join(parts[:size])))
    return out


def _gitignore(root: Path, folder: str) -> list[tuple[str, Any]]:
    path = root / folder / ".gitignore"
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    return [(folder, _spec(tuple(lines)))]


def _ignored(path: str, ignores: list[tuple[str, Any]], exclude: Any) -> bool:
    if exclude is not None and exclude.match_file(path):
        return True
    for folder, spec in ignores:
        inner = path[len(folder) + 1 :] if folder else path
        if spec.match_file(inner):
            return True
    return False
