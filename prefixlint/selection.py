"""Which engines a log is judged by: those that were named, else those of its kind and the providers that it shows."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from prefixlint import engines
from prefixlint.chatroute import Route
from prefixlint.engines import Engine
from prefixlint.errors import UsageError
from prefixlint.marks import UNMARKED
from prefixlint.model import Request
from prefixlint.table import Table

TEXT_ENGINES = ("sglang", "vllm")
HASH_ENGINES = ("ideal",)


def simulated(engine: Engine) -> Engine:
    """Refuse a provider whose rule is not known: what it did is in the log's usage, and nothing more can be said."""
    if engine.usage_only:
        raise UsageError(
            f"how {engine.title} caches is not documented well enough to be simulated",
            slug="usage-only",
            hint=f"What it reported is in the result anyway; see prefixlint engine {engine.name}.",
        )
    return engine


def by_log(table: Table, rows: NDArray[np.intp], *, of_blocks: bool) -> list[Engine]:
    """Give the engines that every log of its kind is judged by, and the providers that these requests show."""
    found = [engines.load(name) for name in (HASH_ENGINES if of_blocks else TEXT_ENGINES)]
    if of_blocks:
        return found
    pairs = np.unique(np.stack([np.frombuffer(c, np.int32)[rows] for c in (table.format, table.model)]), axis=1)
    shown = [(table.formats.values[form], table.models.values[model]) for form, model in pairs.T.tolist()]
    return found + engines.shown_by(shown)


def unmarked(chosen: Sequence[Engine], table: Table, rows: NDArray[np.intp]) -> list[Engine]:
    """Give the providers of which a log shows hits and no cache mark, though theirs are hits on what marks wrote."""
    if not (np.frombuffer(table.cached, np.int64)[rows] > 0).any():
        return []
    wanted = set(rows.tolist())
    if any(b.ttl != UNMARKED for row, blocks in table.marks.items() if row in wanted for b in blocks):
        return []
    return [e for e in chosen if e.goes_by_marks(table.models.values) and not e.implicit]


def settled(chosen: Sequence[Engine], table: Table, rows: NDArray[np.intp]) -> list[Engine]:
    """Give the engines as they hold for these requests: a provider's values for their model, where all have the same.

    Where models differ in them, the provider stays as it is, and each request follows its own model's values anyway.
    """
    numbers = np.unique(np.frombuffer(table.model, np.int32)[rows]).tolist()
    found = []
    for engine in chosen:
        own = [engine.for_model(table.models.values[number]) for number in numbers]
        same = {(e.match, e.granularity, e.minimum, e.ttl, e.stored) for e in own}
        found.append(own[0] if len(same) == 1 and engine.kind == "provider" else engine)
    return found


def marking(chosen: Sequence[Engine]) -> Callable[[Request], str | None]:
    """Say for which requests cache marks are to be found: where an engine, chosen or shown by the log, reads them.

    The function gives `explicit` where only those of the body count, `implicit` where the prompt's end is one too.
    """
    known: dict[tuple[str, str | None], str | None] = {}

    def marked(request: Request) -> str | None:
        key = (request.format, request.model)
        if key not in known:
            found = [engine.for_model(request.model) for engine in chosen or engines.shown_by([key])]
            implicit = [engine.implicit for engine in found if engine.match == "marked_breakpoint"]
            known[key] = ("implicit" if any(implicit) else "explicit") if implicit else None
        return known[key]

    return marked


def route(chosen: Sequence[Engine]) -> Route:
    """Say through whose chat route prompts go: SGLang's where nothing else is asked for, else vLLM's."""
    return "sglang" if chosen and all(engine.name == "sglang" for engine in chosen) else "vllm"


def wider(table: Table) -> dict[Hashable, Hashable] | None:
    """Map namespaces to their models, where some model has several: what another one of them has is told apart."""
    models: dict[Hashable, Hashable] = {number: names[0] for number, names in enumerate(table.namespaces.values)}
    return None if len(set(models.values())) == len(models) else models
