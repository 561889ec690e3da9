"""`prefixlint watch`: a live server's hit rate, time to first token and KV pool, with limits; rules for Prometheus."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from prefixlint import cliparts, console
from prefixlint.errors import NoInputError, UsageError

if TYPE_CHECKING:
    from prefixlint.verify.triage import Sample
    from prefixlint.verify.watch import Judged, Limits, Scrape
    from prefixlint.verify.wire import Server

    _Row = tuple[Sample, list[Judged]]

_FORMATS = ("text", "json", "jsonl")
_HEADS_AGAIN = 20  # rows after which the heads are shown again on a terminal
_URLS = ("http://", "https://")


@click.command(short_help="A live server's hit rate, time to first token and KV pool, with limits.")
@click.argument("sources", nargs=-1, metavar="URL|[BEFORE] AFTER")
@click.option("--once", is_flag=True, help="One interval, then where the time goes and whether prefix work can help.")
@click.option(
    "--interval", type=click.FloatRange(min=0.05), default=10.0, metavar="S", show_default=True,
    help="Seconds between scrapes.",
)  # fmt: skip
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="Stop after N intervals.")
@click.option("--state", metavar="FILE", help="Compare with the scrape that FILE keeps, and keep this one: for cron.")
@click.option("--fail-under", metavar="PERCENT", help="Exit 1 where the hit rate is lower.")
@click.option(
    "--max-ttft", metavar="TIME", help="Exit 1 where the P95 of the time to first token is higher: 800ms, 2s."
)
@click.option("--max-kv", metavar="PERCENT", help="Exit 1 where running requests hold more of the KV pool.")
@click.option("--prometheus", "made", flag_value="prometheus", help="Print alert rules with these limits, and no more.")
@click.option("--grafana", "made", flag_value="grafana", help="Print a dashboard with these limits, and no more.")
@click.option("--engine", "engine", type=click.Choice(("sglang", "vllm")), help="Rules and dashboard for one engine.")
@cliparts.server_options
@console.output_options(_FORMATS)
@click.pass_context
@console.guarded
def watch(ctx: click.Context, sources: tuple[str, ...], **settings: Any) -> None:
    """Watch a server's prefix cache by its /metrics: SGLang (with --enable-metrics), vLLM, llama.cpp.

    With a URL, a row is shown for each interval until ^C, or for --count of them. With one or two files that hold what
    /metrics gave, says what happened between them, or since the server's start. Exit 1 where a limit was broken.
    """
    limits = _limits(settings)
    if settings["made"]:
        _rules(settings, limits)
        return
    if sources and settings["output"] is not None and settings["report"] != "json" and not _whole(settings):
        raise UsageError(
            "rows of a watch go to standard output", slug="bad-output", hint="use > FILE, or --format json"
        )
    if not sources:
        raise NoInputError("nothing to watch", slug="no-input", hint="prefixlint watch http://127.0.0.1:30000")
    watched = _opened(sources, settings)
    try:
        broken = _several(watched, settings, limits) if watched.several else _one(watched, settings, limits)
    finally:
        if watched.server is not None:
            watched.server.close()
    ctx.exit(1 if broken else 0)


@dataclass(frozen=True, slots=True)
class _Watched:
    """What is watched: a server, or two scrapes of one; `before` is what is compared with, None: nothing."""

    name: str
    server: Server | None
    before: Scrape | None
    after: Scrape | None
    several: bool


def _whole(settings: dict[str, Any]) -> bool:
    """Whether one sample is shown, and not a row for each interval."""
    return bool(settings["once"]) or settings["state"] is not None


def _opened(sources: tuple[str, ...], settings: dict[str, Any]) -> _Watched:
    from prefixlint.verify import watch as watching

    if sources[0].startswith(_URLS):
        if len(sources) > 1:
            raise UsageError("one server at a time", slug="bad-url", hint="run watch once for each of them")
        server = cliparts.server(sources[0], settings)
        before = _remembered(settings["state"])
        return _Watched(server.url, server, before, None, not _whole(settings))
    if len(sources) > 2 or settings["state"] or settings["count"]:
        raise UsageError("two files at most, and neither --state nor --count with them", slug="bad-files", hint=None)
    scrapes = [watching.read(_text(name)) for name in sources]
    return _Watched(sources[-1], None, scrapes[0] if len(scrapes) == 2 else None, scrapes[-1], several=False)


def _text(name: str) -> str:
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it cannot be read"
        hint = "a URL, or a file with what its /metrics gave"
        raise NoInputError(f"{name}: {reason}", slug="no-input", hint=hint) from error


def _remembered(state: str | None) -> Scrape | None:
    from prefixlint.verify import watch as watching

    return watching.read(_text(state)) if state is not None and os.path.exists(state) else None  # noqa: PTH110 - unlike Path.exists, False for a long name


def _one(watched: _Watched, settings: dict[str, Any], limits: Limits) -> bool:
    """Show one sample in full: of two scrapes, of a scrape and the remembered one, or of one interval."""
    from prefixlint.verify import watch as watching

    if watched.server is None:
        assert watched.after is not None
        found = watching.sample(watched.before, watched.after, watched.name)
    elif settings["state"] is not None:
        taken = watching.scrape(watched.server, time.time)
        found = watching.sample(watched.before, taken, watched.name)
        console.emit(watching.kept(taken), settings["state"])
    else:
        first = watching.scrape(watched.server, time.time)
        _, found = next(watching.watch(watched.server, settings["interval"], 1, first))
    judged = _judged(found, limits, watched.name)
    _show(watched, [(found, judged)], found, settings)
    return _broken([(found, judged)])


def _several(watched: _Watched, settings: dict[str, Any], limits: Limits) -> bool:
    """Show a sample for each interval as it comes, and at the end whether prefix work can help."""
    from prefixlint.verify import watch as watching
    from prefixlint.verify import watchtext

    assert watched.server is not None
    look, report = console.look(settings), settings["report"]
    rows: list[_Row] = []
    first = last = watching.scrape(watched.server, time.time)
    with contextlib.suppress(KeyboardInterrupt), _ended_by_signals():
        for taken, found in watching.watch(watched.server, settings["interval"], settings["count"], first):
            last = taken
            judged = _judged(found, limits, watched.name)
            rows.append((found, judged))
            if report == "text":
                heads = [watchtext.heads()] if len(rows) % _HEADS_AGAIN == 1 else []
                click.echo("\n".join([*heads, watchtext.row(found, time.strftime("%H:%M:%S"), judged, look)]))
            elif report == "jsonl":
                click.echo(watchtext.line(watched.name, found, judged), nl=False)
    if rows and report != "jsonl":
        if report == "text":
            click.echo()
        _show(watched, rows, watching.sample(first, last, watched.name), settings)
    return _broken(rows)


def _judged(found: Sample, limits: Limits, name: str) -> list[Judged]:
    """Hold a sample against the limits. One on what the server does not report is an error: it would never break."""
    from prefixlint.verify import watch as watching

    judged = watching.judge(found, limits)
    for one in judged:
        if not one.reported:
            raise UsageError(
                f"--{one.name} cannot be judged: {name} does not report what it is about",
                slug="not-reported",
                hint="leave the limit out, or see with prefixlint watch --once what the server reports",
            )
    return judged


def _broken(rows: list[_Row]) -> bool:
    return any(one.holds is False for _, judged in rows for one in judged)


def _show(watched: _Watched, rows: list[_Row], whole: Sample, settings: dict[str, Any]) -> None:
    from prefixlint.verify import triage, watchtext

    verdict = triage.judge(whole)
    if settings["report"] == "text":
        shown = watchtext.triage(
            watched.name, whole, verdict, rows[0][1] if len(rows) == 1 else [], console.look(settings)
        )
    elif settings["report"] == "jsonl":
        shown = "".join(watchtext.line(watched.name, found, judged) for found, judged in rows)
    else:
        shown = watchtext.document(watched.name, rows, whole, verdict)
    console.emit(shown, settings["output"])


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let ^C, and SIGTERM by which `timeout` and CI end a command, end a watch in good order; a second one ends all."""

    def stop(number: int, _frame: object) -> None:
        signal.signal(number, earlier[number])
        raise KeyboardInterrupt

    numbers = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) is not signal.SIG_IGN]
    earlier: dict[int, Any] = {number: signal.getsignal(number) for number in numbers}
    if threading.current_thread() is threading.main_thread():  # elsewhere no handler may be set
        for number in numbers:
            signal.signal(number, stop)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for which, handler in earlier.items():
                signal.signal(which, handler)


def _limits(settings: dict[str, Any]) -> Limits:
    from prefixlint.verify.watch import Limits

    return Limits(
        cliparts.share(settings["fail_under"], "--fail-under"),
        cliparts.time_span(settings["max_ttft"], "--max-ttft"),
        cliparts.share(settings["max_kv"], "--max-kv"),
    )


def _rules(settings: dict[str, Any], limits: Limits) -> None:
    from prefixlint.verify import alerts

    engines = [names for names in alerts.ENGINES if settings["engine"] in (None, names.engine)]
    write = alerts.rules if settings["made"] == "prometheus" else alerts.dashboard
    console.emit(write(engines, limits), settings["output"])
