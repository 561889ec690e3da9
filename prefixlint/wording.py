"""Numbers and their nouns in sentences for people."""

from __future__ import annotations


def many(number: int, noun: str, plural: str | None = None) -> str:
    """Give a number with its noun: `1 request`, `2,500 requests`; `plural` for nouns that do not take an s."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def numbered(line: int, part: int) -> str:
    """Name a request of a log by its line, and by its part where it is not the first: `12`, `12.3`."""
    return f"{line}.{part}" if part else str(line)


def percent(rate: float | None, places: int = 1) -> str:
    """Show a share in percent, with so many decimals; one that is not known is said to be so."""
    return "unknown" if rate is None else f"{100 * rate:.{places}f} %"
