"""Request logs among the files of a check: which files are logs, and what the log rules find in them.

Logs are streamed, whatever their size; nothing here needs a tokenizer or numpy. Their readers and rules are imported
for the first file that may be a log: most checks see none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from prefixlint.errors import LogRefusedError, NoInputError
from prefixlint.findings import At, Finding, Rule, Severity
from prefixlint.prompts import Span
from prefixlint.reach import is_aside
from prefixlint.wording import many

if TYPE_CHECKING:
    from prefixlint.logfindings import LogFinding, Where
    from prefixlint.model import Request, Skip

ENDINGS = (".jsonl", ".ndjson", ".log", ".har", ".jsonl.gz", ".ndjson.gz", ".log.gz", ".jsonl.zst", ".ndjson.zst")
"""Endings of files that are looked into; a log is known by its content."""
_SNIFFED = 5
"""Records that are read to tell whether a file is a log."""


def is_log(path: Path) -> bool:
    """Tell by its first records whether a file is a request log."""
    if not path.name.lower().endswith(ENDINGS) or not path.is_file():
        return False
    from prefixlint import logs
    from prefixlint.model import Request

    try:
        read = [item for item in islice(logs.read([str(path)]), _SNIFFED) if isinstance(item, Request)]
    except (NoInputError, LogRefusedError, OSError):
        return False
    return bool(read) and not all(map(_is_example, read))


def _is_example(request: Request) -> bool:
    """Tell whether a record is an example of a data set: a conversation with its answer, or text and nothing else.

    A request was made for a model, under an id, in a session, and was answered with a usage. A time alone says so of
    messages only: a load to replay is text at times.
    """
    told = (request.id, request.model, request.usage, request.latency, request.session)
    if any(each is not None for each in told):
        return False
    messages = getattr(request.content, "messages", ())
    if messages and request.time is not None:
        return False
    return not messages or request.output is not None or messages[-1].get("role") == "assistant"


def examine(path: Path, shown: str, rules: Mapping[str, Rule]) -> Iterator[Finding | Skip]:
    """Give what the rules find in a log that findings name `shown`, and the lines that could not be read."""
    from prefixlint import logrules, logs
    from prefixlint.model import Request, Skip

    skipped: list[Skip] = []

    def requests() -> Iterator[Request]:
        for item in logs.read([str(path)]):
            if isinstance(item, Request):
                yield item
            else:
                skipped.append(item)

    try:
        observer = logrules.observed(requests())
        for finding in observer.findings(rules):
            yield as_finding(finding, shown)
        if observer.fault is not None:
            reason = f"{many(observer.left_out, 'request')} not judged: a log rule has a fault ({observer.fault.error})"
            yield Skip(str(path), observer.fault.line, "log-rules-failed", reason)
    except (NoInputError, LogRefusedError) as error:
        yield Skip(str(path), 0, error.slug, error.message)
    except Exception as error:  # noqa: BLE001  # the rules read what strangers wrote; other files are judged all the same
        yield Skip(str(path), 0, "log-rules-failed", f"a log rule has a fault ({type(error).__name__}): not judged")
    yield from skipped


def as_finding(finding: LogFinding, path: str) -> Finding:
    """Give a log's finding in the form of those in sources; its span is empty, since a log is not kept.

    In a folder that stands aside from what serves requests, a load of a benchmark for one, it is information.
    """
    folder = path[: path.rfind("/") + 1]
    return Finding(
        rule=finding.rule,
        message=finding.message,
        span=Span(path, 0, 0),
        severity=Severity.INFO if is_aside(folder) else finding.severity,
        confidence=finding.confidence,
        tokens_at_risk=finding.tokens_at_risk,
        help=finding.rule.help,
        masked_by=finding.masked_by,
        fingerprint=finding.fingerprint,
        at=_at(finding.where),
        also=tuple(_at(where) for where in finding.examples),
        values=finding.values or (),
        requests=finding.requests,
    )


def _at(where: Where) -> At:
    return At(where.line, where.other_line, where.at_path, where.char)
