"""Which settings of an engine are tried, and the command line of each: `--sweep FLAG=a,b,c` and `--bisect FILE`."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from prefixlint.errors import ConfigError, UsageError
from prefixlint.wording import many

BASELINE = "baseline"
TOGETHER = "all together"
AGAIN = "baseline again"
_NOTHING: Mapping[str, str] = MappingProxyType({})
_KEYS = {"name": str, "flags": list, "without": list, "env": dict, "expect": str, "numerics": bool, "together": bool}
_NUMERIC = (
    "kv-cache-dtype",
    "dtype",
    "quantization",
    "attention-backend",
    "speculative-algorithm",
    "speculative-config",
)


@dataclass(frozen=True, slots=True)
class Setting:
    """One thing that is changed: `flags` as the command line has them, `env` variables, `without` flags taken away.

    `expect` says what it should move, `numerics` that outputs may change with it, `together` that it is part of the
    variant with all settings.
    """

    name: str
    flags: Sequence[str] = ()
    without: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    expect: str | None = None
    numerics: bool = False
    together: bool = True


@dataclass(frozen=True, slots=True)
class Plan:
    """What is tried against `baseline` flags; `engine` is the kind of server that the flags are of, where known."""

    settings: Sequence[Setting]
    baseline: Sequence[str] = ()
    engine: str | None = None


@dataclass(frozen=True, slots=True)
class Variant:
    """One server to start: what it is called, its settings (none: the baseline), command line and variables."""

    name: str
    settings: Sequence[Setting]
    command: Sequence[str]
    env: Mapping[str, str]

    @property
    def numerics(self) -> bool:
        """Whether its outputs may differ from the baseline's."""
        return any(setting.numerics for setting in self.settings)


def variants(plan: Plan, command: Sequence[str]) -> Iterator[Variant]:
    """Give the servers of a plan in order: the baseline, each setting alone, all together, the baseline again.

    The last one shows how far two runs of the same server are apart. `command` starts the server; flags of the plan
    replace its own.
    """
    base = with_flags(command, plan.baseline)
    yield Variant(BASELINE, (), base, {})
    for setting in plan.settings:
        yield Variant(setting.name, (setting,), _applied(base, [setting]), dict(setting.env))
    joined = [setting for setting in plan.settings if setting.together]
    if len(joined) > 1:
        env = {name: value for setting in joined for name, value in setting.env.items()}
        yield Variant(TOGETHER, joined, _applied(base, joined), env)
    yield Variant(AGAIN, (), base, {})


def sweep(texts: Sequence[str]) -> Plan:
    """Read `FLAG=a,b,c` texts: each value is a setting. `on` and `off` give and take away a flag without a value.

    UsageError for other texts, and for a flag that is given twice.
    """
    settings: list[Setting] = []
    seen = set()
    for text in texts:
        name, equals, values = text.partition("=")
        name = name.strip().lstrip("-")
        if not equals or not name or not all(value.strip() for value in values.split(",")):
            raise UsageError(
                f"--sweep {text} names no values",
                slug="bad-sweep",
                hint="like --sweep page-size=1,16 or mixed-chunk=on",
            )
        if name in seen:
            raise UsageError(f"--sweep has {name} twice", slug="bad-sweep", hint="Give all its values in one option.")
        seen.add(name)
        settings += [_swept(name, value.strip(), first=not number) for number, value in enumerate(values.split(","))]
    return Plan(settings)


def _swept(name: str, value: str, *, first: bool) -> Setting:
    """Give the setting of one value; with several flags, the first value of each is part of all together."""
    flag, numerics = f"--{name}", name in _NUMERIC or name.startswith("speculative-")
    if value == "off":
        return Setting(f"{name} off", without=(flag,), numerics=numerics, together=first)
    flags = (flag,) if value == "on" else (flag, value)
    return Setting(f"{name} {value}", flags, numerics=numerics, together=first)


def starters() -> list[str]:
    """Give the names of the starter files."""
    return sorted(path.stem for path in _folder().glob("*.toml"))


def starter(name: str) -> str:
    """Give the text of a starter file."""
    return (_folder() / f"{name}.toml").read_text(encoding="utf-8")


def _folder() -> Path:
    return Path(__file__).with_name("starters")


def read(name: str) -> Plan:
    """Read a file of settings, or the starter of that name. ConfigError says what in it is wrong."""
    path = Path(name)
    try:
        text = starter(name) if name in starters() and not path.exists() else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        hint = f"Give a file, or one of {', '.join(starters())}."
        raise UsageError(f"{name} cannot be read: {reason}", slug="no-settings", hint=hint) from error
    try:
        return _plan(tomllib.loads(text), name)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{name}: {error}", slug="bad-settings") from error


def _plan(table: dict[str, Any], where: str) -> Plan:
    _only(table, {"engine": str, "baseline": dict, "setting": list}, where)
    baseline = table.get("baseline", {})
    _only(baseline, {"flags": list}, f"{where}, [baseline]")
    settings = [
        _setting(one, f"{where}, [[setting]] {number}") for number, one in enumerate(table.get("setting", []), 1)
    ]
    if not settings:
        raise ConfigError(f"{where} names no setting", slug="bad-settings", hint="Add [[setting]] with name and flags.")
    _check_names(settings, where)
    return Plan(settings, _words(baseline.get("flags", []), f"{where}, [baseline]"), table.get("engine"))


def _setting(table: Any, where: str) -> Setting:
    if not isinstance(table, dict):
        raise ConfigError(f"{where} is no table", slug="bad-settings")
    _only(table, _KEYS, where)
    name = table.get("name")
    if not name:
        raise ConfigError(f"{where} has no name", slug="bad-settings")
    flags, without = (_words(table.get(key, []), f"{where}, {key}") for key in ("flags", "without"))
    env = table.get("env", {})
    if not all(isinstance(value, str) for value in env.values()):
        raise ConfigError(f"{where}, env: variables are strings", slug="bad-settings")
    if not (flags or without or env):
        raise ConfigError(f"{where} changes nothing", slug="bad-settings", hint="Give flags, without or env.")
    return Setting(
        name, flags, without, env, table.get("expect"), table.get("numerics", False), table.get("together", True)
    )


def _check_names(settings: Sequence[Setting], where: str) -> None:
    """Refuse names that are taken, and settings that cannot be applied together."""
    names = [BASELINE, TOGETHER, AGAIN]
    owner: dict[str, str] = {}
    for setting in settings:
        if setting.name in names:
            raise ConfigError(f"{where} has two rows called {setting.name}", slug="bad-settings")
        names.append(setting.name)
        for flag in (*_names(setting.flags), *_names(setting.without), *setting.env) if setting.together else ():
            if flag in owner:
                raise ConfigError(
                    f"{where}: {owner[flag]} and {setting.name} both set {flag}",
                    slug="bad-settings",
                    hint="Only one of them can be part of all together: give the other `together = false`.",
                )
            owner[flag] = setting.name


def _only(table: Mapping[str, Any], known: Mapping[str, type], where: str) -> None:
    for key, value in table.items():
        if key not in known:
            hint = f"It may hold {', '.join(known)}."
            raise ConfigError(f"{where} has an unknown key {key}", slug="bad-settings", hint=hint)
        if not isinstance(value, known[key]):
            raise ConfigError(f"{where}: {key} is no {known[key].__name__}", slug="bad-settings")


def _words(values: list[Any], where: str) -> tuple[str, ...]:
    """Give flags as words of a command line; numbers are taken as well."""
    if not all(isinstance(value, str | int | float) and not isinstance(value, bool) for value in values):
        raise ConfigError(f"{where}: flags are strings and numbers", slug="bad-settings")
    return tuple(str(value) for value in values)


def _applied(command: Sequence[str], settings: Sequence[Setting]) -> list[str]:
    for setting in settings:
        command = with_flags(without_flags(command, _names(setting.without)), setting.flags)
    return list(command)


def with_flags(command: Sequence[str], flags: Sequence[str]) -> list[str]:
    """Give a command with these flags at its end instead of its own: not every parser lets the last one win."""
    return [*without_flags(command, _names(flags)), *flags]


def without_flags(command: Sequence[str], names: Sequence[str]) -> list[str]:
    """Give a command without these flags, and without their values: the words up to the next flag."""
    kept, dropping = [], False
    for word in command:
        if word.startswith("--"):
            dropping = word.partition("=")[0] in names
        elif word.startswith("-") and not _is_number(word):
            dropping = False
        if not dropping:
            kept.append(word)
    return kept


def _names(flags: Sequence[str]) -> list[str]:
    return [word.partition("=")[0] for word in flags if word.startswith("--")]


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def described(plan: Plan) -> str:
    """Say how many servers a plan starts."""
    count = sum(1 for _ in variants(plan, ()))
    return f"{many(len(plan.settings), 'setting')}: {many(count, 'start')} of the server"
