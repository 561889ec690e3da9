"""Requests with other bodies: as a log would have them, and as its records are written.

A body stands somewhere inside a record, as an object or as JSON in a string; it is found there by what it is, so that
no format has to know how it is written. What cannot be read again as it was meant is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import orjson

from prefixlint import renderedtext
from prefixlint.errors import UsageError
from prefixlint.logs import Format, Record, _convert, _detect, _fields, anthropic_messages, openai_chat
from prefixlint.logs._parse import maybe
from prefixlint.logs._records import Raw
from prefixlint.model import Content, Messages, Request, Skip, Text

_USAGE = frozenset({"usage", "usageMetadata", "usage_metadata", "timings", "token_usage", "tokenUsage"})
_KEYS = ("cache_salt", "prompt_cache_key")  # what separates caches and stands in a body
_AROUND = frozenset((*_KEYS, *_fields.PARAMS))
_DEPTH = 8
_ELSEWHERE = "its request body does not stand in the record as it was sent"

Records = tuple[str, str, Raw | None, list[Request | Skip]]
"""Path, layout, a record (None: what is found belongs to none), and what it holds; see `_read.records`."""


def with_body(request: Request, body: Any) -> Request | None:
    """Give a request as it would be read with another body; None where its format needs more than the body.

    What the log reports of the request's tokens is left out: it is not known of the new one.
    """
    if request.format == renderedtext.NAME:
        return _of_text(request, body)
    content = _content(request.format, body)
    old = request.body
    changed_keys = [key for key in {**old, **body} if body.get(key) is not old.get(key)]
    if content is not None and not any(key in _AROUND and body.get(key) != old.get(key) for key in changed_keys):
        return replace(request, content=content, usage=None, body=body)
    changed = _read(request, body)
    if changed is None:
        return None
    keyed = any(body.get(key) != request.body.get(key) for key in _KEYS)
    namespace = _namespace(request, changed) if keyed else request.namespace
    return replace(request, content=changed.content, params=changed.params, namespace=namespace, usage=None, body=body)


def _content(name: str, body: Any) -> Content | None:
    """Read a body of the two most common dialects without what stands around its prompt."""
    if name == openai_chat.NAME:
        content = _convert.openai_chat(body)
        return None if content is None or openai_chat.is_foreign(body) else content
    return _convert.anthropic(body) if name == anthropic_messages.NAME else None


def _read(request: Request, body: Any) -> Request | None:
    """Read a body with the reader of its request's format, or with that of the dialect it is in."""
    record = Record(request.path, request.line, "json", body, body, {}, request.part)
    form = _form(request.format)
    found = None
    if getattr(form, "BODY", False):
        found = form.reader().feed(record)
    items = list(found) if found is not None else _detect.in_dialect(record, body)
    return next((item for item in items if isinstance(item, Request)), None)


@cache
def _form(name: str) -> Format:
    return _detect.named(name)


def _namespace(old: Request, new: Request) -> tuple[str, ...]:
    """Give the parts that separate caches: those that stand in the body are the new one's."""
    before = _read(old, old.body)
    own = before.namespace if before is not None else ()
    return tuple(part for part in old.namespace if part not in own) + new.namespace


def rewritable(request: Request) -> bool:
    """Tell whether the prompt of a request is all in its body, so that another body gives another prompt."""
    again = with_body(request, request.body) if isinstance(request.body, dict) else None
    return again is not None and _same(again.content, request.content)


def _same(one: Content, two: Content) -> bool:
    """Tell whether two contents are the same prompt; lists and tuples of the same messages are."""
    if not (isinstance(one, Messages) and isinstance(two, Messages)):
        return one == two
    return replace(one, messages=list(one.messages), tools=list(one.tools)) == replace(
        two, messages=list(two.messages), tools=list(two.tools)
    )


def as_chat(request: Request) -> Request | None:
    """Give a request as one of the chat API with the same prompt; None where that would be another prompt.

    Of a prompt that an engine logged as text, the messages are those that its chat template wrote.
    """
    if isinstance(request.content, Text):
        return _as_text(request, request.content)
    if not isinstance(request.content, Messages):
        return None
    body = {"messages": list(request.content.messages), "tools": list(request.content.tools)}
    chat = replace(request, format=openai_chat.NAME, body=body)
    again = with_body(chat, body)
    return chat if again is not None and _same(again.content, request.content) else None


def _as_text(request: Request, content: Text) -> Request:
    chat = renderedtext.taken_apart(content.text)
    if chat is None:
        return replace(request, format=renderedtext.NAME, body={"prompt": content.text, "rendered": content.rendered})
    body = {**chat, "rendered": content.rendered}
    return replace(request, format=renderedtext.NAME, content=Messages(body["messages"]), body=body)


def _of_text(request: Request, body: Any) -> Request | None:
    text = body["prompt"] if "prompt" in body else renderedtext.put_together(body)
    return None if text is None else replace(request, content=Text(text, body["rendered"]), usage=None, body=body)


def replaced(value: Any, old: Any, new: Any) -> Any | None:
    """Give a record's value with another body in it; None where the old one is not found in it."""
    if isinstance(new, dict):
        new = {key: item for key, item in new.items() if key not in _USAGE}
    found = _replaced(value, old, new, _DEPTH)
    return None if found is None else _without_usage(found, new)


def _replaced(value: Any, old: Any, new: Any, depth: int) -> Any | None:
    if value is old or value == old:
        return new
    if depth == 0:
        return None
    if isinstance(value, str):
        inner = maybe(value)
        if inner is value or not isinstance(inner, dict | list):
            return None
        found = _replaced(inner, old, new, depth - 1)
        return None if found is None else _text(found)
    items: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        if isinstance(item, dict | list) or (isinstance(item, str) and item[:1] in ("{", "[")):
            found = _replaced(item, old, new, depth - 1)
            if found is not None:
                if isinstance(value, dict):
                    return {**value, key: found}
                return [*value[:key], found, *value[key + 1 :]]
    return _spread(value, old, new) if isinstance(value, dict) and isinstance(old, dict) else None


def _spread(value: dict[str, Any], old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any] | None:
    """Replace a body whose columns are JSON in strings."""
    if not old or any(item not in (value.get(key), maybe(value.get(key))) for key, item in old.items()):
        return None
    changed = dict(value)
    for key, item in new.items():
        if item != old.get(key):
            changed[key] = _text(item) if isinstance(value.get(key), str) and not isinstance(item, str) else item
    return changed


def _without_usage(value: Any, body: Any) -> Any:
    """Take out what a log reports of tokens around the body: it is not true of the new prompt."""
    if value is body:
        return value
    if isinstance(value, dict):
        return {key: _without_usage(item, body) for key, item in value.items() if key not in _USAGE}
    if isinstance(value, list):
        return [_without_usage(item, body) for item in value]
    return value


def check(records: Iterable[Records]) -> None:
    """Refuse logs whose format cannot be written back, by the first request of each file; UsageError."""
    checked: set[str] = set()
    for path, layout, record, found in records:
        request = next((item for item in found if isinstance(item, Request)), None)
        if request is None or path in checked or (record is None and layout == "json"):
            continue  # what was held back to the end of the file has been written with its line
        checked.add(path)
        held = _json_of(path, layout, record, found)
        if rewritable(request) and replaced(held.value, request.body, request.body) is None:
            raise _refused(path, held.line, found, _ELSEWHERE)


def lines(
    records: Iterable[Records],
    body_of: Callable[[tuple[str, int, int]], Any | None],
    on_lost: Callable[[Skip], None] | None = None,
) -> Iterator[bytes]:
    """Write a log again in its own format, a JSON value a line; `body_of` gives new bodies by path, line and part.

    Text between the lines is written as it stands; `on_lost` gets the lines that cannot be read and are left out.
    UsageError where a body that is to be replaced cannot be written back as its format has it.
    """
    for path, layout, record, found in records:
        requests = [item for item in found if isinstance(item, Request)]
        if not requests and (record is None or layout != "json"):  # a line that was lost, or a file that is no log
            for skip in found:
                if isinstance(skip, Skip) and skip.line and record is None and on_lost is not None:
                    on_lost(skip)
            continue
        if record is not None and record.kind == "text" and not requests:
            yield f"{record.value}\n".encode("utf-8", "surrogateescape")
            continue
        changes = [(r, new) for r in requests if (new := body_of((r.path, r.line, r.part))) is not None]
        if record is None and layout == "json" and not changes:
            continue  # held back to the end of the file: its line was written when it came
        held = _json_of(path, layout, record, found)
        value = held.value
        for request, new in changes:
            value = replaced(value, request.body, new)
            if value is None:
                raise _refused(path, held.line, found, _ELSEWHERE)
        if changes:
            _check(path, held, value, changes)
        yield _dumps(value)


def _json_of(path: str, layout: str, record: Raw | None, found: Sequence[Request | Skip]) -> Raw:
    if record is None or layout != "json" or record.kind != "json":
        line = found[0].line if record is None else record.line
        raise _refused(path, line, found, "only JSON lines can be written back")
    return record


def _check(path: str, record: Raw, value: Any, changes: Sequence[tuple[Request, Any]]) -> None:
    """Refuse a record that is not read as it was meant."""
    dispatcher = _detect.Dispatcher(path, "json", None, plain=False)
    again = {
        (item.line, item.part): item
        for item in dispatcher.feed(record._replace(value=value))
        if isinstance(item, Request)
    }
    for request, body in changes:
        meant, read = with_body(request, body), again.get((request.line, request.part))
        if meant is None or read is None or not _same(read.content, meant.content) or read.format != request.format:
            raise _refused(path, record.line, [request], "it would be read as another request")


def _refused(path: str, line: int, found: Iterable[Request | Skip], why: str) -> UsageError:
    name = next((item.format for item in found if isinstance(item, Request)), "unknown")
    return UsageError(
        f"{path}, line {line}: requests of the format {name} cannot be written back: {why}",
        slug="not-writable",
        hint="--what-if shows what fixes give without writing a log",
    )


def _dumps(value: Any) -> bytes:
    try:
        return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:  # lone surrogates, numbers beyond 64 bits
        return json.dumps(value, ensure_ascii=True).encode() + b"\n"


def _text(value: Any) -> str:
    return _dumps(value).decode().removesuffix("\n")
