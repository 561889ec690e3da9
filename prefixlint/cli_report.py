"""`prefixlint report`: a saved result in another format."""

from __future__ import annotations

import sys
from typing import Any

import click

from prefixlint import console


@click.command(short_help="A saved result (--format json) in another format.")
@click.argument("run", metavar="RUN.json")
@console.output_options(("html", "json", "markdown"), default="html")
@console.guarded
def report(run: str, **settings: Any) -> None:
    """Render RUN.json again, which analyze, check or verify wrote with --format json; - is standard input."""
    from prefixlint import saved

    console.emit(_rendered(saved.load(run, sys.stdin.buffer), settings["report"]), settings["output"])


def _rendered(result: dict[str, Any], form: str) -> str:
    """Give a result as text of that format."""
    if form == "html":
        from prefixlint.reports import html

        return html.document(result)
    if form == "markdown":
        from prefixlint.reports import markdown

        return markdown.document(result)
    from prefixlint.reports import json

    return json.dump(result)
