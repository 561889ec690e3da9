"""One request of a log, from its text to its hits: what it found in caches, what it should have found, and why not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import BinaryIO

import numpy as np

from prefixlint import accounts, attribute, excerpts, pairs, pairtokens, pipeline, rulebook, wording
from prefixlint.accounts import Account, Material
from prefixlint.details import RENDERED, Conversation, Difference, Expected, Explanation, Passage, Place
from prefixlint.errors import UsageError
from prefixlint.model import Messages, Request, Text
from prefixlint.results import Analysis
from prefixlint.table import UNKNOWN

_SHORT = 4  # tokens; a shorter piece of a prompt is punctuation of the chat template and shown with the next one
_SHOWN = 80  # characters of a passage
_SCALED = 0.0005  # beside 1: factors that are shown as something else
_NOTES = frozenset({"partial-prompts", "times-missing", "reversed-log", "unsorted-log", "sampled-log", "tokenizer"})


def explain(
    path: str, line: int, part: int, options: pipeline.Options, *, stdin: BinaryIO | None = None
) -> Explanation:
    """Explain the request that stands at a line (and part) of a log; the whole log is read and replayed for it.

    UsageError where the log has no such request, or where it holds no prompt.
    """
    options = replace(options, why=max(pipeline.CAUSES, line), what_if=("none",))
    found: list[_Request] = []
    watch = pipeline.Watch(on_account=lambda material, account: found.append(_found(material, account, line, part)))
    result = pipeline.analyze([path], options, stdin=stdin, watch=watch)
    return found[0].explained(result)


def _found(material: Material, account: Account, line: int, part: int) -> _Request:
    places = {material.table.where(row)[1:]: row for row in range(len(material.table))}
    row = places.get((line, part))
    path = material.table.paths.values[0]
    if row is None:
        missing = f"{path} has no request at line {wording.numbered(line, part)}"
        raise UsageError(missing, slug="no-such-line", hint=_nearest(places, line, part))
    found = np.flatnonzero(material.rows == row)
    if not found.size:
        raise UsageError(
            f"{path}, line {line}: the request has no prompt that can be read",
            slug="no-text",
            hint="prefixlint analyze says how many there are and why",
        )
    return _Request(material, account, int(found[0]))


def _nearest(places: dict[tuple[int, int], int], line: int, part: int) -> str | None:
    near = min(places, key=lambda other: (abs(other[0] - line), abs(other[1] - part)), default=None)
    return None if near is None else f"the nearest one is at line {wording.numbered(*near)}"


def _two_counts(factor: float) -> str:
    own = "the prompt's pieces are counted in tokens of this tokenizer"
    return f"{own}, what caches serve of it as the server counts: {factor:.3f} for each"


class _Request:
    """The request at a position of the replay, with all that was found out about the log; made while it can be read."""

    def __init__(self, material: Material, account: Account, position: int) -> None:
        self._material, self._account, self._position = material, account, position
        self._row = int(material.rows[position])
        self._partner = self._compared_with()
        rows = {material.table.where(row): row for row in (self._row, self._partner) if row >= 0}
        self._requests = {rows[r.path, r.line, r.part]: r for r in material.again(rows)}

    def explained(self, result: Analysis) -> Explanation:
        material, table, row = self._material, self._material.table, self._row
        path, line, part = table.where(row)
        family, said, time = table.family[row], table.cached[row], table.time[row]
        model = table.models.values[table.model[row]]
        use = next((use for use in result.tokenizers if use.model == model), None)
        members = np.frombuffer(table.family, np.int32)[material.rows] == family
        name = accounts.family_name(material, family)
        here = self._requests.get(row)
        return Explanation(
            place=Place(path, line),
            part=part,
            id=None if here is None or here.id is None else material.redactor.identifier(here.id),
            time=None if np.isnan(time) else time,
            model=model,
            format=table.formats.values[table.format[row]],
            family=(accounts.family_id(material, family), name, int(members.sum())),
            conversation=self._conversation(),
            prompt=int(self._account.prompt[self._position]),
            passages=list(self._passages()),
            counted="the blocks of the trace" if use is None else f"{use.name}, {use.chat_template}",
            exact=use is None or use.exact != "no",
            verdicts=pairtokens.verdicts(material, self._account, self._position),
            reported=None if said == UNKNOWN else said,
            expected=None if here is None else self._expected(here),
            notes=[
                *([] if use is None or abs(use.factor - 1) <= _SCALED else [_two_counts(use.factor)]),
                *(material.redactor.text(note.message) for note in result.notes if note.slug in _NOTES),
            ],
        )

    def _place(self, row: int) -> Place:
        return Place(*self._material.table.where(row)[:2])

    def _conversation(self) -> Conversation:
        rows = self._material.rows
        number = np.frombuffer(self._material.table.conversation, np.int32)[rows]
        turns = np.flatnonzero(number == number[self._position])
        earlier = turns[turns < self._position]
        return Conversation(earlier.size + 1, turns.size, [self._place(int(rows[turn])) for turn in earlier])

    def _passages(self) -> Iterator[Passage]:
        """Cut the rendered prompt where the chat template begins something new."""
        material, row = self._material, self._row
        if material.replay.distinct_blocks is not None:
            return
        segments = material.table.prompt_segments(row)
        bounds = material.encoder.bounds(segments).tolist()
        shared = int(next(iter(material.replay.engines.values())).shared[self._position])
        first = 0
        for index in range(segments.size):
            last = index == segments.size - 1
            if bounds[index + 1] - bounds[index] <= _SHORT and not last:
                continue
            start, end = bounds[first], bounds[index + 1]
            yield Passage(start, end - start, self._text(range(first, index + 1)), max(0, min(shared, end) - start))
            first = index + 1

    def _text(self, segments: Sequence[int]) -> str:
        whole = "".join(accounts.segment_text(self._material, self._row, index) for index in segments)
        text = self._material.redactor.part(whole, 0, min(len(whole), _SHOWN))
        return text if len(text) <= _SHOWN and len(whole) <= _SHOWN else text[: _SHOWN - 1] + "…"

    def _expected(self, here: Request) -> Expected | None:
        """Compare with the request that this one should have matched."""
        row = self._partner
        if row < 0:
            return None
        table = self._material.table
        partner = self._requests.get(row)
        segments = table.prompt_segments(row), table.prompt_segments(self._row)
        pieces = accounts.Pieces(self._material.encoder)
        parted = attribute.part(pieces, *segments)
        whole = int(pieces.sizes(segments[0]).sum())
        found = Expected(
            place=self._place(row),
            relation=self._relation(row),
            shared=whole if parted is None else parted[2],
            lost=int(self._account.lost[self._position]),
            token=None if parted is None else parted[2],
            parted=None,
            excerpt=None,
            advice=None,
        )
        return found if partner is None or parted is None else self._told(found, partner, here, row, parted[0])

    def _compared_with(self) -> int:
        """Give the row of the request to compare with: where nothing is lost, the one that shares most."""
        row = self._account.partners[self._position]
        owner = int(next(iter(self._account.served.values())).owner[self._position])
        return row if owner < 0 or self._account.lost[self._position] else owner

    def _told(self, found: Expected, partner: Request, here: Request, row: int, segment: int) -> Expected:
        """Say where and why two requests part: in their bodies, else in what the chat template made of them."""
        if isinstance(partner.said, Messages | Text) and isinstance(here.said, Messages | Text):
            compared = pairs.compare(partner, here, None, redactor=self._material.redactor, turn=self._turn(row))
            first = compared.first
            if first is not None and not compared.grows:
                if not found.lost:  # its own text begins there, which no rule has anything to say about
                    first = replace(first, rule=None, what="the requests part")
                rule = None if first.rule is None else rulebook.rules().get(first.rule)
                advice = None if rule is None else rule.help
                named = {other.rule: other for other in reversed(compared.differences) if other.rule}
                behind = [other for rule, other in reversed(named.items()) if found.lost and rule != first.rule]
                return replace(found, parted=first, excerpt=compared.excerpt, advice=advice, behind=behind)
        ours, theirs = (accounts.segment_text(self._material, number, segment) for number in (row, self._row))
        char = attribute.first_difference(ours, theirs)[1]
        shown = excerpts.excerpt(ours, theirs, char, redactor=self._material.redactor)
        what = "the chat template writes something else" if isinstance(here.content, Messages) else "the prompts part"
        parted = Difference("changed", RENDERED, RENDERED, char, 0, what, shown.earlier, shown.later)
        return replace(found, parted=parted, excerpt=shown, rendered=True)

    def _turn(self, row: int) -> bool:
        """Tell whether the rules take a request as an earlier turn of this one."""
        pair = self._account.pairs.get(self._row)
        return pair.turn if pair is not None and pair.partner == row else self._same_conversation(row)

    def _same_conversation(self, row: int) -> bool:
        number = self._material.table.conversation
        return number[row] == number[self._row]

    def _relation(self, row: int) -> str:
        if self._turn(row) or self._same_conversation(row):
            return "the turn before it in its conversation"
        if row == int(next(iter(self._account.served.values())).owner[self._position]):
            return "the request that its longest prefix comes from"
        return "the latest request of its family"
