"""GPUs and the shares of their peak rates that prefill reaches: dated data with sources, in hardware.toml."""

from __future__ import annotations

import difflib
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from prefixlint.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_GB = 1e9


@dataclass(frozen=True, slots=True)
class Gpu:
    """One kind of GPU: memory in bytes, dense FLOP/s by precision, memory bandwidth in bytes a second."""

    name: str
    memory: float
    flops: Mapping[str, float]
    bandwidth: float
    source: str
    confidence: str

    def peak(self, dtype: str) -> float:
        """Give the FLOP/s at a precision, of the next wider one where the GPU has none."""
        for known in {"fp4": ("fp4", "fp8"), "fp8": ("fp8",)}.get(dtype, ()):
            if known in self.flops:
                return self.flops[known]
        return self.flops["bf16"]


@dataclass(frozen=True, slots=True)
class Calibration:
    """What the prefill of one model reached on `tp` GPUs of a kind.

    `kind` is `dense` or `moe`, `params` the billions of parameters that a token uses, `compute` and `memory` the shares
    of the peak rates; `engine` None speaks for all engines.
    """

    model: str
    gpu: str
    kind: str
    dtype: str
    params: float
    tp: int
    compute: float
    memory: float
    engine: str | None = None


def gpu(name: str) -> Gpu:
    """Give a GPU by name or alias in any case; an unknown name is a UsageError with the nearest ones."""
    known = {_key(alias): one for one in _hardware().gpus for alias in (one.name, *_hardware().aliases[one.name])}
    found = known.get(_key(name))
    if found is not None:
        return found
    names = {_key(one.name): one.name for one in _hardware().gpus}
    near = [known[key].name for key in difflib.get_close_matches(_key(name), known, n=3, cutoff=0.4)]
    hint = f"Did you mean {' or '.join(dict.fromkeys(near))}?" if near else f"Known GPUs: {', '.join(names.values())}."
    raise UsageError(f"there is no GPU called {name!r}", slug="unknown-gpu", hint=hint)


def calibrations() -> Sequence[Calibration]:
    """List what was measured."""
    return _hardware().calibrations


@dataclass(frozen=True, slots=True)
class _Hardware:
    gpus: Sequence[Gpu]
    aliases: Mapping[str, Sequence[str]]
    calibrations: Sequence[Calibration]


@cache
def _hardware() -> _Hardware:
    text = resources.files("prefixlint").joinpath("hardware.toml").read_text(encoding="utf-8")
    return _parse(tomllib.loads(text))


def _parse(data: Mapping[str, Any]) -> _Hardware:
    gpus, aliases = [], {}
    for row in data["gpu"]:
        _known(row, {"name", "aliases", "memory_gb", "bf16", "fp8", "fp4", "hbm", "source", "confidence"})
        rates = {key: row[key] * 1e12 for key in ("bf16", "fp8", "fp4") if key in row}
        gpus.append(
            Gpu(row["name"], row["memory_gb"] * _GB, rates, row["hbm"] * 1e12, row["source"], row["confidence"])
        )
        aliases[row["name"]] = tuple(row.get("aliases", ()))
    calibrations = []
    for row in data["calibration"]:
        _known(row, {"model", "gpu", "class", "dtype", "params", "tp", "compute", "memory", "engine"})
        values = {("kind" if key == "class" else key): value for key, value in row.items()}
        calibrations.append(Calibration(**values))
    return _Hardware(gpus, aliases, calibrations)


def _known(row: Mapping[str, Any], keys: set[str]) -> None:
    unknown = set(row) - keys
    if unknown:
        what = f"hardware.toml has the unknown key {min(unknown)!r}"
        raise ConfigError(what, slug="bad-hardware-file", hint="Compare it with the other rows of the file.")


def _key(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum()).removeprefix("nvidia").removeprefix("amd")
