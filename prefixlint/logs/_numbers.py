"""Times, counts and durations as loggers write them."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

_LARGEST_COUNT = 1 << 53
_LARGEST_SECOND = 253_402_300_800.0  # the year 10000, where datetime ends
_OTHER_TIMES = ("%d/%b/%Y:%H:%M:%S %z", "%Y/%m/%d %H:%M:%S", "%Y-%m-%d %H:%M:%S.%f %Z", "%Y-%m-%d %H:%M:%S %Z")


def seconds(value: Any) -> float | None:
    """Give a time as seconds since the epoch, UTC; None when it is not a time.

    Reads ISO 8601 with any number of decimals (`Z`, an offset, or none: UTC), HTTP dates, and numbers or numeric
    strings, whose unit is told by their size: from 1e17 nanoseconds, from 1e14 microseconds, from 1e11 milliseconds,
    below seconds.
    """
    if isinstance(value, str):
        text = value.strip()
        if not text or len(text) > 64:
            return None
        if text[0].isdigit() and "-" in text[1:5]:
            return _from_text(text)
        try:
            return _from_number(float(text))
        except ValueError:
            return _from_text(text)
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return _from_number(float(value))
        except OverflowError:
            return None
    return None


def _from_number(value: float) -> float | None:
    if not math.isfinite(value) or value < 0:
        return None
    for limit, unit in ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3)):
        if value >= limit:
            value /= unit
            break
    return value if value < _LARGEST_SECOND else None


def _from_text(text: str) -> float | None:
    moment = _iso(text) or _http(text)
    if moment is None:
        return None
    try:
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (OverflowError, ValueError):
        return None


def _iso(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text.removesuffix(" UTC"))
    except ValueError:
        return None


def _http(text: str) -> datetime | None:
    for form in _OTHER_TIMES:
        try:
            return datetime.strptime(text, form)  # noqa: DTZ007  # a time without a zone is UTC, set by the caller
        except ValueError:
            continue
    from email.utils import parsedate_to_datetime  # late: it costs more than all other imports of this folder

    try:
        return parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def count(value: Any) -> int | None:
    """Give a count of tokens (0 .. 2**53): an integer, a whole float, or either as a string; else None."""
    if type(value) is int:
        return value if 0 <= value <= _LARGEST_COUNT else None
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, float) and value.is_integer() and 0 <= value <= _LARGEST_COUNT:
        return int(value)
    return None


def number(value: Any) -> float | None:
    """Give a finite number, also from a string; else None."""
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float, str)):
        try:
            found = float(value)
        except (ValueError, OverflowError):
            return None
        return found if math.isfinite(found) else None
    return None


def text(value: Any) -> str | None:
    """Give an identifier as a string: a string that is not empty, or a number; else None."""
    if isinstance(value, str):
        return value or None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    return None
