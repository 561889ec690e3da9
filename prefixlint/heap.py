"""What the C library keeps of memory that was freed, given back to the system.

An analysis goes through phases that need much for a moment: what one of them freed would stay with the process, in
pieces, while the next one takes more. Only glibc is told; elsewhere nothing happens.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

_ARENA_MAX = -8  # M_ARENA_MAX of glibc's malloc.h


def share() -> None:
    """Let all threads of this process take memory from one heap, from now on.

    Otherwise each thread of a tokenizer library gets one of its own, where what it freed is of no use to others.
    """
    _call("mallopt", _ARENA_MAX, 1)


def trim() -> None:
    """Give free pages back to the system, which takes milliseconds."""
    _call("malloc_trim", 0)


def _call(function: str, *arguments: int) -> None:
    found = getattr(_library(), function, None)
    if found is not None:
        found(*arguments)


@lru_cache(maxsize=1)
def _library() -> Any:
    import ctypes  # late, since most commands need none of this

    try:
        return ctypes.CDLL(None)
    except (OSError, TypeError):  # Windows has no library without a name
        return None
