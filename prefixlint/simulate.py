"""What prefix caches give to a series of requests, in the order in which they are handed in.

Here caches are unlimited: nothing is evicted, so one walk along the prefix index answers for every engine, and an
engine's own rules (granularity, cap, minimum) are arithmetic on the length it gives. Prompts stream through; what is
kept is a few numbers a request and the index, which grows with the distinct text.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from prefixlint.model import Lookup, MissCause
from prefixlint.radix import NOTHING, Match, PrefixIndex
from prefixlint.ways import Ways

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from prefixlint.engines import Engine, Stored
    from prefixlint.model import BlockHashes

    Ids = NDArray[np.uint32]
    Counts = NDArray[np.int64]
    Mask = NDArray[np.bool_]
    Where = slice | Mask | NDArray[np.intp]

NO_OWNER = -1
Kept = tuple["Stored", bool]
"""What a tree of prompts holds: which tokens are stored, and whether salts keep them apart."""
OnStored = Callable[[Kept, int, Match, int, int], None]
"""Is told what a tree had of a row: its kind, the row, how far it was there, the tokens stored, those of the prompt."""

# What engines and providers call an output that the length limit ended.
_BY_LENGTH = ("length", "max_tokens", "MAX_TOKENS", "max_output_tokens")


class Arrival(NamedTuple):
    """One request: its row (a number of the caller's), what separates its cache from others, and its tokens.

    `output` are the generated tokens that a later request may match, see `computed_output`; None when they are unknown.
    """

    row: int
    namespace: Hashable
    prompt: Ids
    output: Ids | None = None


class BlockArrival(NamedTuple):
    """One request of a hash trace."""

    row: int
    namespace: Hashable
    blocks: BlockHashes


@dataclass(frozen=True, slots=True)
class Served:
    """What one engine's cache gives, an array element a request, in order; sizes in tokens.

    `shared`: the longest prefix in common with any earlier request of the namespace (its stored output included where
    the engine stores outputs). `owner`: the row that wrote the last token of it first, NO_OWNER where there is none.
    `extends`: an earlier sequence ended exactly there. `cached`: what the engine takes from its cache. `blocks` and
    `blocks_hit`: the prompt and its cached part in the engine's blocks (the trace's blocks for a hash trace), a
    partial last block counted as one.
    """

    engine: Engine
    prompt: Counts
    shared: Counts
    owner: Counts
    extends: Mask
    cached: Counts
    blocks: Counts
    blocks_hit: Counts
    losses: Mapping[MissCause, Counts] | None = None
    """Why shared tokens were not cached, where the cache has limits; None where the engine's rule alone says it."""
    from_host: Counts | None = None
    """How many of the cached tokens came from the host's memory; None where there are no tiers."""
    written: Counts | None = None
    """Prompt tokens behind the cached ones that a mark wrote, where only marks write; `long` are to live longer."""
    long: Counts | None = None


@dataclass(frozen=True, slots=True)
class Replay:
    """The outcome of a run: arrays with an element a request, in the order handed in.

    `rows` are the callers' numbers, `prompt` the prompt lengths. `engines` maps an engine's name to what it served.
    `distinct` are the tokens of the prefix tree (prompts, and outputs where given and stored), `distinct_blocks` its
    blocks where the input was a hash trace. `indexes` are the prefix indexes by namespace (of the first engine).
    `elsewhere` are the leading tokens that an earlier request of any namespace had, None where that was not asked for;
    `with_outputs` those that an earlier request had, what it generated included. `ways` are those of the requests, by
    whether salts keep them apart; empty where they were not asked for.
    """

    rows: Counts
    prompt: Counts
    engines: Mapping[str, Served]
    distinct: int
    distinct_blocks: int | None
    indexes: Mapping[Hashable, PrefixIndex]
    elsewhere: Counts | None = None
    with_outputs: Counts | None = None
    ways: Mapping[bool, Ways] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rates:
    """Hit rates by every definition in use, from 0 to 1; None where nothing is there to divide by.

    `hit_rate`: cached over prompt tokens. `hit_rate_blocks`: cached over all blocks, a partial last block counted as
    one. `hit_rate_mean`: the mean over requests of cached over prompt tokens (empty prompts are left out).
    `zero_hit_requests`: the share of requests that found nothing.
    """

    requests: int
    prompt_tokens: int
    cached_tokens: int
    hit_rate: float | None
    hit_rate_blocks: float | None
    hit_rate_mean: float | None
    zero_hit_requests: float | None


@dataclass(slots=True)
class _Walks:
    """The matches of all requests in the trees of one kind (with outputs, or without)."""

    noting: bool = False
    trees: defaultdict[Hashable, PrefixIndex] = field(init=False)
    shared: array[int] = field(default_factory=lambda: array("q"))
    owner: array[int] = field(default_factory=lambda: array("q"))
    extends: array[int] = field(default_factory=lambda: array("b"))

    def __post_init__(self) -> None:
        self.trees = defaultdict(partial(PrefixIndex, noting=self.noting))

    def add(self, row: int, namespace: Hashable, prompt: Ids, output: Ids | None) -> int:
        match = self.trees[namespace].match_insert(prompt, row, output=output)
        self._note(match)
        return match.length

    def follow(self, ways: Ways, rows: Sequence[int]) -> Iterator[Match]:
        """Find the same for prompts alone by their ways, without trees of their own."""
        first: dict[int, int] = {}
        ended: set[int] = set()
        for position, row in enumerate(rows):
            way = ways.prompt(position)
            new = len(way)
            while new and way[new - 1] not in first:
                new -= 1
            last = way[new - 1] if new else None
            match = NOTHING if last is None else Match(ways.depth[last], first[last], last in ended)
            first.update(dict.fromkeys(way[new:], row))
            ended.update(way[-1:])
            self._note(match)
            yield match

    def _note(self, match: Match) -> None:
        self.shared.append(match.length)
        self.owner.append(NO_OWNER if match.owner is None else match.owner)
        self.extends.append(match.extends)

    def distinct(self) -> int:
        return sum(tree.distinct for tree in self.trees.values())


def run(
    arrivals: Iterable[Arrival],
    engines: Sequence[Engine],
    *,
    wider: Mapping[Hashable, Hashable] | None = None,
    unsalted: Mapping[Hashable, Hashable] = MappingProxyType({}),
    on_stored: OnStored | None = None,
    ways: bool = False,
) -> Replay:
    """Replay requests of tokens through unlimited caches.

    A request is complete, its output stored, before the next one is looked up. `wider` maps namespaces to
    those they are parts of: prefixes are then looked up there as well (`Replay.elsewhere`). `unsalted` maps those with
    salts to what engines take them for that know none. `on_stored` is told, for each kind of tree, how much of each
    request, its output included where that is stored, was there before. `ways` asks for `Replay.ways`. ValueError
    without an engine.
    """
    if not engines:
        raise ValueError("a replay needs an engine")
    # what is not stored is told from what never was there by a walk that stores all
    salts = bool(unsalted)
    kinds = dict.fromkeys(kept(engine, salts=salts) for engine in engines)
    if any(engine.kind == "provider" for engine in engines):
        kinds[("prompt_and_output", True)] = None
    # where prompts with their outputs go through a tree, prompts alone need no tokens any more
    derived = [(s, apart) for s, apart in [*kinds][1:] if s == "prompt" and ("prompt_and_output", apart) in kinds]
    walks = {kind: _Walks(ways or bool(derived)) for kind in kinds if kind not in derived}
    rows, prompts = array("q"), array("q")
    anywhere = _Walks()
    for row, namespace, prompt, generated in arrivals:
        rows.append(row)
        prompts.append(prompt.size)
        if wider is not None:
            anywhere.add(row, wider[namespace], prompt, None)
        for key, walk in walks.items():
            stored, salted = key
            name = namespace if salted else unsalted.get(namespace, namespace)
            output = generated if stored == "prompt_and_output" else None
            walk.add(row, name, prompt, output)
            if on_stored is not None:
                total = prompt.size + (0 if output is None else output.size)
                on_stored(key, row, walk.trees[name].stored, total, prompt.size)
    known = {apart: _ways(walks, apart, rows) for apart in {apart for _, apart in (kinds if ways else derived)}}
    for kind in derived:
        walk = walks[kind] = _Walks()
        for row, size, match in zip(rows, prompts, walk.follow(known[kind[1]], rows), strict=True):
            if on_stored is not None:
                on_stored(kind, row, match, size, size)
    lengths = _counts(prompts)
    served = {engine.name: _served(engine, lengths, walks[kept(engine, salts=salts)]) for engine in engines}
    first = walks[kept(engines[0], salts=salts)]
    full = walks.get(("prompt_and_output", True))
    return Replay(
        _counts(rows),
        lengths,
        MappingProxyType(served),
        first.distinct(),
        None,
        MappingProxyType(first.trees),
        None if wider is None else _counts(anywhere.shared),
        None if full is None else _counts(full.shared),
        {engine.salted: known[kept(engine, salts=salts)[1]] for engine in engines} if ways else {},
    )


def _ways(walks: Mapping[Kept, _Walks], salted: bool, rows: Sequence[int]) -> Ways:
    """Give the ways of requests with all that any engine stores of them."""
    stored: tuple[Stored, ...] = ("prompt_and_output", "prompt")
    fullest = next(walk for name in stored if (walk := walks.get((name, salted))) is not None)
    return Ways(fullest.trees.values(), rows)


def without_trees(replay: Replay) -> Replay:
    """Give a replay without its indexes, which hold all distinct tokens."""
    return replace(replay, indexes=MappingProxyType({}))


def kept(engine: Engine, *, salts: bool) -> Kept:
    """Say which tree an engine's prompts are in: engines that store and separate alike share one.

    What marks store is part of the prompt. `salts`: whether there are any.
    """
    return "prompt" if engine.stored == "marked" else engine.stored, engine.salted or not salts


def run_blocks(arrivals: Iterable[BlockArrival], engines: Sequence[Engine]) -> Replay:
    """Replay a hash trace: blocks match by their path, whole, and count by their sizes.

    An engine with a granularity above one token is given the trace's blocks: full ones that end before the last token.
    One with granularity 1 takes what the blocks tell, less the last token where it has a cap.
    """
    if not engines:
        raise ValueError("a replay needs an engine")
    numbers: dict[int | str, int] = {}
    walk = _Walks()
    rows, prompts, blocks, hit, shared, last = (array("q") for _ in range(6))
    for row, namespace, content in arrivals:
        ids = np.fromiter((numbers.setdefault(h, len(numbers)) for h in content.hashes), np.uint32, len(content.hashes))
        length = walk.add(row, namespace, ids, None)
        ends = [0, *accumulate(content.sizes)]
        rows.append(row)
        prompts.append(ends[-1])
        blocks.append(ids.size)
        hit.append(length)
        shared.append(ends[length])
        last.append(content.sizes[-1] if content.sizes else 0)
    distinct_blocks = walk.distinct()
    walk.shared = shared
    lengths = _counts(prompts)
    whole = _Whole(_counts(blocks), _counts(hit), _counts(last))
    served = {engine.name: _served(engine, lengths, walk, whole) for engine in engines}
    distinct = int((lengths - _counts(shared)).sum())
    return Replay(
        _counts(rows), lengths, MappingProxyType(served), distinct, distinct_blocks, MappingProxyType(walk.trees)
    )


def computed_output(ids: Ids, finish: str | None, stop_ids: Iterable[int] = ()) -> Ids:
    """Give the generated tokens whose KV the engine computed, and so may store.

    The last sampled token has none: it is the stop token where one is logged (`stop_ids` are the model's), else, with
    finish `length`, the last one of the output. A log that leaves the stop token out holds computed tokens only.
    """
    return ids[:-1] if ids.size and only_sampled(ids.item(-1), finish, frozenset(stop_ids)) else ids


def only_sampled(last: int | None, finish: str | None, stop_ids: frozenset[int]) -> bool:
    """Tell whether the last token of an output has no KV: `last` is its id, None where the log gives no ids."""
    return finish in _BY_LENGTH or last in stop_ids


def rates(served: Served, where: Where = slice(None)) -> Rates:
    """Compute the hit rates of an engine over the requests that `where` selects (a slice, a mask, or positions)."""
    prompt, cached = served.prompt[where], served.cached[where]
    blocks, blocks_hit = int(served.blocks[where].sum()), int(served.blocks_hit[where].sum())
    some = prompt > 0
    tokens, hits, n = int(prompt.sum()), int(cached.sum()), int(prompt.size)
    return Rates(
        requests=n,
        prompt_tokens=tokens,
        cached_tokens=hits,
        hit_rate=hits / tokens if tokens else None,
        hit_rate_blocks=blocks_hit / blocks if blocks else None,
        hit_rate_mean=float(np.mean(cached[some] / prompt[some])) if some.any() else None,
        zero_hit_requests=int((cached == 0).sum()) / n if n else None,
    )


def after_warmup(requests: int, warmup: float) -> slice:
    """Select the requests behind a warm-up: a number of requests, or a share of them where it is below 1.

    ValueError where `warmup` is negative.
    """
    if warmup < 0:
        raise ValueError(f"a warm-up of {warmup} requests")
    skip = int(requests * warmup) if warmup < 1 else int(warmup)
    return slice(min(skip, requests), None)


def with_shared(served: Served, shared: Counts, prompt: Counts | None = None) -> Served:
    """Give what the engine would serve if requests shared that much (tokens, cut to the prompt) with earlier ones.

    `prompt` replaces the prompt lengths. Only for requests of tokens: a hash trace has blocks of its own sizes.
    """
    prompt = served.prompt if prompt is None else prompt
    shared = np.minimum(shared, prompt)
    cached = by_rule(served.engine, shared, prompt)
    size = served.engine.granularity
    return replace(
        served,
        prompt=prompt,
        shared=shared,
        cached=cached,
        blocks=-(-prompt // size),
        blocks_hit=-(-cached // size),
        losses=None,
    )


def scaled(served: Served, factors: NDArray[np.float64]) -> Served:
    """Multiply counts by each request's factor; the engine's rules apply to the scaled counts."""
    if (factors == 1).all():
        return served
    prompt = np.rint(served.prompt * factors).astype(np.int64)
    whole = served.shared == served.prompt
    shared = np.where(whole, prompt, np.floor(served.shared * factors).astype(np.int64))
    return with_shared(served, shared, prompt)


def by_rule(engine: Engine, reach: Counts, prompt: Counts) -> Counts:
    """Give what an engine takes from its cache where that much of a prompt is there: cap, whole blocks, minimum."""
    if engine.cap == "length_minus_one":
        return _in_blocks(engine, np.minimum(reach, np.maximum(prompt - 1, 0)))
    whole = _in_blocks(engine, reach)
    return np.minimum(whole, np.maximum(prompt - 1, 0)) if engine.cap == "after_rounding" else whole


def misses(served: Served) -> dict[MissCause, Counts]:
    """Say why the prompt tokens of each request were computed, an array a cause; cached + these = prompt.

    Shared tokens were lost to the causes in `served.losses`, else to the engine's rule.
    `unaligned`: shared, but behind the last block border or the last token of the prompt, which is always computed.
    `too_short`: shared, but below the engine's minimum. Behind the shared prefix, `cold` where nothing earlier goes on
    differently (a first request, or new text after an earlier one), `diverged` where it does.
    """
    reach = np.where(served.shared >= served.engine.minimum, served.shared, 0)
    rest = served.prompt - served.shared
    cold = served.extends | (served.owner == NO_OWNER)
    found = {MissCause.COLD: np.where(cold, rest, 0), MissCause.DIVERGED: np.where(cold, 0, rest)}
    if served.losses is None:
        found |= {MissCause.TOO_SHORT: served.shared - reach, MissCause.UNALIGNED: reach - served.cached}
    else:
        found |= served.losses
    return {cause: tokens for cause, tokens in found.items() if tokens.any()}


def lookup(served: Served, index: int, causes: Mapping[MissCause, Counts]) -> Lookup:
    """Give one request's account; `causes` is what `misses(served)` gave."""
    why = {cause: int(tokens[index]) for cause, tokens in causes.items() if tokens[index]}
    return Lookup(int(served.prompt[index]), int(served.cached[index]), why)


class _Whole(NamedTuple):
    """The blocks of a hash trace, a number a request: all, those found, and the tokens of the last one."""

    all: Counts
    hit: Counts
    last: Counts


def _served(engine: Engine, prompt: Counts, walk: _Walks, whole: _Whole | None = None) -> Served:
    shared = _counts(walk.shared)
    if whole is None:
        cached = by_rule(engine, shared, prompt)
    else:
        cached = shared if engine.cap == "none" else np.minimum(shared, np.maximum(prompt - 1, 0))
        if engine.granularity > 1:
            cached = np.where(cached < shared, prompt - whole.last, cached)
        cached = np.where(cached >= engine.minimum, cached, 0)
    if whole is None:
        blocks, blocks_hit = -(-prompt // engine.granularity), -(-cached // engine.granularity)
    else:
        blocks, blocks_hit = whole.all, np.where(cached < shared, whole.hit - 1, whole.hit)
    owner, extends = _counts(walk.owner), np.frombuffer(walk.extends, np.int8).astype(bool)
    return Served(engine, prompt, shared, owner, extends, cached, blocks, blocks_hit)


def _in_blocks(engine: Engine, reach: Counts) -> Counts:
    """Floor hits to whole blocks, and drop those below the engine's minimum."""
    whole = reach // engine.granularity * engine.granularity
    return np.where(whole >= engine.minimum, whole, 0)


def _counts(numbers: array[int]) -> Counts:
    return np.frombuffer(numbers, np.int64) if numbers else np.empty(0, np.int64)
