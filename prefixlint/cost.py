"""What a hit is worth: prefill FLOPs exactly, prefill seconds by a calibrated model, and the pool that memory leaves.

A prompt of n tokens of which p come from the cache costs F(n, p) = s·a + b·(s·p + s(s+1)/2) + the logits of its last
position, with s = n - p, a FLOPs a token and b a pair; a window w makes the pairs of a layer the sum of min(i, w).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from prefixlint import hardware
from prefixlint.errors import UsageError
from prefixlint.hardware import Calibration, Gpu, gpu
from prefixlint.shapes import KV_BYTES, Shape

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]

_GB = 1e9
_MIB = 2.0**20
CALIBRATED_BAND = 0.10
"""A lone prefill on a calibrated GPU: the NIM and aiconfigurator rows that the model was held against, within this."""
UNCALIBRATED_BAND = 0.30
_UNCALIBRATED = (0.5, 0.6)  # shares of the peaks where nothing was measured; the first is good to 0.15
_SAME_SIZE = 2.5  # the factor in parameters within which a calibration speaks for a model


@dataclass(frozen=True, slots=True)
class Timing:
    """How long prefill takes for a model on some GPUs.

    `compute` and `memory` are the shares of the peaks that are reached. `calibrated` says whether they were measured
    for such a model on this GPU; `band` is the relative error to expect of a lone prefill; `basis` says it in words.
    """

    gpu: Gpu
    tp: int
    dtype: str
    compute: float
    memory: float
    calibrated: bool
    band: float
    basis: str


def flops(shape: Shape, prompt: ArrayLike, cached: ArrayLike = 0) -> Floats:
    """Give the FLOPs of prefill, for prompts of which some tokens come from the cache (arrays of one shape)."""
    n, p = np.asarray(prompt, np.float64), np.asarray(cached, np.float64)
    total = (n - p) * shape.token_flops + np.where(n > p, shape.head_flops, 0.0)
    for window, each in shape.pair_flops.items():
        total = total + each * (_pairs(n, window) - _pairs(p, window))
    return total


def _pairs(n: Floats, window: int | None) -> Floats:
    """Count the pairs of queries and keys of the first n tokens: the sum of min(i, window)."""
    if window is None:
        return n * (n + 1) / 2
    inside = np.minimum(n, window)
    pairs: Floats = inside * (inside + 1) / 2 + np.maximum(n - window, 0) * window
    return pairs


def saved_flops(shape: Shape, prompt: ArrayLike, cached: ArrayLike) -> Floats:
    """Give the FLOPs that the cached tokens did not cost; the last token of a prompt is always computed."""
    return flops(shape, prompt) - flops(shape, prompt, cached)


def timing(shape: Shape, name: str, *, tp: int = 1, engine: str = "vllm") -> Timing:
    """Choose the shares of the peaks that fit a model on `tp` GPUs of a kind, and say how far to trust them."""
    if tp < 1:
        raise UsageError(f"{tp} GPUs cannot hold a model", slug="bad-tp", hint="Give 1 or more.")
    chip = gpu(name)
    kind, params = "moe" if shape.moe else "dense", _active(shape)

    def distance(row: Calibration) -> tuple[float, bool]:
        return abs(math.log(row.params / params)) + abs(math.log2(row.tp / tp)), row.engine is None

    rows = [r for r in hardware.calibrations() if (r.gpu, r.kind, r.dtype) == (chip.name, kind, shape.dtype)]
    rows = [r for r in rows if r.engine in (None, engine)]
    if not rows:
        text = f"uncalibrated: nothing was measured for a {kind} {shape.dtype} model on {chip.name}"
        return Timing(chip, tp, shape.dtype, *_UNCALIBRATED, calibrated=False, band=UNCALIBRATED_BAND, basis=text)
    best = min(rows, key=distance)
    exact = max(best.params / params, params / best.params) <= _SAME_SIZE and best.tp == tp
    where = f"{best.model} on {best.tp} x {chip.name} in {best.dtype}"
    text = f"calibrated on {where}" if exact else f"uncalibrated: the nearest that was measured is {where}"
    band = CALIBRATED_BAND if exact else UNCALIBRATED_BAND
    return Timing(chip, tp, shape.dtype, best.compute, best.memory, calibrated=exact, band=band, basis=text)


def _active(shape: Shape) -> float:
    """Give the parameters that a token uses, in billions."""
    return shape.token_flops / 2 / _GB


def prefill_seconds(shape: Shape, timing: Timing, prompt: ArrayLike, cached: ArrayLike = 0) -> Floats:
    """Give the seconds of a lone prefill, without what the server does around it (10 to 50 ms).

    Reading the weights and computing overlap in dense models, so that their times add as squares do; the small products
    of experts do not overlap, and theirs add. A few tokens cost what reading the weights costs.
    """
    n, p = np.asarray(prompt, np.float64), np.asarray(cached, np.float64)
    computing = flops(shape, n, p) / (timing.compute * timing.gpu.peak(timing.dtype) * timing.tp)
    touched = np.vectorize(shape.touched_bytes, otypes=[float])(n - p) if shape.moe else shape.weight_bytes
    reading = np.where(n > p, touched / (timing.memory * timing.gpu.bandwidth * timing.tp), 0.0)
    return computing + reading if shape.moe else np.hypot(computing, reading)


@dataclass(frozen=True, slots=True)
class Pool:
    """The KV pool of one replica: tokens, bytes on each GPU, and how it was worked out."""

    tokens: int
    bytes: float
    bytes_per_token: float
    basis: str


def pool(
    shape: Shape, name: str, engine: str, *, tp: int = 1, kv_dtype: str = "bf16", fraction: float | None = None
) -> Pool:
    """Estimate the KV pool of an engine on `tp` GPUs, each engine by its own denominator.

    vLLM's share (0.92) is of all memory, activations and graphs included; SGLang's is weights and KV over all memory;
    TensorRT-LLM's (0.9) is of what is free behind the weights. UsageError where the model leaves nothing.
    """
    if kv_dtype not in KV_BYTES:
        raise UsageError(
            f"there is no KV type {kv_dtype!r}", slug="unknown-kv-dtype", hint=f"One of {', '.join(KV_BYTES)}."
        )
    if fraction is not None and not 0 < fraction <= 1:
        raise UsageError(f"a share of memory of {fraction:g} is not possible", slug="bad-fraction", hint="From 0 to 1.")
    chip = gpu(name)
    weights = shape.weight_bytes / tp
    chunk = _chunk(chip.memory / 2**30)
    # 2.5 GB for what is no tensor and for graphs, and eight values of 16 bits a position of a full step.
    working = 2.5 * _GB + 16.0 * chunk * shape.hidden
    if engine == "sglang":
        share = _sglang_share(chip, chunk, tp) if fraction is None else fraction
        left, basis = chip.memory * share - weights, f"{share:.2f} of memory (weights + KV), less weights"
    elif engine == "tensorrt-llm":
        share = 0.9 if fraction is None else fraction
        left = (chip.memory - weights - working) * share
        basis = f"{share:.2f} of what weights and activations leave"
    else:
        share = 0.92 if fraction is None else fraction
        left, basis = chip.memory * share - weights - working, f"{share:.2f} of memory, less weights and activations"
    each = shape.kv_bytes_per_token(kv_dtype, tp=tp)
    if left <= 0 or each <= 0:
        need = (
            f"its weights take {weights / _GB:.0f} GB on each of {tp}, and a {chip.name} has {chip.memory / _GB:.0f} GB"
        )
        raise UsageError(
            f"{shape.name} leaves no memory for a cache: {need}",
            slug="no-pool",
            hint="Use more or larger GPUs (--gpu 2xH100).",
        )
    return Pool(int(left / each), left, each, basis)


def _sglang_share(chip: Gpu, chunk: int, tp: int) -> float:
    """Give SGLang's default for --mem-fraction-static: what a step, graphs and communication leave."""
    reserved = (512 + 1.5 * max(chunk, 2048) + tp / 8 * 1024) * _MIB
    if chip.memory > 60 * _GB:
        reserved = max(reserved, 10 * 1024 * _MIB)
    return (chip.memory - reserved) / chip.memory


def step_limits(engine: str, chip: Gpu) -> tuple[int, int]:
    """Give the tokens and the requests of a step that an engine takes by default on a GPU.

    vllm 0.33.0, engine/arg_utils.py: by memory and, below 160 GiB, by whether it is a Hopper GPU; sglang 0.5.23,
    arg_groups/memory_hook.py: by memory, with 2,048 requests and more.
    """
    gib = chip.memory / 2**30
    if engine == "sglang":
        return _chunk(gib), 2048
    if gib >= 160:
        return 16384, 1024
    return (8192, 1024) if chip.name.startswith("H") else (2048, 256)


def _chunk(gib: float) -> int:
    """Give the tokens of a prefill step that engines choose by the memory of the GPU."""
    return next((tokens for limit, tokens in ((20, 2048), (60, 4096), (160, 8192)) if gib < limit), 16384)


@dataclass(frozen=True, slots=True)
class Fit:
    """A time model from a log: seconds = base + FLOPs / rate; `error` is the median relative error over the log."""

    base: float
    rate: float
    requests: int
    error: float

    def seconds(self, work: ArrayLike) -> Floats:
        """Give the seconds of prefills with these FLOPs."""
        return self.base + np.asarray(work, np.float64) / self.rate


def fit(shape: Shape, prompt: ArrayLike, cached: ArrayLike, seconds: ArrayLike) -> Fit | None:
    """Fit the time of prefill to what a log reports; None where its requests do not tell (too few, or no slope).

    Least absolute deviations (by reweighting), since a queue makes some requests late and none early.
    """
    work, times = flops(shape, prompt, cached), np.asarray(seconds, np.float64)
    good = np.isfinite(times) & (times > 0) & (work > 0)
    work, times = work[good], times[good]
    if work.size < 20 or np.ptp(work) < 0.1 * work.max():
        return None
    columns = np.stack((np.ones_like(work), work / work.max()), axis=1)
    weights = np.ones_like(times)
    base = slope = 0.0
    for _ in range(50):
        root = np.sqrt(weights)
        base, slope = np.linalg.lstsq(columns * root[:, None], times * root, rcond=None)[0].tolist()
        weights = 1 / np.maximum(np.abs(columns @ (base, slope) - times), 1e-6)
    if slope <= 0:
        return None
    base = max(0.0, base)
    guess = columns @ (base, slope)
    return Fit(base, float(work.max()) / slope, int(work.size), float(np.median(np.abs(guess - times) / times)))
