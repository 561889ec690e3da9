"""`prefixlint probe`: the rules of a running server's prefix cache, found by small experiments."""

from __future__ import annotations

import os
import random
import sys
from typing import Any

import click

from prefixlint import cliparts, console
from prefixlint.errors import ServerError


@click.command(short_help="A running server's cache rules, found by small salted experiments.")
@click.argument("url")
@click.option(
    "--engine", metavar="NAME", help="The kind of server: sglang, vllm, llama.cpp, openai [default: found out]."
)
@click.option(
    "--profile", metavar="NAME|FILE.toml", help="The rules to compare with [default: those of the server's kind]."
)
@click.option("--wait", type=click.FloatRange(min=0), default=2.0, metavar="S", show_default=True,
              help="Seconds for which an entry is left alone, to see whether it stays.")  # fmt: skip
@click.option("--plan", is_flag=True, help="Say what would be sent, and send nothing.")
@cliparts.server_options
@console.output_options(("text", "json"))
@click.pass_context
@console.guarded
def probe(ctx: click.Context, url: str, **settings: Any) -> None:
    """Find out how the prefix cache of the server at URL counts, and compare it with the profile of its engine.

    Granularity, last-token rule, minimum, what is stored, from when it can be found, whether namespaces separate, and
    whether cached tokens are reported. Sends a few dozen prompts of some hundred tokens, which share nothing with those
    of others; empties nothing. Exit 1 where a rule is another than the profile or the server itself says.
    """
    from prefixlint import engines
    from prefixlint.verify import probe as probing
    from prefixlint.verify import probetext, targets
    from prefixlint.verify.asker import Asker

    profile = engines.load(settings["profile"]) if settings["profile"] else None
    with cliparts.server(url, settings) as server:
        kind = targets.detect(server, settings["engine"])
        about = kind.about(server)
        if profile is None and about.engine is not None:
            profile = engines.load(about.engine)
        plan = probing.plan(kind, about, settings["wait"])
        if settings["plan"]:
            console.emit(plan + "\n", settings["output"])
            return
        if not settings["quiet"]:
            click.echo(plan, err=True)
        salt = f"prefixlint-probe-{os.urandom(8).hex()}"
        asker = Asker(server, kind, about, rng=random.Random(os.urandom(16)), salt=salt)  # noqa: S311 - no secret
        engine = profile.for_model(about.model) if profile else None
        progress = _Progress(quiet=settings["quiet"])
        found = probing.probe(asker, kind, about, engine, server.url, wait=settings["wait"], progress=progress)
        progress.close()
    shown = probetext.as_json(found) if settings["report"] == "json" else probetext.text(found, console.look(settings))
    console.emit(shown, settings["output"])
    if found.failed is not None:
        raise ServerError(
            f"the probe ended early: {found.failed}", slug="probe-broken", hint="look at the server's log"
        )
    ctx.exit(1 if found.deviates else 0)


class _Progress:
    """Says on a terminal which experiment is under way, on one line that goes away at the end."""

    def __init__(self, *, quiet: bool) -> None:
        self._shown = not quiet and sys.stderr.isatty()

    def __call__(self, what: str) -> None:
        if self._shown:
            click.echo(f"\r\x1b[K{what} …", nl=False, err=True)

    def close(self) -> None:
        if self._shown:
            click.echo("\r\x1b[K", nl=False, err=True)
