"""`prefixlint explain`: one request of a log, from its text to its hits."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import Any

import click

from prefixlint import cliparts, console
from prefixlint.errors import NoInputError, UsageError

_HELD = "\0"  # no argument can hold it


class _Placed(click.Command):
    """A command whose argument may be `-#5`, a line of standard input, which looks like an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep such an argument from being read as an option."""
        return super().parse_args(ctx, [_HELD + arg if arg.startswith("-#") else arg for arg in args])


@click.command(cls=_Placed, short_help="One request: its tokens, its hits, what it should have matched.")
@click.argument("place", metavar="LOG#LINE")
@cliparts.prompt_options
@cliparts.limit_options
@click.option("--log-format", metavar="NAME", help="Read the log as this format instead of recognising it.")
@click.option("--sort", type=click.Choice(("time", "file")), help="Order of use [default: time where all have one].")
@click.option("--redact", is_flag=True, help="Mask times, ids, addresses and other personal values in what is shown.")
@console.output_options(("text", "json"))
@console.guarded
def explain(place: str, **settings: Any) -> None:
    """Explain the request at LINE of LOG: its prompt, what each cache serves of it, and what it should have matched.

    The log is read as a whole, since what a request finds depends on those before it. LINE is counted from 1; in a
    whole-file JSON document it is the number of the record, and LINE.PART names one of several requests in a line.
    """
    cliparts.load_numpy()
    from prefixlint import explain as explaining
    from prefixlint.reports import _explain

    path, line, part = _place(place.removeprefix(_HELD))
    if cliparts.is_named(settings["capacity"]):
        raise UsageError("--capacity is a number of tokens here", slug="bad-capacity", hint="like 400000 or 400k")
    options = replace(
        cliparts.prompt_settings(settings),
        log_format=settings["log_format"],
        order=settings["sort"],
        redact=settings["redact"],
        mask_salt=console.mask_salt(),
        limits=cliparts.limits(settings),
    )
    found = explaining.explain(path, line, part, options, stdin=sys.stdin.buffer)
    shown = _explain.as_json(found) if settings["report"] == "json" else _explain.text(found, console.look(settings))
    console.emit(shown, settings["output"])


def _place(text: str) -> tuple[str, int, int]:
    from prefixlint import operands

    found = operands.place(text)
    if found is None:
        raise UsageError(f"{text} names no request", slug="no-line", hint="like requests.jsonl#12")
    if found[0] != "-" and not os.path.exists(found[0]):  # noqa: PTH110 - unlike Path.exists, False for a long name
        raise NoInputError(f"{found[0]}: no such file", slug="no-input", hint="LOG#LINE, like requests.jsonl#12")
    return found
