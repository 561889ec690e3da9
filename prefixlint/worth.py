"""From a replay to its curves and to what its hits are worth: picks the numbers that both need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from prefixlint import curves, reported, savings, simulate
from prefixlint.cost import Fit, Pool, fit
from prefixlint.results import Analysis, Saving
from prefixlint.table import UNKNOWN, Table

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]

_SCATTER = 0.3  # the median relative error of a fit, beyond which a log's times are not those of prefill


@dataclass(frozen=True, slots=True)
class Study:
    """What was replayed: `rows` of the table in order, and what each engine served, in tokens as they are reported.

    `counted` are the prompts' tokens before they were scaled to that. `pools` are those of the GPUs, by engine, and
    `tap` saw the replay's requests. `timed` says that they are in the order of their times,
    `outline` that curves are wanted which few reports show.
    """

    server: savings.Machine
    table: Table
    rows: Counts
    served: Mapping[str, simulate.Served]
    counted: Counts
    pools: Mapping[str, Pool]
    replicas: int
    tap: curves.Tap
    warmup: float
    timed: bool
    outline: bool = True


def add(analysis: Analysis, study: Study) -> Analysis:
    """Give the analysis with its curves and savings."""
    if not study.rows.size:
        return replace(analysis, savings=_reported(study))
    times = _times(study)
    setting = curves.Setting(
        counted=_counted(study),
        every=study.outline,
        times=times if study.timed and not np.isnan(times).any() else None,
        sessions=_sessions(study),
        kv_bytes=study.server.kv_bytes(),
        pools={
            name: curves.Pool(pool.tokens, _running(study, study.served[name]), pool.basis)
            for name, pool in study.pools.items()
        },
        simulated={
            e.engine: (e.capacity_tokens, e.hit_rate)
            for e in analysis.engines
            if e.capacity_tokens is not None and e.hit_rate is not None and e.replicas == 1 and e.ttl_s is None
        },
        factors=_factors(study),
    )
    found = [one for served in study.served.values() if (one := _saving(study, served)) is not None]
    return replace(analysis, curves=study.tap.curves(setting), savings=[*_reported(study), *found])


def _running(study: Study, served: simulate.Served) -> int | None:
    """Give what the requests in flight hold of a replica's pool on average, besides what they share.

    Each holds what it had to compute and half of what it generates, for as long as it lasts. None where the log says of
    less than half of them how long they took, or no times.
    """
    times, lasted = _times(study), np.frombuffer(study.table.total, np.float64)[study.rows]
    known = ~np.isnan(times) & ~np.isnan(lasted)
    if 2 * known.sum() < known.size:
        return None
    span = float((times + lasted)[known].max() - times[known].min())
    if span <= 0:
        return None
    output = _outputs(study, slice(None))
    held = served.prompt - served.cached + np.where(output == UNKNOWN, 0, output) / 2
    share = known.sum() / known.size
    held_seconds = float((held * lasted)[known].sum())
    return round(held_seconds / span / float(share) / study.replicas)


def _counted(study: Study) -> NDArray[np.bool_]:
    counted = np.zeros(study.rows.size, bool)
    counted[simulate.after_warmup(study.rows.size, study.warmup)] = True
    return counted


def _times(study: Study) -> Floats:
    return np.frombuffer(study.table.time, np.float64)[study.rows]


def _sessions(study: Study) -> Counts | None:
    """Give the numbers of the conversations; None where each request is one of its own, which tells nothing."""
    numbers = np.frombuffer(study.table.conversation, np.int32)[study.rows]
    return numbers.astype(np.int64) if np.unique(numbers).size < numbers.size else None


def _factors(study: Study) -> Floats | None:
    """Give what each request's counts were multiplied by to meet the reported ones; None where nothing was."""
    prompt = next(iter(study.served.values())).prompt
    if (prompt == study.counted).all():
        return None
    return np.divide(prompt, study.counted, out=np.ones(prompt.size), where=study.counted > 0)


def _saving(study: Study, served: simulate.Served) -> Saving | None:
    where = simulate.after_warmup(study.rows.size, study.warmup)
    rows = study.rows[where]
    return savings.of_engine(
        study.server,
        savings.Served(
            engine=served.engine,
            prompt=served.prompt[where],
            cached=served.cached[where],
            output=_outputs(study, where),
            times=np.frombuffer(study.table.time, np.float64)[rows],
            models=np.frombuffer(study.table.model, np.int32)[rows].astype(np.int64),
            written=None if served.written is None else served.written[where],
            long=None if served.long is None else served.long[where],
        ),
        study.table,
        _fitted(study, served),
    )


def _fitted(study: Study, served: simulate.Served) -> Fit | None:
    """Fit the time of prefill to the log's own times to the first token; None where it has too few or they scatter.

    What was cached is what the log reports, else what the engine would have served.
    """
    if study.server.shape is None:
        return None
    reported = np.frombuffer(study.table.cached, np.int64)[study.rows]
    cached = np.where(reported == UNKNOWN, served.cached, np.minimum(reported, served.prompt))
    first = np.frombuffer(study.table.first, np.float64)[study.rows]
    found = fit(study.server.shape, served.prompt, cached, first)
    return found if found is not None and found.error <= _SCATTER else None


def _outputs(study: Study, where: slice) -> Counts:
    """Give the generated tokens: as the log reports them, else as counted in it."""
    reported: Counts = np.frombuffer(study.table.completion, np.int64)[study.rows][where]
    counted = study.tap.outputs()
    if counted is None:
        return reported
    # The last token of an output has no KV, so that it was not counted.
    held = np.where(counted > 0, counted + 1, UNKNOWN)[where]
    return np.where(reported != UNKNOWN, reported, held)


def _reported(study: Study) -> list[Saving]:
    every = np.arange(len(study.table))
    if not len(study.table) or (np.frombuffer(study.table.cached, np.int64) == UNKNOWN).all():
        return []
    counted = reported.behind_warmup(every, study.rows, study.warmup)
    found = savings.of_reported(study.server, study.table, counted)
    return [] if found is None else [found]
