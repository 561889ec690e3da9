"""Places at which prompts could be marked for caching, as people name them, and the blocks that they stand for.

    tools               behind the last tool
    system              behind the whole system text
    system[0]           behind its first block
    messages[-1]        behind the last message (the end of the prompt)
    messages[0]         behind the first message that is not the system's
    messages[0][1]      behind the second block of that message

Each may be followed by a lifetime: `system:1h`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from prefixlint.errors import UsageError
from prefixlint.marks import Block, seconds

_SPOT = re.compile(r"(tools|system|messages)(?:\[(-?\d{1,6})\](?:\[(-?\d{1,6})\])?)?(?::(\d{1,6}[smhd]))?")
NONE = "none"


@dataclass(frozen=True, slots=True)
class Spot:
    """A place in prompts: `item` counts tools, blocks of the system text or messages, `part` the blocks of a message.

    Both count from 0, negative ones from the end; a whole section or message ends where its last block does. `ttl` is
    the lifetime in seconds that the mark asks for, None for the provider's own.
    """

    section: str
    item: int = -1
    part: int = -1
    ttl: float | None = None

    def __str__(self) -> str:
        """Name the place as `parse` reads it."""
        items = f"[{self.item}]" if self.section == "messages" or self.item != -1 else ""
        part = f"[{self.part}]" if self.part != -1 else ""
        return f"{self.section}{items}{part}{'' if self.ttl is None else ':' + lifetime(self.ttl)}"


def lifetime(ttl: float) -> str:
    """Write a lifetime of whole seconds as marks do: 300 is `5m`."""
    for size, unit in ((3600, "h"), (60, "m")):
        if ttl % size == 0:
            return f"{int(ttl // size)}{unit}"
    return f"{int(ttl)}s"


def parse(text: str) -> tuple[Spot, ...]:
    """Read places that commas separate; `none` is no mark at all. UsageError for what is not one."""
    if text.strip().lower() == NONE:
        return ()
    return tuple(_spot(name.strip()) for name in text.split(","))


def _spot(name: str) -> Spot:
    match = _SPOT.fullmatch(name)
    if match is None or (match[1] != "messages" and match[3] is not None):
        raise UsageError(
            f"--marks {name or '(nothing)'} is no place in a prompt",
            slug="bad-marks",
            hint="like tools,system,messages[-1], with lifetimes system:1h, or none",
        )
    section, item, part, ttl = match.groups()
    number, inner = (int(one) if one is not None else -1 for one in (item, part))
    return Spot(section, number, inner, seconds(ttl) if ttl else None)


def placed(blocks: Sequence[Block], spots: Sequence[Spot]) -> dict[int, float | None]:
    """Give the indexes of the blocks that stand at some places, with the lifetimes; what a prompt lacks is left out."""
    ends: dict[tuple[str, int], list[int]] = {}
    for index, block in enumerate(blocks):
        ends.setdefault(block.place[:2], []).append(index)
    items: dict[str, list[list[int]]] = {}
    for (section, _), indexes in ends.items():
        items.setdefault(section, []).append(indexes)
    found: dict[int, float | None] = {}
    for spot in spots:
        members = items.get(spot.section, [])
        if -len(members) <= spot.item < len(members):
            parts = members[spot.item]
            if -len(parts) <= spot.part < len(parts):
                found[parts[spot.part]] = spot.ttl
    return found
