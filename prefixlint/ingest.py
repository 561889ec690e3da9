"""Requests in, a table of interned prompts out: families, conversations, rendering and tokenization in one pass.

A request whose prompt the chat template refuses, or that holds none, stays in the table without tokens and is counted;
what the log reports about it is still used.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prefixlint import bodies, marks
from prefixlint.chat import Renderer
from prefixlint.errors import TemplateRefusedError
from prefixlint.families import Grouper, plain_text
from prefixlint.model import (
    BlockHashes,
    Fingerprint,
    Messages,
    NoPrompt,
    Output,
    Request,
    Skip,
    Text,
    TokenIds,
)
from prefixlint.renderedtext import as_messages
from prefixlint.simulate import only_sampled
from prefixlint.table import Table
from prefixlint.tokens import Encoder
from prefixlint.watching import Watcher

# Skipped lines beyond this are counted but not kept: a log of another format may skip every line.
KEPT_SKIPS = 1000

ServerTokens = Callable[[Request], Sequence[int]]


@dataclass(slots=True)
class History:
    """Which earlier turns conversations refer to, and which turns the log holds: tells whether a log was sampled."""

    _last: set[int] = field(default_factory=set)
    _referred: set[int] = field(default_factory=set)

    def add(self, messages: Sequence[dict[str, Any]]) -> None:
        """Note the newest message of a request, and the one that the request before it must have ended with."""
        if not messages:
            return
        self._last.add(_message_key(messages[-1]))
        for i in range(len(messages) - 1, 0, -1):
            if messages[i].get("role") == "assistant":
                self._referred.add(_message_key(messages[i - 1]))
                return

    @property
    def referred(self) -> int:
        """Count the distinct earlier turns that conversations refer to."""
        return len(self._referred)

    @property
    def missing(self) -> int:
        """Count those that the log does not hold."""
        return len(self._referred - self._last)


@dataclass(slots=True)
class Ingested:
    """What a log holds, ready to be replayed.

    `no_prompt` counts requests without a prompt by the slug of the reason, `refused` those whose prompt could not be
    rendered by what the chat template said, `partial` those of which the log leaves a part out (`Messages.missing`),
    `cut` those that hold a text that ends as if the log had cut it.
    """

    table: Table
    grouper: Grouper
    skipped: list[Skip] = field(default_factory=list)
    skipped_total: int = 0
    skipped_kinds: dict[tuple[str, str], tuple[Skip, int]] = field(default_factory=dict)
    no_prompt: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    partial: dict[str, int] = field(default_factory=dict)
    cut: int = 0
    history: History = field(default_factory=History)

    def skip(self, item: Skip) -> None:
        """Count what gave no request; the first ones are kept, and the first of each file and reason."""
        self.skipped_total += 1
        if len(self.skipped) < KEPT_SKIPS:
            self.skipped.append(item)
        kind = (item.path, item.slug)
        if kind in self.skipped_kinds or len(self.skipped_kinds) < KEPT_SKIPS:
            first, count = self.skipped_kinds.get(kind, (item, 0))
            self.skipped_kinds[kind] = first, count + 1


def unmarked(_request: Request) -> str | None:
    """Say that no request's marks are to be found."""
    return None


@dataclass(slots=True)
class Ingest:
    """The settings of one pass. `by` names the fields that requests are grouped by; `keep_ids` keeps request ids.

    `marked` says whether a request's cache marks are to be found: `explicit` ones, the `implicit` one as well, or None.
    `watcher` is shown the requests as they pass, to find what breaks prefixes; None where that is not asked for.
    """

    encoder: Encoder
    template: Renderer | None
    by: Sequence[str] = ()
    keep_ids: bool = False
    server_tokens: ServerTokens | None = None
    stop_ids: frozenset[int] = frozenset()
    marked: Callable[[Request], str | None] = unmarked
    watcher: Watcher | None = None

    def run(self, items: Iterable[Request | Skip]) -> Ingested:
        """Read all requests; the caller may stop the iteration, what was read so far is complete."""
        out = Ingested(Table(), Grouper())
        for item in items:
            if isinstance(item, Skip):
                out.skip(item)
            else:
                self._request(item, out)
        self.encoder.flush()
        return out

    def _request(self, request: Request, out: Ingested) -> None:
        family = out.grouper.add(request)
        row = out.table.add(
            request,
            family=family,
            conversation=_conversation(request, family),
            group=tuple(field_value(request, key) for key in self.by),
            cut=_last_not_computed(request.output, self.stop_ids),
        )
        if self.watcher is not None:
            self.watcher.add(request, row, family)
        if self.keep_ids and request.id is not None:
            out.table.ids[row] = request.id
        content = request.content
        if isinstance(content, Messages):
            out.history.add(content.messages)
            out.cut += any(_is_cut(message) for message in (*content.messages[:1], *content.messages[-1:]))
            if content.missing is not None:
                _count(out.partial, content.missing)
        self._prompt(request, out, out.table.conversation[-1])

    def add_prompts(self, requests: Iterable[tuple[Hashable, Request]], table: Table) -> None:
        """Put only the prompts of requests into a table, see `Table.add_prompt`; each comes with its conversation."""
        out = Ingested(table, Grouper())
        for conversation, request in requests:
            table.add_prompt(request, cut=_last_not_computed(request.output, self.stop_ids))
            self._prompt(request, out, conversation)
        self.encoder.flush()

    def _prompt(self, request: Request, out: Ingested, conversation: Hashable) -> None:
        try:
            self._content(request, request.content, out, conversation)
        except TemplateRefusedError as error:
            out.table.set_none()
            _count(out.refused, error.message)
        except ValueError as error:
            out.table.set_none()
            _count(out.refused, str(error))
        except (TypeError, AttributeError, LookupError) as error:  # a request of odd types, which no server takes
            out.table.set_none()
            _count(out.refused, f"what it holds is not what its format asks for ({type(error).__name__})")

    def _content(self, request: Request, content: Any, out: Ingested, conversation: Hashable) -> None:
        table = out.table
        if isinstance(content, BlockHashes):
            table.set_blocks(content)
        elif isinstance(content, NoPrompt):
            table.set_none()
            _count(out.no_prompt, content.slug)
        elif self.server_tokens is not None and isinstance(content, Messages | Text):
            table.set_tokens(self.encoder.add_ids(self.server_tokens(request)), self._output_ids(request.output))
        elif isinstance(content, Messages):
            self._messages(request, content, table, conversation)
        elif isinstance(content, Text):
            output = self._output_ids(request.output) or self._output_text(request.output)
            table.set_tokens(self.encoder.add(content.text, special=not content.rendered), output)
        elif isinstance(content, TokenIds):
            table.set_tokens(self.encoder.add_ids(content.ids), self._output_ids(request.output))
        else:
            assert isinstance(content, Fingerprint)
            self._fingerprint(request, content, out)

    def _fingerprint(self, request: Request, content: Fingerprint, out: Ingested) -> None:
        if content.ids:
            out.table.set_tokens(self.encoder.add_ids(content.ids), self._output_ids(request.output))
        else:
            out.table.set_none()
            _count(out.refused, "a fingerprint without tokens")

    def _messages(self, request: Request, content: Messages, table: Table, conversation: Hashable) -> None:
        if self.template is None:
            raise TemplateRefusedError("the model has no chat template", slug="no-chat-template")
        prompt = self.template.prompt(content, params=request.params, time=request.time)
        segments = self.encoder.add(prompt, special=False, talk=conversation)
        marked = self.marked(request)
        if marked is not None and (blocks := marks.blocks(request.body, prompt, implicit=marked == "implicit")):
            table.marks[len(table) - 1] = blocks
        output = self._output_ids(request.output)
        if not output and request.output is not None:
            text = self._generated(request, content, request.output, prompt)
            output = self.encoder.add(text, special=False) if text else ()
        table.set_tokens(segments, output)

    def _generated(self, request: Request, content: Messages, output: Output, prompt: str) -> str | None:
        """Give what the model wrote; plain text needs no template to tell."""
        if output.text and not output.reasoning and not output.tool_calls:
            return output.text
        assert self.template is not None
        return self.template.generated(content, output, params=request.params, time=request.time, prompt=prompt)

    def _output_ids(self, output: Output | None) -> Sequence[int]:
        if output is None or not output.ids:
            return ()
        return self.encoder.add_ids(output.ids)

    def _output_text(self, output: Output | None) -> Sequence[int]:
        if output is None or not output.text:
            return ()
        return self.encoder.add(output.text, special=False)


def _last_not_computed(output: Output | None, stop_ids: frozenset[int]) -> bool:
    """Tell whether the output's last token was only sampled, so that no later request can reuse it."""
    if output is None:
        return False
    return only_sampled(output.ids[-1] if output.ids else None, output.finish, stop_ids)


def field_value(request: Request, key: str) -> str | None:
    """Give the value that `--by` groups by: a name of the vocabulary, or any logged field."""
    known = {
        "model": request.model,
        "user": request.user,
        "session": request.session,
        "replica": request.replica,
        "path": request.path,
        "format": request.format,
        "namespace": " ".join(request.namespace) or None,
    }
    if key in known and known[key] is not None:
        return known[key]
    if key in ("day", "hour"):
        return _calendar(request.time, key)
    return request.fields.get(key)


def _calendar(time: float | None, key: str) -> str | None:
    from datetime import UTC, datetime

    if time is None:
        return None
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d" if key == "day" else "%Y-%m-%d %H:00")


def _conversation(request: Request, family: int) -> Any:
    """Recognise a conversation by its logged id, or by its family and first message behind the system text."""
    if request.session is not None:
        return ("session", request.session)
    content = as_messages(request.said)
    if isinstance(content, Messages):
        for message in content.messages:
            if message.get("role") not in ("system", "developer"):
                return (family, _message_key(message))
    return ("request", request.path, request.line, request.part)


def _message_key(message: dict[str, Any]) -> int:
    return hash((str(message.get("role")), plain_text(message.get("content"))))


def _count(counts: dict[str, int], reason: str) -> None:
    counts[reason] = counts.get(reason, 0) + 1


def _is_cut(message: Mapping[str, Any]) -> bool:
    """Tell whether a log seems to have cut a message; the results of tools are cut by those who send them."""
    content = message.get("content")
    return isinstance(content, str) and message.get("role") != "tool" and bodies.is_cut(content)
