"""What the log says that its server did, and what times and counters alone tell about why it missed.

Nothing here needs a prompt. A cause named here is *likely*, not proven: it is what would explain the miss.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from prefixlint.results import LikelyCause, Reported
from prefixlint.simulate import after_warmup
from prefixlint.table import UNKNOWN, Table

Rows = NDArray[np.intp]

IDLE_SECONDS = 300.0
"""The shortest lifetime that providers document (Anthropic's default, OpenAI's lower bound), as of 2026-11."""
SHORT_TOKENS = 1024
"""The minimum that most providers document for a cache hit, as of 2026-11."""
# A request that read less than this share of its prompt is counted as a miss to explain.
_MISSED = 0.5


def behind_warmup(rows: Rows, replayed: Rows, warmup: float) -> Rows:
    """Leave the warm-up out of `rows` (see `simulate.after_warmup`): of what was replayed, or of all if nothing was."""
    first = replayed if replayed.size else rows
    skipped = first[: after_warmup(first.size, warmup).start]
    return rows[~np.isin(rows, skipped)] if skipped.size else rows


def reported(table: Table, rows: Rows) -> Reported | None:
    """Sum up the requests that report both prompt and cached tokens; None where there are none."""
    prompt, cached, written = (np.frombuffer(c, np.int64)[rows] for c in (table.prompt, table.cached, table.written))
    known = (cached != UNKNOWN) & (prompt != UNKNOWN)
    if not known.any():
        return None
    said = known & (written != UNKNOWN)
    return Reported(
        requests=int(known.sum()),
        prompt_tokens=int(prompt[known].sum()),
        cached_tokens=int(cached[known].sum()),
        written_tokens=int(written[said].sum()) if said.any() else None,
    )


def likely_causes(table: Table, rows: Rows) -> list[LikelyCause]:
    """Explain the misses that the log reports, as far as times, sessions and sizes go; the most tokens first.

    `rows` are in time order. Each missed request has one cause: too short, first of its session, idle too long, else
    unexplained. Empty where the log reports no cached tokens.
    """
    prompt, cached = (np.frombuffer(c, np.int64)[rows] for c in (table.prompt, table.cached))
    known = (cached != UNKNOWN) & (prompt > 0)
    missed = known & (cached < _MISSED * prompt)
    if not missed.any():
        return []
    gap = _gaps(table, rows)
    short = missed & (prompt < SHORT_TOKENS)
    if (cached[known & (prompt < SHORT_TOKENS)] > 0).any():
        short[:] = False  # a server that gave hits to prompts as short as that has no such minimum
    first = missed & ~short & np.isinf(gap)
    idle = missed & ~short & ~first & (gap > IDLE_SECONDS)
    rest = missed & ~short & ~first & ~idle
    texts = {
        "too-short": (short, f"shorter than {SHORT_TOKENS:,} tokens, the minimum of most providers"),
        "first-of-session": (first, "the first request of its session in this log"),
        "idle": (idle, f"more than {IDLE_SECONDS:.0f} s after the request before it in its session"),
        "unexplained": (rest, "times and sizes do not explain it: the prompt changed, or the cache lost it"),
    }
    found = [
        LikelyCause(slug, text, int(mask.sum()), int((prompt - cached)[mask].sum()))
        for slug, (mask, text) in texts.items()
        if mask.any()
    ]
    return sorted(found, key=lambda c: (-c.missed_tokens, c.slug))


def _gaps(table: Table, rows: Rows) -> NDArray[np.float64]:
    """Give the seconds since the previous request of the session (of the namespace, where no session is logged).

    Infinite for the first one; NaN where times are unknown.
    """
    times = np.frombuffer(table.time, np.float64)[rows]
    sessions = np.frombuffer(table.conversation, np.int32)[rows]
    if np.unique(sessions).size == sessions.size:
        sessions = np.frombuffer(table.namespace, np.int32)[rows]
    order = np.argsort(sessions, kind="stable")
    gaps = np.full(times.size, np.inf)
    same = sessions[order][1:] == sessions[order][:-1]
    steps = np.diff(times[order])
    gaps[order[1:]] = np.where(same, steps, np.inf)
    return gaps
