"""Checks: what looks for a pattern. One module per check; a rule's page names its check and gives it parameters.

A module satisfies `Check`; adding one is adding a file here, and a page in `rules/` that names it. Names that begin
with an underscore are not checks.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Protocol, cast

from prefixlint.findings import Finding, Rule
from prefixlint.link import Linked
from prefixlint.placement import Place


@dataclass(frozen=True, slots=True)
class Context:
    """What a check sees: the linked project, the files to report on, all places of their prompts, the threshold.

    `min_tokens` are the static tokens that must stand behind a place for it to be reported; 0 reports all.
    """

    linked: Linked
    paths: tuple[str, ...]
    places: tuple[Place, ...]
    min_tokens: int


class Check(Protocol):
    """What a module in this folder provides."""

    NAME: str

    def check(self, context: Context, rule: Rule) -> Iterator[Finding]:
        """Give the findings of a rule."""
        ...


@cache
def checks() -> Mapping[str, Check]:
    """Give the checks by name."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))
    modules = [cast("Check", importlib.import_module(f"{__name__}.{name}")) for name in names]
    return {module.NAME: module for module in modules}
