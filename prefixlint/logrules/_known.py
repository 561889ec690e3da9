"""The messages that requests hold in common, each once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from weakref import ref

from prefixlint.logrules._message import Message, identify

_FEW = 1_024  # messages from which on those that are gone are looked for


@dataclass(slots=True)
class Known:
    """Messages by key and path, as long as anything else holds them."""

    _held: dict[tuple[int, str], ref[Message]] = field(default_factory=dict)
    _most: int = _FEW

    def message(self, path: str, raw: Any) -> Message:
        """Give the message that is equal to one as logged, a new one where there is none."""
        identity = identify(raw)
        key, marked, _, _ = identity
        if marked:
            return Message(path, raw, identity)  # the markers of a repeated message may be other ones
        held = self._held.get((key, path))
        message = None if held is None else held()
        if message is None:
            if len(self._held) >= self._most:
                self._sweep()
            message = Message(path, raw, identity)
            self._held[key, path] = ref(message)
        return message

    def _sweep(self) -> None:
        """Forget the messages that are gone, which is done seldom enough to cost little."""
        self._held = {place: held for place, held in self._held.items() if held() is not None}
        self._most = max(_FEW, 2 * len(self._held))
