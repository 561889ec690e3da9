"""What the C library keeps of memory that was freed, given back to the system.

An analysis goes through phases that need much for a moment: what one of them freed would stay with the process, in
pieces, while the next one takes more. Only glibc is told; elsewhere nothing happens.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any


def trim() -> None:
    """Give free pages back to the system, which takes milliseconds."""
    found = getattr(_library(), "malloc_trim", None)
    if found is not None:
        found(0)


@lru_cache(maxsize=1)
def _library() -> Any:
    import ctypes  # late, since most commands need none of this

    try:
        return ctypes.CDLL(None)
    except (OSError, TypeError):  # Windows has no library without a name
        return None
