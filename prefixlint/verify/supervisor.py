"""A program of its own that runs a server for as long as its standard input stays open, and then ends all of it.

`python supervisor.py GRACE COMMAND...`: whoever started it ends the server by closing that input, or by dying in
whatever way, since the kernel closes it then too; a byte on it leaves the server running. The server has a session and
a process group of its own, so that a terminal's Ctrl-C does not reach it. What it left behind is found by the group,
and by parentage where children made groups of their own. Exit code: the server's, 128 + the signal that ended it, 127
where it could not be started.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

_LOOK = 0.05  # seconds between two looks at whether the server still runs
_NOT_STARTED = 127


def main(grace: float, command: list[str]) -> int:
    """Run a command until it ends, or standard input does; give the exit code."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    try:
        server = subprocess.Popen(  # noqa: S603 - the command is the user's own
            command,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            restore_signals=True,
            preexec_fn=_plain_signals,  # noqa: PLW1509 - this program has one thread
        )
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        return _NOT_STARTED
    family = {server.pid}
    while server.poll() is None:
        ready, _, _ = select.select([0], [], [], _LOOK)
        if ready:
            if os.read(0, 1):
                return 0
            break
    _end(server, family, grace)
    return server.returncode if server.returncode >= 0 else 128 - server.returncode


def _plain_signals() -> None:
    """Give the server the signals that a program expects: what is ignored here would stay ignored there."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def _end(server: subprocess.Popen[bytes], family: set[int], grace: float) -> None:
    """Ask the server and its children to end, wait for that, and kill what is still there."""
    family |= _descendants(server.pid)
    _signal(server.pid, family, signal.SIGTERM)
    limit = time.monotonic() + grace
    while time.monotonic() < limit and (server.poll() is None or _lives(server.pid, family)):
        family |= _descendants(server.pid)
        time.sleep(_LOOK)
    _signal(server.pid, family, signal.SIGKILL)
    server.wait()


def _signal(group: int, family: set[int], number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
    for pid in family - {group}:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _lives(group: int, family: set[int]) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return any(_running(pid) for pid in family - {group})
    return True


def _running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (OSError, IndexError):
        return False


def _descendants(root: int) -> set[int]:
    """Give the processes that descend from one, where the system tells (Linux)."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            parents[int(entry.parent.name)] = int(entry.read_text().rpartition(")")[2].split()[1])
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {root}


if __name__ == "__main__":
    raise SystemExit(main(float(sys.argv[1]), sys.argv[2:]))
