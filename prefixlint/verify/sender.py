"""How one request of a log is sent: its body, what keeps it apart from what was cached before, and retries."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import orjson

from prefixlint.model import JsonObject, Messages, Request, Text, TokenIds
from prefixlint.verify.replay import Call, Exchange, Load
from prefixlint.verify.targets import Ask, Target

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from prefixlint.verify.wire import Server

    Ids = NDArray[np.uint32]

RETRIES = 3
_PAUSE = 0.5  # seconds before the first retry, doubled each time, where the server does not say how long
_LONGEST_PAUSE = 30.0


@dataclass(frozen=True, slots=True)
class Apart:
    """What keeps a run from what was cached before: a `salt` for the server's namespace, or a `marker` in front.

    `marker_ids` are the marker in tokens, for prompts that are token ids.
    """

    salt: str | None = None
    marker: str | None = None
    marker_ids: tuple[int, ...] = ()

    def request(self, request: Request) -> Request:
        """Give the request as it is sent: with the marker at the beginning of its first text."""
        if self.marker is None:
            return request
        content = request.content
        if isinstance(content, Messages):
            first, *others = content.messages
            return replace(request, content=replace(content, messages=[_marked(first, self.marker), *others]))
        if isinstance(content, Text):
            return replace(request, content=replace(content, text=self.marker + content.text))
        if isinstance(content, TokenIds):
            return replace(request, content=TokenIds([*self.marker_ids, *content.ids]))
        return request


def new_salt() -> str:
    """Draw a namespace that no other run has."""
    return f"prefixlint-{secrets.token_hex(6)}"


def new_marker() -> str:
    """Draw a text that no other prompt begins with; drawn letters come first, so that prompts part at once."""
    return f"{secrets.token_hex(4)} "


def _marked(message: JsonObject, marker: str) -> JsonObject:
    content = message.get("content")
    if isinstance(content, list):
        for number, part in enumerate(content):
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                marked = {**part, "text": marker + part["text"]}
                return {**message, "content": [*content[:number], marked, *content[number + 1 :]]}
        return {**message, "content": [{"type": "text", "text": marker}, *content]}
    return {**message, "content": marker + (content if isinstance(content, str) else "")}


def body_of(request: Request) -> dict[str, Any]:
    """Give the chat body of a request that is a conversation."""
    content = request.content
    assert isinstance(content, Messages)
    body: dict[str, Any] = {**request.params, "messages": [_as_sent(message) for message in content.messages]}
    if content.tools:
        body["tools"] = list(content.tools)
    if request.namespace:
        body["cache_salt"] = "|".join(request.namespace)
    return body


def _as_sent(message: JsonObject) -> JsonObject:
    """Give a message as APIs take it: without keys that have no value, the arguments of calls as JSON text."""
    kept = {key: value for key, value in message.items() if value is not None or key == "content"}
    made = kept.get("tool_calls")
    if isinstance(made, list):
        kept["tool_calls"] = [_call_as_sent(one) for one in made]
    return kept


def _call_as_sent(made: Any) -> Any:
    function = made.get("function") if isinstance(made, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), dict | list):
        return made
    return {**made, "function": {**function, "arguments": orjson.dumps(function["arguments"]).decode()}}


@dataclass(slots=True)
class Sender:
    """Sends calls to one server, as `replay.run` asks for.

    `ids` are prompts by the number of their call, which go by the route that takes token ids, and not by the chat's.
    `usual` is the output length of requests of which the log does not tell it.
    """

    server: Server
    target: Target
    model: str | None
    load: Load
    apart: Apart = field(default_factory=Apart)
    ids: Mapping[int, Ids] = field(default_factory=dict)
    usual: int = 1
    retries: int = RETRIES
    stopped: threading.Event = field(default_factory=threading.Event)

    def __call__(self, call: Call) -> Exchange:
        """Send a call, again where the server is only busy; what goes wrong is in the result."""
        began = time.thread_time()
        path, sent = self.asked(call)
        body = _encoded(sent)
        tried = 0
        while True:
            streamed = self.server.stream(path, body)
            failure = streamed.failure
            if failure is None or not failure.passing or tried >= self.retries or self.stopped.is_set():
                break
            pause = failure.retry_after if failure.retry_after is not None else _PAUSE * 2**tried
            tried += 1
            self.stopped.wait(min(pause, _LONGEST_PAUSE))
        measured = None if streamed.failure is not None else self.target.reading(streamed)
        overhead = time.thread_time() - began
        return Exchange(call, streamed.sent, streamed.sent, streamed.done, overhead, measured, streamed.failure, tried)

    def asked(self, call: Call) -> tuple[str, dict[str, Any]]:
        """Give path and body of what is sent."""
        count = self.load.tokens(call, self.usual)
        ask = Ask(
            max_tokens=max(1, count),
            salt=self.apart.salt,
            model=self.model,
            ignore_eos=self.load.output == "logged",
            ids=count > 1,
        )
        prompt = self.ids.get(call.number)
        if prompt is None:
            return self.target.chat(body_of(self.apart.request(call.request)), ask)
        if self.target.salted() is not None:
            ask = replace(ask, salt=ask.namespace("|".join(call.request.namespace)))
        found = self.target.by_ids(prompt.tolist(), ask)
        assert found is not None  # what has no route was left out before
        return found


def _encoded(body: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(body)
    except TypeError:
        from prefixlint.reports.json import dump  # replaces what is no valid text

        return dump(body).encode()
