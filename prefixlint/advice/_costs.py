"""What prompts cost with one option and with another: at known prices, else at a provider's price ratios."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from prefixlint import prices
from prefixlint.advice._case import Case
from prefixlint.engines import Engine
from prefixlint.prices import Price, Rates
from prefixlint.simulate import Served

_UNIT = "input price"  # the currency of ratios


@dataclass(frozen=True, slots=True)
class Costs:
    """The prices of each model (None: of none, so that nothing can be said), and their currency (None: ratios)."""

    by_model: dict[int, Price]
    currency: str | None

    def share(self, case: Case, served: Served) -> float:
        """Give what the counted prompts cost over what they would without a cache."""
        paid, without = self._sums(case, served)
        return paid / without if without else 1.0

    def paid(self, case: Case, served: Served) -> float | None:
        """Give the money that the counted prompts cost; None where only ratios are known."""
        return None if self.currency is None else self._sums(case, served)[0]

    def _sums(self, case: Case, served: Served) -> tuple[float, float]:
        where = case.counted
        models = np.frombuffer(case.log.table.model, np.int32)[case.log.rows][where]
        prompt, cached = served.prompt[where], served.cached[where]
        nothing = np.zeros_like(prompt)
        written = nothing if served.written is None else np.minimum(served.written[where], prompt - cached)
        long = nothing if served.long is None else np.minimum(served.long[where], written)
        paid = without = 0.0
        for number, price in self.by_model.items():
            mine = models == number
            bill = prices.bill(price, prompt[mine], cached[mine], written[mine], long=long[mine])
            assert bill is not None  # `costs` takes only prices that say what reading costs
            paid, without = paid + bill.paid, without + bill.without
        return paid, without


def costs(case: Case, engine: Engine) -> Costs | None:
    """Find the prices of all models of the log; None where neither prices nor ratios are known for one of them."""
    table = case.log.table
    numbers = np.unique(np.frombuffer(table.model, np.int32)[case.log.rows]).tolist()
    times = np.frombuffer(table.time, np.float64)[case.log.rows]
    when = float(times.max()) if times.size and not np.isnan(times).any() else None
    known = {number: case.server.book.find(table.models.values[number], when) for number in numbers}
    priced = {number: price for number, price in known.items() if price is not None and price.rates.cached is not None}
    currencies = {price.currency for price in priced.values()}
    if len(priced) == len(numbers) and len(currencies) == 1:
        return Costs(priced, currencies.pop())
    rated = {number: ratios(engine, table.models.values[number]) for number in numbers}
    found = {number: Price(_UNIT, rates, (), _UNIT, "", None) for number, rates in rated.items() if rates is not None}
    return Costs(found, None) if len(found) == len(numbers) else None


def ratios(engine: Engine, model: str | None) -> Rates | None:
    """Give a provider's prices as multiples of that of input; None where it is not known what reading costs."""
    facts = engine.for_model(model).facts

    def ratio(*names: str) -> float | None:
        fact = next((facts[name] for name in names if name in facts), None)
        return None if fact is None else float(fact.of(model))  # type: ignore[arg-type]  # the schema says a number

    read, write = ratio("read_ratio"), ratio("write_ratio")
    if read is None:
        return None
    usual = 1.0 if write is None else write
    return Rates(1.0, read, usual, ratio("write_ratio_1h", "write_ratio_12h") or usual)
