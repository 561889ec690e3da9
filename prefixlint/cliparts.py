"""Options that several commands have, and what they say: how single prompts are tokenized, the limits of caches."""

from __future__ import annotations

import gc
import math
import os
import pkgutil
from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from prefixlint.errors import UsageError

if TYPE_CHECKING:
    from prefixlint.fleet import Limits
    from prefixlint.pipeline import Options
    from prefixlint.verify.wire import Server

Command = TypeVar("Command", bound=Callable[..., Any])

TOKEN_VARIABLE = "PREFIXLINT_TOKEN"  # noqa: S105 - the name of a variable, and no password

_THREADS = "OPENBLAS_NUM_THREADS"
_MOST_TOKENS = 1e15  # of a pool: exact in floats of 64 bits, and more than all memory that was ever built holds
_MOST_IN_BLOCK = 1 << 30  # so that products with it stay in integers of 64 bits
_MOST_DIGITS = 18  # of a whole number that fits in 64 bits

FORMATS = ("text", "json", "sarif", "github", "markdown", "html")
"""What a result with findings is shown as."""

BLOCK_SIZE = click.IntRange(min=1, max=_MOST_IN_BLOCK)


def report_formats() -> tuple[str, ...]:
    """Give the formats of `analyze`: the modules of `reports/`, by their names, since a module there is a format."""
    folder = str(Path(__file__).parent / "reports")
    found = {module.name for module in pkgutil.iter_modules([folder]) if not module.name.startswith("_")}
    return (*(name for name in FORMATS if name in found), *sorted(found.difference(FORMATS)))


def keep_apart(read: Iterable[str], output: str | None) -> None:
    """Refuse a result that would replace what it is made of."""
    if output is None or output.startswith("/dev/"):
        return
    if os.path.realpath(output) in {os.path.realpath(path) for path in read}:
        raise UsageError(f"{output} is what is read", slug="output-is-input", hint="choose another file")


def completing(names: Callable[[], Iterable[str]]) -> Any:
    """Give what completes a word of the command line from names, which are asked for only then."""

    def complete(_context: click.Context, _parameter: click.Parameter, word: str) -> list[str]:
        return sorted(name for name in names() if name.lower().startswith(word.lower()))

    return complete


def rule_names() -> list[str]:
    """Give the codes and the names of the rules."""
    from prefixlint import rulebook

    return [word for rule in rulebook.rules().values() for word in (rule.code, rule.name)]


def engine_names() -> list[str]:
    """Give the engines and providers that are known."""
    from prefixlint import engines

    return list(engines.names())


def collect_seldom(objects: int) -> None:
    """Look for cycles once in so many new objects, until the command ends.

    What a command keeps are trees of values that hold no cycles: looking for some after each 700 objects, as Python
    does, is a third of the time of a check and a fifteenth of an analysis. A process that ends with its command goes
    on so: it would look through all that is left.
    """
    context = click.get_current_context()
    if context.find_root().obj is not True:  # as `prefixlint.__main__` says it
        context.call_on_close(partial(gc.set_threshold, *gc.get_threshold()))
    gc.set_threshold(objects, 10, 10)


def load_numpy() -> None:
    """Import numpy without the threads of its linear algebra, which nothing here needs: to start them takes 50 ms.

    The variable is set for the import alone: servers that a command starts inherit the environment.
    """
    chosen = _THREADS in os.environ
    os.environ.setdefault(_THREADS, "1")
    try:
        import_module("numpy")
    finally:
        if not chosen:
            del os.environ[_THREADS]


def prompt_options(command: Command) -> Command:
    """Add the options of commands that tokenize single prompts and ask caches what they serve of them."""
    options = (
        click.option("--model", metavar="NAME|DIR|FILE.gguf", help="The model whose tokenizer and template to use."),
        click.option("--tokenizer", metavar="FILE", help="A tokenizer.json, or a folder or GGUF file that holds one."),
        click.option("--chat-template", metavar="FILE", help="A Jinja chat template, instead of the model's own."),
        click.option("--tokens-from", metavar="URL", help="Ask this running vLLM or SGLang server for token ids."),
        click.option("--engine", "engines", multiple=True, metavar="NAME", help="Caches to ask (repeatable)."),
        click.option("--block-size", type=BLOCK_SIZE, metavar="N", help="Tokens of a block or page."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def prompt_settings(options: dict[str, Any]) -> Options:
    """Give what the options of `prompt_options` say, as the analysis takes it."""
    from prefixlint.pipeline import Options

    names = ("model", "tokenizer", "chat_template", "tokens_from", "engines", "block_size")
    return Options(**{name: options[name] for name in names})


def limit_options(command: Command) -> Command:
    """Add the options that limit caches in memory, number and time."""
    options = (
        click.option(
            "--capacity", metavar="N|NGiB|auto", help="Tokens of a replica's cache [default: no limit]; auto: by --gpu."
        ),
        click.option("--host-capacity", metavar="N", help="Tokens of a second tier on the host, for each replica."),
        click.option(
            "--host-write",
            type=click.Choice(("write_through", "write_through_selective", "write_back")),
            help="When that tier gets something: at once, when it was found once, when evicted.",
        ),
        click.option(
            "--eviction",
            metavar="POLICY",
            help="lru, lfu, fifo, mru, filo, slru, priority, tlru:1000; opt knows the future.",
        ),
        click.option(
            "--replicas", type=int, default=1, metavar="N", help="Caches that share the requests [default: 1]."
        ),
        click.option("--route", metavar="RULE", help="round-robin, random, session, prefix, or logged replicas."),
        click.option(
            "--marks", metavar="PLACES", help="Marks at tools, system, messages[-1] … instead of the log's own; none."
        ),
        click.option(
            "--cache-key", metavar="RULE", help="prompt_cache_key: logged [default], none, family, family:3, session."
        ),
        click.option(
            "--ttl", metavar="S[:write]", help="Seconds that an entry lives after its last use, or after its write."
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def server_options(command: Command) -> Command:
    """Add the options of commands that talk to a running server."""
    options = (
        click.option(
            "--token-env",
            default=TOKEN_VARIABLE,
            metavar="VAR",
            show_default=True,
            help="The environment variable that holds the server's bearer token.",
        ),
        click.option(
            "--timeout", type=click.FloatRange(min=0, min_open=True), default=120.0, metavar="S", show_default=True,
            help="Seconds of silence after which the server counts as hung.",
        ),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def server(url: str, settings: dict[str, Any]) -> Server:
    """Give the server that the options of `server_options` describe."""
    from prefixlint.verify.wire import Server

    return Server(url, token=token(settings), timeout=settings["timeout"])


def token(settings: dict[str, Any]) -> str | None:
    """Read the token that the options of `server_options` name; it is shown nowhere."""
    name = settings["token_env"]
    found = os.environ.get(name)
    if not found and name != TOKEN_VARIABLE:
        hint = f"export {name}, or leave --token-env out where the server wants none"
        raise UsageError(f"the environment variable {name} is not set", slug="bad-token", hint=hint)
    return found or None


def share(text: str | None, option: str) -> float | None:
    """Read a percentage, `60` or `60%`, as a share from 0 to 1; raises UsageError."""
    if text is None:
        return None
    try:
        value = float(text.strip().removesuffix("%")) / 100
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise UsageError(f"{option} {text} is no share", slug="bad-percent", hint="a number from 0 to 100")
    return value


def time_span(text: str | None, option: str) -> float | None:
    """Read a time as people write it, `800ms`, `2s` or `2` (seconds), into seconds; raises UsageError."""
    if text is None:
        return None
    plain = text.strip().lower()
    factor = 0.001 if plain.endswith("ms") else 1.0
    try:
        value = float(plain.removesuffix("ms").removesuffix("s")) * factor
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise UsageError(f"{option} {text} is no time", slug="bad-time-span", hint="like 800ms or 2s")
    return value


def limits(settings: dict[str, Any]) -> Limits:
    """Give the limits of caches that the options of `limit_options` ask for."""
    from prefixlint import spots
    from prefixlint.fleet import Limits

    ttl, from_write = _lifetime(settings["ttl"])
    return Limits(
        capacity=None if is_named(settings["capacity"]) else _tokens(settings["capacity"], "--capacity"),
        host_capacity=_tokens(settings["host_capacity"], "--host-capacity"),
        host_write=settings["host_write"],
        eviction=settings["eviction"],
        replicas=settings["replicas"],
        route=settings["route"],
        ttl=ttl,
        from_write=from_write,
        marks=None if settings["marks"] is None else spots.parse(settings["marks"]),
        keys=settings["cache_key"],
    )


def whole(text: str) -> int | None:
    """Read a number from 0 in ASCII digits; None for other text, and for a number that no log reaches."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS else None


def is_named(text: str | None) -> bool:
    """Whether a capacity is not a number of tokens, but `auto` or a size in GiB."""
    return text is not None and (text.lower() == "auto" or text.lower().endswith("b"))


def _tokens(text: str | None, option: str) -> int | None:
    """Read a number of tokens: 400000, 400_000, 400,000, 400k or 1.5M."""
    if text is None:
        return None
    plain = text.replace(",", "").replace("_", "")
    factor = {"k": 1_000, "m": 1_000_000}.get(plain[-1:].lower(), 1)
    try:
        value = float(plain[:-1] if factor > 1 else plain) * factor
    except ValueError:
        value = math.nan
    if not abs(value) < _MOST_TOKENS:  # not a number either
        hint = "like 400000, 400k, 40GiB or auto" if option == "--capacity" else "like 400000 or 400k"
        raise UsageError(f"{option} {text} is no number of tokens", slug="bad-capacity", hint=hint)
    return int(value)


def _lifetime(text: str | None) -> tuple[float | None, bool]:
    if text is None:
        return None, False
    seconds, _, since = text.partition(":")
    try:
        value = float(seconds)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or since not in ("", "write", "use"):
        raise UsageError(f"--ttl {text} is no lifetime", slug="bad-ttl", hint="like 300 (after use) or 300:write")
    return value, since == "write"
