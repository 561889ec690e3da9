"""Values of which few are distinct, as numbers."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Names:
    """Distinct values and their numbers, in order of first appearance."""

    values: list[Any] = field(default_factory=list)
    _numbers: dict[Any, int] = field(default_factory=dict)

    def number(self, value: Hashable) -> int:
        """Give the number of a value, a new one where it was not seen before."""
        known = self._numbers.get(value)
        if known is None:
            known = self._numbers[value] = len(self.values)
            self.values.append(value)
        return known

    def copy(self) -> Names:
        """Give the same names, to which others can be added."""
        return Names(list(self.values), dict(self._numbers))
