"""Token counts as providers report them, to one meaning: `Usage.prompt` includes cached and written tokens.

OpenAI chat, Responses and compatible servers: `prompt_tokens` or `input_tokens` is the whole; cached and written
stand in `*_details.cached_tokens` and `.cache_write_tokens`.
Anthropic and Bedrock: the sum of `input_tokens`, `cache_read_input_tokens` and `cache_creation_input_tokens` (Bedrock:
`inputTokens`, `cacheReadInputTokens`, `cacheWriteInputTokens`) is the whole.
Gemini: `promptTokenCount` is the whole, `cachedContentTokenCount` the cached part.
DeepSeek: `prompt_tokens` is hit plus miss, `prompt_cache_hit_tokens` the cached part.
Ollama: `prompt_eval_count`, with no cached count.

A proxy that speaks OpenAI may add Anthropic's names beside `prompt_tokens`: then `prompt_tokens` is the whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prefixlint.logs._numbers import count
from prefixlint.logs._parse import maybe
from prefixlint.model import Usage

if TYPE_CHECKING:
    from collections.abc import Mapping

_WHOLE = (
    "prompt_tokens",
    "promptTokens",
    "promptTokenCount",
    "prompt_token_count",
    "prompt_eval_count",
    "total_input_tokens",
)
_INPUT = (
    "input_tokens",
    "inputTokens",
    "inputTokenCount",
    "input_token_count",
    "uncached_input_tokens",
    "usage_input_tokens_no_cache",
)
_READ = (
    "cache_read_input_tokens",
    "cacheReadInputTokens",
    "cacheReadInputTokenCount",
    "cache_read_input_token_count",
    "usage_input_tokens_cache_read",
)
_WRITTEN = (
    "cache_creation_input_tokens",
    "cacheWriteInputTokens",
    "cacheWriteInputTokenCount",
    "cache_write_input_tokens",
    "cacheCreationInputTokens",
    "cache_write_input_token_count",
)
_HOUR = ("ephemeral_1h_input_tokens", "usage_input_tokens_cache_write_1h")
# the console export of Anthropic
_BY_LIFETIME = ("usage_input_tokens_cache_write_5m", "usage_input_tokens_cache_write_1h")
_CACHED = (
    "cached_tokens",
    "cachedTokens",
    "cachedContentTokenCount",
    "cached_content_token_count",
    "prompt_cache_hit_tokens",
    "total_cached_tokens",
    "cached_input_tokens",
    "input_cached_tokens",
)
_DETAILS = (
    "prompt_tokens_details",
    "input_tokens_details",
    "input_token_details",
    "prompt_token_details",
    "promptTokensDetails",
    "inputTokensDetails",
    "inputTokenDetails",
)
_DETAIL_CACHED = ("cached_tokens", "cachedTokens", "cache_read", "cacheRead", "cache_read_tokens", "cacheReadTokens")
_DETAIL_WRITTEN = (
    "created_cache_tokens",
    "cache_write_tokens",
    "created_cache_tokens",
    "cacheWriteTokens",
    "cache_creation_tokens",
    "cache_creation",
    "cache_write",
)
_COMPLETION = (
    "completion_tokens",
    "output_tokens",
    "outputTokens",
    "completionTokens",
    "outputTokenCount",
    "candidatesTokenCount",
    "candidates_token_count",
    "output_token_count",
    "eval_count",
    "total_output_tokens",
    "usage_output_tokens",
)
_THOUGHTS = ("thoughtsTokenCount", "thoughts_token_count")  # Gemini counts them beside the candidates


def first_count(values: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    """Give the first of several keys that holds a count."""
    for name in names:
        if name in values:
            found = count(values[name])
            if found is not None:
                return found
    return None


def usage_of(usage: Any) -> Usage | None:
    """Read a usage object of any provider (also as a JSON string); None when it holds no count of tokens."""
    values = maybe(usage)
    if not isinstance(values, dict):
        return None
    read, written = first_count(values, _READ), _written(values)
    cached, prompt = first_count(values, _CACHED), first_count(values, _WHOLE)
    details = next((values[name] for name in _DETAILS if isinstance(values.get(name), dict)), None)
    if details is not None:
        cached = _first(first_count(details, _DETAIL_CACHED), cached)
        written = _first(first_count(details, _DETAIL_WRITTEN), written)
    if prompt is None:
        prompt = _from_parts(values, read, written, inclusive=details is not None or cached is not None)
    completion = first_count(values, _COMPLETION)
    thoughts = first_count(values, _THOUGHTS)
    if thoughts:
        completion = (completion or 0) + thoughts
    found = Usage(prompt, _first(cached, read), written, completion, _long(values, details))
    return None if found == Usage() else found


def _first(one: int | None, other: int | None) -> int | None:
    return other if one is None else one


def _from_parts(values: dict[str, Any], read: int | None, written: int | None, *, inclusive: bool) -> int | None:
    """Give the prompt of styles that name parts: Anthropic and Bedrock count apart what was read and written."""
    fresh = first_count(values, _INPUT)
    if fresh is not None:
        return fresh if inclusive else fresh + (read or 0) + (written or 0)
    hit, miss = count(values.get("prompt_cache_hit_tokens")), count(values.get("prompt_cache_miss_tokens"))
    return hit + miss if hit is not None and miss is not None else None


def _written(values: dict[str, Any]) -> int | None:
    found = first_count(values, _WRITTEN)
    by_lifetime = values.get("cache_creation")
    if found is not None:
        return found
    held = list(by_lifetime.values()) if isinstance(by_lifetime, dict) else [values.get(name) for name in _BY_LIFETIME]
    known = [one for one in map(count, held) if one is not None]
    return sum(known) if known else None


def _long(values: dict[str, Any], details: dict[str, Any] | None) -> int | None:
    """Give what was written to live for an hour: Anthropic's split of it, also beside the counts of a proxy."""
    split = values.get("cache_creation"), (details or {}).get("cache_creation_token_details"), values
    found = (first_count(one, _HOUR) for one in split if isinstance(one, dict))
    return next((one for one in found if one is not None), None)
