"""What `prefixlint record` writes: one JSON line a request, with the body as text or as a fingerprint.

A line has the key `prefixlint_record` (its version, 1). With text, `request` is the body in its own API's form, as the
client sent it; `response`, `usage` (prompt tokens include cached ones), `ttft_s`, `total_s`, `conversation`, `session`
and `headers` stand beside it. With `--fingerprint`, `fingerprint` stands in the body's place: segments with length,
role and salted marks, and where the recorder had a tokenizer the marks of the prompt's tokens, which give the same hits
as the text. Lines without a body (GET requests) give nothing; failed requests and bodies that were no JSON are skipped
with their reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from prefixlint import fingerprints
from prefixlint.logs import Reader, Record
from prefixlint.logs._detect import guess_body
from prefixlint.logs._numbers import count, number
from prefixlint.model import (
    Fingerprint,
    FingerprintSegment,
    JsonObject,
    Latency,
    Output,
    Request,
    Skip,
    Usage,
)

NAME = "prefixlint-record"
KIND = "json"
STATELESS = True

# The response of these did not come, or not as far as its first token: nothing was put into a cache.
_FAILED = 400
_NAMESPACES = ("cache_salt", "extra_key", "lora_path")
_USERS = ("user", "safety_identifier")


def detect(record: Record) -> int:
    """Recognise the recorder's own key."""
    return 100 if isinstance(record.value, dict) and isinstance(record.value.get("prefixlint_record"), int) else 0


def reader() -> Reader:
    """Give a reader; it keeps no state."""
    return _Reader()


class _Reader:
    def feed(self, record: Record) -> list[Request | Skip] | None:
        if not detect(record):
            return None
        return list(_results(record, record.value))

    def finish(self) -> list[Request | Skip]:
        return []


def _results(record: Record, line: JsonObject) -> Iterator[Request | Skip]:
    status = count(line.get("status"))
    if "malformed" in line:
        yield Skip(record.path, record.line, "malformed-body", f"the request's body is {line['malformed']}")
    elif status is not None and status >= _FAILED:
        reason = f"the request failed with status {status}"
        yield Skip(record.path, record.line, "failed-request", reason)
    elif isinstance(line.get("fingerprint"), dict):
        yield from _fingerprinted(record, line, line["fingerprint"])
    elif line.get("request") is not None:
        yield from _recorded(record, line)


def _recorded(record: Record, line: JsonObject) -> Iterator[Request | Skip]:
    found = guess_body(record, line["request"], name=NAME, envelope={})
    if not found:
        if line.get("usage"):
            yield Skip(record.path, record.line, "unknown-body", "no known API has a request body like this")
        return
    known = _known(line)
    output = _output(line.get("response"))
    if len(found) > 1:
        # Counters and the answer are those of all prompts together: they belong to none of them.
        known = {name: value for name, value in known.items() if name != "usage"}
        output = None
    for request in found:
        own = {name: value for name, value in known.items() if value is not None}
        own["fields"] = {**request.fields, **known["fields"]}
        yield replace(request, **own, output=output or request.output)


def _known(line: JsonObject) -> JsonObject:
    """Give the fields of a Request that the recorder measured."""
    usage = line.get("usage")
    counts = {name: count(held) for name, held in usage.items()} if isinstance(usage, dict) else {}
    names = ("prompt", "cached", "written", "completion", "long")
    return {
        "id": _text(line.get("id")),
        "time": number(line.get("time")),
        "session": _text(line.get("session")) or _text(line.get("conversation")),
        "usage": Usage(*(counts.get(name) for name in names)) if counts else None,
        "latency": Latency(total=number(line.get("total_s")), ttft=number(line.get("ttft_s"))),
        "fields": _fields(line),
    }


def _fields(line: JsonObject) -> dict[str, str]:
    target = _text(line.get("target")) or ""
    fields = {"route": target.partition("?")[0], "status": str(line.get("status")), "outcome": line.get("outcome")}
    headers = line.get("headers")
    if isinstance(headers, dict):
        fields.update(headers)
    return {name: value for name, value in fields.items() if isinstance(value, str) and value}


def _output(response: Any) -> Output | None:
    if not isinstance(response, dict) or not ("text" in response or response.get("finish")):
        return None
    calls = response.get("tool_calls")
    return Output(
        text=_text(response.get("text")),
        reasoning=_text(response.get("reasoning")),
        tool_calls=[call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else (),
        finish=_text(response.get("finish")),
    )


def _fingerprinted(record: Record, line: JsonObject, held: JsonObject) -> Iterator[Request | Skip]:
    try:
        parts = list(_prompts(held))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        yield Skip(record.path, record.line, "broken-fingerprint", f"the fingerprint is damaged: {error}")
        return
    known = _known(line)
    if len(parts) > 1:
        known["usage"] = None
    for part, (content, output) in enumerate(parts):
        if not content.ids and not content.segments:
            continue
        yield Request(
            record.path,
            record.line,
            content,
            NAME,
            part=part,
            model=_text(held.get("model")),
            namespace=tuple(f"{name}={held[name]}" for name in _NAMESPACES if isinstance(held.get(name), str)),
            user=next((held[name] for name in _USERS if isinstance(held.get(name), str)), None),
            output=output,
            **{name: value for name, value in known.items() if value is not None},
        )


def _prompts(held: Mapping[str, Any]) -> Iterator[tuple[Fingerprint, Output | None]]:
    grain = count(held.get("grain")) or 1
    segments = tuple(
        FingerprintSegment(str(role), str(path), str(digest), int(chars), fingerprints.read(marks))
        for path, role, chars, digest, marks in held["segments"]
    )
    salt = str(held["salt"])
    prompts = held.get("prompts")
    if not isinstance(prompts, list):
        yield Fingerprint(segments, salt, fingerprints.estimated_ids(segments, grain), None, grain), None
        return
    outputs = held.get("outputs")
    outputs = outputs if isinstance(outputs, list) and len(outputs) == len(prompts) else [""] * len(prompts)
    for prompt, output in zip(prompts, outputs, strict=True):
        ids = fingerprints.token_ids(fingerprints.read(prompt))
        generated = fingerprints.token_ids(fingerprints.read(output))
        content = Fingerprint(segments, salt, ids, str(held.get("tokenizer")), grain)
        yield content, Output(ids=generated) if generated else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
