"""Rows of chat data sets on the Hugging Face hub: `messages`, or `prompt` and `completion`.

    {"messages": [{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}]}
    {"prompt": [{"role": "user", "content": "…"}], "completion": [{"role": "assistant", "content": "…"}]}
    {"prompt": "…", "completion": "…"}
    {"task_id": 0, "traj": [{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}, …]}

A row of `messages` gives one request before each answer. What tells it from a request body: it ends with an answer, and
nothing in it says that it was sent (no model, no sampling parameters, no envelope). Rows of `prompt` and `completion`
give one request. Runs of agents (tau-bench: `traj`) may end with any turn: their key alone says what they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prefixlint.logs import _convert, _datasets, _fields
from prefixlint.logs.openai_chat import is_call, is_foreign
from prefixlint.model import Messages, Output, Text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prefixlint.logs import Reader, Record, RecordKind
    from prefixlint.model import JsonObject, Request, Skip

NAME = "hf-messages"
KIND: RecordKind = "json"
STATELESS = True


def detect(record: Record) -> int:
    """Take rows that hold an answer and were sent nowhere."""
    body = record.body
    if not isinstance(body, dict) or is_call(body, record.envelope):
        return 0
    if "completion" in body and isinstance(body.get("prompt"), (str, list)):
        return 70
    messages = _turns(body)
    if not isinstance(messages, list) or not messages or not all(isinstance(one, dict) for one in messages):
        return 0
    if is_foreign({"messages": messages}):
        return 0
    ended = [messages[-1]] if "messages" in body else messages
    return 55 if any(one.get("role") == "assistant" for one in ended) else 0


def _turns(body: JsonObject) -> Any:
    """Give the conversation of a row; runs of agents (tau-bench) call it `traj`."""
    return next((body[key] for key in ("messages", "traj", "trajectory") if isinstance(body.get(key), list)), None)


class _Rows:
    """Every row is read on its own."""

    def feed(self, record: Record) -> Iterable[Request | Skip] | None:
        body = record.body
        if not isinstance(body, dict) or is_call(body, record.envelope):
            return None
        if "completion" in body:
            return _pair(record, body)
        messages = _datasets.messages_of(_turns(body))
        return None if messages is None else _datasets.requests_of(record, NAME, messages)

    def finish(self) -> Iterable[Request | Skip]:
        return ()


def _pair(record: Record, body: JsonObject) -> Iterable[Request] | None:
    prompt = body.get("prompt")
    output = _answer(body["completion"])
    if isinstance(prompt, str):
        return (_fields.build(record, NAME, Text(prompt), output=output),)
    messages = _datasets.messages_of(prompt)
    if messages is None:
        return None
    return (_fields.build(record, NAME, Messages(messages, _convert.openai_tools(body)), output=output),)


def _answer(completion: Any) -> Output | None:
    if isinstance(completion, str):
        return Output(text=completion)
    messages = _datasets.messages_of(completion)
    return None if messages is None else _fields.from_message(messages[0])


def reader() -> Reader:
    """Give a reader for one file."""
    return _Rows()
