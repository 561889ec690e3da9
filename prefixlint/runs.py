"""What runs through a real engine measured, as values: the fields are the keys of `prefixlint.verify/1`.

Times are milliseconds, tokens are counts, rates are shares (0 .. 1); None is unknown, never 0.
"""

from __future__ import annotations

import dataclasses
import math
import re
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prefixlint.errors import UsageError

SCHEMA = "prefixlint.verify/1"
_QUANTILES = 100  # steps of a distribution that are kept, from the least to the largest value


@dataclass(frozen=True, slots=True)
class Note:
    """Something that the reader must know; `slug` is stable."""

    slug: str
    message: str


@dataclass(frozen=True, slots=True)
class EngineUsed:
    """What served the requests. `device` is cuda or cpu; `flags` are the settings that it told; `command` started it.

    `embedded`: the engine that prefixlint brings itself. `reports_cached`: whether answers told cached tokens.
    """

    name: str
    version: str | None = None
    device: str | None = None
    model: str | None = None
    flags: Mapping[str, Any] = field(default_factory=dict)
    launched: bool = False
    title: str | None = None
    embedded: bool = False
    url: str | None = None
    command: Sequence[str] | None = None
    block_size: int | None = None
    capacity_tokens: int | None = None
    context: int | None = None
    reports_cached: bool | None = None
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class LoadUsed:
    """How requests were sent. `arrival` is closed, logged or poisson; `output` one (token) or logged (lengths).

    `route` is chat or ids. `rate` is requests a second (poisson), `speed` the factor of the logged times.
    """

    requests: int
    concurrency: int | None
    duration_s: float | None
    arrival: str
    output: str
    max_tokens: int = 1
    route: str = "chat"
    rounds: int = 1
    rate: float | None = None
    speed: float | None = None
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Left:
    """Requests that could not be replayed, for one reason: how many, and the first of them."""

    slug: str
    message: str
    requests: int
    path: str
    line: int


def leave(left: dict[str, Left], slug: str, message: str, where: tuple[str, int]) -> None:
    """Count one more request that cannot be replayed, by its reason; `where` is its path and line."""
    known = left.get(slug)
    first, count = (where, 0) if known is None else ((known.path, known.line), known.requests)
    left[slug] = Left(slug, message, count + 1, *first)


@dataclass(frozen=True, slots=True)
class Spread:
    """How a time is distributed, in milliseconds. `quantiles` are evenly spaced from the least to the largest.

    `source` is requests (each told its own) or metrics: then from the server's histograms, percentiles interpolated.
    """

    p50: float | None
    p95: float | None
    p99: float | None
    mean: float | None
    quantiles: Sequence[float] = ()
    count: int = 0
    source: str = "requests"


@dataclass(frozen=True, slots=True)
class ServerSide:
    """What the server's own counters say of a run, by the difference of two scrapes; gauges are the largest seen."""

    hit_rate: float | None = None
    queries: float | None = None
    hits: float | None = None
    preemptions: float | None = None
    retractions: float | None = None
    evicted_tokens: float | None = None
    kv_usage_max: float | None = None
    queue_length_max: float | None = None
    running_max: float | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """One pass over the requests.

    `cache` is cold or warm; `isolation` how a cold run was kept from what was cached before: flush, fresh (a server
    that had just started), salt, marker (a text in front), none. Rates are over requests that tell their cached tokens,
    `predicted_*` over the same. `complete` is false where it ended early, which `ended` explains.
    """

    label: str
    cache: str
    isolation: str
    prompt_tokens: int | None
    cached_tokens: int | None
    hit_rate: float | None
    ttft_ms: Spread | None
    queue_ms: Spread | None
    prefill_ms: Spread | None
    other_ms: Spread | None
    server: ServerSide | None
    errors: Mapping[str, int] = field(default_factory=dict)
    round: int = 1
    requests: int = 0
    answered: int = 0
    retries: int = 0
    output_tokens: int | None = None
    duration_s: float = 0.0
    overhead_ms: Spread | None = None
    late_ms: Spread | None = None
    predicted_cached_tokens: int | None = None
    predicted_hit_rate: float | None = None
    complete: bool = True
    ended: str | None = None
    resources: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Prediction:
    """How prediction and measurement compare, over all runs.

    `of` requests were compared (both numbers known). `token_counts_equal` of `counted`, `cached_equal` of `of`;
    `explained` differ for a reason that the model names, `unexplained` beyond the tolerance and for none.
    `max_error_tokens` is the largest difference of cached tokens. `tokens_from` is where token ids came from: a model's
    files by name, or the server.
    """

    cached_tokens: int
    hit_rate: float | None
    token_counts_equal: int
    cached_equal: int
    of: int
    max_error_tokens: int
    counted: int = 0
    explained: int = 0
    unexplained: int = 0
    tolerance: int = 0
    profile: str | None = None
    block_size: int | None = None
    capacity_tokens: int | None = None
    tokens_from: str | None = None


@dataclass(frozen=True, slots=True)
class Residual:
    """One request of one run: predicted and measured cached tokens. `reason` is None where they are equal.

    `explained`: the reason is one that the model names, or the difference is within the tolerance. The prompt
    has `counted_tokens` by this program, `prompt_tokens` by the server. `error` is the slug of a failed request, whose
    reason is what the server said.
    """

    line: int
    predicted: int | None
    measured: int | None
    reason: str | None
    path: str = ""
    part: int = 0
    run: str = ""
    cache: str = ""
    round: int = 1
    counted_tokens: int | None = None
    prompt_tokens: int | None = None
    explained: bool = True
    ttft_ms: float | None = None
    queue_ms: float | None = None
    prefill_ms: float | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class TokenDifference:
    """A prompt that was counted otherwise than the server did: its first differing token, and the text around it.

    `token` is the position; `ours` and `theirs` the ids from there on. Texts are None where they are kept back, and
    where the server does not tell its tokens.
    """

    path: str
    line: int
    counted: int
    measured: int
    requests: int = 1
    token: int | None = None
    ours: Sequence[int] = ()
    theirs: Sequence[int] = ()
    before: str | None = None
    our_text: str | None = None
    their_text: str | None = None


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of `verify`. `status` is complete, interrupted or failed; then `ended` says what happened.

    `comparison` is for what changed between two sets of runs, as whoever compared them has it.
    """

    engine: EngineUsed
    load: LoadUsed
    runs: Sequence[Run]
    prediction: Prediction | None
    residuals: Sequence[Residual]
    comparison: Mapping[str, Any] | None = None
    status: str = "complete"
    ended: str | None = None
    log_tail: Sequence[str] = ()
    files: Sequence[str] = ()
    left: Sequence[Left] = ()
    token_differences: Sequence[TokenDifference] = ()
    notes: Sequence[Note] = ()
    machine: str | None = None

    @property
    def agrees(self) -> bool | None:
        """Whether prediction and measurement agree; None where nothing was compared."""
        if self.prediction is None or not self.prediction.of:
            return None
        return not self.prediction.unexplained and self.prediction.token_counts_equal == self.prediction.counted


def spread(seconds: Sequence[float]) -> Spread | None:
    """Give how times in seconds are distributed, in milliseconds; None without any."""
    values = sorted(1000 * value for value in seconds)
    if not values:
        return None
    steps = min(_QUANTILES, len(values) - 1)
    return Spread(
        p50=quantile(values, 0.50),
        p95=quantile(values, 0.95),
        p99=quantile(values, 0.99),
        mean=math.fsum(values) / len(values),
        quantiles=[quantile(values, step / steps) for step in range(steps + 1)] if steps else values,
        count=len(values),
    )


def quantile(ordered: Sequence[float], share: float) -> float:
    """Interpolate between the values of a sorted, not empty sequence, as numpy does by default."""
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def without_texts(result: Verification) -> Verification:
    """Leave out every text that came out of a prompt, or may have: servers quote what they refuse."""
    bare = [dataclasses.replace(d, before=None, our_text=None, their_text=None) for d in result.token_differences]
    rows = [dataclasses.replace(r, reason=r.error) if r.error is not None else r for r in result.residuals]
    return dataclasses.replace(result, token_differences=bare, residuals=rows)


def as_json(result: Verification) -> dict[str, Any]:
    """Give the result as plain JSON values."""
    found: dict[str, Any] = {"schema": SCHEMA, **dataclasses.asdict(result)}
    found["agrees"] = result.agrees
    return found


def from_json(data: Any) -> Verification:
    """Read what `as_json` gave; unknown keys are passed over. Raises UsageError for anything else."""
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise UsageError(
            "this is no result of prefixlint verify",
            slug="bad-result",
            hint="name a result that verify wrote with --format json",
        )
    try:
        found: Verification = _built(Verification, data)
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"this result of prefixlint verify is damaged: {error.args[0]}", slug="bad-result", hint="write it again"
        ) from error
    return found


def _named(kind: Any) -> str:
    """Write the name of a class as words: TokenDifference is a token difference."""
    return re.sub(r"(?<!^)(?=[A-Z])", " ", kind.__name__).lower()


def _built(kind: Any, value: Any) -> Any:
    """Build a value of an annotated kind out of JSON; TypeError, KeyError or ValueError where it does not fit."""
    origin = typing.get_origin(kind)
    if origin is types.UnionType:
        options = typing.get_args(kind)
        if value is None and types.NoneType in options:
            return None
        return _built(next(option for option in options if option is not types.NoneType), value)
    if origin is Sequence:
        if not isinstance(value, list | tuple):
            raise TypeError(f"a list is missing, there is {type(value).__name__}")
        return [_built(typing.get_args(kind)[0], item) for item in value]
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind, value)
    if kind is Any:
        return value
    expected: Any = Mapping if origin is Mapping else (int, float) if kind is float else kind
    if not isinstance(value, expected) or (isinstance(value, bool) and kind is not bool):
        raise TypeError(f"{value!r:.40} is not of the kind that belongs there")
    return value


def _dataclass(kind: Any, value: Any) -> Any:
    if not isinstance(value, dict):
        raise TypeError(f"an object is missing, there is {type(value).__name__}")
    hints = typing.get_type_hints(kind)
    nothing = dataclasses.MISSING
    needed = [one.name for one in dataclasses.fields(kind) if one.default is nothing and one.default_factory is nothing]
    missing = [name for name in needed if name not in value]
    if missing:
        raise KeyError(f"it has no {' and no '.join(missing[:3])} where a {_named(kind)} belongs")
    given = {
        one.name: _built(hints[one.name], value[one.name]) for one in dataclasses.fields(kind) if one.name in value
    }
    return kind(**given)
