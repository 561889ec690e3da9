"""JSON for programs: the schema `prefixlint.analyze/1`. Unknown is null, never 0."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import orjson

from prefixlint.logfindings import as_json as as_finding
from prefixlint.outline import PrefixTree
from prefixlint.reports import Look
from prefixlint.reports import _advice as advice
from prefixlint.reports import _trends as trends
from prefixlint.reports import _whatif as whatif
from prefixlint.reports import _worth as worth
from prefixlint.reports._times import iso
from prefixlint.results import (
    Analysis,
    EngineResult,
    Family,
    Group,
    Reported,
    RequestLine,
    SharedPrefix,
    TokenizerUse,
    VolatilePlace,
)

OBEYED = frozenset((*range(0x7F, 0xA0), 0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A)))
"""Characters that a terminal obeys, beyond those below 0x20, which JSON escapes by itself: DEL and C1, bidirectional
controls and marks, line separators."""
_OBEYED = re.compile(f"[{''.join(map(chr, sorted(OBEYED)))}]")


def analysis(result: Analysis, look: Look) -> str:  # noqa: ARG001 - JSON looks the same everywhere
    """Render what `analyze` found."""
    return dump(as_json(result))


def dump(value: Any) -> str:
    """Write JSON with indentation; text that is no valid Unicode is written with replacement characters.

    What a terminal would obey, or read backwards, is written as an escape of JSON, which says the same.
    """
    text = _encode(value, orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode()
    return _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _encode(value: Any, option: int) -> bytes:
    """Encode JSON; names and ids of a broken log may hold lone surrogates anywhere, so all text is cleaned then."""
    try:
        return orjson.dumps(value, option=option)
    except TypeError:
        return orjson.dumps(_cleaned(value), option=option)


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {_cleaned(key): _cleaned(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_cleaned(item) for item in value]
    return value


def as_json(result: Analysis) -> dict[str, Any]:
    """Give the result as plain JSON values, keys in the order of the contract."""
    return {
        "schema": "prefixlint.analyze/1",
        "input": {
            "files": list(result.input.files),
            "formats": dict(result.input.formats),
            "requests": result.input.requests,
            "from": iso(result.input.start),
            "to": iso(result.input.end),
            "order": result.input.order,
            "skipped": [
                {"path": s.path, "line": s.line, "slug": s.slug, "reason": s.reason} for s in result.input.skipped
            ],
            "skipped_total": result.input.skipped_total,
            "skipped_by_reason": [
                {
                    "path": k.first.path,
                    "line": k.first.line,
                    "slug": k.first.slug,
                    "reason": k.first.reason,
                    "count": k.count,
                }
                for k in result.input.skipped_kinds
            ],
        },
        "notes": [{"slug": n.slug, "message": n.message} for n in result.notes],
        "tokenizers": [_tokenizer(t) for t in result.tokenizers],
        "tokens": {"prompt": result.prompt_tokens, "distinct": result.distinct_tokens},
        "reported": _reported(result.reported),
        "likely_causes": [
            {"slug": c.slug, "message": c.message, "requests": c.requests, "missed_tokens": c.missed_tokens}
            for c in result.likely_causes
        ],
        "engines": [_engine(e) for e in result.engines],
        "families": [_family(f) for f in result.families],
        "shared_prefixes": [_shared(s) for s in result.shared_prefixes],
        "by": list(result.by),
        "groups": [_group(g) for g in result.groups],
        "findings": [as_finding(f) for f in result.findings],
        "tree": None if result.tree is None else _tree(result.tree),
        "source_findings": None
        if result.source_findings is None
        else [dict(static.finding) for static in result.source_findings],
        **whatif.as_json(result),
        "timeline": trends.timeline_json(result.timeline),
        "changes": trends.changes_json(result.timeline),
        "compare": trends.versus_json(result.versus),
        "curves": worth.curves(result.curves),
        "savings": [worth.saving(s) for s in result.savings],
        "advice": [advice.as_json(a) for a in result.advice],
        "failures": list(result.failures),
    }


def clean(text: str) -> str:
    """Make text valid Unicode: lone surrogates of a broken log become replacement characters."""
    return text.encode("utf-8", "replace").decode()


def _tokenizer(use: TokenizerUse) -> dict[str, Any]:
    return {
        "model": use.model,
        "name": use.name,
        "chat_template": use.chat_template,
        "exact": use.exact,
        "checked_against": use.checked_against,
        "requests": use.requests,
        "compared": use.compared,
        "equal": use.equal,
        "factor": use.factor,
    }


def _reported(reported: Reported | None) -> dict[str, Any] | None:
    if reported is None:
        return None
    return {
        "requests": reported.requests,
        "prompt_tokens": reported.prompt_tokens,
        "cached_tokens": reported.cached_tokens,
        "written_tokens": reported.written_tokens,
        "hit_rate": reported.hit_rate,
    }


def _engine(engine: EngineResult) -> dict[str, Any]:
    return {
        "engine": engine.engine,
        "granularity": engine.granularity,
        "granularity_by": engine.sized_by,
        "capacity_tokens": engine.capacity_tokens,
        "replicas": engine.replicas,
        "route": engine.route,
        "ttl_s": engine.ttl_s,
        "host_capacity_tokens": engine.host_capacity_tokens,
        "host_cached_tokens": engine.host_cached_tokens,
        "written_tokens": engine.written_tokens,
        "requests": engine.requests,
        "prompt_tokens": engine.prompt_tokens,
        "cached_tokens": engine.cached_tokens,
        "hit_rate": engine.hit_rate,
        "hit_rate_blocks": engine.hit_rate_blocks,
        "hit_rate_mean": engine.hit_rate_mean,
        "zero_hit_requests": engine.zero_hit_requests,
        "misses": {cause.value: tokens for cause, tokens in engine.misses.items()},
    }


def _family(family: Family) -> dict[str, Any]:
    return {
        "id": family.id,
        "name": family.name,
        "model": family.model,
        "requests": family.requests,
        "prompt_tokens": family.prompt_tokens,
        "lost_tokens": family.lost_tokens,
        "engines": {
            name: {"cached_tokens": e.cached_tokens, "hit_rate": e.hit_rate, "ceiling": e.ceiling}
            for name, e in family.engines.items()
        },
        "spans": [_place(p) for p in family.spans],
        "template": [{"text": p.text, "span": p.span, "left_out": p.left_out} for p in family.template],
    }


def _tree(tree: PrefixTree) -> dict[str, Any]:
    return {
        "stretches": tree.stretches,
        "nodes": [
            {
                "parent": node.parent,
                "start": node.start,
                "tokens": node.tokens,
                "requests": node.requests,
                "prompt_tokens": node.prompt_tokens,
                "own_tokens": node.own_tokens,
                "reused_tokens": node.reused_tokens,
                "branches": node.branches,
                "text": node.text,
            }
            for node in tree.nodes
        ],
    }


def _place(place: VolatilePlace) -> dict[str, Any]:
    path, line, other = place.example
    return {
        "token": place.token,
        "path": place.path,
        "char": place.char,
        "excerpt": {
            "before": place.excerpt.before,
            "earlier": place.excerpt.earlier,
            "later": place.excerpt.later,
            "after": place.excerpt.after,
        },
        "requests": place.requests,
        "lost_tokens": place.lost_tokens,
        "example": {"path": path, "line": line, "other_line": other},
    }


def _shared(shared: SharedPrefix) -> dict[str, Any]:
    return {"tokens": shared.tokens, "requests": shared.requests, "text": shared.text}


def _group(group: Group) -> dict[str, Any]:
    key: Mapping[str, str | None] = group.key
    return {
        "key": dict(key),
        "requests": group.requests,
        "prompt_tokens": group.prompt_tokens,
        "reported": _reported(group.reported),
        "engines": [_engine(e) for e in group.engines],
    }


def request_line(line: RequestLine) -> bytes:
    """Give one request's numbers as a line of JSON."""
    diverged = None
    if line.diverged_token is not None:
        diverged = {"token": line.diverged_token, "path": line.diverged_path, "char": line.diverged_char}
    return _encode(
        {
            "line": line.line,
            "path": line.path,
            "part": line.part,
            "id": line.id,
            "time": iso(line.time),
            "family": line.family,
            "prompt_tokens": line.prompt_tokens,
            "engines": {
                name: {"cached_tokens": cached, "misses": {cause.value: n for cause, n in misses.items()}}
                for name, (cached, misses) in line.engines.items()
            },
            "reported_cached_tokens": line.reported_cached_tokens,
            "diverged_at": diverged,
        },
        orjson.OPT_APPEND_NEWLINE,
    )
