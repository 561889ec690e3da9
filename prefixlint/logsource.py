"""The log that is analysed, in files or in memory: read once as a whole, and single requests of it again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

from prefixlint import logs
from prefixlint.errors import UsageError
from prefixlint.logs._read import Index
from prefixlint.model import Request, Skip


class Log(Protocol):
    """The log that is analysed: read once as a whole, and single requests again."""

    def read(self, on_bytes: Callable[[int, int | None], None] | None) -> Iterator[Request | Skip]:
        """Give all requests, and what was skipped with the reason."""
        ...

    def again(self, wanted: Iterable[tuple[str, int, int]]) -> Iterator[Request]:
        """Give the requests of these places (path, line, part); those that cannot be read are left out."""
        ...

    def check_writable(self) -> None:
        """Raise UsageError where `fixed` could not write this log."""
        ...

    def fixed(
        self, body_of: Callable[[tuple[str, int, int]], Any | None], on_lost: Callable[[Skip], None]
    ) -> Iterator[bytes]:
        """Give the lines of the log with other bodies (None: as it is); `on_lost` is told what cannot be read."""
        ...


@dataclass(frozen=True, slots=True)
class Files:
    """A log in files, or on standard input."""

    paths: Sequence[str]
    log_format: str | None
    stdin: BinaryIO | None
    index: Index

    def read(self, on_bytes: Callable[[int, int | None], None] | None) -> Iterator[Request | Skip]:
        """Give all requests, and what was skipped with the reason."""
        return logs.read(self.paths, log_format=self.log_format, stdin=self.stdin, on_bytes=on_bytes, index=self.index)

    def again(self, wanted: Iterable[tuple[str, int, int]]) -> Iterator[Request]:
        """Give the requests of these places; those that cannot be read are left out."""
        return logs.fetch(self.paths, wanted, log_format=self.log_format, stdin=self.stdin, index=self.index)

    def check_writable(self) -> None:
        """Raise UsageError where `fixed` could not write this log."""
        logs.check_writable(self.paths, log_format=self.log_format, stdin=self.stdin, index=self.index)

    def fixed(
        self, body_of: Callable[[tuple[str, int, int]], Any | None], on_lost: Callable[[Skip], None]
    ) -> Iterator[bytes]:
        """Give the lines of the log with other bodies."""
        return logs.rewritten(
            self.paths,
            body_of,
            log_format=self.log_format,
            stdin=self.stdin,
            index=self.index,
            on_lost=on_lost,
        )


@dataclass(frozen=True, slots=True)
class Held:
    """Requests in memory."""

    requests: Sequence[Request]

    def read(self, on_bytes: Callable[[int, int | None], None] | None) -> Iterator[Request | Skip]:
        """Give all requests, and what was skipped with the reason."""
        del on_bytes
        return iter(self.requests)

    def again(self, wanted: Iterable[tuple[str, int, int]]) -> Iterator[Request]:
        """Give the requests of these places; those that cannot be read are left out."""
        places = set(wanted)
        return (request for request in self.requests if (request.path, request.line, request.part) in places)

    def check_writable(self) -> None:
        """Raise UsageError where `fixed` could not write this log."""
        raise UsageError("requests in memory are no log to be written", slug="not-writable")

    def fixed(
        self, body_of: Callable[[tuple[str, int, int]], Any | None], on_lost: Callable[[Skip], None]
    ) -> Iterator[bytes]:
        """Give the lines of the log with other bodies."""
        del body_of, on_lost
        return iter(())
