"""Which GPUs this machine has, as the CUDA driver tells; nothing heavy is imported for it."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

_NAME_BYTES = 128


@dataclass(frozen=True, slots=True)
class Cuda:
    """The CUDA devices that a program sees, by name; without any, `why` says why."""

    names: tuple[str, ...] = ()
    why: str = ""


def cuda(library: str = "libcuda.so.1") -> Cuda:
    """Ask the driver. CUDA_VISIBLE_DEVICES holds, as for the engines."""
    try:
        driver = ctypes.CDLL(library)
    except OSError:
        return Cuda(why="there is no NVIDIA driver (libcuda.so.1)")
    count = ctypes.c_int()
    try:
        status = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
        if status:
            return Cuda(why=f"the NVIDIA driver finds no device it can use (CUDA error {status})")
        names = []
        for number in range(count.value):
            name = ctypes.create_string_buffer(_NAME_BYTES)
            device = ctypes.c_int()
            if driver.cuDeviceGet(ctypes.byref(device), number) or driver.cuDeviceGetName(name, _NAME_BYTES, device):
                continue
            names.append(name.value.decode("utf-8", "replace"))
    except AttributeError:  # a stub, as containers for building have it
        return Cuda(why="the NVIDIA driver here is a stub")
    return Cuda(tuple(names)) if names else Cuda(why="the NVIDIA driver shows no device")


def machine() -> str:
    """Name this machine as far as it decides how fast an engine is: processor, cores, memory, GPUs."""
    import os
    import platform
    from pathlib import Path

    name = platform.processor() or platform.machine()
    memory = ""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), name)
        memory = f", {os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB"
    except (OSError, ValueError):
        pass
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    gpus = "".join(f", {gpu}" for gpu in cuda().names)
    return f"{name}, {cores} core{'s' if cores != 1 else ''}{memory}{gpus}"
