"""What the hits of an analysis are worth, with the model, the GPUs and the prices that the user names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from prefixlint import blocksize, cost, prices, queueing
from prefixlint.engines import Engine
from prefixlint.errors import ModelError, PrefixlintError, UsageError
from prefixlint.hardware import gpu
from prefixlint.modelfiles import ModelFiles, resolve
from prefixlint.results import Note, QueueEffect, Saving
from prefixlint.shapes import KV_BYTES, Shape, read_shape, shape
from prefixlint.table import UNKNOWN, Table
from prefixlint.wording import percent

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]

_GPUS = re.compile(r"(?:(\d+)\s*[x×]\s*)?(.+)")
_GIB = re.compile(r"(\d+(?:\.\d+)?)\s*gi?b")
_SIMULATED = 20_000  # requests of a log that the serving loop is run over, six times


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user says about the server: `gpu` like H100 or 4xH100, the model's `config.json` (file, folder, hub id).

    `prices` is a price file; without one, those of an installed `genai-prices` count for what the log reports.
    `capacity` is the pool of a replica where it is not given in tokens: like 40GiB, or `auto` for that of the GPUs.
    """

    gpu: str | None = None
    model_config: str | None = None
    kv_dtype: str = "bf16"
    prices: str | None = None
    capacity: str | None = None


@dataclass(frozen=True, slots=True)
class Machine:
    """The settings, understood: the model's shape and the GPUs of a replica, where they are known.

    `capacity` are the tokens of a pool that was given in GiB; with `auto`, the pool is that of the GPUs. `unread` says
    what of the model's configuration is not understood.
    """

    shape: Shape | None
    gpu: str | None
    tp: int
    kv_dtype: str
    book: prices.Book
    own_prices: bool
    capacity: int | None = None
    auto: bool = False
    unread: str | None = None

    def kv_bytes(self) -> float | None:
        """Give the KV of a token in bytes."""
        return None if self.shape is None else self.shape.kv_bytes_per_token(self.kv_dtype)

    def pool(self, engine: Engine) -> cost.Pool | None:
        """Estimate the pool of an engine on the GPUs; None where they or the model are not known, or it has no pool."""
        if self.shape is None or self.gpu is None or not engine.eviction.startswith("lru"):
            return None
        return cost.pool(self.shape, self.gpu, engine.name, tp=self.tp, kv_dtype=self.kv_dtype)


def machine(settings: Settings, files: ModelFiles, *, offline: bool = False) -> Machine:
    """Understand the settings; `files` are those of --model, whose configuration counts where none is named.

    UsageError and ModelError name what is wrong: an unknown GPU, GPUs without a model, a configuration without sizes.
    """
    if settings.kv_dtype not in KV_BYTES:
        hint = f"One of {', '.join(KV_BYTES)}."
        raise UsageError(f"there is no KV type {settings.kv_dtype!r}", slug="unknown-kv-dtype", hint=hint)
    form, unread = _shape(settings.model_config, files, offline=offline)
    tp, name = _gpus(settings.gpu) if settings.gpu is not None else (1, None)
    if name is not None and form is None:
        raise UsageError(
            "--gpu needs the sizes of the model",
            slug="no-model-config",
            hint="give its config.json with --model-config",
        )
    book = prices.Book() if settings.prices is None else prices.read(Path(settings.prices).expanduser())
    auto, tokens = _capacity(settings, form, name)
    return Machine(form, name, tp, settings.kv_dtype, book, settings.prices is not None, tokens, auto, unread)


def _capacity(settings: Settings, form: Shape | None, name: str | None) -> tuple[bool, int | None]:
    """Understand a pool in GiB or `auto`: whether it is the GPUs', and its tokens."""
    text = (settings.capacity or "").strip().lower()
    if not text:
        return False, None
    if text == "auto":
        if name is None:
            raise UsageError(
                "--capacity auto needs to know the GPUs", slug="bad-capacity", hint="name them with --gpu H100"
            )
        return True, None
    match = _GIB.fullmatch(text)
    if match is None:
        raise UsageError(
            f"--capacity {settings.capacity} is no size", slug="bad-capacity", hint="like 400000, 400k, 40GiB or auto"
        )
    if form is None:
        raise UsageError(
            "a --capacity in GiB needs the KV of a token",
            slug="no-model-config",
            hint="give the model's config.json with --model-config",
        )
    tokens = int(float(match[1]) * 2**30 / form.kv_bytes_per_token(settings.kv_dtype))
    if not tokens:
        raise UsageError(
            f"--capacity {settings.capacity} holds no token",
            slug="bad-capacity",
            hint="like 400000, 400k, 40GiB or auto",
        )
    return False, tokens


def block(server: Machine, given: int | None, asked: tuple[str, int] | None = None) -> blocksize.Known:
    """Say what the settings tell of the blocks of engines.

    `given` is what the user says they are, `asked` what a running server of an engine does.
    """
    name, tokens = asked or (None, None)
    return blocksize.Known(
        given=given,
        server=name,
        served=tokens,
        shape=server.shape,
        tp=server.tp,
        kv_dtype=server.kv_dtype,
        unread=server.unread,
    )


def _shape(named: str | None, files: ModelFiles, *, offline: bool) -> tuple[Shape | None, str | None]:
    """Give the shape of the named configuration, else of the model's own files, and why it is not understood."""
    if named is not None:
        path = Path(named).expanduser()
        if path.exists() or path.suffix == ".json":
            return read_shape(path), None
        config = resolve(named, offline=offline).config
        if config is None:
            raise ModelError(
                f"{named} has no config.json", slug="bad-model-config", hint="name a file or folder that has one"
            )
        return shape(dict(config), name=named), None
    if files.config is None or files.stand_in:
        return None, None
    try:
        return shape(dict(files.config), name=files.name), None
    except ModelError as error:
        # Nobody asked for its cost; the configuration beside a tokenizer may be that of something else.
        return None, error.message if "architectures" in files.config else None


def _gpus(text: str) -> tuple[int, str]:
    """Read `H100` or `4xH100`; a UsageError names the nearest GPUs."""
    match = _GPUS.fullmatch(text.strip())
    if match is None or match[1] == "0":
        raise UsageError(f"--gpu {text} is no GPU", slug="unknown-gpu", hint="like H100, or 4xH100")
    return int(match[1] or 1), gpu(match[2]).name


@dataclass(frozen=True, slots=True)
class Served:
    """What an engine gives to the counted requests: prompt and cached tokens, their models and times (NaN: unknown).

    `output` are generated tokens, UNKNOWN where the log does not say. `written` are those that marks wrote, `long` the
    part of them that is to live longer.
    """

    engine: Engine
    prompt: Counts
    cached: Counts
    output: Counts
    times: Floats
    models: Counts
    written: Counts | None = None
    long: Counts | None = None


def of_engine(server: Machine, served: Served, table: Table, fitted: cost.Fit | None = None) -> Saving | None:
    """Say what an engine's hits are worth; None where neither model nor prices say anything.

    Times `fitted` to the log's own come before those of the GPU's calibration.
    """
    money = _money(server, table, served) if server.own_prices else None
    if server.shape is None and money is None:
        return None
    form = server.shape
    work = None if form is None else cost.saved_flops(form, served.prompt, served.cached)
    whole = 0.0 if form is None else float(cost.flops(form, served.prompt).sum())
    timing = None
    if form is not None and server.gpu is not None:
        timing = cost.timing(form, server.gpu, tp=server.tp, engine=served.engine.name)
    times = _times(form, timing, served, fitted) if form is not None else None
    reasons = [f"FLOPs of {form.name}" if form else "", times.basis if times else "", money.source if money else ""]
    return Saving(
        engine=served.engine.name,
        basis="; ".join(reason for reason in reasons if reason),
        prefill_flops=None if work is None else float(work.sum()),
        flops_share=float(work.sum()) / whole if work is not None and whole else None,
        prefill_seconds=times.saved if times else None,
        seconds_share=times.saved / times.without if times and times.without else None,
        calibrated=times.calibrated if times else None,
        band=times.band if times else None,
        money=money.saved if money else None,
        currency=money.currency if money else None,
        premium=money.premium if money else None,
        break_even=money.break_even if money and served.written is not None else None,
        queue=_queue(form, timing, served, server.kv_dtype) if form is not None and timing is not None else None,
    )


@dataclass(frozen=True, slots=True)
class _Times:
    """Seconds of prefill: what hits save, and what there would be without them."""

    saved: float
    without: float
    calibrated: bool
    band: float
    basis: str


def _times(form: Shape, timing: cost.Timing | None, served: Served, fitted: cost.Fit | None) -> _Times | None:
    if fitted is not None:
        work = cost.flops(form, served.prompt)
        saved = float(cost.saved_flops(form, served.prompt, served.cached).sum()) / fitted.rate
        basis = f"times fitted to the log's own to the first token ({fitted.requests:,} requests"
        return _Times(
            saved=saved,
            without=float(fitted.seconds(work).sum()),
            calibrated=True,
            band=max(cost.CALIBRATED_BAND, fitted.error),
            basis=f"{basis}, median error {percent(fitted.error, 0)})",
        )
    if timing is None:
        return None
    without = cost.prefill_seconds(form, timing, served.prompt)
    seconds = without - cost.prefill_seconds(form, timing, served.prompt, served.cached)
    return _Times(float(seconds.sum()), float(without.sum()), timing.calibrated, timing.band, timing.basis)


def of_reported(server: Machine, table: Table, rows: Counts) -> Saving | None:
    """Say what the hits that the log reports saved, in money; None where no price is known or nothing is reported."""
    columns = (table.prompt, table.cached, table.written, table.long)
    prompt, cached, written, long = (np.frombuffer(column, np.int64)[rows] for column in columns)
    known = (prompt != UNKNOWN) & (cached != UNKNOWN) & (cached + np.maximum(written, 0) <= prompt)
    models = np.frombuffer(table.model, np.int32)[rows].astype(np.int64)
    times = np.frombuffer(table.time, np.float64)[rows]
    wrote = np.maximum(written, 0)[known]
    hours = np.clip(long[known], 0, wrote)
    usage = _Usage(models[known], times[known], prompt[known], cached[known], wrote, hours)
    bills = _bills(server.book, table, usage)
    if bills is None or not (cached[known].any() or written[known].max(initial=0) > 0):
        return None
    return Saving(
        engine="reported",
        basis=bills.source,
        money=bills.saved,
        currency=bills.currency,
        premium=bills.premium,
        break_even=bills.break_even,
    )


@dataclass(frozen=True, slots=True)
class _Money:
    saved: float
    premium: float
    currency: str
    source: str
    break_even: int | None


def _money(server: Machine, table: Table, served: Served) -> _Money | None:
    nothing = np.zeros_like(served.prompt)
    written = nothing if served.written is None else np.minimum(served.written, served.prompt - served.cached)
    long = nothing if served.long is None else np.minimum(served.long, written)
    return _bills(server.book, table, _Usage(served.models, served.times, served.prompt, served.cached, written, long))


@dataclass(frozen=True, slots=True)
class _Usage:
    """Requests to be charged: numbers of their models, times, and tokens."""

    models: Counts
    times: Floats
    prompt: Counts
    cached: Counts
    written: Counts
    long: Counts


def _bills(book: prices.Book, table: Table, usage: _Usage) -> _Money | None:
    """Sum the bills of all models; None where one of them has no price, or where currencies differ."""
    found: list[tuple[prices.Price, prices.Bill]] = []
    for number in np.unique(usage.models).tolist():
        mine = usage.models == number
        when = usage.times[mine & ~np.isnan(usage.times)]
        price = book.find(table.models.values[number], float(when.max()) if when.size else None)
        charged = (usage.prompt[mine], usage.cached[mine], usage.written[mine])
        bill = None if price is None else prices.bill(price, *charged, long=usage.long[mine])
        if price is None or bill is None:
            return None
        found.append((price, bill))
    if not found or len({price.currency for price, _ in found}) > 1:
        return None
    reads = [prices.break_even(price.rates, hour=bool(usage.long.any())) for price, _ in found]
    dates = sorted({f"{price.source}, as of {price.as_of}" if price.as_of else price.source for price, _ in found})
    return _Money(
        saved=sum(bill.saved for _, bill in found),
        premium=sum(bill.premium for _, bill in found),
        currency=found[0][0].currency,
        source="prices of " + " and ".join(dates),
        break_even=max((r for r in reads if r is not None), default=None),
    )


def _queue(form: Shape, timing: cost.Timing, served: Served, kv_dtype: str) -> QueueEffect | None:
    """Simulate the serving loop over the requests; None without their times, or without what they generated."""
    known = served.output[served.output != UNKNOWN]
    if np.isnan(served.times).any() or not known.size or (np.diff(served.times) < 0).any():
        return None
    most = slice(0, _SIMULATED)
    output = np.where(served.output == UNKNOWN, int(np.median(known)), served.output)
    load = queueing.Load(served.times[most], served.prompt[most], served.cached[most], np.maximum(output, 1)[most])
    budget, running = cost.step_limits(served.engine.name, timing.gpu)
    loop = queueing.server(
        form,
        timing,
        budget=budget,
        max_running=running,
        kv_dtype=kv_dtype,
        prefill_first=served.engine.name == "sglang",
    )
    found = queueing.effect(load, loop, form, timing)
    return None if found is None else QueueEffect(found.load, found.ttft)


def pools(server: Machine, engines: Mapping[str, Engine], notes: list[Note]) -> dict[str, cost.Pool]:
    """Estimate the pools of all engines on the GPUs; an engine that has none there gets a note."""
    found = {}
    for name, engine in engines.items():
        try:
            pool = server.pool(engine)
        except PrefixlintError as error:
            notes.append(Note(error.slug, f"{error.message}; {error.hint}" if error.hint else error.message))
            break
        if pool is not None:
            found[name] = pool
    return found
