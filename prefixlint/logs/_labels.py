"""The logged values that requests can be grouped by. Few runs ask for them, so they are gathered when one does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prefixlint.logs._secrets import is_secret

_LONGEST = 256  # characters of a value
_NESTED = frozenset({"metadata", "tags", "labels", "properties", "attributes"})
_OF_BODY = ("prompt_cache_key", "safety_identifier", "user", "service_tier")


class Labels(Mapping[str, str]):
    """Scalars of what stands around a body, of its `metadata`, and a few of the body itself.

    Nested keys are joined by dots (`metadata.team`). Values over 256 characters and credentials are left out.
    """

    __slots__ = ("_around", "_body", "_held")

    def __init__(self, body: Mapping[str, Any], around: Mapping[str, Any]) -> None:
        self._body, self._around = body, around
        self._held: dict[str, str] | None = None

    def __getitem__(self, name: str) -> str:
        """Give a value; KeyError where there is none."""
        if self._held is None and name not in self._body and name not in self._around and "." not in name:
            raise KeyError(name)
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        """Give the names."""
        return iter(self._all())

    def __len__(self) -> int:
        """Count the values."""
        return len(self._all())

    def __repr__(self) -> str:
        """Show them as a dictionary."""
        return repr(self._all())

    def _all(self) -> dict[str, str]:
        if self._held is None:
            self._held = dict(_gathered(self._body, self._around))
        return self._held


def _gathered(body: Mapping[str, Any], around: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in around.items():
        if not isinstance(value, dict):
            yield from _scalar(name, value)
        elif name in _NESTED:
            yield from _scalars(value, f"{name}.")
    metadata = body.get("metadata")
    if isinstance(metadata, dict):
        yield from _scalars(metadata, "metadata.")
    for name in _OF_BODY:
        if name in body and (shown := _shown(body[name])) is not None:
            yield name, shown


def _scalars(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        yield from ((f"{prefix}{key}", shown) for key, shown in _scalar(name, value))


def _scalar(name: str, value: Any) -> Iterator[tuple[str, str]]:
    shown = _shown(value)
    if shown is not None and not is_secret(name, shown):
        yield name, shown


def _shown(value: Any) -> str | None:
    if isinstance(value, str):
        return value if len(value) <= _LONGEST else None
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, (int, float)) else None
