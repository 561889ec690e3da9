"""A result of `check`, fresh or saved, in each of its formats."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prefixlint.checkrun import CheckResult
    from prefixlint.reports import Look


def shown(result: CheckResult, form: str, look: Look, *, statistics: bool = False) -> str:
    """Give a result as text, json, sarif, github, markdown or html; only what that format needs is imported."""
    if form == "github":
        from prefixlint.checkgithub import github

        return github(result, verbose=look.verbose)
    if form == "text":
        from prefixlint.checktext import text

        return text(result, width=look.width, color=look.color, verbose=look.verbose, statistics=statistics)
    from prefixlint.reports.json import dump

    if form == "sarif":
        from prefixlint.checksarif import sarif

        return dump(sarif(result))
    from prefixlint import checkrun

    document = checkrun.as_json(result)
    if form == "html":
        from prefixlint.reports import html

        return html.document(document)
    if form == "markdown":
        from prefixlint.reports import markdown

        return markdown.document(document)
    return dump(document)
