"""OpenAI Responses bodies (`POST /v1/responses`), alone or with the response object.

    {"model": "…", "instructions": "…", "input": "…" or […items…], "tools": […]}
    {"timestamp": "…", "request": {…as above…}, "response": {"object": "response", …}}

A request that continues another (`previous_response_id`, or the same `conversation`) is expanded to the full input: the
earlier input and output items, then its own; `instructions` are not inherited, as the API has it. The earlier response
may stand later in the file (a log in reverse order). When it is not in the file, or the prompt is a template that the
server holds (`prompt: {id}`), what was sent is unknown: the request counts with what was reported, without a prompt.

The items of the last 20,000 stored responses of a file are remembered for this (`store: false` ones never).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple

from prefixlint.logs import _convert, _fields, _items
from prefixlint.model import Content, Messages, NoPrompt

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prefixlint.logs import Reader, Record, RecordKind
    from prefixlint.model import JsonObject, Request, Skip

NAME = "openai-responses"
KIND: RecordKind = "json"
BODY = True

_MARKS = ("instructions", "previous_response_id", "max_output_tokens", "conversation", "truncation")
_KEPT = 20_000


def detect(record: Record) -> int:
    """Score a record: marks of this API, or a model with an input that is no list of texts to embed."""
    body = record.body
    if not isinstance(body, dict) or "messages" in body:
        return 0
    response = record.envelope.get("response")
    if body.get("object") == "response" or (isinstance(response, dict) and response.get("object") == "response"):
        return 80
    given = body.get("input")
    items = _items.items_of(given)
    if "previous_response_id" in body or (items and any(key in body for key in _MARKS)):
        return 75
    if isinstance(given, list):
        return (
            70 if given and all(isinstance(item, dict) and ("role" in item or "type" in item) for item in given) else 0
        )
    return 40 if isinstance(given, str) and isinstance(body.get("model"), str) and _generates(body) else 0


def _generates(body: JsonObject) -> bool:
    return "embed" not in body["model"] and "moderation" not in body["model"] and "encoding_format" not in body


class _Turn(NamedTuple):
    """What one stored response adds to its chain."""

    parent: str | None
    items: list[Any]


class _Chains:
    """Requests of one file, and the responses that later ones may continue."""

    def __init__(self) -> None:
        self._turns: OrderedDict[str, _Turn] = OrderedDict()
        self._conversations: dict[str, str] = {}
        self._waiting: list[tuple[Record, str]] = []

    def feed(self, record: Record) -> Iterable[Request | Skip] | None:
        if not detect(record):
            return None
        body = record.body
        parent = self._parent(body)
        self._remember(record, parent)
        if parent is not None and parent not in self._turns and len(self._waiting) < _KEPT:
            self._waiting.append((record, parent))
            return ()
        return (self._request(record, parent),)

    def finish(self) -> Iterator[Request | Skip]:
        """Give the requests whose earlier response came later in the file, or never."""
        for record, parent in self._waiting:
            yield self._request(record, parent)
        self._waiting.clear()

    def _parent(self, body: JsonObject) -> str | None:
        previous = body.get("previous_response_id")
        if isinstance(previous, str) and previous:
            return previous
        conversation = _conversation(body)
        return None if conversation is None else self._conversations.get(conversation)

    def _remember(self, record: Record, parent: str | None) -> None:
        body, response = record.body, _response(record)
        own = (response or {}).get("id") or record.envelope.get("response_id")
        if not isinstance(own, str) or body.get("store") is False:
            return
        answered = (response or {}).get("output")
        given = _items.items_of(body.get("input")) or []
        self._turns[own] = _Turn(parent, given + answered if isinstance(answered, list) else given)
        conversation = _conversation(body)
        if conversation is not None:
            self._conversations[conversation] = own
        if len(self._turns) > _KEPT:
            self._turns.popitem(last=False)

    def _history(self, parent: str | None) -> list[Any] | None:
        """Give the items before a request, oldest first; None when a response of the chain is not in the file."""
        turns: list[_Turn] = []
        seen: set[str] = set()
        while parent is not None:
            turn = self._turns.get(parent)
            if turn is None or parent in seen:
                return None
            seen.add(parent)
            turns.append(turn)
            parent = turn.parent
        return [item for turn in reversed(turns) for item in turn.items]

    def _request(self, record: Record, parent: str | None) -> Request:
        return _fields.build(record, NAME, self._content(record.body, parent), response=_response(record))

    def _content(self, body: JsonObject, parent: str | None) -> Content:
        given = _items.items_of(body.get("input"))
        if isinstance(body.get("prompt"), dict):
            return NoPrompt("server-side-prompt")
        history = self._history(parent)
        if history is None:
            return NoPrompt("missing-parent")
        if given is None and not history:
            return NoPrompt("no-prompt")
        return _messages(body, history + (given or []))


def _messages(body: JsonObject, items: list[Any]) -> Messages:
    messages: list[JsonObject] = []
    instructions = body.get("instructions")
    if isinstance(instructions, str) and instructions:
        messages.append({"role": "system", "content": instructions})
    elif isinstance(instructions, list):  # a response object gives them back as items
        messages += _items.to_messages(instructions)
    return Messages(messages + _items.to_messages(items), _convert.openai_tools(body))


def _response(record: Record) -> JsonObject | None:
    if record.body.get("object") == "response":
        found: JsonObject = record.body
        return found
    return _fields.response_of(record.envelope) if record.envelope else None


def _conversation(body: JsonObject) -> str | None:
    conversation = body.get("conversation")
    return _fields.text(conversation.get("id") if isinstance(conversation, dict) else conversation)


def reader() -> Reader:
    """Give a reader for one file."""
    return _Chains()
