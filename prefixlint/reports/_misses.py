"""Why tokens were computed again, in words, and what a cache serves of one request, in a line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from prefixlint.details import Place, Verdict
from prefixlint.model import MissCause
from prefixlint.reports._terminal import count, table
from prefixlint.saved import build
from prefixlint.wording import percent

WORDS = {
    MissCause.COLD: "new text",
    MissCause.DIVERGED: "seen, but behind a difference",
    MissCause.UNALIGNED: "rounding and last tokens",
    MissCause.TOO_SHORT: "below the minimum length",
    MissCause.NAMESPACE: "in another namespace",
    MissCause.EVICTED: "evicted",
    MissCause.EXPIRED: "expired",
    MissCause.REPLICA: "held by another replica",
    MissCause.IN_FLIGHT: "still being computed",
    MissCause.NOT_WRITTEN: "never written",
}


_SHORT = {
    MissCause.COLD: "new",
    MissCause.DIVERGED: "diverged",
    MissCause.UNALIGNED: "rounding",
    MissCause.TOO_SHORT: "too short",
    MissCause.NAMESPACE: "other namespace",
    MissCause.EVICTED: "evicted",
    MissCause.EXPIRED: "expired",
    MissCause.REPLICA: "other replica",
    MissCause.IN_FLIGHT: "in flight",
    MissCause.NOT_WRITTEN: "not written",
}


def name(verdict: Verdict) -> str:
    """Give an engine with its blocks, where they are larger than a token."""
    blocks = f", by {verdict.granularity:,}" if verdict.granularity > 1 else ""
    return verdict.engine + blocks


def verdicts(found: Sequence[Verdict], *, width: int) -> list[str]:
    """Lay out what each cache serves, and what stands in the way of the rest."""
    rows = [("", "cached", "hit rate", "computed again")]
    rows += [(name(v), count(v.cached), _rate(v), _rest(v)) for v in found]
    return table(rows, align="<>><", width=width, grow=(3,))


def _rate(verdict: Verdict) -> str:
    return percent(verdict.cached / verdict.prompt if verdict.prompt else None)


def _rest(verdict: Verdict) -> str:
    return ", ".join(f"{tokens:,} {_short(cause, verdict)}" for cause, tokens in verdict.misses.items())


def _short(cause: MissCause, verdict: Verdict) -> str:
    return f"below {verdict.minimum:,}" if cause == MissCause.TOO_SHORT else _SHORT[cause]


def as_json(verdict: Verdict) -> dict[str, Any]:
    """Give a verdict as plain JSON values."""
    source = verdict.source
    return {
        "engine": verdict.engine,
        "granularity": verdict.granularity,
        "minimum_tokens": verdict.minimum,
        "prompt_tokens": verdict.prompt,
        "cached_tokens": verdict.cached,
        "hit_rate": verdict.cached / verdict.prompt if verdict.prompt else None,
        "misses": {cause.value: tokens for cause, tokens in verdict.misses.items()},
        "from": None if source is None else {"path": source.path, "line": source.line},
    }


def restored(saved: Mapping[str, Any]) -> Verdict:
    """Read a verdict that was written as JSON."""
    return Verdict(
        saved["engine"],
        saved["granularity"],
        saved["minimum_tokens"],
        saved["prompt_tokens"],
        saved["cached_tokens"],
        {MissCause(cause): tokens for cause, tokens in saved["misses"].items()},
        saved["from"] and build(Place, saved["from"]),
    )
