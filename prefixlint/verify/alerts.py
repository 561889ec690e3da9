"""Prometheus rules and a Grafana dashboard for SGLang and vLLM, with the names of metrics that these servers have.

Rates come from counters: SGLang's gauge `cache_hit_rate` is of one batch only. Percentiles come from histograms.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from prefixlint.verify.watch import Limits

_HIT_RATE, _TTFT, _KV = 0.5, 1.0, 0.9  # where the user names no limits
_DROP = 0.15  # of the hit rate in a day: a prompt that was changed, more likely than a change of the traffic
_SOURCE = {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
_WINDOW, _LONG = "5m", "30m"


@dataclass(frozen=True, slots=True)
class Names:
    """How one engine calls what is watched; the counters as they are exported, with `_total`."""

    engine: str
    title: str
    cached: str
    prompt: str
    ttft: str
    queue: str
    prefill: str
    prefill_labels: str
    usage: str
    waiting: str
    running: str
    thrown_out: str  # requests that were taken out of the batch because the pool was full


ENGINES = (
    Names(
        engine="sglang",
        title="SGLang",
        cached="sglang:cached_tokens_total",
        prompt="sglang:prompt_tokens_total",
        ttft="sglang:time_to_first_token_seconds",
        queue="sglang:queue_time_seconds",
        prefill="sglang:per_stage_req_latency_seconds",
        prefill_labels='{stage="prefill_forward"}',
        usage="sglang:token_usage",
        waiting="sglang:num_queue_reqs",
        running="sglang:num_running_reqs",
        thrown_out="sglang:num_retracted_requests_total",
    ),
    Names(
        engine="vllm",
        title="vLLM",
        cached="vllm:prefix_cache_hits_total",
        prompt="vllm:prefix_cache_queries_total",
        ttft="vllm:time_to_first_token_seconds",
        queue="vllm:request_queue_time_seconds",
        prefill="vllm:request_prefill_time_seconds",
        prefill_labels="",
        usage="vllm:kv_cache_usage_perc",
        waiting="vllm:num_requests_waiting",
        running="vllm:num_requests_running",
        thrown_out="vllm:num_preemptions_total",
    ),
)


def hit_rate(names: Names, window: str) -> str:
    """Give the query for the share of prompt tokens that came from the cache: 0 too where no hit was ever counted."""
    by = "sum by (model_name, instance)"
    asked = f"{by} (rate({names.prompt}[{window}]))"
    return f"({by} (rate({names.cached}[{window}])) or {asked} * 0) / ({asked} > 0)"


def quantile(names: Names, share: float, window: str) -> str:
    """Give the query for a percentile of the time to first token."""
    return f"histogram_quantile({share}, sum by (le, model_name, instance) (rate({names.ttft}_bucket[{window}])))"


def mean(metric: str, labels: str, window: str) -> str:
    """Give the query for the mean of a histogram."""
    by = "sum by (model_name, instance)"
    return f"{by} (rate({metric}_sum{labels}[{window}])) / ({by} (rate({metric}_count{labels}[{window}])) > 0)"


def rules(engines: Sequence[Names], limits: Limits) -> str:
    """Write alert rules as YAML, for `rule_files` of Prometheus or the `spec` of a PrometheusRule."""
    import yaml

    groups = [{"name": f"prefixlint-{names.engine}", "rules": list(_alerts(names, limits))} for names in engines]
    text: str = yaml.safe_dump({"groups": groups}, sort_keys=False, width=1000, allow_unicode=True)
    return text


def _alerts(names: Names, limits: Limits) -> Iterator[dict[str, Any]]:
    rate = limits.hit_rate if limits.hit_rate is not None else _HIT_RATE
    ttft = limits.ttft if limits.ttft is not None else _TTFT
    kv = limits.kv if limits.kv is not None else _KV
    record = f"{names.engine}:prefix_hit_rate"
    yield {"record": f"{record}:5m", "expr": hit_rate(names, _WINDOW)}
    yield {"record": f"{record}:30m", "expr": hit_rate(names, _LONG)}
    yield _alert(
        f"{names.title}PrefixHitRateLow", f"{record}:30m < {rate:g}", "15m",
        f"{names.title}: {{{{ $value | humanizePercentage }}}} of the prompt tokens come from the prefix cache",
        f"Less than {rate:.0%} for 15 minutes on {{{{ $labels.instance }}}}. prefixlint analyze on a log says why.",
    )  # fmt: skip
    yield _alert(
        f"{names.title}PrefixHitRateDropped", f"{record}:30m < ({record}:30m offset 1d) - {_DROP:g}", "30m",
        f"{names.title}: the prefix hit rate fell to {{{{ $value | humanizePercentage }}}}",
        f"More than {100 * _DROP:.0f} points below the same time yesterday: was a prompt or template changed?",
    )  # fmt: skip
    yield _alert(
        f"{names.title}TimeToFirstTokenHigh", f"{quantile(names, 0.95, _WINDOW)} > {ttft:g}", "10m",
        f"{names.title}: the P95 of the time to first token is {{{{ $value | humanizeDuration }}}}",
        f"Above {ttft:g} s for 10 minutes. prefixlint watch says whether it is queue, prefill or neither.",
    )  # fmt: skip
    yield _alert(
        f"{names.title}KVPoolFull", f"max by (model_name, instance) ({names.usage}) > {kv:g}", "10m",
        f"{names.title}: running requests hold {{{{ $value | humanizePercentage }}}} of the KV pool",
        "Requests wait for memory, and cached prefixes are evicted.",
    )  # fmt: skip
    yield _alert(
        f"{names.title}RequestsThrownOut", f"sum by (model_name, instance) (rate({names.thrown_out}[{_LONG}])) > 0",
        "15m", f"{names.title}: requests are taken out of the batch, since the KV pool is full",
        "What they had computed is computed again: lower the load or the number of running requests.",
    )  # fmt: skip


def _alert(name: str, expr: str, wait: str, summary: str, description: str) -> dict[str, Any]:
    return {
        "alert": name,
        "expr": expr,
        "for": wait,
        "labels": {"severity": "warning"},
        "annotations": {"summary": summary, "description": description},
    }


def dashboard(engines: Sequence[Names], limits: Limits) -> str:
    """Write a Grafana dashboard as JSON, to be imported; it asks which Prometheus to use."""
    panels: list[dict[str, Any]] = []
    for names in engines:
        if len(engines) > 1:
            panels.append({"type": "row", "title": names.title, "collapsed": False, "panels": []})
        panels += _panels(names, limits)
    _place(panels)
    board = {
        "title": "Prefix cache" if len(engines) > 1 else f"Prefix cache of {engines[0].title}",
        "uid": "prefixlint-" + "-".join(names.engine for names in engines),
        "tags": ["prefixlint", "llm"],
        "schemaVersion": 39,
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": [_SOURCE]},
        "panels": panels,
    }  # fmt: skip
    return orjson.dumps(board, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode()


def _panels(names: Names, limits: Limits) -> Iterator[dict[str, Any]]:
    window, by = "$__rate_interval", "sum by (instance)"
    split = [(mean(names.queue, "", window), "queue"), (mean(names.prefill, names.prefill_labels, window), "prefill")]
    whole = mean(names.ttft, "", window)
    split.append((f"{whole} - ({split[0][0]}) - ({split[1][0]})", "other"))
    tokens = f"{by} (rate({names.prompt}[{window}]))", f"{by} (rate({names.cached}[{window}]))"
    yield _graph("Prefix hit rate", [(hit_rate(names, window), "{{instance}}")], "percentunit", limits.hit_rate)
    quantiles = [
        (quantile(names, share, window), f"P{share * 100:.0f} {{{{instance}}}}") for share in (0.5, 0.95, 0.99)
    ]
    yield _graph("Time to first token", quantiles, "s", limits.ttft)
    yield _graph("Time to first token, mean of its parts", split, "s", None, stacked=True)
    computed = (f"{tokens[0]} - {tokens[1]}", "computed {{instance}}")
    yield _graph("Prompt tokens a second", [computed, (tokens[1], "cached {{instance}}")], "short", None, stacked=True)
    yield _graph(
        "KV pool held by running requests",
        [(f"max by (instance) ({names.usage})", "{{instance}}")],
        "percentunit",
        limits.kv,
    )
    load = [(f"{by} ({names.running})", "running {{instance}}"), (f"{by} ({names.waiting})", "waiting {{instance}}")]
    load.append((f"{by} (increase({names.thrown_out}[{window}]))", "thrown out {{instance}}"))
    yield _graph("Requests", load, "short", None)


def _graph(
    title: str, queries: Sequence[tuple[str, str]], unit: str, limit: float | None, *, stacked: bool = False
) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${datasource}"}
    targets = [
        {"refId": chr(65 + i), "expr": expr, "legendFormat": legend, "datasource": source}
        for i, (expr, legend) in enumerate(queries)
    ]
    custom: dict[str, Any] = {"fillOpacity": 10, "stacking": {"mode": "normal" if stacked else "none"}}
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if limit is not None:
        custom["thresholdsStyle"] = {"mode": "line"}
        steps.append({"color": "red", "value": limit})
    defaults: dict[str, Any] = {"unit": unit, "custom": custom, "thresholds": {"mode": "absolute", "steps": steps}}
    if unit == "percentunit":
        defaults |= {"min": 0, "max": 1}
    return {
        "type": "timeseries", "title": title, "datasource": source, "targets": targets,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
    }  # fmt: skip


def _place(panels: list[dict[str, Any]]) -> None:
    """Lay the panels out in two columns of Grafana's 24, and number them."""
    x = y = 0
    for number, panel in enumerate(panels, 1):
        row = panel["type"] == "row"
        if row and x:
            x, y = 0, y + 8
        panel["id"] = number
        panel["gridPos"] = {"x": x, "y": y, "w": 24 if row else 12, "h": 1 if row else 8}
        if row or x:
            x, y = 0, y + (1 if row else 8)
        else:
            x = 12
