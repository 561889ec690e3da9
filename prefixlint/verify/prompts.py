"""Prompts as token ids, as the server is expected to make them: with the model's own files, or by asking the server."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from prefixlint.chat import ChatTemplate, Renderer, renderer
from prefixlint.errors import ModelError, PrefixlintError, TemplateRefusedError
from prefixlint.model import Messages, Request, Text, TokenIds
from prefixlint.modelfiles import ModelFiles, resolve
from prefixlint.tokens import Encoder
from prefixlint.verify.sender import body_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from prefixlint.chatroute import Route
    from prefixlint.verify.targets import Target
    from prefixlint.verify.wire import Server

    Ids = NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a request has no prompt."""

    slug: str
    message: str


class Tokens(Protocol):
    """Where token ids come from; `name` says it."""

    name: str
    own: bool
    """Whether they are this program's own, so that they can differ from the server's."""

    def ids(self, requests: Sequence[Request]) -> list[Ids | Refused]:
        """Give the prompt of each request."""

    def output(self, text: str) -> Ids:
        """Give the ids of a text that the model wrote, without anything around it."""

    def text(self, ids: Sequence[int]) -> str | None:
        """Give the text of some tokens; None where it is not known."""


class Files:
    """A model's own tokenizer and chat template."""

    own = True

    def __init__(self, files: ModelFiles, *, route: Route = "vllm") -> None:
        self.name = files.name
        self._files = files
        self._route = route
        self._encoder = Encoder(files.tokenizer, bos=files.raw_start())
        self._template: Renderer | None = renderer(files) if files.templates or files.renderer == "harmony" else None

    @property
    def renders(self) -> bool:
        """Whether conversations can be written as prompts."""
        return self._template is not None

    def ids(self, requests: Sequence[Request]) -> list[Ids | Refused]:
        """Render and tokenize."""
        added = [self._added(request) for request in requests]
        self._encoder.flush()
        segments = [one for one in added if not isinstance(one, Refused)]
        found = self._encoder.sequences(segments)
        return [one if isinstance(one, Refused) else np.array(next(found), np.uint32) for one in added]

    def output(self, text: str) -> Ids:
        """Tokenize a text as it is."""
        segments = self._encoder.add(text, special=False)
        self._encoder.flush()
        return np.array(self._encoder.ids(segments), np.uint32)

    def text(self, ids: Sequence[int]) -> str | None:
        """Decode."""
        return self._encoder.decode(ids)

    def _added(self, request: Request) -> Sequence[int] | Refused:
        content = request.content
        try:
            if isinstance(content, TokenIds):
                return self._encoder.add_ids(content.ids)
            if isinstance(content, Text):
                return self._encoder.add(content.text, special=not content.rendered)
            assert isinstance(content, Messages)
            return self._encoder.add(self._rendered(request, content), special=False)
        except TemplateRefusedError as error:
            return Refused("template-refused", f"the chat template refuses the conversation: {error.message}")
        except ValueError as error:
            return Refused("bad-prompt", f"the prompt cannot be tokenized: {error}")

    def _rendered(self, request: Request, content: Messages) -> str:
        if self._template is None:
            raise TemplateRefusedError("the model has none", slug="no-chat-template")
        now = time.time()  # servers render today's date, where a template asks for it
        if isinstance(self._template, ChatTemplate):
            return self._template.prompt(content, params=request.params, time=now, route=self._route)
        return self._template.prompt(content, params=request.params, time=now)


class Asked:
    """The server itself, by what it tells of its prompts."""

    own = False

    def __init__(self, server: Server, target: Target, model: str | None) -> None:
        self.name = "the server's own tokenizer"
        self._server = server
        self._target = target
        self._model = model

    def ids(self, requests: Sequence[Request]) -> list[Ids | Refused]:
        """Ask for one prompt after another."""
        return [self._ids(request) for request in requests]

    def _ids(self, request: Request) -> Ids | Refused:
        content = request.content
        if isinstance(content, TokenIds):
            return np.array(content.ids, np.uint32)
        if not isinstance(content, Messages):
            return Refused("text-prompt", "a prompt of plain text needs the model's tokenizer: name it with --model")
        try:
            found = self._target.tokens(self._server, body_of(request), self._model)
        except PrefixlintError as error:
            return Refused("not-tokenized", f"the server did not tokenize the prompt: {error.message}")
        if found is None:
            return Refused("not-tokenized", "the server refuses to tokenize the prompt")
        return np.array(found, np.uint32)

    def output(self, text: str) -> Ids:  # noqa: ARG002 - no server tells it for any text
        """Give nothing: what was generated is then only known where answers hold its ids."""
        return np.empty(0, np.uint32)

    def text(self, ids: Sequence[int]) -> str | None:  # noqa: ARG002
        """Give nothing."""
        return None


@dataclass(frozen=True, slots=True)
class Source:
    """Which model's files to use: what the user named, and what the server says that it runs."""

    model: str | None = None
    tokenizer: str | None = None
    chat_template: str | None = None
    served: str | None = None
    offline: bool = False


def choose(
    source: Source, server: Server, target: Target, *, tokenizes: bool, route: Route
) -> tuple[Tokens | None, str]:
    """Choose where token ids come from: the user's word, the files of the served model where they are here, the server.

    Gives None where there is nothing, with the reason. Raises ModelError for files that the user named.
    """
    if source.model or source.tokenizer or source.chat_template:
        named = source.model or _here(source.served)
        files = resolve(named, tokenizer=source.tokenizer, chat_template=source.chat_template, offline=source.offline)
        return Files(files, route=route), ""
    local = _here(source.served)
    if local is not None:
        try:
            return Files(resolve(local, offline=True), route=route), ""
        except ModelError:
            pass
    if tokenizes:
        return Asked(server, target, source.served), ""
    if source.served is not None and not source.offline:
        try:
            return Files(resolve(source.served), route=route), ""
        except PrefixlintError as error:
            return None, f"the tokenizer of {source.served} is not known ({error.message}): name it with --model"
    return None, "the model's tokenizer is not known: name it with --model"


def _here(name: str | None) -> str | None:
    """Give a served model's name where it is a file or folder of this machine."""
    from pathlib import Path

    try:
        return name if name is not None and Path(name).is_absolute() and Path(name).exists() else None
    except OSError:
        return None


def differing(ours: Ids, theirs: Ids) -> int | None:
    """Give the position of the first differing token of two prompts; None where they are equal."""
    length = min(ours.size, theirs.size)
    apart = np.flatnonzero(ours[:length] != theirs[:length])
    if apart.size:
        return int(apart[0])
    return None if ours.size == theirs.size else length
