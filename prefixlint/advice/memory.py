"""How much memory to give the cache: a larger pool, KV in 8 bits, a second tier on the host.

Rates are those of the curve of hits over pool sizes, the one now too, so that one pass answers for all of them; the
command simulates the engine itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from prefixlint import cost
from prefixlint.advice._case import LEAST, Case
from prefixlint.errors import PrefixlintError
from prefixlint.results import Advice, PoolSize
from prefixlint.wording import percent

_SHARE = 0.95  # of the ceiling
_HALVED = {"bf16": "fp8", "fp16": "fp8"}
_HOST_OPTIONS = {
    "sglang": "--enable-hierarchical-cache",
    "vllm": "--kv-offloading-size",
    "tensorrt-llm": "host_cache_size",
}
_RATIO = 2  # sglang 0.5.23, --hicache-ratio: the host's pool over the GPU's


@dataclass(frozen=True, slots=True)
class _Now:
    """A pool in tokens, what running requests take of it, and its hit rate; `by_gpu` where it is that of the GPUs."""

    tokens: int
    running: int
    rate: float
    by_gpu: bool


@dataclass(frozen=True, slots=True)
class _Asked:
    """Memory to ask for: the pool whose hit rate counts, the tokens to ask for, and the KV's type where it changes.

    `kind` and `text` are those of the advice.
    """

    kind: str
    text: str
    pool: int
    tokens: int
    dtype: str | None = None


def advise(case: Case) -> list[Advice]:
    """Give what larger memories gain over the one at hand; where none is named, the size to ask for."""
    found: list[Advice] = []
    asked = False
    for size in case.analysis.curves.sizes:
        if size.knee is None or case.limits.replicas > 1 or case.limits.route or case.limits.host_capacity:
            continue
        now = _now(case, size)
        if now is not None:
            found += [one for one in _larger(case, size, now) if one.gain >= LEAST]
        elif not asked:
            found += _to_ask_for(case, size)
            asked = True
    return found


def _now(case: Case, size: PoolSize) -> _Now | None:
    if size.simulated is not None:
        return _Now(size.simulated[0], size.running or 0, size.simulated[2], case.server.auto)
    if size.have is not None and size.hit_rate is not None:
        return _Now(size.have, size.running or 0, size.hit_rate, by_gpu=True)
    return None


def _larger(case: Case, size: PoolSize, now: _Now) -> Iterator[Advice]:
    """Give each way to more memory, with the hit rate that it reaches."""
    wanted = size.reach.get(_SHARE)
    if wanted is None or wanted + now.running <= now.tokens:
        return
    reached = wanted + now.running
    asked = reached + _largest(case, size.engine)
    text = f"give the pool {_tokens(case, asked)}"
    yield _advice(case, size, now, _Asked("pool", text, reached, asked), capacity=str(asked))
    doubled = _doubled(case, size, now)
    if doubled is not None:
        kind = _HALVED[case.server.kv_dtype]
        text = f"keep the KV in {kind} (--kv-cache-dtype): the same memory holds {_tokens(case, doubled, kind)}"
        changes = {"kv_dtype": kind, "capacity": "auto"} if now.by_gpu else {"capacity": str(doubled)}
        yield _advice(case, size, now, _Asked("kv_dtype", text, doubled, doubled, kind), **changes)
    host = min(_RATIO * now.tokens, asked)
    if size.engine in _HOST_OPTIONS and host > now.tokens:
        tier = f"a tier of {_tokens(case, host)} on the host ({_HOST_OPTIONS[size.engine]})"
        pool = "auto" if now.by_gpu else str(now.tokens)
        asked_for = _Asked("host_tier", f"add {tier}: it keeps what the pool loses", host + now.running, host)
        yield _advice(case, size, now, asked_for, capacity=pool, host_capacity=str(host))


def _largest(case: Case, name: str) -> int:
    """Give the tokens of the largest prompt: the curve is of caches between requests, and one has to fit beside."""
    return int(case.served[name].prompt.max(initial=0))


def _doubled(case: Case, size: PoolSize, now: _Now) -> int | None:
    """Give the pool with KV in 8 bits; None where the KV is that small already, or may be, or the GPUs do not say."""
    dtype = _HALVED.get(case.server.kv_dtype)
    if dtype is None or case.server.shape is None:
        return None
    if not now.by_gpu or case.server.gpu is None:
        return 2 * now.tokens
    try:
        pool = cost.pool(case.server.shape, case.server.gpu, size.engine, tp=case.server.tp, kv_dtype=dtype)
    except PrefixlintError:
        return None
    return pool.tokens


def _to_ask_for(case: Case, size: PoolSize) -> Iterator[Advice]:
    wanted = size.reach.get(_SHARE)
    if wanted is None or size.knee is None:
        return
    if size.ceiling < LEAST:
        return
    asked = wanted + _largest(case, size.engine)
    text = f"ask for a pool of {_tokens(case, asked)}: it gives {percent(_SHARE, 0)} of what any pool would"
    if size.knee < wanted:
        knee = f"{_tokens(case, size.knee)} ({percent(size.knee_hit_rate or 0)})"
        text += f"; from {knee} on more memory gives less than its share"
    yield _advice(case, size, None, _Asked("pool", text, wanted, asked), capacity=str(asked))


def _advice(case: Case, size: PoolSize, now: _Now | None, asked: _Asked, **changes: str | None) -> Advice:
    """Give advice with the hit rate by the curve, of what running requests leave of the pool."""
    shape = case.server.shape
    each = None if shape is None else shape.kv_bytes_per_token(asked.dtype or case.server.kv_dtype)
    return Advice(
        kind=asked.kind,
        engine=size.engine,
        text=asked.text,
        command=case.command(size.engine, **changes),
        hit_rate=None if now is None else now.rate,
        new_hit_rate=case.tap.rate(size.engine, max(0, asked.pool - (now.running if now else 0))),
        tokens=asked.tokens,
        gib=None if each is None else asked.tokens * each / 2**30,
    )


def _tokens(case: Case, tokens: int, dtype: str | None = None) -> str:
    """Name a size in tokens, and in GiB where the model's KV is known."""
    shape = case.server.shape
    if shape is None:
        return f"{tokens:,} tokens"
    gib = tokens * shape.kv_bytes_per_token(dtype or case.server.kv_dtype) / 2**30
    return f"{tokens:,} tokens ({gib:,.3g} GiB)"
