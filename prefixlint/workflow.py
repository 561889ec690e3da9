"""The workflow commands of GitHub Actions, which show annotations at lines of a pull request.

https://docs.github.com/actions/reference/workflow-commands-for-github-actions (read 2026-11)
"""

from __future__ import annotations

from collections.abc import Mapping


def command(name: str, fields: Mapping[str, str], message: str) -> str:
    """Write an annotation (`error`, `warning`, `notice`) as one line; any text stays within it."""
    joined = ",".join(f"{key}={_escaped(value, ':,')}" for key, value in fields.items())
    return f"::{name} {joined}::{_escaped(message, '')}" if joined else f"::{name}::{_escaped(message, '')}"


def _escaped(text: str, more: str) -> str:
    """Escape what ends a command or would begin a second one, and what the terminal that shows a job's log obeys."""
    for character in ("%", "\r", "\n", *more):
        text = text.replace(character, f"%{ord(character):02X}")
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
