"""The program: `prefixlint`, and `python -m prefixlint`. Signals are seen to before anything heavy is imported."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_stopped: list[int] = []
"""The exit code that a signal asked for."""
_AGAIN = 0.01  # seconds after a finaliser in which the program was stopped in vain


def run() -> None:
    """Run the command line; ends with 128 + the signal's number where one stops it, as shells have it."""
    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup, or a shell's background job
            signal.signal(number, _stop)
    sys.unraisablehook = _lost
    try:
        from prefixlint.cli import main

        main(prog_name="prefixlint", obj=True)  # the process ends with the command, see `cliparts.collect_seldom`
    except SystemExit as end:
        code = _stopped[0] if _stopped else end.code
        _leave(code)
        raise SystemExit(code) from end


def _leave(code: str | int | None) -> None:
    """End the process once all is written: to take a large analysis apart first, object by object, is time lost.

    Returns where something is left to be done, as with threads that still run or an output that cannot be flushed.
    """
    if isinstance(code, str) or threading.active_count() > 1:
        return
    atexit._run_exitfuncs()  # noqa: SLF001 (as multiprocessing does, which ends its processes in the same way)
    try:
        for stream in (sys.stdout, sys.stderr):  # what those functions wrote too
            stream.flush()
    except (AttributeError, OSError, ValueError):  # there is none, or it was closed
        return
    os._exit(code or 0)


def _stop(number: int, _frame: FrameType | None) -> None:
    """End in an orderly way, so that files half-written are removed; a second signal ends at once."""
    for each in _SIGNALS:
        signal.signal(each, signal.SIG_DFL)
    if number == signal.SIGINT:
        os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, b"interrupted\n")
    _stopped.append(128 + number)
    raise SystemExit(128 + number)


def _lost(what: sys.UnraisableHookArgs) -> None:
    """Stop again a program that was stopped within a finaliser, where what is raised is lost; not on Windows."""
    if not (_stopped and isinstance(what.exc_value, SystemExit) and hasattr(signal, "setitimer")):
        sys.__unraisablehook__(what)
        return
    signal.signal(signal.SIGALRM, lambda *_: sys.exit(_stopped[0]))
    signal.setitimer(signal.ITIMER_REAL, _AGAIN)


if __name__ == "__main__":
    run()
