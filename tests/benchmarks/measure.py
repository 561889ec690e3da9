"""Run a command and say what it cost: CPU and wall seconds, and the most memory any of its processes held at once."""

from __future__ import annotations

import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Cost:
    """What one run took.

    `cpu` is user + system seconds of the process and the children it waited for, `wall` seconds, `peak_mb` the peak
    resident set of the largest single process in MB (10**6 bytes), as the kernel accounts it: from the fork on, so never
    less than what the measuring process itself holds (some 25 MB in `make bench`).
    """

    cpu: float
    wall: float
    peak_mb: float
    status: int
    output: bytes


def run(command: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: str | None = None) -> Cost:
    """Run the command to its end with nothing on standard input; its output (both streams) goes to a file and comes back.

    Python caches its byte code in the command even where the environment of this run forbids it, as it does for users.
    `os.wait4` gives the usage of exactly this child, where `getrusage(RUSAGE_CHILDREN)` would give the maximum over all
    commands of this run.
    """
    if env is None:
        env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryFile() as out:
        started = time.perf_counter()
        child = subprocess.Popen(
            list(command), stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=env, cwd=cwd
        )
        _, status, usage = os.wait4(child.pid, 0)
        wall = time.perf_counter() - started
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        text = out.read()
    return Cost(
        cpu=usage.ru_utime + usage.ru_stime,
        wall=wall,
        peak_mb=usage.ru_maxrss * _MAXRSS_UNIT / 1e6,
        status=child.returncode,
        output=text,
    )


# Linux counts in KiB, macOS in bytes.
_MAXRSS_UNIT = 1 if os.uname().sysname == "Darwin" else 1024


def machine() -> str:
    """Name what the figures were measured on: processors and memory that this process may use, in words."""
    model = "unknown processor"
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8") as info:
            model = next(line.partition(":")[2].strip() for line in info if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    cap = "" if limit == resource.RLIM_INFINITY else f", address space limited to {limit / 2**30:.0f} GiB"
    return f"{cores} cores of {model}, {gib:.0f} GiB{cap}"
