"""What must never be shown as a label: values that are credentials, or that are named like one."""

from __future__ import annotations

import re
from functools import lru_cache

_NAMED = re.compile(
    r"(?i)(?:^|[_\-. ])(?:auth(?:orization)?|api[_-]?keys?|bearer|token|secret|password|passwd|cookie|credentials?|"
    r"private[_-]?key|access[_-]?key)(?:$|[_\-. ])"
)
_LOOKS = re.compile(r"(?i)^(?:bearer |basic |sk-|sk_|pk-lf-|sk-lf-|AIza|AKIA|ghp_|xox[abp]-|hf_|eyJ)")
"""How well-known credentials begin: OpenAI, LiteLLM, Langfuse, Google, AWS, GitHub, Slack, Hugging Face, JWT."""


def is_secret(name: str, value: str) -> bool:
    """Say whether a value looks like a credential or has the name of one."""
    return _LOOKS.match(value) is not None or _named(name)


@lru_cache(4096)
def _named(name: str) -> bool:
    return _NAMED.search(name) is not None
