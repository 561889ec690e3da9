"""The thread that turns exchanges into lines of a log, and counts what it cannot write."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from prefixlint.capture.config import Event, OnEvent, RecordConfig
from prefixlint.capture.exchange import Exchange
from prefixlint.capture.lines import LineMaker
from prefixlint.capture.logfile import LogFile

# Lines of one write at most; few enough that little is lost to a kill.
_BATCH = 64
# Loss is said at once and then at most this often (seconds).
_SAY_EVERY = 10.0


@dataclass(frozen=True, slots=True)
class Totals:
    """What became of the exchanges: `written` + `sampled_out` + the lost ones are all that were seen.

    `lost_queue` did not fit into memory, `lost_disk` could not be written, `lost_error` could not be made into a line.
    """

    written: int = 0
    sampled_out: int = 0
    lost_queue: int = 0
    lost_disk: int = 0
    lost_error: int = 0
    reason: str | None = None

    @property
    def lost(self) -> int:
        """Exchanges that should be in the log and are not."""
        return self.lost_queue + self.lost_disk + self.lost_error


class Recorder:
    """Takes exchanges without ever blocking or raising, and writes them from a thread of its own.

    The file is opened at once, so that a missing permission is an error (PrefixlintError) before anything is served.
    After a fork the thread is started again in the child.
    """

    def __init__(self, config: RecordConfig, on_event: OnEvent) -> None:
        self._config = config
        self._on_event = on_event
        self._file = LogFile(config.output, self._say, rotate_bytes=config.rotate_bytes, keep=config.keep)
        self._lines = LineMaker(config)
        self._start()

    def _start(self) -> None:
        self._queue: queue.SimpleQueue[Exchange | None] = queue.SimpleQueue()
        self._pid = os.getpid()
        # Each counter has one writer: the submitting side, or the thread. `_guard` is for several submitting threads.
        self._guard = threading.Lock()
        self._taken = self._taken_bytes = 0
        self._done = self._done_bytes = 0
        self._written = self._sampled_out = 0
        self._lost_queue = self._lost_disk = self._lost_error = 0
        self._reason: str | None = None
        self._said_at = -_SAY_EVERY
        self._said_lost = 0
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="prefixlint-record", daemon=True)
        self._thread.start()

    @property
    def body_limit(self) -> int:
        """Bytes that are kept of one body."""
        return self._config.body_limit

    def submit(self, exchange: Exchange) -> None:
        """Hand over an exchange that has ended. Where too many wait already, it is dropped and counted."""
        if self._pid != os.getpid():
            self._start()
        held = exchange.held
        with self._guard:
            waiting = self._taken - self._done
            full = waiting >= self._config.pending_lines
            full = full or (waiting > 0 and self._taken_bytes - self._done_bytes + held > self._config.pending_limit)
            if full or self._closed:
                self._lost_queue += 1
                return
            self._taken += 1
            self._taken_bytes += held
        self._queue.put(exchange)

    def totals(self) -> Totals:
        """Say what became of the exchanges so far."""
        return Totals(
            self._written, self._sampled_out, self._lost_queue, self._lost_disk, self._lost_error, self._reason
        )

    def flush(self, timeout: float = 10.0) -> bool:
        """Wait until everything handed over so far was dealt with; False where that took longer."""
        target = self._taken
        deadline = time.monotonic() + timeout
        while self._done < target:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.002)
        return True

    def close(self, timeout: float = 60.0) -> Totals:
        """Write what waits, close the file and give the totals. Safe to call twice."""
        if not self._closed and self._pid == os.getpid():
            with self._guard:
                self._closed = True
            self._queue.put(None)
            self._thread.join(timeout)
            self._file.close()
        totals = self.totals()
        if totals.lost > self._said_lost:
            self._said_lost = totals.lost
            self._say(Event("loss", _loss_message(totals, self._config.output)))
        return totals

    def _run(self) -> None:
        going = True
        while going:
            batch = [self._queue.get()]
            with contextlib.suppress(queue.Empty):
                while len(batch) < _BATCH and batch[-1] is not None:
                    batch.append(self._queue.get_nowait())
            if batch[-1] is None:
                going = False
                batch.pop()
            exchanges = [exchange for exchange in batch if exchange is not None]
            self._write(exchanges)
            self._done_bytes += sum(exchange.held for exchange in exchanges)
            self._done += len(exchanges)
            self._say_loss()

    def _write(self, exchanges: list[Exchange]) -> None:
        lines: list[bytes] = []
        for exchange in exchanges:
            try:
                line = self._lines.make(exchange)
            except Exception as error:  # noqa: BLE001  (whatever a body holds, recording goes on)
                self._lost_error += 1
                self._reason = f"{type(error).__name__}: {error}"
                continue
            if line is None:
                self._sampled_out += 1
            else:
                lines.append(line)
        if not lines:
            return
        try:
            self._file.append(lines)
            self._written += len(lines)
        except OSError as error:
            self._reason = error.strerror or str(error)
            self._write_singly(lines)

    def _write_singly(self, lines: list[bytes]) -> None:
        """Save what still fits after a batch did not: the file was cut back to whole lines."""
        for position, line in enumerate(lines):
            try:
                self._file.append([line])
                self._written += 1
            except OSError as error:
                self._reason = error.strerror or str(error)
                self._lost_disk += len(lines) - position
                return

    def _say_loss(self) -> None:
        totals = self.totals()
        now = time.monotonic()
        if totals.lost > self._said_lost and now - self._said_at >= _SAY_EVERY:
            self._said_lost, self._said_at = totals.lost, now
            self._say(Event("loss", _loss_message(totals, self._config.output)))

    def _say(self, event: Event) -> None:
        with contextlib.suppress(Exception):
            self._on_event(event)


def _loss_message(totals: Totals, output: str) -> str:
    parts: list[tuple[int, Callable[[], str]]] = [
        (totals.lost_disk, lambda: f"{totals.lost_disk} could not be written ({totals.reason})"),
        (totals.lost_queue, lambda: f"{totals.lost_queue} came faster than they could be written"),
        (totals.lost_error, lambda: f"{totals.lost_error} could not be turned into a line ({totals.reason})"),
    ]
    said = "; ".join(text() for count, text in parts if count)
    return f"{totals.lost} requests passed but are missing from {output}: {said}"
