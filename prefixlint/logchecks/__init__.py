"""Checks of request logs: what a comparison of message text shows. One module per check; a rule's page names it.

A module satisfies `LogCheck`; adding one is adding a file here, and a page in `rules/` that names it (beside others).
`check` runs them over the logs that it finds, `analyze` and `diff` over the steps that they have anyway. Nothing here
needs a tokenizer or numpy. Names that begin with an underscore are not checks.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Protocol, cast

from prefixlint import logs
from prefixlint.errors import LogRefusedError, NoInputError
from prefixlint.findings import Finding, Rule
from prefixlint.model import Request, Skip
from prefixlint.requestpairs import Step, steps

ENDINGS = (".jsonl", ".ndjson", ".log", ".har", ".jsonl.gz", ".ndjson.gz", ".log.gz", ".jsonl.zst", ".ndjson.zst")
"""Endings of files that are looked into; a log is known by its content."""
_SNIFFED = 5
"""Records that are read to tell whether a file is a log."""


class Watcher(Protocol):
    """One rule at work on one log."""

    def see(self, step: Step) -> Iterable[Finding]:
        """Give what a request shows beside the earlier one."""
        ...

    def finish(self) -> Iterable[Finding]:
        """Give what only the whole log shows."""
        ...


class LogCheck(Protocol):
    """What a module in this folder provides."""

    NAME: str

    def watch(self, rule: Rule) -> Watcher:
        """Start a rule on a log."""
        ...


@cache
def checks() -> Mapping[str, LogCheck]:
    """Give the checks by name."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))
    modules = [cast("LogCheck", importlib.import_module(f"{__name__}.{name}")) for name in names]
    return {module.NAME: module for module in modules}


def watchers(rules: Iterable[Rule], known: Mapping[str, LogCheck] | None = None) -> list[Watcher]:
    """Start the rules that have a check of logs."""
    known = checks() if known is None else known
    return [known[name].watch(rule) for rule in rules for name in rule.check.split() if name in known]


def watch(seen: Iterable[Step], started: Iterable[Watcher]) -> Iterator[Finding]:
    """Give what the watchers find in the steps of one log, in the order of the log."""
    running = list(started)
    for step in seen:
        for watcher in running:
            yield from watcher.see(step)
    for watcher in running:
        yield from watcher.finish()


def is_log(path: Path) -> bool:
    """Tell by its first records whether a file is a request log."""
    if not path.name.lower().endswith(ENDINGS):
        return False
    try:
        return any(isinstance(item, Request) for item in islice(logs.read([str(path)]), _SNIFFED))
    except (NoInputError, LogRefusedError, OSError):
        return False


def examine(path: Path, rules: Iterable[Rule], known: Mapping[str, LogCheck] | None = None) -> Iterator[Finding | Skip]:
    """Give what the rules find in a log, and the lines that could not be read. The log is streamed."""
    started = watchers(rules, known)
    if not started:
        return
    skipped: list[Skip] = []

    def requests() -> Iterator[Request]:
        for item in logs.read([str(path)]):
            if isinstance(item, Request):
                yield item
            else:
                skipped.append(item)

    try:
        yield from watch(steps(requests()), started)
    except (NoInputError, LogRefusedError) as error:
        yield Skip(str(path), 0, error.slug, error.message)
    yield from skipped
