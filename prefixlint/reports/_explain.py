"""How one explained request looks: as text for people, as JSON for programs (`prefixlint.explain/1`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prefixlint.details import RENDERED, Conversation, Difference, Expected, Explanation, Passage, Place
from prefixlint.reports import Look
from prefixlint.reports import _diff as diff
from prefixlint.reports import _misses as misses
from prefixlint.reports._terminal import Style, count, moment, shorten, table, visible, wrap
from prefixlint.reports._times import iso, seconds
from prefixlint.reports.json import dump
from prefixlint.reports.text import excerpt_lines
from prefixlint.saved import build
from prefixlint.wording import many

_PASSAGES = 12
_LINES = 5


def text(found: Explanation, look: Look) -> str:
    """Show a request: what it is, its prompt, what caches serve, and what it should have matched."""
    style = Style(look.color)
    parts = [
        _head(found, style, look.width),
        _prompt(found, style, look),
        _hits(found, style, look.width),
        _expected(found, style, look.width),
        [line for note in found.notes for line in wrap(visible(note), look.width, first=style.yellow("note: "))],
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _name(place: Place) -> str:
    return f"{visible(place.path)}#{place.line}"


def _head(found: Explanation, style: Style, width: int) -> list[str]:
    about = "" if found.exact else "about "
    title = f"{_name(found.place)}: {about}{many(found.prompt, 'prompt token')}"
    lines = [style.bold(line) for line in wrap(title, width, first="")]
    named = [visible(found.model) if found.model else "no model named", found.format]
    named += [moment(found.time)] if found.time is not None else []
    named += [visible(found.id)] if found.id else []
    lines += wrap(", ".join(named), width)
    _, name, members = found.family
    lines += wrap(f"family: {visible(name)} ({many(members, 'request')})", width)
    turn = found.conversation
    text = f"conversation: turn {turn.turn} of {turn.turns}"
    if turn.earlier:
        shown = [f"#{place.line}" for place in turn.earlier[-_LINES:]]
        more = f"{len(turn.earlier) - _LINES} more and " if len(turn.earlier) > _LINES else ""
        text += f", after {more}{', '.join(shown)}"
    return lines + wrap(text, width)


def _prompt(found: Explanation, style: Style, look: Look) -> list[str]:
    if not found.passages:
        return []
    rows = [("token", "tokens", "matched", "The rendered prompt")]
    shown = _chosen(found, look)
    rows += [
        (count(p.token), count(p.tokens), count(p.matched), visible(p.text)) if p else ("", "", "", "…") for p in shown
    ]
    lines = table(rows, align=">>><", width=look.width, grow=(3,), indent=0)
    lines[0] = style.bold(lines[0])
    for number, passage in enumerate(shown, 1):
        if passage is not None and passage.matched == passage.tokens:
            lines[number] = style.dim(lines[number])
    counted = f"counted with {visible(found.counted)}"
    counted += "" if found.exact else "; --model NAME|DIR|FILE.gguf counts with the model's own tokenizer"
    return lines + [style.dim(line) for line in wrap(counted + ".", look.width)]


def _chosen(found: Explanation, look: Look) -> list[Passage | None]:
    """Choose passages of a long prompt: its beginning, where it parts, and its end; None stands for those left out."""
    if look.verbose or len(found.passages) <= _PASSAGES:
        return list(found.passages)
    parting = next((i for i, p in enumerate(found.passages) if p.matched < p.tokens), len(found.passages))
    kept = {0, 1, 2, *range(parting - 1, parting + 4), *range(len(found.passages) - 3, len(found.passages))}
    rows: list[Passage | None] = []
    for number, passage in enumerate(found.passages):
        if number in kept:
            rows.append(passage)
        elif rows and rows[-1] is not None:
            rows.append(None)
    return rows


def _hits(found: Explanation, style: Style, width: int) -> list[str]:
    lines = [style.bold("What caches could serve of it, in tokens"), *misses.verdicts(found.verdicts, width=width)]
    sources = {name: v.source for v in found.verdicts if (name := v.engine) and v.source is not None and v.cached}
    for place in dict.fromkeys(sources.values()):
        names = [name for name, source in sources.items() if source == place]
        lines += wrap(
            f"{', '.join(names)}: from {_name(place)}, the first to have written the last of these tokens", width
        )
    if found.reported is not None:
        lines += wrap(f"reported by the server: {many(found.reported, 'cached token')}", width)
    return lines


def _expected(found: Explanation, style: Style, width: int) -> list[str]:
    expected = found.expected
    if expected is None:
        return wrap("Nothing to match: no earlier request of its family or with its beginning.", width, first="")
    head = f"Should have matched {_name(expected.place)}, {expected.relation}"
    if expected.parted is None:
        return wrap(
            f"{head}: it did; all of its {count(expected.shared)} tokens are the beginning here.", width, first=""
        )
    if not expected.lost:
        head = f"Begins like {_name(expected.place)}, {expected.relation}, up to where its own text begins"
        lines = [style.bold(line) for line in wrap(f"{head}:", width, first="")]
        return [
            *lines,
            *_parted(expected, expected.parted, style, width),
            "  Nothing of what follows was there before.",
        ]
    lines = [style.bold(line) for line in wrap(f"{head}, but for this:", width, first="")]
    lines += _parted(expected, expected.parted, style, width)
    lost = f"{many(expected.lost, 'token')} behind it stand in both and were computed again."
    lines += [style.red(line) for line in wrap(lost, width)]
    lines += wrap(expected.advice, width, first="  -> ", indent="     ") if expected.advice else []
    for other in expected.behind:
        place = f"{visible(other.path)}, character {other.char:,}"
        lines += wrap(f"Behind it, and to be mended as well: {other.rule} {visible(other.what)}, at {place}", width)
    return lines


def _parted(expected: Expected, parted: Difference, style: Style, width: int) -> list[str]:
    rule = f"{parted.rule} " if parted.rule else ""
    place = f"{visible(parted.path)}, character {parted.char:,}, token {count(expected.token)}"
    lines = wrap(f"{rule}{visible(parted.what)}, at {place}", width)
    if expected.excerpt is not None and (expected.excerpt.earlier or expected.excerpt.later):
        lines += ["    " + line for line in excerpt_lines(expected.excerpt, width - 4, style)]
    else:
        room = max(8, width - 11)
        for side, value in (("before", parted.before), ("then  ", parted.after)):
            lines.append(f"    {side} {style.yellow(shorten(visible(value) or '(nothing)', room))}")
    return lines


def as_json(found: Explanation) -> str:
    """Give the explanation as JSON."""
    family, name, members = found.family
    return dump(
        {
            "schema": "prefixlint.explain/1",
            "path": found.place.path,
            "line": found.place.line,
            "part": found.part,
            "id": found.id,
            "time": iso(found.time),
            "model": found.model,
            "format": found.format,
            "family": {"id": family, "name": name, "requests": members},
            "conversation": {
                "turn": found.conversation.turn,
                "turns": found.conversation.turns,
                "earlier": [_place(place) for place in found.conversation.earlier],
            },
            "prompt_tokens": found.prompt,
            "counted_with": found.counted,
            "exact": found.exact,
            "passages": [
                {"token": p.token, "tokens": p.tokens, "matched": p.matched, "text": p.text} for p in found.passages
            ],
            "engines": [misses.as_json(verdict) for verdict in found.verdicts],
            "reported_cached_tokens": found.reported,
            "expected": None if found.expected is None else _expected_json(found.expected),
            "notes": list(found.notes),
        }
    )


def _place(place: Place) -> dict[str, Any]:
    return {"path": place.path, "line": place.line}


def _expected_json(expected: Expected) -> dict[str, Any]:
    parted = expected.parted
    return {
        **_place(expected.place),
        "relation": expected.relation,
        "shared_tokens": expected.shared,
        "lost_tokens": expected.lost,
        "diverged_at": None
        if parted is None
        else {
            "rule": parted.rule,
            "message": parted.what,
            "token": expected.token,
            "path": None if expected.rendered else parted.path,
            "char": None if expected.rendered else parted.char,
            "rendered_char": parted.char if expected.rendered else None,
            "values": [parted.before, parted.after],
            "excerpt": diff.excerpt(expected.excerpt),
        },
        "advice": expected.advice,
        "behind": [
            {"rule": other.rule, "message": other.what, "path": other.path, "char": other.char}
            for other in expected.behind
        ],
    }


def restored(saved: Mapping[str, Any]) -> Explanation:
    """Give the explanation that was written as JSON."""
    family, turn = saved["family"], saved["conversation"]
    return Explanation(
        place=Place(saved["path"], saved["line"]),
        part=saved["part"],
        id=saved["id"],
        time=seconds(saved["time"]),
        model=saved["model"],
        format=saved["format"],
        family=(family["id"], family["name"], family["requests"]),
        conversation=Conversation(turn["turn"], turn["turns"], [build(Place, place) for place in turn["earlier"]]),
        prompt=saved["prompt_tokens"],
        passages=[build(Passage, passage) for passage in saved["passages"]],
        counted=saved["counted_with"],
        exact=saved["exact"],
        verdicts=[misses.restored(verdict) for verdict in saved["engines"]],
        reported=saved["reported_cached_tokens"],
        expected=saved["expected"] and _expected_of(saved["expected"]),
        notes=saved["notes"],
    )


def _expected_of(saved: Mapping[str, Any]) -> Expected:
    at = saved["diverged_at"]
    rendered = at is not None and at["path"] is None
    parted = None
    if at is not None:
        path, char = (RENDERED, at["rendered_char"]) if rendered else (at["path"], at["char"])
        before, after = at["values"]
        parted = Difference("changed", path, path, char, 0, at["message"], before, after, at["rule"])
    return Expected(
        place=Place(saved["path"], saved["line"]),
        relation=saved["relation"],
        shared=saved["shared_tokens"],
        lost=saved["lost_tokens"],
        token=at and at["token"],
        parted=parted,
        excerpt=at and diff.read_excerpt(at["excerpt"]),
        advice=saved["advice"],
        rendered=rendered,
        behind=[
            Difference("changed", one["path"], one["path"], one["char"], 0, one["message"], rule=one["rule"])
            for one in saved.get("behind", ())
        ],
    )
