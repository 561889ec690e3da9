"""The order of the stages: a log in, an `Analysis` out. The command line and the Python API rest on this."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import BinaryIO

import numpy as np

from prefixlint import (
    accounts,
    bounded,
    causecost,
    chatprobe,
    counting,
    deviations,
    engines,
    export,
    gains,
    heap,
    logs,
    redact,
    replaying,
    rereading,
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
from prefixlint.errors import LogRefusedError
from prefixlint.fleet import Limits
from prefixlint.ingest import Ingest, Ingested, unmarked
from prefixlint.logfindings import LogFinding, with_masked_paths
from prefixlint.logsource import Files, Held, Log
from prefixlint.model import Request, Skip
from prefixlint.modelfiles import ModelFiles, resolve
from prefixlint.replaying import Replayed
from prefixlint.results import Analysis, Note, RequestLine
from prefixlint.table import Table
from prefixlint.tokens import Encoder
from prefixlint.watching import Watcher
from prefixlint.whatif._spool import Spool
from prefixlint.wording import many

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
    fixes are tried, by code, beginning of a code or name, `all`, or `few`: those that take about as many prompts
    as the log has, of the most costly causes first.
    `redact` masks personal values in what is shown, by kind, with labels under `mask_salt`. `source` are files and
    folders to find the causes in. `flags` are the options of the command line, by which advice names commands;
    `outline` asks for what few reports show: the prefix tree, the largest shared prefixes, curves over lifetimes and
    replicas.
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
    outline: bool = True


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
        return _analyze(Files(paths, options.log_format, stdin, index), options, watch or Watch())
    finally:
        index.close()


def analyze_requests(
    requests: Sequence[Request], options: Options | None = None, *, watch: Watch | None = None
) -> Analysis:
    """Do the same with requests that are at hand, no two of which stand at one place (path, line, part)."""
    return _analyze(Held(requests), options or Options(), watch or Watch())


def _analyze(log: Log, options: Options, watch: Watch) -> Analysis:
    chosen = [selection.simulated(engines.load(name)) for name in options.engines]
    files = resolve(
        options.model, tokenizer=options.tokenizer, chat_template=options.chat_template, offline=options.offline
    )
    server = savings.machine(options.server, files, offline=options.offline)
    if server.capacity is not None:
        options = replace(options, limits=replace(options.limits, capacity=server.capacity))
    # The GPUs' pool differs between engines; any number stands for it here.
    bounded.check(replace(options.limits, capacity=1) if server.auto else options.limits)
    if watch.on_fixed is not None:
        log.check_writable()
    run = _read(log, options, files, watch, chosen=chosen, machine=server)
    return _conclude(run, options, chosen, watch, log)


def _read(
    log: Log, options: Options, files: ModelFiles, watch: Watch, *, chosen: Sequence[Engine], machine: savings.Machine
) -> _Run:
    encoder = Encoder(files.tokenizer, bos=files.raw_start())
    has_template = bool(files.templates) or files.renderer == "harmony"
    template = renderer(files, route=selection.route(chosen)) if has_template else None
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
    heap.trim()
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


def _conclude(run: _Run, options: Options, chosen: Sequence[Engine], watch: Watch, log: Log) -> Analysis:
    """Say what the requests show: their causes, what caches make of them, what fixes gain, what it is worth, advice."""
    ordered = replaying.ordered(run.table, options.order, run.notes)
    redactor = redact.shown(personal=options.redact, salt=options.mask_salt)
    findings = _findings(run, ordered.order, options, log, redactor)
    run.watcher = None  # what it holds of the log is not needed any more
    heap.trim()
    setting = replaying.Setting(
        engines=chosen,
        files=run.files,
        server=run.server,
        limits=options.limits,
        block=savings.block(run.server, options.block_size, _asked(options)),
        by_server=bool(options.tokens_from),
        today=options.today,
    )
    done = replaying.replayed(run.table, run.encoder, ordered, setting, run.notes)
    if watch.on_trace is not None:
        block = options.block_size or export.BLOCK
        exporter = export.Exporter(block=block, salt=options.salt)
        source = (run.table, run.encoder, ordered.rows)
        run.notes += export.write(exporter, *source, watch.on_trace, of_blocks=ordered.of_blocks)
    material = _material(run, options, watch, log, done=done, findings=findings, redactor=redactor)
    account = accounts.account(material)
    analysis = summary.build(material, account)
    bare = simulate.without_trees(done.replay)
    done, material = replace(done, replay=bare), replace(material, replay=bare)
    if ordered.rows.size:
        analysis = _tried(run, options, watch, log, done=done, material=material, account=account, analysis=analysis)
    run.encoder.rest()
    analysis = worth.add(analysis, _worth(run, options, done, account))
    if options.source:
        from prefixlint import tosource  # late, since the linter is another program

        analysis = tosource.add(analysis, options.source, log.again, redactor=redactor)
    analysis = replace(analysis, findings=[with_masked_paths(f, redactor.path) for f in analysis.findings])
    if not isinstance(log, Files):  # advice is given on logs, which a command can name
        return analysis
    return _advised(run, options, done, account=account, analysis=analysis, paths=log.paths)


def _asked(options: Options) -> tuple[str, int] | None:
    """Give the blocks of the server that counts tokens, where that is one and nobody said what they are."""
    return counting.served_block(options.tokens_from) if options.tokens_from and options.block_size is None else None


def _material(
    run: _Run,
    options: Options,
    watch: Watch,
    log: Log,
    *,
    done: Replayed,
    findings: Sequence[LogFinding],
    redactor: redact.Redactor,
) -> Material:
    return Material(
        bounded=done.limited,
        table=run.table,
        read=run.read,
        encoder=run.encoder,
        stand_in=run.files.stand_in,
        order=done.ordered.order,
        order_name=done.ordered.name,
        rows=done.ordered.rows,
        replay=done.replay,
        counts=done.counts,
        notes=run.notes,
        by=options.by,
        warmup=options.warmup,
        again=log.again,
        on_request=watch.on_request,
        redactor=redactor,
        on_account=watch.on_account,
        findings=findings,
        outline=options.outline,
        forgets=causecost.has_thoughts(findings)
        and chatprobe.forgets(run.files.templates.values(), run.files.special_tokens),
    )


def _tried(
    run: _Run,
    options: Options,
    watch: Watch,
    log: Log,
    *,
    done: Replayed,
    material: Material,
    account: Account,
    analysis: Analysis,
) -> Analysis:
    """Give the analysis with what the fixes gain; the log as it is with them is written where that is asked for."""
    where = simulate.after_warmup(done.ordered.rows.size, options.warmup)
    # a fix marks nothing that is not marked already
    ingest = run.ingest if bounded.has_marks(run.table, options.limits) else replace(run.ingest, marked=unmarked)
    trying = gains.Study(material, account, ingest, done.serve, analysis.findings, where)
    if watch.on_fixed is None:
        return _what_if(trying, analysis, options, timed=done.ordered.timed)
    return _write_fixed(trying, analysis, options, log, watch.on_fixed, timed=done.ordered.timed)


def _worth(run: _Run, options: Options, done: Replayed, account: Account) -> worth.Study:
    return worth.Study(
        server=run.server,
        table=run.table,
        rows=done.ordered.rows,
        served=account.served,
        counted=next(iter(done.replay.engines.values())).prompt,
        pools=done.pools,
        replicas=options.limits.replicas,
        tap=done.tap,
        warmup=options.warmup,
        timed=done.ordered.name == "time",
        outline=options.outline,
    )


def _advised(
    run: _Run, options: Options, done: Replayed, *, account: Account, analysis: Analysis, paths: Sequence[str]
) -> Analysis:
    """Give the analysis with how far its curves are from the engines, and with advice on the servers of these logs."""
    case = Case(
        analysis=analysis,
        log=done.log,
        replay=done.replay,
        served=account.served,
        limits=options.limits,
        factors=done.counts.factors,
        server=run.server,
        tap=done.tap,
        warmup=options.warmup,
        paths=paths,
        flags=options.flags,
        pools=done.capacities,
    )
    return replace(deviations.add(case), advice=advise(case))


def _what_if(study: gains.Study, analysis: Analysis, options: Options, *, timed: bool) -> Analysis:
    """Try the fixes of the causes that were found; a fault in a rewrite costs their gains and not the analysis."""
    few = "few" in options.what_if
    wanted = ("all",) if few else options.what_if
    left: list[str] = []
    try:
        fixes, not_tried = study.plan(lambda finding: gains.is_wanted(finding, wanted))
        if few and study.keep is None:
            every, fixes = fixes, study.affordable(fixes)
            left = sorted({code for fix in every if fix not in fixes for code in fix.codes})
        tried = study.run(fixes, not_tried)
    except Exception as error:
        if study.keep is not None:
            raise
        note = Note("what-if-fault", f"fixes were not tried: a rewrite has a fault ({type(error).__name__})")
        return replace(analysis, notes=[*analysis.notes, note])
    notes = [*analysis.notes]
    if left:
        text = (
            f"{', '.join(left)}: fixes not tried, since they meet others in many requests; --what-if all takes longer"
        )
        notes.append(Note("what-if-many", text))
    if study.foreign:
        text = "token ids are not those of the tokenizer at hand: --model NAME lets fixes be tried on them"
        notes.append(Note("what-if-ids", text))
    if tried.unchanged:
        stayed = f"{many(tried.unchanged, 'request')} with a cause stayed as logged"
        reason = "only bodies and texts can be rewritten"
        if study.fault is not None:
            reason = f"a rewrite has a fault ({study.fault.told(study.material.redactor)})"
        notes.append(Note("what-if-unchanged", f"{stayed}: {reason}"))
    analysis = replace(analysis, notes=notes)
    return waterfalls.add(analysis, study.material, study.account, tried, timed=timed)


def _write_fixed(
    study: gains.Study,
    analysis: Analysis,
    options: Options,
    log: Log,
    write: Callable[[bytes], None],
    *,
    timed: bool,
) -> Analysis:
    """Try the fixes, and write the log as it is with all of them."""
    with contextlib.closing(Spool()) as spool:
        study.keep = spool.put
        done = _what_if(study, analysis, options, timed=timed)
        where = {study.material.table.where(row): row for row in spool.rows() if row not in study.unchanged}
        lost: list[int] = []
        fixed = log.fixed(
            lambda place: spool.get(where[place]) if place in where else None, lambda skip: lost.append(skip.line)
        )
        for line in fixed:
            write(line)
    if not lost:
        return done
    text = f"{many(len(lost), 'line')} that cannot be read (the first is {lost[0]:,}) left out of the written log"
    return replace(done, notes=[*done.notes, Note("write-fixed-lost", text)])


def _findings(run: _Run, order: np.ndarray, options: Options, log: Log, redactor: redact.Redactor) -> list[LogFinding]:
    """Give what the log rules found. They see requests as they are read; where that is not the order of use, again."""
    watcher = run.watcher
    if watcher is None:
        return []
    if order.size > options.why:
        seen = f"causes were looked for in the first {options.why:,} of {order.size:,} requests"
        run.notes.append(Note("causes-sampled", f"{seen}; --why all looks at every one"))
    observer = watcher.finish(order, lambda rows: _again(run.table, log, rows))
    if observer.fault is not None:
        left_out = f"{many(observer.left_out, 'request')} left out of the search for causes"
        run.notes.append(Note("causes-fault", f"{left_out}: a log rule has a fault ({observer.fault.told(redactor)})"))
    return observer.findings(rulebook.rules(), redactor)


def _again(table: Table, log: Log, rows: Iterable[int]) -> Iterator[tuple[int, Request, int]]:
    """Read rows of the log again, in this order, each with its family; those that cannot be read are left out."""
    wanted = list(rows)
    found = rereading.in_order(log.again, [table.where(row) for row in wanted])
    yield from ((row, one, table.family[row]) for row, one in zip(wanted, found, strict=True) if one is not None)
