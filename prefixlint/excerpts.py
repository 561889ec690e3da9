"""Text around the place at which two prompts part, short and masked."""

from __future__ import annotations

from difflib import SequenceMatcher

from prefixlint.bodies import common_prefix
from prefixlint.redact import Redactor
from prefixlint.results import Excerpt

_WINDOW = 200  # characters of each side in which the values' end is looked for
_RESYNC = 6  # characters that must agree for two texts to have met again
_CONTEXT = 60
_SIDE = 80  # characters of a value that are shown


def excerpt(earlier: str, later: str, char: int, lead: str = "", *, redactor: Redactor) -> Excerpt:
    """Show two texts around the first difference at or behind `char`; `lead` is the text that stands before both.

    At most 80 characters of each are shown, masked; a masked value that the difference cuts is shown as a whole.
    """
    a, b = earlier[char : char + _WINDOW], later[char : char + _WINDOW]
    i, j = values(a, b)
    end, later_end = redactor.end(earlier, char + i), redactor.end(later, char + j)
    behind = common_prefix(earlier[end : end + _CONTEXT], later[later_end : later_end + _CONTEXT])
    start = min(redactor.start(earlier, char), redactor.start(later, char))
    before, shift = lead + later, len(lead)
    return Excerpt(
        redactor.part(before, max(0, shift + start - _CONTEXT), shift + start)[-_SIDE:],
        _side(redactor.part(earlier, start, end)),
        _side(redactor.part(later, start, later_end)),
        redactor.part(later, later_end, later_end + behind)[:_SIDE],
    )


def values(earlier: str, later: str) -> tuple[int, int]:
    """Give how many characters of two texts are values that differ: up to where the texts have met again."""
    same = common_prefix(earlier, later)
    blocks = SequenceMatcher(None, earlier[same:], later[same:], autojunk=False).get_matching_blocks()
    return next(((same + m.a, same + m.b) for m in blocks if m.size >= _RESYNC), (len(earlier), len(later)))


def _side(text: str) -> str:
    return text if len(text) <= _SIDE else text[: _SIDE - 1] + "…"
