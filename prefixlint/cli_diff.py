"""`prefixlint diff`: where two requests part, what differs behind that, and how much caches could serve."""

from __future__ import annotations

from typing import Any

import click

from prefixlint import cliparts, console


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
    if not options["text_only"]:
        cliparts.load_numpy()
    from prefixlint import operands, pairs
    from prefixlint.reports import _diff

    one, two = operands.load(earlier), operands.load(later)
    redactor = console.redactor(personal=options["redact"])
    counting = None if options["text_only"] else cliparts.prompt_settings(options)
    found = pairs.compare(one, two, counting, redactor=redactor)
    if options["report"] == "json":
        shown = _diff.as_json(found, (earlier, later))
    else:
        shown = _diff.text(found, (earlier, later), console.look(options))
    console.emit(shown, options["output"])
