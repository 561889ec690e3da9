"""Limits as they are asked for, applied to the requests of a log; what is assumed on the way is told as notes."""

from __future__ import annotations

import datetime as dt
import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, repeat
from typing import TYPE_CHECKING

import numpy as np

from prefixlint import engines, routing
from prefixlint.caches.choose import EVICTIONS, OPTIMAL, has_capacity, has_policies, is_eviction
from prefixlint.caches.marks import Marks
from prefixlint.errors import UsageError
from prefixlint.fleet import OPT_BLOCK, Limits, by_elements, ways_of
from prefixlint.lives import Visit
from prefixlint.losses import Blocks, Outcome, serve
from prefixlint.marks import DEFAULT_TTL, UNMARKED, Block
from prefixlint.results import Note
from prefixlint.simulate import Replay, Served, scaled
from prefixlint.spots import Spot, lifetime, placed
from prefixlint.wording import many, percent

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from prefixlint.engines import Engine
    from prefixlint.table import Table
    from prefixlint.tokens import Encoder
    from prefixlint.ways import Ways

    Counts = NDArray[np.int64]
    Ids = NDArray[np.uint32]
    Rows = NDArray[np.intp]

_MOST_REPLICAS = 10_000  # each has a cache of its own in memory
_KEYS = re.compile(r"logged|none|session|family(:[1-9]\d{0,2})?")
_UNEVEN = 1.2  # the busiest replica's tokens over an even share, from which it is told


@dataclass(frozen=True, slots=True)
class Bounded:
    """What limited caches served, by engine, its counts as they are reported; the limits of each; what was assumed."""

    served: Mapping[str, Served]
    limits: Mapping[str, Limits]
    notes: Sequence[Note]


@dataclass(frozen=True, slots=True)
class Log:
    """The requests of a log in order: `rows` of the table; `timed` says that they stand in the order of their times."""

    table: Table
    encoder: Encoder
    rows: Rows
    timed: bool
    of_blocks: bool
    marks: dict[int, Marks] = field(default_factory=dict, compare=False)
    """The marks that prompts have themselves, in tokens, by row: filled as rows are visited, the same each time."""
    ways: dict[bool, Ways] = field(default_factory=dict, compare=False)
    """The ways of the requests, by whether salts keep them apart: filled as they are asked for."""


def check(limits: Limits) -> None:
    """Refuse limits that are not possible, whatever the log; UsageError."""
    for name, tokens in (("--capacity", limits.capacity), ("--host-capacity", limits.host_capacity)):
        if tokens is not None and tokens < 1:
            raise UsageError(
                f"{name} {tokens} holds nothing", slug="bad-capacity", hint="Give the pool of one replica, in tokens."
            )
    if limits.host_capacity is not None and limits.capacity is None:
        raise UsageError("--host-capacity needs --capacity", slug="bad-capacity", hint="A second tier needs a first.")
    if limits.host_write is not None and limits.host_capacity is None:
        hint = "It says when the tier on the host gets something."
        raise UsageError("--host-write needs --host-capacity", slug="bad-capacity", hint=hint)
    if limits.eviction is not None and not is_eviction(limits.eviction):
        raise UsageError(
            f"there is no eviction policy {limits.eviction!r}",
            slug="bad-eviction",
            hint=f"One of {', '.join(EVICTIONS)}.",
        )
    if limits.eviction is not None and limits.capacity is None:
        raise UsageError("--eviction needs --capacity", slug="bad-eviction", hint="Nothing is evicted without a limit.")
    if limits.replicas < 1:
        raise UsageError(f"--replicas {limits.replicas} is no fleet", slug="bad-replicas", hint="Give 1 or more.")
    if limits.replicas > _MOST_REPLICAS:
        raise UsageError(
            f"--replicas {limits.replicas} are more than can be simulated",
            slug="bad-replicas",
            hint=f"Give {_MOST_REPLICAS} or fewer.",
        )
    if limits.route is not None and limits.route not in routing.ROUTES:
        raise UsageError(
            f"there is no route {limits.route!r}", slug="bad-route", hint=f"One of {', '.join(routing.ROUTES)}."
        )
    if limits.route not in (None, "logged") and limits.replicas == 1:
        raise UsageError("--route needs --replicas", slug="bad-route", hint="With one replica there is no choice.")
    if limits.keys is not None and not _KEYS.fullmatch(limits.keys):
        raise UsageError(
            f"--cache-key {limits.keys} is no rule",
            slug="bad-cache-key",
            hint="One of logged, none, family, family:3 (spread over three keys), session.",
        )
    if limits.ttl is not None and not limits.ttl > 0:
        raise UsageError(f"--ttl {limits.ttl:g} keeps nothing", slug="bad-ttl", hint="Give seconds, like 300.")


def apply(
    log: Log,
    replay: Replay,
    limits: Limits,
    factors: NDArray[np.float64],
    *,
    today: dt.date | None = None,
    pools: Mapping[str, int] | None = None,
) -> Bounded:
    """Simulate each engine of a replay that has limits: those that are asked for, or its own.

    `pools` are capacities that hold for single engines.

    UsageError where the log lacks what they need, or a pool holds no block.
    """
    notes = list(_checked(log, limits))
    fleets: dict[str, tuple[Served, Limits]] = {}
    for name, base in replay.engines.items():
        notes += _age(base.engine, today)
        pool = (pools or {}).get(name)
        own, about = own_limits(base.engine, limits if pool is None else replace(limits, capacity=pool), log)
        notes += about
        if own is not None:
            fleets[name] = (scaled(base, factors), own)
    if not fleets:
        return Bounded({}, {}, notes)
    outcomes = dict(zip(fleets, run(log, list(fleets.values()), factors, limits), strict=True))
    for name, outcome in outcomes.items():
        notes += _told(name, outcome, fleets[name][1])
    block = log.table.blocks[int(log.rows[0])].block_size if log.of_blocks and log.rows.size else None
    shown = {name: _shown(base.engine, own, outcomes[name], block) for name, (base, own) in fleets.items()}
    return Bounded({name: outcome.served for name, outcome in outcomes.items()}, shown, notes)


def run(
    log: Log, fleets: Sequence[tuple[Served, Limits]], factors: NDArray[np.float64], limits: Limits
) -> list[Outcome]:
    """Replay the log through some engines' caches; `limits` say how requests are marked and keyed."""
    blocks = _blocks(log) if log.of_blocks else None
    elements = any(by_elements(base.engine, own) for base, own in fleets)
    marked = _read_marks(log, fleets, limits)
    visits = _block_visits(log) if blocks is not None else visits_of(log, limits, marked=marked, elements=elements)
    lasted = np.concatenate([np.frombuffer(c, np.float64)[log.rows] for c in (log.table.first, log.table.total)])
    try:
        overlap = log.timed and not np.isnan(lasted).all()
        return serve(visits, fleets, factors, blocks, overlap=overlap, ways=partial(ways, log), marked=marked)
    except ValueError as error:
        capacity = max(limits.capacity or 0 for _, limits in fleets)
        raise UsageError(
            f"--capacity {capacity} is too small: {error}",
            slug="bad-capacity",
            hint="A pool needs room for a block at least (vLLM sets one block aside).",
        ) from error


def ways(log: Log, salted: bool) -> Ways:
    """Give the ways of a log's requests, as salts keep them apart or as engines see them that know none."""
    if salted not in log.ways:
        visits = _block_visits(log) if log.of_blocks else visits_of(log, Limits(), marked=False)
        log.ways[salted] = ways_of(visits, salted)
    return log.ways[salted]


def _checked(log: Log, limits: Limits) -> Iterator[Note]:
    """Check what the limits need of the log; tell what is assumed where it lacks some of it."""
    if limits.ttl is not None and not log.timed:
        raise UsageError(
            "a lifetime needs the times of the requests, and not all of them have one",
            slug="no-times",
            hint="Leave --ttl out, or log when each request began (and do not use --sort file).",
        )
    if limits.marks is not None and not log.table.marks:
        yield Note("no-marks", "--marks changes nothing: no engine here reads marks, or the log has no prompts to mark")
    if limits.route == "logged":
        replicas = np.frombuffer(log.table.replica, np.int32)[log.rows]
        known = np.array([log.table.replicas.values[number] is not None for number in replicas.tolist()], bool)
        if not known.any():
            raise UsageError(
                "the log does not say which replica served a request",
                slug="no-replicas",
                hint="Use another --route, or log a field called replica, instance_id, worker_id, pod or host.",
            )
        if not known.all():
            missing = int((~known).sum())
            yield Note("replicas-missing", f"{many(missing, 'request')} without a replica: counted as one replica more")


def own_limits(engine: Engine, limits: Limits, log: Log) -> tuple[Limits | None, list[Note]]:
    """Give the limits that an engine has among those asked for; None where it has none at all."""
    notes = []
    own = limits if engine.kind == "provider" else replace(limits, marks=None, keys=None)
    if not has_capacity(engine) and (limits.capacity is not None or limits.replicas > 1 or limits.route):
        text = f"{engine.name}: memory and routing are the provider's own; --capacity and --replicas are not applied"
        notes.append(Note("provider-limits", text))
        own = Limits(ttl=limits.ttl, from_write=limits.from_write, marks=limits.marks, keys=limits.keys)
    elif limits.eviction not in (None, "lru", OPTIMAL) and not has_policies(engine):
        notes.append(
            Note("one-eviction", f"{engine.name} evicts by its own rule; --eviction {limits.eviction} is not applied")
        )
        own = replace(limits, eviction=None)
    if limits.eviction == OPTIMAL and has_capacity(engine) and engine.granularity < OPT_BLOCK and not log.of_blocks:
        notes.append(Note("optimal-blocks", f"{engine.name}: the optimum is taken over blocks of {OPT_BLOCK} tokens"))
    if not log.timed and own.ttl is None and engine.ttl is not None:
        lives = f"entries live {lifetime(engine.ttl)}"
        text = f"{engine.name}: {lives}, which is not applied, since not all requests have a time"
        notes.append(Note("no-lifetime", text))
    if not has_limits(engine, own):
        return None, notes
    if engine.rate is not None and log.timed and own.replicas == 1 and _too_fast(log, own.keys, engine.rate):
        own = replace(own, spill=True)
    return (own if log.timed else replace(own, ttl=math.inf)), notes


def has_limits(engine: Engine, limits: Limits) -> bool:
    """Tell whether an engine's cache has limits, its own or these."""
    return limits != Limits() or engine.kind == "provider" or engine.match == "slot"


def keys(log: Log, rule: str | None) -> Counts:
    """Give the number of each request's prompt_cache_key, by a rule of --cache-key (None: the log's own).

    With `family:3`, the conversations of a family are spread over three keys.
    """
    table, rows = log.table, log.rows
    if rule == "none":
        return np.zeros(rows.size, np.int64)
    column = {None: table.key, "logged": table.key, "session": table.conversation}.get(rule, table.family)
    found: Counts = np.frombuffer(column, np.int32)[rows].astype(np.int64)
    if rule is not None and rule.startswith("family:"):
        parts = int(rule.partition(":")[2])
        sessions: Counts = np.frombuffer(table.conversation, np.int32)[rows].astype(np.int64)
        return found * parts + sessions % parts
    return found


def _too_fast(log: Log, rule: str | None, rate: int) -> bool:
    """Tell whether requests can be sent to different machines: several keys, or more than the rate in a minute."""
    number, times = keys(log, rule), np.frombuffer(log.table.time, np.float64)[log.rows]
    return bool(np.unique(number).size > 1 or (times[rate:] - times[:-rate] < 60).any())


def _shown(engine: Engine, limits: Limits, outcome: Outcome, block: int | None) -> Limits:
    """Give the limits as they were in effect: whole blocks, the replicas that there were, the lifetime applied."""
    capacity = limits.capacity
    if capacity is not None:
        size = block or engine.granularity
        capacity = capacity // size * size
    ttl = engine.ttl if limits.ttl is None else limits.ttl
    replicas = 1 if limits.spill else len(outcome.load) or limits.replicas
    route = limits.route or ("round-robin" if replicas > 1 else None)
    return replace(
        limits, capacity=capacity, replicas=replicas, route=route, ttl=None if ttl in (None, math.inf) else ttl
    )


def _told(name: str, outcome: Outcome, limits: Limits) -> Iterator[Note]:
    if outcome.refused:
        yield Note(
            "larger-than-pool",
            f"{name}: {many(outcome.refused, 'request')} larger than the pool, counted as computed in full",
        )
    if outcome.spilled:
        text = f"{name}: {many(outcome.spilled, 'request')} came too fast for one machine and went to a further one"
        yield Note("spilled", f"{text}; --cache-key shows what other prompt_cache_keys do")
    if limits.spill:
        return
    total = sum(outcome.load)
    if len(outcome.load) > 1 and total and max(outcome.load) * len(outcome.load) > _UNEVEN * total:
        share, even = max(outcome.load) / total, 1 / len(outcome.load)
        text = f"{name}: the busiest of {len(outcome.load)} replicas gets {percent(share)} of the prompt tokens"
        yield Note("uneven-replicas", f"{text}; an even share is {percent(even)}")


def _age(engine: Engine, today: dt.date | None) -> Iterator[Note]:
    old = engines.old(engine, today) if today is not None else []
    if old:
        facts = ", ".join(key for key, _ in old)
        text = f"{engine.name}: facts that are {old[0][1]} days old may no longer hold ({facts})"
        where = f"prefixlint engine {engine.name}" if engine.name in engines.names() else "prefixlint engine FILE.toml"
        yield Note("old-facts", f"{text}; see {where}")


def _read_marks(log: Log, fleets: Sequence[tuple[Served, Limits]], limits: Limits) -> bool:
    """Tell whether any engine goes by marks, for any model of the log, and there are any."""
    models = log.table.models.values
    return any(base.engine.goes_by_marks(models) for base, _ in fleets) and has_marks(log.table, limits)


def has_marks(table: Table, limits: Limits) -> bool:
    """Tell whether prompts are marked, by themselves or by the limits."""
    if limits.marks is not None:
        return bool(table.marks)
    return any(block.ttl != UNMARKED for blocks in table.marks.values() for block in blocks)


def visits_of(log: Log, limits: Limits, *, marked: bool = True, elements: bool = True) -> Callable[[], Iterator[Visit]]:
    """Give the requests of a log of prompts, marked and keyed as limits say, anew each time.

    Where no engine goes by marks (`marked`), they need not be looked for; without `elements` tokens are left out.
    """
    table, encoder = log.table, log.encoder
    known = keys(log, limits.keys).tolist()
    unsalted = table.unsalted()
    nothing = np.empty(0, np.uint32)

    def visits() -> Iterator[Visit]:
        rows = log.rows.tolist()
        prompts: Iterable[Ids] = repeat(nothing, len(rows))
        outputs: Iterable[Ids] = repeat(nothing, len(rows))
        if elements:
            prompts = encoder.sequences(table.prompt_segments(row) for row in rows)
            outputs = encoder.sequences(table.output_segments(row) for row in rows)
        for row, key, prompt, output in zip(rows, known, prompts, outputs, strict=True):
            blocks = table.marks.get(row) if marked else None
            yield Visit(
                table.namespace[row],
                prompt,
                output[:-1] if table.cut[row] else output,
                *_times(log, row),
                session=table.conversation[row],
                replica=table.replicas.values[table.replica[row]],
                model=table.models.values[table.model[row]],
                marks=_marks(log, row, blocks, limits.marks) if blocks else None,
                key=key,
                unsalted=unsalted.get(table.namespace[row]),
            )

    return visits


def _block_visits(log: Log) -> Callable[[], Iterator[Visit]]:
    table = log.table

    def visits() -> Iterator[Visit]:
        numbers: dict[int | str, int] = {}
        for row in log.rows.tolist():
            hashes = table.blocks[row].hashes
            ids = np.fromiter((numbers.setdefault(h, len(numbers)) for h in hashes), np.uint32, len(hashes))
            yield Visit(
                table.namespace[row],
                ids,
                None,
                *_times(log, row),
                session=table.conversation[row],
                replica=table.replicas.values[table.replica[row]],
                model=table.models.values[table.model[row]],
            )

    return visits


def _blocks(log: Log) -> Blocks:
    contents = [log.table.blocks[row] for row in log.rows.tolist()]
    ends = [np.fromiter(accumulate(c.sizes), np.int64, len(c.sizes)) for c in contents]
    return Blocks(max((c.block_size for c in contents), default=1), ends)


def _times(log: Log, row: int) -> tuple[float | None, float | None, float | None]:
    """Give when a request came, and how long its first token and its end took; None where that is not to be used."""
    if not log.timed:
        return None, None, None
    first, total = log.table.first[row], log.table.total[row]
    return log.table.time[row], None if math.isnan(first) else first, None if math.isnan(total) else total


def _marks(log: Log, row: int, blocks: Sequence[Block], spots: Sequence[Spot] | None) -> Marks:
    """Turn characters of the rendered prompt into tokens; inside of a segment they are shared out evenly.

    Marks at `spots` replace those of the prompt itself.
    """
    own = log.marks.get(row)
    if own is None:
        assert DEFAULT_TTL == 0  # so that `or` tells it from a lifetime
        marked = {i: block.ttl or None for i, block in enumerate(blocks) if block.ttl != UNMARKED}
        own = log.marks[row] = Marks(_ends(log, row, blocks), marked)
    return own if spots is None else Marks(own.ends, placed(blocks, spots))


def _ends(log: Log, row: int, blocks: Sequence[Block]) -> list[int]:
    """Give the tokens of a prompt up to the end of each block."""
    segments = log.table.prompt_segments(row)
    tokens = log.encoder.bounds(segments).tolist()
    chars = list(accumulate(map(log.encoder.chars, segments.tolist()), initial=0))
    found, most = [], 0
    for block in blocks:
        at = bisect_right(chars, block.end) - 1
        end = tokens[at]
        if block.end > chars[at] and at + 1 < len(chars):
            each = (tokens[at + 1] - end) / (chars[at + 1] - chars[at])
            end = int(each * (block.end - chars[at]) + end)
        most = max(most, end)
        found.append(most)
    return found
