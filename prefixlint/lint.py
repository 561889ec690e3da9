"""The order of a check's stages: files -> summaries -> prompts -> places -> findings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from prefixlint import placement
from prefixlint.callers import Callers, Reach
from prefixlint.checks import Context, checks
from prefixlint.findings import USED, Confidence, Finding, Related, Rule, Severity
from prefixlint.link import Linked, link
from prefixlint.placement import Place
from prefixlint.project import Project
from prefixlint.prompts import Span
from prefixlint.sources import Diagnostic


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run of rules gave: findings in order, what went wrong, and how many files hold prompts."""

    findings: tuple[Finding, ...]
    errors: tuple[Diagnostic, ...]
    with_prompts: int


def run(
    project: Project,
    paths: Iterable[str],
    rules: Mapping[str, Rule],
    min_tokens: int,
    callers: Callers | None = None,
) -> Outcome:
    """Apply rules to files. A check that crashes is reported with its rule, and the others go on.

    What `callers` find no request to lead to is information.
    """
    wanted = tuple(sorted(paths))
    linked = link(project, wanted)
    context = Context(linked, wanted, tuple(_places(linked)), min_tokens)
    errors = [problem for path in wanted if (summary := project.summary(path)) for problem in summary.diagnostics]
    errors += linked.problems
    found: list[Finding] = []
    available = checks()
    for rule, name in ((each, word) for each in rules.values() for word in each.check.split()):
        check = available.get(name)
        if check is None:
            errors.append(
                Diagnostic("", 0, "unknown-check", f"{rule.code} names the check {name!r}, which does not exist")
            )
            continue
        try:
            found.extend(_graded(finding, callers) for finding in check.check(context, rule))
        except Exception as error:  # noqa: BLE001 (one broken check must not hide what the others found)
            errors.append(
                Diagnostic("", 0, "check-crashed", f"{rule.code} {rule.name}: {type(error).__name__}: {error}")
            )
    told = (_used(finding, linked.uses.get(finding.group or finding.span, ())) for finding in _deduplicated(found))
    return Outcome(tuple(told), tuple(errors), len(linked.prompts))


def _places(linked: Linked) -> Iterable[Place]:
    for path in sorted(linked.prompts):
        for prompt in linked.prompts[path]:
            yield from placement.places(prompt)


def _graded(finding: Finding, callers: Callers | None) -> Finding:
    """Give a finding as information where no request leads to one of its places, or no code fills its placeholder."""
    if callers is None or finding.severity == Severity.INFO:
        return finding
    spans = dict.fromkeys([finding.span, finding.group or finding.span, *(each.span for each in finding.related)])
    reach, name = min(map(callers.reach, spans))
    unfilled = callers.unfilled(finding.span) if finding.confidence < Confidence.HIGH and finding.group else ""
    if unfilled:
        return replace(finding, severity=Severity.INFO, message=f"{finding.message} (no code fills `{unfilled}`)")
    if reach is Reach.REQUESTS:
        return finding
    why = f"nothing calls `{name}`" if reach is Reach.NOTHING else f"`{name}` runs once in a long while"
    return replace(finding, severity=Severity.INFO, message=f"{finding.message} ({why})")


def _deduplicated(found: Iterable[Finding]) -> list[Finding]:
    """Keep, of findings about one place by one rule, the gravest, and where the others show it.

    A place known by its value beats one known by name.
    """
    best: dict[tuple[str, Span], Finding] = {}
    for finding in found:
        key = (finding.rule.code, finding.group or finding.span)
        old = best.get(key)
        if old is None:
            best[key] = finding
            continue
        kept, other = (finding, old) if _weight(finding) > _weight(old) else (old, finding)
        best[key] = _used(kept, [other.span, *(each.span for each in other.related if each.message == USED)])
    return sorted(best.values(), key=lambda f: (f.span.path, f.span.start, f.rule.code, f.span.end))


_MOST_RELATED = 8
"""Places that are told beside a finding."""


def _used(finding: Finding, spans: Iterable[Span]) -> Finding:
    """Add to a finding where else its text is used."""
    told = {finding.span, *(each.span for each in finding.related)}
    more = [Related(span, USED) for span in dict.fromkeys(spans) if span not in told and span != finding.group]
    room = max(0, _MOST_RELATED - len(finding.related))
    return replace(finding, related=(*finding.related, *more[:room])) if more and room else finding


def _weight(finding: Finding) -> tuple[int, int, int]:
    return int(finding.severity), int(finding.confidence), finding.tokens_at_risk or 0
