"""Kinds of inference servers: what each says of itself, how it is asked, and what its answers and metrics tell.

A kind is one file: a module with the functions of `Target`. `detect` tries them, the most specific first.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol, cast

from prefixlint.errors import ServerError, UsageError
from prefixlint.verify import faults
from prefixlint.verify.metrics import Histogram, Metrics
from prefixlint.verify.wire import Reply, Server, Streamed

_LOOK_SECONDS = 20.0  # for each question of what a server is; a busy one answers these late


@dataclass(frozen=True, slots=True)
class About:
    """What a server says of itself; None is not known, never no.

    `block_size` is the tokens of a block or page, `capacity_tokens` the room of its cache, `context` the longest prompt
    and output together. `reports_cached`: whether its answers tell how many prompt tokens came from the cache.
    `tokenizes`: whether `tokens` gives ids. `engine` names the profile of its cache rules, None where there is none.
    `notes` say what the server cannot report as it was started, and the setting that would change it.
    """

    name: str
    title: str
    engine: str | None
    version: str | None = None
    model: str | None = None
    device: str | None = None
    flags: Mapping[str, Any] = field(default_factory=dict)
    block_size: int | None = None
    capacity_tokens: int | None = None
    context: int | None = None
    reports_cached: bool | None = None
    caches: bool | None = None
    tokenizes: bool = False
    metrics: bool | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ask:
    """How a request is sent: `model` is the server's name of its model, `salt` the namespace it is kept in.

    `ids` asks for token ids of prompt and output, where the server can give them. `sampling` is passed on as it is.
    """

    max_tokens: int = 1
    salt: str | None = None
    model: str | None = None
    temperature: float = 0.0
    ignore_eos: bool = False
    ids: bool = False
    sampling: Mapping[str, Any] = field(default_factory=dict)

    def namespace(self, logged: str | None) -> str | None:
        """Give the namespace of a request: that of the run, and in it the one that the log names."""
        if not logged:
            return self.salt
        return logged if self.salt is None else f"{self.salt}:{logged}"


@dataclass(frozen=True, slots=True)
class Measured:
    """What one answer tells; None where it does not.

    `ttft_s` is from the request's first byte to the first event that carries output, as this client saw it. `queue_s`
    and `prefill_s` are the server's own. `finish` is why the output ended.
    """

    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    output_text: str = ""
    output_ids: tuple[int, ...] | None = None
    prompt_ids: tuple[int, ...] | None = None
    ttft_s: float | None = None
    queue_s: float | None = None
    prefill_s: float | None = None
    finish: str | None = None

    @property
    def other_s(self) -> float | None:
        """What is neither queue nor prefill of the time to the first token; None where prefill is not known."""
        if self.ttft_s is None or self.prefill_s is None:
            return None
        return max(0.0, self.ttft_s - self.prefill_s - (self.queue_s or 0.0))


@dataclass(frozen=True, slots=True)
class Counters:
    """What a scrape, or the difference of two, tells of the cache and of waiting; None where it does not.

    `prompt_tokens` and `cached_tokens` are of all prompts; `queries` and `hits` those by which the server's own hit
    rate is defined. `kv_usage` is the share (0 to 1) of the cache that running requests hold, `kv_filled` the share
    that is not free, cached prefixes included; both are gauges: the state at the last scrape, as are `running` and
    `queue_length`. `parts` are histograms in seconds: ttft, queue, prefill, e2e.
    """

    prompt_tokens: float | None = None
    cached_tokens: float | None = None
    output_tokens: float | None = None
    queries: float | None = None
    hits: float | None = None
    preemptions: float | None = None
    retractions: float | None = None
    evicted: float | None = None
    kv_usage: float | None = None
    kv_filled: float | None = None
    queue_length: float | None = None
    running: float | None = None
    parts: Mapping[str, Histogram] = field(default_factory=dict)

    @property
    def hit_rate(self) -> float | None:
        """The share of prompt tokens that came from the cache; None where it is not known, or nothing was asked."""
        if self.queries is None or self.hits is None or self.queries <= 0:
            return None
        return self.hits / self.queries


class Look:
    """What a server answers to the questions by which it is told apart; each is asked once."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._replies: dict[str, Reply | None] = {}

    def reply(self, path: str) -> Reply | None:
        """Give the answer to a path; None where no whole answer came, which for the first question is an error."""
        if path not in self._replies:
            try:
                self._replies[path] = self.server.get(path, timeout=min(_LOOK_SECONDS, self.server.timeout))
            except ServerError:
                if not self._replies:
                    raise
                self._replies[path] = None
        return self._replies[path]

    def json(self, path: str) -> dict[str, Any]:
        """Give the JSON object that a path answers with status 200; an empty one where it does not."""
        reply = self.reply(path)
        value = reply.json() if reply is not None and reply.status == 200 else None
        return value if isinstance(value, dict) else {}

    def models(self) -> list[dict[str, Any]]:
        """Give the models that an OpenAI-compatible server lists."""
        data = self.json("/v1/models").get("data")
        return [entry for entry in data if isinstance(entry, dict)] if isinstance(data, list) else []


class Target(Protocol):
    """One kind of server. `RANK` orders the kinds: the most specific, with the lowest, is tried first."""

    NAME: str
    RANK: int

    def claims(self, look: Look) -> bool:
        """Say whether the server is of this kind."""

    def about(self, server: Server) -> About:
        """Give what the server says of itself. Raises ServerError where it does not answer."""

    def chat(self, body: Mapping[str, Any], ask: Ask) -> tuple[str, dict[str, Any]]:
        """Give path and body of a streaming chat request with a logged body's messages, tools and the like."""

    def by_ids(self, ids: list[int], ask: Ask) -> tuple[str, dict[str, Any]] | None:
        """Give path and body of a streaming request for a prompt of token ids; None where the server takes none."""

    def salted(self) -> str | None:
        """Name the field by which the server separates caches; None: it has none, and only other prompts do."""

    def reading(self, streamed: Streamed) -> Measured:
        """Give what an answer tells, also one that broke off."""

    def tokens(self, server: Server, body: Mapping[str, Any], model: str | None) -> list[int] | None:
        """Give the ids of the prompt that the server makes of a chat body; None where it does not tell."""

    def flush(self, server: Server) -> str | None:
        """Empty the cache; None, or why it could not. That it is empty then only a request shows."""

    def counters(self, metrics: Metrics) -> Counters | None:
        """Give what a scrape, or a difference of two, tells; None where it is no scrape of such a server."""


def names() -> list[str]:
    """Give the names of the kinds, the most specific first."""
    return [kind.NAME for kind in _kinds()]


def named(name: str) -> Target:
    """Give a kind by its name. Raises UsageError."""
    for kind in _kinds():
        if name.lower() in (kind.NAME, kind.NAME.replace(".", "")):
            return kind
    raise UsageError(f"no such kind of server: {name}", slug="unknown-engine", hint=f"one of {', '.join(names())}")


def detect(server: Server, wanted: str | None = None) -> Target:
    """Find out what a server is, or take the user's word for it, but never for a server that does not answer.

    Raises ServerError where it cannot be reached, is loading, wants a token, or is no inference server.
    """
    look = Look(server)
    first = look.reply("/v1/models")
    assert first is not None
    if first.status in (401, 403, 429, 503):
        raise faults.of_status(first.status, first.headers, first.body, server.url).error()
    if wanted is not None:
        return named(wanted)
    for kind in _kinds():
        if kind.claims(look):
            return kind
    answer = faults.of_status(first.status, first.headers, first.body, server.url)
    said = answer.message if first.status != 200 else f"{server.url} lists no models"
    raise ServerError(
        f"no inference server: {said}" if answer.slug != "tls-mismatch" else answer.message,
        slug="tls-mismatch" if answer.slug == "tls-mismatch" else "not-an-inference-server",
        hint=answer.hint or "name the address of an OpenAI-compatible API, or say what it is with --engine",
    )


def of_metrics(metrics: Metrics) -> tuple[str, Counters] | None:
    """Tell from a scrape which kind of server it is of, and what it tells; None where no kind knows it."""
    for kind in _kinds():
        found = kind.counters(metrics)
        if found is not None:
            return kind.NAME, found
    return None


@cache
def _kinds() -> tuple[Target, ...]:
    modules = [name for _, name, _ in pkgutil.iter_modules(__path__) if not name.startswith("_")]
    kinds = [cast("Target", importlib.import_module(f"{__name__}.{name}")) for name in sorted(modules)]
    return tuple(sorted(kinds, key=lambda kind: kind.RANK))
