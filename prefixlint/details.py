"""What `diff` and `explain` found of single requests, as values. Tokens are counts; texts are masked and cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from prefixlint.model import MissCause
from prefixlint.results import Excerpt

Relation = Literal["equal", "changed", "added", "removed"]

RENDERED = "rendered prompt"
"""The path of a difference that no body shows."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A place at which the later of two requests differs, or a run of what both have (`equal`).

    `path` is where it stands in the later body (in the earlier one for what was removed), `last` the end of a run.
    `char` counts equal leading characters of the string there, `characters` those of a run, or those that both strings
    have behind a change. `rule` names a log rule that speaks of it, None where none does.
    """

    relation: Relation
    path: str
    last: str
    char: int
    characters: int
    what: str
    before: str = ""
    after: str = ""
    rule: str | None = None


@dataclass(frozen=True, slots=True)
class Characters:
    """How much of two requests is equal, in characters of their strings: as a prefix, and behind the divergence.

    `earlier` and `later` are the sizes of the two.
    """

    shared: int
    behind: int
    earlier: int
    later: int


@dataclass(frozen=True, slots=True)
class Tokens:
    """Where two prompts part, in tokens: `index` of the first that differs (None: the later one only goes on).

    `earlier` and `later` are the prompts' tokens, `before` those that both begin with, `behind` those that both have
    behind the difference. `counted` says with what; `exact` is false for a stand-in.
    """

    earlier: int
    later: int
    index: int | None
    before: int
    behind: int
    counted: str
    exact: bool


@dataclass(frozen=True, slots=True)
class Place:
    """A request of a log: its file, and its line (1-based)."""

    path: str
    line: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one engine's cache serves of a request: cached + misses = prompt tokens.

    `granularity` are the tokens of a block, `minimum` the shortest hit that is given. `source` is the earlier request
    that wrote the last of the shared tokens.
    """

    engine: str
    granularity: int
    minimum: int
    prompt: int
    cached: int
    misses: Mapping[MissCause, int]
    source: Place | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two requests as a prefix cache sees them.

    `first` is the first divergence (None where they are equal to a cache), `excerpt` the text around it. `differences`
    are all of them with what is equal between, in the order of the prompt. `characters` is None for prompts without
    text.
    `tokens` is None where nothing was tokenized, `verdicts` are then empty; `notes` say why.
    """

    first: Difference | None
    excerpt: Excerpt | None
    differences: Sequence[Difference]
    characters: Characters | None
    grows: bool
    tokens: Tokens | None
    verdicts: Sequence[Verdict]
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a rendered prompt: its first token, its number of tokens, and how its text begins.

    `matched` are the leading tokens of it that an earlier request had as a prefix.
    """

    token: int
    tokens: int
    text: str
    matched: int


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation as the log shows it: which of its turns this is (from 1), and the turns before it."""

    turn: int
    turns: int
    earlier: Sequence[Place]


@dataclass(frozen=True, slots=True)
class Expected:
    """The request that one should have matched, and why it did not.

    `relation` says why it is this one. `shared` are the tokens that both begin with, `lost` those that both have behind
    the difference: computed again although they were there. `parted` is where they part (None: nothing differs, the
    later one goes on), in characters of the logged body; `excerpt` is the text around it, `token` where it stands in
    the prompt, `advice` what the rule that speaks of it says to do. `rendered` tells that the bodies are equal and only
    the rendered prompts differ. `behind` are causes that stand behind the difference, once for each rule.
    """

    place: Place
    relation: str
    shared: int
    lost: int
    token: int | None
    parted: Difference | None
    excerpt: Excerpt | None
    advice: str | None
    rendered: bool = False
    behind: Sequence[Difference] = ()


@dataclass(frozen=True, slots=True)
class Explanation:
    """One request of a log, from its text to its hits. Times are epoch seconds; None is not known.

    `family` is id, name and number of requests. `passages` are the rendered prompt in pieces (none for a hash trace).
    `expected` is None for the first request of a family. `reported` are the cached tokens that the log reports.
    """

    place: Place
    part: int
    id: str | None
    time: float | None
    model: str | None
    format: str
    family: tuple[str, str, int]
    conversation: Conversation
    prompt: int
    passages: Sequence[Passage]
    counted: str
    exact: bool
    verdicts: Sequence[Verdict]
    reported: int | None
    expected: Expected | None
    notes: Sequence[str] = ()
