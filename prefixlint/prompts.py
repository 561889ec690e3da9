"""The vocabulary of the static half: prompts as a model would see them, before any of them was ever sent.

A prompt is messages of nodes; `flatten` gives its segments in the order in which a model reads them. A place's
*volatility* says how widely (`Scope`) and how often (`Period`) its text changes; two volatilities are compared only
where both parts order them the same way, so a date (same for all users, new each day) and a user name (other for each
user, never new) are not comparable.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """Bytes `start` (included) to `end` (excluded) of the file at `path`; lines and columns exist only in reports."""

    path: str
    start: int
    end: int


class Scope(IntEnum):
    """Among whom a value differs, from nobody to each single request."""

    CONSTANT = 0
    DEPLOY = 1
    TENANT = 2
    USER = 3
    SESSION = 4
    REQUEST = 5


class Period(IntEnum):
    """How long a value stays the same for those who share it."""

    NEVER = 0
    PROCESS = 1
    DAY = 2
    MINUTE = 3
    SECOND = 4
    CALL = 5


@dataclass(frozen=True, slots=True)
class Volatility:
    """How widely and how often a value changes; partially ordered."""

    scope: Scope
    period: Period

    def __le__(self, other: Volatility) -> bool:
        """Tell whether `self` changes neither more widely nor more often than `other`."""
        return self.scope <= other.scope and self.period <= other.period

    def frozen(self) -> Volatility:
        """Give the volatility of the same value when it is computed once per process."""
        if self.period <= Period.PROCESS and self.scope <= Scope.DEPLOY:
            return self
        return Volatility(Scope.DEPLOY, Period.PROCESS)


Evidence = Literal["flow", "name"]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a changing value comes from.

    `kind` is a word of `sources.toml` (clock, date, random, identity, …). `label` is what a reader recognises: the
    expression (`datetime.now()`) or the name (`{user_name}`). `span` is where the value is made, None where only a name
    says so. `frozen` says that it is computed once per process, when its module is imported, `once` that it is where an
    object is made. `weak` says that the name alone says little.
    """

    kind: str
    volatility: Volatility
    label: str
    span: Span | None
    evidence: Evidence = "flow"
    frozen: bool = False
    weak: bool = False
    once: bool = False


@dataclass(frozen=True, slots=True)
class Text:
    """Text that is the same in each request."""

    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class Hole:
    """A place that is filled when the prompt is built.

    `names` are what the value is called on its way, the placeholder first. `origins` are the reasons why it changes;
    none with `constant` says that it never does, none without that nobody knows. `argument` is the argument of the
    call that fills the place, where the place is a placeholder; `bound` are all places that hand the value over, the
    nearest first.
    """

    names: tuple[str, ...]
    origins: tuple[Origin, ...]
    span: Span
    constant: bool = False
    bound: tuple[Span, ...] = ()
    argument: Span | None = None


@dataclass(frozen=True, slots=True)
class Repeat:
    """Nodes that are written once per element; `source` holds what decides number and order of the elements."""

    nodes: tuple[Node, ...]
    span: Span
    source: Hole | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several texts; an optional part has an empty branch."""

    branches: tuple[tuple[Node, ...], ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Include:
    """A template or text file that could not be found; a found one is replaced by its nodes."""

    target: str
    span: Span


Node = Text | Hole | Repeat | Choice | Include
PICTURE = "{picture}"
"""The target that stands for what is no text in a message: a picture, a recording."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message. `role` is system, developer, user, assistant, tool; `text` where the source does not say."""

    role: str
    nodes: tuple[Node, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Prompt:
    """What one call sends, as far as the source shows it.

    `tools` stand before the messages, as engines render them. `continues` says that a history of unknown length follows
    the system part or the last message shown. `once` says that it is made where its object is, for a whole session.
    `lone` says that the source shows one message of a conversation, without those before it. `shown` says that the
    source shows a model to read it; otherwise only names and shapes say so.
    """

    messages: tuple[Message, ...]
    span: Span
    tools: tuple[Node, ...] = ()
    continues: bool = True
    name: str = ""
    lone: bool = False
    shown: bool = True
    once: bool = False


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a flattened prompt.

    `message` is the index of its message, -1 for tools. `repeated` says that it is written once per element of a loop,
    so its text does not count as shared. `branch` numbers the alternatives it stands in: ((choice, branch), …).
    """

    node: Text | Hole | Include
    role: str
    message: int
    repeated: bool = False
    branch: tuple[tuple[int, int], ...] = ()


def flatten(prompt: Prompt) -> list[Segment]:
    """Give the segments in the order a model reads them: tools, then the messages as they stand."""
    counter = iter(range(1 << 30))
    out = list(_segments(prompt.tools, "tools", -1, counter))
    for index, message in enumerate(prompt.messages):
        out.extend(_segments(message.nodes, message.role, index, counter))
    return out


def _segments(
    nodes: Sequence[Node],
    role: str,
    message: int,
    counter: Iterator[int],
    branch: tuple[tuple[int, int], ...] = (),
    *,
    repeated: bool = False,
) -> Iterator[Segment]:
    for node in nodes:
        if isinstance(node, Repeat):
            if node.source is not None:
                yield Segment(node.source, role, message, repeated, branch)
            yield from _segments(node.nodes, role, message, counter, branch, repeated=True)
        elif isinstance(node, Choice):
            number = next(counter)
            for index, nodes_of_branch in enumerate(node.branches):
                inner = (*branch, (number, index))
                yield from _segments(nodes_of_branch, role, message, counter, inner, repeated=repeated)
        else:
            yield Segment(node, role, message, repeated, branch)
