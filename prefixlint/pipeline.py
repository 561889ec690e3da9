"""The order of the stages: a log in, an `Analysis` out. The command line and the Python API rest on this."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, BinaryIO, Protocol

import numpy as np

from prefixlint import (
    accounts,
    bounded,
    counting,
    curves,
    deviations,
    engines,
    export,
    gains,
    logs,
    redact,
    rulebook,
    savings,
    selection,
    simulate,
    summary,
    waterfalls,
    worth,
)
from prefixlint.accounts import Account, Material
from prefixlint.advice import Case, advise
from prefixlint.chat import renderer
from prefixlint.engines import Engine
from prefixlint.errors import LogRefusedError, UsageError
from prefixlint.fleet import Limits
from prefixlint.ingest import Ingest, Ingested
from prefixlint.logfindings import LogFinding, with_masked_paths
from prefixlint.logs._read import Index
from prefixlint.model import Request, Skip
from prefixlint.modelfiles import ModelFiles, resolve
from prefixlint.results import Analysis, Note, RequestLine
from prefixlint.table import UNKNOWN, Kind, Table
from prefixlint.tokens import Encoder
from prefixlint.watching import Watcher
from prefixlint.whatif._spool import Spool
from prefixlint.wording import many

_READ_AT_ONCE = 512  # requests that are held while they are put into order


CAUSES = float("inf")
"""Requests that are searched for causes unless told otherwise: all, so that losses are those of the whole log."""


@dataclass(frozen=True, slots=True)
class Options:
    """What `analyze` can be told; the defaults are what the command line has.

    `order` is `time`, `file` or None (by time where all requests have one). `since` is in epoch seconds. `warmup` is a
    number of requests, or a share below 1, that rates leave out. `sample` reads only that many requests. `server` says
    what the requests run on and cost; `salt` is that of an exported trace. `limits` are those of the caches; `today` is
    the day by which the age of engine facts is told (None: it is not).
    `why` is the number of requests that are searched for causes (0: none, inf: all); `what_if` are the rules whose
    fixes are tried, by code, beginning of a code or name, `all`, or `few`: all where at most FEW are concerned.
    `redact` masks personal values in what is shown, by kind, with labels under `mask_salt`. `source` are files and
    folders to find the causes in. `flags` are the options of the command line, by which advice names commands.
    """

    model: str | None = None
    tokenizer: str | None = None
    chat_template: str | None = None
    tokens_from: str | None = None
    engines: Sequence[str] = ()
    block_size: int | None = None
    log_format: str | None = None
    order: str | None = None
    since: float | None = None
    warmup: float = 0
    sample: int | None = None
    by: Sequence[str] = ()
    offline: bool = False
    server: savings.Settings = field(default_factory=savings.Settings)
    salt: bytes | None = None
    limits: Limits = field(default_factory=Limits)
    today: dt.date | None = None
    why: float = CAUSES
    what_if: Sequence[str] = ("few",)
    redact: bool = False
    mask_salt: bytes = b""
    source: Sequence[str] = ()
    flags: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Watch:
    """Callbacks of a run: bytes read (done, total or None), and the numbers of each request in the order used.

    `on_trace` gets the lines of an anonymous trace, see `export`; `on_account` what became of each request and why,
    with the material that it was made of (see `accounts`), and `on_fixed` the lines of the log with every fix.
    """

    on_bytes: Callable[[int, int | None], None] | None = None
    on_request: Callable[[RequestLine], None] | None = None
    on_trace: Callable[[bytes], None] | None = None
    on_account: Callable[[Material, Account], None] | None = None
    on_fixed: Callable[[bytes], None] | None = None


@dataclass(slots=True)
class _Run:
    """What a run has found out so far."""

    files: ModelFiles
    encoder: Encoder
    read: Ingested
    server: savings.Machine
    ingest: Ingest
    watcher: Watcher | None = None
    notes: list[Note] = field(default_factory=list)

    @property
    def table(self) -> Table:
        return self.read.table


def analyze(
    paths: Sequence[str],
    options: Options | None = None,
    *,
    stdin: BinaryIO | None = None,
    watch: Watch | None = None,
) -> Analysis:
    """Say what prefix caches could serve of the requests in these logs.

    Raises NoInputError without files, LogRefusedError for logs without prefix information, ModelError for a model that
    cannot be had, UsageError for options that do not fit.
    """
    index = logs.new_index()
    options = options or Options()
    try:
        return _analyze(_Files(paths, options.log_format, stdin, index), options, watch or Watch())
    finally:
        index.close()


def analyze_requests(
    requests: Sequence[Request], options: Options | None = None, *, watch: Watch | None = None
) -> Analysis:
    """Do the same with requests that are at hand, no two of which stand at one place (path, line, part)."""
    return _analyze(_Held(requests), options or Options(), watch or Watch())


def _analyze(log: _Log, options: Options, watch: Watch) -> Analysis:
    chosen = [selection.simulated(engines.load(name)) for name in options.engines]
    files = resolve(
        options.model, tokenizer=options.tokenizer, chat_template=options.chat_template, offline=options.offline
    )
    server = savings.machine(options.server, files, offline=options.offline)
    if server.capacity is not None:
        options = replace(options, limits=replace(options.limits, capacity=server.capacity))
    # The GPUs' pool differs between engines; any number stands for it here.
    bounded.check(replace(options.limits, capacity=1) if server.auto else options.limits)
    run = _read(log, options, files, watch, chosen=chosen, machine=server)
    return _conclude(run, options, chosen, watch, log)


class _Log(Protocol):
    """The log that is analysed: read once as a whole, and single requests again."""

    def read(self, on_bytes: Callable[[int, int | None], None] | None) -> Iterator[Request | Skip]: ...

    def again(self, wanted: Iterable[tuple[str, int, int]]) -> Iterator[Request]: ...

    def fixed(self, body_of: Callable[[tuple[str, int, int]], Any | None]) -> Iterator[bytes]: ...


@dataclass(frozen=True, slots=True)
class _Files:
    """A log in files, or on standard input."""

    paths: Sequence[str]
    log_format: str | None
    stdin: BinaryIO | None
    index: Index

    def read(self, on_bytes: Callable[[int, int | None], None] | None) -> Iterator[Request | Skip]:
        return logs.read(self.paths, log_format=self.log_format, stdin=self.stdin, on_bytes=on_bytes, index=self.index)

    def again(self, wanted: Iterable[tuple[str, int, int]]) -> Iterator[Request]:
        return logs.fetch(self.paths, wanted, log_format=self.log_format, stdin=self.stdin, index=self.index)

    def fixed(self, body_of: Callable[[tuple[str, int, int]], Any | None]) -> Iterator[bytes]:
        return logs.rewritten(self.paths, body_of, log_format=self.log_format, stdin=self.stdin, index=self.index)


@dataclass(frozen=True, slots=True)
class _Held:
    """Requests in memory."""

    requests: Sequence[Request]

    def read(self, on_bytes: Callable[[int, int | None], None] | None) -> Iterator[Request | Skip]:
        del on_bytes
        return iter(self.requests)

    def again(self, wanted: Iterable[tuple[str, int, int]]) -> Iterator[Request]:
        places = set(wanted)
        return (request for request in self.requests if (request.path, request.line, request.part) in places)

    def fixed(self, body_of: Callable[[tuple[str, int, int]], Any | None]) -> Iterator[bytes]:
        del body_of
        raise UsageError("requests in memory are no log to be written", slug="not-writable")


def _read(
    log: _Log, options: Options, files: ModelFiles, watch: Watch, *, chosen: Sequence[Engine], machine: savings.Machine
) -> _Run:
    encoder = Encoder(files.tokenizer, bos=files.raw_start())
    template = renderer(files) if files.templates or files.renderer == "harmony" else None
    server = counting.server_tokens(options.tokens_from) if options.tokens_from else None
    watcher = Watcher(options.why, by_time=options.order != "file") if options.why else None
    ingest = Ingest(
        encoder,
        template,
        by=options.by,
        keep_ids=watch.on_request is not None,
        server_tokens=server,
        stop_ids=frozenset(encoder.special_ids([files.special_tokens.get("eos_token", "")])),
        marked=selection.marking(chosen),
        watcher=watcher,
    )
    read = ingest.run(_selected(log.read(watch.on_bytes), options))
    if not len(read.table):
        raise LogRefusedError(
            "no request was read from these logs",
            slug="no-requests",
            hint="--since or --sample may leave everything out" if options.since or options.sample else None,
        )
    return _Run(files, encoder, read, machine, replace(ingest, watcher=None, keep_ids=False), watcher)


def _selected(items: Iterable[Request | Skip], options: Options) -> Iterator[Request | Skip]:
    left = options.sample
    for item in items:
        if isinstance(item, Request):
            if options.since is not None and item.time is not None and item.time < options.since:
                continue
            if left is not None:
                if not left:
                    return
                left -= 1
        yield item


def _conclude(run: _Run, options: Options, chosen: Sequence[Engine], watch: Watch, log: _Log) -> Analysis:
    table = run.table
    order, order_name = _order(table, options, run.notes)
    kinds = np.frombuffer(table.kind, np.int8)[order]
    use_blocks = bool((kinds == Kind.BLOCKS).any())
    if use_blocks and (kinds == Kind.TOKENS).any():
        run.notes.append(Note("mixed-kinds", "the log mixes prompts with hash traces; only the prompts are analysed"))
        use_blocks = False
    rows = order[kinds == (Kind.BLOCKS if use_blocks else Kind.TOKENS)]
    chosen = selection.settled(chosen or selection.by_log(table, rows, of_blocks=use_blocks), table, rows)
    redactor = redact.shown(personal=options.redact, salt=options.mask_salt)
    findings = _findings(run, order, options, log, redactor)
    run.watcher = None  # what it holds of the log is not needed any more
    tap = curves.Tap(chosen)
    replay = _replay(run, rows, chosen, options, tap, use_blocks=use_blocks)
    counts = counting.check(table, rows, replay, run.files, blocks=use_blocks, server=bool(options.tokens_from))
    requests = bounded.Log(table, run.encoder, rows, timed=_timed(table, rows, order_name), of_blocks=use_blocks)
    server_pools = savings.pools(run.server, {name: one.engine for name, one in replay.engines.items()}, run.notes)
    pools = {name: pool.tokens for name, pool in server_pools.items()} if run.server.auto else {}
    limited = bounded.apply(requests, replay, options.limits, counts.factors, today=options.today, pools=pools)
    run.notes += limited.notes
    if watch.on_trace is not None:
        _export(run, rows, options, watch.on_trace, use_blocks=use_blocks)
    material = Material(
        bounded=limited,
        table=table,
        read=run.read,
        encoder=run.encoder,
        stand_in=run.files.stand_in,
        order=order,
        order_name=order_name,
        rows=rows,
        replay=replay,
        counts=counts,
        notes=run.notes,
        by=options.by,
        warmup=options.warmup,
        again=log.again,
        on_request=watch.on_request,
        redactor=redactor,
        on_account=watch.on_account,
        findings=findings,
    )
    account = accounts.account(material)
    analysis = summary.build(material, account)

    def serve(table: Table, replay: simulate.Replay) -> dict[str, simulate.Served]:
        found = {name: simulate.scaled(one, counts.factors) for name, one in replay.engines.items()}
        if limited.limits:
            changed = replace(requests, table=table)
            found |= bounded.apply(changed, replay, options.limits, counts.factors, pools=pools).served
        return found

    if rows.size:
        where = simulate.after_warmup(rows.size, options.warmup)
        trying = gains.Study(material, account, run.ingest, serve, analysis.findings, where)
        if watch.on_fixed is None:
            analysis = _what_if(trying, analysis, options, timed=requests.timed)
        else:
            analysis = _write_fixed(trying, analysis, options, log, watch.on_fixed, timed=requests.timed)
    study = worth.Study(
        server=run.server,
        table=table,
        rows=rows,
        served=account.served,
        counted=next(iter(replay.engines.values())).prompt,
        pools=server_pools,
        replicas=options.limits.replicas,
        tap=tap,
        block_size=options.block_size,
        warmup=options.warmup,
        timed=order_name == "time",
    )
    analysis = worth.add(analysis, study)
    if options.source:
        from prefixlint import tosource  # late, since the linter is another program

        analysis = tosource.add(analysis, options.source, log.again, redactor=redactor)
    analysis = replace(analysis, findings=[with_masked_paths(f, redactor.path) for f in analysis.findings])
    if not isinstance(log, _Files):  # advice is given on logs, which a command can name
        return analysis
    case = Case(
        analysis=analysis,
        log=requests,
        replay=replay,
        served=study.served,
        limits=options.limits,
        factors=counts.factors,
        server=run.server,
        tap=tap,
        warmup=options.warmup,
        paths=log.paths,
        flags=options.flags,
        pools=pools,
    )
    return replace(deviations.add(case), advice=advise(case))


def _what_if(study: gains.Study, analysis: Analysis, options: Options, *, timed: bool) -> Analysis:
    """Try the fixes of the causes that were found; a fault in a rewrite costs their gains and not the analysis."""
    wanted = ("all",) if "few" in options.what_if else options.what_if
    concerned = study.concerned() if wanted is not options.what_if and study.keep is None else 0
    if concerned > gains.FEW:
        text = f"fixes were not tried on {many(concerned, 'request')}; --what-if all tries them in as long again"
        wanted, analysis = (), replace(analysis, notes=[*analysis.notes, Note("what-if-many", text)])
    try:
        tried = study.run(*study.plan(lambda finding: gains.is_wanted(finding, wanted)))
    except Exception as error:
        if study.keep is not None:
            raise
        note = Note("what-if-fault", f"fixes were not tried: a rewrite has a fault ({type(error).__name__})")
        return replace(analysis, notes=[*analysis.notes, note])
    done = waterfalls.add(analysis, study.material, study.account, tried, timed=timed)
    if not tried.unchanged:
        return done
    left = many(tried.unchanged, "request")
    note = Note("what-if-unchanged", f"{left} with a cause stayed as logged: only bodies of an API can be rewritten")
    return replace(done, notes=[*done.notes, note])


def _write_fixed(
    study: gains.Study,
    analysis: Analysis,
    options: Options,
    log: _Log,
    write: Callable[[bytes], None],
    *,
    timed: bool,
) -> Analysis:
    """Try the fixes, and write the log as it is with all of them."""
    with contextlib.closing(Spool()) as spool:
        study.keep = spool.put
        done = _what_if(study, analysis, options, timed=timed)
        where = {study.material.table.where(row): row for row in spool.rows() if row not in study.unchanged}
        for line in log.fixed(lambda place: spool.get(where[place]) if place in where else None):
            write(line)
    return done


def _findings(run: _Run, order: np.ndarray, options: Options, log: _Log, redactor: redact.Redactor) -> list[LogFinding]:
    """Give what the log rules found. They see requests as they are read; where that is not the order of use, again."""
    watcher = run.watcher
    if watcher is None:
        return []
    if order.size > options.why:
        seen = f"causes were looked for in the first {options.why:,} of {order.size:,} requests"
        run.notes.append(Note("causes-sampled", f"{seen}; --why all looks at every one"))
    observer = watcher.finish(order, lambda rows: _again(run.table, log, rows))
    if observer.fault is not None:
        run.notes.append(Note("causes-fault", f"no causes are shown: a log rule has a fault ({observer.fault})"))
    return observer.findings(rulebook.rules(), redactor)


def _again(table: Table, log: _Log, rows: Iterable[int]) -> Iterator[tuple[int, Request, int]]:
    """Read rows of the log again, in this order, each with its family; those that cannot be read are left out."""
    wanted = iter(rows)
    while part := list(islice(wanted, _READ_AT_ONCE)):
        places = {table.where(row): row for row in part}
        found = {places[r.path, r.line, r.part]: r for r in log.again(places)}
        yield from ((row, found[row], table.family[row]) for row in part if row in found)


def _replay(
    run: _Run, rows: np.ndarray, chosen: Sequence[Engine], options: Options, tap: curves.Tap, *, use_blocks: bool
) -> simulate.Replay:
    table, encoder = run.table, run.encoder
    if use_blocks:
        traced = (simulate.BlockArrival(row, table.namespace[row], table.blocks[row]) for row in rows.tolist())
        return simulate.run_blocks(tap.blocks(traced), chosen)

    return simulate.run(
        accounts.arrivals(table, encoder, rows),
        chosen,
        block_size=options.block_size,
        wider=selection.wider(table),
        on_stored=tap.stored,
    )


def _export(run: _Run, rows: np.ndarray, options: Options, write: Callable[[bytes], None], *, use_blocks: bool) -> None:
    """Write the requests as an anonymous trace, in the order in which they were used."""
    table, members = run.table, rows.tolist()
    exporter = export.Exporter(block=options.block_size or export.BLOCK, salt=options.salt)

    reported = np.frombuffer(table.completion, np.int64)
    guess = int(np.median(known)) if (known := reported[rows][reported[rows] != UNKNOWN]).size else 1
    guessed = 0

    def lines() -> Iterator[export.Row]:
        nonlocal guessed
        prompts = run.encoder.sequences(table.prompt_segments(row) for row in members if not use_blocks)
        outputs = run.encoder.sequences(table.output_segments(row) for row in members if not use_blocks)
        for row in members:
            prompt, output = (table.blocks[row], 0) if use_blocks else (next(prompts), next(outputs).size)
            length = int(reported[row]) if reported[row] != UNKNOWN else int(output)
            guessed += not length
            time = table.time[row]
            yield export.Row(table.namespace[row], prompt, None if np.isnan(time) else time, length or guess)

    for line in exporter.lines(lines()):
        write(line)
    done = exporter.result()
    if done.empty:
        run.notes.append(
            Note("export-empty", f"{many(done.empty, 'request')} without a token: not in the exported trace")
        )
    if guessed:
        text = f"{many(guessed, 'request')} without a known output: {many(guess, 'token')} in the exported trace"
        run.notes.append(Note("export-outputs", f"{text}, since simulators want a number"))
    if len(done.sizes) > 1:
        text = "the trace has blocks of several sizes, which its exported form cannot say: its readers take one for all"
        run.notes.append(Note("export-sizes", text))


def _timed(table: Table, rows: np.ndarray, order_name: str) -> bool:
    return order_name == "time" and not np.isnan(np.frombuffer(table.time, np.float64)[rows]).any()


def _order(table: Table, options: Options, notes: list[Note]) -> tuple[np.ndarray, str]:
    """Choose the order in which requests are used, and say what is odd about the log's own."""
    times = np.frombuffer(table.time, np.float64)
    known = ~np.isnan(times)
    if options.order == "file" or not known.any():
        if options.order == "time":
            raise UsageError("the log has no times to sort by", slug="no-times", hint="use --sort file")
        return np.arange(times.size), "file"
    if not known.all() and options.order is None:
        missing = int((~known).sum())
        notes.append(Note("times-missing", f"{many(missing, 'request')} without a usable time: file order is used"))
        return np.arange(times.size), "file"
    steps = np.diff(times[known])
    if steps.size and (steps < 0).mean() > 0.9:
        notes.append(Note("reversed-log", "the log runs backwards in time; it was sorted"))
    elif (steps < 0).any():
        late = many(int((steps < 0).sum()), "request")
        notes.append(Note("unsorted-log", f"{late} out of time order: the log was sorted"))
    return np.argsort(np.where(known, times, np.inf), kind="stable"), "time"
