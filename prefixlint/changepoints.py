"""Where a series of hit rates changes its level: binary segmentation, with a bar that noise does not take.

A change is kept where both sides differ by what matters to people and by far more than the scatter around them allows.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]

LEAST = 0.05
"""The smallest step that is a change: 5 points of hit rate."""
_CELLS = 200  # equal runs of requests that are compared; a search among more of them finds no better place
_FEW = 12  # cells below which nothing is said
_SIDE = 0.04  # of the cells that each side of a change has at least
_MOST = 5
# Of the statistic's bar: the largest of n correlated F values under no change grows with the logarithm of n.
_BAR, _SLOPE = 8.0, 4.0


def changes(hits: Counts, tokens: Counts) -> list[int]:
    """Give the positions at which `hits / tokens` changes its level, in order; arrays have an element a request."""
    n = int(hits.size)
    edges = np.unique(np.linspace(0, n, min(_CELLS, n) + 1).astype(np.int64))
    if edges.size - 1 < _FEW:
        return []
    sums = [np.concatenate(([0], np.cumsum(column))).astype(np.float64) for column in (hits, tokens)]
    cells = [np.diff(column[edges]) for column in sums]
    found: list[tuple[float, int]] = []
    stretches = [(0, edges.size - 1)]
    while stretches:
        low, high = stretches.pop()
        split = _split(cells[0][low:high], cells[1][low:high])
        if split is None:
            continue
        strength, at = split
        found.append((strength, low + at))
        stretches += [(low, low + at), (low + at, high)]
    kept = sorted(cell for _, cell in sorted(found, reverse=True)[:_MOST])
    return _steps(sums, sorted({_exact(sums, edges, cell) for cell in kept}))


def _steps(sums: list[Floats], places: list[int]) -> list[int]:
    """Leave out, the smallest step first, the places where the level hardly changes once all places are exact."""
    while places:
        edges = np.array([0, *places, sums[0].size - 1])
        hits, tokens = (np.diff(column[edges]) for column in sums)
        steps = np.abs(np.diff(np.divide(hits, tokens, out=np.zeros_like(hits), where=tokens > 0)))
        least = int(steps.argmin())
        if steps[least] >= LEAST:
            break
        del places[least]
    return places


def _split(hits: Floats, tokens: Floats) -> tuple[float, int] | None:
    """Find the best place to cut a run of cells in two: how strong it is, and the first cell behind it."""
    n = hits.size
    side = max(3, int(np.ceil(n * _SIDE)))
    if n < 2 * side or not tokens.sum():
        return None
    weights = tokens / tokens.mean()
    rates = np.divide(hits, tokens, out=np.zeros(n), where=tokens > 0)
    gain = _gains(weights, weights * rates)
    gain[: side - 1] = gain[n - side :] = 0
    at = int(gain.argmax()) + 1
    left, right = slice(0, at), slice(at, n)
    means = [float(np.average(rates[part], weights=weights[part])) for part in (left, right) if weights[part].sum()]
    if len(means) < 2 or abs(means[1] - means[0]) < LEAST:
        return None
    scatter = sum(
        float((weights[part] * (rates[part] - mean) ** 2).sum())
        for part, mean in zip((left, right), means, strict=True)
    )
    strength = float(gain[at - 1]) / max(scatter / (n - 2), 1e-9)
    return (strength, at) if strength > _BAR + _SLOPE * np.log(n) else None


def _gains(weights: Floats, sums: Floats) -> Floats:
    """Give, for a cut behind each cell, by how much two means fit better than one."""
    left, total = np.cumsum(weights), weights.sum()
    right = total - left
    apart = np.divide(np.cumsum(sums), left, out=np.zeros_like(left), where=left > 0)
    apart -= np.divide(sums.sum() - np.cumsum(sums), right, out=np.zeros_like(left), where=right > 1e-9)
    return np.where((left > 0) & (right > 1e-9), left * right / total * apart**2, 0.0)


def _exact(sums: list[Floats], edges: Counts, cell: int) -> int:
    """Find the request of a change among those of the cells around it."""
    low, high = int(edges[max(0, cell - 2)]), int(edges[min(edges.size - 1, cell + 2)])
    hits, tokens = (np.diff(column[low : high + 1]) for column in sums)
    if high - low < 3 or not tokens.sum():
        return int(edges[cell])
    gain = _gains(tokens, hits)
    return low + int(gain[:-1].argmax()) + 1
