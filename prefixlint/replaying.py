"""From the rows of a log to what caches make of them: which requests, in which order, on which engines and servers."""

from __future__ import annotations

import datetime as dt
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from prefixlint import accounts, blocksize, bounded, counting, curves, savings, selection, simulate
from prefixlint.cost import Pool
from prefixlint.counting import Counted
from prefixlint.engines import Engine
from prefixlint.errors import UsageError
from prefixlint.fleet import Limits
from prefixlint.modelfiles import ModelFiles
from prefixlint.results import Note
from prefixlint.simulate import Replay, Served
from prefixlint.table import Kind, Table
from prefixlint.tokens import Encoder
from prefixlint.wording import many

Rows = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Ordered:
    """The requests of a log in the order in which they are used, `name` being `time` or `file`.

    `order` are all rows of the table, `rows` those that are replayed: prompts, or with `of_blocks` hash traces. `timed`
    says that these stand in the order of their times.
    """

    order: Rows
    name: str
    rows: Rows
    of_blocks: bool
    timed: bool


@dataclass(frozen=True, slots=True)
class Setting:
    """What the requests are replayed on: `engines` (none: those that the log shows), `server` and its `limits`.

    `block` is what is known of the blocks of engines. `by_server` says that a server counted the tokens; `today` is the
    day by which the age of facts is told.
    """

    engines: Sequence[Engine]
    files: ModelFiles
    server: savings.Machine
    limits: Limits
    block: blocksize.Known
    by_server: bool
    today: dt.date | None


@dataclass(frozen=True, slots=True)
class Replayed:
    """What caches made of the requests; `pools` are those of the server's GPUs, by engine, `tap` saw each request."""

    ordered: Ordered
    log: bounded.Log
    replay: Replay
    counts: Counted
    limited: bounded.Bounded
    limits: Limits
    tap: curves.Tap
    pools: Mapping[str, Pool]
    capacities: Mapping[str, int]

    def serve(self, table: Table, replay: Replay) -> dict[str, Served]:
        """Give what the same servers would serve of the same requests with other prompts."""
        factors = self.counts.factors
        found = {name: simulate.scaled(one, factors) for name, one in replay.engines.items()}
        if self.limited.limits:
            changed = replace(self.log, table=table, marks={}, ways=dict(replay.ways))
            found |= bounded.apply(changed, replay, self.limits, factors, pools=self.capacities).served
        return found


def ordered(table: Table, wanted: str | None, notes: list[Note]) -> Ordered:
    """Choose which requests are replayed, in which order, and say what is odd about the log's own.

    `wanted` is `time`, `file` or None: by time where all requests have one. UsageError without any time to sort by.
    """
    order, name = _order(table, wanted, notes)
    kinds = np.frombuffer(table.kind, np.int8)[order]
    of_blocks = bool((kinds == Kind.BLOCKS).any())
    if of_blocks and (kinds == Kind.TOKENS).any():
        notes.append(Note("mixed-kinds", "the log mixes prompts with hash traces; only the prompts are analysed"))
        of_blocks = False
    rows = order[kinds == (Kind.BLOCKS if of_blocks else Kind.TOKENS)]
    timed = name == "time" and not np.isnan(np.frombuffer(table.time, np.float64)[rows]).any()
    return Ordered(order, name, rows, of_blocks, timed)


def replayed(table: Table, encoder: Encoder, requests: Ordered, setting: Setting, notes: list[Note]) -> Replayed:
    """Replay requests, check their counts against the log's, and apply the limits.

    UsageError where the log lacks what the limits need.
    """
    rows, limits = requests.rows, setting.limits
    named = setting.engines or selection.by_log(table, rows, of_blocks=requests.of_blocks)
    for engine in () if setting.engines else selection.unmarked(named, table, rows):
        why = "its cache goes by marks, and the log holds none, though hits were reported"
        notes.append(Note("marks-not-logged", f"{engine.name}: {why}; what it could serve is left out"))
        named = [other for other in named if other is not engine]
    chosen = selection.settled(named, table, rows)
    if not requests.of_blocks:
        chosen, told = blocksize.settled(chosen, setting.block)
        notes += told
    unsalted = table.unsalted()
    tap = curves.Tap(chosen, salts=bool(unsalted))
    own = any(bounded.has_limits(engine, limits) for engine in chosen)
    replay = _replay(table, encoder, requests, chosen, tap, unsalted=unsalted, ways=own)
    counts = counting.check(table, rows, replay, setting.files, blocks=requests.of_blocks, server=setting.by_server)
    ways = dict(replay.ways)
    log = bounded.Log(table, encoder, rows, timed=requests.timed, of_blocks=requests.of_blocks, ways=ways)
    pools = savings.pools(setting.server, {name: one.engine for name, one in replay.engines.items()}, notes)
    capacities = {name: pool.tokens for name, pool in pools.items()} if setting.server.auto else {}
    limited = bounded.apply(log, replay, limits, counts.factors, today=setting.today, pools=capacities)
    notes += limited.notes
    return Replayed(requests, log, replay, counts, limited, limits, tap, pools, capacities)


def _replay(
    table: Table,
    encoder: Encoder,
    requests: Ordered,
    chosen: Sequence[Engine],
    tap: curves.Tap,
    *,
    unsalted: Mapping[Hashable, Hashable],
    ways: bool,
) -> Replay:
    rows = requests.rows
    if requests.of_blocks:
        traced = (simulate.BlockArrival(row, table.namespace[row], table.blocks[row]) for row in rows.tolist())
        return simulate.run_blocks(tap.blocks(traced), chosen)
    return simulate.run(
        accounts.arrivals(table, encoder, rows),
        chosen,
        wider=selection.wider(table),
        unsalted=unsalted,
        on_stored=tap.stored,
        ways=ways,
    )


def _order(table: Table, wanted: str | None, notes: list[Note]) -> tuple[Rows, str]:
    times = np.frombuffer(table.time, np.float64)
    known = ~np.isnan(times)
    if wanted == "file" or not known.any():
        if wanted == "time":
            raise UsageError("the log has no times to sort by", slug="no-times", hint="use --sort file")
        return np.arange(times.size), "file"
    if not known.all() and wanted is None:
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
