"""Findings as text for people: the line, carets below it, related places, help; then counts."""

from __future__ import annotations

from collections import Counter

from prefixlint.checkrun import CheckResult, position
from prefixlint.findings import At, Finding, Severity
from prefixlint.reports._terminal import columns, shorten, wrap
from prefixlint.sources import Diagnostic, notebook
from prefixlint.wording import many

_COLORS = {"error": "\x1b[1;31m", "warning": "\x1b[1;33m", "info": "\x1b[1;36m", "dim": "\x1b[2m", "bold": "\x1b[1m"}
_RESET = "\x1b[0m"
_LEAST = 20
"""Columns of a source line that are shown around the place, however narrow the terminal is."""


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


def _block(finding: Finding, result: CheckResult, width: int, *, color: bool) -> str:
    if finding.at is not None:
        return _logged(finding, finding.at, width, color=color)
    word = finding.severity.word
    data = result.files.get(finding.span.path, b"")
    line, column = position(data, finding.span.start)
    end_line, end_column = position(data, finding.span.end)
    margin = len(str(line))
    length = end_column - column if end_line == line else None
    room = width - margin - len(" | ")
    source, carets = _marked_line(_line_of(data, finding.span.start), column - 1, length, room)
    bar = _paint("|", "dim", color)
    lines = [
        *_headline(finding, finding.message, width, color=color),
        f"{' ' * margin}--> {_plain(finding.span.path)}:{line}:{column}{_cell(finding, data)}",
        f"{' ' * margin} {bar}",
        f"{line} {bar} {source}",
        f"{' ' * margin} {bar} {_paint(carets, word, color)}",
    ]
    for related in finding.related:
        where, at = position(result.files.get(related.span.path, b""), related.span.start)
        place = f"note: {_plain(related.span.path)}:{where}:{at}"
        lines += _noted(place, _plain(related.message), margin, width)
    if finding.help:
        lines += _noted("help", finding.help, margin, width)
    if finding.fix is not None:
        option = "--fix" if finding.fix.applicability == "safe" else "--unsafe-fixes"
        lines += _noted("fix", f"{finding.fix.title} ({option})", margin, width)
    return "\n".join(lines) + "\n"


def _cell(finding: Finding, data: bytes) -> str:
    found = notebook.cell_of(data, finding.span.start) if finding.span.path.endswith(".ipynb") else None
    return f" (cell {found[0]}, line {found[1]})" if found else ""


def _line_of(data: bytes, offset: int) -> str:
    start, stop = data.rfind(b"\n", 0, offset) + 1, data.find(b"\n", offset)
    return data[start : stop if stop >= 0 else len(data)].decode("utf-8", "replace").rstrip("\r")


def _marked_line(source: str, at: int, length: int | None, room: int) -> tuple[str, str]:
    """Give a line in `room` columns, cut around a place if it is longer, and the carets below the place.

    The place begins at the character `at`; without a length it goes on to the line's end. Tabs are one space. A line
    may be a megabyte long: it is cut to about what can be seen before its columns are counted.
    """
    room = max(_LEAST, room)
    before, behind = (
        _plain(part.replace("\t", " ")) for part in (source[max(0, at - room - 1) : at], source[at:][: room + 1])
    )
    before = shorten(before, room - min(columns(behind), room * 2 // 3), keep="end")
    shown = shorten(behind, room - columns(before))
    marked = shown if length is None else shown[:length]
    return before + shown, " " * columns(before) + "^" * max(1, columns(marked))


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
