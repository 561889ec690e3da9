"""Which format reads a record: envelopes undone, formats scored, the choice remembered by the record's keys."""

from __future__ import annotations

import pkgutil
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import prefixlint.logs as package
from prefixlint.errors import UsageError
from prefixlint.logs import Format, Reader, Record
from prefixlint.logs._parse import maybe
from prefixlint.logs._records import is_conversation
from prefixlint.model import Request, Skip

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from prefixlint.logs._records import Raw

# Where loggers put the body that they wrap, the most telling first.
_WRAPPERS = (
    "body",
    "request_body",
    "requestBody",
    "request",
    "params",
    "payload",
    "json_body",
    "request_json",
    "requestJson",
    "http_request",
    "httpRequest",
    "req",
    "data",
    "json",
    "event",
    "message",
    "input_body",
    "inputBodyJson",
    "proxy_server_request",
    "raw_request",
    "kwargs",
    "input",
    "inputs",
)
PLAIN = "plain"
_COLUMNS = ("messages", "tools", "contents", "conversations", "system")
_DEPTH = 4
_MEMO = 256
_PATIENCE = 100  # records with the same keys that no format reads, after which such records are not offered again
_NO_ENVELOPE: Mapping[str, Any] = {}


def is_body(value: Any) -> bool:
    """Whether a dict holds what some API calls a prompt at its top level."""
    return isinstance(value, dict) and (
        _filled(value.get("messages"), list)
        or _filled(value.get("prompt"), (str, list))
        or _filled(value.get("input"), (str, list))
        or _filled(value.get("contents"), list)
        or _filled(value.get("inputs"), (str, list))
        or _filled(value.get("conversations"), list)
        or "previous_response_id" in value
        or "prompt_token_ids" in value
        or ("sampling_params" in value and "text" in value)
        or "input_ids" in value
        or "hash_ids" in value
    )


def _filled(value: Any, kind: type | tuple[type, ...]) -> bool:
    return isinstance(value, kind) and bool(value)


def unwrap(value: Any) -> tuple[Any, Mapping[str, Any]]:
    """Give the request body inside a logged value, and the keys that stood around it (the innermost value wins)."""
    if isinstance(value, list):
        return ({"messages": value} if is_conversation(value) else value), _NO_ENVELOPE
    if not isinstance(value, dict):
        return value, _NO_ENVELOPE
    opened = _opened(value)
    if is_body(opened):
        return opened, _NO_ENVELOPE
    return _dig(value, _DEPTH) or (value, _NO_ENVELOPE)


def _opened(value: dict[str, Any]) -> dict[str, Any]:
    """Undo JSON strings in the columns of a body, as tables and their exports hold them."""
    found = value
    for key in _COLUMNS:
        held = value.get(key)
        if type(held) is str and held[:1] in ("[", "{"):
            found = found | {key: maybe(held)}
    return found


def _dig(value: dict[str, Any], depth: int) -> tuple[Any, dict[str, Any]] | None:
    for key in _WRAPPERS:
        inner = value.get(key)
        if inner is None:
            continue
        inner = maybe(inner)
        if is_conversation(inner):
            inner = {"messages": inner}
        if not isinstance(inner, dict):
            continue
        around = {name: held for name, held in value.items() if name != key}
        opened = _opened(inner)
        if is_body(opened):
            return opened, around
        deeper = _dig(inner, depth - 1) if depth > 1 else None
        if deeper:
            return deeper[0], around | deeper[1]
    return None


@cache
def formats() -> tuple[Format, ...]:
    """Give every format module of this folder, sorted by name."""
    names = sorted(info.name for info in pkgutil.iter_modules(package.__path__) if not info.name.startswith("_"))
    return tuple(_module(name) for name in names)


def _module(name: str) -> Format:
    found: Any = import_module(f"prefixlint.logs.{name}")
    return found  # type: ignore[no-any-return]  # a module that has what the Protocol asks for


def named(name: str) -> Format:
    """Give the format that the user named. Raises UsageError with the known names."""
    for item in formats():
        if name.replace("_", "-").lower() == item.NAME:
            return item
    known = ", ".join(item.NAME for item in formats())
    raise UsageError(f"no log format is called {name!r}", slug="unknown-log-format", hint=f"the formats: {known}")


def knows_csv(row: dict[str, str]) -> bool:
    """Whether some format reads CSV rows like this one."""
    record = Record(path="", line=2, kind="csv", value=row, body=row, envelope=_NO_ENVELOPE)
    return bool(row) and any(item.KIND == "csv" and item.detect(record) > 0 for item in formats())


def may_be_plain(lines: Iterable[str]) -> bool:
    """Whether lines of text can be a list of prompts: no other format knows any, and most do not look like a log's."""
    records = [Record("", 1, "text", line, line, _NO_ENVELOPE) for line in lines if line.strip()]
    if any(record.value == "{" for record in records):
        return False  # objects written over several lines
    others = [item for item in formats() if item.KIND == "text" and item.NAME != PLAIN]
    if any(item.detect(record) > 0 for record in records for item in others):
        return False
    return 2 * sum(named(PLAIN).detect(record) > 0 for record in records) > len(records)


class Dispatcher:
    """Offers the records of one file to the formats, and remembers which format took which keys."""

    def __init__(self, path: str, layout: str, only: Format | None, *, plain: bool) -> None:
        self._path = path
        self._layout = layout
        self._only = only
        self._plain = plain
        self._readers: dict[str, Reader] = {}
        self._memo: dict[Any, Format] = {}
        self._last: Format | None = None
        self._refused: dict[Any, int] = {}
        self._wholes: dict[tuple[str, ...], Format] = {}
        self._text: Format | None = None
        self._numbered = layout in ("document", "parquet")
        self._shift = 0
        self.used: dict[str, Format] = {}

    def feed(self, raw: Raw) -> Iterable[Request | Skip]:
        """Give the requests that a record completes, or a Skip when no format reads it."""
        if raw.kind == "json":
            return self._json(raw)
        if raw.kind == "text":
            return self._line(raw)
        record = Record(self._path, raw.line, raw.kind, raw.value, raw.value, _NO_ENVELOPE)
        taken = self._offer(record, tuple(raw.value))
        return (self._unknown(record),) if taken is None else taken

    def finish(self) -> Iterator[Request | Skip]:
        """Give what readers held back."""
        for reader in self._readers.values():
            yield from reader.finish()
        if self._layout == "text" and not self.used:
            reason = "lines of text in which no known log format was found"
            yield Skip(self._path, 0, "unknown-format", reason)

    def _json(self, raw: Raw) -> Iterable[Request | Skip]:
        if type(raw.value) is list and not is_conversation(raw.value):
            return self._list(raw, raw.value)
        return self._object(raw, raw.value)

    def _list(self, raw: Raw, values: list[Any]) -> Iterator[Request | Skip]:
        for part, value in enumerate(values):
            record = self._record(raw.line, value, part)
            taken = self._offer(record, _signature(record))
            yield from (self._unknown(record),) if taken is None else taken

    def _record(self, line: int, value: Any, part: int = 0) -> Record:
        body, envelope = unwrap(value)
        return Record(self._path, line, "json", value, body, envelope, part)

    def _object(self, raw: Raw, value: Any) -> Iterable[Request | Skip]:
        line = raw.line + self._shift
        taken = self._whole(line, value)
        if taken is not None:
            return taken
        record = self._record(line, value)
        signature = _signature(record)
        taken = self._offer(record, signature) if signature in self._memo else None
        if taken is not None:
            return taken
        if self._refused.get(signature, 0) >= _PATIENCE:
            return (self._unknown(record),)
        inside = self._unpack(value)
        if inside is not None:
            return self._contained(line, inside)
        taken = self._offer(record, signature)
        if taken is not None:
            return taken
        if self._layout == "text":
            return self._line(raw._replace(kind="text", value=raw.source.decode("utf-8", "replace")))
        return (self._unknown(record),)

    def _whole(self, line: int, value: Any, part: int = 0) -> Iterable[Request | Skip] | None:
        """Offer a record to the format that read the last one with these keys, if that needs no envelope undone."""
        known = self._wholes.get(tuple(value)) if type(value) is dict else None
        if known is None:
            return None
        return self._reader(known).feed(Record(self._path, line, "json", value, value, _NO_ENVELOPE, part))

    def _unpack(self, value: Any) -> list[Any] | None:
        for item in self._candidates():
            unpack: Callable[[Any], Iterable[Any] | None] | None = getattr(item, "unpack", None)
            inside = unpack(value) if unpack else None
            if inside is not None:
                return list(inside)
        return None

    def _contained(self, line: int, values: list[Any]) -> Iterator[Request | Skip]:
        """Offer what a container holds: numbered on in a document, as parts of the line elsewhere."""
        for position, value in enumerate(values):
            at, part = (line + position, 0) if self._numbered else (line, position)
            taken = self._whole(at, value, part)
            if taken is None:
                record = self._record(at, value, part)
                taken = self._offer(record, _signature(record))
                taken = (self._unknown(record),) if taken is None else taken
            yield from taken
        if self._numbered:
            self._shift += max(len(values) - 1, 0)

    def _candidates(self) -> tuple[Format, ...]:
        return formats() if self._only is None else (self._only,)

    def _offer(self, record: Record, signature: Any) -> Iterable[Request | Skip] | None:
        remembered = self._memo.get(signature)
        if remembered is None and len(self._memo) == _MEMO:
            remembered = self._last  # a log whose keys differ from line to line
        if remembered is not None:
            taken = self._reader(remembered).feed(record)
            if taken is not None:
                return taken
        for item in self._ranked(record):
            if item is remembered:
                continue
            taken = self._reader(item).feed(record)
            if taken is not None:
                if len(self._memo) < _MEMO:
                    self._memo[signature] = item
                    if getattr(item, "WHOLE", False) and type(record.value) is dict:
                        self._wholes[tuple(record.value)] = item
                self.used[item.NAME] = item
                self._last = item
                return taken
        if len(self._refused) < _MEMO:
            self._refused[signature] = self._refused.get(signature, 0) + 1
        return None

    def _ranked(self, record: Record) -> list[Format]:
        if self._only is not None:
            return [self._only] if record.kind == self._only.KIND else []
        scored = [(item.detect(record), item) for item in formats() if record.kind == item.KIND]
        scored = [pair for pair in scored if pair[0] > 0]
        scored.sort(key=lambda pair: (-pair[0], pair[1].NAME))
        return [item for _, item in scored]

    def _reader(self, item: Format) -> Reader:
        reader = self._readers.get(item.NAME)
        if reader is None:
            reader = self._readers[item.NAME] = item.reader()
        return reader

    def _unknown(self, record: Record) -> Skip:
        if not isinstance(record.value, dict):
            return Skip(self._path, record.line, "not-a-request", "a JSON value that is not an object")
        keys = ", ".join(str(key)[:40] for key in list(record.value)[:8])
        return Skip(self._path, record.line, "unknown-format", f"no known log format has the keys {keys}")

    def _line(self, raw: Raw) -> Iterable[Request | Skip]:
        """Offer a line of text to the format that reads this file's text, else to those that know such a line."""
        record = Record(self._path, raw.line, "text", raw.value, raw.value, _NO_ENVELOPE)
        if self._text is not None:
            taken = self._reader(self._text).feed(record)
            if taken is not None:
                return taken
        for item in self._ranked(record):
            if item is self._text or (item.NAME == PLAIN and not self._plain):
                continue
            taken = self._reader(item).feed(record)
            if taken is not None:
                self._text = item
                self.used[item.NAME] = item
                return taken
        return () if raw.complaint is None else (raw.complaint,)


def _signature(record: Record) -> Any:
    value, body = record.value, record.body
    if type(value) is not dict:
        return type(value)
    if body is value:
        return tuple(value)
    return tuple(value), tuple(body) if type(body) is dict else type(body)


@cache
def _dialects() -> tuple[Format, ...]:
    return tuple(item for item in formats() if getattr(item, "BODY", False))


def guess_body(
    record: Record, body: Any, *, name: str, envelope: Mapping[str, Any] | None = None, **known: Any
) -> list[Request]:
    """Read a body of any API dialect that stands inside another format's record.

    `body` may be a dict, a list of messages, or either as a JSON string. `envelope` holds what stands around it
    (default: the record's own): time, session, response and so on are found there by their usual names. The requests
    carry `name` as their format, and the fields of Request that are `known`. An empty list means that no dialect has
    such a body.
    """
    return [replace(request, format=name, **known) for request in in_dialect(record, body, envelope)]


def in_dialect(record: Record, body: Any, envelope: Mapping[str, Any] | None = None) -> list[Request]:
    """Read a body as `guess_body` does; the requests carry the name of the dialect as their format."""
    body = maybe(body)
    inner, around = unwrap(body)
    outer = record.envelope if envelope is None else envelope
    merged = {**outer, **around} if around else outer
    offered = Record(record.path, record.line, "json", inner, inner, merged, record.part)
    scored = [(-score, item.NAME, item) for item in _dialects() if (score := item.detect(offered)) > 0]
    if len(scored) > 1:
        scored.sort(key=lambda one: one[:2])
    for _, _, item in scored:
        reader = item.reader()
        taken = reader.feed(offered)
        if taken is not None:
            return [request for request in (*taken, *reader.finish()) if isinstance(request, Request)]
    return []
