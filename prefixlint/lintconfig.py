"""`[tool.prefixlint]` of pyproject.toml, or prefixlint.toml -> a frozen configuration; an unknown key is an error."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from prefixlint import declared
from prefixlint.declared import NOTHING, Declared, DeclaredSink
from prefixlint.discover import EXCLUDE
from prefixlint.errors import ConfigError

DEFAULT_MIN_TOKENS = 32
"""Two blocks of the usual sixteen tokens: less than that is never worth a reader's time."""


@dataclass(frozen=True, slots=True)
class LintConfig:
    """What a check is told by its configuration. Keys of the file are these names with hyphens.

    `exclude` replaces the built-in patterns, `extend_exclude` adds to them; `per_file_ignores` maps a pattern to rules.
    `declared` is what the project says of its own prompts: `sinks`, `prompt-names` and `prompt-files` of the file.
    `source` is the file it came from.
    """

    select: tuple[str, ...] = ("ALL",)
    ignore: tuple[str, ...] = ()
    min_tokens: int = DEFAULT_MIN_TOKENS
    fail_on: str = "warning"
    exclude: tuple[str, ...] = EXCLUDE
    extend_exclude: tuple[str, ...] = ()
    per_file_ignores: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    baseline: str | None = None
    rules: str | None = None
    declared: Declared = NOTHING
    source: str | None = None


_KINDS: dict[str, str] = {
    "select": "list",
    "ignore": "list",
    "exclude": "list",
    "extend-exclude": "list",
    "min-tokens": "int",
    "fail-on": "str",
    "baseline": "str",
    "rules": "str",
    "per-file-ignores": "table",
    "sinks": "list",
    "prompt-names": "list",
    "prompt-files": "list",
}
_DECLARED = {"sinks": "sinks", "prompt-names": "names", "prompt-files": "files"}
assert {name.replace("-", "_") for name in _KINDS.keys() - _DECLARED.keys()} == {
    item.name for item in fields(LintConfig)
} - {"source", "declared"}


def find(root: Path, explicit: str | None = None) -> LintConfig:
    """Give the configuration of a project: an explicit file, else prefixlint.toml, else pyproject.toml of `root`."""
    if explicit is not None:
        return _read(Path(explicit), whole=Path(explicit).name != "pyproject.toml")
    own, shared = root / "prefixlint.toml", root / "pyproject.toml"
    if own.is_file():
        return _read(own, whole=True)
    return _read(shared, whole=False) if shared.is_file() else LintConfig()


def _read(path: Path, *, whole: bool) -> LintConfig:
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}", slug="config-unreadable") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: {error}", slug="config-unreadable") from None
    except RecursionError:
        raise ConfigError(f"{path}: nested too deeply to be read", slug="config-unreadable") from None
    table: Any = data
    for name in () if whole else ("tool", "prefixlint"):
        table = table.get(name, {})
        if not isinstance(table, dict):
            raise ConfigError(f"{path}: {name} must be a table, not {table!r}", slug="config-value")
    return parse(table, str(path))


def parse(table: Mapping[str, Any], source: str) -> LintConfig:
    """Give the configuration that a table says."""
    values: dict[str, Any] = {"source": source}
    said: dict[str, Any] = {}
    for key, value in table.items():
        kind = _KINDS.get(key)
        if kind is None:
            near = difflib.get_close_matches(key, _KINDS, 1)
            hint = f"did you mean {near[0]}?" if near else f"known keys: {', '.join(sorted(_KINDS))}"
            raise ConfigError(f"{source}: unknown key {key!r}", slug="config-key", hint=hint)
        read = _value(key, kind, value, source)
        if key == "sinks":
            read = _sinks(read, source)
        (said if key in _DECLARED else values)[_DECLARED.get(key, key.replace("-", "_"))] = read
    return LintConfig(**values, declared=Declared(**said))


def _sinks(entries: tuple[str, ...], source: str) -> tuple[DeclaredSink, ...]:
    try:
        return declared.sinks(entries)
    except ValueError as error:
        hint = "write package.module.function, Class.method, or either with :argument (a name, or a position from 0)"
        raise ConfigError(
            f"{source}: sinks: {error.args[0]!r} names no function", slug="config-sink", hint=hint
        ) from None


def _value(key: str, kind: str, value: Any, source: str) -> Any:
    if kind == "list" and isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    if kind == "int" and isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if kind == "str" and isinstance(value, str) and (key != "fail-on" or value in ("error", "warning", "info")):
        return value
    if kind == "table" and isinstance(value, dict):
        return {str(pattern): tuple(_value(key, "list", rules, source)) for pattern, rules in value.items()}
    wanted = {
        "list": "a list of strings",
        "int": "a whole number from 0",
        "str": "a string",
        "table": "a table of lists",
    }
    wanted["str"] = "error, warning or info" if key == "fail-on" else wanted["str"]
    raise ConfigError(f"{source}: {key} must be {wanted[kind]}, not {value!r}", slug="config-value")
