"""Claude Code transcripts (`~/.claude/projects/*/SESSION.jsonl`): the API calls behind a session.

A line is a step of the conversation, linked to the step before by `parentUuid`. One API call is written as several
assistant lines with the same `message.id` (and `requestId`) and gives one request, whose prompt is the conversation up
to its first line. The time is that of the step before, when the call was sent; the total runs to its last line. Going
back in a session starts from an earlier step, and a compaction starts over. System prompt and tools are NOT logged, so
the prompt is known only without its head (`Messages.missing`): growth and reported counts can be used, totals cannot.
`input_tokens` EXCLUDES cache reads and writes.
"""

from __future__ import annotations

from typing import Any

from prefixlint.logs import Reader, Record
from prefixlint.logs._convert import anthropic
from prefixlint.logs._exchange import body_of, labels
from prefixlint.logs._fields import output_of, seconds, text, usage_of
from prefixlint.logs._values import pick
from prefixlint.model import JsonObject, Latency, Messages, Request, Skip

NAME = "claude-code"
KIND = "json"
WHOLE = True

_KINDS = frozenset(
    "user assistant system summary file-history-snapshot mode progress attachment queue-operation last-prompt "  # noqa: SIM905  # a list of words
    "custom-title agent-name permission-mode worktree-state pr-link saved_hook_context tag".split(" ")
)


def detect(record: Record) -> int:
    """Recognise a line by its kind beside the session's id or the links between steps."""
    value = record.value
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        return 0
    linked = "parentUuid" in value and "uuid" in value
    if linked and "sessionId" in value:
        return 97
    known = value["type"] in _KINDS
    return 90 if known and ("sessionId" in value or "leafUuid" in value or "snapshot" in value) else 0


class _Conversation:
    """The steps of one thread so far, as messages in the OpenAI form.

    Each step is a position in `starts`, where the messages of the step begin.
    """

    def __init__(self) -> None:
        self.messages: list[JsonObject] = []
        self.starts: list[int] = []
        self.assistants: list[int] = []  # the positions of the model's steps, in order
        self.time: float | None = None  # when the last step that was no answer came
        self.call: _Call | None = None  # whose lines are still coming

    def rewind(self, position: int) -> None:
        """Forget the steps after `position`; what was given out keeps its own list."""
        if position + 1 < len(self.starts):
            self.messages = self.messages[: self.starts[position + 1]]
            del self.starts[position + 1 :]
            while self.assistants and self.assistants[-1] > position:
                self.assistants.pop()

    def step(self, messages: list[JsonObject]) -> int:
        self.starts.append(len(self.messages))
        self.messages.extend(messages)
        return len(self.starts) - 1


class _Call:
    """An API call whose lines are still coming."""

    def __init__(self, identity: str, record: Record, value: JsonObject, conversation: _Conversation) -> None:
        self.identity = identity
        self.record = record
        self.first = value
        self.conversation = conversation
        self.prompt = list(conversation.messages)
        self.sent = conversation.time
        self.position = -1
        self.blocks: list[Any] = []
        self.message: JsonObject = {}
        self.until: float | None = None

    def add(self, value: JsonObject) -> None:
        self.message = value["message"]
        content = self.message.get("content")
        self.blocks.extend(content if isinstance(content, list) else [{"type": "text", "text": content}])
        self.until = seconds(value.get("timestamp")) or self.until

    def answer(self) -> list[JsonObject]:
        return _messages("assistant", self.blocks)

    def request(self) -> Request:
        sent, until = self.sent, self.until
        total = None if sent is None or until is None or until < sent else round(until - sent, 6)
        value = self.first
        side = bool(value.get("isSidechain"))
        session = text(pick(value, "sessionId", "session_id"))
        agent = text(value.get("agentId")) or ("sidechain" if side else None)
        shown = {
            "version": value.get("version"),
            "branch": value.get("gitBranch"),
            "agent": agent,
            "cwd": value.get("cwd"),
        }
        content = Messages(self.prompt, missing="claude-code-head")
        return Request(
            self.record.path,
            self.record.line,
            content,
            NAME,
            part=self.record.part,
            id=text(self.message.get("id")),
            time=sent if sent is not None else until,
            model=text(self.message.get("model")),
            session=f"{session}/{agent}" if side and session else session,
            usage=usage_of(self.message.get("usage")),
            latency=None if total is None else Latency(total=total),
            output=output_of({**self.message, "role": "assistant", "content": self.blocks}),
            fields=labels(shown),
            body=body_of(content),
        )


class _Reader:
    def __init__(self) -> None:
        self._places: dict[str, tuple[_Conversation, int]] = {}
        self._open: dict[str, _Call] = {}
        self._given: set[str] = set()
        self._session: Any = None
        self._last: tuple[_Conversation, int] | None = None

    def feed(self, record: Record) -> list[Request | Skip] | None:
        value = record.value
        if detect(record) == 0:
            return None
        uuid = text(value.get("uuid")) or (f"line {record.line}.{record.part}" if "message" in value else None)
        if uuid is None:
            return []
        if value.get("sessionId") != self._session:  # transcripts put together: the one before has ended
            self._session, self._last = value.get("sessionId"), None
            given = [*self.finish(), *self._line(record, uuid, value)]
        else:
            given = self._line(record, uuid, value)
        self._last = self._places.get(uuid)
        return given

    def _line(self, record: Record, uuid: str, value: JsonObject) -> list[Request | Skip]:
        if "parentUuid" not in value and self._last is not None:  # no links: one line continues the other
            conversation, position = self._last
        else:
            conversation, position = self._before(text(value.get("parentUuid")))
        message = value.get("message")
        kind = value["type"]
        if kind == "assistant" and isinstance(message, dict) and not _synthetic(value, message):
            return self._assistant(record, uuid, conversation, position)
        ended = self._close(conversation)
        if kind == "user" and isinstance(message, dict):
            position = self._user(value, message, conversation, position)
        self._places[uuid] = (conversation, position)
        return list(ended)

    def _before(self, parent: str | None) -> tuple[_Conversation, int]:
        found = self._places.get(parent) if parent is not None else None
        return (_Conversation(), -1) if found is None else found

    def _user(self, value: JsonObject, message: JsonObject, conversation: _Conversation, position: int) -> int:
        """Results of parallel tool calls hang on the calls' own lines, beside each other: they follow one another."""
        if not conversation.assistants or position < conversation.assistants[-1]:
            conversation.rewind(position)
        conversation.time = seconds(value.get("timestamp")) or conversation.time
        return conversation.step(_messages("user", message.get("content")))

    def _assistant(self, record: Record, uuid: str, conversation: _Conversation, position: int) -> list[Request | Skip]:
        value = record.value
        identity = text(value["message"].get("id")) or uuid
        call = self._open.get(identity)
        ended: list[Request] = []
        if call is None:
            ended = self._close(conversation)
            if identity in self._given:  # a copied or late line of a call that was given out already
                self._places[uuid] = (conversation, position)
                return list(ended)
            conversation.rewind(position)
            call = self._open[identity] = conversation.call = _Call(identity, record, value, conversation)
            call.position = conversation.step([])
            conversation.assistants.append(call.position)
        call.add(value)
        self._places[uuid] = (call.conversation, call.position)
        return list(ended)

    def _close(self, conversation: _Conversation) -> list[Request]:
        """Give the call that a conversation was waiting for, as its next step has come."""
        call, conversation.call = conversation.call, None
        if call is None:
            return []
        del self._open[call.identity]
        self._given.add(call.identity)
        conversation.messages.extend(call.answer())
        return [call.request()]

    def finish(self) -> list[Request | Skip]:
        return [request for call in list(self._open.values()) for request in self._close(call.conversation)]


def reader() -> Reader:
    """Give a reader, which follows the conversations of one file."""
    return _Reader()


def _synthetic(value: JsonObject, message: JsonObject) -> bool:
    """Errors are shown as answers of a model that is none."""
    return bool(value.get("isApiErrorMessage")) or message.get("model") == "<synthetic>"


def _messages(role: str, content: Any) -> list[JsonObject]:
    if content is None:
        return []
    read = anthropic({"messages": [{"role": role, "content": content}]})
    return [] if read is None else list(read.messages)
