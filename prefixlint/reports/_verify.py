"""How a verification looks as text for people; other formats are views of its JSON."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from prefixlint import runs
from prefixlint.errors import UsageError
from prefixlint.reports import Look, _changes
from prefixlint.reports._terminal import Style, count, duration, shorten, table, visible, wrap
from prefixlint.reports._times import milliseconds
from prefixlint.reports.json import dump
from prefixlint.runs import Residual, Run, Spread, TokenDifference, Verification, quantile
from prefixlint.wording import many, numbered, percent

FORMATS = ("text", "json", "markdown", "html")
_TIMES_LESS = 10  # from which on a time is said to be a fraction of another, since percentages tell nothing there
_SAME_RATE = 0.01  # of the hit rate: less does not move times
_EXAMPLES = 5  # requests shown for each reason of a difference
_CACHES = ("cold", "warm")
_ISOLATION = {
    "flush": "the cache was emptied before, and shown to be empty",
    "fresh": "the server had just started",
    "salt": "a namespace of its own (a salt in each request)",
    "marker": "a text in front of each prompt, since the server has no namespaces",
    "none": "not kept apart from what was cached before",
}
_ARRIVALS = {"logged": "at their logged times", "poisson": "at random moments"}


def render(result: Verification, form: str, look: Look) -> str:
    """Give a verification in one of FORMATS; UsageError for another."""
    if form == "json":
        return dump(runs.as_json(result))
    if form == "html":
        from prefixlint.reports import html

        return html.document(runs.as_json(result))
    if form == "markdown":
        from prefixlint.reports import markdown

        return markdown.document(runs.as_json(result))
    if form == "text":
        return text(result, look)
    raise UsageError(f"no format {form!r} for a verification", slug="unknown-format", hint=", ".join(FORMATS))


def text(result: Verification, look: Look) -> str:
    """Show what was measured beside what was predicted, the verdict first."""
    style = Style(look.color)
    parts = [
        _head(result, style, look.width),
        *(_compared(result, style, look.width) or [_table(result, style, look.width)]),
        _apart(result, style, look),
        _tokens(result, style, look.width),
        _faults(result, style, look.width),
        _remarks(result, style, look.width),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def verdict(result: Verification) -> str:
    """Say in a sentence whether prediction and measurement agree."""
    if result.status != "complete":
        what = "was interrupted" if result.status == "interrupted" else "ended early"
        return f"The run {what}: these are the results until then."
    found = result.prediction
    if found is None:
        return "Measured; nothing was predicted."
    if not found.of and not found.counted:
        return "The server tells neither prompt tokens nor cached tokens: nothing could be compared."
    counts = f"token counts on {found.token_counts_equal:,} of {many(found.counted, 'request')}"
    if not found.of:
        agree = "agree" if result.agrees is not False else "disagree"
        return f"Prediction and measurement {agree}: {counts}; cached tokens are not reported."
    agree = "agree" if result.agrees else "disagree"
    said = f"cached tokens equal on {found.cached_equal:,} of {many(found.of, 'request')}"
    explained = f", {found.explained:,} more explained" if found.explained else ""
    return f"Prediction and measurement {agree}: {said}{explained}, {counts}."


def what(result: Verification) -> str:
    """Say what was sent, to what, and how."""
    engine, load = result.engine, result.load
    name = " ".join(part for part in (engine.title or engine.name, engine.version) if part)
    name += ", embedded" if engine.embedded else ""
    model = f", {engine.model.rpartition('/')[2]}" if engine.model else ""
    device = f" on the {'GPU' if engine.device == 'cuda' else engine.device.upper()}" if engine.device else ""
    how = _ARRIVALS.get(load.arrival) or (
        f"{load.concurrency} at once" if (load.concurrency or 1) > 1 else "one by one"
    )
    output = "one token each" if load.output == "one" and load.max_tokens == 1 else None
    output = output or (f"{load.max_tokens:,} tokens each" if load.output == "one" else "as many tokens as logged")
    return f"{name}{model}{device}: {many(load.requests, 'request')} {how}, {output}."


def _head(result: Verification, style: Style, width: int) -> list[str]:
    shade = style.green if result.agrees and result.status == "complete" else style.red
    shade = style.yellow if result.agrees is None and result.status == "complete" else shade
    lines = [style.bold(shade(line)) for line in wrap(verdict(result), width, indent="", first="")]
    lines += wrap(visible(what(result)), width, indent="", first="")
    if result.ended is not None:
        lines += [style.red(visible(line)) for line in result.ended.split("\n")]
    return lines


def rows(result: Verification) -> list[tuple[str, ...]]:
    """Give the table's cells: times and rates of all cold and of all warm runs."""
    sides = [[run for run in result.runs if run.cache == cache] for cache in _CACHES]
    sides = [side for side in sides if side]
    names = [side[0].cache for side in sides]
    change = len(sides) == 2
    # with as many hits on both sides, a difference in time is noise
    told = change and not _alike(sides)
    rows: list[tuple[str, ...]] = [("", *names, *(["change"] if change else []))]
    for label, part, measure in _TIMES:
        values = [_time(result, side, part, measure) for side in sides]
        if any(value is not None for value in values):
            rows.append((label, *map(milliseconds, values), *([_change(*values)] if told else [""] if change else [])))
    rates = [_rate(side, predicted=False) for side in sides]
    rows.insert(3, ("hit rate, measured", *map(percent, rates), *([""] if change else [])))
    if result.prediction is not None:
        predicted = [percent(_rate(side, predicted=True)) for side in sides]
        rows.insert(4, ("hit rate, predicted", *predicted, *([""] if change else [])))
    return rows


_TIMES = (
    ("TTFT P50", "ttft", "p50"),
    ("TTFT P95", "ttft", "p95"),
    ("prefill P50", "prefill", "p50"),
    ("queue P50", "queue", "p50"),
    ("other P50", "other", "p50"),
    ("prefill mean", "prefill", "mean"),
    ("queue mean", "queue", "mean"),
    ("other mean", "other", "mean"),
)


_SHARES = {"p50": 0.5, "p95": 0.95}


def _time(result: Verification, side: Sequence[Run], part: str, measure: str) -> float | None:
    """Give a time over all rounds: of all their requests, or, where only histograms tell, the mean of the rounds."""
    spreads = [spread for run in side if (spread := getattr(run, f"{part}_ms")) is not None]
    told = [value for spread in spreads if (value := _shown(spread, measure)) is not None]
    if not told or measure == "mean":
        return sum(told) / len(told) if told else None
    rows = [row for row in result.residuals if row.cache == side[0].cache]
    found = sorted(value for row in rows if (value := _of_row(row, part)) is not None)
    return quantile(found, _SHARES[measure]) if found else told[0]


def _of_row(row: Residual, part: str) -> float | None:
    if part != "other":
        value: float | None = getattr(row, f"{part}_ms")
        return value
    if row.ttft_ms is None or row.prefill_ms is None:
        return None
    return max(0.0, row.ttft_ms - row.prefill_ms - (row.queue_ms or 0.0))


def _shown(spread: Spread, measure: str) -> float | None:
    """Give percentiles of what requests told, and means of what only histograms did: those are exact."""
    if (measure == "mean") != (spread.source == "metrics"):
        return None
    value: float | None = getattr(spread, measure)
    return value


def _rate(side: Sequence[Run], *, predicted: bool) -> float | None:
    rates = [run.predicted_hit_rate if predicted else run.hit_rate for run in side]
    known = [rate for rate in rates if rate is not None]
    return sum(known) / len(known) if known else None


def _alike(sides: Sequence[Sequence[Run]]) -> bool:
    cold, warm = (_rate(side, predicted=False) for side in sides)
    return cold is not None and warm is not None and abs(warm - cold) < _SAME_RATE


def _change(before: float | None, after: float | None) -> str:
    if not before or after is None:
        return ""
    if after and before >= _TIMES_LESS * after:
        return f"1/{before / after:,.0f}"
    return f"{100 * (after - before) / before:+.0f} %"


def _table(result: Verification, style: Style, width: int) -> list[str]:
    if not result.runs:
        return []
    cells = rows(result)
    lines = table(cells, align="<" + ">" * (len(cells[0]) - 1), width=width)
    lines[0] = style.bold(lines[0])
    for number, row in enumerate(cells):
        if row[0] in ("TTFT P50", "hit rate, measured"):
            lines[number] = style.bold(lines[number])
    return lines


def _compared(result: Verification, style: Style, width: int) -> list[list[str]]:
    """Show what changed, where two logs or several servers were compared."""
    if result.comparison is None:
        return []
    parts = []
    for title, cells in _changes.tables(result.comparison):
        lines = table(cells, align="<" + ">" * (len(cells[0]) - 1), width=width)
        lines[0] = style.bold(lines[0])
        parts.append([style.bold(title), *lines] if title else lines)
    said = _changes.sentences(result.comparison)
    return [*parts, [line for one in said for line in wrap(visible(one), width, first="")]]


def _apart(result: Verification, style: Style, look: Look) -> list[str]:
    """List requests that were predicted otherwise, by the reason."""
    lines = []
    for reason, rows in sorted(
        _by_reason(result).items(), key=lambda item: (all(r.explained for r in item[1]), -len(item[1]))
    ):
        shade = style.dim if all(row.explained for row in rows) else style.red
        said = f"{many(len(rows), 'request')}: {reason}"
        lines += [shade(line) for line in wrap(said, look.width, indent="  ", first="")]
        shown = rows if look.verbose else rows[:_EXAMPLES]
        cells = [(_place(r, look.width), r.cache, *_numbers(r)) for r in shown]
        lines += table(cells, align="<<>>", width=look.width)
        if len(rows) > len(shown):
            lines.append(style.dim(f"  and {len(rows) - len(shown):,} more (-v shows all)"))
    return lines


def _by_reason(result: Verification) -> dict[str, list[Residual]]:
    """Group the requests that were predicted otherwise by the reason."""
    groups: dict[str, list[Residual]] = {}
    for row in result.residuals:
        if row.error is None and row.reason is not None:
            groups.setdefault(row.reason, []).append(row)
    return groups


def _place(row: Residual, width: int) -> str:
    return shorten(f"{visible(row.path)}#{numbered(row.line, row.part)}", max(12, width - 48), keep="end")


def _numbers(row: Residual) -> tuple[str, str]:
    return f"predicted {count(row.predicted)}", f"measured {count(row.measured)}"


def reasons(result: Verification) -> Iterator[str]:
    for reason, rows in sorted(_by_reason(result).items(), key=lambda item: -len(item[1])):
        yield f"{many(len(rows), 'request')}: {reason}"
    for one in result.token_differences:
        yield difference(one)


def difference(one: TokenDifference) -> str:
    """Say where the tokens of a prompt part from the server's."""
    said = f"{one.path}#{one.line}: counted {many(one.counted, 'token')}, the server {one.measured:,}"
    return said + (f"; token {one.token:,} is the first that differs" if one.token is not None else "")


def _tokens(result: Verification, style: Style, width: int) -> list[str]:
    lines: list[str] = []
    for one in result.token_differences:
        lines += [style.red(line) for line in wrap(visible(difference(one)), width, first="")]
        if one.our_text is not None or one.their_text is not None:
            lines += [style.dim(f"  after  {_quoted(one.before, width, keep_end=True)}")]
            lines += [f"  here   {_quoted(one.our_text, width)}", f"  server {_quoted(one.their_text, width)}"]
    if result.token_differences:
        more = result.token_differences[0].requests - len(result.token_differences)
        lines += [style.dim(f"  and {many(more, 'request')} more")] if more > 0 else []
        hint = "Another chat template or tokenizer runs on the server: --chat-template and --model name the right one."
        lines += wrap(hint, width, indent="", first="")
    return lines


def _quoted(piece: str | None, width: int, *, keep_end: bool = False) -> str:
    shown = repr(piece or "")
    room = max(8, width - 10)
    if len(shown) <= room:
        return visible(shown)
    return visible("…" + shown[1 - room :] if keep_end else shown[: room - 1] + "…")


def _faults(result: Verification, style: Style, width: int) -> list[str]:
    """Name what failed, and what could not be sent."""
    lines: list[str] = []
    for run in result.runs:
        if run.errors:
            said = ", ".join(f"{number:,} {slug}" for slug, number in run.errors.items())
            lines += [style.red(line) for line in wrap(f"{run.cache} run: failed requests: {said}", width, first="")]
    for row in [row for row in result.residuals if row.error is not None][:_EXAMPLES]:
        lines += wrap(
            f"{visible(row.path)}#{numbered(row.line, row.part)}: {visible(row.reason or row.error or '')}", width
        )
    for left in result.left:
        said = f"left out: {many(left.requests, 'request')}: {left.message} ({left.path}, line {left.line})"
        lines += [style.yellow(line) for line in wrap(visible(said), width, first="")]
    return lines


def sentences(result: Verification) -> Iterator[str]:
    """Say how the numbers came about."""
    cold, warm = ([run for run in result.runs if run.cache == cache] for cache in _CACHES)
    if cold and warm and result.comparison is None and _alike((cold, warm)):
        yield "Warm found no more than cold: what the log shares was cached within the cold run already, or not kept."
    kinds = dict.fromkeys(run.isolation for run in result.runs)
    for kind in kinds:
        yield f"Cold: {_ISOLATION.get(kind, kind)}. Warm: the same requests again."
    found = result.prediction
    if found is not None:
        block = f", blocks of {many(found.block_size, 'token')}" if found.block_size and found.block_size > 1 else ""
        pool = f", a cache of {many(found.capacity_tokens, 'token')}" if found.capacity_tokens else ""
        yield f"Predicted by the rules of {found.profile}{block}{pool}; tokens by {found.tokens_from}."
    overheads = [run.overhead_ms.p50 for run in result.runs if run.overhead_ms is not None and run.overhead_ms.p50]
    if overheads:
        yield f"The client itself took {milliseconds(max(overheads))} of a core a request at the median."
    lasted = sum(run.duration_s for run in result.runs)
    retries = sum(run.retries for run in result.runs)
    again = f", {many(retries, 'request')} sent again" if retries else ""
    where = f" on {result.machine}" if result.machine else ""
    yield f"{many(len(result.runs), 'run')} in {duration(lasted)}{again}{where}."
    late = [run.late_ms.p95 for run in result.runs if run.late_ms is not None and run.late_ms.p95 is not None]
    if late and max(late) >= 100:
        yield f"Requests were sent {milliseconds(max(late))} late (P95), as turns wait for one another."
    for note in result.notes:
        yield f"{note.message[:1].upper()}{note.message[1:]}."
    if result.engine.command is not None and not result.engine.embedded:
        yield f"Started with: {shlex.join(result.engine.command)}"


def _next(result: Verification) -> str:
    """Say what to do with it."""
    files = shlex.join(result.files) if result.files else "LOG"
    if result.status != "complete":
        return "mend what ended it, and run it again."
    if result.agrees is False and result.token_differences:
        return "name the server's own chat template with --chat-template, or its model with --model."
    if result.agrees is False:
        return f"prefixlint probe {result.engine.url or 'URL'} finds the rules by which this server's cache works."
    return f"prefixlint analyze {files} says what breaks prefixes; --what-if here measures what mending it gives."


def _remarks(result: Verification, style: Style, width: int) -> list[str]:
    lines = [style.dim(line) for said in sentences(result) for line in wrap(visible(said), width, indent="", first="")]
    return [*lines, "", *wrap(visible(f"next: {_next(result)}"), width, first="")]
