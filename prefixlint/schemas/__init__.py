"""JSON Schemas (draft 2020-12) of what the commands write with `--format json`; one file each, by name and version.

Each file stands alone. The objects are closed: a field that a schema does not know is an error, so a schema speaks for
the version of prefixlint that it came with. A new field of an output belongs into its schema, with what it means.
"""

from __future__ import annotations

import difflib
import json
from importlib import resources
from typing import Any

from prefixlint.errors import UsageError

VERSION = 1
"""Of the outputs; it rises when a field loses its meaning, not when one is added."""
_END = f"-{VERSION}.json"


def names() -> list[str]:
    """Give the outputs that have a schema, sorted: `analyze`, `check` …; `request` is a line of --requests-out."""
    files = (entry.name for entry in resources.files(__name__).iterdir())
    return sorted(name.removesuffix(_END) for name in files if name.endswith(_END))


def text(name: str) -> str:
    """Give the schema of an output as it is published; UsageError for a name that is not known."""
    known = names()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(known)}"
        raise UsageError(f"there is no schema {name!r}", slug="no-schema", hint=hint)
    return resources.files(__name__).joinpath(name + _END).read_text(encoding="utf-8")


def load(name: str) -> dict[str, Any]:
    """Give the schema of an output; UsageError for a name that is not known."""
    found: dict[str, Any] = json.loads(text(name))
    return found
