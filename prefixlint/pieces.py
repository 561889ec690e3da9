"""Where a prompt can be cut so that its tokens are those of its pieces, one after the other.

Tokenizers look for their added tokens (`<|im_start|>`, `<think>` …) before anything else, and what stands between two
of them never sees the other side: so a prompt is cut there, and a piece that comes again need not be tokenized again.
That holds unless some part of the tokenizer looks across; `Cutter.whole` says which part does.

The order is that of Hugging Face `tokenizers`: first the added tokens that are not normalized are found in the raw
text, leftmost and then longest first; then, in each piece between them, the normalized ones in the normalized text.
The search is that of the Aho-Corasick library that `tokenizers` uses too. Where all tokens begin with the same few
characters (`<`), which most texts have little else of, looking for those first is some three times as fast.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tokenizers import AddedToken, Tokenizer

# What Rust's `\s` matches, which decides how far a token with `rstrip` reaches.
_SPACE = (
    "\t\n\x0b\x0c\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)

_END = ""  # of a token, in a tree of characters
_LEADS = 2  # characters that tokens begin with, beyond which looking for each costs more than one search for all
_SEARCHED = 1_000_000  # characters from which compiling the tokens to a pattern pays (some 10 ms for 1,300 of them)
_MOST, _LONGEST = 4_000, 64  # tokens, and characters of one, of which a pattern is made: it nests as deep as they part
_SPARSE = 400  # characters for each lead that begins no token; where there are more leads, the search is the faster way


class _Finder:
    """The added tokens of one stage."""

    def __init__(self, tokens: Sequence[AddedToken]) -> None:
        from ahocorasick_rs import AhoCorasick, MatchKind

        self._contents = [token.content for token in tokens]
        self._strips = frozenset(token.content for token in tokens if token.rstrip)
        self._search = AhoCorasick(self._contents, matchkind=MatchKind.LeftmostLongest)
        leads = sorted({content[0] for content in self._contents})
        few = len(leads) <= _LEADS and len(self._contents) <= _MOST and max(map(len, self._contents)) <= _LONGEST
        self._leads = (leads[0], leads[1] if len(leads) > 1 else "") if few else None
        self._left = _SEARCHED

    def cut(self, text: str) -> tuple[list[str], list[bool]]:
        """Give the pieces of a text, and for each whether it is an added token."""
        pieces: list[str] = []
        tokens: list[bool] = []
        at = 0
        for start, end in self._places(text):
            if start < at:
                continue  # white space that the token before it has taken: the pieces are the text, and once
            stop = _behind_space(text, end) if self._strips and text[start:end] in self._strips else end
            if start > at:
                pieces.append(text[at:start])
                tokens.append(False)
            pieces.append(text[start:stop])
            tokens.append(True)
            at = stop
        if at < len(text):
            pieces.append(text[at:])
            tokens.append(False)
        return pieces, tokens

    def _places(self, text: str) -> list[tuple[int, int]]:
        """Give where the tokens of a text begin and end."""
        self._left -= len(text)
        if self._left < 0 and self._leads is not None and (found := self._led(text, *self._leads)) is not None:
            return found
        return [(start, end) for _, start, end in self._search.find_matches_as_indexes(text)]

    def _led(self, text: str, first: str, second: str) -> list[tuple[int, int]] | None:
        """Look for tokens where one of their first characters stands; None where there are too many of those."""
        find, match, misses = text.find, self._pattern.match, len(text) // _SPARSE
        one, two = find(first), find(second) if second else -1
        found = []
        while one >= 0 or two >= 0:
            start = one if two < 0 or 0 <= one < two else two
            token = match(text, start)
            if token is not None:
                end = token.end()
                found.append((start, end))
            elif misses:
                misses -= 1
                end = start + 1
            else:
                return None
            if 0 <= one < end:
                one = find(first, end)
            if 0 <= two < end:
                two = find(second, end)
        return found

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        """Match the longest token at a place, in one step for each character that tokens share."""
        tree: dict[str, Any] = {}
        for content in self._contents:
            node = tree
            for char in content:
                node = node.setdefault(char, {})
            node[_END] = None
        return re.compile(_alternatives(tree))


def _alternatives(tree: dict[str, Any]) -> str:
    """Write a tree of characters as a pattern that takes the longest way through it."""
    ways = [re.escape(char) + _alternatives(below) for char, below in tree.items() if char != _END]
    if len(ways) == 1 and _END not in tree:
        return ways[0]
    return f"(?:{'|'.join(ways)}){'?' if _END in tree else ''}" if ways else ""


@dataclass(frozen=True, slots=True)
class Cutter:
    """Cuts prompts for one tokenizer. `whole` is why pieces are not independent of one another, None if they are.

    `reach` is the length of the longest added token: where a text was cut, every text is that goes on alike for so many
    characters behind that place, and nothing before the place decides how it is cut behind it.
    """

    stages: tuple[_Finder, ...]
    whole: str | None
    reach: int = 1

    def cut(self, text: str) -> list[str]:
        """Give the pieces of a text, in order and without gaps; each is one added token or has none to be cut at.

        UnicodeEncodeError may be raised where the text holds lone surrogates.
        """
        if not self.stages:
            return [text] if text else []
        first, *others = self.stages
        pieces, tokens = first.cut(text)
        for stage in others:
            cut = [[p] if token else stage.cut(p)[0] for p, token in zip(pieces, tokens, strict=True)]
            pieces = [part for parts in cut for part in parts]
        return pieces


def cutter(tokenizer: Tokenizer) -> Cutter:
    """Read from a tokenizer how its prompts may be cut."""
    added = list(tokenizer.get_added_tokens_decoder().values())
    raw = [token for token in added if token.content and not token.normalized]
    late = [token for token in added if token.content and token.normalized]
    stages = [raw, late] if _changes_nothing(tokenizer.normalizer) else [raw]
    whole = _looks_across(tokenizer) or next(filter(None, map(_unsafe, stages)), None)
    if len(stages) == 2 and _first_wins(raw, late):
        stages = [raw + late]
    reach = max((len(token.content) for token in raw + late), default=1)
    return Cutter(tuple(_Finder(tokens) for tokens in stages if tokens), whole, reach)


def sanitize(text: str) -> str:
    """Make a text that UTF-8 can hold: pairs of surrogates are joined, lone ones become U+FFFD, one each.

    Engines refuse such a request (JSON admits lone surrogates, their tokenizers do not), so no count is right for it.
    """
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _behind_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at


def _unsafe(tokens: Sequence[AddedToken]) -> str | None:
    """Name the added token that decides by its neighbours, or takes some of their text, in a way not followed here."""
    spaced = any(token.content[0] in _SPACE for token in tokens)
    for token in tokens:
        if token.single_word:
            return f"the added token {token.content!r} counts only as a single word"
        if token.lstrip:
            return f"the added token {token.content!r} takes the white space before it"
        if token.rstrip and spaced:
            return f"the added token {token.content!r} takes white space that other added tokens begin with"
    return None


def _first_wins(raw: Sequence[AddedToken], late: Sequence[AddedToken]) -> bool:
    """Tell whether one search finds what the two stages would.

    It takes the leftmost token. That is wrong only where a late one begins before a raw one and reaches into it.
    """
    first, second = ([token.content for token in tokens] for tokens in (raw, late))
    return not (_ends(second) & _starts(first) or any(a in b for a in first for b in second))


def _starts(texts: Iterable[str]) -> set[str]:
    return {text[:n] for text in texts for n in range(1, len(text))}


def _ends(texts: Iterable[str]) -> set[str]:
    return {text[n:] for text in texts for n in range(1, len(text))}


def _looks_across(tokenizer: Tokenizer) -> str | None:
    """Name the part of a tokenizer that treats the start of a text differently from the start of a later piece."""
    if any(part.get("prepend_scheme") == "first" for part in _parts(tokenizer.pre_tokenizer)):
        return "the tokenizer puts a space before the first word of a text only"
    if getattr(tokenizer.model, "dropout", None):
        return "the tokenizer drops merges at random"
    return None


def _changes_nothing(normalizer: Any) -> bool:
    return all(part["type"] == "Sequence" for part in _parts(normalizer))


def _parts(component: Any) -> list[dict[str, Any]]:
    """List a component of a tokenizer and all that it is made of, as tokenizer.json describes them."""
    if component is None:
        return []
    found, stack = [], [json.loads(component.__getstate__())]
    while stack:
        part = stack.pop()
        found.append(part)
        stack.extend(part.get("normalizers") or part.get("pretokenizers") or ())
    return found


__all__ = ["Cutter", "cutter", "sanitize"]
