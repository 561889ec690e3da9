"""Which other request of a template one is compared with: the latest whose head is most like its own.

Applications may share a long beginning of their system texts, and are then of one family. What parts two of them is no
cause: it stays the same in all requests of each, and of an application's own requests each one shares it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

from prefixlint.families import head_lines, without_digits
from prefixlint.logrules._view import View

_KEPT = 64  # latest requests, by what their heads hold; where more take turns, any of the template will do
_COMPARED = 12  # of those, the latest that a head is compared with
_HEAD = 24_000  # characters of a head that are compared
_TOOL = 100  # characters that a tool in common counts
_NEARER = 200  # characters that a head has in common with another one, beside those that it has with the latest, and
_MUCH = 0.05  # the same as a share of it: less is a value that came again
_SAME = 0.9  # of the longer head: two of one strain

Parts = Mapping[int, int]
"""The lines of a head and the tools with it, by their hashes, each with its size."""
Key = tuple[int, tuple[str, ...], int]


@dataclass(slots=True)
class Siblings:
    """The latest request of each family, and of each strain and namespace in it: a strain has one head but for values.

    A cache never serves a request what another namespace holds, so that a sibling is of the same one where it can be.
    """

    latest: dict[int, View] = field(default_factory=dict)
    _kept: OrderedDict[Key, View] = field(default_factory=OrderedDict)
    _strains: dict[int, Parts] = field(default_factory=dict)
    _next: int = 0

    def add(self, view: View, family: int, strain: int | None = None) -> tuple[View | None, int]:
        """Give the request to compare one with, and its strain, and remember it.

        `strain` is that of the conversation that it goes on with, None where it opens one.
        """
        if strain is None:
            found, strain = self._nearest(view, family)
        else:
            found = self._kept.get((family, view.namespace, strain)) or self.latest.get(family)
        if strain not in self._strains:
            self._strains[strain] = _parts(view)
        key = family, view.namespace, strain
        self.latest[family] = self._kept[key] = view
        self._kept.move_to_end(key)
        if len(self._kept) > _KEPT:
            (*_, gone), _ = self._kept.popitem(last=False)
            if all(other[2] != gone for other in self._kept):
                self._strains.pop(gone, None)
        return found, strain

    def _nearest(self, view: View, family: int) -> tuple[View | None, int]:
        """Give the latest request of a family, or one that has much more in common with a new one, and the strain."""
        held = [key for key in reversed(self._kept) if key[0] == family]
        able = [key for key in held if key[1] == view.namespace] or held
        if able and _is_same(view, self._kept[able[0]]):
            return self._kept[able[0]], able[0][2]
        parts = _parts(view)
        strain = None
        found = self.latest.get(family)
        if able:
            shared = [_shared(parts, self._strains[key[2]]) for key in able[:_COMPARED]]
            most = max(range(len(shared)), key=shared.__getitem__)
            whole = max(sum(parts.values()), sum(self._strains[able[most][2]].values()))
            if shared[most] >= _SAME * whole:
                strain = able[most][2]
            if shared[most] - shared[0] < max(_NEARER, _MUCH * whole):
                most = 0
            found = self._kept[able[most]]
        if strain is None:
            self._next += 1
            strain = self._next
            self._strains[strain] = parts
        return found, strain


def _is_same(view: View, other: View) -> bool:
    return view.head_text == other.head_text != "" and view.tools_key == other.tools_key


def _parts(view: View) -> Parts:
    text = view.head_text or (view.messages[0].said.text if view.messages else "")
    found = {hash(line): len(line) for line in head_lines(without_digits(text[:_HEAD]))}
    return found | {hash(("tool", name)): _TOOL for name in view.tool_names}


def _shared(parts: Parts, others: Parts) -> int:
    return sum([parts[part] for part in parts.keys() & others.keys()])
