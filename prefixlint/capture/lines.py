"""From an exchange to a line of the log. See the package's documentation for the keys of a line."""

from __future__ import annotations

import itertools
import json
from typing import Any

import orjson

from prefixlint import redact
from prefixlint.capture.config import RecordConfig
from prefixlint.capture.exchange import Exchange
from prefixlint.capture.responses import Reply, decoded, read_reply
from prefixlint.capture.sample import Sampler, named_conversation
from prefixlint.model import JsonObject, Output

VERSION = 1
# A body that is no JSON is shown up to this many characters.
_SHOWN = 2000


class LineMaker:
    """Makes lines under one configuration. Used by one thread."""

    def __init__(self, config: RecordConfig) -> None:
        self._config = config
        self._redactor = redact.Redactor(config.salt, personal=config.redact, fields=config.fields)
        self._sampler = Sampler(config.sample, config.seed)
        self._numbers = itertools.count(1)
        self._log_headers = [name for name in config.log_headers if not redact.is_secret_name(name)]

    def make(self, exchange: Exchange) -> bytes | None:
        """Give the line of an exchange, or None where its conversation is not sampled."""
        notes: list[str] = []
        body, malformed = _request_body(exchange, notes)
        conversation = self._sampler.conversation(body, exchange.request_headers)
        kept = self._sampler.keeps(conversation)
        if not kept and self._sampler.rate <= 0:
            return None
        reply = self._reply(exchange, notes, everything=self._config.with_output and kept)
        self._sampler.answered(reply.id, conversation)
        if not kept:
            return None
        line: JsonObject = {
            "prefixlint_record": VERSION,
            "id": f"{self._config.run}-{next(self._numbers)}",
            "time": round(exchange.time, 6),
            "method": exchange.method,
            "target": redact.target(exchange.target),
            "status": exchange.status,
        }
        if self._config.fingerprinter is None:
            self._add_text(line, exchange, body, malformed, reply)
        else:
            self._add_fingerprint(line, exchange, body, malformed, reply)
        line["conversation"] = conversation.hex()
        self._add_measures(line, exchange, reply, notes)
        return _dumps(line)

    def _reply(self, exchange: Exchange, notes: list[str], *, everything: bool) -> Reply:
        data = exchange.response.start()
        tail = exchange.response.tail()
        encoding = exchange.response_headers.get("content-encoding", "")
        if encoding:
            data, note = decoded(data, encoding)
            tail = b""
            if note is not None and exchange.outcome == "ok":
                notes.append(f"response encoding {note}")
        reply = read_reply(data, tail, exchange.response_headers.get("content-type", ""), everything=everything)
        notes.extend(reply.notes)
        return reply

    def _add_text(self, line: JsonObject, exchange: Exchange, body: Any, malformed: str | None, reply: Reply) -> None:
        line["request"] = self._redactor.body(body)
        if malformed is not None:
            line["malformed"] = malformed
            line["request_text"] = self._redactor.text(_start_as_text(exchange))
        named = named_conversation(body, exchange.request_headers)
        if named is not None:
            line["session"] = self._redactor.text(named)
        headers = {name: exchange.request_headers.get(name) for name in self._log_headers}
        if shown := {name: self._redactor.text(value) for name, value in headers.items() if value is not None}:
            line["headers"] = shown
        line["response"] = response = _response(reply)
        if self._config.with_output:
            response.update(
                self._redactor.body(
                    {
                        "text": "".join(reply.text),
                        "reasoning": "".join(reply.reasoning),
                        "tool_calls": reply.tool_calls,
                    }
                )
            )

    def _add_fingerprint(
        self, line: JsonObject, exchange: Exchange, body: Any, malformed: str | None, reply: Reply
    ) -> None:
        maker = self._config.fingerprinter
        assert maker is not None
        output = _output(reply) if self._config.with_output else None
        line["fingerprint"] = maker.make(body, output, time=exchange.time)
        if malformed is not None:
            line["malformed"] = malformed
        named = named_conversation(body, exchange.request_headers)
        if named is not None:
            line["session"] = maker.label(named)
        line["target"] = line["target"].partition("?")[0]
        line["response"] = _response(reply)

    @staticmethod
    def _add_measures(line: JsonObject, exchange: Exchange, reply: Reply, notes: list[str]) -> None:
        if reply.reported:
            line["usage"] = reply.usage
            line["reported"] = reply.reported
        line["ttft_s"] = _rounded(_first_token(exchange, reply))
        line["total_s"] = _rounded(exchange.total)
        line["sent_bytes"] = exchange.request.size
        line["received_bytes"] = exchange.response.size
        if exchange.outcome != "ok":
            line["outcome"] = exchange.outcome
        if exchange.error is not None:
            line["error"] = exchange.error
        if notes:
            line["notes"] = notes


def _request_body(exchange: Exchange, notes: list[str]) -> tuple[Any, str | None]:
    """Parse the request's body; gives the value, or None and what is wrong with it."""
    if not exchange.request.size:
        return None, None
    if not exchange.request.whole:
        return None, f"the body is longer than the {exchange.request.limit} bytes that are kept"
    data = exchange.request.start()
    encoding = exchange.request_headers.get("content-encoding", "")
    if encoding:
        data, note = decoded(data, encoding)
        if note is not None:
            notes.append(f"request encoding {note}")
    try:
        return orjson.loads(data), None
    except orjson.JSONDecodeError as error:
        complaint = f"not JSON: {error}"
    try:
        # Lone surrogates and NaN: Python's own clients send them, and servers written in Python take them.
        return json.loads(data), None
    except (ValueError, RecursionError):
        return None, complaint


def _start_as_text(exchange: Exchange) -> str:
    return exchange.request.start()[: 4 * _SHOWN].decode("utf-8", "replace")[:_SHOWN]


def _output(reply: Reply) -> Output:
    """Give what was generated, as the reader of a log with text would."""
    return Output("".join(reply.text) or None, "".join(reply.reasoning) or None, reply.tool_calls, finish=reply.finish)


def _response(reply: Reply) -> JsonObject:
    found = {"id": reply.id, "model": reply.model, "finish": reply.finish}
    return {name: value for name, value in found.items() if value is not None}


def _first_token(exchange: Exchange, reply: Reply) -> float | None:
    """Give the seconds until the first generated content of a stream had arrived; None where nothing was streamed."""
    if exchange.ttft is not None:
        return exchange.ttft
    if not reply.streamed or reply.first_at is None or exchange.response_headers.get("content-encoding"):
        return exchange.arrivals[0][0] if reply.streamed and exchange.arrivals else None
    return next((seconds for seconds, size in exchange.arrivals if size >= reply.first_at), None)


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)


def _dumps(line: JsonObject) -> bytes:
    try:
        return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS)
    except TypeError:
        # Lone surrogates, numbers beyond 64 bits, nesting beyond 254 levels: the slow writer knows them all.
        return json.dumps(line, separators=(",", ":")).encode() + b"\n"
