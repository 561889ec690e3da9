"""How a result looks: one module per format, found by its name; adding a format is adding a file.

A module whose name begins with an underscore is not a format.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass
from typing import Protocol

from prefixlint.errors import UsageError
from prefixlint.results import Analysis


@dataclass(frozen=True, slots=True)
class Look:
    """How to show: `width` columns (20 and more), with ANSI colour or without; `verbose` leaves no rows out."""

    width: int = 80
    color: bool = False
    verbose: bool = False


class Report(Protocol):
    """What a module in this folder provides."""

    def analysis(self, result: Analysis, look: Look) -> str:
        """Render what `analyze` found; ends with a line end."""
        ...


def names() -> list[str]:
    """Give the formats that exist, sorted."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))


def outlines(name: str, look: Look) -> bool:
    """Tell whether a format shows the prefix tree, the largest shared prefixes, or curves over lifetimes and replicas.

    They take long to make. A module that shows them to nobody but those who ask for all of it says `OUTLINE = False`.
    """
    return look.verbose or getattr(load(name), "OUTLINE", True)


def load(name: str) -> Report:
    """Give the report format of that name; raises UsageError for a name that is not known."""
    if name not in names():
        raise UsageError(
            f"there is no report format {name!r}", slug="unknown-format", hint=f"formats: {', '.join(names())}"
        )
    module: Report = importlib.import_module(f"{__name__}.{name}")
    return module
