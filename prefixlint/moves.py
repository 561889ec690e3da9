"""Moves of text: a line that changes goes to the end of the text it stands in, so that the static lines come first.

Only a line that speaks for itself is moved, as a whole, and only where every other line and every value stays: the
edits are bytes, and for Python the syntax tree without the text must be the same before and after.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from prefixlint import pymoves
from prefixlint.findings import Applicability, Edit, Finding, Fix
from prefixlint.prompts import Span

TITLE = "move the line behind the static text"
FACTS = "PFX1"
"""Rules about facts of the moment and the place: a sentence may say them. Of other content only `name: value` moves."""
_TEMPLATES = (".j2", ".jinja", ".jinja2", ".prompty", ".prompt", ".md", ".txt", ".hbs", ".handlebars", ".mustache")
_HEADING = re.compile(
    rb"[ \t]*(?:#{0,3}[ \t]*(?:system|developer|user|assistant|human|ai|tool|function)[ \t]*:[ \t]*"
    rb"|\{\{-?[ \t]*role\b.*|---[ \t]*|.*<\|[\w ]+\|>[ \t]*)\r?\n?",
    re.IGNORECASE,
)
_OPENS = re.compile(rb"\{%-?\s*(?:if|for|block|macro|call|filter|raw|autoescape|with|trans)\b|\{\{[~{]?#|\{\{\^")
_CLOSES = re.compile(rb"\{%-?\s*end|\{\{[~{]?/")
_TRIMMED = re.compile(rb"\{[{%#][-~]|[-~][}%#]\}")
_BLOCK_SCALAR = re.compile(rb"[ \t]*(?:- )?[ \t]*(?:[^#\n]*:[ \t]+)?\|[+-]?[ \t]*(?:#.*)?\r?\n?")


def offer(finding: Finding, data: bytes) -> Fix | None:
    """Give the move that puts a finding's line behind the text after it; None where it is not sure to keep all."""
    place = finding.group
    if (
        place is None
        or place.end > len(data)
        or not finding.tokens_at_risk
        or finding.masker is not None
        or finding.fix is not None
    ):
        return None
    name = place.path.lower()
    if name.endswith(".py"):
        found = pymoves.edits(data, place.start, place.end)
    elif name.endswith(_TEMPLATES):
        found = _template(data, place.start, place.end)
    elif name.endswith((".yaml", ".yml")):
        found = _yaml(data, place.start, place.end)
    else:
        found = None
    if found is None or not (finding.rule.code.startswith(FACTS) or _is_label(data, place)):
        return None
    edits = tuple(Edit(Span(place.path, start, end), text) for start, end, text in found)
    return Fix(TITLE, edits, Applicability.UNSAFE)


def _is_label(data: bytes, place: Span) -> bool:
    before = data[: place.start]
    for opening in (b"\n", b"\\n", b'"', b"'"):
        before = before[before.rfind(opening) + len(opening) :] if opening in before else before
    return pymoves.is_label(before + data[place.start : place.end])


def _template(data: bytes, start: int, end: int) -> list[pymoves.Change] | None:
    """Move a line of a template, inside its message and outside every block."""
    lines = data.splitlines(keepends=True)
    starts = _starts(lines)
    at = _line_of(starts, start)
    if not lines or at != _line_of(starts, end - 1) or _front_matter(lines) > at:
        return None
    last = next((number for number in range(at + 1, len(lines)) if _HEADING.fullmatch(lines[number])), len(lines))
    if _depth(lines[:at]) or _depth(lines[at:last]) or _TRIMMED.search(b"".join(lines[max(0, at - 1) : last])):
        return None
    if any(b"{%" in lines[number] or b"{#" in lines[number] for number in (at, last - 1)):
        return None
    return _moved(lines, starts, at, last)


def _yaml(data: bytes, start: int, end: int) -> list[pymoves.Change] | None:
    """Move a line of a literal block scalar (`|`)."""
    lines = data.splitlines(keepends=True)
    starts = _starts(lines)
    at = _line_of(starts, start)
    if not lines or at != _line_of(starts, end - 1):
        return None
    indent = _indent(lines[at])
    first = next((n for n in range(at - 1, -1, -1) if lines[n].strip() and _indent(lines[n]) < indent), None)
    if first is None or not _BLOCK_SCALAR.fullmatch(lines[first]):
        return None
    last = next((n for n in range(at + 1, len(lines)) if lines[n].strip() and _indent(lines[n]) < indent), len(lines))
    inside = lines[first + 1 : last]
    if any(_HEADING.fullmatch(line) for line in inside) or _TRIMMED.search(b"".join(inside)):
        return None
    if _depth(lines[first + 1 : at]) or _depth(lines[at:last]) or b"{%" in lines[at]:
        return None
    return _moved(lines, starts, at, last)


def _moved(lines: Sequence[bytes], starts: Sequence[int], at: int, last: int) -> list[pymoves.Change] | None:
    """Give the edits that move line `at` behind the last written line before `last`."""
    while last > at and not lines[last - 1].strip():
        last -= 1
    if last - 1 <= at or not pymoves.speaks_for_itself([line.rstrip(b"\r\n") for line in lines], at, _first(lines, at)):
        return None
    line, target = lines[at], lines[last - 1]
    if not pymoves.closes(target):
        return None
    end = starts[last]
    ending = line[len(line.rstrip(b"\r\n")) :]
    text = line if target.endswith((b"\n", b"\r")) else ending + line.rstrip(b"\r\n")
    try:
        return [(starts[at], starts[at + 1], ""), (end, end, text.decode())]
    except UnicodeDecodeError:
        return None


def _first(lines: Sequence[bytes], at: int) -> int:
    """Give the first line of the text around a line: after the nearest heading or front matter."""
    return next((n + 1 for n in range(at - 1, -1, -1) if _HEADING.fullmatch(lines[n])), 0)


def _starts(lines: Sequence[bytes]) -> list[int]:
    out = [0]
    for line in lines:
        out.append(out[-1] + len(line))
    return out


def _line_of(starts: Sequence[int], offset: int) -> int:
    return max((number for number, start in enumerate(starts[:-1]) if start <= offset), default=0)


def _depth(lines: Sequence[bytes]) -> int:
    text = b"".join(lines)
    return len(_OPENS.findall(text)) - len(_CLOSES.findall(text))


def _front_matter(lines: Sequence[bytes]) -> int:
    """Give the number of lines of the front matter, 0 without one."""
    if not lines or lines[0].strip() != b"---":
        return 0
    return next((number + 1 for number in range(1, len(lines)) if lines[number].strip() == b"---"), len(lines))


def _indent(line: bytes) -> int:
    return len(line) - len(line.lstrip(b" "))
