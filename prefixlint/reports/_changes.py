"""How comparisons look: two logs on one server, or one log on servers with other settings; rows of cells for tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prefixlint.reports._times import milliseconds
from prefixlint.wording import many, percent

Row = tuple[str, ...]
_ROWS = (
    ("TTFT P50", "ttft_p50"),
    ("TTFT P95", "ttft_p95"),
    ("hit rate", "hit_rate"),
    ("prefill P50", "prefill_p50"),
    ("prefill mean", "prefill_mean"),
    ("queue P50", "queue_p50"),
    ("queue mean", "queue_mean"),
    ("other P50", "other_p50"),
    ("other mean", "other_mean"),
    ("between tokens P50", "token_p50"),
    ("whole answer P50", "total_p50"),
)
_CACHES = ("cold", "warm")


def tables(comparison: Mapping[str, Any]) -> list[tuple[str, list[Row]]]:
    """Give the tables of a comparison, each with its title; the first row of one is its head."""
    if comparison.get("kind") == "settings":
        speeds, answers = list(_speeds(comparison)), list(_answers(comparison))
        return [("", speeds), *([("", answers)] if len(answers) > 1 else [])]
    return [(f"{cache} runs", rows) for cache in _CACHES if len(rows := list(_sides(_told(comparison, cache)))) > 1]


def sentences(comparison: Mapping[str, Any]) -> Iterator[str]:
    """Say what the comparison comes to, the most important first."""
    if comparison.get("kind") == "settings":
        yield from _settings_said(comparison)
        return
    yield f"before: {comparison['baseline']}; after: {comparison['candidate']}; {many(comparison['rounds'], 'round')}."
    for cache in _CACHES:
        told = _told(comparison, cache)
        measured, expected = told.get("hit_rate"), told.get("predicted_hit_rate")
        if measured and expected and measured.get("change") is not None:
            yield (
                f"{cache}: the hit rate moved by {_points(measured['change'])}, "
                f"{_points(expected['change'])} were predicted."
            )


def _told(comparison: Mapping[str, Any], cache: str) -> Mapping[str, Any]:
    return comparison if cache == "cold" else comparison.get(cache) or {}


def _sides(told: Mapping[str, Any]) -> Iterator[Row]:
    yield "", "before", "after", "change", "95 % of draws"
    for title, name in _ROWS:
        one = told.get(name)
        if not isinstance(one, Mapping):
            continue
        if name.endswith("_mean") and told.get(name.replace("_mean", "_p50")) is not None:
            continue  # the percentiles of requests say more
        shown = percent if one.get("points") else milliseconds
        yield title, shown(one["before"]), shown(one["after"]), _change(one), _interval(one)


def _speeds(comparison: Mapping[str, Any]) -> Iterator[Row]:
    """Give what each setting moved: TTFT at P50 and the hit rate of the warm run."""
    yield "setting", "cold TTFT", "", "warm TTFT", "", "hit rate", "verdict"
    for row in comparison["variants"]:
        if row["error"] is not None:
            yield row["name"], *[""] * 5, "did not run"
            continue
        cold, warm = row.get("cold") or {}, row.get("warm") or {}
        yield (
            row["name"],
            *_cells(cold.get("ttft_p50")),
            *_cells(warm.get("ttft_p50")),
            percent((warm.get("hit_rate") or {}).get("after")),
            row["verdict"],
        )


def _answers(comparison: Mapping[str, Any]) -> Iterator[Row]:
    """Give what each setting did to the answers behind their first token, where any had more than one."""
    yield "setting", "between tokens", "", "outputs"
    for row in comparison["variants"]:
        cold, warm = row.get("cold") or {}, row.get("warm") or {}
        between, outputs = warm.get("token_p50") or cold.get("token_p50"), _outputs(row.get("outputs"))
        if between is not None or outputs:
            yield row["name"], *_cells(between), outputs


def _cells(one: Mapping[str, Any] | None) -> tuple[str, str]:
    return ("", "") if one is None else (milliseconds(one["after"]), _change(one, unsure="?"))


def _outputs(found: Mapping[str, Any] | None) -> str:
    if found is None or not found["compared"]:
        return ""
    return "equal" if found["same"] == found["compared"] else f"{percent(found['share'])} equal"


def _settings_said(comparison: Mapping[str, Any]) -> Iterator[str]:
    yield "TTFT at P50, the hit rate of the warm run; ? is a change whose interval holds zero."
    slower = comparison.get("slower") or []
    if slower:
        yield f"Slower than the baseline: {', '.join(slower)}."
    for row in comparison["variants"]:
        if row["error"] is not None:
            yield f"{row['name']} did not run: {row['error'].splitlines()[0]}"
        elif row["expect"]:
            yield f"{row['name']}: expected: {row['expect']}"
        found = row.get("outputs")
        if found and found["compared"] and found["same"] < found["compared"]:
            yield (
                f"{row['name']} changes outputs: {found['same']} of {many(found['compared'], 'answer')} are the same; "
                f"the first difference is token {found['token'] + 1} of the answer to line {found['line']}."
            )
    drift = (comparison.get("drift") or {}).get("cold", {}).get("ttft_p50")
    if drift is not None:
        yield f"Two turns of the baseline are {percent(drift, 0)} apart in TTFT P50: less is no difference."


def _change(one: Mapping[str, Any], *, unsure: str = " (unsure)") -> str:
    change = one.get("change")
    if change is None:
        return ""
    shown = _points(change) if one.get("points") else f"{100 * change:+.0f} %"
    return shown if one.get("sure") or one.get("low") is None else f"{shown}{unsure}"


def _interval(one: Mapping[str, Any]) -> str:
    low, high = one.get("low"), one.get("high")
    if low is None or high is None:
        return ""
    unit = "points" if one.get("points") else "%"
    return f"{100 * low:+.1f} … {100 * high:+.1f} {unit}"


def _points(change: float) -> str:
    return f"{100 * change:+.1f} points"
