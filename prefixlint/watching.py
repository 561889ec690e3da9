"""Shows the requests of a log to the log rules while it is read, in the order in which they were made.

Servers write a request when it is answered, so that logs are a little out of order. A few requests are held back and
handed on by their times; where that does not put them into the order of use, the log has to be looked at again.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from prefixlint.logrules import Observer, Taken
from prefixlint.model import Request

HELD = 128
"""Requests that are held back: so many can be under way when a log is written."""


Again = tuple[int, Request, int]
"""A row, its request, and its family."""


def _rows() -> array[int]:
    return array("q")


@dataclass(slots=True)
class Watcher:
    """Hands the first `most` requests to an observer; `by_time` says that their times may decide the order."""

    most: float
    by_time: bool = True
    observer: Observer = field(default_factory=Observer)
    _held: list[tuple[float, int, Taken]] = field(default_factory=list)
    _shown: array[int] = field(default_factory=_rows)
    _latest: float = float("-inf")
    _given_up: bool = False

    def add(self, request: Request, row: int, family: int) -> None:
        """Take in the next request of the log."""
        if self._given_up or len(self._shown) >= self.most:
            self._held.clear()
            return
        time = request.time if self.by_time and request.time is not None else self._latest
        heapq.heappush(self._held, (time, row, self.observer.taken(request, row, family)))
        if len(self._held) > HELD:
            self._show()

    def _show(self) -> None:
        time, row, taken = heapq.heappop(self._held)
        if time < self._latest:
            self._given_up = True
        elif len(self._shown) < self.most:
            self._latest = time
            self._shown.append(row)
            self.observer.see_taken(taken)

    def finish(self, order: NDArray[np.intp], again: Callable[[Iterable[int]], Iterable[Again]]) -> Observer:
        """Give the observer, which has seen the rows in this order; `again` reads rows of the log, with families."""
        while self._held and not self._given_up:
            self._show()
        self._held.clear()
        wanted = order[: int(min(self.most, order.size))]
        if self._given_up or not np.array_equal(np.frombuffer(self._shown, np.int64) if self._shown else [], wanted):
            self.observer = Observer()
            for row, request, family in again(wanted.tolist()):
                self.observer.see_taken(self.observer.taken(request, row, family))
        return self.observer
