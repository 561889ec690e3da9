"""vLLM: names as in 0.33.0, vllm/entrypoints/openai, v1/metrics/loggers.py; metrics as a server of 0.32.0 gave them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from prefixlint.verify import metrics as prometheus
from prefixlint.verify.metrics import Metrics
from prefixlint.verify.targets import About, Ask, Counters, Look, Measured, _bodies
from prefixlint.verify.wire import Server, Streamed

NAME = "vllm"
RANK = 20

_CONFIG = "vllm:cache_config_info"


def claims(look: Look) -> bool:
    """Say whether the server is vLLM: it owns its models, or tells its version as vLLM does and its metrics are."""
    if any(model.get("owned_by") == "vllm" for model in look.models()):
        return True
    metrics = look.reply("/metrics") if "version" in look.json("/version") else None
    return metrics is not None and metrics.status == 200 and "\nvllm:" in metrics.text


def about(server: Server) -> About:
    """Give what `/version`, `/v1/models` and the metrics say; the configuration of the cache is a label of one."""
    look = Look(server)
    models = look.models()
    version = look.json("/version").get("version")
    reply = look.reply("/metrics")
    metrics = prometheus.parse(reply.text) if reply is not None and reply.status == 200 else None
    config = next((own for own, _ in metrics.items(_CONFIG)), {}) if metrics else {}
    caches = {"True": True, "False": False}.get(config.get("enable_prefix_caching", ""))
    blocks, size = _count(config, "num_gpu_blocks"), _count(config, "block_size")
    notes = ["cached tokens are in its answers with --enable-prompt-tokens-details only"]
    if metrics is None:
        notes.append("it has no /metrics")
    if caches is False:
        notes.append("its prefix cache is off (--no-enable-prefix-caching)")
    return About(
        name=NAME,
        title="vLLM",
        engine="vllm",
        version=version if isinstance(version, str) else None,
        model=models[0].get("id") if models else None,
        flags={key: value for key, value in sorted(config.items()) if value not in ("None", "") and key != "engine"},
        block_size=size,
        # as the server prints it: with block 0, the null block, which a simulation of the pool sets aside itself
        capacity_tokens=blocks * size if blocks and size else None,
        context=_bodies.number(models[0].get("max_model_len")) if models else None,
        caches=caches,
        tokenizes=True,
        metrics=metrics is not None,
        notes=tuple(notes),
    )


def chat(body: Mapping[str, Any], ask: Ask) -> tuple[str, dict[str, Any]]:
    """Use the chat route. Without a choice of tools the prompt is the same, and no parser of calls is asked for."""
    sent = _bodies.chat(body, ask)
    if sent.get("tools") and sent.get("tool_choice", "auto") == "auto":
        sent["tool_choice"] = "none"
    return "/v1/chat/completions", _extended(sent, _bodies.salt_of(body, ask), ask)


def by_ids(ids: list[int], ask: Ask) -> tuple[str, dict[str, Any]]:
    """Use the route for text, which takes token ids too."""
    return "/v1/completions", _extended(_bodies.completion(ids, ask), ask.salt, ask)


def _extended(sent: dict[str, Any], salt: str | None, ask: Ask) -> dict[str, Any]:
    if salt is not None:
        sent["cache_salt"] = salt
    if ask.ids:
        sent["return_token_ids"] = True
    return sent


def salted() -> str:
    """Name the field that separates caches."""
    return "cache_salt"


def reading(streamed: Streamed) -> Measured:
    """Read a stream; with --enable-per-request-metrics its last chunk tells the time in the queue, and to a token."""
    found = _bodies.reading(streamed)
    own = [chunk["metrics"] for _, chunk in _bodies.objects(streamed) if isinstance(chunk.get("metrics"), dict)]
    if not own:
        return found
    queue, first = _milliseconds(own[-1], "queue_time_ms"), _milliseconds(own[-1], "time_to_first_token_ms")
    prefill = first - queue if queue is not None and first is not None and first >= queue else None
    return replace(found, queue_s=queue, prefill_s=prefill)


def tokens(server: Server, body: Mapping[str, Any], model: str | None) -> list[int] | None:
    """Ask `/tokenize` for the ids of a chat body's prompt."""
    return _bodies.asked_tokens(server, body, model)


def flush(server: Server) -> str | None:
    """Empty the prefix cache; the server answers 200 even where a block was in use and nothing was emptied."""
    reply = server.post("/reset_prefix_cache")
    if reply.status == 404:
        return "vLLM empties its cache only where it was started with VLLM_SERVER_DEV_MODE=1"
    return None if reply.status == 200 else f"vLLM did not empty its cache ({reply.status})"


def counters(metrics: Metrics) -> Counters | None:
    """Read vLLM's metrics. Evictions are counted with --kv-cache-metrics only, and then for a sample of the blocks."""
    if not any(name.startswith("vllm:") for name in metrics.samples):
        return None
    names = {
        "ttft": "vllm:time_to_first_token_seconds",
        "queue": "vllm:request_queue_time_seconds",
        "prefill": "vllm:request_prefill_time_seconds",
        "e2e": "vllm:e2e_request_latency_seconds",
    }
    parts = {part: metrics.histogram(name) for part, name in names.items()}
    queries, hits = _either(metrics, "vllm:prefix_cache_queries"), _either(metrics, "vllm:prefix_cache_hits")
    return Counters(
        prompt_tokens=_either(metrics, "vllm:prompt_tokens"),
        cached_tokens=_either(metrics, "vllm:prompt_tokens_cached"),
        output_tokens=_either(metrics, "vllm:generation_tokens"),
        queries=queries,
        hits=hits,
        preemptions=_either(metrics, "vllm:num_preemptions"),
        kv_usage=metrics.most("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
        queue_length=metrics.total("vllm:num_requests_waiting"),
        running=metrics.total("vllm:num_requests_running"),
        parts={name: part for name, part in parts.items() if part is not None},
    )


def _either(metrics: Metrics, name: str) -> float | None:
    return metrics.total(f"{name}_total", name)


def _count(config: Mapping[str, str], key: str) -> int | None:
    text = config.get(key, "")
    return int(text) if text.isascii() and text.isdecimal() else None


def _milliseconds(own: Mapping[str, Any], key: str) -> float | None:
    value = _bodies.seconds(own.get(key))
    return None if value is None else value / 1000
