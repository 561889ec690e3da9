"""A verification as markdown, for a comment or a job's summary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from prefixlint import runs
from prefixlint.reports import _changes, _verify
from prefixlint.reports._markup import fitted, prose, table
from prefixlint.runs import Verification
from prefixlint.wording import many

_MARK = "<!-- prefixlint verify -->"


def document(saved: Mapping[str, Any]) -> str:
    """Render a result as `verify --format json` wrote it: verdict, table, what differs and why."""
    result = runs.from_json(dict(saved))
    must = [_MARK, f"### {prose(_verify.verdict(result))}", prose(_verify.what(result)), _table(result)]
    listed = (_verify.reasons(result), _failed(result))
    may = ["\n".join(f"- {prose(line)}" for line in lines) for lines in listed]
    end = [f"<sub>{prose(' '.join(_verify.sentences(result)), 4_000)}</sub>"]
    return fitted(
        [part for part in must if part], [part for part in may if part], end, "_More is in the JSON of this result._"
    )


def _table(result: Verification) -> str:
    if result.comparison is not None:
        tables = _changes.tables(result.comparison)
        parts = [f"{title}\n\n{_laid_out(cells)}".strip() for title, cells in tables]
        return "\n\n".join([*parts, "\n".join(f"- {prose(one)}" for one in _changes.sentences(result.comparison))])
    if not result.runs:
        return ""
    head, *cells = _verify.rows(result)
    return table(head, cells, "<" + ">" * (len(head) - 1))


def _laid_out(cells: Sequence[_changes.Row]) -> str:
    return table(cells[0], cells[1:], "<" + ">" * (len(cells[0]) - 1))


def _failed(result: Verification) -> Iterator[str]:
    if result.ended is not None:
        yield result.ended
    for run in result.runs:
        if run.errors:
            yield f"{run.cache} run: failed: {', '.join(f'{number:,} {slug}' for slug, number in run.errors.items())}"
    for left in result.left:
        yield f"left out: {many(left.requests, 'request')}: {left.message} ({left.path}, line {left.line})"
