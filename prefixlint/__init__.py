"""prefixlint: find what breaks the prefix cache, in the source, in the logs, and on the engine.

    from prefixlint import analyze, check

What is imported from here is loaded when it is used: `import prefixlint` itself costs nothing. docs/api.md shows how.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prefixlint.api import analyze, as_json, check
    from prefixlint.errors import PrefixlintError

__version__ = "0.1.0"
__all__ = ["PrefixlintError", "__version__", "analyze", "as_json", "check"]

_HOMES = {
    "analyze": "prefixlint.api",
    "as_json": "prefixlint.api",
    "check": "prefixlint.api",
    "PrefixlintError": "prefixlint.errors",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'prefixlint' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    """Name what can be imported, as if it were loaded."""
    return sorted({*globals(), *_HOMES})
