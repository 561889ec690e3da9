"""What envelopes share: a body and its answer, of whatever API, become requests with what stands around them."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from typing import Any

from prefixlint.logs import Record
from prefixlint.logs._detect import in_dialect
from prefixlint.logs._fields import as_response, output_of, text, usage_of
from prefixlint.logs._secrets import is_secret
from prefixlint.logs._values import table
from prefixlint.model import Content, JsonObject, Latency, Messages, NoPrompt, Request, Text, Usage

_LONGEST_LABEL = 200


def exchange(
    record: Record, name: str, body: Any, answer: Any, *, absent: str | None, known: Mapping[str, Any]
) -> Iterator[Request]:
    """Give the requests of a body with its answer, under the format `name`.

    `known` are fields of `Request` that the envelope knows: what is not None wins over what the body says, times and
    labels are merged, and the body's usage wins where it knows about the cache and the envelope does not. Where no body
    is there, or none that some API reads, the request has no prompt, for the reason `absent`; nothing is given where
    that is None as well.
    """
    envelope: JsonObject = {} if answer is None else {"response": answer}
    found = in_dialect(record, body, envelope) if body else []
    if not found and absent is not None:
        response = as_response(answer) or table(answer)
        bare = Request(
            record.path,
            record.line,
            NoPrompt(absent),
            name,
            part=record.part,
            model=text(response.get("model")),
            usage=_reported(response),
            output=output_of(response),
            body={},
        )
        found = [bare]
    for request in found:
        yield _with(request, name, known)


def _reported(response: JsonObject) -> Usage | None:
    held = (response.get("usage"), response.get("usageMetadata"), response.get("usage_metadata"))
    return next((found for usage in held if (found := usage_of(usage)) is not None), None)


def _with(request: Request, name: str, known: Mapping[str, Any]) -> Request:
    """Give the request as one of `name`, with what the envelope knows (written out, since `replace` is slow)."""
    know = known.get
    fields, usage, latency = know("fields"), know("usage"), know("latency")
    return Request(
        request.path,
        request.line,
        request.content,
        name,
        request.part,
        _first(know("id"), request.id),
        _first(know("time"), request.time),
        _first(know("model"), request.model),
        _first(know("params"), request.params),
        _first(know("output"), request.output),
        (*request.namespace, *know("namespace", ())),
        _first(know("session"), request.session),
        _first(know("user"), request.user),
        _first(know("replica"), request.replica),
        request.usage if usage is None else merged_usage(request.usage, usage),
        request.latency if latency is None else _merged_latency(request.latency, latency),
        {**request.fields, **fields} if fields else request.fields,
        request.body,
    )


def _first(one: Any, other: Any) -> Any:
    return other if one is None else one


def merged_usage(inner: Usage | None, outer: Usage) -> Usage:
    """Put the usage of an answer and that of its envelope together; the answer is nearer to the server and wins."""
    if inner is None or inner.prompt is None:
        return outer
    return Usage(
        inner.prompt,
        outer.cached if inner.cached is None else inner.cached,
        outer.written if inner.written is None else inner.written,
        outer.completion if inner.completion is None else inner.completion,
        outer.long if inner.written is None else inner.long,
    )


def _merged_latency(inner: Latency | None, outer: Latency) -> Latency | None:
    if inner is None:
        return None if outer == Latency() else outer
    pairs = (
        (outer.total, inner.total),
        (outer.ttft, inner.ttft),
        (outer.queue, inner.queue),
        (outer.prefill, inner.prefill),
    )
    return Latency(*(one if one is not None else other for one, other in pairs))


def body_of(content: Content) -> JsonObject:
    """Give a body in the OpenAI form for a log that holds none, so that places in it can be named."""
    if not isinstance(content, Messages):
        return {"prompt": content.text} if isinstance(content, Text) else {}
    body: JsonObject = {"messages": content.messages}
    return {"tools": content.tools, **body} if content.tools else body


def labels(values: Mapping[Any, Any]) -> dict[str, str]:
    """Give short values as the labels that people group by, without anything that is or is named like a credential."""
    found: dict[str, str] = {}
    for name, value in values.items():
        if isinstance(value, bool):
            shown = str(value).lower()
        elif isinstance(value, str | int | float) and value != "":
            shown = str(value)
        else:
            continue
        if len(shown) <= _LONGEST_LABEL and not is_secret(str(name), shown):
            found[str(name)] = shown
    return found


def plain_text(held: Any, encoding: Any) -> Any:
    """Undo base64 where an encoding says so; JSON that is no string comes back as it is, what is no text gives None."""
    if not isinstance(held, str) or str(encoding).lower() != "base64":
        return held
    try:
        return base64.b64decode("".join(held.split()), validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        return None
