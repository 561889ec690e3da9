"""What to switch on, so that a log holds what the analysis needs: data in `recipes.toml`, read here.

`[refusals.SLUG]` says why a log or line is refused (`reason`) and which recipes help (`recipes`, `hint`).
`[recipes.NAME]` says how one engine, gateway or provider is made to log prompts.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from prefixlint.model import Skip


@cache
def load() -> dict[str, Any]:
    """Give the whole table of recipes and refusals."""
    import tomllib

    return tomllib.loads(Path(__file__).with_name("recipes.toml").read_text("utf-8"))


def hint(slug: str) -> str | None:
    """Give what to do about a refusal, or None when the slug is not one."""
    found = load()["refusals"].get(slug)
    return None if found is None else str(found["hint"])


def names() -> tuple[str, ...]:
    """Give what recipes exist, sorted: what `prefixlint record --how` takes."""
    return tuple(sorted(load()["recipes"]))


def refusal(path: str, line: int, slug: str) -> Skip:
    """Give the Skip of a file or line that holds no prompt. Once a file is enough; line 0 stands for the file."""
    return Skip(path, line, slug, str(load()["refusals"][slug]["reason"]))
