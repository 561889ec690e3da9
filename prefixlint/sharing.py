"""The test that keeps a prefix stable: two prompts must share so much of it, and be no longer than so much."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prefixlint import pairs, reports
from prefixlint.details import Comparison
from prefixlint.errors import UsageError
from prefixlint.model import Request
from prefixlint.redact import Redactor
from prefixlint.reports import _diff as diff
from prefixlint.wording import many, percent

if TYPE_CHECKING:
    from prefixlint.pipeline import Options


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked of two prompts A and B.

    `at_least` is what a cache that holds A must be able to serve of B: a share of B (a float, above 0 and up to 1), or
    a number of tokens (an int, 1 and more). `max_tokens` is what neither may be longer than. None asks nothing.
    """

    at_least: float | int | None = None
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be asked."""
        low = self.at_least
        if low is None and self.max_tokens is None:
            raise UsageError("nothing is asked", slug="no-threshold", hint="--min-shared 0.9 or N, --max-tokens N")
        if low is not None and not (0 < low <= 1 if isinstance(low, float) else low >= 1):
            raise UsageError(
                f"{low} is no share and no number of tokens", slug="bad-share", hint="0.9 or 90% of B, or 1200 tokens"
            )
        if self.max_tokens is not None and self.max_tokens < 1:
            raise UsageError(f"--max-tokens {self.max_tokens} allows nothing", slug="bad-budget", hint="1 or more")


@dataclass(frozen=True, slots=True)
class Judged:
    """Two prompts against what was asked. `unit` is token or character; `failures` say what does not hold."""

    comparison: Comparison
    unit: str
    shared: int
    earlier: int
    later: int
    failures: tuple[str, ...]

    @property
    def share(self) -> float | None:
        """The share of B that a cache holding A could serve; None for an empty B."""
        return self.shared / self.later if self.later else None


def judge(earlier: Request, later: Request, wanted: Wanted, options: Options | None, *, redactor: Redactor) -> Judged:
    """Compare two prompts and judge them, in tokens, or in characters without `options`.

    UsageError where tokens are asked for and nothing could be tokenized.
    """
    if options is None and wanted.max_tokens is not None:
        raise UsageError("a budget of tokens needs tokens", slug="no-tokens-asked", hint="leave --text-only out")
    found = pairs.compare(earlier, later, options, redactor=redactor)
    if options is None:
        size = found.characters
        assert size is not None  # without text and without tokens there is nothing to compare
        unit, shared, sizes = "character", size.shared, (size.earlier, size.later)
    elif found.tokens is None:
        why = "; ".join(found.notes) or "the prompts could not be rendered"
        raise UsageError(f"no tokens were counted: {why}", slug="not-tokenized", hint="--text-only counts characters")
    else:
        unit, shared, sizes = "token", found.tokens.before, (found.tokens.earlier, found.tokens.later)
    return Judged(found, unit, shared, *sizes, tuple(_failures(wanted, unit, shared, sizes)))


def _failures(wanted: Wanted, unit: str, shared: int, sizes: tuple[int, int]) -> list[str]:
    failures = []
    low, later = wanted.at_least, sizes[1]
    if isinstance(low, float) and shared < low * later:
        failures.append(
            f"{_rate(shared, later)} of B ({shared:,} of {later:,} {unit}s) shared, at least {percent(low)} wanted"
        )
    elif isinstance(low, int) and shared < low:
        failures.append(f"{shared:,} {unit}s shared, at least {low:,} wanted")
    if wanted.max_tokens is not None:
        failures += [
            f"{name} has {size:,} {unit}s, at most {wanted.max_tokens:,} wanted"
            for name, size in zip("AB", sizes, strict=True)
            if size > wanted.max_tokens
        ]
    return failures


def _rate(shared: int, total: int) -> str:
    return percent(shared / total) if total else "nothing"


def text(judged: Judged, names: tuple[str, str], look: reports.Look) -> str:
    """Say whether it holds; where it does not, where the prompts part, as `diff` shows it."""
    if not judged.failures:
        share = "" if judged.share is None else f" ({percent(judged.share)} of B)"
        lines = [f"{many(judged.shared, judged.unit)} shared{share}"]
    else:
        lines = [f"failed: {failure}" for failure in judged.failures]
        lines += diff.divergence(judged.comparison, names, look)
    return "\n".join([*lines, *diff.notes(judged.comparison, look)]) + "\n"


def as_json(judged: Judged, names: tuple[str, str]) -> Mapping[str, Any]:
    """Give the judgement as plain JSON values; `diff` holds the comparison."""
    return {
        "schema": "prefixlint.assert/1",
        "ok": not judged.failures,
        "failures": list(judged.failures),
        "unit": judged.unit,
        "shared": judged.shared,
        "earlier": judged.earlier,
        "later": judged.later,
        "share": judged.share,
        "diff": diff.plain(judged.comparison, names),
    }


def restored(saved: Mapping[str, Any]) -> tuple[Judged, tuple[str, str]]:
    """Give the judgement that was written as JSON, and the names of its two prompts."""
    found, names = diff.restored(saved["diff"])
    sizes = saved["shared"], saved["earlier"], saved["later"]
    return Judged(found, saved["unit"], *sizes, tuple(saved["failures"])), names
