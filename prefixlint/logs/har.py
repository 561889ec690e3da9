"""HAR files of browsers and proxies (mitmproxy, Charles, Proxyman …): the model calls among the recorded requests.

An entry is a call where the posted JSON is a request body of a known API; all others are named and left out. The answer
is JSON or a recorded stream (server-sent events, JSON lines), either maybe in base64. `time` is the total and
`timings.wait` the time to the first byte, in ms. The model of Gemini, Bedrock and Azure is in the URL. Of the headers
only those that name a session or an organisation are looked at: no credential is taken over, nor a URL's query.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote, urlsplit

from prefixlint.logs import Reader, Record
from prefixlint.logs._exchange import exchange, labels, plain_text
from prefixlint.logs._numbers import number, seconds, text
from prefixlint.logs._sse import events
from prefixlint.logs._values import decoded, rows, table
from prefixlint.model import JsonObject, Latency, Request, Skip

NAME = "har"
KIND = "json"
WHOLE = True
STATELESS = True

# /v1beta/models/NAME:generateContent, /model/NAME/converse, /deployments/NAME/chat/completions
_MODEL_IN_PATH = re.compile(r"/(?:models|model|deployments|engines)/([^/:]+(?::\d+)?)(?=[/:]|$)")
_NOT_PROMPTS = re.compile(r"count_?tokens|/embeddings|/tokenize|/moderations|:embed|/rerank|:predict$", re.IGNORECASE)
_SESSION = ("helicone-session-id", "x-session-affinity", "x-grok-conv-id", "x-session-id", "session_id", "session-id")
_ORGANISATION = ("openai-organization", "openai-project", "anthropic-workspace", "x-goog-user-project")


def detect(record: Record) -> int:
    """Recognise an entry: its start, its request with method and URL."""
    value = record.value
    return 95 if isinstance(value, dict) and _is_entry(value) else 0


def _is_entry(value: JsonObject) -> bool:
    request = value.get("request")
    return isinstance(request, dict) and "url" in request and ("startedDateTime" in value or "postData" in request)


def unpack(value: Any) -> list[Any] | None:
    """Take the entries out of the log."""
    if not isinstance(value, dict):
        return None
    log = value.get("log")
    entries = log.get("entries") if isinstance(log, dict) else None
    return entries if isinstance(entries, list) else None


class _Reader:
    def feed(self, record: Record) -> list[Request | Skip] | None:
        value = record.value
        if not isinstance(value, dict) or not _is_entry(value):
            return None
        asked, answered = value["request"], table(value.get("response"))
        url = urlsplit(text(asked.get("url")) or "")
        posted = asked.get("postData")
        body = _body(posted) if isinstance(posted, dict) else None
        if not isinstance(body, dict | list) or _NOT_PROMPTS.search(url.path):
            reason = f"{asked.get('method')} {url.netloc.rpartition('@')[2]}{url.path[:80]} is no model call"
            return [Skip(record.path, record.line, "not-a-request", reason)]
        status = number(answered.get("status"))
        if status is not None and status >= 400:
            return [Skip(record.path, record.line, "failed-request", f"the request failed with status {status:.0f}")]
        answer = _answer(table(answered.get("content")))
        found = exchange(record, NAME, body, answer, absent=None, known=_known(value, asked, url.netloc, url.path))
        reason = f"what was posted to {url.netloc.rpartition('@')[2]}{url.path[:80]} is no request body of a known API"
        return list(found) or [Skip(record.path, record.line, "not-a-request", reason)]

    def finish(self) -> list[Request | Skip]:
        return []


def reader() -> Reader:
    """Give a reader; it keeps no state."""
    return _Reader()


def _body(posted: JsonObject) -> Any:
    return decoded(plain_text(posted.get("text"), posted.get("encoding") or posted.get("_encoding")))


def _answer(content: JsonObject) -> Any:
    """Give the response: its JSON, or the list of the events of a stream."""
    held = plain_text(content.get("text"), content.get("encoding"))
    if not isinstance(held, str):
        return held
    stream = events(held)
    return decoded(held) if stream is None else stream


def _known(value: JsonObject, asked: JsonObject, host: str, path: str) -> JsonObject:
    headers = {str(h.get("name")).lower(): h.get("value") for h in rows(asked.get("headers"))}
    model = _MODEL_IN_PATH.search(path)
    total, wait = number(value.get("time")), number(table(value.get("timings")).get("wait"))
    return {
        "time": seconds(value.get("startedDateTime")),
        "model": unquote(model[1]) if model else None,
        "session": next((found for name in _SESSION if (found := text(headers.get(name)))), None),
        "namespace": tuple(f"{name}={found}" for name in _ORGANISATION if (found := text(headers.get(name)))),
        "latency": Latency(_ms(total), _ms(wait)),
        "fields": labels({"host": host.rpartition("@")[2], "route": path}),
    }


def _ms(value: float | None) -> float | None:
    """HAR writes -1 for a timing that does not apply."""
    return None if value is None or value < 0 else value / 1000
