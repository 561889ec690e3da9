"""prefixlint: find what breaks the prefix cache, in the source, in the logs, and on the engine."""

from __future__ import annotations

__version__ = "0.1.0"
