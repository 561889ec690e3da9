"""Which requests come from one template: grouped by what their heads have in common, not by equal text.

A request's head is its system text (or, without one, the beginning of its first text). Two heads are of one family
when the lines that they share make up half of the shorter one; digits do not count, so a clock or a counter does not
split a template. Heads that occur again cost one dictionary look-up.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from prefixlint.model import BlockHashes, Fingerprint, Messages, NoPrompt, Request, Text, TokenIds
from prefixlint.renderedtext import as_messages

# A head is cut here: templates tell themselves apart long before, and a raw prompt may be megabytes.
_HEAD_CHARS = 6_000
_HEAD_IDS = 512
# Fewer lines than this say too little line by line, so a short head is compared by its word triples alone.
_FEW_PARTS = 6
_TRIPLE_WORDS = 80
_TRIPLE_WEIGHT = 6
# Half of the shorter head: a template that doubles with its values is still one; shared boilerplate is not.
_SAME = 0.5
_DIGITS = re.compile(r"[0-9]+")
_MARK = re.compile(
    r"<\|im_start\|>\w*|<\|start_header_id\|>\w*<\|end_header_id\|>|<[|｜][^|｜>\n]{1,40}[|｜]>|</?s>|<bos>"
    r"|<start_of_turn>\w*|<end_of_turn>|\[/?(?:INST|SYSTEM_PROMPT)\]|<{1,2}/?SYS>{1,2}|^\s*</?[\w-]+>\s*$"
)
_SENTENCE = re.compile(r"(?<=[.!?]) ")
NAME_CHARS = 60
"""Characters of a family's name."""
_TELLING = 12  # characters; a shorter line says nothing
# Boilerplate may stand in every one of thousands of templates: a part leads to that many families, the shortest, of
# which it makes up most; of all families found so, the best few are compared in full.
_POSTINGS = 16
_CANDIDATES = 8
_NUMBER = (1 << 32) - 1


@dataclass(slots=True)
class _Known:
    """A family as its first member shows it: the hashes of the parts of its head, and its weight in characters."""

    parts: frozenset[int]
    weight: int
    name: str
    lines: tuple[str, ...]
    named: bool = False


@dataclass(slots=True)
class Grouper:
    """Assigns family numbers (0, 1, …) in order of first appearance."""

    families: list[_Known] = field(default_factory=list)
    _seen: dict[int, int] = field(default_factory=dict)
    _index: dict[int, int | list[int]] = field(default_factory=dict)
    _placed: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The family of heads without their digits, as it was found among so many families."""
    _names: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def add(self, request: Request) -> int:
        """Give the number of the request's family."""
        head = _head(request)
        key = hash((request.model, head))
        known = self._seen.get(key)
        if known is None:
            known = self._seen[key] = self._place(request.model, head)
        return known

    def name(self, family: int) -> str:
        """Give a family's name: the beginning of the first line that its members share."""
        return self.line(family)[:NAME_CHARS]

    def line(self, family: int) -> str:
        """Give the whole line that a family's name begins."""
        return self.families[family].name

    def _place(self, model: str | None, head: Any) -> int:
        told = without_digits(head) if isinstance(head, str) else head
        key = hash((model, told))
        placed, among = self._placed.get(key, (0, 0))
        if among == len(self.families) > 0:
            return placed
        parts = {hash((model, part)): size for part, size in _parts(told).items()}
        weight = sum(parts.values())
        best = self._best(parts, weight)
        if best is not None:
            self._rename(self.families[best], model, parts)
            self._placed[key] = best, len(self.families)
            return best
        number = len(self.families)
        lines = tuple(head_lines(head)) if isinstance(head, str) else ()
        name = self._name(lines) if lines else _nameless(head)
        self.families.append(_Known(frozenset(parts), weight, name, lines))
        entry = -(weight << 32 | number)  # the heaviest is the smallest, and so the first to leave the heap
        for part in parts:
            postings = self._index.get(part)
            if postings is None:
                self._index[part] = entry  # most parts are of one family, and a list would be most of the memory
            elif isinstance(postings, int):
                self._index[part] = sorted((postings, entry))
            elif len(postings) < _POSTINGS:
                heapq.heappush(postings, entry)
            else:
                heapq.heappushpop(postings, entry)
        return number

    def _rename(self, family: _Known, model: str | None, parts: Mapping[int, int]) -> None:
        """Name a family by a line that two members share, once a second head has joined."""
        if family.named:
            return
        family.named = True
        shared = [line for line in family.lines if hash((model, without_digits(line).strip())) in parts]
        if shared:
            family.name = self._name(family.lines, shared)

    def _name(self, lines: tuple[str, ...], among: Sequence[str] | None = None) -> str:
        """Choose the line that tells a family best: the first long enough, without numbers, and not another one's name.

        What a chat template wrote around the text is left out. The same text for another model has the same name.
        """
        texts = [text for line in among or lines if (text := _MARK.sub("", line).strip())] or lines
        telling = [text for text in texts if len(text) >= _TELLING and not _DIGITS.search(text)] or texts[:1]
        name = next((text for text in telling if self._names.get(text, lines) == lines), telling[0])
        self._names.setdefault(name, lines)
        return name

    def _best(self, parts: Mapping[int, int], weight: int) -> int | None:
        of_size: dict[int, list[Iterable[int]]] = {}
        for part, size in parts.items():
            postings = self._index.get(part)
            if postings is not None:
                of_size.setdefault(size, []).append((postings,) if isinstance(postings, int) else postings)
        found: Counter[int] = Counter()
        for size, lists in of_size.items():  # few sizes: counting is many times as fast as adding them one by one
            for entry, count in Counter(chain.from_iterable(lists)).items():
                found[entry] += size * count
        ranked = ((size, -(-entry & _NUMBER)) for entry, size in found.items())
        best, best_share = None, 0.0
        for _, minus in heapq.nlargest(_CANDIDATES, ranked):
            known = self.families[-minus]
            shared = sum(parts[part] for part in known.parts.intersection(parts))
            share = shared / max(1, min(weight, known.weight))
            if share >= _SAME and share > best_share:
                best, best_share = -minus, share
        return best


def _head(request: Request) -> Any:
    """Give what identifies the template: text, or a tuple of ids or hashes; hashable."""
    content = as_messages(request.said)
    if isinstance(content, Messages):
        return _messages_head(content)
    if isinstance(content, Text):
        return content.text[:_HEAD_CHARS]
    if isinstance(content, TokenIds):
        return tuple(content.ids[:_HEAD_IDS])
    if isinstance(content, BlockHashes):
        return ("block", content.hashes[0] if content.hashes else None)
    if isinstance(content, Fingerprint):
        return _fingerprint_head(content)
    assert isinstance(content, NoPrompt)
    return ("no prompt", content.slug)


def _fingerprint_head(content: Fingerprint) -> str:
    """Give the marks of the system texts: they agree as far as the texts do, character by character at a grain of 1."""
    head = [s for s in content.segments if s.role in ("system", "developer")] or content.segments[:1]
    return "\n".join(s.marks.decode("latin-1") for s in head)[:_HEAD_CHARS]


def _messages_head(content: Messages) -> str:
    texts = []
    for message in content.messages:
        if message.get("role") not in ("system", "developer"):
            break
        texts.append(plain_text(message.get("content")))
    if not any(texts) and content.messages:
        texts.append(plain_text(content.messages[0].get("content")))
    return "\n".join(texts)[:_HEAD_CHARS]


def plain_text(content: Any) -> str:
    """Give the text of a message's content: a string, or the text parts of a list joined by line ends."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(p["text"] for p in content if isinstance(p, dict) and isinstance(p.get("text"), str))
    return ""


def _parts(head: Any) -> dict[Any, int]:
    """Cut a head without its digits into parts that another head of its template has too, with their weights.

    The word triples of its beginning are always parts; its lines (or sentences) only where there are enough of them, so
    that a short head can still be recognised in a longer one.
    """
    if not isinstance(head, str):
        return dict.fromkeys(_windows(head, 8), 1)
    words = head.split(None, _TRIPLE_WORDS)[:_TRIPLE_WORDS]
    parts: dict[Any, int] = dict.fromkeys(_windows(words, 3), _TRIPLE_WEIGHT)
    lines = {line: len(line) for line in head_lines(head)}
    if len(lines) >= _FEW_PARTS:
        parts.update(lines)
    return parts


def without_digits(text: str) -> str:
    """Take the digits out; by way of bytes, which is many times as fast as on text."""
    return text.encode("utf-8", "surrogatepass").translate(None, b"0123456789").decode("utf-8", "surrogatepass")


def head_lines(head: str) -> list[str]:
    """Give the lines of a head; its sentences where there are few lines."""
    lines = [line for found in head.splitlines() if (line := found.strip())]
    if len(lines) < _FEW_PARTS:
        lines = [part for line in lines for found in _SENTENCE.split(line) if (part := found.strip())]
    return lines


def _windows(items: Iterable[Any], size: int) -> list[tuple[Any, ...]]:
    """Give the overlapping windows of a sequence; the sequence itself where it is shorter than one."""
    row = tuple(items)
    return [row[i : i + size] for i in range(max(1, len(row) - size + 1))]


def _nameless(head: Any) -> str:
    if isinstance(head, str) or not head:
        return "(no text)"
    return f"prompts that begin with {head[-1] if head[0] == 'block' else head[0]}"
