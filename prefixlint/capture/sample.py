"""Which conversations are written: all turns of one, or none, decided by a seed and the head of the conversation."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

import orjson

# Where clients name a conversation, in the body or in a header.
_BODY_IDS = ("session_id", "conversation_id", "thread_id", "conversation", "prompt_cache_key")
_METADATA_IDS = ("session_id", "conversation_id", "thread_id")
_HEADER_IDS = (
    "x-session-id",
    "session-id",
    "session_id",
    "x-conversation-id",
    "helicone-session-id",
    "x-claude-code-session-id",
)
# What chat templates write where an assistant's turn begins: up to the first, a prompt is the head of its conversation.
_ASSISTANT = re.compile(
    r"<\|im_start\|>assistant|<\|start_header_id\|>assistant|<\|assistant\|>|<｜Assistant｜>|"
    r"<start_of_turn>model|\[/INST\]|"
    r"<\|start\|>assistant|\n\n?(?:Assistant|ASSISTANT|AI):"
)
_CHAINS_KEPT = 100_000


class Sampler:
    """Chooses a share of conversations. Responses that continue an earlier one by its id follow that one."""

    def __init__(self, rate: float, seed: int) -> None:
        self.rate = rate
        self._key = seed.to_bytes(8, "little", signed=True)
        self._conversation_of: dict[str, bytes] = {}

    def conversation(self, body: Any, headers: Mapping[str, str]) -> bytes:
        """Give what identifies the conversation that a request belongs to, as a digest of 8 bytes."""
        previous = body.get("previous_response_id") if isinstance(body, dict) else None
        if isinstance(previous, str) and previous in self._conversation_of:
            return self._conversation_of[previous]
        return self._digest(_identity(body, headers))

    def answered(self, response_id: str | None, conversation: bytes) -> None:
        """Remember the response by which a later request may continue the conversation."""
        if response_id is not None:
            if len(self._conversation_of) >= _CHAINS_KEPT:
                del self._conversation_of[next(iter(self._conversation_of))]
            self._conversation_of[response_id] = conversation

    def keeps(self, conversation: bytes) -> bool:
        """Whether the conversation is written."""
        return int.from_bytes(conversation, "little") < self.rate * 2**64

    def _digest(self, value: bytes) -> bytes:
        return hashlib.blake2b(value, key=self._key, digest_size=8).digest()


def named_conversation(body: Any, headers: Mapping[str, str]) -> str | None:
    """Give the client's own name of the conversation, if it says one."""
    if isinstance(body, dict):
        metadata = body.get("metadata")
        places = [(body, _BODY_IDS), (metadata if isinstance(metadata, dict) else {}, _METADATA_IDS)]
        for holder, names in places:
            for name in names:
                value = holder.get(name)
                value = value.get("id") if isinstance(value, dict) else value
                if isinstance(value, str) and value:
                    return value
    return next((headers[name] for name in _HEADER_IDS if headers.get(name)), None)


def _identity(body: Any, headers: Mapping[str, str]) -> bytes:
    named = named_conversation(body, headers)
    if named is not None:
        return b"id\0" + named.encode("utf-8", "surrogatepass")
    if not isinstance(body, dict):
        return b"body\0" + _dumps(body)
    for key in ("messages", "input", "contents"):
        if isinstance(body.get(key), list):
            return b"head\0" + _dumps(_first_user_message(body[key]))
    for key in ("prompt", "text", "input", "inputs"):
        if isinstance(body.get(key), str):
            return b"text\0" + _ASSISTANT.split(body[key], maxsplit=1)[0].encode("utf-8", "surrogatepass")
    return b"body\0" + _dumps(body)


def _first_user_message(messages: list[Any]) -> Any:
    """Give what the first user said: the system prompt may hold a clock, later turns are not there at first."""
    for message in messages:
        if isinstance(message, dict) and message.get("role") == "user":
            return _plain(message.get("content", message.get("parts")))
    return messages[:1]


def _plain(content: Any) -> Any:
    """Give content without cache markers, which move between turns; a lone text part is the same as its text."""
    if not isinstance(content, list):
        return content
    parts = [part.get("text", part) if isinstance(part, dict) else part for part in content]
    return parts[0] if len(parts) == 1 else parts


def _dumps(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:
        return repr(value).encode("utf-8", "surrogatepass")
