"""Tests that keep a prefix stable, for any test runner; with pytest they are fixtures as well.

    from prefixlint.testing import assert_prefix_stable, assert_shared_prefix

    def test_two_users_share_the_instructions():
        assert_shared_prefix(render("anna"), render("bo"), at_least=0.9)

    def test_the_recorded_conversations():
        assert_prefix_stable("fixtures/requests.jsonl")

Importing this module is cheap; what tokenizes is imported when an assertion is made.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from prefixlint.logfindings import LogFinding
    from prefixlint.model import Request, Skip

__all__ = ["assert_prefix_stable", "assert_shared_prefix"]

Prompt = str | Mapping[str, Any] | Sequence[Mapping[str, Any]] | Sequence[int] | Path
"""A rendered prompt, a request body, a list of messages, token ids, or the file that holds one of them."""
_WIDTH = 100
_FINDINGS = 5


def assert_shared_prefix(
    render_a: Prompt | Callable[[], Prompt],
    render_b: Prompt | Callable[[], Prompt],
    *,
    at_least: float | None = None,
    max_tokens: int | None = None,
    model: str | None = None,
    tokenizer: str | None = None,
    chat_template: str | None = None,
    unit: Literal["tokens", "characters"] = "tokens",
) -> None:
    """Fail unless a cache that holds prompt A could serve so much of prompt B.

    `at_least` is a share of B (a float, above 0 and up to 1) or a number of tokens (an int); `max_tokens` is what
    neither may be longer than. At least one of them is needed. Prompts may be functions, which are called. Without
    `model` or `tokenizer` a stand-in counts, which is near enough for a share; `unit="characters"` needs none.
    AssertionError with the place at which they part, UsageError for what cannot be asked or is no prompt.
    """
    __tracebackhide__ = True
    from prefixlint import redact, reports, sharing

    wanted = sharing.Wanted(at_least, max_tokens)
    options = None
    if unit == "tokens":
        from prefixlint.pipeline import Options

        options = Options(model=model, tokenizer=tokenizer, chat_template=chat_template, engines=("sglang",))
    judged = sharing.judge(
        _request(render_a, "A"),
        _request(render_b, "B"),
        wanted,
        options,
        redactor=redact.shown(),
    )
    if judged.failures:
        raise AssertionError(sharing.text(judged, ("A", "B"), reports.Look(_WIDTH)).rstrip())


def assert_prefix_stable(
    log: str | Path | Iterable[Mapping[str, Any]],
    *,
    select: Sequence[str] = ("ALL",),
    ignore: Sequence[str] = (),
    fail_on: Literal["error", "warning", "info"] = "warning",
) -> None:
    """Fail where a log shows that something breaks the prefix which its requests could share.

    `log` is a file in any format that `prefixlint analyze` reads, or the bodies of requests in their order. `select`
    and `ignore` take codes, their beginnings, or names of rules. Nothing is tokenized. AssertionError with each cause,
    its place and both values; UsageError, NoInputError or LogRefusedError where there is nothing to judge.
    """
    __tracebackhide__ = True
    from prefixlint import logrules, rulebook
    from prefixlint.errors import UsageError
    from prefixlint.findings import Severity
    from prefixlint.model import Request

    if fail_on.upper() not in Severity.__members__:
        raise UsageError(f"fail_on={fail_on!r} is no severity", slug="bad-severity", hint="error, warning or info")
    known = rulebook.rules()
    chosen = rulebook.matching(select, known) - rulebook.matching(ignore, known)
    seen = 0

    def requests() -> Iterator[Request]:
        nonlocal seen
        for item in _items(log):
            if isinstance(item, Request):
                seen += 1
                yield item

    floor = Severity[fail_on.upper()]
    rules = {code: rule for code, rule in known.items() if code in chosen}
    found = [finding for finding in logrules.check(requests(), rules) if finding.severity >= floor]
    if not seen:
        raise UsageError("the log holds no request", slug="no-requests", hint="a file, or bodies of requests")
    if found:
        raise AssertionError(_told(found, seen))


def _told(found: Sequence[LogFinding], requests: int) -> str:
    from prefixlint.wording import many

    causes = f"{many(len(found), 'cause')} that {'breaks' if len(found) == 1 else 'break'} the prefix"
    lines = [f"{causes}, in {many(requests, 'request')}"]
    for finding in found[:_FINDINGS]:
        where = finding.where
        lines.append(f"{finding.rule.code} {finding.rule.name}: {finding.message}")
        lines.append(f"  at {where.at_path}, character {where.char} ({where.lines()})")
        if finding.values is not None:
            lines += [
                f"  {side}  {value or '(nothing)'}"
                for side, value in zip(("before", "then  "), finding.values, strict=True)
            ]
        lines.append(f"  -> {finding.rule.help}")
    if len(found) > _FINDINGS:
        lines.append(f"and {many(len(found) - _FINDINGS, 'more cause')}")
    return "\n".join(lines)


def _items(log: str | Path | Iterable[Mapping[str, Any]]) -> Iterator[Request | Skip]:
    from dataclasses import replace

    from prefixlint import logs, operands

    if isinstance(log, str | os.PathLike):
        yield from logs.read([os.fspath(log)])
        return
    for line, body in zip(itertools.count(1), log):
        yield replace(operands.at_hand(body, "log"), line=line)


def _request(prompt: Prompt | Callable[[], Prompt], name: str) -> Request:
    from prefixlint import operands

    value = prompt() if callable(prompt) else prompt
    return operands.load(str(value), rendered=True) if isinstance(value, os.PathLike) else operands.at_hand(value, name)
