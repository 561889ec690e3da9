"""Sets of words, written as words."""

from __future__ import annotations

import re

_BETWEEN = re.compile(r"[^a-z0-9]+")


def word_set(text: str) -> frozenset[str]:
    """Give the words of a text."""
    return frozenset(text.split())


def path_words(path: str) -> frozenset[str]:
    """Give the words of the names in a path, in lower case."""
    return frozenset(_BETWEEN.split(path.lower()))
