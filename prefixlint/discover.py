"""Which files a check reads: walks folders, honours `.gitignore`, leaves out what holds no prompts.

Links to folders are not followed, so a loop of links ends; a link to a file is read where it stands. Files named on the
command line are read even when a pattern excludes them, unless that is asked for (`force`), as pre-commit needs it.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import re
import warnings
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
    ".json .toml .env .sh .bash .zsh .ksh .service .container .ipynb .jsonl .ndjson"
)
"""Endings that some source kind may claim; files without an ending are offered as well."""

_NAMES = re.compile(r"(?:docker|container)file|^\.env\.", re.IGNORECASE)

MAX_BYTES = 5_000_000
"""Larger files are not prompts; they are counted as skipped."""


@dataclass(slots=True)
class Found:
    """The files to lint, as paths relative to `root` with forward slashes; those that were asked for and left out.

    `project` are all files below `root` that a source kind may claim, and whether a pattern leaves them out.
    """

    root: Path
    paths: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    project: dict[str, bool] = field(default_factory=dict)


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
    patterns = tuple(exclude)
    found.project = dict(_tree(root, "", _patterns(patterns)))
    seen: set[str] = set()
    for given in paths or [str(root)]:
        path = Path(os.path.abspath(given))  # noqa: PTH100 (links must stay links)
        relative = _relative(path, root)
        if path.is_dir():
            seen.update(_below(found, relative, patterns, force=force))
        elif not path.exists():
            found.missing.append(given)
        elif relative not in seen:
            left_out = force and _spec(patterns).match_file(relative)
            if left_out:
                found.skipped.append(relative)
            else:
                seen.add(relative)
    found.paths = sorted(seen)
    return found


def _below(found: Found, folder: str, patterns: tuple[str, ...], *, force: bool) -> Iterator[str]:
    """Give the files of a folder that was asked for.

    One that the walk of the root leaves out or never enters is walked by itself, unless `force` says that it must not.
    """
    if not folder:
        return (path for path, left_out in found.project.items() if not left_out)
    if not folder.startswith("/") and ALWAYS.isdisjoint(folder.split("/")):
        start = f"{folder}/"
        inside = {path: left_out for path, left_out in found.project.items() if path.startswith(start)}
        if force or not all(inside.values()):
            return (path for path, left_out in inside.items() if not left_out)
    return (path for path, left_out in _tree(found.root, folder, _patterns(patterns)) if not left_out)


def _relative(path: Path, root: Path) -> str:
    try:
        relative = path.relative_to(root).as_posix()
    except ValueError:
        return path.as_posix()
    return "" if relative == "." else relative


@cache
def _spec(patterns: tuple[str, ...]) -> Any:
    """Give what git would make of lines; one that is no pattern is passed over, as git does."""
    import pathspec

    with _undisturbed():
        try:
            return pathspec.GitIgnoreSpec.from_lines(patterns)
        except (ValueError, re.error):
            return pathspec.GitIgnoreSpec.from_lines(filter(_valid, patterns))


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Keep quiet about what somebody's pattern, `[[` in a set, may mean in a later Python."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield


def _valid(line: str) -> bool:
    import pathspec

    try:
        pathspec.GitIgnoreSpec.from_lines([line])
    except (ValueError, re.error):
        return False
    return True


_NAME_ONLY = re.compile(r"[\w.*?@+,=~-]+/?")
"""Patterns that look at a name alone, in which `fnmatch` and git agree."""


@dataclass(frozen=True, slots=True)
class _Patterns:
    """The lines of a `.gitignore`, as three expressions: many times as fast as one for each line.

    `names` look at the name of a file or folder, `folders` at that of a folder, `paths` at the whole path. Where a `!`
    takes something back, `spec` has the last word about what one of them hits.
    """

    names: re.Pattern[str] | None
    folders: re.Pattern[str] | None
    paths: re.Pattern[str] | None
    spec: Any

    def hit(self, path: str, name: str, *, folder: bool) -> bool:
        """Tell whether a path, relative to the file's folder, is left out; the folders above are not looked at."""
        if folder:
            path += "/"
        found = (
            (self.names is not None and self.names.match(name))
            or (folder and self.folders is not None and self.folders.match(name))
            or (self.paths is not None and self.paths.match(path))
        )
        return bool(found and (self.spec is None or self.spec.match_file(path)))


@cache
def _patterns(lines: tuple[str, ...]) -> _Patterns:
    with _undisturbed():
        return _compiled(lines)


def _compiled(lines: tuple[str, ...]) -> _Patterns:
    kept = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    hiding = [line for line in kept if not line.startswith("!")]
    simple = [line for line in hiding if _NAME_ONLY.fullmatch(line) and line.strip("./")]
    others = [line for line in hiding if line not in set(simple)]
    names = [fnmatch.translate(line) for line in simple if not line.endswith("/")]
    folders = [fnmatch.translate(line.removesuffix("/")) for line in simple if line.endswith("/")]
    patterns = _spec(tuple(others)).patterns if others else ()
    paths = [_GROUP.sub("(?:", each.regex.pattern) for each in patterns if each.regex is not None]
    return _Patterns(
        _any_of(names), _any_of(folders), _any_of(paths), _spec(lines) if len(hiding) < len(kept) else None
    )


_GROUP = re.compile(r"\(\?P<\w+>")


def _any_of(expressions: Sequence[str]) -> re.Pattern[str] | None:
    return re.compile("|".join(expressions)) if expressions else None


_Ignores = list[tuple[str, _Patterns]]


def _tree(root: Path, below: str, exclude: _Patterns) -> Iterator[tuple[str, bool]]:
    """Give the files below a folder, and whether `exclude` leaves them out; never those that `.gitignore` files do."""
    stack = [(below, _ignores(root, below), False)]
    while stack:
        folder, ignores, left_out = stack.pop()
        try:
            entries = list(os.scandir(f"{root}/{folder}" if not folder.startswith("/") else folder))
        except OSError:
            continue
        if folder != below and any(entry.name == ".gitignore" for entry in entries):
            ignores = [*ignores, *_gitignore(root, folder)]
        for entry in entries:
            name = entry.name
            path = f"{folder}/{name}" if folder else name
            is_folder = entry.is_dir(follow_symlinks=False)
            if (name in ALWAYS if is_folder else not _claimable(name)) or _ignored(path, name, ignores, is_folder):
                continue
            out = left_out or exclude.hit(path, name, folder=is_folder)
            if is_folder:
                stack.append((path, ignores, out))
            elif _is_file(entry):
                yield path, out


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:
        return False


def _claimable(name: str) -> bool:
    dot = name.rfind(".")
    return dot < 0 or name[dot:].lower() in SUFFIXES or _NAMES.search(name) is not None


def _ignores(root: Path, below: str) -> _Ignores:
    out: _Ignores = []
    parts = below.split("/") if below else []
    for size in range(len(parts) + 1):
        out.extend(_gitignore(root, "/".join(parts[:size])))
    return out


def _gitignore(root: Path, folder: str) -> _Ignores:
    path = root / folder / ".gitignore"
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    return [(folder, _patterns(tuple(lines)))]


def _ignored(path: str, name: str, ignores: _Ignores, folder: bool) -> bool:
    return any(
        patterns.hit(path[len(above) + 1 :] if above else path, name, folder=folder) for above, patterns in ignores
    )
