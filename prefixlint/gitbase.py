"""Files as they were in a git revision, so that a check can tell what a change brought."""

from __future__ import annotations

import subprocess
from pathlib import Path

from prefixlint.errors import UsageError


def before(root: Path, ref: str) -> dict[str, bytes]:
    """Give the bytes that changed files had where HEAD and `ref` parted; of files that were not there, none.

    Paths are relative to `root`. Changes that are not committed, and files that git does not know, count as well.
    """
    commit = _git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}").decode().strip()
    base = _git(root, "merge-base", commit, "HEAD").decode().strip()
    changed = _git(root, "diff", "--name-only", "-z", "--no-renames", "--relative", "--no-ext-diff", base, "--")
    fresh = _git(root, "ls-files", "-z", "--others", "--exclude-standard")
    known = set(_git(root, "ls-tree", "-r", "-z", "--name-only", base).split(b"\0"))
    paths = [path for path in (changed + fresh).split(b"\0") if path]
    return {
        path.decode("utf-8", "surrogateescape"): _git(
            root, "show", f"{base}:./{path.decode('utf-8', 'surrogateescape')}"
        )
        if path in known
        else b""
        for path in paths
    }


def _git(root: Path, *args: str) -> bytes:
    """Run git; a watcher that the repository's own settings name is not started."""
    try:
        done = subprocess.run(  # noqa: S603 (no shell, and a revision cannot be read as an option)
            ["git", "-c", "core.fsmonitor=false", "-C", str(root), *args],  # noqa: S607 (the user's git)
            capture_output=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except OSError as error:
        raise UsageError(f"git cannot be run: {error}", slug="diff-base") from None
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip() or "git does not know it as a commit"
        raise UsageError(
            f"--diff-base: {said}", slug="diff-base", hint="name a commit, branch or tag of this repository"
        )
    return done.stdout
