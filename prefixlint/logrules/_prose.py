"""What tells sentences from values: a passage says more than who is asking and what state a machine is in."""

from __future__ import annotations

import re

LABELLED = 64  # characters of a line that is a value and what it is; in longer ones numbers are part of a sentence
_PROSE = 3  # words with small letters that no name has

_SENTENCES = re.compile(r"(?:[^\W\d_]{2,}[,;]? ){4,}[^\W\d_]+[.!?](?:\s|\Z)")
_GOES_ON = re.compile(r"[^\W\d_]{2,}[.!?] [^\W\d_]+(?: [^\W\d_]+){3}")
"""The end of a sentence, and the next one."""


def is_told(value: str) -> bool:
    """Tell whether a value is a passage: sentences say more than who is asking and what state a machine is in."""
    if len(value) > LABELLED and _SENTENCES.search(value) is not None:
        return True
    return _GOES_ON.search(value) is not None


def is_no_name(value: str) -> bool:
    """Tell whether a value says what somebody does: several of its words begin with small letters."""
    return sum(word[:1].islower() and word.strip(".,;:!?").isalpha() for word in value.split()) >= _PROSE
