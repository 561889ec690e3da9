"""Caches that store a prompt only where a mark stands, and find only positions that an earlier request wrote.

Anthropic, Bedrock, Alibaba's explicit cache and OpenAI from gpt-5.6 on. A request reads the longest written position at
one of its marks or at most `lookback` block ends before it, and writes all its marked positions; an entry lives from
the start of the request that wrote or read it, and can be read once the request that wrote it has come far enough.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from prefixlint.model import MissCause


@dataclass(frozen=True, slots=True)
class Marks:
    """The blocks of a prompt: where each one ends, in tokens, and which carry a mark.

    `ends` do not decrease. `ttl` maps the index of a marked block to the lifetime in seconds that the mark asks for,
    None where it names none.
    """

    ends: Sequence[int]
    ttl: Mapping[int, float | None]


@dataclass(frozen=True, slots=True)
class Read:
    """What a request read: `hit` tokens; `written` are those it wrote behind them; `losses` say why it was not more.

    `long` are those of the written ones that were asked to live longer than the provider's default.
    """

    hit: int
    written: int
    losses: Mapping[MissCause, int] = field(default_factory=dict)
    long: int = 0


@dataclass(slots=True)
class _Entry:
    visible: float
    expires: float
    ttl: float


@dataclass(slots=True)
class MarkStore:
    """The written positions of one provider, for all its namespaces: each is the name of the prefix that ends there.

    `lookback` counts block ends before a mark that are looked up besides the mark's own; of more than `most` marks the
    last ones count. Positions of fewer than `minimum` tokens are neither written nor read. `ttl` is the lifetime, in
    seconds, of a mark that names none; with `sliding` a read starts it again. Requests come in the order of their
    times.
    """

    lookback: int
    most: int
    minimum: int
    ttl: float
    sliding: bool = True
    _entries: dict[Hashable, _Entry] = field(default_factory=dict)

    def visit(
        self,
        names: Sequence[Hashable],
        marks: Marks,
        now: float,
        visible: float,
        *,
        shared: int | None = None,
        scale: float = 1.0,
    ) -> Read:
        """Read and write for a request that starts at `now`; what it writes can be read from `visible` on.

        `names` are those of the prefixes that end at the blocks' ends, see `ways.Ways.names`. `shared` is how much of
        the prompt an earlier request had too, which the losses are told for. `scale` turns tokens of the prompt into
        those that the provider counts.
        """
        marked, long_enough = self._choose(marks, scale)
        found = self._find(names, marks.ends, long_enough, now, scale)
        hit = 0 if found is None else marks.ends[found]
        shared = hit if shared is None else shared
        losses, told = self._unread(names, marks.ends, now, min(hit, shared), shared)
        short = [marks.ends[i] for i in marked if i not in long_enough]
        _unwritten(losses, told, shared, max((min(end, shared) for end in short), default=0))
        return self._read_and_write(names, marks, long_enough, found, (now, visible), losses=losses)

    def serve(self, names: Sequence[Hashable], marks: Marks, now: float, visible: float, *, scale: float = 1.0) -> Read:
        """Do what `visit` does and tell no losses."""
        _, long_enough = self._choose(marks, scale)
        found = self._find(names, marks.ends, long_enough, now, scale)
        return self._read_and_write(names, marks, long_enough, found, (now, visible), losses={})

    def _choose(self, marks: Marks, scale: float) -> tuple[Sequence[int], Sequence[int]]:
        """Give the marks that count, and those of them that are long enough to be written."""
        marked = sorted(marks.ttl)[-self.most :]
        return marked, [i for i in marked if marks.ends[i] * scale >= self.minimum]

    def _read_and_write(
        self,
        names: Sequence[Hashable],
        marks: Marks,
        written: Sequence[int],
        found: int | None,
        span: tuple[float, float],
        *,
        losses: Mapping[MissCause, int],
    ) -> Read:
        """Refresh what was found, and write the marks; `span` is now, and from when on what is written can be read."""
        now, visible = span
        hit = 0 if found is None else marks.ends[found]
        if found is not None and self.sliding:
            entry = self._entries[names[found]]
            entry.expires = max(entry.expires, now + entry.ttl)
        last = last_long = 0
        for i in written:
            self._write(names[i], marks.ttl[i], now, visible)
            last = marks.ends[i]
            if (marks.ttl[i] or 0) > self.ttl:
                last_long = last
        return Read(hit, max(0, last - hit), losses, max(0, last_long - hit))

    def _find(
        self, names: Sequence[Hashable], ends: Sequence[int], marked: Sequence[int], now: float, scale: float
    ) -> int | None:
        """Give the index of the longest position that can be read now."""
        for mark in reversed(marked):
            for i in range(mark, max(-1, mark - self.lookback - 1), -1):
                entry = self._entries.get(names[i])
                if entry is not None and entry.visible <= now <= entry.expires and ends[i] * scale >= self.minimum:
                    return i
        return None

    def _write(self, name: Hashable, ttl: float | None, now: float, visible: float) -> None:
        ttl = self.ttl if ttl is None else ttl
        entry = self._entries.get(name)
        if entry is None or entry.expires < now:
            self._entries[name] = _Entry(visible, now + ttl, ttl)
            return
        entry.visible = min(entry.visible, visible)
        if self.sliding:
            entry.expires = max(entry.expires, now + entry.ttl)

    def _unread(
        self, names: Sequence[Hashable], ends: Sequence[int], now: float, hit: int, shared: int
    ) -> tuple[dict[MissCause, int], int]:
        """Say why the longest shared position that was ever written was not read; give how far that tells."""
        written = [i for i, end in enumerate(ends) if hit < end <= shared and names[i] in self._entries]
        if not written:
            return {}, hit
        entry = self._entries[names[written[-1]]]
        if entry.expires < now:
            cause = MissCause.EXPIRED
        else:  # what can be read and was not lies too far before the marks
            cause = MissCause.IN_FLIGHT if entry.visible > now else MissCause.NOT_WRITTEN
        end = ends[written[-1]]
        return {cause: end - hit}, end


def _unwritten(losses: dict[MissCause, int], told: int, shared: int, too_short: int) -> None:
    """Add what was shared and not written: up to a marked position that is too short, and all behind it."""
    if too_short > told:
        losses[MissCause.TOO_SHORT] = too_short - told
        told = too_short
    if shared > told:
        losses[MissCause.NOT_WRITTEN] = losses.get(MissCause.NOT_WRITTEN, 0) + shared - told
