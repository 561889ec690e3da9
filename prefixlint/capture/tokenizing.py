"""Token ids of a request as `analyze` counts them, for fingerprints: the same readers, templates and tokenizers."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import replace

from prefixlint.capture.fingerprint import TokenizedPrompt
from prefixlint.chat import ChatTemplate
from prefixlint.ingest import Ingest
from prefixlint.logs import Record
from prefixlint.logs._detect import guess_body
from prefixlint.model import JsonObject, Output, Request
from prefixlint.modelfiles import ModelFiles, resolve
from prefixlint.tokens import Encoder

# An encoder keeps every text it has seen; a recorder runs for weeks.
_REQUESTS_AN_ENCODER = 5000


class PromptTokenizer:
    """Tokenizes request bodies with one model's files, as `analyze` does for a log with their text."""

    def __init__(
        self,
        model: str | None = None,
        *,
        tokenizer: str | None = None,
        chat_template: str | None = None,
        offline: bool = False,
    ) -> None:
        """Find the model's files. Raises ModelError where they cannot be had."""
        self._files: ModelFiles = resolve(model, tokenizer=tokenizer, chat_template=chat_template, offline=offline)
        self.name = self._files.name
        self._template = ChatTemplate.compile(self._files) if self._files.renderer != "none" else None
        self._left = 0
        self._renew()

    def __call__(self, body: JsonObject, output: Output | None, time: float) -> Sequence[TokenizedPrompt] | None:
        """Give the prompts of a body; None where it is no body of a known API.

        A prompt that the chat template refuses, or that the body does not hold, has no ids.
        """
        requests = [self._with(request, output, time) for request in _requests(body)]
        if not requests:
            return None
        if self._left < len(requests):
            self._renew()
        self._left -= len(requests)
        table = Ingest(self._encoder, self._template).run(requests).table
        return [
            TokenizedPrompt(
                self._encoder.ids(array("I", table.prompt_segments(row))).tolist(),
                self._encoder.ids(array("I", table.output_segments(row))).tolist() if len(requests) == 1 else (),
            )
            for row in range(len(table))
        ]

    @staticmethod
    def _with(request: Request, output: Output | None, time: float) -> Request:
        return replace(request, time=time, output=output or request.output)

    def _renew(self) -> None:
        self._encoder = Encoder(self._files.tokenizer)
        self._left = _REQUESTS_AN_ENCODER


def _requests(body: JsonObject) -> list[Request]:
    record = Record(path="", line=0, kind="json", value=body, body=body, envelope={})
    return guess_body(record, body, name="prefixlint-record", envelope={})
