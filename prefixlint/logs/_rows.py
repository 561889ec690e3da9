"""What readers of formats with one request a JSON object share: a reader without state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefixlint.model import Skip

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from prefixlint.logs import Record
    from prefixlint.model import Request


class Rows:
    """Reads each record on its own with one function; what that declines (None) is offered to other formats."""

    def __init__(self, read: Callable[[Record], Iterable[Request | Skip] | None]) -> None:
        self._read = read

    def feed(self, record: Record) -> Iterable[Request | Skip] | None:
        """Give the requests of this record."""
        return self._read(record)

    def finish(self) -> Iterable[Request | Skip]:
        """Nothing is held back."""
        return ()


def misfit(record: Record, name: str) -> Skip:
    """Say that the hashes of a trace line and its length contradict each other."""
    reason = f"the hashes of this {name} line are no list of numbers or strings, or do not fit its length"
    return Skip(record.path, record.line, "bad-hashes", reason)
