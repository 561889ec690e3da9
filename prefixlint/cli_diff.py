"""`prefixlint diff`: where two requests part, what differs behind that, and how much caches could serve."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from prefixlint import cliparts, console
from prefixlint.errors import NoInputError, PrefixlintError, UsageError
from prefixlint.model import Request, Text


@click.command(short_help="First divergence of two requests, and what differs behind it.")
@click.argument("earlier", metavar="A")
@click.argument("later", metavar="B")
@cliparts.prompt_options
@click.option("--text-only", is_flag=True, help="Compare the text alone: no tokens, no verdicts of caches.")
@click.option("--redact", is_flag=True, help="Mask times, ids, addresses and other personal values in what is shown.")
@console.output_options(("text", "json"))
@console.guarded
def diff(earlier: str, later: str, **options: Any) -> None:
    """Compare request A with request B as a prefix cache does: tools before system before messages, markers left out.

    A and B are files that hold one request body (or a plain prompt), or LOG#LINE. Without --model tokens are counted
    with a stand-in tokenizer, which is near enough to compare; the text is compared to the character either way.
    """
    from prefixlint import pairs, reports
    from prefixlint.reports import _diff

    one, two = load(earlier), load(later)
    redactor = console.redactor(personal=options["redact"])
    counting = None if options["text_only"] else cliparts.prompt_settings(options)
    found = pairs.compare(one, two, counting, redactor=redactor)
    if options["report"] == "json":
        shown = _diff.as_json(found)
    else:
        look = reports.Look(
            console.width(), console.wants_color(options["color"], options["output"]), options["verbose"]
        )
        shown = _diff.text(found, (earlier, later), look)
    console.emit(shown, options["output"])


def load(name: str) -> Request:
    """Read a request: a file's only (or first) one, `LOG#LINE`, or a file that is a plain prompt."""
    from prefixlint import logs

    path, mark, number = name.rpartition("#")
    if mark and number.isdigit() and not Path(name).exists():
        _exists(path)
        found = next(iter(logs.fetch([path], [(path, int(number), 0)])), None)
        if found is None:
            raise UsageError(f"{path} has no request at line {number}", slug="no-such-line")
        return found
    _exists(name)
    try:
        requests = [item for item in logs.read([name]) if isinstance(item, Request)]
    except PrefixlintError:
        requests = []
    if requests:
        return requests[0]
    return Request(name, 1, Text(Path(name).read_text(encoding="utf-8", errors="replace")), "text")


def _exists(path: str) -> None:
    if not Path(path).is_file():
        raise NoInputError(f"{path}: no such file", slug="no-input", hint="a file, or LOG#LINE")
