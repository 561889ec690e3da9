"""Codex rollouts (`~/.codex/sessions/**/rollout-*.jsonl`): the API calls behind a session.

`session_meta` gives the instructions (and `dynamic_tools`), `turn_context` the model, `response_item` the conversation
in the Responses form; an event `token_count` closes a call and gives its usage (`last_token_usage`, whose
`input_tokens` INCLUDE cached ones). The prompt is everything before the model's last run of items; it was sent when its
last item came. The built-in tools are not logged (`Messages.missing`). A compaction replaces the history; going back
cuts it.
"""

from __future__ import annotations

from typing import Any

from prefixlint.logs import Reader, Record
from prefixlint.logs._convert import tool_of
from prefixlint.logs._exchange import body_of, labels
from prefixlint.logs._fields import count, output_of, seconds, text
from prefixlint.logs._items import Writer
from prefixlint.logs._values import compact, decoded, pick, rows, table
from prefixlint.model import JsonObject, Latency, Messages, Request, Skip, Usage

NAME = "codex"
KIND = "json"
WHOLE = True

_KINDS = ("session_meta", "turn_context", "response_item", "event_msg", "compacted")
_CALLS = ("function_call", "custom_tool_call", "local_shell_call", "web_search_call", "tool_search_call")
_RESULTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output", "tool_search_output")


def detect(record: Record) -> int:
    """Recognise a line by its kind and payload."""
    value = record.value
    known = isinstance(value, dict) and value.get("type") in _KINDS and isinstance(value.get("payload"), dict)
    return 97 if known else 0


class _History:
    """The items of a conversation and the messages that they make, in step."""

    def __init__(self, instructions: str | None = None) -> None:
        self.items: list[tuple[JsonObject, float | None]] = []
        self._writer = Writer()
        if instructions:
            self._writer.add({"role": "system", "content": instructions})
        self._starts: list[int] = []  # the number of messages before each item

    def add(self, item: JsonObject, time: float | None) -> None:
        self._starts.append(len(self._writer.messages))
        self.items.append((item, time))
        plain = _plain(item)
        if plain is not None:
            self._writer.add(plain)

    def before(self, split: int) -> list[JsonObject]:
        """Give the messages of the items before one that does not continue the message before it."""
        messages = self._writer.messages
        return messages[: self._starts[split]] if split < len(self._starts) else list(messages)

    def roll_back(self, turns: int) -> None:
        """Forget the last turns, each from the user's message on."""
        for _ in range(min(turns, len(self.items))):
            while self.items and not _asked(self.items.pop()[0]):
                pass
        if turns and len(self.items) < len(self._starts):
            self._writer.cut(self._starts[len(self.items)])
            del self._starts[len(self.items) :]

    def answer_start(self) -> int:
        """Give where the model's last run of items starts; results that came before the counters belong behind it."""
        at = len(self.items)
        while at and not _generated(self.items[at - 1][0]):
            at -= 1
        if not at:  # nothing of the answer was logged
            return len(self.items)
        while at and _generated(self.items[at - 1][0]):
            at -= 1
        return at


class _Reader:
    def __init__(self) -> None:
        self._meta: JsonObject = {}
        self._turn: JsonObject = {}
        self._history = _History()
        self._total: Any = None

    def feed(self, record: Record) -> list[Request | Skip] | None:
        value = record.value
        if detect(record) == 0:
            return None
        payload, time = value["payload"], seconds(value.get("timestamp"))
        match value["type"]:
            case "session_meta":
                self._start(payload)
            case "turn_context":
                self._turn = payload
            case "response_item":
                self._history.add(payload, time)
            case "compacted":
                self._compact(payload, time)
            case _:
                return self._event(record, payload, time)
        return []

    def _start(self, meta: JsonObject) -> None:
        """Begin a session; a resumed one repeats its own `session_meta`, a fork its parent's before any item."""
        if self._meta and (not self._history.items or meta.get("id") == self._meta.get("id")):
            return
        self._meta, self._turn, self._total = meta, {}, None
        self._history = _History(_instructions(meta))

    def _compact(self, payload: JsonObject, time: float | None) -> None:
        history = decoded(payload.get("replacement_history"))
        if not isinstance(history, list):
            history = [{"type": "message", "role": "user", "content": payload.get("message")}]
        self._history = _History(_instructions(self._meta))
        for item in rows(history):
            self._history.add(item, time)

    def _event(self, record: Record, payload: JsonObject, time: float | None) -> list[Request | Skip]:
        if payload.get("type") == "thread_rolled_back":
            self._history.roll_back(count(payload.get("num_turns")) or 0)
        info = payload.get("info")
        if payload.get("type") != "token_count" or not isinstance(info, dict):
            return []
        last, total = table(info.get("last_token_usage")), info.get("total_token_usage")
        if not last or (total is not None and total == self._total):  # only the rate limits are news
            return []
        self._total = total
        split = self._history.answer_start()
        return [self._request(record, split, last, time)]

    def _request(self, record: Record, split: int, last: JsonObject, time: float | None) -> Request:
        sent = next((when for _, when in reversed(self._history.items[:split]) if when is not None), None)
        total = None if sent is None or time is None or time < sent else round(time - sent, 6)
        shown = {
            "effort": self._turn.get("effort"),
            "version": self._meta.get("cli_version"),
            "provider": self._meta.get("model_provider"),
            "forked_from": self._meta.get("forked_from_id"),
            "parent": self._meta.get("parent_thread_id"),
            "cwd": pick(self._turn, "cwd") or self._meta.get("cwd"),
        }
        answer = [item for item, _ in self._history.items[split:] if _generated(item)]
        content = Messages(self._history.before(split), list(self._tools()), missing="codex-tools")
        return Request(
            record.path,
            record.line,
            content,
            NAME,
            part=record.part,
            time=sent if sent is not None else time,
            model=text(pick(self._turn, "model") or self._meta.get("model")),
            params={"reasoning_effort": self._turn["effort"]} if "effort" in self._turn else {},
            session=text(pick(self._meta, "id", "session_id")),
            usage=_usage(last),
            latency=None if total is None else Latency(total=total),
            output=output_of({"output": answer}) if answer else None,
            fields=labels(shown),
            body=body_of(content),
        )

    def _tools(self) -> list[JsonObject]:
        return [tool_of(tool) for tool in rows(self._meta.get("dynamic_tools"))]

    def finish(self) -> list[Request | Skip]:
        return []


def reader() -> Reader:
    """Give a reader, which follows the conversation of one file."""
    return _Reader()


def _instructions(meta: JsonObject) -> str | None:
    held = pick(meta, "base_instructions", "instructions")
    return text(held.get("text") if isinstance(held, dict) else held)


def _plain(item: JsonObject) -> JsonObject | None:
    """Give an item in the form of the Responses API, without what Codex wraps around results; None if it is no text."""
    kind = item.get("type")
    if kind in _RESULTS and isinstance(held := item.get("output"), dict):
        inner = pick(held, "content", "output")
        return {**item, "output": compact(held if inner is None else inner)}
    if kind == "local_shell_call":
        return {**item, "type": "function_call", "name": "local_shell", "arguments": item.get("action")}
    known = kind in _RESULTS or kind in ("message", "reasoning", "function_call", "custom_tool_call")
    return item if known else None


def _generated(item: JsonObject) -> bool:
    kind = item.get("type")
    return kind == "reasoning" or kind in _CALLS or (kind == "message" and item.get("role") == "assistant")


def _asked(item: JsonObject) -> bool:
    return item.get("type") == "message" and item.get("role") == "user"


def _usage(last: JsonObject) -> Usage:
    return Usage(
        count(last.get("input_tokens")),
        count(last.get("cached_input_tokens")),
        None,
        count(last.get("output_tokens")),
    )
