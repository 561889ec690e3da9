"""How advice looks, in JSON and in text."""

from __future__ import annotations

import shlex
from typing import Any

from prefixlint.reports import Look
from prefixlint.reports._terminal import Style, columns, count, shorten, visible, wrap
from prefixlint.results import Advice, Analysis, MarkAdvice
from prefixlint.spots import lifetime
from prefixlint.wording import many, percent

_INDENT = "    "
_TOP = 4  # pieces of advice, those that gain most


def as_json(one: Advice) -> dict[str, Any]:
    """Give a piece of advice as JSON values."""
    return {
        "kind": one.kind,
        "engine": one.engine,
        "advice": one.text,
        "command": one.command,
        "hit_rate": one.hit_rate,
        "new_hit_rate": one.new_hit_rate,
        "cost": one.cost,
        "new_cost": one.new_cost,
        "money_saved": one.money,
        "currency": one.currency,
        "tokens": one.tokens,
        "gib": one.gib,
        "marks": [_mark(mark) for mark in one.marks],
    }


def _mark(mark: MarkAdvice) -> dict[str, Any]:
    return {
        "place": mark.place,
        "ttl_s": mark.ttl,
        "read_tokens": mark.read_tokens,
        "written_tokens": mark.written_tokens,
        "gain": mark.gain,
        "reads_per_write": mark.reads,
        "break_even_reads": mark.break_even,
    }


def advice(result: Analysis, style: Style, look: Look) -> list[str]:
    """Show what to change, what gains most first, each with its gain and the command that shows it."""
    found = [one for one in result.advice if look.verbose or not _is_in_the_table(one, result)]
    if not found:
        return []
    width = look.width
    lines = [style.bold("Advice, from what this log shows")]
    shown = found if look.verbose else found[:_TOP]
    for one in shown:
        gain = _gain(one)
        text = f"{one.engine}: {one.text}" + (f" ({gain})" if gain else "")
        lines += wrap(text, width, first="  ", indent=_INDENT)
        for mark in one.marks:
            lines += wrap(_mark_text(mark), width, first=_INDENT, indent=_INDENT + "  ")
        lines += [style.dim(line) for line in _shell(one.command, width)]
    if len(found) > len(shown):
        lines.append(style.dim(f"  and {many(len(found) - len(shown), 'more piece')} of it; -v shows them"))
    return lines


def _is_in_the_table(one: Advice, result: Analysis) -> bool:
    """Tell whether the pools of the report say the same: where none is at hand, advice only picks one of them."""
    return one.kind == "pool" and one.hit_rate is None and any(s.engine == one.engine for s in result.curves.sizes)


def _shell(command: str, width: int) -> list[str]:
    """Lay a command out so that it can be copied: lines that go on end as a shell wants it.

    A word that is longer than a line is cut; the whole of it is in the JSON.
    """
    room = max(20, width - len(_INDENT) - 6)
    lines = [""]
    for word in (shorten(visible(shlex.quote(word)), room, keep="end") for word in shlex.split(command)):
        if lines[-1] and columns(lines[-1]) + columns(word) + 1 > room:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    heads = ["$ "] + ["    "] * (len(lines) - 1)
    tails = [" \\"] * (len(lines) - 1) + [""]
    return [f"{_INDENT}{head}{line}{tail}" for head, line, tail in zip(heads, lines, tails, strict=True)]


def _gain(one: Advice) -> str:
    parts = []
    if one.hit_rate is not None:
        parts.append(f"hit rate {percent(one.hit_rate)} -> {percent(one.new_hit_rate)}")
    elif one.new_hit_rate is not None:
        parts.append(f"hit rate {percent(one.new_hit_rate)}")
    if one.cost is not None:
        parts.append(f"prompts cost {percent(one.cost)} -> {percent(one.new_cost)} of what they would without a cache")
    if one.money is not None:
        parts.append(
            f"{one.money:,.2f} {one.currency} less" if one.money >= 1 else f"{one.money:.3g} {one.currency} less"
        )
    return "; ".join(parts)


def _mark_text(mark: MarkAdvice) -> str:
    name = mark.place if mark.ttl is None else f"{mark.place} for {lifetime(mark.ttl)}"
    text = f"{name}: {_more(mark.read_tokens)} read and {_more(mark.written_tokens)} written"
    text += f" than without it, {percent(mark.gain)} of the cost"
    if mark.reads is not None and mark.break_even:
        pay = "1 pays" if mark.break_even == 1 else f"{mark.break_even} pay"
        text += f"; {mark.reads:,.1f} are read for each one written, and {pay} for it"
    return text


def _more(tokens: int) -> str:
    return f"{count(tokens)} tokens more" if tokens >= 0 else f"{count(-tokens)} tokens fewer"
