"""llama.cpp's server: a few slots, each of which holds one sequence and shares nothing with the others.

As read in llama-cpp-python 0.3.36, tools/server/server-context.cpp: an idle slot is chosen by its common prefix with
the prompt, else the least recently used one; a host cache keeps what slots lose and gives it back by moving it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from prefixlint.radix import common

if TYPE_CHECKING:
    from collections.abc import Hashable

    from numpy.typing import NDArray

    Ids = NDArray[np.uint32]

SLOTS = 4  # -np -1 with a unified KV cache
_SIMILAR = 0.10  # --slot-prompt-similarity: common prefix over prompt length, more than this
_KEEP = 0.5  # the host cache is asked where less than this share of the slot would be kept
_WORTH = 0.25  # an entry of the host cache is taken only where this share of it would be kept


@dataclass(slots=True, eq=False)
class _Held:
    """A sequence of one namespace."""

    namespace: Hashable
    ids: Ids


@dataclass(slots=True, eq=False)
class _Slot:
    held: _Held | None = None
    used: int = 0
    busy: bool = False


@dataclass(slots=True)
class SlotTicket:
    """A running request in its slot."""

    hit: int
    slot: _Slot
    output: list[Ids] = field(default_factory=list)


class SlotCache:
    """`slots` slots over a pool of `capacity` tokens (None: no limit), and `host` tokens of host cache (0: none).

    Where a prompt does not fit beside what idle slots hold, the least recently used of those are emptied.
    """

    def __init__(self, capacity: int | None = None, *, slots: int = SLOTS, host: int = 0) -> None:
        if slots < 1 or (capacity is not None and capacity < 1) or host < 0:
            raise ValueError(f"{slots} slots over {capacity} tokens, with {host} on the host")
        self._capacity = capacity
        self._slots = [_Slot() for _ in range(slots)]
        self._host = host
        self._kept: list[_Held] = []
        self._clock = 0

    def fits(self, size: int) -> bool:
        """Say whether a prompt of that size fits when nothing else runs."""
        return self._capacity is None or size <= self._capacity

    def admit(self, namespace: Hashable, prompt: Ids) -> SlotTicket | None:
        """Choose an idle slot and keep of it what the prompt begins with; None while all slots are busy."""
        idle = [slot for slot in self._slots if not slot.busy]
        if not idle:
            return None
        best = max(idle, key=lambda slot: _shared(slot.held, namespace, prompt))
        similar = _shared(best.held, namespace, prompt) > _SIMILAR * prompt.size
        slot = best if similar else min(idle, key=lambda slot: slot.used)
        if not self._fits(slot, prompt.size):
            return None
        held = slot.held
        kept = _shared(held, namespace, prompt) / held.ids.size if held is not None and held.ids.size else 0.0
        if self._host and (not similar or kept < _KEEP):
            self._swap(slot, namespace, prompt, kept)
        hit = min(_shared(slot.held, namespace, prompt), max(prompt.size - 1, 0))
        self._clock += 1
        slot.used, slot.busy, slot.held = self._clock, True, _Held(namespace, prompt.copy())
        return SlotTicket(hit, slot)

    def prefilled(self, ticket: SlotTicket) -> None:
        """Do nothing: only idle slots are looked at."""

    def generate(self, ticket: SlotTicket, tokens: Ids) -> int:
        """Keep generated tokens as long as the pool has room for them."""
        assert ticket.slot.held is not None
        size = ticket.slot.held.ids.size + sum(part.size for part in ticket.output)
        done = tokens.size
        if not self._fits(ticket.slot, size + done):
            assert self._capacity is not None
            done = max(0, min(done, self._capacity - self._others(ticket.slot) - size))
        ticket.output.append(tokens[:done].copy())
        return done

    def finish(self, ticket: SlotTicket) -> None:
        """Leave the slot idle, with the prompt and what was generated in it."""
        slot = ticket.slot
        assert slot.held is not None
        slot.held = _Held(slot.held.namespace, np.concatenate((slot.held.ids, *ticket.output)))
        self._clock += 1
        slot.used, slot.busy = self._clock, False

    def _others(self, slot: _Slot) -> int:
        return sum(s.held.ids.size for s in self._slots if s is not slot and s.held is not None)

    def _fits(self, slot: _Slot, tokens: int) -> bool:
        """Make room for a sequence in a slot, at the cost of idle slots; say whether there is any."""
        if self._capacity is None:
            return True
        victims = sorted((s for s in self._slots if s is not slot and s.held and not s.busy), key=lambda s: s.used)
        least = self._others(slot) - sum(s.held.ids.size for s in victims if s.held)
        if least + tokens > self._capacity:
            return False
        for victim in victims:
            if self._others(slot) + tokens <= self._capacity:
                break
            self._keep(victim.held)
            victim.held = None
        return True

    def _swap(self, slot: _Slot, namespace: Hashable, prompt: Ids, kept: float) -> None:
        """Save what the slot holds, and load the saved sequence that serves the prompt better than that, if any."""
        similar = _shared(slot.held, namespace, prompt)
        best = None
        for entry in self._kept:
            share = _shared(entry, namespace, prompt)
            worth = share / entry.ids.size if entry.ids.size else 0.0
            if worth >= _WORTH and worth > kept and share > similar:
                best, kept, similar = entry, worth, share
        if best is not None:
            self._kept.remove(best)
        self._keep(slot.held)
        if best is not None:
            slot.held = best

    def _keep(self, held: _Held | None) -> None:
        """Put a sequence into the host cache, where the oldest ones give way."""
        if held is None or not self._host or not held.ids.size:
            return
        if any(_shared(entry, held.namespace, held.ids) == held.ids.size for entry in self._kept):
            return
        self._kept.append(held)
        while sum(entry.ids.size for entry in self._kept) > self._host:
            del self._kept[0]


def _shared(held: _Held | None, namespace: Hashable, prompt: Ids) -> int:
    return common(held.ids, prompt) if held is not None and held.namespace == namespace else 0
