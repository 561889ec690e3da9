"""Text for people: what the cache could serve, which family loses most and where, and what to do next."""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from collections.abc import Sequence

from prefixlint.model import MissCause
from prefixlint.reports import Look
from prefixlint.reports._advice import advice
from prefixlint.reports._causes import causes, in_source
from prefixlint.reports._misses import WORDS
from prefixlint.reports._terminal import (
    Style,
    banded,
    columns,
    count,
    duration,
    moment,
    short_count,
    shorten,
    table,
    visible,
    wrap,
)
from prefixlint.reports._trends import against, over_time
from prefixlint.reports._whatif import gains
from prefixlint.reports._worth import memory, worth
from prefixlint.results import (
    LOGGED_IDS,
    Analysis,
    EngineResult,
    Excerpt,
    Family,
    Group,
    Reported,
    TokenizerUse,
    VolatilePlace,
)
from prefixlint.wording import many, percent

OUTLINE = False

_FAMILIES = 5
_SKIPPED = 3
_MODELS = 3
_NAME = 40  # columns that the name of a file or model gets at least
# Times before this (1973) are a clock that began with the trace, not dates.
_RELATIVE = 1e8
_GROUPS = 30
_COSTLY = 0.02  # of a family's prompt tokens: what is lost below it is not worth the reader's time


def analysis(result: Analysis, look: Look) -> str:
    """Render what `analyze` found, the most costly thing first and the next step last."""
    style = Style(look.color)
    parts = [
        [*_head(result, style, look.width), *_in_short(result, style, look.width)],
        _rates(result, style, look),
        against(result, style, look.width),
        _likely(result, style, look.width),
        _misses(result, style, look.width),
        causes(result, style, look),
        in_source(result, style, look),
        gains(result, style, look),
        over_time(result, style, look) + ([] if look.verbose else memory(result, style, look)),
        _groups(result, style, look),
        _families(result, style, look),
        _prefixes(result, style, look),
        memory(result, style, look) if look.verbose else [],
        worth(result, style, look.width),
        advice(result, style, look),
        _counting(result, style, look),
        _notes(result, style, look.width),
        _skipped(result, style, look),
        _next(result, style, look),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _most(number: int, look: Look) -> int:
    return sys.maxsize if look.verbose else number


def _head(result: Analysis, style: Style, width: int) -> list[str]:
    files = result.input.files
    name = visible(files[0]) if len(files) == 1 else many(len(files), "file")
    tokens = f", {short_count(result.prompt_tokens)} prompt tokens" if result.prompt_tokens else ""
    title = f": {many(result.input.requests, 'request')}{tokens}"
    room = max(_NAME, width - columns(title))
    lines = [style.bold(line) for line in wrap(shorten(name, room, keep="end") + title, width, first="")]
    formats = sorted(result.input.formats.items(), key=lambda x: -x[1])
    named = [name if len(formats) == 1 else f"{count(n)} {name}" for name, n in formats]
    lines += wrap(", ".join(named) + _span(result), width) if named else []
    counted = _alike(result)
    if len(counted) == 1:
        lines += [line for text, models in counted.items() for line in _counted(models, text, width)]
    return lines


def _in_short(result: Analysis, style: Style, width: int) -> list[str]:
    """Say in a sentence what is served, what could be, and what costs most; nothing where no cause is known."""
    engine = next((e for e in result.engines if e.prompt_tokens), None)
    first = next((f for f in result.findings if f.masked_by is None), None)
    lost = 0 if engine is None or first is None else (first.tokens_lost or {}).get(engine.engine, 0)
    if engine is None or first is None or not lost:
        return []
    rate, served = engine.hit_rate, f"{percent(engine.hit_rate)} could be served"
    if result.reported is not None:
        rate, served = result.reported.hit_rate, f"{percent(result.reported.hit_rate)} served"
    best = _fixed(result, engine.engine)
    fixed = f", {percent(best)} once fixed" if best is not None and best > max(rate or 0, engine.hit_rate or 0) else ""
    of = f" ({engine.engine})" if fixed or result.reported is None else ""
    text = f"In short: {served}{fixed}{of}; worst: {first.rule.name} ({percent(lost / engine.prompt_tokens)})"
    return [style.bold(line) for line in wrap(text, width, first="", indent="")]


def _fixed(result: Analysis, engine: str) -> float | None:
    """Give the rate with all fixes of the log, under the same limits; None where none was tried."""
    tried = [row for row in result.what_if if row.family is None and row.engine == engine and row.cumulative]
    return tried[-1].hit_rate if tried else None


def _span(result: Analysis) -> str:
    start, end = result.input.start, result.input.end
    if start is None or end is None or start == end < _RELATIVE:
        return f", in {result.input.order} order"
    if end < _RELATIVE:
        return f", over {duration(end - start)}, in {result.input.order} order"
    return f", {moment(result.input.start)} to {moment(result.input.end)} UTC, in {result.input.order} order"


def _rates(result: Analysis, style: Style, look: Look) -> list[str]:
    width = look.width
    rows = [("What the prefix cache", "hit rate", "cached tokens", "without a hit")]
    if result.reported is not None:
        rows.append(_reported_row(result.reported))
    rows += [_engine_row(e) for e in result.engines]
    if len(rows) == 1:
        return []
    lines = table(rows, align="<>>>", width=width, indent=0)
    lines[0] = style.bold(lines[0])
    for i, engine in enumerate(result.engines, len(lines) - len(result.engines)):
        lines[i] = _tint(lines[i], percent(engine.hit_rate), style)
    if result.engines:
        unlimited = not any(map(_limited, result.engines))
        text = "hit rate = cached / prompt tokens"
        if unlimited:
            text += ", of an unlimited cache" + ("; requests one after the other" if look.verbose else "")
        if any(note.slug == "partial-prompts" for note in result.notes):
            text += "; what could be served is of the text that the log holds"
        if look.verbose:
            means = ", ".join(f"{e.engine} {percent(e.hit_rate_mean)}" for e in result.engines)
            text += f". Mean of the requests' own rates: {means}"
        lines += [style.dim(line) for line in wrap(f"{text}.", width)]
        sized = [e for e in result.engines if e.sized_by in ("model", "server")]
        if sized:
            each = ", ".join(f"{e.engine} {count(e.granularity)} by the {e.sized_by}" for e in sized)
            lines += [style.dim(line) for line in wrap(f"blocks in tokens: {each}.", width)]
        if not unlimited:
            lines += [style.dim(line) for line in wrap(f"limits: {_limits(result.engines)}.", width)]
    return lines


def _limited(engine: EngineResult) -> bool:
    return engine.capacity_tokens is not None or engine.replicas > 1 or bool(_lives(engine))


def _lives(engine: EngineResult) -> list[str]:
    """Say what is written and how long it stays, where that is not everything and for good."""
    parts = []
    if engine.written_tokens is not None:
        parts.append("only what is marked is written")
    elif engine.misses.get(MissCause.NOT_WRITTEN):
        parts.append("not everything is written")
    if engine.ttl_s is not None:
        marked = " unless marked otherwise" if engine.written_tokens is not None else ""
        parts.append(f"entries live {duration(engine.ttl_s)}{marked}")
    return parts


def _limits(engines: Sequence[EngineResult]) -> str:
    """Name the limits of each engine, engines with the same limits together."""
    named: dict[str, list[str]] = {}
    for engine in engines:
        parts = []
        if engine.capacity_tokens is not None:
            parts.append(f"{count(engine.capacity_tokens)} tokens" + (" a replica" if engine.replicas > 1 else ""))
        if engine.host_capacity_tokens is not None:
            share = (engine.host_cached_tokens or 0) / engine.cached_tokens if engine.cached_tokens else None
            parts.append(f"{count(engine.host_capacity_tokens)} on the host, which gave {percent(share)} of the hits")
        if engine.replicas > 1:
            parts.append(f"{count(engine.replicas)} replicas, {engine.route}")
        parts += _lives(engine)
        named.setdefault(", ".join(parts) or "none", []).append(engine.engine)
    return "; ".join(f"{', '.join(names)}: {text}" for text, names in named.items())


def _likely(result: Analysis, style: Style, width: int) -> list[str]:
    if not result.likely_causes:
        return []
    rows = [("missed tokens", "requests")]
    rows += [(count(c.missed_tokens), count(c.requests)) for c in result.likely_causes]
    numbers = table(rows, align=">>", width=width, indent=0)
    texts = ["Likely causes, from times and counters alone", *(c.message for c in result.likely_causes)]
    behind = columns(numbers[0]) + 2
    lines = [wrap(text, width, indent=" " * behind, first=row + "  ") for row, text in zip(numbers, texts, strict=True)]
    return [*(style.bold(line) for line in lines[0]), *(line for cause in lines[1:] for line in cause)]


def _tint(line: str, rate: str, style: Style) -> str:
    return line.replace(rate, style.bold(rate), 1)


def _reported_row(reported: Reported) -> tuple[str, str, str, str]:
    said = f"did serve (reported by {count(reported.requests)})"
    return said, percent(reported.hit_rate), count(reported.cached_tokens), ""


def _engine_row(engine: EngineResult) -> tuple[str, str, str, str]:
    name = f"could serve: {engine.engine}"
    if engine.granularity > 1 and engine.sized_by in ("profile", "option"):  # others are named below, with the reason
        name += f", blocks of {engine.granularity}"
    share = engine.zero_hit_requests / engine.requests if engine.requests else None
    return (
        name,
        percent(engine.hit_rate),
        count(engine.cached_tokens),
        f"{count(engine.zero_hit_requests)} ({percent(share)})",
    )


def _misses(result: Analysis, style: Style, width: int) -> list[str]:
    engines = [e for e in result.engines if e.prompt_tokens]
    causes = [c for c in MissCause if any(e.misses.get(c) for e in engines)]
    if not causes:
        return []
    rows = [("Computed, tokens", *(e.engine for e in engines))]
    rows += [(WORDS[c], *(_tokens_share(e.misses.get(c, 0), e.prompt_tokens) for e in engines)) for c in causes]
    bands = banded(rows, align="<" + ">" * len(engines), width=width, fixed=1)
    return [line for lines in bands for line in (style.bold(lines[0]), *lines[1:])]


def _tokens_share(tokens: int, total: int) -> str:
    return f"{count(tokens)} ({percent(tokens / total if total else None)})"


def _groups(result: Analysis, style: Style, look: Look) -> list[str]:
    if not result.groups:
        return []
    engines = [e.engine for e in result.engines]
    rows = [(*map(visible, result.by), "requests", "tokens", "reported", *engines)]
    rows += [_group_row(g, engines) for g in result.groups[: _most(_GROUPS, look)]]
    align = "<" * len(result.by) + ">" * (3 + len(engines))
    bands = banded(rows, align=align, width=look.width, fixed=len(result.by) + 3, grow=range(len(result.by)))
    lines = [line for band in bands for line in (style.bold(band[0]), *band[1:])]
    if len(result.groups) > _most(_GROUPS, look):
        lines.append(style.dim(f"and {many(len(result.groups) - _GROUPS, 'more group')}; all are in --format json"))
    return lines


def _group_row(group: Group, engines: list[str]) -> tuple[str, ...]:
    rates = {e.engine: percent(e.hit_rate) for e in group.engines}
    keys = [visible(v) if v is not None else "(none)" for v in group.key.values()]
    reported = percent(group.reported.hit_rate) if group.reported else "unknown"
    known = group.prompt_tokens if group.engines else None
    if known is None and group.reported is not None:
        known = group.reported.prompt_tokens
    return (
        *keys,
        count(group.requests),
        "unknown" if known is None else short_count(known),
        reported,
        *(rates.get(e, "") for e in engines),
    )


def _families(result: Analysis, style: Style, look: Look) -> list[str]:
    if not result.families:
        return []
    engines = [e.engine for e in result.engines]
    rows = [("Families, by tokens lost", "requests", "tokens", "lost", "ceiling", *engines)]
    shown = result.families[: _most(_FAMILIES, look)]
    total = max((e.prompt_tokens for e in result.engines), default=0)
    named = Counter(family.name for family in shown)
    rows += [_family_row(f, engines, total, of_model=named[f.name] > 1) for f in shown]
    first, *others = banded(rows, align="<" + ">" * (len(rows[0]) - 1), width=look.width, fixed=5)
    lines = [style.bold(first[0])]
    for line, family in zip(first[1:], shown, strict=True):
        lines.append(line)
        for place in family.spans if look.verbose else ():
            lines += _place(place, family, style, look.width)
    lines += [line for band in others for line in (style.bold(band[0]), *band[1:])]
    if len(result.families) > _most(_FAMILIES, look):
        rest = result.families[_most(_FAMILIES, look) :]
        requests = many(sum(f.requests for f in rest), "request")
        lines.append(style.dim(f"and {many(len(rest), 'more family', 'more families')} with {requests}"))
    if look.verbose and any(f.lost_tokens for f in result.families):
        text = "lost: seen, but behind a difference; ceiling: the hit rate if nothing were lost."
        lines += [style.dim(line) for line in wrap(text, look.width)]
    return lines


def _family_row(family: Family, engines: list[str], total: int, *, of_model: bool) -> tuple[str, ...]:
    rates = [percent(family.engines[e].hit_rate) if e in family.engines else "" for e in engines]
    ceilings = [e.ceiling for e in family.engines.values() if e.ceiling is not None]
    share = percent(family.prompt_tokens / total if total else None)
    ceiling = percent(max(ceilings)) if ceilings else "unknown"
    name = f"{family.model}: {family.name}" if of_model and family.model else family.name
    return visible(name), count(family.requests), share, short_count(family.lost_tokens), ceiling, *rates


def _place(place: VolatilePlace, family: Family, style: Style, width: int) -> list[str]:
    where = f"{place.path}, character {place.char}" if place.path else f"token {place.token}"
    if place.lost_tokens < _COSTLY * family.prompt_tokens:
        text = f"parts at {where}: nothing of weight is lost behind it"
        return [style.dim(line) for line in wrap(text, width, indent="    ")]
    lost = f"{count(place.lost_tokens)} tokens behind it were computed again in {many(place.requests, 'request')}"
    lines = [style.red(line) for line in wrap(f"parts at {where}: {lost}", width, indent="    ")]
    return lines + ["      " + text for text in excerpt_lines(place.excerpt, width - 6, style)]


def excerpt_lines(excerpt: Excerpt, width: int, style: Style) -> list[str]:
    """Show both sides of a divergence on two lines, and under them marks below the characters that differ."""
    earlier, later = visible(excerpt.earlier), visible(excerpt.later)
    most = max(8, width - 30)
    earlier, later = shorten(earlier, most // 2), shorten(later, most // 2)
    longest = max(columns(earlier), columns(later))
    before = shorten(visible(excerpt.before), max(0, min(30, width - longest)), keep="end")
    after = shorten(visible(excerpt.after), max(0, width - columns(before) - longest))
    rows = [f"{before}{style.yellow(value)}{style.dim(after)}" for value in (earlier, later)]
    return [*rows, " " * columns(before) + style.yellow("^" * max(1, longest))]


def _prefixes(result: Analysis, style: Style, look: Look) -> list[str]:
    if not result.shared_prefixes or not look.verbose:
        return []
    rows = [("tokens", "requests", "Largest shared prefixes end with")]
    rows += [(count(s.tokens), count(s.requests), visible(s.text)) for s in result.shared_prefixes]
    lines = table(rows, align=">><", width=look.width, grow=(2,), indent=0)
    return [style.bold(lines[0]), *lines[1:]]


def _counting(result: Analysis, style: Style, look: Look) -> list[str]:
    """Say how tokens were counted; nothing where the head says it."""
    alike = _alike(result)
    if len(alike) < 2:
        return []
    lines = [style.bold("How tokens were counted")]
    for text, models in list(alike.items())[: _most(_FAMILIES, look)]:
        lines += _counted(models, text, look.width)
    if len(alike) > _most(_FAMILIES, look):
        rest = sum(len(models) for models in list(alike.values())[_most(_FAMILIES, look) :])
        lines.append(style.dim(f"  and {many(rest, 'more model')}; --format json lists them"))
    return lines


def _alike(result: Analysis) -> dict[str, list[str]]:
    """Give the models by how their tokens were counted."""
    alike: dict[str, list[str]] = {}
    for use in result.tokenizers:
        model = shorten(visible(use.model), _NAME) if use.model else "(no model named)"
        alike.setdefault(_how_counted(use), []).append(model)
    return alike


def _counted(models: Sequence[str], text: str, width: int) -> list[str]:
    more = f" and {many(len(models) - _MODELS, 'more model')}" if len(models) > _MODELS else ""
    return wrap(f"{', '.join(models[:_MODELS])}{more}: {text}", width)


def _how_counted(use: TokenizerUse) -> str:
    text = f"{use.name}, {use.chat_template}; "
    if use.exact == "proven":
        equal = f"{count(use.equal)} of {count(use.compared)} requests"
        return text + f"exact: counts equal the {use.checked_against}'s in {equal}."
    if use.exact == "assumed" and use.name == LOGGED_IDS:
        return f"{use.name}; nothing was tokenized."
    if use.exact == "assumed":
        return text + "assumed exact: the log reports no counts to compare with."
    compared = (
        f"counts equal the reported ones in {count(use.equal)} of {count(use.compared)} requests"
        if use.compared
        else ""
    )
    scaled = f"scaled by {use.factor:.3f} to the reported prompt tokens" if abs(use.factor - 1) > 0.0005 else ""
    reasons = ", ".join(x for x in ("not exact", compared, scaled) if x)
    return text + reasons + "."


def _notes(result: Analysis, style: Style, width: int) -> list[str]:
    lines: list[str] = []
    for note in result.notes:
        lines += wrap(visible(note.message), width, first=style.yellow("note: "))
    return lines


def _skipped(result: Analysis, style: Style, look: Look) -> list[str]:
    if not result.input.skipped_total:
        return []
    lines = [style.bold(f"Skipped: {count(result.input.skipped_total)}")]
    kinds = sorted(result.input.skipped_kinds, key=lambda kind: -kind.count)
    for kind in kinds[: _most(_SKIPPED, look)]:
        skip = kind.first
        where = f"{visible(skip.path)}:{skip.line}" if skip.line else visible(skip.path)
        more = f" (and {many(kind.count - 1, 'more line')} like it)" if kind.count > 1 else ""
        lines += wrap(f"{where}: {visible(skip.reason)}{more}", look.width)
    rest = result.input.skipped_total - sum(kind.count for kind in kinds[: _most(_SKIPPED, look)])
    if rest:
        lines.append(style.dim(f"  and {count(rest)} more; --format json lists them by file and reason"))
    return lines


def _next(result: Analysis, style: Style, look: Look) -> list[str]:
    """Say what to do next: options of this command first, then another command, each with what it gives."""
    steps = []
    if result.findings and result.source_findings is None:
        steps.append(f"--source PATH names the code behind {result.findings[0].rule.code}")
    if any(use.exact == "no" for use in result.tokenizers):
        steps.append("--model NAME|DIR|FILE.gguf counts with the model's own tokenizer and chat template")
    if result.engines and not look.verbose:
        steps.append("-v shows more")
    return wrap(f"{'; '.join([*steps, _follow(result)])}.", look.width, first=style.bold("next: "))


def _follow(result: Analysis) -> str:
    if not result.engines:
        return "what the cache could serve needs prompts: prefixlint record --how NAME says how to log them"
    worst = next((finding.where for finding in result.findings), None)
    if worst is None:
        return "--requests-out FILE.jsonl writes the numbers of each request"
    where = shlex.quote(visible(f"{worst.path}#{worst.line}"))
    return f"prefixlint explain {where} follows one of its requests"
