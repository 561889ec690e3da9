"""Traces that say how long prompts are and nothing about what they share: refused, once a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefixlint.logs import _recipes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from prefixlint.logs import Record
    from prefixlint.model import Request, Skip


class Refusal:
    """Refuses a file whose records hold no prompt: the first record gives the reason, the others nothing."""

    def __init__(self, mine: Callable[[Record], int], slug: str = "length-only-trace") -> None:
        self._mine = mine
        self._slug = slug
        self._said = False

    def feed(self, record: Record) -> Iterable[Request | Skip] | None:
        """Give the reason once; decline what is of another format."""
        if not self._mine(record):
            return None
        if self._said:
            return ()
        self._said = True
        return [_recipes.refusal(record.path, record.line, self._slug)]

    def finish(self) -> Iterable[Request | Skip]:
        """Nothing is held back."""
        return ()
