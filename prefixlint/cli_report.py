"""`prefixlint report`: a saved result in another format."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from prefixlint import cliparts, console
from prefixlint.errors import UsageError

if TYPE_CHECKING:
    from prefixlint.reports import Look

_ALL = cliparts.report_formats()
_FORMATS = {"analyze": _ALL, "check": cliparts.FORMATS, "verify": ("text", "json", "markdown", "html")}
"""What each command writes, and so what is made of its saved results, where that is not text and JSON only."""
_MOST = 8 << 20  # bytes of a source file whose lines are shown again


@click.command(short_help="A saved result (--format json) in another format.")
@click.argument("run", metavar="RUN.json")
@console.output_options(_ALL)
@console.guarded
def report(run: str, **settings: Any) -> None:
    """Render RUN.json again, which a command wrote with --format json; - is standard input.

    Every format that the command writes can be made of its saved result. Of a saved check the lines of the sources are
    shown where the files below the current folder still hold what was found, else the excerpts are.
    """
    from prefixlint import saved

    cliparts.keep_apart([run], settings["output"])
    result = saved.load(run, sys.stdin.buffer)
    form = settings["report"]
    kind = _kind(run, str(result["schema"]))
    known = _FORMATS.get(kind, ("text", "json") if kind in _TEXTS else ("json",))
    if form not in known:
        raise UsageError(
            f"{run} is a result of {kind}, which has no {form} form",
            slug="no-such-form",
            hint=f"its formats: {', '.join(known)}",
        )
    with saved.read_as(kind):
        text = _rendered(result, kind, form, console.look(settings))
    console.emit(text, settings["output"])


def _kind(run: str, schema: str) -> str:
    """Give the command that wrote a result of that schema."""
    from prefixlint import schemas

    name, _, number = schema.removeprefix("prefixlint.").partition("/")
    if number != "1" or name not in schemas.names():
        known = ", ".join(f"prefixlint.{one}/1" for one in sorted(_FORMATS))
        raise UsageError(f"{run}: {schema} is not known here", slug="bad-result", hint=f"known schemas: {known}")
    return name


def _rendered(result: dict[str, Any], kind: str, form: str, look: Look) -> str:
    """Give a result as text of that format."""
    if form == "json":
        from prefixlint.reports import json

        return json.dump(result)
    if form in ("html", "markdown"):  # these are made of the JSON
        from prefixlint.reports import html, markdown

        return html.document(result) if form == "html" else markdown.document(result)
    if kind in _TEXTS:
        return _TEXTS[kind](result, look)
    if kind == "check":
        return _check(result, form, look)
    from prefixlint import reports
    from prefixlint.reports import _restored

    return reports.load(form).analysis(_restored.analysis(result), look)


def _verify(result: dict[str, Any], look: Look) -> str:
    from prefixlint import runs
    from prefixlint.reports import _verify

    return _verify.text(runs.from_json(result), look)


def _diff(result: dict[str, Any], look: Look) -> str:
    from prefixlint.reports import _diff

    return _diff.text(*_diff.restored(result), look)


def _assert(result: dict[str, Any], look: Look) -> str:
    from prefixlint import sharing

    return sharing.text(*sharing.restored(result), look)


def _explain(result: dict[str, Any], look: Look) -> str:
    from prefixlint.reports import _explain

    return _explain.text(_explain.restored(result), look)


def _probe(result: dict[str, Any], look: Look) -> str:
    from prefixlint.verify import probetext

    return probetext.text(probetext.restored(result), look)


def _watch(result: dict[str, Any], look: Look) -> str:
    from prefixlint.verify import watchtext

    return watchtext.saved_text(result, look)


_TEXTS: Mapping[str, Callable[[dict[str, Any], Look], str]] = {
    "verify": _verify,
    "diff": _diff,
    "assert": _assert,
    "explain": _explain,
    "probe": _probe,
    "watch": _watch,
}


def _check(result: dict[str, Any], form: str, look: Look) -> str:
    from prefixlint import checkforms, checksaved

    root = Path.cwd()
    checked = checksaved.result(result, root, lambda path: _source(root, path))
    return checkforms.shown(checked, form, look)


def _source(root: Path, path: str) -> bytes | None:
    """Read a file below the current folder; None for any other, since a result may come from strangers."""
    try:
        full = (root / path).resolve(strict=True)
        full.relative_to(root.resolve())
        return full.read_bytes() if full.is_file() and full.stat().st_size <= _MOST else None
    except (OSError, ValueError):
        return None
