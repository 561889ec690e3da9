"""Where the rule files are: inside the package when installed, the top-level `rules/` folder in a checkout."""

from __future__ import annotations

from functools import cache
from pathlib import Path


@cache
def folder() -> Path:
    """Give the folder of `sources.toml` and the rules' pages."""
    here = Path(__file__).parent
    packaged = here / "rules"
    return packaged if packaged.is_dir() else here.parent / "rules"
