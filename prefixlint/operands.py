"""What can be compared: a file that holds a request or a prompt, a line of a log, a body or a prompt at hand."""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from prefixlint import logs, wording
from prefixlint.errors import NoInputError, PrefixlintError, UsageError
from prefixlint.model import Request, Text, TokenIds

_NUMBER = re.compile(r"[0-9]{1,18}")  # a line or part, within 64 bits


def load(name: str, *, rendered: bool = False) -> Request:
    """Read a request: a file's only (or first) one, `LOG#LINE` or `LOG#LINE.PART`, or a file that is a plain prompt.

    `rendered` says that a plain prompt went through its chat template already, so that nothing is added to it.
    """
    wanted = None if os.path.exists(name) else place(name)  # noqa: PTH110 - unlike Path.exists, False for a long name
    if wanted is not None:
        path, line, part = wanted
        _exists(path)
        found = next(iter(logs.fetch([path], [wanted])), None)
        if found is None:
            raise UsageError(f"{path} has no request at line {wording.numbered(line, part)}", slug="no-such-line")
        return found
    # a pipe, as `<(command)` is one, can be read once
    piped = Path(name).read_bytes() if os.path.exists(name) and Path(name).is_fifo() else None  # noqa: PTH110
    if piped is None:
        _exists(name)
    try:
        read = logs.read([name]) if piped is None else logs.read(["-"], stdin=io.BytesIO(piped))
        requests = [replace(item, path=name) for item in read if isinstance(item, Request)]
    except PrefixlintError:
        requests = []
    # a log of plain prompts has one in each line; a file that is compared as a whole is one prompt
    if requests and not any(request.format == "plain" for request in requests):
        return requests[0]
    text = (Path(name).read_bytes() if piped is None else piped).decode("utf-8", "replace")
    return Request(name, 1, Text(text, rendered), "text")


def place(name: str) -> tuple[str, int, int] | None:
    """Read `LOG#LINE` or `LOG#LINE.PART` as path, line (from 1) and part (from 0); None for any other name."""
    path, mark, number = name.rpartition("#")
    line, dot, part = number.partition(".")
    if not mark or not _NUMBER.fullmatch(line) or (dot and not _NUMBER.fullmatch(part)):
        return None
    return path, int(line), int(part or 0)


def at_hand(value: Any, name: str) -> Request:
    """Take a value as a request: a rendered prompt, token ids, a body of any dialect, or a list of messages.

    `name` is what messages call it. UsageError for anything else.
    """
    if isinstance(value, str):
        return Request(name, 1, Text(value, rendered=True), "text")
    if isinstance(value, Sequence) and value and all(isinstance(item, int) for item in value):
        return Request(name, 1, TokenIds(tuple(value)), "token-ids")
    body = {"messages": list(value)} if isinstance(value, Sequence) and not isinstance(value, bytes) else value
    if not isinstance(body, Mapping):
        raise UsageError(
            f"{name} is no prompt: {type(value).__name__}",
            slug="no-prompt-at-hand",
            hint="a string, a request body, a list of messages, or token ids",
        )
    try:
        data = json.dumps(dict(body)).encode("utf-8", "surrogatepass")
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name} is no JSON: {error}", slug="no-prompt-at-hand", hint="a request body") from error
    try:
        found = next((item for item in logs.read(["-"], stdin=io.BytesIO(data)) if isinstance(item, Request)), None)
    except PrefixlintError:
        found = None
    if found is None:
        raise UsageError(
            f"{name} is no request body that is known", slug="no-prompt-at-hand", hint="messages and model"
        )
    return replace(found, path=name)


def _exists(path: str) -> None:
    if os.path.isfile(path):  # noqa: PTH113 - unlike Path.is_file, False for a long name
        return
    what = "no file but a folder or a device" if os.path.exists(path) else "no such file"  # noqa: PTH110
    raise NoInputError(f"{path}: {what}", slug="no-input", hint="a file, or LOG#LINE")
