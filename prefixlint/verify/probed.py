"""What a probe of a server found: the vocabulary."""

from __future__ import annotations

from dataclasses import dataclass

from prefixlint.verify.targets import About

TITLES = {
    "reported": "Cached tokens reported",
    "match": "What is matched",
    "granularity": "Granularity",
    "cap": "Last-token rule",
    "minimum": "Minimum",
    "stored": "What is stored",
    "visible": "Visible from",
    "isolation": "Namespaces",
    "lifetime": "Lifetime",
}


@dataclass(frozen=True, slots=True)
class Seen:
    """One request of an experiment: what it was for, its tokens, those it shares with an earlier one, those cached.

    None is not known: tokens where the server does not count them, `shared` where prompts are words.
    """

    what: str
    prompt_tokens: int | None
    shared: int | None
    cached: int | None


@dataclass(frozen=True, slots=True)
class Rule:
    """What an experiment found: `measured` in words, or None, and `note` then says why nothing is known.

    `expected` is the server's own setting or the profile's value, by `source`; `agrees` is None where one is unknown.
    """

    name: str
    measured: str | None
    expected: str | None = None
    source: str | None = None
    agrees: bool | None = None
    note: str = ""
    seen: tuple[Seen, ...] = ()

    @property
    def title(self) -> str:
        """The rule's name for people."""
        return TITLES[self.name]


@dataclass(frozen=True, slots=True)
class Probed:
    """What a probe found of a server.

    `isolation` says how its prompts were kept apart from others', `exact` whether they were of token ids. `failed` is
    why it ended early, None where it did not.
    """

    url: str
    about: About
    profile: str | None
    isolation: str
    exact: bool
    requests: int
    prompt_tokens: int
    rules: tuple[Rule, ...]
    failed: str | None = None

    @property
    def deviates(self) -> bool:
        """Whether a rule is another than expected."""
        return any(rule.agrees is False for rule in self.rules)
