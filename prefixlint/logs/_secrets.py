"""What must never be shown as a label: values that are credentials, or that are named like one."""

from __future__ import annotations

import re
from functools import lru_cache

from prefixlint.redact import is_credential

_NAMED = re.compile(
    r"(?i)(?:^|[_\-. ])(?:auth(?:orization)?|api[_-]?keys?|bearer|token|secret|password|passwd|cookie|credentials?|"
    r"private[_-]?key|access[_-]?key)(?:$|[_\-. ])"
)
_LOOKS = re.compile(r"(?i)^(?:bearer |basic |sk-|sk_|pk-lf-|AIza|AKIA|ghp_|xox[abp]-|hf_|eyJ)")
"""How credentials begin that may be cut short in a label; the whole ones are known by their forms."""


def is_secret(name: str, value: str) -> bool:
    """Say whether a value looks like a credential or has the name of one."""
    return _LOOKS.match(value) is not None or _named(name) or is_credential(value)


@lru_cache(4096)
def _named(name: str) -> bool:
    return _NAMED.search(name) is not None
