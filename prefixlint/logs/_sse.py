"""Streamed answers as a recording holds them: server-sent events or JSON lines, as a list of their JSON payloads."""

from __future__ import annotations

from typing import Any

from prefixlint.logs._parse import maybe


def events(text: str) -> list[Any] | None:
    """Give the JSON objects of a stream in order; None when the text is no stream.

    `data:` lines of one event belong together; comments, names, ids and the closing `[DONE]` are left out, as is a last
    event that was cut off. Lines that are JSON themselves (Ollama's streams) count too.
    """
    start = text[:256].lstrip("\ufeff \r\n")
    if start.startswith(("data:", "event:", "id:", ":", "retry:")):
        return _payloads(text)
    if start.startswith("{") and "\n" in text.strip():
        found = [maybe(line.strip()) for line in text.split("\n") if line.strip()]
        return found if all(isinstance(entry, dict) for entry in found) else None
    return None


def _payloads(text: str) -> list[Any]:
    found: list[Any] = []
    data: list[str] = []
    for line in [*text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), ""]:
        if line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif not line and data:
            payload = maybe("\n".join(data))
            if isinstance(payload, dict):
                found.append(payload)
            data = []
    return found
