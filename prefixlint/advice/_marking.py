"""The requests of a log as caches see them that store only what marks say, ready to be marked at other places.

What takes time is done once: where blocks end, and the names of the prefixes up to there. Each plan of places is then
a walk over short lists.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from prefixlint import bounded
from prefixlint.advice._case import Case
from prefixlint.advice._costs import ratios
from prefixlint.caches.marks import Marks, MarkStore
from prefixlint.engines import Engine
from prefixlint.fleet import Limits
from prefixlint.marks import Block
from prefixlint.prices import Rates
from prefixlint.spots import Spot, placed

Plan = tuple[Spot, ...]

_SYSTEM, _FIRST, _PARTS, _LAST = 4, 3, 4, 3  # places of each kind that are tried
_PLACED_BY = 600  # requests by which places are chosen
_COMMON = 0.02  # of the requests must have a place for it to be tried


@dataclass(frozen=True, slots=True)
class _Prompt:
    """A request: the names of its prefixes, its marks as they are, when it comes and can be read, whose rules hold."""

    names: Sequence[int]
    marks: Marks
    structure: int
    now: float
    visible: float
    model: str | None
    scale: float


@dataclass(frozen=True, slots=True)
class Tally:
    """What a plan gives over all requests: tokens read and written, and what is paid less than without a cache.

    `saved` is in tokens at the price of input, negative where writing costs more than reading saves.
    """

    read: float = 0.0
    written: float = 0.0
    saved: float = 0.0


@dataclass(slots=True)
class Marking:
    """The marked requests of a log for one engine."""

    engine: Engine
    limits: Limits
    prompts: list[_Prompt] = field(default_factory=list)
    structures: list[Sequence[Block]] = field(default_factory=list)
    tokens: float = 0.0
    _known: dict[Plan, Tally] = field(default_factory=dict)

    @property
    def variant(self) -> Engine:
        """The engine as it holds for the first of the requests."""
        return self.engine.for_model(self.prompts[0].model)

    @classmethod
    def of(cls, case: Case, name: str) -> Marking:
        """Take the requests of a case to models whose caches go by marks."""
        engine = case.engine(name)
        marking = cls(engine, case.own(name, case.limits))
        numbers: dict[tuple[tuple[str, int, int], ...], int] = {}
        table, rows = case.log.table, case.log.rows.tolist()
        ways = bounded.ways(case.log, engine.salted)
        for_model = cache(engine.for_model)
        visits = bounded.visits_of(case.log, case.limits, elements=False)()
        for number, (row, visit) in enumerate(zip(rows, visits, strict=True)):
            marking.tokens += float(ways.size(number)) * float(case.factors[number])
            variant = for_model(visit.model)
            blocks = table.marks.get(row)
            if visit.marks is None or not blocks or variant.match != "marked_breakpoint":
                continue
            shape = tuple(block.place for block in blocks)
            if shape not in numbers:
                numbers[shape] = len(numbers)
                marking.structures.append(blocks)
            now = float(number) if visit.time is None else visit.time
            delay = (visit.first if variant.visible == "first_token" else visit.total) or 0.0
            names = ways.names(number, visit.marks.ends)
            scale = float(case.factors[number])
            marking.prompts.append(_Prompt(names, visit.marks, numbers[shape], now, now + delay, visit.model, scale))
        return marking

    def head(self, requests: int) -> Marking:
        """Give the first requests only; itself where there are no more."""
        if requests >= len(self.prompts):
            return self
        return replace(self, prompts=self.prompts[:requests], _known={})

    def candidates(self) -> list[Spot]:
        """List the places at which marks could stand, in the order in which they come in a prompt."""
        found: Counter[Spot] = Counter()
        often = Counter(prompt.structure for prompt in self.prompts)
        for number, blocks in enumerate(self.structures):
            for spot in set(_spots(blocks, self.variant.lookback or 0)):
                found[spot] += often[number]
        return sorted((s for s, n in found.items() if n >= _COMMON * len(self.prompts)), key=_order)

    def tally(self, plan: Plan) -> Tally:
        """Say what marks at these places would give."""
        if plan not in self._known:
            self._known[plan] = self._walk(plan)
        return self._known[plan]

    def logged(self) -> Tally:
        """Say what the marks that the requests have give."""
        return self._walk(None)

    def _walk(self, plan: Plan | None) -> Tally:
        """Serve all requests with the marks of a plan; None leaves them as they are."""
        chosen = [placed(blocks, plan) for blocks in self.structures] if plan is not None else []
        stores: dict[str | None, tuple[MarkStore, Rates]] = {}
        read = written = saved = 0.0
        for prompt in self.prompts:
            marks = prompt.marks if plan is None else Marks(prompt.marks.ends, chosen[prompt.structure])
            if not marks.ttl:
                continue
            if prompt.model not in stores:
                stores[prompt.model] = self._store(prompt.model)
            store, rates = stores[prompt.model]
            found = store.serve(prompt.names, marks, prompt.now, prompt.visible, scale=prompt.scale)
            usual = found.written - found.long
            read += found.hit * prompt.scale
            written += found.written * prompt.scale
            saved += prompt.scale * (
                found.hit * (1 - (rates.cached or 0.0))
                - usual * rates.premium
                - found.long * (rates.write_1h - rates.input)
            )
        return Tally(read, written, saved)

    def _store(self, model: str | None) -> tuple[MarkStore, Rates]:
        variant = self.engine.for_model(model)
        limits = self.limits
        ttl = variant.ttl if limits.ttl is None else limits.ttl
        sliding = not limits.from_write if limits.ttl is not None else variant.lifetime != "from_write"
        store = MarkStore(
            variant.lookback or 0,
            variant.marks or 1,
            variant.minimum,
            float("inf") if ttl is None else ttl,
            sliding=sliding,
        )
        return store, ratios(self.engine, model) or Rates(1.0, 0.1, 1.0, 1.0)


def _spots(blocks: Sequence[Block], lookback: int) -> list[Spot]:
    places = {block.place for block in blocks}
    systems = len({p.item for p in places if p.section == "system"})
    messages = len({p.item for p in places if p.section == "messages"})
    first = len({p.part for p in places if p.section == "messages" and p.item == 0})
    found = [Spot("tools")] if any(p.section == "tools" for p in places) else []
    found += [Spot("system", item) for item in range(min(systems - 1, _SYSTEM))]
    found += [Spot("system")] if systems else []
    found += [Spot("messages", 0, part) for part in range(min(first - 1, _PARTS))]
    found += [Spot("messages", item) for item in range(min(messages - 1, _FIRST))]
    found += [Spot("messages", -1 - back) for back in range(min(messages, _LAST))]
    if messages > lookback // 2 > _LAST:
        found.append(Spot("messages", -(lookback // 2)))
    return found


def _order(spot: Spot) -> tuple[int, int, int, int]:
    """Order places as they come in a prompt: a part of an item before its end, the last items behind the first."""
    section = ("tools", "system", "messages").index(spot.section)
    return section, int(spot.item < 0), spot.item, spot.part if spot.part >= 0 else 1 << 30


def best(marking: Marking, long: float | None) -> Plan:
    """Choose places and lifetimes: the provider's own one, or `long` seconds (None: there is no other).

    Which places pay shows in few requests, and many places are tried; lifetimes, and which of the chosen places stay,
    are judged by all of them. Of lifetimes, those that are longer come first in a prompt, as providers want it.
    """
    few = marking.head(_PLACED_BY)
    plans = [_greedy(few, None)]
    if long is not None:
        plans.append(tuple(replace(spot, ttl=None) for spot in _greedy(few, long)))
        plans = [_lengthened(plan, count, long) for plan in dict.fromkeys(plans) for count in range(len(plan) + 1)]
    if few is not marking:
        plans.append(())
    chosen = max(plans, key=lambda plan: (marking.tally(plan).saved, -len(plan)))
    return chosen if few is marking else _pruned(marking, chosen)


def _lengthened(plan: Plan, count: int, long: float) -> Plan:
    return tuple(replace(spot, ttl=long) if i < count else spot for i, spot in enumerate(plan))


def _greedy(marking: Marking, ttl: float | None) -> Plan:
    """Choose places of one lifetime, one after the other, as long as the next one saves something."""
    plan: Plan = ()
    left = [replace(spot, ttl=ttl) for spot in marking.candidates()]
    most = marking.variant.marks or 1
    gains = dict.fromkeys(left, float("inf"))
    while left and len(plan) < most:
        now = marking.tally(plan).saved
        # what a place adds seldom grows with others beside it, so that the best known bounds are tried first
        tried: dict[Spot, float] = {}
        for spot in sorted(left, key=lambda s: -gains[s]):
            if tried and gains[spot] <= max(tried.values()):
                break
            tried[spot] = gains[spot] = marking.tally(_with(plan, spot)).saved - now
        chosen = max(tried, key=lambda s: tried[s])
        if tried[chosen] <= 0:
            break
        plan = _with(plan, chosen)
        left.remove(chosen)
    return _pruned(marking, plan)


def _with(plan: Plan, spot: Spot) -> Plan:
    return tuple(sorted((*plan, spot), key=_order))


def _pruned(marking: Marking, plan: Plan) -> Plan:
    """Leave out what later choices made worthless."""
    for spot in plan:
        rest = tuple(s for s in plan if s != spot)
        if marking.tally(rest).saved >= marking.tally(plan).saved:
            return _pruned(marking, rest)
    return plan
