"""Times as programs read them, and as people do."""

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


def seconds(text: str | None) -> float | None:
    """Give the epoch seconds of a time as results write it."""
    return None if text is None else datetime.fromisoformat(text).timestamp()


def milliseconds(value: float | None) -> str:
    """Show a time with three digits."""
    if value is None:
        return "unknown"
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.1f} ms" if value >= 10 else f"{value:.2f} ms"
