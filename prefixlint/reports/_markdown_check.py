"""A check as markdown: each place with its text and what to do, and what a change brought and took away."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from prefixlint.reports._markup import block, code, details, fitted, prose, table
from prefixlint.reports._terminal import count
from prefixlint.wording import many

Json = Mapping[str, Any]
_ROWS = 30
_MARK = "<!-- prefixlint check -->"
_WORDS = (("error", "error"), ("warning", "warning"), ("info", "note"))


def document(saved: Json) -> str:
    """Render a result as `check --format json` wrote it."""
    shown = [finding for finding in saved["findings"] if finding["severity"] != "info"]
    must = [_MARK, f"### prefixlint: {_headline(saved, len(shown))}", *_gone(saved), *_errors(saved)]
    if shown:
        must.append(_table(shown))
    may = [details(named(finding), _finding(finding), _spot(finding)) for finding in shown]
    left_out = f"_{many(len(shown), 'place')} in all; the rest is in `prefixlint check`._"
    return fitted(must, may, [_end(saved)], left_out)


def named(finding: Json) -> str:
    """Give the code and the name of a finding's rule."""
    return f"{finding['rule']} {finding['name']}"


def advice(rule: str) -> str:
    """Say what to do about a rule; empty for a rule that is not known here."""
    from prefixlint import rulebook

    known = rulebook.rules().get(rule)
    return "" if known is None else known.help


def _headline(saved: Json, shown: int) -> str:
    base = saved.get("base")
    since = "" if base is None else f" new since {code(base['ref'], 60)}"
    if shown:
        return f"{many(shown, 'place')}{since} {'breaks' if shown == 1 else 'break'} the prefix cache"
    return f"nothing{since} found" if saved["errors"] else f"nothing{since} breaks the prefix cache"


def _gone(saved: Json) -> Iterator[str]:
    """Say what of the base is no more."""
    base = saved.get("base")
    if base is None or not base["gone"]:
        return
    found = base["gone"]
    rows = "\n".join(f"- ~~{prose(named(item))}~~ {code(_spot(item))}" for item in found[:_ROWS])
    more = f"\n- and {many(len(found) - _ROWS, 'more')}" if len(found) > _ROWS else ""
    yield f"**{many(len(found), 'place')} repaired by this change**\n\n{rows}{more}"


def _errors(saved: Json) -> Iterator[str]:
    found = saved["errors"]
    if found:
        lines = [
            f"- {code(error['path'] + (':' + str(error['line']) if error['line'] else ''))}: {prose(error['message'])}"
            for error in found[:_ROWS]
        ]
        more = [f"- and {many(len(found) - _ROWS, 'more')}"] if len(found) > _ROWS else []
        yield "\n".join([f"**{many(len(found), 'problem')}** while reading", "", *lines, *more])


def _spot(finding: Json) -> str:
    cell = finding.get("cell")
    place = f"{finding['path']}:{finding['line']}"
    return f"{place} (cell {cell['number']}, line {cell['line']})" if cell else place


def _table(shown: list[Json]) -> str:
    rows = [
        [prose(finding["severity"]), code(_spot(finding)), prose(named(finding)), _cost(finding)]
        for finding in shown[:_ROWS]
    ]
    more = f"\n\nand {many(len(shown) - _ROWS, 'more place')}" if len(shown) > _ROWS else ""
    return table(["", "place", "rule", "static tokens behind it"], rows, "<<<>") + more


def _cost(finding: Json) -> str:
    return "" if finding["tokens_at_risk"] is None else count(finding["tokens_at_risk"])


def _finding(finding: Json) -> str:
    values = finding["values"]
    parts = [prose(finding["message"].split(" (", 1)[0] if values else finding["message"])]
    if values:
        parts.append(block(value[:200] or "(nothing)" for value in values))
    elif finding["excerpt"]:
        parts.append(block([finding["excerpt"][:200]]))
    parts += [
        f"{code(item['path'] + ':' + str(item['line']))}: {prose(item['message'])}" for item in finding["related"][:5]
    ]
    help_ = advice(finding["rule"])
    if help_:
        parts.append(f"→ {prose(help_)}")
    if finding["fix"]:
        option = "--fix" if finding["fix"]["applicability"] == "safe" else "--unsafe-fixes"
        parts.append(f"Fix: {prose(finding['fix']['title'])} (`prefixlint check {option}`)")
    return "\n\n".join(parts)


def _end(saved: Json) -> str:
    counts = Counter(finding["severity"] for finding in saved["findings"])
    parts = [many(counts[name], word) for name, word in _WORDS if counts[name]] or ["nothing found"]
    if saved["suppressed"]:
        parts.append(f"{count(len(saved['suppressed']))} suppressed")
    files = saved["files"]
    return f"<sub>prefixlint check: {', '.join(parts)}, in {many(files['scanned'], 'file')}.</sub>"
