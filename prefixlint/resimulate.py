"""A replay of a log in which some prompts are other ones: only the requests are replayed that this can concern.

Sequences that begin with other tokens, as many as `SURE`, share fewer than that. So a request that shared more with one
before it gets what it got, unless one that begins alike has changed. All others are replayed, and with them each
sequence that was the first to begin as it does: nothing that they can share with is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from prefixlint import accounts, simulate
from prefixlint.simulate import Replay, Served
from prefixlint.table import Table
from prefixlint.tokens import Encoder

Counts = NDArray[np.int64]
Mask = NDArray[np.bool_]
Values = TypeVar("Values", Counts, Mask)

SURE = 32
"""Tokens by which sequences are told apart."""
_PIECES = 8  # segments at the beginning of a prompt in which that many tokens are looked for
_NONE = 0xFFFFFFFF  # no segment
_SHORT = 0  # the group of prompts that have too few tokens to be told apart


@dataclass(frozen=True, slots=True)
class Outcome:
    """What engines serve, arrays with an element a request; `with_outputs` as `Replay.with_outputs`."""

    engines: Mapping[str, Served]
    with_outputs: Counts | None


def whole(replay: Replay) -> Outcome:
    """Give the outcome of a replay of all requests."""
    return Outcome(replay.engines, replay.with_outputs)


def again(known: Replay, encoder: Encoder, before: Table, after: Table, changed: Mask) -> Outcome:
    """Replay the requests of `known`, whose prompts were those of `before`, with the prompts of `after`.

    `changed` are the requests whose prompts, or what keeps them apart, are other ones, by their order in `known`. The
    outcome is that of a replay of all.
    """
    some = _concerned(known, encoder, before, after, changed)
    arrivals = accounts.arrivals(after, encoder, known.rows[some])
    part = simulate.run(arrivals, [one.engine for one in known.engines.values()], unsalted=after.unsalted())
    full = known.with_outputs
    if full is not None and part.with_outputs is not None:
        full = _put(full, some, part.with_outputs)
    return Outcome({name: _joined(one, some, part.engines[name]) for name, one in known.engines.items()}, full)


def _concerned(known: Replay, encoder: Encoder, before: Table, after: Table, changed: Mask) -> Mask:
    """Tell which requests may get something else, or are needed to say what those get."""
    every = np.ones_like(changed)
    if encoder.whole:
        return every
    numbers: dict[bytes, int] = {}
    old = _groups(before, encoder, known.rows, numbers)
    new = _groups(after, encoder, known.rows[changed], numbers)
    touched = np.zeros(len(numbers) + 1, np.bool_)
    touched[old[changed]] = touched[new] = True
    if touched[_SHORT]:
        return every
    reach = np.minimum.reduce([one.shared for one in known.engines.values()])
    return np.asarray(touched[old] | (old == _SHORT) | (reach < SURE))


def _groups(table: Table, encoder: Encoder, rows: Counts, numbers: dict[bytes, int]) -> Counts:
    """Give the numbers of prompts by their first tokens; `numbers` has those given so far, from 1."""
    ends = np.frombuffer(table.ends, np.int64)
    segments = np.frombuffer(table.segments, np.uint32)
    starts = np.where(rows > 0, ends[rows - 1], 0)
    at = starts[:, None] + np.arange(_PIECES)
    heads = np.where(at < ends[rows][:, None], segments[np.minimum(at, segments.size - 1)], np.uint32(_NONE))
    known: dict[bytes, int] = {}
    found = np.empty(rows.size, np.int64)
    for position, head in enumerate(heads):
        key = head.tobytes()
        number = known.get(key)
        if number is None:
            first = encoder.ids(head[head != _NONE])[:SURE].tobytes()
            number = _SHORT if len(first) < SURE * 4 else numbers.setdefault(first, len(numbers) + 1)
            known[key] = number
        found[position] = number
    return found


def _joined(known: Served, some: Mask, part: Served) -> Served:
    """Give what an engine served, with what it serves of some requests in their places."""
    return replace(
        known,
        prompt=_put(known.prompt, some, part.prompt),
        shared=_put(known.shared, some, part.shared),
        owner=_put(known.owner, some, part.owner),
        extends=_put(known.extends, some, part.extends),
        cached=_put(known.cached, some, part.cached),
        blocks=_put(known.blocks, some, part.blocks),
        blocks_hit=_put(known.blocks_hit, some, part.blocks_hit),
    )


def _put(values: Values, some: Mask, others: Values) -> Values:
    copied = values.copy()
    copied[some] = others
    return copied
