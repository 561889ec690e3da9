"""Two requests side by side: where they part, what else differs, what is equal behind it, what caches could serve.

The text of bodies is compared as logged and needs no tokenizer; tokens and verdicts are those of a log that holds the
two requests, one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from prefixlint import alignment, bodies, excerpts, fingerprints, logrules
from prefixlint.details import Characters, Comparison, Difference, Relation, Tokens, Verdict
from prefixlint.errors import UsageError
from prefixlint.model import Fingerprint, Request
from prefixlint.redact import Redactor
from prefixlint.results import Excerpt

if TYPE_CHECKING:
    from prefixlint.pipeline import Options


def compare(
    earlier: Request,
    later: Request,
    options: Options | None,
    *,
    redactor: Redactor,
    turn: bool | None = None,
) -> Comparison:
    """Compare two requests; `options` say how to tokenize and whose caches to ask, None leaves both out.

    `turn` tells turns of one conversation from siblings of a template; None tries the one, then the other.
    UsageError where neither text nor tokens of both requests are known.
    """
    ours, theirs = bodies.body_of(earlier), bodies.body_of(later)
    tokens, verdicts, notes = (None, [], []) if options is None else _measured(earlier, later, options)
    notes = [*_apart(earlier, later, redactor), *notes]
    if ours is None or theirs is None:
        if tokens is None:
            lacking = earlier if ours is None else later
            raise UsageError(
                f"{lacking.path}, line {lacking.line}: holds no text to compare",
                slug="no-text",
                hint="log prompts as text",
            )
        first = _without_text(earlier, later, tokens)
        rows = [] if first is None else [first]
        return Comparison(first, None, rows, None, tokens.index is None, tokens, verdicts, notes)
    parted = bodies.first_difference(ours, theirs)
    aligned = bodies.aligned(ours, theirs)
    aligner = alignment.Alignment(logrules.compare(earlier, later, turn=turn), redactor)
    rows = aligner.differences(aligned)
    first = _first(parted, rows, aligner, redactor)
    return Comparison(
        first=first and _masked(first, redactor),
        excerpt=_excerpt(parted, redactor),
        differences=[_masked(row, redactor) for row in rows],
        characters=_characters(ours, theirs, aligned, parted),
        grows=parted is not None and parted.grows,
        tokens=tokens,
        verdicts=verdicts,
        notes=notes,
    )


def _apart(earlier: Request, later: Request, redactor: Redactor) -> list[str]:
    """Say what keeps the caches of two requests apart, however alike their prompts are."""
    parts = []
    if earlier.model and later.model and earlier.model != later.model:
        parts.append(f"the model ({', then '.join(redactor.text(model) for model in (earlier.model, later.model))})")
    names = sorted({part.partition("=")[0] for part in {*earlier.namespace} ^ {*later.namespace}})
    parts += [f"the {name} that separates caches" for name in names]
    if not parts:
        return []
    return [f"no cache serves one of the other, since they differ in {' and '.join(parts)}"]


def _first(
    parted: bodies.Difference | None, rows: Sequence[Difference], aligner: alignment.Alignment, redactor: Redactor
) -> Difference | None:
    """Find the first divergence among the differences; where they show it otherwise, give it as it is."""
    if parted is None:
        return None
    changed = [row for row in rows if row.relation != "equal"]
    if changed and (changed[0].path, changed[0].char) == (parted.path, parted.char):
        return changed[0]
    what = "the later request only goes on" if parted.grows else "the requests part"
    before, after = (
        alignment.cut(redactor.value(parted.path, "" if value is None else str(value)))
        for value in (parted.before, parted.after)
    )
    relation: Relation = "added" if parted.grows else "changed"
    return aligner.made(relation, parted.path, parted.char, values=(before, after), what=what)


def _masked(row: Difference, redactor: Redactor) -> Difference:
    """Mask the paths: the keys of a body may be what somebody called somebody."""
    return replace(row, path=redactor.path(row.path), last=redactor.path(row.last))


def _excerpt(parted: bodies.Difference | None, redactor: Redactor) -> Excerpt | None:
    if parted is None or not isinstance(parted.before, str) or not isinstance(parted.after, str):
        return None
    if redactor.value(parted.path, "x") != "x":
        hidden = redactor.value(parted.path, "x")
        return Excerpt("", hidden, hidden, "")
    return excerpts.excerpt(parted.before, parted.after, parted.char, redactor=redactor)


def _characters(
    earlier: Any, later: Any, aligned: Sequence[bodies.Row], parted: bodies.Difference | None
) -> Characters:
    a, b = list(bodies.leaves(earlier)), list(bodies.leaves(later))
    shared = 0 if parted is None else parted.char
    for x, y in zip(a, b, strict=False):
        if x.path != y.path or x.value != y.value:
            break
        shared += len(str(x.value))
    equal = sum(map(alignment.equal, aligned))
    return Characters(shared, max(0, equal - shared), alignment.size(a), alignment.size(b))


def _measured(
    earlier: Request, later: Request, options: Options
) -> tuple[Tokens | None, Sequence[Verdict], Sequence[str]]:
    from prefixlint import pairtokens  # late, since text alone needs neither numpy nor a tokenizer

    return pairtokens.measured(earlier, later, options)


def _without_text(earlier: Request, later: Request, tokens: Tokens) -> Difference | None:
    """Give the place at which prompts part that were logged without their text."""
    if tokens.index is None:
        return None if tokens.earlier == tokens.later else _bare("added", "tokens", "the later request only goes on")
    place = None
    if isinstance(earlier.content, Fingerprint) and isinstance(later.content, Fingerprint):
        place = fingerprints.place(earlier.content, later.content)
    path, char = ("tokens", tokens.index) if place is None else place
    return replace(_bare("changed", path, "the requests part"), char=char)


def _bare(relation: Relation, path: str, what: str) -> Difference:
    return Difference(relation, path, path, 0, 0, what)
