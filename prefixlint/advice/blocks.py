"""The block or page size: what smaller ones give, where a larger one is in use."""

from __future__ import annotations

from dataclasses import replace

from prefixlint.advice._case import LEAST, Case
from prefixlint.fleet import Limits
from prefixlint.results import Advice
from prefixlint.simulate import with_shared

_SMALLEST = {"vllm": 16, "sglang": 1}
"""The smallest sizes that the engines' usual kernels take (vllm 0.33.0 on CUDA; sglang 0.5.23)."""


def advise(case: Case) -> list[Advice]:
    """Give the smallest size of engines that run with a larger one, where hits are lost to rounding.

    A size that the model's layers ask for cannot be set smaller.
    """
    if case.log.of_blocks:
        return []
    found = []
    for name, served in case.served.items():
        least = _SMALLEST.get(name)
        size = served.engine.granularity
        if least is None or size <= least or served.engine.sized_by == "model":
            continue
        base = case.base(name)
        finer = with_shared(replace(base, engine=base.engine.with_granularity(least)), base.shared)
        own = case.own(name, case.limits)
        if own != Limits():
            finer = case.replay_of([(finer, own)], case.limits)[0].served
        advice = Advice(
            kind="block_size",
            engine=name,
            text=f"use blocks of {least} tokens instead of {size} ({_option(name)} {least})",
            command=case.command(name, block_size=str(least)),
            hit_rate=case.rate(served),
            new_hit_rate=case.rate(finer),
        )
        if advice.gain >= LEAST:
            found.append(advice)
    return found


def _option(name: str) -> str:
    return "--page-size" if name == "sglang" else "--block-size"
