"""Sets of words, written as words."""

from __future__ import annotations


def word_set(text: str) -> frozenset[str]:
    """Give the words of a text."""
    return frozenset(text.split())
