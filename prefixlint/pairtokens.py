"""Two requests as a log of two: their tokens, and what caches serve of the later one behind the earlier one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from prefixlint import accounts, attribute, engines
from prefixlint.accounts import Account, Material
from prefixlint.details import Place, Tokens, Verdict
from prefixlint.errors import ModelError
from prefixlint.model import BlockHashes, Request
from prefixlint.pipeline import Options, Watch, analyze_requests
from prefixlint.selection import HASH_ENGINES, TEXT_ENGINES

_PROVIDERS = ("openai", "anthropic", "gemini")
"""Asked for their verdict where the bodies do not show whose they are."""
_NOTES = frozenset({"refused-prompt", "tokenizer", "no-prompt", "partial-prompts"})


def measured(earlier: Request, later: Request, options: Options) -> tuple[Tokens | None, list[Verdict], list[str]]:
    """Count both prompts, and ask caches what they serve of the later one behind the earlier one."""
    pair = [
        replace(request, part=part, time=None, usage=None, latency=None, replica=None)
        for part, request in enumerate((earlier, later))
    ]
    options = replace(options, engines=options.engines or _asked(pair), why=len(pair), what_if=(), order=None)
    seen: list[tuple[Material, Account]] = []
    watch = Watch(on_account=lambda material, account: seen.append((material, account)))
    try:
        result = analyze_requests(pair, options, watch=watch)
    except ModelError as error:
        if options.model or options.tokenizer or options.tokens_from:
            raise
        return None, [], [f"nothing was tokenized: {error.message}"]
    notes = [note.message for note in result.notes if note.slug in _NOTES]
    material, account = seen[0]
    if material.rows.size < len(pair):
        return None, [], notes
    use = result.tokenizers[-1] if result.tokenizers else None
    exact = use is None or use.exact != "no"
    counted = "the blocks of the trace" if use is None else f"{use.name}, {use.chat_template}"
    return _tokens(material, account, counted, exact=exact), verdicts(material, account, 1), notes


def _asked(pair: Sequence[Request]) -> tuple[str, ...]:
    if any(isinstance(request.content, BlockHashes) for request in pair):
        return HASH_ENGINES
    shown = engines.shown_by((request.format, request.model) for request in pair)
    return *TEXT_ENGINES, *([engine.name for engine in shown] or _PROVIDERS)


def verdicts(material: Material, account: Account, position: int) -> list[Verdict]:
    """Say what each engine serves of the request at a position of the replay."""
    found = []
    for name, served in account.served.items():
        owner = int(served.owner[position])
        source = None if owner < 0 else Place(*material.table.where(owner)[:2])
        why = {cause: int(tokens[position]) for cause, tokens in account.misses[name].items() if tokens[position]}
        found.append(
            Verdict(
                engine=name,
                granularity=served.engine.granularity,
                minimum=served.engine.minimum,
                prompt=int(served.prompt[position]),
                cached=int(served.cached[position]),
                misses=why,
                source=source,
            )
        )
    return found


def _tokens(material: Material, account: Account, counted: str, *, exact: bool) -> Tokens:
    earlier, later = (int(tokens) for tokens in account.prompt)
    if material.replay.distinct_blocks is not None:
        shared = int(next(iter(account.served.values())).shared[1])
        return Tokens(
            earlier, later, shared if shared < earlier else None, shared, int(account.lost[1]), counted, exact
        )
    prompts = [material.table.prompt_segments(row) for row in material.rows.tolist()]
    parted = attribute.part(accounts.Pieces(material.encoder), *prompts)
    if parted is None:
        return Tokens(earlier, later, None, min(earlier, later), 0, counted, exact)
    _, _, token, behind = parted
    if 1 in account.pairs:  # a rule knows what parts them, and so what would be served without it
        behind = int(account.lost[1])
    return Tokens(earlier, later, token, token, behind, counted, exact)
