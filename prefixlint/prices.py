"""What prompts cost in money, from normalised usage at dated prices: what was cached, what was written, what was not.

Prices come from a file of the user's, or from the package `genai-prices` (the extra `prices`), which carries those of
many providers and asks no network. A price file is TOML:

    as_of = 2026-11-01
    currency = "USD"

    [[price]]
    model = "claude-sonnet-4-5*"   # a name or a pattern, in any case; the first that fits counts
    input = 3.00                   # for a million prompt tokens, as all of these
    cached = 0.30                  # read from the cache
    write = 3.75                   # written to it; left out, writing costs what input does
    write_1h = 6.00                # written to live for an hour
    tiers = [{above = 200000, input = 6.00, cached = 0.60, write = 7.50}]   # the whole of prompts longer than that
"""

from __future__ import annotations

import datetime as dt
import fnmatch
import math
import tomllib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from prefixlint.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]

_MILLION = 1e6
_KEYS = {"model", "input", "cached", "write", "write_1h", "tiers"}
_TIER_KEYS = {"above", "input", "cached", "write", "write_1h"}


@dataclass(frozen=True, slots=True)
class Rates:
    """Money for a million tokens: computed, read from the cache, written to it (for the usual and for an hour's life).

    A cached price that is not known is None. Writes cost what input does where no price of theirs is known.
    """

    input: float
    cached: float | None
    write: float
    write_1h: float

    @property
    def premium(self) -> float:
        """What a token costs more for being written."""
        return self.write - self.input


@dataclass(frozen=True, slots=True)
class Price:
    """A model's prices. `tiers` are (tokens, rates): a prompt with more tokens is charged at those rates as a whole."""

    model: str
    rates: Rates
    tiers: Sequence[tuple[int, Rates]]
    currency: str
    source: str
    as_of: dt.date | None

    def at(self, prompt: int) -> Rates:
        """Give the rates of a prompt of this length."""
        return next((rates for above, rates in reversed(self.tiers) if prompt > above), self.rates)


@dataclass(frozen=True, slots=True)
class Bill:
    """What prompts cost, and would without a cache; `premium` is the part of it paid for writing. None: not known."""

    paid: float
    without: float
    premium: float

    @property
    def saved(self) -> float:
        """What the cache saved; negative where writing cost more than reading saved."""
        return self.without - self.paid


def bill(
    price: Price, prompt: ArrayLike, cached: ArrayLike, written: ArrayLike = 0, *, long: ArrayLike = 0
) -> Bill | None:
    """Charge requests (arrays, tokens): `prompt` includes what was `cached` and what was `written`.

    Of the written tokens, `long` are to live an hour.

    None where tokens were cached and the price of that is not known; ValueError where the parts are more than a prompt.
    """
    n, c = np.atleast_1d(np.asarray(prompt, np.float64)), np.atleast_1d(np.asarray(cached, np.float64))
    w, longer = (np.broadcast_to(np.asarray(part, np.float64), n.shape) for part in (written, long))
    if min(c.min(initial=0), w.min(initial=0)) < 0 or (longer > w).any() or (c + w > n).any():
        raise ValueError("more tokens were cached and written than the prompts have")
    paid = without = premium = 0.0
    steps = [0, *(above for above, _ in price.tiers)]
    tier = np.searchsorted(np.array(steps[1:]), n, side="left")
    for number in range(len(steps)):
        rates = price.tiers[number - 1][1] if number else price.rates
        mine = tier == number
        if rates.cached is None and c[mine].any():
            return None
        computed, read, wrote = float((n - c - w)[mine].sum()), float(c[mine].sum()), float(w[mine].sum())
        hours = float(longer[mine].sum())
        writing = (wrote - hours) * rates.write + hours * rates.write_1h
        paid += (computed * rates.input + read * (rates.cached or 0.0) + writing) / _MILLION
        without += float(n[mine].sum()) * rates.input / _MILLION
        premium += (writing - wrote * rates.input) / _MILLION
    return Bill(paid, without, premium)


def break_even(rates: Rates, *, hour: bool = False) -> int | None:
    """Give how many reads pay for a write: 0 where writing costs nothing more, None where reading saves nothing.

    Each read saves the price of input less that of reading; the write cost its price less that of input.
    """
    premium = (rates.write_1h if hour else rates.write) - rates.input
    if premium <= 0:
        return 0
    if rates.cached is None or rates.cached >= rates.input:
        return None
    reads = premium / (rates.input - rates.cached)
    return math.floor(reads + 1e-9) + 1


class Book:
    """Prices by model: those of a file first, then those of `genai-prices` where it is installed."""

    def __init__(self, prices: Sequence[Price] = (), *, installed: bool = True) -> None:
        self._prices = prices
        self._installed = installed

    def find(self, model: str | None, when: float | None = None) -> Price | None:
        """Give a model's prices at a time (seconds since the epoch); None where none are known."""
        if model is None:
            return None
        name = model.lower()
        for price in self._prices:
            if fnmatch.fnmatchcase(name, price.model.lower()) or name == price.model.lower():
                return replace(price, model=model)
        return _installed(model, when) if self._installed else None


def read(path: Path) -> Book:
    """Read a price file; UsageError where it cannot be read, ConfigError where a key or value has no sense."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the prices cannot be read: {error}", slug="no-prices", hint=None) from error
    except tomllib.TOMLDecodeError as error:
        raise _wrong(path, f"is not TOML: {error}") from error
    unknown = sorted(set(data) - {"as_of", "currency", "price"})
    if unknown:
        raise _wrong(path, f"has the unknown key {unknown[0]!r}")
    as_of, currency = data.get("as_of"), data.get("currency", "USD")
    if as_of is not None and type(as_of) is not dt.date:
        raise _wrong(path, "has an 'as_of' that is no date")
    rows = data.get("price")
    if not isinstance(rows, list) or not rows or not isinstance(currency, str):
        raise _wrong(path, "has no [[price]]")
    return Book([_price(path, row, currency, as_of) for row in rows])


def _price(path: Path, row: Any, currency: str, as_of: dt.date | None) -> Price:
    if not isinstance(row, dict) or not isinstance(row.get("model"), str) or not row["model"]:
        raise _wrong(path, "has a [[price]] without a 'model'")
    name = row["model"]
    unknown = sorted(set(row) - _KEYS)
    if unknown:
        raise _wrong(path, f"has the unknown key {unknown[0]!r} in the price of {name}")
    tiers = row.get("tiers", [])
    if not isinstance(tiers, list):
        raise _wrong(path, f"has 'tiers' that are no list in the price of {name}")
    found = []
    for tier in tiers:
        unknown = sorted(set(tier) - _TIER_KEYS) if isinstance(tier, dict) else ["(no table)"]
        above = tier.get("above") if isinstance(tier, dict) else None
        if unknown or type(above) is not int or above < 1:
            raise _wrong(path, f"has a tier without sense in the price of {name}: {tier!r:.80}")
        found.append((above, _rates(path, tier, name)))
    return Price(name, _rates(path, row, name), sorted(found, key=lambda x: x[0]), currency, str(path), as_of)


def _rates(path: Path, row: dict[str, Any], name: str) -> Rates:
    numbers: dict[str, float | None] = {}
    for key in ("input", "cached", "write", "write_1h"):
        value = row.get(key)
        good = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
        if value is not None and not good:
            raise _wrong(path, f"has {key} = {value!r:.40} in the price of {name}, which is no price")
        numbers[key] = None if value is None else float(value)
    base = numbers["input"]
    if base is None:
        raise _wrong(path, f"has no 'input' in the price of {name}")
    return _made(base, numbers["cached"], numbers["write"], numbers["write_1h"])


def _made(base: float, cached: float | None, write: float | None, write_1h: float | None) -> Rates:
    """Fill in what is not named: a write of 0 means that none is charged for, and not that its tokens are free."""
    usual = write or base
    return Rates(base, cached, usual, write_1h or usual)


def _installed(model: str, when: float | None) -> Price | None:
    """Ask genai-prices; None where it is not installed or does not know the model."""
    try:
        from genai_prices import Usage, calc_price
    except ImportError:
        return None
    time = None if when is None else dt.datetime.fromtimestamp(when, dt.UTC)
    try:
        priced = calc_price(Usage(input_tokens=0), model_ref=model, genai_request_timestamp=time).model_price
    except (LookupError, ValueError):
        return None
    fields = [getattr(priced, f"{key}_mtok", None) for key in ("input", "cache_read", "cache_write", "cache_write_1h")]
    if fields[0] is None:
        return None
    above = sorted({tier.start for field in fields for tier in getattr(field, "tiers", ())})
    rates = [_made(*(_at(field, start) for field in fields)) for start in (0, *above)]  # type: ignore[arg-type]  # the first is known
    from importlib.metadata import version

    source = f"genai-prices {version('genai-prices')}"
    return Price(model, rates[0], list(zip(above, rates[1:], strict=True)), "USD", source, None)


def _at(field: Any, start: int) -> float | None:
    """Give a price of genai-prices in the tier that begins at `start` tokens."""
    if field is None:
        return None
    value = getattr(field, "base", field)
    for tier in getattr(field, "tiers", ()):
        if tier.start <= start:
            value = tier.price
    return float(value)


def _wrong(path: Path, what: str) -> ConfigError:
    return ConfigError(
        f"the price file {path} {what}",
        slug="bad-price-file",
        hint="each [[price]] has a model and input, and maybe cached, write, write_1h and tiers",
    )
