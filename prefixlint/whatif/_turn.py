"""One request while it is rewritten, and what is known of its conversation: what was sent stays as it was sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prefixlint.logrules._message import dumps
from prefixlint.logrules._view import View
from prefixlint.whatif import _edit

_SYSTEM = ("assistant", "model")


@dataclass(slots=True)
class Talk:
    """A conversation as the rewritten log has it.

    `sent` is the number of messages that its latest turn was sent with, `place` says where among them each message of
    the logged turn stands, and `own` holds those that were not sent as they were logged, by their places. `shown` are
    the values that the model was told last, by what they are. `opening` is what the first message's text became, before
    anything was added to it. `kept` are other values that stay for a conversation. `row` is the request that it was
    sent with, `notes` are the texts that messages were told, by their places. Of a prompt that is one text, `begun` are
    the characters of the first turn as logged, and what that was sent as.
    """

    row: int = -1
    sent: int = 0
    place: list[int] = field(default_factory=list)
    own: dict[int, Any] = field(default_factory=dict)
    shown: dict[str, str] = field(default_factory=dict)
    opening: str | None = None
    kept: dict[str, Any] = field(default_factory=dict)
    notes: dict[int, str] = field(default_factory=dict)
    begun: tuple[int, str] | None = None


@dataclass(slots=True)
class Turn:
    """A request that is being rewritten.

    `view` is the request as logged, `earlier` the turn before it, with `past` as that was sent; None where a
    conversation begins. `messages` are those behind the system text as they are to be sent, those from `fresh` on are
    new in this turn; `place` is where each logged message stands among them. `shows` says that the request shows the
    cause that is mended next.
    """

    view: View
    earlier: View | None
    past: Talk | None
    family: int
    body: dict[str, Any]
    messages: list[Any]
    fresh: int = 0
    place: list[int] = field(default_factory=list)
    talk: Talk = field(default_factory=Talk)
    changed: bool = False
    shows: bool = True
    _notes: list[str] = field(default_factory=list)

    def before(self, known: Mapping[int, Any]) -> list[Any]:
        """Give the messages of the turn before as they were sent. `known` has some of them as logged, by their numbers.

        The others are read from what was kept of that turn.
        """
        if self.past is None or self.earlier is None:
            return []
        logged, own = self.earlier.messages, self.past.own
        number = {at: j for j, at in enumerate(self.past.place)}
        return [
            own[at] if at in own else known[j] if (j := number[at]) in known else logged[j].raw
            for at in range(self.past.sent)
        ]

    def tools(self) -> list[Any] | None:
        """Give the tools as they are to be sent so far; None where there is no list of them."""
        held = _edit.get(self.body, self.view.tools_path)
        return held if isinstance(held, list) else None

    def write(self, path: str, value: Any) -> None:
        """Put something else at a path of the body that is none of a message."""
        self.body = _edit.put(self.body, path, value)
        self.changed = True

    def say(self, what: str, label: str, value: str) -> None:
        """Have the newest message tell a value, unless it is what the conversation was told last.

        Lines that only grew are told from where they grew.
        """
        known = self.talk.shown.get(what)
        if known == value:
            return
        self.talk.shown[what] = value
        more = value[len(known) :] if known and value.startswith(known) else ""
        text = more if known and more and "\n" in (more[0], known[-1]) else value
        if text.strip():
            self._notes.append(f"{label}{text}".strip())

    def noted(self, raw: Any, before: int, at: int) -> Any:
        """Give a message that now stands at a place with what it was told where it stood before."""
        text = None if self.past is None else self.past.notes.get(before)
        if text is None:
            return raw
        self.talk.notes[at] = text
        if any(text in held for _, held in _edit.strings(raw)):
            return raw
        more = _edit.added(raw, text)
        return raw if more is None else more

    def put_first(self, places: Sequence[int]) -> None:
        """Put the messages at some places, in their order, ahead of the others."""
        order = [*places, *(at for at in range(len(self.messages)) if at not in places)]
        now = {at: number for number, at in enumerate(order)}
        self.messages = [self.messages[at] for at in order]
        self.place = [now[at] for at in self.place]
        self.talk.notes = {now[at]: text for at, text in self.talk.notes.items()}

    def finish(self) -> dict[str, Any]:
        """Give the rewritten body, and keep what the next turn needs."""
        self._tell()
        if self.view.messages or self.messages:
            path = self.view.messages[0].path.partition("[")[0] if self.view.messages else "messages"
            held = self.body[path]
            if isinstance(held, str):
                held = [held]
            head = len(held) - len(self.view.messages)
            if not _are(held[head:], self.messages):
                self.body = {**self.body, path: _written([*held[:head], *self.messages])}
                self.changed = True
        elif self.changed and len(self.view.head) == 1:
            unit = self.view.head[0]
            self.talk.begun = len(unit.text), str(_edit.get(self.body, unit.path))
        self.talk.row = self.view.row
        logged = {at: message.raw for at, message in zip(self.place, self.view.messages, strict=True)}
        self.talk.sent, self.talk.place = len(self.messages), self.place
        self.talk.own = {at: m for at, m in enumerate(self.messages) if at not in logged or m is not logged[at]}
        return self.body

    def _tell(self) -> None:
        """Add the values to the newest message that is not the model's own."""
        if not self._notes:
            return
        text = "\n".join(dict.fromkeys(self._notes))
        if not self.messages:
            self._tell_prompt(text)
            return
        for index in range(len(self.messages) - 1, -1, -1):
            message = self.messages[index]
            role = message.get("role") if isinstance(message, dict) else None
            more = None if role in _SYSTEM else _edit.added(message, text)
            if more is not None:
                self.messages[index] = more
                self.talk.notes[index] = text
                return
        self.messages.append({"role": "user", "content": text})

    def _tell_prompt(self, text: str) -> None:
        """Put the values ahead of the last line of a prompt that is one text: that line asks for the answer."""
        path = self.view.head[-1].path
        prompt = _edit.get(self.body, path)
        front, line, last = prompt.rstrip("\n").rpartition("\n")
        ends = prompt[len(prompt.rstrip("\n")) :]
        self.write(path, f"{front}\n{text}{line}{last}{ends}" if line else f"{prompt}\n{text}")


def _are(one: list[Any], two: list[Any]) -> bool:
    """Tell whether messages are the same as they are written: the order of keys counts."""
    return len(one) == len(two) and all(a is b or dumps(a) == dumps(b) for a, b in zip(one, two, strict=True))


def _written(messages: list[Any]) -> Any:
    """Write messages as a body has them: one that is a text alone stays so, among others it needs its role."""
    if len(messages) == 1 and isinstance(messages[0], str):
        return messages[0]
    return [{"role": "user", "content": m} if isinstance(m, str) else m for m in messages]
