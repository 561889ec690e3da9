"""What the SGLang request log and its metrics export share: from a request object and its `meta_info` to a Request."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from prefixlint.logs._numbers import count, number, text
from prefixlint.logs._recipes import refusal
from prefixlint.model import Content, Latency, Messages, NoPrompt, Output, Request, Skip, Text, TokenIds, Usage

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "sglang"

META_KEYS = frozenset(
    {
        "prompt_tokens",
        "cached_tokens",
        "completion_tokens",
        "finish_reason",
        "dp_rank",
        "queue_time",
        "forward_entry_time",
        "prefill_finished_time",
        "first_token_latency",
        "e2e_latency",
        "request_received_ts",
        "request_finished_ts",
        "response_sent_to_client_ts",
    }
)
"""What is used of `meta_info`."""
CUT = "..."
"""What a decoded prompt is replaced by where level 2 of the log has cut it."""
_HALF = 1024  # level 2 keeps the first and the last 1024 characters or items of anything longer than 2048


@dataclass(slots=True)
class Draft:
    """A request as logged: the request object (`GenerateReqInput`) and what came out, both as dicts."""

    path: str
    line: int
    rid: str | None
    obj: dict[str, Any]
    out: dict[str, Any]
    format: str = NAME
    time: float | None = None

    @property
    def meta(self) -> Mapping[str, Any]:
        """Give the `meta_info` of the output."""
        meta = self.out.get("meta_info")
        return meta if isinstance(meta, dict) else {}

    @property
    def has_prompt(self) -> bool:
        """Whether the object holds its prompt, complete or cut."""
        return bool(self.obj.get("text") or self.obj.get("input_ids"))

    @property
    def ended(self) -> float | None:
        """Seconds since the epoch when the last token was out."""
        ended = number(self.meta.get("response_sent_to_client_ts"))
        return number(self.meta.get("request_finished_ts")) if ended is None else ended


def known(values: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what is not set."""
    return {name: value for name, value in values.items() if value is not None}


def is_cut(value: Any) -> bool:
    """Whether level 2 of the log has cut a text or a list (in its JSON form the cut stands inside the value)."""
    if isinstance(value, str):
        return value == CUT or (2 * _HALF < len(value) <= 2 * _HALF + 5 and "..." in value[_HALF - 1 : _HALF + 5])
    if isinstance(value, list):
        return any(isinstance(one, str) and "..." in one for one in value[_HALF : _HALF + 1])
    if isinstance(value, dict):
        return any(is_cut(one) for one in value.values())
    return False


def is_cut_body(value: Any) -> bool:
    """Whether anything in a chat body is cut."""
    if isinstance(value, dict):
        return any(is_cut_body(one) for one in value.values())
    if isinstance(value, list):
        return is_cut(value) or any(is_cut_body(one) for one in value)
    return is_cut(value)


def content_of(obj: Mapping[str, Any]) -> Content:
    """Give the prompt: its token ids where they are logged, else its text."""
    ids, prompt = obj.get("input_ids"), obj.get("text")
    if isinstance(ids, list) and ids and not is_cut(ids) and all(type(one) is int and one >= 0 for one in ids):
        return TokenIds(ids, Text(prompt) if isinstance(prompt, str) and prompt and not is_cut(prompt) else None)
    if isinstance(prompt, str) and not is_cut(prompt):
        return Text(prompt)  # the text of /generate: no chat template; the tokenizer puts its own start before it
    if ids or prompt:
        return NoPrompt("sglang-truncated")
    return NoPrompt("prompt-embeds" if obj.get("input_embeds") is not None else "sglang-log-level")


def request_of(draft: Draft, chat: Request | None) -> Request | Skip:
    """Build the request; `chat` is what the chat route logged about it (model, user, template arguments)."""
    obj, meta = draft.obj, draft.meta
    content = content_of(obj)
    if chat and isinstance(chat.content, Messages):
        if isinstance(content, NoPrompt):
            content = chat.content
        elif isinstance(content, TokenIds):
            content = replace(content, said=chat.content)
    usage = _usage(meta)
    if isinstance(content, NoPrompt) and usage is None:
        return refusal(draft.path, draft.line, content.slug)
    base = chat or Request(draft.path, draft.line, content, draft.format)
    received = number(meta.get("request_received_ts"))
    rank = next((obj[key] for key in ("routed_dp_rank", "data_parallel_rank") if obj.get(key) is not None), None)
    rank = meta.get("dp_rank") if rank is None else rank
    return replace(
        base,
        line=draft.line,
        content=content,
        format=draft.format,
        id=draft.rid,
        time=draft.time if received is None else received,
        output=_output(draft.out),
        namespace=_namespace(obj) or base.namespace,
        session=text(obj.get("session_id")) or text(obj.get("conversation_id")) or base.session,
        replica=text(rank),
        usage=usage,
        latency=_latency(meta),
        body=draft.obj if base.body is None else base.body,
    )


def _output(out: Mapping[str, Any]) -> Output | None:
    said, ids = out.get("text"), out.get("output_ids")
    if not isinstance(said, str) and not isinstance(ids, list):
        return None
    meta = out.get("meta_info")
    finish = meta.get("finish_reason") if isinstance(meta, dict) else None
    if isinstance(finish, dict):
        finish = finish.get("type")
    whole = isinstance(ids, list) and not is_cut(ids) and all(type(one) is int for one in ids)
    return Output(
        text=said if isinstance(said, str) and not is_cut(said) else None,
        ids=ids if whole else None,
        finish=finish if isinstance(finish, str) else None,
    )


def _usage(meta: Mapping[str, Any]) -> Usage | None:
    usage = Usage(
        prompt=count(meta.get("prompt_tokens")),
        cached=count(meta.get("cached_tokens")),
        completion=count(meta.get("completion_tokens")),
    )
    return None if usage == Usage() else usage


def _latency(meta: Mapping[str, Any]) -> Latency | None:
    begun, filled = number(meta.get("forward_entry_time")), number(meta.get("prefill_finished_time"))
    latency = Latency(
        total=number(meta.get("e2e_latency")),
        ttft=number(meta.get("first_token_latency")),
        queue=number(meta.get("queue_time")),
        prefill=filled - begun if begun and filled and filled >= begun else None,
    )
    return None if latency == Latency() else latency


def _namespace(obj: Mapping[str, Any]) -> tuple[str, ...]:
    lora = text(obj.get("lora_path")) or text(obj.get("lora_id"))
    parts = (("lora", lora), ("salt", text(obj.get("cache_salt"))), ("extra_key", text(obj.get("extra_key"))))
    return tuple(f"{name}={value}" for name, value in parts if value)
