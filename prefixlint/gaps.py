"""Why a server hit less than an unlimited cache would have: what the log's times, replicas and keys tell of it.

A request that hit much less than it could is compared with the last use of its prefix: on another replica, under
another routing key, too long ago, or with too much new text since. A lifetime or capacity is only named where one
threshold tells the misses from the hits; what remains is named as unexplained.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prefixlint.model import MissCause
from prefixlint.simulate import NO_OWNER, Served
from prefixlint.table import UNKNOWN, Table
from prefixlint.wording import many

Counts = NDArray[np.int64]
Mask = NDArray[np.bool_]

_MISSED = 0.5  # a request that hit less than this share of what it could is one to explain
_PRECISE = 0.9  # of the requests behind a threshold that must be misses
_TELLING = 0.5  # of the misses that must lie behind it
_FEW = 20  # misses; of fewer nothing is told
_SIZES = 3  # distinct numbers that have a divisor in common
_BLOCK = 16  # tokens; the smallest block that reported numbers are taken to be rounded to
_LIMITED: Mapping[MissCause, str] = {
    MissCause.EVICTED: "evicted (capacity)",
    MissCause.EXPIRED: "expired (lifetime)",
    MissCause.REPLICA: "held by another replica",
    MissCause.IN_FLIGHT: "still being computed",
    MissCause.NOT_WRITTEN: "never written",
}


@dataclass(frozen=True, slots=True)
class Gap:
    """A part of the difference between what was reported and what could have been: tokens a request."""

    name: str
    tokens: Counts


@dataclass(frozen=True, slots=True)
class Told:
    """What the log reports, an element a request: `known` says where, `gaps` add up to what could have been."""

    known: Mask
    prompt: Counts
    cached: Counts
    gaps: tuple[Gap, ...]


@dataclass(slots=True)
class _Look:
    """The requests of a log while the gap is taken apart; `short` are the tokens that are not explained yet.

    `last` is the position of the last use of each request's shared prefix, `missed` and `hit` tell the requests apart.
    """

    table: Table
    rows: NDArray[np.intp]
    free: Served
    cached: Counts
    short: Counts
    last: Counts
    missed: Mask
    hit: Mask

    def take(self, name: str, tokens: Counts) -> Iterator[Gap]:
        """Explain some of what is left."""
        taken = np.minimum(tokens, self.short)
        if taken.any():
            self.short = self.short - taken
            self.missed = self.missed & (self.short > 0)
            yield Gap(name, taken)


def told(
    table: Table,
    rows: NDArray[np.intp],
    free: Served,
    losses: Mapping[MissCause, Counts] | None,
    *,
    timed: bool,
    held: Counts | None = None,
) -> Told | None:
    """Compare what the log reports with what an unlimited cache serves; None where it reports nothing.

    Of prompts that the log holds in part only, a server's hits on the rest say nothing about what is known of them, so
    they are not compared. `losses` are what limits that were asked for cost of it, by cause; `held` are the leading
    tokens that the log held before each request in any way, where that may be more than the engine's kind of prefix.
    """
    prompt, cached = (np.frombuffer(column, np.int64)[rows] for column in (table.prompt, table.cached))
    known = (prompt != UNKNOWN) & (cached != UNKNOWN) & (np.frombuffer(table.partial, np.int8)[rows] == 0)
    if not known.any():
        return None
    last = _last_use(rows, free)
    could = _as_reported(free, free.cached, np.where(known, prompt, 0))
    there = known & (could > 0) & (last >= 0)
    missed = there & (cached < _MISSED * could)
    short = np.where(known, np.maximum(could - cached, 0), 0)
    over = np.where(known, np.maximum(cached - could, 0), 0)
    look = _Look(table, rows, free, np.where(known, cached, 0), short, last, missed, there & ~missed)
    found = list(_parts(look, losses, timed=timed))
    found += look.take("unexplained", look.short)
    reach = _as_reported(free, free.shared if held is None else held, prompt)
    found += _beyond(over, np.maximum(reach - could, 0), free.engine.name)
    return Told(known, np.where(known, prompt, 0), look.cached, tuple(found))


def _as_reported(free: Served, tokens: Counts, prompt: Counts) -> Counts:
    """Give leading tokens of prompts as they would be if these were as long as the server counted them.

    Its tokenizer may be another one than that of the analysis: a share of the prompt is the same, a number is not.
    """
    scaled = np.rint(tokens * prompt / np.maximum(free.prompt, 1)).astype(np.int64)
    return np.where(free.prompt == prompt, tokens, np.minimum(scaled, prompt))


def _beyond(over: Counts, held: Counts, engine: str) -> Iterator[Gap]:
    """Name hits that an unlimited cache would not have had: its rules refuse `held` tokens of text that was there."""
    refused = np.minimum(over, held)
    for name, tokens in (
        (f"hits beyond the rules of {engine}", refused),
        ("hits on text not in the log", over - refused),
    ):
        if tokens.any():
            yield Gap(name, -tokens)


def _parts(look: _Look, losses: Mapping[MissCause, Counts] | None, *, timed: bool) -> Iterator[Gap]:
    step = _rounding(look.cached)
    if step:
        yield from look.take(f"rounded down to blocks of {step} tokens", np.where(look.short < step, look.short, 0))
    for cause, name in _LIMITED.items():
        if losses is not None and cause in losses:
            yield from look.take(f"{name}, as simulated", losses[cause])
    table = look.table
    for column, names, name in (
        (table.replica, table.replicas.values, "on another replica than the prefix's last use"),
        (table.key, table.keys.values, "under another routing key than the prefix's last use"),
    ):
        other = look.missed & _differs(np.frombuffer(column, np.int32)[look.rows], names, look.last)
        yield from look.take(name, np.where(other, look.short, 0))
    yield from _thresholds(look, timed=timed)


def _rounding(cached: Counts) -> int:
    """Give the block size that all reported counts are multiples of; 0 where there is none."""
    some = np.unique(cached[cached > 0])
    step = int(np.gcd.reduce(some)) if some.size >= _SIZES else 0
    return step if step >= _BLOCK else 0


def _last_use(rows: NDArray[np.intp], free: Served) -> Counts:
    """Give the position of the request that last used each request's shared prefix; -1 where it has none."""
    used = {row: position for position, row in enumerate(rows.tolist())}
    last = np.full(free.owner.size, -1, np.int64)
    for position, owner in enumerate(free.owner.tolist()):
        if owner != NO_OWNER:
            last[position] = used.get(owner, -1)
            used[owner] = position
    return last


def _differs(values: NDArray[np.int32], names: list[str | None], last: Counts) -> Mask:
    known = np.array([name is not None for name in names], bool)
    there = values[np.maximum(last, 0)]
    found: Mask = (last >= 0) & known[values] & known[there] & (values != there)
    return found


def _thresholds(look: _Look, *, timed: bool) -> Iterator[Gap]:
    """Look for a lifetime and a capacity that tell misses from hits; the one that tells more comes first."""
    before = np.maximum(look.last, 0)
    new = np.cumsum(look.free.prompt - look.free.shared)
    measures = [("capacity", (new - new[before]).astype(np.float64))]
    if timed:
        times = np.frombuffer(look.table.time, np.float64)[look.rows]
        measures.append(("lifetime", times - times[before]))
    measures.sort(key=lambda one: -_fit(one[1], look.missed, look.hit)[1])
    for kind, values in measures:
        limit, score = _fit(values, look.missed, look.hit)
        if score:
            amount = many(int(limit), "new token") if kind == "capacity" else f"{limit:.0f} s"
            text = f"{kind}: more than {amount} since the prefix was last used"
            yield from look.take(text, np.where(look.missed & (values > limit), look.short, 0))


def _fit(values: NDArray[np.float64], missed: Mask, hit: Mask) -> tuple[float, float]:
    """Find the threshold behind which most requests missed and before which they hit; a score of 0 where none does."""
    if int(missed.sum()) < _FEW or not hit.any():
        return math.inf, 0.0
    both = missed | hit
    order = np.argsort(values[both], kind="stable")
    lost, inside = missed[both][order], values[both][order]
    behind = np.cumsum(lost[::-1])[::-1]  # misses at and behind each place
    total = np.arange(lost.size, 0, -1)
    good = (behind >= _PRECISE * total) & (behind >= _TELLING * lost.sum())
    good[0] = False
    if not good.any():
        return math.inf, 0.0
    at = int(np.where(good, 2 * behind - total, -1).argmax())
    return float(inside[at - 1]), float(2 * behind[at] - total[at])
