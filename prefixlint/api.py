"""What programs call: `check` and `analyze`, with their results as text or as plain JSON values.

    from prefixlint import analyze, check

    result = analyze("requests.jsonl", model="Qwen/Qwen3-8B", capacity=400_000)
    found = check("src", select=["PFX1"])

The command line rests on these functions. Importing this module is cheap: what analyses is imported when it is called.
Nothing is printed, and what is wrong is a `PrefixlintError` with a message, a stable `slug` and mostly a `hint`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypedDict, Unpack

from prefixlint.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from prefixlint.checkrun import CheckResult
    from prefixlint.findings import Rule
    from prefixlint.fleet import Limits
    from prefixlint.lintconfig import LintConfig
    from prefixlint.model import Request
    from prefixlint.pipeline import Options, Watch
    from prefixlint.results import Analysis
    from prefixlint.savings import Settings

Name = str | os.PathLike[str]
Log = Name | Iterable[Mapping[str, Any]]
"""A log: a file, a folder, a glob, `-` for standard input, or the bodies of requests in their order."""


class Choices(TypedDict, total=False):
    """What `analyze` can be told by name; the command line has options of the same names, which docs/cli.md explains.

    `since` is in epoch seconds, `ttl` in seconds; `capacity` in tokens, or like "40GiB" or "auto"; `warmup` a number of
    requests, or a share below 1.
    """

    model: str | None
    tokenizer: str | None
    chat_template: str | None
    tokens_from: str | None
    engines: Sequence[str]
    block_size: int | None
    log_format: str | None
    order: str | None
    since: float | None
    warmup: float
    sample: int | None
    by: Sequence[str]
    offline: bool
    why: float
    what_if: Sequence[str]
    redact: bool
    mask_salt: bytes
    source: Sequence[str]
    capacity: int | str | None
    host_capacity: int | None
    host_write: str | None
    eviction: str | None
    replicas: int
    route: str | None
    ttl: float | None
    from_write: bool
    marks: str | None
    keys: str | None
    gpu: str | None
    model_config: str | None
    kv_dtype: str
    prices: str | None


def analyze(
    *logs: Log,
    options: Options | None = None,
    compare: Name | None = None,
    stdin: BinaryIO | None = None,
    watch: Watch | None = None,
    **choices: Unpack[Choices],
) -> Analysis:
    """Say what prefix caches could serve of the requests in logs, and what stands in the way.

    `choices` change `options`. `compare` is a saved result (`analyze --format json`), against which this one is held.
    `stdin` is what `-` reads, `watch` has callbacks for progress and for the numbers of each request.

    Raises NoInputError without files, LogRefusedError for logs without prefix information, ModelError for a model that
    cannot be had, UsageError for what does not fit.
    """
    from prefixlint import pipeline

    chosen = _options(options or pipeline.Options(), choices)
    old = None if compare is None else _saved(compare)
    named = [os.fspath(log) for log in logs if isinstance(log, str | os.PathLike)]
    if len(named) == len(logs):
        result = pipeline.analyze(named, chosen, stdin=stdin, watch=watch)
    elif not named:
        result = pipeline.analyze_requests(_requests(logs), chosen, watch=watch)
    else:
        raise UsageError("files beside bodies of requests", slug="mixed-logs", hint="analyze one kind at a time")
    return result if old is None else _versus(old, result, os.fspath(compare or ""))


def check(
    *paths: Name,
    select: Sequence[str] | None = None,
    ignore: Sequence[str] | None = None,
    min_tokens: int | None = None,
    baseline: Name | None = None,
    diff_base: str | None = None,
    rules: Name | None = None,
    config: Name | LintConfig | None = None,
    unsafe_fixes: bool = False,
    force_exclude: bool = False,
    cache: bool = True,
    overrides: Mapping[str, bytes] | None = None,
) -> CheckResult:
    """Find what changes at the head of prompts in files and folders (default: here).

    What is not given here is said by the project's configuration, or by `config`: a file, or what `configured` gave.
    With `diff_base`, a revision, only what changed since then brought is found. `unsafe_fixes` offers fixes that change
    the text that a model reads. `cache` keeps what was found between runs, in the project's cache folder. `overrides`
    are bytes to read instead of those on disk, by path from the project's root.

    Raises NoInputError where nothing is there, ConfigError and UsageError for what does not fit.
    """
    from prefixlint import checkrun

    names = [os.fspath(path) for path in paths] or ["."]
    chosen = configured(
        *names, config=config, select=select, ignore=ignore, min_tokens=min_tokens, baseline=baseline, rules=rules
    )
    root = root_of(*names)
    if chosen.baseline is not None and not (root / chosen.baseline).is_file():
        raise ConfigError(f"{chosen.baseline}: no such baseline", slug="baseline")
    known = _rules(root, chosen)

    def run(changed: Mapping[str, bytes] | None) -> CheckResult:
        return checkrun.check(
            names,
            chosen,
            root=root,
            force_exclude=force_exclude,
            cache=cache,
            known=known,
            overrides=changed,
            moves_=unsafe_fixes,
        )

    if diff_base is None:
        return run(overrides)
    from prefixlint import gitbase

    return checkrun.since(run(overrides), run(gitbase.before(root, diff_base)), diff_base)


def root_of(*paths: Name) -> Path:
    """Give the root of the project that the first path (default: here) lies in."""
    from prefixlint import discover

    return discover.root_of(Path(paths[0] if paths else ".").absolute())


def configured(
    *paths: Name,
    config: Name | LintConfig | None = None,
    select: Sequence[str] | None = None,
    ignore: Sequence[str] | None = None,
    min_tokens: int | None = None,
    fail_on: str | None = None,
    baseline: Name | None = None,
    rules: Name | None = None,
) -> LintConfig:
    """Give the configuration that holds for a check of these paths, or the one in a file; what is named replaces it."""
    from prefixlint import lintconfig

    found = config if isinstance(config, lintconfig.LintConfig) else lintconfig.find(root_of(*paths), _path(config))
    return replace(
        found,
        select=found.select if select is None else tuple(select),
        ignore=found.ignore if ignore is None else tuple(ignore),
        min_tokens=found.min_tokens if min_tokens is None else min_tokens,
        fail_on=fail_on or found.fail_on,
        baseline=found.baseline if baseline is None else _here(baseline),
        rules=found.rules if rules is None else _here(rules),
    )


def as_json(result: Analysis | CheckResult) -> dict[str, Any]:
    """Give a result as the JSON values that the command line writes; `prefixlint.schemas` has what they look like."""
    from prefixlint import checkrun

    if isinstance(result, checkrun.CheckResult):
        return checkrun.as_json(result)
    from prefixlint.reports import json

    return json.as_json(result)


def _options(options: Options, choices: Choices) -> Options:
    """Change options by what was chosen; a name that is not known is a TypeError, as for every function."""
    from prefixlint import spots
    from prefixlint.fleet import Limits
    from prefixlint.savings import Settings

    said: dict[str, Any] = dict(choices)
    unknown = said.keys() - Choices.__annotations__.keys()
    if unknown:
        raise TypeError(f"analyze() got an unexpected keyword argument {min(unknown)!r}")
    for name in ("engines", "by", "what_if", "source"):
        if isinstance(said.get(name), str):
            said[name] = (said[name],)
    if isinstance(said.get("marks"), str):
        said["marks"] = spots.parse(said["marks"])
    of_server = isinstance(said.get("capacity"), str)
    limits: Limits = replace(options.limits, **_of(said, Limits, leave={"capacity"} if of_server else set()))
    server: Settings = replace(options.server, **_of(said, Settings, leave=set() if of_server else {"capacity"}))
    own = {name: value for name, value in said.items() if name in {item.name for item in fields(options)}}
    return replace(options, **own, limits=limits, server=server)


def _of(said: Mapping[str, Any], kind: Any, leave: set[str]) -> dict[str, Any]:
    names = {item.name for item in fields(kind)} - leave
    return {name: value for name, value in said.items() if name in names}


def _requests(logs: Sequence[Log]) -> list[Request]:
    from prefixlint import operands

    bodies = [body for log in logs if not isinstance(log, str | os.PathLike) for body in log]
    return [replace(operands.at_hand(body, "log"), line=line) for line, body in enumerate(bodies, 1)]


def _saved(path: Name) -> Mapping[str, Any]:
    from prefixlint import versus

    return versus.load(os.fspath(path))


def _versus(old: Mapping[str, Any], result: Analysis, name: str) -> Analysis:
    from prefixlint import versus

    return replace(result, versus=versus.compare(old, result, name))


def _here(name: Name) -> str:
    """Give a path that was named where the command runs; what is not there may lie below the project's root."""
    return str(Path(name).absolute()) if Path(name).exists() else os.fspath(name)


def _path(name: Name | None) -> str | None:
    return None if name is None else os.fspath(name)


def _rules(root: Path, config: LintConfig) -> Mapping[str, Rule]:
    """Give the rules that there are: the built-in ones, and those of the project's own folder."""
    from prefixlint import rulebook

    if config.rules is None:
        return rulebook.rules()
    folder = root / config.rules
    if not folder.is_dir():
        raise UsageError(f"--rules: {config.rules} is no folder", slug="rules-folder")
    return {**rulebook.rules(), **rulebook.load(folder)}
