"""The vocabulary: values that travel between the stages. No I/O, no behaviour beyond checks.

Terms are the field's: *prefix*, *block* (vLLM) = *page* (SGLang), *hit* (tokens, not requests), *namespace* (what
separates one cache from another), *replica*, *TTFT*. Times are seconds since the epoch, UTC, as floats.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

JsonObject = dict[str, Any]
_EMPTY: Mapping[str, Any] = MappingProxyType({})


def _nothing() -> Mapping[str, Any]:
    """Give the shared empty mapping (a dataclass refuses it as a plain default)."""
    return _EMPTY


@dataclass(frozen=True, slots=True)
class Messages:
    """A conversation in the OpenAI chat form, whatever the log's own form was.

    `messages` are dicts with `role` (system, developer, user, assistant, tool) and `content` (a string, a list of parts
    with `type`, or None); an assistant's `tool_calls` are `{"id", "type": "function", "function": {"name",
    "arguments"}}` with `arguments` as the log held it (JSON string, or object); its reasoning is `reasoning_content`;
    a tool's result is role `tool` with `tool_call_id`. `tools` are `{"type": "function", "function": {…}}`.
    An image is a part of its own type (`image_url`, `image`); what it shows is opaque.
    `missing` is a slug for a part of the prompt that the log leaves out (an agent's system prompt, text kept on the
    server): what is here is then less than what the model saw, and token totals must not be taken from it.
    """

    messages: Sequence[JsonObject]
    tools: Sequence[JsonObject] = ()
    missing: str | None = None


@dataclass(frozen=True, slots=True)
class Text:
    """A prompt that is already text: no chat template is applied; the tokenizer adds what its model starts with.

    `rendered` is true where an engine logged the text after its chat template (special tokens are in it already).
    """

    text: str
    rendered: bool = False


@dataclass(frozen=True, slots=True)
class TokenIds:
    """A prompt as token ids (0 .. 2**32-1).

    `said` is what they say, where the log has that too: causes are read from it, tokens are counted by the ids.
    """

    ids: Sequence[int]
    said: Messages | Text | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class BlockHashes:
    """A prompt known only by the hashes of its blocks, as public traces give it.

    `hashes` identify blocks; `prefixed` says that equal hashes imply equal prefixes (Mooncake) and not only equal
    blocks (RAGPulse, where a block counts by its path). `sizes` are the tokens of each block, their sum is the prompt.
    """

    hashes: Sequence[int | str]
    sizes: Sequence[int]
    block_size: int
    prefixed: bool = True


@dataclass(frozen=True, slots=True)
class FingerprintSegment:
    """One segment of a prompt that was recorded without its text: where it stood, how long it was, a salted hash.

    `marks` are hashes of its beginnings, one for each grain of characters: equal as far as two segments are equal.
    """

    role: str
    path: str
    digest: str
    chars: int
    marks: bytes = b""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """A prompt recorded without text, as segments in wire order (tools, system, messages).

    `ids` stand for its tokens: two prompts under one salt have equal ids exactly as far as their tokens are equal. They
    are those of `tokenizer`, or, where it is None, an estimate from the lengths. `grain` is the characters of a mark.
    """

    segments: Sequence[FingerprintSegment]
    salt_id: str
    ids: Sequence[int] = ()
    tokenizer: str | None = None
    grain: int = 1


@dataclass(frozen=True, slots=True)
class NoPrompt:
    """A request whose prompt the log does not hold; `slug` names why, and with it what to switch on."""

    slug: str


Content = Messages | Text | TokenIds | BlockHashes | Fingerprint | NoPrompt


@dataclass(frozen=True, slots=True)
class Usage:
    """What the server reported, in tokens. `prompt` INCLUDES cached and written tokens whatever the provider's habit.

    `long` are those of the written tokens that were written to live for an hour.
    None is unknown, never zero: a server that does not report cached tokens has `cached=None`.
    """

    prompt: int | None = None
    cached: int | None = None
    written: int | None = None
    completion: int | None = None
    long: int | None = None


@dataclass(frozen=True, slots=True)
class Latency:
    """Times in seconds; None is unknown."""

    total: float | None = None
    ttft: float | None = None
    queue: float | None = None
    prefill: float | None = None


@dataclass(frozen=True, slots=True)
class Output:
    """What the model generated. `ids` are the generated token ids where the engine logged them.

    `finish` is the log's word: `stop`, `length`, `tool_calls` …
    """

    text: str | None = None
    reasoning: str | None = None
    tool_calls: Sequence[JsonObject] = ()
    ids: Sequence[int] | None = None
    finish: str | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a log.

    `path` and `line` say where it stands (line is 1-based; in a whole-file JSON document, the number of the record;
    `part` counts from 0 where one line holds several requests). `namespace` are the key parts that separate caches
    besides the model: `("lora", …)`, `("salt", …)`, `("org", …)` pairs flattened to strings like `salt=abc`.
    `params` are the arguments that reach the chat template (`chat_template_kwargs`, `reasoning_effort`,
    `add_generation_prompt`, …) and the toggles that break caches (`tool_choice`, `response_format`). `fields` are the
    logged values that `--by` can group by, as strings. `body` is the unwrapped body as the log held it, for paths that
    a reader of the log recognises; it is never kept beyond the stage that asked for it.
    """

    path: str
    line: int
    content: Content
    format: str
    part: int = 0
    id: str | None = None
    time: float | None = None
    model: str | None = None
    params: Mapping[str, Any] = field(default_factory=_nothing)
    output: Output | None = None
    namespace: tuple[str, ...] = ()
    session: str | None = None
    user: str | None = None
    replica: str | None = None
    usage: Usage | None = None
    latency: Latency | None = None
    fields: Mapping[str, str] = field(default_factory=_nothing)
    body: Any = None

    @property
    def said(self) -> Content:
        """The prompt as its log says it in words, where it does; else as it is counted."""
        content = self.content
        return content if not isinstance(content, TokenIds) or content.said is None else content.said


@dataclass(frozen=True, slots=True)
class Skip:
    """A line or file that gave no request: `slug` names the reason, `reason` says it for people."""

    path: str
    line: int
    slug: str
    reason: str


class MissCause(StrEnum):
    """Why a prompt token was computed again. Each missed token has one cause."""

    COLD = "cold"
    DIVERGED = "diverged"
    TOO_SHORT = "too_short"
    UNALIGNED = "unaligned"
    EVICTED = "evicted"
    EXPIRED = "expired"
    NAMESPACE = "namespace"
    REPLICA = "replica"
    IN_FLIGHT = "in_flight"
    NOT_WRITTEN = "not_written"


@dataclass(frozen=True, slots=True)
class Lookup:
    """What one request finds in one cache, in tokens. Conservation is checked: cached + misses = prompt."""

    prompt: int
    cached: int
    misses: Mapping[MissCause, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse numbers that do not add up: such a bug must not reach a report."""
        if self.cached < 0 or any(v < 0 for v in self.misses.values()):
            raise AssertionError(f"negative tokens in {self}")
        if self.cached + sum(self.misses.values()) != self.prompt:
            raise AssertionError(f"cached + misses != prompt in {self}")
