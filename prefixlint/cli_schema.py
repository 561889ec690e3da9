"""`prefixlint schema`: the JSON Schema of an output, or the list of them."""

from __future__ import annotations

import click

from prefixlint import cliparts, console


def _names() -> list[str]:
    from prefixlint import schemas

    return schemas.names()


@click.command(short_help="The JSON Schema of an output, or the list.")
@click.argument("name", required=False, shell_complete=cliparts.completing(_names))
@click.option("-o", "--output", metavar="FILE", help="Write the schema to FILE (atomically), not to stdout.")
@console.guarded
def schema(name: str | None, output: str | None) -> None:
    """Show the JSON Schema (draft 2020-12) of what `prefixlint NAME --format json` writes; or list the schemas.

    `request` is the schema of a line of `analyze --requests-out`.
    """
    from prefixlint import schemas

    if name is not None:
        console.emit(schemas.text(name), output)
        return
    rows = [f"{each:<10}{schemas.load(each)['title']}" for each in schemas.names()]
    console.emit("\n".join(rows) + "\n", output)
