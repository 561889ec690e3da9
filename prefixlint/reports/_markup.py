"""Markdown as GitHub shows it, in which a stranger's text stays text: no markup, no mention, no link, no table cell.

https://github.github.com/gfm/ (0.29); limits: https://docs.github.com/rest/issues/comments (a body of 65,536
characters), https://docs.github.com/actions/reference/workflow-commands-for-github-actions (a summary of 1 MiB a step).
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

from prefixlint.reports._terminal import visible

LIMIT = 60_000
"""Characters of a document; a comment may have 65,536, and what posts it may put something around it."""
_CUT = 300
_TICKS = re.compile(r"`+")
_SPECIAL = re.compile(r"([\\`*_\[\]|~])")
# what GitHub makes links and notifications of, wherever it stands outside of code
_ALIVE = re.compile(r"(?<=[@#$])(?=\w)|(?<=:)(?=//)|(?<=www)(?=\.)|(?<=GH)(?=-\d)", re.IGNORECASE)
_NOTHING = "&#8203;"  # a character without width, between what would be read together


def code(text: str, most: int = _CUT) -> str:
    """Show a stranger's text as inline code, on one line and cut to `most` characters."""
    shown = _cut(visible(text), most)
    if not shown.strip():
        return "(nothing)" if not shown else "(blanks)"
    ticks = "`" * (1 + max((len(run) for run in _TICKS.findall(shown)), default=0))
    # one blank on each side is taken away again
    return f"{ticks} {shown} {ticks}" if shown[0] in "` " or shown[-1] in "` " else f"{ticks}{shown}{ticks}"


def prose(text: str, most: int = 1_000) -> str:
    """Show a sentence that may quote a stranger's text."""
    escaped = _SPECIAL.sub(r"\\\1", html.escape(_cut(visible(text), most), quote=False))
    return _ALIVE.sub(_NOTHING, escaped)


def block(lines: Iterable[str], language: str = "text") -> str:
    """Show lines of strangers' text as a block of code."""
    shown = [visible(line) for line in lines]
    longest = max((len(run) for line in shown for run in _TICKS.findall(line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}{language}", *shown, fence])


def table(head: Sequence[str], rows: Iterable[Sequence[str]], align: str) -> str:
    """Lay cells, which are markdown already, out in a table; `align` has `<` or `>` a column."""
    rule = "|".join("---:" if side == ">" else "---" for side in align)
    body = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(["| " + " | ".join(head) + " |", f"|{rule}|", *body])


def details(title: str, body: str, place: str = "") -> str:
    """Fold a part away under a title, before which a place may stand; both are plain text."""
    head = f"<code>{html.escape(_cut(visible(place), _CUT))}</code> " if place else ""
    shown = _ALIVE.sub(_NOTHING, html.escape(_cut(visible(title), _CUT)))
    return f"<details><summary>{head}{shown}</summary>\n\n{body}\n\n</details>"


def fitted(must: Sequence[str], may: Sequence[str], end: Sequence[str], left_out: str) -> str:
    """Put parts together; of `may` the first that fit into the limit, with `left_out` where some do not."""
    used = sum(len(part) + 2 for part in (*must, *end, left_out))
    kept: list[str] = []
    for part in may:
        used += len(part) + 2
        if used > LIMIT:
            kept.append(left_out)
            break
        kept.append(part)
    return "\n\n".join(part for part in (*must, *kept, *end) if part) + "\n"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
