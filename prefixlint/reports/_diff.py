"""How two requests side by side look: as text for people, as JSON for programs (`prefixlint.diff/1`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from prefixlint.details import Characters, Comparison, Difference, Relation, Tokens
from prefixlint.reports import Look
from prefixlint.reports import _misses as misses
from prefixlint.reports._terminal import Style, shorten, visible, wrap
from prefixlint.reports.json import dump
from prefixlint.reports.text import excerpt_lines
from prefixlint.results import Excerpt
from prefixlint.saved import build
from prefixlint.wording import many, percent

_ROWS = 30
_ALIKE = 3
_SIGNS = {"equal": "=", "changed": "~", "added": "+", "removed": "-"}


def text(found: Comparison, names: tuple[str, str], look: Look) -> str:
    """Show the first divergence with its text, all differences in order, and what caches could serve."""
    style = Style(look.color)
    parts = [
        divergence(found, names, look),
        _differences(found, style, look),
        _verdicts(found, names, style, look.width),
        notes(found, look),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def notes(found: Comparison, look: Look) -> list[str]:
    """Show the notes of a comparison, each beginning on a line of its own."""
    first = Style(look.color).yellow("note: ")
    return [line for note in found.notes for line in wrap(visible(note), look.width, first=first)]


def divergence(found: Comparison, names: tuple[str, str], look: Look) -> list[str]:
    """Say where two requests part and how much they share, with the text around it."""
    style = Style(look.color)
    first, shared = found.first, _shared(found)
    if first is None:
        earlier, later = (visible(name) for name in names)
        return wrap(f"{earlier} and {later} hold the same prompt: {shared}", look.width, first="")
    rule = f"{first.rule}: " if first.rule else ""
    place = f"first divergence: {visible(first.path)}, character {first.char:,}{_token(found.tokens)}"
    lines = [style.bold(line) for line in wrap(f"{place}: {rule}{visible(first.what)}", look.width, first="")]
    if found.excerpt is not None and (found.excerpt.earlier or found.excerpt.later):
        lines += ["  " + line for line in excerpt_lines(found.excerpt, look.width - 2, style)]
    elif first.before or first.after:
        room = max(8, look.width - 5)
        lines += [f"  {side}  {shorten(visible(value) or '(nothing)', room)}" for side, value in _sides(first)]
    return lines + wrap(shared, look.width, first="")


def _sides(row: Difference) -> tuple[tuple[str, str], tuple[str, str]]:
    return ("A", row.before), ("B", row.after)


def _token(tokens: Tokens | None) -> str:
    return "" if tokens is None or tokens.index is None else f", token {tokens.index:,}"


def _shared(found: Comparison) -> str:
    parts = []
    if found.characters is not None:
        shared, total = found.characters.shared, max(found.characters.earlier, found.characters.later)
        share = percent(shared / total if total else None)
        parts.append(f"{shared:,} of {total:,} characters shared as a prefix ({share})" if total else "no text")
    tokens = found.tokens
    if tokens is not None:
        longer = max(tokens.earlier, tokens.later)
        about = "" if tokens.exact else "about "
        parts.append(
            f"{about}{tokens.before:,} of {longer:,} tokens ({percent(tokens.before / longer if longer else None)})"
        )
    text = ", ".join(parts)
    if found.first is not None and not found.grows:
        behind = [many(found.characters.behind, "character")] if found.characters is not None else []
        behind += [many(tokens.behind, "token")] if tokens is not None else []
        text += f"; equal behind the first divergence, and so computed again: {', '.join(behind)}"
    return text


def _differences(found: Comparison, style: Style, look: Look) -> list[str]:
    rows = found.differences
    if not rows or (len(rows) == 1 and found.first is rows[0]):
        return []
    rows = rows if look.verbose else _fewer(rows)
    lines = [style.bold("Differences, in the order of the prompt")]
    for row in rows[: len(rows) if look.verbose else _ROWS]:
        lines += _row(row, style, look.width)
    if len(rows) > _ROWS and not look.verbose:
        lines.append(style.dim(f"and {many(len(rows) - _ROWS, 'more row')}; --verbose or --format json shows all"))
    return lines


def _fewer(rows: Sequence[Difference]) -> list[Difference]:
    """Leave out what is the same kind of change in the same string, but for the first few."""
    seen: Counter[tuple[str, str]] = Counter()
    kept = []
    for row in rows:
        seen[row.path, row.what] += 1
        if seen[row.path, row.what] <= _ALIKE:
            kept.append(row)
    return kept


def _row(row: Difference, style: Style, width: int) -> list[str]:
    sign = _SIGNS[row.relation]
    place = visible(row.path if row.path == row.last else f"{row.path} to {row.last}")
    if row.relation == "equal":
        text = f"{sign} {place}: equal, {many(row.characters, 'character')}"
        return [style.dim(line) for line in wrap(text, width, first="", indent="    ")]
    changed = row.relation == "changed"
    text = f"{sign} {place}{f', character {row.char:,}' if changed else ''}: "
    text += f"{row.rule + ' ' if row.rule else ''}{visible(row.what)}"
    if row.characters:
        text += f"; {many(row.characters, 'character')}{' equal behind it' if changed else ''}"
    lines = wrap(text, width, first="", indent="    ")
    room = max(8, width - 7)
    for side, value in _sides(row):
        if changed or value:
            lines.append(f"    {side}  {style.yellow(shorten(visible(value) or '(nothing)', room))}")
    return lines


def _verdicts(found: Comparison, names: tuple[str, str], style: Style, width: int) -> list[str]:
    if not found.verdicts:
        return []
    later, earlier = visible(names[1]), visible(names[0])
    title = f"What caches could serve of {later} after {earlier}, of {many(found.verdicts[0].prompt, 'token')}"
    lines = wrap(title, width, first="")
    lines = [style.bold(line) for line in lines]
    lines += misses.verdicts(found.verdicts, width=width)
    tokens = found.tokens
    if tokens is not None:
        counted = f"counted with {visible(tokens.counted)}"
        counted += "" if tokens.exact else ", which is not the model's own: --model NAME|DIR|FILE.gguf counts exactly"
        lines += [style.dim(line) for line in wrap(counted + ".", width)]
    return lines


def as_json(found: Comparison, names: tuple[str, str]) -> str:
    """Give the comparison as JSON."""
    return dump(plain(found, names))


def plain(found: Comparison, names: tuple[str, str]) -> dict[str, Any]:
    """Give the comparison as plain JSON values; `differences` leaves out what is equal, `aligned` has it."""
    changed = [_difference(row) for row in found.differences if row.relation != "equal"]
    size = found.characters
    return {
        "schema": "prefixlint.diff/1",
        "names": list(names),
        "equal": found.first is None,
        "grows": found.grows,
        "first": None
        if found.first is None
        else {
            **_difference(found.first),
            "token": found.tokens.index if found.tokens is not None else None,
            "excerpt": excerpt(found.excerpt),
        },
        "differences": changed,
        "aligned": [_aligned(row) for row in found.differences],
        "shared": {
            "characters": None if size is None else size.shared,
            "of": None if size is None else max(size.earlier, size.later),
            "behind": None if size is None else size.behind,
            "tokens": _tokens(found.tokens),
        },
        "engines": [misses.as_json(verdict) for verdict in found.verdicts],
        "notes": list(found.notes),
    }


def excerpt(found: Excerpt | None) -> dict[str, str] | None:
    """Give an excerpt as plain JSON values."""
    if found is None:
        return None
    return {"before": found.before, "earlier": found.earlier, "later": found.later, "after": found.after}


def _difference(row: Difference) -> dict[str, Any]:
    return {
        "rule": row.rule,
        "message": row.what,
        "path": row.path,
        "char": row.char,
        "values": [row.before, row.after],
        "relation": row.relation,
        "equal_behind": row.characters if row.relation == "changed" else 0,
        "last_path": row.last,
        "characters": row.characters,
    }


def _aligned(row: Difference) -> dict[str, Any]:
    if row.relation != "equal":
        return _difference(row)
    return {"relation": "equal", "path": row.path, "last_path": row.last, "characters": row.characters}


def _tokens(found: Tokens | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "earlier": found.earlier,
        "later": found.later,
        "index": found.index,
        "before": found.before,
        "behind": found.behind,
        "counted_with": found.counted,
        "exact": found.exact,
    }


def restored(saved: Mapping[str, Any]) -> tuple[Comparison, tuple[str, str]]:
    """Give the comparison that was written as JSON, and the names of its two requests."""
    first, shared = saved["first"], saved["shared"]
    size, tokens = shared["of"], shared["tokens"]
    found = Comparison(
        first=first and _read(first),
        excerpt=read_excerpt(first["excerpt"]) if first else None,
        differences=[_read(row) for row in saved["aligned"]],
        characters=None if size is None else Characters(shared["characters"], shared["behind"], size, size),
        grows=saved["grows"],
        tokens=tokens and build(Tokens, tokens, counted=tokens["counted_with"]),
        verdicts=[misses.restored(row) for row in saved["engines"]],
        notes=saved["notes"],
    )
    earlier, later = saved["names"]
    return found, (earlier, later)


def _read(row: Mapping[str, Any]) -> Difference:
    """Read a row of the differences, or of what is equal."""
    before, after = row.get("values", ("", ""))
    relation: Relation = row["relation"]
    return Difference(
        relation,
        row["path"],
        row["last_path"],
        row.get("char", 0),
        row["characters"],
        row.get("message", ""),
        before,
        after,
        row.get("rule"),
    )


def read_excerpt(saved: Mapping[str, str] | None) -> Excerpt | None:
    """Read an excerpt that was written as JSON."""
    return None if saved is None else build(Excerpt, saved)
