"""From a replay to the result: rates, families, places, groups and notes; nothing here reads or simulates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from prefixlint import (
    accounts,
    attribute,
    bodies,
    causecost,
    excerpts,
    familytext,
    fingerprints,
    prefixtree,
    simulate,
    timeline,
)
from prefixlint.accounts import Account, Material
from prefixlint.fleet import Limits
from prefixlint.logs import why_no_prompt
from prefixlint.model import Fingerprint, Messages, Request, Skip, Text
from prefixlint.reported import behind_warmup, likely_causes, reported
from prefixlint.results import (
    Analysis,
    EngineResult,
    Family,
    FamilyEngine,
    Group,
    Input,
    Note,
    RequestLine,
    SharedPrefix,
    SkipKind,
    VolatilePlace,
)
from prefixlint.simulate import Served
from prefixlint.table import UNKNOWN, by_value
from prefixlint.wording import many

Counts = NDArray[np.int64]
Rows = NDArray[np.intp]

_PLACES = 5  # of a family, in the result
_FAMILIES = 200
_WITH_PATHS = 20  # families whose example requests are read again, to name the place in the logged body
_READ_AT_ONCE = 256  # fingerprints that are held in pairs to be compared
_REASONS = 10  # of requests that were left out; each cut to _REASON characters
_REASON = 500
_PREFIXES = 10
_CANDIDATES = 50  # for them, since most extend another by a few tokens
_NEAR = 0.05
_MIN_PREFIX = 64  # tokens; shorter shared prefixes save nothing worth a line
_OPEN_KEYS = frozenset({"model", "day", "hour", "format", "path"})
_NAMING_KEYS = frozenset({"user", "session", "namespace"})
_TAIL = 60  # characters of a shared prefix that are shown
_AROUND = 400  # tokens around its ends in which values are looked for that they cut
# A log that holds less than this share of the turns its conversations refer to was probably sampled.
_MISSING_TURNS = 0.2
_FEW_TURNS = 5


def build(material: Material, account: Account) -> Analysis:
    """Put the result together."""
    if material.on_account is not None:
        material.on_account(material, account)
    where = simulate.after_warmup(material.rows.size, material.warmup)
    counted = behind_warmup(material.order, material.rows, material.warmup)
    notes = [Note(n.slug, material.redactor.text(n.message)) for n in (*material.notes, *_notes(material, counted))]
    families = _families(material, account, where)
    if material.on_request is not None:
        for line in _request_lines(material, account):
            material.on_request(line)
    measure = causecost.Measure(material.table, material.rows, account.misses)
    findings = measure.ranked(material.findings, account.pairs, where)
    return Analysis(
        input=_input(material),
        notes=notes,
        tokenizers=material.counts.uses,
        prompt_tokens=int(account.prompt.sum()),
        distinct_tokens=material.replay.distinct,
        reported=reported(material.table, counted),
        likely_causes=likely_causes(material.table, counted) if not material.rows.size else (),
        engines=_engines(material, account, where),
        families=families[:_FAMILIES],
        shared_prefixes=_shared_prefixes(material) if material.outline else (),
        groups=_groups(material, account, counted) if material.by else (),
        by=material.by,
        findings=findings,
        timeline=timeline.build(material, account, findings),
        tree=prefixtree.build(material) if material.outline else None,
    )


def _rates(name: str, material: Material, account: Account, where: simulate.Where) -> EngineResult:
    served, misses = account.served[name], account.misses[name]
    limits = material.bounded.limits.get(name, Limits())
    rates = simulate.rates(served, where)
    return EngineResult(
        engine=name,
        granularity=served.engine.granularity,
        sized_by=served.engine.sized_by,
        requests=rates.requests,
        prompt_tokens=rates.prompt_tokens,
        cached_tokens=rates.cached_tokens,
        hit_rate=rates.hit_rate,
        hit_rate_blocks=rates.hit_rate_blocks,
        hit_rate_mean=rates.hit_rate_mean,
        zero_hit_requests=int((served.cached[where] == 0).sum()),
        misses={cause: total for cause, tokens in misses.items() if (total := int(tokens[where].sum()))},
        capacity_tokens=limits.capacity,
        replicas=limits.replicas,
        route=limits.route,
        ttl_s=limits.ttl,
        host_capacity_tokens=None if served.from_host is None else limits.host_capacity,
        host_cached_tokens=None if served.from_host is None else int(served.from_host[where].sum()),
        written_tokens=None if served.written is None else int(served.written[where].sum()),
    )


def _engines(material: Material, account: Account, where: simulate.Where) -> list[EngineResult]:
    if not account.prompt.size:
        return []
    return [_rates(name, material, account, where) for name in account.served]


def _groups(material: Material, account: Account, counted: Rows) -> list[Group]:
    group = np.frombuffer(material.table.group, np.int32)
    positions = np.flatnonzero(np.isin(material.rows, counted))
    replayed = {number: positions[mine] for number, mine in by_value(group[material.rows[positions]]).items()}
    found = []
    for number, members in by_value(group[counted]).items():
        where = replayed.get(number, np.empty(0, np.intp))
        engines = [_rates(name, material, account, where) for name in account.served] if where.size else []
        found.append(
            Group(
                key=_shown_key(material, number),
                requests=int(members.size),
                prompt_tokens=int(account.prompt[where].sum()),
                reported=reported(material.table, counted[members]),
                engines=engines,
            )
        )
    return sorted(found, key=lambda g: (-_missed(g), -g.requests, tuple(str(v) for v in g.key.values())))


def _shown_key(material: Material, number: int) -> dict[str, str | None]:
    """Give what a group's requests agree on, masked: whom a value names is not shown, when and which model is."""
    values = zip(material.by, material.table.groups.values[number], strict=True)
    return {key: value if value is None else _shown_value(material, key, value) for key, value in values}


def _shown_value(material: Material, key: str, value: str) -> str:
    if key in _OPEN_KEYS:
        return value
    return material.redactor.identifier(value) if key in _NAMING_KEYS else material.redactor.text(value)


def _missed(group: Group) -> int:
    if group.engines:
        return group.engines[0].prompt_tokens - group.engines[0].cached_tokens
    return group.reported.prompt_tokens - group.reported.cached_tokens if group.reported else 0


def _families(material: Material, account: Account, where: slice) -> list[Family]:
    """Sum up by family, the most lost tokens first, and show the places at which the members part."""
    if not account.prompt.size:
        return []
    table = material.table
    numbers = np.frombuffer(table.family, np.int32)[material.rows]
    counted = np.zeros(numbers.size, bool)
    counted[where] = True
    members = {n: m[counted[m]] for n, m in by_value(numbers).items()}
    missed = account.prompt - next(iter(account.served.values())).cached
    ranked = sorted(
        (number for number, mine in members.items() if mine.size),
        key=lambda n: (-int(account.lost[members[n]].sum()), -int(missed[members[n]].sum()), n),
    )[:_FAMILIES]
    spots = attribute.places((p for p in account.partings[where] if p is not None), table.family)
    spots = {number: spots.get(number, [])[:_PLACES] for number in ranked}
    seen = _read_again(material, [p.example for n in ranked[:_WITH_PATHS] for p in spots[n]])
    of_blocks, detailed = material.replay.distinct_blocks is not None, frozenset(ranked[:_WITH_PATHS])
    best = {n: accounts.at_best(s, account.lost, of_blocks=of_blocks) for n, s in account.served.items()}
    return [
        Family(
            id=accounts.family_id(material, number),
            name=accounts.family_name(material, number),
            model=_family_model(material, members[number]),
            requests=int(members[number].size),
            prompt_tokens=int(account.prompt[members[number]].sum()),
            lost_tokens=int(account.lost[members[number]].sum()),
            engines={n: _family_engine(s, best[n], members[number]) for n, s in account.served.items()},
            spans=[_place(material, spot, seen) for spot in spots[number]],
            template=familytext.template(material, spots[number]) if number in detailed else (),
        )
        for number in ranked
    ]


def _family_model(material: Material, members: Rows) -> str | None:
    table = material.table
    model: str | None = table.models.values[table.model[int(material.rows[members[0]])]]
    return model


def _family_engine(served: Served, best: Served, where: Rows) -> FamilyEngine:
    rates = simulate.rates(served, where)
    return FamilyEngine(rates.cached_tokens, rates.hit_rate, simulate.rates(best, where).hit_rate)


def _place(material: Material, spot: attribute.Place, seen: Mapping[int, Request]) -> VolatilePlace:
    parting, table = spot.example, material.table
    here, there = (accounts.segment_text(material, row, parting.segment) for row in (parting.partner, parting.row))
    lead = accounts.segment_text(material, parting.row, parting.segment - 1) if parting.segment else ""
    at = _logged_place(seen.get(parting.partner), seen.get(parting.row))
    path, line, _ = table.where(parting.row)
    return VolatilePlace(
        token=parting.token,
        path=at and material.redactor.path(at[0]),
        char=at and at[1],
        excerpt=excerpts.excerpt(
            here, there, attribute.first_difference(here, there)[1], lead, redactor=material.redactor
        ),
        requests=spot.requests,
        lost_tokens=spot.lost,
        example=(path, line, table.line[parting.partner]),
    )


def _logged_place(earlier: Request | None, later: Request | None) -> tuple[str, int] | None:
    """Give path and character of the first difference of two logged bodies."""
    if earlier is None or later is None:
        return None
    if isinstance(earlier.content, Fingerprint) and isinstance(later.content, Fingerprint):
        return fingerprints.place(earlier.content, later.content)
    found = bodies.first_difference(earlier.body, later.body)
    return (found.path, found.char) if found else None


def _read_again(material: Material, partings: Iterable[attribute.Parting]) -> dict[int, Request]:
    """Read the example requests of some places again, by row."""
    rows = {material.table.where(row): row for p in partings for row in (p.partner, p.row)}
    return {rows[r.path, r.line, r.part]: r for r in material.again(rows)} if rows else {}


def _shared_prefixes(material: Material) -> list[SharedPrefix]:
    if material.replay.distinct_blocks is not None:
        return []
    found = []
    for index in material.replay.indexes.values():
        found += index.shared_prefixes(_CANDIDATES, min_tokens=_MIN_PREFIX)
    found.sort(key=lambda p: (-(p.requests - 1) * p.length, p.owner))
    kept: list[NDArray[np.uint32]] = []
    shown = []
    for prefix in found:
        whole = material.encoder.ids(material.table.prompt_segments(prefix.owner))
        ids = whole[: prefix.length]
        if not any(_nearly_same(ids, other) for other in kept):
            kept.append(ids)
            shown.append(
                SharedPrefix(prefix.length, prefix.requests, _tail(material, prefix.owner, whole, prefix.length))
            )
            if len(shown) == _PREFIXES:
                break
    return shown


def _nearly_same(one: NDArray[np.uint32], other: NDArray[np.uint32]) -> bool:
    """Tell whether one prefix is the other with a few more tokens: what users' first words share by chance."""
    short, long = sorted((one, other), key=len)
    return long.size - short.size < max(_MIN_PREFIX, _NEAR * long.size) and np.array_equal(long[: short.size], short)


def _tail(material: Material, row: int, whole: NDArray[np.uint32], length: int) -> str:
    """Give how a prefix of a prompt ends; a value that its end cuts is masked as a whole."""
    if accounts.foreign(material, row):
        return " ".join(map(str, whole[max(0, length - 8) : length].tolist()))
    text = material.encoder.decode(whole[max(0, length - _AROUND) : length])
    behind = material.encoder.decode(whole[length : length + _AROUND])
    return material.redactor.part(text + behind, max(0, len(text) - _TAIL), len(text))


def _input(material: Material) -> Input:
    table, read = material.table, material.read
    times = np.frombuffer(table.time, np.float64)
    known = times[~np.isnan(times)]
    formats = np.frombuffer(table.format, np.int32)
    return Input(
        files=list(table.paths.values),
        formats={name: int((formats == i).sum()) for i, name in enumerate(table.formats.values)},
        requests=len(table),
        start=float(known.min()) if known.size else None,
        end=float(known.max()) if known.size else None,
        order=material.order_name,
        skipped=[_shown_skip(material, skip) for skip in read.skipped],
        skipped_total=read.skipped_total,
        skipped_kinds=[SkipKind(_shown_skip(material, first), count) for first, count in read.skipped_kinds.values()],
    )


def _shown_skip(material: Material, skip: Skip) -> Skip:
    return replace(skip, reason=material.redactor.text(skip.reason))


def _notes(material: Material, counted: Rows) -> list[Note]:
    read = material.read
    left = material.order.size - counted.size
    text = f"warm-up: {many(left, 'request')} at the start {_are(left)} left out of the rates"
    notes = [Note("warm-up", text)] if left else []
    notes += [
        Note("no-prompt", _with_hint(f"{many(n, 'request')} without a prompt: ", *why_no_prompt(slug)))
        for slug, n in read.no_prompt.items()
    ]
    notes += _refusals(read.refused)
    if odd := material.table.contradictory:
        text = f"{many(odd, 'request')} left out of what was reported: more cached or written than prompt tokens"
        notes.append(Note("contradictory-usage", text))
    for slug, n in read.partial.items():
        head = f"{many(n, 'prompt')} {_are(n)} known only in part, which makes tokens and hits too few: "
        notes.append(Note("partial-prompts", _with_hint(head, *why_no_prompt(slug))))
    if read.cut:
        has = "has" if read.cut == 1 else "have"
        text = f"{many(read.cut, 'prompt')} {has} a text that ends as if it was cut, like “…[truncated]”: "
        where = "if the log did that, tokens and hits are too few, and what parts prompts may be the log's own"
        notes.append(Note("cut-texts", text + where))
    referred, missing = read.history.referred, read.history.missing
    if referred >= _FEW_TURNS and missing / referred > _MISSING_TURNS:
        share = f"{missing:,} of {referred:,} earlier turns that conversations refer to are not in the log"
        notes.append(
            Note("sampled-log", f"{share}: it was sampled or its history is rewritten, and hits are understated")
        )
    notes += [Note("tokenizer", text) for text in material.encoder.notes]
    return notes


def _refusals(refused: Mapping[str, int]) -> list[Note]:
    """Say why prompts could not be counted, the most frequent reasons first: a template may give each its own."""
    ranked = sorted(refused.items(), key=lambda reason: -reason[1])
    notes = [Note("refused-prompt", f"{many(n, 'request')} left out: {why[:_REASON]}") for why, n in ranked[:_REASONS]]
    rest = ranked[_REASONS:]
    if rest:
        left = many(sum(n for _, n in rest), "more request")
        notes.append(Note("refused-prompt", f"{left} left out for {many(len(rest), 'other reason')}"))
    return notes


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


def _with_hint(head: str, reason: str, hint: str | None) -> str:
    return f"{head}{reason}; {hint}" if hint else head + reason


def _logged_places(material: Material, account: Account) -> dict[int, tuple[str, int]]:
    """Find in the logged bodies where requests part, by row; reads those requests again."""
    table, encoder = material.table, material.encoder
    parted = {table.where(p.row): p for p in account.partings if p is not None}
    found: dict[int, tuple[str, int]] = {}
    without_text: list[attribute.Parting] = []
    for request in material.again(parted) if parted else ():
        parting = parted[request.path, request.line, request.part]
        if isinstance(request.content, Fingerprint):
            without_text.append(parting)
        if not isinstance(request.content, Messages | Text):
            continue
        texts = [encoder.text(s) for s in table.prompt_segments(parting.row).tolist()]
        other = accounts.segment_text(material, parting.partner, parting.segment)
        here = texts[parting.segment] if parting.segment < len(texts) else ""
        offset = sum(map(len, texts[: parting.segment])) + attribute.first_difference(other, here)[0]
        place = bodies.locate(request.body, "".join(texts), offset)
        if place is not None:
            found[parting.row] = place
    for start in range(0, len(without_text), _READ_AT_ONCE):
        batch = without_text[start : start + _READ_AT_ONCE]
        seen = _read_again(material, batch)
        places = {p.row: _logged_place(seen.get(p.partner), seen.get(p.row)) for p in batch}
        found.update({row: place for row, place in places.items() if place is not None})
    return found


def _request_lines(material: Material, account: Account) -> Iterator[RequestLine]:
    table = material.table
    places = _logged_places(material, account)
    cached = np.frombuffer(table.cached, np.int64)
    for position, row in enumerate(material.rows.tolist()):
        path, line, part = table.where(row)
        parting = account.partings[position]
        said = int(cached[row])
        time = table.time[row]
        place = places.get(row)
        yield RequestLine(
            path=path,
            line=line,
            part=part,
            id=None if row not in table.ids else material.redactor.identifier(table.ids[row]),
            time=None if np.isnan(time) else time,
            family=accounts.family_id(material, table.family[row]),
            prompt_tokens=int(account.prompt[position]),
            engines={
                name: (
                    int(served.cached[position]),
                    {c: int(t[position]) for c, t in account.misses[name].items() if t[position]},
                )
                for name, served in account.served.items()
            },
            reported_cached_tokens=None if said == UNKNOWN else said,
            diverged_token=parting.token if parting else None,
            diverged_path=place and material.redactor.path(place[0]),
            diverged_char=place and place[1],
        )
