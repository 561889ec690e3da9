"""Markdown for a comment on a pull request or the summary of a job: what is wrong, what it costs, what a change did.

It is made of the JSON of a result, so that a saved one looks the same. Each document begins with a comment that names
it, by which a later run finds and replaces what an earlier one posted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from prefixlint.errors import UsageError
from prefixlint.reports import Look
from prefixlint.reports import _markdown_check as of_check
from prefixlint.reports import _markdown_verify as of_verify
from prefixlint.reports._markup import block, code, details, fitted, prose, table
from prefixlint.reports._terminal import count
from prefixlint.reports.json import as_json
from prefixlint.results import Analysis
from prefixlint.saved import read_as
from prefixlint.wording import many, percent

OUTLINE = False

Json = Mapping[str, Any]
_CAUSES = 10
_FAMILIES = 10
_STATES = ("new", "worse", "gone", "better")
_TELLING = 0.0005  # of a rate: less is not a change that one digit shows
_MARK = "<!-- prefixlint analyze -->"


def analysis(result: Analysis, look: Look) -> str:  # noqa: ARG001 - markdown looks the same everywhere
    """Render what `analyze` found."""
    return document(as_json(result))


def document(saved: Json) -> str:
    """Render a result as `--format json` wrote it, of analyze, check or verify; UsageError for another one."""
    known: dict[str, Callable[[Json], str]] = {
        "prefixlint.analyze/1": _analysis,
        "prefixlint.check/1": of_check.document,
        "prefixlint.verify/1": of_verify.document,
    }
    render = known.get(str(saved.get("schema")))
    if render is None:
        hint = f"known schemas: {', '.join(sorted(known))}"
        raise UsageError("this is no result that markdown can show", slug="bad-result", hint=hint)
    with read_as(str(saved["schema"]).removeprefix("prefixlint.").partition("/")[0]):
        return render(saved)


def _analysis(saved: Json) -> str:
    must = [_MARK, f"### Prefix cache: {_headline(saved)}", *_failures(saved), _rates(saved), *_compared(saved)]
    causes = list(_causes(saved))
    may = [*causes[:1], *_waterfall(saved), *causes[1:], *_families(saved)]
    return fitted(must, may, list(_end(saved)), "_More is in the JSON of this result._")


def _headline(saved: Json) -> str:
    reported = saved["reported"]
    served = next((e for e in saved["engines"] if e["hit_rate"] is not None), None)
    if served is None:
        return "nothing to measure in this log"
    text = f"{percent(served['hit_rate'])} of the prompt tokens could come from it ({prose(served['engine'])})"
    if reported and reported["hit_rate"] is not None:
        text += f", {percent(reported['hit_rate'])} did"
    return text


def _failures(saved: Json) -> Iterator[str]:
    for text in saved.get("failures") or ():
        yield f"**Failed:** {prose(text)}"


def _rates(saved: Json) -> str:
    moved = (saved["compare"] or {}).get("engines", {})
    rows = [(e["engine"], e["hit_rate"], e["cached_tokens"], e["prompt_tokens"]) for e in saved["engines"]]
    if saved["reported"]:
        told = saved["reported"]
        rows = [("reported", told["hit_rate"], told["cached_tokens"], told["prompt_tokens"]), *rows]
    head = ["", "hit rate", "cached tokens", "prompt tokens"]
    if not moved:
        cells = ([prose(name), percent(rate), count(cached), count(prompt)] for name, rate, cached, prompt in rows)
        return table(head, cells, "<>>>")
    cells = (
        [prose(name), percent(rate), *_before(moved.get(name)), count(cached), count(prompt)]
        for name, rate, cached, prompt in rows
    )
    return table([head[0], head[1], "before", "change", *head[2:]], cells, "<>>>>>")


def _before(moved: Json | None) -> tuple[str, str]:
    return ("", "") if moved is None else (percent(moved["before"]), points(moved["change"]))


def points(change: float | None) -> str:
    """Show how far a rate moved, in points."""
    return "" if change is None else "±0.0" if abs(change) < _TELLING else f"{100 * change:+.1f}"


def _compared(saved: Json) -> Iterator[str]:
    """Say what got better and worse since the earlier result, and why."""
    found = saved["compare"]
    if found is None:
        return
    rows = [cause for state in _STATES for cause in found["causes"] if cause["state"] == state][:_CAUSES]
    engine = next(iter(found["engines"]), "")
    lines = [
        f"- {prose(name)}: {prose(reason['message'])} ({points(reason['points'])} points)"
        for name, reasons in found["reasons"].items()
        for reason in reasons
    ]
    yield f"**Since {code(found['with'])}**" + ("" if rows or lines else ": nothing moved.")
    if lines:
        yield "\n".join(lines)
    if rows:
        cells = (
            [
                prose(cause["state"]),
                prose(of_check.named(cause)),
                code(cause["path"]),
                *(percent(cause["lost"].get(engine, {}).get(side)) for side in ("before", "after")),
            ]
            for cause in rows
        )
        yield table(["", "cause", "at", f"lost before ({prose(engine)})", "lost now"], cells, "<<<>>")


def _causes(saved: Json) -> Iterator[str]:
    """Give a table of the causes, and what each of them is, folded."""
    engines = [engine for engine in saved["engines"] if engine["prompt_tokens"]]
    found = saved["findings"]
    if not found:
        return
    rows = []
    for finding in found[:_CAUSES]:
        lost = finding["tokens_lost"] or {}
        cells = [_share(lost.get(engine["engine"]), engine["prompt_tokens"]) for engine in engines]
        rows.append([prose(of_check.named(finding)), _place(finding), *cells, count(finding["requests"])])
    head = ["cause", "at", *(f"lost, {prose(engine['engine'])}" for engine in engines), "requests"]
    more = f"\n\nand {many(len(found) - _CAUSES, 'more cause')}" if len(found) > _CAUSES else ""
    yield (
        "**What breaks the prefix**, in tokens computed again for its sake\n\n"
        + table(head, rows, "<<" + ">" * (len(engines) + 1))
        + more
    )
    for finding in found[:_CAUSES]:
        yield details(f"{of_check.named(finding)}: both values, and what to do", _cause(finding))


def _share(tokens: int | None, prompt: int) -> str:
    return "" if tokens is None else f"{count(tokens)} ({percent(tokens / prompt)})"


def _place(finding: Json) -> str:
    """Name the place in the source where it is known, else in the body of the requests."""
    source = next((related for related in finding["related"] if "expression" in related), None)
    if source is not None:
        return code(f"{source['path']}:{source['line']}")
    at = finding["at"]
    return code(f"{finding['path']}:{finding['line']}") if at is None else code(f"{at['path']}, character {at['char']}")


def _cause(finding: Json) -> str:
    at, values = finding["at"], finding["values"]
    parts = [prose(finding["message"].split(" (", 1)[0] if values else finding["message"])]
    if at is not None:
        parts[0] += (
            f", at {code(at['path'])}, character {at['char']:,}; line {at['line']:,} and line {at['other_line']:,}"
        )
    if values:
        words = ("before", "then  ") if len(values) > 1 else ("value ",)
        parts.append(block(f"{word} {value[:200] or '(nothing)'}" for word, value in zip(words, values, strict=False)))
    sources = [related for related in finding["related"] if "expression" in related]
    parts += [
        f"written at {code(one['path'] + ':' + str(one['line']))} by {code(one['expression'])}" for one in sources
    ]
    advice = of_check.advice(finding["rule"])
    return "\n\n".join([*parts, *([f"→ {prose(advice)}"] if advice else [])])


def _waterfall(saved: Json) -> Iterator[str]:
    """Show the way from what was served to the ceiling, where there is a step to take."""
    whole = [one for one in saved["waterfall"] if one["family"] is None]
    if not whole or not any(step["kind"] in ("fix", "reported") for step in whole[0]["steps"]):
        return
    names = list(dict.fromkeys((step["kind"], step["name"], *step["rules"]) for one in whole for step in one["steps"]))
    order = ("reported", "gap", "logged", "fix", "ceiling")
    names.sort(key=lambda key: (order.index(key[0]) if key[0] in order else len(order), key[1] == "unexplained"))
    cells = [[prose(" ".join([*key[2:], key[1]])), *(_step(one["steps"], key) for one in whole)] for key in names]
    head = ["", *(prose(one["engine"]) for one in whole)]
    shown = table(head, cells, "<" + ">" * len(whole))
    yield details("From what was served to the ceiling, with what fixing gives", shown)


def _step(steps: Sequence[Json], key: tuple[str, ...]) -> str:
    step = next((one for one in steps if (one["kind"], one["name"], *one["rules"]) == key), None)
    if step is None:
        return ""
    if step["tokens"] is None:
        return percent(step["hit_rate"])
    return points(step["tokens"] / step["prompt_tokens"]) if step["prompt_tokens"] else ""


def _families(saved: Json) -> Iterator[str]:
    found = saved["families"]
    if not found:
        return
    engines = [engine["engine"] for engine in saved["engines"]]
    rows = [
        [
            code(family["name"], 60),
            count(family["requests"]),
            count(family["lost_tokens"]),
            *(percent(family["engines"].get(name, {}).get("hit_rate")) for name in engines),
        ]
        for family in found[:_FAMILIES]
    ]
    shown = table(["family", "requests", "tokens lost", *map(prose, engines)], rows, "<>>" + ">" * len(engines))
    yield details(f"{many(len(found), 'family', 'families')} of prompts", shown)


def _end(saved: Json) -> Iterator[str]:
    yield from (f"- {prose(note['message'])}" for note in saved["notes"][:_CAUSES])
    inputs = saved["input"]
    parts = [many(inputs["requests"], "request")]
    if inputs["skipped_total"]:
        parts.append(f"{count(inputs['skipped_total'])} lines left out")
    exact = {use["exact"] for use in saved["tokenizers"]}
    counted = {"proven": "tokens counted exactly", "no": "tokens counted with a stand-in"}
    parts += [words for word, words in counted.items() if exact == {word}]
    yield f"<sub>prefixlint analyze: {', '.join(parts)}. Rates are cached / prompt tokens.</sub>"
