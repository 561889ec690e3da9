"""Requests of a log that are read once more, in the order in which they are wanted and not that of the files.

Formats whose lines need those before them can be read from their beginning only. A file is therefore gone through once
beside the others where its own order is the wanted one, as it nearly always is; else some requests at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, pairwise

from prefixlint.model import Request

Place = tuple[str, int, int]
"""Path, line and part of a request."""
Again = Callable[[Iterable[Place]], Iterator[Request]]
"""Gives the requests of some places, in the order of the files; those that cannot be read are left out."""

_AT_ONCE = 512  # requests that are held while they are put into order
_OPEN = 64  # files that are gone through side by side


def in_order(again: Again, places: Sequence[Place]) -> Iterator[Request | None]:
    """Give the requests of places in this order, no place twice; None for one that cannot be read."""
    by_path: dict[str, list[Place]] = {}
    for place in places:
        by_path.setdefault(place[0], []).append(place)
    in_its_own = [path for path, mine in by_path.items() if all(a < b for a, b in pairwise(mine))]
    runs = {path: _Run(again, by_path[path]) for path in in_its_own[:_OPEN]}
    others = iter([place for place in places if place[0] not in runs])
    held: dict[Place, Request] = {}
    left = 0  # places of `others` that were read and not asked for yet
    for place in places:
        if place[0] in runs:
            yield runs[place[0]].at(place)
            continue
        if not left:
            wanted = list(islice(others, _AT_ONCE))
            held, left = {_place(request): request for request in again(wanted)}, len(wanted)
        left -= 1
        yield held.pop(place, None)


class _Run:
    """One file that is gone through once; it is opened when its first request is wanted."""

    def __init__(self, again: Again, places: Sequence[Place]) -> None:
        self._again, self._places = again, places
        self._requests: Iterator[Request] | None = None
        self._next: Request | None = None

    def at(self, place: Place) -> Request | None:
        """Give the request of a place that stands behind those asked for before."""
        if self._requests is None:
            self._requests = self._again(self._places)
            self._next = next(self._requests, None)
        while self._next is not None and _place(self._next) < place:
            self._next = next(self._requests, None)
        if self._next is None or _place(self._next) != place:
            return None
        found, self._next = self._next, next(self._requests, None)
        return found


def _place(request: Request) -> Place:
    return request.path, request.line, request.part
