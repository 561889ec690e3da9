"""Prometheus text: samples by name and labels, histograms, and what happened between two scrapes.

Read as https://prometheus.io/docs/instrumenting/exposition_formats describes the text format 0.0.4, and OpenMetrics as
far as it is the same. Lines that are neither are left out and counted.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from prefixlint.errors import ServerError

if TYPE_CHECKING:
    from prefixlint.verify.wire import Server

Labels = tuple[tuple[str, str], ...]

_NAME = r"([A-Za-z_:][A-Za-z0-9_:]*)"
_BRACED = r'(\{(?:[^"{}]|"(?:[^"\\]|\\.)*")*\})'
_LINE = re.compile(rf"{_NAME}[ \t]*{_BRACED}?[ \t]+(\S+)(?:[ \t]+-?[0-9.]+)?(?:[ \t]+#.*)?[ \t]*")
_LABEL = re.compile(r'[ \t]*([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\]|\\.)*)"[ \t]*(?:,|$)')
_ESCAPES = {"\\n": "\n", '\\"': '"', "\\\\": "\\"}
_LABELS_KEPT = 4096  # different texts of labels that are taken apart once


@dataclass(frozen=True, slots=True)
class Histogram:
    """A histogram: `buckets` are (upper bound, observations up to it), ascending, the last bound infinite."""

    count: float
    sum: float
    buckets: tuple[tuple[float, float], ...]

    @property
    def mean(self) -> float | None:
        """The mean, exact; None without observations."""
        return self.sum / self.count if self.count > 0 else None

    def quantile(self, share: float) -> float | None:
        """Give a quantile (0 to 1) as Prometheus' `histogram_quantile` does: linear inside a bucket.

        None without observations, and where it lies above the last finite bound or in the lowest bucket: no bound is
        known there, or only zero.
        """
        found = self._bucket(share)
        if found is None:
            return None
        low, high, below, inside, rank = found
        return low + (high - low) * (rank - below) / inside if inside > 0 else low

    def bounds(self, share: float) -> tuple[float, float] | None:
        """Give the bounds between which a quantile lies; the upper one may be infinite. None without observations."""
        if not self.buckets or self.count <= 0:
            return None
        rank, low = share * self.count, 0.0
        for bound, observed in self.buckets:
            if observed >= rank:
                return low, bound
            low = bound
        return low, math.inf

    def _bucket(self, share: float) -> tuple[float, float, float, float, float] | None:
        if not self.buckets or self.count <= 0:
            return None
        rank, low, below = share * self.count, 0.0, 0.0
        for index, (bound, observed) in enumerate(self.buckets):
            if observed >= rank:
                if math.isinf(bound) or index == 0:
                    return None
                return low, bound, below, observed - below, rank
            low, below = bound, observed
        return None


@dataclass(frozen=True, slots=True)
class Metrics:
    """One scrape: the samples of each name with their labels, as text holds them, and how many lines were not read."""

    samples: Mapping[str, Mapping[Labels, float]] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)
    unread: int = 0

    def __contains__(self, name: str) -> bool:
        return name in self.samples

    def items(self, name: str, **labels: str) -> Iterator[tuple[dict[str, str], float]]:
        """Give the samples of a name whose labels have the given values; values that are no number are left out."""
        for key, value in self.samples.get(name, {}).items():
            if not math.isnan(value):
                own = dict(key)
                if all(own.get(label) == wanted for label, wanted in labels.items()):
                    yield own, value

    def total(self, *names: str, **labels: str) -> float | None:
        """Give the sum over all labels of the first name that has samples; None where none has."""
        for name in names:
            values = [value for _, value in self.items(name, **labels)]
            if values:
                return math.fsum(values)
        return None

    def most(self, *names: str, **labels: str) -> float | None:
        """Give the largest value of the first name that has samples: the fullest of several workers."""
        for name in names:
            values = [value for _, value in self.items(name, **labels)]
            if values:
                return max(values)
        return None

    def label(self, name: str, label: str) -> str | None:
        """Give a label of the first sample that has it."""
        return next((own[label] for own, _ in self.items(name) if label in own), None)

    def histogram(self, name: str, **labels: str) -> Histogram | None:
        """Give a histogram, summed over all labels but `le`; None where the scrape has none of that name."""
        count = self.total(f"{name}_count", **labels)
        total = self.total(f"{name}_sum", **labels)
        if count is None or total is None:
            return None
        by_bound: dict[float, float] = {}
        for own, value in self.items(f"{name}_bucket", **labels):
            bound = _number(own.get("le", ""))
            if bound is not None:
                by_bound[bound] = by_bound.get(bound, 0.0) + value
        return Histogram(count, total, tuple(sorted(by_bound.items())))


def parse(text: str) -> Metrics:
    """Read a scrape. Never fails: what is no sample is counted in `unread`."""
    samples: dict[str, dict[Labels, float]] = {}
    types: dict[str, str] = {}
    known: dict[str, Labels] = {}
    unread = 0
    for raw in text.split("\n"):
        line = raw.strip()
        if not line or line.startswith("#"):
            _note_type(line, types)
            continue
        match = _LINE.fullmatch(line)
        value = _number(match[3]) if match else None
        labels = _labels(match[2], known) if match else None
        if match is None or value is None or labels is None:
            unread += 1
            continue
        samples.setdefault(match[1], {})[labels] = value
    return Metrics(samples, types, unread)


def scraped(server: Server, *, timeout: float | None = None) -> Metrics | None:
    """Ask a server for its metrics; None where it does not answer, or has none."""
    try:
        reply = server.get("/metrics", timeout=timeout)
    except ServerError:
        return None
    return parse(reply.text) if reply.status == 200 else None


def delta(before: Metrics, after: Metrics) -> Metrics | None:
    """Give the counters and histograms as they moved between two scrapes, and the gauges as they are in the second.

    A name whose scrapes do not say what it is counts as a counter where it ends in `_total`, `_count`, `_sum` or
    `_bucket`. A series that the first scrape does not have began at 0. None where a counter went backwards: the server
    was started again in between, and what happened is not known.
    """
    moved: dict[str, Mapping[Labels, float]] = {}
    for name, series in after.samples.items():
        if not _counts(name, after.types):
            moved[name] = series
            continue
        earlier = before.samples.get(name, {})
        if any(value > series.get(key, -math.inf) for key, value in earlier.items()):
            return None
        moved[name] = {key: value - earlier.get(key, 0.0) for key, value in series.items()}
    gone = [name for name in before.samples if name not in after.samples and _counts(name, before.types)]
    if any(any(before.samples[name].values()) for name in gone):
        return None
    return Metrics(moved, after.types, before.unread + after.unread)


def _counts(name: str, types: Mapping[str, str]) -> bool:
    for known in _families(name):
        if known in types:
            return types[known] in ("counter", "histogram", "summary")
    return name.endswith(("_total", "_count", "_sum", "_bucket"))


def _families(name: str) -> Sequence[str]:
    stems = [name.removesuffix(suffix) for suffix in ("_total", "_count", "_sum", "_bucket") if name.endswith(suffix)]
    return [name, *stems]


def _note_type(line: str, types: dict[str, str]) -> None:
    words = line.split()
    if len(words) == 4 and words[:2] == ["#", "TYPE"]:
        types[words[2]] = words[3]


def _labels(text: str | None, known: dict[str, Labels]) -> Labels | None:
    if not text:
        return ()
    if text in known:
        return known[text]
    inner, at, pairs = text[1:-1].strip(), 0, []
    while at < len(inner):
        match = _LABEL.match(inner, at)
        if match is None:
            return None
        pairs.append((match[1], re.sub(r"\\.", lambda m: _ESCAPES.get(m[0], m[0]), match[2])))
        at = match.end()
    labels = tuple(sorted(pairs))
    if len(known) < _LABELS_KEPT:
        known[text] = labels
    return labels


def _number(text: str) -> float | None:
    try:
        return float(text)  # Prometheus writes +Inf, -Inf and NaN, which Python reads
    except ValueError:
        return None
