"""Every error that prefixlint raises on purpose.

PrefixlintError            carries message, slug and hint; exit code 2
├── UsageError             options that do not fit together, an unknown name
├── ConfigError            a configuration file with an unknown key or a wrong value
├── NoInputError           no file matched; exit code 3
├── LogRefusedError        a log that holds nothing to analyse, with what to switch on
├── ModelError             a model, tokenizer or chat template that cannot be had
│   └── TemplateError      a chat template that is not valid, too slow or too large
├── ServerError            an inference server that cannot be reached, talked to or measured
└── TemplateRefusedError   a chat template that refuses one conversation (counted, not fatal)

A slug is stable and leads to a paragraph of the documentation.
"""

from __future__ import annotations


class PrefixlintError(Exception):
    """An error for people: what happened, a stable slug, and what to do about it."""

    exit_code = 2

    def __init__(self, message: str, *, slug: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.slug = slug
        self.hint = hint


class UsageError(PrefixlintError):
    """Options that do not fit together, or a name that is not known."""


class ConfigError(PrefixlintError):
    """A configuration file with an unknown key or a value of the wrong kind."""


class NoInputError(PrefixlintError):
    """No input was found."""

    exit_code = 3


class LogRefusedError(PrefixlintError):
    """A log without prefix information; the hint says what to switch on."""


class ModelError(PrefixlintError):
    """A model, tokenizer or chat template that cannot be had."""


class TemplateError(ModelError):
    """A chat template that does not compile, runs too long or writes too much."""


class TemplateRefusedError(PrefixlintError):
    """A chat template that refuses one conversation, as its author wrote it to."""


class ServerError(PrefixlintError):
    """An inference server that cannot be reached, does not answer as one, or stopped in the middle."""
