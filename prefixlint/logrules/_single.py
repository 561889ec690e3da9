"""What one request shows by itself: memory addresses, metadata lines, markers that cannot work."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from prefixlint.logrules._hits import At, Hit
from prefixlint.logrules._message import MARKERS, dumps
from prefixlint.logrules._values import pseudo_header
from prefixlint.logrules._view import View

_ADDRESS = re.compile(r"<[\w.]+(?: [\w.]+)* at (0x[0-9a-fA-F]{6,16})>")
MOST_MARKERS = 4
"""Anthropic refuses requests with more (platform.claude.com, prompt caching, as of 2026-06)."""
LOOK_BACK = 20
"""Content blocks before a marker in which Anthropic looks for an earlier entry (the same page)."""
_LEAST = 512
_LEAST_REPORTED = 4_096
"""Tokens under which no model (over which every model) of Anthropic caches: minimums are 512 to 4,096 by model."""
_TEXTS = 32  # system texts that are remembered
_CHARS = 3  # a token has at least about this many characters of English; used to be sure that a prompt is short


def hits(view: View) -> Iterator[Hit]:
    """Give what a single request shows."""
    telling = [unit for unit in view.head if _is_telling(unit.text)]
    for unit in telling:
        found = _ADDRESS.search(unit.text) if " at 0x" in unit.text else None
        if found is not None:
            where = At(unit.path, found.start(1), None, found[1])
            what = "the system text holds the memory address of an object"
            lead = unit.text[max(0, found.start() - 12) : found.start()]
            key = ("PFX109", "address", lead)
            yield Hit("PFX109", "address", (1, found.start(1), 0), where, key, what, "", found[0], same=False, tail=1)
            break
    if telling and telling[0] is view.head[0]:
        unit = view.head[0]
        header = pseudo_header(unit.text)
        if header is not None:
            where = At(unit.path, header.start("value"), None, header["value"])
            what = "the system text begins with a line that a client or gateway adds, with a checksum or serial in it"
            key = ("PFX110", "header", "single")
            yield Hit("PFX110", "header", (1, 0, 0), where, key, what, "", header[0], same=False, tail=1, sure=2)
    yield from _bypassed(view)
    markers = list(marked(view.body)) if view.marked else []
    if len(markers) > MOST_MARKERS:
        where = At(markers[MOST_MARKERS], 0, None, None)
        what = f"{len(markers)} cache markers, of which {MOST_MARKERS} are allowed"
        yield Hit("PFX501", "many", (3, 0, 0), where, ("PFX501", "many"), what, "", "", same=False)
    if markers:
        yield from _too_short(view, markers)


def _bypassed(view: View) -> Iterator[Hit]:
    """Tell whether a request asks for log-probabilities of its prompt: vLLM and SGLang then compute all of it."""
    begin = view.settings.get("logprob_start_len")
    whole = type(begin) is int and begin >= 0 and view.settings.get("return_logprob") is True
    name = "prompt_logprobs" if type(view.settings.get("prompt_logprobs")) is int else "logprob_start_len"
    if whole or name == "prompt_logprobs":
        what = f"{name} makes the engine compute the whole prompt again"
        yield Hit("PFX701", name, (3, 3, 0), At(name, 0, None, None), ("PFX701", name), what, "", "", same=False)


@lru_cache(_TEXTS)
def _is_telling(text: str) -> bool:
    """Tell whether a text may hold something that a single request shows; most requests have the same few."""
    return " at 0x" in text or pseudo_header(text) is not None


def _too_short(view: View, markers: list[str]) -> Iterator[Hit]:
    size = view.size + sum(len(dumps(tool)) for tool in view.tools)
    nothing = view.cached == 0 and view.written == 0
    if not nothing and not (view.model or "").rpartition("/")[2].startswith("claude"):
        return  # of another provider nothing is known
    least = _LEAST_REPORTED if nothing else _LEAST
    if size < least * _CHARS and not (view.cached or view.written):
        where = At(markers[-1], 0, None, None)
        what = f"a cache marker on a prompt of about {max(1, size // 4)} tokens, fewer than a provider caches"
        if nothing:
            what += "; the response says that nothing was cached"
        yield Hit("PFX502", "short", (3, 1, 0), where, ("PFX502",), what, "", "", same=False)


def marked(body: Any) -> Iterator[str]:
    """Give the paths of a body's blocks that carry a cache marker, tools before system before messages."""
    if not isinstance(body, dict):
        return
    for key in ("tools", "toolConfig", "system", "messages", "contents"):
        yield from _marked(key, body.get(key))


def _marked(path: str, value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _marked(f"{path}[{index}]", item)
    elif isinstance(value, dict):
        if not MARKERS.isdisjoint(value):
            yield path
        for key, item in value.items():
            if key not in MARKERS and key not in ("input_schema", "parameters", "input"):
                yield from _marked(f"{path}.{key}", item)


def jumped(earlier: View, later: View) -> Iterator[Hit]:
    """Find a marker that is too many blocks behind the last one of the turn before: that one's entry is not found."""
    if not earlier.marked or not later.marked:
        return
    before, after = _positions(earlier), _positions(later)
    if not before or not after:
        return
    last = before[-1][0]
    if any(last <= position <= last + LOOK_BACK for position, _ in after):
        return
    ahead = [(position, path) for position, path in after if position > last]
    if not ahead or any(position < last for position, _ in after if position > 0 and position + LOOK_BACK >= last):
        return
    position, path = ahead[0]
    what = f"the next cache marker is {position - last} blocks behind the last one; only {LOOK_BACK} are looked at"
    where = At(path, 0, None, None)
    yield Hit("PFX501", "far", (3, 2, 0), where, ("PFX501", "far"), what, "", "", same=True, tail=1)


def _positions(view: View) -> list[tuple[int, str]]:
    """Give the markers on messages, as numbers of content blocks from the beginning of the messages."""
    found = []
    position = 0
    for message in view.messages:
        content = message.raw.get("content") if isinstance(message.raw, dict) else None
        blocks = content if isinstance(content, list) else [content]
        for index, block in enumerate(blocks):
            position += 1
            if isinstance(block, dict) and not MARKERS.isdisjoint(block):
                found.append((position, f"{message.path}.content[{index}]"))
    return found
