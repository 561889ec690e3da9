"""What following advice gives: requests are rewritten, rendered, tokenized and replayed, fix by fix and all together.

Only requests of families that show a cause are read again, in the order of use. A family whose fixes are all tried
alone and together is rewritten that many times in one pass; what fixes of different families give is added up, so a
replay tries one fix in every family at once. Of a replay only the part is made that what changes can concern, see
`resimulate`: numbers are those of the whole log.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefixlint import accounts, bodies, logs, rereading, resimulate, simulate, whatif
from prefixlint.accounts import Account, Material
from prefixlint.ingest import Ingest
from prefixlint.logfindings import LogFinding
from prefixlint.logrules import Fault
from prefixlint.model import Request, Text, TokenIds
from prefixlint.resimulate import Outcome
from prefixlint.results import NotTried
from prefixlint.simulate import Replay, Served
from prefixlint.table import Kind, Table
from prefixlint.whatif._rewriter import Choice, Rewriter

_STEPWISE = 4  # fixes of one family that are tried in every order of the best; more are taken in the order of their own

FEW = 5_000
"""Rewritten prompts that are always tried. Of a log with more requests, as many as it has: half as long again."""

NOTHING: Choice = frozenset()

Counts = NDArray[np.int64]
Variants = dict[Choice, NDArray[np.int32]]
"""Where the prompts are that requests have with a choice of their family's fixes: an element a request, UNCHANGED or a
row of the table of rewritten prompts."""
UNCHANGED = -1
Serve = Callable[[Table, Replay], Mapping[str, Served]]
"""What engines serve of a replay with the limits that hold, their counts as they are reported."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Prompt and cached tokens of one engine."""

    prompt: int
    cached: int


@dataclass(frozen=True, slots=True)
class Trial:
    """A replay of a log in which families have some of their fixes: what engines serve without and with limits.

    `outcome` counts as the tokenizer does. Arrays have an element a request in the order of use; `changed` says which
    have another prompt than was logged.
    """

    table: Table
    outcome: Outcome
    changed: NDArray[np.bool_]
    free: Mapping[str, Served]
    limited: Mapping[str, Served]


@dataclass(frozen=True, slots=True)
class Gains:
    """What was tried.

    `order` are the fixes from the one that gains most, each after those before it. `base` is the log as it is, `final`
    with all fixes, `lost` the tokens of each request that are then still behind a difference. `free` and `limited` give
    what an engine serves of a family (or of all, None) with some fixes, without limits or with them.
    """

    fixes: Sequence[whatif.Fix]
    not_tried: Sequence[NotTried]
    order: Sequence[int]
    base: Trial
    final: Trial
    lost: Counts
    free: Cells
    limited: Cells
    where: slice
    changed: Mapping[int, int]
    """Rewritten requests that each fix has a part in."""
    unchanged: int
    """Requests of families with a fix that could not be rewritten."""

    def exact(self, served: Served) -> Tokens:
        """Give the tokens of a replay of the whole log, without the warm-up."""
        return Tokens(int(served.prompt[self.where].sum()), int(served.cached[self.where].sum()))


@dataclass(slots=True)
class Cells:
    """Tokens by engine, family and choice of the family's fixes."""

    families: Mapping[int, Choice]
    _cells: dict[str, dict[tuple[int, Choice], Tokens]] = field(default_factory=dict)

    def put(self, engine: str, family: int, choice: Choice, tokens: Tokens) -> None:
        """Note what an engine serves of a family."""
        self._cells.setdefault(engine, {})[family, choice] = tokens

    def knows(self, family: int, choice: Choice) -> bool:
        """Tell whether a choice was tried in a family."""
        cell = family, choice & self.families[family]
        return any(cell in cells for cells in self._cells.values())

    def of(self, engine: str, family: int, choice: Choice) -> Tokens:
        """Give what an engine serves of a family if these fixes are made, those of other families left out."""
        return self._cells[engine][family, choice & self.families.get(family, NOTHING)]

    def all(self, engine: str, choice: Choice) -> Tokens:
        """Give the sum over families."""
        served = [self.of(engine, family, choice) for family in {family for family, _ in self._cells[engine]}]
        return Tokens(sum(one.prompt for one in served), sum(one.cached for one in served))


@dataclass(slots=True)
class Study:
    """A log that was analysed, and what is needed to try fixes on it."""

    material: Material
    account: Account
    ingest: Ingest
    serve: Serve
    findings: Sequence[LogFinding]
    where: slice = field(default_factory=lambda: slice(None))
    keep: Callable[[int, Any], None] | None = None
    """Is handed the bodies that requests have with all fixes, by their rows."""
    unchanged: set[int] = field(default_factory=set)
    fault: Fault | None = None
    """The first request over which a rewrite stumbled; those stay as logged."""
    foreign: bool = False
    """Whether there were token ids that the tokenizer at hand does not give for their text."""
    _prompts: Table = field(default_factory=Table)
    _able: dict[str, bool] = field(default_factory=dict)
    _tokenizes: dict[str, bool] = field(default_factory=dict)
    _variants: Variants = field(default_factory=dict)

    def plan(self, wanted: Callable[[LogFinding], bool]) -> tuple[list[whatif.Fix], list[NotTried]]:
        """Find out what can be done about the causes that are wanted."""
        chosen = [finding for finding in self.findings if wanted(finding)]
        family = self.material.table.family

        def pairs(findings: Sequence[LogFinding], codes: frozenset[str]) -> Iterator[whatif.Example]:
            return whatif.examples(findings, codes, self._requests, lambda row: family[row])

        fixes, refused = whatif.plan(chosen, pairs, self.findings)
        return fixes, [NotTried(tuple(sorted(one.codes)), one.reason) for one in refused]

    def affordable(self, fixes: Sequence[whatif.Fix]) -> list[whatif.Fix]:
        """Give the fixes of the most costly causes that can be tried with about as many prompts as the log has."""
        sizes = Counter(self.material.table.family[row] for row in self.material.rows.tolist())
        most, chosen = max(FEW, self.material.rows.size), list[whatif.Fix]()
        for fix in sorted(fixes, key=_loss, reverse=True):
            trying = Counter(family for one in (*chosen, fix) for family in one.families)
            if sum(sizes[family] * _choices(count) for family, count in trying.items()) <= most:
                chosen.append(fix)
        return [fix for fix in fixes if fix in chosen]

    def _requests(self, rows: Iterable[int]) -> dict[int, Request]:
        table = self.material.table
        places = {table.where(row): row for row in rows}
        found = self.material.again(places) if places else ()
        return {places[r.path, r.line, r.part]: self._whole(r) or r for r in found}

    def _whole(self, request: Request) -> Request | None:
        """Give a request whose prompt is all in its body: itself, or as a chat what its log holds in another way.

        That cannot be written into the log. None where neither is possible.
        """
        if self.keep is not None:
            return request if self._is_whole(request) else None
        if isinstance(request.content, TokenIds):
            known = self._has_its_tokenizer(request)
            return logs.as_chat(replace(request, content=request.said)) if known else None
        if isinstance(request.content, Text) or not self._is_whole(request):
            return logs.as_chat(request)
        return request

    def _is_whole(self, request: Request) -> bool:
        """Tell whether a request's prompt is all in its body; a format is looked at once."""
        if isinstance(request.content, TokenIds) or bodies.continues(request.body):
            return False
        if request.format not in self._able:
            self._able[request.format] = isinstance(request.body, dict) and logs.rewritable(request)
        return self._able[request.format]

    def _has_its_tokenizer(self, request: Request) -> bool:
        """Tell whether what a request of token ids says, as it is rendered and tokenized here, are those ids.

        Only then can rewritten prompts stand beside logged ones. It is looked at once for each format.
        """
        if request.format not in self._tokenizes and isinstance(request.content, TokenIds):
            table = Table()
            if request.said is not request.content:
                self.ingest.add_prompts([(None, replace(request, content=request.said))], table)
            known = list(table.kind) == [Kind.TOKENS] and np.array_equal(
                self.material.encoder.ids(table.prompt_segments(0)), np.asarray(request.content.ids)
            )
            self._tokenizes[request.format] = known
            self.foreign |= request.said is not request.content and not known
        return self._tokenizes[request.format]

    def run(self, fixes: Sequence[whatif.Fix], not_tried: Sequence[NotTried]) -> Gains:
        """Try the fixes, alone and one after the other."""
        material = self.material
        held = frozenset(material.table.family[row] for row in material.rows.tolist())
        families: dict[int, Choice] = {
            family: frozenset(n for n, fix in enumerate(fixes) if family in fix.families) for family in sorted(held)
        }
        every = frozenset(range(len(fixes)))
        free, limited = Cells(families), Cells(families)
        base = Trial(
            material.table,
            resimulate.whole(material.replay),
            np.zeros(material.rows.size, np.bool_),
            {n: simulate.scaled(s, material.counts.factors) for n, s in material.replay.engines.items()},
            self.account.served,
        )
        self._note(base, dict.fromkeys(families, NOTHING), free, limited)
        layers = _layers(families)
        self._rewrite(fixes, families, layers, free)
        material.encoder.rest()  # what tokenizing takes makes room for trees of all prompts
        final = base
        if layers:  # all together come first, which tells what a family's only fix gives alone
            final = self._trial(families)
            self._note(final, families, free, limited)
        for layer in layers:
            if layer != families:
                self._try(layer, free, limited)
        engine = next(iter(base.free))
        order: list[int] = []
        while len(order) < len(fixes):
            done = frozenset(order)
            left = sorted(every - done)
            if max(map(len, families.values())) > _STEPWISE:
                left = [max(left, key=lambda n: (free.all(engine, frozenset((n,))).cached, -n))]
            missing = _missing(families, free, done, left)
            if missing:
                self._rewrite(fixes, families, missing, free)
                for layer in missing:
                    self._try(layer, free, limited)
            order.append(max(left, key=lambda n: (free.all(engine, done | {n}).cached, -n)))
        lost = self.account.lost
        if fixes:
            served = next(iter(final.outcome.engines.values()))
            full = final.outcome.with_outputs
            lost = accounts.still_lost(material, self.account, final.table, served, full, changed=final.changed)
        changed = Counter[int]()
        for choice, numbers in self._variants.items():
            changed.update(dict.fromkeys(choice, int(np.count_nonzero(numbers != UNCHANGED))))
        return Gains(
            fixes, not_tried, order, base, final, lost, free, limited, self.where, changed, len(self.unchanged)
        )

    def _try(self, layer: Mapping[int, Choice], free: Cells, limited: Cells) -> None:
        """Try the choices of families that were not tried yet, and note what these gain; the others stay as logged.

        Where memory or lifetimes are limited, all families use them, and all have their choice.
        """
        if self.material.bounded.limits:
            self._note(self._trial(layer), layer, free, limited)
            return
        new = {family: choice for family, choice in layer.items() if not free.knows(family, choice)}
        if new:
            self._note(self._trial(new), new, free, limited)

    def _note(self, trial: Trial, layer: Mapping[int, Choice], free: Cells, limited: Cells) -> None:
        """Sum up a trial by family."""
        counted = np.frombuffer(self.material.table.family, np.int32)[self.material.rows[self.where]]
        for table, served in ((free, trial.free), (limited, trial.limited)):
            for name, one in served.items():
                prompts = np.bincount(counted, one.prompt[self.where])
                cached = np.bincount(counted, one.cached[self.where])
                for family, choice in layer.items():
                    held = family < prompts.size
                    tokens = Tokens(int(prompts[family]) if held else 0, int(cached[family]) if held else 0)
                    table.put(name, family, choice, tokens)

    def _rewrite(
        self,
        fixes: Sequence[whatif.Fix],
        families: Mapping[int, Choice],
        layers: Sequence[Mapping[int, Choice]],
        known: Cells,
    ) -> None:
        """Rewrite and tokenize the requests of families with a fix, once for each choice in the layers that is new."""
        wanted = {
            f: choices
            for f in families
            if (choices := {layer[f] for layer in layers if layer[f] and not known.knows(f, layer[f])})
        }
        choices = {choice for of_family in wanted.values() for choice in of_family}
        if not choices:
            return
        for choice in choices - self._variants.keys():
            self._variants[choice] = np.full(len(self.material.table), UNCHANGED, np.int32)
        rewriter = Rewriter(fixes, choices)

        def rewritten() -> Iterator[tuple[Hashable, Request]]:
            table = self.material.table
            for row, request in self._in_order(set(wanted)):
                family = table.family[row]
                for choice, body in self._bodies(rewriter, request, row, family, wanted[family]):
                    again = None if body is request.body else logs.with_body(request, body)
                    if again is None:
                        continue
                    if self.keep is not None and choice == families[family]:
                        self.keep(row, body)
                    number = len(self._prompts)
                    yield (choice, table.conversation[row]), again
                    if self._prompts.kind[number] == Kind.TOKENS:
                        self._variants[choice][row] = number
                    else:
                        self.unchanged.add(row)

        self.ingest.add_prompts(rewritten(), self._prompts)

    def _bodies(
        self, rewriter: Rewriter, request: Request, row: int, family: int, choices: Iterable[Choice]
    ) -> Sequence[tuple[Choice, Any]]:
        """Rewrite a request; one over which a rewrite stumbles stays as logged."""
        try:
            return list(rewriter.rewrite(request, row, family, choices))
        except Exception as error:  # noqa: BLE001  # it reads what strangers wrote
            self.unchanged.add(row)
            self.fault = self.fault or Fault(request.path, request.line, type(error).__name__)
            return ()

    def _in_order(self, families: set[int]) -> Iterator[tuple[int, Request]]:
        """Read the requests of some families again, in the order of use."""
        table = self.material.table
        rows = [row for row in self.material.rows.tolist() if table.family[row] in families]
        found = rereading.in_order(self.material.again, [table.where(row) for row in rows])
        for row, request in zip(rows, found, strict=True):
            whole = None if request is None else self._whole(request)
            if whole is None:
                self.unchanged.add(row)
            else:
                yield row, whole

    def _trial(self, layer: Mapping[int, Choice]) -> Trial:
        """Replay the log with the choices of some families; the requests of others have their logged prompts."""
        material = self.material
        held = _held(material.table, self._variants, layer)
        table = _merged(material.table, self._prompts, held)
        changed = held[material.rows] != UNCHANGED
        factors = material.counts.factors
        if not material.bounded.limits:
            outcome = resimulate.again(material.replay, material.encoder, material.table, table, changed)
            free = {name: simulate.scaled(served, factors) for name, served in outcome.engines.items()}
            return Trial(table, outcome, changed, free, free)
        engines = [served.engine for served in material.replay.engines.values()]
        arrivals = accounts.arrivals(table, material.encoder, material.rows)
        replay = simulate.run(arrivals, engines, unsalted=table.unsalted(), ways=True)
        free = {name: simulate.scaled(served, factors) for name, served in replay.engines.items()}
        return Trial(table, resimulate.whole(replay), changed, free, self.serve(table, replay))


def _loss(fix: whatif.Fix) -> int:
    return sum(max((finding.tokens_lost or {}).values(), default=0) for finding in fix.findings)


def _choices(fixes: int) -> int:
    """Count the choices that are tried of a family's fixes: each alone, all, and those between them."""
    between = sum(range(2, fixes)) if fixes <= _STEPWISE else fixes - 2
    return fixes + (between + 1 if fixes > 1 else 0)


def is_wanted(finding: LogFinding, names: Sequence[str]) -> bool:
    """Tell whether a cause is among those named: by code, beginning of a code, name, or `all`."""
    return any(name == "all" or finding.rule.code.startswith(name) or finding.rule.name == name for name in names)


def _layers(families: Mapping[int, Choice]) -> list[dict[int, Choice]]:
    """Give what to replay: one fix in every family, then the next one, and all of them."""
    most = max((len(own) for own in families.values()), default=0)
    layers = [
        {f: frozenset((sorted(own)[min(n, len(own) - 1)],)) if own else own for f, own in families.items()}
        for n in range(most)
    ]
    if most > 1:
        layers.append(dict(families))
    return layers


def _missing(
    families: Mapping[int, Choice], known: Cells, done: Choice, left: Sequence[int]
) -> list[dict[int, Choice]]:
    """Give what else has to be replayed to tell which fix is the best one after those that are made.

    Families with many fixes are not searched: there the next one is taken by what it gives alone.
    """
    layers = [{f: (done | {n}) & own for f, own in families.items()} for n in left]
    return [layer for layer in layers if any(not known.knows(family, choice) for family, choice in layer.items())]


def _held(table: Table, variants: Variants, layer: Mapping[int, Choice]) -> NDArray[np.int32]:
    """Give for each request the row of its rewritten prompt; UNCHANGED where the logged one stays."""
    of_family = {family: variants[choice] for family, choice in layer.items() if choice in variants}
    held = np.full(len(table), UNCHANGED, np.int32)
    families = np.frombuffer(table.family, np.int32)
    for family, changed in of_family.items():
        np.copyto(held, changed, where=families == family)
    return held


def _merged(table: Table, prompts: Table, held: NDArray[np.int32]) -> Table:
    """Give a table in which the prompts of rewritten requests (`held`) stand for those that were logged."""
    namespace, cut, marks = array("i", table.namespace), array("b", table.cut), dict(table.marks)
    namespaces = table.namespaces.copy()
    for row in np.flatnonzero(held != UNCHANGED).tolist():
        number = held.item(row)
        namespace[row] = namespaces.number(prompts.namespaces.values[prompts.namespace[number]])
        cut[row] = prompts.cut[number]
        marks.pop(row, None)
        if number in prompts.marks:
            marks[row] = prompts.marks[number]
    segments, ends = _spliced(held, (table.segments, table.ends), (prompts.segments, prompts.ends))
    outputs, output_ends = _spliced(held, (table.outputs, table.output_ends), (prompts.outputs, prompts.output_ends))
    return replace(
        table,
        segments=segments,
        ends=ends,
        outputs=outputs,
        output_ends=output_ends,
        namespace=namespace,
        namespaces=namespaces,
        cut=cut,
        marks=marks,
    )


Parts = tuple["array[int]", "array[int]"]
"""Values of rows one behind the other, and where those of each row end."""


def _spliced(held: NDArray[np.int32], own: Parts, others: Parts) -> Parts:
    """Put together the values of rows: a row's own, or those of another row that stand for them (`held`)."""
    changed = np.flatnonzero(held != UNCHANGED)
    source, ends = np.frombuffer(own[0], np.uint32), np.frombuffer(own[1], np.int64)
    other_source, other_ends = np.frombuffer(others[0], np.uint32), np.frombuffer(others[1], np.int64)
    sizes = np.diff(ends, prepend=0)
    parts, at = [], 0
    for row, number in zip(changed.tolist(), held[changed].tolist(), strict=True):
        begin, end = other_ends.item(number - 1) if number else 0, other_ends.item(number)
        parts += [source[at : ends.item(row) - sizes.item(row)], other_source[begin:end]]
        at = ends.item(row)
        sizes[row] = end - begin
    values, sums = array("I"), array("q")
    values.frombytes(np.concatenate([*parts, source[at:]]).view(np.uint8).data)
    sums.frombytes(np.cumsum(sizes).view(np.uint8).data)
    return values, sums
