"""A saved result of `analyze` as values again, from which text and annotations are made as from a fresh one.

What no report shows is not in the JSON, and stays empty: the sightings of a cause, its kind, its further examples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from prefixlint import rulebook
from prefixlint.findings import Confidence, Severity
from prefixlint.logfindings import LogFinding, SourcePlace, Where
from prefixlint.model import MissCause, Skip
from prefixlint.outline import Piece, PrefixTree, TreeNode
from prefixlint.reports import _movements as movements
from prefixlint.reports._times import seconds
from prefixlint.results import (
    Advice,
    Analysis,
    CapacityPoint,
    Curves,
    EngineResult,
    Excerpt,
    Family,
    FamilyEngine,
    Group,
    HostPoint,
    Input,
    LikelyCause,
    MarkAdvice,
    Note,
    NotTried,
    PoolSize,
    QueueEffect,
    ReplicaPoint,
    Reported,
    Saving,
    SharedPrefix,
    SkipKind,
    StaticFinding,
    Step,
    TokenizerUse,
    TtlPoint,
    VolatilePlace,
    Waterfall,
    WhatIf,
)
from prefixlint.saved import build

Json = Mapping[str, Any]
_Made = TypeVar("_Made")


def analysis(saved: Json) -> Analysis:
    """Give the result that `reports.json.as_json` wrote as `saved`; KeyError, TypeError and the like for others."""
    static = saved["source_findings"]
    return Analysis(
        input=_input(saved["input"]),
        notes=_each(Note, saved["notes"]),
        tokenizers=_each(TokenizerUse, saved["tokenizers"]),
        prompt_tokens=saved["tokens"]["prompt"],
        distinct_tokens=saved["tokens"]["distinct"],
        reported=_reported(saved["reported"]),
        likely_causes=_each(LikelyCause, saved["likely_causes"]),
        engines=[_engine(one) for one in saved["engines"]],
        families=[_family(one) for one in saved["families"]],
        shared_prefixes=_each(SharedPrefix, saved["shared_prefixes"]),
        groups=[_group(one) for one in saved["groups"]],
        by=list(saved["by"]),
        curves=_curves(saved["curves"]),
        savings=[_saving(one) for one in saved["savings"]],
        advice=[_advice(one) for one in saved["advice"]],
        findings=[_finding(one) for one in saved["findings"]],
        source_findings=None if static is None else [_static(one) for one in static],
        timeline=movements.timeline(saved["timeline"], saved["changes"]),
        versus=movements.versus(saved["compare"]),
        what_if=_each(WhatIf, saved["what_if"]),
        not_tried=_each(NotTried, saved["not_simulated"]),
        waterfalls=[_waterfall(one) for one in saved["waterfall"]],
        tree=None if saved["tree"] is None else _tree(saved["tree"]),
        failures=list(saved["failures"]),
    )


def _each(make: type[_Made], rows: Sequence[Json]) -> list[_Made]:
    return [build(make, row) for row in rows]


def _input(saved: Json) -> Input:
    return Input(
        files=saved["files"],
        formats=saved["formats"],
        requests=saved["requests"],
        start=seconds(saved["from"]),
        end=seconds(saved["to"]),
        order=saved["order"],
        skipped=[_skip(one) for one in saved["skipped"]],
        skipped_total=saved["skipped_total"],
        skipped_kinds=[SkipKind(_skip(one), one["count"]) for one in saved["skipped_by_reason"]],
    )


def _skip(saved: Json) -> Skip:
    return Skip(saved["path"], saved["line"], saved["slug"], saved["reason"])


def _reported(saved: Json | None) -> Reported | None:
    return None if saved is None else build(Reported, saved)


def _engine(saved: Json) -> EngineResult:
    misses = {MissCause(name): tokens for name, tokens in saved["misses"].items()}
    return build(EngineResult, saved, misses=misses, sized_by=saved.get("granularity_by", "profile"))


def _family(saved: Json) -> Family:
    made = {
        "engines": {name: build(FamilyEngine, one) for name, one in saved["engines"].items()},
        "spans": [_place(one) for one in saved["spans"]],
        "template": _each(Piece, saved["template"]),
    }
    return build(Family, saved, **made)


def _place(saved: Json) -> VolatilePlace:
    example = saved["example"]
    made = {
        "excerpt": build(Excerpt, saved["excerpt"]),
        "example": (example["path"], example["line"], example["other_line"]),
    }
    return build(VolatilePlace, saved, **made)


def _group(saved: Json) -> Group:
    made = {"reported": _reported(saved["reported"]), "engines": [_engine(one) for one in saved["engines"]]}
    return build(Group, saved, **made)


def _curves(saved: Json) -> Curves:
    return Curves(
        capacity=_each(CapacityPoint, saved["capacity"]),
        ttl=_each(TtlPoint, saved["ttl"]),
        replicas=_each(ReplicaPoint, saved["replicas"]),
        sizes=[_pool(one) for one in saved["pools"]],
        host=_each(HostPoint, saved["host"]),
    )


def _pool(saved: Json) -> PoolSize:
    def simulated(one: Json) -> tuple[int, float, float]:
        return one["tokens"], one["hit_rate"], one["curve_hit_rate"]

    return PoolSize(
        engine=saved["engine"],
        method=saved["method"],
        ceiling=saved["ceiling"],
        knee=saved["knee_tokens"],
        knee_hit_rate=saved["knee_hit_rate"],
        reach={float(share): tokens for share, tokens in saved["reach"].items()},
        have=saved["pool_tokens"],
        running=saved["running_tokens"],
        hit_rate=saved["pool_hit_rate"],
        basis=saved["basis"],
        simulated=None if saved["simulated"] is None else simulated(saved["simulated"]),
        direct=[simulated(one) for one in saved["deviations"]],
    )


def _saving(saved: Json) -> Saving:
    made = {
        "premium": saved["write_premium"],
        "break_even": saved["break_even_reads"],
        "queue": None if saved["queue"] is None else _queue(saved["queue"]),
    }
    return build(Saving, saved, **made)


def _queue(saved: Json) -> QueueEffect:
    def pair(one: Json) -> tuple[float, float]:
        return one["p50"], one["p95"]

    ttft = {one["rate"]: (pair(one["without"]), pair(one["with"])) for one in saved["ttft_s"]}
    return QueueEffect((saved["load_without"], saved["load_with"]), ttft)


def _advice(saved: Json) -> Advice:
    made = {
        "text": saved["advice"],
        "money": saved["money_saved"],
        "marks": [_mark(one) for one in saved["marks"]],
    }
    return build(Advice, saved, **made)


def _mark(saved: Json) -> MarkAdvice:
    made = {"ttl": saved["ttl_s"], "reads": saved["reads_per_write"], "break_even": saved["break_even_reads"]}
    return build(MarkAdvice, saved, **made)


def _finding(saved: Json) -> LogFinding:
    at = saved["at"]
    other = at["other_file"] if at["other_file"] != saved["path"] else None
    severity = Severity[saved["severity"].upper()]
    return LogFinding(
        rule=rulebook.named(str(saved["rule"]), str(saved["name"]), severity),
        severity=severity,
        confidence=Confidence[saved["confidence"].upper()],
        message=saved["message"],
        where=Where(saved["path"], at["line"], at["other_line"], at["path"], at["char"], other),
        values=None if saved["values"] is None else (saved["values"][0], saved["values"][1]),
        excerpt=saved["excerpt"],
        requests=saved["requests"],
        kind="",
        tokens_at_risk=saved["tokens_at_risk"],
        tokens_lost=saved["tokens_lost"],
        masked_by=saved["masked_by"],
        fingerprint=saved["fingerprint"],
        sources=tuple(_source(one) for one in saved["related"] if "expression" in one),
    )


def _source(saved: Json) -> SourcePlace:
    changes = saved["message"].startswith("written by ")
    known = (saved["rule"], saved["fingerprint"])
    return SourcePlace(saved["path"], saved["line"], saved["column"], saved["expression"], changes, *known)


def _static(saved: Json) -> StaticFinding:
    return StaticFinding(saved, saved["tokens_lost"], saved["requests"])


def _waterfall(saved: Json) -> Waterfall:
    return build(Waterfall, saved, steps=_each(Step, saved["steps"]))


def _tree(saved: Json) -> PrefixTree:
    return PrefixTree(_each(TreeNode, saved["nodes"]), saved["stretches"])
