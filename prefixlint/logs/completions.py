"""Bodies with a raw prompt: OpenAI and vLLM completions, SGLang `/generate`, llama.cpp `/completion`.

    {"model": "…", "prompt": "text" | [ids] | ["text", …] | [[ids], …], "max_tokens": 64}
    {"text": "…" | ["…", …], "sampling_params": {…}}      {"input_ids": [ids] | [[ids], …], …}

A list of prompts is several requests: `part` counts them from 0. Text goes to the tokenizer as it is, without a chat
template; token ids need no tokenizer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prefixlint.logs import _fields
from prefixlint.model import Content, Output, Text, TokenIds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prefixlint.logs import Reader, Record, RecordKind
    from prefixlint.model import JsonObject, Request, Skip

NAME = "completions"
KIND: RecordKind = "json"
BODY = True
STATELESS = True

_LARGEST_ID = 1 << 32
_OTHERS = ("messages", "hash_ids", "conversations", "contents", "completion")


def detect(record: Record) -> int:
    """Take a body with a prompt of text or ids and no messages."""
    body = record.body
    if not isinstance(body, dict) or any(key in body for key in _OTHERS) or prompt_of(body) is None:
        return 0
    response = record.envelope.get("response")
    if isinstance(response, dict) and isinstance(response.get("choices"), list):
        return 60
    return 50 if any(key in body for key in ("model", "max_tokens", "sampling_params", "n_predict", "stream")) else 30


def prompt_of(body: JsonObject) -> list[Content] | None:
    """Give the prompts of a body, or None when it has none of a kind that is known."""
    for key in ("prompt", "prompt_token_ids", "input_ids"):
        if body.get(key):
            return _prompts(body[key])
    return _prompts(body["text"]) if "sampling_params" in body and body.get("text") else None


def _prompts(value: Any) -> list[Content] | None:
    if isinstance(value, str):
        return [Text(value)]
    if not isinstance(value, list) or not value:
        return None
    if _is_ids(value):
        return [TokenIds(value)]
    found: list[Content] = []
    for one in value:
        if isinstance(one, str):
            found.append(Text(one))
        elif isinstance(one, list) and _is_ids(one):
            found.append(TokenIds(one))
        else:
            return None
    return found


def _is_ids(values: list[Any]) -> bool:
    return all(type(value) is int and 0 <= value < _LARGEST_ID for value in values)


class _Bodies:
    """Every record is read on its own."""

    def feed(self, record: Record) -> Iterable[Request | Skip] | None:
        body = record.body
        if not isinstance(body, dict) or any(key in body for key in _OTHERS):
            return None
        prompts = prompt_of(body)
        if prompts is None:
            return None
        if len(prompts) == 1:
            return (_fields.build(record, NAME, prompts[0]),)
        return _several(record, prompts)

    def finish(self) -> Iterable[Request | Skip]:
        return ()


def _several(record: Record, prompts: list[Content]) -> list[Request]:
    """Several prompts of one body: the answer is told apart by its index, the usage is of all and so of none."""
    response = _fields.response_of(record.envelope) or {}
    shared = {key: value for key, value in response.items() if key not in ("usage", "choices")}
    envelope = {key: value for key, value in record.envelope.items() if key != "usage"}
    found = []
    for part, prompt in enumerate(prompts):
        answer = _answer(response, part)
        found.append(_fields.build(record, NAME, prompt, envelope=envelope, response=shared, part=part, output=answer))
    return found


def _answer(response: JsonObject, part: int) -> Output | None:
    choices = response.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict) and choice.get("index") == part:
            return _fields.output_of({"choices": [choice]})
    return None


def reader() -> Reader:
    """Give a reader for one file."""
    return _Bodies()
