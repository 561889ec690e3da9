"""Text Generation Inference: bodies of `/generate` and `/generate_stream` (`inputs` + `parameters`), and its JSON log.

A body stands alone or beside its response (`generated_text`, `details`). The text is what the client sent: no chat
template is applied, the tokenizer puts its own start before it. `details.prefill` counts the prompt's tokens. The
server reports no cached tokens. Lines of the router's log in JSON (`--json-output`) have no prompt, only times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prefixlint.logs import _fields
from prefixlint.logs._tgi import seconds, timed
from prefixlint.model import Output, Request, Skip, Text, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from prefixlint.logs import Record, RecordKind

NAME = "tgi"
KIND: RecordKind = "json"
STATELESS = True
BODY = True

_PARAMETERS = frozenset(
    {"max_new_tokens", "do_sample", "return_full_text", "details", "decoder_input_details", "adapter_id"}
)


def detect(record: Record) -> int:
    """Look for `inputs` as a string with `parameters`, or a router line."""
    body = record.body
    if not isinstance(body, dict):
        return 0
    if isinstance(body.get("inputs"), str):
        parameters = body.get("parameters")
        if not isinstance(parameters, dict):
            return 30 if "stream" in body or len(body) == 1 else 0
        return 90 if parameters.keys() & _PARAMETERS else 70
    return 90 if _span(record.value) is not None else 0


def _span(value: Any) -> Mapping[str, Any] | None:
    """Give the span of a router line in JSON that says how a request ended."""
    if not isinstance(value, dict) or "text_generation_router" not in str(value.get("target", "")):
        return None
    outer = value.get("spans")
    spans = [value.get("span"), *(outer if isinstance(outer, list) else ())]
    return next((span for span in spans if isinstance(span, dict) and "total_time" in span), None)


def reader() -> _Reader:
    """Give a reader for one file."""
    return _Reader()


class _Reader:
    def feed(self, record: Record) -> Iterable[Request | Skip] | None:
        body = record.body
        if not isinstance(body, dict):
            return None
        if isinstance(body.get("inputs"), str):
            return [_request(record, body)]
        span = _span(record.value)
        if span is None:
            return None
        ended = _fields.seconds(record.value.get("timestamp"))
        return [timed(record, ended, {name: seconds(text) for name, text in span.items() if isinstance(text, str)})]

    def finish(self) -> Iterable[Request | Skip]:
        return ()


def _request(record: Record, body: Mapping[str, Any]) -> Request:
    parameters = body.get("parameters")
    adapter = _fields.text(parameters.get("adapter_id")) if isinstance(parameters, dict) else None
    response = _response(record.envelope)
    details = response.get("details")
    details = details if isinstance(details, dict) else {}
    return _fields.build(
        record,
        NAME,
        Text(body["inputs"]),
        namespace=(f"lora={adapter}",) if adapter else None,
        output=_output(response, details),
        usage=_usage(details),
    )


def _response(envelope: Mapping[str, Any]) -> Mapping[str, Any]:
    response = _fields.maybe(envelope.get("response", envelope.get("output")))
    if isinstance(response, list) and response:
        response = response[0]
    return response if isinstance(response, dict) else {}


def _output(response: Mapping[str, Any], details: Mapping[str, Any]) -> Output | None:
    said = response.get("generated_text")
    if not isinstance(said, str):
        return None
    tokens = details.get("tokens")
    ids = [one.get("id") for one in tokens if isinstance(one, dict)] if isinstance(tokens, list) else []
    whole = [one for one in ids if type(one) is int]
    return Output(
        text=said,
        ids=whole if whole and len(whole) == len(ids) else None,
        finish=_fields.text(details.get("finish_reason")),
    )


def _usage(details: Mapping[str, Any]) -> Usage | None:
    prefill = details.get("prefill")
    prompt = len(prefill) if isinstance(prefill, list) and prefill else None
    completion = _fields.count(details.get("generated_tokens"))
    return Usage(prompt=prompt, completion=completion) if prompt is not None or completion is not None else None
