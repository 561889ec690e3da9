"""`prefixlint assert`: a test, in any language's CI, that two prompts share a prefix."""

from __future__ import annotations

from typing import Any

import click

from prefixlint import cliparts, console
from prefixlint.errors import UsageError


@click.command("assert", short_help="Fail unless two prompts share a prefix of a stated length.")
@click.argument("earlier", metavar="A")
@click.argument("later", metavar="B")
@click.option("--min-shared", metavar="SHARE|N", help="The prefix of B that A must have: 0.9 or 90% of B, or N tokens.")
@click.option("--max-tokens", type=click.IntRange(min=1), metavar="N", help="The most tokens that A and B may have.")
@cliparts.prompt_options
@click.option("--text-only", is_flag=True, help="Count characters instead of tokens.")
@click.option("--redact", is_flag=True, help="Mask times, ids, addresses and other personal values in what is shown.")
@console.output_options(("text", "json"))
@console.guarded
def check_shared(earlier: str, later: str, **options: Any) -> None:
    """Fail with exit code 1 unless request B begins as A does, so far that a cache could serve what is stated.

    A and B are files that hold a rendered prompt or a request body, or LOG#LINE. Where it fails, the place at which
    they part is shown as `prefixlint diff` shows it.
    """
    if not options["text_only"]:
        cliparts.load_numpy()
    from prefixlint import operands, sharing
    from prefixlint.reports.json import dump

    wanted = sharing.Wanted(_least(options["min_shared"]), options["max_tokens"])
    one, two = (operands.load(name, rendered=True) for name in (earlier, later))
    counting = None if options["text_only"] else cliparts.prompt_settings(options)
    judged = sharing.judge(one, two, wanted, counting, redactor=console.redactor(personal=options["redact"]))
    if options["report"] == "json":
        shown = dump(sharing.as_json(judged, (earlier, later)))
    else:
        shown = sharing.text(judged, (earlier, later), console.look(options))
    console.emit(shown, options["output"])
    if judged.failures:
        raise SystemExit(1)


def _least(text: str | None) -> float | int | None:
    """Read `0.9`, `90%` (shares of B) or `1200` (tokens)."""
    if text is None:
        return None
    try:
        if text.endswith("%"):
            return float(text[:-1]) / 100
        return int(text.replace(",", "").replace("_", "")) if "." not in text else float(text)
    except ValueError:
        raise UsageError(
            f"--min-shared {text} is no share and no number of tokens", slug="bad-share", hint="0.9, 90% or 1200"
        ) from None
