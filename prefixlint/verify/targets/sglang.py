"""SGLang: names as in 0.5.23, srt/entrypoints/http_server.py, openai/protocol.py, observability/."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prefixlint.verify.metrics import Metrics
from prefixlint.verify.targets import About, Ask, Counters, Look, Measured, _bodies
from prefixlint.verify.wire import Server, Streamed

NAME = "sglang"
RANK = 10

_SHOWN_FLAGS = (
    "page_size", "radix_eviction_policy", "schedule_policy", "chunked_prefill_size", "max_prefill_tokens",
    "mem_fraction_static", "max_total_tokens", "max_running_requests", "context_length", "kv_cache_dtype", "tp_size",
    "dp_size", "attention_backend", "disable_radix_cache", "disable_cuda_graph", "enable_cache_report",
    "enable_metrics", "enable_hierarchical_cache", "enable_mixed_chunk", "speculative_algorithm", "dtype",
)  # fmt: skip


def claims(look: Look) -> bool:
    """Say whether the server is SGLang: it owns its models, or answers for its own state."""
    if any(model.get("owned_by") == "sglang" for model in look.models()):
        return True
    return "model_path" in look.json("/model_info") or "model_path" in look.json("/get_model_info")


def about(server: Server) -> About:
    """Give what `/server_info` says; older releases call it `/get_server_info`."""
    look = Look(server)
    models = look.models()
    info = look.json("/server_info") or look.json("/get_server_info")
    name = (
        models[0].get("id") if models else info.get("served_model_name") or look.json("/model_info").get("model_path")
    )
    reports, cut_off = info.get("enable_cache_report"), info.get("disable_radix_cache")
    notes = []
    if reports is False:
        notes.append("chat answers do not report cached tokens: start it with --enable-cache-report")
    if info.get("enable_metrics") is False:
        notes.append("it has no /metrics: start it with --enable-metrics")
    if cut_off:
        notes.append("its prefix cache is off (--disable-radix-cache)")
    return About(
        name=NAME,
        title="SGLang",
        engine="sglang",
        version=_text(info.get("version")),
        model=_text(name),
        device=_text(info.get("device")),
        flags={key: info[key] for key in _SHOWN_FLAGS if info.get(key) is not None},
        block_size=_bodies.number(info.get("page_size")),
        capacity_tokens=_bodies.number(info.get("max_total_num_tokens")),
        context=_bodies.number(models[0].get("max_model_len")) if models else None,
        reports_cached=reports if isinstance(reports, bool) else None,
        caches=not cut_off if isinstance(cut_off, bool) else None,
        tokenizes=True,
        metrics=info.get("enable_metrics"),
        notes=tuple(notes),
    )


def chat(body: Mapping[str, Any], ask: Ask) -> tuple[str, dict[str, Any]]:
    """Use the chat route; it tells cached tokens with --enable-cache-report only, and neither queue nor prefill."""
    sent = _bodies.chat(body, ask)
    salt = _bodies.salt_of(body, ask)
    if salt is not None:
        sent["extra_key"] = salt
    if ask.ids:
        sent["return_input_ids_in_sglext"] = sent["return_output_ids_in_sglext"] = True
    return "/v1/chat/completions", sent


def by_ids(ids: list[int], ask: Ask) -> tuple[str, dict[str, Any]]:
    """Use `/generate`, whose answers tell cached tokens always, and with --enable-metrics queue and prefill."""
    sampling = {"max_new_tokens": ask.max_tokens, "temperature": ask.temperature, **ask.sampling}
    if ask.ignore_eos:
        sampling["ignore_eos"] = True
    sent: dict[str, Any] = {"input_ids": ids, "sampling_params": sampling, "stream": True}
    if ask.salt is not None:
        sent["extra_key"] = ask.salt
    return "/generate", sent


def salted() -> str:
    """Name the field that separates caches."""
    return "extra_key"


def reading(streamed: Streamed) -> Measured:
    """Read a stream of the chat route or of `/generate`."""
    chunks = _bodies.objects(streamed)
    generated = [(at, chunk) for at, chunk in chunks if isinstance(chunk.get("meta_info"), dict)]
    if generated:
        return _generated(streamed, generated)
    found = _bodies.reading(streamed)
    extra = [chunk["sglext"] for _, chunk in chunks if isinstance(chunk.get("sglext"), dict)]
    prompt_ids = next((ids for e in extra if (ids := _bodies.whole_ids(e.get("input_ids")))), None)
    outputs = next(
        (e["output_ids"] for e in extra if isinstance(e.get("output_ids"), list) and e["output_ids"]), [None]
    )
    return Measured(
        prompt_tokens=found.prompt_tokens,
        cached_tokens=found.cached_tokens,
        output_tokens=found.output_tokens,
        output_text=found.output_text,
        output_ids=_bodies.whole_ids(outputs[0]),
        prompt_ids=prompt_ids,
        ttft_s=found.ttft_s,
        finish=found.finish,
    )


def _generated(streamed: Streamed, chunks: list[tuple[float, dict[str, Any]]]) -> Measured:
    """Read a stream of `/generate`: each chunk holds all text and ids so far, unless increments were asked for."""
    last, meta = chunks[-1][1], chunks[-1][1]["meta_info"]
    entered, finished = (
        _bodies.seconds(meta.get("forward_entry_time")),
        _bodies.seconds(meta.get("prefill_finished_time")),
    )
    finish = meta.get("finish_reason")
    return Measured(
        prompt_tokens=_bodies.number(meta.get("prompt_tokens")),
        cached_tokens=_bodies.number(meta.get("cached_tokens")),
        output_tokens=_bodies.number(meta.get("completion_tokens")),
        output_text=last["text"] if isinstance(last.get("text"), str) else "",
        output_ids=_bodies.whole_ids(last.get("output_ids")),
        ttft_s=chunks[0][0] - streamed.sent,
        queue_s=_bodies.seconds(meta.get("queue_time")),
        prefill_s=finished - entered if entered and finished and finished >= entered else None,
        finish=_text(finish.get("type")) if isinstance(finish, dict) else None,
    )


def tokens(server: Server, body: Mapping[str, Any], model: str | None) -> list[int] | None:
    """Ask `/tokenize` for the ids of a chat body's prompt."""
    return _bodies.asked_tokens(server, body, model)


def flush(server: Server) -> str | None:
    """Empty the radix tree. A server at work refuses with status 400."""
    reply = server.post("/flush_cache")
    if reply.status == 200:
        return None
    return f"SGLang does not empty its cache while requests run or wait ({reply.status})"


def counters(metrics: Metrics) -> Counters | None:
    """Read SGLang's metrics. The gauge `cache_hit_rate` is of one batch only and is not used.

    The counters of evictions and retractions appear with the first one; where a release has the gauges beside them,
    their absence is none.
    """
    if not any(name.startswith("sglang:") for name in metrics.samples):
        return None
    prompt, cached = metrics.total("sglang:prompt_tokens_total"), metrics.total("sglang:cached_tokens_total")
    if cached is None and prompt is not None:
        cached = 0.0  # the counter has a label, and appears with the first hit
    none_yet = 0.0 if "sglang:kv_evictable_tokens" in metrics else None
    room, free = metrics.total("sglang:max_total_num_tokens"), metrics.total("sglang:kv_available_tokens")
    parts = {
        "ttft": metrics.histogram("sglang:time_to_first_token_seconds"),
        "queue": metrics.histogram("sglang:queue_time_seconds"),
        # its chunks are a stage of their own, but this one runs from the first chunk's start to the last one's end
        "prefill": metrics.histogram("sglang:per_stage_req_latency_seconds", stage="prefill_forward"),
        "e2e": metrics.histogram("sglang:e2e_request_latency_seconds"),
    }
    return Counters(
        prompt_tokens=prompt,
        cached_tokens=cached,
        output_tokens=metrics.total("sglang:generation_tokens_total"),
        queries=prompt,
        hits=cached,
        retractions=_or(metrics.total("sglang:num_retracted_requests_total"), none_yet),
        evicted=_or(metrics.total("sglang:evicted_tokens_total"), none_yet),
        kv_usage=metrics.most("sglang:token_usage"),
        kv_filled=1 - free / room if room and free is not None and free <= room else None,
        queue_length=metrics.total("sglang:num_queue_reqs"),
        running=metrics.total("sglang:num_running_reqs"),
        parts={name: part for name, part in parts.items() if part is not None},
    )


def _or(value: float | None, otherwise: float | None) -> float | None:
    return otherwise if value is None else value


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
