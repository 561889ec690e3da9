"""Times of a log as programs read them."""

from __future__ import annotations

from datetime import UTC, datetime


def iso(seconds: float | None) -> str | None:
    """Give a time as ISO 8601 in UTC with milliseconds; None where it is unknown or no date."""
    if seconds is None:
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return None
