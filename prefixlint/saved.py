"""Results that `--format json` wrote, read again; what is no such result is refused with words."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from prefixlint.errors import NoInputError, UsageError

_Made = TypeVar("_Made")
_HINT = "a result that a command wrote with --format json"


def load(path: str, stdin: BinaryIO | None = None) -> dict[str, Any]:
    """Read a saved result of any schema of prefixlint; `-` is `stdin`.

    NoInputError where there is no such file, UsageError where it holds something else.
    """
    try:
        if path != "-" and Path(path).is_char_device():
            raise UsageError(f"{path} is a device, which may never end", slug="bad-result", hint=_HINT)
        data = stdin.read() if path == "-" and stdin is not None else Path(path).read_bytes()
    except FileNotFoundError as error:
        raise NoInputError(f"{path}: no such file", slug="no-input", hint=_HINT) from error
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}", slug="bad-result", hint=_HINT) from error
    try:
        found = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise _foreign(path) from error
    if not isinstance(found, dict) or not str(found.get("schema")).startswith("prefixlint."):
        raise _foreign(path)
    return found


@contextlib.contextmanager
def read_as(kind: str) -> Iterator[None]:
    """Turn what goes wrong while a saved result is read into words: it lacks what the schema of its command says."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValueError, IndexError, ArithmeticError) as error:
        lacks = f"no {error.args[0]}" if isinstance(error, KeyError) else type(error).__name__
        raise UsageError(
            f"the saved result lacks what its schema says: {lacks}",
            slug="bad-result",
            hint=f"prefixlint schema {kind} shows what it must hold",
        ) from error


def build(make: type[_Made], saved: Mapping[str, Any], **read: Any) -> _Made:
    """Make a dataclass whose fields are called as in the JSON, but for those that were `read`.

    Fields that this version does not know are passed over, since results grow.
    """
    known = {field.name for field in fields(make)}  # type: ignore[arg-type]  # only dataclasses are made
    return make(**{**{key: value for key, value in saved.items() if key in known}, **read})


def _foreign(path: str) -> UsageError:
    return UsageError(f"{path} is no result of prefixlint", slug="bad-result", hint=_HINT)
