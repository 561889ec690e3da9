"""Any server with OpenAI's API: what is common to all of them, and nothing that only some have."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from prefixlint.verify.metrics import Metrics
from prefixlint.verify.targets import About, Ask, Counters, Look, Measured, _bodies
from prefixlint.verify.wire import Server, Streamed

NAME = "openai"
RANK = 90

_KEPT = ("messages", "tools", "tool_choice", "functions", "function_call", "parallel_tool_calls", "reasoning_effort")
# models that take `max_completion_tokens`, and no temperature but their own
_REASONING = re.compile(r"(.*/)?(o\d|gpt-[5-9])")


def claims(look: Look) -> bool:
    """Say whether the server lists models as OpenAI's does."""
    return isinstance(look.json("/v1/models").get("data"), list)


def about(server: Server) -> About:
    """Give what the list of models says."""
    models = Look(server).models()
    return About(
        name=NAME,
        title="OpenAI-compatible server",
        engine="openai" if any(model.get("owned_by") in ("openai", "system") for model in models) else None,
        model=models[0].get("id") if len(models) == 1 else None,
        notes=("it says neither its engine, nor its settings, nor its metrics",),
    )


def chat(body: Mapping[str, Any], ask: Ask) -> tuple[str, dict[str, Any]]:
    """Use the chat route with the fields that OpenAI's has."""
    sent = _bodies.chat(body, ask, _KEPT)
    sent.pop("ignore_eos", None)
    if _REASONING.match(str(sent.get("model", ""))):
        sent["max_completion_tokens"] = sent.pop("max_tokens")
        sent.pop("temperature", None)
    return "/v1/chat/completions", sent


def by_ids(ids: list[int], ask: Ask) -> None:
    """Give nothing: few such servers take token ids."""


def salted() -> None:
    """Name nothing: `prompt_cache_key` chooses a machine and separates no caches."""


def reading(streamed: Streamed) -> Measured:
    """Read a stream of the chat route."""
    return _bodies.reading(streamed)


def tokens(server: Server, body: Mapping[str, Any], model: str | None) -> None:
    """Give nothing: there is no common route for it."""


def flush(server: Server) -> str:  # noqa: ARG001 - as all kinds have it
    """Say that there is no common call for it."""
    return "OpenAI's API has no call that empties a cache"


def counters(metrics: Metrics) -> Counters | None:
    """Give nothing: there are no common metrics."""
