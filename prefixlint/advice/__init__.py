"""What to change, as far as this log shows a gain: each module judges one kind of change.

Nothing here is a rule of thumb. A piece of advice is an option that was computed on the log beside what is there now;
what gains too little is not told.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Protocol, cast

from prefixlint.advice._case import Case
from prefixlint.results import Advice

__all__ = ["Case", "advise"]


class _Adviser(Protocol):
    def advise(self, case: Case) -> list[Advice]:
        """Give what pays, with what it gains."""
        ...


def advise(case: Case) -> list[Advice]:
    """Give all advice on an analysed log, what gains most first."""
    if not case.log.rows.size:
        return []
    names = sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))
    advisers = [cast("_Adviser", importlib.import_module(f"{__name__}.{name}")) for name in names]
    found = [advice for adviser in advisers for advice in adviser.advise(case)]
    return sorted(found, key=lambda one: (-one.gain, one.engine, one.kind))
