"""How what a probe found looks: text for people, and JSON `prefixlint.probe/1`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from prefixlint.reports import Look
from prefixlint.reports._terminal import Style, columns, table, visible, wrap
from prefixlint.saved import build
from prefixlint.verify.probed import TITLES, Probed, Rule, Seen
from prefixlint.verify.targets import About
from prefixlint.wording import many

SCHEMA = "prefixlint.probe/1"
_NAME = max(map(columns, TITLES.values()))
_MARKS = {True: "as expected", False: "differs", None: "-"}
_MARK = max(map(columns, _MARKS.values()))
_SOURCES = {"server": "the server's own setting", "profile": "the profile"}


def text(found: Probed, look: Look) -> str:
    """Show each rule with what was expected of it, what differs with the reason, and with `verbose` each request."""
    style = Style(look.color)
    about = found.about
    model = f", model {visible(about.model)}" if about.model else ""
    head = f"{about.title}{f' {visible(about.version)}' if about.version else ''} at {visible(found.url)}{model}"
    lines = [style.bold(line) for line in wrap(head, look.width, first="")]
    sent = (
        f"{many(found.requests, 'request')}, {found.prompt_tokens:,} prompt tokens; kept apart by a {found.isolation}"
    )
    lines += [*wrap(sent, look.width, first=""), ""]
    for rule in found.rules:
        lines += _rule(rule, style, look)
    return "\n".join([*lines, "", *_end(found, style, look.width)]) + "\n"


def _rule(rule: Rule, style: Style, look: Look) -> list[str]:
    tint = {True: style.green, False: style.red, None: style.dim}[rule.agrees]
    mark = tint(_MARKS[rule.agrees].ljust(_MARK))
    measured = rule.measured if rule.measured is not None else "unknown"
    said = measured
    if rule.expected is not None and rule.expected != measured:
        said += f" ({_SOURCES[rule.source or 'profile']}: {rule.expected})"
    indent = " " * (2 + _MARK + 2)
    body = wrap(said, look.width, indent=indent + " " * (_NAME + 2), first=indent + rule.title.ljust(_NAME + 2))
    lines = [f"  {mark}  " + body[0][len(indent) :], *body[1:]]
    if rule.note and (rule.agrees is False or rule.measured is None or look.verbose):
        lines += [style.dim(line) for line in wrap(visible(rule.note), look.width, indent=indent + " " * (_NAME + 2))]
    return lines + (_seen(rule, indent, look.width) if look.verbose and rule.seen else [])


def _seen(rule: Rule, indent: str, width: int) -> list[str]:
    rows = [("request", "prompt tokens", "shared", "cached")]
    for one in rule.seen:
        numbers = (one.prompt_tokens, one.shared, one.cached)
        rows.append((one.what, *("?" if number is None else f"{number:,}" for number in numbers)))  # type: ignore[arg-type]  # four cells
    return table(rows, align="<>>>", width=width, indent=len(indent))


def _end(found: Probed, style: Style, width: int) -> list[str]:
    lines = []
    differs = [rule.title for rule in found.rules if rule.agrees is False]
    unknown = [rule.title for rule in found.rules if rule.measured is None]
    against = f"the profile {found.profile}" if found.profile else "what the server says of itself"
    if differs:
        said = f"Differs from {against}: {', '.join(differs)}. Predictions for this server need the measured values."
        lines += [style.red(line) for line in wrap(said, width, first="")]
    elif any(rule.agrees for rule in found.rules):
        lines += [style.green(line) for line in wrap(f"Nothing differs from {against}.", width, first="")]
    if found.profile is None:
        lines += wrap("There is no profile to compare with; --profile NAME chooses one.", width, first="")
    if unknown:
        lines += wrap(f"Not found out: {', '.join(unknown)}.", width, first="")
    told = any(rule.name == "reported" and rule.measured == "yes" for rule in found.rules)
    for note in () if told else found.about.notes:
        lines += wrap(f"Note: {note}.", width, first="")
    return lines


def as_json(found: Probed) -> str:
    """Give what was found as JSON; unknown is null."""
    about = found.about
    value = {
        "schema": SCHEMA,
        "server": {
            "url": found.url,
            "kind": about.name,
            "title": about.title,
            "version": about.version,
            "model": about.model,
            "device": about.device,
            "block_size": about.block_size,
            "capacity_tokens": about.capacity_tokens,
            "context": about.context,
            "notes": list(about.notes),
        },
        "profile": found.profile,
        "isolation": found.isolation,
        "token_ids": found.exact,
        "requests": found.requests,
        "prompt_tokens": found.prompt_tokens,
        "differs": found.deviates,
        "failed": found.failed,
        "rules": [
            {
                "name": rule.name,
                "measured": rule.measured,
                "expected": rule.expected,
                "source": rule.source,
                "agrees": rule.agrees,
                "note": rule.note,
                "seen": [
                    {"what": one.what, "prompt_tokens": one.prompt_tokens, "shared": one.shared, "cached": one.cached}
                    for one in rule.seen
                ],
            }
            for rule in found.rules
        ],
    }
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode()


def restored(saved: Mapping[str, Any]) -> Probed:
    """Give what was written as JSON."""
    server = saved["server"]
    about = About(
        server["kind"], server["title"], None, server["version"], server["model"], notes=tuple(server["notes"])
    )
    rules = (build(Rule, rule, seen=tuple(build(Seen, one) for one in rule["seen"])) for rule in saved["rules"])
    return Probed(
        url=server["url"],
        about=about,
        profile=saved["profile"],
        isolation=saved["isolation"],
        exact=saved["token_ids"],
        requests=saved["requests"],
        prompt_tokens=saved["prompt_tokens"],
        rules=tuple(rules),
        failed=saved["failed"],
    )
