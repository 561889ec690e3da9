"""`prefixlint rule` and `prefixlint config`: what rules there are, and which of them hold for a project."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from prefixlint import cliparts, console

if TYPE_CHECKING:
    from prefixlint.findings import Rule
    from prefixlint.lintconfig import LintConfig


@click.command(short_help="A rule's page, or the list of rules.")
@click.argument("name", required=False, shell_complete=cliparts.completing(cliparts.rule_names))
@console.output_options(("text", "json"))
@console.guarded
def rule(name: str | None, **settings: Any) -> None:
    """Show the page of a rule (by code or name), or list all rules."""
    from prefixlint import rulebook

    chosen = rulebook.rules().values() if name is None else [rulebook.find(name)]
    if settings["report"] == "json":
        _dump({"schema": "prefixlint.rule/1", "rules": [_rule(each) for each in chosen]}, settings["output"])
        return
    if name is not None:
        (found,) = chosen
        text = f"# {found.code} {found.name} ({found.severity.word})\n\n{found.summary}\n\n{found.page}"
        console.emit(text, settings["output"])
        return
    rows = [f"{r.code}  {r.severity.word:<7}  {r.name:<34}  {r.summary}" for r in chosen]
    console.emit("\n".join(rows) + "\n", settings["output"])


def _rule(each: Rule) -> dict[str, Any]:
    return {
        "code": each.code,
        "name": each.name,
        "severity": each.severity.word,
        "since": each.since,
        "summary": each.summary,
        "help": each.help,
        "page": each.page,
    }


@click.command(short_help="The effective configuration, and why each rule is on or off.")
@click.argument("path", required=False, default=".")
@click.option("--config", "config_file", metavar="FILE", help="Configuration, instead of the project's own.")
@console.output_options(("text", "json"))
@console.guarded
def config(path: str, config_file: str | None, **settings: Any) -> None:
    """Show the configuration that holds for PATH."""
    from prefixlint import discover, lintconfig
    from prefixlint.reports._terminal import wrap

    root = discover.root_of(Path(path).absolute())
    found = lintconfig.find(root, config_file)
    rows = list(_reasons(found))
    if settings["report"] == "json":
        _dump(_configuration(root, found, rows), settings["output"])
        return
    out = [f"root: {root}", f"configuration: {found.source or 'none: built-in defaults'}"]
    lists = {"exclude": [*found.exclude, *found.extend_exclude], **_declared(found)}
    width = console.width()
    out += [f"min-tokens: {found.min_tokens}", f"fail-on: {found.fail_on}"]
    out += [
        line for key, values in lists.items() if values for line in wrap(", ".join(values), width, first=f"{key}: ")
    ]
    out.append("")
    for each, on, why in rows:
        out += wrap(why, width, first=f"{each.code}  {'on ' if on else 'off'}  {each.name:<34}  ", indent=" " * 13)
    console.emit("\n".join(out) + "\n", settings["output"])


def _declared(found: LintConfig) -> dict[str, list[str]]:
    """Give what a project says of its own prompts, by the key of its file."""
    said = found.declared
    sinks = [f"{sink.function}:{sink.argument}".rstrip(":") for sink in said.sinks]
    return {"sinks": sinks, "prompt-names": list(said.names), "prompt-files": list(said.files)}


def _reasons(found: LintConfig) -> Iterable[tuple[Rule, bool, str]]:
    """Give each rule, whether it is on, and why."""
    from prefixlint import checkrun, rulebook

    known = rulebook.rules()
    on = checkrun.enabled(found, known)
    for code, each in known.items():
        if code in on:
            why = "selected by default" if found.select == ("ALL",) else f"selected by {', '.join(found.select)}"
        else:
            ignored = code in rulebook.matching(found.ignore, known)
            why = f"ignored by {', '.join(found.ignore)}" if ignored else f"not in {', '.join(found.select)}"
        yield each, code in on, why


def _configuration(root: Path, found: LintConfig, rows: Iterable[tuple[Rule, bool, str]]) -> dict[str, Any]:
    return {
        "schema": "prefixlint.config/1",
        "root": str(root),
        "configuration": found.source,
        "select": list(found.select),
        "ignore": list(found.ignore),
        "min_tokens": found.min_tokens,
        "fail_on": found.fail_on,
        "exclude": [*found.exclude, *found.extend_exclude],
        "per_file_ignores": {pattern: list(codes) for pattern, codes in found.per_file_ignores.items()},
        "baseline": found.baseline,
        "rules_folder": found.rules,
        **{key.replace("-", "_"): values for key, values in _declared(found).items()},
        "rules": [{"code": each.code, "name": each.name, "on": on, "why": why} for each, on, why in rows],
    }


def _dump(value: dict[str, Any], output: str | None) -> None:
    from prefixlint.reports.json import dump

    console.emit(dump(value), output)
