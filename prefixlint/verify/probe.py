"""Which experiments a probe makes, in which order, and what remains of it when the server refuses or goes away."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from prefixlint.engines import Engine
from prefixlint.errors import ServerError
from prefixlint.verify import experiments
from prefixlint.verify.asker import Asker, RefusedError
from prefixlint.verify.experiments import Bench
from prefixlint.verify.probed import TITLES, Probed, Rule
from prefixlint.verify.targets import About, Target

# The first ones find what those behind them need.
_ORDER: tuple[tuple[tuple[str, ...], Callable[[Bench], Any]], ...] = (
    (("reported",), experiments.reported),
    (("match", "granularity"), experiments.granularity),
    (("cap",), experiments.cap),
    (("minimum",), experiments.minimum),
    (("stored",), experiments.stored),
    (("visible",), experiments.visible),
    (("isolation",), experiments.isolation),
    (("lifetime",), experiments.lifetime),
)
MOST_TOKENS = 26 * experiments.LENGTHS[0]
"""Prompt tokens that a probe takes, about, of a server that finds prompts of 512 tokens again."""


def plan(kind: Target, about: About, wait: float) -> str:
    """Say what a probe will do, before it does."""
    salt = kind.salted()
    apart = f"in a namespace of their own ({salt})" if salt else "each with a beginning of its own"
    return (
        f"{about.title}{f' {about.version}' if about.version else ''}: up to {experiments.MOST_REQUESTS} requests, "
        f"{apart}, about {MOST_TOKENS:,} prompt tokens in all, of which one entry is left alone for {wait:g} s; "
        "nothing is emptied"
    )


def probe(
    asker: Asker,
    kind: Target,
    about: About,
    engine: Engine | None,
    url: str,
    *,
    wait: float,
    progress: Callable[[str], None],
) -> Probed:
    """Make the experiments. `wait` is how long an entry is left alone, in seconds; `progress` is told what comes.

    A request that the server refuses ends its experiment; a server that goes away, or one that does not tell cached
    tokens, ends the probe, and what was found until then is kept.
    """
    bench = Bench(asker, about, engine, wait)
    rules: list[Rule] = []
    failed = None
    for names, experiment in _ORDER:
        progress(TITLES[names[0]])
        try:
            found = experiment(bench)
        except RefusedError as error:
            found = [bench.rule(name, None, error.failure.message) for name in names]
        except ServerError as error:
            failed = error.message
            break
        rules += found if isinstance(found, Iterable) else [found]
        if not bench.tells:
            break
    salt = kind.salted()
    apart = f"salt ({salt})" if salt and asker.salt else "marker (each prompt begins as no other)"
    return Probed(
        url=url,
        about=about,
        profile=engine.name if engine else None,
        isolation=apart,
        exact=asker.exact,
        requests=asker.requests,
        prompt_tokens=asker.prompt_tokens,
        rules=tuple(rules),
        failed=failed,
    )
