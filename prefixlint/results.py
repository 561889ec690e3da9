"""What `analyze` found, as values: every report is a view of these. Tokens are counts, rates are shares (0 .. 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prefixlint.engines import SizedBy
from prefixlint.logfindings import LogFinding
from prefixlint.model import MissCause, Skip
from prefixlint.outline import Piece, PrefixTree
from prefixlint.trends import Timeline, Versus

LOGGED_IDS = "token ids of the log"
"""The name of the tokenizer where the log gives prompts as token ids, so that none was used."""


@dataclass(frozen=True, slots=True)
class Note:
    """Something about the whole run that the reader must know; `slug` is stable and documented."""

    slug: str
    message: str


@dataclass(frozen=True, slots=True)
class SkipKind:
    """What was left out of one file for one reason: the first such line, and how many there are."""

    first: Skip
    count: int


@dataclass(frozen=True, slots=True)
class Input:
    """What was read. `start` and `end` are seconds since the epoch; `order` is the order that requests were used in.

    `skipped` lists the first lines that were left out, `skipped_kinds` counts them by file and reason.
    """

    files: Sequence[str]
    formats: Mapping[str, int]
    requests: int
    start: float | None
    end: float | None
    order: str
    skipped: Sequence[Skip]
    skipped_total: int
    skipped_kinds: Sequence[SkipKind] = ()


@dataclass(frozen=True, slots=True)
class TokenizerUse:
    """How one model's prompts were rendered and counted.

    `exact` is `proven` where all counts equalled `checked_against` (the log's usage or the server), `assumed` where the
    model's own files were used but nothing was there to compare with, else `no`. `factor` is what the counts were
    multiplied by to meet the reported ones (1.0: nothing was scaled). `compared` and `equal` count requests.
    """

    model: str | None
    name: str
    chat_template: str
    exact: str
    checked_against: str | None
    requests: int
    compared: int
    equal: int
    factor: float


@dataclass(frozen=True, slots=True)
class Reported:
    """What the log says that its server did, over the requests that report cached tokens."""

    requests: int
    prompt_tokens: int
    cached_tokens: int
    written_tokens: int | None

    @property
    def hit_rate(self) -> float | None:
        """Cached over prompt tokens; None without prompt tokens."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else None


@dataclass(frozen=True, slots=True)
class LikelyCause:
    """A likely reason of misses that the log reports, told from times and counters alone."""

    slug: str
    message: str
    requests: int
    missed_tokens: int


@dataclass(frozen=True, slots=True)
class EngineResult:
    """What one engine's cache could serve.

    `hit_rate` is sum(cached) / sum(prompt); `hit_rate_blocks` hit blocks / all blocks, a partial last block counted as
    one; `hit_rate_mean` the mean over requests of cached / prompt. Rates are None without tokens. Of the cached tokens,
    `host_cached_tokens` came from the host's memory (None without one). `written_tokens` were written behind marks
    (None where all of a prompt is stored). `sized_by` is what set the granularity: the profile, an option, the model's
    configuration or the server.
    """

    engine: str
    granularity: int
    requests: int
    prompt_tokens: int
    cached_tokens: int
    hit_rate: float | None
    hit_rate_blocks: float | None
    hit_rate_mean: float | None
    zero_hit_requests: int
    misses: Mapping[MissCause, int]
    capacity_tokens: int | None = None
    replicas: int = 1
    route: str | None = None
    ttl_s: float | None = None
    host_capacity_tokens: int | None = None
    host_cached_tokens: int | None = None
    written_tokens: int | None = None
    sized_by: SizedBy = "profile"


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Text around a place where two prompts part: what both say before, what each says there, what both say after."""

    before: str
    earlier: str
    later: str
    after: str


@dataclass(frozen=True, slots=True)
class VolatilePlace:
    """A place in a family's prompts at which requests part from the one before.

    `token` is the offset of the place in the later prompt; `path` and `char` are where it stands in the logged body
    (None for prompts without one); `requests` and `lost_tokens` count what was computed again behind it.
    """

    token: int
    path: str | None
    char: int | None
    excerpt: Excerpt
    requests: int
    lost_tokens: int
    example: tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class FamilyEngine:
    """One family in one engine; `ceiling` is the rate if only the truly new tokens had to be computed."""

    cached_tokens: int
    hit_rate: float | None
    ceiling: float | None


@dataclass(frozen=True, slots=True)
class Family:
    """Requests that share a template and differ in its values.

    `lost_tokens` were computed again although an earlier request had them: they stood behind a difference. `template`
    is one of its prompts around its places; empty where none is shown.
    """

    id: str
    name: str
    model: str | None
    requests: int
    prompt_tokens: int
    lost_tokens: int
    engines: Mapping[str, FamilyEngine]
    spans: Sequence[VolatilePlace]
    template: Sequence[Piece] = ()


@dataclass(frozen=True, slots=True)
class SharedPrefix:
    """A prefix that several requests share: its tokens, how many requests begin with it, and how its text ends."""

    tokens: int
    requests: int
    text: str


@dataclass(frozen=True, slots=True)
class Group:
    """The numbers of the requests that agree on the values of `--by`."""

    key: Mapping[str, str | None]
    requests: int
    prompt_tokens: int
    reported: Reported | None
    engines: Sequence[EngineResult]


@dataclass(frozen=True, slots=True)
class CapacityPoint:
    """The hit rate with a pool of this size; `gib` where the model's KV is known, `error` (standard) where sampled."""

    engine: str
    tokens: int
    gib: float | None
    hit_rate: float
    error: float | None = None


@dataclass(frozen=True, slots=True)
class TtlPoint:
    """The hit rate if entries lived this long, counted from their last `use` or from the `write`; no other limit."""

    engine: str
    seconds: float
    since: str
    hit_rate: float


@dataclass(frozen=True, slots=True)
class ReplicaPoint:
    """The hit rate if requests were spread over unlimited caches by a route."""

    engine: str
    replicas: int
    route: str
    hit_rate: float


@dataclass(frozen=True, slots=True)
class PoolSize:
    """How large a pool is worth having, in tokens (None where nothing is ever hit).

    `knee` is where the gain falls below the curve's average, `reach` maps shares of the ceiling (0.9 …) to the pool
    that reaches them. `have` is the pool of the GPUs that were named, `running` what the requests in flight hold of it
    on average, so that reuse lives in the rest, which gives `hit_rate`; `basis` says how the pool was worked out.
    `simulated` is a pool that the engine itself was simulated with, its hit rate there, and that of the curve; `direct`
    are more of them, where the engine evicts otherwise than the curve says.
    """

    engine: str
    method: str
    ceiling: float
    knee: int | None
    knee_hit_rate: float | None
    reach: Mapping[float, int]
    have: int | None = None
    running: int | None = None
    hit_rate: float | None = None
    basis: str | None = None
    simulated: tuple[int, float, float] | None = None
    direct: Sequence[tuple[int, float, float]] = ()


@dataclass(frozen=True, slots=True)
class HostPoint:
    """The hit rate with a tier of `host_tokens` on the host behind a pool, which alone gives `pool_hit_rate`.

    `gib` is the size of the tier where the model's KV is known.
    """

    engine: str
    pool_tokens: int
    host_tokens: int
    gib: float | None
    hit_rate: float
    pool_hit_rate: float


@dataclass(frozen=True, slots=True)
class Curves:
    """How hits depend on memory, on a second tier behind the pool at hand, on lifetime and on replicas."""

    capacity: Sequence[CapacityPoint] = ()
    ttl: Sequence[TtlPoint] = ()
    replicas: Sequence[ReplicaPoint] = ()
    sizes: Sequence[PoolSize] = ()
    host: Sequence[HostPoint] = ()


@dataclass(frozen=True, slots=True)
class QueueEffect:
    """Waiting without and with the cache, simulated: never a promise.

    `load` is prefill work in seconds a second, without and with the cache. `ttft` maps the rate's factor (0.8, 1, 1.2)
    to P50 and P95 without and with it, in seconds.
    """

    load: tuple[float, float]
    ttft: Mapping[float, tuple[tuple[float, float], tuple[float, float]]]


@dataclass(frozen=True, slots=True)
class Saving:
    """What an engine's hits are worth (`engine` is `reported` for those that the log reports). None is not known.

    FLOPs and seconds of prefill are sums over requests, each as if it ran alone; seconds are good to `band` (relative).
    `money` is what caching saves at the prices of `basis`, `premium` what writing cost of it, and `break_even` how many
    reads pay for a write.
    """

    engine: str
    basis: str
    prefill_flops: float | None = None
    flops_share: float | None = None
    prefill_seconds: float | None = None
    seconds_share: float | None = None
    calibrated: bool | None = None
    band: float | None = None
    money: float | None = None
    currency: str | None = None
    premium: float | None = None
    break_even: int | None = None
    queue: QueueEffect | None = None


@dataclass(frozen=True, slots=True)
class StaticFinding:
    """A finding of `check` in the source, as its JSON, with what this log lost behind it (None: not seen in it)."""

    finding: Mapping[str, Any]
    tokens_lost: Mapping[str, int] | None
    requests: int | None


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What an engine would serve of the log if advice was followed; caches are limited as they are in `engines`.

    `family` is the id of one family, None for the whole log. `cumulative` says that the fixes listed before for the
    same engine and family are made as well. `prompt_tokens` are those of the rewritten prompts.
    """

    fix: str
    rules: Sequence[str]
    family: str | None
    engine: str
    prompt_tokens: int
    cached_tokens: int
    cumulative: bool

    @property
    def hit_rate(self) -> float | None:
        """Cached over prompt tokens; None without prompt tokens."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else None


@dataclass(frozen=True, slots=True)
class NotTried:
    """A cause whose fix was not tried, and why."""

    rules: Sequence[str]
    reason: str


@dataclass(frozen=True, slots=True)
class Step:
    """One line of a waterfall: `kind` is reported, gap, logged, fix or ceiling; `name` says which.

    A gap explains a part of what lies between the reported and the logged rate: `tokens` of hits that it cost.
    """

    kind: str
    name: str
    prompt_tokens: int
    cached_tokens: int
    tokens: int | None = None
    rules: Sequence[str] = ()

    @property
    def hit_rate(self) -> float | None:
        """Cached over prompt tokens; None without prompt tokens."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else None


@dataclass(frozen=True, slots=True)
class Waterfall:
    """From what a server reported to what no cache can exceed, for one engine; `family` is None for the whole log.

    `lost_tokens` are still computed again after all fixes although an earlier request had them.
    """

    family: str | None
    engine: str
    steps: Sequence[Step]
    lost_tokens: int


@dataclass(frozen=True, slots=True)
class MarkAdvice:
    """One of several marks: its place, the lifetime that it asks for (seconds; None: the provider's own), what it does.

    `read_tokens` and `written_tokens` are those that there would not be without it, `gain` what it saves as a share of
    what the prompts cost without a cache. Writing pays from `break_even` reads on; there are `reads` for each write on
    this log (None where the mark writes nothing that is not written anyway).
    """

    place: str
    ttl: float | None
    read_tokens: int
    written_tokens: int
    gain: float
    reads: float | None
    break_even: int | None


@dataclass(frozen=True, slots=True)
class Advice:
    """A change that gains something on this log, and the `command` that shows it.

    `kind` is `marks`, `cache_key`, `pool`, `kv_dtype`, `host_tier`, `block_size` or `route`. Hit rates are those now
    and with the change; None where there is nothing to compare with. `cost` and `new_cost` are what prompts cost over
    what they would without a cache, `money` what the change saves on this log (None: no prices known). `tokens` and
    `gib` are the size of a pool to ask for.
    """

    kind: str
    engine: str
    text: str
    command: str
    hit_rate: float | None
    new_hit_rate: float | None
    cost: float | None = None
    new_cost: float | None = None
    money: float | None = None
    currency: str | None = None
    tokens: int | None = None
    gib: float | None = None
    marks: Sequence[MarkAdvice] = ()

    @property
    def gain(self) -> float:
        """What it gains, by which advice is ranked: of the cost where that is known, else of the hit rate."""
        if self.cost is not None and self.new_cost is not None:
            return self.cost - self.new_cost
        return (self.new_hit_rate or 0.0) - (self.hit_rate or 0.0)


@dataclass(frozen=True, slots=True)
class Analysis:
    """The result of `analyze`; `failures` say which thresholds it is beyond."""

    input: Input
    notes: Sequence[Note]
    tokenizers: Sequence[TokenizerUse]
    prompt_tokens: int
    distinct_tokens: int
    reported: Reported | None
    likely_causes: Sequence[LikelyCause]
    engines: Sequence[EngineResult]
    families: Sequence[Family]
    shared_prefixes: Sequence[SharedPrefix]
    groups: Sequence[Group] = ()
    by: Sequence[str] = ()
    curves: Curves = Curves()
    savings: Sequence[Saving] = ()
    advice: Sequence[Advice] = ()
    findings: Sequence[LogFinding] = ()
    source_findings: Sequence[StaticFinding] | None = None
    timeline: Timeline | None = None
    versus: Versus | None = None
    what_if: Sequence[WhatIf] = ()
    not_tried: Sequence[NotTried] = ()
    waterfalls: Sequence[Waterfall] = ()
    tree: PrefixTree | None = None
    failures: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class RequestLine:
    """The numbers of one request, as `--requests-out` writes them."""

    path: str
    line: int
    part: int
    id: str | None
    time: float | None
    family: str
    prompt_tokens: int
    engines: Mapping[str, tuple[int, Mapping[MissCause, int]]]
    reported_cached_tokens: int | None
    diverged_token: int | None
    diverged_path: str | None
    diverged_char: int | None
