"""What NVML says of the GPUs of this machine: how busy they are and how full. Needs nvidia-ml-py, and a driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU at one moment: `busy` is a share of the last sampling period of the driver, memory is in bytes."""

    name: str
    busy: float
    used: int
    total: int


class Gpus:
    """The GPUs of this machine, open until `close`. `open_gpus` makes it."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._handles = [nvml.nvmlDeviceGetHandleByIndex(number) for number in range(nvml.nvmlDeviceGetCount())]
        self._names = [_text(nvml.nvmlDeviceGetName(handle)) for handle in self._handles]

    @property
    def names(self) -> Sequence[str]:
        """What the GPUs are called."""
        return self._names

    def read(self) -> list[GpuReading]:
        """Give a reading of each GPU that answers now; those in a state that NVML cannot read are left out."""
        found = []
        for name, handle in zip(self._names, self._handles, strict=True):
            try:
                busy = self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu
                memory = self._nvml.nvmlDeviceGetMemoryInfo(handle)
            except self._nvml.NVMLError:
                continue
            found.append(GpuReading(name, busy / 100, int(memory.used), int(memory.total)))
        return found

    def close(self) -> None:
        """Release the driver's library."""
        self._nvml.nvmlShutdown()


def open_gpus() -> tuple[Gpus | None, str | None]:
    """Give the GPUs of this machine, or None and why there are none to read."""
    try:
        import pynvml
    except ImportError:
        return None, "nvidia-ml-py is not installed"
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return None, f"NVML says: {error}"
    try:
        gpus = Gpus(pynvml)
    except pynvml.NVMLError as error:
        pynvml.nvmlShutdown()
        return None, f"NVML says: {error}"
    if not gpus.names:
        gpus.close()
        return None, "NVML knows of no GPU"
    return gpus, None


def _text(name: str | bytes) -> str:
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else name
