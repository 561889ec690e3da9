"""`prefixlint report`: a saved result in another format."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from prefixlint import console

if TYPE_CHECKING:
    from prefixlint.reports import Look


@click.command(short_help="A saved result (--format json) in another format.")
@click.argument("run", metavar="RUN.json")
@console.output_options(("html", "json", "markdown", "text"), default="html")
@console.guarded
def report(run: str, **settings: Any) -> None:
    """Render RUN.json again, which analyze, check or verify wrote with --format json; - is standard input.

    Text is there for the results of verify, whose JSON holds all that it shows.
    """
    from prefixlint import saved

    result = saved.load(run, sys.stdin.buffer)
    console.emit(_rendered(result, settings["report"], console.look(settings)), settings["output"])


def _rendered(result: dict[str, Any], form: str, look: Look) -> str:
    """Give a result as text of that format."""
    if form == "text":
        from prefixlint import runs
        from prefixlint.reports import _verify

        return _verify.text(runs.from_json(result), look)
    if form == "html":
        from prefixlint.reports import html

        return html.document(result)
    if form == "markdown":
        from prefixlint.reports import markdown

        return markdown.document(result)
    from prefixlint.reports import json

    return json.dump(result)
