"""`prefixlint check`: lint the prompts of a repository."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from prefixlint import cliparts, console, wording
from prefixlint.errors import UsageError

if TYPE_CHECKING:
    from prefixlint.checkrun import CheckResult
    from prefixlint.lintconfig import LintConfig

_OBJECTS_A_COLLECTION = 1_000_000
_SEVERITIES = ("error", "warning", "info")


def _words(value: str | None) -> tuple[str, ...] | None:
    return None if value is None else tuple(word for word in value.replace(" ", ",").split(",") if word)


@click.command(short_help="Lint prompt sources: what will break the prefix.")
@click.argument("paths", nargs=-1, type=click.Path())
@click.option("--select", metavar="RULES", help="Only these: codes, prefixes of codes, or names, with commas.")
@click.option("--ignore", metavar="RULES", help="All but these.")
@click.option("--fix", "fix_", is_flag=True, help="Apply safe fixes.")
@click.option("--unsafe-fixes", is_flag=True, help="Fix as well what changes the text that a model reads.")
@click.option("--diff", "diff_", is_flag=True, help="Show what fixes would change, and change nothing.")
@click.option(
    "--fail-on", type=click.Choice(_SEVERITIES), help="Exit with 1 from this severity on  [default: warning]."
)
@click.option(
    "--min-tokens", type=click.IntRange(min=0), metavar="N", help="Static tokens behind a place  [default: 32]."
)
@click.option("--statistics", is_flag=True, help="Count findings by rule.")
@click.option("--baseline", metavar="FILE", help="Findings of this JSON report are old and do not count.")
@click.option("--diff-base", metavar="REF", help="Only what changed since REF brought: a branch, tag or commit.")
@click.option("--add-ignore", metavar="REASON", help="Write an ignore comment with this reason at each finding.")
@click.option("--rules", "rules_dir", metavar="DIR", help="A folder with more rule pages.")
@click.option("--config", "config_file", metavar="FILE", help="Configuration, instead of the project's own.")
@click.option("--force-exclude", is_flag=True, help="Leave out excluded files even when they are named.")
@click.option("--no-cache", is_flag=True, help="Read every file again.")
@console.output_options(cliparts.FORMATS)
@console.guarded
def check(paths: tuple[str, ...], **options: Any) -> None:
    """Find what changes at the head of prompts, and so breaks the prefix cache, in PATHS (default: here).

    Python code, Jinja templates, prompt files and data files are read; nothing is imported or run. Exit codes: 0
    nothing to report, 1 findings at or above --fail-on, 2 wrong usage or a failure, 3 no input.
    """
    from prefixlint import api

    cliparts.collect_seldom(_OBJECTS_A_COLLECTION)
    config = _configured(paths, options)

    def run(overrides: dict[str, bytes] | None = None) -> CheckResult:
        return api.check(
            *paths,
            config=config,
            diff_base=options["diff_base"],
            unsafe_fixes=options["unsafe_fixes"],
            force_exclude=options["force_exclude"],
            cache=not options["no_cache"],
            overrides=overrides,
        )

    result = run()
    if options["diff_"] or options["fix_"] or options["unsafe_fixes"]:
        result = _fix(result, run, options)
        if options["diff_"]:
            raise SystemExit(_exit_code(result, config))
    if options["add_ignore"] is not None:
        result = _add_ignores(result, run, config, options["add_ignore"])
    _show(result, options)
    raise SystemExit(_exit_code(result, config))


def _configured(paths: tuple[str, ...], options: dict[str, Any]) -> LintConfig:
    """Give the project's configuration, changed by the options that were given."""
    from prefixlint import api

    return api.configured(
        *paths,
        config=options["config_file"],
        select=_words(options["select"]),
        ignore=_words(options["ignore"]),
        min_tokens=options["min_tokens"],
        fail_on=options["fail_on"],
        baseline=options["baseline"],
        rules=options["rules_dir"],
    )


def _fix(result: CheckResult, run: Any, options: dict[str, Any]) -> CheckResult:
    from prefixlint import fix

    fixed = fix.apply(
        result.findings, result.files, lambda files: run(dict(files)).findings, unsafe=options["unsafe_fixes"]
    )
    if result.findings and not fixed.applied and not options["quiet"]:
        more = "" if options["unsafe_fixes"] else "; --unsafe-fixes tries those that change what a model reads"
        click.echo(f"no fix for any of the findings{more}", err=True)
    if options["diff_"]:
        console.emit(fix.diff(result.files, fixed.files), options["output"])
        return result
    for path, data in sorted(fixed.files.items()):
        with console.writing(str(result.root / path)) as file:
            file.write(data)
    if fixed.applied and not options["quiet"]:
        click.echo(f"{len(fixed.applied):,} fixed in {wording.many(len(fixed.files), 'file')}", err=True)
    fresh: CheckResult = run()
    return fresh


def _add_ignores(result: CheckResult, run: Any, config: LintConfig, reason: str) -> CheckResult:
    from prefixlint import fix
    from prefixlint.findings import Severity

    if not reason.strip() or "\n" in reason:
        raise UsageError("--add-ignore needs a reason of one line", slug="ignore-reason")
    floor = Severity[config.fail_on.upper()]
    chosen = [finding for finding in result.findings if finding.severity >= floor]
    for path, data in sorted(fix.ignore_comments(chosen, result.files, reason.strip()).items()):
        with console.writing(str(result.root / path)) as file:
            file.write(data)
    fresh: CheckResult = run()
    return fresh


def _show(result: CheckResult, options: dict[str, Any]) -> None:
    from prefixlint import checkforms

    # an earlier result may lie among the data files that are read
    sources = (str(result.root / path) for path in result.files if not path.endswith((".json", ".html", ".md")))
    cliparts.keep_apart(sources, options["output"])

    said = checkforms.shown(result, options["report"], console.look(options), statistics=options["statistics"])
    console.emit(said, options["output"])
    if options["report"] == "github":
        from prefixlint import checkrun
        from prefixlint.reports import markdown

        console.summarize(lambda: markdown.document(checkrun.as_json(result)))


def _exit_code(result: CheckResult, config: LintConfig) -> int:
    from prefixlint.findings import Severity

    if any(error.slug in ("check-crashed", "unknown-check", "no-such-file") for error in result.errors):
        return 2
    floor = Severity[config.fail_on.upper()]
    return 1 if any(finding.severity >= floor for finding in result.findings) else 0
