"""`prefixlint verify`: a log replayed through a real engine, its hit rate and TTFT beside the prediction."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from prefixlint import cliparts, console
from prefixlint.errors import NoInputError, ServerError, UsageError

if TYPE_CHECKING:
    from prefixlint.model import Request
    from prefixlint.runs import Left, Verification
    from prefixlint.verify.choose import Wanted
    from prefixlint.verify.verifying import Plan, Progress

_SAY_WAITING = 15.0  # seconds between two words on a server that still loads, where there is no terminal


@click.command(short_help="Replay a log through a real engine: measured beside predicted.")
@click.argument("logs", nargs=-1, metavar="LOG...")
@click.option("--gpu", is_flag=True, help="Start SGLang on this machine's GPU (prefixlint[gpu]).")
@click.option("--cpu", is_flag=True, help="Start the embedded engine (prefixlint[cpu]); no GPU is needed.")
@click.option("--url", metavar="URL", help="Measure a server that runs: SGLang, vLLM, llama.cpp, OpenAI's API.")
@click.option("--launch", "command", metavar="COMMAND", help="Start this server; {port} is a free port.")
@click.option(
    "--engine", metavar="NAME", help="What the server is: sglang, vllm, llama.cpp, openai [default: asks it]."
)
@click.option("--model", metavar="NAME|DIR|FILE.gguf", help="The model to start; with --url, whose tokenizer to use.")
@click.option("--tokenizer", metavar="FILE", help="Count tokens with this tokenizer.json.")
@click.option("--chat-template", metavar="FILE", help="A Jinja chat template, instead of the model's own.")
@click.option("--port", type=click.IntRange(1, 65535), help="The port of a started server [default: a free one].")
@click.option(
    "--engine-arg", "extra", multiple=True, metavar="ARG", help="Pass this on to a started server (repeatable)."
)
@click.option("--concurrency", type=click.IntRange(1, 1024), default=1, show_default=True, help="Requests at once.")
@click.option(
    "--arrival",
    type=click.Choice(("closed", "logged", "poisson")),
    default="closed",
    show_default=True,
    help="When requests are sent: as others end, at their logged times, or at random.",
)
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="Poisson: requests a second.")
@click.option(
    "--speed", type=click.FloatRange(min=0, min_open=True), default=1.0, help="Logged times, this much faster."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Draws the moments of --arrival poisson.")
@click.option("--duration", type=click.FloatRange(min=0, min_open=True), metavar="S", help="Send for S seconds a run.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Replay only the first N requests.")
@click.option("--rounds", type=click.IntRange(1, 100), help="Cold and warm, N times [default: 1; 2 of two logs].")
@click.option(
    "--compare", "other", metavar="FIXED.jsonl", help="Replay this log too, in turns: what its prompts change."
)
@click.option("--what-if", is_flag=True, help="The same with the log's own prompts as analyze --write-fixed has them.")
@click.option(
    "--sweep",
    "swept",
    multiple=True,
    metavar="FLAG=a,b",
    help="Try values of a server's flag, one by one (repeatable).",
)
@click.option(
    "--bisect", "settings_file", metavar="FILE|sglang|vllm", help="Try each setting of a file, then all of them."
)
@click.option(
    "--output-length",
    type=click.Choice(("one", "logged")),
    default="one",
    show_default=True,
    help="Generate --max-tokens tokens, or as many as the log says.",
)
@click.option("--max-tokens", type=click.IntRange(1, 1 << 20), default=1, show_default=True, help="Tokens to generate.")
@click.option("--by-ids", is_flag=True, help="Send token ids, and not messages.")
@click.option("--flush", is_flag=True, help="Empty the cache of a server that this run did not start.")
@click.option("--tolerance", type=click.IntRange(min=0), default=0, show_default=True, help="Tokens of difference.")
@click.option("--keep", is_flag=True, help="Leave a started server running.")
@cliparts.server_options
@click.option(
    "--start-timeout", type=click.FloatRange(min=1), default=600.0, show_default=True, help="Seconds to load."
)
@click.option("--with-text", is_flag=True, help="Write texts around differing tokens into results, too.")
@click.option("--log-format", metavar="NAME", help="Read every file as this format instead of recognising it.")
@click.option("--sort", type=click.Choice(("time", "file")), help="Order of use [default: time where all have one].")
@click.option("--offline", is_flag=True, help="Look no model up on the hub.")
@console.output_options(("text", "json", "markdown", "html"))
@console.guarded
def verify(logs: tuple[str, ...], **settings: Any) -> None:
    """Replay LOG through a real engine, cold and warm, and compare hits and TTFT with the prediction.

    Without a target, SGLang runs on the GPU where there is one, else the embedded engine; which one is said. The exit
    code is 1 where prediction and measurement disagree.
    """
    if not logs:
        raise UsageError("no log was named", slug="no-log", hint="prefixlint verify LOG... (or - for standard input)")
    from prefixlint.verify import choose
    from prefixlint.verify.verifying import Collected

    quiet = settings["quiet"]
    run = _way(logs, settings)
    plan = _plan(settings)
    requests, skipped = _requests(logs, settings)
    progress = _Shown(quiet=quiet)
    chosen = choose.choose(_wanted(settings), on_fetch=progress.say)
    progress.say(chosen.said)
    into = Collected(plan, files=list(logs), skipped=skipped, limit=settings["limit"])
    try:
        result = run(requests, chosen, plan, progress.as_progress(), into)
    except BaseException as error:
        progress.close()
        so_far = into.result(error)
        if so_far is not None:
            _emit(so_far, settings)
        raise
    finally:
        progress.close()
    _emit(result, settings)
    if not any(run.answered for run in result.runs):
        raise ServerError("the server answered no request", slug="nothing-measured", hint=_first_error(result))
    if result.agrees is False:
        raise SystemExit(1)


def _way(logs: tuple[str, ...], settings: dict[str, Any]) -> Callable[..., Verification]:
    """Choose what is done with the requests: one log, two in turns, or one on several servers."""
    from prefixlint.verify import compare, sweep, verifying
    from prefixlint.verify import settings as plans

    names = ("--compare", "--what-if", "--sweep", "--bisect")
    given = [n for n, key in zip(names, ("other", "what_if", "swept", "settings_file"), strict=True) if settings[key]]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} at once", slug="two-comparisons", hint="one comparison a run")
    if settings["rounds"] is None:
        settings["rounds"] = compare.ROUNDS if settings["other"] or settings["what_if"] else 1
    if settings["swept"] or settings["settings_file"]:
        wanted = plans.read(settings["settings_file"]) if settings["settings_file"] else plans.sweep(settings["swept"])
        return partial(sweep.sweep, wanted=wanted)
    if not settings["other"] and not settings["what_if"]:
        return verifying.verify
    fixed, _ = _requests((settings["other"],), settings) if settings["other"] else (_fixed(logs, settings), None)
    called = settings["other"] or f"{logs[0]} with the fixes of what-if"

    def both(requests: list[Request], *rest: Any) -> Verification:
        return compare.compare((requests, fixed), *rest, names=(logs[0], called))

    return both


def _fixed(logs: tuple[str, ...], settings: dict[str, Any]) -> list[Request]:
    """Give the requests of the logs with every fix that the analysis can make."""
    from prefixlint import pipeline

    if "-" in logs:
        raise UsageError("--what-if reads the log twice", slug="no-stdin", hint="write it to a file first")
    options = pipeline.Options(
        order=settings["sort"],
        what_if=("all",),
        **{name: settings[name] for name in ("model", "offline", "tokenizer", "chat_template", "log_format")},
    )
    fixed = io.BytesIO()  # in memory: no prompt is written to the disk
    pipeline.analyze(logs, options, watch=pipeline.Watch(on_fixed=lambda line: fixed.writelines((line,))))
    fixed.seek(0)
    return [replace(one, path=f"{logs[0]} (fixed)") for one in _requests(("-",), settings, stdin=fixed)[0]]


def _first_error(result: Verification) -> str:
    failed = next((row for row in result.residuals if row.error is not None), None)
    return f"the first failed with {failed.error}: {failed.reason or ''}" if failed is not None else "see its log"


def _emit(result: Verification, settings: dict[str, Any]) -> None:
    from prefixlint import runs
    from prefixlint.reports import _verify

    form, output = settings["report"], settings["output"]
    to_file = form != "text" or output is not None
    shown = runs.without_texts(result) if to_file and not settings["with_text"] else result
    console.emit(_verify.render(shown, form, console.look(settings)), output)


def _plan(settings: dict[str, Any]) -> Plan:
    from prefixlint.verify.replay import Load
    from prefixlint.verify.verifying import Plan

    load = Load(
        arrival=settings["arrival"],
        concurrency=settings["concurrency"],
        rate=settings["rate"],
        speed=settings["speed"],
        duration=settings["duration"],
        output=settings["output_length"],
        max_tokens=settings["max_tokens"],
        seed=settings["seed"],
    )
    load.check(())
    return Plan(
        load,
        rounds=settings["rounds"],
        flush=settings["flush"],
        by_ids=settings["by_ids"],
        tolerance=settings["tolerance"],
        tokenizer=settings["tokenizer"],
        chat_template=settings["chat_template"],
        offline=settings["offline"],
    )


def _wanted(settings: dict[str, Any]) -> Wanted:
    from prefixlint.verify.choose import Wanted

    names = ("gpu", "cpu", "url", "command", "engine", "model", "chat_template", "port", "extra", "timeout", "keep")
    return Wanted(
        cache=console.cache_folder(),
        token=cliparts.token(settings),
        ready=settings["start_timeout"],
        sglang=os.environ.get("PREFIXLINT_SGLANG_PYTHON") or None,
        **{name: settings[name] for name in names},
    )


def _requests(
    logs: tuple[str, ...], settings: dict[str, Any], *, stdin: BinaryIO | None = None
) -> tuple[list[Request], list[Left]]:
    """Read the log in its order of use; give what was read, and the lines that were no requests."""
    from prefixlint import logs as reading
    from prefixlint.model import Request
    from prefixlint.runs import leave

    found: list[Request] = []
    skipped: dict[str, Left] = {}
    for item in reading.read(logs, log_format=settings["log_format"], stdin=stdin or sys.stdin.buffer):
        if isinstance(item, Request):
            found.append(item)
            continue
        leave(skipped, item.slug, item.reason, (item.path, item.line))
    if not found:
        raise NoInputError("no request was read from these logs", slug="no-requests", hint="prefixlint analyze LOG")
    timed = all(request.time is not None for request in found)
    if settings["sort"] == "time" and not timed:
        raise UsageError("the log has no times to sort by", slug="no-times", hint="use --sort file")
    if settings["sort"] != "file" and timed:
        found.sort(key=lambda request: request.time or 0.0)
    return list(islice(found, settings["limit"])), list(skipped.values())


class _Shown:
    """What is said on stderr meanwhile: sentences, a bar of the requests, and what a loading server prints."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._terminal = not quiet and sys.stderr.isatty()
        self._bar: Any = None
        self._told = 0.0

    def say(self, sentence: str) -> None:
        """Say a sentence."""
        self.close()
        if not self._quiet:
            click.echo(sentence, err=True)

    def wait(self, seconds: float, line: str) -> None:
        """Say that a server still loads, every now and then."""
        if self._quiet or seconds - self._told < (1.0 if self._terminal else _SAY_WAITING):
            return
        self._told = seconds
        if self._terminal:
            click.echo(f"\r\x1b[K{seconds:.0f} s: {line[: console.width() - 10]}", err=True, nl=False)
        else:
            click.echo(f"the server has been starting for {seconds:.0f} s", err=True)

    def done(self) -> None:
        """Count a request."""
        if not self._terminal:
            return
        if self._bar is None:
            from tqdm import tqdm

            click.echo("\r\x1b[K", err=True, nl=False)
            self._bar = tqdm(unit=" requests", file=sys.stderr, leave=False)
        self._bar.update(1)

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def as_progress(self) -> Progress:
        """Give it as a run takes it."""
        from prefixlint.verify.verifying import Progress

        return Progress(self.say, self.wait, self.done)
