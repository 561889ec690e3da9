"""The command line: `prefixlint COMMAND`. Each command is a module of its own, imported when it is called."""

from __future__ import annotations

import importlib
from typing import Any

import click

from prefixlint import __version__

# name -> (module, attribute, short help); the help stands here so that --help imports no command
_COMMANDS = {
    "analyze": ("prefixlint.cli_analyze", "analyze", "What the prefix cache could serve of the requests in a log."),
    "verify": ("prefixlint.cli_verify", "verify", "Replay a log through a real engine: measured beside predicted."),
    "check": ("prefixlint.cli_check", "check", "Lint prompt sources: what will break the prefix."),
    "rule": ("prefixlint.cli_rule", "rule", "A rule's page, or the list of rules."),
    "config": ("prefixlint.cli_rule", "config", "The effective configuration, and why each rule is on or off."),
    "engine": ("prefixlint.cli_engine", "engine", "An engine's cache facts with their dates and sources, or the list."),
    "explain": ("prefixlint.cli_explain", "explain", "One request: its tokens, its hits, what it should have matched."),
    "diff": ("prefixlint.cli_diff", "diff", "First divergence of two requests, and what differs behind it."),
    "assert": ("prefixlint.cli_assert", "check_shared", "Fail unless two prompts share a prefix of a stated length."),
    "schema": ("prefixlint.cli_schema", "schema", "The JSON Schema of an output, or the list."),
    "report": ("prefixlint.cli_report", "report", "A saved result (--format json) in another format."),
    "probe": ("prefixlint.cli_probe", "probe", "A running server's cache rules, found by small salted experiments."),
    "watch": (
        "prefixlint.cli_watch",
        "watch",
        "A live server's hit rate, time to first token and KV pool, with limits.",
    ),
    "record": ("prefixlint.cli_record", "record", "Get a log: a recording proxy, or settings for a server."),
}


class _Lazy(click.Group):
    """A group whose commands are imported when they are needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Give the names in the order in which people need them."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import a command."""
        if cmd_name not in _COMMANDS:
            return None
        module, attribute, _ = _COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in _COMMANDS.items()])

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run the command line; a help text that cannot be written is told like a result that cannot."""
        try:
            return super().main(*args, **extra)
        except OSError as error:
            from prefixlint import console

            console.complain(console.unwritten(error))
            raise SystemExit(2) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; what a wrong word of the command line is quoted as must not be obeyed by a terminal."""
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            from prefixlint.console import harmless

            said = error.format_message()
            if harmless(said) == said:
                raise
            raise click.UsageError(harmless(said), error.ctx) from None

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Find a command, and name the nearest one where there is none."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            import difflib

            near = difflib.get_close_matches(args[0] if args else "", _COMMANDS, n=1)
            if not near:
                raise
            raise click.UsageError(f"{error.message} Did you mean {near[0]!r}?", ctx) from None


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, "--version", prog_name="prefixlint")
def main() -> None:
    """Find what breaks the prefix cache of your LLM prompts: in the source, in the logs, on the engine."""
