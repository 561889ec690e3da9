"""Amazon SageMaker data capture: the input and output of an endpoint's invocations, one a line.

`captureData.endpointInput.data` is the request body as text or in base64 (`encoding`); its API is that of the container
behind the endpoint (OpenAI's, TGI's, …). `eventMetadata.inferenceTime` is the time, with a grain of one second.
Captured CSV is no prompt.
"""

from __future__ import annotations

from typing import Any

from prefixlint.logs import Reader, Record
from prefixlint.logs._exchange import exchange, labels, plain_text
from prefixlint.logs._numbers import seconds, text
from prefixlint.logs._sse import events
from prefixlint.logs._values import decoded, pick, table
from prefixlint.model import JsonObject, Request, Skip

NAME = "sagemaker"
KIND = "json"
WHOLE = True
STATELESS = True


def detect(record: Record) -> int:
    """Recognise the capture's envelope."""
    value = record.value
    return 96 if isinstance(value, dict) and pick(value, "captureData", "capture_data") is not None else 0


class _Reader:
    def feed(self, record: Record) -> list[Request | Skip] | None:
        value = record.value
        captured = table(pick(value, "captureData", "capture_data")) if isinstance(value, dict) else {}
        if not captured:
            return None
        given = table(pick(captured, "endpointInput", "endpoint_input", "batchTransformInput"))
        made = table(pick(captured, "endpointOutput", "endpoint_output", "batchTransformOutput"))
        body = decoded(_data(given))
        if body and not isinstance(body, dict | list):
            reason = f"the captured {given.get('observedContentType') or 'input'} is not a JSON body"
            return [Skip(record.path, record.line, "not-a-request", reason)]
        held = _data(made)
        stream = events(held) if isinstance(held, str) else None
        answer = decoded(held) if stream is None else stream
        return list(exchange(record, NAME, body, answer, absent="sagemaker-no-input", known=_known(value)))

    def finish(self) -> list[Request | Skip]:
        return []


def reader() -> Reader:
    """Give a reader; it keeps no state."""
    return _Reader()


def _data(side: JsonObject) -> Any:
    return plain_text(side.get("data"), side.get("encoding"))


def _known(value: JsonObject) -> JsonObject:
    event = table(pick(value, "eventMetadata", "event_metadata"))
    return {
        "id": text(pick(event, "eventId", "event_id", "inferenceId", "inference_id")),
        "time": seconds(pick(event, "inferenceTime", "inference_time")),
        "fields": labels({"inference_id": pick(event, "inferenceId", "inference_id")}),
    }
