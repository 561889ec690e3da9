"""The account of a replay: for each request what was cached, why the rest was not, and where it parts from another.

Arrays have an element a request, in the order of `Material.rows`, and count tokens as they are reported.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from prefixlint import attribute, causecost, simulate
from prefixlint.bounded import Bounded
from prefixlint.counting import Counted
from prefixlint.families import NAME_CHARS
from prefixlint.ingest import Ingested
from prefixlint.logfindings import LogFinding
from prefixlint.model import MissCause
from prefixlint.recomputed import Comparer
from prefixlint.redact import Redactor
from prefixlint.rereading import Again
from prefixlint.results import Note, RequestLine
from prefixlint.simulate import NO_OWNER, Replay, Served
from prefixlint.table import Table
from prefixlint.tokens import Encoder

Counts = NDArray[np.int64]
Rows = NDArray[np.intp]

_TEXTS = 8192  # short texts around differences that are kept while they are looked at


@dataclass(frozen=True, slots=True)
class Material:
    """What the stages before have found out. `rows` are the replayed requests in order, `order` all of them.

    `redactor` masks what is shown. `again` reads single requests of the log once more; `on_account` is handed the
    account before it is summed up. `forgets` says, where findings are on lost reasoning, that the chat template leaves
    it out from the next user message on; `outline`, that the prefix tree is to be told.
    """

    table: Table
    read: Ingested
    encoder: Encoder
    stand_in: bool
    order: Rows
    order_name: str
    rows: Rows
    replay: Replay
    bounded: Bounded
    counts: Counted
    notes: Sequence[Note]
    by: Sequence[str]
    warmup: float
    again: Again
    on_request: Callable[[RequestLine], None] | None
    redactor: Redactor
    on_account: Callable[[Material, Account], None] | None = None
    findings: Sequence[LogFinding] = ()
    forgets: bool = False
    outline: bool = True


@dataclass(frozen=True, slots=True)
class Account:
    """The replay with counts as they are reported.

    `lost` are tokens that were there but behind a difference. `partners` are the rows that requests are compared with,
    -1 for the first of a family; `partings` where they part from them, None where they only go on. `pairs` are the
    requests whose prefix ends at a known cause, each with the one that it should have matched.
    """

    prompt: Counts
    lost: Counts
    served: Mapping[str, Served]
    misses: Mapping[str, Mapping[MissCause, Counts]]
    partings: Sequence[attribute.Parting | None]
    partners: Sequence[int]
    pairs: Mapping[int, causecost.Pair]


class Pieces:
    """The encoder's segments as attribution sees them."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._lengths: dict[int, int] = {}
        self._decode = lru_cache(_TEXTS)(lambda ids: encoder.decode(np.frombuffer(ids, np.uint32)))

    def decode(self, ids: attribute.Ids) -> str:
        """Give the text of some tokens; the same few stand where the members of a family part."""
        return self._decode(ids.tobytes())

    def piece(self, segment: int) -> attribute.Ids:
        """Give the token ids of a segment."""
        return self._encoder.ids([segment])

    def sizes(self, segments: attribute.Ids) -> Counts:
        """Give the number of tokens of each segment."""
        if not self._encoder.whole:
            return self._encoder.sizes(segments)
        return np.fromiter((self._length(s) for s in segments.tolist()), np.int64, segments.size)

    def _length(self, segment: int) -> int:
        """Give a segment's tokens as if it stood alone, which is near enough where prompts are encoded whole."""
        if segment not in self._lengths:
            self._lengths[segment] = self.piece(segment).size
        return self._lengths[segment]


def arrivals(table: Table, encoder: Encoder, rows: Rows) -> Iterator[simulate.Arrival]:
    """Give requests of tokens as a replay takes them."""
    members = rows.tolist()
    prompts = encoder.sequences(table.prompt_segments(row) for row in members)
    outputs = encoder.sequences(table.output_segments(row) for row in members)
    for row, prompt, output in zip(members, prompts, outputs, strict=True):
        yield simulate.Arrival(row, table.namespace[row], prompt, output[:-1] if table.cut[row] else output)


def at_best(served: Served, lost: Counts, *, of_blocks: bool) -> Served:
    """Give what the engine would serve if nothing that was there had been behind a difference."""
    if of_blocks:
        return replace(served, cached=np.minimum(served.cached + lost, served.prompt))
    return simulate.with_shared(served, served.shared + lost) if lost.any() else served


def account(material: Material) -> Account:
    """Apply the counts' factors, find where requests part, and say why each token was computed."""
    replay, factors = material.replay, material.counts.factors
    limited = material.bounded.served
    engines = {n: limited[n] if n in limited else simulate.scaled(s, factors) for n, s in replay.engines.items()}
    first = next(iter(engines.values()))
    of_blocks = replay.distinct_blocks is not None
    pairs = causecost.pairs(material.findings, forgets=material.forgets)
    partners = [NO_OWNER] * material.rows.size if of_blocks else _partners(material, pairs)
    partings = [None] * material.rows.size if of_blocks else _partings(material, partners, pairs)
    if of_blocks:
        held = ((material.table.namespace[row], material.table.blocks[row]) for row in material.rows.tolist())
        lost = attribute.lost_blocks(held, first.shared)
    else:
        lost = np.fromiter((p.lost if p else 0 for p in partings), np.int64, len(partings))
        lost = np.floor(lost * factors).astype(np.int64)
    misses = {}
    for name, served in engines.items():
        rest = served.prompt - served.shared
        apart = _behind(served, replay, replay.elsewhere, factors)
        unwritten = np.minimum(_behind(served, replay, replay.with_outputs, factors), rest - apart)
        behind = np.minimum(lost, rest - apart - unwritten)
        why = dict(simulate.misses(served))
        why[MissCause.NOT_WRITTEN] = why.get(MissCause.NOT_WRITTEN, 0) + unwritten
        why[MissCause.NAMESPACE] = apart
        why |= {MissCause.DIVERGED: behind, MissCause.COLD: rest - apart - unwritten - behind}
        misses[name] = {cause: tokens for cause, tokens in why.items() if tokens.any()}
    return Account(first.prompt, lost, engines, misses, partings, partners, pairs)


def _behind(served: Served, replay: Replay, reach: Counts | None, factors: NDArray[np.float64]) -> Counts:
    """Count the tokens behind an engine's shared prefix up to `reach`, which counts as `replay.prompt` does."""
    if reach is None:
        return np.zeros_like(served.prompt)
    there = np.where(reach == replay.prompt, served.prompt, np.floor(reach * factors).astype(np.int64))
    return np.maximum(np.minimum(there, served.prompt) - served.shared, 0)


def held(material: Material, served: Served) -> Counts:
    """Give the leading tokens of each request that the log held before it: of any namespace, and what was generated."""
    replay, factors = material.replay, material.counts.factors
    behind = (_behind(served, replay, reach, factors) for reach in (replay.elsewhere, replay.with_outputs))
    return served.shared + np.maximum(*behind)


def _partners(material: Material, pairs: Mapping[int, causecost.Pair]) -> list[int]:
    """Give what each request is compared with: what a finding compares it with, else the best candidate."""
    served = next(iter(material.replay.engines.values()))
    table, rows = material.table, material.rows.tolist()
    found = attribute.partners(rows, table.conversation, served.owner, table.family)
    return [pairs[row].partner if row in pairs else partner for row, partner in zip(rows, found, strict=True)]


def _partings(
    material: Material, partners: Sequence[int], pairs: dict[int, causecost.Pair]
) -> list[attribute.Parting | None]:
    """Say where requests part from their partners. Pairs that part for another reason than a finding are taken out.

    Others are charged to the finding at which what was served of them ends.
    """
    table, rows = material.table, material.rows.tolist()
    served = next(iter(material.replay.engines.values()))
    explained = _explained(served, material.replay.elsewhere, material.replay.with_outputs)
    pieces = Pieces(material.encoder)
    comparer = Comparer(pieces)
    found: list[attribute.Parting | None] = []
    for position, (row, partner) in enumerate(zip(rows, partners, strict=True)):
        there = int(explained[position])
        if row in pairs and there < served.prompt[position]:
            elsewhere = there > served.shared[position]
            parted = causecost.parting(table, comparer, row, pairs[row], there, elsewhere=elsewhere)
            if parted is not None:
                parting, pairs[row] = parted
                found.append(parting)
                continue
            del pairs[row]
        if partner < 0 or there >= served.prompt[position]:
            found.append(None)
        else:
            place = attribute.part(pieces, table.prompt_segments(partner), table.prompt_segments(row), shared=there)
            found.append(attribute.Parting(row, partner, *place) if place else None)
    return found


def still_lost(
    material: Material,
    known: Account,
    table: Table,
    served: Served,
    with_outputs: Counts | None,
    *,
    changed: NDArray[np.bool_],
) -> Counts:
    """Count the tokens of each request that are behind a difference with the prompts of another table.

    `changed` are the requests that have another prompt there, by position, and `served` with `with_outputs` what they
    get. Of the others `known` tells it, as far as no finding was charged with them.
    """
    rows = material.rows.tolist()
    there = _explained(served, with_outputs)
    before = next(iter(material.replay.engines.values()))
    same = (there == _explained(before, material.replay.elsewhere, material.replay.with_outputs)) & ~changed
    others = {row for row, other in zip(rows, changed.tolist(), strict=True) if other}
    pieces = Pieces(material.encoder)
    lost = np.zeros(len(rows), np.int64)
    partners = attribute.partners(rows, table.conversation, served.owner, table.family)
    for position, (row, partner) in enumerate(zip(rows, partners, strict=True)):
        reach = int(there[position])
        if partner < 0 or reach >= served.prompt[position]:
            continue
        if same[position] and partner == known.partners[position] and partner not in others and row not in known.pairs:
            parting = known.partings[position]
            lost[position] = parting.lost if parting else 0
        else:
            earlier, later = table.prompt_segments(partner), table.prompt_segments(row)
            lost[position] = attribute.lost(pieces, earlier, later, shared=reach)
    return np.floor(lost * material.counts.factors).astype(np.int64)


def _explained(served: Served, *others: Counts | None) -> Counts:
    """Give the leading tokens of each request that a cache served, or that it lacked for a reason other than text.

    `others` are the leading tokens that were there for such reasons.
    """
    reach = served.shared
    for other in others:
        reach = reach if other is None else np.maximum(reach, other)
    return reach


def family_id(material: Material, number: int) -> str:
    """Give what stands for a family in results: the same for the same log."""
    key = f"{number}\0{material.read.grouper.name(number)}".encode("utf-8", "replace")
    return hashlib.blake2b(key, digest_size=4).hexdigest()


def family_name(material: Material, number: int) -> str:
    """Give a family's name, masked as it stands in its line."""
    line = material.read.grouper.line(number)
    return material.redactor.part(line, 0, min(len(line), NAME_CHARS))


def segment_text(material: Material, row: int, index: int) -> str:
    """Give the text of a segment of a prompt; token ids where no tokenizer at hand made them."""
    segments = material.table.prompt_segments(row)
    if index >= segments.size:
        return ""
    if foreign(material, row):
        return " ".join(map(str, material.encoder.ids([int(segments[index])]).tolist()))
    return material.encoder.text(int(segments[index]))


def foreign(material: Material, row: int) -> bool:
    """Tell whether a prompt's ids are of another vocabulary than the tokenizer at hand: then they are shown as ids."""
    return material.stand_in and bool(material.table.as_ids[row])
