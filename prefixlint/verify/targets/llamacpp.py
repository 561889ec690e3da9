"""llama.cpp's server, also inside other programs: names as in tools/server/README.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson

from prefixlint.verify.metrics import Metrics
from prefixlint.verify.targets import About, Ask, Counters, Look, Measured, _bodies
from prefixlint.verify.wire import Server, Streamed

NAME = "llama.cpp"
RANK = 30


def claims(look: Look) -> bool:
    """Say whether the server is llama.cpp's: it owns its models, or tells of its slots."""
    if any(model.get("owned_by") == "llamacpp" for model in look.models()):
        return True
    return "default_generation_settings" in look.json("/props")


def about(server: Server) -> About:
    """Give what `/props` and `/v1/models` say. The cache is what each slot holds, so its room is a slot's context."""
    look = Look(server)
    models, props = look.models(), look.json("/props")
    settings = props.get("default_generation_settings")
    context = _bodies.number(settings.get("n_ctx")) if isinstance(settings, dict) else None
    metrics = look.reply("/metrics")
    has_metrics = metrics is not None and metrics.status == 200
    build = props.get("build_info")
    flags = {"slots": props.get("total_slots"), "quantization": props.get("model_ftype")}
    return About(
        name=NAME,
        title="llama.cpp",
        engine="llama.cpp",
        version=build if isinstance(build, str) else None,
        model=models[0].get("id") if models else props.get("model_alias"),
        flags={key: value for key, value in flags.items() if value is not None},
        block_size=1,
        context=context,
        reports_cached=True,
        caches=True,
        tokenizes=True,
        metrics=has_metrics,
        notes=() if has_metrics else ("it has no /metrics: start it with --metrics",),
    )


def chat(body: Mapping[str, Any], ask: Ask) -> tuple[str, dict[str, Any]]:
    """Use the chat route; a prompt's cache is what a slot holds, whatever a log's salts say."""
    return "/v1/chat/completions", _bodies.chat(body, ask) | {"cache_prompt": True}


def by_ids(ids: list[int], ask: Ask) -> tuple[str, dict[str, Any]]:
    """Use `/completion`, which takes token ids as they are."""
    sent = {"prompt": ids, "n_predict": ask.max_tokens, "temperature": ask.temperature, "stream": True}
    sent |= {"cache_prompt": True, "return_tokens": True, **ask.sampling}
    return "/completion", sent | ({"ignore_eos": True} if ask.ignore_eos else {})


def salted() -> None:
    """Name nothing: the server has no namespaces."""


def reading(streamed: Streamed) -> Measured:
    """Read a stream of the chat route or of `/completion`; both end with the server's own times."""
    chunks = _bodies.objects(streamed)
    timings: dict[str, Any] = next(
        (c["timings"] for _, c in reversed(chunks) if isinstance(c.get("timings"), dict)), {}
    )
    found = _bodies.reading(streamed)
    if not any("choices" in chunk for _, chunk in chunks):
        found = _completed(streamed, chunks)
    computed, reused = _bodies.number(timings.get("prompt_n")), _bodies.number(timings.get("cache_n"))
    prompt = computed + reused if computed is not None and reused is not None else None
    prefill = _bodies.seconds(timings.get("prompt_ms"))
    return replace(
        found,
        prompt_tokens=found.prompt_tokens if found.prompt_tokens is not None else prompt,
        cached_tokens=found.cached_tokens if found.cached_tokens is not None else reused,
        prefill_s=None if prefill is None else prefill / 1000,
    )


def _completed(streamed: Streamed, chunks: list[tuple[float, dict[str, Any]]]) -> Measured:
    pieces = [(at, chunk) for at, chunk in chunks if "content" in chunk]
    if not pieces:
        return Measured()
    ids = [token for _, chunk in pieces for token in _bodies.whole_ids(chunk.get("tokens")) or ()]
    last = pieces[-1][1]
    return Measured(
        prompt_tokens=_bodies.number(last.get("tokens_evaluated")),
        output_tokens=_bodies.number(last.get("tokens_predicted")),
        output_text="".join(chunk["content"] for _, chunk in pieces if isinstance(chunk["content"], str)),
        output_ids=tuple(ids) or None,
        ttft_s=pieces[0][0] - streamed.sent,
        finish=last.get("stop_type") if isinstance(last.get("stop_type"), str) else None,
    )


def tokens(server: Server, body: Mapping[str, Any], model: str | None) -> list[int] | None:  # noqa: ARG001 - it has one model
    """Ask for the text that the template makes of a chat body, then for its ids."""
    asked = {key: body[key] for key in _bodies.KEPT if body.get(key) is not None}
    rendered = server.post("/apply-template", orjson.dumps(asked)).json()
    text = rendered.get("prompt") if isinstance(rendered, dict) else None
    if not isinstance(text, str):
        return None
    question = {"content": text, "add_special": True, "parse_special": True}
    value = server.post("/tokenize", orjson.dumps(question)).json()
    ids = _bodies.whole_ids(value.get("tokens")) if isinstance(value, dict) else None
    return None if ids is None else list(ids)


def flush(server: Server) -> str | None:  # noqa: ARG001 - as all kinds have it
    """Say why it cannot: what slots gave up may be kept on the host, which no call empties."""
    return "llama.cpp has no call that empties its cache: start it anew"


def counters(metrics: Metrics) -> Counters | None:
    """Read llama.cpp's metrics: its prompt tokens are those that were computed, and it has no histograms."""
    if not any(name.startswith("llamacpp:") for name in metrics.samples):
        return None
    computed = metrics.total("llamacpp:prompt_tokens_total")
    cached = metrics.total("llamacpp:prompt_tokens_cached_total")
    prompt = computed + cached if computed is not None and cached is not None else None
    return Counters(
        prompt_tokens=prompt,
        cached_tokens=cached,
        output_tokens=metrics.total("llamacpp:tokens_predicted_total"),
        queries=prompt,
        hits=cached,
        kv_usage=metrics.most("llamacpp:kv_cache_usage_ratio"),
        queue_length=metrics.total("llamacpp:requests_deferred"),
        running=metrics.total("llamacpp:requests_processing"),
    )
