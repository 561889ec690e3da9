"""The requests of a log as columns: a fixed number of bytes a request, whatever its prompt is.

Prompts are slices of interned segment ids; texts live once in the encoder. This is what bounds memory by the distinct
text of a log and not by its length.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefixlint.marks import Block
from prefixlint.model import BlockHashes, Fingerprint, Messages, Request, TokenIds, Usage
from prefixlint.names import Names

_SALTS = ("salt=", "extra_key=")  # what begins the part of a namespace that only some engines know
UNKNOWN = -1
"""In a column of counts: not reported."""


class Kind(IntEnum):
    """What the log holds of a prompt."""

    NONE = 0
    TOKENS = 1
    BLOCKS = 2


def _bytes() -> array[int]:
    return array("b")


def _ints() -> array[int]:
    return array("i")


def _longs() -> array[int]:
    return array("q")


def _unsigned() -> array[int]:
    return array("I")


def _floats() -> array[float]:
    return array("d")


def _contradicts_itself(usage: Usage) -> bool:
    return usage.prompt is not None and max(usage.cached or 0, usage.written or 0) > usage.prompt


@dataclass(slots=True)
class Table:
    """Columns of requests. Times are epoch seconds, NaN where unknown; counts are tokens, UNKNOWN where unreported.

    `cut` says that the last token of the output was sampled but not computed; `as_ids` that the log gave token ids,
    `partial` that it leaves a part of the prompt out. `first` and `total` are the seconds until the first token and the
    end. `long` are the written tokens that are to live for an hour. `key` is the prompt_cache_key. `marks` are the
    blocks of prompts that mark themselves for caching, where an engine asks for them.
    """

    paths: Names = field(default_factory=Names)
    formats: Names = field(default_factory=Names)
    models: Names = field(default_factory=Names)
    namespaces: Names = field(default_factory=Names)
    conversations: Names = field(default_factory=Names)
    groups: Names = field(default_factory=Names)
    replicas: Names = field(default_factory=Names)
    keys: Names = field(default_factory=Names)
    path: array[int] = field(default_factory=_ints)
    line: array[int] = field(default_factory=_longs)
    part: array[int] = field(default_factory=_ints)
    format: array[int] = field(default_factory=_ints)
    kind: array[int] = field(default_factory=_bytes)
    time: array[float] = field(default_factory=_floats)
    first: array[float] = field(default_factory=_floats)
    total: array[float] = field(default_factory=_floats)
    model: array[int] = field(default_factory=_ints)
    replica: array[int] = field(default_factory=_ints)
    key: array[int] = field(default_factory=_ints)
    namespace: array[int] = field(default_factory=_ints)
    family: array[int] = field(default_factory=_ints)
    conversation: array[int] = field(default_factory=_ints)
    group: array[int] = field(default_factory=_ints)
    prompt: array[int] = field(default_factory=_longs)
    cached: array[int] = field(default_factory=_longs)
    written: array[int] = field(default_factory=_longs)
    long: array[int] = field(default_factory=_longs)
    completion: array[int] = field(default_factory=_longs)
    cut: array[int] = field(default_factory=_bytes)
    as_ids: array[int] = field(default_factory=_bytes)
    partial: array[int] = field(default_factory=_bytes)
    ends: array[int] = field(default_factory=_longs)
    output_ends: array[int] = field(default_factory=_longs)
    segments: array[int] = field(default_factory=_unsigned)
    outputs: array[int] = field(default_factory=_unsigned)
    blocks: dict[int, BlockHashes] = field(default_factory=dict)
    ids: dict[int, str] = field(default_factory=dict)
    contradictory: int = 0
    """Requests whose usage was left out: it reports more cached or written than prompt tokens."""
    marks: dict[int, Sequence[Block]] = field(default_factory=dict)

    def __len__(self) -> int:
        """Count the requests."""
        return len(self.line)

    def add(self, request: Request, *, family: int, conversation: Hashable, group: Hashable, cut: bool) -> int:
        """Append what is known of a request before its prompt; give its row."""
        row = len(self.line)
        usage = request.usage
        if usage is not None and _contradicts_itself(usage):
            self.contradictory += 1
            usage = None
        self.path.append(self.paths.number(request.path))
        self.line.append(request.line)
        self.part.append(request.part)
        self.format.append(self.formats.number(request.format))
        self.time.append(float("nan") if request.time is None else request.time)
        first, total = _durations(request)
        self.first.append(first)
        self.total.append(total)
        self.model.append(self.models.number(request.model))
        self.replica.append(self.replicas.number(request.replica))
        self.key.append(self.keys.number(request.fields.get("prompt_cache_key")))
        self.namespace.append(self.namespaces.number((request.model, *request.namespace)))
        self.family.append(family)
        self.conversation.append(self.conversations.number(conversation))
        self.group.append(self.groups.number(group))
        self.cut.append(cut)
        self.as_ids.append(_given_as_ids(request.content))
        self.partial.append(isinstance(request.content, Messages) and request.content.missing is not None)
        self.prompt.append(UNKNOWN if usage is None or usage.prompt is None else usage.prompt)
        self.cached.append(UNKNOWN if usage is None or usage.cached is None else usage.cached)
        self.written.append(UNKNOWN if usage is None or usage.written is None else usage.written)
        self.long.append(UNKNOWN if usage is None or usage.long is None else usage.long)
        self.completion.append(UNKNOWN if usage is None or usage.completion is None else usage.completion)
        return row

    def add_prompt(self, request: Request, *, cut: bool) -> None:
        """Append a request of which nothing but the prompt is asked for: other columns stay empty."""
        self.line.append(request.line)
        self.namespace.append(self.namespaces.number((request.model, *request.namespace)))
        self.cut.append(cut)

    def set_tokens(self, segments: Any, output: Any = ()) -> None:
        """Finish the last request with its prompt's segments and its output's."""
        self.segments.extend(segments)
        self.outputs.extend(output)
        self._close(Kind.TOKENS)

    def set_blocks(self, content: BlockHashes) -> None:
        """Finish the last request with the blocks of a hash trace."""
        self.blocks[len(self.line) - 1] = content
        self._close(Kind.BLOCKS)

    def set_none(self) -> None:
        """Finish the last request: the log does not hold its prompt."""
        self._close(Kind.NONE)

    def _close(self, kind: Kind) -> None:
        self.kind.append(kind)
        self.ends.append(len(self.segments))
        self.output_ends.append(len(self.outputs))

    def unsalted(self) -> Mapping[Hashable, Hashable]:
        """Map the numbers of namespaces that have a salt to one for all that differ in nothing else."""
        first: dict[tuple[str | None, ...], int] = {}
        found: dict[Hashable, Hashable] = {}
        for number, names in enumerate(self.namespaces.values):
            plain = (names[0], *(part for part in names[1:] if not part.startswith(_SALTS)))
            alone = first.setdefault(plain, number)
            if len(plain) < len(names) or alone != number:
                found[number] = alone
        return found

    def prompt_segments(self, row: int) -> NDArray[np.uint32]:
        """Give the segment ids of a prompt; a view that must not outlive the next `set_tokens`."""
        return np.frombuffer(self.segments, np.uint32)[self.ends[row - 1] if row else 0 : self.ends[row]]

    def output_segments(self, row: int) -> NDArray[np.uint32]:
        """Give the segment ids of an output; empty where it is unknown."""
        return np.frombuffer(self.outputs, np.uint32)[self.output_ends[row - 1] if row else 0 : self.output_ends[row]]

    def where(self, row: int) -> tuple[str, int, int]:
        """Give the file, line and part of a request."""
        return self.paths.values[self.path[row]], self.line[row], self.part[row]


def by_value(values: NDArray[Any]) -> dict[int, NDArray[np.intp]]:
    """Give the positions of each value of an integer column, in order."""
    if not values.size:
        return {}
    order = np.argsort(values, kind="stable")
    borders = np.flatnonzero(np.diff(values[order])) + 1
    parts = np.split(order, borders)
    return {int(values[part[0]]): part for part in parts}


def _durations(request: Request) -> tuple[float, float]:
    """Give the seconds until a request's first token and until its end, NaN where they are not known."""
    latency = request.latency
    if latency is None:
        return math.nan, math.nan
    parts = (latency.queue, latency.prefill)
    first = latency.ttft if latency.ttft is not None else sum(p or 0.0 for p in parts) if any(parts) else math.nan
    return first, math.nan if latency.total is None else latency.total


def _given_as_ids(content: Any) -> bool:
    """Tell whether a prompt came to its log as token ids, so that no tokenizer here has counted it."""
    return isinstance(content, TokenIds) or (isinstance(content, Fingerprint) and content.tokenizer == "ids")
