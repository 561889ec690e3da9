"""Findings as text for people: the line, carets below it, related places, help; then counts."""

from __future__ import annotations

from collections import Counter

from prefixlint.checkrun import CheckResult, position
from prefixlint.findings import At, Finding, Severity
from prefixlint.reports._terminal import wrap
from prefixlint.sources import Diagnostic, notebook
from prefixlint.wording import many

_COLORS = {"error": "\x1b[1;31m", "warning": "\x1b[1;33m", "info": "\x1b[1;36m", "dim": "\x1b[2m", "bold": "\x1b[1m"}
_RESET = "\x1b[0m"
_MAX_LINE = 160
"""Characters of a source line that are shown around the place."""


def text(
    result: CheckResult, *, width: int = 80, color: bool = False, verbose: bool = False, statistics: bool = False
) -> str:
    """Give the report, its sentences in lines of `width` columns. Information is counted, and shown with `verbose`."""
    shown = [f for f in result.findings if verbose or f.severity > Severity.INFO]
    blocks = [_block(finding, result, width, color=color) for finding in shown]
    blocks += [_diagnostic(error, width, color=color) for error in result.errors]
    if statistics:
        blocks.append(_statistics(result))
    blocks.append("\n".join(wrap(_footer(result, hidden=len(result.findings) - len(shown)), width, first="")) + "\n")
    return "\n".join(blocks)


def _diagnostic(error: Diagnostic, width: int, *, color: bool) -> str:
    place = _plain(f"{error.path}:{error.line}" if error.line else error.path)
    first = f"error[{error.slug}]: {place}: " if place else f"error[{error.slug}]: "
    head, *rest = wrap(_plain(error.message), width, first=first)
    return "\n".join([_paint("error", "error", color) + head.removeprefix("error"), *rest]) + "\n"


def _headline(finding: Finding, said: str, width: int, *, color: bool) -> list[str]:
    """Give what was found, after how grave it is and by which rule."""
    word = finding.severity.word
    tag = f"{word}[{finding.rule.code}]"
    head, *rest = wrap(_plain(said), width, first=f"{tag}: ")
    first = f"{_paint(tag, word, color)}: {_paint(head.removeprefix(f'{tag}: '), 'bold', color)}"
    return [first, *("  " + _paint(line.strip(), "bold", color) for line in rest)]


def _noted(label: str, said: str, margin: int, width: int) -> list[str]:
    """Give a remark below a place; `label` stays in one piece: a path may be long, and have spaces."""
    first = f"{' ' * margin} = {label}: "
    return wrap(said, width, first=first, indent=" " * min(len(first), margin + len(" = help: ")))


def _plain(text: str) -> str:
    """Show what a file or its name says so that no terminal obeys it."""
    return "".join(character if character.isprintable() else "?" for character in text)


def _paint(word: str, name: str, color: bool) -> str:
    return f"{_COLORS[name]}{word}{_RESET}" if color else word


def _logged(finding: Finding, at: At, width: int, *, color: bool) -> str:
    """Show a finding of a log: where the two requests part, and both values one below the other."""
    lines = [
        *_headline(finding, finding.message.split(" (", 1)[0], width, color=color),
        f" --> {_plain(finding.span.path)}:{at.line}: {_plain(at.path)}, character {at.char}",
    ]
    if finding.values:
        for line, value in zip((at.other_line, at.line), finding.values, strict=True):
            shown = _plain(value)
            lines.append(f"  {_paint(f'line {line}:', 'dim', color)} {shown or '(nothing)'}")
    lines.append(f"  = in {many(finding.requests or 1, 'request')}")
    if finding.help:
        lines += _noted("help", finding.help, 1, width)
    return "\n".join(lines) + "\n"


def _block(finding: Finding, result: CheckResult, columns: int, *, color: bool) -> str:
    if finding.at is not None:
        return _logged(finding, finding.at, columns, color=color)
    word = finding.severity.word
    data = result.files.get(finding.span.path, b"")
    line, column = position(data, finding.span.start)
    end_line, end_column = position(data, finding.span.end)
    width = len(str(line))
    source, shift = _source_line(data, finding.span.start, column)
    stop = end_column if end_line == line else len(source) + shift + 1
    carets = " " * (column - 1 - shift) + "^" * max(1, min(stop - column, len(source) - (column - 1 - shift)))
    bar = _paint("|", "dim", color)
    lines = [
        *_headline(finding, finding.message, columns, color=color),
        f"{' ' * width}--> {_plain(finding.span.path)}:{line}:{column}{_cell(finding, data)}",
        f"{' ' * width} {bar}",
        f"{line} {bar} {source}",
        f"{' ' * width} {bar} {_paint(carets, word, color)}",
    ]
    for related in finding.related:
        where, at = position(result.files.get(related.span.path, b""), related.span.start)
        place = f"note: {_plain(related.span.path)}:{where}:{at}"
        lines += _noted(place, _plain(related.message), width, columns)
    if finding.help:
        lines += _noted("help", finding.help, width, columns)
    if finding.fix is not None:
        option = "--fix" if finding.fix.applicability == "safe" else "--unsafe-fixes"
        lines += _noted("fix", f"{finding.fix.title} ({option})", width, columns)
    return "\n".join(lines) + "\n"


def _cell(finding: Finding, data: bytes) -> str:
    found = notebook.cell_of(data, finding.span.start) if finding.span.path.endswith(".ipynb") else None
    return f" (cell {found[0]}, line {found[1]})" if found else ""


def _source_line(data: bytes, offset: int, column: int) -> tuple[str, int]:
    """Give the text of the line around a byte, cut around its column if it is long, tabs as one space.

    And how many characters were cut. A line may be a megabyte long: it is cut before anything else is done with it.
    """
    start, stop = data.rfind(b"\n", 0, offset) + 1, data.find(b"\n", offset)
    source = data[start : stop if stop >= 0 else len(data)].decode("utf-8", "replace").rstrip("\r")
    shift = max(0, min(column - 1 - _MAX_LINE // 2, len(source) - _MAX_LINE)) if len(source) > _MAX_LINE else 0
    kept = source[shift : shift + _MAX_LINE].replace("\t", " ")
    return _plain(kept), shift


def _statistics(result: CheckResult) -> str:
    counts = Counter((finding.rule.code, finding.rule.name) for finding in result.findings)
    rows = [
        f"{count:>6}  {code}  {name}"
        for (code, name), count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]
    return "\n".join(rows) + "\n" if rows else ""


def _footer(result: CheckResult, hidden: int) -> str:
    counts = Counter(finding.severity for finding in result.findings)
    parts = []
    for severity, word in ((Severity.ERROR, "error"), (Severity.WARNING, "warning"), (Severity.INFO, "note")):
        if counts[severity]:
            parts.append(many(counts[severity], word))
    found = ", ".join(parts) or "nothing found"
    extra = " (-v shows the notes)" if hidden else ""
    silent = f"; {len(result.suppressed)} suppressed" if result.suppressed else ""
    broken = f"; {len(result.errors)} not read" if result.errors else ""
    gone = (
        f"; {len(result.base.gone)} gone since {result.base.ref}"
        if result.base is not None and result.base.gone
        else ""
    )
    read = f"in {many(result.scanned, 'file')} ({result.with_prompts:,} with prompts)"
    return f"{found}{extra}{silent}{gone}{broken} {read}"
