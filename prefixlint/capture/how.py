"""How engines, gateways and providers are made to log what the analysis needs: recipes as text."""

from __future__ import annotations

import difflib
import textwrap

from prefixlint.errors import UsageError
from prefixlint.logs import _recipes


def names() -> list[str]:
    """Give the names of all recipes."""
    return sorted(_recipes.load()["recipes"])


def text(name: str) -> str:
    """Give the recipe of one engine, gateway or provider. Raises UsageError with the nearest names for another."""
    recipes = _recipes.load()["recipes"]
    key = next((known for known in recipes if _folded(known) == _folded(name)), None)
    if key is None:
        near = difflib.get_close_matches(name.lower(), recipes, n=1)
        raise UsageError(
            f"there is no recipe called {name!r}",
            slug="unknown-recipe",
            hint=(f"did you mean {near[0]}? " if near else "") + f"there are: {', '.join(names())}",
        )
    recipe = recipes[key]
    settings = textwrap.indent(recipe["settings"].strip("\n"), "    ")
    parts = [recipe["title"], "", settings, ""]
    parts += [
        textwrap.fill(recipe[label], 100, initial_indent=f"{label + ':':9}", subsequent_indent=" " * 9)
        for label in ("gives", "privacy", "cost")
    ]
    parts.append(f"source:  {recipe['source']} (as of {recipe['as_of']})")
    return "\n".join(parts) + "\n"


def _folded(name: str) -> str:
    return "".join(sign for sign in name.lower() if sign.isalnum())
