"""`prefixlint engine`: an engine's or a provider's cache facts, with their dates and sources, or the list of them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from prefixlint import cliparts, console


@click.command(short_help="An engine's cache facts with their dates and sources, or the list.")
@click.argument("name", required=False, shell_complete=cliparts.completing(cliparts.engine_names))
@console.output_options(("text", "json"))
@console.guarded
def engine(name: str | None, **settings: Any) -> None:
    """Show what is known of an engine's or a provider's prefix cache, from which source and when; or list them.

    NAME may be a file of your own (mine.toml), which is then checked.
    """
    from prefixlint import engines
    from prefixlint.engines import _page

    today = datetime.now(tz=UTC).date()
    if settings["report"] == "json":
        chosen = [engines.load(name)] if name else [engines.load(known) for known in engines.names()]
        console.emit(_page.as_json(chosen, today), settings["output"])
        return
    width = console.width()
    text = _page.page(engines.load(name), today, width) if name else _page.listing(today, width)
    console.emit(text, settings["output"])
