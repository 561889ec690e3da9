"""The pytest plugin: `assert_shared_prefix` and `assert_prefix_stable` as fixtures, with the project's settings.

Settings (`prefixlint_model`, `prefixlint_tokenizer`, `prefixlint_chat_template`, `prefixlint_unit`) stand where pytest
has its own; what a test names itself wins. pytest loads this module whenever it starts: nothing heavy is imported here.
"""

from __future__ import annotations

import functools
from typing import Any, Protocol

import pytest

_SETTINGS = {
    "model": "the model whose tokenizer and chat template prefixlint uses",
    "tokenizer": "the tokenizer.json that prefixlint uses",
    "chat_template": "the chat template that prefixlint uses",
    "unit": "what assert_shared_prefix counts: tokens (default) or characters",
}


class Assertion(Protocol):
    """An assertion of `prefixlint.testing`, with the project's settings as its defaults."""

    def __call__(self, *args: Any, **settings: Any) -> None:
        """Fail with AssertionError, or return."""
        ...


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the settings of the ini file."""
    for name, text in _SETTINGS.items():
        parser.addini(f"prefixlint_{name}", text, default=None)


@pytest.fixture(scope="session")
def assert_shared_prefix(pytestconfig: pytest.Config) -> Assertion:
    """Fail unless a cache that holds prompt A could serve so much of prompt B; see `prefixlint.testing`."""
    from prefixlint import testing

    given = {name: pytestconfig.getini(f"prefixlint_{name}") for name in _SETTINGS}
    return functools.partial(testing.assert_shared_prefix, **{name: value for name, value in given.items() if value})


@pytest.fixture(scope="session")
def assert_prefix_stable() -> Assertion:
    """Fail where a log shows that something breaks the prefix of its requests; see `prefixlint.testing`."""
    from prefixlint import testing

    return testing.assert_prefix_stable
