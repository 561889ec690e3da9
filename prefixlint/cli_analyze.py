"""`prefixlint analyze`: what the prefix cache could serve of the requests in a log, and where prompts part."""

from __future__ import annotations

import contextlib
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from prefixlint import cliparts, console
from prefixlint.errors import PrefixlintError, UsageError

if TYPE_CHECKING:
    from prefixlint.results import RequestLine, SkipKind
    from prefixlint.thresholds import Thresholds


_OBJECTS_A_COLLECTION = 400_000  # few enough that what is garbage costs no memory to speak of
_DECIDING = frozenset((
    "model", "tokenizer", "chat_template", "tokens_from", "block_size", "log_format", "sort", "since",
    "sample", "warmup", "gpu", "model_config", "kv_dtype", "prices", "capacity", "host_capacity", "host_write",
    "eviction",
    "replicas", "route", "marks", "cache_key", "ttl",
))  # fmt: skip
"""Options that decide what is simulated, which the commands of advice repeat."""


@click.command(short_help="What the prefix cache could serve of the requests in a log.")
@click.argument("logs", nargs=-1, metavar="LOG...")
@click.option("--model", metavar="NAME|DIR|FILE.gguf", help="The model whose tokenizer and chat template to use.")
@click.option("--tokenizer", metavar="FILE", help="A tokenizer.json, or a folder or GGUF file that holds a tokenizer.")
@click.option("--chat-template", metavar="FILE", help="A Jinja chat template, instead of the model's own.")
@click.option("--tokens-from", metavar="URL", help="Ask this running vLLM or SGLang server's /tokenize for token ids.")
@click.option("--engine", "engines", multiple=True, metavar="NAME", help="Cache rules to apply (repeatable).")
@click.option("--block-size", type=cliparts.BLOCK_SIZE, metavar="N", help="Tokens of a block (vLLM) or page (SGLang).")
@click.option("--gpu", metavar="[Nx]NAME", help="The GPUs of a replica, like H100 or 4xH100: pool and prefill time.")
@click.option("--model-config", metavar="FILE|DIR|NAME", help="The config.json of the model: FLOPs and KV bytes.")
@click.option("--kv-dtype", default="bf16", show_default=True, metavar="TYPE", help="bf16, fp16, fp8, int8 or nvfp4.")
@click.option("--prices", metavar="FILE", help="Prices of models, as TOML; else those of an installed genai-prices.")
@cliparts.limit_options
@click.option("--by", metavar="KEY[,KEY]", help="Group by model, user, session, day, hour, or any logged field.")
@click.option("--log-format", metavar="NAME", help="Read every file as this format instead of recognising it.")
@click.option("--sort", type=click.Choice(("time", "file")), help="Order of use [default: time where all have one].")
@click.option("--since", metavar="TIME", help="Leave out requests before this time (ISO 8601, or seconds since 1970).")
@click.option("--sample", type=click.IntRange(min=1), metavar="N", help="Read only the first N requests.")
@click.option("--warmup", default="0", metavar="N|PERCENT", help="Leave the first N requests (or N%) out of the rates.")
@click.option("--why", default="all", show_default=True, metavar="N|all", help="Requests to search for causes.")
@click.option(
    "--source", multiple=True, metavar="PATH", help="Find the causes in these files and folders (repeatable)."
)
@click.option(
    "--what-if",
    multiple=True,
    metavar="RULE|all|none",
    help="Causes whose fix is tried on the log (repeatable) [default: all that take half as long again].",
)
@click.option("--write-fixed", metavar="FILE", help="Write the log with these fixes, in its own format.")
@click.option("--compare", metavar="OLD.json", help="Say what moved since this saved result (--format json).")
@click.option("--fail-under", metavar="PERCENT", help="Exit with 1 where an engine's hit rate is below this.")
@click.option("--max-drop", metavar="POINTS", help="Exit with 1 where a hit rate fell by more since --compare.")
@click.option("--max-worse", metavar="POINTS", help="Exit with 1 where a cause costs so much more since --compare.")
@click.option("--redact", is_flag=True, help="Mask times, ids, addresses and other personal values in what is shown.")
@click.option("--requests-out", metavar="FILE", help="Write one JSON line for each request.")
@click.option("--export", metavar="FILE", help="Write an anonymous trace of block ids (Mooncake's form, 512 tokens).")
@click.option("--export-salt", metavar="TEXT", help="Make ids that agree between the exports with this secret.")
@console.output_options(cliparts.report_formats())
@console.guarded
def analyze(logs: tuple[str, ...], **settings: Any) -> None:
    """Say what a prefix cache could serve of the requests in LOG, what it cannot, and where prompts part.

    LOG is a file, a folder, a glob, or - for standard input. The format is recognised by content; gzip and zstd are
    read as they are.
    """
    cliparts.collect_seldom(_OBJECTS_A_COLLECTION)
    if not logs:
        raise UsageError("no log was named", slug="no-log", hint="prefixlint analyze LOG... (or - for standard input)")
    elsewhere = [settings[name] for name in ("requests_out", "export", "write_fixed")]
    if elsewhere.count("-") + (settings["output"] in (None, "-")) > 1:
        raise UsageError("two results on standard output", slug="output-twice", hint="write one to a file with -o FILE")
    if settings["write_fixed"] is not None and "none" in settings["what_if"]:
        raise UsageError("--write-fixed without a fix", slug="bad-what-if", hint="leave --what-if none out")
    _keep_apart(logs, [path for path in (*elsewhere, settings["output"]) if path not in (None, "-")])
    cliparts.load_numpy()
    from prefixlint import api, pipeline, reports

    look = console.look(settings)
    options = replace(_options(settings), outline=reports.outlines(settings["report"], look))
    limits = _thresholds(settings)
    progress = console.Progress(quiet=settings["quiet"])
    failed: list[PrefixlintError] = []
    try:
        with (
            _requests_out(settings["requests_out"], failed) as on_request,
            _trace(settings["export"], failed) as on_trace,
            _trace(settings["write_fixed"], failed) as on_fixed,
        ):
            watch = pipeline.Watch(on_bytes=progress, on_request=on_request, on_trace=on_trace, on_fixed=on_fixed)
            result = api.analyze(
                *logs, options=options, compare=settings["compare"], stdin=sys.stdin.buffer, watch=watch
            )
    finally:
        progress.close()
    from prefixlint import thresholds

    try:
        result = replace(result, failures=thresholds.failures(result, limits))
    except UsageError as incomparable:
        failed.append(incomparable)  # what was found is shown all the same
    console.emit(reports.load(settings["report"]).analysis(result, look), settings["output"])
    if settings["report"] == "github":
        console.summarize(lambda: reports.load("markdown").analysis(result, look))
    failed += _missing(result.input.skipped_kinds)
    if failed:
        for error in failed[1:]:
            console.complain(error)
        raise failed[0]
    if result.failures:
        click.echo("\n".join(map(console.harmless, result.failures)), err=True)
        raise SystemExit(1)


def _missing(skipped: Sequence[SkipKind]) -> Iterator[PrefixlintError]:
    """Give an error for each log that was named and is not there, which a job must notice; the others were analysed."""
    for kind in skipped:
        if kind.first.slug == "not-found":
            where = f"{kind.first.path}: {kind.first.reason}"
            yield UsageError(where, slug=kind.first.slug, hint="the numbers are those of the other logs")


def _thresholds(settings: dict[str, Any]) -> Thresholds:
    """Read what makes the run fail, before anything is computed."""
    from prefixlint.thresholds import Thresholds

    named = {name: settings[name] for name in ("fail_under", "max_drop", "max_worse")}
    under, drop, worse = (
        None if text is None else _percent(text, f"--{name.replace('_', '-')}") for name, text in named.items()
    )
    if (drop is not None or worse is not None) and settings["compare"] is None:
        hint = "name an earlier result with --compare OLD.json"
        raise UsageError("a threshold on what moved, without an earlier result", slug="no-compare", hint=hint)
    return Thresholds(under, drop, worse)


def _keep_apart(logs: tuple[str, ...], results: list[str]) -> None:
    """Refuse a result that would replace a log that is read, or another result."""
    from prefixlint.logs import files

    written = [os.path.realpath(path) for path in results if not path.startswith("/dev/")]
    if len(set(written)) < len(written):
        raise UsageError("two results in one file", slug="output-twice", hint="give each a file of its own")
    read = {os.path.realpath(path) for path in files(logs)} if written else set()
    for path in results:
        if os.path.realpath(path) in read:
            raise UsageError(f"{path} is a log that is read", slug="output-is-log", hint="choose another file")


def _options(settings: dict[str, Any]) -> Any:
    from prefixlint.pipeline import Options
    from prefixlint.savings import Settings

    salt = settings["export_salt"]
    if salt is not None and settings["export"] is None:
        raise UsageError("--export-salt without --export", slug="no-export", hint="name the file with --export")
    return Options(
        model=settings["model"],
        tokenizer=settings["tokenizer"],
        chat_template=settings["chat_template"],
        tokens_from=settings["tokens_from"],
        engines=settings["engines"],
        block_size=settings["block_size"],
        log_format=settings["log_format"],
        order=settings["sort"],
        since=_moment(settings["since"]),
        warmup=_warmup(settings["warmup"]),
        sample=settings["sample"],
        server=Settings(
            gpu=settings["gpu"],
            model_config=settings["model_config"],
            kv_dtype=settings["kv_dtype"],
            prices=settings["prices"],
            capacity=settings["capacity"] if cliparts.is_named(settings["capacity"]) else None,
        ),
        salt=None if salt is None else salt.encode("utf-8", "surrogatepass"),
        limits=cliparts.limits(settings),
        today=datetime.now(tz=UTC).date(),
        by=tuple(key.strip() for key in (settings["by"] or "").split(",") if key.strip()),
        redact=settings["redact"],
        mask_salt=console.mask_salt(),
        source=settings["source"],
        why=_how_many(settings["why"]),
        what_if=_tried(settings["what_if"]),
        flags=_flags(),
    )


def _flags() -> dict[str, str]:
    """Give the options that were named and that decide what is found, as they were typed."""
    context = click.get_current_context()
    typed = click.core.ParameterSource.COMMANDLINE
    return {
        option.opts[0]: str(context.params[option.name])
        for option in context.command.params
        if option.name in _DECIDING and context.get_parameter_source(option.name) is typed
    }


def _tried(names: tuple[str, ...]) -> tuple[str, ...]:
    """Read the rules whose fixes are tried: codes, beginnings of codes, or names."""
    if not names:
        return ("few",)
    if "none" in names:
        if len(names) > 1:
            raise UsageError("--what-if none beside others", slug="bad-what-if", hint="give none alone, or rules")
        return ()
    from prefixlint import rulebook

    rules = rulebook.rules()
    known = {name for code, rule in rules.items() for name in (code, rule.name)}
    for name in names:
        if name != "all" and not any(one.startswith(name) and (one == name or one[:3] == "PFX") for one in known):
            raise UsageError(
                f"there is no rule {name!r} to try", slug="bad-what-if", hint="a code like PFX101, a name, all or none"
            )
    return names


def _how_many(text: str) -> float:
    if text == "all":
        return math.inf
    number = cliparts.whole(text)
    if number is None:
        raise UsageError(f"--why {text} is no number of requests", slug="bad-why", hint="like 5000, or all")
    return number


def _moment(text: str | None) -> float | None:
    if text is None:
        return None
    with contextlib.suppress(ValueError):
        if math.isfinite(seconds := float(text)):
            return seconds
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"--since {text} is no time", slug="bad-time", hint="like 2026-03-01, 2026-03-01T09:00:00Z or 1772355600"
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _warmup(text: str) -> float:
    if text.endswith("%"):
        return _percent(text, "--warmup") / 100
    number = cliparts.whole(text)
    if number is None:
        raise UsageError(f"--warmup {text} is no number of requests", slug="bad-warmup", hint="like 500, or 10%")
    return number


def _percent(text: str, option: str) -> float:
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        value = math.nan
    if not 0 <= value < 100:
        raise UsageError(f"{option} {text} is no share", slug="bad-percent", hint="a number from 0 to below 100")
    return value


@contextlib.contextmanager
def _trace(path: str | None, failed: list[PrefixlintError]) -> Iterator[Callable[[bytes], None] | None]:
    if path is None:
        yield None
        return
    with console.aside(path, failed) as write:
        yield write


@contextlib.contextmanager
def _requests_out(path: str | None, failed: list[PrefixlintError]) -> Iterator[Callable[[RequestLine], None] | None]:
    if path is None:
        yield None
        return
    from prefixlint.reports.json import request_line

    with console.aside(path, failed) as write:
        yield lambda line: write(request_line(line))
